"""Base predictors: agreement with scikit-learn and LightGBM, reproducibility, saving and loading."""

import hashlib
import io
import json
from collections.abc import Callable
from importlib.metadata import version

import lightgbm
import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relmap.errors import InputError
from tasks.predictors import HEADER, PREDICTOR_TYPES, fit_predictor, linear

FAST_SETTINGS = {"boosted": {"rounds": 10, "num_leaves": 4, "min_data_in_leaf": 20}}
PREDICTOR_FORMS = [(name, form) for name, kind in PREDICTOR_TYPES.items() for form in kind.settings]
for_every_form = pytest.mark.parametrize(("name", "form"), PREDICTOR_FORMS)
WEIGHTS = ("none", "balanced")


def make_frame(form: str, labels: np.ndarray, signal: float = 1.0, seed: int = 0) -> pl.DataFrame:
    """Simulate rows whose text or features show the label in a share `signal` of them, else a random label."""
    generator = np.random.default_rng(seed)
    n = len(labels)
    visible_label = np.where(generator.random(n) < signal, labels, generator.integers(0, labels.max() + 1, n))
    column = pl.Series("label", labels, dtype=pl.Int8)
    if form == "text":
        other = generator.integers(0, 40, n)
        texts = [
            f"query: Word{word}\nproduct: thing {number} red" for word, number in zip(visible_label, other, strict=True)
        ]
        return pl.DataFrame({"text": texts, "label": column})
    features = generator.normal(size=(n, 4)).astype(np.float32)
    features[:, 1] += 3 * visible_label
    return pl.DataFrame({"features": pl.Series(features, dtype=pl.Array(pl.Float32, 4)), "label": column})


def draw_labels(n: int = 300, share: tuple[float, ...] = (0.6, 0.3, 0.1), seed: int = 0) -> np.ndarray:
    """Draw `n` labels with the given shares."""
    return np.random.default_rng(seed).choice(len(share), size=n, p=share)


def fit(name: str, frame: pl.DataFrame, n_labels: int = 3, class_weight: str = "none", seed: int = 0, **own_settings):
    options = {
        "n_labels": n_labels,
        "class_weight": class_weight,
        "seed": seed,
        "settings": FAST_SETTINGS.get(name, {}) | own_settings,
    }
    return fit_predictor(name, frame, frame[::3], **options)


@for_every_form
def test_logits_are_finite_float32_values_independent_of_other_rows(name, form):
    frame = make_frame(form, draw_labels(), signal=0.7)
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
        (["a word"], [2], r"\b1 training rows .*label 0, 1 "),
        ([], [], r"\b0 training rows .*label 0, 1, 2 "),
        *((texts, [0, 1, 2], "no word .*3 of the 3 ") for texts in (["", " ", "?"], [*"abc"])),
    ],
)
def test_texts_without_a_label_or_common_word_are_rejected(texts, labels, message):
    with pytest.raises(InputError, match=message):
        fit("linear", pl.DataFrame({"text": texts, "label": labels}, {"text": pl.String, "label": pl.Int8}))


@for_every_form
@pytest.mark.parametrize(("share", "class_weight"), [((0.5, 0.5), "none"), ((0.6, 0.3, 0.1), "balanced")])
def test_saved_predictor_is_reproducible(name, form, share, class_weight, tmp_path):
    frame = make_frame(form, draw_labels(share=share), signal=0.5)
    logits = []
    for folder in ("first", "second"):
        predictor = fit(name, frame, n_labels=len(share), class_weight=class_weight, seed=7)
        predictor.save(tmp_path / folder)
        logits.append(predictor(frame))

    np.testing.assert_array_equal(*logits)

    first = {p.name: p.read_bytes() for p in (tmp_path / "first").iterdir()}
    second = {p.name: p.read_bytes() for p in (tmp_path / "second").iterdir()}
    assert first == second

    header = json.loads(first[HEADER])
    model = first[predictor.model.file]
    expected = {"predictor": name, "form": form, "n_labels": len(share), "rows": 300, "class_weight": class_weight}
    expected |= {
        "seed": 7,
        "settings": PREDICTOR_TYPES[name].settings[form](**FAST_SETTINGS.get(name, {})).model_dump(),
    }

    assert {key: header[key] for key in expected} == expected
    if name == "boosted":
        assert model.decode("ascii").startswith("tree\n")
    else:
        with np.load(io.BytesIO(model), allow_pickle=False) as stored:
            assert {array.dtype.kind for array in dict(stored).values()} <= {"f", "u"}


