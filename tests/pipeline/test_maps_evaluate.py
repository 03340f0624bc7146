"""Evaluation: each number has another way to it, intervals obey their laws, the verdict says so; rows to label next."""

import copy
import dataclasses
import json
import re
from itertools import product
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, ndtri
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from relmap.calibrators.identity import Identity
from relmap.decisions import FixedDecisions
from relmap.evaluation.agreement import PopulationSummary, measure_agreement
from relmap.evaluation.evaluate import EVALUATED_METRICS, evaluate_alternatives, evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.verdict import describe_alternatives, describe_evaluation, describe_recalibration
from relmap.fitting.model_choice import lowest_loss_candidate
from relmap.io.rows import PredictedRows
from relmap.maps.document import Candidate, MapDocument
from relmap.maps.reliability_map import FittedMap, ScoredDecisions
from relmap.metrics.advice import KEEP, MIXED, SAFE, UNKNOWN, USE, WORSENS
from relmap.metrics.intervals import percentile_interval, two_sided_p
from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.resampling import draw_resamples
from relmap.metrics.spread import LabelCells
from relmap.routing.label import UNIFORM_SHARE, sample_systematically, sampling_probabilities
from relmap.routing.thresholds import sample_independent_rows
from tasks.records.advice import describe_recommendation, summarize_datasets
from tasks.records.measurements import bootstrap_rows, compute_metrics
from tasks.records.results import ProjectedDecisions, SeedResults
from tasks.tables.overview import overview_table
from tests import maps, report_data

MAP, MRP = (maps.make_map(variant, confidence_only=True) for variant in ("confidence", "mrp"))


def fitted(shift: float = 1.5, n: int = 6000) -> MapDocument:
    """A map with a good curve for each label, where label 1 is off by `shift`."""
    return maps.fit_map(
        maps.rows_of_frame(maps.make_predictions(n, shift=shift, seed=1)), "label_platt", "uncal"
    ).document


def evaluation_of(document: MapDocument, rows: PredictedRows, scored: ScoredDecisions) -> dict:
    return evaluate_map(document, EvaluationSample.from_rows(rows, scored))


def agreed_on(rows: PredictedRows, scored: ScoredDecisions, everything: PopulationSummary | None = None) -> dict:
    return measure_agreement(MAP, EvaluationSample.from_rows(rows, scored, maps.METRIC_SETTINGS), everything)


def evaluated(document: MapDocument, rows: PredictedRows) -> dict:
    return evaluation_of(document, rows, FittedMap.from_document(document)(rows))


def judge(decision, correct, confidence, reliability_logit, group=None) -> tuple[PredictedRows, ScoredDecisions]:
    """Rows and what a map says of them, as one likes."""
    decision, correct = np.asarray(decision), np.asarray(correct, dtype=bool)
    label = np.where(correct, decision, (decision + 1) % 3)
    rows = PredictedRows(None, np.asarray(confidence, dtype=float), decision, label, group)
    return rows, ScoredDecisions(rows.confidence, np.asarray(reliability_logit, dtype=float))


@pytest.fixture(scope="module")
def helpful() -> MapDocument:
    return fitted()


@pytest.fixture(scope="module")
def grouped() -> PredictedRows:
    return maps.rows_of_frame(maps.make_predictions(3000), "group")


@pytest.fixture(scope="module")
def helps(helpful, grouped) -> dict:
    return evaluated(helpful, grouped)


@pytest.fixture(scope="module")
def views(helpful, grouped) -> dict:
    """What a row is ranked by and the share that it says, by confidence and by reliability."""
    said = FittedMap.from_document(helpful)(grouped)
    return {"confidence": (logit(said.confidence), said.confidence), "reliability": (said.logit, said.reliability)}


def test_metrics_are_those_of_the_whole_set(views, grouped, helps):
    for by, (score, share) in views.items():
        wanted = compute_reliability_metrics(score, grouped.correct) | {"ece": ece(share, grouped.correct)}
        assert {name: helps["metrics"][name][by] for name in EVALUATED_METRICS} == pytest.approx(wanted, rel=1e-12)
    assert (helps["rows"], helps["groups"]) == (3000, 300)
    assert helps["accuracy"]["value"] == grouped.correct.mean()
    assert helps["errors"] == (~grouped.correct).sum()
    cells = LabelCells.from_decisions(views["confidence"][1], grouped.decision, grouped.correct)
    assert helps["label_spread"] == {"value": cells.spread(), "shuffled_p95": cells.shuffled_quantile(0)}
    for compared in helps["metrics"].values():
        assert compared["change"] == compared["reliability"] - compared["confidence"]
        assert compared["low"] < compared["change"] < compared["high"]


