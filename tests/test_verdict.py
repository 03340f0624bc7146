"""The verdict compares what can be compared, derives each tolerance, and never judges simulated numbers."""

from __future__ import annotations

import dataclasses
import math
from itertools import product

import numpy as np
import polars as pl
import pytest

from tasks.protocol.keys import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS
from tasks.tables.deviations import Cell, Deviation, deviations, of_deviations
from tasks.tables.printed import FOLDER, TABLES, Place, as_number, placed, printed
from tasks.tables.runs import INTERVALS, METRICS, Runs
from tasks.tables.verdict import NOT_COMPARABLE, cell_of, verdict_table

ERROR = 0.002
RELIABILITY = ("nll_correct", "aupr_error", "aurc")


def csv(name: str) -> list[dict]:
    return pl.read_csv(FOLDER / f"{name}.csv").to_dicts()


Values = dict[tuple[str, str, str, str], float | tuple[float, float]]


def paper_values() -> Values:
    """(data set, calibrator, variant, metric) to mean (and deviation), as some table of the paper prints it."""
    return ablation_values() | main_values() | fallback_values() | spread_values() | simplex_values() | boosted_values()


def ablation_values() -> Values:
    """Every cell of a variant is its average."""
    return {
        (dataset, calibrator, row["variant"], metric): row[metric]
        for row in csv("ablation")
        for dataset in PAPER_DATASETS
        for calibrator in PAPER_CALIBRATORS
        for metric in ("nll_correct", "aupr_error", "aurc", "selacc_50")
    }


def main_values() -> Values:
    found: Values = {}
    for row in csv("main"):
        found[row["dataset"], row["calibrator"], "confidence", "accuracy"] = row["accuracy"]
        for metric, (variant, short) in product(RELIABILITY, (("confidence", "conf"), ("mrp", "mrp"))):
            value = row[f"{metric}_{short}"], row[f"{metric}_{short}_std"]
            found[row["dataset"], row["calibrator"], variant, metric] = value
    return found


def fallback_values() -> Values:
    found: Values = {}
    before = csv("ablation")[0]["selacc_50"]
    for row, calibrator, coverage in product(csv("budgeted_fallback")[:-1], PAPER_CALIBRATORS, (10, 50, 70, 90)):
        cell = row["dataset"], calibrator
        found[*cell, "confidence", f"selacc_{coverage}"] = before
        found[*cell, "mrp", f"selacc_{coverage}"] = before + row[f"delta_selacc_{coverage}"]
    return found


def spread_values() -> Values:
    found: Values = {}
    for row, calibrator in product(csv("label_spread"), PAPER_CALIBRATORS):
        found[row["dataset"], calibrator, "confidence", "label_spread"] = row["label_spread_pp"] / 100
        found[row["dataset"], calibrator, "confidence", "label_spread_null_p95"] = row["random_p95_pp"] / 100
    return found


def simplex_values() -> Values:
    found: Values = {}
    names = {"fixed_ece": "ece", "top_ece": "top_ece", "nll": "nll", "brier": "brier"}
    for row in csv("simplex_projection"):
        cell = row["dataset"], row["calibrator"]
        for (name, metric), (variant, short) in product(names.items(), (("confidence", "base"), ("mrc", "mrc"))):
            found[*cell, variant, metric] = row[f"{name}_{short}"]
        found[*cell, "mrc", "infeasible_share"] = row["q_below_uniform_pct"] / 100
        found[*cell, "mrc", "solved_share"] = row["solved_pct"] / 100
    return found


def boosted_values() -> Values:
    row = csv("robustness")[1]
    found: Values = {(BOOSTED, "uncal", "confidence", metric): row[metric] for metric in ("accuracy", "ece")}
    for metric, (variant, short) in product(RELIABILITY, (("confidence", "conf"), ("mrp", "mrp"))):
        found[BOOSTED, "uncal", variant, metric] = row[f"{metric}_{short}"]
    return found


