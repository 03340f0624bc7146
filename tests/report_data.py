"""Made-up results of data sets, for tests of tables, figures and the page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from scipy.special import expit, logit, softmax

from relmap.io.atomic import write_atomically, write_json
from relmap.metrics.probability import accuracy, ece
from relmap.metrics.registry import COMPARED_METRICS, compute_reliability_metrics
from relmap.projection.registry import PIPELINE_VARIANTS
from relmap.report.figure import Results
from relmap.settings import METRIC_DEFAULTS
from tasks.figures import draw_all
from tasks.records.splits import SPLITS
from tasks.records.store import REPORT, base_folder, failed_gates_file, runs_folder
from tasks.results import values
from tasks.results.values import AVERAGE, SIMPLEX, display_name
from tasks.tables.runs import PAPER_CALIBRATORS, Runs

KNOTS = np.linspace(0, 1, 6)
FALLBACKS = ("none", "shared", "identity")  # of labels 0, 1, 2, then again
RIVAL_ROWS = (100, 400)

# 95% intervals of a change
DECREASE = (-0.05, -0.01)
INCREASE = (0.01, 0.05)
INCONCLUSIVE = (-0.02, 0.01)
IMPROVEMENTS = {"nll_correct": DECREASE, "aupr_error": INCREASE, "aurc": DECREASE}
QUANTITIES = ("before", "after", "delta")
SCHEMAS = {  # field of `Runs` -> columns after `dataset` and `source`
    "metrics": values.METRICS_SCHEMA,
    "intervals": {
        **dict.fromkeys(("calibrator", "metric", "quantity"), pl.String),
        **dict.fromkeys(("value", "standard_error", "low", "high", "p"), pl.Float64),
        "groups": pl.Int64,
    },
    "rivals": values.RIVALS_SCHEMA,
    "sensitivity": values.SENSITIVITY_SCHEMA,
}
Changes = Mapping[str, tuple[float, float] | None]  # metric -> interval of its change


def make_frame(name: str, *rows: tuple[Any, ...]) -> pl.DataFrame:
    """Make rows of a field of `Runs`."""
    return pl.DataFrame(rows, schema={"dataset": pl.String, "source": pl.String, **SCHEMAS[name]}, orient="row")


EMPTY_RUNS = Runs(
    metrics=make_frame("metrics"),
    intervals=make_frame("intervals"),
    rivals=make_frame("rivals"),
    sensitivity=make_frame("sensitivity"),
    facts=(),
    missing=(),
    calibrators=PAPER_CALIBRATORS,
    calibrators_by_dataset={},
)


def make_runs(
    values: Mapping[tuple[str, str, str, str], Sequence[float]],
    sources: Mapping[str, str],
    label_counts: Mapping[str, int] | None = None,
    **fields: Any,
) -> Runs:
    """Make runs with given metrics.

    Args:
        values: (data set, calibrator, variant, metric) -> values under the seeds 1, 2, ...
        sources: Data set -> source.
        label_counts: Data set -> number of labels; two by default.
        fields: Other fields of `Runs`.
    """
    rows = []
    for (dataset, calibrator, variant, metric), values_by_seed in values.items():
        for seed, value in enumerate(values_by_seed, 1):
            rows.append((dataset, sources[dataset], calibrator, seed, variant, metric, value))
    facts = []
    for dataset, source in sources.items():
        n_labels = (label_counts or {}).get(dataset, 2)
        facts.append({"dataset": dataset, "source": source, "labels": ["label"] * n_labels, "rows": {"test": 10_000}})
    return replace(EMPTY_RUNS, **{"metrics": make_frame("metrics", *rows), "facts": tuple(facts)} | fields)


@dataclass(frozen=True, eq=False, kw_only=True)
class DatasetResults(Results):
    """Results of one data set, with the contents of further files.

    Attributes:
        facts: Content of base.json.
        intervals: Rows of intervals.parquet.
        gates: Records in gates.json.
    """

    facts: dict[str, Any]
    intervals: pl.DataFrame
    gates: list[dict[str, Any]]


def make_results(
    name: str = "shop",
    *,
    labels: Sequence[str] = ("no", "maybe", "yes"),
    rows: int = 600,
    groups: int = 60,
    seeds: Sequence[int] = (1, 2),
    calibrators: Sequence[str] = ("uncal", "ts"),
    source: str = "simulated",
    decided: int | None = None,
    changes: Changes = IMPROVEMENTS,
    failing: bool = False,
) -> DatasetResults:
    """Make results of a data set whose decisions for later labels have more errors.

    Args:
        name: Key of the data set.
        labels: Names of the labels.
        rows: Number of test rows.
        groups: Number of groups.
        seeds: Protocol seeds.
        calibrators: Calibrators of the tables.
        source: Source of the data set.
        decided: The only label that is decided; None to decide the largest logit.
        changes: Intervals of the changes.
        failing: Whether an expectation of a gate fails.
    """
    generator = np.random.default_rng(len(labels) + rows)
    logits = generator.normal(size=(rows, len(labels))) * 2
    if decided is not None:
        logits[:, decided] = logits.max(axis=1) + 0.1
    decision = logits.argmax(axis=1)
    truth = (logits - np.arange(len(labels)) + generator.gumbel(size=logits.shape)).argmax(axis=1)
    decisions = pl.DataFrame(
        {
            "row": np.arange(rows),
            "group": [f"q{row * groups // rows}" for row in range(rows)],
            "label": truth,
            "decision": decision,
        }
    )
    scores = []
    lattices = []
    metrics = []
    for (index, calibrator), seed in product(enumerate(calibrators), seeds):
        confidence = softmax(logits / (1 + index), axis=1).max(axis=1)
        curves = [make_curve(number, label, seed) for number, label in enumerate(labels)]
        variant_logits = make_reliability_logits(confidence, decision, curves)
        scores.append(make_scores(decisions, calibrator, seed, confidence, variant_logits))
        lattices.append(
            {"calibrator": calibrator, "seed": seed, "variant": "mrp", "knots": KNOTS.tolist(), "curves": curves}
        )
        for variant, by_metric in make_metrics(decision, truth, confidence, variant_logits).items():
            for metric, value in by_metric.items():
                metrics.append((name, source, calibrator, seed, variant, metric, value))
    simplex = scores[0].select("row", "label", "decision", "calibrator", "seed", "reliability")
    return DatasetResults(
        name=name,
        display_name=display_name(name, source),
        labels=tuple(labels),
        test_rows=rows,
        facts={
            "dataset": name,
            "source": source,
            "preset": "twin" if source == "simulated" else "full",
            "labels": [*labels],
            "predictor": "linear",
            "class_weight": "none",
            "rows": dict.fromkeys(SPLITS, rows),
            "groups": dict.fromkeys(SPLITS, groups),
            "class_counts": {split: [rows // len(labels)] * len(labels) for split in SPLITS},
            "accuracy": {"test": float(np.mean(decision == truth))},
        },
        scores=pl.concat(scores).with_columns(source=pl.lit(source)),
        lattices=lattices,
        metrics=make_frame("metrics", *metrics),
        rivals=make_rivals(name, source, seeds),
        simplex=simplex.with_columns(
            alpha=1.2,
            feasible=True,
            solved=True,
            uncalibrated=pl.Series(softmax(logits / 2, axis=1).tolist()),
            base=pl.Series(softmax(logits, axis=1).tolist()),
            mrc=pl.Series(softmax(1.2 * logits, axis=1).tolist()),
        ),
        intervals=make_intervals(name, source, calibrators, changes, groups),
        gates=[make_gate(name, "pairs"), make_gate(name, "unchanged rows", passed=not failing)],
    )


def make_scores(
    decisions: pl.DataFrame,
    calibrator: str,
    seed: int,
    confidence: np.ndarray,
    variant_logits: Mapping[str, np.ndarray],
) -> pl.DataFrame:
    """Make rows of scores.parquet of one calibrator and seed."""
    logit_columns = {f"logit_{variant}": values for variant, values in variant_logits.items()}
    return decisions.with_columns(
        calibrator=pl.lit(calibrator),
        seed=pl.lit(seed),
        **logit_columns,
        confidence=confidence,
        reliability=expit(variant_logits["mrp"]),
    )


def make_metrics(
    decision: np.ndarray, truth: np.ndarray, confidence: np.ndarray, variant_logits: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Compute the metrics of each variant; those of spread and simplex are constants."""
    correct = decision == truth
    metrics = {variant: compute_reliability_metrics(values, correct) for variant, values in variant_logits.items()}
    metrics["confidence"]["accuracy"] = accuracy(decision, truth)
    metrics["confidence"]["ece"] = ece(confidence, correct)
    if len(np.unique(decision)) > 1:
        metrics["confidence"]["label_spread"] = 0.2
        metrics["confidence"]["label_spread_null_p95"] = 0.05
    metrics[SIMPLEX] = {"solved_share": 0.9, "infeasible_share": 0.08}
    return metrics


