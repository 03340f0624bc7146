"""Tables of the report: aggregation, order, format, and marks of simulated and failed data sets."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from relmap.metrics.registry import (
    COMPARED_METRICS,
    METRICS,
    DecisionView,
    LabelView,
    ProbabilityView,
    ReliabilityView,
    SimplexView,
    metrics_for_views,
)
from relmap.projection.registry import variants_with_role
from tasks.results.values import FAILED, display_name
from tasks.tables import TABLES
from tasks.tables.display import (
    Cell,
    FormattedTable,
    _latex_title,
    escape_latex,
    format_table,
    format_value,
    render_latex,
)
from tasks.tables.overview import SCOPE_OF_INTERVALS, compute_headline, describe_headline
from tasks.tables.runs import BOOSTED, DEVIATION_NOTE, PAPER_CALIBRATORS, PAPER_DATASETS, Runs
from tasks.tables.verdict import PAPER_FOLDER
from tasks.tables.verdict import TABLES as PAPER_TABLES
from tests.report_data import EMPTY_RUNS, QUANTITIES, combine_runs, make_frame, make_results, make_runs

SEEDS = (1, 2, 3)
PAPER_VARIANTS = variants_with_role("paper")
OTHER_VARIANTS = variants_with_role("rival", "sensitivity")
PAPER_TABLE_KEYS = [table.key for table in PAPER_TABLES]
METRICS_BY_VARIANT = {
    **dict.fromkeys([*PAPER_VARIANTS, *OTHER_VARIANTS], metrics_for_views(ReliabilityView)),
    "confidence": metrics_for_views(DecisionView, ProbabilityView, LabelView, ReliabilityView),
    "mrc": metrics_for_views(ProbabilityView, SimplexView),
}


def compute_value(dataset: int, calibrator: int, seed: int, variant: str, metric: str) -> float:
    """Return 10 * data set + calibrator + seed, one less for MRP; label spreads are above random on even seeds only."""
    if metric == "label_spread":
        return 0.3 if seed % 2 == 0 else 0.1
    if metric == "label_spread_null_p95":
        return 0.2
    return 10.0 * dataset + calibrator + seed - (variant == "mrp")


def make_complete_runs(
    datasets: tuple[str, ...] = PAPER_DATASETS, ran: tuple[str, ...] = PAPER_CALIBRATORS, **fields: object
) -> Runs:
    """Make runs of three seeds in which every metric is measured; `fields` are fields of `Runs`."""
    values = {}
    for (i, dataset), (j, calibrator) in product(enumerate(datasets), enumerate(ran)):
        for variant, metrics in METRICS_BY_VARIANT.items():
            for metric in metrics:
                key = (dataset, calibrator, variant, metric.key)
                values[key] = [compute_value(i, j, seed, variant, metric.key) for seed in SEEDS]
    return make_runs(values, dict.fromkeys(datasets, "simulated"), **{"calibrators": ran} | fields)


def set_metric(runs: Runs, value: float | None, metric: str) -> Runs:
    changed = pl.when(pl.col("metric") == metric).then(pl.lit(value)).otherwise("value")
    return replace(runs, metrics=runs.metrics.with_columns(value=changed))


def format_cells(key: str, runs: Runs) -> FormattedTable:
    return format_table(TABLES[key], TABLES[key](runs))


def format_latex(key: str, runs: Runs) -> str:
    return render_latex(format_cells(key, runs), TABLES[key](runs).schema)


def make_changes(
    *changes: tuple[str, float, float | None], calibrator: str = "average", metric: str = "nll_correct"
) -> pl.DataFrame:
    """Make intervals of changes: data set, change and p-value."""
    rows = []
    for (dataset, value, p_value), quantity in product(changes, QUANTITIES):
        low = value - 0.1
        high = value + 0.1
        rows.append((dataset, "simulated", calibrator, metric, quantity, value, 0.05, low, high, p_value, 40))
    return make_frame("intervals", *rows)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return make_complete_runs()


@pytest.mark.parametrize("key", PAPER_TABLE_KEYS)
def test_columns_are_those_of_the_paper(runs, key):
    paper = pl.read_csv(PAPER_FOLDER / f"{key}.csv")
    further_columns = ["added", "source"] if key == "ablation" else ["source"]
    assert TABLES[key](runs).columns == [*paper.columns, *further_columns]


@pytest.mark.parametrize("key", PAPER_TABLE_KEYS)
def test_the_order_of_rows_does_not_depend_on_that_of_the_runs(runs, key):
    shuffled = replace(runs, metrics=runs.metrics.sample(fraction=1, shuffle=True, seed=0))
    assert TABLES[key](shuffled).equals(TABLES[key](runs))


@pytest.mark.parametrize("key", [key for key in PAPER_TABLE_KEYS if key not in ("ablation", "robustness")])
def test_rows_are_those_of_the_paper(runs, key):
    table = TABLES[key](runs)
    paper = pl.read_csv(PAPER_FOLDER / f"{key}.csv")
    keys = [column for column in ("dataset", "calibrator") if column in table.columns]
    assert sorted(table.select(keys).rows()) == sorted(paper.select(keys).rows())
    assert table["dataset"].unique(maintain_order=True).to_list()[: len(PAPER_DATASETS)] == [*PAPER_DATASETS]


@pytest.mark.parametrize(
    ("key", "row", "expected"),
    [
        ("main", 1, {"calibrator": "ts", "aurc_conf": 3, "aurc_mrp": 2, "aurc_delta": -1}),
        ("main", 1, {"dataset": PAPER_DATASETS[0], "aurc_conf_std": 1, "aurc_mrp_std": 1}),  # of 2, 3, 4; of 1, 2, 3
        ("label_spread", 0, {"label_spread_pp": 50 / 3, "ratio": 5 / 6, "runs_above_random": "6/18"}),  # seed 2 of each
        ("label_spread_by_calibrator", 1, {"calibrator": "ts", "random_p95_pp": 20, "runs_above_random": "1/3"}),
        ("simplex_projection", 0, {"n_classes": 2, "q_below_uniform_pct": 200, "fixed_ece_delta": 0}),  # of 1, 2, 3
    ],
)
def test_cells_are_means_standard_deviations_percentages_and_counts(runs, key, row, expected):
    cells = TABLES[key](runs).row(row, named=True)
    assert {column: cells[column] for column in expected} == pytest.approx(expected)


@pytest.fixture
def runs_with_unequal_counts() -> Runs:
    """Runs with two calibrators on one data set and one on another, and different numbers of seeds."""
    changes = {("esci_rerank_us", "uncal"): [0.1], ("esci_rerank_us", "ts"): [0.2, 0.4], ("wands", "uncal"): [0.6]}
    values = {}
    for (dataset, calibrator), changes_of_seeds in changes.items():
        values[dataset, calibrator, "confidence", "selacc_50"] = [0.5 for _ in changes_of_seeds]
        values[dataset, calibrator, "mrp", "selacc_50"] = [0.5 + change for change in changes_of_seeds]
    return make_runs(values, {"esci_rerank_us": "hub", "wands": "simulated"})


def test_averages_are_over_seeds_then_calibrators_then_data_sets(runs_with_unequal_counts):
    table = TABLES["budgeted_fallback"](runs_with_unequal_counts)
    assert np.allclose(table["delta_selacc_50"], [0.2, 0.6, 0.4])
    assert table["delta_selacc_10"].null_count() == 3
    assert table["source"].to_list() == ["hub", "simulated", "hub+simulated"]


def test_the_ablation_averages_over_pairs_of_data_set_and_calibrator_as_in_the_paper(runs_with_unequal_counts):
    mrp = TABLES["ablation"](runs_with_unequal_counts).filter(variant="mrp")
    assert mrp["selacc_50"].item() == pytest.approx(0.5 + (0.1 + 0.3 + 0.6) / 3)


@pytest.mark.parametrize("undefined", [float("nan"), None])
def test_undefined_numbers_are_empty_in_csv_dashes_in_markdown_and_not_above_random(undefined):
    runs = make_complete_runs(("wands",), ("ts",))
    without_aupr = set_metric(runs, undefined, "aupr_error")
    assert TABLES["main"](without_aupr)["aupr_error_conf"].to_list() == [None]
    assert "| – | – | – |" in format_cells("main", without_aupr).markdown()
    (row,) = TABLES["label_spread"](set_metric(runs, undefined, "label_spread")).to_dicts()
    assert row["label_spread_pp"] is None
    assert row["ratio"] is None
    assert row["runs_above_random"] == "0/3"


@pytest.mark.parametrize("key", ["ablation", "ablation_by_dataset"])
def test_the_ablation_has_the_variants_of_the_paper_first_and_marks_the_others(runs, key):
    other = runs.metrics.filter(variant="mrp").with_columns(variant=pl.lit("label_beta"))
    table = TABLES[key](replace(runs, metrics=pl.concat([other, runs.metrics])))
    variants = [*PAPER_VARIANTS, *OTHER_VARIANTS, "label_beta"]
    known = ["label_platt", "mrp_exact", "mrp_pooled", "label_beta"]
    n_blocks = len(table) // len(variants)
    assert table["variant"].to_list() == variants * n_blocks
    added = table.filter("added")["variant"].to_list()
    assert added == [*OTHER_VARIANTS, "label_beta"] * n_blocks
    assert [variant for variant in added if variant in known] == known * n_blocks


@pytest.fixture(scope="module")
def runs_with_own_dataset() -> Runs:
    return make_complete_runs((*PAPER_DATASETS, "tickets"))


def test_own_data_sets_are_the_last_rows(runs_with_own_dataset):
    assert TABLES["main"](runs_with_own_dataset)["dataset"][-1] == "tickets"
    by_dataset = TABLES["ablation_by_dataset"](runs_with_own_dataset)
    assert by_dataset["dataset"].unique(maintain_order=True).to_list() == [*PAPER_DATASETS, "tickets"]


@pytest.mark.parametrize("key", ["budgeted_fallback", "label_spread", "ablation", "simplex_projection", "robustness"])
def test_own_data_sets_do_not_change_the_tables_of_the_paper(runs, runs_with_own_dataset, key):
    assert TABLES[key](runs_with_own_dataset).equals(TABLES[key](runs))


def test_the_ablation_is_the_mean_of_the_ablations_of_the_papers_data_sets(runs_with_own_dataset):
    by_dataset = TABLES["ablation_by_dataset"](runs_with_own_dataset).filter(pl.col("dataset") != "tickets")
    means = by_dataset.group_by("variant", maintain_order=True).agg(pl.mean(COMPARED_METRICS))
    ablation = TABLES["ablation"](runs_with_own_dataset)
    np.testing.assert_allclose(means.select(COMPARED_METRICS), ablation.select(COMPARED_METRICS), rtol=0, atol=1e-12)


def test_own_data_sets_have_their_own_section(runs_with_own_dataset):
    above, below = format_cells("main", runs_with_own_dataset).markdown().split("**Own data sets**")
    assert "tickets" not in above
    assert "wands" not in below
    assert "| dataset | calibrator |" in below
    assert "\\emph{Own data sets}" in format_latex("main", runs_with_own_dataset)


@pytest.mark.parametrize("for_all_datasets", [True, False])
@pytest.mark.parametrize("calibrator", ["beta", "matrix"])
def test_a_further_calibrator_of_the_tables_is_in_every_table_and_average(calibrator, for_all_datasets):
    calibrators = ("ts", calibrator)
    fields = {} if for_all_datasets else {"calibrators": ("ts",), "calibrators_by_dataset": {"wands": calibrators}}
    runs = make_complete_runs(("wands", "tickets"), calibrators, **fields)
    for dataset, expected in (("wands", calibrators), ("tickets", calibrators if for_all_datasets else ("ts",))):
        main = TABLES["main"](runs).filter(dataset=dataset)
        assert main["calibrator"].to_list() == [*expected]
        for key, column in (("ablation_by_dataset", "aurc"), ("overview", "aurc_conf")):
            average = TABLES[key](runs).filter(dataset=dataset)[column][0]
            assert average == pytest.approx(main["aurc_conf"].mean())
    for key in ("label_spread_by_calibrator", "simplex_projection"):
        assert TABLES[key](runs).filter(dataset="wands")["calibrator"].to_list() == [*calibrators]
    assert TABLES["label_spread"](runs)["runs_above_random"].to_list() == ["2/6"]
    with_failed = replace(runs, missing=("scidocs",))
    n_failed_rows = len(TABLES["main"](with_failed).filter(dataset="scidocs"))
    assert n_failed_rows == (2 if for_all_datasets else 1)


@pytest.fixture(params=["beta", "matrix"])
def rival(request) -> str:
    return request.param


@pytest.fixture
def runs_with_rival(rival) -> Runs:
    return make_complete_runs(("mslr_web10k", BOOSTED), ("uncal", "ts", rival), calibrators=("uncal", "ts"))


def test_a_rival_changes_no_table_but_those_that_compare_it(runs_with_rival, rival):
    without_rival = replace(runs_with_rival, metrics=runs_with_rival.metrics.filter(pl.col("calibrator") != rival))
    for key in set(TABLES) - {"robustness", "sensitivity", "rivals"}:
        assert TABLES[key](runs_with_rival).equals(TABLES[key](without_rival)), key
    assert rival in TABLES["sensitivity"](runs_with_rival)["option"].to_list()


def test_the_robustness_table_has_both_base_predictors_and_those_with_the_rival(runs_with_rival, rival):
    rows = TABLES["robustness"](runs_with_rival).select("dataset", "base", "accuracy").rows()
    assert rows == [
        ("mslr_web10k", "linear", 2.0),
        ("mslr_web10k", "lightgbm_balanced", 12.0),
        ("mslr_web10k", f"linear+{rival}", 4.0),
        ("mslr_web10k", f"lightgbm_balanced+{rival}", 14.0),
    ]


def test_the_boosted_base_predictor_changes_no_table_but_robustness(runs_with_rival):
    linear_only = replace(runs_with_rival, metrics=runs_with_rival.metrics.filter(pl.col("dataset") != BOOSTED))
    for key in {*PAPER_TABLE_KEYS, "datasets"} - {"robustness"}:
        assert TABLES[key](runs_with_rival).equals(TABLES[key](linear_only)), key
    assert TABLES["datasets"](runs_with_rival)["dataset"].to_list() == ["mslr_web10k"]


def test_rivals_are_means_over_seeds_for_each_number_of_rows():
    rows = []
    for seed in SEEDS:
        key = ("wands", "hub", seed, 500)
        one_more = int(seed > 1)  # two seeds have one more row than requested
        rows += [
            (*key, 1000 + one_more, 0, "matrix", "confidence", "aurc", seed / 10 + 1),
            (*key, 500 + one_more, 500, "matrix", "mrp", "aurc", seed / 10),
            (*key, 500 + one_more, 500, "ts", "confidence", "aurc", seed / 10),
            (*key, 500 + one_more, 500, "ts", "mrp", "aurc", seed / 10),
        ]
    rows.append(("wands", "official", 1, 900, 900, 900, "ts", "mrp", "aurc", 0.0))

    table = TABLES["rivals"](replace(EMPTY_RUNS, rivals=make_frame("rivals", *rows)))

    assert table["calibrator"].to_list() == ["ts", "matrix", "matrix", "ts"]
    assert table["calibrator_fit_rows"].to_list() == [501, 501, 1001, 900]
    on_both_parts = table.row(2, named=True)
    assert on_both_parts["projection_fit_rows"] == 0
    assert on_both_parts["aurc_conf"] == pytest.approx(1.2)
    assert on_both_parts["aurc_conf_std"] == pytest.approx(0.1)
    assert on_both_parts["aurc_mrp"] is None


@pytest.mark.parametrize(
    ("option", "variant", "difference"),
    [("matrix", "mrp", 1), ("mrp_exact", "mrp", 1), (BOOSTED, "confidence", 10), ("ece_25_bins", "confidence", 97.5)],
)
def test_an_alternative_is_compared_with_its_default_over_common_seeds(option, variant, difference):
    rows = []
    for seed, value in ((2, 100.0), (3, 100.0), (4, 900.0)):  # the default has no seed 4
        rows.append(("mslr_web10k", "simulated", "ts", seed, "ece_25_bins", "confidence", "aurc", value))
    sensitivity = make_frame("sensitivity", *rows)
    runs = make_complete_runs(("mslr_web10k", BOOSTED), ("ts", "matrix"), sensitivity=sensitivity)
    table = TABLES["sensitivity"](runs).filter(dataset="mslr_web10k", calibrator="ts")
    (row,) = table.filter(option=option, variant=variant, metric="aurc").to_dicts()
    assert row["difference"] == difference
    assert row["value"] - row["default"] == difference


def test_a_data_set_is_described_by_rows_groups_labels_and_class_priors():
    (row,) = TABLES["datasets"](combine_runs([make_results(rows=600, groups=60)])).to_dicts()
    assert row["rows_test"] == 600
    assert row["groups_test"] == 60
    assert row["labels"] == "no/maybe/yes"
    assert row["class_priors_train"] == "0.333/0.333/0.333"


def test_holms_correction_has_separate_families_for_the_paper_and_for_own_data_sets():
    intervals = pl.concat(
        [
            make_changes(("wands", -0.5, 0.01), ("scidocs", -0.5, 0.02), ("tickets", -0.5, 0.02)),
            make_changes(("wands", -0.5, 0.02), calibrator="ts"),
            make_changes(("wands", -0.5, None), metric="aurc"),
        ]
    )
    table = TABLES["intervals"](make_complete_runs((*PAPER_DATASETS, "tickets"), intervals=intervals))
    assert table.select("dataset", "calibrator", "metric", "p_holm").rows() == [
        ("wands", "ts", "nll_correct", None),
        ("wands", "average", "nll_correct", 0.02),
        ("wands", "average", "aurc", None),
        ("scidocs", "average", "nll_correct", 0.02),
        ("tickets", "average", "nll_correct", 0.02),
    ]


def test_the_headline_has_mean_changes_and_counts_data_sets():
    intervals = pl.concat(
        [
            make_changes(
                ("wands", -0.5, 0.001),
                ("scidocs", 0.5, 0.001),
                ("alloprof_rerank", -0.5, 0.06),  # only the interval decides
                ("amazon_esci", -0.05, 0.001),  # the interval includes zero
                ("mslr_web10k", np.nan, None),
            ),
            make_changes(("wands", 0.5, 0.001), ("scidocs", np.nan, None), metric="aupr_error"),
            make_changes(("wands", -0.5, 0.001), calibrator="ts"),
        ]
    )
    headline = compute_headline(make_complete_runs(intervals=intervals, missing=("esci_rerank_us",)))
    assert headline["wands (simulated)"] == {"nll_correct": -1.0, "aupr_error": -1.0, "aurc": -1.0}
    assert headline["data_sets"]["nll_correct"] == {"improved": 2, "worsened": 1, "of": 4}
    assert headline["data_sets"]["aupr_error"] == {"improved": 1, "worsened": 0, "of": 1}


def test_the_headline_sentence_counts_data_sets_by_family_and_states_the_scope():
    intervals = make_changes(("wands", -0.5, 0.001), ("scidocs", 0.5, 0.9), ("tickets", 0.5, 0.001))
    sentence = describe_headline(make_complete_runs((*PAPER_DATASETS, "tickets"), intervals=intervals))
    assert re.match(r"On 1 of 2 data sets \(simulated\) MRP lowers .*; on 1 .*higher", sentence)
    assert re.search(r"\bOn 0 of 1 own [^(]*\(simulated\)", sentence)
    assert sentence.endswith(SCOPE_OF_INTERVALS)


def test_the_headline_sentence_without_intervals_has_no_number():
    assert re.fullmatch(r"No interval \D*", describe_headline(make_complete_runs()))


def test_failed_own_data_sets_and_unknown_calibrators_come_last():
    runs = make_complete_runs(("wands", "tickets"), ("ts", "beta", "matrix", "vector"), missing=("bills",))
    assert runs.own_datasets() == ["tickets", "bills"]
    assert runs.other_calibrators() == ["vector", "matrix", "beta"]

    names = [f"own_{number}" for number in range(30)]
    many = runs.metrics.head(1).drop("calibrator").join(pl.DataFrame({"calibrator": names}), how="cross")
    metrics = many.select(runs.metrics.columns)
    assert replace(runs, metrics=metrics).other_calibrators() == names  # in the order of the rows


@pytest.fixture
def runs_with_failed_datasets() -> Runs:
    finished = tuple(name for name in PAPER_DATASETS if name != "scidocs")
    return make_complete_runs(finished, ("uncal", "ts"), missing=("scidocs", "tickets"))


@pytest.mark.parametrize(("key", "n_rows"), [("main", 2), ("overview", 1)])
def test_a_failed_data_set_has_empty_rows_in_its_place(runs_with_failed_datasets, key, n_rows):
    table = TABLES[key](runs_with_failed_datasets)
    assert table["dataset"].unique(maintain_order=True).to_list() == [*PAPER_DATASETS, "tickets"]
    failed = table.filter(dataset="scidocs", source=FAILED)
    numbers = failed.select(pl.exclude("dataset", "calibrator", "source"))
    assert set(numbers.null_count().row(0)) == {n_rows}
    assert "scidocs (failed)" in format_cells(key, runs_with_failed_datasets).markdown()


def test_a_failed_data_set_is_in_no_average_and_not_in_the_headline(runs_with_failed_datasets):
    rows = TABLES["budgeted_fallback"](runs_with_failed_datasets)["dataset"].to_list()
    assert rows == [*PAPER_DATASETS, "average"]
    assert not [name for name in compute_headline(runs_with_failed_datasets) if "scidocs" in name]


@pytest.mark.parametrize("key", TABLES)
@pytest.mark.parametrize(
    "runs",
    [
        EMPTY_RUNS,
        replace(EMPTY_RUNS, missing=("wands",)),
        make_complete_runs(("tickets",), ("ts",)),
        make_complete_runs(("wands",)),
    ],
    ids=["nothing", "all failed", "own data set only", "one data set"],
)
def test_every_table_can_be_made_of_incomplete_runs(key, runs):
    rows = TABLES[key](runs)
    table = format_table(TABLES[key], rows)
    assert rows.columns[-1] == "source"
    assert TABLES[key].caption in table.markdown()
    assert f"tab:{key}" in render_latex(table, rows.schema)


def test_display_names_state_simulated_sources():
    assert display_name("average", "hub+simulated") == "average (hub+simulated)"
    assert display_name("wands", "hub") == "wands"


@pytest.mark.parametrize("key", TABLES)
def test_every_row_of_simulated_data_is_marked(key):
    runs = make_complete_runs(intervals=make_changes(("wands", -0.5, 0.01)))
    table = format_cells(key, runs)
    for row in table.texts:
        assert any("simulated" in text for text in row)
    has_rows = table.n_rows > 0
    assert ("simulated" in table.markdown()) == has_rows
    assert ("simulated" in format_latex(key, runs)) == has_rows


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("aupr_error", r"AUPR-Error$\uparrow$"),
        ("aurc", r"AURC$\downarrow$"),
        ("nll_correct", r"$\mathrm{NLL}_{\mathrm{correct}}\downarrow$"),
        ("label_spread", "label spread"),  # neither direction is an improvement
    ],
)
def test_arrows_in_latex_show_the_direction_of_an_improvement(key, title):
    assert _latex_title(METRICS[key]) == title


def test_standard_deviations_follow_means_and_improvements_are_bold(runs):
    text = format_cells("main", runs).markdown()
    assert "3.000 ± 1.000" in text
    assert DEVIATION_NOTE in text
    assert r"AURC$\downarrow$" in format_latex("main", runs)
    row = text.splitlines()[4]
    assert row.count("**-1.000**") == 2  # NLL and AURC; a lower AUPR-Error is worse
    assert "| -1.000 |" in row


def test_a_change_is_not_bold_if_its_interval_covers_zero():
    intervals = make_changes(("wands", -0.05, 0.5), ("scidocs", -0.5, 0.001), ("amazon_esci", 0.5, 0.01))
    text = format_cells("overview", make_complete_runs(intervals=intervals)).markdown()
    assert "| -0.050 |" in text
    assert "| **-0.500** |" in text
    assert "| +0.500 |" in text


@pytest.fixture(scope="module")
def runs_with_all_tables() -> Runs:
    """Runs with at least one row in every table, and an underscore in the name of an own data set."""
    return make_complete_runs(
        (*PAPER_DATASETS, "my_tickets"),
        sensitivity=make_frame("sensitivity", ("wands", "simulated", "ts", 1, "ece_25_bins", "confidence", "ece", 0.5)),
        rivals=make_frame("rivals", ("wands", "simulated", 1, 300, 300, 300, "matrix", "mrp", "aurc", 0.5)),
        intervals=make_changes(("wands", -0.5, 0.01)),
    )


@pytest.mark.parametrize("key", TABLES)
def test_latex_is_balanced_and_escaped(runs_with_all_tables, key):
    text = format_latex(key, runs_with_all_tables)
    without_escaped_braces = text.replace("\\{", "").replace("\\}", "")
    assert without_escaped_braces.count("{") == without_escaped_braces.count("}")
    assert text.count("\\begin{") == text.count("\\end{")
    assert "_" not in text.replace("\\_", "").replace("_{\\mathrm{correct}}", "").replace(f"tab:{key}", "")


@pytest.mark.parametrize("key", TABLES)
def test_every_line_of_latex_has_a_cell_for_each_column(runs_with_all_tables, key):
    n_columns = len(format_cells(key, runs_with_all_tables).columns)
    for line in format_latex(key, runs_with_all_tables).splitlines():
        if line.endswith("\\\\") and "\\caption" not in line:
            n_spanned = sum(int(part.split("}")[0]) - 1 for part in line.split("\\multicolumn{")[1:])
            assert line.replace("\\&", "").count("&") + 1 + n_spanned == n_columns


@pytest.mark.parametrize(
    ("value", "expected"), [(0.1235, "+0.12"), (0.125, "+0.12"), (-0.0001, "0.00"), (True, "yes"), (np.nan, "–")]
)
def test_values_are_rounded(value, expected):
    assert format_value(value, 2, signed=True) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("a_b & 5%", r"a\_b \& 5\%"), ("-0.1 ± 0.2", r"$-$0.1 $\pm$ 0.2"), ("–", "--")]
)
def test_text_is_escaped_for_latex(text, expected):
    assert escape_latex(text) == expected


def test_a_vertical_bar_in_a_label_stays_in_its_cell_of_markdown():
    table = FormattedTable("key", "caption", "", ["labels"], {"": [[Cell("a|b\nc")]]}, 1)
    assert r"| a\|b c |" in table.markdown()
