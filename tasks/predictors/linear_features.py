"""Linear classifier over standardised ranking features (paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
from pydantic import Field

from tasks.predictors.multinomial import Multinomial, fit_multinomial, read_multinomial
from tasks.predictors.saved import pack, unpack, write_predictor
from tasks.predictors.training_labels import training_labels


@pydantic.dataclasses.dataclass(frozen=True, config={"extra": "forbid"})
class LinearFeaturesSettings:
    """How features are scaled and fitted; `train.linear_features` in params.yaml."""

    signed_log: bool = True  # sign(x) log(1 + |x|) first: counts on the web reach millions
    inverse_penalty: Annotated[float, Field(gt=0)] = 1.0  # C, the inverse weight of the L2 penalty
    tolerance: Annotated[float, Field(gt=0)] = 1e-4  # of the gradient of the mean loss
    max_iterations: Annotated[int, Field(ge=1)] = 300


@dataclass(frozen=True)
class LinearFeatures:
    """The fitted classifier, with the mean and the spread of the training rows."""

    settings: LinearFeaturesSettings
    mean: np.ndarray  # (F,)
    per_spread: np.ndarray  # (F,), 1 / standard deviation; 0 for a feature that is constant in training
    model: Multinomial

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Features `(n, F)`, finite, to logits `(n, K)` float64."""
        return self.model(_scaled(_shaped(inputs, self.settings), self.mean, self.per_spread))

    def save(self, folder: Path) -> None:
        """Write `predictor.json` and `predictor.npz`."""
        write_predictor(
            folder,
            {"kind": "linear_features", "settings": asdict(self.settings), **self.model.header},
            file="predictor.npz",
            model=pack({"mean": self.mean, "per_spread": self.per_spread, **self.model.arrays}),
            library="scikit-learn",
        )


def fit_linear_features(
    inputs: np.ndarray,
    labels: np.ndarray,
    *,
    n_labels: int,
    class_weight: str,
    seed: int,  # noqa: ARG001 (a convex fit draws nothing at random)
    settings: LinearFeaturesSettings,
) -> LinearFeatures:
    """Features `(n, F)` of the training rows, finite, and labels `(n,)` in 0..K-1 to the fitted classifier."""
    kept = training_labels(labels, n_labels, class_weight)
    shaped = _shaped(inputs, settings)
    mean = shaped.mean(axis=0)
    varies = shaped.max(axis=0) > shaped.min(axis=0)  # the deviation of a constant is rounding noise, not zero
    per_spread = np.divide(1, shaped.std(axis=0), where=varies, out=np.zeros(shaped.shape[1]))
    model = fit_multinomial(
        _scaled(shaped, mean, per_spread),
        labels,
        kept,
        inverse_penalty=settings.inverse_penalty,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
    )
    return LinearFeatures(settings, mean, per_spread, model)


def _shaped(inputs: np.ndarray, settings: LinearFeaturesSettings) -> np.ndarray:
    """Features `(n, F)` to a float64 copy of them, less heavy-tailed where the settings say so."""
    features = np.array(inputs, dtype=np.float64, order="C")
    if not settings.signed_log:
        return features
    sizes = np.abs(features)
    return np.copysign(np.log1p(sizes, out=sizes), features, out=features)


def _scaled(shaped: np.ndarray, mean: np.ndarray, per_spread: np.ndarray) -> np.ndarray:
    """Shaped features `(n, F)`, standardised in place: a million rows of 136 take a gigabyte."""
    shaped -= mean
    shaped *= per_spread
    return shaped


def read_linear_features(header: Mapping[str, Any], model: bytes) -> LinearFeatures:
    """The value whose saved parts these are."""
    arrays = unpack(model)
    settings = LinearFeaturesSettings(**header["settings"])
    return LinearFeatures(settings, arrays["mean"], arrays["per_spread"], read_multinomial(header, arrays))
