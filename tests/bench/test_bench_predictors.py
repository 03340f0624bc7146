"""Base predictors: from texts to a fitted classifier, beside scikit-learn's way of doing so on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax

from tasks.datasets import dataset_named
from tasks.predictors import fit_predictor
from tasks.predictors.hashed_ngrams import hashed_ngrams
from tasks.simulation import simulate
from tests.bench.conftest import ALL_CORES

pytestmark = [pytest.mark.bench, ALL_CORES]
K = 4
# With 100, the default, the fit takes twice as long and begins to learn by heart, for the penalty is light.
SETTINGS = {"linear_text": {"max_iterations": 30}}


@pytest.fixture(scope="module")
def judged(rows: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """Training and test pairs of a twin of Amazon ESCI (us); an eighth of `rows` are for training."""
    return pairs_of_a_twin(rows // 8, tmp_path_factory.mktemp("twin"))


def pairs_of_a_twin(rows: int, folder: Path) -> dict[str, pl.DataFrame]:
    """Training and test pairs, `rows` of them for training, from raw files in `folder`."""
    simulate("amazon_esci", folder, rows=rows * 1900 // 1000, residual=1.0, seed=0)
    pairs = dataset_named("amazon_esci", "amazon_esci", {}).read(folder, {}).pairs
    pairs = pairs.with_columns(pl.col("split").fill_null("train"))
    return {split: pairs.filter(pl.col("split") == split) for split in ("train", "test")}


def joined(frame: pl.DataFrame) -> list[str]:
    return (frame["query"] + " " + frame["candidate"]).to_list()


def vectorizer(**own: Any) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(ngram_range=(1, 2), token_pattern=r"\w+", **own)


def quality(log_probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Accuracy and mean log loss."""
    right = log_probabilities.argmax(axis=1) == labels
    return float(right.mean()), float(-log_probabilities[np.arange(len(labels)), labels].mean())


def test_texts_to_a_classifier(race, judged):
    from sklearn.linear_model import SGDClassifier

    train, test = judged["train"], judged["test"]
    labels = train["label"].to_numpy().astype(np.int64)

    def ours(frame: pl.DataFrame) -> Any:
        return fit_predictor("linear", frame, n_labels=K, class_weight="none", seed=0, settings=SETTINGS)

    def theirs() -> Any:
        classifier = SGDClassifier(loss="log_loss", n_jobs=2, random_state=0)
        return classifier.fit(vectorizer().transform(joined(train)), labels)

    race.beside("HashingVectorizer, SGDClassifier", theirs, aim=1)
    race.growth(lambda: ours(train[: len(train) // 10]))
    race.floor(lambda: joined(train))
    fitted, sgd, _ = race.run("texts to a classifier, 30 steps", len(train), lambda: ours(train), rounds=1)
    truth = test["label"].to_numpy()
    with np.errstate(divide="ignore"):
        their_quality = quality(np.log(sgd.predict_proba(vectorizer().transform(joined(test)))), truth)
    our_quality = quality(log_softmax(fitted(test), axis=1), truth)
    assert our_quality[0] >= their_quality[0]
    assert our_quality[1] <= their_quality[1]


def test_hashed_ngrams(race, judged):
    texts = judged["train"]["candidate"].unique(maintain_order=True)
    counting = vectorizer(n_features=2**18, alternate_sign=False, norm=None)
    race.beside("HashingVectorizer", lambda: counting.transform(texts.to_list()), aim=2)
    race.growth(lambda: hashed_ngrams(texts[: len(texts) // 10], longest=2, bits=18))
    race.floor(lambda: texts.str.to_lowercase().str.extract_all(r"\S+"))
    ours, theirs, _ = race.run("hashed n-grams", len(texts), lambda: hashed_ngrams(texts, longest=2, bits=18), rounds=3)
    assert (ours != theirs).nnz == 0
