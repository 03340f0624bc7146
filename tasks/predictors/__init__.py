"""The base predictors by name: what is trained once, at model seed 0, and then never changed.

The one contract: `fit_<name>(inputs, labels (n,), *, n_labels, class_weight, seed, settings) -> value`, a frozen
value that maps inputs to logits `(n, K)` float64 and saves itself in a form that runs no code on load. Inputs are
two sequences of texts (query, candidate), or features `(n, F)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from pydantic import ValidationError

from tasks.predictors.boosted import BoostedSettings, fit_boosted, read_boosted
from tasks.predictors.linear_features import LinearFeaturesSettings, fit_linear_features, read_linear_features
from tasks.predictors.linear_text import LinearTextSettings, fit_linear_text, read_linear_text
from tasks.predictors.saved import HEADER, read_predictor
from tasks.protocol.errors import BadInput, mistakes


class Model(Protocol):
    """A fitted predictor."""

    def __call__(self, inputs: Any) -> np.ndarray:
        """Inputs of `n` rows to logits `(n, K)`."""

    def save(self, folder: Path) -> None:
        """Write `predictor.json` and a model file."""


@dataclass(frozen=True)
class Kind:
    """What there is to know about one kind of predictor."""

    settings: type
    fit: Callable[..., Model]
    read: Callable[[Mapping[str, Any], bytes], Model]


KINDS = {
    "linear_text": Kind(LinearTextSettings, fit_linear_text, read_linear_text),
    "linear_features": Kind(LinearFeaturesSettings, fit_linear_features, read_linear_features),
    "boosted": Kind(BoostedSettings, fit_boosted, read_boosted),
}

# The names that params.yaml may give, and the kind that each means for texts and for features.
PREDICTORS = {
    "linear": {"texts": "linear_text", "features": "linear_features"},
    "boosted": {"features": "boosted"},
}


@dataclass(frozen=True)
class Predictor:
    """A fitted model that reads its inputs from a frame of judged pairs."""

    model: Model

    def __call__(self, frame: pl.DataFrame) -> np.ndarray:
        """`n` rows with `query` and `candidate`, or with `features`, to logits `(n, K)` float64."""
        return self.model(inputs_of(frame))

    def save(self, folder: Path) -> None:
        """Write what `load_predictor` reads."""
        self.model.save(folder)


def inputs_of(frame: pl.DataFrame) -> tuple[pl.Series, pl.Series] | np.ndarray:
    """The columns that a predictor may read: `features` `(n, F)` where there are any, else query and candidate."""
    return frame["features"].to_numpy() if "features" in frame.columns else (frame["query"], frame["candidate"])


def fit_predictor(
    name: str,
    frame: pl.DataFrame,
    *,
    n_labels: int,
    class_weight: str,
    seed: int,
    settings: Mapping[str, Mapping[str, Any]],
) -> Predictor:
    """Fit the predictor `name` on the training rows `frame`; `settings` has a section for each kind.

    Raises
    ------
    BadInput: an unknown name, a predictor that cannot read such rows, an unknown or impossible setting, fewer than
        two labels.
    """
    inputs = inputs_of(frame)
    form = "features" if isinstance(inputs, np.ndarray) else "texts"
    kinds = PREDICTORS.get(name, {})
    if form not in kinds:
        fitting = [known for known, forms in PREDICTORS.items() if form in forms]
        raise BadInput(f"predictor {name!r} does not read {form}; those that do: {', '.join(fitting)}")
    kind = KINDS[kinds[form]]
    model = kind.fit(
        inputs,
        frame["label"].to_numpy().astype(np.int64),
        n_labels=n_labels,
        class_weight=class_weight,
        seed=seed,
        settings=read_settings(kinds[form], settings.get(kinds[form], {})),
    )
    return Predictor(model)


def read_settings(kind: str, values: Mapping[str, Any]) -> Any:
    """The settings of a kind from its section of params.yaml; BadInput names each value that cannot be."""
    try:
        return KINDS[kind].settings(**values)
    except ValidationError as error:
        raise BadInput(f"train.{kind} in params.yaml: " + "; ".join(mistakes(error, kind))) from None


def load_predictor(folder: Path) -> Predictor:
    """The predictor saved in `folder`, giving the same logits bit for bit; BadInput where it is not whole."""
    header, model = read_predictor(folder)
    if header["kind"] not in KINDS:
        raise BadInput(f"{folder / HEADER} names the kind {header['kind']!r}; known are {', '.join(KINDS)}")
    return Predictor(KINDS[header["kind"]].read(header, model))
