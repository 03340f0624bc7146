"""Evaluation of a map: each number has another way to it, intervals obey their laws, the verdict says what they say."""

import copy
import json
import re
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, ndtri

from tasks.calibrators.identity import Identity
from tasks.maps.document import MapDocument
from tasks.maps.evaluate import METRICS, Judged, evaluate, replicated
from tasks.maps.reliability_map import ReliabilityMap, Scored, calibrated_confidence
from tasks.maps.verdict import verdict
from tasks.metrics.intervals import interval, two_sided_p
from tasks.metrics.probability import ece
from tasks.metrics.registry import of_reliability
from tasks.metrics.resampling import resample, some_clusters
from tasks.metrics.spread import label_spread, label_spread_null
from tasks.predictions.rows import PredictedRows
from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.labelwise import WithFallbacks, fit_platt
from tasks.protocol.params import METRIC_DEFAULTS
from tests import maps
from tests.fits import batch
from tests.maps import checked

VIEWS = ("confidence", "reliability")


def fitted(shift: float = 1.5, n: int = 6000, rows: tuple[int, ...] | None = None, fallback=("none",) * 3):
    """A map with a good curve for each label, where label 1 is off by `shift`."""
    behind = checked(maps.predictions(n, shift=shift, seed=1))
    logits = logit(calibrated_confidence(Identity(), behind))
    lines = fit_platt(batch((logits[None], behind.decision, behind.correct), 3))[0]
    shared = SharedCurve(Curves(maps.KNOTS, logit(np.clip(maps.KNOTS, 0.01, 0.99))[None], np.array([n]), ("none",)))
    counts = np.bincount(behind.decision, minlength=3) if rows is None else np.array(rows)
    return maps.document("label_platt", WithFallbacks(lines, shared, fallback, counts), calibrator=Identity())


def found(document: MapDocument, rows: PredictedRows) -> dict:
    return evaluate(document, rows, ReliabilityMap.of(document)(rows))


def judge(decision, correct, confidence, reliability_logit, group=None) -> tuple[PredictedRows, Scored]:
    """Rows and what a map says of them, as one likes."""
    decision, correct = np.asarray(decision), np.asarray(correct, dtype=bool)
    label = np.where(correct, decision, (decision + 1) % 3)
    rows = PredictedRows(None, np.asarray(confidence, dtype=float), decision, label, group)
    return rows, Scored(rows.stated, np.asarray(reliability_logit, dtype=float))


@pytest.fixture(scope="module")
def helpful() -> MapDocument:
    return fitted()


@pytest.fixture(scope="module")
def grouped() -> PredictedRows:
    return checked(maps.predictions(3000), "group")


@pytest.fixture(scope="module")
def helps(helpful, grouped) -> dict:
    return found(helpful, grouped)


# The numbers


def test_metrics_are_those_of_the_whole_set(helpful, grouped, helps):
    scored = ReliabilityMap.of(helpful)(grouped)
    for by, score, share in (
        ("confidence", logit(scored.confidence), scored.confidence),
        ("reliability", scored.logit, scored.reliability),
    ):
        wanted = of_reliability(score, grouped.correct) | {"ece": ece(share, grouped.correct)}
        assert {name: helps["metrics"][name][by] for name in METRICS} == pytest.approx(wanted, rel=1e-12)
    assert helps["rows"] == 3000
    assert helps["groups"] == 300
    assert helps["accuracy"]["value"] == grouped.correct.mean()
    assert helps["errors"] == (~grouped.correct).sum()
    for compared in helps["metrics"].values():
        assert compared["change"] == compared["reliability"] - compared["confidence"]
        assert compared["low"] < compared["change"] < compared["high"]


