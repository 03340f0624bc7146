"""`ReliabilityPipeline` transforms the rows once and passes every argument on to its map."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.preprocessing import FunctionTransformer

from relmap import ReliabilityPipeline

ROWS = np.array([[1.0, 2.0], [3.0, 4.0]])
Y = np.array([0, 1])
GROUPS = np.array(["a", "b"])
REQUESTS = {
    "target_accuracy": 0.875,
    "coverage": "0.5",
    "confidence_level": 0.75,
    "cost_error": 4.0,
    "cost_review": 2.0,
    "cut": 0.625,
}


class RecordingMap(BaseEstimator):
    """Last step that returns the arguments of each method."""

    def fit(self, *_: Any) -> "RecordingMap":
        return self

    def reliability(self, *arguments: Any, **keywords: Any) -> tuple[Any, Any]:
        return arguments, keywords

    apply = evaluate = thresholds = reliability


def make_pipelines() -> list[tuple[ReliabilityPipeline, np.ndarray]]:
    """Make a pipeline without other steps and one with two, with the rows that their map receives."""
    negative = FunctionTransformer(np.negative)
    exponential = FunctionTransformer(np.exp)
    map_only = ReliabilityPipeline([("map", RecordingMap())])
    with_steps = ReliabilityPipeline([("negative", negative), ("exp", exponential), ("map", RecordingMap())])
    return [(map_only, ROWS), (with_steps.fit(ROWS, Y), np.exp(-ROWS))]


@pytest.mark.parametrize("index", [0, 1])
def test_every_argument_is_passed_on_with_the_transformed_rows(index):
    pipeline, transformed = make_pipelines()[index]
    routes = {"coverage": 0.25, "cut": 0.5, "cuts": {"a": 1}}
    thresholds = {"confidence_level": 0.95, "target_accuracy": None, "coverage": None} | dict.fromkeys(
        ["cost_error", "cost_review", "cut"]
    )
    calls = [
        (pipeline.reliability(ROWS), (), {}),
        (pipeline.apply(ROWS, **routes), (), routes),
        (pipeline.apply(ROWS), (), dict.fromkeys(routes)),
        (pipeline.evaluate(ROWS, Y, GROUPS), (Y, GROUPS), {}),
        (pipeline.evaluate(ROWS), (None, None), {}),
        (pipeline.thresholds(ROWS, Y, GROUPS, **REQUESTS), (Y, GROUPS), REQUESTS),
        (pipeline.thresholds(ROWS), (None, None), thresholds),
    ]
    for (arguments, keywords), expected_arguments, expected_keywords in calls:
        rows, *others = arguments
        np.testing.assert_array_equal(rows, transformed)
        assert len(others) == len(expected_arguments)
        for found, expected in zip(others, expected_arguments, strict=True):
            assert found is expected
        assert keywords == expected_keywords
