"""Base predictors by name. They are trained once for each member and never change afterwards.

A predictor is a function `fit_<name>(rows, labels (n,), *, class_weight, seed, settings)`. It returns a frozen value
that maps rows to logits `(n, K)`, and whose file runs no code when it is loaded. Rows are a series of n texts, or
features `(n, F)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import BaseModel, ValidationError

from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import write_atomically, write_json
from tasks.predictors.boosted import BoostedPredictor, BoostedSettings, fit_boosted, read_boosted
from tasks.predictors.linear import (
    LinearPredictor,
    MultinomialFeatureSettings,
    MultinomialTextSettings,
    SgdFeatureSettings,
    SgdTextSettings,
    fit_multinomial,
    fit_sgd,
    read_linear,
)
from tasks.records.store import read_json

FORMAT = 2  # increases when an older reader would misread a newer folder
HEADER = "predictor.json"  # names the model file
Model = LinearPredictor | BoostedPredictor


@dataclass(frozen=True)
class PredictorType:
    """A kind of base predictor.

    Attributes:
        settings: Form of the rows that it reads (`text`, `features`) -> type of its settings.
        fit: Function that fits it.
        read: Function that reads it from the bytes of its file.
    """

    settings: Mapping[str, type[BaseModel]]
    fit: Callable[..., Model]
    read: Callable[[bytes], Model]


PREDICTOR_TYPES = {
    "linear": PredictorType(
        settings={"text": SgdTextSettings, "features": SgdFeatureSettings}, fit=fit_sgd, read=read_linear
    ),
    "multinomial": PredictorType(
        settings={"text": MultinomialTextSettings, "features": MultinomialFeatureSettings},
        fit=fit_multinomial,
        read=read_linear,
    ),
    "boosted": PredictorType(settings={"features": BoostedSettings}, fit=fit_boosted, read=read_boosted),
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
        """Compute logits, rounded to float32 as in the paper, but stored as float64.

        Args:
            frame: Judged pairs with `text` or `features`, n rows.

        Returns:
            Logits, shape (n, K).
        """
        rows = predictor_rows(frame, self.header["form"])
        return self.model(rows).astype(np.float32).astype(np.float64)

    def save(self, folder: Path) -> None:
        """Write the model, and then the header with its SHA-256 and the versions of libraries.

        Both files are written atomically. If the process is killed between the two, `load_predictor` raises an error.

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
    """Return the texts of judged pairs, or their features `(n, F)` with 0 for values that are not finite."""
    if form == "text":
        return frame["text"]
    return np.nan_to_num(frame["features"].to_numpy().astype(np.float64), nan=0, posinf=0, neginf=0)


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
        suitable = [known for known, kind in PREDICTOR_TYPES.items() if form in kind.settings]
        raise InputError(f"predictor {name!r} does not read {form}; those that do: {', '.join(suitable)}")
    if class_weight not in ("none", "balanced"):
        raise InputError(f"class_weight is {class_weight!r}; it must be 'none' or 'balanced'")
    predictor_type = PREDICTOR_TYPES[name]
    try:
        checked_settings = predictor_type.settings[form](**settings)
    except ValidationError as error:
        raise InputError(
            f"settings of {name} in params.yaml: " + "; ".join(describe_validation_errors(error, name))
        ) from None
    labels = train["label"].to_numpy().astype(np.int64)
    missing_labels = np.flatnonzero(np.bincount(labels, minlength=n_labels) == 0)
    if len(missing_labels):
        raise InputError(
            f"none of the {len(labels)} training rows has the label {', '.join(str(label) for label in missing_labels)}"
            f" (of 0 to {n_labels - 1}); change the split, or declare fewer labels"
        )
    arguments: dict[str, Any] = {
        "class_weight": None if class_weight == "none" else class_weight,
        "seed": seed,
        "settings": checked_settings,
    }
    if name == "boosted":
        arguments["n_labels"] = n_labels
        arguments["validation"] = (predictor_rows(validation, form), validation["label"].to_numpy())
    model = predictor_type.fit(predictor_rows(train, form), labels, **arguments)
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


def load_predictor(folder: Path) -> Predictor:
    """Load a saved predictor, which computes the same logits bit for bit.

    Args:
        folder: Folder with the header and the model.

    Raises:
        InputError: A file is missing, was changed, has another format, or belongs to an unknown predictor.
    """
    header = read_json(folder / HEADER)
    if header.get("format") != FORMAT:
        raise InputError(f"{folder / HEADER} has format {header.get('format')!r}, not {FORMAT}; run `train` again")
    path = folder / header["model"]["file"]
    if not path.is_file():
        raise InputError(f"{path} is missing, though {HEADER} names it; run `train` again")
    content = path.read_bytes()
    digest = sha256(content).hexdigest()
    if digest != header["model"]["sha256"]:
        raise InputError(f"{path} has SHA-256 {digest}, not the one in {HEADER}: it was changed; run `train` again")
    name = header["predictor"]
    if name not in PREDICTOR_TYPES:
        known = ", ".join(PREDICTOR_TYPES)
        raise InputError(f"{folder / HEADER} names the unknown predictor {name!r}; known predictors are {known}")
    return Predictor(PREDICTOR_TYPES[name].read(content), header)
