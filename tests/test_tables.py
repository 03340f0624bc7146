"""Every table is a plain aggregation in the paper's columns, and nothing simulated reads as real."""

import dataclasses
from itertools import product

import numpy as np
import polars as pl
import pytest

from tasks.metrics.registry import COMPARED, ByLabel, Probabilities, Reliability, Simplex, View, metrics_of
from tasks.projection.variants import variants_for
from tasks.protocol.results import display_name
from tasks.tables import TABLES
from tasks.tables.ablation import OURS
from tasks.tables.display import ShownTable, cell, shown
from tasks.tables.headline import headline, headline_sentence
from tasks.tables.latex import escaped, latex
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs
from tasks.tables.verdict import FOLDER
from tasks.tables.verdict import TABLES as PAPER_TABLES
from tests.report_data import EMPTY, INTERVALS, RIVALS, SENSITIVITY, frame, runs_of

PRINTED = [table.key for table in PAPER_TABLES]
MEASURED = dict.fromkeys([*variants_for("paper"), *OURS], metrics_of(Reliability)) | {
    "confidence": metrics_of(View, Probabilities, ByLabel, Reliability),
    "mrc": metrics_of(Probabilities, Simplex),
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


def with_value(runs: Runs, metric: str, value: float | None) -> Runs:
    """The same runs with one metric at a value."""
    new = pl.when(metric=metric).then(value).otherwise("value").alias("value")
    return dataclasses.replace(runs, metrics=runs.metrics.with_columns(new))


def as_shown(name: str, runs: Runs) -> ShownTable:
    return shown(TABLES[name], TABLES[name](runs))


def as_latex(name: str, runs: Runs) -> str:
    return latex(as_shown(name, runs), TABLES[name](runs).schema)


def changes(*sets: tuple[str, float, float | None], calibrator: str = "average", metric: str = "nll_correct"):
    """Intervals of the changes of data sets, each with its p-value."""
    return frame(INTERVALS, *(
        (dataset, "simulated", calibrator, metric, "delta", value, 0.05, value - 0.1, value + 0.1, p, 40)
        for dataset, value, p in sets
    ))  # fmt: skip


@pytest.fixture(scope="module")
def runs() -> Runs:
    return as_runs()


@pytest.mark.parametrize("name", PRINTED)
def test_columns_and_rows_are_the_papers_in_one_order_whatever_the_order_of_the_runs(runs, name):
    table, paper = TABLES[name](runs), pl.read_csv(FOLDER / f"{name}.csv")
    assert table.columns == [*paper.columns, *(["ours"] if name == "ablation" else []), "source"]
    shuffled = dataclasses.replace(runs, metrics=runs.metrics.sample(fraction=1, shuffle=True, seed=0))
    assert TABLES[name](shuffled).equals(table)
    if name not in ("ablation", "robustness"):  # which have other rows
        keys = [key for key in ("dataset", "calibrator") if key in table.columns]
        assert sorted(table.select(keys).rows()) == sorted(paper.select(keys).rows())
        assert table["dataset"].unique(maintain_order=True).to_list()[: len(PAPER_DATASETS)] == [*PAPER_DATASETS]


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("main", 1, {"dataset": PAPER_DATASETS[0], "calibrator": "ts"}),
        ("main", 1, {"aurc_conf": 3, "aurc_mrp": 2, "aurc_delta": -1}),
        ("main", 1, {"aurc_conf_std": 1, "aurc_mrp_std": 1}),  # of 2, 3, 4 and of 1, 2, 3
        ("label_spread", 0, {"label_spread_pp": 50 / 3, "random_p95_pp": 20, "ratio": 5 / 6}),
        ("label_spread", 0, {"runs_above_random": "6/18"}),  # seed 2 of each of six calibrators
        ("label_spread_by_calibrator", 1, {"calibrator": "ts", "runs_above_random": "1/3"}),
        ("simplex_projection", 0, {"n_classes": 2, "q_below_uniform_pct": 200, "solved_pct": 200}),  # mean of 1, 2, 3
        ("simplex_projection", 0, {"fixed_ece_base": 2, "fixed_ece_mrc": 2, "fixed_ece_delta": 0}),
    ],
)
def test_a_cell_is_a_mean_or_a_deviation_over_seeds_a_share_in_percent_or_a_count_of_runs(runs, name, row, expected):
    found = TABLES[name](runs).row(row, named=True)
    assert {column: found[column] for column in expected} == pytest.approx(expected)


