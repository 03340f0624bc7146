"""LightGBM multiclass over ranking features: is the signal there for a stronger base too? (paper, section 5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
from pydantic import Field

from tasks.predictors.saved import write_predictor
from tasks.predictors.training_labels import TrainingLabels, row_weights, training_labels


@pydantic.dataclasses.dataclass(frozen=True, config={"extra": "forbid"})
class BoostedSettings:
    """The trees and how they are grown; `train.boosted` in params.yaml. No round is dropped by looking ahead."""

    rounds: Annotated[int, Field(ge=1)] = 100
    leaves: Annotated[int, Field(ge=2)] = 31
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    rows_in_leaf: Annotated[int, Field(ge=1)] = 20
    bins: Annotated[int, Field(ge=2)] = 63  # of each feature; a quarter of LightGBM's own 255 and half the time
    threads: Annotated[int, Field(ge=1)] = 1  # more is faster on idle cores, and another order of sums


@dataclass(frozen=True)
class Boosted:
    """The fitted trees as the text that is saved, so that what predicts now and what predicts later are the same."""

    settings: BoostedSettings
    seed: int
    trees: str  # LightGBM's own text format
    labels: TrainingLabels

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Features `(n, F)` to logits `(n, K)` float64."""
        import lightgbm  # noqa: PLC0415 (takes a second to import)

        booster = lightgbm.Booster(model_str=self.trees)
        scores = booster.predict(np.asarray(inputs), raw_score=True, num_threads=self.settings.threads)
        return self.labels.logits(np.asarray(scores).reshape(len(inputs), -1))

    def save(self, folder: Path) -> None:
        """Write `predictor.json` and `predictor.txt`."""
        header = {"settings": asdict(self.settings), "seed": self.seed, "labels": asdict(self.labels)}
        write_predictor(
            folder,
            {"kind": "boosted", **header},
            file="predictor.txt",
            model=self.trees.encode(),
            library="lightgbm",
        )


def fit_boosted(
    inputs: np.ndarray,
    labels: np.ndarray,
    *,
    n_labels: int,
    class_weight: str,
    seed: int,
    settings: BoostedSettings,
) -> Boosted:
    """Features `(n, F)` of the training rows and labels `(n,)` in 0..K-1 to the fitted trees.

    LightGBM is only the same twice if its threads, the way it builds histograms and its seed are all fixed.
    """
    import lightgbm  # noqa: PLC0415

    kept = training_labels(labels, n_labels, class_weight)
    code = np.searchsorted(kept.present, labels)  # 0..P-1: LightGBM wants every label to occur
    two = len(kept.present) == 2
    growth = {
        **({"objective": "binary"} if two else {"objective": "multiclass", "num_class": len(kept.present)}),
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.rows_in_leaf,
        "max_bin": settings.bins,
        "seed": seed,
        "num_threads": settings.threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    rows = lightgbm.Dataset(np.asarray(inputs), label=code, weight=row_weights(labels, class_weight))
    booster = lightgbm.train(growth, rows, num_boost_round=settings.rounds)
    return Boosted(settings, seed, booster.model_to_string(), kept)


def read_boosted(header: Mapping[str, Any], model: bytes) -> Boosted:
    """The value whose saved parts these are."""
    kept = TrainingLabels(**{**header["labels"], "present": tuple(header["labels"]["present"])})
    return Boosted(BoostedSettings(**header["settings"]), header["seed"], model.decode(), kept)
