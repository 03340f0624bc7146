"""Results of a run that never was, for tests of the figures and the page: small, whole, of any number of labels."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from scipy.special import expit, logit, softmax

from tasks.figures.results import Results
from tasks.metrics.probability import accuracy, ece
from tasks.metrics.registry import COMPARED, of_reliability
from tasks.projection.variants import VARIANTS
from tasks.protocol.results import AVERAGE, SIMPLEX
from tasks.protocol.store import REPORT, base_folder, failed_gates_file, runs_folder
from tasks.tables.display import display_name
from tasks.tables.runs import INTERVALS, METRICS, RIVALS, SENSITIVITY, Runs

KNOTS = np.linspace(0, 1, 6)
FALLBACKS = ("none", "shared", "identity")  # of the curves of labels 0, 1, 2, then again
DECREASE, INCREASE, NOTHING = (-0.05, -0.01), (0.01, 0.05), (-0.02, 0.01)  # intervals of a change
BETTER = {"nll_correct": DECREASE, "aupr_error": INCREASE, "aurc": DECREASE}


Cell = tuple[str, str, str, str]  # data set, calibrator, variant, metric


def frame(schema: pl.Schema, *rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows of results, of one of the schemas of `Runs`."""
    return pl.DataFrame(rows, schema=schema, orient="row")


def runs_of(
    values: Mapping[Cell, Sequence[float]],
    sources: Mapping[str, str],
    sizes: Mapping[str, int] | None = None,
    **others: Any,
) -> Runs:
    """Runs of seeds 1, 2, ... at the values of each; `sizes` are numbers of labels, `others` are fields of `Runs`."""
    rows = (
        (dataset, sources[dataset], calibrator, seed, variant, metric, value)
        for (dataset, calibrator, variant, metric), seeds in values.items()
        for seed, value in enumerate(seeds, 1)
    )
    facts = tuple(
        {"dataset": name, "source": source, "labels": ["label"] * (sizes or {}).get(name, 2), "rows": {"test": 10_000}}
        for name, source in sources.items()
    )
    return Runs(**{"metrics": frame(METRICS, *rows), "facts": facts} | others)


@dataclass(frozen=True, eq=False)
class Made:
    """What the stages of one data set would have written."""

    facts: dict[str, Any]
    scores: pl.DataFrame
    lattices: list[dict[str, Any]]
    metrics: pl.DataFrame
    rivals: pl.DataFrame
    simplex: pl.DataFrame
    intervals: pl.DataFrame
    gates: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.facts["dataset"]

    def results(self, **others: Any) -> Results:
        """What its figures are drawn from, with `others` in place of what was made."""
        made = {
            "name": self.name,
            "shown": display_name(self.name, self.facts["source"]),
            "labels": tuple(self.facts["labels"]),
            "scores": self.scores,
            "lattices": self.lattices,
            "metrics": self.metrics,
            "rivals": self.rivals,
            "simplex": self.simplex,
            "test_rows": self.facts["rows"]["test"],
        }
        return Results(**made | others)


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
    group = np.array([f"q{row * groups // rows}" for row in range(rows)])
    base = pl.DataFrame({"row": np.arange(rows), "group": group, "label": truth, "decision": decision})
    scores, lattices, metrics = [], [], []
    for place, calibrator in enumerate(calibrators):
        confidence = softmax(logits / (1 + place), axis=1).max(axis=1)
        for seed in seeds:
            curves = [curve(label, at, seed) for at, label in enumerate(labels)]
            own = {"calibrator": calibrator, "seed": seed}
            variants = reliability_logits(confidence, decision, curves)
            lattices += [own | {"variant": variant, "knots": KNOTS.tolist(), "curves": curves} for variant in ("mrp",)]
            said = {"confidence": confidence, "reliability": expit(variants["mrp"])}
            named = {f"logit_{variant}": values for variant, values in variants.items()}
            scores.append(base.with_columns(**{key: pl.lit(value) for key, value in own.items()}, **said, **named))
            found = measured(confidence, decision, truth, variants)
            metrics += [(name, source, calibrator, seed, *one) for one in found]
    return Made(
        facts=facts(name, source, labels, rows, groups, float(np.mean(decision == truth))),
        scores=pl.concat(scores).with_columns(source=pl.lit(source)),
        lattices=lattices,
        metrics=frame(METRICS, *metrics),
        rivals=rivals(name, source, seeds),
        simplex=simplex(scores[0], softmax(logits, axis=1)),
        intervals=intervals(name, source, calibrators, changes, groups),
        gates=[gate(name, "pairs"), gate(name, "unchanged rows", held=not failing)],
    )


