"""The first table: advice that the intervals bear out, holes for what failed, errors as a count finds them."""

import numpy as np
import polars as pl
import pytest

from tasks.page.words import verdict_in_words
from tasks.tables.headline import headline_sentence
from tasks.tables.overview import KEEP, MIXED, SCHEMA, UNKNOWN, USE, overview_table
from tasks.tables.runs import FAILED, PAPER_DATASETS
from tests.report_data import BETTER, DECREASE, INCREASE, NOTHING, Made, made, together

WORSE = {"nll_correct": INCREASE, "aupr_error": DECREASE, "aurc": INCREASE}
PREDICTS = dict.fromkeys(BETTER, NOTHING) | {"nll_correct": DECREASE}
RANKS = dict.fromkeys(BETTER, NOTHING) | {"aurc": DECREASE}
UNTOLD = dict.fromkeys(BETTER)


def overview_of(*sets: Made, missing: tuple[str, ...] = ()) -> list[dict]:
    return overview_table(together(sets, missing)).to_dicts()


def advice(changes: dict) -> str:
    (row,) = overview_of(made(changes=changes))
    return row["advice"]


def scaled(one: Made, **values: float) -> Made:
    """The same with a metric of one variant at the given value, by `variant__metric`."""
    changed = pl.col("value")
    for name, value in values.items():
        variant, metric = name.split("__")
        changed = pl.when(variant=variant, metric=metric).then(value).otherwise(changed)
    return Made(**vars(one) | {"metrics": one.metrics.with_columns(value=changed)})


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        (BETTER, f"{USE}: it predicts and ranks better."),
        (PREDICTS | {"aupr_error": INCREASE}, f"{USE}: it predicts and ranks better."),
        (PREDICTS, f"{MIXED}: the reliability predicts better and ranks not certainly better."),
        (RANKS, f"{MIXED}: the reliability predicts not certainly better and ranks better."),
        (PREDICTS | {"aurc": INCREASE}, f"{MIXED}: the reliability predicts better and ranks worse."),
        (RANKS | {"nll_correct": INCREASE}, f"{MIXED}: the reliability predicts worse and ranks better."),
        (WORSE, f"{KEEP}: the reliability predicts worse and ranks worse."),
        (dict.fromkeys(BETTER, NOTHING) | {"nll_correct": INCREASE}, f"{KEEP}: the reliability predicts worse and "),
        (dict.fromkeys(BETTER, NOTHING), f"{KEEP}: nothing is certain to change."),
        (UNTOLD, f"{UNKNOWN}."),
        (BETTER | {"aupr_error": None}, f"{USE}: it predicts and ranks better."),  # too few errors for one of two
        (BETTER | {"nll_correct": None}, f"{UNKNOWN}."),
    ],
)
def test_the_advice_is_what_the_intervals_bear_out(changes, begins):
    assert advice(changes).startswith(begins)


def test_better_by_one_way_of_ranking_and_worse_by_another_is_mixed():
    said = advice({"nll_correct": DECREASE, "aurc": DECREASE, "aupr_error": DECREASE})
    assert said.startswith(f"{MIXED}: ")
    assert "ranks better by one metric and worse by another" in said


def test_an_interval_that_does_not_survive_the_correction_advises_nothing():
    one = made(changes=BETTER)
    p = pl.when(pl.col("p") < 0.05).then(0.04).otherwise("p").alias("p")
    ours = [made(name, changes=dict.fromkeys(BETTER, NOTHING)) for name in PAPER_DATASETS[1:]]
    first = made(PAPER_DATASETS[0])
    alone = Made(**vars(one) | {"intervals": one.intervals.with_columns(p)})
    beside = Made(**vars(first) | {"intervals": first.intervals.with_columns(p)})
    assert overview_of(alone)[0]["advice"].startswith(USE)
    assert overview_of(beside, *ours)[0]["advice"].startswith(KEEP)  # one of six at p = .04


