"""Every cell of the tables of the report, from a few made-up numbers that all differ from each other."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import sqrt

import numpy as np
import polars as pl
import pytest
from jinja2 import UndefinedError

from relmap.metrics.registry import COMPARED_METRICS
from tasks.results.comparison import summarize_datasets
from tasks.results.values import AVERAGE, SIMPLEX
from tasks.tables import TABLES, display
from tasks.tables.deviations import CELL, compute_deviations
from tasks.tables.display import TEMPLATES, Cell, FormattedTable, format_table, parse_metric_column, render_latex
from tasks.tables.overview import SCOPE_OF_INTERVALS, compute_headline, describe_headline
from tasks.tables.runs import BOLD_NOTE, BOOSTED, DEVIATION_NOTE, PAPER_CALIBRATORS, PAPER_DATASETS, Runs
from tests.report_data import EMPTY_RUNS, make_frame, make_runs

CALIBRATORS = ("uncal", "ts")
SEEDS = (1, 2, 3)
DATASETS = {"amazon_esci": "hub", "wands": "simulated", "tickets": "files"}
METRICS_OF_VARIANTS = {
    "confidence": (
        "accuracy",
        "ece",
        "top_ece",
        "nll",
        "brier",
        "label_spread",
        "label_spread_null_p95",
        "nll_correct",
        "aupr_error",
        "aurc",
        "selacc_10",
        "selacc_50",
        "selacc_70",
        "selacc_90",
    ),
    "mrp": ("nll_correct", "aupr_error", "aurc", "selacc_10", "selacc_50", "selacc_70", "selacc_90"),
    SIMPLEX: ("ece", "top_ece", "nll", "brier", "infeasible_share", "solved_share"),
}
Key = tuple[str, str, str, str]  # data set, calibrator, variant, metric
Values = dict[Key, tuple[float, ...]]


def draw_values(datasets: Sequence[str] = tuple(DATASETS), calibrators: Sequence[str] = CALIBRATORS) -> Values:
    """Draw a number between 0 and 1 for each data set, calibrator, variant, metric and seed."""
    generator = np.random.default_rng(0)
    values: Values = {}
    for dataset, calibrator in product(datasets, calibrators):
        for variant, metrics in METRICS_OF_VARIANTS.items():
            for metric in metrics:
                values[dataset, calibrator, variant, metric] = tuple(generator.random(len(SEEDS)).round(3).tolist())
    return values


@pytest.fixture(scope="module")
def values() -> Values:
    return draw_values()


@pytest.fixture(scope="module")
def runs(values) -> Runs:
    return make_runs(values, DATASETS, {"amazon_esci": 4, "wands": 3, "tickets": 5}, calibrators=CALIBRATORS)


def index_rows(table: pl.DataFrame, *key: str) -> Mapping[tuple[str, ...], dict[str, object]]:
    return dict(zip(table.select(key).rows(), table.to_dicts(), strict=True))


def assert_cells(row: Mapping[str, object], expected: Mapping[str, object]) -> None:
    """Compare some cells of a row."""
    for column, value in expected.items():
        assert row[column] == pytest.approx(value, abs=1e-12), column


def standard_deviation(numbers: Sequence[float]) -> float:
    return float(np.std(numbers, ddof=1))


def test_every_cell_of_the_main_table(runs, values):
    table = TABLES["main"](runs)
    assert table.select("dataset", "calibrator", "source").rows() == [
        ("amazon_esci", "uncal", "hub"),
        ("amazon_esci", "ts", "hub"),
        ("wands", "uncal", "simulated"),
        ("wands", "ts", "simulated"),
        ("tickets", "uncal", "files"),
        ("tickets", "ts", "files"),
    ]
    for key, row in index_rows(table, "dataset", "calibrator").items():
        expected = {name: np.mean(values[*key, "confidence", name]) for name in ("accuracy", "ece")}
        for metric in COMPARED_METRICS:
            before = values[*key, "confidence", metric]
            after = values[*key, "mrp", metric]
            expected[f"{metric}_conf"] = np.mean(before)
            expected[f"{metric}_conf_std"] = standard_deviation(before)
            expected[f"{metric}_mrp"] = np.mean(after)
            expected[f"{metric}_mrp_std"] = standard_deviation(after)
            expected[f"{metric}_delta"] = np.mean(after) - np.mean(before)
        assert [*row] == ["dataset", "calibrator", *expected, "source"]
        assert_cells(row, expected)


def test_every_cell_of_the_budgeted_fallback(runs, values):
    table = TABLES["budgeted_fallback"](runs)
    changes: dict[tuple[str, int], list[float]] = {}
    for dataset, calibrator, coverage in product(("amazon_esci", "wands"), CALIBRATORS, (10, 50, 70, 90)):
        key = (dataset, calibrator)
        after = values[*key, "mrp", f"selacc_{coverage}"]
        change = np.mean(after) - np.mean(values[*key, "confidence", f"selacc_{coverage}"])
        changes.setdefault((dataset, coverage), []).append(change)
    rows = index_rows(table, "dataset")
    assert {key: row["source"] for key, row in rows.items()} == {
        ("amazon_esci",): "hub",
        ("wands",): "simulated",
        (AVERAGE,): "hub+simulated",
    }
    for coverage in (10, 50, 70, 90):
        means = [np.mean(changes[dataset, coverage]) for dataset in ("amazon_esci", "wands")]
        for dataset, expected in zip(("amazon_esci", "wands", AVERAGE), (*means, np.mean(means)), strict=True):
            assert_cells(rows[dataset,], {f"delta_selacc_{coverage}": expected})


@pytest.mark.parametrize("key", ["label_spread", "label_spread_by_calibrator"])
def test_every_cell_of_the_label_spreads(runs, values, key):
    table = TABLES[key](runs)
    by_calibrator = key.endswith("calibrator")
    places = list(product(("amazon_esci", "wands"), CALIBRATORS if by_calibrator else (None,)))
    assert len(table) == len(places)
    for row, (dataset, calibrator) in zip(table.to_dicts(), places, strict=True):
        spreads: list[float] = []
        randoms: list[float] = []
        for name in (calibrator,) if calibrator else CALIBRATORS:
            spreads += values[dataset, name, "confidence", "label_spread"]
            randoms += values[dataset, name, "confidence", "label_spread_null_p95"]
        n_above = sum(spread > random for spread, random in zip(spreads, randoms, strict=True))
        assert row["dataset"] == dataset
        assert row.get("calibrator") == calibrator
        assert row["source"] == DATASETS[dataset]
        assert row["runs_above_random"] == f"{n_above}/{len(spreads)}"
        assert_cells(
            row,
            {
                "label_spread_pp": 100 * np.mean(spreads),
                "random_p95_pp": 100 * np.mean(randoms),
                "ratio": np.mean(spreads) / np.mean(randoms),
            },
        )


def test_a_spread_equal_to_the_random_one_is_not_above_it():
    values = {
        ("wands", "ts", "confidence", metric): (0.25, 0.5) for metric in ("label_spread", "label_spread_null_p95")
    }
    runs = make_runs(values, {"wands": "hub"}, calibrators=("ts",))
    assert TABLES["label_spread"](runs)["runs_above_random"].to_list() == ["0/2"]


def test_every_cell_of_the_simplex_projection(runs, values):
    table = TABLES["simplex_projection"](runs)
    n_classes = {"amazon_esci": 4, "wands": 3}
    assert [row[:3] for row in table.rows()] == [
        (dataset, n_classes[dataset], calibrator) for dataset, calibrator in product(n_classes, CALIBRATORS)
    ]
    for key, row in index_rows(table, "dataset", "calibrator").items():
        expected = {}
        for name, metric in (("fixed_ece", "ece"), ("top_ece", "top_ece"), ("nll", "nll"), ("brier", "brier")):
            before = np.mean(values[*key, "confidence", metric])
            after = np.mean(values[*key, SIMPLEX, metric])
            expected |= {f"{name}_base": before, f"{name}_mrc": after, f"{name}_delta": after - before}
        expected["q_below_uniform_pct"] = 100 * np.mean(values[*key, SIMPLEX, "infeasible_share"])
        expected["solved_pct"] = 100 * np.mean(values[*key, SIMPLEX, "solved_share"])
        assert [*row] == ["dataset", "n_classes", "calibrator", *expected, "source"]
        assert_cells(row, expected)


def test_every_cell_of_the_ablation(runs, values):
    metrics = ("nll_correct", "aupr_error", "aurc", "selacc_50")
    for_all = index_rows(TABLES["ablation"](runs), "variant")
    by_dataset = index_rows(TABLES["ablation_by_dataset"](runs), "dataset", "variant")
    assert {key[0]: row["added"] for key, row in for_all.items()} == {"confidence": False, "mrp": False}
    for variant, metric in product(("confidence", "mrp"), metrics):
        means = {
            (dataset, calibrator): np.mean(values[dataset, calibrator, variant, metric])
            for dataset, calibrator in product(DATASETS, CALIBRATORS)
        }
        of_paper = [mean for (dataset, _), mean in means.items() if dataset != "tickets"]
        assert_cells(for_all[variant,], {metric: np.mean(of_paper)})
        for dataset, source in DATASETS.items():
            row = by_dataset[dataset, variant]
            assert row["source"] == source
            assert_cells(row, {metric: np.mean([means[dataset, calibrator] for calibrator in CALIBRATORS])})
    assert for_all["confidence",]["source"] == "hub+simulated"
    assert {dataset for dataset, _ in by_dataset} == set(DATASETS)
    assert (SIMPLEX,) not in for_all


def test_every_cell_of_the_robustness_check():
    datasets = {"mslr_web10k": "hub", BOOSTED: "simulated"}
    values = draw_values(tuple(datasets), ("uncal", "ts", "matrix"))
    table = TABLES["robustness"](make_runs(values, datasets, calibrators=("uncal", "ts")))
    places = [
        ("mslr_web10k", "uncal", "linear"),
        (BOOSTED, "uncal", "lightgbm_balanced"),
        ("mslr_web10k", "matrix", "linear+matrix"),
        (BOOSTED, "matrix", "lightgbm_balanced+matrix"),
    ]
    for row, (dataset, calibrator, base) in zip(table.to_dicts(), places, strict=True):
        assert (row["dataset"], row["base"], row["source"]) == ("mslr_web10k", base, datasets[dataset])
        key = (dataset, calibrator)
        expected = {name: np.mean(values[*key, "confidence", name]) for name in ("accuracy", "ece")}
        for metric, (variant, suffix) in product(COMPARED_METRICS, (("confidence", "conf"), ("mrp", "mrp"))):
            expected[f"{metric}_{suffix}"] = np.mean(values[*key, variant, metric])
        assert [*row] == ["dataset", "base", *expected, "source"]
        assert_cells(row, expected)


def test_every_cell_of_the_description_of_data_sets():
    facts = {
        "dataset": "wands",
        "domain": "shops",
        "task": "search",
        "preset": "paper",
        "source": "hub",
        "labels": ["bad", "fair", "good"],
        "rows": {"train": 70, "validation": 20, "test": 11},
        "groups": {"train": 7, "validation": 5, "test": 3},
        "class_counts": {"train": [35, 28, 7], "validation": [4, 6, 10], "test": []},
    }
    boosted = facts | {"dataset": BOOSTED}
    bare = {"dataset": "tickets", "labels": ["no", "yes"], "class_counts": {"test": [0, 0]}}
    first, second = TABLES["datasets"](replace(EMPTY_RUNS, facts=(bare, facts, boosted))).to_dicts()
    assert first == {
        "dataset": "wands",
        "domain": "shops",
        "n_classes": 3,
        "labels": "bad/fair/good",
        "task": "search",
        "rows_train": 70,
        "rows_validation": 20,
        "rows_test": 11,
        "groups_train": 7,
        "groups_validation": 5,
        "groups_test": 3,
        "class_priors_train": "0.500/0.400/0.100",
        "class_priors_validation": "0.200/0.300/0.500",
        "class_priors_test": None,
        "preset": "paper",
        "source": "hub",
    }
    assert second == {
        **dict.fromkeys(first),
        "dataset": "tickets",
        "n_classes": 2,
        "labels": "no/yes",
        "class_priors_test": "0.000/0.000",
    }


def test_every_cell_of_the_rivals():
    rows = []
    generator = np.random.default_rng(1)
    values: dict[tuple[int, str, bool, str, str], list[float]] = {}
    cells = [(300, "ts", False), (300, "matrix", False), (300, "matrix", True), (900, "ts", False)]
    for (n_rows, calibrator, is_both), metric in product(cells, COMPARED_METRICS):
        for variant in ("confidence",) if is_both else ("confidence", "mrp"):
            numbers = generator.random(3).round(3).tolist()
            values[n_rows, calibrator, is_both, variant, metric] = numbers
            for seed, number in zip(SEEDS, numbers, strict=True):
                counts = (2 * n_rows, 0) if is_both else (n_rows, n_rows - seed)
                rows.append(("wands", "hub", seed, n_rows, *counts, calibrator, variant, metric, number))
    shuffled = [rows[index] for index in generator.permutation(len(rows))]
    table = TABLES["rivals"](replace(EMPTY_RUNS, rivals=make_frame("rivals", *shuffled)))
    keys = ["dataset", "rows", "calibrator_fit_rows", "projection_fit_rows", "calibrator", "source"]
    assert table.select(keys).rows() == [
        ("wands", 300, 300, 298, "ts", "hub"),
        ("wands", 300, 300, 298, "matrix", "hub"),
        ("wands", 300, 600, 0, "matrix", "hub"),
        ("wands", 900, 900, 898, "ts", "hub"),
    ]
    rows_of_cells = zip(table.to_dicts(), cells, strict=True)
    for (row, cell), metric in product(rows_of_cells, COMPARED_METRICS):
        before = values[*cell, "confidence", metric]
        expected = {f"{metric}_conf": np.mean(before), f"{metric}_conf_std": standard_deviation(before)}
        if not cell[2]:
            after = values[*cell, "mrp", metric]
            expected |= {f"{metric}_mrp": np.mean(after), f"{metric}_mrp_std": standard_deviation(after)}
            expected |= {f"{metric}_delta": np.mean(after) - np.mean(before)}
        assert_cells(row, expected)
        assert (row[f"{metric}_mrp"] is None) == cell[2]


def test_every_cell_of_the_sensitivity_to_an_option(values, runs):
    option_values = {1: 0.75, 3: 0.5, 4: 0.25}  # the default has no seed 4
    rows = [("wands", "simulated", "ts", seed, "thirds", "mrp", "aurc", value) for seed, value in option_values.items()]
    table = TABLES["sensitivity"](replace(runs, sensitivity=make_frame("sensitivity", *rows)))
    defaults = values["wands", "ts", "mrp", "aurc"]
    (row,) = table.filter(option="thirds").to_dicts()
    default = (defaults[0] + defaults[2]) / 2
    assert [*row] == [
        "dataset",
        "calibrator",
        "option",
        "variant",
        "metric",
        "default",
        "value",
        "difference",
        "source",
    ]
    assert (row["dataset"], row["calibrator"], row["variant"], row["metric"]) == ("wands", "ts", "mrp", "aurc")
    assert row["source"] == "simulated"
    assert_cells(row, {"default": default, "value": 0.625, "difference": 0.625 - default})


INTERVALS = [  # data set, calibrator, metric, quantity, value, standard error, low, high, p, groups
    ("wands", "simulated", AVERAGE, "aurc", "delta", -0.3, 0.1, -0.5, -0.1, 0.01, 41),
    ("wands", "simulated", AVERAGE, "aurc", "before", 0.7, 0.2, 0.5, 0.9, None, 41),
    ("wands", "simulated", AVERAGE, "ece", "delta", 0.7, 0.2, 0.5, 0.9, 0.5, 41),
    ("amazon_esci", "hub", AVERAGE, "aurc", "delta", 0.2, 0.05, 0.1, 0.3, 0.03, 77),
    ("amazon_esci", "hub", "ts", "aurc", "delta", 0.25, 0.06, 0.15, 0.35, 0.04, 77),
    ("amazon_esci", "hub", AVERAGE, "nll_correct", "delta", -0.4, 0.07, -0.6, -0.2, 0.001, 77),
    ("tickets", "files", AVERAGE, "aurc", "delta", -0.1, 0.08, -0.3, 0.1, 0.2, 35),
]


def test_every_cell_of_the_intervals(runs):
    table = TABLES["intervals"](replace(runs, intervals=make_frame("intervals", *INTERVALS)))
    columns = ["dataset", "calibrator", "metric", "delta", "standard_error", "low", "high", "p", "p_holm", "groups"]
    assert table.columns == [*columns, "source"]
    assert table.rows() == [
        ("amazon_esci", "ts", "aurc", 0.25, 0.06, 0.15, 0.35, 0.04, None, 77, "hub"),
        ("amazon_esci", AVERAGE, "aurc", 0.2, 0.05, 0.1, 0.3, 0.03, 0.03, 77, "hub"),
        ("amazon_esci", AVERAGE, "nll_correct", -0.4, 0.07, -0.6, -0.2, 0.001, 0.001, 77, "hub"),
        ("wands", AVERAGE, "aurc", -0.3, 0.1, -0.5, -0.1, 0.01, 0.02, 41, "simulated"),
        ("tickets", AVERAGE, "aurc", -0.1, 0.08, -0.3, 0.1, 0.2, 0.2, 35, "files"),
    ]


def test_the_headline_counts_signs_and_has_mean_changes_of_each_data_set(runs, values):
    with_intervals = replace(runs, intervals=make_frame("intervals", *INTERVALS))
    headline = compute_headline(with_intervals)
    assert [*headline] == ["amazon_esci", "wands (simulated)", "tickets", "data_sets"]
    for name, dataset in (("amazon_esci", "amazon_esci"), ("wands (simulated)", "wands"), ("tickets", "tickets")):
        for metric in COMPARED_METRICS:
            changes = [
                np.mean(values[dataset, calibrator, "mrp", metric])
                - np.mean(values[dataset, calibrator, "confidence", metric])
                for calibrator in CALIBRATORS
            ]
            assert headline[name][metric] == pytest.approx(np.mean(changes))
    assert headline["data_sets"] == {
        "nll_correct": {"improved": 1, "worsened": 0, "of": 1},
        "aupr_error": {"improved": 0, "worsened": 0, "of": 0},
        "aurc": {"improved": 1, "worsened": 1, "of": 3},
    }


def make_nll_interval(dataset: str, source: str, low: float | None, high: float | None, p: float | None) -> tuple:
    value = 0.0 if low is None or high is None else (low + high) / 2
    return (dataset, source, AVERAGE, "nll_correct", "delta", value, 0.1, low, high, p, 40)


def test_the_sentences_of_the_headline(runs):
    intervals = [
        make_nll_interval("wands", "simulated", -0.3, -0.1, 0.001),
        make_nll_interval("amazon_esci", "hub", 0.1, 0.3, 0.001),
        make_nll_interval("scidocs", "hub", None, None, None),
        make_nll_interval("tickets", "files", -0.3, -0.2, 0.01),
    ]
    described = describe_headline(
        replace(runs, intervals=make_frame("intervals", *intervals), missing=("bills", "alloprof_rerank"))
    )
    of_paper = (
        r"On 1 of 3 data sets \(2 hub, 1 simulated\) MRP lowers [^;]*95%[^;]*; on 1 [^;]*higher[^;]*; on 1 [^;]*too few"
    )
    own = r"On 1 of 1 own [^;]*\(files\) MRP lowers [^;]*95%[^;]*"
    missing = r"Not finished: bills, alloprof_rerank"
    assert re.fullmatch(rf"{of_paper} [^;.]*\. {own}\. {missing}\. {re.escape(SCOPE_OF_INTERVALS)}", described)


def test_sources_in_the_headline_are_in_the_order_of_the_data_sets(runs):
    sources = ["files", "s3", "hub", "disk", "simulated", "archive"]
    intervals = [
        make_nll_interval(dataset, source, -0.3, -0.1, 0.001)
        for dataset, source in zip(PAPER_DATASETS, sources, strict=True)
    ]
    described = describe_headline(replace(runs, intervals=make_frame("intervals", *reversed(intervals))))
    assert re.match(r"On 6 of 6 .*\(1 files, 1 s3, 1 hub, 1 disk, 1 simulated, 1 archive\) MRP lowers", described)


def test_standard_deviations_over_seeds_and_of_test_rows():
    """Two calibrators on one data set of the paper, whose averages over data sets have no standard error."""
    values = draw_values(("wands", "tickets"), (*CALIBRATORS, "matrix"))
    errors = {("uncal", "delta"): 0.3, ("ts", "delta"): 0.5, (AVERAGE, "before"): 0.25, ("ts", "before"): 0.7}
    intervals = [
        ("wands", "hub", calibrator, "aurc", quantity, 0.0, error, -1.0, 1.0, None, 40)
        for (calibrator, quantity), error in errors.items()
    ]
    runs = make_runs(values, {"wands": "hub", "tickets": "hub"}, intervals=make_frame("intervals", *intervals))
    cells = index_rows(compute_deviations(runs), "dataset", "calibrator", "metric", "quantity")

    assert {dataset for dataset, *_ in cells} == {"wands", AVERAGE}
    assert {calibrator for _, calibrator, *_ in cells} == {*CALIBRATORS, AVERAGE}
    after_of = {"aurc": "mrp", "ece": SIMPLEX}
    for metric, after_variant in after_of.items():
        before = np.array([values["wands", name, "confidence", metric] for name in CALIBRATORS])
        after = np.array([values["wands", name, after_variant, metric] for name in CALIBRATORS])
        for quantity, numbers in (("before", before), ("after", after), ("delta", after - before)):
            expected = {name: standard_deviation(numbers[index]) for index, name in enumerate(CALIBRATORS)}
            expected[AVERAGE] = standard_deviation(numbers.mean(axis=0))
            for calibrator, seeds in expected.items():
                row = cells["wands", calibrator, metric, quantity]
                assert (row["seed_deviation"], row["n_seeds"]) == (pytest.approx(seeds), 3)
            assert cells[AVERAGE, AVERAGE, metric, quantity]["seed_deviation"] == pytest.approx(expected[AVERAGE])

    bootstrap = "bootstrap over test groups"
    of_calibrators = "mean bootstrap error of the calibrators, which share rows"
    for calibrator, quantity, error, origin in (
        ("uncal", "delta", 0.3, bootstrap),
        ("ts", "delta", 0.5, bootstrap),
        (AVERAGE, "delta", 0.4, of_calibrators),
        (AVERAGE, "before", 0.25, bootstrap),
        ("uncal", "before", None, None),
    ):
        row = cells["wands", calibrator, "aurc", quantity]
        assert (row["standard_error"], row["standard_error_from"]) == (error and pytest.approx(error), origin)
    assert cells[AVERAGE, AVERAGE, "aurc", "delta"]["standard_error"] is None

    for name, metric in product(CALIBRATORS, ("infeasible_share", "solved_share")):
        share = np.mean(values["wands", name, SIMPLEX, metric])
        row = cells["wands", name, metric, "after"]
        assert row["standard_error"] == pytest.approx(sqrt(share * (1 - share) / 10_000))
        assert row["standard_error_from"] == "binomial over test rows, ignoring groups"


def test_the_standard_error_of_the_mean_over_all_data_sets_of_the_paper():
    errors = dict(zip(PAPER_DATASETS, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), strict=True))
    values = draw_values((*PAPER_DATASETS, BOOSTED), ("ts",))
    intervals = [
        (dataset, "hub", AVERAGE, metric, "delta", 0.0, error, -1.0, 1.0, None, 40)
        for metric in ("aurc", "nll_correct")
        for dataset, error in {**errors, BOOSTED: 7.0}.items()
    ]
    runs = make_runs(values, dict.fromkeys((*PAPER_DATASETS, BOOSTED), "hub"))
    table = compute_deviations(replace(runs, intervals=make_frame("intervals", *intervals[:-2])))
    cells = index_rows(table, "dataset", "calibrator", "metric", "quantity")
    row = cells[AVERAGE, AVERAGE, "aurc", "delta"]
    assert row["standard_error"] == pytest.approx(sqrt(0.91) / 6)
    assert row["standard_error_from"] == "bootstrap errors of independent data sets"
    assert cells[AVERAGE, AVERAGE, "nll_correct", "delta"]["standard_error"] is None  # one of the six has none
    changes = []
    for dataset in PAPER_DATASETS:
        after = np.array(values[dataset, "ts", "mrp", "aurc"])
        changes.append(after - values[dataset, "ts", "confidence", "aurc"])
    assert row["seed_deviation"] == pytest.approx(standard_deviation(np.mean(changes, axis=0)))


def test_every_number_of_the_summary_of_a_data_set():
    """Of 1,000 rows, 700 are retained and 300 reviewed; half of the rows have the most frequent label."""
    values = {
        ("shop", "ts", "confidence", "accuracy"): (0.8,),
        ("shop", "uncal", "confidence", "accuracy"): (0.8, 0.6),
        ("shop", "ts", "confidence", "selacc_70"): (0.9, 0.8),
        ("shop", "uncal", "confidence", "selacc_70"): (0.95,),
        ("shop", "ts", "mrp", "selacc_70"): (0.95,),
        ("shop", "ts", "confidence", "aurc"): (0.5, 0.25),
        ("shop", "ts", "mrp", "aurc"): (0.125,),
        ("shop", "ts", "confidence", "label_spread"): (0.04,),
        ("shop", "ts", "confidence", "label_spread_null_p95"): (0.01,),
    }
    facts = {"dataset": "shop", "rows": {"test": 1000}, "class_counts": {"test": [300, 500, 200]}}
    runs = make_runs(values, {"shop": "files"})
    intervals = make_frame(
        "intervals",
        ("shop", "files", AVERAGE, "nll_correct", "delta", -0.2, 0.1, -0.3, -0.1, 0.01, 40),
        ("shop", "files", AVERAGE, "selacc_70", "delta", 0.05, 0.1, 0.03, 0.06, 0.01, 40),
        ("shop", "files", AVERAGE, "selacc_70", "before", 9.0, 9.0, 9.0, 9.0, 0.01, 40),
        ("shop", "files", "ts", "nll_correct", "delta", 9.0, 9.0, 9.0, 9.0, 0.01, 40),
    )
    (row,) = summarize_datasets(runs.metrics, intervals, [facts]).to_dicts()
    expected = {
        "accuracy": 0.75,
        "aurc_conf": 0.375,
        "aurc_mrp": 0.125,
        "label_spread_pp": 4,
        "random_p95_pp": 1,
        "kept_conf": 0.9,
        "kept_mrp": 0.95,
        "nll_correct_delta": -0.2,
        "low": -0.3,
        "high": -0.1,
        # of 250 errors, 70 and 35 are retained, so that 180 and 215 are found in 300 reviews
        "found_per_1000_conf": 600,
        "found_per_1000_mrp": 215 / 0.3,
        "found_per_1000_low": 70,
        "found_per_1000_high": 140,
        "commonest_label": 0.5,
        "rows": 1000,
        "errors": 250,
        "calibrators": 2,
        "seeds": 2,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("counts", [None, {}, {"test": []}, {"test": [0, 0]}])
def test_a_summary_without_counts_of_labels_and_rows_has_empty_cells(counts):
    runs = make_runs({("shop", "ts", "confidence", "accuracy"): (0.8,)}, {"shop": "files"})
    facts = {"dataset": "shop"} | ({} if counts is None else {"class_counts": counts})
    (row,) = summarize_datasets(runs.metrics, EMPTY_RUNS.intervals, [facts]).to_dicts()
    for name in ("commonest_label", "rows", "errors", "found_per_1000_conf", "found_per_1000_low", "low"):
        assert row[name] is None


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("aurc_mrp", ("aurc", "mrp")),
        ("fixed_ece_base", ("ece", "base")),
        ("delta_selacc_50", ("selacc_50", "delta")),
        ("nll_correct_delta", ("nll_correct", "delta")),
        ("aurc", (None, "aurc")),
        ("aurc_low", (None, "aurc_low")),
        ("delta_rows", (None, "delta_rows")),
        ("rows_conf", (None, "rows_conf")),
    ],
)
def test_the_metric_of_a_column_follows_from_its_name(column, expected):
    metric, kind = parse_metric_column(column)
    assert (metric and metric.key, kind) == expected


SMALL = pl.DataFrame(
    {
        "dataset": ["wands", "wands", "tickets"],
        "calibrator": ["uncal", "ts", "ts"],
        "aurc_conf": [0.12345, None, 0.5],
        "aurc_conf_std": [0.0123, 0.5, None],
        "aurc_delta": [-0.25, 0.25, -0.00001],
        "aupr_error_delta": [-0.25, 0.25, 0.0],
        "solved_pct": [98.76, 100.0, None],
        "found_per_1000_conf": [123.6, 0.4, None],
        "source": ["simulated", "simulated", "files"],
    }
)


def test_a_value_before_the_change_is_never_marked_as_an_improvement():
    rows = pl.DataFrame({"dataset": ["wands"], "calibrator": ["ts"], "aurc_conf": [-0.25], "source": ["simulated"]})
    (row,) = format_table(TABLES["main"], rows).sections[""]
    assert row[-1] == Cell("-0.250")


@pytest.fixture
def small_table() -> FormattedTable:
    return format_table(TABLES["main"], SMALL)


def test_cells_are_rounded_with_their_deviation_and_improvements_are_marked(small_table):
    assert small_table.columns == [name for name in SMALL.columns if name not in ("source", "aurc_conf_std")]
    first, second = small_table.sections[""]
    assert first == [
        Cell("wands (simulated)"),
        Cell("uncal"),
        Cell("0.123 ± 0.012"),
        Cell("-0.250", improved=True),
        Cell("-0.250"),
        Cell("98.8"),
        Cell("124"),
    ]
    assert second == [
        Cell("wands (simulated)"),
        Cell("ts"),
        Cell("–"),
        Cell("+0.250"),
        Cell("+0.250", improved=True),
        Cell("100.0"),
        Cell("0"),
    ]
    (own,) = small_table.sections["Own data sets"]
    assert [cell.text for cell in own] == ["tickets", "ts", "0.500", "0.000", "0.000", "–", "–"]
    assert not any(cell.improved for cell in own)
    assert small_table.n_rows == 3
    for texts, row in zip(small_table.texts, (first, second, own), strict=True):
        assert texts == [cell.text for cell in row]


SMALL_NOTE = f"{DEVIATION_NOTE} {BOLD_NOTE} {display.SIMULATED_NOTE}"
SMALL_CAPTION = TABLES["main"].caption
SMALL_MARKDOWN = f"""\
**{SMALL_CAPTION}**

