"""Predictions and reliability maps for tests, made from a seed, and rows to compare SQL with."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit, softmax

from relmap import cli
from relmap.calibrators.identity import Identity
from relmap.calibrators.temperature import Temperature
from relmap.decisions import CalibratedDecisions, FixedDecisions
from relmap.evaluation import assessment
from relmap.evaluation.assessment import describe_fit
from relmap.evaluation.summary import FitSummary
from relmap.io import files
from relmap.io.column_layout import find_layout
from relmap.io.columns import FileRows
from relmap.io.rows import read_rows
from relmap.maps import fit as map_fit
from relmap.maps.document import Calibration, HeldOut, MapDocument, Projection, Source
from relmap.maps.fit import MapFit, fit_labelled_rows
from relmap.maps.labelled_rows import LabelledRows, read_labelled_rows
from relmap.maps.options import FitOptions
from relmap.projection import pooled as pooling
from relmap.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks
from relmap.projection.mrp import Confidence, Curves, SharedCurve
from relmap.projection.pooled import ShrunkCurves
from relmap.settings import DEFAULTS, ProtocolParams, Settings

SETTINGS = DEFAULTS
METRIC_SETTINGS = SETTINGS.metrics.model_copy(update={"resamples": 200})  # fewer than by default, for speed
KNOTS = np.linspace(0, 1, 8)
LABEL_NAMES = ("irrelevant", "partial", "exact")
SOURCE = Source(
    file="made-up.parquet", sha256="0" * 64, rows=1500, seed=1, group=None, at="2026-01-01T00:00:00+00:00", versions={}
)
SQL_TOLERANCE = 1e-12
UNKNOWN_LABELS = (None, -1, 5, 10**6)
INVALID_CONFIDENCES = (None, np.nan, -5e-324, -1.0, 1 + 2**-52, 2.0, np.inf, -np.inf)
INVALID_DECISIONS = [  # decision, confidence
    *((decision, 0.7) for decision in UNKNOWN_LABELS),
    *((0, confidence) for confidence in INVALID_CONFIDENCES),
    (None, None),
    (-1, np.nan),
]
EXTREME_CONFIDENCES = (0.0, 5e-324, 1e-310, 2.3e-308, 1e-300, 1e-17, 0.3, 0.5, 0.65, 1 - 2**-53, 1.0)
WRITERS = {".parquet": pl.DataFrame.write_parquet, ".csv": pl.DataFrame.write_csv, ".jsonl": pl.DataFrame.write_ndjson}


def run_command(*arguments: object) -> object:
    """Run a command of `relmap.cli` in this process; it may replace files."""
    replace = ["--force"] if arguments[0] in ("fit", "apply", "label", "evaluate", "watch", "thresholds") else []
    return cli.app([*map(str, arguments), *replace], standalone_mode=False)


def write_frame(frame: pl.DataFrame, path: Path) -> Path:
    """Write a frame in the format of the file name, and return the path."""
    WRITERS[path.suffix](frame, path)
    return path


def read_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files of a hundred rows in many batches."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 256)
    monkeypatch.setattr(files, "BATCH_ROWS", 7)


def limit_resamples(patch: pytest.MonkeyPatch, resamples: int) -> None:
    """Let fits and evaluations use the given number of resamples in place of 1,000."""
    metrics = DEFAULTS.metrics.model_copy(update={"resamples": resamples})
    for module in (map_fit, assessment):
        patch.setattr(module, "DEFAULTS", DEFAULTS.model_copy(update={"metrics": metrics}))


def limit_prior_deviations(patch: pytest.MonkeyPatch) -> None:
    """Let pooled fits search two standard deviations of a prior in place of seven."""
    patch.setattr(pooling, "DEVIATION_LEVELS", (0.0, 0.5))


def settings_of_library(params: Any) -> Settings:
    """Return the settings of the library that params.yaml states."""
    protocol = ProtocolParams.model_validate(params.protocol.model_dump(exclude={"clip"}))
    return Settings(protocol=protocol, projection=params.projection, metrics=params.metrics)


def rows_of_frame(frame: pl.DataFrame, group: str | None = None, n_labels: int = 3) -> FixedDecisions:
    """Convert a frame to rows that a map can be fitted to."""
    layout = find_layout(frame.columns, "made-up.parquet", labelled=True, group=group)
    return read_rows(frame, layout, FileRows("made-up.parquet"), n_labels=n_labels)


def fit_map(
    rows: FixedDecisions,
    variant: str | None = None,
    calibrator: str | None = None,
    seed: int = 1,
    protocol: ProtocolParams | None = None,
    names: tuple[str, ...] | None = LABEL_NAMES,
    params: Settings = SETTINGS,
) -> MapFit:
    """Fit a map under the settings of params.yaml; without names the logits give the number of labels."""
    n_labels = len(names) if names else rows.n_labels
    group = None if rows.group is None else "group"
    source = SOURCE.model_copy(update={"seed": seed, "group": group, "protocol": protocol, "rows": len(rows)})
    labelled = LabelledRows(rows, n_labels=n_labels, signals=(), notes=[], names=names, ids=None, id_column=None)
    options = FitOptions(
        calibrator=calibrator, variant=variant, seed=seed, group=group, protocol="paper" if protocol else "own"
    )
    return fit_labelled_rows(labelled, options, source, params)


def read_labelled(file: files.Predictions, *, names: tuple[str, ...] | None = None, **options: Any) -> LabelledRows:
    """Read labelled rows with these options of a fit."""
    return read_labelled_rows(file, FitOptions(labels=names, **options))


def fit_file(
    file: files.Predictions, *, names: tuple[str, ...] | None = None, **options: Any
) -> tuple[MapDocument, FitSummary]:
    """Fit a map to predictions with these options, and describe it."""
    fitted = map_fit.fit_map(file, FitOptions(labels=names, **options))
    return fitted.document, describe_fit(fitted)


def make_predictions(
    n_rows: int, n_labels: int = 3, *, shift: float = 1.5, seed: int = 0, per_group: int = 10
) -> pl.DataFrame:
    """Make columns `logits`, `label` and `group`; label 1 is correct less often than its confidence.

    Args:
        n_rows: Number of rows.
        n_labels: Number of labels.
        shift: Logit by which label 1 is overconfident.
        seed: Seed of the simulation.
        per_group: Rows of a group.
    """
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(n_rows, n_labels)) * 2
    true_logits = logits - shift * (np.arange(n_labels) == 1)
    labels = (true_logits + generator.gumbel(size=true_logits.shape)).argmax(axis=1)
    group = [f"q{row // per_group}" for row in range(n_rows)]
    return pl.DataFrame({"logits": logits.tolist(), "label": labels, "group": group})


def make_confidence_predictions(n_rows: int, n_labels: int = 3, *, shift: float = 1.5, seed: int = 0) -> pl.DataFrame:
    """Make columns `decision`, `confidence` in steps of 0.05, and `label`, as of a model that returns no logits."""
    frame = make_predictions(n_rows, n_labels, shift=shift, seed=seed)
    probabilities = softmax(np.array(frame["logits"].to_list()), axis=1)
    confidence = np.minimum(np.round(probabilities.max(axis=1) * 20) / 20, 1.0)
    return pl.DataFrame({"decision": probabilities.argmax(axis=1), "confidence": confidence, "label": frame["label"]})


def make_predictions_with_signals(n_rows: int, seed: int = 0) -> pl.DataFrame:
    """Make columns `decision`, `label`, `agreement`, `source` and `group`; rows of the source web have more errors."""
    generator = np.random.default_rng(seed)
    decision = generator.integers(0, 3, n_rows)
    agreement = generator.random(n_rows)
    is_web = generator.random(n_rows) < 0.5
    reliability = expit(np.array([2.0, 0.0, -1.0])[decision] + 3 * (agreement - 0.5) - 1.5 * is_web)
    correct = generator.random(n_rows) < reliability
    return pl.DataFrame(
        {
            "decision": decision,
            "label": np.where(correct, decision, (decision + 1) % 3),
            "agreement": agreement,
            "source": np.where(is_web, "web", "news"),
            "group": np.arange(n_rows) // 10,
        }
    )


def make_variants(n_labels: int = 3, seed: int = 0) -> dict[str, object]:
    """Make one fitted variant of each form; label 0 has its own curve, others have the shared curve or none."""
    generator = np.random.default_rng(seed)
    values = np.sort(generator.normal(size=(n_labels, len(KNOTS))) * 2, axis=1)
    fallback = ("none", "shared", "identity", *["none"] * n_labels)[:n_labels]
    rows_of_fallback = {"none": 500, "shared": 7, "identity": 0}
    rows = np.array([rows_of_fallback[kind] for kind in fallback])
    shared = SharedCurve(Curves(KNOTS, values[:1], np.array([int(rows.sum())]), ("none",)))
    thresholds = tuple(np.sort(generator.random(5)) for _ in range(n_labels))
    heights = tuple(np.r_[0.0, np.sort(generator.random(3)), 1.0] for _ in range(n_labels))
    label_wise = {
        "label_intercept": Intercepts(generator.normal(size=n_labels)),
        "label_platt": Lines(generator.random(n_labels) + 0.2, generator.normal(size=n_labels)),
        "label_isotonic": Isotonic(thresholds, heights),
    }
    return {
        "confidence": Confidence(),
        "shared_1d": shared,
        "mrp": Curves(KNOTS, values, rows, fallback),
        "mrp_pooled": ShrunkCurves(
            Lines(generator.random(n_labels), generator.normal(size=n_labels), 5.0),
            Curves(KNOTS, values, rows, ("none",) * n_labels),
            generator.random(n_labels),
            largest=2.0,
        ),
        **{name: WithFallbacks(variant, shared, fallback, rows) for name, variant in label_wise.items()},
    }


def make_map(
    variant: str = "mrp",
    fitted: object | None = None,
    *,
    calibrator: object | None = None,
    n_labels: int = 3,
    names: tuple[str, ...] | None = LABEL_NAMES,
    confidence_only: bool = False,
) -> MapDocument:
    """Make a map that was not fitted to rows.

    Args:
        variant: Key of a variant; the text before a comma is its name in the map.
        fitted: The fitted variant, by default the one of `make_variants`.
        calibrator: The fitted calibrator, by default temperature scaling.
        n_labels: Number of labels.
        names: Names of the labels.
        confidence_only: Whether rows have a decision and a confidence in place of logits.
    """
    if calibrator is None:
        calibrator = Identity() if confidence_only else Temperature(0.8)
    if names is not None and len(names) != n_labels:
        names = tuple(f"label {k}" for k in range(n_labels))
    fitted = fitted or make_variants(n_labels)[variant]
    name = variant.partition(",")[0]
    rows = getattr(fitted, "rows", None)
    rows_by_label = (500, 7, *[0] * n_labels)[:n_labels] if rows is None else tuple(rows.tolist())
    return MapDocument(
        input="confidence_only" if confidence_only else "logits",
        n_labels=n_labels,
        label_names=names,
        calibrator=Calibration(name="uncal" if confidence_only else "ts", rows=500, fitted=calibrator),
        projection=Projection(name=name, rows=507, rows_by_label=rows_by_label, fitted=fitted),
        held_out=HeldOut(
            rows=500,
            label_spread=0.1,
            label_spread_shuffled=0.05,
            quantiles=tuple(expit(np.linspace(-3, 3, 101)).tolist()),
            halves=(0.5,) * n_labels,
            cells=(),
        ),
        source=SOURCE,
    )


def make_map_with_held_out(**fields: object) -> MapDocument:
    """Make a map with the given fields of its held-out rows."""
    document = make_map()
    return document.model_copy(update={"held_out": document.held_out.model_copy(update=fields)})


def make_maps_for_sql(n_thresholds: int) -> dict[str, MapDocument]:
    """Make maps of each form for 2 and 5 labels, with extreme numbers and with many thresholds."""
    documents = {}
    for n_labels in (2, 5):
        for name, fitted in make_variants(n_labels, seed=n_labels).items():
            documents[f"{name}, K = {n_labels}"] = make_map(name, fitted, n_labels=n_labels)
    return documents | _extreme_maps(n_thresholds)


def _extreme_maps(n_thresholds: int) -> dict[str, MapDocument]:
    """Make maps with numbers at the limits of the format, and one of many thresholds."""
    rows = np.array([500, 500])
    no_fallback = ("none", "none")
    steep_values = [-1000.0] * 3 + [-800.0, 3.0, 3.0, 1000.0, 1000.0]
    flat_values = [-1e-320, 0.0, 0.0, 5e-324, 1e-300, 1e-200, 1e-17, 1e-14]
    curves = Curves(KNOTS, np.array([steep_values, flat_values]), rows, no_fallback)
    documents = {"mrp, extreme": make_map("mrp", curves, n_labels=2)}

    tiny_thresholds = (np.array([0.0, 1e-290, 1.0]), np.array([0.7]))
    tiny_heights = (np.array([0.1, 0.2, 1.0]), np.array([0.4]))
    many_thresholds = (np.arange(n_thresholds) / n_thresholds, np.array([0.5]))
    many_heights = (np.sort(np.random.default_rng(n_thresholds).random(n_thresholds)), np.array([0.5]))
    label_wise = {
        "label_intercept, extreme": Intercepts(np.array([-12.0, 12.0])),
        "label_platt, extreme": Lines(np.array([30.0, 0.0]), np.array([-20.0, 3.0])),
        "label_isotonic, extreme": Isotonic(tiny_thresholds, tiny_heights),
        "label_isotonic, many thresholds": Isotonic(many_thresholds, many_heights),
    }
    shared = SharedCurve(Curves(KNOTS, np.zeros((1, 8)), rows[:1], no_fallback[:1]))
    for name, variant in label_wise.items():
        fitted = WithFallbacks(variant, shared, no_fallback, rows)
        documents[name] = make_map(name.partition(",")[0], fitted, n_labels=2)
    return documents


def make_rows_for_sql(document: MapDocument, n_random: int = 3000) -> tuple[pl.DataFrame, np.ndarray]:
    """Make rows to compare SQL with the map.

    Random rows come first, then rows of every label at extreme confidences and around every knot, then invalid rows.

    Returns:
        Columns `place`, `decision`, `confidence`, `logits_0`, ..., and the reliability of each row, NaN if invalid.
    """
    generator = np.random.default_rng(0)
    random_confidence = np.r_[
        generator.random(n_random // 2), expit(generator.normal(size=n_random - n_random // 2) * 15)
    ]
    knots = [knots[:: 1 + len(knots) // 50] for knots in _knots_of(document.projection.fitted)]
    knots = np.concatenate([[], *knots])
    edges = np.unique(np.r_[EXTREME_CONFIDENCES, knots, np.nextafter(knots, 0), np.nextafter(knots, 1)])
    labels = np.arange(document.n_labels)
    decision = np.r_[generator.integers(0, document.n_labels, n_random), np.repeat(labels, len(edges))]
    confidence = np.r_[random_confidence, np.tile(edges, document.n_labels)]
    scale = 10.0 ** generator.integers(-1, 3, (len(decision), 1))
    logits = generator.normal(size=(len(decision), document.n_labels)) * scale
    with np.errstate(divide="ignore"):
        reliability_logit = document.projection.fitted(CalibratedDecisions(logit(confidence), decision, None, logits))
        reliability = expit(reliability_logit)
    schema = {"decision": pl.Int32, "confidence": pl.Float64}
    valid_rows = pl.DataFrame([decision.astype(np.int32), confidence], schema=schema)
    valid_rows = valid_rows.with_columns(**{f"logits_{label}": column for label, column in enumerate(logits.T)})
    invalid_rows = pl.DataFrame(INVALID_DECISIONS, schema=schema, orient="row")
    frame = pl.concat([valid_rows, invalid_rows], how="diagonal").with_row_index("place")
    return frame, np.r_[reliability, np.full(len(INVALID_DECISIONS), np.nan)]


def _knots_of(fitted: object) -> list[np.ndarray]:
    match fitted:
        case Curves(knots=knots) | SharedCurve(curves=Curves(knots=knots)) | ShrunkCurves(curves=Curves(knots=knots)):
            return [knots]
        case WithFallbacks(own=own, shared=shared):
            return [shared.curves.knots, *(own.confidence if isinstance(own, Isotonic) else [])]
        case _:
            return []
