"""Maps of cascades that are not fitted, whose reliabilities are computed by hand."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.calibrators.identity import Constant, Identity
from relmap.cascade import fit, policy
from relmap.cascade.document import CascadeDocument, CascadeStep, signal_names
from relmap.io.column_layout import Reading, find_layout
from relmap.io.frames import FramePredictions
from relmap.io.signals import NumberSignal
from relmap.maps.document import Calibration, MapDocument, Projection
from relmap.maps.options import FitOptions
from relmap.maps.score import ignore_progress, score_file
from relmap.projection.labelwise import Lines
from relmap.projection.mrp import Curves
from relmap.projection.pooled import ShrunkCurves, SignalAdjusted
from tests.maps import KNOTS, make_map

CONSTANT = 0.8  # confidence of models that state none
AGREEMENT_WEIGHT = 0.5
SUPPORT_WEIGHT = 1.0
OUT_OF_FOLD_SHIFT = 0.25  # of the log-odds of the fit rows
CASCADE_FIELDS = {  # of a document, without its steps and the columns that identify rows
    "person_cost": 100.0,
    "person_accuracy": 1.0,
    "target_accuracy": 0.9,
    "budget": None,
    "confidence_level": 0.95,
    "lower_bound": 0.9,
    "seed": 1,
}


def make_step_map(
    names: Sequence[str],
    reading: Reading,
    *,
    earlier: Sequence[str] = (),
    map_input: str = "confidence_only",
    intercepts: Sequence[float] | None = None,
) -> MapDocument:
    """Make the map of one model of a cascade.

    The log-odds of the reliability are those of the stated confidence, or of `CONSTANT`, plus the intercept of the
    decided label, plus for each earlier model `AGREEMENT_WEIGHT` if the decisions agree, and `SUPPORT_WEIGHT` times the
    support.

    Args:
        names: Names of the labels.
        reading: How the columns are read.
        earlier: Names of the models before this one.
        map_input: What the map reads from each row.
        intercepts: Intercept of each label; None for zeros.
    """
    n_labels = len(names)
    rows = (50,) * n_labels
    line = Lines(np.ones(n_labels), np.zeros(n_labels) if intercepts is None else np.array(intercepts))
    curves = Curves(KNOTS, np.zeros((n_labels, len(KNOTS))), np.array(rows), ("none",) * n_labels)
    fitted = ShrunkCurves(line, curves, np.zeros(n_labels))
    signals = signal_names(list(earlier))
    if signals:
        fitted = SignalAdjusted(fitted, np.array([AGREEMENT_WEIGHT, SUPPORT_WEIGHT] * len(earlier)))
    calibrator = Constant(CONSTANT) if map_input == "decision_only" else Identity()
    parts = dict(make_map("confidence", n_labels=n_labels, names=tuple(names)))
    parts["input"] = map_input
    parts["calibrator"] = Calibration(name="uncal", rows=100, fitted=calibrator)
    parts["projection"] = Projection(name="mrp_pooled", rows=100, rows_by_label=rows, fitted=fitted)
    parts["signals"] = tuple(NumberSignal(name, 0.0, 1.0, -100.0, 100.0) for name in signals)
    parts["reading"] = reading.to_stored()
    return MapDocument(**parts)


def make_cascade(
    models: Mapping[str, Reading],
    thresholds: Sequence[float | None],
    *,
    costs: Sequence[float] = (1.0, 10.0, 50.0),
    names: Sequence[str] = ("no", "yes"),
    intercepts: Mapping[str, Sequence[float]] | None = None,
    inputs: Mapping[str, str] | None = None,
    **fields: object,
) -> CascadeDocument:
    """Make a cascade of maps by `make_step_map`.

    Args:
        models: How the columns of each model are read, by its name.
        thresholds: Threshold of each model.
        costs: Cost of each model.
        names: Names of the labels.
        intercepts: Intercepts of each label, by the name of the model.
        inputs: What is read of the rows, by the name of the model; by default a confidence if the model has one.
        **fields: Other fields of the document.
    """
    steps = []
    earlier: list[str] = []
    for (name, reading), threshold, cost in zip(models.items(), thresholds, costs, strict=False):
        default = "decision_only" if reading.confidence is None else "confidence_only"
        document = make_step_map(
            names,
            reading,
            earlier=earlier,
            map_input=(inputs or {}).get(name, default),
            intercepts=(intercepts or {}).get(name),
        )
        steps.append(CascadeStep(name=name, cost=cost, threshold=threshold, map=document))
        earlier.append(name)
    return CascadeDocument(steps=tuple(steps), **(CASCADE_FIELDS | {"identity_columns": ("id",)} | fields))


class JudgedRows(NamedTuple):
    """Rows that two judges decided: true labels, decisions, and log-odds that the small judge is right, each (n,)."""

    label: np.ndarray
    small: np.ndarray
    large: np.ndarray
    skill: np.ndarray


def judge_rows(generator: np.random.Generator, n_rows: int, *, mean_skill: float) -> JudgedRows:
    """Simulate two judges of the same rows, of which the large one is right more often."""
    label = generator.integers(0, 2, n_rows)
    skill = generator.normal(mean_skill, 1.2, n_rows)
    small = np.where(generator.random(n_rows) < expit(skill), label, 1 - label)
    large = np.where(generator.random(n_rows) < expit(skill + 1.5), label, 1 - label)
    return JudgedRows(label, small, large, skill)


def reliability_by_hand(
    confidence: np.ndarray, earlier: Sequence[tuple[np.ndarray, np.ndarray]] = (), intercept: np.ndarray | float = 0.0
) -> np.ndarray:
    """Compute the reliabilities of a map by `make_step_map`.

    Args:
        confidence: Stated confidence, shape (n,).
        earlier: Whether the decision agrees with an earlier one, and the reliability of the earlier one, each (n,).
        intercept: Intercept of the decided label.
    """
    log_odds = logit(confidence) + intercept
    for agrees, reliability in earlier:
        log_odds = log_odds + AGREEMENT_WEIGHT * agrees + SUPPORT_WEIGHT * np.where(agrees, 1, -1) * logit(reliability)
    return expit(log_odds)


class HandFits:
    """Replacement of `fit_map` that returns maps by `make_step_map`, and remembers what they were to be fitted to."""

    def __init__(self) -> None:
        self.files: list[FramePredictions] = []
        self.options: list[FitOptions] = []

    def __call__(self, file: FramePredictions, options: FitOptions) -> SimpleNamespace:
        self.files.append(file)
        self.options.append(options)
        kind = find_layout(file.schema.names, str(file.path), labelled=True, reading=file.reading).kind
        map_input = kind if kind in ("confidence_only", "decision_only") else "logits"
        earlier = [name.removeprefix("agrees_with_") for name in options.signals[::2]]
        document = make_step_map(options.labels, file.reading, earlier=earlier, map_input=map_input)
        scores = score_file(document, file, ignore_progress).scores["logit"].to_numpy()
        return SimpleNamespace(document=document, scored=SimpleNamespace(logit=scores + OUT_OF_FOLD_SHIFT))


def replace_fits(patch: pytest.MonkeyPatch) -> HandFits:
    """Let cascades have maps by hand in place of fits, and try fewer thresholds."""
    fits = HandFits()
    patch.setattr(fit, "fit_map", fits)
    patch.setattr(policy, "MAX_CANDIDATES", 1000)
    return fits