def test_errors_per_1000_reviews_are_those_among_the_least_sure_rows(helpful, grouped, helps):
    scored = ReliabilityMap.of(helpful)(grouped)
    for budget, kept in zip(helps["reviews"], (2700, 2100, 1500, 300), strict=True):
        assert budget["reviews"] == 3000 - kept == round(3000 * budget["reviewed"])
        assert budget["at_random"] == pytest.approx(1000 * (1 - grouped.correct.mean()))
        for by, score in (("confidence", scored.confidence), ("reliability", scored.logit)):
            errors = 0
            for row in np.argsort(score)[: budget["reviews"]]:
                errors += not grouped.correct[row]
            assert budget[by] == pytest.approx(1000 * errors / budget["reviews"], rel=1e-12)
        assert budget["change"] == pytest.approx(budget["reliability"] - budget["confidence"])


def test_tied_rows_are_reviewed_in_a_random_order():
    correct = np.array([0, 1, 1, 0, 1, 0, 1])
    confidence = np.array([0.9, 0.9, 0.5, 0.9, 0.5, 0.5, 1.0])
    sure = np.array([2.0, 1.0, 1.0, 1.0, 0.0, 0.0, 2.0])
    document = maps.document("confidence", stated=True)
    reviews = evaluate(document, *judge(np.zeros(7, dtype=int), correct, confidence, sure))["reviews"]
    for by, score in (("confidence", confidence), ("reliability", sure)):
        orders = np.array(list(permutations(range(7))))
        orders = orders[(np.diff(score[orders], axis=1) >= 0).all(axis=1)]
        assert [budget["reviews"] for budget in reviews] == [0, 2, 3, 6]
        for budget in reviews[1:]:
            errors = (1 - correct)[orders[:, : budget["reviews"]]].sum(axis=1).mean()
            assert budget[by] == pytest.approx(1000 * errors / budget["reviews"])


def test_labels_have_their_rows_and_what_the_map_has_behind_them(grouped):
    document = maps.document("mrp", calibrator=Identity())
    scored = ReliabilityMap.of(document)(grouped)
    for label, row in enumerate(evaluate(document, grouped, scored)["labels"]):
        of_label = [i for i, decision in enumerate(grouped.decision) if decision == label]
        assert row["rows"] == len(of_label)
        assert row["mean_confidence"] == pytest.approx(scored.confidence[of_label].mean())
        assert row["mean_reliability"] == pytest.approx(scored.reliability[of_label].mean())
        assert row["correct"]["value"] == pytest.approx(grouped.correct[of_label].mean())
        assert row["correct"]["low"] < row["correct"]["value"] < row["correct"]["high"]
        assert (row["name"], row["fit_rows"], row["fallback"]) == (
            ("irrelevant", 500, "none"),
            ("partial", 7, "shared"),
            ("exact", 0, "identity"),
        )[label]


def test_a_map_without_names_or_labels_says_so(grouped):
    for variant in ("confidence", "shared_1d"):
        row = found(maps.document(variant, names=None), grouped)["labels"][2]
        assert (row["name"], row["fit_rows"], row["fallback"]) == ("label 2", None, None)


def test_label_spread_is_of_the_confidence_on_the_resampled_rows(helpful, grouped, helps, monkeypatch):
    scored = ReliabilityMap.of(helpful)(grouped)
    rows = scored.confidence, grouped.decision, grouped.correct
    assert helps["label_spread"] == {
        "value": label_spread(*rows),
        "shuffled_p95": label_spread_null(*rows, seed=0),
        "rows": 3000,
    }
    monkeypatch.setattr("tasks.maps.evaluate.MOST_RESAMPLED", 2500)
    some = Judged.of(grouped, scored).some()
    spread = evaluate(helpful, grouped, scored)["label_spread"]
    assert spread["value"] == label_spread(some.probability["confidence"], some.decision, some.correct)
    assert spread["rows"] == len(some) == 2500


# Shares


@pytest.mark.parametrize("right", [20, 25])
def test_a_share_has_the_interval_of_wilson(right):
    """By its definition: the shares from which the one that was seen is 1.96 standard errors away."""
    rows = judge([0] * 25, np.arange(25) < right, [0.8] * 25, [1.0] * 25)
    made = evaluate(maps.document("confidence", stated=True), *rows)
    for share in (made["accuracy"], made["labels"][0]["correct"]):
        assert share["value"] == right / 25
        for bound in (share["low"], share["high"]):
            away = (share["value"] - bound) ** 2
            assert away == pytest.approx(ndtri(0.975) ** 2 * bound * (1 - bound) / 25, abs=1e-12)


