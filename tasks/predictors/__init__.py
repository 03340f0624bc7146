"""Base predictors by name.

Each type of predictor has a function `fit(rows, labels, *, class_weight, seed, settings)`. The rows are a series of n
texts, or features of shape (n, F); the labels have shape (n,). The function of boosted trees also has the arguments
`n_labels` and `validation`. The function returns a frozen model, which maps rows to logits of shape (n, K). The file
of a model has only numbers and text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import BaseModel, ValidationError

from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import write_atomically, write_json
from tasks.predictors.boosted import BoostedPredictor, BoostedSettings, fit_boosted
from tasks.predictors.linear import (
    LinearPredictor,
    MultinomialFeatureSettings,
    MultinomialTextSettings,
    SgdFeatureSettings,
    SgdTextSettings,
    fit_multinomial,
    fit_sgd,
)

FORMAT = 2  # increases when the content of the files changes
HEADER = "predictor.json"  # names the model file
Model = LinearPredictor | BoostedPredictor


@dataclass(frozen=True)
class PredictorType:
    """A kind of base predictor.

    Attributes:
        settings: Type of its settings for each form of rows that it reads, `text` or `features`.
        fit: Function that fits it.
    """

    settings: Mapping[str, type[BaseModel]]
    fit: Callable[..., Model]


PREDICTOR_TYPES = {
    "linear": PredictorType(settings={"text": SgdTextSettings, "features": SgdFeatureSettings}, fit=fit_sgd),
    "multinomial": PredictorType(
        settings={"text": MultinomialTextSettings, "features": MultinomialFeatureSettings},
        fit=fit_multinomial,
    ),
    "boosted": PredictorType(settings={"features": BoostedSettings}, fit=fit_boosted),
}


@dataclass(frozen=True, eq=False)
class Predictor:
    """A fitted model, and a description of its fit.

    Attributes:
        model: The fitted model.
        header: Content of its header file.
    """

    model: Model
    header: Mapping[str, Any]

    def __call__(self, frame: pl.DataFrame) -> np.ndarray:
        """Compute logits as float64; their values are rounded to float32, as in the paper.

        Args:
            frame: Labelled pairs with `text` or `features`, n rows.

        Returns:
            Logits, shape (n, K).
        """
        rows: Any = predictor_rows(frame, self.header["form"])  # texts or features, as in the fit
        return self.model(rows).astype(np.float32).astype(np.float64)

    def save(self, folder: Path) -> None:
        """Write the model file, and then the header with the SHA-256 of the model file and the versions of libraries.

        Both files are written atomically.

        Args:
            folder: Folder of the files.
        """
        content = self.model.to_bytes()
        header = {
            **self.header,
            "format": FORMAT,
            "versions": {library: version(library) for library in ("numpy", "scikit-learn", "lightgbm")},
            "model": {"file": self.model.file, "sha256": sha256(content).hexdigest()},
        }
        write_atomically(folder / self.model.file, lambda path: path.write_bytes(content))
        write_json(folder / HEADER, header)


def predictor_rows(frame: pl.DataFrame, form: str) -> Any:
    """Return the texts of labelled pairs, or their features `(n, F)` with 0 for values that are not finite.

    Features are float32, as in the release of the paper's authors: the linear predictor is then fitted in float32.
    """
    if form == "text":
        return frame["text"]
    features = frame["features"].to_numpy().astype(np.float32)
    return np.nan_to_num(features, nan=0, posinf=0, neginf=0)


def fit_predictor(
    name: str,
    train: pl.DataFrame,
    validation: pl.DataFrame,
    *,
    n_labels: int,
    class_weight: str,
    seed: int,
    settings: Mapping[str, Any],
) -> Predictor:
    """Fit a base predictor.

    Args:
        name: Key of `PREDICTOR_TYPES`.
        train: Training rows, with `label` in 0..K-1 and `features` or `text`.
        validation: Rows for early stopping, in the same form.
        n_labels: Number of labels K.
        class_weight: `none`, or `balanced` for the same total weight of each label.
        seed: Seed of the order of the rows and of all other random choices.
        settings: Settings that differ from the defaults of the predictor.

    Returns:
        The fitted predictor.

    Raises:
        InputError: Unknown predictor, setting or class weight; a predictor that cannot read such rows; a label without
            training rows; texts without a common word; a regression that does not converge.
    """
    form = "features" if "features" in train.columns else "text"
    if name not in PREDICTOR_TYPES or form not in PREDICTOR_TYPES[name].settings:
        suitable = [key for key, predictor_type in PREDICTOR_TYPES.items() if form in predictor_type.settings]
        raise InputError(f"predictor {name!r} does not read {form}; those that do: {', '.join(suitable)}")
    if class_weight not in ("none", "balanced"):
        raise InputError(f"class_weight is {class_weight!r}; it must be 'none' or 'balanced'")
    checked_settings = _check_settings(name, form, settings)
    labels = train["label"].to_numpy().astype(np.int64)
    _check_labels(labels, n_labels)
    fit = PREDICTOR_TYPES[name].fit
    if name == "boosted":
        validation_rows = (predictor_rows(validation, form), validation["label"].to_numpy())
        fit = partial(fit, n_labels=n_labels, validation=validation_rows)
    model = fit(
        predictor_rows(train, form),
        labels,
        class_weight=None if class_weight == "none" else class_weight,
        seed=seed,
        settings=checked_settings,
    )
    header = {
        "predictor": name,
        "form": form,
        "settings": checked_settings.model_dump(),
        "n_labels": n_labels,
        "rows": len(labels),
        "class_weight": class_weight,
        "seed": seed,
    }
    return Predictor(model, header)


def _check_settings(name: str, form: str, settings: Mapping[str, Any]) -> BaseModel:
    """Return the validated settings of a predictor, with defaults for those that are not given."""
    try:
        return PREDICTOR_TYPES[name].settings[form](**settings)
    except ValidationError as error:
        descriptions = "; ".join(describe_validation_errors(error, name))
        raise InputError(f"settings of {name} in params.yaml: {descriptions}") from None


def _check_labels(labels: np.ndarray, n_labels: int) -> None:
    """Raise an error if one of the labels 0..K-1 has no training rows."""
    rows_per_label = np.bincount(labels, minlength=n_labels)
    missing_labels = np.flatnonzero(rows_per_label == 0)
    if len(missing_labels):
        names = ", ".join(str(label) for label in missing_labels)
        raise InputError(
            f"none of the {len(labels)} training rows has the label {names} (of 0 to {n_labels - 1}); "
            "change the split, or declare fewer labels"
        )
