"""Settings and fixtures of all tests."""

import os

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")

# Workers of pytest-xdist share the cores, and small matrices do not benefit from a second thread: with one thread, the
# checks of scikit-learn take a fifth of the time. This runs before anything imports numpy.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _limit in THREAD_LIMITS:
        os.environ.setdefault(_limit, "1")

# Tests use no Prefect server of the user and send no usage statistics. This runs before Prefect is imported.
os.environ.pop("PREFECT_API_URL", None)
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import numpy as np
import pytest
from hypothesis import settings

from relmap.decisions import ProtocolDecisions, decide

settings.register_profile("relmap", deadline=None)  # on a busy machine an example may exceed any deadline
settings.load_profile("relmap")

# Workers take files in this order; a long file that starts last would leave other workers idle
LONG_FILES = (
    "test_end_to_end.py",
    "test_wheel.py",
    "test_disturbed_stages.py",
    "test_twins.py",
    "test_estimator_scikit_learn.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first."""
    order = {name: index for index, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def decisions() -> ProtocolDecisions:
    """Make 3,000 decisions of 3 labels in 300 groups; decisions for label 1 are correct less often."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(3000, 3)) * 2
    true_logits = logits - np.array([0.0, 1.5, 0.0])
    labels = (true_logits + generator.gumbel(size=true_logits.shape)).argmax(axis=1)
    group = np.array([f"q{row // 10}" for row in range(3000)])
    for array in (logits, labels, group):
        array.flags.writeable = False
    return ProtocolDecisions(decision=decide(logits), logits=logits, label=labels, group=group)