ALL_TYPES = "linear, multinomial, boosted"
INVALID_FITS = {  # name, form, options, message
    "trees of texts": ("boosted", "text", {}, "'boosted' .*text; .*: linear, multinomial$"),
    "an unknown predictor": (
        "deep",
        "features",
        {},
        "'deep' .*features; .*: linear, multinomial, boosted$",
    ),
    **{
        f"an unknown setting of {n} {f}": (n, f, {"depth": 3}, f"of {n} in params.yaml: depth")
        for n, f in PREDICTOR_FORMS
    },
    "a penalty of zero": ("linear", "features", {"alpha": 0}, r"alpha: .*\(found 0\)"),
    "an unknown class weight": ("linear", "text", {"class_weight": "Balanced"}, "'Balanced'"),
    "too few steps": ("multinomial", "features", {"max_iterations": 1}, "no optimum .* 1 "),
}


@pytest.mark.parametrize(("name", "form", "options", "message"), INVALID_FITS.values(), ids=INVALID_FITS)
def test_invalid_predictor_settings_are_rejected(name, form, options, message):
    with pytest.raises(InputError, match=message):
        fit(name, make_frame(form, draw_labels(), signal=0.5), **options)


def by_scikit_learn(name: str, form: str, train: pl.DataFrame, test: pl.DataFrame, weight: str, seed: int):
    """Return decision values of the same model written with scikit-learn."""
    is_text = form == "text"
    weighted = {"class_weight": None if weight == "none" else weight}
    inputs = TfidfVectorizer(ngram_range=(1, 2), min_df=3, max_features=80_000, sublinear_tf=True)
    gradient = {"alpha": 1e-5, "max_iter": 14} if is_text else {"alpha": 2e-5, "max_iter": 24}
    classifier = SGDClassifier(loss="log_loss", tol=1e-4, random_state=seed, **gradient, **weighted)
    if name == "multinomial":
        classifier = LogisticRegression(max_iter=5000, **weighted)
    pipeline = make_pipeline(inputs if is_text else StandardScaler(), classifier)
    order = np.random.default_rng(seed).permutation(len(train)) if name == "linear" else np.arange(len(train))
    dtype = np.float32 if name == "linear" else np.float64
    rows = [part["text"].to_list() if is_text else part["features"].to_numpy().astype(dtype) for part in (train, test)]
    pipeline.fit(np.array(rows[0])[order], train["label"].to_numpy()[order])
    return pipeline.decision_function(rows[1])


@pytest.mark.parametrize(("name", "form"), [kind for kind in PREDICTOR_FORMS if kind[0] != "boosted"])
@pytest.mark.parametrize(("share", "weight"), [((0.6, 0.4), "none"), *(((0.6, 0.3, 0.1), w) for w in WEIGHTS)])
@pytest.mark.filterwarnings("ignore:Maximum number of iteration")
def test_logits_equal_decision_values_of_scikit_learn(name, form, share, weight):
    train = make_frame(form, draw_labels(share=share, seed=1), 0.7, 1)
    test = make_frame(form, draw_labels(share=share, seed=2), 0.7, 2)
    logits = fit(name, train, n_labels=len(share), class_weight=weight, seed=5)(test)
    expected = by_scikit_learn(name, form, train, test, weight, 5)
    if len(share) == 2:
        factor = 1.0 if name == "linear" else 0.5  # whose softmax is the fitted probability
        expected = np.outer(expected, [-factor, factor])
        np.testing.assert_array_equal(logits[:, 0], -logits[:, 1])
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


