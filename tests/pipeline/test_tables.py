"""Every table is a plain aggregation in the paper's columns, and nothing simulated reads as real.

The first one advises what the intervals bear out. The last one compares with the paper what can be compared, derives
each tolerance, and never judges simulated numbers.
"""

import math
import re
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from relmap.metrics.advice import KEEP, MIXED, UNKNOWN, USE, WORSENS
from relmap.metrics.registry import (
    COMPARED_METRICS,
    DecisionView,
    LabelView,
    ProbabilityView,
    ReliabilityView,
    SimplexView,
    metrics_for_views,
)
from relmap.projection.variants import variants_with_role
from tasks.page.page import verdict_in_words
from tasks.records.advice import in_words, numbers
from tasks.records.results import FAILED, display_name
from tasks.tables import TABLES
from tasks.tables.display import ShownTable, cell, escaped, latex, shown
from tasks.tables.overview import headline, headline_sentence, overview_table
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs
from tasks.tables.verdict import FOLDER, NOT_COMPARABLE, PLACE, printed, verdict_table
from tasks.tables.verdict import TABLES as PAPER_TABLES
from tests import report_data
from tests.report_data import BETTER, DECREASE, EMPTY, INCREASE, NOTHING, QUANTITIES, Made, frame, made, runs_of

OURS = variants_with_role("rival", "sensitivity")
PRINTED = [table.key for table in PAPER_TABLES]
MEASURED = dict.fromkeys([*variants_with_role("paper"), *OURS], metrics_for_views(ReliabilityView)) | {
    "confidence": metrics_for_views(DecisionView, ProbabilityView, LabelView, ReliabilityView),
    "mrc": metrics_for_views(ProbabilityView, SimplexView),
}


def value_of(dataset: int, calibrator: int, seed: int, variant: str, metric: str) -> float:
    """10 * data set + calibrator + seed, one less under MRP; spreads are above the shuffled ones on even seeds."""
    if metric == "label_spread":
        return 0.3 if seed % 2 == 0 else 0.1
    return 0.2 if metric == "label_spread_null_p95" else 10.0 * dataset + calibrator + seed - (variant == "mrp")


def as_runs(
    datasets: tuple[str, ...] = PAPER_DATASETS, ran: tuple[str, ...] = PAPER_CALIBRATORS, **others: object
) -> Runs:
    """Runs of three seeds with everything measured, at the values of `value_of`; `others` are fields of `Runs`."""
    values = {
        (dataset, calibrator, variant, metric.key): [value_of(place, other, s, variant, metric.key) for s in (1, 2, 3)]
        for (place, dataset), (other, calibrator) in product(enumerate(datasets), enumerate(ran))
        for variant, metrics in MEASURED.items()
        for metric in metrics
    }
    return runs_of(values, dict.fromkeys(datasets, "simulated"), **{"calibrators": ran} | others)


def with_value(of: Any, value: Any, field: str = "metrics", **place: Any) -> Any:
    """The same `Made` or `Runs` with that value where its metrics, or rows of another field, are of a place."""
    value = pl.when(pl.lit(value=True), **place).then(value).otherwise("value")
    return replace(of, **{field: getattr(of, field).with_columns(value=value)})


def as_shown(name: str, runs: Runs) -> ShownTable:
    return shown(TABLES[name], TABLES[name](runs))


def as_latex(name: str, runs: Runs) -> str:
    return latex(as_shown(name, runs), TABLES[name](runs).schema)


def changes(*sets: tuple[str, float, float | None], calibrator: str = "average", metric: str = "nll_correct"):
    """Intervals of the changes of data sets, each with its p-value."""
    return frame("intervals", *(
        (dataset, "simulated", calibrator, metric, quantity, value, 0.05, value - 0.1, value + 0.1, p, 40)
        for (dataset, value, p), quantity in product(sets, QUANTITIES)
    ))  # fmt: skip


@pytest.fixture(scope="module")
def runs() -> Runs:
    return as_runs()


@pytest.mark.parametrize("name", PRINTED)
def test_columns_and_rows_are_the_papers_in_one_order_whatever_the_order_of_the_runs(runs, name):
    table, paper = TABLES[name](runs), pl.read_csv(FOLDER / f"{name}.csv")
    assert table.columns == [*paper.columns, *(["ours"] if name == "ablation" else []), "source"]
    shuffled = replace(runs, metrics=runs.metrics.sample(fraction=1, shuffle=True, seed=0))
    assert TABLES[name](shuffled).equals(table)
    if name not in ("ablation", "robustness"):  # which have other rows
        keys = [key for key in ("dataset", "calibrator") if key in table.columns]
        assert sorted(table.select(keys).rows()) == sorted(paper.select(keys).rows())
        assert table["dataset"].unique(maintain_order=True).to_list()[: len(PAPER_DATASETS)] == [*PAPER_DATASETS]


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("main", 1, {"calibrator": "ts", "aurc_conf": 3, "aurc_mrp": 2, "aurc_delta": -1}),
        ("main", 1, {"dataset": PAPER_DATASETS[0], "aurc_conf_std": 1, "aurc_mrp_std": 1}),  # of 2, 3, 4; of 1, 2, 3
        ("label_spread", 0, {"label_spread_pp": 50 / 3, "ratio": 5 / 6, "runs_above_random": "6/18"}),  # seed 2 of each
        ("label_spread_by_calibrator", 1, {"calibrator": "ts", "random_p95_pp": 20, "runs_above_random": "1/3"}),
        ("simplex_projection", 0, {"n_classes": 2, "q_below_uniform_pct": 200, "fixed_ece_delta": 0}),  # of 1, 2, 3
    ],
)
def test_a_cell_is_a_mean_or_a_deviation_over_seeds_a_share_in_percent_or_a_count_of_runs(runs, name, row, expected):
    cells = TABLES[name](runs).row(row, named=True)
    assert {column: cells[column] for column in expected} == pytest.approx(expected)