def as_runs(source: str = "hub", **others: str) -> Runs:
    """Runs that are the paper's numbers to the digits that it prints; `others` name the source of single data sets."""
    values = paper_values()
    sources = {name: others.get(name, source) for name in (*PAPER_DATASETS, BOOSTED)}
    metrics = pl.DataFrame(
        [
            (dataset, sources[dataset], calibrator, seed, variant, metric, mean + (seed - 2) * std)
            for (dataset, calibrator, variant, metric), value in values.items()
            for mean, std in [value if isinstance(value, tuple) else (value, 0.0)]
            for seed in (1, 2, 3)
        ],
        schema=METRICS,
        orient="row",
    )
    cells = {(dataset, calibrator, metric) for dataset, calibrator, _, metric in values}
    intervals = pl.DataFrame(
        [
            (dataset, sources[dataset], calibrator, metric, quantity, 0.0, ERROR, -1.0, 1.0, None, 40)
            for dataset, calibrator, metric in sorted(cells)
            if metric not in ("infeasible_share", "solved_share", "label_spread_null_p95")
            for quantity in ("before", "after", "delta")
        ],
        schema=INTERVALS,
        orient="row",
    )
    sizes = {row["dataset"]: row["n_classes"] for row in csv("simplex_projection")}
    facts = [
        {"dataset": name, "source": sources[name], "labels": ["label"] * sizes.get(name, 5), "rows": {"test": 10_000}}
        for name in sources
    ]
    return Runs(metrics, intervals, facts=tuple(facts))


@pytest.fixture(scope="module")
def hub() -> Runs:
    return as_runs()


@pytest.fixture(scope="module")
def verdicts(hub) -> pl.DataFrame:
    return verdict_table(hub)


def changed(runs: Runs, by: float, *, dataset: str = "wands", calibrator: str = "ts", **where: str) -> Runs:
    """The same runs with `by` added to the values that `where` (variant, metric) names."""
    conditions = {"dataset": dataset, "calibrator": calibrator, **where}
    chosen = pl.all_horizontal(pl.col(name) == value for name, value in conditions.items())
    value = pl.when(chosen).then(pl.col("value") + by).otherwise("value").alias("value")
    return dataclasses.replace(runs, metrics=runs.metrics.with_columns(value))


def row_of(table: pl.DataFrame, name: str, dataset: str, row: str, column: str) -> dict:
    wanted = {"table": name, "dataset": dataset, "row": row, "column": column}
    return table.row(by_predicate=pl.all_horizontal(pl.col(k) == v for k, v in wanted.items()), named=True)


def main_row(runs: Runs, column: str) -> dict:
    return row_of(verdict_table(runs), "main", "wands", "ts", column)


def test_every_number_of_the_papers_result_tables_is_read():
    counts = pl.Series([number.place.table for number in printed()]).value_counts()
    # rows times columns of numbers; the robustness check leaves six cells of its first row open
    expected = {"main": 36 * 17, "budgeted_fallback": 7 * 4, "label_spread": 6 * 4, "ablation": 6 * 4}
    assert dict(counts.iter_rows()) == expected | {"simplex_projection": 36 * 15, "robustness": 2 * 8 - 6}
    assert len({number.place for number in printed()}) == len(printed())
    assert {path.stem for path in FOLDER.glob("*.csv")} == {table.key for table in TABLES}


def test_half_a_unit_is_that_of_the_printed_digits():
    half = {number.place: number.half_unit for number in printed()}
    assert half[Place("main", "wands", "ts", "aurc_mrp")] == 0.0005
    assert half[Place("ablation", "average", "mrp", "aurc")] == 0.00005
    assert half[Place("label_spread", "wands", "average", "ratio")] == 0.05
    assert half[Place("label_spread", "wands", "average", "runs_above_random")] == 0.5 / 18
    assert as_number("9/18") == 0.5


def test_the_papers_own_numbers_are_equal_or_near_and_nothing_is_off(verdicts):
    assert verdicts.height == len(printed())
    assert "off" not in verdicts["verdict"]
    # what the paper prints directly is equal; changes and averages of rounded numbers are off by a rounding at most
    direct = verdicts.filter(
        pl.col("column").str.contains("_(conf|mrp|base|mrc|std|pct|pp)$") & (pl.col("table") == "main")
    )
    assert set(direct["verdict"]) == {"equal"}
    assert set(verdicts.filter(pl.col("verdict") == NOT_COMPARABLE)["column"]) <= {"ratio"}
    assert verdicts["sign_agrees"].all(ignore_nulls=True)


