"""The gates: each expectation is broken on purpose once, and the message says where and what."""

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks.expectations.check as checking
from tasks.expectations.check import Check, GateFailed, expect, pass_gate, violated
from tasks.expectations.invariants import Outgoing, _run, check_unchanged
from tasks.expectations.pairs import _class_mix, check_contract, check_pairs, outline
from tasks.metrics.probability import accuracy
from tasks.protocol.decisions import decide
from tasks.protocol.splits import draw_splits

# great_expectations imports two modules that Python itself calls outdated
pytestmark = pytest.mark.filterwarnings("ignore:module 'sre_:DeprecationWarning")

PLACE = {"dataset": "wands", "seed": 2}
DRAWN = ("train", "validation", "test")


def judged(n: int = 600, *, by: str = "group", seed: int = 0) -> pl.DataFrame:
    """Text pairs of 3 labels in groups of 5 rows, with drawn splits."""
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {
            "pair": [f"p{i}" for i in range(n)],
            "split": pl.Series([None] * n, dtype=pl.String),
            "group": [f"q{i // 5}" for i in range(n)],
            "text": [f"query: oak desk {i // 5}\ncandidate: desk {i}" for i in range(n)],
            "label": pl.Series(rng.choice(3, n, p=[0.6, 0.3, 0.1]), dtype=pl.Int8),
        }
    )
    return draw_splits(frame, by=by, shares={"train": 0.5, "validation": 0.3, "test": 0.2}, seed=seed)


def featured(frame: pl.DataFrame) -> pl.DataFrame:
    values = np.random.default_rng(1).normal(size=(len(frame), 4)).astype(np.float32)
    return frame.drop("text").with_columns(features=pl.Series(values, dtype=pl.Array(pl.Float32, 4)))


def put(frame: pl.DataFrame, column: str, value: object, row: int = 7) -> pl.DataFrame:
    """The frame with one value exchanged."""
    values = frame[column].to_list()
    values[row] = value
    return frame.with_columns(pl.Series(column, values, dtype=frame.schema[column]))


def gate_pairs(frame: pl.DataFrame) -> dict[str, object]:
    return check_pairs(
        outline(frame), n_labels=3, groups_stay_together=True, coordinates={"dataset": "wands"}, drawn=DRAWN
    )


# ---------------------------------------------------------------------------------------------- what comes in


@pytest.mark.parametrize("frame", [judged(), featured(judged())], ids=["text", "features"])
def test_sound_pairs_pass_and_leave_a_json_record(frame: pl.DataFrame) -> None:
    record = gate_pairs(frame)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["success"] is True
    assert [one["gate"] for one in record["checks"]] == ["pairs", "pairs: classes", "pairs: groups", "pairs: class mix"]
    assert all(expected["success"] for one in record["checks"] for expected in one["expectations"])


def straddling(frame: pl.DataFrame) -> pl.DataFrame:
    return put(frame, "split", "test" if frame["split"][7] != "test" else "train")


def recoded(frame: pl.DataFrame) -> pl.DataFrame:
    """The labels of one split in the opposite order, as if another file coded them so."""
    opposite = pl.when(pl.col("split") == "test").then(2 - pl.col("label")).otherwise("label")
    return frame.with_columns(label=opposite.cast(pl.Int8))


BROKEN_PAIRS: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], list[str]]] = {
    "a pair twice": (lambda f: put(f, "pair", "p8"), ["pair p8", "one row only", "2 of 2400 rows"]),
    "no pair": (lambda f: put(f, "pair", None), ["pair None", "pair is never null"]),
    "no group": (lambda f: put(f, "group", None), ["pair p7", "group = None"]),
    "no label": (lambda f: put(f, "label", None), ["pair p7", "label = None"]),
    "no split": (lambda f: put(f, "split", None), ["pair p7", "split = None"]),
    "unknown label": (lambda f: put(f, "label", 3), ["pair p7", "label = 3", "0, 1, 2"]),
    "unknown split": (lambda f: put(f, "split", "dev"), ["pair p7", "split = dev"]),
    "null text": (lambda f: put(f, "text", None), ["pair p7", "text_length = None"]),
    "blank text": (lambda f: put(f, "text", " \t"), ["pair p7", "text_length = 0"]),
    "NaN feature": (lambda f: put(featured(f), "features", [0, float("nan"), 0, 0]), ["pair p7", "features_finite"]),
    "infinite feature": (lambda f: put(featured(f), "features", [0, float("inf"), 0, 0]), ["pair p7", "finite"]),
    "null feature": (lambda f: put(featured(f), "features", [0, None, 0, 0]), ["pair p7", "finite"]),
    "no features": (lambda f: put(featured(f), "features", None), ["pair p7", "finite"]),
    "empty split": (lambda f: f.filter(pl.col("split") != "validation"), ["0 in validation", "no split is empty"]),
    "class missing": (
        lambda f: f.filter((pl.col("split") != "test") | (pl.col("label") != 2)),
        ["2 in test: rows = 0"],
    ),
    "group straddles": (straddling, ["group q1", "splits = ", " and ", "one split only"]),
    "labels recoded": (recoded, ["0 in test: share = ", "lowest_share = ", "2 in test: highest_share"]),
    "no rows": (lambda f: f.clear(), ["at least one row", "found: 0"]),
}