def test_an_average_is_of_seeds_then_of_calibrators_then_of_data_sets_where_each_has_a_row():
    deltas = {("esci_rerank_us", "uncal"): [0.1], ("esci_rerank_us", "ts"): [0.2, 0.4], ("wands", "uncal"): [0.6]}
    values = {
        (*place, variant, "selacc_50"): [0.5 + delta * (variant == "mrp") for delta in of_seeds]
        for (place, of_seeds), variant in product(deltas.items(), ("confidence", "mrp"))
    }
    runs = runs_of(values, {"esci_rerank_us": "hub", "wands": "simulated"})
    table, every = TABLES["budgeted_fallback"](runs), TABLES["ablation"](runs).filter(variant="mrp")
    assert np.allclose(table["delta_selacc_50"], [0.2, 0.6, 0.4])
    assert every["selacc_50"].item() == pytest.approx(0.5 + (0.1 + 0.3 + 0.6) / 3)  # the paper's, over cells
    assert table["delta_selacc_10"].null_count() == 3
    assert table["source"].to_list() == ["hub", "simulated", "hub+simulated"]


@pytest.mark.parametrize("undefined", [float("nan"), None])
def test_undefined_numbers_are_empty_in_csv_dashes_for_people_and_above_nothing(undefined):
    runs = with_value(as_runs(("wands",), ("ts",)), undefined, metric="aupr_error")
    assert TABLES["main"](runs)["aupr_error_conf"].to_list() == [None]
    assert "| – | – | – |" in as_shown("main", runs).markdown()
    row = TABLES["label_spread"](with_value(runs, undefined, metric="label_spread")).row(0)
    assert (row[1], row[3], row[4]) == (None, None, "0/3")