def make_curve(index: int, label: str, seed: int) -> dict[str, Any]:
    """Make an increasing curve, lower for later labels."""
    values = (np.linspace(-1, 3, len(KNOTS)) - 0.4 * index + 0.1 * seed).tolist()
    return {"label": label, "values": values, "rows": 100 * seed, "fallback": FALLBACKS[index % len(FALLBACKS)]}


def make_reliability_logits(
    confidence: np.ndarray, decision: np.ndarray, curves: Sequence[Mapping[str, Any]]
) -> dict[str, np.ndarray]:
    """Make the logits of each variant; those of isotonic regression have ties and infinities."""
    confidence_logit = logit(np.minimum(confidence, 1 - 1e-9))
    mrp = confidence_logit.copy()
    for label, curve in enumerate(curves):
        if curve["fallback"] != "identity":
            is_label = decision == label
            mrp[is_label] = np.interp(confidence[is_label], KNOTS, curve["values"])
    isotonic = np.round(confidence_logit - decision / 2)
    isotonic[isotonic >= 4] = np.inf
    isotonic[isotonic <= -2] = -np.inf
    return {
        **dict.fromkeys(PIPELINE_VARIANTS, confidence_logit),
        "mrp": mrp,
        "mrp_exact": mrp,
        "label_platt": confidence_logit - decision / 2,
        "label_isotonic": isotonic,
    }


