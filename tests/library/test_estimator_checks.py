"""Checks of parameters, numbers and label names, at their limits."""

import re

import numpy as np
import pytest

from relmap import InputError, ReliabilityMap
from relmap.estimator import check_settings, require_numbers
from relmap.io.frames import label_names

VALID = ReliabilityMap().get_params(deep=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", None),
        ("labels", ["no", "yes"]),
        ("signals", ()),
        ("signals", ["length", "source"]),
        ("hold_out", 0),
        ("hold_out", 0.9),
        ("hold_out", np.float32(0.5)),
        ("seed", 0),
        ("seed", np.int64(7)),
        ("protocol", "own"),
        ("protocol", "paper"),
        ("arrays", "auto"),
        ("arrays", "logits"),
        ("arrays", "probabilities"),
    ],
)
def test_valid_parameters_are_accepted(name, value):
    check_settings(VALID | {name: value})


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("labels", (["yes"], ["a", "a"], ["a", None], [["a", "b"]], ["a", "b\n"]), "list .*two names .*once"),
        ("signals", ("length", [3], [["a"]]), "list .*names .*columns"),
        ("hold_out", (-0.01, 0.91, "0.5", None, np.nan), r"\[0, 0\.9\]"),
        ("seed", (-1, 0.5, "1", None), "whole number, 0 .*"),
        ("protocol", ("other", None), "own, paper"),
        ("arrays", ("confidence", 1), "auto, logits, probabilities"),
    ],
)
def test_invalid_parameters_are_named_with_the_valid_values(name, values, expected):
    for value in values:
        with pytest.raises(InputError, match=f"^{name} .*{re.escape(repr(value))}; .*{expected}$"):
            check_settings(VALID | {name: value})


def test_a_classifier_needs_probabilities():
    with pytest.raises(InputError, match=r"classifier, dict,.*predict_proba;.*CalibratedClassifierCV$"):
        check_settings(VALID | {"classifier": {}})


def test_options_must_be_numbers_or_missing():
    require_numbers({"cut": 0.5, "coverage": None, "cost": np.float64(1)})
    with pytest.raises(InputError, match=r"^coverage .*'0\.5'; .*number$"):
        require_numbers({"cut": 0.5, "coverage": "0.5"})
    # long values are truncated
    with pytest.raises(InputError, match=r"^cut .*'x{79}; .*number$"):
        require_numbers({"cut": "x" * 100})


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([1.0, 0.0], ["1", "0"]),
        ([1.5, 0.0], ["1.5", "0.0"]),
        ([2.0**53, 0.0], [str(2.0**53), "0.0"]),
        ([2.0**53 - 1, 0.0], [str(2**53 - 1), "0"]),
        ([True, False], ["True", "False"]),
        (["b", "a"], ["b", "a"]),
        (["b", None], ["b", None]),
        ([1.0, None], ["1", None]),
        ([[1.0, np.nan], [0.0, 2.0]], [["1", None], ["0", "2"]]),
    ],
)
def test_label_names_have_no_decimals_of_whole_numbers(labels, names):
    assert label_names(labels).tolist() == names
