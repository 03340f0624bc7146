"""The first table: advice that the intervals bear out, holes for what failed, errors as a count finds them."""

from dataclasses import replace
from functools import cache

import polars as pl
import pytest

from tasks.page.words import verdict_in_words
from tasks.protocol.results import FAILED
from tasks.tables.headline import headline_sentence
from tasks.tables.overview import KEEP, MIXED, SCHEMA, UNKNOWN, USE, overview_table
from tasks.tables.runs import PAPER_DATASETS
from tests.report_data import BETTER, DECREASE, INCREASE, NOTHING, Made, intervals, made, together

WORSE = {"nll_correct": INCREASE, "aupr_error": DECREASE, "aurc": INCREASE}
PREDICTS = dict.fromkeys(BETTER, NOTHING) | {"nll_correct": DECREASE}
RANKS = dict.fromkeys(BETTER, NOTHING) | {"aurc": DECREASE}
UNTOLD = dict.fromkeys(BETTER)
ONE_WAY = "ranks better by one metric and worse by another"
SHOP = cache(made)


def changed(changes: dict) -> Made:
    """The same data set with other intervals."""
    return replace(SHOP(), intervals=intervals("shop", "simulated", ("uncal", "ts"), changes, 60))


def overview_of(*sets: Made, missing: tuple[str, ...] = ()) -> list[dict]:
    return overview_table(together(sets, missing)).to_dicts()


def advice(of: Made) -> str:
    return overview_of(of)[0]["advice"]


def scaled(of: Made, **values: float) -> Made:
    """The same with a metric of one variant at the given value, by `variant__metric`."""
    value = pl.col("value")
    for name, new in values.items():
        variant, metric = name.split("__")
        value = pl.when(variant=variant, metric=metric).then(new).otherwise(value)
    return replace(of, metrics=of.metrics.with_columns(value=value))


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        (BETTER, f"{USE}: it predicts and ranks better."),
        (PREDICTS | {"aupr_error": INCREASE}, f"{USE}: it predicts and ranks better."),
        (PREDICTS, f"{MIXED}: the reliability predicts better and ranks not certainly better."),
        (RANKS, f"{MIXED}: the reliability predicts not certainly better and ranks better."),
        (PREDICTS | {"aurc": INCREASE}, f"{MIXED}: the reliability predicts better and ranks worse."),
        (RANKS | {"nll_correct": INCREASE}, f"{MIXED}: the reliability predicts worse and ranks better."),
        (BETTER | {"aupr_error": DECREASE}, f"{MIXED}: the reliability predicts better and {ONE_WAY}."),
        (WORSE, f"{KEEP}: the reliability predicts worse and ranks worse."),
        (dict.fromkeys(BETTER, NOTHING) | {"nll_correct": INCREASE}, f"{KEEP}: the reliability predicts worse and "),
        (dict.fromkeys(BETTER, NOTHING), f"{KEEP}: nothing is certain to change."),
        (UNTOLD, f"{UNKNOWN}."),
        (BETTER | {"aupr_error": None}, f"{USE}: it predicts and ranks better."),  # too few errors for one of two
        (BETTER | {"nll_correct": None}, f"{UNKNOWN}."),
    ],
)
def test_the_advice_is_what_the_intervals_bear_out(changes, begins):
    assert advice(changed(changes)).startswith(begins)


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
    text = advice(scaled(changed(changes), confidence__selacc_70=kept, mrp__selacc_70=0.9))
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


def test_what_failed_is_a_hole_and_what_is_there_stands_in_order():
    rows = overview_of(made("shop"), made("wands"), missing=("amazon_esci", "mine"))
    assert [(row["dataset"], row["source"]) for row in rows] == [
        *(("amazon_esci", FAILED), ("wands", "simulated"), ("shop", "simulated"), ("mine", FAILED))
    ]
    assert [name for name, value in rows[0].items() if value is not None] == ["dataset", "source"]
    assert overview_table(together([SHOP()])).schema == SCHEMA