def test_errors_per_1000_reviews_are_those_among_the_least_sure_rows(views, grouped, helps):
    for budget, kept in zip(helps["reviews"], (2700, 2100, 1500, 300), strict=True):
        assert budget["reviews"] == 3000 - kept == round(3000 * budget["reviewed"])
        assert budget["at_random"] == pytest.approx(1000 * (1 - grouped.correct.mean()))
        for by, (score, _) in views.items():
            errors = np.count_nonzero(~grouped.correct[np.argsort(score)[: budget["reviews"]]])
            assert budget[by] == pytest.approx(1000 * errors / budget["reviews"], rel=1e-12)
        assert budget["change"] == pytest.approx(budget["reliability"] - budget["confidence"])


def test_labels_have_their_rows_and_what_the_map_has_behind_them(grouped):
    document = maps.make_map("mrp", calibrator=Identity())
    scored = FittedMap.from_document(document)(grouped)
    behind = [("irrelevant", 500, "none"), ("partial", 7, "shared"), ("exact", 0, "identity")]
    for label, row in enumerate(evaluation_of(document, grouped, scored)["labels"]):
        mine = grouped.decision == label
        assert row["rows"] == mine.sum()
        assert row["mean_confidence"] == pytest.approx(scored.confidence[mine].mean())
        assert row["mean_reliability"] == pytest.approx(scored.reliability[mine].mean())
        assert row["correct"]["value"] == pytest.approx(grouped.correct[mine].mean())
        assert row["correct"]["low"] < row["correct"]["value"] < row["correct"]["high"]
        assert (row["name"], row["fit_rows"], row["fallback"]) == behind[label]
    row = evaluated(maps.make_map("shared_1d", names=None), grouped)["labels"][2]
    assert (row["name"], row["fit_rows"], row["fallback"]) == ("label 2", None, None)


@pytest.mark.parametrize("group", [None, "group"])
def test_a_row_that_stands_for_others_counts_as_they_would(helpful, group):
    weight = np.arange(400) % 4 + 0.5  # 2 on the average, and a hundredth of that is the unit
    frame, times = maps.make_predictions(400), np.rint(100 * weight / 2).astype(int)
    names = frame["group"].to_numpy() if group else np.array([f"{row:03}" for row in range(400)])
    rows = maps.rows_of_frame(frame, group)
    weighted = evaluated(helpful, dataclasses.replace(rows, weight=weight))
    repeated = evaluated(helpful, dataclasses.replace(rows, group=names).take(np.arange(400).repeat(times)))
    assert (weighted["rows"], weighted["groups"], weighted["weighted"]) == (400, 40 if group else 400, True)
    for key in ("accuracy", "metrics"):
        assert flat(weighted[key]) == pytest.approx(flat(repeated[key]), abs=1e-9)
    for ours, theirs in (
        (a["correct"], b["correct"]) for a, b in zip(weighted["labels"], repeated["labels"], strict=True)
    ):
        assert ours["value"] == theirs["value"]
        assert ours["low"] <= theirs["low"] < theirs["high"] <= ours["high"]  # copies of a row are not rows
    assert describe_evaluation(weighted, helpful)[-1].startswith("Rows are weighted by the inverse")


@pytest.mark.parametrize("right", [20, 25])
def test_a_share_has_the_interval_of_wilson(right):
    """By its definition: the shares from which the one that was seen is 1.96 standard errors away."""
    rows = judge([0] * 25, np.arange(25) < right, [0.8] * 25, [1.0] * 25)
    made = evaluation_of(MAP, *rows)
    for share in (made["accuracy"], made["labels"][0]["correct"]):
        assert share["value"] == right / 25
        for bound in (share["low"], share["high"]):
            away = (share["value"] - bound) ** 2
            assert away == pytest.approx(ndtri(0.975) ** 2 * bound * (1 - bound) / 25, abs=1e-12)


