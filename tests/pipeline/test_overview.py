"""Comparison of reliability and confidence in the overview table, its remarks, and the sentences on the page."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import polars as pl
import pytest

from relmap.metrics.comparison import BETTER, NO_DIFFERENCE, WORSE
from tasks.page.page import summarize_overview
from tasks.results.comparison import MIN_ACCURACY_GAIN, describe_comparison, list_remarks, summarize_datasets
from tasks.tables.overview import describe_headline, overview_table
from tests.report_data import (
    DECREASE,
    IMPROVEMENTS,
    INCONCLUSIVE,
    INCREASE,
    DatasetResults,
    combine_runs,
    make_frame,
    make_intervals,
    make_results,
)

ALL_WORSE = {"nll_correct": INCREASE, "aupr_error": DECREASE, "aurc": INCREASE}
BETTER_LOSS_ONLY = {"nll_correct": DECREASE, "aupr_error": INCONCLUSIVE, "aurc": INCONCLUSIVE}
NO_CHANGE = dict.fromkeys(IMPROVEMENTS, INCONCLUSIVE)
WITHOUT_INTERVALS = dict.fromkeys(IMPROVEMENTS)


ROW = {
    "dataset": "shop",
    "rows": 1000,
    "errors": 200,
    "accuracy": 0.8,
    "commonest_label": 0.5,
    "found_per_1000_conf": 310.2,
    "found_per_1000_mrp": 352.4,
    "found_per_1000_low": 11.6,
    "found_per_1000_high": 69.4,
    "nll_correct_delta": -0.03,
    "low": -0.05,
    "high": -0.01,
    "groups": 150,
    "calibrators": 4,
    "seeds": 3,
}
ROW_WITHOUT_CHANGE = ROW | dict.fromkeys(
    ("nll_correct_delta", "low", "high", "groups", "found_per_1000_conf", "found_per_1000_mrp")
)


@cache
def make_shop_results() -> DatasetResults:
    return make_results()


def make_results_with_intervals(changes: dict[str, tuple[float, float] | None], groups: int = 60) -> DatasetResults:
    """Return the results of the shop with other intervals."""
    return replace(make_shop_results(), intervals=make_intervals("shop", "simulated", ("uncal", "ts"), changes, groups))


def change_value(results: DatasetResults, value: float, field: str = "metrics", **where: Any) -> DatasetResults:
    """Replace values of a frame in the rows where columns have given values."""
    frame = getattr(results, field)
    changed = pl.when(pl.lit(value=True), **where).then(pl.lit(value)).otherwise("value")
    return replace(results, **{field: frame.with_columns(value=changed)})


def compute_overview(*datasets: DatasetResults, missing: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return overview_table(combine_runs(datasets, missing)).to_dicts()


def comparison_and_remarks(results: DatasetResults) -> tuple[str | None, str]:
    (row,) = compute_overview(results)
    return row["comparison"], row["remarks"]


def remarks_of(results: DatasetResults) -> str:
    return comparison_and_remarks(results)[1]


COMPARISON_CASES = {
    "every metric is better": (make_results_with_intervals(IMPROVEMENTS), BETTER),
    "no other metric has a veto": (make_results_with_intervals(ALL_WORSE | {"nll_correct": DECREASE}), BETTER),
    "no other metric helps": (make_results_with_intervals(IMPROVEMENTS | {"nll_correct": INCONCLUSIVE}), NO_DIFFERENCE),
    "every metric is worse": (make_results_with_intervals(ALL_WORSE), WORSE),
    "only the loss is worse": (make_results_with_intervals(IMPROVEMENTS | {"nll_correct": INCREASE}), WORSE),
    "no interval excludes zero": (make_results_with_intervals(NO_CHANGE), NO_DIFFERENCE),
    "there are too few groups for an interval": (make_results_with_intervals(WITHOUT_INTERVALS), NO_DIFFERENCE),
    "few groups": (make_results_with_intervals(IMPROVEMENTS, groups=12), BETTER),
}


@pytest.mark.parametrize(("results", "word"), COMPARISON_CASES.values(), ids=COMPARISON_CASES)
def test_the_comparison_follows_from_the_interval_of_the_log_loss_alone(results, word):
    assert comparison_and_remarks(results)[0] == word


def test_a_data_set_without_any_change_has_no_comparison():
    assert comparison_and_remarks(make_results_with_intervals({}))[0] is None


@pytest.mark.parametrize("p_value", [0.0001, 0.9])
def test_no_p_value_decides(p_value):
    intervals = make_shop_results().intervals.with_columns(p=pl.lit(p_value))
    assert comparison_and_remarks(replace(make_shop_results(), intervals=intervals))[0] == BETTER


@pytest.mark.parametrize(("results", "word"), COMPARISON_CASES.values(), ids=COMPARISON_CASES)
def test_cheaper_methods_are_named_only_if_the_reliability_is_better(results, word):
    with_good_platt = change_value(results, 0.0, variant="label_platt")
    assert ("is as good" in remarks_of(with_good_platt)) == (word == BETTER)


@pytest.mark.parametrize(("groups", "is_uncertain"), [(12, True), (99, True), (100, False)])
def test_few_groups_make_a_comparison_uncertain(groups, is_uncertain):
    text = remarks_of(make_results_with_intervals(IMPROVEMENTS, groups))
    assert ("Uncertain:" in text) == is_uncertain
    assert (f" {groups} groups" in text) == is_uncertain


@pytest.mark.parametrize(("n_rows", "n_reviewed"), [(1000, 300), (1003, 300), (1007, 302)])
def test_errors_found_in_1000_reviews_agree_with_a_count_over_the_reviewed_rows(n_rows, n_reviewed):
    results = make_results(rows=n_rows)  # without ties
    (row,) = compute_overview(results)
    scores = results.scores.with_columns(wrong=pl.col("label") != pl.col("decision"))
    for variant, column in (("confidence", "found_per_1000_conf"), ("mrp", "found_per_1000_mrp")):
        reviewed = pl.col("wrong").sort_by(f"logit_{variant}").head(n_reviewed)
        share_wrong = scores.group_by("calibrator", "seed").agg(reviewed.mean())
        assert row[column] == pytest.approx(1000 * share_wrong["wrong"].mean())
    assert row["found_per_1000_mrp"] != row["found_per_1000_conf"]


@pytest.mark.parametrize(
    ("accuracy_by_confidence", "changes", "has_remark"),
    [(0.9, IMPROVEMENTS, True), (0.8, IMPROVEMENTS, False), (0.9, ALL_WORSE, False)],
)
def test_the_table_remarks_that_a_better_reliability_finds_no_more_errors(accuracy_by_confidence, changes, has_remark):
    results = change_value(make_results_with_intervals(changes), 0.9, variant="mrp", metric="selacc_70")
    results = change_value(results, accuracy_by_confidence, variant="confidence", metric="selacc_70")
    assert ("no more errors" in remarks_of(results)) == has_remark


def test_a_row_averages_over_seeds_first_and_then_over_calibrators():
    results = make_results(seeds=(1, 2, 3))
    incomplete = results.metrics.filter((pl.col("calibrator") == "ts") | (pl.col("seed") == 1))
    (row,) = compute_overview(replace(results, metrics=incomplete))
    for column, variant, metric in (
        ("accuracy", "confidence", "accuracy"),
        ("aurc_conf", "confidence", "aurc"),
        ("aurc_mrp", "mrp", "aurc"),
    ):
        means = incomplete.filter(variant=variant, metric=metric).group_by("calibrator").agg(pl.mean("value"))
        assert row[column] == pytest.approx(means["value"].mean())
    assert (row["low"], row["high"]) == DECREASE
    assert row["nll_correct_delta"] == pytest.approx(sum(DECREASE) / 2)
    assert row["label_spread_pp"] == pytest.approx(20)
    assert row["random_p95_pp"] == pytest.approx(5)
    assert row["source"] == "simulated"


def test_a_data_set_without_a_label_spread_or_a_comparison_of_calibrators_is_compared():
    results = make_results(decided=1)
    (row,) = compute_overview(replace(results, rivals=results.rivals.clear()))
    assert row["label_spread_pp"] is None
    assert row["comparison"] == BETTER


# NLL and AURC of the cheaper method, where MRP has .4 and .1; NLL of the confidence; whether the method is named
CHEAPER_METHODS = [
    (0.300, 0.09, 0.5, True),
    (0.4005, 0.1005, 0.5, True),
    (0.402, 0.1, 0.5, False),
    (0.4, 0.102, 0.5, False),  # the NLL is as good, the ranking is worse
    (0.4005, 0.1, 0.401, False),  # half of the gain of MRP is lost
    (0.4, 0.1, 0.3, True),  # MRP has no gain
    (0.4005, 0.1, 0.3, False),
]


@pytest.mark.parametrize(("nll", "aurc", "nll_of_confidence", "is_named"), CHEAPER_METHODS)
def test_platt_lines_that_are_as_good_as_mrp_are_named(nll, aurc, nll_of_confidence, is_named):
    results = change_value(make_shop_results(), 99.0, "rivals")
    for variant, variant_nll, variant_aurc in (
        ("label_platt", nll, aurc),
        ("mrp", 0.4, 0.1),
        ("confidence", nll_of_confidence, 0.2),
    ):
        results = change_value(results, variant_nll, variant=variant, metric="nll_correct")
        results = change_value(results, variant_aurc, variant=variant, metric="aurc")
    numbers = rf"\([a-z ]*log loss {nll:.3f} [a-z ]* 0\.400, AURC {aurc:.3f} [a-z ]* 0\.100\)"
    text = remarks_of(results)
    assert ("Platt" in text) == is_named
    assert bool(re.search(f"Platt line [a-z ]*as good {numbers}", text)) == is_named


@pytest.mark.parametrize(("nll", "aurc", "nll_of_confidence", "is_named"), CHEAPER_METHODS)
def test_matrix_scaling_that_is_as_good_as_mrp_is_named(nll, aurc, nll_of_confidence, is_named):
    results = change_value(make_shop_results(), 99.0, "rivals")
    for calibrator, variant, variant_nll, variant_aurc in (
        ("matrix", "confidence", nll, aurc),
        ("ts", "mrp", 0.4, 0.1),
        ("ts", "confidence", nll_of_confidence, 0.2),
    ):
        where = {"rows": 400, "projection_fit_rows": 400, "calibrator": calibrator, "variant": variant}
        results = change_value(results, variant_nll, "rivals", metric="nll_correct", **where)
        results = change_value(results, variant_aurc, "rivals", metric="aurc", **where)
    numbers = rf"\([a-z ]*log loss {nll:.3f} [a-z ]* 0\.400, AURC {aurc:.3f} [a-z ]* 0\.100\)"
    text = remarks_of(results)
    assert ("matrix scaling" in text) == is_named
    assert bool(re.search(f"matrix scaling [a-z ]*as good {numbers}", text)) == is_named


def test_cheaper_methods_of_another_data_set_are_not_named():
    losses = {"fair": 0.0, "bazaar": 99.0, "market": 99.0}  # of the cheaper methods
    results = {}
    for name, loss in losses.items():
        with_platt = change_value(make_results(name, rows=60), loss, variant="label_platt")
        results[name] = change_value(with_platt, loss, "rivals", calibrator="matrix", variant="confidence")
    bazaar = results["bazaar"]
    better = (
        "bazaar",
        "simulated",
        "matrix",
        "nll_correct",
        "versus_mrp",
        -0.02,
        0.01,
        -0.03,
        -0.01,
        0.01,
        60,
    )
    with_interval = pl.concat([bazaar.intervals, make_frame("intervals", better)])
    results["bazaar"] = replace(bazaar, intervals=with_interval)
    for datasets in ([*results.values()], [*reversed(results.values())]):
        remarks = {row["dataset"]: row["remarks"] for row in compute_overview(*datasets)}
        named = {name: re.findall(r"(Platt|matrix)[a-z ]* (good|better)\b", text) for name, text in remarks.items()}
        assert named == {
            "fair": [("Platt", "good"), ("matrix", "good")],
            "bazaar": [("matrix", "better")],
            "market": [],
        }


@pytest.mark.parametrize(("high", "is_better"), [(-0.001, True), (0.001, False), (None, False)])
def test_matrix_scaling_is_better_only_if_its_interval_excludes_zero(high, is_better):
    key = ("shop", "simulated", "matrix", "nll_correct", "versus_mrp")
    numbers = (-0.01, 0.01, -0.02, high, 0.01, 60)  # value, standard error, low, high, p-value, groups
    intervals = pl.concat([make_shop_results().intervals, make_frame("intervals", (*key, *numbers))])
    text = remarks_of(replace(make_shop_results(), intervals=intervals))
    assert bool(re.search("matrix scaling [a-z ]*better", text)) == is_better


@pytest.mark.parametrize("changes", [IMPROVEMENTS, BETTER_LOSS_ONLY, ALL_WORSE, WITHOUT_INTERVALS])
def test_the_stage_of_a_data_set_and_the_report_have_the_same_numbers_and_comparison(changes):
    results = make_results_with_intervals(changes)
    (report_row,) = compute_overview(results)
    (stage_row,) = summarize_datasets(results.metrics, results.intervals, [results.facts]).to_dicts()
    columns = set(report_row) - {"comparison", "remarks"}
    assert {column: stage_row[column] for column in columns} == {column: report_row[column] for column in columns}
    sentence, *_ = describe_comparison(stage_row, results.intervals)
    assert sentence.lower().startswith(report_row["comparison"])


@pytest.mark.parametrize(
    ("excess_of_most_frequent", "comparisons"), [(-0.03, []), (-0.01, ["hardly better"]), (0.01, ["no better"])]
)
def test_a_base_predictor_that_is_hardly_better_than_the_most_frequent_label_has_a_remark(
    excess_of_most_frequent, comparisons
):
    n_most_frequent = round(1000 * (make_shop_results().facts["accuracy"]["test"] + excess_of_most_frequent))
    facts = make_shop_results().facts | {"class_counts": {"test": [1000 - n_most_frequent, n_most_frequent]}}
    text = remarks_of(replace(make_shop_results(), facts=facts))
    assert re.findall(r"base predictor is ([a-z ]+) than", text) == comparisons


def summary_sentences(*datasets: DatasetResults, missing: tuple[str, ...] = ()) -> list[str]:
    runs = combine_runs(datasets, missing)
    return summarize_overview(overview_table(runs), describe_headline(runs))


def test_the_summary_starts_with_the_main_result_and_lists_every_data_set_once():
    changes_of_datasets = {
        "a": IMPROVEMENTS,
        "b": IMPROVEMENTS,
        "c": BETTER_LOSS_ONLY,
        "d": ALL_WORSE,
        "e": WITHOUT_INTERVALS,
    }
    datasets = [make_results(name, changes=changes, rows=100) for name, changes in changes_of_datasets.items()]
    sentences = summary_sentences(*datasets, missing=("f",))
    assert re.search(r" is better .* 3 of 5 .*\(simulated\)\.$", sentences[0])
    for sentence, names, count in zip(sentences[1:4], ("a, b and c", "e", "d"), (3, 1, 1), strict=True):
        assert sentence.endswith(f" {names} ({count} of 5).")
    (missing,) = [sentence for sentence in sentences if sentence.endswith(": f.")]
    assert missing.startswith("Not ")


@pytest.mark.parametrize(
    ("n_better", "expected"),
    [
        (0, " not better .* any of 3 "),
        (1, " is better .* 1 of 3 "),
        (3, " is better .* 3 of 3 "),
    ],
)
def test_the_main_result_is_one_short_sentence_without_names(n_better, expected):
    datasets = [make_results(f"set_{i}", changes=IMPROVEMENTS if i < n_better else ALL_WORSE) for i in range(3)]
    finding = summary_sentences(*datasets)[0]
    assert finding.count(".") == 1
    assert len(finding.split()) <= 20
    assert "set_" not in finding
    assert re.search(expected, finding)


@pytest.mark.parametrize(("interval", "n_above_zero"), [(INCREASE, 1), (INCONCLUSIVE, 0)])
def test_the_summary_counts_the_data_sets_on_which_reviews_find_more_errors(interval, n_above_zero):
    text = " ".join(summary_sentences(make_results_with_intervals(IMPROVEMENTS | {"selacc_70": interval})))
    assert re.search(rf" {n_above_zero} of 1, 1,000 reviews [a-z ]*reliable 30% [a-z ]*more errors", text)


@pytest.mark.parametrize("changes", [ALL_WORSE, {}], ids=["worse", "no change"])
def test_a_summary_without_improvements_claims_none(changes):
    text = " ".join(summary_sentences(make_results_with_intervals(changes)))
    for claim in ("is better", "1,000 reviews"):
        assert claim not in text


@pytest.mark.parametrize("calibrator", ["ts", "matrix"])
def test_matrix_scaling_is_not_compared_if_one_of_the_two_calibrators_did_not_run(calibrator):
    others = make_shop_results().rivals.filter(pl.col("calibrator") != calibrator)
    assert "matrix scaling" not in remarks_of(replace(make_shop_results(), rivals=others))


@pytest.mark.parametrize("variant", ["mrp", "confidence"])
@pytest.mark.parametrize("calibrator", ["ts", "matrix"])
def test_matrix_scaling_is_not_compared_without_all_numbers(calibrator, variant):
    is_unknown = (pl.col("calibrator") == calibrator) & (pl.col("variant") == variant)
    text = remarks_of(replace(make_shop_results(), rivals=make_shop_results().rivals.filter(~is_unknown)))
    is_needed = (calibrator, variant) != ("matrix", "mrp")
    assert ("matrix scaling" in text) == (not is_needed)


@pytest.mark.parametrize("variant", ["label_platt", "mrp", "confidence"])
@pytest.mark.parametrize("metric", ["nll_correct", "aurc"])
def test_platt_lines_are_not_compared_without_all_numbers(variant, metric):
    results = change_value(make_shop_results(), 0.0, variant="label_platt")
    assert re.search("Platt line .*as good", remarks_of(results))
    is_unknown = (pl.col("variant") == variant) & (pl.col("metric") == metric)
    text = remarks_of(replace(results, metrics=results.metrics.filter(~is_unknown)))
    assert "Platt" not in text


@pytest.mark.parametrize(
    ("accuracy", "comparison"),
    [(0.5, "no better"), (0.499, "no better"), (0.501, "hardly better"), (0.5 + MIN_ACCURACY_GAIN, None), (None, None)],
)
def test_a_base_predictor_without_a_clear_gain_over_the_most_frequent_label_has_a_remark(accuracy, comparison):
    remarks = list_remarks(ROW_WITHOUT_CHANGE | {"accuracy": accuracy, "commonest_label": 0.5})
    assert len(remarks) == (comparison is not None)
    if comparison:
        assert re.search(rf"predictor is {comparison} .* {accuracy:.1%}, .* 50\.0%\.", remarks[0])


def test_a_base_predictor_of_unknown_labels_has_no_remark():
    assert list_remarks(ROW_WITHOUT_CHANGE | {"accuracy": 0.5, "commonest_label": None}) == []


@pytest.mark.parametrize(
    ("high", "found", "has_remark"),
    [(-0.01, 10.9, True), (-0.01, 11.0, False), (-0.01, 9.0, False), (0.01, 10.0, False), (-0.01, None, False)],
)
def test_a_better_reliability_that_finds_about_as_many_errors_has_a_remark(high, found, has_remark):
    remarks = list_remarks(ROW | {"high": high, "found_per_1000_conf": 10.0, "found_per_1000_mrp": found})
    assert len(remarks) == has_remark
    for remark in remarks:
        assert re.search(" 30% .*no more errors", remark)


SHOP_INTERVALS = [  # calibrator, metric, quantity, value, standard error, low, high, p, groups
    ("average", "nll_correct", "before", 9.0, 9.0, 9.0, 9.0, 0.9, 150),
    ("average", "nll_correct", "delta", -0.03, 0.01, -0.05, -0.01, 0.001, 150),
    ("average", "aupr_error", "delta", 0.0004, 0.01, -0.02, 0.03, 0.9, 150),
    ("average", "aurc", "delta", -0.02, 0.01, -0.04, -0.005, 0.002, 150),
    ("ts", "aurc", "delta", 8.0, 8.0, 8.0, 8.0, 0.8, 150),
]


def shop_intervals(**changes: object) -> pl.DataFrame:
    """Return SHOP_INTERVALS with some columns replaced."""
    rows = [("shop", "files", *row) for row in SHOP_INTERVALS]
    return make_frame("intervals", *rows).with_columns(**changes)


def assert_sentences_match(sentences: Sequence[str], patterns: Sequence[str]) -> None:
    """Check that the beginnings of sentences match patterns, one for each sentence."""
    for sentence, pattern in zip(sentences, patterns, strict=True):
        assert re.match(pattern, sentence), sentence


def test_the_comparison_of_a_data_set_is_described_with_its_numbers():
    patterns = [
        r"Better .*MRP .*log loss [a-z ]*-0\.0300 \(95% interval -0\.0500 to -0\.0100\), .* 1,000 ",
        r"1,000 .*reliable 30% .* 352 .*; 1,000 .*confident 30% .* 310 \(\+42, 95% interval \+12 to \+69\)",
        r".*log loss -0\.0300 \(95% interval -0\.0500 to -0\.0100\), AUPR-Error \+0\.0004 \(95% interval -0\.0200 to "
        r"\+0\.0300\), AURC -0\.0200 \(95% interval -0\.0400 to -0\.0050\)\.$",
        r".* 4 calibrators .* 3 .*seeds",
    ]
    assert_sentences_match(describe_comparison(ROW, shop_intervals()), patterns)


def test_unknown_intervals_are_omitted_from_the_description():
    unknown = dict.fromkeys(("low", "high", "found_per_1000_low", "found_per_1000_high"))
    sentences = describe_comparison(ROW | unknown, shop_intervals(low=float("nan"), high=float("nan")))
    patterns = [
        r"No .*MRP .*log loss [a-z ]*-0\.0300 \([a-z ]*few groups [a-z ]*\), .* 1,000 ",
        r"1,000 .*reliable 30% .* 352 .*; 1,000 .*confident 30% .* 310 \(\+42\)",
        r".*log loss -0\.0300, AUPR-Error \+0\.0004, AURC -0\.0200\.$",
    ]
    assert_sentences_match(sentences[:3], patterns)


def test_a_data_set_without_a_change_has_one_sentence():
    assert len(describe_comparison(ROW_WITHOUT_CHANGE, shop_intervals().clear())) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"errors": 99}, "99 of 1,000 .*wrong;"),
        ({"errors": 901}, "99 of 1,000 .*correct;"),
        ({"groups": 29}, "29 groups;"),
        ({"errors": 9, "groups": 29}, "29 groups [a-z ]* 9 of 1,000 .*wrong;"),
    ],
)
def test_few_groups_or_errors_add_how_uncertain_the_comparison_is(changes, reason):
    sentences = describe_comparison(ROW | changes, shop_intervals())
    assert sentences[0] == describe_comparison(ROW, shop_intervals())[0]
    assert re.match(f"Uncertain: [a-z ]* {reason}", sentences[1])


def test_remarks_follow_the_comparison():
    sentences = describe_comparison(ROW | {"found_per_1000_mrp": 310.9, "commonest_label": 0.79}, shop_intervals())
    assert_sentences_match(sentences[:3], ["Better ", ".* 30% .*no more errors", ".*predictor is hardly better"])
