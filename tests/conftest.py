"""What the tests of the library and of the pipeline share."""

import os

from tests.mutation.copies import THREAD_LIMITS

# Workers of pytest-xdist share the cores. A second thread for small matrices waits more than it computes: with one
# thread the checks of scikit-learn take a fifth of the time. This runs before anything imports numpy.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _limit in THREAD_LIMITS:
        os.environ.setdefault(_limit, "1")

# Prefect, when a test needs it, is ours and quiet: this runs before anything imports it.
os.environ.pop("PREFECT_API_URL", None)
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import numpy as np
import pytest
from hypothesis import settings

from relmap.decisions import FixedDecisions, decide

settings.register_profile("relmap", deadline=None)  # a busy machine takes longer than any deadline for an example
settings.load_profile("relmap")

# The workers take files in this order; a long file that starts last leaves one of them without work
LONG_FILES = (
    "test_end_to_end.py",
    "test_wheel.py",
    "test_disturbed_stages.py",
    "test_twins.py",
    "test_scikit_learn.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first."""
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


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