@pytest.mark.parametrize(
    ("shift", "expected"), [(0.0004, "equal"), (0.0006, "near"), (0.003, "near"), (0.05, "off"), (-0.05, "off")]
)
def test_a_number_is_equal_near_or_off_by_its_distance(hub, shift, expected):
    row = main_row(changed(hub, shift, variant="mrp", metric="aurc"), "aurc_mrp")
    assert row["verdict"] == expected
    assert row["difference"] == pytest.approx(shift, abs=1e-12)


def test_the_tolerance_is_two_deviations_of_the_difference_and_half_a_unit(verdicts):
    row = row_of(verdicts, "main", "alloprof_rerank", "spline", "aupr_error_conf")
    assert row["tolerance"] == pytest.approx(2 * math.sqrt(2 * ERROR**2 + 2 * 0.009**2 / 3) + 0.0005)
    assert "0.009" in row["tolerance_from"]
    spread = row_of(verdicts, "label_spread", "wands", "average", "label_spread_pp")
    assert spread["tolerance"] == pytest.approx(100 * 2 * math.sqrt(2) * ERROR + 0.05)


def test_an_unknown_deviation_of_the_paper_is_taken_as_ours():
    ours = Deviation(standard_error=0.3, seeds=0.6, n_seeds=3, sampled="by hand")
    assert ours.tolerance(None, 0.0) == ours.tolerance(0.6, 0.0) == pytest.approx(2 * math.sqrt(0.18 + 0.24))
    assert "taken as ours" in ours.described(None)


def test_a_deviation_over_seeds_is_judged_by_how_much_such_deviations_vary():
    assert of_deviations(0.3, 0.4, 3, 0.0) == pytest.approx(2 * 0.25)
    generator = np.random.default_rng(0)
    deviation = generator.normal(size=(20_000, 3)).std(axis=1, ddof=1)
    assert np.std(deviation) == pytest.approx(0.5, abs=0.05)  # s / sqrt(2 (3 - 1)), asymptotically
    assert of_deviations(0.3, 0.4, 1, 0.0) is None


def test_within_a_data_set_errors_are_shared_and_across_data_sets_they_are_independent(hub):
    found = deviations(hub)
    assert found[Cell("wands", "average", "aurc", "delta")].standard_error == pytest.approx(ERROR)
    over_all = found[Cell("average", "average", "aurc", "delta")]
    assert over_all.standard_error == pytest.approx(ERROR / math.sqrt(6))
    assert over_all.n_seeds == 3
    linear = dataclasses.replace(hub, metrics=hub.metrics.filter(pl.col("dataset") != BOOSTED))
    assert deviations(linear)[Cell("average", "average", "aurc", "delta")] == over_all


def test_a_bootstrap_error_of_the_average_over_calibrators_is_preferred(hub):
    average = pl.DataFrame(
        [("wands", "hub", "average", "aurc", "delta", 0.0, 0.0007, -1.0, 1.0, 0.5, 40)],
        schema=INTERVALS,
        orient="row",
    )
    runs = dataclasses.replace(hub, intervals=pl.concat([hub.intervals, average]))
    assert deviations(runs)[Cell("wands", "average", "aurc", "delta")].standard_error == 0.0007


def test_without_intervals_a_number_that_differs_is_not_comparable_but_an_equal_one_is(hub):
    runs = dataclasses.replace(hub, intervals=INTERVALS.to_frame())
    assert main_row(runs, "aurc_mrp")["verdict"] == "equal"
    row = main_row(changed(runs, 0.003, variant="mrp", metric="aurc"), "aurc_mrp")
    assert (row["verdict"], row["tolerance"]) == (NOT_COMPARABLE, None)
    assert "no tolerance" in row["reason"]


def test_a_change_of_the_other_sign_is_said_to_disagree(hub):
    row = main_row(changed(hub, 0.02, variant="mrp", metric="aurc"), "aurc_delta")
    assert row["sign_agrees"] is False
    assert main_row(hub, "aurc_delta")["sign_agrees"] is True
    assert main_row(hub, "aurc_mrp")["sign_agrees"] is None


def test_a_change_that_the_paper_prints_as_zero_has_no_sign(verdicts):
    assert row_of(verdicts, "budgeted_fallback", "alloprof_rerank", "average", "delta_selacc_10")["sign_agrees"] is None


