"""Comparison with the numbers of the paper: what is compared, each tolerance, and each verdict."""

import math
import re
from dataclasses import replace
from itertools import product
from typing import Any

import polars as pl
import pytest

from relmap.metrics.registry import COMPARED_METRICS, METRICS
from tasks.tables.differences import summarize_differences
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs
from tasks.tables.verdict import (
    NOT_COMPARABLE,
    NUMBER_KEY,
    PAPER_FOLDER,
    TABLES,
    list_numbers,
    read_paper_numbers,
    verdict_table,
)
from tests.report_data import QUANTITIES, make_frame, make_runs

STANDARD_ERROR = 0.002  # of every bootstrap interval in the runs
# Binomial standard error of the paper's infeasible share of esci_rerank_us, 37.6%, in runs of 10,000 test rows.
INFEASIBLE_SHARE_ERROR = math.sqrt(0.376 * 0.624 / 10_000)
COLUMN_SUFFIXES = (("confidence", "conf"), ("mrp", "mrp"))
Key = tuple[str, str, str, str]  # data set, calibrator, variant, metric


def read_paper_table(key: str) -> list[dict[str, Any]]:
    return pl.read_csv(PAPER_FOLDER / f"{key}.csv").to_dicts()


def paper_means_and_deviations() -> tuple[dict[Key, float], dict[Key, float]]:
    """Read the means in the paper's tables, and their standard deviations over seeds if the paper gives them."""
    means: dict[Key, float] = {}
    deviations: dict[Key, float] = {}
    ablation = read_paper_table("ablation")
    for row, dataset, calibrator in product(ablation, PAPER_DATASETS, PAPER_CALIBRATORS):
        # the ablation has only averages: each data set and calibrator gets them, unless a table below has its numbers
        for metric in (*COMPARED_METRICS, "selacc_50"):
            means[dataset, calibrator, row["variant"], metric] = row[metric]
    for row in read_paper_table("main"):
        key = (row["dataset"], row["calibrator"])
        means[*key, "confidence", "accuracy"] = row["accuracy"]
        for metric, (variant, suffix) in product(COMPARED_METRICS, COLUMN_SUFFIXES):
            means[*key, variant, metric] = row[f"{metric}_{suffix}"]
            deviations[*key, variant, metric] = row[f"{metric}_{suffix}_std"]
    # this table has only changes, for which any accuracy before will do; for 50%, the ablation has its average
    *dataset_rows, _average = read_paper_table("budgeted_fallback")
    accuracy_before = ablation[0]["selacc_50"]
    for row, calibrator, coverage in product(dataset_rows, PAPER_CALIBRATORS, (10, 50, 70, 90)):
        metric = f"selacc_{coverage}"
        means[row["dataset"], calibrator, "confidence", metric] = accuracy_before
        means[row["dataset"], calibrator, "mrp", metric] = accuracy_before + row[f"delta_{metric}"]
    for row, calibrator in product(read_paper_table("label_spread"), PAPER_CALIBRATORS):
        key = (row["dataset"], calibrator, "confidence")
        means[*key, "label_spread"] = row["label_spread_pp"] / 100
        means[*key, "label_spread_null_p95"] = row["random_p95_pp"] / 100
    for row in read_paper_table("simplex_projection"):
        key = (row["dataset"], row["calibrator"])
        for column, metric in (("fixed_ece", "ece"), ("top_ece", "top_ece"), ("nll", "nll"), ("brier", "brier")):
            means[*key, "confidence", metric] = row[f"{column}_base"]
            means[*key, "mrc", metric] = row[f"{column}_mrc"]
        means[*key, "mrc", "infeasible_share"] = row["q_below_uniform_pct"] / 100
        means[*key, "mrc", "solved_share"] = row["solved_pct"] / 100
    _linear_row, boosted_row = read_paper_table("robustness")
    for metric in ("accuracy", "ece"):
        means[BOOSTED, "uncal", "confidence", metric] = boosted_row[metric]
    for metric, (variant, suffix) in product(COMPARED_METRICS, COLUMN_SUFFIXES):
        means[BOOSTED, "uncal", variant, metric] = boosted_row[f"{metric}_{suffix}"]
    return means, deviations


