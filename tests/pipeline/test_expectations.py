"""Gates: each expectation fails once; messages name the place and records are complete."""

import json
import logging
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows import engine, refresh, reliability
from relmap.decisions import decide
from relmap.metrics.probability import accuracy, ece
from tasks import write
from tasks.expectations import check, invariants
from tasks.expectations.check import (
    Check,
    GateFailed,
    list_failed_expectations,
    make_expectation,
    make_range_expectations,
    run_gate,
)
from tasks.expectations.invariants import CheckedRun, check_unchanged, measure_run
from tasks.expectations.pairs import bound_class_shares, check_contract, check_pairs, summarize_pairs
from tasks.records.splits import SPLITS, draw_splits
from tasks.records.store import failed_gates_file, read_json
from tasks.results.values import ProjectedDecisions, SeedResults

NAN = float("nan")


def make_pairs(n: int = 600, *, by: str = "group") -> pl.DataFrame:
    """Simulate text pairs of 3 labels in groups of 5 rows, with drawn splits."""
    labels = np.random.default_rng(0).choice(3, n, p=[0.6, 0.3, 0.1])
    frame = pl.DataFrame(
        {
            "pair": [f"p{i}" for i in range(n)],
            "split": pl.Series([None] * n, dtype=pl.String),
            "group": [f"q{i // 5}" for i in range(n)],
            "text": [f"query: oak desk {i // 5}\ncandidate: desk {i}" for i in range(n)],
            "label": pl.Series(labels, dtype=pl.Int8),
        }
    )
    return draw_splits(frame, by=by, shares={"train": 0.5, "validation": 0.3, "test": 0.2}, seed=0)


def with_features(frame: pl.DataFrame) -> pl.DataFrame:
    values = np.random.default_rng(1).normal(size=(len(frame), 4)).astype(np.float32)
    return frame.drop("text").with_columns(features=pl.Series(values, dtype=pl.Array(pl.Float32, 4)))


def replace_values(frame: pl.DataFrame, **columns: Sequence[object]) -> pl.DataFrame:
    """Replace values of columns from row 7 on."""
    for column, others in columns.items():
        values = frame[column].to_list()
        values[7 : 7 + len(others)] = others
        frame = frame.with_columns(pl.Series(column, values, dtype=frame.schema[column]))
    return frame


def gate_pairs(frame: pl.DataFrame, *, groups_stay_together: bool = True, drawn: tuple[str, ...] = SPLITS) -> dict:
    coordinates = {"dataset": "wands"}
    return check_pairs(
        summarize_pairs(frame),
        n_labels=3,
        groups_stay_together=groups_stay_together,
        coordinates=coordinates,
        drawn=drawn,
    )


def gate_error(gate, *arguments: object, **facts: object) -> GateFailed:
    """Run a gate that must fail; return its error, after checking that the record is JSON."""
    with pytest.raises(GateFailed) as failed:
        gate(*arguments, **facts)
    record = failed.value.record
    assert record["success"] is False
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    return failed.value


