"""Linear classifiers of scikit-learn: one-versus-rest by stochastic gradient descent, as in the paper, and multinomial.

They read texts as TF-IDF, or standardized features.
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
from relmap.settings import PositiveCount

TERM_SEPARATOR = "\n"  # no term contains a line break
Positive = Annotated[float, Field(gt=0)]


class SgdFeatureSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of `linear` on standardized features."""

    alpha: Positive = 2e-5  # weight of the L2 penalty
    passes: PositiveCount = 24  # maximum number of passes over the rows
    tolerance: Positive = 1e-4  # of the mean loss; training stops after five passes with a smaller gain


class MultinomialFeatureSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of `multinomial` on standardized features."""

    inverse_penalty: Positive = 1.0  # scikit-learn's C
    max_iterations: PositiveCount = 5000


class TermSettings(BaseModel, frozen=True, extra="forbid"):
    """Selection of words and word pairs of texts."""

    max_features: PositiveCount = 80_000
    min_rows: PositiveCount = 3  # minimum number of texts that contain a term


class SgdTextSettings(SgdFeatureSettings, TermSettings, frozen=True):
    """Settings of `linear` on TF-IDF."""

    alpha: Positive = 1e-5
    passes: PositiveCount = 14


class MultinomialTextSettings(MultinomialFeatureSettings, TermSettings, frozen=True):
    """Settings of `multinomial` on TF-IDF."""


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """A fitted linear classifier of V inputs.

    Attributes:
        coefficients: Shape (V, K).
        intercept: Shape (K,).
        inputs: How rows become inputs. For texts: `terms`, the words and word pairs in lower case, joined by
            `TERM_SEPARATOR`, in UTF-8; and their `idf`, shape (V,). For features: `mean` and `scale` of each over the
            training rows, shape (V,); the scale of a constant feature is 1.
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    inputs: Mapping[str, np.ndarray]

    file: ClassVar[str] = "predictor.npz"

    def __call__(self, rows: Any) -> np.ndarray:
        """Compute decision values.

        Args:
            rows: Series of n texts, or features of shape (n, V). The TF-IDF vector of a text has length 1, or 0 if the
                text has none of the terms.

        Returns:
            Decision values, shape (n, K), in the type of the coefficients.
        """
        with threadpool_limits(limits=1):  # so that the order of sums does not depend on the number of cores
            if isinstance(rows, pl.Series):
                matrix = _transform_texts(self.inputs["terms"].tobytes(), self.inputs["idf"].tobytes(), tuple(rows))
            else:
                matrix = _standardize(rows, self.inputs, self.coefficients.dtype)
            return np.asarray(matrix @ self.coefficients + self.intercept)

    def to_bytes(self) -> bytes:
        """Return the content of the model file."""
        buffer = io.BytesIO()
        arrays = {"coefficients": self.coefficients, "intercept": self.intercept, **self.inputs}
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()


def _standardize(rows: np.ndarray, inputs: Mapping[str, np.ndarray], dtype: Any) -> np.ndarray:
    """Return standardized features, computed in `dtype` as scikit-learn's `StandardScaler` does."""
    matrix = rows.astype(dtype)
    matrix -= inputs["mean"].astype(dtype)
    matrix /= inputs["scale"].astype(dtype)
    return matrix