@given(right=st.lists(st.booleans(), min_size=10, max_size=30), copies=st.integers(1, 4))
@example(right=[True] * 20, copies=5)
@settings(max_examples=10, deadline=None)
def test_copies_of_a_row_in_its_group_teach_nothing(right, copies):
    n = len(right)
    document = maps.document("confidence", stated=True)
    alone = evaluate(document, *judge(np.arange(n) % 3, right, [0.5] * n, np.zeros(n)))
    at = np.repeat(np.arange(n), copies)
    group = np.array([f"q{row}" for row in at])
    copied = evaluate(document, *judge(at % 3, np.array(right)[at], [0.5] * len(at), np.zeros(len(at)), group))
    assert copied["accuracy"] == pytest.approx(alone["accuracy"], abs=1e-9)
    for one, other in zip(copied["labels"], alone["labels"], strict=True):
        assert one["correct"] == pytest.approx(other["correct"], abs=1e-9)


def test_groups_of_a_right_and_a_wrong_row_count_for_no_more_than_their_rows():
    rows = [0] * 40, [True, False] * 20, [0.5] * 40, np.zeros(40)
    document = maps.document("confidence", stated=True)
    alone, paired = (
        evaluate(document, *judge(*rows, group)) for group in (None, np.arange(40).astype(str)[::2].repeat(2))
    )
    assert paired["accuracy"] == pytest.approx(alone["accuracy"])


# Intervals


def test_intervals_are_those_of_the_paired_bootstrap(helpful, grouped, helps):
    scored = ReliabilityMap.of(helpful)(grouped)
    draws = resample(grouped.group, resamples=1000, seed=0)
    both = [
        of_reliability(logits, grouped.correct, draws=draws) | {"ece": draws.ece(share, grouped.correct)}
        for logits, share in ((logit(scored.confidence), scored.confidence), (scored.logit, scored.reliability))
    ]
    for name in METRICS:
        where, compared = interval(both[1][name] - both[0][name]), helps["metrics"][name]
        assert (compared["low"], compared["high"]) == pytest.approx((where.low, where.high), rel=1e-9)
        assert compared["p"] == two_sided_p(both[1][name] - both[0][name])


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("most", [20_000, 1000])
def test_a_map_that_keeps_the_confidence_changes_nothing(stated, most, monkeypatch):
    """0.6 is a bin edge and 1.0 has no finite logit; both stay where they are."""
    monkeypatch.setattr("tasks.maps.evaluate.MOST_RESAMPLED", most)
    frame = maps.stated(2000) if stated else maps.predictions(2000)
    evaluation = found(maps.document("confidence", stated=stated), checked(frame))
    assert evaluation["resampled"]["rows"] == min(most, 2000)
    for compared in (*evaluation["metrics"].values(), *evaluation["reviews"]):
        assert compared["confidence"] == compared["reliability"]
        assert compared["change"] == compared["low"] == compared["high"] == 0
        assert compared["p"] == 1


@pytest.mark.parametrize("most", [20_000, 1000])
def test_the_order_of_grouped_rows_does_not_matter(helpful, grouped, most, monkeypatch):
    monkeypatch.setattr("tasks.maps.evaluate.MOST_RESAMPLED", most)
    order = np.random.default_rng(0).permutation(len(grouped))
    assert_close(found(helpful, grouped), found(helpful, grouped.take(order)))


def test_without_groups_the_order_of_rows_moves_the_intervals_by_chance_alone(helpful):
    rows = checked(maps.predictions(3000))
    order = np.random.default_rng(0).permutation(len(rows))
    one, other = found(helpful, rows), found(helpful, rows.take(order))
    for name in METRICS:
        first, second = one["metrics"][name], other["metrics"][name]
        assert first["change"] == pytest.approx(second["change"], abs=1e-12)
        width = first["high"] - first["low"]
        assert second["low"] == pytest.approx(first["low"], abs=0.15 * width)
        assert second["high"] == pytest.approx(first["high"], abs=0.15 * width)


