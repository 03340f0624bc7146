"""Base predictors: overhead over scikit-learn, and growth with the rows."""

import numpy as np
import polars as pl
import pytest

from tasks.predictors import Predictor, fit_predictor

K = 4
WORDS = 20_000


def simulate_texts(rows: int) -> pl.DataFrame:
    """Simulate texts of 20 common and rare words, one of which shows the label in two of three rows."""
    generator = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(WORDS)])
    texts = words[np.minimum(generator.zipf(1.3, (rows, 20)) - 1, WORDS - 1)]
    labels = generator.integers(0, K, rows)
    telling = np.flatnonzero(generator.random(rows) < 2 / 3)
    texts[telling, 0] = words[labels[telling]]
    return pl.DataFrame({"text": [" ".join(row) for row in texts], "label": pl.Series(labels, dtype=pl.Int8)})


def fit(frame: pl.DataFrame) -> Predictor:
    return fit_predictor("linear", frame, frame, n_labels=K, class_weight="balanced", seed=0, settings={})


@pytest.mark.filterwarnings("ignore:Maximum number of iteration")  # on both sides: simulated texts are hard to learn
def test_texts_to_a_classifier(comparison, rows):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline

    frame = simulate_texts(rows // 8)
    texts = frame["text"].to_list()
    labels = frame["label"].to_numpy()
    pipeline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=3, max_features=80_000, sublinear_tf=True),
        SGDClassifier(loss="log_loss", alpha=1e-5, max_iter=14, tol=1e-4, class_weight="balanced", random_state=0),
    )
    comparison.add_alternative("the same in a pipeline of scikit-learn", lambda: pipeline.fit(texts, labels))
    comparison.add_growth(lambda: fit(frame[: len(frame) // 10]))
    comparison.add_floor(lambda: TfidfVectorizer(ngram_range=(1, 2)).build_analyzer()(" ".join(texts)))
    fitted, reference, *_ = comparison.run(
        "texts to a classifier", len(frame), lambda: fit(frame), rounds=3, warm_up=False
    )
    agree = fitted(frame).argmax(axis=1) == reference.predict(texts)

    assert agree.mean() > 0.9  # the rows are in another order