def fit_sgd(
    rows: Any, labels: np.ndarray, *, class_weight: str | None, seed: int, settings: SgdFeatureSettings
) -> LinearPredictor:
    """Fit one logistic classifier for each label against the rest, by stochastic gradient descent.

    With few passes over few rows, the classifiers are far from their optimum, and another seed gives other results.
    The paper's base predictors have this property too.

    Args:
        rows: Series of n texts, or features of shape (n, F).
        labels: Shape (n,).
        class_weight: None, or `balanced`.
        seed: Seed of the order of the rows.
        settings: Settings for texts or features.

    Returns:
        The predictor. For two labels, one classifier with score s gives the decision values (-s, s).
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    classifier = SGDClassifier(
        loss="log_loss",
        alpha=settings.alpha,
        max_iter=settings.passes,
        tol=settings.tolerance,
        class_weight=class_weight,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _fit(classifier, rows, labels, order, settings, binary_scale=1.0)


def fit_multinomial(
    rows: Any,
    labels: np.ndarray,
    *,
    class_weight: str | None,
    seed: int,  # noqa: ARG001 - a convex fit has no random choice
    settings: MultinomialFeatureSettings,
) -> LinearPredictor:
    """Fit multinomial logistic regression to its optimum with L-BFGS.

    Args:
        rows: Series of n texts, or features of shape (n, F).
        labels: Shape (n,).
        class_weight: None, or `balanced`.
        seed: Unused.
        settings: Settings for texts or features.

    Returns:
        The predictor; the softmax of its decision values is the fitted probability.

    Raises:
        InputError: The optimum is not reached within `max_iterations`.
    """
    n_steps = settings.max_iterations
    if not isinstance(rows, pl.Series):
        rows = rows.astype(np.float64)  # an optimum needs double precision
    classifier = LogisticRegression(C=settings.inverse_penalty, max_iter=n_steps, class_weight=class_weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            # The log odds of two labels are the difference of their logits, hence one half for each.
            return _fit(classifier, rows, labels, slice(None), settings, binary_scale=0.5)
        except ConvergenceWarning:
            raise InputError(f"multinomial: no optimum after {n_steps} steps; increase max_iterations") from None


def _fit(
    classifier: Any,
    rows: Any,
    labels: np.ndarray,
    order: np.ndarray | slice,
    settings: Any,
    binary_scale: float,
) -> LinearPredictor:
    """Fit a classifier on rows in the given order.

    For two labels, scikit-learn fits one score s; the decision values are then -s and s, times `binary_scale`.
    """
    if isinstance(rows, pl.Series):
        inputs, all_rows = _fit_tfidf(tuple(rows), settings.max_features, settings.min_rows)
        matrix = all_rows[order]
    else:
        scaler = StandardScaler()
        matrix = scaler.fit_transform(rows[order])
        inputs = {"mean": scaler.mean_, "scale": scaler.scale_}
    with threadpool_limits(limits=1):
        classifier.fit(matrix, labels[order])
    coefficients = classifier.coef_
    intercept = classifier.intercept_
    if len(intercept) == 1:
        coefficients = binary_scale * np.concatenate([-coefficients, coefficients])
        intercept = binary_scale * np.concatenate([-intercept, intercept])
    return LinearPredictor(np.ascontiguousarray(coefficients.T), intercept, inputs)


# All base predictors of a data set read the same texts, and splitting texts into terms takes most of the time of a fit.
# The caches hold the texts of train, and of validation and test.
@lru_cache(maxsize=1)
def _fit_tfidf(texts: tuple[str, ...], max_features: int, min_rows: int) -> tuple[dict[str, np.ndarray], Any]:
    """Select the most frequent terms in at least `min_rows` texts; return them and the TF-IDF of the texts."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=min_rows, max_features=max_features, sublinear_tf=True)
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # scikit-learn has three messages for this
        raise InputError(
            f"no word occurs in {min_rows} of the {len(texts)} training texts; check the text columns, or use more rows"
        ) from None
    terms = TERM_SEPARATOR.join(vectorizer.get_feature_names_out()).encode()
    return {"terms": np.frombuffer(terms, dtype=np.uint8), "idf": vectorizer.idf_}, matrix


@lru_cache(maxsize=2)
def _transform_texts(terms: bytes, idf: bytes, texts: tuple[str, ...]) -> Any:
    """Return the TF-IDF of texts for fitted terms."""
    vocabulary = terms.decode().split(TERM_SEPARATOR)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, vocabulary=vocabulary)
    vectorizer.idf_ = np.frombuffer(idf)
    return vectorizer.transform(texts)