def make_paper_runs(source: str = "hub", **other_sources: str) -> Runs:
    """Make runs of three seeds with the numbers of the paper.

    Args:
        source: Source of the data sets.
        other_sources: Data set -> its source.
    """
    means, deviations = paper_means_and_deviations()
    values = {}
    for key, mean in means.items():
        deviation = deviations.get(key, 0)
        values[key] = (mean - deviation, mean, mean + deviation)
    sources = dict.fromkeys((*PAPER_DATASETS, BOOSTED), source) | other_sources
    cells = sorted({(dataset, calibrator, metric) for dataset, calibrator, _, metric in values})
    intervals = []
    for (dataset, calibrator, metric), quantity in product(cells, QUANTITIES):
        if METRICS[metric].resampled:
            row = (dataset, sources[dataset], calibrator, metric, quantity, 0.0, STANDARD_ERROR, -1.0, 1.0, None, 40)
            intervals.append(row)
    label_counts = {row["dataset"]: row["n_classes"] for row in read_paper_table("simplex_projection")}
    return make_runs(values, sources, label_counts, intervals=make_frame("intervals", *intervals))


@pytest.fixture(scope="module")
def hub_runs() -> Runs:
    return make_paper_runs()


@pytest.fixture(scope="module")
def verdicts(hub_runs) -> pl.DataFrame:
    return verdict_table(hub_runs)


def shift_metric(runs: Runs, dataset: str, calibrator: str, variant: str, metric: str, shift: float) -> Runs:
    """Change one metric in all seeds."""
    value = (
        pl.when(dataset=dataset, calibrator=calibrator, variant=variant, metric=metric)
        .then(pl.col("value") + shift)
        .otherwise("value")
    )
    return replace(runs, metrics=runs.metrics.with_columns(value=value))


def shift_aurc(runs: Runs, shift: float) -> Runs:
    """Change the AURC of MRP on `wands` with temperature scaling."""
    return shift_metric(runs, "wands", "ts", "mrp", "aurc", shift)


def find_row(table: pl.DataFrame, *key: str) -> dict[str, Any]:
    return table.filter(**dict(zip(NUMBER_KEY, key, strict=True))).row(0, named=True)


def find_wands_row(runs: Runs, column: str) -> dict[str, Any]:
    return find_row(verdict_table(runs), "main", "wands", "ts", column)


def expected_tolerance(
    seed_deviation: float,
    paper_seed_deviation: float,
    standard_error: float = STANDARD_ERROR,
    half_unit: float = 0.0005,
) -> Any:
    variance = 2 * standard_error**2 + (seed_deviation**2 + paper_seed_deviation**2) / 3
    return pytest.approx(2 * math.sqrt(variance) + half_unit)


def test_every_number_of_the_paper_is_read():
    numbers = read_paper_numbers()
    # rows times columns of numbers; the robustness check leaves six cells of its first row empty
    assert dict(numbers["table"].value_counts().iter_rows()) == {
        "main": 36 * 17,
        "budgeted_fallback": 7 * 4,
        "label_spread": 6 * 4,
        "ablation": 6 * 4,
        "simplex_projection": 36 * 15,
        "robustness": 2 * 8 - 6,
    }
    assert numbers.select(NUMBER_KEY).is_unique().all()
    assert numbers.filter(column="runs_above_random")["value"].is_between(0, 1).all()  # a count is a share
    assert {path.stem for path in PAPER_FOLDER.glob("*.csv")} == {table.key for table in TABLES}


@pytest.mark.parametrize(
    ("key", "half_unit"),
    [
        (("main", "wands", "ts", "aurc_mrp"), 0.0005),
        (("ablation", "average", "mrp", "aurc"), 0.00005),
        (("label_spread", "wands", "average", "ratio"), 0.05),
        (("label_spread", "wands", "average", "runs_above_random"), 0.5 / 18),
    ],
)
def test_half_a_unit_is_half_of_the_last_digit(key, half_unit):
    assert find_row(read_paper_numbers(), *key)["half_unit"] == pytest.approx(half_unit, abs=1e-15)


