"""What the linear predictors read: texts as TF-IDF, or standardised features; both are scikit-learn's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from tasks.protocol.errors import BadInput

BETWEEN = "\n"  # parts the saved terms: no word holds one


@dataclass(frozen=True, eq=False)
class Tfidf:
    """The words and word pairs that count, and how much."""

    terms: tuple[str, ...]  # in lower case, in the order of the columns
    idf: np.ndarray  # (V,)

    def __call__(self, texts: pl.Series) -> Any:
        """`n` texts to a sparse matrix `(n, V)` float64, whose rows have length 1, or 0 where no term occurs."""
        return _by_terms(self, tuple(texts))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        return {"terms": np.frombuffer(BETWEEN.join(self.terms).encode(), dtype=np.uint8), "idf": self.idf}


@dataclass(frozen=True)
class Standardised:
    """The mean and the deviation of each feature over the training rows."""

    mean: np.ndarray  # (F,)
    scale: np.ndarray  # (F,), 1 for a feature that is constant there

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Features `(n, F)` to `(n, F)` float64."""
        return np.asarray((features - self.mean) / self.scale)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        return {"mean": self.mean, "scale": self.scale}


# The base predictors of a data set read the same texts, and taking these apart is most of what a fit costs: each text
# is taken apart once, for all of them.
@lru_cache(maxsize=2)  # validation and test
def _by_terms(tfidf: Tfidf, texts: tuple[str, ...]) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 (takes a second to import)

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, vocabulary=tfidf.terms)
    vectorizer.idf_ = tfidf.idf
    return vectorizer.transform(texts)


@lru_cache(maxsize=1)  # train
def fit_tfidf(texts: tuple[str, ...], max_features: int, min_rows: int) -> tuple[Tfidf, Any]:
    """The commonest words and word pairs of those in at least `min_rows` of the `n` texts; and the texts by them.

    The order of the texts does not matter to the former.

    Raises
    ------
    BadInput: there is no such word.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=min_rows, max_features=max_features, sublinear_tf=True)
    try:
        rows = vectorizer.fit_transform(texts)
    except ValueError:  # how scikit-learn says it, in three ways
        raise BadInput(
            f"no word stands in {min_rows} of the {len(texts)} training texts; check the columns that the text is made"
            " of, or give more rows"
        ) from None
    return Tfidf(tuple(vectorizer.get_feature_names_out().tolist()), vectorizer.idf_), rows


def fit_standardised(features: np.ndarray) -> tuple[Standardised, np.ndarray]:
    """What standardises the training features `(n, F)`; and these, standardised."""
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    scaler = StandardScaler().fit(features)
    standardised = Standardised(scaler.mean_, scaler.scale_)
    return standardised, standardised(features)


def read_inputs(arrays: Mapping[str, np.ndarray]) -> Tfidf | Standardised:
    """The value whose `arrays` these are."""
    if "terms" in arrays:
        return Tfidf(tuple(arrays["terms"].tobytes().decode().split(BETWEEN)), arrays["idf"])
    return Standardised(arrays["mean"], arrays["scale"])
