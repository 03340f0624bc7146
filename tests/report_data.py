"""Results of a run that never was, for tests of tables, figures and page: small, whole, of any number of labels."""

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
from relmap.projection.variants import PIPELINE_VARIANTS
from relmap.report.figure import Results
from relmap.settings import METRIC_DEFAULTS
from tasks.figures import drawn_for
from tasks.records import results
from tasks.records.results import AVERAGE, SIMPLEX, display_name
from tasks.records.store import REPORT, base_folder, failed_gates_file, runs_folder
from tasks.tables.runs import PAPER_CALIBRATORS, Runs

KNOTS = np.linspace(0, 1, 6)
FALLBACKS = ("none", "shared", "identity")  # of the curves of labels 0, 1, 2, then again
DECREASE, INCREASE, NOTHING = (-0.05, -0.01), (0.01, 0.05), (-0.02, 0.01)  # intervals of a change
QUANTITIES = ("before", "after", "delta")
BETTER = {"nll_correct": DECREASE, "aupr_error": INCREASE, "aurc": DECREASE}
SCHEMAS = {  # of the fields of `Runs` that are frames, behind `dataset` and `source`
    "metrics": results.METRICS,
    "intervals": dict.fromkeys(("calibrator", "metric", "quantity"), pl.String)
    | dict.fromkeys(("value", "standard_error", "low", "high", "p"), pl.Float64)
    | {"groups": pl.Int64},
    "rivals": results.RIVALS,
    "sensitivity": results.SENSITIVITY,
}


