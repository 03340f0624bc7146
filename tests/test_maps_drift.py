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
from tasks.metrics.intervals import holm
from tasks.protocol.errors import BadInput
from tests.maps import NAMES, document, held_out

PAIRS = 300
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


def test_drift_by_hand():
    # 100 held-out rows of residual 0 and variance 0.09; 25 new ones that say 0.9, of which 15 are correct
    then = Cell(label=1, half="upper", rows=100, mean_reliability=0.9, mean_residual=0.0, variance=0.09)
    often = then.model_copy(update={"rows": 500, "variance": 0.45})  # each row five times
    separate, pooled = 0.09 / 100 + 0.01, (100 * 0.09 + 25 * 0.25) / 125 * (1 / 100 + 1 / 25)
    for cell, times in ((then, 1), (often, 5)):
        right, group = np.repeat(np.arange(25) < 15, times), np.repeat(np.arange(25), times)
        made, n = held_out(halves=(0.5,) * 3, cells=(cell,)), len(right)
        drifted = drift(made, np.full(n, 0.9), np.ones(n, dtype=int), right, None if times == 1 else group)
        (new,) = drifted.cells
        assert separate > pooled
        assert new.p == pytest.approx(2 * student.sf(0.3 / np.sqrt(separate), 24))
        assert (new.rows, new.says, new.correct, new.expected) == pytest.approx((n, 0.9, 0.6, 0.9))
        assert not drifted.holds
        assert drifted.in_words(NAMES)[:2] == [
            f"The map no longer holds for partial at reliability 0.5 and above: says 0.90, correct 0.60 ({n} rows, "
            f"0.90 expected, p {new.p:.2g}).",
            "Fit it again.",
        ]


@pytest.mark.parametrize(("says", "right", "p"), [(0.9, True, 1.0), (0.95, False, 0.0), (1.0, True, 1.0)])
def test_rows_without_variance_are_judged_exactly(says, right, p):
    r, d, all_right = np.full(30, says), np.zeros(30, dtype=int), np.full(30, True)
    drifted = drift(fitted_on((r, d, all_right, None)), r[:21], d[:21], np.full(21, right), None)
    assert [cell.p for cell in drifted.cells] == [p]


def test_one_error_after_none_is_no_alarm():
    r, d = np.full(1000, 0.98), np.zeros(1000, dtype=int)
    assert drift(fitted_on((r, d, r > 0, None)), r[:50], d[:50], np.arange(50) > 0, None, level=0.05).holds


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


@settings(deadline=None, max_examples=40)
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
    cells, naive = drift(fitted_on(before), *now).cells, []
    for cell in cells:
        samples = []
        for r, d, z, _ in (before, now):
            kept = (d == cell.label) & ((r < cell.border) if cell.half == "lower" else (r >= cell.border))
            samples.append((z - r)[kept])
        naive.append(max(ttest_ind(*samples, equal_var=equal).pvalue for equal in (True, False)))
    # they count degrees of freedom otherwise, which hardly matters for so many rows
    assert [cell.p for cell in cells] == pytest.approx(holm(np.array(naive)), rel=0.1, abs=1e-4)


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
    generator, noticed, wrong = np.random.default_rng(0), 0, 0
    for _ in range(60):
        doc = fitted_on(drawn(generator, 2000, per_group=per_group))
        labels = {
            cell.label
            for cell in drift(doc, *drawn(generator, 2000, per_group=per_group, worse=0.1), level=level).changed
        }
        noticed += 1 in labels
        wrong += bool(labels - {1})
    assert noticed >= 54
    assert wrong <= 60 * level + 3 * np.sqrt(60 * level * (1 - level))


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


@pytest.mark.parametrize("per_group", [1, 10])
def test_neither_the_order_of_rows_nor_the_names_of_groups_matter(per_group):
    generator = np.random.default_rng(6)
    rows = r, d, z, group = drawn(generator, 1500, per_group=per_group)
    order = generator.permutation(1500)
    again = tuple(None if column is None else column[order] for column in rows)
    assert reference(*rows, 3) == reference(*again, 3)
    doc = fitted_on(drawn(generator, 800, per_group=per_group))
    assert drift(doc, *rows) == drift(doc, *again)
    names = None if group is None else np.array([f"q{number}" for number in group])
    assert [cell.p for cell in drift(doc, r, d, z, names).cells] == pytest.approx(
        [cell.p for cell in drift(doc, *rows).cells]
    )


def test_what_could_not_be_tested_is_said():
    generator = np.random.default_rng(8)
    doc = fitted_on(drawn(generator, 2000))
    r, d, z, _ = drawn(generator, 900)

    def tested(rows, made=doc, group=None) -> tuple[list[int], list[str]]:
        """The labels of which a half was tested, and the words."""
        drifted = drift(made, r[rows], d[rows], z[rows], group)
        assert drifted.holds
        return [cell.label for cell in drifted.cells if cell.p is not None], drifted.in_words(NAMES)

    labels, words = tested((d != 2) | (np.cumsum(d == 2) <= 9))  # nine new rows of a label
    assert labels == [0, 0, 1, 1]
    assert words[0].startswith("The map still holds")
    assert words[1].count("exact at reliability") == 2
    assert "at most 1% of evaluations" in words[-1]
    rare = tuple(cell.model_copy(update={"rows": 19}) for cell in doc.held_out.cells)
    few_held_out = held_out(halves=doc.held_out.halves, cells=rare)
    nine_groups = np.arange(900) // 100
    for untested in (tested(slice(15)), tested(slice(None), few_held_out), tested(slice(None), group=nine_groups)):
        assert untested[0] == []
        assert untested[1][0].startswith("It cannot be said")


def test_every_label_changed_still_takes_ten_lines_or_fewer():
    generator = np.random.default_rng(9)
    r, d, z, _ = drawn(generator, 3000)
    drifted = drift(fitted_on((r, d, z, None)), r, d, ~z, None)
    lines = drifted.in_words()
    assert len(drifted.changed) == 6
    assert len(lines) <= 10
    assert any("Nor for 1 more" in line for line in lines)
    plain = json.loads(json.dumps(drifted.as_json(), allow_nan=False))
    assert plain["holds"] is False
    assert [cell["label"] for cell in plain["cells"]] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("rows", "level", "told"),
    [(0, 0.01, "no labelled row"), *((1, level, r"such as 0\.01") for level in (0.0, 1.0, 5.0, np.nan))],
)
def test_what_no_test_can_be_made_of_is_refused(rows, level, told):
    some = np.full(rows, 0.5), np.zeros(rows, dtype=int), np.full(rows, True)
    assert rows or reference(*some, None, 3) == ((0.5, 0.5, 0.5), ())
    with pytest.raises(BadInput, match=told):
        drift(document(), *some, None, level=level)