def test_simulated_data_get_one_line_that_says_why_there_is_no_comparison():
    table = verdict_table(as_runs("simulated"))
    assert table.height == 1
    assert table["verdict"].item() == NOT_COMPARABLE
    assert table["ours"].item() is None
    assert all(f"{name} (simulated)" in table["reason"].item() for name in PAPER_DATASETS)


@pytest.mark.parametrize("name", ["wands", BOOSTED])
def test_one_simulated_set_among_official_ones_is_one_line_and_there_are_no_averages_with_it(name):
    table = verdict_table(as_runs(**{name: "simulated"}))
    (row,) = table.filter(pl.col("dataset") == name).to_dicts()
    assert (row["verdict"], row["source"], row["ours"]) == (NOT_COMPARABLE, "simulated", None)
    averages = table.filter(pl.col("dataset") == "average")["verdict"]
    assert (averages.to_list() == [NOT_COMPARABLE]) == (name in PAPER_DATASETS)
    assert set(table.filter(pl.col("dataset") == "scidocs")["source"]) == {"hub"}
    assert "off" not in table["verdict"]


def test_a_set_that_failed_and_one_that_was_never_run_are_lines_too(hub):
    without = hub.metrics.filter(~pl.col("dataset").is_in(["wands", "scidocs"]))
    table = verdict_table(dataclasses.replace(hub, metrics=without, missing=("wands",)))
    reasons = dict(table.filter(pl.col("table") == "all").select("dataset", "reason").iter_rows())
    assert "failed" in reasons["wands"]
    assert "not run" in reasons["scidocs"]


@pytest.mark.parametrize("more", [False, True], ids=["two of six", "a seventh"])
def test_averages_are_compared_only_over_the_six_calibrators(hub, more):
    ts = hub.metrics.filter(calibrator="ts")
    fewer = hub.metrics.filter(pl.col("calibrator").is_in(["uncal", "ts"]))
    metrics = pl.concat([hub.metrics, ts.with_columns(calibrator=pl.lit("beta"))]) if more else fewer
    calibrators = (*PAPER_CALIBRATORS, "beta") if more else PAPER_CALIBRATORS
    table = verdict_table(dataclasses.replace(hub, metrics=metrics, calibrators=calibrators))
    averages = table.filter((pl.col("dataset") == "average") | (pl.col("row") == "average"))
    assert {"wands", "average"} < set(averages["dataset"])
    assert averages["reason"].str.contains("six calibrators").all()
    assert set(averages["verdict"]) == {NOT_COMPARABLE}
    assert row_of(table, "main", "wands", "ts", "aurc_mrp")["verdict"] == "equal"
    assert more or row_of(table, "main", "wands", "smart", "aurc_mrp")["reason"] == "not measured in this run"


def test_every_number_but_counts_ratios_and_shuffles_has_a_cell_that_varies(hub):
    found = deviations(hub)
    without = {number.place.column for number in printed() if cell_of(number.place) not in found}
    assert without == {"n_classes", "random_p95_pp", "ratio", "runs_above_random"}


def test_shares_of_rows_have_binomial_errors(hub):
    share = deviations(hub)[Cell("esci_rerank_us", "ts", "infeasible_share", "after")]
    assert share.standard_error == pytest.approx(math.sqrt(0.376 * 0.624 / 10_000))


def test_what_was_inferred_from_the_paper_is_named_where_it_bears_and_nowhere_else(verdicts):
    bears = (pl.col("row") == "ts") | pl.col("table").is_in(["ablation", "budgeted_fallback", "label_spread"])
    assert set(verdicts.filter(bears)["chosen_to_match"]) == {"ts: solved to the optimum"}
    assert set(verdicts.filter(~bears)["chosen_to_match"]) == {""}
    assert "two places" in verdict_table.note  # where the release differs from the text


def test_the_order_of_rows_changes_nothing(hub, verdicts):
    shuffled = dataclasses.replace(
        hub,
        metrics=hub.metrics.sample(fraction=1, shuffle=True, seed=0),
        intervals=hub.intervals.sample(fraction=1, shuffle=True, seed=0),
    )
    assert verdict_table(shuffled).equals(verdicts)


def test_a_table_is_taken_apart_into_its_filled_cells():
    table = pl.DataFrame({"variant": ["mrp"], "aurc": [0.5], "nll_correct": [None], "ours": [False], "source": ["x"]})
    assert placed("ablation", table) == {Place("ablation", "average", "mrp", "aurc"): 0.5}
