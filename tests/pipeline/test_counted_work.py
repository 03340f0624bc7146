"""Numbers of fits, passes, random draws and reads. Unlike durations, they do not depend on the machine.

Other tests count sorts (test_reliability, test_labelwise), nodes (test_mrp), slopes (test_registry) and cached fits
(test_end_to_end).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest

from flows import reliability
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.io import files
from relmap.maps import score as reliability_map
from relmap.maps.score import CHUNK_ROWS
from relmap.metrics import resampling, spread
from relmap.projection import lattices_torch
from relmap.projection import rows as batch_module
from relmap.projection.rows import ValidationRows
from relmap.routing.apply import apply_map
from tasks.calibrate import calibrate, fit_key
from tasks.measure import bootstrap_intervals, measure
from tasks.project import project
from tasks.records.store import Base
from tests.maps import make_map, make_predictions

CALIBRATE_ARGUMENTS = ("parts", "calibrator", "seed", "row_counts", "settings")


def record_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, summarize: Callable[..., Any]) -> list[Any]:
    """Return a list to which each later call of `owner.name` appends `summarize(*arguments)`."""
    calls: list[Any] = []
    original = getattr(owner, name)

    def record_call(*arguments: Any, **options: Any) -> Any:
        calls.append(summarize(*arguments, **options))
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, record_call)
    return calls


def count_fits(rows_of_fits: Any, **_: Any) -> int:
    return len(rows_of_fits)


@pytest.fixture
def parts(decisions) -> ValidationRows:
    return ValidationRows(
        seed=1,
        temperature_fit=decisions,
        calibrator_fit=decisions,
        projection_fit=decisions,
        projection_selection=decisions,
    )


def test_the_calibrators_of_a_seed_are_projected_in_one_batch_of_each_kind(monkeypatch, decisions, parts, quick_params):
    fits = [calibrate.fn(parts, calibrator, 1) for calibrator in quick_params.calibrators]
    adam_batches = record_calls(monkeypatch, lattices_torch, "fit_lattices", count_fits)
    exact_batches = record_calls(monkeypatch, batch_module, "fit_exact", count_fits)

    project.fn(fits, parts, decisions, quick_params, "cpu")

    assert adam_batches == [len(fits)] * 2  # label-wise curves, and the shared curve
    assert exact_batches == [len(fits)]


def test_a_calibrator_is_fitted_once_on_each_number_of_rows(monkeypatch, parts):
    diagonal = CALIBRATORS["diag"]
    n_rows = len(parts.calibrator_fit)
    fit = MagicMock(side_effect=diagonal.fit)
    monkeypatch.setitem(CALIBRATORS, "diag", replace(diagonal, fit=fit))
    calibrate.fn(parts, "diag", 1, (100, n_rows, 2 * n_rows))  # only `n_rows` rows are available
    assert sorted(len(call.args[1]) for call in fit.call_args_list) == [100, n_rows]


def test_all_metrics_calibrators_and_seeds_share_the_resamples(monkeypatch, decisions, parts, quick_params):
    results = []
    for seed in (1, 2):
        fits = [calibrate.fn(parts, calibrator, seed) for calibrator in quick_params.calibrators]
        results.append(project.fn(fits, parts._replace(seed=seed), decisions, quick_params, "cpu"))
    n_projections = len(results) * len(quick_params.calibrators)

    groupings = record_calls(
        monkeypatch, spread, "assign_confidence_groups", lambda confidence, _groups: len(confidence)
    )
    metrics = [measure.fn(seed_results, decisions.label, quick_params.metrics) for seed_results in results]
    assert groupings == [len(decisions)] * n_projections  # for the label spread and its shuffles together

    cached_draws = resampling.Resamples._counts  # a cached property, whose function `func` draws the resamples
    draws = record_calls(monkeypatch, cached_draws, "func", lambda draws: draws.resamples)
    sorts = record_calls(monkeypatch, resampling, "order_by_risk", lambda logit, _correct: len(logit))
    # each pass over a ranking handles the groups of rows with equal scores in chunks
    group_counts = record_calls(
        monkeypatch, resampling.Resamples, "_tie_group_chunks", lambda _draws, order: order.groups
    )
    bootstrap_intervals.fn(results, metrics, decisions, quick_params.calibrators, quick_params.metrics)
    assert draws == [quick_params.metrics.resamples]
    assert sorts == [len(decisions)] * 2 * n_projections  # confidence and MRP
    assert len(group_counts) == len(sorts)  # one pass over each ranking, for all metrics
    assert max(group_counts) <= resampling.MAX_TIE_GROUPS


@pytest.mark.parametrize("rows", [200, 2 * CHUNK_ROWS + 5])
def test_applying_a_map_reads_the_file_twice_and_scores_each_row_once(monkeypatch, tmp_path, rows):
    make_predictions(200).sample(rows, with_replacement=True, seed=0).write_parquet(tmp_path / "new.parquet")
    reads = record_calls(monkeypatch, files.ParquetPredictions, "batches", lambda _file, columns=None: columns)
    scored = record_calls(monkeypatch, reliability_map, "calibrated_confidence", lambda _calibrator, piece: len(piece))
    apply_map(make_map(), tmp_path / "new.parquet", tmp_path / "scored.parquet")
    assert len(reads) == 2  # one to score, which needs the logits only, and one to write all columns
    assert reads[0] == ["logits"]
    assert sum(scored) == rows
    assert max(scored) <= CHUNK_ROWS


TASKS_BY_SEED = ("project", "check_invariants", "measure", "compare_calibrators", "measure_alternatives")


@pytest.mark.parametrize(("n_runs", "run_of_seed"), [(3, [0, 1, 2]), (2, [0, 0, 0]), (0, [])])
def test_each_fit_and_each_projection_of_a_data_set_is_submitted_once(
    monkeypatch, decisions, quick_params, n_runs, run_of_seed
):
    tasks = {name: MagicMock() for name in (*TASKS_BY_SEED, "calibrate", "bootstrap_intervals", "check_inputs")}
    for name, task in tasks.items():
        task.with_options.return_value = task
        monkeypatch.setattr(reliability, name, task)
    params = reliability.with_calibrators(quick_params, calibrators_with_role("paper"))
    base = Base(
        name="wands",
        validation=decisions,
        test=decisions,
        labels=("a", "b", "c"),
        split_by="group",
        drawn=("test",),
        source="simulated",
        seed0_accuracy=0.5,
    )
    # for each model run, the numbers of test rows of its two members, which share their rows
    test_sizes = [[9 + run, 9 + run] for run in range(n_runs)]

    def make_member(number: int, test_size: int) -> Base:
        own = replace(decisions, logits=(1 + number) * decisions.logits)
        return base._replace(validation=own.take(slice(test_size, None)), test=own.take(slice(test_size)))

    members = []
    for sizes in test_sizes:
        members.append([make_member(number, test_size) for number, test_size in enumerate(sizes)])
    experiment = reliability.Experiment(base=base, members=members, params=params, seeds=params.seeds, device="cpu")
    reliability.submit_tasks(experiment)

    calls = {}
    for name, task in tasks.items():
        calls[name] = [call.args for call in task.submit.call_args_list]
    keys = []
    for arguments in calls["calibrate"]:
        keys.append(fit_key(None, dict(zip(CALIBRATE_ARGUMENTS, arguments, strict=True))))
    n_rivals = len(params.rivals.calibrators)
    n_calibrators = len(params.calibrators)
    n_members = 2 if n_runs else 0
    # a rival is fitted on the calibrator-fit rows, and on these together with the projection-fit rows
    n_fits_of_seed = n_calibrators + 2 * n_rivals
    if n_members:  # all calibrators are fitted on the mean of the members, except for TS, which is fitted on each
        n_fits_of_seed += n_calibrators - 1 + n_rivals + n_members
    assert len(keys) == len(params.seeds) * n_fits_of_seed
    assert len(set(keys)) == len(keys)
    for name in TASKS_BY_SEED:
        assert len(calls[name]) == len(params.seeds)
    for name in ("bootstrap_intervals", "check_inputs"):
        assert len(calls[name]) == 1

    # with as many model runs as seeds, each seed uses its own run, otherwise the first
    expected_sizes = [test_sizes[run] for run in run_of_seed] if n_runs else [[]] * len(params.seeds)
    measured_sizes = []
    for _results, _labels, _params, member_tests, _spread_fits in calls["measure"]:
        measured_sizes.append([len(test) for test in member_tests])
    assert measured_sizes == expected_sizes
