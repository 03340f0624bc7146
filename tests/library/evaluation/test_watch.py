"""Comparison of new rows without labels with the fit rows of a map."""

import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2_contingency
from scipy.stats import f as fisher

from relmap import InputError, ReliabilityMap
from relmap.evaluation.watch import (
    LEVEL,
    MIN_ROWS,
    POWER,
    ColumnChange,
    ColumnCounts,
    _join_rare,
    compare_counts,
    find_detectable_change,
    watch_file,
)
from relmap.io.frames import FramePredictions
from relmap.maps.document import MapDocument, Seen, SeenColumn
from relmap.report.watch import describe_ranges, shares_svg
from tests.maps import run_command


def simulate(n_rows: int, seed: int, *, offset: float = 0.0, scale: float = 1.0) -> pl.DataFrame:
    """Simulate logits of three labels; the first label is more frequent with an offset."""
    generator = np.random.default_rng(seed)
    logits = (2 * generator.normal(size=(n_rows, 3)) + [1 + offset, 0, -1]) * scale
    label = (logits - [0, 0.6, 1.2] + generator.gumbel(size=(n_rows, 3))).argmax(axis=1)
    return pl.DataFrame({"logits": logits.tolist(), "label": label, "query": np.arange(n_rows) // 10})


FIT_ROWS = simulate(1000, 1).with_columns(length=pl.Series(np.random.default_rng(0).normal(size=1000)))


def test_rare_ranges_are_joined_from_the_first_on_and_the_rest_with_the_last():
    # of 20 rows in each sample, 4, 1, 4, 1, 7 and 3 are expected; a range needs 5
    fit = [3, 2, 4, 1, 7, 3]
    new = [5, 0, 4, 1, 7, 3]
    assert _join_rare(np.array([fit, new], dtype=float)).tolist() == [[5, 5, 10], [5, 5, 10]]


@pytest.fixture(scope="module")
def model() -> ReliabilityMap:
    return ReliabilityMap(signals=("length",)).fit(FIT_ROWS)


def new_rows(seed: int, n_rows: int = 1000, **shift: float) -> pl.DataFrame:
    rows = simulate(n_rows, seed, **shift).drop("label")
    return rows.with_columns(length=pl.Series(np.random.default_rng(seed).normal(size=n_rows)))


def watch(model: ReliabilityMap, rows: pl.DataFrame, group: str | None = None):
    return watch_file(model.document_, FramePredictions(rows, sha256=""), group)


def test_the_fit_rows_themselves_have_not_changed(model):
    result = watch(model, FIT_ROWS.drop("label"))
    assert {change.p_value for change in result.columns} == {1.0}
    assert {change.column for change in result.columns} == {"decision", "confidence", "reliability", "length"}
    assert result.automatic_new == result.automatic_fit == pytest.approx(0.7, abs=0.02)


def test_rows_of_the_same_distribution_rarely_raise_an_alarm(model):
    alarms = sum(bool(watch(model, new_rows(seed)).changed) for seed in range(2, 42))
    assert alarms <= 3


@pytest.mark.parametrize(
    ("shift", "column"),
    [({"offset": 1.0}, "decision"), ({"scale": 1.6}, "confidence"), ({"scale": 0.5}, "reliability")],
)
def test_a_shift_is_found_and_named(model, shift, column):
    result = watch(model, new_rows(2, **shift))
    assert column in {change.column for change in result.changed}
    assert "length" not in {change.column for change in result.changed}


def test_a_shifted_signal_is_named(model):
    result = watch(model, new_rows(2).with_columns(pl.col("length") + 1))
    (change,) = result.changed
    assert change.column == "length"
    assert change.share_new > change.share_fit + 0.2


def test_a_rise_for_one_label_and_a_fall_for_another_are_found_within_the_labels():
    generator = np.random.default_rng(3)

    def simulate_confidences(n_rows: int, shift: float) -> pl.DataFrame:
        decision = generator.integers(0, 2, n_rows)
        score = generator.normal(size=n_rows) + np.where(decision == 0, -shift, shift)
        confidence = 0.5 + 0.5 / (1 + np.exp(-score))
        label = np.where(generator.random(n_rows) < confidence, decision, 1 - decision)
        return pl.DataFrame({"decision": decision, "confidence": confidence, "label": label})

    model = ReliabilityMap().fit(simulate_confidences(1000, 0.0))
    changed = watch(model, simulate_confidences(800, 0.35).drop("label")).changed
    assert {(change.column, change.label) for change in changed} == {("confidence", 0), ("confidence", 1)}
    falls = {change.label: change.share_new < change.share_fit for change in changed}
    assert falls == {0: True, 1: False}
    assert "rows decided no" in next(c for c in changed if c.label == 0).describe(["no", "yes"])
    earlier = model.document_.seen.model_copy(
        update={"columns": tuple(column for column in model.document_.seen.columns if column.label is None)}
    )
    without = model.document_.model_copy(update={"seen": earlier})  # as written before labels were counted
    rows = FramePredictions(simulate_confidences(800, 0.35).drop("label"), sha256="")
    assert {change.label for change in watch_file(without, rows).columns} == {None}


def test_given_thresholds_replace_the_default_threshold(model):
    rows = new_rows(2)
    thresholds = np.array([0.5, 0.9, np.inf])
    result = watch_file(model.document_, FramePredictions(rows, sha256=""), thresholds=thresholds)
    is_automatic = model.reliability(rows).to_numpy() >= thresholds[model.predict(rows).astype(int)]
    assert result.automatic_new == is_automatic.mean()
    assert result.automatic_fit is None
    assert watch(model, rows).automatic_fit == model.document_.seen.automatic


def test_the_accuracy_at_the_fit_is_that_of_the_fit_rows_unless_they_have_weights(model):
    correct = model.predict(FIT_ROWS).astype(int) == FIT_ROWS["label"].to_numpy()
    assert watch(model, new_rows(2)).accuracy_fit == pytest.approx(correct.mean())
    weighted = ReliabilityMap().fit(FIT_ROWS.with_columns(inverse_probability=1.0 + pl.int_range(1000) % 2))
    assert watch(weighted, new_rows(2)).accuracy_fit is None


def test_the_named_decision_is_the_one_that_changed_most(model):
    change = next(change for change in watch(model, new_rows(2, offset=1.0)).columns if change.column == "decision")
    assert change.place == 0
    assert change.share_new > change.share_fit
    assert sum(change.shares_new) == pytest.approx(1)


def test_the_expected_accuracy_is_the_mean_reliability(model):
    rows = new_rows(2)
    reliability = model.reliability(rows).to_numpy()
    result = watch(model, rows)
    assert result.expected_accuracy == pytest.approx(reliability.mean())
    is_automatic = reliability >= model.document_.default_threshold
    assert result.expected_automatic == pytest.approx(reliability[is_automatic].mean())


def test_the_p_value_of_two_decisions_is_that_of_scipy(model):
    rows = new_rows(2, offset=0.4)
    change = next(change for change in watch(model, rows).columns if change.column == "decision")
    fit = np.bincount(model.predict(FIT_ROWS).astype(int), minlength=3)
    new = np.bincount(model.predict(rows).astype(int), minlength=3)
    expected = chi2_contingency(np.vstack([fit, new]), correction=False).pvalue
    assert expected <= change.p_value <= 7 * expected + 1e-12  # Holm's adjustment of seven tests


def compare_decisions(seen: SeenColumn, new: ColumnCounts, groups: int | None = None) -> ColumnChange:
    (change,) = compare_counts(Seen(groups=groups, automatic=0.5, columns=(seen,)), {("decision", None): new})
    return change


@pytest.mark.parametrize(
    ("groups_fit", "groups_new", "degrees_of_freedom"),
    [(20, 30, 48), (20, None, 38), (None, 30, 58), (1, 1, 1)],  # unknown groups are as many as the known ones
)
def test_the_p_value_of_grouped_rows_is_that_of_an_f_distribution(groups_fit, groups_new, degrees_of_freedom):
    seen = SeenColumn(column="decision", edges=(), counts=(120.0, 60.0, 60.0), effect=2.0)
    change = compare_decisions(seen, ColumnCounts(np.array([60.0, 60.0, 90.0]), 3.0, groups_new), groups_fit)
    statistic = chi2_contingency([[60, 30, 30], [20, 20, 30]], correction=False).statistic
    assert change.p_value == pytest.approx(fisher.sf(statistic / 2, 2, degrees_of_freedom))


@pytest.mark.parametrize(("counts", "shares"), [([0, 1], (0, 1)), ([1, 3], (0.25, 0.75)), ([0, 0], (0, 0))])
def test_few_new_rows_have_shares_and_no_test(counts, shares):
    seen = SeenColumn(column="decision", edges=(), counts=(50.0, 50.0), effect=1.0)
    change = compare_decisions(seen, ColumnCounts(np.array(counts)))
    assert change.shares_new == shares
    assert change.p_value == 1


def test_repeated_rows_of_a_group_are_no_evidence(model):
    few = new_rows(2, n_rows=60, scale=1.3)
    repeated = pl.concat([few.with_columns(query=pl.int_range(60))] * 20)
    as_groups = watch(model, repeated, "query")
    as_rows = watch(model, repeated.with_columns(query=pl.int_range(1200)), "query")
    assert min(change.p_value for change in as_groups.columns) > 1000 * min(
        change.p_value for change in as_rows.columns
    )


@pytest.mark.parametrize(("shares", "n_rows"), [((0.5, 0.5), 59), ((0.6, 0.3, 0.1), 300)])
def test_a_detectable_change_is_found_with_the_stated_power(shares, n_rows):
    share = np.array(shares)
    seen = SeenColumn(column="decision", edges=(), counts=tuple((1000 * share).tolist()), effect=1.0)
    change = find_detectable_change(seen, ColumnCounts(n_rows * share), n_tests=1)
    changed = share * (share[0] - change) / share[0]  # the label that is nearest to one half needs the largest change
    changed[0] = share[0] - change
    changed[1:] = share[1:] * (1 + change / (1 - share[0]))
    generator = np.random.default_rng(0)
    n_found = 0
    for _ in range(400):
        tables = np.vstack([generator.multinomial(1000, share), generator.multinomial(n_rows, changed)])
        n_found += chi2_contingency(tables, correction=False).pvalue <= LEVEL
    assert n_found / 400 == pytest.approx(POWER, abs=0.07)


def test_more_rows_find_smaller_changes_and_groups_only_larger_ones():
    seen = SeenColumn(column="decision", edges=(), counts=(1000.0, 500.0), effect=1.0)
    few, many = (find_detectable_change(seen, ColumnCounts(np.array([n, n]), 1.0), n_tests=3) for n in (50, 500))
    assert many < few / 2
    assert find_detectable_change(seen, ColumnCounts(np.array([50, 50]), 1.0), n_tests=1) < few
    assert find_detectable_change(seen, ColumnCounts(np.array([500, 500]), 10.0), n_tests=3) == pytest.approx(few)


def test_rows_with_a_single_decision_have_no_detectable_change(model):
    seen = SeenColumn(column="decision", edges=(), counts=(990.0, 10.0), effect=1.0)
    assert find_detectable_change(seen, ColumnCounts(np.array([30, 0]), 1.0), n_tests=3) is None
    lines = replace(watch(model, new_rows(2)), detectable_change=None).describe(["a", "b", "c"])
    assert "cannot be tested" in lines[1]


def test_the_groups_of_the_map_are_used_and_a_note_says_if_their_column_is_missing():
    model = ReliabilityMap().fit(FIT_ROWS, groups="query")
    rows = new_rows(2)
    remembered = watch(model, rows)
    named = watch(model, rows, "query")
    assert remembered.as_json("abc") == named.as_json("abc")
    assert "grouped by query" in remembered.notes[0]
    assert named.notes == ()
    without = watch(model, rows.drop("query"))
    assert re.search("query.*lacks.*--group", without.notes[0])


def test_bars_of_a_figure_do_not_overlap_and_every_range_has_its_label(model):
    # the decision comes first, because it changed most
    result = watch(model, new_rows(2, offset=1.5))
    assert result.columns[0].column == "decision"
    svg = ElementTree.fromstring(shares_svg(result, ["bad", "fair", "good"]))
    marks = [item for item in svg.iter() if "role-mark" in (item.get("class") or "")]
    shown = [change for change in result.columns if change.label is None or change in result.changed]
    assert len(marks) == len(shown)
    for panel, change in zip(marks, shown, strict=True):
        bars = []
        for bar in panel:
            left, width = re.match(r"M([\d.]+),[\d.]+h([\d.]+)v", bar.get("d")).groups()
            bars.append((float(left), float(left) + float(width)))
        assert len(bars) == 2 * len(change.shares_fit)
        bars.sort()
        assert all(right <= next_left + 1e-6 for (_, right), (next_left, _) in pairwise(bars))
        assert bars[-1][1] <= 480
    texts = [item.text for item in svg.iter() if item.tag.endswith("text") and item.get("opacity") != "0"]
    is_range = re.compile("below .*|.* to .*|.* or more|bad|fair|good")
    assert sum(bool(is_range.fullmatch(text)) for text in texts) == sum(len(c.shares_fit) for c in shown)


@pytest.mark.parametrize("edges", [(), (0.5,), (0.99991, 0.99992, 0.99996), (1e-9, 2e-9, 3.0)])
def test_every_range_has_its_own_description(edges):
    descriptions = describe_ranges(edges)
    assert len(set(descriptions)) == len(edges) + 1


def test_apply_names_what_changed_and_the_command_that_tests_it(model, tmp_path):
    model.save(tmp_path / "map.json")
    new_file = tmp_path / "new rows.parquet"
    for rows, is_changed in ((new_rows(2), False), (new_rows(3, scale=1.6), True)):
        rows.write_parquet(new_file)
        lines = run_command(
            *("apply", "--map", tmp_path / "map.json", "--predictions", new_file, "--out", tmp_path / "out.parquet")
        )
        commands = re.findall("`relmap (watch .*)`", "\n".join(lines))
        assert len(commands) == is_changed
        assert any("eliability at least" in line for line in lines) == is_changed
    assert run_command(*shlex.split(commands[0]), "--fail-on-change") == 3


def test_the_command_writes_numbers_a_chart_and_an_exit_status(model, tmp_path, capsys):
    model.save(tmp_path / "map.json")
    new_rows(3, scale=1.6).write_parquet(tmp_path / "new.parquet")
    command = ("watch", "--map", tmp_path / "map.json", "--predictions", tmp_path / "new.parquet")
    run_command(*command, "--out", tmp_path / "out.json", "--figure", tmp_path / "out.svg")
    assert (tmp_path / "out.svg").read_text().startswith("<svg")
    assert capsys.readouterr().out == ""
    assert run_command(*command, "--fail-on-change") == 3
    printed = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "out.json").read_text())
    assert printed.pop("at") >= written.pop("at")
    assert printed == written
    assert printed["changed"]
    for column in printed["columns"]:
        assert column["changed"] == (column["p"] <= printed["level"])
        assert (column["place_label"] is None) == (column["column"] != "decision")


def test_few_rows_and_earlier_maps_are_refused(model):
    with pytest.raises(InputError, match=f"at least {MIN_ROWS}"):
        watch(model, new_rows(2, n_rows=5))
    earlier = model.document_.model_copy(update={"seen": None})
    with pytest.raises(InputError, match="earlier version"):
        watch_file(earlier, FramePredictions(new_rows(2), sha256=""))


def test_counts_that_do_not_fit_the_map_are_refused(model):
    content = model.document_.model_dump(mode="json")
    content["seen"]["columns"][0]["counts"].append(3.0)
    with pytest.raises(ValueError, match=r"seen: decision .*4 counts"):
        MapDocument.model_validate_json(json.dumps(content))