def curve(label: str, place: int, seed: int) -> dict[str, Any]:
    """A rising curve, lower the later the label stands."""
    values = np.linspace(-1, 3, len(KNOTS)) - 0.4 * place + 0.1 * seed
    fallback = FALLBACKS[place % len(FALLBACKS)]
    return {"label": label, "values": values.tolist(), "rows": 100 * seed, "fallback": fallback}


def reliability_logits(
    confidence: np.ndarray, decision: np.ndarray, curves: list[dict[str, Any]]
) -> dict[str, np.ndarray]:
    """By variant; isotonic ones are tied, and sure at both ends."""
    plain = logit(np.minimum(confidence, 1 - 1e-9))
    found = dict.fromkeys([*VARIANTS, "mrp_exact"], plain)
    mrp = plain.copy()
    for place, one in enumerate(curves):
        mine = decision == place
        if one["fallback"] != "identity":
            mrp[mine] = np.interp(confidence[mine], KNOTS, one["values"])
    stairs = np.round(plain - decision / 2)
    stairs[stairs >= 4], stairs[stairs <= -2] = np.inf, -np.inf
    return found | {"mrp": mrp, "mrp_exact": mrp, "label_platt": plain - decision / 2, "label_isotonic": stairs}


def measured(
    confidence: np.ndarray, decision: np.ndarray, truth: np.ndarray, variants: dict[str, np.ndarray]
) -> Iterable[tuple[str, str, float]]:
    """Variant, metric, value."""
    correct = decision == truth
    yield "confidence", "accuracy", accuracy(decision, truth)
    yield "confidence", "ece", ece(confidence, correct)
    if len(np.unique(decision)) > 1:
        yield "confidence", "label_spread", 0.2
        yield "confidence", "label_spread_null_p95", 0.05
    for variant, values in variants.items():
        yield from ((variant, metric, value) for metric, value in of_reliability(values, correct).items())
    yield SIMPLEX, "solved_share", 0.9
    yield SIMPLEX, "infeasible_share", 0.08


def rivals(name: str, source: str, seeds: Iterable[int]) -> pl.DataFrame:
    """At 100 and 400 rows; a calibrator given the rows of both parts has no MRP on it."""
    rows = [
        (
            name,
            source,
            calibrator,
            seed,
            size,
            size * (1 + alone),
            size * (1 - alone),
            variant,
            metric,
            30 / size + seed,
        )
        for calibrator in ("ts", "matrix")
        for seed in seeds
        for size in (100, 400)
        for alone, variant in ((0, "confidence"), (0, "mrp"), (1, "confidence"))
        for metric in COMPARED
    ]
    return frame(RIVALS, *rows)


def simplex(scores: pl.DataFrame, base: np.ndarray) -> pl.DataFrame:
    """Every vector sharpened alike."""
    mrc = base**1.2 / (base**1.2).sum(axis=1, keepdims=True)
    kept = scores.select("row", "label", "decision", "calibrator", "seed", "reliability")
    solved = kept.with_columns(alpha=pl.lit(1.2), feasible=pl.lit(value=True), solved=pl.lit(value=True))
    return solved.with_columns(base=pl.Series(base.tolist()), mrc=pl.Series(mrc.tolist()))


def intervals(
    name: str,
    source: str,
    calibrators: Iterable[str],
    changes: Mapping[str, tuple[float, float] | None],
    groups: int,
) -> pl.DataFrame:
    """Of the changes, each under every calibrator and on average; None is one without an interval."""
    rows = []
    for metric, bounds in changes.items():
        low, high = bounds or (np.nan, np.nan)
        change = (low + high) / 2 if bounds else -0.02
        p = np.nan if bounds is None else 0.5 if low < 0 < high else 0.001
        for calibrator in (*calibrators, AVERAGE):
            own = name, source, calibrator, metric
            rows.append((*own, "delta", change, 0.01, low, high, p, groups))
            rows += [(*own, quantity, 0.5, 0.01, 0.48, 0.52, np.nan, groups) for quantity in ("before", "after")]
    return frame(INTERVALS, *rows)