def test_the_papers_own_numbers_are_equal_or_near(verdicts):
    assert verdicts.height == len(read_paper_numbers())
    assert "off" not in verdicts["verdict"]
    # changes and averages are computed from rounded numbers
    printed_directly = verdicts.filter(pl.col("column").str.contains("_(conf|mrp|std)$"), table="main")
    assert set(printed_directly["verdict"]) == {"equal"}
    assert set(verdicts.filter(verdict=NOT_COMPARABLE)["column"]) <= {"ratio"}
    assert verdicts["sign_agrees"].all(ignore_nulls=True)


def test_the_order_of_rows_does_not_matter(hub_runs, verdicts):
    shuffled = replace(
        hub_runs,
        metrics=hub_runs.metrics.sample(fraction=1, shuffle=True, seed=0),
        intervals=hub_runs.intervals.sample(fraction=1, shuffle=True, seed=0),
    )
    assert verdict_table(shuffled).equals(verdicts)


@pytest.mark.parametrize(
    ("shift", "expected"), [(0.0004, "equal"), (0.0006, "near"), (0.003, "near"), (0.05, "off"), (-0.05, "off")]
)
def test_the_verdict_depends_on_the_difference(hub_runs, shift, expected):
    row = find_wands_row(shift_aurc(hub_runs, shift), "aurc_mrp")
    assert row["verdict"] == expected
    assert row["difference"] == pytest.approx(shift, abs=1e-12)


@pytest.fixture(scope="module")
def paper_row() -> dict[str, Any]:
    """The row of the main table of the paper for alloprof_rerank and spline."""
    rows = read_paper_table("main")
    return next(row for row in rows if (row["dataset"], row["calibrator"]) == ("alloprof_rerank", "spline"))


def test_the_tolerance_of_a_mean_uses_the_deviations_of_this_run_and_of_the_paper(verdicts, paper_row):
    deviation = paper_row["aupr_error_conf_std"]
    row = find_row(verdicts, "main", "alloprof_rerank", "spline", "aupr_error_conf")
    assert row["tolerance"] == expected_tolerance(deviation, deviation)
    assert f"paper: {deviation}" in row["tolerance_from"]


def test_the_deviation_of_a_change_is_assumed_equal_for_the_paper(verdicts, paper_row):
    # under the three seeds, a metric is mean - deviation, mean, and mean + deviation: deviations of a change subtract
    deviation = paper_row["aupr_error_conf_std"] - paper_row["aupr_error_mrp_std"]
    row = find_row(verdicts, "main", "alloprof_rerank", "spline", "aupr_error_delta")
    assert row["tolerance"] == expected_tolerance(deviation, deviation)
    assert row["tolerance_from"].endswith("paper: assumed equal")


def test_the_tolerance_of_a_standard_deviation_is_asymptotic(verdicts, paper_row):
    row = find_row(verdicts, "main", "alloprof_rerank", "spline", "aupr_error_conf_std")
    deviation_of_deviation = paper_row["aupr_error_conf_std"] / math.sqrt(2 * (3 - 1))
    assert row["tolerance"] == pytest.approx(2 * math.sqrt(2) * deviation_of_deviation + 0.0005)


@pytest.mark.parametrize(
    ("key", "standard_error", "half_unit"),
    [
        # calibrators share their rows
        (("budgeted_fallback", "wands", "average", "delta_selacc_50"), STANDARD_ERROR, 0.0005),
        # data sets are independent
        (("budgeted_fallback", "average", "average", "delta_selacc_50"), STANDARD_ERROR / math.sqrt(6), 0.0005),
        (("label_spread", "wands", "average", "label_spread_pp"), 100 * STANDARD_ERROR, 0.05),
        (("simplex_projection", "esci_rerank_us", "ts", "q_below_uniform_pct"), 100 * INFEASIBLE_SHARE_ERROR, 0.05),
    ],
    ids=["calibrators", "data sets", "percentage points", "share of rows"],
)
def test_the_tolerance_uses_the_sampling_error_of_means_and_shares(verdicts, key, standard_error, half_unit):
    assert find_row(verdicts, *key)["tolerance"] == expected_tolerance(0, 0, standard_error, half_unit)


