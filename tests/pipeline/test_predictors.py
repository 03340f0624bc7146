"""Base predictors: they learn, are scikit-learn's and LightGBM's, the same twice, and the same after saving."""

import io
import json

import lightgbm
import numpy as np
import polars as pl
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relmap.errors import InputError
from tasks.predictors import HEADER, PREDICTOR_TYPES, fit_predictor, load_predictor

SMALL = {"boosted": {"rounds": 10, "num_leaves": 4, "min_data_in_leaf": 20}}
EVERY = [(name, form) for name, kind in PREDICTOR_TYPES.items() for form in kind.settings]
every_kind = pytest.mark.parametrize(("name", "form"), EVERY)
WEIGHTS = ("none", "balanced")


def judged(form: str, labels: np.ndarray, signal: float = 1.0, seed: int = 0) -> pl.DataFrame:
    """Rows whose text or features tell the label in a share `signal` of them, and else a random one."""
    generator = np.random.default_rng(seed)
    n = len(labels)
    shown = np.where(generator.random(n) < signal, labels, generator.integers(0, labels.max() + 1, n))
    column = pl.Series("label", labels, dtype=pl.Int8)
    if form == "text":
        other = generator.integers(0, 40, n)
        texts = [f"query: Word{word}\nproduct: thing {number} red" for word, number in zip(shown, other, strict=True)]
        return pl.DataFrame({"text": texts, "label": column})
    features = generator.normal(size=(n, 4)).astype(np.float32)
    features[:, 1] += 3 * shown
    return pl.DataFrame({"features": pl.Series(features, dtype=pl.Array(pl.Float32, 4)), "label": column})


def drawn(n: int = 300, share: tuple[float, ...] = (0.6, 0.3, 0.1), seed: int = 0) -> np.ndarray:
    """`n` labels with these shares."""
    return np.random.default_rng(seed).choice(len(share), size=n, p=share)


def fit(name: str, frame: pl.DataFrame, n_labels: int = 3, class_weight: str = "none", seed: int = 0, **own):
    asked = {"n_labels": n_labels, "class_weight": class_weight, "seed": seed, "settings": SMALL.get(name, {}) | own}
    return fit_predictor(name, frame, frame[::3], **asked)


@every_kind
def test_logits_are_finite_float32_values_for_every_row_alone_and_label(name, form):
    frame = judged(form, drawn(), signal=0.7)
    predictor = fit(name, frame)
    logits = predictor(frame)
    assert (logits.shape, logits.dtype) == ((300, 3), np.float64)
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(logits, logits.astype(np.float32))
    order = np.random.default_rng(3).permutation(len(frame))[:50]
    np.testing.assert_allclose(predictor(frame[order]), logits[order], rtol=1e-6)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a word"], [2], "none of the 1 training rows has the label 0, 1 "),
        ([], [], "none of the 0 training rows has the label 0, 1, 2 "),
        *((texts, [0, 1, 2], "no word occurs in 3 of the 3 training texts") for texts in (["", " ", "?"], [*"abc"])),
    ],
)
def test_texts_that_lack_a_label_or_a_common_word_are_refused(texts, labels, message):
    with pytest.raises(InputError, match=message):
        fit("linear", pl.DataFrame({"text": texts, "label": labels}, {"text": pl.String, "label": pl.Int8}))


@every_kind
@pytest.mark.parametrize(("share", "class_weight"), [((0.5, 0.5), "none"), ((0.6, 0.3, 0.1), "balanced")])
def test_the_same_rows_and_seed_give_the_same_bytes_of_text_and_plain_arrays_and_once_loaded_the_same_bits(
    name, form, share, class_weight, tmp_path
):
    frame, logits = judged(form, drawn(share=share), signal=0.5), []
    for folder in ("first", "second"):
        predictor = fit(name, frame, n_labels=len(share), class_weight=class_weight, seed=7)
        predictor.save(tmp_path / folder)
        logits += [predictor(frame), load_predictor(tmp_path / folder)(frame)]
    for other in logits[1:]:
        np.testing.assert_array_equal(logits[0], other)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / f).iterdir()} for f in ("first", "second"))
    assert first == second
    header, model = json.loads(first[HEADER]), first[predictor.model.file]
    facts = {"predictor": name, "form": form, "n_labels": len(share), "rows": 300, "class_weight": class_weight}
    facts |= {"seed": 7, "settings": PREDICTOR_TYPES[name].settings[form](**SMALL.get(name, {})).model_dump()}
    assert {key: header[key] for key in facts} == facts
    if name == "boosted":
        assert model.decode("ascii").startswith("tree\n")
    else:
        with np.load(io.BytesIO(model), allow_pickle=False) as stored:
            assert {array.dtype.kind for array in dict(stored).values()} <= {"f", "u"}


SPOILT = {  # which file, from its content to another (None: it goes), what is said
    "a bit": ("predictor.npz", lambda whole: whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], "has SHA-256"),
    "no model": ("predictor.npz", None, "predictor.npz is missing"),
    "no header": (HEADER, None, f"{HEADER} is missing"),
    "another format": (HEADER, lambda whole: whole.replace(b'"format": 2', b'"format": 1'), "format 1, not 2"),
    "another predictor": (HEADER, lambda whole: whole.replace(b'"linear"', b'"deep"'), "predictor 'deep'; known"),
}


@pytest.mark.parametrize(("file", "change", "message"), SPOILT.values(), ids=SPOILT)
def test_a_folder_that_is_not_as_it_was_saved_is_refused(file, change, message, tmp_path):
    fit("linear", judged("features", drawn())).save(tmp_path)
    path = tmp_path / file
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    with pytest.raises(InputError, match=message):
        load_predictor(tmp_path)


