"""What the pipeline finds on a twin is what its truth says; where no residual depends on the label, it finds nothing.

A change is significantly better if its whole 95% interval lies on the better side: with nothing to find that may happen
in 2.5% of twins. That is counted on twins of logits, whose truth is exact: on a twin of raw files a base model is
trained, which can leave a small residual of its own.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, log_softmax, ndtr
from scipy.stats import binomtest

from tasks.calibrators.temperature import fit_temperature
from tasks.datasets import DATASETS
from tasks.metrics.intervals import interval
from tasks.metrics.registry import of_reliability
from tasks.metrics.reliability import nll_correct_of_rows
from tasks.metrics.resampling import resample
from tasks.metrics.spread import label_cells, label_spread, label_spread_null, mean_spread
from tasks.predictors import fit_predictor
from tasks.projection.batch import Batch, project_together
from tasks.projection.decisions import Decisions
from tasks.protocol.decisions import FixedDecisions, confidence_logit, decide
from tasks.protocol.params import ProjectionParams, load_params
from tasks.protocol.splits import ValidationRows, validation_rows
from tasks.simulation import simulate

PARAMS = load_params(Path(__file__).resolve().parent.parent / "params.yaml")
BETTER = {"nll_correct": -1, "aupr_error": 1, "aurc": -1}  # the sign of a change for the better
NOMINAL = 0.025  # of a 95% interval, on one side
# labels, projection-fit rows (fewer: MRP costs more), test rows (fewer: it shows less)
KINDS = [(2, 300, 1000), (3, 300, 1000), (2, 1000, 500), (3, 1000, 500)]
EACH = 30  # twins of a kind
RESAMPLES = 200


class Twin(NamedTuple):
    """Made-up decisions and their truth."""

    validation: FixedDecisions
    test: FixedDecisions
    truth: np.ndarray  # (n,), the true probability that each test decision is right


class Reliability(NamedTuple):
    """Logits `(n,)` of the test rows' confidence under temperature scaling, and of their reliability by MRP."""

    before: np.ndarray
    after: np.ndarray


def twin_of_files(name: str, folder: Path, residual: float) -> Twin:
    """Raw files read as the released ones, trained on and decided, with no orchestrator.

    With a residual the base predictor is the paper's. Without one it is the multinomial regression without weights:
    balanced weights alone would put a residual in, which depends on the label.
    """
    simulate(name, folder, rows=PARAMS.dataset(name).rows, residual=residual, seed=0)
    dataset = DATASETS[name]
    frame = dataset.read(folder).pairs
    parts = {part: frame.filter(pl.col("split") == part) for part in ("train", "validation", "test")}
    known = {"n_labels": dataset.n_labels, "seed": dataset.member_seed, "class_weight": "none", "settings": {}}
    known |= {"class_weight": "balanced"} if residual else {"settings": {"inverse_penalty": 3.0}}
    kind = "linear" if residual else "multinomial"
    predictor = fit_predictor(kind, parts["train"], parts["validation"], **known)

    def decided(part: pl.DataFrame) -> FixedDecisions:
        logits, labels = predictor(part), part["label"].to_numpy().astype(np.int64)
        return FixedDecisions(logits, labels, decide(logits), part["group"].to_numpy())

    test, truth = decided(parts["test"]), pl.read_parquet(folder / "truth.parquet")
    of_test = parts["test"].join(truth, on="pair", how="left", maintain_order="left")["probabilities"]
    return Twin(decided(parts["validation"]), test, np.array(of_test.to_list())[np.arange(len(test)), test.decision])


def projected(twins: list[Twin], parts: list[ValidationRows]) -> list[Reliability]:
    """Temperature scaling and MRP as the pipeline fits them, of several twins side by side, to save time."""
    calibrators = [fit_temperature(rows.calibrator_fit.logits, rows.calibrator_fit.labels, seed=1) for rows in parts]
    fitted_on = zip(calibrators, parts, strict=True)
    batches = [Batch.under([fitted], rows, ProjectionParams(), "cpu") for fitted, rows in fitted_on]
    scored = []
    for twin, fitted, (mrp,) in zip(twins, calibrators, project_together(batches), strict=True):
        before = confidence_logit(fitted(twin.test.logits), twin.test.decision)
        scored.append(Reliability(before, mrp(Decisions(before, twin.test.decision))))
    return scored


