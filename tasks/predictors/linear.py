"""Linear classifiers of scikit-learn: one against rest by stochastic gradient, as the paper's, and multinomial.

They read texts as TF-IDF, or standardised features; both are scikit-learn's too.
"""

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import polars as pl
from pydantic import BaseModel, Field
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from relmap.errors import InputError

BETWEEN = "\n"  # parts the terms: no word holds one
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class GradientOnFeatures(BaseModel, frozen=True, extra="forbid"):
    """How `linear` is fitted on standardised features."""

    alpha: Positive = 2e-5  # weight of the L2 penalty
    passes: Count = 24  # over the rows, at most
    tolerance: Positive = 1e-4  # in the mean loss: five passes that gain less are the last


class MultinomialOnFeatures(BaseModel, frozen=True, extra="forbid"):
    """How `multinomial` is fitted on standardised features."""

    inverse_penalty: Positive = 1.0  # scikit-learn's C
    max_iterations: Count = 5000


class Terms(BaseModel, frozen=True, extra="forbid"):
    """Which words and word pairs of a text count."""

    max_features: Count = 80_000
    min_rows: Count = 3  # that a term must stand in


class GradientOnText(GradientOnFeatures, Terms, frozen=True):
    """How `linear` is fitted on TF-IDF."""

    alpha: Positive = 1e-5
    passes: Count = 14


class MultinomialOnText(MultinomialOnFeatures, Terms, frozen=True):
    """How `multinomial` is fitted on TF-IDF."""


# The base predictors of a data set read the same texts, and taking these apart is most of what a fit costs: each text
# is taken apart once, for all of them.
@lru_cache(maxsize=2)  # validation and test
def _by_terms(terms: bytes, idf: bytes, texts: tuple[str, ...]) -> Any:
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, vocabulary=terms.decode().split(BETWEEN))
    vectorizer.idf_ = np.frombuffer(idf)
    return vectorizer.transform(texts)


@lru_cache(maxsize=1)  # train
def _fit_tfidf(texts: tuple[str, ...], max_features: int, min_rows: int) -> tuple[dict[str, np.ndarray], Any]:
    """The commonest words and word pairs of those in at least `min_rows` of the `n` texts; and the texts by them."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=min_rows, max_features=max_features, sublinear_tf=True)
    try:
        rows = vectorizer.fit_transform(texts)
    except ValueError:  # how scikit-learn says it, in three ways
        raise InputError(
            f"no word stands in {min_rows} of the {len(texts)} training texts; check the columns that the text is made"
            " of, or give more rows"
        ) from None
    terms = np.frombuffer(BETWEEN.join(vectorizer.get_feature_names_out()).encode(), dtype=np.uint8)
    return {"terms": terms, "idf": vectorizer.idf_}, rows


@dataclass(frozen=True)
class Linear:
    """A fitted linear classifier of V inputs."""

    coefficients: np.ndarray  # (V, K)
    intercept: np.ndarray  # (K,)
    # how rows are read: by `terms`, words and word pairs in lower case, parted by BETWEEN, as UTF-8, and their `idf`
    # (V,); or by the `mean` (V,) and `scale` (V,) of each feature over the training rows, 1 for one that is constant
    inputs: Mapping[str, np.ndarray]

    file: ClassVar[str] = "predictor.npz"

    def __call__(self, rows: Any) -> np.ndarray:
        """A series of `n` texts, or features `(n, V)`, to decision values `(n, K)` float64.

        A text is a row of length 1, or 0 where no term occurs.
        """
        with threadpool_limits(limits=1):  # the order of a sum must not depend on how many cores there are
            if isinstance(rows, pl.Series):
                matrix = _by_terms(self.inputs["terms"].tobytes(), self.inputs["idf"].tobytes(), tuple(rows))
            else:
                matrix = (rows - self.inputs["mean"]) / self.inputs["scale"]
            return np.asarray(matrix @ self.coefficients + self.intercept)

    def saved(self) -> bytes:
        """The content of `file`."""
        arrays = {"coefficients": self.coefficients, "intercept": self.intercept, **self.inputs}
        np.savez_compressed(buffer := io.BytesIO(), allow_pickle=False, **arrays)
        return buffer.getvalue()


def read_linear(content: bytes) -> Linear:
    """The classifier whose file has this content."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = dict(stored)
    return Linear(arrays.pop("coefficients"), arrays.pop("intercept"), arrays)


def fit_gradient(
    rows: Any, labels: np.ndarray, *, class_weight: str | None, seed: int, settings: GradientOnFeatures
) -> Linear:
    """A machine for each label against the rest, by logistic loss; for two labels one machine, whose s gives (-s, s).

    `rows` are a series of `n` texts or features `(n, F)`; they are fed in an order drawn by `seed`. After few passes
    over few rows the machines are far from their optimum, and another seed gives others: so it is in the paper.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    stop = {"max_iter": settings.passes, "tol": settings.tolerance}
    classifier = SGDClassifier(
        loss="log_loss", alpha=settings.alpha, **stop, class_weight=class_weight, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _fitted(classifier, rows, labels, order, settings)


def fit_multinomial(
    rows: Any,
    labels: np.ndarray,
    *,
    class_weight: str | None,
    seed: int,  # noqa: ARG001 (a convex fit draws nothing at random)
    settings: MultinomialOnFeatures,
) -> Linear:
    """Multinomial logistic regression by L-BFGS at its optimum: the softmax of its logits is the fitted probability.

    Raises:
        InputError: the optimum is not reached in `max_iterations`.
    """
    steps = settings.max_iterations
    classifier = LogisticRegression(C=settings.inverse_penalty, max_iter=steps, class_weight=class_weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:  # the log odds of two labels are the difference of their logits
            return _fitted(classifier, rows, labels, slice(None), settings, of_two=0.5)
        except ConvergenceWarning:
            raise InputError(f"multinomial: no optimum after {steps} steps; raise max_iterations") from None


def _fitted(
    classifier: Any, rows: Any, labels: np.ndarray, order: np.ndarray | slice, settings: Any, of_two: float = 1.0
) -> Linear:
    """The classifier on the rows in this order; where scikit-learn keeps one machine for two labels, one for each."""
    if isinstance(rows, pl.Series):
        inputs, every = _fit_tfidf(tuple(rows), settings.max_features, settings.min_rows)
        matrix = every[order]
    else:
        scaler = StandardScaler()
        matrix = scaler.fit_transform(rows[order])
        inputs = {"mean": scaler.mean_, "scale": scaler.scale_}
    with threadpool_limits(limits=1):
        classifier.fit(matrix, labels[order])
    coefficients, intercept = classifier.coef_, classifier.intercept_
    if len(intercept) == 1:
        coefficients, intercept = (of_two * np.concatenate([-part, part]) for part in (coefficients, intercept))
    return Linear(np.ascontiguousarray(coefficients.T), intercept, inputs)
