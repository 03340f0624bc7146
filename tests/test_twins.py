"""What the pipeline finds on a twin is what its truth says: raw files, reader, training, calibration, projection."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit
from twins import PARAMS, twin_of_files

from tasks.calibrators import CALIBRATORS
from tasks.metrics.reliability import nll_correct
from tasks.metrics.spread import label_cells, label_spread, label_spread_null, mean_spread
from tasks.projection.batch import Batch
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import LatticeSettings
from tasks.projection.variants import project_batch
from tasks.protocol.decisions import confidence_logit
from tasks.protocol.splits import validation_rows


class Found(NamedTuple):
    """The test rows of a twin, under temperature scaling and MRP."""

    confidence: np.ndarray  # (n,)
    confidence_logit: np.ndarray  # (n,)
    reliability_logit: np.ndarray  # (n,)
    decision: np.ndarray  # (n,)
    correct: np.ndarray  # (n,)
    truth: np.ndarray  # (n,) the true probability that the decision is correct


def run_twin(name: str, folder: Path, residual: float) -> Found:
    """The whole protocol on one twin, protocol seed 1, with the numbers of params.yaml and no orchestrator."""
    validation, test, truth = twin_of_files(name, folder, residual=residual)
    rows = validation_rows(validation, 1, PARAMS.protocol)
    calibrator = CALIBRATORS["ts"].fit(rows.calibrator_fit.logits, rows.calibrator_fit.labels, seed=1)
    (mrp,) = project_batch(Batch.under([calibrator], rows, LatticeSettings(), "cpu"), ("mrp",))["mrp"]
    tested = confidence_logit(calibrator(test.logits), test.decision)
    return Found(expit(tested), tested, mrp(Decisions(tested, test.decision)), test.decision, test.correct, truth)


def loss(logit: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Each row's part of the correctness NLL."""
    return np.logaddexp(0, logit) - correct * logit


@pytest.fixture(scope="module", params=["wands", "alloprof_rerank", "mslr_web10k"])
def found(request, tmp_path_factory):
    return run_twin(request.param, tmp_path_factory.mktemp("twin"), residual=1.0)


@pytest.fixture(scope="module", params=["wands", "alloprof_rerank", "mslr_web10k"])
def nothing(request, tmp_path_factory):
    return run_twin(request.param, tmp_path_factory.mktemp("twin"), residual=0.0)


def test_mrp_lowers_the_correctness_nll_clearly(found):
    change = loss(found.reliability_logit, found.correct) - loss(found.confidence_logit, found.correct)
    assert change.mean() < -3 * change.std() / np.sqrt(len(change))
    assert np.isclose(
        loss(found.confidence_logit, found.correct).mean(), nll_correct(found.confidence_logit, found.correct)
    )


def test_the_spread_that_is_found_is_the_true_spread(found):
    true = label_cells(found.confidence, found.decision, found.truth - found.confidence)
    seen = label_cells(found.confidence, found.decision, found.correct - found.confidence)
    counted = seen.rows >= 20
    spread_of_a_cell = np.sqrt(0.25 / seen.rows[counted])
    assert (np.abs(seen.residual - true.residual)[counted] < 4 * spread_of_a_cell).all()
    # the largest minus the smallest of noisy means is larger than of true ones, by about two deviations of a cell
    excess = mean_spread(seen) - mean_spread(true)
    assert -np.mean(spread_of_a_cell) < excess < 2 * np.mean(spread_of_a_cell)


def test_the_spread_stands_out_of_what_shuffled_labels_show(found):
    null = label_spread_null(found.confidence, found.decision, found.correct, seed=1)
    assert label_spread(found.confidence, found.decision, found.correct) > 1.5 * null


def test_without_a_residual_mrp_is_not_seen_to_help(nothing):
    change = loss(nothing.reliability_logit, nothing.correct) - loss(nothing.confidence_logit, nothing.correct)
    assert change.mean() > -2 * change.std() / np.sqrt(len(change))


def test_without_a_residual_the_true_spread_is_a_fraction_of_it(nothing):
    true = label_cells(nothing.confidence, nothing.decision, nothing.truth - nothing.confidence)
    assert mean_spread(true) < 0.06
