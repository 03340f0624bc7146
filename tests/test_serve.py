"""The deployments: forms that refuse what a command would, and what a run shows."""

from __future__ import annotations

from typing import get_args

import pytest
from prefect.exceptions import ParameterTypeError

from flows import serve
from tasks.calibrators import CALIBRATORS, SENSITIVITY
from tasks.maps.fit import AUTO, DEPLOYABLE
from tasks.maps.sql import DIALECTS


def test_the_forms_know_every_name_that_the_commands_know():
    assert set(get_args(serve.CalibratorName)) == set(CALIBRATORS) - set(SENSITIVITY)
    assert set(get_args(serve.VariantName)) == {AUTO, *DEPLOYABLE}
    assert set(get_args(serve.Dialect)) <= set(DIALECTS)


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        (serve.rerank_fit, {"predictions": "a", "out": "b", "calibrator": "platt"}),
        (serve.rerank_fit, {"predictions": "a", "out": "b", "variant": "label_2d"}),
        (serve.rerank_fit, {"predictions": "a", "out": "b", "seed": -1}),
        (serve.rerank_apply, {"map_file": "a", "predictions": "b", "out": "c", "coverage": 70}),
        (serve.rerank_thresholds, {"map_file": "a", "predictions": "b", "out": "c", "target_accuracy": 95}),
        (serve.rerank_sql, {"map_file": "a", "dialect": "oracle"}),
    ],
)
def test_a_form_refuses_what_no_run_could_use(form, wrong):
    with pytest.raises(ParameterTypeError):
        form.validate_parameters(wrong)


def test_every_command_has_a_deployment():
    assert {one.name for one in serve.RERANK} == {f"rerank-{one.callback.__name__}" for one in commands()}


def commands():
    """Those of the command line."""
    return serve.rerank.app.registered_commands
