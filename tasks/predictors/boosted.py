"""LightGBM for several classes on ranking features, a stronger base predictor (paper, section 5.4)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BaseModel, Field
from sklearn.utils.class_weight import compute_sample_weight

from relmap.settings import PositiveCount

Fraction = Annotated[float, Field(gt=0, le=1)]


class BoostedSettings(BaseModel, frozen=True, extra="forbid"):
    """Number of trees, and parameters of LightGBM under their own names."""

    rounds: PositiveCount = 600  # at most
    patience: PositiveCount = 50  # rounds without a lower log loss of the validation rows, after which training stops
    learning_rate: Annotated[float, Field(gt=0)] = 0.04
    num_leaves: Annotated[int, Field(ge=2)] = 63
    min_data_in_leaf: PositiveCount = 80
    bagging_fraction: Fraction = 0.9  # of the rows, sampled in each round
    feature_fraction: Fraction = 0.9
    lambda_l2: Annotated[float, Field(ge=0)] = 1.0
    num_threads: PositiveCount = 1  # more threads change the order of sums


@dataclass(frozen=True)
class BoostedPredictor:
    """Fitted trees in LightGBM's text format, from which every prediction is made."""

    trees: str

    file: ClassVar[str] = "predictor.txt"

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Compute raw scores.

        Args:
            rows: Features, shape (n, F).

        Returns:
            Scores, shape (n, K).
        """
        import lightgbm  # noqa: PLC0415 - takes a second to import

        return np.asarray(lightgbm.Booster(model_str=self.trees).predict(rows, raw_score=True))

    def to_bytes(self) -> bytes:
        """Return the content of the model file."""
        return self.trees.encode()


def fit_boosted(
    rows: np.ndarray,
    labels: np.ndarray,
    *,
    validation: tuple[np.ndarray, np.ndarray],
    n_labels: int,
    class_weight: str | None,
    seed: int,
    settings: BoostedSettings,
) -> BoostedPredictor:
    """Fit trees up to the best round on the validation rows, which all have the same weight.

    Results are only reproducible with a fixed number of threads, histogram method and seed.

    Args:
        rows: Features of the training rows, shape (n, F).
        labels: Their labels, shape (n,).
        validation: Features and labels of the validation rows.
        n_labels: Number of labels K.
        class_weight: None, or `balanced`.
        seed: Seed of the sampled rows and features.
        settings: Settings of LightGBM.
    """
    import lightgbm  # noqa: PLC0415

    parameters = settings.model_dump(exclude={"rounds", "patience"})
    parameters |= {
        "objective": "multiclass",
        "num_class": n_labels,
        "bagging_freq": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": seed,
        "verbosity": -1,
    }
    training = lightgbm.Dataset(rows, label=labels, weight=compute_sample_weight(class_weight, labels))
    booster = lightgbm.train(
        parameters,
        training,
        num_boost_round=settings.rounds,
        valid_sets=[training.create_valid(validation[0], label=validation[1])],
        callbacks=[lightgbm.early_stopping(settings.patience, verbose=False)],
    )
    return BoostedPredictor(booster.model_to_string(num_iteration=booster.best_iteration))
