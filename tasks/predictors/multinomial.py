"""Multinomial logistic regression, what both linear predictors end in."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.predictors.training_labels import TrainingLabels, row_weights

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Multinomial:
    """A fitted linear classifier of F inputs over the P labels that occurred (one column for two labels)."""

    weights: np.ndarray  # (F, P), or (F, 1) where P is 2
    bias: np.ndarray  # (P,) or (1,)
    labels: TrainingLabels
    iterations: int
    converged: bool  # False: `max_iterations` ended the fit early

    def __call__(self, inputs: np.ndarray | csr_array) -> np.ndarray:
        """Inputs `(n, F)`, dense or sparse, to logits `(n, K)`."""
        return self.labels.logits(np.asarray(inputs @ self.weights) + self.bias)

    @property
    def header(self) -> dict[str, Any]:
        """What `predictor.json` says about the fit."""
        fit = {"solver": "lbfgs", "iterations": self.iterations, "converged": self.converged}
        return {"labels": asdict(self.labels), "fit": fit}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """What the model file holds."""
        return {"weights": self.weights, "bias": self.bias}


def fit_multinomial(
    inputs: np.ndarray | csr_array,
    labels: np.ndarray,
    kept: TrainingLabels,
    *,
    inverse_penalty: float,
    tolerance: float,
    max_iterations: int,
) -> Multinomial:
    """Inputs `(n, F)` and labels `(n,)` to the classifier, by L-BFGS, with an L2 penalty on weights but not on bias.

    Reaching `max_iterations` is an early stop, not an error: the base predictor need not be the best one, only
    fixed (paper, section 4.2). It is recorded in the value and in `predictor.json`.
    """
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 (sklearn takes a second to import)
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # noqa: PLC0415

    model = LogisticRegression(C=inverse_penalty, tol=tolerance, max_iter=max_iterations)
    # One thread: the order of the sums, and so the last bits, must not depend on how many cores are free.
    with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(inputs, labels, sample_weight=row_weights(labels, kept.class_weight))
    others = [warning for warning in caught if not issubclass(warning.category, ConvergenceWarning)]
    for other in others:
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return Multinomial(
        weights=np.ascontiguousarray(model.coef_.T),
        bias=model.intercept_,
        labels=kept,
        iterations=int(model.n_iter_.max()),
        converged=len(others) == len(caught),
    )


def read_multinomial(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Multinomial:
    """The value whose `header` and `arrays` these are."""
    kept = TrainingLabels(**{**header["labels"], "present": tuple(header["labels"]["present"])})
    fit = header["fit"]
    return Multinomial(arrays["weights"], arrays["bias"], kept, fit["iterations"], fit["converged"])