@pytest.mark.parametrize(("rows", "reviewed"), [(1000, 300), (1003, 300), (1007, 302)])
def test_errors_of_1000_reviews_agree_with_a_count_of_those_that_selective_accuracy_does_not_keep(rows, reviewed):
    one = made(rows=rows)  # no two tie
    counted = {}
    for way in ("confidence", "mrp"):
        by_calibrator = []
        for _, frame in one.scores.group_by("calibrator"):
            found = [
                1000
                / reviewed
                * of_seed.sort(f"logit_{way}")[:reviewed].filter(pl.col("label") != pl.col("decision")).height
                for _, of_seed in frame.group_by("seed")
            ]
            by_calibrator.append(np.mean(found))
        counted[way] = np.mean(by_calibrator)
    (row,) = overview_of(one)
    assert row["found_per_1000_conf"] == pytest.approx(counted["confidence"])
    assert row["found_per_1000_mrp"] == pytest.approx(counted["mrp"])
    assert row["found_per_1000_mrp"] != row["found_per_1000_conf"]


@pytest.mark.parametrize(("kept", "changes", "said"), [(0.9, BETTER, True), (0.8, BETTER, False), (0.9, WORSE, False)])
def test_a_better_ranking_that_finds_no_more_errors_in_reviews_says_so(kept, changes, said):
    (row,) = overview_of(scaled(made(changes=changes), confidence__selacc_70=kept, mrp__selacc_70=0.9))
    assert ("it finds no more errors" in row["advice"]) == said


def test_a_row_holds_means_and_the_interval_of_its_average():
    one = made()
    (row,) = overview_of(one)
    mean = {
        (variant, metric): value
        for variant, metric, value in one.metrics.group_by("variant", "metric").agg(pl.mean("value")).iter_rows()
    }
    assert row["accuracy"] == pytest.approx(mean["confidence", "accuracy"])
    assert row["aurc_conf"] == pytest.approx(mean["confidence", "aurc"])
    assert row["aurc_mrp"] == pytest.approx(mean["mrp", "aurc"])
    assert (row["low"], row["high"]) == DECREASE
    assert row["nll_correct_delta"] == pytest.approx(sum(DECREASE) / 2)
    assert (row["label_spread_pp"], row["random_p95_pp"]) == pytest.approx((20, 5))
    assert row["source"] == "simulated"


def test_means_are_of_seeds_first_whatever_was_not_run():
    one = made(seeds=(1, 2, 3))
    incomplete = one.metrics.filter((pl.col("calibrator") == "ts") | (pl.col("seed") == 1))
    (row,) = overview_of(Made(**vars(one) | {"metrics": incomplete}))
    aurc = incomplete.filter(variant="mrp", metric="aurc").group_by("calibrator").agg(pl.mean("value"))
    assert row["aurc_mrp"] == pytest.approx(aurc["value"].mean())


def test_what_failed_is_a_hole_and_what_is_there_stands_in_order():
    rows = overview_of(made("shop"), made("wands"), missing=("amazon_esci", "mine"))
    assert [(row["dataset"], row["source"]) for row in rows] == [
        *(("amazon_esci", FAILED), ("wands", "simulated"), ("shop", "simulated"), ("mine", FAILED))
    ]
    hole = rows[0]
    assert [name for name, value in hole.items() if value is not None] == ["dataset", "source"]
    assert overview_table(together([made()])).schema == SCHEMA


def test_a_data_set_of_one_label_has_no_spread_but_advice():
    (row,) = overview_of(made(decided=1))
    assert row["label_spread_pp"] is None
    assert row["advice"].startswith(USE)


CHEAPER = [  # NLL and AURC of a cheaper way where MRP has .4 and .1, the confidence's NLL, and whether it does as well
    (0.300, 0.09, 0.5, True),
    (0.4005, 0.1005, 0.5, True),
    (0.402, 0.1, 0.5, False),
    (0.4, 0.102, 0.5, False),  # it predicts as well and ranks worse
    (0.4005, 0.1, 0.401, False),  # half of all that MRP gains is missing
]


