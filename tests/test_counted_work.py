"""How much each fast path does, counted: fits, descents, passes, draws and reads, which no busy machine makes more.

Beside other work of the same kind: sorts in test_metrics and test_labelwise, nodes in test_quadrature, slopes in
test_calibrators, kept fits in test_end_to_end.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from maps import document, predictions

from flows import reliability
from tasks.calibrate import calibrate, fit_key
from tasks.calibrators import calibrators_for
from tasks.compare import compare
from tasks.maps.apply import apply_map
from tasks.maps.reliability_map import AT_ONCE, ReliabilityMap
from tasks.measure import bound, measure
from tasks.metrics import resampling
from tasks.metrics.registry import of_reliability
from tasks.metrics.resampling import resample
from tasks.predictions import files
from tasks.project import project
from tasks.projection import batch as batch_module
from tasks.projection.adam_lattice import Cells, fit_lattices
from tasks.projection.exact import Problem, fit_exact
from tasks.projection.lattice import FitRows, LatticeSettings
from tasks.protocol.params import Params, load_params
from tasks.protocol.splits import ValidationRows
from tasks.protocol.store import Base

K = 3
FEW = (100, 300, 1000)


def counted(patch: pytest.MonkeyPatch, place: Any, name: str, count: Callable[..., Any]) -> list[Any]:
    """A list that will hold what `count` says of the arguments of each call of `place.name` from here on."""
    calls: list[Any] = []
    original = getattr(place, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        calls.append(count(*arguments, **named))
        return original(*arguments, **named)

    patch.setattr(place, name, counting)
    return calls


def made_up(fits: int, rows: int) -> list[FitRows]:
    """Confidence, decision and correct `(m,)` of each fit, which has its own base rate and slope."""
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.2, 1.0, (fits, rows))
    decision = generator.integers(0, K, (fits, rows))
    right = confidence ** np.linspace(0.5, 3, fits)[:, None] - 0.1 * decision
    correct = generator.random((fits, rows)) < np.clip(right, 0, 1)
    return list(zip(confidence, decision, correct, strict=True))


def test_a_hundred_fits_descend_in_as_many_steps_as_one(monkeypatch):
    chosen = LatticeSettings(epochs=20)
    steps = counted(monkeypatch, Cells, "gradient", lambda _cells, values: tuple(values.shape))
    fit_lattices(made_up(108, 60), n_labels=K, settings=chosen)
    assert steps == [(108, K, chosen.knots)] * chosen.epochs


def test_a_hundred_optima_take_the_passes_of_the_slowest_and_each_only_its_own(monkeypatch):
    rows = made_up(108, 600)
    curves = counted(monkeypatch, Problem, "derivatives", lambda _problem, theta: len(theta))
    fit_exact(rows, n_labels=K, settings=LatticeSettings())
    together = curves.copy()
    alone = []
    for fit in range(0, 108, 12):
        curves.clear()
        fit_exact(rows[fit : fit + 12], n_labels=K, settings=LatticeSettings())
        alone.append(curves.copy())
    assert len(together) == max(map(len, alone)) <= 30
    assert sum(together) == sum(map(sum, alone)) <= 12 * 108 * K


@pytest.fixture
def params() -> Params:
    """Those of the project, with less to compute."""
    read = load_params(Path(__file__).resolve().parent.parent / "params.yaml")
    less = {"projection": {"epochs": 5}, "metrics": {"spread_permutations": 20, "resamples": 50}}
    sections = {name: getattr(read, name).model_copy(update=values) for name, values in less.items()}
    return read.model_copy(update={"calibrators": ("uncal", "ts", "diag"), **sections})


@pytest.fixture
def parts(decisions) -> ValidationRows:
    return ValidationRows(1, *[decisions] * 4)


def fits_of(fits: Any, **_: Any) -> int:
    return len(fits)


def test_the_calibrators_of_a_seed_are_projected_in_one_batch_of_each_kind(monkeypatch, decisions, parts, params):
    fits = [calibrate.fn(parts, name, 1) for name in params.calibrators]
    descents = counted(monkeypatch, batch_module, "fit_lattices", fits_of)
    optima = counted(monkeypatch, batch_module, "fit_exact", fits_of)
    project.fn(fits, parts, decisions, params, "cpu")
    assert descents == [len(fits)] * 2  # the curves of labels, and the one that they share
    assert optima == [len(fits)]


def test_all_numbers_of_rows_at_which_calibrators_are_compared_are_one_batch(monkeypatch, decisions, parts, params):
    fits = [calibrate.fn(parts, name, 1, FEW) for name in params.calibrators]
    descents = counted(monkeypatch, batch_module, "fit_lattices", fits_of)
    compare.fn(fits, [], FEW, parts, decisions, params, "cpu")
    assert descents == [len(FEW) * len(fits)]


def test_one_draw_of_counts_serves_every_metric(monkeypatch, decisions):
    drawn = counted(monkeypatch, resampling, "_draw", lambda _generator, _clusters, resamples: resamples)
    draws = resample(decisions.group, resamples=200, seed=0)
    confidence = np.linspace(0.01, 0.99, len(decisions))
    for correct in (decisions.correct, ~decisions.correct):
        of_reliability(confidence, correct, draws=draws)
        draws.ece(confidence, correct)
        draws.mean(confidence)
    draws.label_spread(confidence, decisions.decision, decisions.correct)
    assert drawn == [200]


def test_one_draw_of_counts_serves_every_calibrator_and_seed(monkeypatch, decisions, parts, params):
    seeds = []
    for seed in (1, 2):
        fits = [calibrate.fn(parts, name, seed) for name in params.calibrators]
        seeds.append(project.fn(fits, parts._replace(seed=seed), decisions, params, "cpu"))
    measured = [measure.fn(seed, decisions.labels, params.metrics) for seed in seeds]
    drawn = counted(monkeypatch, resampling, "_draw", lambda _generator, _clusters, resamples: resamples)
    sorted_once = counted(monkeypatch, resampling, "order_by_risk", lambda logit, _correct: len(logit))
    bound.fn(seeds, measured, decisions, params.calibrators, params.metrics)
    assert drawn == [params.metrics.resamples]
    assert sorted_once == [len(decisions)] * 2 * 2 * len(params.calibrators)  # before and after, in each seed


@pytest.mark.parametrize("rows", [200, 2 * AT_ONCE + 5])
def test_applying_a_map_reads_the_file_twice_and_scores_each_row_once(monkeypatch, tmp_path, rows):
    predictions(200).sample(rows, with_replacement=True, seed=0).write_parquet(tmp_path / "new.parquet")
    read = counted(monkeypatch, files.ParquetPredictions, "batches", lambda _file, columns=None: columns)
    scored = counted(monkeypatch, ReliabilityMap, "_scored", lambda _map, piece: len(piece))
    apply_map(document(), tmp_path / "new.parquet", tmp_path / "scored.parquet")
    assert len(read) == 2  # to score, for which the logits are enough, and to write what was there beside it
    assert read[0] == ["logits"]
    assert sum(scored) == rows
    assert max(scored) <= AT_ONCE


class Asked:
    """A task that only notes what it is asked for."""

    def __init__(self) -> None:
        self.arguments: list[tuple[Any, ...]] = []

    def submit(self, *arguments: Any, **_: Any) -> str:
        self.arguments.append(arguments)
        return f"future {len(self.arguments)}"

    def with_options(self, **_: Any) -> "Asked":
        return self


def asked_of(patch: pytest.MonkeyPatch, module: ModuleType, *names: str) -> dict[str, Asked]:
    tasks = {name: Asked() for name in names}
    for name, task in tasks.items():
        patch.setattr(module, name, task)
    return tasks


def test_a_data_set_asks_for_each_fit_once_and_for_one_projection_of_each_seed(monkeypatch, decisions, params):
    names = ("calibrate", "project", "unchanged", "measure", "compare", "vary", "bound", "known")
    tasks = asked_of(monkeypatch, reliability, *names)
    params = reliability.with_calibrators(params, calibrators_for("paper"))
    base = Base("wands", decisions, decisions, ("a", "b", "c"), "group", ("test",), "simulated", 0.5)
    reliability.submit_all(base, params, "cpu", reliability.cut(base, params, None))
    fits = [
        fit_key(None, dict(zip(("parts", "calibrator", "seed", "few", "chosen"), asked, strict=True)))
        for asked in tasks["calibrate"].arguments
    ]
    rivals = len(params.rivals.calibrators)
    assert len(fits) == len(set(fits)) == len(params.seeds) * (len(params.calibrators) + 2 * rivals)
    for name in ("project", "unchanged", "measure", "compare", "vary"):
        assert len(tasks[name].arguments) == len(params.seeds), name
    assert [tests for *_, tests, _ in tasks["measure"].arguments] == [[]] * len(params.seeds)
    assert len(tasks["bound"].arguments) == len(tasks["known"].arguments) == 1


@pytest.mark.parametrize(("runs", "taken"), [(3, [0, 1, 2]), (2, [0, 0, 0])])
def test_a_seed_has_a_model_run_of_its_own_where_there_are_as_many(monkeypatch, decisions, params, runs, taken):
    names = ("calibrate", "project", "unchanged", "measure", "compare", "vary", "bound", "known")
    tasks = asked_of(monkeypatch, reliability, *names)
    params = reliability.with_calibrators(params, ("uncal", "ts"))
    facts = ("a", "b", "c"), "group", ("test",), "simulated", 0.5
    made = [
        [Base("wands", decisions, decisions.take(slice(9 + 2 * run + m)), *facts) for m in (0, 1)] for run in range(3)
    ]
    cuts = reliability.cut(made[0][0], params, None)
    reliability.submit_all(made[0][0], params, "cpu", cuts, made[:runs])
    measured = [[len(test) for test in tests] for *_, tests, _ in tasks["measure"].arguments]
    assert measured == [[9 + 2 * run, 10 + 2 * run] for run in taken]
    rivals = len(params.rivals.calibrators)
    assert len(tasks["calibrate"].arguments) == 3 * (2 + 2 * rivals + 2 * (2 + rivals))