def test_the_bootstrap_error_of_an_average_is_preferred_to_the_average_of_bootstrap_errors(hub_runs):
    average = ("wands", "hub", "average", "selacc_50", "delta", 0.0, 0.0007, -1.0, 1.0, 0.5, 40)
    intervals = pl.concat([hub_runs.intervals, make_frame("intervals", average)])
    table = verdict_table(replace(hub_runs, intervals=intervals))
    row = find_row(table, "budgeted_fallback", "wands", "average", "delta_selacc_50")
    assert row["tolerance"] == expected_tolerance(0, 0, 0.0007)


def without_intervals(runs: Runs) -> Runs:
    return replace(runs, intervals=make_frame("intervals"))


def with_one_seed(runs: Runs) -> Runs:
    return replace(runs, metrics=runs.metrics.filter(seed=2))


@pytest.mark.parametrize("change", [without_intervals, with_one_seed])
def test_without_a_tolerance_only_equal_numbers_are_comparable(hub_runs, change):
    assert find_wands_row(change(hub_runs), "aurc_mrp")["verdict"] == "equal"
    row = find_wands_row(change(shift_aurc(hub_runs, 0.003)), "aurc_mrp")
    assert row["verdict"] == NOT_COMPARABLE
    assert row["tolerance"] is None
    assert "no tolerance" in row["reason"]


def test_counts_ratios_and_shuffled_spreads_have_no_tolerance(verdicts):
    columns = set(verdicts.filter(pl.col("tolerance").is_null())["column"])
    assert columns == {"n_classes", "random_p95_pp", "ratio", "runs_above_random"}


def test_only_changes_that_are_not_zero_in_the_paper_have_a_sign(hub_runs, verdicts):
    assert find_wands_row(shift_aurc(hub_runs, 0.02), "aurc_delta")["sign_agrees"] is False
    assert find_wands_row(hub_runs, "aurc_delta")["sign_agrees"] is True
    assert find_wands_row(hub_runs, "aurc_mrp")["sign_agrees"] is None
    zero = find_row(verdicts, "budgeted_fallback", "alloprof_rerank", "average", "delta_selacc_10")
    assert zero["paper"] == 0
    assert zero["sign_agrees"] is None


def test_simulated_data_have_one_row_with_the_reason():
    (row,) = verdict_table(make_paper_runs("simulated")).to_dicts()
    assert row["verdict"] == NOT_COMPARABLE
    assert row["measured"] is None
    assert all(f"{name} (simulated)" in row["reason"] for name in PAPER_DATASETS)


def runs_with_other_source(hub_runs: Runs, name: str, source: str) -> Runs:
    """Return runs in which one data set is simulated, failed or not run."""
    if source == "simulated":
        return make_paper_runs(**{name: source})
    missing = (name,) if source == "failed" else ()
    return replace(hub_runs, metrics=hub_runs.metrics.filter(pl.col("dataset") != name), missing=missing)


@pytest.mark.parametrize("source", ["simulated", "failed", "not run"])
@pytest.mark.parametrize("name", ["wands", BOOSTED])
def test_a_data_set_that_is_not_from_the_hub_has_one_row_and_is_in_no_average(hub_runs, name, source):
    table = verdict_table(runs_with_other_source(hub_runs, name, source))
    (row,) = table.filter(dataset=name).to_dicts()
    assert row["table"] == "all"
    assert row["verdict"] == NOT_COMPARABLE
    assert row["measured"] is None
    assert source in row["reason"]
    assert row["source"] == ("" if source == "not run" else source)
    averages = table.filter(dataset="average")["verdict"].to_list()
    if name in PAPER_DATASETS:
        assert averages == [NOT_COMPARABLE]
    else:
        assert averages != [NOT_COMPARABLE]
    assert set(table.filter(dataset="scidocs")["source"]) == {"hub"}
    assert "off" not in table["verdict"]


