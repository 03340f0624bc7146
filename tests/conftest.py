"""Fixtures that more than one file of tests needs."""

import os

# Prefect, when a test needs it, is ours and quiet: this runs before anything imports it.
os.environ.pop("PREFECT_API_URL", None)
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

from pathlib import Path

import numpy as np
import pytest

from relmap.decisions import FixedDecisions, decide
from tasks.settings.params import Params, load_params


@pytest.fixture(scope="session")
def decisions() -> FixedDecisions:
    """3,000 fixed decisions over 3 labels, in 300 groups, right less often where label 1 is decided."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(3000, 3)) * 2
    truth = logits - np.array([0.0, 1.5, 0.0])
    labels = (truth + generator.gumbel(size=truth.shape)).argmax(axis=1)
    group = np.array([f"q{row // 10}" for row in range(3000)])
    for array in (logits, labels, group):
        array.flags.writeable = False
    return FixedDecisions(logits, labels, decide(logits), group)


@pytest.fixture(scope="session")
def quick_params() -> Params:
    """Those of the project under three calibrators, with less to compute."""
    read = load_params(Path(__file__).resolve().parent.parent / "params.yaml")
    less = {"projection": {"epochs": 5}, "metrics": {"spread_permutations": 20, "resamples": 300}}
    sections = {name: getattr(read, name).model_copy(update=values) for name, values in less.items()}
    return read.model_copy(update={"calibrators": ("uncal", "ts", "diag"), **sections})


@pytest.fixture(scope="session")
def trained_project(tmp_path_factory) -> Path:
    """The folder of a tiny project in which the stage train@wands has finished."""
    from tests.tiny_project import finished_in

    return finished_in(tmp_path_factory.mktemp("trained"), "train@wands")


@pytest.fixture
def manifest(trained_project, tmp_path, monkeypatch):
    """The manifest of that stage, in a copy of the project."""
    from tests.tiny_project import copy_here, declared, read_manifest

    monkeypatch.chdir(tmp_path)
    copy_here(trained_project)
    return read_manifest(declared("train@wands").manifest)
