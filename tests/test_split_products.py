"""Products in parts: the bits of a csr_array, whatever the parts and the cores, and scikit-learn fits by them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from tasks.predictors import split_products as module
from tasks.predictors.linear_text import LinearTextSettings, fit_linear_text
from tasks.predictors.split_products import SplitProducts

N, F, P = 300, 90, 4


@pytest.fixture(params=[(1, 1), (7, 2), (64, 3), (1000, 8)], ids=str)
def parts(request, monkeypatch) -> None:
    """So many rows at once, on so many cores, and columns in eight parts."""
    rows, cores = request.param
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows)
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)


def drawn(seed: int = 0) -> tuple[csr_array, np.random.Generator]:
    """A matrix `(N, F)` with sizes far apart, so that another order of a sum shows in its last bits."""
    generator = np.random.default_rng(seed)
    matrix = random_array((N, F), density=0.2, format="csr", rng=generator)
    matrix.data = generator.normal(size=matrix.nnz) * 10.0 ** generator.integers(-8, 8, matrix.nnz)
    return csr_array(matrix), generator


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("columns", [(), (P,)], ids=["vector", "matrix"])
def test_products_have_the_bits_of_a_csr_array(columns):
    matrix, generator = drawn()
    weights, slopes = generator.normal(size=(F, *columns)), generator.normal(size=(N, *columns))
    ours = SplitProducts(matrix)
    np.testing.assert_array_equal(ours @ weights, matrix @ weights)
    np.testing.assert_array_equal(slopes.T @ ours, slopes.T @ matrix)
    np.testing.assert_array_equal(ours.T @ slopes, matrix.T @ slopes)


def test_another_order_of_the_sums_would_show():
    matrix, generator = drawn()
    weights = generator.normal(size=F)
    assert (matrix @ weights != matrix[:, ::-1].sorted_indices() @ weights[::-1]).any()


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("n_labels", [2, 4])
def test_a_fit_has_the_bits_of_one_with_a_csr_array(n_labels, monkeypatch):
    generator = np.random.default_rng(1)
    words = np.array([f"w{number}" for number in range(50)])
    texts = [[" ".join(row) for row in words[generator.integers(0, 50, (N, width))]] for width in (2, 6)]
    labels = generator.integers(0, n_labels, N)
    made = []

    def fit(kind: type[csr_array]) -> np.ndarray:
        monkeypatch.setattr(module, "SplitProducts", lambda matrix: made.append(kind(matrix)) or made[-1])
        own = LinearTextSettings(bucket_bits=10)
        fitted = fit_linear_text(texts, labels, n_labels=n_labels, class_weight="none", seed=0, settings=own)
        return fitted(texts)

    np.testing.assert_array_equal(fit(SplitProducts), fit(csr_array))
    assert {"some_rows"} <= set(vars(made[0]))  # scikit-learn did come by
    assert ("some_columns" in vars(made[0])) == (n_labels > 2)  # for two labels it transposes
