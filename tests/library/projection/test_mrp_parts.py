"""Curves with fallbacks."""

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.decisions import CalibratedDecisions
from relmap.projection.mrp import build_curves_with_fallbacks, choose_fallbacks


@pytest.mark.parametrize(
    ("minimum_rows", "expected"),
    [
        (0, ("none", "none", "none", "none")),
        (1, ("identity", "none", "none", "none")),
        (20, ("identity", "shared", "shared", "none")),
        (21, ("identity", "shared", "shared", "shared")),
    ],
)
def test_labels_with_too_few_rows_use_another_model(minimum_rows, expected):
    assert choose_fallbacks(np.array([0, 1, 19, 20]), minimum_rows) == expected


def test_curves_of_labels_with_too_few_rows_are_replaced():
    knots = np.array([0.0, 0.25, 1.0])
    values = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    rows = np.array([20, 0, 19])
    curves = build_curves_with_fallbacks(knots, values, rows, np.array([-3.0, -2.0, -1.0]), 20)
    assert curves.fallback == ("none", "identity", "shared")
    assert curves.rows.tolist() == [20, 0, 19]
    np.testing.assert_allclose(curves.values, [[1, 2, 3], logit([1e-6, 0.25, 1 - 1e-6]), [-3, -2, -1]])
    scored = curves(CalibratedDecisions(np.array([0.75] * 3), np.array([0, 1, 2])))
    weight = (expit(0.75) - 0.25) / 0.75
    np.testing.assert_allclose(scored, [2 + weight, 0.75, -2 + weight])