@pytest.mark.parametrize("name", BROKEN_PAIRS)
def test_broken_pairs_close_the_gate(name: str) -> None:
    breaking, words = BROKEN_PAIRS[name]
    with pytest.raises(GateFailed) as failed:
        gate_pairs(breaking(judged(2400)))
    message = str(failed.value)
    assert all(word in message for word in ["closed for dataset wands", "params.yaml", *words]), message
    assert json.loads(json.dumps(failed.value.record, allow_nan=False))["success"] is False


def test_groups_may_straddle_splits_that_were_drawn_by_row() -> None:
    frame = judged(by="row")
    record = check_pairs(
        outline(frame), n_labels=3, groups_stay_together=False, coordinates={"dataset": "wands"}, drawn=DRAWN
    )
    assert len(record["checks"]) == 3
    with pytest.raises(GateFailed, match="one split only"):
        gate_pairs(frame)


def test_fixed_splits_may_differ_in_their_mix() -> None:
    frame = recoded(judged(2400))
    record = check_pairs(outline(frame), n_labels=3, groups_stay_together=True, coordinates={"dataset": "wands"})
    assert record["success"] is True
    drawn = ("train", "validation")
    alone = frame.filter(pl.col("split") != "test")
    assert _class_mix(frame, 3, drawn, by_group=True).equals(_class_mix(alone, 3, drawn, by_group=True))


def outside(mix: pl.DataFrame) -> pl.DataFrame:
    return mix.filter(~pl.col("share").is_between("lowest_share", "highest_share"))


@given(
    seed=st.integers(0, 10**6),
    by=st.sampled_from(["row", "group"]),
    test_share=st.floats(0.02, 0.5),
    concentration=st.floats(0.01, 10),
)
@settings(deadline=None, max_examples=60)
def test_chance_never_closes_the_class_mix(seed: int, by: str, test_share: float, concentration: float) -> None:
    """Groups of 1 to 60 rows, from nearly of one class each to all alike, some classes rare or in one group only."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 60, 80)
    group = np.repeat(np.arange(80), sizes)
    taste = rng.dirichlet(concentration * np.array([1.0, 0.3, 0.02]), 80)
    label = (rng.random(len(group))[:, None] > taste.cumsum(axis=1)[group, :2]).sum(axis=1)
    open_split = pl.Series([None] * len(group), dtype=pl.String)
    frame = pl.DataFrame({"group": group.astype(str), "label": label, "split": open_split})
    drawn = draw_splits(frame, by=by, shares={"train": 1 - test_share, "test": test_share}, seed=seed)
    assert outside(_class_mix(drawn, 3, ("train", "test"), by_group=by == "group")).is_empty()


def test_equal_groups_have_equal_mixes_to_the_last_bit() -> None:
    label = pl.Series(
        [0, 1, 1, 1, 1, 1] * 70, dtype=pl.Int8
    )  # no group differs: chance allows nothing, rounding neither
    frame = pl.DataFrame({"group": [f"q{i // 6}" for i in range(420)], "label": label})
    frame = frame.with_columns(split=pl.Series(["train"] * 6 * 41 + ["test"] * 6 * 29))
    assert outside(_class_mix(frame, 2, ("train", "test"), by_group=True)).is_empty()


def test_the_bound_on_the_class_mix_is_bernsteins() -> None:
    """100 rows, half of each class, 40 of them drawn: b = 1/2, v = 1/4, ln(2e9) = 21.416."""
    frame = pl.DataFrame(
        {"group": [str(i) for i in range(100)], "label": [0, 1] * 50, "split": ["a"] * 40 + ["b"] * 60}
    )
    first = _class_mix(frame, 2, ("a", "b"), by_group=False).row(0, named=True)
    log = np.log(2e9)
    rows = log / 6 + np.sqrt((log / 6) ** 2 + 2 * 40 * 0.25 * log)
    assert first["class"] == "0 in a"
    np.testing.assert_allclose([first["lowest_share"], first["highest_share"]], [0.5 - rows / 40, 0.5 + rows / 40])
    np.testing.assert_allclose(rows**2 / (2 * 40 * 0.25 + 2 * 0.5 * rows / 3), log)
    threefold = _class_mix(pl.concat([frame] * 3), 2, ("a", "b"), by_group=True).row(0)
    assert threefold[1:] == pytest.approx(tuple(first.values())[1:])


# ---------------------------------------------------------------------------------------------- what goes out


def outgoing(calibrator: str = "ts", n: int = 400, K: int = 3, seed: int = 3) -> tuple[Outgoing, np.ndarray]:
    """One calibrator whose arrays after the projection were computed a second time, and the true labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, K))
    labels = rng.integers(0, K, n)

    def log_probabilities() -> np.ndarray:
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    one = Outgoing(
        calibrator=calibrator,
        decision_before=decide(logits),
        decision_after=decide(logits),
        log_probabilities_before=log_probabilities(),
        log_probabilities_after=log_probabilities(),
        reliability_logits=rng.normal(size=n) * 5,
        smallest_increment=0.01,
        kkt=1e-12,
        violations=(),
    )
    return one, labels