def test_empty_texts_and_any_script_are_read(tmp_path):
    texts = ["", "   ", "émile", "日本語 テキスト", "🙂 lampe à", "a\x00bc", "\ud7ff\ud7ff", "naïve\nré", "İİ ß"]
    frame = pl.DataFrame({"text": texts * 20, "label": draw_labels(180)})
    assert len(fit("linear", frame, max_features=5).model.coefficients) == 5

    predictor = fit("linear", frame)
    logits = predictor(frame)
    np.testing.assert_array_equal(logits[0], predictor.model.intercept.astype(np.float32))  # no words
    assert (logits[2] != logits[0]).any()


@pytest.mark.parametrize("name", ["linear", "multinomial", "boosted"])
def test_infinite_and_nan_features_count_as_zero(name):
    frame = make_frame("features", draw_labels())
    features = frame["features"].to_numpy().copy()
    logits = []
    for values in (np.tile([np.nan, np.inf, -np.inf], 10), np.zeros(30)):
        features[:30, 0] = values
        changed = frame.with_columns(features=pl.Series(features, dtype=pl.Array(pl.Float32, 4)))
        logits.append(fit(name, changed)(changed))
    np.testing.assert_array_equal(*logits)


def test_trees_are_fitted_with_reproducible_settings(monkeypatch):
    """Without them the result depends on the number of threads and on how LightGBM measures the data."""
    passed = {}

    def train(parameters, *arguments, **options):
        passed.update(parameters, **options)
        return original(parameters, *arguments, **options)

    original = lightgbm.train
    monkeypatch.setattr(lightgbm, "train", train)
    frame = make_frame("features", draw_labels(60, seed=1), 0.6, seed=1)
    fit_predictor("boosted", frame, frame, n_labels=3, class_weight="none", seed=7, settings={"rounds": 2})

    assert passed["num_boost_round"] == 2
    assert {name: passed[name] for name in ("objective", "num_class", "bagging_freq", "seed", "verbosity")} == {
        "objective": "multiclass",
        "num_class": 3,
        "bagging_freq": 1,
        "seed": 7,
        "verbosity": -1,
    }
    assert passed["deterministic"] is True
    assert passed["force_row_wise"] is True
    assert passed["num_threads"] == 1


@pytest.mark.parametrize("weight", WEIGHTS)
def test_trees_equal_lightgbms_classifier(weight):
    train = make_frame("features", draw_labels(800, seed=800), 0.6, seed=800)
    validation = make_frame("features", draw_labels(300, seed=300), 0.6, seed=300)
    rows = [part["features"].to_numpy().astype(float) for part in (train, validation)]
    labels = [part["label"].to_numpy() for part in (train, validation)]
    reference = lightgbm.LGBMClassifier(
        **{"n_estimators": 600, "learning_rate": 0.04, "num_leaves": 63, "min_child_samples": 80, "reg_lambda": 1},
        **{"subsample": 0.9, "subsample_freq": 1, "colsample_bytree": 0.9, "random_state": 3, "n_jobs": 1},
        **{"class_weight": None if weight == "none" else weight, "verbosity": -1},
    )
    early_stopping = lightgbm.early_stopping(50, verbose=False)
    reference.fit(rows[0], labels[0], eval_X=rows[1], eval_y=labels[1], callbacks=[early_stopping])

    assert reference.best_iteration_ < 500

    predictor = fit_predictor("boosted", train, validation, n_labels=3, class_weight=weight, seed=3, settings={})
    np.testing.assert_allclose(predictor(validation), reference.predict(rows[1], raw_score=True), rtol=1e-5, atol=1e-6)


