"""Base predictors: logits that are finite, the same twice, and the same after saving without code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax, softmax

from tasks.predictors import KINDS, PREDICTORS, fit_predictor, load_predictor
from tasks.predictors.linear_features import LinearFeaturesSettings, fit_linear_features
from tasks.predictors.linear_text import LinearTextSettings, count_ngrams, fit_linear_text
from tasks.predictors.saved import HEADER
from tasks.predictors.training_labels import TrainingLabels, row_weights
from tasks.protocol.errors import BadInput

SMALL = {
    "linear_text": {"bucket_bits": 10},
    "linear_features": {},
    "boosted": {"rounds": 10, "leaves": 4},
}
NAME = {kind: name for name, kinds in PREDICTORS.items() for kind in kinds.values()}
WEIGHTS = ("none", "balanced")
every_kind = pytest.mark.parametrize("kind", KINDS)


def judged(kind: str, labels: np.ndarray, signal: float = 1.0, seed: int = 0) -> pl.DataFrame:
    """Pairs whose texts or features tell the label in a share `signal` of the rows, and else a random one."""
    generator = np.random.default_rng(seed)
    n = len(labels)
    told = np.where(generator.random(n) < signal, labels, generator.integers(0, labels.max() + 1, n))
    if kind == "linear_text":
        texts = {
            "query": [f"query {number % 17} word{label}" for number, label in enumerate(told)],
            "candidate": [f"candidate {number}" for number in generator.integers(0, 40, n)],
        }
        return pl.DataFrame({**texts, "label": pl.Series(labels, dtype=pl.Int8)})
    features = generator.normal(size=(n, 4)).astype(np.float32)
    features[:, 1] += 3 * told
    column = pl.Series(features, dtype=pl.Array(pl.Float32, 4))
    return pl.DataFrame({"features": column, "label": pl.Series(labels, dtype=pl.Int8)})


def drawn(n: int = 300, share: tuple[float, ...] = (0.6, 0.3, 0.1), seed: int = 0) -> np.ndarray:
    """`n` labels with these shares."""
    return np.random.default_rng(seed).choice(len(share), size=n, p=share)


def fit(kind: str, frame: pl.DataFrame, n_labels: int = 3, class_weight: str = "none", seed: int = 0, **own):
    section = {kind: SMALL[kind] | own}
    name = NAME[kind]
    return fit_predictor(name, frame, n_labels=n_labels, class_weight=class_weight, seed=seed, settings=section)


# ------------------------------------------------------------------ the contract, for every kind


@every_kind
def test_logits_are_finite_doubles_for_every_row_and_label(kind):
    frame = judged(kind, drawn())
    logits = fit(kind, frame)(frame)
    assert logits.shape == (300, 3)
    assert logits.dtype == np.float64
    assert np.isfinite(logits).all()


@every_kind
def test_two_labels_have_opposite_logits(kind):
    frame = judged(kind, drawn(share=(0.7, 0.3)))
    logits = fit(kind, frame, n_labels=2)(frame)
    assert (logits[:, 0] == -logits[:, 1]).all()
    assert (logits.argmax(axis=1) == frame["label"].to_numpy()).mean() > 0.85


@every_kind
@pytest.mark.parametrize("class_weight", WEIGHTS)
def test_the_same_rows_and_seed_give_the_same_bits(kind, class_weight):
    frame = judged(kind, drawn(), signal=0.5)
    logits = [fit(kind, frame, class_weight=class_weight)(frame) for _ in range(2)]
    np.testing.assert_array_equal(*logits)


@every_kind
def test_a_planted_signal_is_learnt(kind):
    train, test = judged(kind, drawn(), 0.8, seed=1), judged(kind, drawn(seed=7), 0.8, seed=2)
    labels = test["label"].to_numpy()
    right = (fit(kind, train)(test).argmax(axis=1) == labels).mean()
    assert right > (labels == 0).mean() + 0.1


@every_kind
def test_a_row_is_read_alone(kind):
    frame = judged(kind, drawn(), signal=0.5)
    order = np.random.default_rng(3).permutation(len(frame))[:50]
    predictor = fit(kind, frame)
    np.testing.assert_allclose(predictor(frame[order]), predictor(frame)[order], rtol=1e-12, atol=1e-12)


@every_kind
@pytest.mark.parametrize("present", [(0, 2), (1, 3), (0, 1, 3)])
def test_a_label_absent_from_training_has_a_low_finite_logit(kind, present):
    labels = np.array(present)[drawn(share=(1 / len(present),) * len(present))]
    frame = judged(kind, labels)
    logits = fit(kind, frame, n_labels=4)(frame)
    absent = [label for label in range(4) if label not in present]
    assert np.isfinite(logits).all()
    assert set(logits.argmax(axis=1)) == set(present)
    others = np.exp(logits[:, present]).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(logits[:, absent]), np.broadcast_to(others / 300, (300, len(absent))))


@every_kind
def test_balanced_weights_replace_the_prior_by_one_over_k(kind):
    train, test = judged(kind, drawn(2000), signal=0.0, seed=1), judged(kind, drawn(1000), signal=0.0, seed=2)
    mean = {weight: softmax(fit(kind, train, class_weight=weight)(test), axis=1).mean(axis=0) for weight in WEIGHTS}
    np.testing.assert_allclose(mean["none"], [0.6, 0.3, 0.1], atol=0.05)
    np.testing.assert_allclose(mean["balanced"], [1 / 3] * 3, atol=0.05)


@every_kind
def test_one_label_only_is_refused_with_what_was_found(kind):
    frame = judged(kind, np.full(30, 2))
    with pytest.raises(BadInput, match="only the label 2"):
        fit(kind, frame)


@every_kind
def test_no_training_rows_are_refused(kind):
    with pytest.raises(BadInput, match="no row at all"):
        fit(kind, judged(kind, drawn())[:0])


@every_kind
def test_an_unknown_class_weight_is_refused(kind):
    with pytest.raises(BadInput, match="'Balanced'"):
        fit(kind, judged(kind, drawn()), class_weight="Balanced")


# ------------------------------------------------------------------ saving


@every_kind
@pytest.mark.parametrize("n_labels", [3, 4])
def test_a_loaded_predictor_gives_the_same_bits(kind, n_labels, tmp_path):
    frame = judged(kind, drawn(), signal=0.5)
    predictor = fit(kind, frame, n_labels=n_labels)
    predictor.save(tmp_path / "base")
    loaded = load_predictor(tmp_path / "base")
    np.testing.assert_array_equal(loaded(frame), predictor(frame))
    assert loaded.model.settings == predictor.model.settings


@every_kind
def test_saving_twice_writes_the_same_bytes(kind, tmp_path):
    frame = judged(kind, drawn(), signal=0.5)
    for folder in ("first", "second"):
        fit(kind, frame).save(tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert len(files) == 2  # and no temporary file is left
    for name in files:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


@every_kind
def test_a_saved_predictor_is_text_and_plain_arrays(kind, tmp_path):
    fit(kind, judged(kind, drawn())).save(tmp_path)
    header = json.loads((tmp_path / HEADER).read_text())
    assert header["kind"] == kind
    assert header["labels"] == {"n_labels": 3, "present": [0, 1, 2], "rows": 300, "class_weight": "none"}
    model = tmp_path / header["model"]["file"]
    assert {path.name for path in tmp_path.iterdir()} == {HEADER, model.name}
    if model.suffix == ".txt":
        assert model.read_bytes().decode("ascii").startswith("tree\n")
        return
    with zipfile.ZipFile(model) as members:
        for name in members.namelist():
            array = np.lib.format.read_array(io.BytesIO(members.read(name)), allow_pickle=False)
            assert array.dtype.kind in "fi"


@every_kind
def test_a_changed_model_file_is_refused(kind, tmp_path):
    fit(kind, judged(kind, drawn())).save(tmp_path)
    model = tmp_path / json.loads((tmp_path / HEADER).read_text())["model"]["file"]
    whole = model.read_bytes()
    for broken in (whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        model.write_bytes(broken)
        with pytest.raises(BadInput, match=f"{model.name} has SHA-256"):
            load_predictor(tmp_path)
    model.unlink()
    with pytest.raises(BadInput, match="is missing"):
        load_predictor(tmp_path)


@pytest.mark.parametrize(("field", "value"), [("format", 2), ("kind", "deep")])
def test_a_header_of_another_format_or_kind_is_refused(field, value, tmp_path):
    fit("linear_features", judged("linear_features", drawn())).save(tmp_path)
    header = json.loads((tmp_path / HEADER).read_text())
    (tmp_path / HEADER).write_text(json.dumps(header | {field: value}))
    with pytest.raises(BadInput, match=f"{value!r}"):
        load_predictor(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(BadInput, match=HEADER):
        load_predictor(tmp_path)


def test_a_crash_between_the_two_files_is_noticed(tmp_path, monkeypatch):
    frame = judged("linear_features", drawn())
    fit("linear_features", frame).save(tmp_path)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.predictors.saved.write_json", crash)
    with pytest.raises(KeyboardInterrupt):
        fit("linear_features", frame, class_weight="balanced").save(tmp_path)
    with pytest.raises(BadInput, match="it was changed"):
        load_predictor(tmp_path)


def test_the_heavy_libraries_are_imported_only_where_they_are_needed(tmp_path):
    frame = judged("linear_features", drawn())
    fit("linear_features", frame).save(tmp_path)
    code = (
        "import sys; from pathlib import Path; import polars as pl; from tasks.predictors import load_predictor;"
        "frame = pl.DataFrame({'features': pl.Series([[0, 1, 2, 3.]], dtype=pl.Array(pl.Float32, 4))});"
        f"load_predictor(Path({str(tmp_path)!r}))(frame);"
        "print({'sklearn', 'lightgbm', 'scipy', 'torch'} & set(sys.modules))"
    )
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ------------------------------------------------------------------ the registry and the settings


@pytest.mark.parametrize(("name", "kind"), [("boosted", "linear_text"), ("deep", "linear_text"), ("deep", "boosted")])
def test_a_predictor_that_cannot_read_the_rows_is_refused(name, kind):
    frame = judged(kind, drawn())
    with pytest.raises(BadInput, match=f"'{name}' does not read .*; those that do: linear"):
        fit_predictor(name, frame, n_labels=3, class_weight="none", seed=0, settings={})


@every_kind
def test_an_unknown_setting_is_refused_by_name(kind):
    with pytest.raises(BadInput, match=rf"train\.{kind} in params.yaml: depth"):
        fit(kind, judged(kind, drawn()), depth=3)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("linear_text", "inverse_penalty", 0), ("linear_features", "max_iterations", 0), ("boosted", "rounds", "many")],
)
def test_an_impossible_setting_is_refused_with_what_was_found(kind, name, value):
    with pytest.raises(BadInput, match=rf"{name}: .*\(found {value!r}\)"):
        fit(kind, judged(kind, drawn()), **{name: value})


def test_settings_and_fitted_values_are_frozen():
    with pytest.raises(FrozenInstanceError):
        LinearTextSettings().idf = False
    model = fit("linear_features", judged("linear_features", drawn())).model
    with pytest.raises(FrozenInstanceError):
        model.mean = np.zeros(4)


@pytest.mark.parametrize("kind", ["linear_text", "linear_features"])
def test_a_fit_that_stops_early_says_so(kind, tmp_path):
    frame = judged(kind, drawn(), signal=0.5)
    fit(kind, frame, max_iterations=1).save(tmp_path)
    assert json.loads((tmp_path / HEADER).read_text())["fit"] == {
        "solver": "lbfgs",
        "iterations": 1,
        "converged": False,
    }
    fit(kind, frame, max_iterations=2000).save(tmp_path)
    assert json.loads((tmp_path / HEADER).read_text())["fit"]["converged"]


# ------------------------------------------------------------------ labels and weights


def test_one_score_is_the_difference_of_two_logits():
    logits = TrainingLabels(2, (0, 1), 100, "none").logits(np.array([[3.0], [-0.5]]))
    np.testing.assert_array_equal(logits, [[-1.5, 1.5], [0.25, -0.25]])
    # one hundredth of the odds of labels 0 and 2 together: (e^-1.5 + e^1.5) / 100
    logits = TrainingLabels(3, (0, 2), 100, "none").logits(np.array([[3.0]]))
    np.testing.assert_allclose(np.exp(logits), [[0.22313, 0.0470482, 4.481689]], rtol=1e-5)


scores_of_three = arrays(np.float64, (5, 3), elements=st.floats(-700, 700))


@settings(deadline=None, max_examples=50)
@given(scores=scores_of_three, rows=st.integers(5, 10**7))
def test_an_absent_label_is_never_decided(scores, rows):
    logits = TrainingLabels(5, (0, 2, 3), rows, "none").logits(scores)
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(logits[:, [0, 2, 3]], scores)
    assert not set(logits.argmax(axis=1)) & {1, 4}


@settings(deadline=None, max_examples=50)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=40).map(np.array))
def test_balanced_rows_weigh_the_same_for_every_label_that_occurs(labels):
    from sklearn.utils.class_weight import compute_sample_weight

    weights = row_weights(labels, "balanced")
    totals = [weights[labels == label].sum() for label in np.unique(labels)]
    np.testing.assert_allclose(totals, len(labels) / len(totals))
    np.testing.assert_allclose(weights, compute_sample_weight("balanced", labels))
    assert (row_weights(labels, "none") == 1).all()


# ------------------------------------------------------------------ linear over texts


def texts(n: int = 200, seed: int = 0) -> tuple[list[str], list[str]]:
    words = np.array([f"w{number}" for number in range(60)])
    generator = np.random.default_rng(seed)
    return tuple([" ".join(row) for row in words[generator.integers(0, 60, (n, width))]] for width in (3, 9))


def fit_text(inputs, labels, **own) -> object:
    own = LinearTextSettings(**{"bucket_bits": 10, **own})
    return fit_linear_text(inputs, labels, n_labels=3, class_weight="none", seed=0, settings=own)


@pytest.mark.parametrize("idf", [True, False])
def test_single_words_agree_with_scikit_learn_on_the_texts_joined(idf):
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    (train, test), labels = (texts(), texts(50, seed=1)), drawn(200, (0.4, 0.4, 0.2))
    ours = fit_text(train, labels, idf=idf, longest_ngram=1, tolerance=1e-8, max_iterations=2000)(test)
    reference = make_pipeline(
        HashingVectorizer(n_features=2**10, alternate_sign=False, norm=None, token_pattern=r"\w+"),
        TfidfTransformer(use_idf=idf, sublinear_tf=True),
        LogisticRegression(C=3.0, tol=1e-8, max_iter=2000),
    ).fit([f"{query} {candidate}" for query, candidate in zip(*train, strict=True)], labels)
    joined = [f"{query} {candidate}" for query, candidate in zip(*test, strict=True)]
    np.testing.assert_allclose(log_softmax(ours, axis=1), reference.predict_log_proba(joined), atol=1e-4)


def test_no_ngram_reaches_from_the_query_into_the_candidate():
    own = LinearTextSettings()
    counts = count_ngrams((["red lamp"], ["lamp shade"]), own)
    # red, lamp twice, shade, "red lamp", "lamp shade": no "lamp lamp"
    assert sorted(counts.data) == [1, 1, 1, 1, 2]
    swapped = count_ngrams((["lamp shade"], ["red lamp"]), own)
    assert (counts != swapped).nnz == 0


def test_only_the_start_of_a_long_text_is_read():
    train, labels = texts(), drawn(200)
    model = fit_text(train, labels, characters=20)
    start = [f"{text:<20.20}" for text in train[1]]
    longer = [f"{text} w1 w2 w3" for text in start]
    np.testing.assert_array_equal(model((train[0], start)), model((train[0], longer)))


def test_texts_may_stand_in_lists_arrays_or_series():
    train, labels = texts(), drawn(200)
    model = fit_text(train, labels)
    for container in (np.array, pl.Series):
        np.testing.assert_array_equal(model(tuple(container(column) for column in train)), model(train))


def test_empty_texts_and_any_script_are_read():
    strange = ["", "   ", "é", "日本語 テキスト", "🙂 lampe à poser", "a\x00b", "\ud7ff", "naïve\nrésumé"]
    model = fit_text((strange * 20, [*strange[::-1]] * 20), drawn(160))
    logits = model((strange, [""] * len(strange)))
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(logits[0], model.model.bias)  # no words: what the labels' shares say
    assert (logits[2] != logits[0]).any()


def test_balanced_probabilities_have_weighted_mean_one_over_k():
    # The slope of the log loss in the (unpenalised) bias is zero at its optimum.
    train, labels = texts(), drawn(200, (0.7, 0.2, 0.1))
    exact = LinearTextSettings(bucket_bits=10, tolerance=1e-8, max_iterations=2000)
    model = fit_linear_text(train, labels, n_labels=3, class_weight="balanced", seed=0, settings=exact)
    weighted = row_weights(labels, "balanced")[:, None] * softmax(model(train), axis=1)
    np.testing.assert_allclose(weighted.mean(axis=0), 1 / 3, atol=1e-5)


# ------------------------------------------------------------------ linear over features


def heavy(n: int = 200, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, 4)) * np.exp(4 * generator.normal(size=(n, 4)))


def fit_features(inputs, labels, **own) -> object:
    own = LinearFeaturesSettings(**{"tolerance": 1e-8, "max_iterations": 3000, **own})
    return fit_linear_features(inputs, labels, n_labels=3, class_weight="none", seed=0, settings=own)


def test_features_agree_with_scikit_learn_pipeline():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    train, test, labels = heavy(), heavy(50, seed=1), drawn(200)
    reference = make_pipeline(
        FunctionTransformer(lambda x: np.where(x < 0, -1, 1) * np.log(1 + np.abs(x))),
        StandardScaler(),
        LogisticRegression(tol=1e-8, max_iter=3000),
    ).fit(train, labels)
    ours = log_softmax(fit_features(train, labels)(test), axis=1)
    np.testing.assert_allclose(ours, reference.predict_log_proba(test), atol=1e-4)


def test_scaling_uses_training_rows_only():
    train, labels = heavy(), drawn(200)
    model = fit_features(train, labels)
    shaped = np.sign(train) * np.log1p(np.abs(train))
    np.testing.assert_allclose(model.mean, shaped.mean(axis=0))
    np.testing.assert_allclose(model.per_spread, 1 / shaped.std(axis=0))
    far = np.vstack([train, heavy(50, seed=5) * 1e6])
    np.testing.assert_allclose(model(far)[:200], model(train), rtol=1e-12)


def test_features_are_shaped_as_the_formula_says_and_left_as_they_are():
    train, labels = heavy(), drawn(200)
    train[0] = [0.0, -0.0, 1e300, -1e-300]
    before = train.copy()
    model = fit_features(train, labels)
    logits = model(train)
    np.testing.assert_array_equal(train, before)
    shaped = np.sign(train) * np.log1p(np.abs(train))
    np.testing.assert_array_equal(model.model((shaped - model.mean) * model.per_spread), logits)


def test_a_feature_that_is_constant_in_training_counts_for_nothing():
    train, labels = heavy(), drawn(200)
    train[:, 2] = 0.1  # its mean over rows is not exactly 0.1
    model = fit_features(train, labels)
    assert model.per_spread[2] == 0
    moved = train.copy()
    moved[:, 2] = 1e9
    np.testing.assert_array_equal(model(moved), model(train))


def test_the_unit_of_a_feature_does_not_matter_without_the_logarithm():
    train, labels = heavy(), drawn(200)
    unit, zero = np.array([1e-3, 1.0, 60.0, 1e6]), np.array([5.0, -1.0, 0.0, 273.0])
    plain = fit_features(train, labels, signed_log=False)(train)
    np.testing.assert_allclose(
        fit_features(train * unit + zero, labels, signed_log=False)(train * unit + zero), plain, atol=1e-4
    )


# ------------------------------------------------------------------ boosted


def test_trees_agree_with_lightgbms_own_classifier():
    from lightgbm import LGBMClassifier

    labels = drawn()
    frame = judged("boosted", labels, signal=0.5)
    features = frame["features"].to_numpy()
    reference = LGBMClassifier(
        n_estimators=10, num_leaves=4, class_weight="balanced", max_bin=63, verbosity=-1, n_jobs=1, random_state=0
    ).fit(features, labels)
    ours = softmax(fit("boosted", frame, class_weight="balanced")(frame), axis=1)
    np.testing.assert_allclose(ours, reference._Booster.predict(features), rtol=1e-6)


def test_too_few_rows_for_a_tree_give_the_prior():
    frame = judged("boosted", drawn(12, (0.4, 0.4, 0.2)))
    logits = fit("boosted", frame)(frame)
    shares = np.bincount(frame["label"], minlength=3) / 12
    np.testing.assert_allclose(softmax(logits, axis=1), np.tile(shares, (12, 1)), atol=1e-6)