def make_rivals(name: str, source: str, seeds: Sequence[int]) -> pl.DataFrame:
    """Make rows of rivals.parquet: confidence and MRP with both fits, and the confidence on the rows of both parts."""
    rows = []
    for calibrator, seed, size in product(("ts", "matrix"), seeds, RIVAL_ROWS):
        key = (name, source, seed, size)
        for metric in COMPARED_METRICS:
            value = 30 / size + seed
            rows.append((*key, 2 * size, 0, calibrator, "confidence", metric, value + 1))
            rows.append((*key, size, size, calibrator, "confidence", metric, value))
            rows.append((*key, size, size, calibrator, "mrp", metric, value))
    return make_frame("rivals", *rows)


def make_intervals(name: str, source: str, calibrators: Iterable[str], changes: Changes, groups: int) -> pl.DataFrame:
    """Make rows of intervals.parquet with the same changes for each calibrator and on average."""
    rows = []
    for (metric, interval), calibrator, quantity in product(changes.items(), (*calibrators, AVERAGE), QUANTITIES):
        if interval is None:
            numbers = (-0.02, 0.01, np.nan, np.nan, np.nan)
        else:
            low, high = interval
            p_value = 0.5 if low < 0 < high else 0.001
            numbers = ((low + high) / 2, 0.01, low, high, p_value)
        rows.append((name, source, calibrator, metric, quantity, *numbers, groups))
    return make_frame("intervals", *rows)


def make_gate(name: str, check: str, *, passed: bool = True, seed: int = 1) -> dict[str, Any]:
    """Make the record of a gate with one check of two expectations, the second of which may fail."""
    expectations = [
        {"description": "a row is unique", "success": True, "found": "no row twice", "allowed": "none"},
        {"description": "no decision changes", "success": passed, "found": "7 rows", "allowed": "none"},
    ]
    coordinates = {"dataset": name, "seed": seed}
    return {"checks": [{"gate": check, "coordinates": coordinates, "expectations": expectations}]}