@pytest.mark.parametrize("name", ["ablation", "ablation_by_dataset"])
def test_the_ablation_has_the_papers_variants_first_and_marks_what_is_ours_whatever_ran_in_whatever_order(runs, name):
    other = runs.metrics.filter(variant="mrp").with_columns(variant=pl.lit("label_beta"))
    table = TABLES[name](replace(runs, metrics=pl.concat([other, runs.metrics])))
    ours = ["label_platt", "mrp_exact", "label_vector", "label_beta"]
    for rows, variants in ((table, [*variants_with_role("paper"), *OURS, "label_beta"]), (table.filter("ours"), ours)):
        assert rows["variant"].to_list() == variants * (len(rows) // len(variants))


def test_own_sets_stand_in_the_main_table_and_in_no_average(runs):
    own = as_runs((*PAPER_DATASETS, "tickets"))
    assert TABLES["main"](own)["dataset"][-1] == "tickets"
    for name in ("budgeted_fallback", "label_spread", "ablation", "simplex_projection", "robustness"):
        assert TABLES[name](own).equals(TABLES[name](runs)), name
    each = TABLES["ablation_by_dataset"](own)
    assert each["dataset"].unique(maintain_order=True).to_list() == [*PAPER_DATASETS, "tickets"]
    means = (
        each.filter(pl.col("dataset") != "tickets")
        .group_by("variant", maintain_order=True)
        .agg(pl.mean(COMPARED_METRICS))
    )
    assert np.allclose(
        means.select(COMPARED_METRICS), TABLES["ablation"](own).select(COMPARED_METRICS), rtol=0, atol=1e-12
    )
    above, below = as_shown("main", own).markdown().split("**Own data sets**")
    assert ("tickets" in above, "wands" in below, "| dataset | calibrator |" in below) == (False, False, True)
    assert "\\emph{Own data sets}" in as_latex("main", own)


@pytest.mark.parametrize("wide", [True, False], ids=["of all sets", "of one set"])
@pytest.mark.parametrize("name", ["beta", "matrix"])
def test_a_calibrator_that_was_asked_for_stands_in_every_table_and_counts_in_every_mean(name, wide):
    asked = ("ts", name)
    of_sets = {} if wide else {"calibrators": ("ts",), "calibrators_of": {"wands": asked}}
    runs = as_runs(("wands", "tickets"), asked, **of_sets)
    for dataset, means in (("wands", asked), ("tickets", asked if wide else ("ts",))):
        main = TABLES["main"](runs).filter(dataset=dataset)
        assert main["calibrator"].to_list() == [*means]
        for key, column in (("ablation_by_dataset", "aurc"), ("overview", "aurc_conf")):
            assert np.isclose(TABLES[key](runs).filter(dataset=dataset)[column][0], main["aurc_conf"].mean())
    for key in ("label_spread_by_calibrator", "simplex_projection"):
        assert TABLES[key](runs).filter(dataset="wands")["calibrator"].to_list() == [*asked]
    assert TABLES["label_spread"](runs)["runs_above_random"].to_list() == ["2/6"]
    failed = replace(runs, missing=("scidocs",))
    assert len(TABLES["main"](failed).filter(dataset="scidocs")) == (2 if wide else 1)


@pytest.mark.parametrize("name", ["beta", "matrix"])
def test_a_calibrator_that_ran_beside_those_asked_for_is_told_and_counts_in_no_mean_nor_does_the_boosted_base(name):
    runs = as_runs(("mslr_web10k", BOOSTED), ("uncal", "ts", name), calibrators=("uncal", "ts"))
    alone = replace(runs, metrics=runs.metrics.filter(pl.col("calibrator") != name))
    for key in {*TABLES} - {"robustness", "sensitivity", "rivals"}:
        assert TABLES[key](runs).equals(TABLES[key](alone)), key
    bases = TABLES["robustness"](runs).select("dataset", "base", "accuracy")
    shown = {"linear": 2.0, "lightgbm_balanced": 12.0, f"linear+{name}": 4.0, f"lightgbm_balanced+{name}": 14.0}
    assert bases.rows() == [("mslr_web10k", base, accuracy) for base, accuracy in shown.items()]
    assert name in TABLES["sensitivity"](runs)["option"].to_list()
    linear = replace(runs, metrics=runs.metrics.filter(pl.col("dataset") != BOOSTED))
    for key in {*PRINTED, "datasets"} - {"robustness"}:
        assert TABLES[key](runs).equals(TABLES[key](linear)), key
    assert TABLES["datasets"](runs)["dataset"].to_list() == ["mslr_web10k"]


def test_rivals_are_means_over_seeds_for_each_number_of_rows():
    ways = ((1000, "matrix", "confidence"), (500, "matrix", "mrp"), (500, "ts", "confidence"), (500, "ts", "mrp"))
    rows = [
        ("wands", "hub", seed, 500, fit + (seed > 1), 500 * (fit == 500), *way, "aurc", seed / 10 + (fit > 500))
        for (fit, *way), seed in product(ways, (1, 2, 3))
    ]
    more = ("wands", "official", 1, 900, 900, 900, "ts", "mrp", "aurc", 0.0)
    table = TABLES["rivals"](replace(EMPTY, rivals=frame("rivals", *rows, more)))
    assert table["calibrator"].to_list() == ["ts", "matrix", "matrix", "ts"]
    assert table["calibrator_fit_rows"].to_list() == [501, 501, 1001, 900]  # of which two seeds have one more
    whole = table.row(2, named=True)
    assert np.isclose(whole["aurc_conf"], 1.2)
    assert np.isclose(whole["aurc_conf_std"], 0.1)
    assert (whole["aurc_mrp"], whole["projection_fit_rows"]) == (None, 0)


@pytest.mark.parametrize(
    ("option", "variant", "difference"),
    [("matrix", "mrp", 1), ("mrp_exact", "mrp", 1), (BOOSTED, "confidence", 10), ("ece_25_bins", "confidence", 97.5)],
)
def test_an_option_or_an_alternative_of_its_own_stands_beside_its_default_over_the_same_seeds(
    option, variant, difference
):
    values = {2: 100.0, 3: 100.0, 4: 900.0}  # there is no default under seed 4
    ece = "ece_25_bins", "confidence", "aurc"
    rows = [("mslr_web10k", "simulated", "ts", seed, *ece, value) for seed, value in values.items()]
    runs = as_runs(("mslr_web10k", BOOSTED), ("ts", "matrix"), sensitivity=frame("sensitivity", *rows))
    table = TABLES["sensitivity"](runs).filter(dataset="mslr_web10k", calibrator="ts")
    (row,) = table.filter(option=option, variant=variant, metric="aurc").to_dicts()
    assert (row["difference"], row["value"] - row["default"]) == (difference, difference)


def test_a_data_set_is_described_by_its_rows_its_groups_and_the_shares_of_its_labels():
    (row,) = TABLES["datasets"](report_data.together([made(rows=600, groups=60)])).to_dicts()
    assert (row["rows_test"], row["groups_test"], row["labels"]) == (600, 60, "no/maybe/yes")
    assert row["class_priors_train"] == "0.333/0.333/0.333"


def test_holm_is_over_the_papers_data_sets_and_over_ones_own_apart():
    intervals = [
        changes(("wands", -0.5, 0.01), ("scidocs", -0.5, 0.02), ("tickets", -0.5, 0.02)),
        changes(("wands", -0.5, 0.02), calibrator="ts"),
        changes(("wands", -0.5, None), metric="aurc"),
    ]
    table = TABLES["intervals"](as_runs((*PAPER_DATASETS, "tickets"), intervals=pl.concat(intervals)))
    assert [(*row[:3], row[8]) for row in table.iter_rows()] == [  # an average stands below what it is the average of
        *(("wands", "ts", "nll_correct", None), ("wands", "average", "nll_correct", 0.02)),
        *(("wands", "average", "aurc", None), ("scidocs", "average", "nll_correct", 0.02)),
        ("tickets", "average", "nll_correct", 0.02),
    ]


def test_the_headline_is_the_mean_change_over_calibrators_and_counts_data_sets():
    covers_zero, two_left = ("amazon_esci", -0.05, 0.001), ("mslr_web10k", -0.5, 0.02)  # so that its p is .04
    others = ("wands", -0.5, 0.001), ("scidocs", 0.5, 0.001), ("alloprof_rerank", -0.5, 0.06)
    intervals = [
        changes(*others, covers_zero, two_left),
        changes(("wands", 0.5, 0.001), ("scidocs", np.nan, None), metric="aupr_error"),  # which has no interval
        changes(("wands", -0.5, 0.001), calibrator="ts"),
    ]
    numbers = headline(as_runs(intervals=pl.concat(intervals), missing=("esci_rerank_us",)))
    assert numbers["wands (simulated)"] == {"nll_correct": -1.0, "aupr_error": -1.0, "aurc": -1.0}
    assert numbers["data_sets"]["nll_correct"] == {"improved": 2, "worsened": 1, "of": 5}
    assert numbers["data_sets"]["aupr_error"] == {"improved": 1, "worsened": 0, "of": 1}


def test_the_headline_sentence_counts_data_sets_and_says_what_they_are_and_what_the_interval_covers():
    intervals = changes(("wands", -0.5, 0.001), ("scidocs", 0.5, 0.9), ("tickets", 0.5, 0.001))
    sentence = headline_sentence(as_runs((*PAPER_DATASETS, "tickets"), intervals=intervals))
    assert sentence.startswith("On 1 of 2 data sets (simulated) MRP lowers correctness NLL")
    for part in ("On 0 of 1 own data sets (simulated)", "on 1 it raises it", "given the fits"):
        assert part in sentence
    assert "no number" in headline_sentence(as_runs())


def test_own_sets_that_failed_stand_last_and_known_rivals_before_other_calibrators():
    runs = as_runs(("wands", "tickets"), ("ts", "beta", "matrix", "vector"), missing=("bills",))
    assert (runs.own(), runs.others()) == (["tickets", "bills"], ["vector", "matrix", "beta"])


def test_a_data_set_that_failed_is_a_marked_hole_in_its_place():
    without = tuple(name for name in PAPER_DATASETS if name != "scidocs")
    runs = as_runs(without, ("uncal", "ts"), missing=("scidocs", "tickets"))
    for name, rows in (("main", 2), ("overview", 1)):
        table = TABLES[name](runs)
        assert table["dataset"].unique(maintain_order=True).to_list() == [*PAPER_DATASETS, "tickets"]
        hole = table.filter(dataset="scidocs", source=FAILED).select(pl.exclude("dataset", "calibrator", "source"))
        assert set(hole.null_count().row(0)) == {rows}
        assert "scidocs (failed)" in as_shown(name, runs).markdown()
    assert TABLES["budgeted_fallback"](runs)["dataset"].to_list() == [*PAPER_DATASETS, "average"]
    assert not [name for name in headline(runs) if "scidocs" in name]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "runs",
    [EMPTY, replace(EMPTY, missing=("wands",)), as_runs(("tickets",), ("ts",)), as_runs(("wands",))],
    ids=["nothing", "all failed", "own set only", "one data set"],
)
def test_what_was_not_run_makes_no_table_fail(name, runs):
    table = as_shown(name, runs)
    assert TABLES[name](runs).columns[-1] == "source"
    assert TABLES[name].caption in table.markdown()
    assert f"tab:{name}" in latex(table, TABLES[name](runs).schema)