@given(right=st.lists(st.booleans(), min_size=10, max_size=30), copies=st.integers(1, 4))
@example(right=[True] * 20, copies=5)
@settings(max_examples=8, deadline=None)
def test_copies_of_a_row_in_its_group_teach_nothing(right, copies):
    n, at = len(right), np.arange(len(right)).repeat(copies)
    alone = evaluation_of(MAP, *judge(np.arange(n) % 3, right, [0.5] * n, np.zeros(n)))
    copied = evaluation_of(MAP, *judge(at % 3, np.array(right)[at], [0.5] * len(at), np.zeros(len(at)), at.astype(str)))
    assert copied["accuracy"] == pytest.approx(alone["accuracy"], abs=1e-9)
    for by_group, by_row in zip(copied["labels"], alone["labels"], strict=True):
        assert by_group["correct"] == pytest.approx(by_row["correct"], abs=1e-9)


def test_groups_of_a_right_and_a_wrong_row_count_for_no_more_than_their_rows():
    rows, pairs = ([0] * 40, [True, False] * 20, [0.5] * 40, np.zeros(40)), np.arange(40).astype(str)[::2].repeat(2)
    alone, paired = (evaluation_of(MAP, *judge(*rows, group)) for group in (None, pairs))
    assert paired["accuracy"] == pytest.approx(alone["accuracy"])


def test_intervals_are_those_of_the_paired_bootstrap(views, grouped, helps):
    draws = draw_resamples(grouped.group, resamples=1000, seed=0)
    confidence, reliability = (
        compute_reliability_metrics(logits, grouped.correct, draws=draws) | {"ece": draws.ece(share, grouped.correct)}
        for logits, share in views.values()
    )
    for name in EVALUATED_METRICS:
        change, compared = reliability[name] - confidence[name], helps["metrics"][name]
        where = percentile_interval(change)
        assert (compared["low"], compared["high"]) == pytest.approx((where.low, where.high), rel=1e-9)
        assert compared["p"] == two_sided_p(change)


@pytest.mark.parametrize("confidence_only", [False, True])
def test_a_map_that_keeps_the_confidence_changes_nothing(confidence_only):
    """0.6 is a bin edge and 1.0 has no finite logit; both stay where they are."""
    frame = maps.make_confidence_predictions(2000) if confidence_only else maps.make_predictions(2000)
    evaluation = evaluated(maps.make_map("confidence", confidence_only=confidence_only), maps.rows_of_frame(frame))
    assert evaluation["resamples"] == 1000
    for compared in (*evaluation["metrics"].values(), *evaluation["reviews"]):
        assert compared["confidence"] == compared["reliability"]
        assert compared["change"] == compared["low"] == compared["high"] == 0
        assert compared["p"] == 1