@pytest.mark.parametrize(("form", "by"), [("text", "group"), ("features", "group"), ("text", "row")])
def test_valid_pairs_pass_and_the_record_is_json(form, by):
    record = gate_pairs(
        make_pairs(by=by) if form == "text" else with_features(make_pairs()), groups_stay_together=by == "group"
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == record | {"success": True}
    names = ["pairs", "pairs: classes", *(["pairs: groups"] if by == "group" else []), "pairs: class mix"]
    assert [check["gate"] for check in record["checks"]] == names
    assert list_failed_expectations([record]) == []


def with_recoded_test_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Reverse the codes of the labels in the test split."""
    opposite = pl.when(pl.col("split") == "test").then(2 - pl.col("label")).otherwise("label")
    return frame.with_columns(label=opposite.cast(pl.Int8))


KNOWN = ("pair", "group", "label", "split")
NULLS = (None,)
NO_FEATURES = ([0, NAN, 0, 0], [0, float("inf"), 0, 0], [0, None, 0, 0], None)
BROKEN_PAIRS = {  # what is broken -> other values or rows, and words of the message
    "a pair twice": ({"pair": ["p8"]}, ["pair p8", "occurs only once", "2 of 2400 rows"]),
    "nothing known": (dict.fromkeys(KNOWN, NULLS), [f"never null (column {name})" for name in KNOWN]),
    "unknown label": ({"label": [3]}, ["pair p7: label = 3", "0, 1, 2"]),
    "unknown split": ({"split": ["dev"]}, ["pair p7: split = dev"]),
    "null and blank text": ({"text": (None, " \t")}, ["p7: text_length = None", "p8: text_length = 0"]),
    "features": ({"features": NO_FEATURES}, ["pair p7: features_finite", "4 of 2400 rows"]),
    "empty split": (lambda f: f.filter(pl.col("split") != "validation"), ["0 in validation: rows_of_split = 0"]),
    "class missing": (lambda f: f.filter(pl.format("{}{}", "split", "label") != "test2"), ["2 in test: rows = 0"]),
    "group straddles": ({"split": ["test", "train"]}, ["group q1", "splits = ", " and ", "in one split"]),
    "labels recoded": (
        with_recoded_test_labels,
        ["0 in test: share = ", "lowest_share = ", "2 in test: highest_share"],
    ),
    "no rows": (pl.DataFrame.clear, ["one row", "found: 0"]),
}


@pytest.mark.parametrize(("broken", "words"), BROKEN_PAIRS.values(), ids=BROKEN_PAIRS)
def test_invalid_pairs_fail(broken, words):
    frame = make_pairs(2400) if "features" not in words[0] else with_features(make_pairs(2400))
    message = str(
        gate_error(gate_pairs, replace_values(frame, **broken) if isinstance(broken, dict) else broken(frame))
    )
    assert all(word in message for word in ["dataset wands", "params.yaml", *words]), message


def test_fixed_splits_may_have_other_class_shares_and_do_not_affect_drawn_splits():
    frame = with_recoded_test_labels(make_pairs(2400))
    drawn = SPLITS[:2]
    assert gate_pairs(frame, drawn=())["success"] is True
    without_test = frame.filter(pl.col("split") != "test")
    assert bound_class_shares(frame, 3, drawn, by_group=True).equals(
        bound_class_shares(without_test, 3, drawn, by_group=True)
    )


def shares_outside_range(mix: pl.DataFrame) -> pl.DataFrame:
    return mix.filter(~pl.col("share").is_between("lowest_share", "highest_share"))


@given(st.integers(0, 10**6), st.sampled_from(["row", "group"]), st.floats(0.02, 0.5), st.floats(0.01, 10))
@settings(deadline=None, max_examples=15)
def test_random_splits_stay_within_the_class_share_bounds(seed, by, test_share, concentration):
    """Groups have 1 to 60 rows, with similar or different classes, some of them rare."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(80), rng.integers(1, 60, 80))
    class_shares_of_groups = rng.dirichlet(concentration * np.array([1.0, 0.3, 0.02]), 80)
    upper_limits = class_shares_of_groups.cumsum(axis=1)[group, :2]  # of the first two classes
    label = (rng.random(len(group))[:, None] > upper_limits).sum(axis=1)
    frame = pl.DataFrame({"group": group.astype(str), "label": label}).with_columns(split=pl.lit(None, dtype=pl.String))
    drawn = draw_splits(frame, by=by, shares={"train": 1 - test_share, "test": test_share}, seed=seed)

    bounds = bound_class_shares(drawn, 3, ("train", "test"), by_group=by == "group")
    assert shares_outside_range(bounds).is_empty()


def test_identical_groups_have_identical_shares_to_the_last_bit():
    """Without differences between groups neither chance nor rounding is allowed for."""
    rows = {"group": [f"q{i // 6}" for i in range(420)], "label": [0, 1, 1, 1, 1, 1] * 70}
    frame = pl.DataFrame(rows | {"split": ["train"] * 6 * 41 + ["test"] * 6 * 29})
    assert shares_outside_range(bound_class_shares(frame, 2, ("train", "test"), by_group=True)).is_empty()


def test_a_class_share_at_the_end_of_its_range_passes():
    """Identical groups have a range of width zero."""
    pairs = pl.DataFrame(
        {
            "pair": [str(row) for row in range(300)],
            "group": [f"q{row // 3}" for row in range(300)],
            "label": [0, 1, 2] * 100,
            "split": ["train"] * 150 + ["validation"] * 60 + ["test"] * 90,
            "text": "a lamp",
        }
    )
    assert gate_pairs(pairs)["success"]


def test_class_share_range_is_bernsteins_bound():
    """100 rows, half of each class, 40 of them drawn: b = 1/2, v = 1/4, ln(2e9) = 21.416."""
    rows = {"group": [str(i) for i in range(100)], "label": [0, 1] * 50, "split": ["a"] * 40 + ["b"] * 60}
    frame = pl.DataFrame(rows)
    first = bound_class_shares(frame, 2, ("a", "b"), by_group=False).row(0)
    excess = 40 * (first[3] - 0.5)  # Bernstein's bound on the rows of the class solves

    np.testing.assert_allclose(excess**2 / (2 * 40 * 0.25 + 2 * 0.5 * excess / 3), np.log(2e9))
    assert first[:3] == ("0 in a", 0.5, pytest.approx(1 - first[3]))

    threefold = bound_class_shares(pl.concat([frame] * 3), 2, ("a", "b"), by_group=True).row(0)
    assert threefold[1:] == pytest.approx(first[1:])


def checked_run(calibrator: str = "ts", n: int = 400, K: int = 3, seed: int = 3) -> tuple[CheckedRun, np.ndarray]:
    """Simulate a run of one calibrator, whose arrays after the projection are computed again, and true labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, K))
    labels = rng.integers(0, K, n)
    log_sums = np.log(np.exp(logits).sum(axis=1, keepdims=True))
    before = logits - log_sums
    after = logits - log_sums
    reliability = rng.normal(size=n) * 5
    rows = decide(logits), after, {"mrp": reliability}, curves_with_increment(0.01), None, 0.0, 1e-12, ()
    return CheckedRun(decide(logits), before, ProjectedDecisions(calibrator, *rows)), labels


def curves_with_increment(increment: float) -> dict[str, SimpleNamespace]:
    return {"mrp": SimpleNamespace(values=np.array([[0.0, increment]]))}


def gate_unchanged(*rows: CheckedRun, accuracy_seed0: float | None = None, **changes: object) -> dict:
    """Run the gate on runs, by default on a simulated one, with changed arrays of the first."""
    run, labels = checked_run()
    first = rows[0] if rows else run
    before = changes.pop("before", first.log_probabilities)
    changed_runs = [replace(first, log_probabilities=before, after=replace(first.after, **changes)), *rows[1:]]
    seed0_accuracy = accuracy(run.decision, labels) if accuracy_seed0 is None else accuracy_seed0
    coordinates = {"dataset": "wands", "seed": 2}
    return check_unchanged(
        changed_runs, labels=labels, seed0_accuracy=seed0_accuracy, ece_bins=15, coordinates=coordinates
    )


def test_an_unchanged_run_passes_with_zero_probabilities_and_flat_curves():
    run, _ = checked_run()
    for array in (run.log_probabilities, run.after.log_probabilities):
        array[5] = [0.0, -np.inf, -np.inf]
    record = gate_unchanged(run, checked_run("smart")[0], lattices=curves_with_increment(0.0))

    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert {check["gate"]: check["rows"] for check in record["checks"]} == {"unchanged rows": 800, "unchanged run": 2}
    assert list_failed_expectations([record]) == []
    assert len(invariants._rows_to_check(run)) <= 3  # of 400 rows without a violation


def change_arrays(change, position: object, *fields: str) -> dict[str, np.ndarray]:
    """Return arrays of a run with another value at one position."""
    before = checked_run()[0]
    after = checked_run()[0].after
    arrays = {field: before.log_probabilities if field == BEFORE else getattr(after, field) for field in fields}
    for array in arrays.values():
        array[position] = change(array[position])
    return arrays


AFTER = "log_probabilities"
BEFORE = "before"
BROKEN_ROWS = {  # what is broken -> the changed arrays, and words of the message
    "decision": (change_arrays(lambda d: (d + 1) % 3, 9, "decision"), ["decision_before", "1 of 400 rows"]),
    "last bit": (change_arrays(lambda p: np.nextafter(p, 0), (9, 1), AFTER), ["largest_difference", "1 of 400 rows"]),
    "NaN on one side": (change_arrays(lambda _: NAN, (9, 1), AFTER), ["largest_difference = nan", "never NaN"]),
    "NaN on both sides": (change_arrays(lambda _: NAN, (9, 1), BEFORE, AFTER), ["largest_difference = nan"]),
    "probability lost": (change_arrays(lambda _: -np.inf, (9, 1), AFTER), ["largest_difference = inf"]),
    "NaN reliability": (
        {"reliability_logits": {"mrp": np.where(np.arange(400) == 9, NAN, 0)}},
        ["reliability = nan", "never NaN"],
    ),
}


@pytest.mark.parametrize(("arrays", "words"), BROKEN_ROWS.values(), ids=BROKEN_ROWS)
def test_a_changed_row_fails(arrays, words):
    failed = gate_error(gate_unchanged, **arrays)
    expected = ["`unchanged rows`", "dataset wands, seed 2", "row 9 of ts: ", "Do not use", *words]
    assert all(word in str(failed) for word in expected), str(failed)
    places = {(row["dataset"], row["seed"], row["calibrator"]) for row in list_failed_expectations([failed.record])}
    assert places == {("wands", 2, "ts")}


def test_the_worst_row_is_named_first():
    run, _ = checked_run()
    run.after.log_probabilities[:50, 0] += 1e-12
    run.after.log_probabilities[37, 2] -= 0.5
    message = str(gate_error(gate_unchanged, run))
    assert re.search(r" 50 of 400 [a-z, ]* row 37 of ts: largest_difference = 0\.5", message), message


@pytest.mark.parametrize("metric", ["accuracy", "ece"])
def test_accuracy_and_ece_are_compared_to_the_last_bit(metric, monkeypatch):
    """Mock the metric, because different rows would fail an earlier gate."""
    before_and_after = iter([0.5, float(np.nextafter(0.5, 1))])
    monkeypatch.setattr(invariants, metric, lambda *_: next(before_and_after))
    message = str(gate_error(gate_unchanged))
    expected = [
        "`unchanged run`",
        "dataset wands, seed 2",
        "calibrator ts:",
        f"{metric}_before = ",
        f"{metric}_after = ",
    ]
    assert all(word in message for word in expected), message


INVALID_MEASUREMENTS = {"accuracy_seed0": 0.999, "kkt": 2e-8, "smallest_increment": -1e-300}


@pytest.mark.parametrize("changes", [INVALID_MEASUREMENTS, dict.fromkeys(INVALID_MEASUREMENTS, NAN)])
def test_a_run_with_invalid_measurements_fails(changes):
    message = str(
        gate_error(
            gate_unchanged,
            accuracy_seed0=changes["accuracy_seed0"],
            kkt_residual=changes["kkt"],
            lattices=curves_with_increment(changes["smallest_increment"]),
            violations=("mrp: label 2 falls",),
        )
    )
    measurements = {"violations": "mrp: label 2 falls", **changes}
    assert all(f" ts: {name} = {value}" in message for name, value in measurements.items()), message


def test_a_comparison_that_cannot_fail_is_an_error():
    run, _ = checked_run()
    for field in ("decision", "log_probabilities"):
        with pytest.raises(ValueError, match=r"ts: \(400.* share memory"):
            gate_unchanged(run, **{field: getattr(run, field)[:]})
    with pytest.raises(ValueError, match=r"\(400, 3\) before and \(400, 1\) after"):
        gate_unchanged(log_probabilities=np.zeros((400, 1)))
    with pytest.raises(pl.exceptions.ShapeError, match="reliability"):
        gate_unchanged(reliability_logits={"mrp": np.zeros(1)})
    with pytest.raises(ValueError, match="no calibrator"):
        check_unchanged([], labels=np.zeros(3, dtype=int), seed0_accuracy=1.0, ece_bins=15, coordinates={})


def gate_contract(labels: list[int], pairs: str = "abc") -> dict:
    frame = pl.DataFrame({"pair": list(pairs), "label": labels})
    return check_contract(frame, n_labels=3, coordinates={"dataset": "wands"})


def test_released_files_pass_only_with_the_declared_contents():
    record = gate_contract([0, 1, 2])
    assert record["success"]
    assert ("declared, found", "declared = found") in describe_expectations(record, "contract")
    for labels, pairs, violation in (
        ([0, 2, 2], "abc", "occur: declared = 3, found = 2"),
        ([0, 1, 3], "abc", "another label: declared = 0, found = 1"),
        ([0, 1, 2], "aba", "distinct pairs: declared = 3, found = 2"),
    ):
        message = str(gate_error(gate_contract, labels, pairs))
        assert "`contract`" in message
        assert "dataset wands" in message
        assert violation in message


BASE: Any = SimpleNamespace(name="amazon_esci", source="simulated")


def gate_shares(values: list[float], seed: int = 2) -> dict[str, Any]:
    """Run a gate of two checks; the second one requires values between 0 and 1."""
    frame = pl.DataFrame({"share": values, "calibrator": ["ts"] * len(values)})
    expected = make_range_expectations("share", 0, 1, "share is a share")
    checks = [Check(f"shares {number}", frame, [expectation]) for number, expectation in enumerate(expected)]
    return run_gate("shares", {"dataset": "amazon_esci", "seed": seed}, checks)


@pytest.mark.parametrize(
    ("values", "found"),
    [([0, 5], r"1 of 2 [a-z, ]*row 1: a = 5"), (["a"], ".*not be evaluated: ")],
)
def test_an_error_names_the_violation_and_can_be_pickled(values, found):
    expected = [make_expectation("between", "a", min_value=0, max_value=1)]  # without a description
    failed = gate_error(run_gate, "gate", {"seed": np.int64(2)}, [Check("a", pl.DataFrame({"a": values}), expected)])
    restored = pickle.loads(pickle.dumps(failed))
    assert (str(restored), restored.record) == (str(failed), failed.record)
    assert re.search(rf"seed 2\n- .*to be between \(column a\); found: {found}", str(failed))


def test_gates_in_several_threads_do_not_affect_each_other():
    def verdict(number: int) -> tuple[int, int, bool]:
        try:
            record = gate_shares([number % 2 * 5.0] * (number + 1), seed=number)
        except GateFailed as failed:
            record = failed.record
        return record["coordinates"]["seed"], record["checks"][1]["rows"], record["success"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(verdict, range(8))) == [(number, number + 1, number % 2 == 0) for number in range(8)]


def test_a_gate_prints_nothing_and_writes_no_file(tmp_path, monkeypatch, capfd, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    check.get_batch_definition.cache_clear()  # a context of its own
    gate_shares([0.5])

    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    for name in ("great_expectations", "great_expectations.data_context.types.base"):
        assert logging.getLogger(name).level == logging.WARNING


@pytest.fixture
def failed_gate(tmp_path, monkeypatch) -> GateFailed:
    """Fail a gate in an empty working directory, and return its error."""
    monkeypatch.chdir(tmp_path)
    return gate_error(gate_shares, [0.5, 7.0])


@pytest.fixture
def artifacts(monkeypatch) -> dict[str, dict[str, Any]]:
    """Collect created artifacts by key, without a server."""
    artifacts_by_key: dict[str, dict[str, Any]] = {}

    def artifact(content: object, *, key: str, **words: str) -> str:
        artifacts_by_key[key] = {"content": content, "then": [], **words}
        return key

    for module, kind in ((write, "table"), (refresh, "table"), (engine, "progress")):
        monkeypatch.setattr(module, f"create_{kind}_artifact", artifact)
    monkeypatch.setattr(
        engine, "update_progress_artifact", lambda key, percent: artifacts_by_key[key]["then"].append(percent)
    )
    return artifacts_by_key


def test_the_record_of_a_failed_gate_lists_passed_checks_and_violations(failed_gate):
    successes = [(check["gate"], check["success"]) for check in failed_gate.record["checks"]]
    assert successes == [("shares 0", True), ("shares 1", False)]
    (row,) = list_failed_expectations([gate_shares([0.5]), failed_gate.record])
    assert row == {
        "gate": "shares 1",
        "dataset": "amazon_esci",
        "seed": 2,
        "calibrator": "ts",
        "severity": "critical",
        "expectation": "share is a share",
        "found": "1 of 2 rows, such as row 1: share = 7.0",
        "allowed": "0 to 1",
    }


def test_run_record_contains_all_gates_reached(failed_gate):
    def future(result: object) -> Mock:
        """Return a future with the result; None stands for a future that never ran."""
        return Mock(**{"state.is_final.return_value": result is not None, "result.return_value": result})

    passed = gate_shares([0.5], seed=1)
    projected = SeedResults(seed=1, projections=[], rows_per_label=(), fallbacks=(), gate_records=[passed])
    results = (projected, failed_gate, None, ZeroDivisionError("no gate"))
    futures = {f"seed {seed}": future(result) for seed, result in enumerate(results, 1)}
    reached = reliability.collect_gate_records({"gates": {"incoming": future(passed)}, "projected": futures})

    assert [(record["success"], record["coordinates"]["seed"]) for record in reached] == [(True, 1)] * 2 + [(False, 2)]


def test_a_failed_gate_is_shown_in_its_run_and_in_refreshes_until_a_run_passes(artifacts, failed_gate):
    write.show_gates.fn(BASE, [failed_gate.record])
    reliability.store_failed_gates(BASE, [failed_gate.record])
    stored = read_json(failed_gates_file("amazon_esci"))

    assert stored == {"dataset": "amazon_esci", "source": "simulated", "gates": [failed_gate.record]}

    refresh.show_failed_gates(["wands", "amazon_esci"])
    assert list(artifacts) == ["gates-amazon-esci", "refresh-gates"]
    assert "amazon_esci (simulated)" in artifacts["gates-amazon-esci"]["description"]
    for artifact in artifacts.values():
        (row,) = artifact["content"]
        assert [row[name] for name in ("dataset", "seed", "calibrator")] == ["amazon_esci (simulated)", 2, "ts"]

    artifacts.clear()
    reliability.store_failed_gates(BASE, [])
    refresh.show_failed_gates(["wands", "amazon_esci"])

    assert artifacts == {}


def test_measurements_before_and_after_use_their_own_arrays():
    first, labels = checked_run()
    other, _ = checked_run(seed=4)
    mixed = replace(first, after=other.after)
    measured = measure_run(mixed, labels, 0.5, 15)
    measured_first = measure_run(first, labels, 0.5, 15)
    measured_other = measure_run(other, labels, 0.5, 15)

    for metric in ("accuracy", "ece"):
        assert measured[f"{metric}_before"] == measured_first[f"{metric}_before"]
        assert measured[f"{metric}_after"] == measured_other[f"{metric}_before"] != measured_first[f"{metric}_before"]


def test_only_the_first_check_imports_great_expectations():
    code = "import sys, tasks.expectations.invariants as i, tasks.expectations.pairs as p; print(*sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in completed.stdout.split()} & {"polars", "great_expectations"} == {"polars"}


def describe_expectations(record: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """Return columns and allowed values of each expectation of a check, sorted; their descriptions must differ."""
    (found,) = [check for check in record["checks"] if check["gate"] == name]
    expectations = found["expectations"]
    assert len({each["description"] for each in expectations}) == len(expectations)
    return sorted((", ".join(each["columns"]), each["allowed"]) for each in expectations)


AT_LEAST_ONE_ROW = ("", "at least 1")
NOT_NULL = "any value but null"
KNOWN_PAIRS = [
    AT_LEAST_ONE_ROW,
    ("pair", "each value once"),
    *((column, NOT_NULL) for column in KNOWN),
    ("label", "one of 0, 1, 2"),
    ("split", "one of train, validation, test"),
]
TEXT_EXPECTATIONS = [("text_length", NOT_NULL), ("text_length", "at least 1")]
FEATURE_EXPECTATIONS = [("features_finite", "one of True")]


@pytest.mark.parametrize(("form", "inputs"), [("text", TEXT_EXPECTATIONS), ("features", FEATURE_EXPECTATIONS)])
def test_the_expectations_of_pairs_state_what_they_allow(form, inputs):
    frame = make_pairs()
    record = gate_pairs(frame if form == "text" else with_features(frame))
    assert describe_expectations(record, "pairs") == sorted([*KNOWN_PAIRS, *inputs])
    assert describe_expectations(record, "pairs: classes") == sorted(
        [
            AT_LEAST_ONE_ROW,
            ("rows_of_split", "at least 1"),
            ("rows", "at least 1"),
        ]
    )
    assert describe_expectations(record, "pairs: groups") == sorted(
        [
            AT_LEAST_ONE_ROW,
            ("splits", "one of train, validation, test"),
        ]
    )
    assert describe_expectations(record, "pairs: class mix") == sorted(
        [
            AT_LEAST_ONE_ROW,
            ("share, lowest_share", "share ≥ lowest_share"),
            ("highest_share, share", "highest_share ≥ share"),
        ]
    )


def test_the_expectations_of_unchanged_results_state_what_they_allow():
    record = gate_unchanged()
    assert describe_expectations(record, "unchanged rows") == sorted(
        [
            AT_LEAST_ONE_ROW,
            ("decision_before, decision_after", "decision_before = decision_after"),
            ("largest_difference", NOT_NULL),
            ("largest_difference", "0"),
            ("reliability", NOT_NULL),
            ("reliability", "0 to 1"),
        ]
    )
    assert describe_expectations(record, "unchanged run") == sorted(
        [
            AT_LEAST_ONE_ROW,
            ("accuracy_before, accuracy_after", "accuracy_before = accuracy_after"),
            ("accuracy_seed0, accuracy_after", "accuracy_seed0 = accuracy_after"),
            ("ece_before, ece_after", "ece_before = ece_after"),
            ("accuracy_seed0", NOT_NULL),
            ("smallest_increment", NOT_NULL),
            ("smallest_increment", "at least 0"),
            ("kkt", NOT_NULL),
            ("kkt", "0 to 1e-08"),
            ("violations", "nothing"),
        ]
    )


def test_equal_shares_of_identical_groups_pass_the_gate():
    n_groups = {"train": 41, "validation": 17, "test": 29}
    splits = [split for split, count in n_groups.items() for _ in range(6 * count)]
    rows = range(len(splits))
    frame = pl.DataFrame(
        {
            "pair": [f"p{row}" for row in rows],
            "split": splits,
            "group": [f"q{row // 6}" for row in rows],
            "label": [0 if row % 6 == 0 else 1 for row in rows],
            "text_length": [3 for _ in rows],
        }
    )
    record = check_pairs(frame, n_labels=2, groups_stay_together=True, coordinates={}, drawn=SPLITS)
    assert record["success"]


def test_a_group_and_a_drawn_split_are_not_checked_if_rows_are_split_and_the_splits_are_fixed():
    record = gate_pairs(make_pairs(by="row"), groups_stay_together=False, drawn=())
    assert [check["gate"] for check in record["checks"]] == ["pairs", "pairs: classes"]


def test_the_extremes_of_reliability_increments_and_residuals_pass():
    extreme = np.zeros(400)
    extreme[3] = np.inf
    extreme[5] = -np.inf
    limits = {"lattices": curves_with_increment(0.0), "kkt_residual": 1e-8}
    assert gate_unchanged(reliability_logits={"mrp": extreme}, **limits)["success"]


def test_a_residual_above_its_limit_is_the_only_violation():
    failed = gate_error(gate_unchanged, kkt_residual=float(np.nextafter(1e-8, 1)))
    (row,) = list_failed_expectations([failed.record])
    assert "optimum" in row["expectation"]
    assert "calibrator ts: kkt = " in row["found"]
    assert (row["allowed"], row["calibrator"]) == ("0 to 1e-08", "ts")


def test_the_smallest_increment_is_that_of_all_labels_and_knots():
    run, labels = checked_run()
    curves = {"mrp": SimpleNamespace(values=np.array([[0.0, 5.0, 7.0], [4.0, 4.5, 9.0]]))}
    measured = measure_run(replace(run, after=replace(run.after, lattices=curves)), labels, 0.25, 15)
    assert measured["smallest_increment"] == 0.5
    assert (measured["accuracy_seed0"], measured["kkt"], measured["violations"]) == (0.25, 1e-12, "")


def test_violations_of_several_variants_are_joined():
    run, labels = checked_run()
    after = replace(run.after, violations=("mrp: a", "lines: b"))
    assert measure_run(replace(run, after=after), labels, 0.25, 15)["violations"] == "mrp: a; lines: b"


def test_the_ece_of_a_run_uses_the_given_number_of_bins():
    run, labels = checked_run()
    measured = {bins: measure_run(run, labels, 0.5, bins)["ece_before"] for bins in (1, 7, 15)}
    confidence = np.exp(run.log_probabilities.max(axis=1))
    assert measured[7] == ece(confidence, run.decision == labels, 7)
    assert measured[1] == pytest.approx(abs(confidence.mean() - accuracy(run.decision, labels)))
    assert measured[15] > measured[1]


def test_the_message_of_a_gate_names_each_violation_and_the_first_three_rows():
    frame = pl.DataFrame({"name": [*"abcdef"], "share": [0.5, 2.0, -1.0, 3.0, 4.0, NAN], "votes": [1, 2, 3, 3, 5, 6]})
    expectations = [
        *make_range_expectations("share", 0, 1, "share is a share"),
        make_expectation("unique", "votes", description="votes differ"),
        make_expectation("at least", "votes", "share", description="at most one share for each vote"),
    ]
    check_of_shares = Check("shares", frame, expectations, row_name_column="name", n_rows=60)
    failed = gate_error(run_gate, "gate", {"dataset": "wands", "seed": 3}, [check_of_shares], remedy="Try again.")
    first_line, *violations, last_line = str(failed).splitlines()
    assert re.fullmatch(r".*`shares` .*dataset wands, seed 3", first_line)
    assert last_line == "Try again."
    expected = [  # description, columns, number of violations, and their first rows
        (
            "at most one share for each vote",
            "votes, share",
            3,
            "name b: votes = 2, share = 2.0; name d: votes = 3, share = 3.0; name f: votes = 6, share = nan",
        ),
        ("share is a share", "share", 4, "name b: share = 2.0; name c: share = -1.0; name d: share = 3.0"),
        ("share is a share, never NaN", "share", 1, "name f: share = nan"),
        ("votes differ", "votes", 2, "name c: votes = 3; name d: votes = 3"),
    ]
    for violation, (description, columns, count, rows) in zip(sorted(violations), expected, strict=True):
        beginning = rf"- [a-z]+: {description} \(column {columns}\)"
        assert re.fullmatch(rf"{beginning}; found: {count} of 60 [a-z, ]* {re.escape(rows)}", violation), violation
    (recorded,) = failed.record["checks"]
    assert (recorded["rows"], recorded["success"], failed.record["gate"]) == (60, False, "gate")


def test_the_record_of_an_expectation_has_its_limits_and_what_was_observed():
    passed = gate_shares([0.5, 0.25])
    (check_record,) = passed["checks"][1:]
    rows, shares = check_record["expectations"]
    assert shares == {
        "type": "expect_column_values_to_be_between",
        "columns": ["share"],
        "limits": {"min_value": 0, "max_value": 1},
        "description": "share is a share",
        "severity": "critical",
        "success": True,
        "allowed": "0 to 1",
        "found": "all 2 rows",
        "observed": {"value": None, "violations": 0, "violating_rows": [], "errors": []},
    }
    assert (rows["columns"], rows["limits"], rows["found"]) == ([], {"min_value": 1}, "2")
    assert rows["observed"] == {"value": 2, "violations": None, "violating_rows": [], "errors": []}


def test_a_failed_expectation_names_the_calibrators_of_its_rows_in_alphabetical_order():
    frame = pl.DataFrame({"calibrator": ["ts", "spline", "diag"], "share": [2.0, 3.0, 4.0]})
    expected = [make_expectation("between", "share", min_value=0, max_value=1, description="a share")]
    failed = gate_error(run_gate, "gate", {"dataset": "wands"}, [Check("shares", frame, expected)])
    (row,) = list_failed_expectations([failed.record])
    assert (row["calibrator"], row["seed"]) == ("diag, spline, ts", None)


@pytest.mark.parametrize(
    ("allowed", "description"),
    [([""], "nothing"), ([1, 2], "one of 1, 2"), (["", "a"], "one of , a"), ([0], "one of 0")],
)
def test_a_set_of_allowed_values_is_listed(allowed, description):
    expectation = make_expectation("in set", "a", value_set=allowed, description="known")
    try:
        record = run_gate("gate", {}, [Check("a", pl.DataFrame({"a": [1]}), [expectation])])
    except GateFailed as failed:
        record = failed.record
    assert record["checks"][0]["expectations"][1]["allowed"] == description


def test_pairs_are_reduced_to_their_keys_and_the_length_of_the_text_or_finite_features():
    frame = make_pairs(10).with_columns(text=pl.Series([None, "", " \t\n", " a b "] + ["lamp"] * 6))
    summary = summarize_pairs(frame)
    assert summary.columns == ["pair", "split", "group", "label", "text_length"]
    assert summary["text_length"].to_list() == [None, 0, 0, 3] + [4] * 6
    assert summary.drop("text_length").equals(frame.select("pair", "split", "group", "label"))
    features = replace_values(with_features(make_pairs(10)), features=[[0, NAN, 0, 0], [0, 0, 0, float("inf")]])
    summary = summarize_pairs(features)
    assert summary.columns == ["pair", "split", "group", "label", "features_finite"]
    assert summary["features_finite"].to_list() == [True] * 7 + [False] * 2 + [True]


def test_pairs_with_saved_logits_need_no_training_rows_and_are_reduced_to_finite_or_not():
    frame = make_pairs().filter(pl.col("split") != "train").drop("text")
    logits = np.random.default_rng(0).normal(size=(len(frame), 3))
    logits[4, 2] = np.inf
    with_logits = frame.with_columns(logits=pl.Series(logits, dtype=pl.Array(pl.Float64, 3)))
    summary = summarize_pairs(with_logits)
    assert summary.columns == ["pair", "split", "group", "label", "logits_finite"]
    assert summary["logits_finite"].arg_true().to_list() == [row for row in range(len(frame)) if row != 4]
    failed = gate_error(gate_pairs, with_logits, drawn=())
    (row,) = list_failed_expectations([failed.record])
    assert "logits" in row["expectation"]
    assert "logits_finite = False" in row["found"]
    assert row["allowed"] == "one of True"
    finite = with_logits.filter(pl.int_range(pl.len()) != 4)
    assert gate_pairs(finite, drawn=())["success"]


def test_groups_of_a_single_class_widen_the_range_of_shares_only_if_groups_were_drawn():
    """All rows of a group have one label, so that the shares of drawn splits differ more than those of drawn rows."""
    n_groups = {"train": 20, "validation": 20, "test": 20}
    rows = []
    for split, count in n_groups.items():
        for group in range(count):
            label = int(group < {"train": 10, "validation": 6, "test": 14}[split])
            rows += [(f"{split} {group} {row}", split, f"{split} {group}", label, 3) for row in range(50)]
    frame = pl.DataFrame(rows, schema=["pair", "split", "group", "label", "text_length"], orient="row")
    options = {"n_labels": 2, "coordinates": {"dataset": "wands"}, "drawn": SPLITS}
    assert check_pairs(frame, groups_stay_together=True, **options)["success"]
    message = str(gate_error(check_pairs, frame, groups_stay_together=False, **options))
    assert re.search(r"not smaller .*\(column share, lowest_share\)", message)
    assert re.search(r"not larger .*\(column highest_share, share\)", message)


@pytest.mark.parametrize("imported", ["altair", "scipy.stats"])
def test_parts_that_are_slow_to_import_are_imported_when_they_are_used(imported, monkeypatch):
    module = ModuleType(imported)
    (other,) = {"altair", "scipy.stats"} - {imported}
    monkeypatch.setitem(sys.modules, imported, module)
    monkeypatch.setitem(sys.modules, other, None)
    del sys.modules[other]
    check.import_great_expectations.__wrapped__()
    assert sys.modules[imported] is module
    assert type(sys.modules[other]).__name__ == "_LazyModule"


@pytest.mark.parametrize("spec", [None, SimpleNamespace(loader=None)])
def test_parts_that_are_not_installed_are_not_imported(spec, monkeypatch):
    monkeypatch.setattr(check, "find_spec", lambda _: spec)
    for name in ("altair", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    check.import_great_expectations.__wrapped__()
    assert not {"altair", "scipy.stats"} & set(sys.modules)


def test_each_gate_has_a_name_coordinates_and_a_remedy():
    pairs = make_pairs(30)
    failures = [
        gate_error(gate_contract, [0, 2, 2]),
        gate_error(gate_pairs, replace_values(pairs, pair=["p8"])),
        gate_error(gate_unchanged, violations=("mrp: label 2 falls",)),
    ]
    expected = [  # name, coordinates, and pattern of the remedy
        ("contract", {"dataset": "wands"}, "delete .*data/raw .*download stage"),
        ("pairs", {"dataset": "wands"}, r"Correct .*`split` .*params\.yaml"),
        ("unchanged", {"dataset": "wands", "seed": 2}, "Do not use"),
    ]
    for failed, (name, coordinates, remedy) in zip(failures, expected, strict=True):
        assert (failed.record["gate"], failed.record["coordinates"]) == (name, coordinates)
        assert re.search(remedy, str(failed).splitlines()[-1])
    with pytest.raises(GateFailed, match=r"\nCorrect .*run again\.$"):
        gate_shares([7.0])