def facts(name: str, source: str, labels: Sequence[str], rows: int, groups: int, right: float) -> dict[str, Any]:
    """A base.json."""
    parts = ("train", "validation", "test")
    counts = {"rows": rows}
    return {
        **{"dataset": name, "title": name.title(), "domain": "Shops", "task": "Relevance", "source": source},
        **{"preset": "twin" if source == "simulated" else "full", "labels": [*labels], "split_by": "group"},
        **{"drawn": [*parts], "predictor": "linear", "class_weight": "none", "seed": 0},
        "rows": dict.fromkeys(parts, rows),
        "groups": dict.fromkeys(parts, groups),
        "class_counts": {part: [rows // len(labels)] * len(labels) for part in parts},
        **{"counts": counts, "dropped": {"without text": 0}},
        "published": [{"what": "rows", "value": rows, "verified": True}],
        "accuracy": {"validation": right, "test": right},
    }


def gate(name: str, what: str, *, held: bool = True, seed: int = 1) -> dict[str, Any]:
    """The record of a gate that asked two things."""
    where = {"dataset": name, "seed": seed}
    asked = [
        {"description": "a row stands once", "success": True, "found": "no row twice", "allowed": "none"},
        {"description": "no decision changes", "success": held, "found": f"{0 if held else 7} rows", "allowed": "none"},
    ]
    check = {"gate": what, "coordinates": where, "success": held, "rows": 9, "expectations": asked}
    return {"gate": what, "coordinates": where, "success": held, "checks": [check]}


def together(sets: Sequence[Made], missing: Sequence[str] = ()) -> Runs:
    """Several data sets as one report reads them."""
    return Runs(
        metrics=pl.concat([one.metrics for one in sets]),
        intervals=pl.concat([one.intervals for one in sets]),
        rivals=pl.concat([one.rivals for one in sets]),
        facts=tuple(one.facts for one in sets),
        missing=tuple(missing),
    )


def written(sets: Iterable[Made]) -> None:
    """The files that the stages of each data set would have left below the current folder."""
    for one in sets:
        runs, base = runs_folder(one.name), base_folder(one.name)
        for folder in (runs, base):
            folder.mkdir(parents=True)
        frames = {"scores": one.scores, "metrics": one.metrics, "rivals": one.rivals, "intervals": one.intervals}
        frames |= {"simplex": one.simplex, "sensitivity": SENSITIVITY.to_frame()}
        for name, frame in frames.items():
            frame.write_parquet(runs / f"{name}.parquet")
        for place, content in (
            (runs / "curves.json", {"dataset": one.name, "lattices": one.lattices}),
            (runs / "gates.json", {"dataset": one.name, "gates": one.gates}),
            (base / "base.json", one.facts),
        ):
            place.write_text(json.dumps(content), encoding="utf-8")


def reported(sets: Sequence[Made], missing: Mapping[str, str] | None = None) -> Path:
    """The report on `sets`, below the current folder; each of `missing` failed its gates, for the reason there.

    It is the flow itself, without Prefect around it and without figures for papers.
    """
    from prefect import Task

    import flows.report as flow
    from tasks import report as verbs

    holes = dict(missing or {})
    written(sets)
    for name in holes:
        place = failed_gates_file(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps({"dataset": name, "gates": [gate(name, "unchanged rows", held=False)]}))
    vega()  # before it stands in place of the library
    params = SimpleNamespace(
        calibrators=("uncal", "ts"),
        datasets={
            one.name: SimpleNamespace(calibrators=tuple(one.scores["calibrator"].unique(maintain_order=True)))
            for one in sets
        }
        | dict.fromkeys(holes, SimpleNamespace(calibrators=None)),
    )
    plain = {name: verb.fn for name, verb in vars(flow).items() if isinstance(verb, Task)}
    shown = [name for name in vars(verbs) if name.endswith("_artifact")]  # in a UI that is not there
    plain["write_paper_figures"] = lambda *_: None
    with (
        patch.multiple(flow, **plain, alive=nullcontext, progress=unseen, load_params=lambda: params),
        patch("tasks.page.page.library", vega),
        patch.multiple(verbs, **dict.fromkeys(shown, lambda *_, **__: None)),
    ):
        flow.report.fn(holes)
    return REPORT.resolve() / "index.html"


def unseen(*_: object) -> Callable[[], None]:
    """In place of the progress that a page would show."""
    return lambda: None


@cache
def vega() -> str:
    """The script that draws, which takes seconds to put together."""
    from tasks.page.page import library

    return library()
