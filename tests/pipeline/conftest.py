"""Fixtures of the tests of the pipeline."""

from pathlib import Path

import pytest

from tasks.settings.params import Params, load_params


@pytest.fixture(scope="session")
def quick_params() -> Params:
    """Parameters of the project with three calibrators and less to compute."""
    read = load_params(Path(__file__).resolve().parents[2] / "params.yaml")
    reduced = {"projection": {"epochs": 5}, "metrics": {"spread_permutations": 20, "resamples": 300}}
    sections = {name: getattr(read, name).model_copy(update=values) for name, values in reduced.items()}
    return read.model_copy(update={"calibrators": ("uncal", "ts", "diag"), **sections})