def test_a_simulated_set_is_named_so_wherever_people_read():
    assert display_name("average", "hub+simulated") == "average (hub+simulated)"
    assert display_name("wands", "hub") == "wands"
    runs = as_runs(intervals=changes(("wands", -0.5, 0.01)))
    for name in TABLES:
        table = as_shown(name, runs)
        assert all(any("simulated" in text for text in row) for row in table.texts), name
        assert ("simulated" in table.markdown()) == ("simulated" in as_latex(name, runs)) == (table.rows > 0)


def test_deviations_stand_behind_means_and_improvements_are_bold_unless_their_interval_covers_zero(runs):
    text = as_shown("main", runs).markdown()
    assert "3.000 ± 1.000" in text
    assert "each a split of the validation rows; it is no confidence interval" in text
    assert r"AURC$\downarrow$" in as_latex("main", runs)
    row = text.splitlines()[4]
    assert row.count("**-1.000**") == 2  # NLL and AURC fell; AUPR-Error fell too, and that is worse
    assert "| -1.000 |" in row
    changed = as_runs(intervals=changes(("wands", -0.05, 0.5), ("scidocs", -0.5, 0.001), ("amazon_esci", 0.5, 0.01)))
    text = as_shown("overview", changed).markdown()
    assert [part in text for part in ("| -0.050 |", "| **-0.500** |", "| +0.500 |")] == [True] * 3