def test_the_budgeted_fallback_is_a_mean_over_calibrators_then_over_data_sets():
    deltas = {("esci_rerank_us", "uncal"): 0.1, ("esci_rerank_us", "ts"): 0.3, ("wands", "uncal"): 0.6}
    values = {
        (*place, variant, "selacc_50"): [0.5 + delta * (variant == "mrp")]
        for place, delta in deltas.items()
        for variant in ("confidence", "mrp")
    }
    table = TABLES["budgeted_fallback"](runs_of(values, {"esci_rerank_us": "hub", "wands": "simulated"}))
    assert table["dataset"].to_list() == ["esci_rerank_us", "wands", "average"]
    assert np.allclose(table["delta_selacc_50"], [0.2, 0.6, 0.4])
    assert table["delta_selacc_10"].null_count() == 3
    assert table["source"].to_list() == ["hub", "simulated", "hub+simulated"]


def test_the_papers_averages_are_the_means_of_its_own_rows():
    main, ablation = (pl.read_csv(FOLDER / f"{name}.csv") for name in ("main", "ablation"))
    shown = {"confidence": "conf", "mrp": "mrp"}
    values = {
        (row["dataset"], row["calibrator"], variant, metric): [row[f"{metric}_{shown[variant]}"]] * seeds
        for row, variant, metric in product(main.to_dicts(), shown, COMPARED)
        for seeds in [1 + (row["calibrator"] == "ts")]  # two seeds count as one cell
    }
    table = TABLES["ablation"](runs_of(values, dict.fromkeys(PAPER_DATASETS, "hub")))
    ours, printed = (rows.filter(pl.col("variant").is_in(shown)).select(COMPARED) for rows in (table, ablation))
    assert np.allclose(ours, printed, rtol=0, atol=0.0003)  # of three decimals


@pytest.mark.parametrize("undefined", [float("nan"), None])
def test_undefined_numbers_are_empty_in_csv_dashes_for_people_and_above_nothing(undefined):
    runs = with_value(as_runs(("wands",), ("ts",)), "aupr_error", undefined)
    assert TABLES["main"](runs)["aupr_error_conf"].to_list() == [None]
    assert "| – | – | – |" in as_shown("main", runs).markdown()
    row = TABLES["label_spread"](with_value(runs, "label_spread", undefined)).row(0)
    assert (row[1], row[3], row[4]) == (None, None, "0/3")


def test_the_ablation_marks_what_is_ours_whatever_variant_ran(runs):
    other = runs.metrics.filter(variant="mrp").with_columns(variant=pl.lit("label_beta"))
    table = TABLES["ablation"](dataclasses.replace(runs, metrics=pl.concat([runs.metrics, other])))
    assert table["variant"].to_list() == [*variants_for("paper"), *OURS, "label_beta"]
    assert table.filter("ours")["variant"].to_list() == ["label_platt", "mrp_exact", "label_vector", "label_beta"]


def test_own_sets_stand_in_the_main_table_and_in_no_average(runs):
    own = as_runs((*PAPER_DATASETS, "tickets"))
    assert TABLES["main"](own)["dataset"][-1] == "tickets"
    for name in ("budgeted_fallback", "label_spread", "ablation", "simplex_projection", "robustness"):
        assert TABLES[name](own).equals(TABLES[name](runs)), name
    each = TABLES["ablation_by_dataset"](own)
    assert each["dataset"].unique(maintain_order=True).to_list() == [*PAPER_DATASETS, "tickets"]
    means = each.filter(pl.col("dataset") != "tickets").group_by("variant", maintain_order=True).agg(pl.mean(COMPARED))
    assert np.allclose(means.select(COMPARED), TABLES["ablation"](own).select(COMPARED), rtol=0, atol=1e-12)
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
    failed = dataclasses.replace(runs, missing=("scidocs",))
    assert len(TABLES["main"](failed).filter(dataset="scidocs")) == (2 if wide else 1)


@pytest.mark.parametrize("name", ["beta", "matrix"])
def test_a_calibrator_that_ran_beside_those_asked_for_is_told_and_counts_in_no_mean_nor_does_the_boosted_base(name):
    runs = as_runs(("mslr_web10k", BOOSTED), ("uncal", "ts", name), calibrators=("uncal", "ts"))
    alone = dataclasses.replace(runs, metrics=runs.metrics.filter(pl.col("calibrator") != name))
    for key in {*TABLES} - {"robustness", "sensitivity", "rivals"}:
        assert TABLES[key](runs).equals(TABLES[key](alone)), key
    bases = TABLES["robustness"](runs).select("dataset", "base", "accuracy")
    shown = {"linear": 2.0, "lightgbm_balanced": 12.0, f"linear+{name}": 4.0, f"lightgbm_balanced+{name}": 14.0}
    assert bases.rows() == [("mslr_web10k", base, accuracy) for base, accuracy in shown.items()]
    assert name in TABLES["sensitivity"](runs)["option"].to_list()
    linear = dataclasses.replace(runs, metrics=runs.metrics.filter(pl.col("dataset") != BOOSTED))
    for key in {*PRINTED, "datasets"} - {"robustness"}:
        assert TABLES[key](runs).equals(TABLES[key](linear)), key
    assert TABLES["datasets"](runs)["dataset"].to_list() == ["mslr_web10k"]


