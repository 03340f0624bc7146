"""How much each fast path does, counted: fits, descents, passes, draws and reads, which no busy machine makes more.

Beside other work of the same kind: sorts in test_metrics and test_labelwise, nodes in test_lattice, slopes in
test_calibrators, kept fits in test_end_to_end.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
from maps import document, predictions

from flows import reliability
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.io import files
from relmap.maps import reliability_map
from relmap.maps.reliability_map import CHUNK_ROWS
from relmap.metrics import resampling, spread
from relmap.projection import adam_lattice
from relmap.projection import batch as batch_module
from relmap.routing.apply import apply_map
from relmap.splits import ValidationRows
from tasks.calibrate import calibrate, fit_key
from tasks.measure import bootstrap_intervals, measure
from tasks.project import project
from tasks.records.store import Base

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


@pytest.fixture
def parts(decisions) -> ValidationRows:
    return ValidationRows(1, *[decisions] * 4)


def fits_of(rows: Any, **_: Any) -> int:
    return len(rows)


def test_the_calibrators_of_a_seed_are_projected_in_one_batch_of_each_kind(monkeypatch, decisions, parts, quick_params):
    calibrated = [calibrate.fn(parts, name, 1) for name in quick_params.calibrators]
    descents = counted(monkeypatch, adam_lattice, "fit_lattices", fits_of)
    optima = counted(monkeypatch, batch_module, "fit_exact", fits_of)
    project.fn(calibrated, parts, decisions, quick_params, "cpu")
    assert descents == [len(calibrated)] * 2  # the curves of labels, and the one that they share
    assert optima == [len(calibrated)]


def test_a_calibrator_is_fitted_once_on_each_number_of_rows(monkeypatch, parts):
    diagonal, all_rows = CALIBRATORS["diag"], len(parts.calibrator_fit)
    fitted = MagicMock(side_effect=diagonal.fit)
    monkeypatch.setitem(CALIBRATORS, "diag", replace(diagonal, fit=fitted))
    calibrate.fn(parts, "diag", 1, (100, all_rows, 2 * all_rows))
    assert sorted(len(call.args[1]) for call in fitted.call_args_list) == [100, all_rows]


def test_one_draw_of_counts_serves_every_metric_calibrator_and_seed(monkeypatch, decisions, parts, quick_params):
    seeds = []
    for seed in (1, 2):
        calibrated = [calibrate.fn(parts, name, seed) for name in quick_params.calibrators]
        seeds.append(project.fn(calibrated, parts._replace(seed=seed), decisions, quick_params, "cpu"))
    cut = counted(monkeypatch, spread, "assign_confidence_groups", lambda confidence, _groups: len(confidence))
    measured = [measure.fn(seed, decisions.labels, quick_params.metrics) for seed in seeds]
    assert cut == [len(decisions)] * 2 * len(quick_params.calibrators)  # for the label spread and its null together
    drawn = counted(monkeypatch, resampling.Resamples._counts, "func", lambda draws: draws.resamples)
    sorted_once = counted(monkeypatch, resampling, "order_by_risk", lambda logit, _correct: len(logit))
    passes = counted(monkeypatch, resampling.Resamples, "_weighted", lambda _draws, order: order.groups)
    bootstrap_intervals.fn(seeds, measured, decisions, quick_params.calibrators, quick_params.metrics)
    assert drawn == [quick_params.metrics.resamples]
    assert sorted_once == [len(decisions)] * 2 * 2 * len(quick_params.calibrators)  # before and after, in each seed
    assert len(passes) == len(sorted_once)  # one for all metrics of a score
    assert max(passes) <= resampling.MAX_TIE_GROUPS


@pytest.mark.parametrize("rows", [200, 2 * CHUNK_ROWS + 5])
def test_applying_a_map_reads_the_file_twice_and_scores_each_row_once(monkeypatch, tmp_path, rows):
    predictions(200).sample(rows, with_replacement=True, seed=0).write_parquet(tmp_path / "new.parquet")
    read = counted(monkeypatch, files.ParquetPredictions, "batches", lambda _file, columns=None: columns)
    scored = counted(monkeypatch, reliability_map, "calibrated_confidence", lambda _calibrator, piece: len(piece))
    apply_map(document(), tmp_path / "new.parquet", tmp_path / "scored.parquet")
    assert len(read) == 2  # to score, for which the logits are enough, and to write what was there beside it
    assert read[0] == ["logits"]
    assert sum(scored) == rows
    assert max(scored) <= CHUNK_ROWS


@pytest.mark.parametrize(("runs", "of_seeds"), [(3, [0, 1, 2]), (2, [0, 0, 0]), (0, [])])
def test_a_data_set_asks_for_each_fit_once_and_for_one_projection_of_each_seed(
    monkeypatch, decisions, quick_params, runs, of_seeds
):
    by_seed = ("project", "check_invariants", "measure", "baselines", "sensitivity")
    tasks = {name: MagicMock() for name in (*by_seed, "calibrate", "bootstrap_intervals", "check_inputs")}
    for name, task in tasks.items():
        task.with_options.return_value = task
        monkeypatch.setattr(reliability, name, task)
    params = reliability.with_calibrators(quick_params, calibrators_with_role("paper"))
    base = Base("wands", decisions, decisions, ("a", "b", "c"), "group", ("test",), "simulated", 0.5)
    sizes = [[9 + 2 * run, 10 + 2 * run] for run in range(runs)]  # test rows of the members of each model run
    members = [
        [base._replace(validation=decisions.take(slice(n, None)), test=decisions.take(slice(n))) for n in of]
        for of in sizes
    ]
    reliability.submit_all(base, params, "cpu", params.seeds, members)
    asked = {name: [call.args for call in task.submit.call_args_list] for name, task in tasks.items()}
    keys = [
        fit_key(None, dict(zip(("parts", "calibrator", "seed", "few", "chosen"), arguments, strict=True)))
        for arguments in asked["calibrate"]
    ]
    rivals, of_members = len(params.rivals.calibrators), 2 * bool(runs)
    of_seed = len(params.calibrators) + 2 * rivals + of_members * (len(params.calibrators) + rivals)
    assert len(keys) == len(set(keys)) == len(params.seeds) * of_seed
    assert {name: len(calls) for name, calls in asked.items() if name != "calibrate"} == {
        **dict.fromkeys(by_seed, len(params.seeds)),
        "bootstrap_intervals": 1,
        "check_inputs": 1,
    }
    measured = [[len(test) for test in tests] for *_, tests, _ in asked["measure"]]
    # with as many model runs as seeds each seed has one of its own, otherwise the first
    assert measured == ([sizes[run] for run in of_seeds] or [[]] * len(params.seeds))
