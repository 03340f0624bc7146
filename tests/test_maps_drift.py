"""Drift: worked by hand, against a loop over groups, and its rates of alarms where nothing and something changed."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtri
from scipy.stats import t as student
from scipy.stats import ttest_ind

from tasks.maps.document import Cell, MapDocument
from tasks.maps.drift import drift, reference
from tasks.protocol.errors import BadInput
from tests.maps import NAMES, document, held_out

PAIRS = 1000
ROWS = st.lists(
    st.tuples(st.integers(0, 10), st.integers(0, 2), st.booleans(), st.integers(0, 14)), min_size=1, max_size=80
)


def fitted_on(rows) -> MapDocument:
    halves, cells = reference(*rows, 3)
    return held_out(halves=halves, cells=cells)


def drawn(generator, n, *, per_group=1, worse=0.0, centre=2.5):
    """Reliability, decision, correct and group; the map is a bit wrong, rows of a group err together."""
    decision = generator.integers(0, 3, n)
    logit = centre + 1.5 * generator.normal(size=n)
    right = expit(0.9 * logit + 0.1 * (decision - 1)) - worse * (decision == 1)
    if per_group == 1:
        return expit(logit), decision, generator.random(n) < right, None
    group = np.arange(n) // per_group
    shared = generator.normal(size=n)[group]
    luck = np.sqrt(0.3) * shared + np.sqrt(0.7) * generator.normal(size=n)
    return expit(logit), decision, luck < ndtri(np.maximum(right, 0)), group


# By hand


def test_reference_by_hand():
    # label 0: median 0.6, so one row below it and two at or above; label 2 has one row, label 1 none
    r, d = np.array([0.4, 0.6, 0.8, 0.9]), np.array([0, 0, 0, 2])
    halves, cells = reference(r, d, np.array([True, False, True, True]), None, 3)
    assert halves == (0.6, 0.5, 0.9)
    assert [(one.label, one.half, one.rows) for one in cells] == [(0, "lower", 1), (0, "upper", 2), (2, "upper", 1)]
    assert [one.mean_reliability for one in cells] == pytest.approx([0.4, 0.7, 0.9])
    assert [one.mean_residual for one in cells] == pytest.approx([0.6, -0.2, 0.1])
    assert [one.variance for one in cells] == pytest.approx([0, 0.4**2 + 0.4**2, 0])


def test_rows_that_err_together_count_as_one():
    alone = np.arange(60) % 3 > 0
    r, d = np.full(60, 0.5), np.zeros(60, dtype=int)
    (single,) = reference(r, d, alone, np.arange(60), 1)[1]
    r, d, together, group = (np.repeat(x, 5) for x in (r, d, alone, np.arange(60)))
    (grouped,) = reference(r, d, together, group, 1)[1]
    assert single == reference(r[::5], d[::5], alone, None, 1)[1][0]
    assert grouped.rows == 300
    assert grouped.variance / 300 == pytest.approx(single.variance / 60)


def test_drift_by_hand():
    # 100 held-out rows of residual 0 and variance 0.09; 25 new ones that say 0.9, of which 15 are correct
    then = Cell(label=1, half="upper", rows=100, mean_reliability=0.9, mean_residual=0.0, variance=0.09)
    right = np.arange(25) < 15
    found = drift(held_out(halves=(0.5,) * 3, cells=(then,)), np.full(25, 0.9), np.ones(25, dtype=int), right, None)
    new = 0.6 * 0.4 * 25 / 24
    separate, pooled = 0.09 / 100 + new / 25, (100 * 0.09 + 25 * new) / 125 * (1 / 100 + 1 / 25)
    (one,) = found.cells
    assert separate > pooled
    assert one.p == pytest.approx(2 * student.sf(0.3 / np.sqrt(separate), 24))
    assert (one.rows, one.says, one.correct, one.expected) == pytest.approx((25, 0.9, 0.6, 0.9))
    often = then.model_copy(update={"rows": 500, "variance": 0.45})  # each row five times
    five = held_out(halves=(0.5,) * 3, cells=(often,))
    same = drift(five, np.full(125, 0.9), np.ones(125, dtype=int), np.repeat(right, 5), np.repeat(np.arange(25), 5))
    assert same.cells[0].p == pytest.approx(one.p)
    assert not found.holds
    assert found.in_words(NAMES)[0] == (
        "The map no longer holds for partial at reliability 0.5 and above: says 0.90, correct 0.60 (25 rows, "
        f"0.90 expected, p {one.p:.2g})."
    )
    assert found.in_words(NAMES)[1] == "Fit it again."


@pytest.mark.parametrize(("says", "right", "p"), [(0.9, True, 1.0), (0.95, False, 0.0), (1.0, True, 1.0)])
def test_rows_without_variance_are_judged_exactly(says, right, p):
    r, d, all_right = np.full(30, says), np.zeros(30, dtype=int), np.full(30, True)
    found = drift(fitted_on((r, d, all_right, None)), r[:21], d[:21], np.full(21, right), None)
    assert [one.p for one in found.cells] == [p]


def test_one_error_after_none_is_no_alarm():
    r, d = np.full(1000, 0.98), np.zeros(1000, dtype=int)
    assert drift(fitted_on((r, d, r > 0, None)), r[:50], d[:50], np.arange(50) > 0, None, level=0.05).holds


# Against an independent reference


def check_cells(r, d, z, group) -> int:
    """The cells of rows against those of a loop over labels, halves and groups; how many there are."""
    halves, cells = reference(r, d, z, group, 3)
    grouped, group = group is not None, np.arange(len(d)) if group is None else group
    expected = []
    for label in range(3):
        of_label = r[d == label]
        assert halves[label] == (np.median(of_label) if len(of_label) else 0.5)
        for half, here in (("lower", r < halves[label]), ("upper", r >= halves[label])):
            kept = here & (d == label)
            names = set(group[kept].tolist())
            if not names or (grouped and len(names) < 10):
                continue
            residual = z[kept] - r[kept]
            sums = [(residual[group[kept] == name] - residual.mean()).sum() for name in names]
            variance = np.sum(np.square(sums)) / kept.sum() * len(names) / max(1, len(names) - 1)
            expected.append((label, half, kept.sum(), r[kept].mean(), residual.mean(), variance))
    assert [(cell.label, cell.half, cell.rows) for cell in cells] == [facts[:3] for facts in expected]
    numbers = [(cell.mean_reliability, cell.mean_residual, cell.variance) for cell in cells]
    assert np.array(numbers).ravel() == pytest.approx(np.array([facts[3:] for facts in expected]).ravel(), abs=1e-12)
    return len(cells)


@settings(deadline=None, max_examples=60)
@given(ROWS, st.booleans())
def test_cells_are_those_of_a_loop_over_groups(rows, grouped):
    level, d, z, group = (np.array(column) for column in zip(*rows, strict=True))
    check_cells(level / 10, d, z, group if grouped else None)


def test_cells_of_many_groups_are_those_of_the_loop():
    generator = np.random.default_rng(0)
    r, d, z, _ = drawn(generator, 900)
    assert check_cells(r, d, z, generator.integers(0, 40, 900)) == 6


def test_p_values_are_those_of_other_peoples_t_tests():
    generator = np.random.default_rng(3)
    before, now = drawn(generator, 4000), drawn(generator, 2000, worse=0.03)
    doc = fitted_on(before)
    found = drift(doc, *now)
    naive = []
    for one in found.cells:
        samples = []
        for r, d, z, _ in (before, now):
            kept = (d == one.label) & ((r < one.border) if one.half == "lower" else (r >= one.border))
            samples.append((z - r)[kept])
        naive.append(max(ttest_ind(*samples, equal_var=equal).pvalue for equal in (True, False)))
    order = np.argsort(naive)
    adjusted = np.maximum.accumulate(np.array(naive)[order] * np.arange(len(naive), 0, -1))
    # they count degrees of freedom otherwise, which hardly matters for so many rows
    assert np.array([one.p for one in found.cells])[order] == pytest.approx(np.minimum(1, adjusted), rel=0.1, abs=1e-4)


# Rates of alarms


@pytest.mark.parametrize("per_group", [1, 10])
def test_an_unchanged_stream_raises_no_more_alarms_than_stated(per_group):
    generator, level = np.random.default_rng(per_group), 0.05
    alarms = 0
    for pair in range(PAIRS):
        doc = fitted_on(drawn(generator, 2000, per_group=per_group))
        new = drawn(generator, (500, 1000, 500, 2000, 1000, 5000)[pair % 6], per_group=per_group)
        alarms += not drift(doc, *new, level=level).holds
    assert alarms <= PAIRS * level + 3 * np.sqrt(PAIRS * level * (1 - level))
    assert alarms > 0  # the test can speak


@pytest.mark.parametrize(("per_group", "level"), [(1, 0.01), (10, 0.05)])
def test_ten_points_less_on_one_label_are_found(per_group, level):
    generator, found, wrong = np.random.default_rng(0), 0, 0
    for _ in range(100):
        doc = fitted_on(drawn(generator, 2000, per_group=per_group))
        changed = drift(doc, *drawn(generator, 2000, per_group=per_group, worse=0.1), level=level).changed
        found += any(one.label == 1 for one in changed)
        wrong += any(one.label != 1 for one in changed)
    assert found >= 90
    assert wrong <= 100 * level + 3 * np.sqrt(100 * level * (1 - level))


def test_a_map_that_was_a_bit_wrong_from_the_start_raises_none_with_many_rows():
    generator = np.random.default_rng(4)
    doc, new = fitted_on(drawn(generator, 3000, worse=0.08)), drawn(generator, 100_000, worse=0.08)
    assert drift(doc, *new).holds
    exact = [cell.model_copy(update={"mean_residual": 0.0}) for cell in doc.held_out.cells]
    assert not drift(held_out(halves=doc.held_out.halves, cells=exact), *new).holds  # held against 0 it would


def test_another_mix_of_labels_is_no_alarm():
    generator = np.random.default_rng(5)
    r, d, z, _ = drawn(generator, 6000)
    kept = (d != 2) | (generator.random(6000) < 0.1)
    assert drift(fitted_on(drawn(generator, 3000)), r[kept], d[kept], z[kept], None).holds


# Rows, words and bad input


@pytest.mark.parametrize("per_group", [1, 10])
def test_neither_the_order_of_rows_nor_the_names_of_groups_matter(per_group):
    generator = np.random.default_rng(6)
    rows = r, d, z, group = drawn(generator, 1500, per_group=per_group)
    order = generator.permutation(1500)
    again = tuple(None if column is None else column[order] for column in rows)
    assert reference(*rows, 3) == reference(*again, 3)
    doc = fitted_on(drawn(generator, 800, per_group=per_group))
    assert drift(doc, *rows) == drift(doc, *again)
    if group is not None:
        renamed = reference(r, d, z, np.array([f"q{number}" for number in group]), 3)[1]
        variances = [cell.variance for cell in reference(*rows, 3)[1]]
        assert [cell.variance for cell in renamed] == pytest.approx(variances, rel=1e-12)


def test_what_could_not_be_tested_is_said():
    generator = np.random.default_rng(8)
    doc = fitted_on(drawn(generator, 2000))
    r, d, z, _ = drawn(generator, 600)
    kept = (d != 2) | (np.cumsum(d == 2) <= 9)
    found = drift(doc, r[kept], d[kept], z[kept], None)
    assert [one.p is None for one in found.cells] == [one.label == 2 for one in found.cells]
    words = found.in_words(NAMES)
    assert words[0].startswith("The map still holds")
    assert words[1].count("exact at reliability") == 2
    assert "at most 1% of evaluations" in words[-1]
    rare = [cell.model_copy(update={"rows": 19}) for cell in doc.held_out.cells]
    assert all(one.p is None for one in drift(held_out(halves=doc.held_out.halves, cells=rare), r, d, z, None).cells)
    few = drift(doc, r[:15], d[:15], z[:15], None)
    assert few.holds
    assert few.in_words(NAMES)[0].startswith("It cannot be said")
    groups = drift(doc, *drawn(generator, 900)[:3], np.arange(900) // 100)
    assert all(one.p is None for one in groups.cells)  # nine groups


def test_every_label_changed_still_takes_ten_lines_or_fewer():
    generator = np.random.default_rng(9)
    r, d, z, _ = drawn(generator, 3000)
    found = drift(fitted_on((r, d, z, None)), r, d, ~z, None)
    lines = found.in_words()
    assert len(found.changed) == 6
    assert len(lines) <= 10
    assert any("Nor for 1 more" in line for line in lines)
    plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert plain["holds"] is False
    assert [one["label"] for one in plain["cells"]] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("rows", "level", "told"),
    [(0, 0.01, "no labelled row"), *((1, level, r"such as 0\.01") for level in (0.0, 1.0, 5.0, np.nan))],
)
def test_what_no_test_can_be_made_of_is_refused(rows, level, told):
    some = np.full(rows, 0.5), np.zeros(rows, dtype=int), np.full(rows, True)
    assert rows or reference(*some, None, 3) == ((0.5, 0.5, 0.5), ())
    with pytest.raises(BadInput, match=told):
        drift(document(), *some, None, level=level)
