"""Properties of Spline."""

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

from relmap.calibrators.spline import fit_spline
from relmap.decisions import decide
from tests.fits import simulate_logits_and_labels


def test_spline_equals_the_scikit_learn_pipeline_for_any_row_order():
    logits, labels = simulate_logits_and_labels(600, 3)
    logits[:300] = np.round(logits[:300])  # many ties
    basis = SplineTransformer(8, degree=3, knots="uniform", extrapolation="constant", include_bias=False)
    model = make_pipeline(basis, StandardScaler(with_mean=False), LogisticRegression(C=1, max_iter=1000))
    model.fit(softmax(logits, axis=1).max(axis=1)[:, None], decide(logits) == labels)
    confidence = np.linspace(0, 1, 2001)  # beyond the outer knots too
    expected = model.predict_proba(confidence[:, None])[:, 1].clip(1e-6, 1 - 1e-6)
    for order in (np.arange(600), np.random.default_rng(1).permutation(600)):
        calibrator = fit_spline(logits[order], labels[order], seed=1)
        np.testing.assert_allclose(calibrator.calibrate_confidence(confidence), expected, rtol=0, atol=1e-9)


def test_spline_keeps_the_proportions_of_other_labels_and_may_change_the_decision():
    logits, labels = simulate_logits_and_labels(400, 5)
    is_other_label = np.arange(5) != decide(logits)[:, None]
    calibrated = fit_spline(logits, labels, seed=1)(logits)
    after = log_softmax(calibrated[is_other_label].reshape(400, 4), axis=1)
    before = log_softmax(logits[is_other_label].reshape(400, 4), axis=1)
    np.testing.assert_allclose(after, before, atol=1e-9)

    logits = np.tile(np.log([0.9, 0.1]), (40, 1))
    calibrated = fit_spline(logits, np.array([1] * 30 + [0] * 10), seed=1)(logits)
    assert (decide(calibrated) == 1).all()