def combine_runs(datasets: Sequence[DatasetResults], missing: Sequence[str] = ()) -> Runs:
    """Combine the results of several data sets as the report does."""
    return replace(
        EMPTY_RUNS,
        metrics=pl.concat([dataset.metrics for dataset in datasets]),
        intervals=pl.concat([dataset.intervals for dataset in datasets]),
        rivals=pl.concat([dataset.rivals for dataset in datasets]),
        facts=tuple(dataset.facts for dataset in datasets),
        missing=tuple(missing),
    )


def write_files(dataset: DatasetResults) -> None:
    """Write the files that the report reads."""
    folder = runs_folder(dataset.name)
    for name in ("scores", "metrics", "rivals", "intervals", "simplex"):
        write_atomically(folder / f"{name}.parquet", getattr(dataset, name).write_parquet)
    write_atomically(folder / "sensitivity.parquet", EMPTY_RUNS.sensitivity.write_parquet)
    write_json(folder / "curves.json", {"lattices": dataset.lattices})
    write_json(folder / "gates.json", {"gates": dataset.gates})
    write_json(base_folder(dataset.name) / "base.json", dataset.facts)


def write_report(datasets: Sequence[DatasetResults], reasons: Mapping[str, str] | None = None) -> Path:
    """Write the report below the current folder, without Prefect and without figures of the paper.

    Args:
        datasets: Results of data sets. Each was run with its own calibrators; failed ones would have two.
        reasons: Data set that failed -> reason.

    Returns:
        Path of the page.
    """
    from prefect import Task

    import flows.report as report_flow
    from tasks import report as report_tasks

    failed = dict(reasons or {})
    entries = {}
    for dataset in datasets:
        write_files(dataset)
        calibrators = tuple(dataset.scores["calibrator"].unique(maintain_order=True))
        entries[dataset.name] = SimpleNamespace(calibrators=calibrators)
    for name in failed:
        write_json(failed_gates_file(name), {"gates": [make_gate(name, "unchanged rows", passed=False)]})
        entries[name] = SimpleNamespace(calibrators=())
    params = SimpleNamespace(calibrators=("uncal", "ts"), datasets=entries, metrics=METRIC_DEFAULTS)
    functions = {name: value.fn for name, value in vars(report_flow).items() if isinstance(value, Task)}
    functions["write_paper_figures"] = lambda *_: None
    functions["_hide_from_prefect"] = lambda value: value
    functions["load_params"] = lambda: params
    artifact_functions = [name for name in vars(report_tasks) if name.endswith("_artifact")]
    with (
        patch.multiple(report_flow, **functions, hold_run_lock=nullcontext, start_progress=lambda *_: lambda: None),
        patch.multiple(report_tasks, **dict.fromkeys(artifact_functions, lambda *_, **__: None)),
    ):
        report_flow.report.fn(failed)
    return REPORT.resolve() / "index.html"


def write_dvc_plots(first: DatasetResults) -> None:
    """Write the figures of two data sets below the current folder, as `dvc plots` reads them."""
    from tasks.report import write_figures

    datasets = (first, make_results("mine", source="files"))
    write_figures.fn([(dataset, draw_all("data set", dataset)) for dataset in datasets])


def contrast_ratio(first: str, second: str) -> float:
    """Compute the contrast ratio of two colors, from 1 to 21 (WCAG 2.2).

    Args:
        first: Color as `#rrggbb` or `rgb(r, g, b)`.
        second: Color.
    """
    luminances = sorted(_luminance(color) for color in (first, second))
    return (luminances[1] + 0.05) / (luminances[0] + 0.05)


def _luminance(color: str) -> float:
    if color.startswith("#"):
        channels = [int(part, 16) for part in re.findall("[0-9a-f]{2}", color)[:3]]
    else:
        channels = [int(part) for part in re.findall(r"\d+", color)[:3]]
    shares = np.array(channels) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
