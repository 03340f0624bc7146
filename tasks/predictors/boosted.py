"""LightGBM multiclass over ranking features: is the signal there under a stronger base too? (paper, section 5.4)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BaseModel, Field
from sklearn.utils.class_weight import compute_sample_weight

from tasks.predictors.linear import Count

Share = Annotated[float, Field(gt=0, le=1)]


class BoostedSettings(BaseModel, frozen=True, extra="forbid"):
    """How many trees there may be; the others are LightGBM's own parameters, under its names."""

    rounds: Count = 600  # at most
    patience: Count = 50  # rounds in a row that do not lower the log loss of the validation rows
    learning_rate: Annotated[float, Field(gt=0)] = 0.04
    num_leaves: Annotated[int, Field(ge=2)] = 63
    min_data_in_leaf: Count = 80
    bagging_fraction: Share = 0.9  # of the rows, drawn for each round
    feature_fraction: Share = 0.9
    lambda_l2: Annotated[float, Field(ge=0)] = 1.0
    num_threads: Count = 1  # more is faster on idle cores, and another order of sums


@dataclass(frozen=True)
class Boosted:
    """The fitted trees as the text that is saved, so that what predicts now and what predicts later are the same."""

    trees: str  # LightGBM's own text format

    file: ClassVar[str] = "predictor.txt"

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Features `(n, F)` to raw scores `(n, K)`."""
        import lightgbm  # noqa: PLC0415 (takes a second to import)

        return np.asarray(lightgbm.Booster(model_str=self.trees).predict(rows, raw_score=True))

    def saved(self) -> bytes:
        """The content of `file`."""
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
) -> Boosted:
    """Features `(n, F)` and labels `(n,)` of training rows to trees, up to the best round on the `validation` rows.

    Validation rows weigh alike, as with LightGBM's own classifier. Growth is only the same twice if the threads, the
    way of building histograms and the seed are all fixed.
    """
    import lightgbm  # noqa: PLC0415

    always = {"objective": "multiclass", "bagging_freq": 1, "deterministic": True, "force_row_wise": True}
    growth = settings.model_dump(exclude={"rounds", "patience"}) | always
    growth |= {"num_class": n_labels, "seed": seed, "verbosity": -1}
    training = lightgbm.Dataset(rows, label=labels, weight=compute_sample_weight(class_weight, labels))
    booster = lightgbm.train(
        growth,
        training,
        num_boost_round=settings.rounds,
        valid_sets=[training.create_valid(validation[0], label=validation[1])],
        callbacks=[lightgbm.early_stopping(settings.patience, verbose=False)],
    )
    return Boosted(booster.model_to_string(num_iteration=booster.best_iteration))