@pytest.mark.parametrize(("nll", "aurc", "before", "named"), CHEAPER)
def test_a_platt_line_is_named_where_it_does_as_well(nll, aurc, before, named):
    of_mrp = {"mrp__nll_correct": 0.4, "mrp__aurc": 0.1, "confidence__nll_correct": before, "confidence__aurc": 0.2}
    (row,) = overview_of(scaled(made(), **of_mrp, label_platt__nll_correct=nll, label_platt__aurc=aurc))
    assert ("A Platt line for each label does as well" in row["advice"]) == named
    told = f"(correctness NLL {nll:.3f} beside 0.400, AURC {aurc:.3f} beside 0.100)"
    assert (told in row["advice"]) == named


@pytest.mark.parametrize(("nll", "aurc", "before", "named"), CHEAPER)
def test_matrix_scaling_is_named_where_it_does_as_well_on_the_most_rows(nll, aurc, before, named):
    one = made()
    found = {
        ("matrix", "confidence"): {"nll_correct": nll, "aurc": aurc},
        ("ts", "mrp"): {"nll_correct": 0.4, "aurc": 0.1},
        ("ts", "confidence"): {"nll_correct": before, "aurc": 0.2},
    }
    most = (pl.col("rows") == 400) & (pl.col("projection_fit_rows") > 0)
    value = pl.lit(99.0)
    for (calibrator, variant), metrics in found.items():
        for metric, at in metrics.items():
            mine = (pl.col("calibrator") == calibrator) & (pl.col("variant") == variant) & (pl.col("metric") == metric)
            value = pl.when(most & mine).then(at).otherwise(value)
    (row,) = overview_of(Made(**vars(one) | {"rivals": one.rivals.with_columns(value=value)}))
    assert ("matrix scaling does as well" in row["advice"]) == named
    told = f"(correctness NLL {nll:.3f} beside 0.400, AURC {aurc:.3f} beside 0.100)"
    assert (told in row["advice"]) == named


@pytest.mark.parametrize("changes", [WORSE, UNTOLD])
def test_where_the_confidence_is_kept_nothing_else_is_recommended(changes):
    (row,) = overview_of(scaled(made(changes=changes), label_platt__nll_correct=0.0))
    assert "Platt" not in row["advice"]
    assert "matrix" not in row["advice"]


# In words


def words(*sets: Made, missing: tuple[str, ...] = ()) -> list[str]:
    runs = together(sets, missing)
    return verdict_in_words(overview_table(runs), headline_sentence(runs))


def test_the_verdict_answers_first_and_counts_every_finished_set_once():
    kinds = {"a": BETTER, "b": BETTER, "c": PREDICTS, "d": WORSE, "e": UNTOLD}
    said = words(*(made(name, changes=changes) for name, changes in kinds.items()), missing=("f",))
    assert said[0].endswith("a and b (2 of 5).")
    assert [sentence[-len("c (1 of 5).") :] for sentence in said[1:4]] == [f"{name} (1 of 5)." for name in "cde"]
    assert "What is said here is said without f." in said


def test_the_verdict_says_by_how_much_where_it_helps_and_nothing_where_it_does_not():
    (row,) = overview_of(made())
    more = round(row["found_per_1000_mrp"] - row["found_per_1000_conf"])
    assert any(f"find change by {more:+} (most on " in sentence for sentence in words(made()))
    assert not any("1,000 reviews" in sentence for sentence in words(made(changes=WORSE)))


@pytest.mark.parametrize(("bounds", "certain"), [(INCREASE, 1), (NOTHING, 0)])
def test_the_verdict_counts_where_reviews_surely_find_more(bounds, certain):
    said = " ".join(words(made(changes=BETTER | {"selacc_70": bounds})))
    assert f"on {certain} of 1 the 95% interval of that change lies above zero" in said


def test_a_verdict_without_intervals_claims_nothing():
    said = words(made(changes={}))
    assert not any(word in " ".join(said) for word in (USE, "Rerank by the reliability"))