def test_trees_are_trained_with_settings_that_make_them_reproducible(monkeypatch):
    frame = make_frame("features", draw_labels(90))
    recorded = {}
    train = lightgbm.train
    early_stopping = lightgbm.early_stopping

    def record(parameters, *rows, **options):
        recorded.update(parameters=dict(parameters), rounds=options["num_boost_round"])
        return train(parameters, *rows, **options)

    def record_patience(patience, **options):
        recorded.update(patience=patience, verbose=options["verbose"])
        return early_stopping(patience, **options)

    monkeypatch.setattr(lightgbm, "train", record)
    monkeypatch.setattr(lightgbm, "early_stopping", record_patience)
    fit_predictor("boosted", frame, frame, n_labels=3, class_weight="none", seed=11, settings={"rounds": 7})

    assert recorded == {
        "parameters": {
            "learning_rate": 0.04,
            "num_leaves": 63,
            "min_data_in_leaf": 80,
            "bagging_fraction": 0.9,
            "feature_fraction": 0.9,
            "lambda_l2": 1.0,
            "num_threads": 1,
            "objective": "multiclass",
            "num_class": 3,
            "bagging_freq": 1,
            "deterministic": True,
            "force_row_wise": True,
            "seed": 11,
            "verbosity": -1,
        },
        "rounds": 7,
        "patience": 50,
        "verbose": False,
    }


DEFAULT_SETTINGS = {
    ("linear", "text"): {"max_features": 80_000, "min_rows": 3, "alpha": 1e-5, "passes": 14, "tolerance": 1e-4},
    ("linear", "features"): {"alpha": 2e-5, "passes": 24, "tolerance": 1e-4},
    ("multinomial", "text"): {"max_features": 80_000, "min_rows": 3, "inverse_penalty": 1, "max_iterations": 5000},
    ("multinomial", "features"): {"inverse_penalty": 1, "max_iterations": 5000},
    ("boosted", "features"): {
        "rounds": 600,
        "patience": 50,
        "learning_rate": 0.04,
        "num_leaves": 63,
        "min_data_in_leaf": 80,
        "bagging_fraction": 0.9,
        "feature_fraction": 0.9,
        "lambda_l2": 1.0,
        "num_threads": 1,
    },
}


@for_every_form
def test_the_default_settings_are_those_of_the_paper(name, form):
    assert PREDICTOR_TYPES[name].settings[form]().model_dump() == DEFAULT_SETTINGS[name, form]


LIMITS = [  # predictor, setting, smallest or largest valid value, the nearest invalid one
    *(("boosted", name, 1, 0) for name in ("rounds", "patience", "min_data_in_leaf", "num_threads")),
    ("boosted", "num_leaves", 2, 1),
    ("boosted", "lambda_l2", 0, -1e-9),
    *(("boosted", name, 1, 1 + 1e-9) for name in ("bagging_fraction", "feature_fraction")),
    *(("boosted", name, 1e-9, 0) for name in ("bagging_fraction", "feature_fraction", "learning_rate")),
    *(("linear", name, 1e-9, 0) for name in ("alpha", "tolerance")),
    ("linear", "passes", 1, 0),
    ("multinomial", "inverse_penalty", 1e-9, 0),
    ("multinomial", "max_iterations", 1, 0),
]


@pytest.mark.parametrize(("name", "setting", "valid", "invalid"), LIMITS)
def test_settings_have_limits(name, setting, valid, invalid):
    settings_type = PREDICTOR_TYPES[name].settings["features"]
    assert getattr(settings_type(**{setting: valid}), setting) == valid
    with pytest.raises(ValidationError, match=setting):
        settings_type(**{setting: invalid})