| dataset | calibrator | aurc_conf | aurc_delta | aupr_error_delta | solved_pct | found_per_1000_conf |
| --- | --- | --- | --- | --- | --- | --- |
| wands (simulated) | uncal | 0.123 ± 0.012 | **-0.250** | -0.250 | 98.8 | 124 |
| wands (simulated) | ts | – | +0.250 | **+0.250** | 100.0 | 0 |

**Own data sets**

| dataset | calibrator | aurc_conf | aurc_delta | aupr_error_delta | solved_pct | found_per_1000_conf |
| --- | --- | --- | --- | --- | --- | --- |
| tickets | ts | 0.500 | 0.000 | 0.000 | – | – |

{SMALL_NOTE}
"""
SMALL_LATEX = r"""
\begin{tabular}{llrrrrr}
\toprule
 &  & \multicolumn{2}{c}{AURC$\downarrow$} & \multicolumn{1}{c}{AUPR-Error$\uparrow$} &  &  \\
dataset & calibrator & Conf. & $\Delta$ & $\Delta$ & solved\_pct & found\_per\_1000\_conf \\
\midrule
wands (simulated) & uncal & 0.123 $\pm$ 0.012 & \textbf{$-$0.250} & $-$0.250 & 98.8 & 124 \\
wands (simulated) & ts & -- & +0.250 & \textbf{+0.250} & 100.0 & 0 \\
\midrule
\multicolumn{7}{l}{\emph{Own data sets}} \\
tickets & ts & 0.500 & 0.000 & 0.000 & -- & -- \\
\bottomrule
\end{tabular}
\end{table*}
"""


def test_a_small_table_in_markdown(small_table):
    assert small_table.markdown() == SMALL_MARKDOWN


def test_a_small_table_in_latex(small_table):
    caption = f"{SMALL_CAPTION} {SMALL_NOTE}".replace("±", r"$\pm$")
    assert render_latex(small_table, SMALL.schema) == (
        "% needs booktabs\n\\begin{table*}[t]\n\\centering\\scriptsize\\setlength{\\tabcolsep}{3pt}\n"
        f"\\caption{{{caption}}}\\label{{tab:main}}{SMALL_LATEX}"
    )


LAYOUT = {  # table -> decimals, and place on the page
    "overview": (3, "first"),
    "main": (3, "list"),
    "intervals": (4, "list"),
    "ablation": (4, "list"),
    "ablation_by_dataset": (4, "list"),
    "budgeted_fallback": (3, "list"),
    "label_spread": (1, "list"),
    "label_spread_by_calibrator": (1, "list"),
    "simplex_projection": (4, "list"),
    "rivals": (3, "list"),
    "robustness": (3, "list"),
    "datasets": (3, "list"),
    "sensitivity": (4, "link"),
    "verdict": (4, "comparison"),
}


def test_tables_have_an_order_decimals_and_a_place_on_the_page():
    assert {key: (table.digits, table.placement) for key, table in TABLES.items()} == LAYOUT
    assert [*TABLES] == [*LAYOUT]
    for table in TABLES.values():
        assert table.caption.endswith(".")
        assert table.note.endswith(".")


@pytest.mark.parametrize(("n_rows", "is_long"), [(45, False), (46, True)])
def test_a_table_with_more_than_45_rows_fills_pages(n_rows, is_long):
    frame = pl.DataFrame({"dataset": ["wands"] * n_rows, "aurc_conf": [0.5] * n_rows, "source": ["hub"] * n_rows})
    text = render_latex(format_table(TABLES["main"], frame), frame.schema)
    assert ("longtable" in text) == is_long


@pytest.mark.parametrize(("datasets", "n_rules"), [("aab", 1), ("aabbc", 2), ("abc", 0), ("aaa", 0)])
def test_data_sets_are_separated_by_rules_if_one_of_them_has_several_rows(datasets, n_rules):
    rows = len(datasets)
    frame = pl.DataFrame({"dataset": [*datasets], "aurc_conf": [0.5] * rows, "source": ["hub"] * rows})
    own = pl.concat([frame.clear(), frame])
    text = render_latex(format_table(TABLES["main"], own), own.schema)
    single = render_latex(format_table(TABLES["main"], frame.unique("dataset")), frame.schema)
    assert text.count(r"\midrule") - single.count(r"\midrule") == n_rules


@pytest.mark.parametrize(
    ("low", "high", "improved"),
    [
        (-0.2, -0.1, True),
        (-0.2, 0.0, False),
        (0.0, 0.1, False),
        (-0.1, 0.1, False),
        (None, 0.1, True),
        (-0.2, None, True),
    ],
)
def test_a_change_is_an_improvement_only_if_its_interval_excludes_zero(low, high, improved):
    row = {"dataset": ["wands"], "nll_correct_delta": [-0.15], "low": [low], "high": [high], "source": ["hub"]}
    ((cells,),) = format_table(TABLES["overview"], pl.DataFrame(row)).sections.values()
    assert cells[1].improved is improved


def test_summaries_are_in_the_order_of_the_results():
    names = [f"shop {7 * number % 30}" for number in range(30)]
    runs = make_runs({(name, "ts", "confidence", "accuracy"): (0.8,) for name in names}, dict.fromkeys(names, "files"))
    assert summarize_datasets(runs.metrics, EMPTY_RUNS.intervals, runs.facts)["dataset"].to_list() == names


def test_options_of_the_sensitivity_are_in_the_order_of_the_results():
    options = [f"option {7 * number % 40}" for number in range(40)]
    defaults = make_runs({("wands", "ts", "mrp", "aurc"): (0.5,)}, {"wands": "hub"})
    rows = [("wands", "hub", "ts", 1, option, "mrp", "aurc", 0.25) for option in options]
    table = TABLES["sensitivity"](replace(defaults, sensitivity=make_frame("sensitivity", *rows)))
    assert table["option"].to_list() == options


def test_the_order_of_many_own_data_sets_is_that_of_the_results():
    names = [f"shop {7 * number % 30}" for number in range(30)]
    values = {(name, "ts", "confidence", "nll_correct"): (0.5,) for name in names}
    runs = make_runs(values, dict.fromkeys(names, "files"), calibrators=("ts",))
    for key in ("main", "ablation_by_dataset", "overview", "datasets"):
        assert TABLES[key](runs)["dataset"].unique(maintain_order=True).to_list() == names


FAILED_ROWS = {  # table -> rows of a data set of the paper, and of an own one, that failed
    "main": (2, 2),
    "budgeted_fallback": (1, 0),
    "label_spread": (1, 0),
    "label_spread_by_calibrator": (2, 0),
    "simplex_projection": (2, 0),
    "overview": (1, 1),
    "datasets": (1, 1),
    "ablation_by_dataset": (0, 0),
    "rivals": (0, 0),
    "intervals": (0, 0),
    "sensitivity": (0, 0),
}


@pytest.mark.parametrize(("key", "n_rows"), FAILED_ROWS.items())
def test_failed_data_sets_have_rows_in_the_tables_of_their_family(runs, key, n_rows):
    table = TABLES[key](replace(runs, missing=("scidocs", "bills")))
    counts = [len(table.filter(dataset=name, source="failed")) for name in ("scidocs", "bills")]
    assert tuple(counts) == n_rows
    finished = table.filter(pl.col("source") != "failed")
    assert finished.equals(TABLES[key](runs))


def test_undefined_metrics_of_a_calibrator_or_seed_are_left_out_of_a_summary():
    nan = float("nan")
    values = {
        ("shop", "ts", "confidence", "accuracy"): (0.8,),
        ("shop", "ts", "confidence", "label_spread"): (nan,),
        ("shop", "uncal", "confidence", "label_spread"): (0.04,),
        ("shop", "ts", "confidence", "label_spread_null_p95"): (nan,),
        ("shop", "ts", "mrp", "aurc"): (0.25,),
        ("shop", "ts", "confidence", "aurc"): (nan,),
    }
    runs = make_runs(values, {"shop": "files"})
    interval = ("shop", "files", AVERAGE, "nll_correct", "delta", -0.2, nan, nan, nan, nan, 9)
    (row,) = summarize_datasets(runs.metrics, make_frame("intervals", interval), runs.facts).to_dicts()
    expected = {"label_spread_pp": 4, "random_p95_pp": None, "aurc_mrp": 0.25, "aurc_conf": None}
    expected |= {"nll_correct_delta": -0.2, "low": None, "high": None, "found_per_1000_low": None}
    assert {name: row[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rows", "share", "standard_error"),
    [(100, 0.5, 0.05), (1, 0.5, 0.5), (100, 0.0, 0.0), (100, 1.0, 0.0), (0, 0.5, None), (None, 0.5, None)],
)
def test_a_share_has_a_standard_error_if_the_number_of_rows_is_known(rows, share, standard_error):
    runs = make_runs({("wands", "ts", SIMPLEX, "solved_share"): (share, share)}, {"wands": "hub"})
    facts = ({"dataset": "wands", "rows": {} if rows is None else {"test": rows}},)
    cells = index_rows(compute_deviations(replace(runs, facts=facts)), *CELL)
    row = cells["wands", "ts", "solved_share", "after"]
    assert row["standard_error"] == pytest.approx(standard_error)
    assert (row["standard_error_from"] is None) == (standard_error is None)


def test_standard_errors_that_are_not_finite_are_unknown():
    errors = {AVERAGE: float("nan"), "uncal": float("inf"), "ts": 0.5, "matrix": 0.25}
    intervals = [
        ("wands", "hub", calibrator, "aurc", "delta", 0.0, error, -1.0, 1.0, None, 40)
        for calibrator, error in errors.items()
    ]
    values = draw_values(("wands",))
    runs = make_runs(values, {"wands": "hub"}, intervals=make_frame("intervals", *intervals))
    cells = index_rows(compute_deviations(runs), *CELL)
    expected = {"uncal": None, "ts": 0.5, AVERAGE: 0.5}  # matrix scaling is not in the paper
    for calibrator, error in expected.items():
        assert cells["wands", calibrator, "aurc", "delta"]["standard_error"] == error


COMPARED_COLUMNS = [
    f"{metric}_{suffix}"
    for metric, suffix in product(COMPARED_METRICS, ("conf", "conf_std", "mrp", "mrp_std", "delta"))
]
COLUMNS = {  # of tables that the paper does not have
    "overview": [
        "dataset",
        "found_per_1000_conf",
        "found_per_1000_mrp",
        "found_per_1000_low",
        "found_per_1000_high",
        "nll_correct_delta",
        "low",
        "high",
        "accuracy",
        "commonest_label",
        "comparison",
        "aurc_conf",
        "aurc_mrp",
        "label_spread_pp",
        "random_p95_pp",
        "remarks",
        "source",
    ],
    "intervals": [
        "dataset",
        "calibrator",
        "metric",
        "delta",
        "standard_error",
        "low",
        "high",
        "p",
        "p_holm",
        "groups",
        "source",
    ],
    "ablation_by_dataset": ["dataset", "variant", "nll_correct", "aupr_error", "aurc", "selacc_50", "added", "source"],
    "label_spread_by_calibrator": [
        "dataset",
        "calibrator",
        "label_spread_pp",
        "random_p95_pp",
        "ratio",
        "runs_above_random",
        "source",
    ],
    "rivals": [
        "dataset",
        "rows",
        "calibrator_fit_rows",
        "projection_fit_rows",
        "calibrator",
        *COMPARED_COLUMNS,
        "source",
    ],
    "datasets": [
        "dataset",
        "domain",
        "n_classes",
        "labels",
        "task",
        "rows_train",
        "rows_validation",
        "rows_test",
        "groups_train",
        "groups_validation",
        "groups_test",
        "class_priors_train",
        "class_priors_validation",
        "class_priors_test",
        "preset",
        "source",
    ],
    "sensitivity": ["dataset", "calibrator", "option", "variant", "metric", "default", "value", "difference", "source"],
    "verdict": [
        "table",
        "dataset",
        "row",
        "column",
        "paper",
        "measured",
        "difference",
        "tolerance",
        "tolerance_from",
        "sign_agrees",
        "chosen_to_match",
        "verdict",
        "reason",
        "source",
    ],
}


@pytest.mark.parametrize("key", COLUMNS)
def test_columns_of_other_tables_have_an_order(key, runs):
    assert TABLES[key](runs).columns == COLUMNS[key]


def test_columns_of_summaries_and_deviations_have_an_order(runs):
    assert summarize_datasets(runs.metrics, runs.intervals, runs.facts).columns == [
        "dataset",
        "source",
        "accuracy",
        "aurc_conf",
        "aurc_mrp",
        "kept_conf",
        "kept_mrp",
        "label_spread_pp",
        "random_p95_pp",
        "seeds",
        "calibrators",
        "value",
        "low",
        "high",
        "groups",
        "kept_value",
        "kept_low",
        "kept_high",
        "found_per_1000_conf",
        "found_per_1000_mrp",
        "found_per_1000_low",
        "found_per_1000_high",
        "commonest_label",
        "rows",
        "errors",
        "nll_correct_delta",
    ]
    assert compute_deviations(runs).columns == [
        *CELL,
        "seed_deviation",
        "n_seeds",
        "standard_error",
        "standard_error_from",
    ]


@pytest.fixture(scope="module")
def complete_runs() -> Runs:
    """Runs of the paper's data sets and calibrators with numbers whose sums depend on their order."""
    values = draw_values((*PAPER_DATASETS, BOOSTED), PAPER_CALIBRATORS)
    thirds = {key: tuple(np.array(numbers) / 3) for key, numbers in values.items()}
    return make_runs(thirds, dict.fromkeys((*PAPER_DATASETS, BOOSTED), "hub"))