def loss(logit: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Each row's part of the correctness NLL, given that it is correct, or its probability to be."""
    return np.logaddexp(0, logit) - correct * logit


@pytest.fixture(scope="module", params=["wands", "alloprof_rerank", "mslr_web10k"])
def scored(request, tmp_path_factory):
    """By residual: the whole protocol on a twin, protocol seed 1, with the numbers of params.yaml."""
    made = {}
    for residual in (0.0, 1.0) if request.param == "wands" else (1.0,):  # the study is of the others without one
        twin = twin_of_files(request.param, tmp_path_factory.mktemp("twin"), residual)
        made[residual] = twin, *projected([twin], [validation_rows(twin.validation, 1, PARAMS.protocol)])
    return made


def test_mrp_lowers_the_correctness_nll_clearly_and_without_a_residual_it_is_not_seen_to_help(scored):
    for residual, (twin, logits) in scored.items():
        before, after = (loss(logit, twin.test.correct) for logit in logits)
        mean, deviation = (after - before).mean(), (after - before).std() / np.sqrt(len(before))
        assert mean < -3 * deviation if residual else mean > -2 * deviation
        assert np.isclose(before.mean(), nll_correct_of_rows(logits.before, twin.test.correct).mean())


def test_the_spread_found_is_the_true_one_and_more_than_shuffled_labels_show_and_hardly_there_without_residual(scored):
    (_, test, truth), (before, _) = scored[1.0]
    confidence = expit(before)
    seen, true = (label_cells(confidence, test.decision, of - confidence) for of in (test.correct, truth))
    counted = seen.rows >= 20
    spread_of_a_cell = np.sqrt(0.25 / seen.rows[counted])
    assert (np.abs(seen.residual - true.residual)[counted] < 4 * spread_of_a_cell).all()
    # the largest minus the smallest of noisy means is larger than of true ones, by about two deviations of a cell
    excess = mean_spread(seen) - mean_spread(true)
    assert -np.mean(spread_of_a_cell) < excess < 2 * np.mean(spread_of_a_cell)
    null = label_spread_null(confidence, test.decision, test.correct, seed=1)
    assert label_spread(confidence, test.decision, test.correct) > 1.5 * null
    if 0.0 in scored:
        (_, test, truth), (before, _) = scored[0.0]
        assert mean_spread(label_cells(expit(before), test.decision, truth - expit(before))) < 0.06


def twin_of_logits(seed: int, labels: int, fit: int, test: int, residual: float = 0.0) -> Twin:
    """Logits that are right but for one temperature, 1.6; with a `residual` the last label is surer than it seems.

    The rows of a query share some of their scores, and of what decides whether they are right (a Gaussian copula), so
    that queries are right or wrong together though each row is right with its own probability.
    """
    rng = np.random.default_rng([seed, labels, fit])
    rows = 4 * fit + 20 + test  # validation quarters of `fit` rows at least, whatever the queries' sizes
    query = np.repeat(np.arange(rows), rng.integers(5, 16, rows))[:rows]

    def shared(*shape: int) -> np.ndarray:
        return np.sqrt(0.3) * rng.normal(size=(rows, *shape))[query] + np.sqrt(0.7) * rng.normal(size=(rows, *shape))

    scores = 2 * shared(labels) + np.linspace(0, 1, labels)
    decision, log_probabilities = decide(scores), log_softmax(scores, axis=1)
    tilt = np.where(decision == labels - 1, residual, -residual)
    truth = expit(confidence_logit(log_probabilities, decision) + tilt)
    log_probabilities[np.arange(rows), decision] = -np.inf
    runner_up = (log_probabilities + rng.gumbel(size=scores.shape)).argmax(axis=1)
    label = np.where(ndtr(shared()) < truth, decision, runner_up)
    both = FixedDecisions(1.6 * scores, label, decision, np.array([f"q{number:05}" for number in query]))
    tested = query >= query[rows - test]
    return Twin(both.take(~tested), both.take(tested), truth[tested])


def projected_twins(kind: tuple[int, int, int], residual: float, twins: int) -> list[tuple[Twin, Reliability]]:
    """Twins of logits of a kind, fitted on its number of validation rows under protocol seed 1."""
    made = [twin_of_logits(seed, *kind, residual) for seed in range(twins)]
    caps = PARAMS.protocol.model_copy(update={"projection_cap": kind[1]})
    parts = [validation_rows(twin.validation, 1, caps).first(kind[1]) for twin in made]
    return list(zip(made, projected(made, parts), strict=True))


@pytest.fixture(scope="module")
def without_residual() -> list[tuple[Twin, Reliability]]:
    """EACH twins of logits of every kind."""
    return [made for kind in KINDS for made in projected_twins(kind, 0.0, EACH)]


def claims(made: list[tuple[Twin, Reliability]]) -> dict[str, int]:
    """In how many of the twins a paired bootstrap over queries claims a change of each metric for the better."""
    claimed = dict.fromkeys(BETTER, 0)
    for twin, logits in made:
        draws = resample(twin.test.group, resamples=RESAMPLES, seed=0)
        before, after = (of_reliability(logit, twin.test.correct, draws=draws) for logit in logits)
        for metric, sign in BETTER.items():
            claimed[metric] += interval(sign * (after[metric] - before[metric])).low > 0
    return claimed


def above_nominal(count: int, of: int) -> bool:
    """Whether so many can hardly be chance: it takes 12 of 200."""
    return bool(binomtest(count, of, NOMINAL, alternative="greater").pvalue < 0.01)


def test_twins_of_logits_are_right_as_often_as_their_truth_says_at_every_confidence_of_every_label():
    _, test, truth = twin_of_logits(0, 3, 300, 40_000)
    confidence = expit(confidence_logit(test.logits / 1.6, test.decision))
    np.testing.assert_allclose(confidence, truth, atol=1e-12)
    seen = label_cells(confidence, test.decision, test.correct - truth)
    assert np.abs(seen.residual).max() < 5 * 0.5 / np.sqrt(seen.rows.min())


def test_on_twins_of_logits_without_a_residual_better_is_claimed_no_more_often_than_nominal(without_residual):
    claimed = claims(without_residual)
    assert not any(above_nominal(count, len(without_residual)) for count in claimed.values()), claimed


def test_nor_are_intervals_more_often_wholly_better_than_the_change_that_the_truth_makes(without_residual):
    """A projection that finds nothing costs something, and hides how often intervals are wrong: here it does not."""
    missed = []
    for twin, (before, after) in without_residual:
        draws = resample(twin.test.group, resamples=RESAMPLES, seed=0)
        seen, true = (loss(after, of) - loss(before, of) for of in (twin.test.correct, twin.truth))
        missed.append(interval(draws.mean(seen)).high < true.mean())
    assert not above_nominal(sum(missed), len(missed)), f"{sum(missed)} of {len(missed)}"


def test_where_labels_differ_it_is_claimed_nearly_always():
    claimed = claims(projected_twins((2, 1000, 1000), 1.0, 20))
    assert min(claimed.values()) >= 18, claimed
