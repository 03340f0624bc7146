"""The base predictors by name: what is trained once for each member, and then never changed.

The one contract: `fit_<name>(rows, labels (n,), *, class_weight, seed, settings)` gives a frozen value that maps rows
to logits `(n, K)` and whose file runs no code on load. Rows are a series of `n` texts, or features `(n, F)`.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from pydantic import BaseModel, ValidationError

from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import write_json, write_whole
from tasks.predictors import boosted, linear
from tasks.records.store import read_json

FORMAT = 2  # rises when an older reader would misread a newer folder
HEADER = "predictor.json"  # that a person can read; it names the one model file, and nothing in that runs on load
Model = linear.Linear | boosted.Boosted


class Kind(NamedTuple):
    """What there is to know about a predictor."""

    settings: Mapping[str, type[BaseModel]]  # for each form of row that it reads
    fit: Callable[..., Model]
    read: Callable[[bytes], Model]


GRADIENT = {"text": linear.GradientOnText, "features": linear.GradientOnFeatures}
MULTINOMIAL = {"text": linear.MultinomialOnText, "features": linear.MultinomialOnFeatures}
KINDS = {
    "linear": Kind(GRADIENT, linear.fit_gradient, linear.read_linear),
    "multinomial": Kind(MULTINOMIAL, linear.fit_multinomial, linear.read_linear),
    "boosted": Kind({"features": boosted.BoostedSettings}, boosted.fit_boosted, lambda b: boosted.Boosted(b.decode())),
}


class Predictor(NamedTuple):
    """A fitted model that reads its rows from a frame of judged pairs, and what is known of its fit."""

    model: Model
    header: Mapping[str, Any]

    def __call__(self, frame: pl.DataFrame) -> np.ndarray:
        """`n` rows with `text` or `features` to logits `(n, K)`, rounded to float32 as the paper's are, in float64."""
        return self.model(rows_of(frame, self.header["form"])).astype(np.float32).astype(np.float64)

    def save(self, folder: Path) -> None:
        """Write the model, then the header that names it, its SHA-256 and the versions it was fitted with.

        Each file appears whole or not at all; after a crash between the two `load_predictor` refuses the folder.
        """
        content = self.model.saved()
        described = {
            **self.header,
            "format": FORMAT,
            "versions": {name: version(name) for name in ("numpy", "scikit-learn", "lightgbm")},
            "model": {"file": self.model.file, "sha256": sha256(content).hexdigest()},
        }
        write_whole(folder / self.model.file, lambda partial: partial.write_bytes(content))
        write_json(folder / HEADER, described)


def rows_of(frame: pl.DataFrame, form: str) -> Any:
    """The column that a predictor may read: `n` texts, or features `(n, F)`, 0 where one is not finite."""
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
    """Fit the predictor `name` on the rows of `train`; where it stops early, `validation` says when.

    Args:
        train, validation: frames with `label` in 0..K-1 and `features` or `text`.
        class_weight: none, or balanced: the same total weight for each label.
        seed: the member's; the order of the rows and all else that is random.
        settings: those of the predictor that are not to be its defaults.

    Raises:
        InputError: an unknown name, a predictor that cannot read such rows, an unknown or impossible setting or weight,
            a label without training rows, texts without a common word, a regression that does not converge.
    """
    form = "features" if "features" in train.columns else "text"
    if name not in KINDS or form not in KINDS[name].settings:
        able = ", ".join(known for known, kind in KINDS.items() if form in kind.settings)
        raise InputError(f"predictor {name!r} does not read {form}; those that do: {able}")
    if class_weight not in ("none", "balanced"):
        raise InputError(f"class_weight is {class_weight!r}; it must be 'none' or 'balanced'")
    try:
        chosen = KINDS[name].settings[form](**settings)
    except ValidationError as error:
        raise InputError(
            f"settings of {name} in params.yaml: " + "; ".join(describe_validation_errors(error, name))
        ) from None
    labels = train["label"].to_numpy().astype(np.int64)
    absent = np.flatnonzero(np.bincount(labels, minlength=n_labels) == 0)
    if len(absent):
        raise InputError(
            f"of the {len(labels)} training rows none has the label {', '.join(map(str, absent))} (of 0 to"
            f" {n_labels - 1}); a predictor needs rows of each: split otherwise, or declare fewer labels"
        )
    weight = None if class_weight == "none" else class_weight
    given: dict[str, Any] = {"class_weight": weight, "seed": seed, "settings": chosen}
    if name == "boosted":
        given |= {"n_labels": n_labels, "validation": (rows_of(validation, form), validation["label"].to_numpy())}
    model = KINDS[name].fit(rows_of(train, form), labels, **given)
    facts = {"n_labels": n_labels, "rows": len(labels), "class_weight": class_weight, "seed": seed}
    return Predictor(model, {"predictor": name, "form": form, "settings": chosen.model_dump(), **facts})


def load_predictor(folder: Path) -> Predictor:
    """The predictor saved in `folder`, giving the same logits bit for bit.

    Raises:
        InputError: the header or the model is missing, of another format, of an unknown predictor, or not as written.
    """
    header = read_json(folder / HEADER)
    if header.get("format") != FORMAT:
        raise InputError(f"{folder / HEADER} has format {header.get('format')!r}, not {FORMAT}; run `train` again")
    path = folder / header["model"]["file"]
    if not path.is_file():
        raise InputError(f"{path} is missing, though {HEADER} names it; run `train` again")
    content = path.read_bytes()
    if (digest := sha256(content).hexdigest()) != header["model"]["sha256"]:
        raise InputError(f"{path} has SHA-256 {digest}, not the one in {HEADER}: it was changed; run `train` again")
    if header["predictor"] not in KINDS:
        raise InputError(f"{folder / HEADER} names the predictor {header['predictor']!r}; known are {', '.join(KINDS)}")
    return Predictor(KINDS[header["predictor"]].read(content), header)
