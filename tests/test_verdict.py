"""The verdict compares what can be compared, derives each tolerance, and never judges simulated numbers."""

import dataclasses
import math
from itertools import product

import polars as pl
import pytest

from tasks.metrics.registry import COMPARED
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs
from tasks.tables.verdict import FOLDER, NOT_COMPARABLE, PLACE, TABLES, placed, printed, verdict_table
from tests.report_data import INTERVALS, frame, runs_of

ERROR = 0.002  # of every bootstrap
BINOMIAL = math.sqrt(0.376 * 0.624 / 10_000)  # of the share that one cell of the paper prints
SIDES = (("confidence", "conf"), ("mrp", "mrp"))


def csv(name: str) -> list[dict]:
    return pl.read_csv(FOLDER / f"{name}.csv").to_dicts()


def paper_values() -> dict[tuple[str, str, str, str], tuple[float, float, float]]:
    """(data set, calibrator, variant, metric) to three seeds with the mean (and deviation) that some table prints."""
    means: dict[tuple[str, str, str, str], float] = {}
    deviations: dict[tuple[str, str, str, str], float] = {}
    averages = csv("ablation")
    for row, metric, *cell in product(averages, (*COMPARED, "selacc_50"), PAPER_DATASETS, PAPER_CALIBRATORS):
        means[*cell, row["variant"], metric] = row[metric]  # every cell is the average of its variant
    for row, metric, (variant, short) in product(csv("main"), COMPARED, SIDES):
        cell = row["dataset"], row["calibrator"]
        means[*cell, "confidence", "accuracy"] = row["accuracy"]
        means[*cell, variant, metric] = row[f"{metric}_{short}"]
        deviations[*cell, variant, metric] = row[f"{metric}_{short}_std"]
    for row, calibrator, kept in product(csv("budgeted_fallback")[:-1], PAPER_CALIBRATORS, (10, 50, 70, 90)):
        cell, metric, before = (row["dataset"], calibrator), f"selacc_{kept}", averages[0]["selacc_50"]
        means[*cell, "confidence", metric] = before
        means[*cell, "mrp", metric] = before + row[f"delta_selacc_{kept}"]
    for row, calibrator in product(csv("label_spread"), PAPER_CALIBRATORS):
        for metric, column in (("label_spread", "label_spread_pp"), ("label_spread_null_p95", "random_p95_pp")):
            means[row["dataset"], calibrator, "confidence", metric] = row[column] / 100
    names = {"fixed_ece": "ece", "top_ece": "top_ece", "nll": "nll", "brier": "brier"}
    for row, (name, metric) in product(csv("simplex_projection"), names.items()):
        cell = row["dataset"], row["calibrator"]
        means[*cell, "confidence", metric], means[*cell, "mrc", metric] = row[f"{name}_base"], row[f"{name}_mrc"]
        for share, column in (("infeasible_share", "q_below_uniform_pct"), ("solved_share", "solved_pct")):
            means[*cell, "mrc", share] = row[column] / 100
    columns = {("confidence", name): name for name in ("accuracy", "ece")}
    columns |= {(variant, metric): f"{metric}_{short}" for metric, (variant, short) in product(COMPARED, SIDES)}
    means |= {(BOOSTED, "uncal", *which): csv("robustness")[1][column] for which, column in columns.items()}
    return {key: tuple(mean + at * deviations.get(key, 0) for at in (-1, 0, 1)) for key, mean in means.items()}


def as_runs(source: str = "hub", **others: str) -> Runs:
    """Runs that are the paper's numbers to the digits that it prints; `others` name the source of single data sets."""
    values = paper_values()
    sources = dict.fromkeys((*PAPER_DATASETS, BOOSTED), source) | others
    cells = sorted({(dataset, calibrator, metric) for dataset, calibrator, _, metric in values})
    intervals = (
        (dataset, sources[dataset], calibrator, metric, quantity, 0.0, ERROR, -1.0, 1.0, None, 40)
        for (dataset, calibrator, metric), quantity in product(cells, ("before", "after", "delta"))
        if not metric.endswith(("_share", "null_p95"))
    )
    sizes = {row["dataset"]: row["n_classes"] for row in csv("simplex_projection")}
    return runs_of(values, sources, sizes, intervals=frame(INTERVALS, *intervals))


@pytest.fixture(scope="module")
def hub() -> Runs:
    return as_runs()


@pytest.fixture(scope="module")
def verdicts(hub) -> pl.DataFrame:
    return verdict_table(hub)


def changed(runs: Runs, by: float) -> Runs:
    """The same with `by` added to MRP's AURC on `wands` under `ts`."""
    value = pl.when(dataset="wands", calibrator="ts", variant="mrp", metric="aurc").then(pl.col("value") + by)
    return dataclasses.replace(runs, metrics=runs.metrics.with_columns(value=value.otherwise("value")))


def row_of(table: pl.DataFrame, *place: str) -> dict:
    return table.filter(**dict(zip(PLACE, place, strict=True))).row(0, named=True)


def main_row(runs: Runs, column: str) -> dict:
    return row_of(verdict_table(runs), "main", "wands", "ts", column)