@pytest.mark.parametrize(("name", "form"), [kind for kind in PREDICTOR_FORMS if kind[0] != "boosted"])
def test_settings_reach_the_classifier_of_scikit_learn(name, form, monkeypatch):
    """Record the arguments of the classifiers, since a tolerance has no visible effect on few rows."""
    recorded = {}

    def record_arguments(classifier: type) -> Callable[..., object]:
        def create(**arguments: object) -> object:
            recorded.update(arguments)
            return classifier(**arguments)

        return create

    for classifier in (SGDClassifier, LogisticRegression):
        monkeypatch.setattr(linear, classifier.__name__, record_arguments(classifier))
    frame = make_frame(form, draw_labels(60), signal=0.5)
    own_settings = {"alpha": 1e-3, "passes": 300, "tolerance": 1e-2}
    expected = {
        "loss": "log_loss",
        "alpha": 1e-3,
        "max_iter": 300,
        "tol": 1e-2,
        "class_weight": "balanced",
        "random_state": 6,
    }
    if name == "multinomial":
        own_settings = {"inverse_penalty": 0.5, "max_iterations": 900}
        expected = {"C": 0.5, "max_iter": 900, "class_weight": "balanced"}
    fit(name, frame, class_weight="balanced", seed=6, **own_settings)
    assert recorded == expected


def test_the_header_names_the_model_file_its_hash_and_the_versions(tmp_path):
    predictor = fit("linear", make_frame("features", draw_labels()))
    predictor.save(tmp_path)
    header = json.loads((tmp_path / HEADER).read_text())
    content = (tmp_path / "predictor.npz").read_bytes()
    assert header["format"] == 2
    assert header["model"] == {"file": "predictor.npz", "sha256": hashlib.sha256(content).hexdigest()}
    assert header["versions"] == {name: version(name) for name in ("numpy", "scikit-learn", "lightgbm")}


def test_missing_labels_are_named():
    frame = make_frame("features", np.array([1, 3, 3, 1]))
    with pytest.raises(InputError, match=r" 4 training .*label 0, 2, 4 \(.*0.*4\); .*split"):
        fit("multinomial", frame, n_labels=5)


def test_fits_and_predictions_use_one_thread(monkeypatch):
    recorded = []
    limit_threads = linear.threadpool_limits

    def record(*, limits: int):
        recorded.append(limits)
        return limit_threads(limits=limits)

    monkeypatch.setattr(linear, "threadpool_limits", record)
    frame = make_frame("features", draw_labels(60))
    fit("multinomial", frame)(frame)
    assert recorded == [1, 1]


def test_texts_are_split_into_terms_once_for_all_predictors():
    frame = make_frame("text", draw_labels(60))
    train = frame[:40]
    test = frame[40:]
    for cached in (linear._fit_tfidf, linear._transform_texts):
        cached.cache_clear()
    for seed in (1, 2):
        predictor = fit_predictor("linear", train, test, n_labels=3, class_weight="none", seed=seed, settings={})
        for part in (train, test):
            predictor(part)
    fits = linear._fit_tfidf.cache_info()
    predictions = linear._transform_texts.cache_info()
    assert (fits.hits, fits.misses, fits.maxsize) == (1, 1, 1)
    assert (predictions.hits, predictions.misses, predictions.maxsize) == (2, 2, 2)


def test_objects_are_not_written_to_a_model_file():
    objects = np.array([{}], dtype=object)
    predictor = linear.LinearPredictor(coefficients=np.zeros((1, 2)), intercept=objects, inputs={})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        predictor.to_bytes()


def test_repeated_terms_count_by_the_logarithm_of_their_number():
    """Both words occur in all texts, so that their weights differ by their number in the text only."""
    fitted, weights = linear._fit_tfidf(("desk desk desk lamp", "desk lamp", "lamp desk"), max_features=9, min_rows=3)
    assert fitted["terms"].tobytes().decode().split(linear.TERM_SEPARATOR) == ["desk", "lamp"]
    desk, lamp = weights.toarray()[0]
    assert desk / lamp == pytest.approx(1 + np.log(3))
