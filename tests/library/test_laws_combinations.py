"""Weights, groups and ties in every combination: each number of an evaluation against its definition.

The references repeat a row as often as its weight says, draw clusters one by one, and average over tied rows.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit
from scipy.stats import binomtest
from scipy.stats import t as student

from relmap import ReliabilityMap
from relmap.evaluation.agreement import PopulationSummary
from relmap.maps.reliability_map import FittedMap
from tests import maps, naive
from tests.naive import Sample

N = 72
RESAMPLES = 40
COPIES = np.array([50, 150, 70, 130])  # 100 on average: the library counts weights in hundredths of their mean
COMBINATIONS = list(product([False, True], repeat=3))
IDS = ["-".join(n for n, on in zip(("weights", "groups", "ties"), each, strict=True) if on) for each in COMBINATIONS]
COST_ERROR, COST_REVIEW, CUT = 4.0, 1.0, 0.75


@dataclass(frozen=True, eq=False)
class Case:
    """New labelled rows with what a map makes of them, and how often each of them counts."""

    frame: pl.DataFrame
    group: str | None
    sample: Sample
    label: np.ndarray
    decision: np.ndarray
    confidence: np.ndarray
    logit: np.ndarray  # of the reliability

    @property
    def correct(self) -> np.ndarray:
        return self.label == self.decision

    @property
    def reliability(self) -> np.ndarray:
        return expit(self.logit)

    def replicates(self) -> list[np.ndarray]:
        """The rows, and then those of each resample."""
        return [self.sample.rows, *self.sample.resamples(RESAMPLES)]


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    made = ReliabilityMap().fit(maps.predictions(260, shift=2.5))
    assert made.document_.projection.name not in ("confidence", "shared_1d")
    assert made.document_.correction is not None
    return made


def rows_of(weighted: bool, grouped: bool, tied: bool) -> tuple[pl.DataFrame, np.ndarray]:
    """Labelled predictions that the map has not seen, and how often each of them counts."""
    generator = np.random.default_rng(5)
    frame = maps.predictions(N, shift=2.5, seed=31).drop("group")
    if tied:
        levels = np.array(frame["logits"].to_list())[generator.integers(0, 14, N)]
        wrong = generator.random(N) < 0.4
        label = np.where(wrong, (levels.argmax(axis=1) + 1) % 3, levels.argmax(axis=1))
        frame = pl.DataFrame({"logits": levels.tolist(), "label": label})
    copies = generator.permutation(np.tile(COPIES, N // 4)) if weighted else np.ones(N, dtype=int)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(copies * 0.037))
    if grouped:
        frame = frame.with_columns(query=pl.Series([f"q{number}" for number in generator.integers(0, 24, N)]))
    return frame, copies


@pytest.fixture(scope="module", params=COMBINATIONS, ids=IDS)
def case(request, fitted) -> Case:
    weighted, grouped, tied = request.param
    frame, copies = rows_of(weighted, grouped, tied)
    rows = maps.checked(frame)
    scored = FittedMap.from_document(fitted.document_)(rows)
    group = frame["query"].to_numpy() if grouped else None
    sample = Sample.of(copies, group)
    return Case(
        frame,
        "query" if grouped else None,
        sample,
        rows.label,
        rows.decision,
        scored.confidence,
        scored.logit,
    )


@pytest.fixture(scope="module")
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        maps.few_resamples(patch, RESAMPLES)
        yield


@pytest.fixture(scope="module")
def numbers(case, fitted, few_resamples) -> dict:
    return fitted.evaluate(case.frame, groups=case.group).to_dict()


def by_view(case: Case, rows: np.ndarray) -> dict[str, dict[str, float]]:
    correct = case.correct[rows]
    return {
        "confidence": naive.metrics(logit(case.confidence)[rows], case.confidence[rows], correct),
        "reliability": naive.metrics(case.logit[rows], case.reliability[rows], correct),
    }


@pytest.fixture(scope="module")
def measured(case) -> list[dict[str, dict[str, float]]]:
    """Every metric by confidence and by reliability: of the rows, and then of each resample."""
    return [by_view(case, rows) for rows in case.replicates()]


def known(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values])


def test_metrics_their_change_its_interval_and_p_value(case, numbers, measured):
    reviews = {f"found_{round(100 * each['reviewed'])}": each for each in numbers["reviews"]}
    for name, found in (numbers["metrics"] | reviews).items():
        before, after = (np.array([views[by][name] for views in measured]) for by in ("confidence", "reliability"))
        change = after - before
        expected = [before[0], after[0], change[0], *naive.percentile_interval(change[1:]), naive.p_value(change[1:])]
        shown = known([found[key] for key in ("confidence", "reliability", "change", "low", "high", "p")])
        np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=1e-9, err_msg=name)
    assert (numbers["rows"], numbers["errors"]) == (N, (~case.correct).sum())
    assert numbers["groups"] == case.sample.cluster.max() + 1
    assert numbers["grouped"] == (case.group is not None)
    assert numbers["weighted"] == ("inverse_probability" in case.frame.columns)
    wrong = 1000 * (~case.correct)[case.sample.rows].mean()
    for each in numbers["reviews"]:
        assert each["at_random"] == pytest.approx(wrong)
        assert each["reviews"] == N - -(-round(10 * (1 - each["reviewed"])) * N // 10)


def test_accuracy_and_labels_with_the_interval_of_wilson(case, numbers):
    everything = np.ones(N, dtype=bool)
    shares = [(numbers["accuracy"], everything)]
    for label, found in enumerate(numbers["labels"]):
        decided = case.decision == label
        shares.append((found["correct"], decided))
        rows = case.sample.rows[decided[case.sample.rows]]
        assert found["rows"] == decided.sum()
        assert found["mean_confidence"] == pytest.approx(case.confidence[rows].mean())
        assert found["mean_reliability"] == pytest.approx(case.reliability[rows].mean())
    for found, chosen in shares:
        shown = known([found["value"], found["low"], found["high"]])
        np.testing.assert_allclose(shown, case.sample.wilson(case.correct, chosen), atol=1e-9)


def test_alternatives_that_the_map_holds(case, numbers, fitted):
    document, rows = fitted.document_, maps.checked(case.frame)
    calibrator, taken = document.calibrator.fitted, document.projection.name
    loss = {"confidence": naive.log_losses(logit(case.confidence), case.correct)}
    loss[taken] = naive.log_losses(case.logit, case.correct)
    for name, variant in document.others.variants.items():
        loss[name] = naive.log_losses(FittedMap(calibrator, variant)(rows).logit, case.correct)
    shares = np.exp(document.others.matrix(rows.logits))
    loss["matrix"] = naive.log_losses(logit(shares[np.arange(N), case.decision]), case.correct)
    assert [each["variant"] for each in numbers["candidates"]] == [each.variant for each in document.choice.candidates]
    pairs = [(each, loss[each["variant"]], loss["confidence"]) for each in numbers["candidates"]]
    for found, after, before in [*pairs, (numbers["recalibrated"], loss["matrix"], loss[taken])]:
        change = np.array([(after - before)[rows].mean() for rows in case.replicates()])
        expected = [change[0], change[1:].std(ddof=1), *naive.percentile_interval(change[1:])]
        shown = [found[name] for name in ("change", "standard_error", "low", "high")]
        np.testing.assert_allclose(shown, expected, rtol=1e-7, atol=1e-9)
        if "nll_correct" in found:
            assert found["nll_correct"] == pytest.approx(after[case.sample.rows].mean())
    moved = (shares.argmax(axis=1) != case.decision)[case.sample.rows].mean()
    assert numbers["recalibrated"]["decisions_changed"] == pytest.approx(moved)


def interval_of(values: np.ndarray, clusters: int) -> tuple[float, float, float]:
    """A share and its interval, from value and replicates; the exact one where none of them differs from 0 or 1."""
    low, high = naive.percentile_interval(values[1:]) if clusters >= 10 else (np.nan, np.nan)
    if low == high and values[0] in (0, 1):
        exact = binomtest(int(values[0] * clusters), clusters).proportion_ci(method="exact")
        low, high = exact.low, exact.high
    return (np.nan, np.nan, np.nan) if np.isnan(values[0]) else (values[0], low, high)


def powered(case: Case, cells: list[np.ndarray], all_rows: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
    """The share of correct rows of each cell, `(cells, 1 + R)`, helped by the mean reliability of all rows."""
    replicates = case.replicates()
    share = np.array([[naive.mean(case.correct[rows[cell[rows]]]) for rows in replicates] for cell in cells])
    mean = np.array([[naive.mean(case.reliability[rows[cell[rows]]]) for rows in replicates] for cell in cells])
    if all_rows is None:
        return share
    decision, reliability = all_rows
    for place, cell in enumerate(cells):
        labels = np.unique(case.decision[cell])
        there = np.isin(decision, labels) if len(cells) > 1 else np.ones(len(decision), dtype=bool)
        above = reliability[there].mean() - mean[place]
        of_share, of_above = share[place, 1:], above[1:]
        power = np.clip(-np.cov(of_share, of_above)[0, 1] / of_above.var(ddof=1), 0, 1)
        share[place] = np.clip(share[place] + power * above, 0, 1)
    return share


@pytest.mark.parametrize("known_rows", [False, True], ids=["labelled", "all"])
def test_agreement_with_the_truth(case, numbers, fitted, few_resamples, known_rows):
    agreed, all_rows = numbers["agreement"], None
    labels = range(3)
    if known_rows:
        stream = maps.checked(maps.predictions(900, shift=2.5, seed=8))
        scored = FittedMap.from_document(fitted.document_)(stream)
        all_rows = stream.decision, scored.reliability
        everything = PopulationSummary.from_scores(stream.decision, scored.logit, 3)
        agreed = fitted._assess(case.frame, None, case.group).evaluate(everything).numbers["agreement"]
    precision = powered(case, [case.decision == label for label in labels], all_rows)
    accuracy = powered(case, [np.ones(N, dtype=bool)], all_rows)[0]
    recall, kappa = np.empty((3, RESAMPLES + 1)), np.empty(RESAMPLES + 1)
    for place, rows in enumerate(case.replicates()):
        of = all_rows[0] if known_rows else case.decision[rows]
        decided = np.array([(of == label).mean() for label in labels])
        of_label, right = np.zeros(3), np.zeros(3)
        for d in labels:
            truth = case.label[rows[case.decision[rows] == d]]
            if decided[d] > 0:
                of_label += decided[d] * np.array([naive.mean(truth == label) for label in labels])
                right[d] = decided[d] * naive.mean(truth == d)
        with np.errstate(invalid="ignore"):  # a label that no row of the resample has
            recall[:, place] = right / of_label
        kappa[place] = (right.sum() - decided @ of_label) / (1 - decided @ of_label)
    clusters = case.sample.cluster
    expected = [interval_of(accuracy, clusters.max() + 1), interval_of(kappa, clusters.max() + 1)]
    found = [agreed["accuracy"], agreed["kappa"]]
    for label, each in enumerate(agreed["labels"]):
        expected.append(interval_of(precision[label], len(np.unique(clusters[case.decision == label]))))
        expected.append(interval_of(recall[label], len(np.unique(clusters[case.label == label]))))
        found += [each["precision"], each["recall"]]
    shown = [known([number["value"], number["low"], number["high"]]) for number in found]
    np.testing.assert_allclose(np.array(shown), np.array(expected), atol=1e-9)
    assert agreed["rows"] == (900 if known_rows else N)


def test_calibration_of_the_most_reliable_rows(case, numbers):
    rows, p_values = case.sample.rows, []
    for tenths, found in zip((1, 3), numbers["top"], strict=True):
        n_top = -(-tenths * len(rows) // 10)
        limit = np.sort(case.logit[rows])[::-1][n_top - 1]
        above, tied = case.logit > limit, case.logit == limit
        part = above + tied * (n_top - above[rows].sum()) / tied[rows].sum()  # of each copy of a row
        total = part[rows].sum()
        gap = (part * (case.reliability - case.correct))[rows].sum() / total
        copies = case.sample.copies
        independent = np.sqrt(((copies * part) ** 2 * case.reliability * (1 - case.reliability)).sum()) / total
        drawn = [
            (part * (case.reliability - case.correct))[at].sum() / part[at].sum()
            for at in case.replicates()[1:]
            if part[at].any()
        ]
        error = max(independent, np.std(drawn, ddof=1))
        degrees = len(np.unique(case.sample.cluster[part > 0])) - 1
        p_values.append(2 * student.sf(abs(gap) / error, degrees))
        half = student.ppf(0.975, degrees) * error
        assert total == pytest.approx(n_top)
        assert (found["share"], found["rows"]) == (tenths / 10, (part > 0).sum())
        expected = [(part * case.reliability)[rows].sum() / total, (part * case.correct)[rows].sum() / total]
        expected += [gap, error, gap - half, gap + half]
        shown = [found[name] for name in ("predicted", "correct", "gap", "standard_error", "low", "high")]
        np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=1e-9)
    least, most = sorted(range(2), key=p_values.__getitem__)
    adjusted = {least: min(1, 2 * p_values[least])}
    adjusted[most] = max(adjusted[least], p_values[most])
    assert [each["p_value"] for each in numbers["top"]] == pytest.approx([adjusted[0], adjusted[1]])


def test_costs_of_a_row_and_of_other_ways(case, fitted, few_resamples):
    cuts = fitted.thresholds(case.frame, groups=case.group, cost_error=COST_ERROR, cost_review=COST_REVIEW).to_dict()
    used = case.reliability >= CUT
    error = COST_ERROR * ~case.correct
    ways = {
        "reviewing all": np.full(N, COST_REVIEW),
        "reviewing none": error,
        "the same cut on the confidence": np.where(case.confidence < CUT, COST_REVIEW, error),
    }
    own = np.where(used, error, COST_REVIEW)
    pairs = [(cuts["cost"], own)]
    for way, cost in ways.items():
        pairs += [(cuts["beside"][way]["cost"], cost), (cuts["beside"][way]["change"], own - cost)]
    for found, values in pairs:
        means = np.array([values[rows].mean() for rows in case.replicates()])
        expected = [means[0], means[1:].std(ddof=1), *naive.percentile_interval(means[1:])]
        shown = [found[name] for name in ("value", "standard_error", "low", "high")]
        np.testing.assert_allclose(shown, expected, atol=1e-9)
    overall = cuts["overall"]
    assert overall["cut"] == CUT
    assert (overall["rows"], overall["automatic"]) == (N, used.sum())
    assert overall["accuracy"] == pytest.approx(case.correct[used].mean())


def test_the_score_for_scikit_learn_is_the_mean_log_loss(case, fitted):
    expected = -naive.log_losses(case.logit, case.correct)[case.sample.rows].mean()
    assert fitted.score(case.frame, groups=case.group) == pytest.approx(expected)


def test_drift_and_the_label_spread_do_not_depend_on_weights(case, numbers, fitted, few_resamples):
    """At a reliability and a label, drawing rows by chance does not change how often decisions are correct."""
    plain = case.frame.drop("inverse_probability", strict=False)
    unweighted = fitted.evaluate(plain, groups=case.group).to_dict()
    for key in ("drift", "label_spread"):
        assert numbers[key] == unweighted[key]