def frame(name: str, *rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows of one of these fields."""
    return pl.DataFrame(rows, schema={"dataset": pl.String, "source": pl.String, **SCHEMAS[name]}, orient="row")


EMPTY = Runs(*map(frame, SCHEMAS), (), (), PAPER_CALIBRATORS, {}, METRIC_DEFAULTS.smallest_relevant_change)


def runs_of(values: Mapping, sources: Mapping[str, str], sizes: Mapping[str, int] | None = None, **others: Any) -> Runs:
    """Runs of seeds 1, 2, ... at the values of each (data set, calibrator, variant, metric).

    `sizes` are numbers of labels, two where there is none; `others` are fields of `Runs`.
    """
    rows = (
        (dataset, sources[dataset], calibrator, seed, variant, metric, value)
        for (dataset, calibrator, variant, metric), seeds in values.items()
        for seed, value in enumerate(seeds, 1)
    )
    facts = tuple(
        {"dataset": name, "source": source, "labels": ["label"] * (sizes or {}).get(name, 2), "rows": {"test": 10_000}}
        for name, source in sources.items()
    )
    return replace(EMPTY, **{"metrics": frame("metrics", *rows), "facts": facts} | others)


@dataclass(frozen=True, eq=False, kw_only=True)
class Made(Results):
    """What the stages of one data set would have written: what its figures are drawn from, and more."""

    facts: dict[str, Any]
    intervals: pl.DataFrame
    gates: list[dict[str, Any]]


def made(
    name: str = "shop",
    *,
    labels: Sequence[str] = ("no", "maybe", "yes"),
    rows: int = 600,
    groups: int = 60,
    seeds: Sequence[int] = (1, 2),
    calibrators: Sequence[str] = ("uncal", "ts"),
    source: str = "simulated",
    decided: int | None = None,
    changes: Mapping[str, tuple[float, float] | None] = BETTER,
    failing: bool = False,
) -> Made:
    """A data set whose labels are wrong more often the later they stand; only `decided` is decided, if given."""
    generator = np.random.default_rng(len(labels) + rows)
    logits = generator.normal(size=(rows, len(labels))) * 2
    if decided is not None:
        logits[:, decided] = logits.max(axis=1) + 0.1
    decision = logits.argmax(axis=1)
    truth = (logits - np.arange(len(labels)) + generator.gumbel(size=logits.shape)).argmax(axis=1)
    group = [f"q{row * groups // rows}" for row in range(rows)]
    base = pl.DataFrame({"row": np.arange(rows), "group": group, "label": truth, "decision": decision})
    scores, lattices, metrics = [], [], []
    for (place, calibrator), seed in product(enumerate(calibrators), seeds):
        confidence = softmax(logits / (1 + place), axis=1).max(axis=1)
        run, curves = {"calibrator": calibrator, "seed": seed}, [curve(*at, seed) for at in enumerate(labels)]
        variants, correct = reliability_logits(confidence, decision, curves), decision == truth
        lattices.append(run | {"variant": "mrp", "knots": KNOTS.tolist(), "curves": curves})
        columns = {f"logit_{variant}": values for variant, values in variants.items()}
        columns |= {"confidence": confidence, "reliability": expit(variants["mrp"])}
        scores.append(base.with_columns(**{key: pl.lit(value) for key, value in run.items()}, **columns))
        measured = {variant: compute_reliability_metrics(values, correct) for variant, values in variants.items()}
        measured["confidence"] |= {"accuracy": accuracy(decision, truth), "ece": ece(confidence, correct)}
        measured[SIMPLEX] = {"solved_share": 0.9, "infeasible_share": 0.08}
        if len(np.unique(decision)) > 1:
            measured["confidence"] |= {"label_spread": 0.2, "label_spread_null_p95": 0.05}
        run_of = name, source, calibrator, seed
        metrics += [(*run_of, variant, *pair) for variant, pairs in measured.items() for pair in pairs.items()]
    # the shares of rows of the two fits; a calibrator given the rows of both has no MRP on it
    ways = ((2, 0, "confidence"), (1, 1, "confidence"), (1, 1, "mrp"))
    cells = product(("ts", "matrix"), seeds, (100, 400), ways, COMPARED_METRICS)
    rivals = (
        (name, source, seed, size, size * first, size * second, under, variant, metric, 30 / size + seed + (not second))
        for under, seed, size, (first, second, variant), metric in cells
    )
    kept = scores[0].select("row", "label", "decision", "calibrator", "seed", "reliability")
    probabilities = softmax(logits, axis=1), softmax(1.2 * logits, axis=1)  # every vector sharpened alike
    base_and_mrc = {key: pl.Series(values.tolist()) for key, values in zip(("base", "mrc"), probabilities, strict=True)}
    parts = ("train", "validation", "test")
    facts = {  # a base.json, as far as the report reads it
        **{"dataset": name, "source": source, "preset": "twin" if source == "simulated" else "full"},
        **{"labels": [*labels], "predictor": "linear", "class_weight": "none"},
        **{"rows": dict.fromkeys(parts, rows), "groups": dict.fromkeys(parts, groups)},
        "class_counts": {part: [rows // len(labels)] * len(labels) for part in parts},
        "accuracy": {"test": float(np.mean(decision == truth))},
    }
    return Made(
        name=name,
        shown=display_name(name, source),
        labels=tuple(labels),
        test_rows=rows,
        facts=facts,
        scores=pl.concat(scores).with_columns(source=pl.lit(source)),
        lattices=lattices,
        metrics=frame("metrics", *metrics),
        rivals=frame("rivals", *rivals),
        simplex=kept.with_columns(alpha=1.2, feasible=True, solved=True, **base_and_mrc),
        intervals=intervals(name, source, calibrators, changes, groups),
        gates=[gate(name, "pairs"), gate(name, "unchanged rows", passed=not failing)],
    )


def curve(place: int, label: str, seed: int) -> dict[str, Any]:
    """A rising curve, lower the later the label stands."""
    values = (np.linspace(-1, 3, len(KNOTS)) - 0.4 * place + 0.1 * seed).tolist()
    return {"label": label, "values": values, "rows": 100 * seed, "fallback": FALLBACKS[place % len(FALLBACKS)]}


def reliability_logits(confidence: np.ndarray, decision: np.ndarray, curves: list[dict]) -> dict[str, np.ndarray]:
    """By variant; isotonic ones are tied, and sure at both ends."""
    plain = logit(np.minimum(confidence, 1 - 1e-9))
    mrp = plain.copy()
    for place, of_label in enumerate(curves):
        mine = decision == place
        if of_label["fallback"] != "identity":
            mrp[mine] = np.interp(confidence[mine], KNOTS, of_label["values"])
    stairs = np.round(plain - decision / 2)
    stairs[stairs >= 4], stairs[stairs <= -2] = np.inf, -np.inf
    own = {"mrp": mrp, "mrp_exact": mrp, "label_platt": plain - decision / 2, "label_isotonic": stairs}
    return dict.fromkeys(PIPELINE_VARIANTS, plain) | own


def intervals(name: str, source: str, calibrators: Iterable[str], changes: Mapping, groups: int) -> pl.DataFrame:
    """Of the changes, each under every calibrator and on average; None is one without an interval."""
    rows = []
    for (metric, bounds), calibrator, quantity in product(changes.items(), (*calibrators, AVERAGE), QUANTITIES):
        low, high = bounds or (np.nan, np.nan)
        change, p = ((low + high) / 2, 0.5 if low < 0 < high else 0.001) if bounds else (-0.02, np.nan)
        rows.append((name, source, calibrator, metric, quantity, change, 0.01, low, high, p, groups))
    return frame("intervals", *rows)


def gate(name: str, what: str, *, passed: bool = True, seed: int = 1) -> dict[str, Any]:
    """The record of a gate that asked two things."""
    asked = (("a row stands once", True, "no row twice"), ("no decision changes", passed, "7 rows"))
    keys = ("description", "success", "found")
    expected = [dict(zip(keys, row, strict=True)) | {"allowed": "none"} for row in asked]
    return {"checks": [{"gate": what, "coordinates": {"dataset": name, "seed": seed}, "expectations": expected}]}


def together(sets: Sequence[Made], missing: Sequence[str] = ()) -> Runs:
    """Several data sets as one report reads them."""
    frames = {name: pl.concat([getattr(each, name) for each in sets]) for name in ("metrics", "intervals", "rivals")}
    return replace(EMPTY, **frames, facts=tuple(each.facts for each in sets), missing=tuple(missing))


def reported(sets: Sequence[Made], missing: Mapping[str, str] | None = None) -> Path:
    """The page of the report on `sets`, below the current folder; each of `missing` failed, for the reason there.

    It is the flow itself, without Prefect around it and without figures for papers. Each data set was asked for the
    calibrators that ran on it, all others for two.
    """
    from prefect import Task

    import flows.report as flow
    from tasks import report as verbs

    holes = dict(missing or {})
    for each in sets:
        runs = runs_folder(each.name)
        for name in ("scores", "metrics", "rivals", "intervals", "simplex"):
            write_atomically(runs / f"{name}.parquet", getattr(each, name).write_parquet)
        write_atomically(runs / "sensitivity.parquet", EMPTY.sensitivity.write_parquet)
        write_json(runs / "curves.json", {"lattices": each.lattices})
        write_json(runs / "gates.json", {"gates": each.gates})
        write_json(base_folder(each.name) / "base.json", each.facts)
    for name in holes:
        write_json(failed_gates_file(name), {"gates": [gate(name, "unchanged rows", passed=False)]})
    ran = {each.name: tuple(each.scores["calibrator"].unique(maintain_order=True)) for each in sets}
    asked = {name: SimpleNamespace(calibrators=names) for name, names in (ran | dict.fromkeys(holes, ())).items()}
    params = SimpleNamespace(calibrators=("uncal", "ts"), datasets=asked, metrics=METRIC_DEFAULTS)
    plain = {name: verb.fn for name, verb in vars(flow).items() if isinstance(verb, Task)}
    plain["write_paper_figures"] = lambda *_: None
    plain["_hide_from_prefect"] = lambda value: value
    shown = [name for name in vars(verbs) if name.endswith("_artifact")]  # in a UI that is not there
    with (
        patch.multiple(
            flow, **plain, hold_run_lock=nullcontext, start_progress=lambda *_: lambda: None, load_params=lambda: params
        ),
        patch.multiple(verbs, **dict.fromkeys(shown, lambda *_, **__: None)),
    ):
        flow.report.fn(holes)
    return REPORT.resolve() / "index.html"


def write_plotted(first: Made) -> None:
    """The figures of two data sets as the report has them below the current folder: what `dvc plots` reads."""
    from tasks.report import write_figures

    write_figures.fn([(of, drawn_for("data set", of)) for of in (first, made("mine", source="files"))])


def contrast(*colours: str) -> float:
    """The contrast ratio of two colours, `#rrggbb` or `rgb(r, g, b)`, from 1 to 21 (WCAG 2.2)."""
    lights = []
    for colour in colours:
        pattern, base = ("[0-9a-f]{2}", 16) if "#" in colour else (r"\d+", 10)
        parts = np.array([int(part, base) for part in re.findall(pattern, colour)[:3]]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        lights.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(lights) / min(lights)
