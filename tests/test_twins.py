"""What the pipeline finds on a twin is what its truth says: raw files, reader, training, calibration, projection."""

import numpy as np
import pytest
from scipy.special import expit
from twins import PARAMS, loss, projected, twin_of_files

from tasks.metrics.reliability import nll_correct
from tasks.metrics.spread import label_cells, label_spread, label_spread_null, mean_spread
from tasks.protocol.splits import validation_rows


@pytest.fixture(scope="module", params=["wands", "alloprof_rerank", "mslr_web10k"])
def scored(request, tmp_path_factory):
    """By residual: the whole protocol on a twin, protocol seed 1, with the numbers of params.yaml."""
    made = {}
    for residual in (0.0, 1.0) if request.param != "alloprof_rerank" else (1.0,):
        twin = twin_of_files(request.param, tmp_path_factory.mktemp("twin"), residual=residual)
        made[residual] = twin, *projected([twin], [validation_rows(twin.validation, 1, PARAMS.protocol)])
    return made


def test_mrp_lowers_the_correctness_nll_clearly_and_without_a_residual_it_is_not_seen_to_help(scored):
    for residual, (twin, logits) in scored.items():
        before, after = (loss(logit, twin.test.correct) for logit in logits)
        mean, deviation = (after - before).mean(), (after - before).std() / np.sqrt(len(before))
        assert mean < -3 * deviation if residual else mean > -2 * deviation
        assert np.isclose(before.mean(), nll_correct(logits.before, twin.test.correct))


def test_the_spread_that_is_found_is_the_true_spread_and_stands_out_of_what_shuffled_labels_show(scored):
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


def test_without_a_residual_the_true_spread_is_a_fraction_of_it(scored):
    for (_, test, truth), (before, _) in [of for residual, of in scored.items() if not residual]:
        assert mean_spread(label_cells(expit(before), test.decision, truth - expit(before))) < 0.06