@pytest.mark.parametrize("name", TABLES)
def test_latex_has_balanced_braces_and_as_many_cells_in_each_line_as_columns(name):
    own = as_runs(
        (*PAPER_DATASETS, "my_tickets"),
        sensitivity=frame("sensitivity", ("wands", "simulated", "ts", 1, "ece_25_bins", "confidence", "ece", 0.5)),
        rivals=frame("rivals", ("wands", "simulated", 1, 300, 300, 300, "matrix", "mrp", "aurc", 0.5)),
        intervals=changes(("wands", -0.5, 0.01)),
    )
    text = as_latex(name, own)
    plain = text.replace("\\{", "").replace("\\}", "")
    assert plain.count("{") == plain.count("}")
    assert text.count("\\begin{") == text.count("\\end{")
    columns = len(as_shown(name, own).columns)
    for line in text.splitlines():
        if line.endswith("\\\\") and "\\caption" not in line:
            spanned = [int(part.split("}")[0]) - 1 for part in line.split("\\multicolumn{")[1:]]
            assert line.replace("\\&", "").count("&") + 1 + sum(spanned) == columns
    assert "_" not in text.replace("\\_", "").replace("_{\\mathrm{correct}}", "").replace(f"tab:{name}", "")


def test_numbers_are_rounded_for_people_alone_and_text_is_escaped_for_latex():
    shown = [cell(value, 2, signed=True) for value in (0.1235, 0.125, -0.0001, True, np.nan)]
    assert shown == ["+0.12", "+0.12", "0.00", "yes", "–"]
    in_latex = {"a_b & 5%": r"a\_b \& 5\%", "-0.1 ± 0.2": r"$-$0.1 $\pm$ 0.2", "–": "--"}
    assert [escaped(text) for text in in_latex] == [*in_latex.values()]


WORSE = {"nll_correct": INCREASE, "aupr_error": DECREASE, "aurc": INCREASE}
PREDICTS = dict.fromkeys(BETTER, NOTHING) | {"nll_correct": DECREASE}
UNKNOWABLE = dict.fromkeys(BETTER)
SHOP = cache(made)


def with_changes(changes: dict, groups: int = 60) -> Made:
    """The same data set with other intervals."""
    return replace(SHOP(), intervals=report_data.intervals("shop", "simulated", ("uncal", "ts"), changes, groups))


def overview_of(*sets: Made, missing: tuple[str, ...] = ()) -> list[dict]:
    return overview_table(report_data.together(sets, missing)).to_dicts()


def advice(of: Made) -> str:
    (row,) = overview_of(of)
    return " ".join(filter(None, [row["advice"], row["remarks"]]))


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        (BETTER, f"{USE}: it predicts and ranks better."),
        (BETTER | {"aupr_error": DECREASE}, f"{MIXED}: the reliability predicts better and ranks better by one metric"),
        (WORSE, f"{WORSENS}: the reliability predicts worse and ranks worse."),
        (dict.fromkeys(BETTER, NOTHING), f"{KEEP}: nothing is certain to change."),
        (BETTER | {"aupr_error": None}, f"{USE}: it predicts and ranks better."),  # too few errors for one of two
        (BETTER, f"{UNKNOWN}: there are 29 groups, and a difference among fewer than 30 may be chance."),
    ],
)
def test_the_advice_is_what_the_intervals_bear_out_and_beside_the_confidence_nothing_is_recommended(changes, begins):
    of = with_changes(changes, 29 if begins.startswith(UNKNOWN) else 60)
    assert advice(of).startswith(begins)
    beside = begins.startswith((USE, MIXED))
    assert beside == ("does as well" in advice(with_value(of, 0.0, variant="label_platt")))


def test_an_interval_that_does_not_survive_the_correction_advises_nothing():
    p = pl.when(pl.col("p") < 0.05).then(0.04).otherwise("p").alias("p")
    alone, beside = (replace(of, intervals=of.intervals.with_columns(p)) for of in (SHOP(), made(PAPER_DATASETS[0])))
    others = [made(name, changes=dict.fromkeys(BETTER, NOTHING), rows=60) for name in PAPER_DATASETS[1:]]
    assert advice(alone).startswith(USE)
    assert overview_of(beside, *others)[0]["advice"].startswith(KEEP)  # one of six at p = .04


@pytest.mark.parametrize(("rows", "reviewed"), [(1000, 300), (1003, 300), (1007, 302)])
def test_errors_of_1000_reviews_agree_with_a_count_of_those_that_selective_accuracy_does_not_keep(rows, reviewed):
    of = made(rows=rows)  # no two tie
    (row,) = overview_of(of)
    wrong = of.scores.with_columns(wrong=pl.col("label") != pl.col("decision"))
    for way, column in (("confidence", "found_per_1000_conf"), ("mrp", "found_per_1000_mrp")):
        first = wrong.group_by("calibrator", "seed").agg(pl.col("wrong").sort_by(f"logit_{way}").head(reviewed).mean())
        assert row[column] == pytest.approx(1000 * first["wrong"].mean())
    assert row["found_per_1000_mrp"] != row["found_per_1000_conf"]