def tolerance(seeds: float, paper_seeds: float, error: float = ERROR, half_unit: float = 0.0005) -> float:
    return pytest.approx(2 * math.sqrt(2 * error**2 + (seeds**2 + paper_seeds**2) / 3) + half_unit)


def test_every_number_of_the_papers_result_tables_is_read_with_half_a_unit_of_its_last_digit():
    numbers = printed()
    # rows times columns of numbers; the robustness check leaves six cells of its first row open
    expected = {"main": 36 * 17, "budgeted_fallback": 7 * 4, "label_spread": 6 * 4, "ablation": 6 * 4}
    expected |= {"simplex_projection": 36 * 15, "robustness": 2 * 8 - 6}
    assert dict(numbers["table"].value_counts().iter_rows()) == expected
    assert numbers.select("table", "dataset", "row", "column").is_unique().all()
    assert {path.stem for path in FOLDER.glob("*.csv")} == {table.key for table in TABLES}
    for place, half_unit in {
        ("main", "wands", "ts", "aurc_mrp"): 0.0005,
        ("ablation", "average", "mrp", "aurc"): 0.00005,
        ("label_spread", "wands", "average", "ratio"): 0.05,
        ("label_spread", "wands", "average", "runs_above_random"): 0.5 / 18,
    }.items():
        assert row_of(numbers, *place)["half_unit"] == pytest.approx(half_unit, abs=1e-15)


def test_a_table_is_taken_apart_into_its_filled_cells_and_a_count_is_a_share():
    table = pl.DataFrame({"variant": ["mrp"], "aurc": [0.1 + 0.2], "nll_correct": [None], "source": ["x"]})
    cells = placed("ablation", table.with_columns(ours=False, runs=pl.lit("9/18"))).drop("half_unit")
    place = "ablation", "average", "mrp"
    assert cells.rows() == [(*place, "aurc", 0.1 + 0.2), (*place, "runs", 0.5)]


def test_the_papers_own_numbers_are_equal_or_near_and_nothing_is_off(verdicts):
    assert verdicts.height == len(printed())
    assert "off" not in verdicts["verdict"]
    # what the paper prints directly is equal; changes and averages of rounded numbers are off by a rounding at most
    direct = verdicts.filter(pl.col("column").str.contains("_(conf|mrp|std)$"), table="main")
    assert set(direct["verdict"]) == {"equal"}
    assert set(verdicts.filter(verdict=NOT_COMPARABLE)["column"]) <= {"ratio"}
    assert verdicts["sign_agrees"].all(ignore_nulls=True)


@pytest.mark.parametrize(
    ("shift", "expected"), [(0.0004, "equal"), (0.0006, "near"), (0.003, "near"), (0.05, "off"), (-0.05, "off")]
)
def test_a_number_is_equal_near_or_off_by_its_distance(hub, shift, expected):
    row = main_row(changed(hub, shift), "aurc_mrp")
    assert row["verdict"] == expected
    assert row["difference"] == pytest.approx(shift, abs=1e-12)


def test_the_tolerance_is_two_deviations_of_the_difference_and_half_a_unit(verdicts):
    place = "main", "alloprof_rerank", "spline"
    paper = next(row for row in csv("main") if (row["dataset"], row["calibrator"]) == place[1:])
    before, after = paper["aupr_error_conf_std"], paper["aupr_error_mrp_std"]
    mean, change, spread = (row_of(verdicts, *place, f"aupr_error_{of}") for of in ("conf", "delta", "conf_std"))
    assert mean["tolerance"] == tolerance(before, before)
    assert f"the paper's {before}" in mean["tolerance_from"]
    # the paper prints no deviation of a change
    assert change["tolerance"] == tolerance(before - after, before - after)
    assert "taken as ours" in change["tolerance_from"]
    # a deviation over seeds varies by s / sqrt(2 (3 - 1)), asymptotically
    assert spread["tolerance"] == pytest.approx(2 * math.sqrt(2) * before / 2 + 0.0005)


@pytest.mark.parametrize(
    ("place", "error", "half_unit"),
    [
        (("budgeted_fallback", "wands", "average", "delta_selacc_50"), ERROR, 0.0005),  # calibrators share the rows
        (("budgeted_fallback", "average", "average", "delta_selacc_50"), ERROR / math.sqrt(6), 0.0005),  # sets do not
        (("label_spread", "wands", "average", "label_spread_pp"), 100 * ERROR, 0.05),
        (("simplex_projection", "esci_rerank_us", "ts", "q_below_uniform_pct"), 100 * BINOMIAL, 0.05),
    ],
    ids=["calibrators", "data sets", "points", "share of rows"],
)
def test_the_sampling_error_of_means_and_shares(verdicts, place, error, half_unit):
    assert row_of(verdicts, *place)["tolerance"] == tolerance(0, 0, error, half_unit)