NOT_FITTED = {  # name, form, what is asked for, what is said
    "trees of texts": ("boosted", "text", {}, "'boosted' does not read text; those that do: linear"),
    "an unknown predictor": ("deep", "features", {}, "'deep' does not read features; those that do: linear"),
    **{f"an unknown setting of {n} {f}": (n, f, {"depth": 3}, f"of {n} in params.yaml: depth") for n, f in EVERY},
    "a penalty of zero": ("linear", "features", {"alpha": 0}, r"alpha: .*\(found 0\)"),
    "an unknown class weight": ("linear", "text", {"class_weight": "Balanced"}, "'Balanced'"),
    "too few steps": ("multinomial", "features", {"max_iterations": 1}, "no optimum after 1 steps"),
}


@pytest.mark.parametrize(("name", "form", "asked", "message"), NOT_FITTED.values(), ids=NOT_FITTED)
def test_what_cannot_be_fitted_is_refused_by_name_with_what_was_found(name, form, asked, message):
    with pytest.raises(InputError, match=message):
        fit(name, judged(form, drawn(), signal=0.5), **asked)


def by_scikit_learn(name: str, form: str, train: pl.DataFrame, test: pl.DataFrame, weight: str, seed: int):
    """Decision values of a pipeline of scikit-learn's with the paper's settings, written down anew."""
    text, weighted = form == "text", {"class_weight": None if weight == "none" else weight}
    inputs = TfidfVectorizer(ngram_range=(1, 2), min_df=3, max_features=80_000, sublinear_tf=True)
    gradient = {"alpha": 1e-5, "max_iter": 14} if text else {"alpha": 2e-5, "max_iter": 24}
    classifier = SGDClassifier(loss="log_loss", tol=1e-4, random_state=seed, **gradient, **weighted)
    if name == "multinomial":
        classifier = LogisticRegression(max_iter=5000, **weighted)
    pipeline = make_pipeline(inputs if text else StandardScaler(), classifier)
    order = np.random.default_rng(seed).permutation(len(train)) if name == "linear" else np.arange(len(train))
    rows = [part["text"].to_list() if text else part["features"].to_numpy().astype(float) for part in (train, test)]
    pipeline.fit(np.array(rows[0])[order], train["label"].to_numpy()[order])
    return pipeline.decision_function(rows[1])


@pytest.mark.parametrize(("name", "form"), [kind for kind in EVERY if kind[0] != "boosted"])
@pytest.mark.parametrize(("share", "weight"), [((0.6, 0.4), "none"), *(((0.6, 0.3, 0.1), w) for w in WEIGHTS)])
@pytest.mark.filterwarnings("ignore:Maximum number of iteration")
def test_logits_are_decision_values_of_scikit_learn(name, form, share, weight):
    train, test = (judged(form, drawn(share=share, seed=seed), 0.7, seed) for seed in (1, 2))
    ours = fit(name, train, n_labels=len(share), class_weight=weight, seed=5)(test)
    expected = by_scikit_learn(name, form, train, test, weight, 5)
    if len(share) == 2:
        of_two = 1.0 if name == "linear" else 0.5  # whose softmax is the fitted probability
        expected = np.outer(expected, [-of_two, of_two])
        np.testing.assert_array_equal(ours[:, 0], -ours[:, 1])
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_empty_texts_and_any_script_are_read(tmp_path):
    strange = ["", "   ", "émile", "日本語 テキスト", "🙂 lampe à", "a\x00bc", "\ud7ff\ud7ff", "naïve\nré", "İİ ß"]
    frame = pl.DataFrame({"text": strange * 20, "label": drawn(180)})
    assert len(fit("linear", frame, max_features=5).model.coefficients) == 5
    predictor = fit("linear", frame)
    logits = predictor(frame)
    np.testing.assert_array_equal(logits[0], predictor.model.intercept.astype(np.float32))  # no words
    assert (logits[2] != logits[0]).any()
    predictor.save(tmp_path)
    np.testing.assert_array_equal(load_predictor(tmp_path)(frame), logits)


@pytest.mark.parametrize("name", ["linear", "multinomial", "boosted"])
def test_features_that_are_not_finite_count_as_zero(name):
    frame = judged("features", drawn())
    features, logits = frame["features"].to_numpy().copy(), []
    for first in (np.tile([np.nan, np.inf, -np.inf], 10), np.zeros(30)):
        features[:30, 0] = first
        given = frame.with_columns(features=pl.Series(features, dtype=pl.Array(pl.Float32, 4)))
        logits.append(fit(name, given)(given))
    np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_trees_are_those_of_lightgbms_own_classifier(weight):
    train, validation = (judged("features", drawn(n, seed=n), 0.6, seed=n) for n in (800, 300))
    rows = [part["features"].to_numpy().astype(float) for part in (train, validation)]
    labels = [part["label"].to_numpy() for part in (train, validation)]
    reference = lightgbm.LGBMClassifier(
        **{"n_estimators": 600, "learning_rate": 0.04, "num_leaves": 63, "min_child_samples": 80, "reg_lambda": 1},
        **{"subsample": 0.9, "subsample_freq": 1, "colsample_bytree": 0.9, "random_state": 3, "n_jobs": 1},
        **{"class_weight": None if weight == "none" else weight, "verbosity": -1},
    )
    stop = lightgbm.early_stopping(50, verbose=False)
    reference.fit(rows[0], labels[0], eval_X=rows[1], eval_y=labels[1], callbacks=[stop])
    assert reference.best_iteration_ < 500
    ours = fit_predictor("boosted", train, validation, n_labels=3, class_weight=weight, seed=3, settings={})
    np.testing.assert_allclose(ours(validation), reference.predict(rows[1], raw_score=True), rtol=1e-5, atol=1e-6)
