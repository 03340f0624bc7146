"""Inputs that a classifier was fitted on are recognized."""

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from relmap.io.training_inputs import TrainingInputs, digest_rows


@pytest.mark.parametrize("X", [["a", 1, object()], [[1.0], [2.0, 3.0]], object()])
def test_other_inputs_of_a_classifier_have_no_digests(X):
    assert digest_rows(X) is None
    assert TrainingInputs.from_inputs(X, np.zeros((1, 2))) is None


def test_training_rows_get_predictions_of_classifiers_that_have_not_seen_them():
    out_of_fold = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]])
    inputs = TrainingInputs.from_inputs(["a", "b", "c"], out_of_fold)
    predicted = np.full((2, 2), 0.5)
    assert inputs.out_of_fold(["new", "c"], predicted).tolist() == [[0.5, 0.5], [0.3, 0.7]]
    assert inputs.out_of_fold(["a", "new"], predicted).tolist() == [[0.1, 0.9], [0.5, 0.5]]
    assert inputs.out_of_fold(["new", "other"], predicted) is predicted
    assert inputs.out_of_fold(object(), predicted) is predicted


@pytest.mark.parametrize(
    "X",
    [
        ["a", "b", "a", "ab"],
        np.array(["a", "b", "a", "ab"]),
        np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]),
        [[1, 0], [0, 1], [1, 0], [2, 0]],
        csr_array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]),
        pl.DataFrame({"x": [1, 0, 1, 2], "text": ["a", "b", "a", "ab"], "list": [[1.0], [2.0], [1.0], [3.0]]}),
    ],
    ids=["texts", "array of texts", "array", "lists", "sparse", "frame"],
)
def test_equal_inputs_and_no_others_have_equal_digests(X):
    digests = digest_rows(X)
    assert digests is not None
    assert len(digests) == 4
    assert digests[0] == digests[2]
    assert len(set(digests)) == 3
    assert {len(digest) for digest in digests} == {16}


def test_digests_do_not_depend_on_the_type_of_numbers():
    numbers = np.array([[1, 0, 3], [0, 2, 0]])
    assert digest_rows(numbers) == digest_rows(numbers.astype(np.float32)) == digest_rows(np.asfortranarray(numbers))
    assert digest_rows(csr_array(numbers)) == digest_rows(csr_array(numbers.astype(np.float32)))