@pytest.mark.parametrize(("kept", "changes", "named"), [(0.9, BETTER, True), (0.8, BETTER, False), (0.9, WORSE, False)])
def test_a_better_ranking_that_finds_no_more_errors_in_reviews_says_so(kept, changes, named):
    of = with_value(with_changes(changes), 0.9, variant="mrp", metric="selacc_70")
    text = advice(with_value(of, kept, variant="confidence", metric="selacc_70"))
    assert ("it finds no more errors" in text) == named


def test_a_row_holds_means_of_seeds_then_of_calibrators_whatever_was_not_run_and_the_interval_of_its_average():
    of = made(seeds=(1, 2, 3))
    incomplete = of.metrics.filter((pl.col("calibrator") == "ts") | (pl.col("seed") == 1))
    (row,) = overview_of(replace(of, metrics=incomplete))
    cells = {"accuracy": ("confidence", "accuracy"), "aurc_conf": ("confidence", "aurc"), "aurc_mrp": ("mrp", "aurc")}
    for column, (variant, metric) in cells.items():
        means = incomplete.filter(variant=variant, metric=metric).group_by("calibrator").agg(pl.mean("value"))
        assert row[column] == pytest.approx(means["value"].mean())
    assert (row["low"], row["high"]) == DECREASE
    assert row["nll_correct_delta"] == pytest.approx(sum(DECREASE) / 2)
    assert (row["label_spread_pp"], row["random_p95_pp"]) == pytest.approx((20, 5))
    assert row["source"] == "simulated"


def test_a_data_set_of_one_label_and_without_rivals_has_no_spread_but_advice():
    of = made(decided=1)
    (row,) = overview_of(replace(of, rivals=of.rivals.clear()))
    assert row["label_spread_pp"] is None
    assert row["advice"].startswith(USE)


AT_MOST = {"rows": 400, "projection_fit_rows": 400}  # where calibrators are compared
MATRIX, ON_TS = AT_MOST | {"calibrator": "matrix"}, AT_MOST | {"calibrator": "ts"}


@pytest.mark.parametrize(
    ("field", "begins", "cheaper", "beside"),
    [
        ("metrics", "A Platt line for each label does as well", {"variant": "label_platt"}, {}),
        ("rivals", "matrix scaling does as well", MATRIX | {"variant": "confidence"}, ON_TS),
    ],
    ids=["platt", "matrix"],
)
@pytest.mark.parametrize(
    ("nll", "aurc", "before", "named"),  # of the cheaper way where MRP has .4 and .1; the confidence's NLL
    [
        (0.300, 0.09, 0.5, True),
        (0.4005, 0.1005, 0.5, True),
        (0.402, 0.1, 0.5, False),
        (0.4, 0.102, 0.5, False),  # it predicts as well and ranks worse
        (0.4005, 0.1, 0.401, False),  # half of all that MRP gains is missing
    ],
)
def test_a_cheaper_way_is_named_where_it_does_as_well(field, begins, cheaper, beside, nll, aurc, before, named):
    of = with_value(SHOP(), 99.0, "rivals")
    of_mrp, of_confidence = (beside | {"variant": variant} for variant in ("mrp", "confidence"))
    for way, *values in ((cheaper, nll, aurc), (of_mrp, 0.4, 0.1), (of_confidence, before, 0.2)):
        for metric, value in zip(("nll_correct", "aurc"), values, strict=True):
            of = with_value(of, value, field, metric=metric, **way)
    numbers = f"(correctness NLL {nll:.3f} beside 0.400, AURC {aurc:.3f} beside 0.100)"
    assert (f"{begins} {numbers}" in advice(of)) == (begins in advice(of)) == named


@pytest.mark.parametrize(("high", "said"), [(-0.001, True), (0.001, False), (None, False)])
def test_recalibrating_is_called_clearly_better_only_where_its_interval_leaves_out_zero(high, said):
    of = SHOP()
    row = (of.name, "simulated", "matrix", "nll_correct", "beside_mrp", -0.01, 0.01, -0.02, high, 0.01, 60)
    changed = replace(of, intervals=pl.concat([of.intervals, report_data.frame("intervals", row)]))
    assert ("matrix scaling is clearly better" in advice(changed)) == said


@pytest.mark.parametrize("changes", [BETTER, PREDICTS, WORSE, UNKNOWABLE])
def test_the_stage_of_a_data_set_ends_with_what_the_report_advises_and_its_numbers(changes):
    of = with_changes(changes)
    (row,), (ours,) = overview_of(of), numbers(of.metrics, of.intervals, [of.facts]).to_dicts()
    assert {name: ours.get(name) for name in row} | {"advice": "", "remarks": ""} == row | {"advice": "", "remarks": ""}
    assert in_words(ours, of.intervals, EMPTY.smallest_relevant_change)[0] == row["advice"]


def test_a_larger_smallest_relevant_change_turns_an_improvement_into_no_relevant_difference():
    of = SHOP()
    (row,) = numbers(of.metrics, of.intervals, [of.facts]).to_dicts()
    larger = replace(report_data.together([of]), smallest_relevant_change=1.0)
    expected = f"{KEEP}: there is no relevant difference."
    assert overview_of(of)[0]["advice"].startswith(USE)
    assert overview_table(larger)["advice"].to_list() == [expected]
    lines = in_words(row, of.intervals, larger.smallest_relevant_change)
    assert lines[0] == expected
    assert any("There is no relevant difference (below 1)" in line for line in lines)