SORTED_TABLES = {key: table for key, table in TABLES.items() if key != "sensitivity"}  # it has the order of the results


@pytest.mark.parametrize(
    "compute",
    [*SORTED_TABLES.values(), compute_deviations, compute_headline],
    ids=[*SORTED_TABLES, "deviations", "headline"],
)
def test_the_order_of_the_results_changes_no_bit_of_a_number(compute, complete_runs):
    shuffled = replace(complete_runs, metrics=complete_runs.metrics.sample(fraction=1, shuffle=True, seed=0))
    expected = compute(complete_runs)
    computed = compute(shuffled)
    assert computed.equals(expected) if isinstance(expected, pl.DataFrame) else computed == expected


def test_deviations_have_a_fixed_order(complete_runs):
    table = compute_deviations(complete_runs)
    quantities = ["before", "after", "delta"]
    metrics = sorted({metric for metrics in METRICS_OF_VARIANTS.values() for metric in metrics})
    datasets = sorted((*PAPER_DATASETS, BOOSTED))
    places = [*product(quantities, datasets, sorted(PAPER_CALIBRATORS), metrics)]
    cells = [(dataset, calibrator, metric, quantity) for quantity, dataset, calibrator, metric in places]
    known = table.select(CELL).rows()
    of_calibrators = [cell for cell in known if cell[1] != AVERAGE]
    assert of_calibrators == [cell for cell in cells if cell in set(known)]
    over_calibrators = dict.fromkeys((dataset, AVERAGE, *key) for dataset, _, *key in of_calibrators)
    over_datasets = dict.fromkeys((AVERAGE, *key) for dataset, *key in over_calibrators if dataset != BOOSTED)
    assert known == [*of_calibrators, *over_calibrators, *over_datasets]


