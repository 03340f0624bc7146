"""Predictions and reliability maps for the tests of `tasks/maps`, made up from a seed; rows to hold SQL against."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit, softmax

from relmap import api
from relmap import cli as rerank
from relmap.calibrators.identity import Identity
from relmap.calibrators.temperature import Temperature
from relmap.fitting.map_fit import MapFit, fit_labelled_rows
from relmap.io import files
from relmap.io.columns import FileRows
from relmap.io.reading import find_layout
from relmap.io.rows import PredictedRows, read_rows
from relmap.maps.correction import Correction
from relmap.maps.document import Calibration, Choice, HeldOut, MapDocument, Projection, Source
from relmap.projection import pooling
from relmap.projection.curves import Confidence, Curves, SharedCurve
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks
from relmap.projection.pooling import ShrunkCurves
from relmap.projection.whole_vector import WholeVector
from relmap.settings import DEFAULTS, ProtocolParams, Settings

PARAMS = DEFAULTS
RULES = PARAMS.metrics.model_copy(update={"resamples": 200})  # few, for a test
KNOTS = np.linspace(0, 1, 8)
NAMES = ("irrelevant", "partial", "exact")
SOURCE = Source(
    file="made-up.parquet", sha256="0" * 64, rows=1500, seed=1, group=None, at="2026-01-01T00:00:00+00:00", versions={}
)
AGREEMENT = 1e-12
WITHOUT_ANSWER = [  # decision, confidence; the decision is no label of any map, or the confidence is no share
    *((decision, 0.7) for decision in (None, -1, 5, 10**6)),
    *((0, confidence) for confidence in (None, np.nan, -5e-324, -1.0, 1 + 2**-52, 2.0, np.inf, -np.inf)),
    (None, None),
    (-1, np.nan),
]
EDGES = (0.0, 5e-324, 1e-310, 2.3e-308, 1e-300, 1e-17, 0.3, 0.5, 0.65, 1 - 2**-53, 1.0)
WRITE = {".parquet": pl.DataFrame.write_parquet, ".csv": pl.DataFrame.write_csv, ".jsonl": pl.DataFrame.write_ndjson}


def run(*arguments: object) -> object:
    """A command of `relmap.cli` as it is typed, in this process."""
    return rerank.app([str(argument) for argument in arguments], standalone_mode=False)


def write(frame: pl.DataFrame, path: Path) -> Path:
    """The file of a frame, in the format that its name says."""
    WRITE[path.suffix](frame, path)
    return path


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a hundred rows are read in many pieces."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 256)
    monkeypatch.setattr(files, "BATCH_ROWS", 7)


def few_resamples(patch: pytest.MonkeyPatch, resamples: int) -> None:
    """Fits and evaluations draw so many resamples in place of 1,000."""
    metrics = api.DEFAULTS.metrics.model_copy(update={"resamples": resamples})
    patch.setattr(api, "DEFAULTS", api.DEFAULTS.model_copy(update={"metrics": metrics}))


def few_deviations(patch: pytest.MonkeyPatch) -> None:
    """Pooled fits search two standard deviations of a prior in place of six."""
    patch.setattr(pooling, "DEVIATION_LEVELS", (0.0, 0.5))


def checked(frame: pl.DataFrame, group: str | None = None, n_labels: int = 3) -> PredictedRows:
    """A frame as rows that a map can be fitted on."""
    layout = find_layout(frame.columns, "made-up.parquet", labelled=True, group=group)
    return read_rows(frame, layout, FileRows("made-up.parquet"), n_labels=n_labels)


def learned(
    rows: PredictedRows,
    variant: str = "auto",
    calibrator: str = "ts",
    seed: int = 1,
    protocol: ProtocolParams | None = None,
    names: tuple[str, ...] | None = NAMES,
    params: Settings = PARAMS,
) -> MapFit:
    """What `fit` makes of rows, under the settings of params.yaml; without names K is that of the logits."""
    n_labels = len(names) if names else rows.n_labels
    facts = {"seed": seed, "group": None if rows.group is None else "group", "protocol": protocol, "rows": len(rows)}
    source = SOURCE.model_copy(update=facts)
    return fit_labelled_rows(
        rows, source, params, calibrator=calibrator, variant=variant, n_labels=n_labels, names=names
    )


def predictions(n: int, n_labels: int = 3, *, shift: float = 1.5, seed: int = 0, per_group: int = 10) -> pl.DataFrame:
    """Columns `logits`, `label`, `group`; label 1 is right less often than its confidence says, by `shift`."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(n, n_labels)) * 2
    truth = logits - shift * (np.arange(n_labels) == 1)
    labels = (truth + generator.gumbel(size=truth.shape)).argmax(axis=1)
    group = [f"q{row // per_group}" for row in range(n)]
    return pl.DataFrame({"logits": logits.tolist(), "label": labels, "group": group})


