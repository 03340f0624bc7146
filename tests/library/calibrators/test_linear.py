"""The linear map of logits gives a row the same bits alone and among others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relmap.calibrators.linear import transform_rows


def test_rows_are_multiplied_by_the_weights_of_each_label():
    rows = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 0.5]])
    weights = np.array([[1.0, 10.0], [0.0, 2.0]])
    assert transform_rows(rows, weights).tolist() == [[21.0, 4.0], [-7.0, -2.0], [5.0, 1.0]]


def test_a_label_of_weight_0_does_not_count_whatever_its_logit():
    rows = np.array([[np.inf, 1.0], [np.nan, 2.0]])
    assert transform_rows(rows, np.array([[0.0, 3.0]])).tolist() == [[3.0], [6.0]]


@pytest.mark.parametrize(("n_rows", "n_labels"), [(0, 3), (4, 1)])
def test_results_have_a_row_for_each_row_and_a_column_for_each_label(n_rows, n_labels):
    assert transform_rows(np.ones((n_rows, 2)), np.ones((n_labels, 2))).shape == (n_rows, n_labels)


@given(n_rows=st.integers(1, 40), n_labels=st.integers(1, 6), seed=st.integers(0, 1000))
def test_no_bit_of_a_row_depends_on_the_other_rows(n_rows, n_labels, seed):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n_rows, n_labels))
    weights = generator.normal(size=(n_labels, n_labels))
    together = transform_rows(rows, weights)
    np.testing.assert_allclose(together, rows @ weights.T, atol=1e-12)
    for row, values in zip(rows, together, strict=True):
        np.testing.assert_array_equal(transform_rows(row[None], weights)[0], values)