def test_a_bootstrap_error_of_the_average_over_calibrators_is_preferred(hub):
    average = frame(INTERVALS, ("wands", "hub", "average", "selacc_50", "delta", 0.0, 0.0007, -1.0, 1.0, 0.5, 40))
    runs = dataclasses.replace(hub, intervals=pl.concat([hub.intervals, average]))
    row = row_of(verdict_table(runs), "budgeted_fallback", "wands", "average", "delta_selacc_50")
    assert row["tolerance"] == tolerance(0, 0, 0.0007)


LACKING = {
    "intervals": lambda runs: dataclasses.replace(runs, intervals=INTERVALS.to_frame()),
    "seeds": lambda runs: dataclasses.replace(runs, metrics=runs.metrics.filter(seed=2)),
}


@pytest.mark.parametrize("without", LACKING.values(), ids=LACKING)
def test_without_a_tolerance_a_number_that_differs_is_not_comparable_but_an_equal_one_is(hub, verdicts, without):
    assert main_row(without(hub), "aurc_mrp")["verdict"] == "equal"
    row = main_row(without(changed(hub, 0.003)), "aurc_mrp")
    assert (row["verdict"], row["tolerance"]) == (NOT_COMPARABLE, None)
    assert "no tolerance" in row["reason"]
    untold = set(verdicts.filter(pl.col("tolerance").is_null())["column"])
    assert untold == {"n_classes", "random_p95_pp", "ratio", "runs_above_random"}


def test_only_a_change_that_the_paper_prints_as_one_has_a_sign_and_may_disagree(hub, verdicts):
    assert main_row(changed(hub, 0.02), "aurc_delta")["sign_agrees"] is False
    assert main_row(hub, "aurc_delta")["sign_agrees"] is True
    assert main_row(hub, "aurc_mrp")["sign_agrees"] is None
    zero = row_of(verdicts, "budgeted_fallback", "alloprof_rerank", "average", "delta_selacc_10")
    assert (zero["paper"], zero["sign_agrees"]) == (0, None)


def test_simulated_data_get_one_line_that_says_why_there_is_no_comparison():
    (row,) = verdict_table(as_runs("simulated")).to_dicts()
    assert (row["verdict"], row["ours"]) == (NOT_COMPARABLE, None)
    assert all(f"{name} (simulated)" in row["reason"] for name in PAPER_DATASETS)


@pytest.mark.parametrize("source", ["simulated", "failed", "not run"])
@pytest.mark.parametrize("name", ["wands", BOOSTED])
def test_one_set_that_is_not_official_is_one_line_and_there_are_no_averages_with_it(hub, name, source):
    runs = as_runs(**{name: source})
    if source != "simulated":
        missing = (name,) if source == "failed" else ()
        runs = dataclasses.replace(hub, metrics=hub.metrics.filter(pl.col("dataset") != name), missing=missing)
    table = verdict_table(runs)
    (row,) = table.filter(dataset=name).to_dicts()
    assert (row["table"], row["verdict"], row["ours"]) == ("all", NOT_COMPARABLE, None)
    assert (source in row["reason"], row["source"]) == (True, "" if source == "not run" else source)
    averages = table.filter(dataset="average")["verdict"].to_list()
    assert (averages == [NOT_COMPARABLE]) == (name in PAPER_DATASETS)
    assert set(table.filter(dataset="scidocs")["source"]) == {"hub"}
    assert "off" not in table["verdict"]


@pytest.mark.parametrize("more", [False, True], ids=["two of six", "a seventh"])
def test_averages_are_compared_only_over_the_six_calibrators(hub, more):
    seventh = pl.concat([hub.metrics, hub.metrics.filter(calibrator="ts").with_columns(calibrator=pl.lit("beta"))])
    metrics = seventh if more else hub.metrics.filter(pl.col("calibrator").is_in(["uncal", "ts"]))
    calibrators = (*PAPER_CALIBRATORS, "beta") if more else PAPER_CALIBRATORS
    table = verdict_table(dataclasses.replace(hub, metrics=metrics, calibrators=calibrators))
    averages = table.filter((pl.col("dataset") == "average") | (pl.col("row") == "average"))
    assert {"wands", "average"} < set(averages["dataset"])
    assert averages["reason"].str.contains("six calibrators").all()
    assert set(averages["verdict"]) == {NOT_COMPARABLE}
    assert row_of(table, "main", "wands", "ts", "aurc_mrp")["verdict"] == "equal"
    assert more or row_of(table, "main", "wands", "smart", "aurc_mrp")["reason"] == "not measured in this run"


def test_what_was_inferred_from_the_paper_is_named_where_it_bears_and_nowhere_else(verdicts):
    bears = (pl.col("row") == "ts") | pl.col("table").is_in(["ablation", "budgeted_fallback", "label_spread"])
    assert set(verdicts.filter(bears)["chosen_to_match"]) == {"ts: solved to the optimum"}
    assert set(verdicts.filter(~bears)["chosen_to_match"]) == {""}
    assert "two places" in verdict_table.note  # where the release differs from the text


def test_the_order_of_rows_changes_nothing(hub, verdicts):
    shuffled = {name: getattr(hub, name).sample(fraction=1, shuffle=True, seed=0) for name in ("metrics", "intervals")}
    assert verdict_table(dataclasses.replace(hub, **shuffled)).equals(verdicts)