def confidence_only(n: int, n_labels: int = 3, *, shift: float = 1.5, seed: int = 0) -> pl.DataFrame:
    """Columns `decision`, `confidence` in round numbers, `label`: what a judge says that gives no logits."""
    made = predictions(n, n_labels, shift=shift, seed=seed)
    probabilities = softmax(np.array(made["logits"].to_list()), axis=1)
    confidence = np.minimum(np.round(probabilities.max(axis=1) * 20) / 20, 1.0)
    return pl.DataFrame({"decision": probabilities.argmax(axis=1), "confidence": confidence, "label": made["label"]})


def judged_with_signals(n: int, seed: int = 0) -> pl.DataFrame:
    """Columns `decision`, `label`, `agreement`, `source`, `group`: a judge of three labels, worse on the web."""
    generator = np.random.default_rng(seed)
    decision, agreement = generator.integers(0, 3, n), generator.random(n)
    web = generator.random(n) < 0.5
    right = generator.random(n) < expit(np.array([2.0, 0.0, -1.0])[decision] + 3 * (agreement - 0.5) - 1.5 * web)
    facts = {"agreement": agreement, "source": np.where(web, "web", "news"), "group": np.arange(n) // 10}
    return pl.DataFrame({"decision": decision, "label": np.where(right, decision, (decision + 1) % 3), **facts})


def variants(n_labels: int = 3, seed: int = 0) -> dict[str, object]:
    """One made-up fitted variant of each form; label 0 has its own curve, the last ones stand on others."""
    generator = np.random.default_rng(seed)
    values = np.sort(generator.normal(size=(n_labels, len(KNOTS))) * 2, axis=1)
    fallback = ("none", "shared", "identity", *["none"] * n_labels)[:n_labels]
    rows = np.array([{"none": 500, "shared": 7, "identity": 0}[kind] for kind in fallback])
    shared = SharedCurve(Curves(KNOTS, values[:1], np.array([int(rows.sum())]), ("none",)))
    thresholds = tuple(np.sort(generator.random(5)) for _ in range(n_labels))
    heights = tuple(np.r_[0.0, np.sort(generator.random(3)), 1.0] for _ in range(n_labels))
    own = {
        "label_intercept": Intercepts(generator.normal(size=n_labels)),
        "label_platt": Lines(generator.random(n_labels) + 0.2, generator.normal(size=n_labels)),
        "label_isotonic": Isotonic(thresholds, heights),
    }
    return {
        "confidence": Confidence(),
        "shared_1d": shared,
        "mrp": Curves(KNOTS, values, rows, fallback),
        "mrp, shrunk": ShrunkCurves(
            Lines(generator.random(n_labels), generator.normal(size=n_labels), 5.0),
            Curves(KNOTS, values, rows, ("none",) * n_labels),
            generator.random(n_labels),
        ),
        "label_vector": WholeVector(generator.normal(size=(n_labels, n_labels)), generator.normal(size=n_labels)),
        **{name: WithFallbacks(value, shared, fallback, rows) for name, value in own.items()},
    }


def held_out(**facts: object) -> MapDocument:
    """A made-up map with other facts of the rows that were held out at its fit."""
    made = document()
    return made.model_copy(update={"held_out": made.held_out.model_copy(update=facts)})


def document(
    variant: str = "mrp",
    value: object | None = None,
    *,
    calibrator: object | None = None,
    n_labels: int = 3,
    names: tuple[str, ...] | None = NAMES,
    confidence_only: bool = False,
) -> MapDocument:
    """A map of a made-up variant (or of `value`) under a temperature (or `calibrator`, or none if only stated)."""
    calibrator = calibrator or (Identity() if confidence_only else Temperature(0.8))
    names = names if names is None or len(names) == n_labels else tuple(f"label {k}" for k in range(n_labels))
    value, name = value or variants(n_labels)[variant], variant.partition(",")[0]
    rows = getattr(value, "rows", None)
    behind = (500, 7, *[0] * n_labels)[:n_labels] if rows is None else tuple(rows.tolist())
    return MapDocument(
        input="confidence_only" if confidence_only else "logits",
        n_labels=n_labels,
        label_names=names,
        calibrator=Calibration(name="uncal" if confidence_only else "ts", rows=500, fitted=calibrator),
        projection=Projection(name=name, rows=507, rows_by_label=behind, fitted=value),
        choice=Choice(asked=name, reason="made up for a test", candidates=(), gains=()),
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


CORRECTION = Correction(
    np.array([-2.0, -0.5, 0.1, 1.0]), np.array([-2.6, -0.4, 0.2, 0.3]), first_slope=1.7, last_slope=0.05
)


def with_correction(made: MapDocument, correction: Correction = CORRECTION) -> MapDocument:
    """The same map, and the fits of its folds, with a correction of the logit."""
    folds = [fold.model_copy(update={"correction": correction}) for fold in made.folds]
    return MapDocument(**dict(made) | {"correction": correction, "folds": tuple(folds)})


def documents_for_sql(thresholds: int) -> dict[str, MapDocument]:
    """A map of each form for K = 2 and 5, maps at the ends of what the format allows, and one of many thresholds."""
    made = {
        f"{name}, K = {n_labels}": document(name, value, n_labels=n_labels)
        for n_labels in (2, 5)
        for name, value in variants(n_labels, seed=n_labels).items()
    }
    behind, none = np.array([500, 500]), ("none", "none")
    leaping = [-1000.0] * 3 + [-800.0, 3.0, 3.0, 1000.0, 1000.0]
    flat = [-1e-320, 0.0, 0.0, 5e-324, 1e-300, 1e-200, 1e-17, 1e-14]
    made["mrp, far out"] = document("mrp", Curves(KNOTS, np.array([leaping, flat]), behind, none), n_labels=2)
    tiny = (np.array([0.0, 1e-290, 1.0]), np.array([0.7])), (np.array([0.1, 0.2, 1.0]), np.array([0.4]))
    heights, middle = np.sort(np.random.default_rng(thresholds).random(thresholds)), np.array([0.5])
    label_wise = {
        "label_intercept, far out": Intercepts(np.array([-12.0, 12.0])),
        "label_platt, far out": Lines(np.array([30.0, 0.0]), np.array([-20.0, 3.0])),
        "label_isotonic, far out": Isotonic(*tiny),
        "label_isotonic, many thresholds": Isotonic((np.arange(thresholds) / thresholds, middle), (heights, middle)),
    }
    shared = SharedCurve(Curves(KNOTS, np.zeros((1, 8)), behind[:1], none[:1]))
    for name, own in label_wise.items():
        made[name] = document(name.partition(",")[0], WithFallbacks(own, shared, none, behind), n_labels=2)
    leaps = np.array([-39.0, 1e-9, 2e-9, 40.0]), np.array([-990.0, -980.0, 980.0, 1000.0])
    far_out = Correction(*leaps, first_slope=1000.0, last_slope=1e-6)
    steep = Lines(np.array([30.0, 0.0]), np.array([-20.0, 3.0]))
    for n_labels in (2, 5):
        mixed = variants(n_labels, seed=n_labels)
        mixed["label_platt"] = Lines(np.linspace(0, 2, n_labels), np.linspace(-1, 1, n_labels))
        for name in ("label_platt", "mrp, shrunk", "label_vector"):
            own = document(name, mixed[name], n_labels=n_labels)
            made[f"{name}, corrected, K = {n_labels}"] = with_correction(own)
    made["label_platt, corrected, far out"] = with_correction(document("label_platt", steep, n_labels=2), far_out)
    return made


def rows_for_sql(made: MapDocument, n: int = 3000) -> tuple[pl.DataFrame, np.ndarray]:
    """Columns `place`, `decision`, `confidence`, `logits_0` ..., and the reliability of `apply` `(m,)`, or NaN.

    `n` rows at random, then every label at the edges and about every knot, then those without an answer.
    """
    generator = np.random.default_rng(0)
    random = np.r_[generator.random(n // 2), expit(generator.normal(size=n - n // 2) * 15)]
    knots = np.concatenate([[], *(knots[:: 1 + len(knots) // 50] for knots in _knots(made.projection.fitted))])
    edges = np.unique(np.r_[EDGES, knots, np.nextafter(knots, 0), np.nextafter(knots, 1)])
    decision = np.r_[generator.integers(0, made.n_labels, n), np.repeat(np.arange(made.n_labels), len(edges))]
    confidence = np.r_[random, np.tile(edges, made.n_labels)]
    scale = 10.0 ** generator.integers(-1, 3, (len(decision), 1))
    logits = generator.normal(size=(len(decision), made.n_labels)) * scale
    with np.errstate(divide="ignore"):
        score = made.projection.fitted(CalibratedDecisions(logit(confidence), decision, None, logits))
        reliability = expit(score if made.correction is None else made.correction(score))
    schema = {"decision": pl.Int32, "confidence": pl.Float64}
    frame = pl.DataFrame([decision.astype(np.int32), confidence], schema=schema)
    frame = frame.with_columns(**{f"logits_{label}": column for label, column in enumerate(logits.T)})
    frame = pl.concat([frame, pl.DataFrame(WITHOUT_ANSWER, schema=schema, orient="row")], how="diagonal")
    return frame.with_row_index("place"), np.r_[reliability, np.full(len(WITHOUT_ANSWER), np.nan)]


def _knots(fitted: object) -> list[np.ndarray]:
    match fitted:
        case Curves(knots=knots) | SharedCurve(curves=Curves(knots=knots)) | ShrunkCurves(curves=Curves(knots=knots)):
            return [knots]
        case WithFallbacks(own=own, shared=shared):
            return [shared.curves.knots, *(own.confidence if isinstance(own, Isotonic) else [])]
        case _:
            return []