@pytest.mark.parametrize(("share", "words"), [(-0.03, ""), (-0.01, "hardly better"), (0.01, "no better")])
def test_a_base_predictor_that_is_hardly_better_than_the_commonest_label_is_named(share, words):
    of = SHOP()
    commonest = round(1000 * (of.facts["accuracy"]["test"] + share))
    facts = of.facts | {"class_counts": {"test": [1000 - commonest, commonest]}}
    said = re.findall(r"The base predictor is ([a-z ]+) than always deciding", advice(replace(of, facts=facts)))
    assert said == [words] * bool(words)


def words(*sets: Made, missing: tuple[str, ...] = ()) -> list[str]:
    """The verdict."""
    runs = report_data.together(sets, missing)
    return verdict_in_words(overview_table(runs), headline_sentence(runs))


def test_the_verdict_answers_first_and_counts_every_finished_set_once():
    kinds = {"a": BETTER, "b": BETTER, "c": PREDICTS, "d": WORSE, "e": UNKNOWABLE}
    text = words(*(made(name, changes=changes, rows=100) for name, changes in kinds.items()), missing=("f",))
    assert text[0].endswith("better than the confidence on 3 of 5 data sets (simulated).")
    assert text[1].endswith("a, b and c (3 of 5).")
    assert [sentence[-len("d (1 of 5).") :] for sentence in text[2:4]] == [f"{name} (1 of 5)." for name in "de"]
    assert "What is said here is said without f." in text


@pytest.mark.parametrize("n_better", [0, 1, 3])
def test_the_finding_is_one_short_sentence_that_counts_data_sets_and_names_none(n_better):
    sets = [made(f"set_{place}", changes=BETTER if place < n_better else WORSE) for place in range(3)]
    finding = words(*sets)[0]
    assert finding.count(".") == 1
    assert len(finding.split()) <= 20
    assert "set_" not in finding
    expected = (
        f" on {n_better} of 3 data sets" if n_better else "not certain to be better than the confidence on any of 3"
    )
    assert expected in finding


@pytest.mark.parametrize(("bounds", "certain"), [(INCREASE, 1), (NOTHING, 0)])
def test_the_verdict_says_on_how_many_sets_reviews_surely_find_more(bounds, certain):
    text = " ".join(words(with_changes(BETTER | {"selacc_70": bounds})))
    assert f"On {certain} of these 1, 1,000 reviews of the least reliable 30% surely find more" in text


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
    for row, metric, *at in product(averages, (*COMPARED_METRICS, "selacc_50"), PAPER_DATASETS, PAPER_CALIBRATORS):
        means[*at, row["variant"], metric] = row[metric]  # every cell is the average of its variant
    for row, metric, (variant, short) in product(csv("main"), COMPARED_METRICS, SIDES):
        at = row["dataset"], row["calibrator"]
        means[*at, "confidence", "accuracy"] = row["accuracy"]
        means[*at, variant, metric] = row[f"{metric}_{short}"]
        deviations[*at, variant, metric] = row[f"{metric}_{short}_std"]
    for row, calibrator, kept in product(csv("budgeted_fallback")[:-1], PAPER_CALIBRATORS, (10, 50, 70, 90)):
        at, metric, before = (row["dataset"], calibrator), f"selacc_{kept}", averages[0]["selacc_50"]
        means[*at, "confidence", metric] = before
        means[*at, "mrp", metric] = before + row[f"delta_selacc_{kept}"]
    for row, calibrator in product(csv("label_spread"), PAPER_CALIBRATORS):
        for metric, column in (("label_spread", "label_spread_pp"), ("label_spread_null_p95", "random_p95_pp")):
            means[row["dataset"], calibrator, "confidence", metric] = row[column] / 100
    names = {"fixed_ece": "ece", "top_ece": "top_ece", "nll": "nll", "brier": "brier"}
    for row, (name, metric) in product(csv("simplex_projection"), names.items()):
        at = row["dataset"], row["calibrator"]
        means[*at, "confidence", metric], means[*at, "mrc", metric] = row[f"{name}_base"], row[f"{name}_mrc"]
        for share, column in (("infeasible_share", "q_below_uniform_pct"), ("solved_share", "solved_pct")):
            means[*at, "mrc", share] = row[column] / 100
    columns = {("confidence", name): name for name in ("accuracy", "ece")}
    columns |= {(variant, metric): f"{metric}_{short}" for metric, (variant, short) in product(COMPARED_METRICS, SIDES)}
    means |= {(BOOSTED, "uncal", *which): csv("robustness")[1][column] for which, column in columns.items()}
    return {key: tuple(mean + step * deviations.get(key, 0) for step in (-1, 0, 1)) for key, mean in means.items()}