def with_two_calibrators(runs: Runs) -> Runs:
    return replace(runs, metrics=runs.metrics.filter(pl.col("calibrator").is_in(["uncal", "ts"])))


def with_seven_calibrators(runs: Runs) -> Runs:
    seventh = runs.metrics.filter(calibrator="ts").with_columns(calibrator=pl.lit("beta"))
    return replace(runs, metrics=pl.concat([runs.metrics, seventh]), calibrators=(*PAPER_CALIBRATORS, "beta"))


@pytest.mark.parametrize("change", [with_two_calibrators, with_seven_calibrators])
def test_averages_over_other_calibrators_are_not_compared(hub_runs, change):
    table = verdict_table(change(hub_runs))
    averages = table.filter((pl.col("dataset") == "average") | (pl.col("row") == "average"))
    assert {"wands", "average"} < set(averages["dataset"])
    assert averages["reason"].str.contains("six calibrators").all()
    assert set(averages["verdict"]) == {NOT_COMPARABLE}
    assert find_row(table, "main", "wands", "ts", "aurc_mrp")["verdict"] == "equal"


def test_a_calibrator_that_did_not_run_is_not_measured(hub_runs):
    table = verdict_table(with_two_calibrators(hub_runs))
    assert find_row(table, "main", "wands", "smart", "aurc_mrp")["reason"].startswith("not measured")


def test_numbers_that_depend_on_an_inferred_choice_name_it(verdicts):
    is_affected = (pl.col("row") == "ts") | pl.col("table").is_in(["ablation", "budgeted_fallback", "label_spread"])
    (choice,) = set(verdicts.filter(is_affected)["chosen_to_match"])
    assert re.match("ts: .*optimum", choice)
    assert set(verdicts.filter(~is_affected)["chosen_to_match"]) == {""}


def test_the_note_counts_the_registered_differences():
    assert verdict_table.note.startswith(summarize_differences())


def test_the_cells_of_a_compared_mean(hub_runs, paper_row):
    runs = shift_metric(hub_runs, "alloprof_rerank", "spline", "confidence", "aupr_error", 0.01)
    paper = paper_row["aupr_error_conf"]
    deviation = paper_row["aupr_error_conf_std"]
    tolerance = 2 * math.sqrt(2 * STANDARD_ERROR**2 + 2 * deviation**2 / 3) + 0.0005
    row = find_row(verdict_table(runs), "main", "alloprof_rerank", "spline", "aupr_error_conf")
    sampling = r"sampling: 0\.002 \(bootstrap over [a-z ]*\), assumed equal "
    seeds = f"seeds: {deviation:.2g}, [a-z ]*paper: {deviation:.3g}"
    assert re.fullmatch(f"2 .*, .*half .*{sampling}.*{seeds}", row.pop("tolerance_from"))
    assert row == {
        "table": "main",
        "dataset": "alloprof_rerank",
        "row": "spline",
        "column": "aupr_error_conf",
        "paper": paper,
        "measured": pytest.approx(paper + 0.01),
        "difference": pytest.approx(0.01),
        "tolerance": pytest.approx(tolerance),
        "sign_agrees": None,
        "chosen_to_match": "",
        "verdict": "near" if tolerance > 0.01 else "off",
        "reason": None,
        "source": "hub",
    }


def test_the_tolerance_of_other_variants_of_the_ablation_is_that_of_mrp(verdicts):
    variants = [row["variant"] for row in read_paper_table("ablation")]
    variant = next(name for name in variants if name not in ("confidence", "mrp"))
    mrp_row = find_row(verdicts, "ablation", "average", "mrp", "aurc")
    variant_row = find_row(verdicts, "ablation", "average", variant, "aurc")
    assert mrp_row["tolerance"] is not None
    assert variant_row["tolerance"] == mrp_row["tolerance"]
    assert re.fullmatch(re.escape(mrp_row["tolerance_from"]) + "; .*MRP.*", variant_row["tolerance_from"])
    for row in (mrp_row, find_row(verdicts, "ablation", "average", "confidence", "aurc")):
        assert "MRP" not in row["tolerance_from"]
    assert "independent data sets" in mrp_row["tolerance_from"]