def test_rivals_are_means_over_seeds_for_each_number_of_rows():
    rows = [
        ("wands", "hub", seed, 500, fit, 500 * (fit == 500), calibrator, variant, "aurc", seed / 10 + (fit > 500))
        for calibrator, fit, variant in (
            ("matrix", 1000, "confidence"), ("matrix", 500, "mrp"), ("ts", 500, "confidence"), ("ts", 500, "mrp"),
        )
        for seed in (1, 2, 3)
    ]  # fmt: skip
    more = ("wands", "official", 1, 900, 900, 900, "ts", "mrp", "aurc", 0.0)
    table = TABLES["rivals"](dataclasses.replace(EMPTY, rivals=frame(RIVALS, *rows, more)))
    assert table["calibrator"].to_list() == ["ts", "matrix", "matrix", "ts"]
    assert table["calibrator_fit_rows"].to_list() == [500, 500, 1000, 900]
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
    rows = [("mslr_web10k", "simulated", "ts", seed, "ece_25_bins", "confidence", "aurc", 100.0) for seed in (2, 3)]
    runs = as_runs(("mslr_web10k", BOOSTED), ("ts", "matrix"), sensitivity=frame(SENSITIVITY, *rows))
    table = TABLES["sensitivity"](runs).filter(dataset="mslr_web10k", calibrator="ts")
    (row,) = table.filter(option=option, variant=variant, metric="aurc").to_dicts()
    assert (row["difference"], row["value"] - row["default"]) == (difference, difference)


def test_holm_is_over_the_papers_data_sets_and_over_ones_own_apart():
    intervals = [
        changes(("wands", -0.5, 0.01), ("scidocs", -0.5, 0.02), ("tickets", -0.5, 0.02)),
        changes(("wands", -0.5, 0.02), calibrator="ts"),
        changes(("wands", -0.5, None), metric="aurc"),
    ]
    table = TABLES["intervals"](as_runs((*PAPER_DATASETS, "tickets"), intervals=pl.concat(intervals)))
    assert {(*row[:3], row[8]) for row in table.iter_rows()} == {
        *((dataset, "average", "nll_correct", 0.02) for dataset in ("wands", "scidocs", "tickets")),
        *(("wands", "ts", "nll_correct", None), ("wands", "average", "aurc", None)),
    }
    assert table["dataset"].to_list() == [*["wands"] * 3, "scidocs", "tickets"]


def test_the_headline_is_the_mean_change_over_calibrators_and_counts_data_sets():
    covers_zero, two_left = ("amazon_esci", -0.05, 0.001), ("mslr_web10k", -0.5, 0.02)  # so that its p is .04
    others = ("wands", -0.5, 0.001), ("scidocs", 0.5, 0.001), ("alloprof_rerank", -0.5, 0.06)
    intervals = [
        changes(*others, covers_zero, two_left),
        changes(("wands", 0.5, 0.001), metric="aupr_error"),
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


def test_a_data_set_that_failed_is_a_marked_hole_in_its_place():
    without = tuple(name for name in PAPER_DATASETS if name != "scidocs")
    runs = as_runs(without, ("uncal", "ts"), missing=("scidocs", "tickets"))
    table = TABLES["main"](runs)
    assert table["dataset"].unique(maintain_order=True).to_list() == [*PAPER_DATASETS, "tickets"]
    assert table.filter(dataset="scidocs")["aurc_mrp"].null_count() == 2
    assert "scidocs (failed)" in as_shown("main", runs).markdown()
    assert TABLES["budgeted_fallback"](runs)["dataset"].to_list() == [*PAPER_DATASETS, "average"]
    assert not [name for name in headline(runs) if "scidocs" in name]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "runs",
    [EMPTY, dataclasses.replace(EMPTY, missing=("wands",)), as_runs(("tickets",), ("ts",)), as_runs(("wands",))],
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
        sensitivity=frame(SENSITIVITY, ("wands", "simulated", "ts", 1, "ece_25_bins", "confidence", "ece", 0.5)),
        rivals=frame(RIVALS, ("wands", "simulated", 1, 300, 300, 300, "matrix", "mrp", "aurc", 0.5)),
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
    printed = {"a_b & 5%": r"a\_b \& 5\%", "-0.1 ± 0.2": r"$-$0.1 $\pm$ 0.2", "–": "--"}
    assert [escaped(text) for text in printed] == [*printed.values()]