def test_a_data_set_of_one_label_and_without_rivals_has_no_spread_but_advice():
    of = made(decided=1)
    (row,) = overview_of(replace(of, rivals=of.rivals.clear()))
    assert row["label_spread_pp"] is None
    assert row["advice"].startswith(USE)


def platt(**values: float) -> Made:
    """With these metrics of MRP, the confidence, and a Platt line in place of it."""
    return scaled(SHOP(), **{name.replace("cheaper", "label_platt"): value for name, value in values.items()})


def matrix(**values: float) -> Made:
    """With these metrics of MRP on the default calibrator, its confidence, and matrix scaling, at the most rows."""
    of, value = SHOP(), pl.lit(99.0)
    ways = {"cheaper": ("matrix", "confidence"), "mrp": ("ts", "mrp"), "confidence": ("ts", "confidence")}
    for name, new in values.items():
        way, metric = name.split("__")
        (calibrator, variant), most = ways[way], (pl.col("rows") == 400) & (pl.col("projection_fit_rows") > 0)
        value = pl.when(most, calibrator=calibrator, variant=variant, metric=metric).then(new).otherwise(value)
    return replace(of, rivals=of.rivals.with_columns(value=value))


@pytest.mark.parametrize(
    ("way", "begins"),
    [(platt, "A Platt line for each label does as well"), (matrix, "matrix scaling does as well")],
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
def test_a_cheaper_way_is_named_where_it_does_as_well(way, begins, nll, aurc, before, named):
    of_mrp = {"mrp__nll_correct": 0.4, "mrp__aurc": 0.1, "confidence__nll_correct": before, "confidence__aurc": 0.2}
    text = advice(way(**of_mrp, cheaper__nll_correct=nll, cheaper__aurc=aurc))
    numbers = f"(correctness NLL {nll:.3f} beside 0.400, AURC {aurc:.3f} beside 0.100)"
    assert (f"{begins} {numbers}" in text) == (begins in text) == named


@pytest.mark.parametrize("changes", [WORSE, UNTOLD])
def test_where_the_confidence_is_kept_nothing_else_is_recommended(changes):
    assert "does as well" not in advice(scaled(changed(changes), label_platt__nll_correct=0.0))


def words(*sets: Made, missing: tuple[str, ...] = ()) -> list[str]:
    """The verdict."""
    runs = together(sets, missing)
    return verdict_in_words(overview_table(runs), headline_sentence(runs))


def test_the_verdict_answers_first_and_counts_every_finished_set_once():
    kinds = {"a": BETTER, "b": BETTER, "c": PREDICTS, "d": WORSE, "e": UNTOLD}
    text = words(*(made(name, changes=changes, rows=100) for name, changes in kinds.items()), missing=("f",))
    assert text[0].endswith("a and b (2 of 5).")
    assert [sentence[-len("c (1 of 5).") :] for sentence in text[1:4]] == [f"{name} (1 of 5)." for name in "cde"]
    assert "What is said here is said without f." in text


@pytest.mark.parametrize(("bounds", "certain"), [(INCREASE, 1), (NOTHING, 0)])
def test_the_verdict_says_by_how_much_where_it_helps_and_where_reviews_surely_find_more(bounds, certain):
    (row,) = overview_of(SHOP())
    more = round(row["found_per_1000_mrp"] - row["found_per_1000_conf"])
    text = " ".join(words(changed(BETTER | {"selacc_70": bounds})))
    assert f"find change by {more:+} (most on " in text
    assert f"on {certain} of 1 the 95% interval of that change lies above zero" in text


@pytest.mark.parametrize("changes", [WORSE, {}], ids=["worse", "no interval"])
def test_a_verdict_claims_nothing_where_nothing_is_better(changes):
    text = " ".join(words(changed(changes)))
    assert not any(part in text for part in (USE, "Rerank by the reliability", "1,000 reviews"))