def test_a_tolerance_uses_the_standard_error_before_or_after_the_projection_or_of_the_change(hub_runs):
    errors = {"before": 0.25, "after": 0.5, "delta": 0.75}
    by_quantity = pl.col("quantity").replace_strict(errors, return_dtype=pl.Float64)
    runs = replace(hub_runs, intervals=hub_runs.intervals.with_columns(standard_error=by_quantity))
    table = verdict_table(runs)
    for variant, error in (("confidence", 0.25), ("mrp", 0.5)):
        row = find_row(table, "ablation", "average", variant, "aurc")
        assert f"sampling: {error / math.sqrt(6):.2g} (" in row["tolerance_from"]
    for column, error in (("aurc_conf", 0.25), ("aurc_mrp", 0.5), ("aurc_delta", 0.75), ("accuracy", 0.25)):
        row = find_row(table, "main", "wands", "ts", column)
        assert f"sampling: {error:.2g} (" in row["tolerance_from"]
    robustness = find_row(table, "robustness", BOOSTED, "lightgbm_balanced", "aurc_mrp")
    assert "sampling: 0.5 (bootstrap over" in robustness["tolerance_from"]


@pytest.mark.parametrize(("shift", "expected"), [(0.99, "near"), (1.01, "off")])
def test_a_number_is_near_within_its_tolerance(hub_runs, shift, expected):
    key = ("main", "alloprof_rerank", "spline", "aurc_mrp")
    tolerance = find_row(verdict_table(hub_runs), *key)["tolerance"]
    shifted = shift_metric(hub_runs, "alloprof_rerank", "spline", "mrp", "aurc", shift * tolerance)
    assert find_row(verdict_table(shifted), *key)["verdict"] == expected
    opposite = shift_metric(hub_runs, "alloprof_rerank", "spline", "mrp", "aurc", -shift * tolerance)
    assert find_row(verdict_table(opposite), *key)["verdict"] == expected


def test_each_data_set_that_cannot_be_compared_has_one_row_with_source_and_reason():
    runs = make_paper_runs(wands="files")
    failed = replace(
        runs, metrics=runs.metrics.filter(~pl.col("dataset").is_in(["scidocs", BOOSTED])), missing=("scidocs",)
    )
    table = verdict_table(failed).filter(table="all")
    expected = {
        "wands": ("files", "wands .*files .*hub"),
        "scidocs": ("failed", "scidocs .*failed .*hub"),
        BOOSTED: ("", f"{BOOSTED} .*not run .*hub"),
        "average": ("", ".*six data sets, .*hub"),
    }
    rows = table.select("dataset", "row", "column", "verdict", "source").rows()
    assert rows == [(name, "all", "all", NOT_COMPARABLE, source) for name, (source, _) in expected.items()]
    for reason, (_, pattern) in zip(table["reason"], expected.values(), strict=True):
        assert re.match(pattern, reason)
    assert set(table.select("paper", "measured", "tolerance", "sign_agrees").null_count().row(0)) == {len(expected)}


def test_without_any_data_set_from_the_hub_the_sources_of_all_are_listed():
    runs = make_paper_runs("files", wands="simulated", **{BOOSTED: "hub"})
    failed = replace(runs, metrics=runs.metrics.filter(pl.col("dataset") != "scidocs"), missing=("scidocs",))
    (row,) = verdict_table(failed).to_dicts()
    sources = dict.fromkeys(PAPER_DATASETS, "files") | {"wands": "simulated", "scidocs": "failed"}
    listed = ", ".join(f"{name} ({source})" for name, source in sources.items())
    assert row["reason"].endswith(f" hub: {listed}")
    assert (row["dataset"], row["source"]) == ("all", "all")


TABLE = pl.DataFrame(
    {
        "dataset": ["wands", "scidocs"],
        "calibrator": ["ts", "smart"],
        "runs": ["17/18", None],
        "aurc": ["0.120", "-3"],
        "source": ["hub", "hub"],
        "added": ["x", "y"],
    }
)


