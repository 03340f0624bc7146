"""Numbers of an evaluation equal their definitions for all combinations of weights, groups and ties.

The references repeat rows by their weight, resample clusters one by one, and average over tied rows.
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
from relmap.maps.score import FittedMap
from tests import maps, naive
from tests.naive import Sample

N_ROWS = 72
N_RESAMPLES = 40
COPY_NUMBERS = np.array([50, 150, 70, 130])  # 100 on average: the library counts weights in hundredths of their mean
COMBINATIONS = list(product([False, True], repeat=3))
CASE_IDS = [
    "-".join(["weights"] * weighted + ["groups"] * grouped + ["ties"] * tied)
    for weighted, grouped, tied in COMBINATIONS
]
COST_ERROR = 4.0
COST_REVIEW = 1.0
CUT = 0.75


@dataclass(frozen=True, eq=False)
class Case:
    """New labelled rows, their scores under a map, and the number of copies of each row."""

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
        """Return the rows, followed by the rows of each resample."""
        return [self.sample.rows, *self.sample.resamples(N_RESAMPLES)]


@pytest.fixture(scope="module")
def fitted_map() -> ReliabilityMap:
    model = ReliabilityMap().fit(maps.make_predictions(260, shift=2.5))
    assert model.document_.baseline is not None
    return model


def make_rows(weighted: bool, grouped: bool, tied: bool) -> tuple[pl.DataFrame, np.ndarray]:
    """Make labelled predictions that were not used in the fit, and the number of copies of each row."""
    generator = np.random.default_rng(5)
    frame = maps.make_predictions(N_ROWS, shift=2.5, seed=31).drop("group")
    if tied:
        tied_logits = np.array(frame["logits"].to_list())[generator.integers(0, 14, N_ROWS)]
        is_wrong = generator.random(N_ROWS) < 0.4
        label = np.where(is_wrong, (tied_logits.argmax(axis=1) + 1) % 3, tied_logits.argmax(axis=1))
        frame = pl.DataFrame({"logits": tied_logits.tolist(), "label": label})
    copies = generator.permutation(np.tile(COPY_NUMBERS, N_ROWS // 4)) if weighted else np.ones(N_ROWS, dtype=int)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(copies * 0.037))
    if grouped:
        frame = frame.with_columns(query=pl.Series([f"q{number}" for number in generator.integers(0, 24, N_ROWS)]))
    return frame, copies


@pytest.fixture(scope="module", params=COMBINATIONS, ids=CASE_IDS)
def case(request, fitted_map) -> Case:
    weighted, grouped, tied = request.param
    frame, copies = make_rows(weighted, grouped, tied)
    rows = maps.rows_of_frame(frame)
    scored = FittedMap.from_document(fitted_map.document_).score_for_comparison(rows)
    group = frame["query"].to_numpy() if grouped else None
    sample = Sample.from_groups(copies, group)
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
def limited_resamples():
    with pytest.MonkeyPatch.context() as patch:
        maps.limit_resamples(patch, N_RESAMPLES)
        yield


@pytest.fixture(scope="module")
def evaluation(case, fitted_map, limited_resamples) -> dict:
    return fitted_map.evaluate(case.frame, groups=case.group).to_dict()


def metrics_by_score(case: Case, rows: np.ndarray) -> dict[str, dict[str, float]]:
    correct = case.correct[rows]
    return {
        "confidence": naive.metrics(logit(case.confidence)[rows], case.confidence[rows], correct),
        "reliability": naive.metrics(case.logit[rows], case.reliability[rows], correct),
    }


@pytest.fixture(scope="module")
def replicated_metrics(case) -> list[dict[str, dict[str, float]]]:
    """Compute every metric of confidence and reliability for the rows and for each resample."""
    return [metrics_by_score(case, rows) for rows in case.replicates()]


def to_array(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values])


def test_metrics_and_changes_equal_loops_over_resamples(case, evaluation, replicated_metrics):
    reviews = {f"found_{round(100 * review['reviewed'])}": review for review in evaluation["reviews"]}
    for name, reported in (evaluation["metrics"] | reviews).items():
        before = np.array([metrics["confidence"][name] for metrics in replicated_metrics])
        after = np.array([metrics["reliability"][name] for metrics in replicated_metrics])
        change = after - before
        expected = [before[0], after[0], change[0], *naive.percentile_interval(change[1:]), naive.p_value(change[1:])]
        reported_numbers = to_array(
            [reported[key] for key in ("confidence", "reliability", "change", "low", "high", "p")]
        )
        np.testing.assert_allclose(reported_numbers, expected, rtol=1e-9, atol=1e-9, err_msg=name)
    assert (evaluation["rows"], evaluation["errors"]) == (N_ROWS, (~case.correct).sum())
    assert evaluation["groups"] == case.sample.cluster.max() + 1
    assert evaluation["grouped"] == (case.group is not None)
    assert evaluation["weighted"] == ("inverse_probability" in case.frame.columns)

    n_errors_at_random = 1000 * (~case.correct)[case.sample.rows].mean()
    for review in evaluation["reviews"]:
        assert review["at_random"] == pytest.approx(n_errors_at_random)
        automatic_tenths = round(10 * (1 - review["reviewed"]))
        n_automatic = -(-automatic_tenths * N_ROWS // 10)  # rounded up
        assert review["reviews"] == N_ROWS - n_automatic


def test_accuracies_have_wilson_intervals(case, evaluation):
    all_rows = np.ones(N_ROWS, dtype=bool)
    shares = [(evaluation["accuracy"], all_rows)]
    for label, reported in enumerate(evaluation["labels"]):
        is_decided = case.decision == label
        shares.append((reported["correct"], is_decided))
        rows = case.sample.rows[is_decided[case.sample.rows]]
        assert reported["rows"] == is_decided.sum()
        assert reported["mean_confidence"] == pytest.approx(case.confidence[rows].mean())
        assert reported["mean_reliability"] == pytest.approx(case.reliability[rows].mean())
    for reported, is_chosen in shares:
        reported_numbers = to_array([reported["value"], reported["low"], reported["high"]])
        np.testing.assert_allclose(reported_numbers, case.sample.wilson(case.correct, is_chosen), atol=1e-9)


def share_interval(values: np.ndarray, clusters: int) -> tuple[float, float, float]:
    """Return a share and its interval from replicates, or the exact interval if all replicates are 0 or all are 1."""
    low, high = naive.percentile_interval(values[1:]) if clusters >= 10 else (np.nan, np.nan)
    if low == high and values[0] in (0, 1):
        exact = binomtest(int(values[0] * clusters), clusters).proportion_ci(method="exact")
        low = exact.low
        high = exact.high
    return (np.nan, np.nan, np.nan) if np.isnan(values[0]) else (values[0], low, high)


def prediction_powered_shares(
    case: Case, cells: list[np.ndarray], all_rows: tuple[np.ndarray, np.ndarray] | None
) -> np.ndarray:
    """Estimate the share of correct rows of each cell, shape (n_cells, 1 + n_resamples).

    The mean reliability of all rows serves as a control variate.
    """
    replicates = case.replicates()
    share = np.empty((len(cells), len(replicates)))
    mean = np.empty((len(cells), len(replicates)))
    for index, cell in enumerate(cells):
        for replicate, rows in enumerate(replicates):
            members = rows[cell[rows]]
            share[index, replicate] = naive.mean(case.correct[members])
            mean[index, replicate] = naive.mean(case.reliability[members])
    if all_rows is None:
        return share
    decision, reliability = all_rows
    for index, cell in enumerate(cells):
        labels = np.unique(case.decision[cell])
        is_label = np.isin(decision, labels) if len(cells) > 1 else np.ones(len(decision), dtype=bool)
        difference = reliability[is_label].mean() - mean[index]
        share_replicates = share[index, 1:]
        difference_replicates = difference[1:]
        covariance = np.cov(share_replicates, difference_replicates)[0, 1]
        power = np.clip(-covariance / difference_replicates.var(ddof=1), 0, 1)
        share[index] = np.clip(share[index] + power * difference, 0, 1)
    return share


@pytest.mark.parametrize("with_population", [False, True], ids=["labelled", "all"])
def test_agreement_equals_loops_over_resamples(case, evaluation, fitted_map, limited_resamples, with_population):
    agreement = evaluation["agreement"]
    all_rows = None
    labels = range(3)
    if with_population:
        population = maps.rows_of_frame(maps.make_predictions(900, shift=2.5, seed=8))
        scored = FittedMap.from_document(fitted_map.document_)(population)
        all_rows = population.decision, scored.reliability
        summary = PopulationSummary.from_scores(population.decision, scored.logit, 3)
        agreement = fitted_map._assess(case.frame, None, case.group).evaluate(summary).numbers["agreement"]
    precision = prediction_powered_shares(case, [case.decision == label for label in labels], all_rows)
    accuracy = prediction_powered_shares(case, [np.ones(N_ROWS, dtype=bool)], all_rows)[0]
    recall = np.empty((3, N_RESAMPLES + 1))
    kappa = np.empty(N_RESAMPLES + 1)
    for replicate, rows in enumerate(case.replicates()):
        decisions = all_rows[0] if with_population else case.decision[rows]
        decision_shares = np.array([(decisions == label).mean() for label in labels])
        label_shares = np.zeros(3)
        joint = np.zeros(3)
        for decision in labels:
            true_labels = case.label[rows[case.decision[rows] == decision]]
            if decision_shares[decision] > 0:
                label_shares += decision_shares[decision] * np.array(
                    [naive.mean(true_labels == label) for label in labels]
                )
                joint[decision] = decision_shares[decision] * naive.mean(true_labels == decision)
        with np.errstate(invalid="ignore"):  # a label without rows in the resample
            recall[:, replicate] = joint / label_shares
        kappa[replicate] = (joint.sum() - decision_shares @ label_shares) / (1 - decision_shares @ label_shares)
    clusters = case.sample.cluster
    expected = [share_interval(accuracy, clusters.max() + 1), share_interval(kappa, clusters.max() + 1)]
    reported = [agreement["accuracy"], agreement["kappa"]]
    for label, label_agreement in enumerate(agreement["labels"]):
        expected.append(share_interval(precision[label], len(np.unique(clusters[case.decision == label]))))
        expected.append(share_interval(recall[label], len(np.unique(clusters[case.label == label]))))
        reported += [label_agreement["precision"], label_agreement["recall"]]
    if not with_population:  # these have the intervals of the whole evaluation, which are tested separately
        assert agreement["accuracy"] == evaluation["accuracy"]
        assert [number["precision"] for number in agreement["labels"]] == [
            number["correct"] for number in evaluation["labels"]
        ]
        n_labels = len(labels)
        of_loops = [1, *range(3, 3 + 2 * n_labels, 2)]  # kappa and recall
        reported = [reported[position] for position in of_loops]
        expected = [expected[position] for position in of_loops]
    reported_numbers = [to_array([number["value"], number["low"], number["high"]]) for number in reported]

    np.testing.assert_allclose(np.array(reported_numbers), np.array(expected), atol=1e-9)
    assert agreement["rows"] == (900 if with_population else N_ROWS)


def test_top_calibration_uses_weights_and_groups(case, evaluation):
    rows = case.sample.rows
    p_values = []
    for tenths, reported in zip((1, 3), evaluation["top"], strict=True):
        n_top = -(-tenths * len(rows) // 10)
        threshold = np.sort(case.logit[rows])[::-1][n_top - 1]
        is_above = case.logit > threshold
        is_tied = case.logit == threshold
        row_share = is_above + is_tied * (n_top - is_above[rows].sum()) / is_tied[rows].sum()  # share of each copy
        total = row_share[rows].sum()
        gap = (row_share * (case.reliability - case.correct))[rows].sum() / total
        copies = case.sample.copies
        binomial_error = np.sqrt(((copies * row_share) ** 2 * case.reliability * (1 - case.reliability)).sum()) / total
        replicate_gaps = [
            (row_share * (case.reliability - case.correct))[replicate_rows].sum() / row_share[replicate_rows].sum()
            for replicate_rows in case.replicates()[1:]
            if row_share[replicate_rows].any()
        ]
        standard_error = max(binomial_error, np.std(replicate_gaps, ddof=1))
        degrees = len(np.unique(case.sample.cluster[row_share > 0])) - 1
        p_values.append(2 * student.sf(abs(gap) / standard_error, degrees))
        half_width = student.ppf(0.975, degrees) * standard_error
        assert total == pytest.approx(n_top)
        assert (reported["share"], reported["rows"]) == (tenths / 10, (row_share > 0).sum())
        expected = [(row_share * case.reliability)[rows].sum() / total, (row_share * case.correct)[rows].sum() / total]
        expected += [gap, standard_error, gap - half_width, gap + half_width]
        reported_numbers = [reported[name] for name in ("predicted", "correct", "gap", "standard_error", "low", "high")]
        np.testing.assert_allclose(reported_numbers, expected, rtol=1e-9, atol=1e-9)
    smaller, larger = sorted(range(2), key=p_values.__getitem__)
    adjusted = {smaller: min(1, 2 * p_values[smaller])}
    adjusted[larger] = max(adjusted[smaller], p_values[larger])

    assert [top["p_value"] for top in evaluation["top"]] == pytest.approx([adjusted[0], adjusted[1]])


def test_costs_equal_loops_over_resamples(case, fitted_map, limited_resamples):
    thresholds = fitted_map.thresholds(
        case.frame, groups=case.group, cost_error=COST_ERROR, cost_review=COST_REVIEW
    ).to_dict()
    is_automatic = case.reliability >= CUT
    error_cost = COST_ERROR * ~case.correct
    alternatives = {
        "reviewing all": np.full(N_ROWS, COST_REVIEW),
        "reviewing none": error_cost,
        "the same cut on the confidence": np.where(case.confidence < CUT, COST_REVIEW, error_cost),
    }
    map_cost = np.where(is_automatic, error_cost, COST_REVIEW)
    pairs = [(thresholds["cost"], map_cost)]
    for name, cost in alternatives.items():
        pairs += [
            (thresholds["alternatives"][name]["cost"], cost),
            (thresholds["alternatives"][name]["change"], map_cost - cost),
        ]
    for reported, values in pairs:
        means = np.array([values[rows].mean() for rows in case.replicates()])
        expected = [means[0], means[1:].std(ddof=1), *naive.percentile_interval(means[1:])]
        reported_numbers = [reported[name] for name in ("value", "standard_error", "low", "high")]
        np.testing.assert_allclose(reported_numbers, expected, atol=1e-9)
    overall = thresholds["overall"]

    assert overall["cut"] == CUT
    assert (overall["rows"], overall["automatic"]) == (N_ROWS, is_automatic.sum())
    assert overall["accuracy"] == pytest.approx(case.correct[is_automatic].mean())


def test_score_is_the_negative_mean_log_loss(case, fitted_map):
    expected = -naive.log_losses(case.logit, case.correct)[case.sample.rows].mean()
    assert fitted_map.score(case.frame, groups=case.group) == pytest.approx(expected)


def test_drift_and_label_spread_do_not_depend_on_weights(case, evaluation, fitted_map, limited_resamples):
    """Sampling rows does not change the accuracy at a given reliability and label."""
    unweighted_rows = case.frame.drop("inverse_probability", strict=False)
    unweighted = fitted_map.evaluate(unweighted_rows, groups=case.group).to_dict()
    for key in ("drift", "label_spread"):
        assert evaluation[key] == unweighted[key]
