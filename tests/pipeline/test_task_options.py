"""Options of the Prefect tasks: names of their runs, tags, and results that are stored."""

import pytest
from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.serializers import CompressedPickleSerializer

from tasks import calibrate, measure, project, report, validate, write
from tasks.datasets import files

TASKS: list[tuple[Task, str | None, set[str]]] = [  # task, name of its runs, tags
    (calibrate.calibrate, "calibrate/{calibrator}/{seed}", set()),
    (project.project, "project/{parts.seed}", {"gpu"}),
    (validate.check_inputs, "check_inputs/{dataset}", set()),
    (validate.check_invariants, "check_invariants/{results.seed}", set()),
    (measure.measure, "measure/{results.seed}", set()),
    (measure.bootstrap_intervals, None, set()),
    (measure.compare_calibrators, "compare calibrators/{parts.seed}", {"gpu"}),
    (measure.measure_alternatives, "measure alternatives/{parts.seed}", {"gpu"}),
    (write.write_runs, "write/{base.name}", set()),
    (write.show_metrics, "show/{base.name}", set()),
    (write.compare, "compare/{base.name}", set()),
    (write.show_gates, "show gates/{base.name}", set()),
    (report.load_runs, None, set()),
    (report.write_table, "{name}", set()),
    (report.draw_figures, "draw/{dataset}", set()),
]


@pytest.mark.parametrize(("task", "run_name", "tags"), TASKS, ids=lambda value: getattr(value, "name", None))
def test_runs_of_a_task_have_a_name_and_tags(task, run_name, tags):
    assert task.task_run_name == run_name
    assert task.tags == tags


def test_only_fitted_calibrators_are_stored_by_a_key_of_their_own():
    calibrated = calibrate.calibrate
    assert calibrated.persist_result is True
    assert calibrated.cache_policy.cache_key_fn is calibrate.fit_key
    assert isinstance(calibrated.result_serializer, CompressedPickleSerializer)
    assert calibrated.result_serializer.compressionlib == "gzip"  # its checksum detects damaged files
    for task, _, _ in TASKS:
        if task is not calibrated:
            assert not task.persist_result
            assert task.cache_policy == NO_CACHE


def test_stored_and_shown_rows_are_limited():
    assert (write.MAX_SCORED_ROWS, write.MAX_SIMPLEX_ROWS, report.MAX_ARTIFACT_ROWS) == (50_000, 2000, 200)
    assert files.LINES_PER_BATCH == 5000