def gate_unchanged(one: Outgoing, labels: np.ndarray, seed0_accuracy: float | None = None) -> list[dict[str, object]]:
    known = accuracy(one.decision_before, labels) if seed0_accuracy is None else seed0_accuracy
    return check_unchanged([one], labels=labels, seed0_accuracy=known, ece_bins=15, coordinates=PLACE)


def test_an_unchanged_run_passes_and_leaves_json_records() -> None:
    (one, labels), (other, _) = outgoing("ts"), outgoing("smart")
    seed0 = accuracy(one.decision_before, labels)
    record = check_unchanged([one, other], labels=labels, seed0_accuracy=seed0, ece_bins=15, coordinates=PLACE)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert [(one["gate"], one["rows"]) for one in record["checks"]] == [("unchanged rows", 800), ("unchanged run", 2)]
    assert violated([record]) == []


def test_probabilities_of_zero_and_flat_curves_are_no_change() -> None:
    one, labels = outgoing()
    for array in (one.log_probabilities_before, one.log_probabilities_after):
        array[5] = [0.0, -np.inf, -np.inf]
    assert gate_unchanged(replace(one, smallest_increment=0.0), labels)


def at(array: np.ndarray, place: object, value: object) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


def next_double(array: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    return at(array, place, np.nextafter(array[place], 0))


BROKEN_ROWS: dict[str, tuple[Callable[[Outgoing], Outgoing], list[str]]] = {
    "decision": (
        lambda o: replace(o, decision_after=at(o.decision_after, 9, (o.decision_before[9] + 1) % 3)),
        ["row 9 of ts:", "decision_before", "decision_after", "1 of 400 rows"],
    ),
    "last bit of a probability": (
        lambda o: replace(o, log_probabilities_after=next_double(o.log_probabilities_after, (9, 1))),
        ["row 9 of ts:", "largest_difference", "1 of 400 rows"],
    ),
    "NaN on one side": (
        lambda o: replace(o, log_probabilities_after=at(o.log_probabilities_after, (9, 1), np.nan)),
        ["row 9 of ts:", "largest_difference = nan", "never NaN"],
    ),
    "NaN on both sides": (
        lambda o: replace(
            o,
            log_probabilities_before=at(o.log_probabilities_before, (9, 1), np.nan),
            log_probabilities_after=at(o.log_probabilities_after, (9, 1), np.nan),
        ),
        ["row 9 of ts:", "largest_difference = nan"],
    ),
    "probability lost": (
        lambda o: replace(o, log_probabilities_after=at(o.log_probabilities_after, (9, 1), -np.inf)),
        ["row 9 of ts:", "largest_difference = inf"],
    ),
    "NaN reliability": (
        lambda o: replace(o, reliability_logits=at(o.reliability_logits, 9, np.nan)),
        ["row 9 of ts:", "reliability = nan", "never NaN"],
    ),
}


@pytest.mark.parametrize("name", BROKEN_ROWS)
def test_a_changed_row_closes_the_gate(name: str) -> None:
    breaking, words = BROKEN_ROWS[name]
    one, labels = outgoing()
    with pytest.raises(GateFailed) as failed:
        gate_unchanged(breaking(one), labels)
    message = str(failed.value)
    wanted = ["`unchanged rows` is closed for dataset wands, seed 2", "of ts: ", "Trust no result", *words]
    assert all(word in message for word in wanted), message
    told = {(row["dataset"], row["seed"], row["calibrator"]) for row in violated([failed.value.record])}
    assert told == {("wands", 2, "ts")}
    assert json.loads(json.dumps(failed.value.record, allow_nan=False))["success"] is False


def test_the_worst_row_is_named_first() -> None:
    one, labels = outgoing()
    changed = one.log_probabilities_after
    changed[:50, 0] += 1e-12
    changed[37, 2] -= 0.5
    with pytest.raises(GateFailed, match=r"found: 50 of 400 rows, such as row 37 of ts: largest_difference = 0.5"):
        gate_unchanged(one, labels)


def test_a_score_outside_the_unit_interval_closes_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tasks.expectations.invariants.expit", lambda logits: logits
    )  # scores that are no probabilities
    one, labels = outgoing()
    with pytest.raises(GateFailed, match="reliability is a probability"):
        gate_unchanged(one, labels)