def assert_close(one, other) -> None:
    """Two JSON values, to rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    elif isinstance(one, list):
        for first, second in zip(one, other, strict=True):
            assert_close(first, second)
    else:
        assert one == other or one == pytest.approx(other, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("group", [None, "group"])
def test_some_of_the_rows_give_the_intervals_of_all(helpful, group, monkeypatch):
    """A quarter of the rows alone would give intervals twice as wide."""
    rows = checked(maps.predictions(8000), group)
    whole = found(helpful, rows)
    monkeypatch.setattr("tasks.maps.evaluate.MOST_RESAMPLED", 2000)
    some = found(helpful, rows)
    assert some["resampled"] == {"resamples": 1000, "rows": 2000, "groups": 2000 if group is None else 200}
    for name in METRICS:
        first, second = whole["metrics"][name], some["metrics"][name]
        assert first["change"] == second["change"]
        if second["low"] is not None:
            ratio = (second["high"] - second["low"]) / (first["high"] - first["low"])
            assert 0.75 < ratio < 1.35, name


def test_the_calibration_error_of_some_rows_is_shrunk_bin_by_bin(helpful, monkeypatch):
    """Shrunk as a whole, its absolute values would keep the noise of the few rows: the interval lies above."""
    monkeypatch.setattr("tasks.maps.evaluate.MOST_RESAMPLED", 600)
    rows = checked(maps.predictions(10_000))
    all_rows = Judged.of(rows, ReliabilityMap.of(helpful)(rows))
    whole, some = (replicated(all_rows, of, METRIC_DEFAULTS) for of in (all_rows, all_rows.some()))
    for by in VIEWS:
        first, second = interval(whole[by]["ece"]), interval(some[by]["ece"])
        assert second.standard_error == pytest.approx(first.standard_error, rel=0.25)
        assert second.low == pytest.approx(first.low, abs=first.standard_error)
        assert second.high == pytest.approx(first.high, abs=first.standard_error)


def test_few_errors_among_some_rows_do_not_speak_for_all(monkeypatch):
    """Reliability keeps 3 wrong rows fewer of 10,000; no row that was drawn tells the two apart."""
    monkeypatch.setattr("tasks.maps.evaluate.MOST_RESAMPLED", 500)
    correct, sure = np.ones(10_000, dtype=bool), np.linspace(-3, 5, 10_000)
    correct[:800:2] = False
    correct[-3:] = False
    better = np.where(np.arange(10_000) >= 9_997, -4, sure)
    metrics = evaluate(
        maps.document("confidence", stated=True), *judge(np.zeros(10_000, dtype=int), correct, expit(sure), better)
    )["metrics"]
    assert metrics["selacc_10"]["change"] == pytest.approx(0.003)
    assert metrics["selacc_10"]["low"] is metrics["selacc_10"]["p"] is None
    assert metrics["nll_correct"]["low"] is not None


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40), rows=st.integers(1, 99), least=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_whole_groups_are_drawn_until_they_are_enough(sizes, rows, least):
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    drawn = some_clusters(cluster, rows=rows, least=least, seed=0)
    names, counts = np.unique(cluster[drawn], return_counts=True)
    assert (counts == np.array(sizes)[names]).all()
    assert drawn.sum() >= min(rows, len(cluster))
    assert len(names) >= min(least, len(sizes))
    assert len(names) == least or drawn.sum() - max(sizes) < rows or drawn.all()
    order = np.random.default_rng(0).permutation(len(cluster))
    assert (some_clusters(cluster[order], rows=rows, least=least, seed=0) == drawn[order]).all()


def test_fewer_than_ten_groups_have_no_intervals(helpful):
    rows = checked(maps.predictions(90, per_group=10), "group")
    evaluation = found(helpful, rows)
    assert evaluation["groups"] == 9
    assert evaluation["resampled"] == {"resamples": 0, "rows": 0, "groups": 0}
    for compared in (*evaluation["metrics"].values(), *evaluation["reviews"], evaluation["accuracy"]):
        assert compared["low"] is compared["high"] is compared.get("p") is None
    assert found(helpful, checked(maps.predictions(90)))["metrics"]["aurc"]["low"] is not None


def unusual() -> dict[str, tuple[PredictedRows, Scored]]:
    frame = maps.stated(200)
    sure, decision = frame["confidence"].to_numpy(), frame["decision"].to_numpy()
    right = (frame["label"] == frame["decision"]).to_numpy()
    certain = np.r_[np.full(20, np.inf), np.full(20, -np.inf), np.linspace(-2, 2, 160)]
    return {
        "one row": judge([0], [True], [0.5], [0.0]),
        "two rows": judge([0, 1], [True, False], [0.5, 0.5], [0.0, 1.0]),
        "nine rows": judge([0] * 9, [True] * 8 + [False], [0.5] * 9, [0.0] * 9),
        "no errors": judge(decision, np.ones(200), sure, certain),
        "all errors": judge(decision, np.zeros(200), sure, certain),
        "one error": judge(decision, np.arange(200) > 0, sure, certain),
        "one label": judge(np.ones(200, dtype=int), right, sure, certain),
        "ties and certainty": judge(decision, right, np.where(sure < 0.5, 0.0, sure), certain),
        "one tie": judge(decision, right, np.full(200, 1.0), np.zeros(200)),
    }


@pytest.mark.parametrize("case", unusual())
def test_whatever_the_rows_the_evaluation_is_json_and_has_a_verdict(case):
    rows, scored = unusual()[case]
    for variant in ("mrp", "shared_1d", "confidence"):
        document = maps.document(variant, stated=True)
        evaluation = evaluate(document, rows, scored)
        assert json.loads(json.dumps(evaluation, allow_nan=False)) == evaluation
        lines = verdict(evaluation, document)
        assert 1 <= len(lines) <= 10
        assert not any("nan" in line or "None" in line for line in lines)
        if case in ("one label", "two rows", "one tie", "nine rows", "one error"):
            assert not lines[0].startswith("Use the reliability")
        if case in ("no errors", "all errors", "one row"):
            assert lines[0].startswith("Keep your confidence: the map" if variant == "confidence" else "No verdict: ")


def test_without_errors_nothing_is_found_and_aupr_is_unknown():
    evaluation = evaluate(maps.document("mrp", stated=True), *unusual()["no errors"])
    assert evaluation["metrics"]["aupr_error"]["confidence"] is None
    assert [budget["reliability"] for budget in evaluation["reviews"]] == [0, 0, 0, 0]
    assert evaluation["accuracy"]["low"] < evaluation["accuracy"]["value"] == evaluation["accuracy"]["high"] == 1


def test_no_row_is_a_mistake(helpful, grouped):
    with pytest.raises(ValueError, match="no row to evaluate"):
        found(helpful, grouped.take(slice(0)))


# The verdict


def test_use_the_reliability_where_it_helps(helpful, helps):
    lines = verdict(helps, helpful)
    budget, kept = helps["reviews"][1], helps["metrics"]["selacc_70"]
    assert lines[0].startswith(f"Use the reliability: it finds {budget['change']:.0f} more errors per 1,000 reviews")
    assert f"change: {budget['low']:.0f} to {budget['high']:.0f})" in lines[0]
    assert f"{100 * kept['reliability']:.1f}% are right, and {100 * kept['confidence']:.1f}%" in lines[1]
    assert "not other data, nor another fit" in lines[-1]
    assert "groups" in lines[-1]


def test_keep_your_confidence_where_labels_do_not_differ():
    document = fitted(shift=0, n=20_000)
    evaluation = found(document, checked(maps.predictions(2000, shift=0)))
    lines = verdict(evaluation, document)
    assert lines[0].startswith("Keep your confidence: the reliability does not rank or predict better on these rows")
    assert "spans zero" in lines[0]
    spread = evaluation["label_spread"]
    assert f"No label spread: {100 * spread['value']:.1f} points" in " ".join(lines)


def test_worse_where_the_labels_no_longer_differ(helpful):
    lines = verdict(found(helpful, checked(maps.predictions(3000, shift=0))), helpful)
    assert lines[0].startswith("The reliability is worse than the confidence here: it finds")
    assert "fewer errors" in lines[0]


def test_the_reasons_are_those_that_are_seen():
    document = fitted(0, rows=(100, 300, 7), fallback=("none", "none", "shared"))
    said = " ".join(verdict(found(document, checked(maps.predictions(150, shift=0))), document))
    assert "Too few rows for a curve of their own in the fit: exact (7)." in said
    assert "Fewer than 200 rows behind the curve in the fit: irrelevant (100)." in said
    assert "Few decisions are wrong" in said
    assert "No label spread can be seen" in said


def test_few_groups_and_some_rows_are_said(helpful, grouped, monkeypatch):
    nine = verdict(found(helpful, grouped.take(slice(90))), helpful)
    assert nine[0].startswith("No verdict: there are 9 groups, and a difference among fewer than 30 may be chance")
    assert not verdict(found(helpful, grouped.take(slice(300))), helpful)[0].startswith("No verdict")
    monkeypatch.setattr("tasks.maps.evaluate.MOST_RESAMPLED", 2500)
    assert "from 2,500 of 3,000 rows" in verdict(found(helpful, grouped), helpful)[-1]


@pytest.mark.parametrize(
    ("variant", "said"), [("confidence", "by choice.*made up for a test"), ("shared_1d", "one curve for all labels")]
)
def test_a_map_that_leaves_the_order_of_the_confidence_says_so(variant, said, grouped):
    document = maps.document(variant)
    assert re.search(said, " ".join(verdict(found(document, grouped), document)))


def told(evaluation: dict, signs: dict[str, int]) -> dict:
    """The same evaluation, whose intervals say -1 (worse), 0 or 1 (better) of nll_correct, aurc and review budgets."""
    evaluation = copy.deepcopy(evaluation)
    looks = {"nll_correct": evaluation["metrics"]["nll_correct"], "aurc": evaluation["metrics"]["aurc"]}
    looks |= {str(round(100 * budget["reviewed"])): budget for budget in evaluation["reviews"]}
    for name, look in looks.items():
        sign, up = signs.get(name, 0), -1 if name in ("nll_correct", "aurc") else 1
        low, high = sorted((up * (2 * sign - 1), up * (2 * sign + 1)))
        look |= {"change": 2.0 * sign * up, "low": float(low), "high": float(high), "p": 0.002 if sign else 0.5}
    return evaluation


@pytest.mark.parametrize("signs", list(product((-1, 0, 1), repeat=4)))
def test_the_first_sentence_never_claims_more_than_the_intervals(helpful, helps, signs):
    said = verdict(told(helps, dict(zip(("nll_correct", "aurc", "30", "90"), signs, strict=True))), helpful)
    predicts, ranks = signs[0], set(signs[1:]) - {0}
    assert said[0].startswith("Use the reliability") == (predicts == 1 and ranks == {1})
    assert said[0].startswith("Keep your confidence") == (predicts == 0 and not ranks)
    assert said[0].startswith("The reliability is worse") == (
        (predicts < 0 or ranks == {-1}) and predicts <= 0 and ranks <= {-1}
    )
    assert ("worse by another" in said[0]) == (ranks == {-1, 1})
    assert len(said) <= 10
    if said[0].startswith("Use"):
        assert signs[2] == 1 or f"{90 if signs[3] == 1 else 'AURC'}" in said[0]


def test_one_look_of_five_is_not_enough_by_itself(helpful, helps):
    evaluation = told(helps, {"nll_correct": 1, "30": 1})
    evaluation["reviews"][1]["p"] = 0.02
    lines = verdict(evaluation, helpful)
    assert (
        lines[0]
        == "Mixed: as a probability the reliability is better, and to choose what to review it is not certainly better."
    )
    assert lines[2].endswith("which as one of five looks may be chance.")