def test_numbers_are_listed_with_half_a_unit_of_their_last_digit():
    assert list_numbers("main", TABLE).rows() == [
        ("main", "wands", "ts", "runs", 17 / 18, 0.5 / 18),
        ("main", "wands", "ts", "aurc", 0.12, 0.0005),
        ("main", "scidocs", "smart", "aurc", -3, 0.5),
    ]


def test_a_number_without_data_set_or_row_is_an_average():
    only_variant = pl.DataFrame({"variant": ["mrp"], "aurc": ["0.5"]})
    only_dataset = pl.DataFrame({"dataset": ["wands"], "aurc": ["0.5"]})
    assert list_numbers("t", only_variant).select("dataset", "row").rows() == [("average", "mrp")]
    assert list_numbers("t", only_dataset).select("dataset", "row").rows() == [("wands", "average")]


def test_the_base_predictors_of_the_paper_determine_the_data_set():
    bases = pl.DataFrame({"dataset": ["x"] * 3, "base": ["linear", "lightgbm_balanced", "own"], "aurc": ["0.5"] * 3})
    assert list_numbers("t", bases).select("dataset", "row").rows() == [
        ("mslr_web10k", "linear"),
        (BOOSTED, "lightgbm_balanced"),
        ("x", "own"),
    ]


@pytest.mark.parametrize(("shift", "expected"), [(5e-4, "equal"), (5e-4 + 1e-9, "near"), (-5e-4, "equal")])
def test_a_difference_of_half_a_unit_is_equal_despite_rounding(hub_runs, shift, expected):
    assert find_wands_row(shift_aurc(hub_runs, shift), "aurc_mrp")["verdict"] == expected


def test_the_tolerance_uses_the_seeds_and_deviations_of_each_side(hub_runs, paper_row):
    """Compare three seeds of the paper with six of this run, whose distances from the mean are doubled."""
    mean = pl.col("value").mean().over("dataset", "calibrator", "variant", "metric")
    doubled = hub_runs.metrics.with_columns(value=2 * pl.col("value") - mean)
    metrics = pl.concat([doubled, doubled.with_columns(pl.col("seed") + 3)])
    table = verdict_table(replace(hub_runs, metrics=metrics))
    paper_deviation = paper_row["aupr_error_conf_std"]
    # of the six seeds, two are at the mean, two are 2 paper_deviation above it, and two as far below
    run_deviation = math.sqrt(4 * (2 * paper_deviation) ** 2 / 5)
    sampling_variance = 2 * STANDARD_ERROR**2

    variance = sampling_variance + run_deviation**2 / 6 + paper_deviation**2 / 3
    row = find_row(table, "main", "alloprof_rerank", "spline", "aupr_error_conf")
    assert row["tolerance"] == pytest.approx(2 * math.sqrt(variance) + 0.0005)
    seeds = rf" seeds: {run_deviation:.2g}, [a-z ]*paper: {paper_deviation:.3g}$"
    assert re.search(seeds, row["tolerance_from"])

    variance = run_deviation**2 / (2 * (6 - 1)) + paper_deviation**2 / (2 * (3 - 1))
    row = find_row(table, "main", "alloprof_rerank", "spline", "aupr_error_conf_std")
    assert row["measured"] == pytest.approx(run_deviation)
    assert row["tolerance"] == pytest.approx(2 * math.sqrt(variance) + 0.0005)
    assert re.fullmatch("2 .*two .*deviations [a-z ]*seeds, [a-z ]*half [a-z ]*", row["tolerance_from"])

    paper_change_deviation = paper_deviation - paper_row["aupr_error_mrp_std"]
    change_deviation = math.sqrt(4 * (2 * paper_change_deviation) ** 2 / 5)
    variance = sampling_variance + change_deviation**2 / 6 + change_deviation**2 / 3
    row = find_row(table, "main", "alloprof_rerank", "spline", "aupr_error_delta")
    assert row["tolerance"] == pytest.approx(2 * math.sqrt(variance) + 0.0005)
    assert re.search(rf" seeds: {change_deviation:.2g}, [a-z ]*paper: assumed equal$", row["tolerance_from"])