def test_columns_of_texts_are_wrapped_and_numbers_are_aligned_on_the_right():
    row = {"variant": ["mrp"], "reason": ["x"], "aurc": [0.5], "runs": ["1/2"], "rows": [3], "labels": ["a/b"]}
    frame = pl.DataFrame(row | {"source": ["hub"]})
    assert r"\begin{tabular}{lp{3cm}rlrp{3cm}}" in render_latex(format_table(TABLES["ablation"], frame), frame.schema)


def test_an_undefined_name_in_a_template_is_an_error():
    with pytest.raises(UndefinedError, match="'captoin' is undefined"):
        TEMPLATES.from_string("<< captoin >>").render(caption="A table.")


def test_rows_of_a_table_without_data_sets_are_separated_by_their_first_column():
    rows = [[Cell("ts"), Cell("1")], [Cell("ts"), Cell("2")], [Cell("uncal"), Cell("2")]]
    expected = [r"ts & 1 \\", r"ts & 2 \\", r"\midrule", r"uncal & 2 \\"]
    assert display._latex_rows(rows, ["calibrator", "rows"]) == expected
    by_data_set = [r"ts & 1 \\", r"\midrule", r"ts & 2 \\", r"uncal & 2 \\"]
    assert display._latex_rows(rows, ["calibrator", "dataset"]) == by_data_set