def after_the_projection(of: Callable[..., float], calls: list[float]) -> Callable[..., float]:
    """The metric, off by its last bit the second time that it is computed."""

    def measured(*arguments: object) -> float:
        calls.append(of(*arguments))
        return calls[-1] if len(calls) == 1 else float(np.nextafter(calls[-1], 1))

    return measured


@pytest.mark.parametrize("metric", ["accuracy", "ece"])
def test_the_last_bit_of_accuracy_and_ece_counts(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows differ their own gate closes first, so here the metric is what differs."""
    place = f"tasks.expectations.invariants.{metric}"
    one, labels = outgoing()
    seed0 = accuracy(one.decision_before, labels)
    monkeypatch.setattr(place, after_the_projection(getattr(sys.modules["tasks.metrics.probability"], metric), []))
    with pytest.raises(GateFailed) as failed:
        gate_unchanged(one, labels, seed0)
    message = str(failed.value)
    wanted = ["`unchanged run`", "dataset wands, seed 2", "calibrator ts:", f"{metric}_before = ", f"{metric}_after = "]
    assert all(word in message for word in wanted), message


def test_each_side_is_measured_on_its_own_arrays() -> None:
    one, labels = outgoing()
    other, _ = outgoing(seed=4)
    mixed = replace(one, decision_after=other.decision_after, log_probabilities_after=other.log_probabilities_after)
    measured, of_one, of_other = (_run(some, labels, 0.5, 15) for some in (mixed, one, other))
    for metric in ("accuracy", "ece"):
        assert measured[f"{metric}_before"] == of_one[f"{metric}_before"]
        assert measured[f"{metric}_after"] == of_other[f"{metric}_before"] != of_one[f"{metric}_before"]


@pytest.mark.parametrize(
    ("seed0", "words"),
    [(0.999, "accuracy_seed0 = 0.999"), (float("nan"), "accuracy_seed0 = nan")],
    ids=["other", "unknown"],
)
def test_accuracy_is_that_of_the_seed_0_decisions(seed0: float, words: str) -> None:
    with pytest.raises(GateFailed, match=words):
        gate_unchanged(*outgoing(), seed0)


@pytest.mark.parametrize("kkt", [2e-8, float("nan")])
def test_an_optimum_that_is_not_proven_closes_the_gate(kkt: float) -> None:
    one, labels = outgoing()
    with pytest.raises(GateFailed, match=rf"the optimum is proven.*calibrator ts: kkt = {kkt}"):
        gate_unchanged(replace(one, kkt=kkt), labels)


def test_a_variant_that_names_something_wrong_closes_the_gate() -> None:
    one, labels = outgoing()
    with pytest.raises(GateFailed, match="mrp: label 2 falls"):
        gate_unchanged(replace(one, violations=("mrp: label 2 falls",)), labels)


@pytest.mark.parametrize("increment", [-1e-300, float("nan")])
def test_a_falling_curve_closes_the_gate(increment: float) -> None:
    one, labels = outgoing()
    with pytest.raises(GateFailed, match=rf"calibrator ts: smallest_increment = {increment}"):
        gate_unchanged(replace(one, smallest_increment=increment), labels)


@pytest.mark.parametrize("what", ["decision", "log_probabilities"])
@pytest.mark.parametrize("same", [lambda a: a, lambda a: a[:]], ids=["the same array", "a view of it"])
def test_an_array_is_never_compared_with_itself(what: str, same: Callable[[np.ndarray], np.ndarray]) -> None:
    one, labels = outgoing()
    itself = {f"{what}_after": same(getattr(one, f"{what}_before"))}
    with pytest.raises(ValueError, match="ts: before and after share memory"):
        gate_unchanged(replace(one, **itself), labels)


def test_rows_that_do_not_match_are_never_compared() -> None:
    one, labels = outgoing()
    with pytest.raises(ValueError, match=r"\(400, 3\) before and \(400, 1\) after"):
        gate_unchanged(replace(one, log_probabilities_after=one.log_probabilities_after[:, :1].copy()), labels)


def test_no_calibrator_is_no_pass() -> None:
    with pytest.raises(ValueError, match="no calibrator to check"):
        check_unchanged([], labels=np.zeros(3, dtype=int), seed0_accuracy=1.0, ece_bins=15, coordinates=PLACE)


# ------------------------------------------------------------------------------ the contract of a released set


def contract(labels: list[int], pairs: str = "abc") -> dict[str, object]:
    frame = pl.DataFrame({"pair": list(pairs), "label": labels})
    return check_contract(frame, n_labels=3, coordinates={"dataset": "wands"})


def test_released_files_that_hold_what_is_declared_pass() -> None:
    record = contract([0, 1, 2])
    assert all(one["success"] for check in record["checks"] for one in check["expectations"])


@pytest.mark.parametrize(
    ("labels", "pairs", "told"),
    [
        ([0, 2, 2], "abc", "labels that occur: declared = 3, found = 2"),
        ([0, 1, 3], "abc", "rows of no such label: declared = 0, found = 1"),
        ([0, 1, 2], "aba", "pairs that stand in one row: declared = 3, found = 2"),
    ],
)
def test_what_is_not_as_declared_stops_the_run(labels: list[int], pairs: str, told: str) -> None:
    with pytest.raises(GateFailed, match=rf"`contract` is closed for dataset wands(.|\n)*{told}"):
        contract(labels, pairs)


# ---------------------------------------------------------------------------------------------- the gate itself


def whole(values: list[object], gate: str = "whole") -> dict[str, object]:
    expected = [expect("between", "a", min_value=0, max_value=1)]
    (record,) = pass_gate("gate", {"seed": np.int64(2)}, [Check(gate, pl.DataFrame({"a": values}), expected)])["checks"]
    return record


def test_an_expectation_without_words_is_named_by_its_type() -> None:
    with pytest.raises(
        GateFailed,
        match=r"seed 2\n- expected: column values to be between \(column a\); found: 1 of 2 rows, such as row 1: a = 5",
    ):
        whole([0, 5])


def test_what_cannot_be_evaluated_is_not_passed() -> None:
    with pytest.raises(GateFailed, match="could not be evaluated: "):
        whole(["one", "two"])


def test_verdicts_do_not_stick_from_one_frame_to_the_next() -> None:
    for value, good in [(1, True), (5, False), (1, True), (5, False)]:
        if good:
            assert whole([value])["success"]
        else:
            with pytest.raises(GateFailed):
                whole([value])


def test_threads_get_their_own_verdicts() -> None:
    def verdict(number: int) -> tuple[bool, bool]:
        """Did the gate close, and with a message of its own?"""
        try:
            record = whole([number % 2 * 5.0] * (number + 1), gate=f"g{number}")
        except GateFailed as failed:
            words = (f"gate `g{number}` is closed", f"found: {number + 1} of {number + 1} rows")
            return True, all(word in str(failed) for word in words)
        return False, record["gate"] == f"g{number}" and record["rows"] == number + 1

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(verdict, range(8))) == [(False, True), (True, True)] * 4


def test_a_failed_gate_survives_the_way_between_processes() -> None:
    with pytest.raises(GateFailed) as failed:
        whole([5])
    travelled = pickle.loads(pickle.dumps(failed.value))
    assert str(travelled) == str(failed.value)
    assert travelled.record == failed.value.record


def test_a_gate_is_silent_and_leaves_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    checking._batches.cache_clear()  # a context of its own
    whole([0.5])
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_great_expectations_is_imported_by_the_first_check_only() -> None:
    code = "import sys, tasks.expectations.invariants as i, tasks.expectations.pairs as p; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in ran.stdout.split()} & {"polars", "great_expectations"} == {"polars"}