def paper_runs(source: str = "hub", **others: str) -> Runs:
    """Runs that are the paper's numbers to the digits that it prints; `others` name the source of single data sets."""
    values = paper_values()
    sources = dict.fromkeys((*PAPER_DATASETS, BOOSTED), source) | others
    cells = sorted({(dataset, calibrator, metric) for dataset, calibrator, _, metric in values})
    intervals = (
        (dataset, sources[dataset], calibrator, metric, quantity, 0.0, ERROR, -1.0, 1.0, None, 40)
        for (dataset, calibrator, metric), quantity in product(cells, QUANTITIES)
        if not metric.endswith(("_share", "null_p95"))
    )
    sizes = {row["dataset"]: row["n_classes"] for row in csv("simplex_projection")}
    return runs_of(values, sources, sizes, intervals=frame("intervals", *intervals))


@pytest.fixture(scope="module")
def hub() -> Runs:
    return paper_runs()


@pytest.fixture(scope="module")
def verdicts(hub) -> pl.DataFrame:
    return verdict_table(hub)


def shifted(runs: Runs, by: float) -> Runs:
    """The same with `by` added to MRP's AURC on `wands` under `ts`."""
    return with_value(runs, pl.col("value") + by, dataset="wands", calibrator="ts", variant="mrp", metric="aurc")


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
    assert numbers.filter(column="runs_above_random")["value"].is_between(0, 1).all()  # a count is a share
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(PRINTED)
    for place, half_unit in {
        ("main", "wands", "ts", "aurc_mrp"): 0.0005,
        ("ablation", "average", "mrp", "aurc"): 0.00005,
        ("label_spread", "wands", "average", "ratio"): 0.05,
        ("label_spread", "wands", "average", "runs_above_random"): 0.5 / 18,
    }.items():
        assert row_of(numbers, *place)["half_unit"] == pytest.approx(half_unit, abs=1e-15)


def test_the_papers_own_numbers_are_equal_or_near_and_nothing_is_off_whatever_the_order_of_rows(hub, verdicts):
    shuffled = {name: getattr(hub, name).sample(fraction=1, shuffle=True, seed=0) for name in ("metrics", "intervals")}
    assert verdict_table(replace(hub, **shuffled)).equals(verdicts)
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
    row = main_row(shifted(hub, shift), "aurc_mrp")
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
    average = frame("intervals", ("wands", "hub", "average", "selacc_50", "delta", 0.0, 0.0007, -1.0, 1.0, 0.5, 40))
    runs = replace(hub, intervals=pl.concat([hub.intervals, average]))
    row = row_of(verdict_table(runs), "budgeted_fallback", "wands", "average", "delta_selacc_50")
    assert row["tolerance"] == tolerance(0, 0, 0.0007)


@pytest.mark.parametrize("lacking", [{"intervals": frame("intervals")}, {}], ids=["intervals", "seeds"])
def test_without_a_tolerance_a_number_that_differs_is_not_comparable_but_an_equal_one_is(hub, verdicts, lacking):
    def without(runs: Runs) -> Runs:
        return replace(runs, **(lacking or {"metrics": runs.metrics.filter(seed=2)}))

    assert main_row(without(hub), "aurc_mrp")["verdict"] == "equal"
    row = main_row(without(shifted(hub, 0.003)), "aurc_mrp")
    assert (row["verdict"], row["tolerance"]) == (NOT_COMPARABLE, None)
    assert "no tolerance" in row["reason"]
    without_tolerance = set(verdicts.filter(pl.col("tolerance").is_null())["column"])
    assert without_tolerance == {"n_classes", "random_p95_pp", "ratio", "runs_above_random"}


def test_only_a_change_that_the_paper_prints_as_one_has_a_sign_and_may_disagree(hub, verdicts):
    assert main_row(shifted(hub, 0.02), "aurc_delta")["sign_agrees"] is False
    assert main_row(hub, "aurc_delta")["sign_agrees"] is True
    assert main_row(hub, "aurc_mrp")["sign_agrees"] is None
    zero = row_of(verdicts, "budgeted_fallback", "alloprof_rerank", "average", "delta_selacc_10")
    assert (zero["paper"], zero["sign_agrees"]) == (0, None)


def test_simulated_data_get_one_line_that_says_why_there_is_no_comparison():
    (row,) = verdict_table(paper_runs("simulated")).to_dicts()
    assert (row["verdict"], row["ours"]) == (NOT_COMPARABLE, None)
    assert all(f"{name} (simulated)" in row["reason"] for name in PAPER_DATASETS)


@pytest.mark.parametrize("source", ["simulated", "failed", "not run"])
@pytest.mark.parametrize("name", ["wands", BOOSTED])
def test_one_set_that_is_not_official_is_one_line_and_there_are_no_averages_with_it(hub, name, source):
    runs = paper_runs(**{name: source})
    if source != "simulated":
        missing = (name,) if source == "failed" else ()
        runs = replace(hub, metrics=hub.metrics.filter(pl.col("dataset") != name), missing=missing)
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
    table = verdict_table(replace(hub, metrics=metrics, calibrators=calibrators))
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
    assert verdict_table(replace(hub, **shuffled)).equals(verdicts)


@pytest.mark.parametrize("changes", [WORSE, {}], ids=["worse", "no interval"])
def test_a_verdict_claims_nothing_where_nothing_is_better(changes):
    text = " ".join(words(with_changes(changes)))
    assert not any(part in text for part in (USE, "Rerank by the reliability", "1,000 reviews"))