def flat(value: object) -> list:
    """The plain values within a JSON value, in their order."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [plain for part in inner for plain in flat(part)]


def test_fewer_than_ten_groups_have_no_intervals(helpful):
    rows = maps.rows_of_frame(maps.make_predictions(90, per_group=10), "group")
    evaluation = evaluated(helpful, rows)
    assert evaluation["groups"] == 9
    assert evaluation["resamples"] == 0
    for compared in (*evaluation["metrics"].values(), *evaluation["reviews"], evaluation["accuracy"]):
        assert compared["low"] is compared["high"] is compared.get("p") is None
    assert evaluated(helpful, maps.rows_of_frame(maps.make_predictions(90)))["metrics"]["aurc"]["low"] is not None


SPREAD_OUT = maps.make_confidence_predictions(200)
SAID, DECISION = SPREAD_OUT["confidence"].to_numpy(), SPREAD_OUT["decision"].to_numpy()
RIGHT = (SPREAD_OUT["label"] == SPREAD_OUT["decision"]).to_numpy()
CERTAIN = np.r_[np.full(20, np.inf), np.full(20, -np.inf), np.linspace(-2, 2, 160)]
UNUSUAL = {  # decision, correct, confidence, logit of the reliability; what is not said
    "one row": (([0], [True], [0.5], [0.0]), "^(?!Too few labelled rows for a recommendation: )"),
    "two rows": (([0, 1], [True, False], [0.5, 0.5], [0.0, 1.0]), "^Use"),
    "no errors": ((DECISION, np.ones(200), SAID, CERTAIN), "^(?!Too few labelled rows for a recommendation: )"),
    "one error": ((DECISION, np.arange(200) > 0, SAID, CERTAIN), "^Use"),
    "one label": ((np.ones(200, dtype=int), RIGHT, SAID, CERTAIN), "^Use"),
    "ties and certainty": ((DECISION, RIGHT, np.where(SAID < 0.5, 0.0, SAID), CERTAIN), "nan|None"),
}


@pytest.mark.parametrize("variant", ["mrp", "shared_1d", "confidence"])
@pytest.mark.parametrize(("rows", "unsaid"), UNUSUAL.values(), ids=UNUSUAL)
def test_whatever_the_rows_the_evaluation_is_json_and_has_a_verdict(rows, unsaid, variant):
    document = maps.make_map(variant, confidence_only=True)
    evaluation = evaluation_of(document, *judge(*rows))
    assert json.loads(json.dumps(evaluation, allow_nan=False)) == evaluation
    lines = describe_evaluation(evaluation, document)
    assert 1 <= len(lines) <= 10
    assert not any(re.search("nan|None", line) for line in lines)
    assert not re.search("^(?!Keep your confidence: the fit)" if variant == "confidence" else unsaid, lines[0])


def test_without_errors_nothing_is_found_and_aupr_is_unknown():
    evaluation = evaluation_of(maps.make_map("mrp", confidence_only=True), *judge(*UNUSUAL["no errors"][0]))
    assert evaluation["metrics"]["aupr_error"]["confidence"] is None
    assert [budget["reliability"] for budget in evaluation["reviews"]] == [0, 0, 0, 0]
    assert evaluation["accuracy"]["low"] < evaluation["accuracy"]["value"] == evaluation["accuracy"]["high"] == 1


def test_of_equal_candidates_the_first_which_is_the_simpler_is_the_best():
    equal = {"nll_correct": 0.5, "change": 0.0, "low": 0.0, "high": 0.0}
    assert (
        lowest_loss_candidate([Candidate(variant=name, **equal) for name in ("confidence", "mrp")]).variant
        == "confidence"
    )


def test_use_the_reliability_where_it_helps(helpful, helps):
    lines = describe_evaluation(helps, helpful)
    budget, nll = helps["reviews"][1], helps["metrics"]["nll_correct"]
    assert lines[0] == f"{USE}: it predicts and ranks better."
    assert (
        f"find {budget['reliability']:.0f} errors; those of the least confident 30% find {budget['confidence']:.0f}."
        in lines[1]
    )
    assert f"(95% interval {budget['low']:+.0f} to {budget['high']:+.0f})" in lines[1]
    assert f"by {nll['change']:+.4f} (95% interval {nll['low']:+.4f} to {nll['high']:+.4f})" in lines[2]
    assert re.search("calibrator uncal.*sampling of groups, .*do not cover refitting or other data", lines[-1])


def test_the_reasons_are_those_that_are_seen():
    rows, fallback = np.array([100, 300, 7]), ("none", "none", "shared")
    leaning = dataclasses.replace(maps.make_variants()["label_platt"], rows=rows, fallback=fallback)
    document = maps.make_map("label_platt", leaning, calibrator=Identity())
    said = " ".join(
        describe_evaluation(evaluated(document, maps.rows_of_frame(maps.make_predictions(150, shift=0))), document)
    )
    assert "Too few rows for a curve of its own: exact (7 rows) is mostly pooled with the other labels." in said
    assert "Labels whose curve is fitted to fewer than 200 rows: irrelevant (100)." in said
    assert "Few decisions are wrong" in said
    assert "Label spread: unknown" in said


def test_a_map_that_leaves_the_order_of_the_confidence_says_so(grouped):
    for variant, said in (
        ("confidence", "the fit chose the confidence.*made up for a test"),
        ("shared_1d", "one curve for all labels"),
    ):
        document = maps.make_map(variant)
        assert re.search(said, " ".join(describe_evaluation(evaluated(document, grouped), document)))


@pytest.mark.parametrize("signs", list(product((-1, 0, 1), repeat=3)))
def test_the_first_sentence_never_claims_more_than_the_intervals(helpful, helps, signs):
    """Which say -1 (worse), 0 or 1 (better) of what predicts and of the two that rank."""
    seeming = copy.deepcopy(helps)
    for (metric, up), sign in zip({"nll_correct": -1, "aupr_error": 1, "aurc": -1}.items(), signs, strict=True):
        low, high = sorted((up * (2 * sign - 1), up * (2 * sign + 1)))
        seeming["metrics"][metric] |= {"low": float(low), "high": float(high), "p": 0.002 if sign else 0.5}
    said = describe_evaluation(seeming, helpful)
    predicts, ranks = signs[0], set(signs[1:]) - {0}
    worse = (predicts < 0 or ranks == {-1}) and predicts <= 0 and ranks <= {-1}
    assert said[0].startswith(USE) == (1 in signs and -1 not in signs)
    assert said[0].startswith((SAFE, KEEP)) == (predicts == 0 and not ranks)
    assert said[0].startswith(WORSENS) == worse
    assert ("worse by another" in said[0]) == (ranks == {-1, 1})
    if said[0].startswith(MIXED):  # who reads it is told what to do with each of the two
        assert said[1].startswith("State the confidence") == (predicts < 0)
        assert said[1].endswith("by the confidence.") == (ranks == {-1})
        assert said[1].endswith("your own budget.") == (ranks == {-1, 1})
    assert len(said) <= 10


SHIFT = np.array([-2.0, 0.0, 2.0])  # of the confidence of each label
SCORES = {  # the confidence's logit and the reliability's, of the true one, the label and noise; rows in a group
    USE: (lambda t, label, _: (t + SHIFT[label], t), 40),  # just as many groups as it takes
    KEEP: (lambda t, _, noise: (t, t + noise / 1000), 4),
    WORSENS: (lambda t, _, noise: (t, t + 2 * noise), 4),
    f"{UNKNOWN}: there are 24 groups, and a difference": (lambda t, *_: (3 * t, t), 50),
    f"{UNKNOWN}: 7 of 1,200 decisions are wrong": (lambda t, *_: (3 * t, t), 4),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("begins", "made"), SCORES.items(), ids=SCORES)
def test_the_report_and_the_commands_advise_the_same_on_the_same_rows_and_calibrator(begins, made, seed):
    generator, n, (scores, together) = np.random.default_rng(seed), 1200, made
    decision, t, noise = generator.integers(0, 3, n), generator.normal(0.5, 1.5, n), generator.normal(size=n)
    correct = np.arange(n) >= 7 if "wrong" in begins else generator.random(n) < expit(t)
    before, after = scores(t, decision, noise)
    rows, scored = judge(decision, correct, expit(before), after, np.array([f"q{row // together}" for row in range(n)]))
    of_map = describe_evaluation(evaluate_map(MRP, EvaluationSample.from_rows(rows, scored, maps.METRIC_SETTINGS)), MRP)

    logs = np.log(np.where(np.eye(3)[decision] > 0, expit(before)[:, None], expit(-before)[:, None] / 2))
    simplex = SimpleNamespace(log_probabilities=logs, feasible=correct, solved=correct)
    projected = ProjectedDecisions("ts", decision, logs, {"confidence": before, "mrp": after}, {}, simplex, 0, 0, ())
    values = {("ts", *place): value for *place, value in compute_metrics(projected, rows.label, maps.METRIC_SETTINGS)}
    test = FixedDecisions(logs, rows.label, decision, rows.group)
    bounds = bootstrap_rows([SeedResults(1, [projected], (), (), [])], test, values, ("ts",), maps.METRIC_SETTINGS)
    cells = [("shop", "simulated", name, 1, *rest, value) for (name, *rest), value in values.items()]
    intervals = pl.select(dataset=pl.lit("shop"), source=pl.lit("simulated")).join(pl.DataFrame(bounds), how="cross")
    of_set = dataclasses.replace(
        report_data.make_results(rows=n), metrics=report_data.make_frame("metrics", *cells), intervals=intervals
    )
    (row,) = summarize_datasets(of_set.metrics, of_set.intervals, [of_set.facts]).to_dicts()
    (shown,) = overview_table(report_data.combine_runs([of_set]))["advice"]
    of_stage = describe_recommendation(row, of_set.intervals, maps.METRIC_SETTINGS.smallest_relevant_change)
    assert of_map[0] == of_stage[0] == shown
    assert shown.startswith(begins)
    assert ("calibrator uncal" in of_map[-1], "Means over 1 calibrators" in of_stage[-1]) == (True, True)


def test_candidates_and_recalibrating_are_judged_on_new_rows_as_maps_of_them_would_be(grouped):
    rows = maps.rows_of_frame(maps.make_predictions(900, seed=1))
    made = maps.fit_map(rows).document
    judged = EvaluationSample.from_rows(grouped, FittedMap.from_document(made)(grouped))
    said = evaluate_alternatives(made, judged)
    for each in said["candidates"][2::3]:
        chosen = each["variant"] == made.projection.name  # with a correction, unlike a variant that is chosen by name
        document = made if chosen else maps.fit_map(rows, each["variant"]).document
        nll = evaluated(document, grouped)["metrics"]["nll_correct"]
        assert [each[name] for name in ("change", "low", "high")] == pytest.approx(
            [nll["change"], nll["low"], nll["high"]]
        )
    nll = evaluated(maps.fit_map(rows, "confidence", "matrix").document, grouped)["metrics"]["nll_correct"]
    ours = next(each for each in said["candidates"] if each["variant"] == made.projection.name)
    assert said["recalibrated"]["change"] == pytest.approx(nll["confidence"] - ours["nll_correct"])
    evaluation = evaluate_map(made, judged) | said
    kept = made.model_copy(update={"projection": maps.make_map("confidence").projection})
    shown = [
        line.split()[0] for line in describe_alternatives(evaluation, kept, "on these rows") if line.startswith("    ")
    ]
    assert shown == [each.variant for each in made.choice.candidates]  # what was missed, though it was kept
    before = made.model_copy(update={"others": None})
    assert "are unknown" in describe_alternatives(evaluation | evaluate_alternatives(before, judged), before, "")[0]


@pytest.mark.parametrize(
    ("change", "low", "said", "if_kept"),
    [(-0.01, -0.019, "better", "better"), (-0.01, -0.03, "as good", ""), (0.009, 0, "as good", ""), (0.011, 0, "", "")],
)
def test_recalibrating_is_better_only_where_its_interval_says_so_and_else_does_as_well(change, low, said, if_kept):
    beside = {"change": change, "low": low, "high": 2 * change - low, "standard_error": 0.01, "decisions_changed": 0.1}
    for variant, word in (("mrp", said), ("confidence", if_kept)):
        lines = describe_recalibration(beside, maps.make_map(variant))
        assert (word in lines[0]) if word else not lines


def judged(n: int, seed: int = 0, wrong_by: float = 0.0) -> tuple[PredictedRows, ScoredDecisions]:
    """Rows of three labels, and a reliability that is off by so many logits."""
    generator = np.random.default_rng(seed)
    decision, t = generator.choice(3, n, p=[0.6, 0.3, 0.1]), generator.normal(1, 1.5, n)
    return judge(decision, generator.random(n) < expit(t), expit(t), t + wrong_by)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.999, 1.0]), st.integers(0, 3)), min_size=1), st.data())
def test_chances_sum_to_the_rows_that_are_asked_for_and_so_many_are_drawn(rows, data):
    reliability, decision = (np.array(column) for column in zip(*rows, strict=True))
    asked = data.draw(st.integers(1, len(rows)))
    chance = sampling_probabilities(reliability, decision, asked)
    assert ((chance > 0) & (chance <= 1)).all()
    assert chance.sum() == pytest.approx(asked)
    assert chance.min() >= UNIFORM_SHARE * asked / len(rows) * (1 - 1e-9)
    assert len(np.unique(sample_systematically(chance, asked, seed=0))) == asked


def test_a_row_is_the_likelier_drawn_the_less_sure_and_the_rarer_it_is():
    reliability, decision = np.array([0.5, 0.9, 0.9, 0.9]), np.array([0, 0, 0, 1])
    unsure, sure, _, rare = sampling_probabilities(reliability, decision, 1)
    assert (unsure > sure, rare > sure) == (True, True)
    no_floor = [(chance - UNIFORM_SHARE / 4 * 1) for chance in (unsure, sure, rare)]
    assert no_floor[0] / no_floor[1] == pytest.approx(np.sqrt(0.25 / 0.09))
    assert no_floor[2] / no_floor[1] == pytest.approx(np.sqrt(3))


def test_rows_are_drawn_and_kept_as_often_as_is_said():
    chance, runs = sampling_probabilities(np.linspace(0.5, 0.99, 30), np.arange(30) % 3, 10), 4000
    drawn = np.bincount(np.concatenate([sample_systematically(chance, 10, seed) for seed in range(runs)]), minlength=30)
    assert drawn / runs == pytest.approx(chance, abs=5 * np.sqrt(0.25 / runs))
    rows = PredictedRows(None, None, np.zeros(30, dtype=int), None, None, weight=1 / chance)
    kept = np.concatenate([sample_independent_rows(rows, seed)[0] for seed in range(runs)])
    alike = np.bincount(kept, minlength=30) / runs * chance  # of all rows, by both draws
    assert alike == pytest.approx(np.full(30, chance.min()), abs=5 * np.sqrt(0.25 / runs))


def test_precision_recall_and_kappa_are_those_of_scikit_learn():
    rows, scored = judged(400)
    agreed = agreed_on(rows, scored)
    truth = rows.label, rows.decision
    for name, reference in (("precision", precision_score), ("recall", recall_score)):
        values = [label[name]["value"] for label in agreed["labels"]]
        assert values == pytest.approx(reference(*truth, average=None).tolist())
    assert agreed["kappa"]["value"] == pytest.approx(cohen_kappa_score(*truth))
    assert (agreed["rows"], agreed["accuracy"]["value"]) == (400, pytest.approx(rows.correct.mean()))
    few = agreed_on(rows.take(slice(9)), ScoredDecisions(scored.confidence[:9], scored.logit[:9]))
    assert few["kappa"]["low"] is few["accuracy"]["high"] is None


@pytest.mark.parametrize("wrong_by", [0.0, -2.0])
def test_labels_that_were_drawn_by_chance_tell_the_accuracy_of_all_rows(wrong_by):
    """However wrong the map is: it draws, and helps, the worse, and the interval knows it."""
    rows, scored = judged(4000, wrong_by=wrong_by)
    known, chance = (
        PopulationSummary.from_scores(rows.decision, scored.logit, 3),
        sampling_probabilities(scored.reliability, rows.decision, 250),
    )
    rare = recall_score(rows.label, rows.decision, average=None)[2]
    inside, widths, values = [], [], []
    for seed in range(60):
        at = sample_systematically(chance, 250, seed)
        drawn = dataclasses.replace(rows.take(at), weight=1 / chance[at])
        said = ScoredDecisions(scored.confidence[at], scored.logit[at])
        helped, alone = (agreed_on(drawn, said, all_rows) for all_rows in (known, None))
        shares = (helped["accuracy"], rows.correct.mean()), (helped["labels"][2]["recall"], rare)
        inside.append([share["low"] <= true <= share["high"] for share, true in shares])
        widths.append([each["accuracy"]["high"] - each["accuracy"]["low"] for each in (helped, alone)])
        values.append(helped["accuracy"]["value"])
    assert np.mean(inside, axis=0).min() >= 0.88
    assert np.mean(values) == pytest.approx(rows.correct.mean(), abs=4 * np.std(values) / np.sqrt(60))
    assert np.divide(*np.mean(widths, axis=0)) < 0.97


def test_what_no_labelled_row_tells_has_no_number_and_rows_that_are_all_right_leave_a_doubt():
    rows, scored = judge([0] * 40, [True] * 40, [0.9] * 40, np.full(40, 2.0))
    half = PopulationSummary.from_scores(np.repeat([0, 1], 500), np.full(1000, 2.0), 3)
    of_half = agreed_on(rows, scored, half)
    assert of_half["kappa"]["value"] is of_half["labels"][0]["recall"]["value"] is None
    alone = agreed_on(rows, scored)
    assert alone["accuracy"] == {"value": 1, "low": pytest.approx(0.025 ** (1 / 40)), "high": 1}
    other = PopulationSummary.from_scores(
        np.ones(500, dtype=int), np.full(500, 2.0), 3
    )  # where the labelled decision is not made
    assert agreed_on(rows, scored, other)["labels"][0]["precision"]["value"] == 1


def test_a_map_that_tells_nothing_leaves_the_accuracy_as_it_was():
    rows, scored = judged(300)
    flat = ScoredDecisions(scored.confidence, np.zeros(300))
    known = PopulationSummary.from_scores(np.arange(3000) % 3, np.zeros(3000), 3)
    helped, alone = (agreed_on(rows, flat, all_rows)["accuracy"] for all_rows in (known, None))
    assert helped == pytest.approx(alone)


def test_the_order_of_grouped_rows_does_not_matter(helpful, grouped):
    order = np.random.default_rng(0).permutation(len(grouped))
    in_order, shuffled = (evaluated(helpful, rows) for rows in (grouped, grouped.take(order)))
    for first, second in zip(flat(in_order), flat(shuffled), strict=True):
        assert first == second or first == pytest.approx(second, rel=1e-9, abs=1e-12)
