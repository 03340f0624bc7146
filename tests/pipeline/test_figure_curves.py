"""Rows of the figure of the learned curves."""

import re

import numpy as np
import pytest
from scipy.special import expit

from tasks.figures.curves import curve_rows
from tests.scores import KNOTS, LABELS, VALUES, headings, make_lattice, make_results, make_scores


def test_headings_name_fit_rows_fallbacks_and_test_rows():
    lattices = [
        make_lattice(4, (1500, 100, 120), ("none", "identity", "shared")),
        make_lattice(5, (99, 100, 120), ("shared", "identity", "identity")),
        make_lattice(6, (2000, 100, 120), ("shared", "identity", "none")),
        make_lattice(6, (1, 1, 1), ("none", "none", "none"), calibrator="uncal"),
        make_lattice(6, (1, 1, 1), ("none", "none", "none"), variant="shared_1d"),
    ]
    rows = curve_rows(make_results(make_scores({0: 1234, 1: 3}), seeds=(4, 5, 6), lattices=lattices))

    first, second, third = headings(rows)
    assert re.fullmatch(r"label 7\n99 to 2,000 fit [^,]*few rows\), shared [^,]* 2 of 3 seeds\n1,234 test rows", first)
    assert re.fullmatch(r"yes\n100 fit rows, [^,]* kept\n3 test rows", second)
    fallbacks = "shared [^,]* 1 of 3 seeds, [^,]* kept [^,]* 1 of 3 seeds"
    assert re.fullmatch(rf"no\n120 fit rows, {fallbacks}\n0 test rows", third)


@pytest.mark.parametrize(
    ("confidence", "axis_start", "grid_start"), [(0.02, 0.0, 0.001), (0.3, 0.3, 0.3), (0.9, 1 / 3, 1 / 3)]
)
def test_curves_are_evaluated_on_a_grid_and_at_their_inner_knots(confidence, axis_start, grid_start):
    lattices = [make_lattice(4, (300, 400, 500), ("none", "shared", "identity"))]
    results = make_results(make_scores({0: 2, 1: 2, 2: 2}, confidence=confidence), lattices=lattices)
    rows = curve_rows(results)
    inner_knots = [knot for knot in KNOTS if axis_start < knot < 1]
    grid = np.unique([*np.linspace(grid_start, 0.999, 60), *inner_knots])

    for label, n_rows in zip(LABELS, (300, 400, 500), strict=True):
        curve = rows.filter(label=label, kind="curve")
        np.testing.assert_allclose(curve["confidence"], grid)
        interpolated = expit(np.interp(grid, KNOTS, VALUES))
        np.testing.assert_allclose(curve["reliability"], grid if label == "no" else interpolated)
        assert curve.select("rows", "seed").unique().rows() == [(n_rows, 4)]
    identity = rows.filter(label="yes", kind="identity").select("confidence", "reliability")
    np.testing.assert_allclose(identity, [[axis_start, axis_start], [1, 1]])


def test_a_panel_has_its_identity_line_then_its_kinds_in_order():
    lattices = [make_lattice(4, (300, 400, 500), ("none", "none", "none"))]
    rows = curve_rows(make_results(make_scores({0: 40, 1: 20, 2: 19}), lattices=lattices))
    kinds = [rows.filter(label=label)["kind"].unique(maintain_order=True).to_list() for label in LABELS]
    assert kinds == [["identity", "curve", "test rows", "histogram"]] * 2 + [["identity", "curve", "histogram"]]
    assert rows["label"].unique(maintain_order=True).to_list() == [*LABELS]
