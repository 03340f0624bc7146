"""Run the tests of the library without torch: tests that fit the published lattice are left out or skipped."""

from collections.abc import Generator
from importlib.util import find_spec

import pytest

HAS_TORCH = find_spec("torch") is not None
NEED_TORCH = [
    "laws/test_authors_prep.py",
    "projection/test_mrp.py",
    "projection/test_mrp_exact.py",
    "projection/test_surface.py",
    "projection/test_lattices_torch.py",
]
collect_ignore = [] if HAS_TORCH else NEED_TORCH


def pytest_report_header() -> list[str]:
    """Name the files that are left out."""
    return [f"not run without torch: {', '.join(collect_ignore)}"] if collect_ignore else []


def skip_if_torch_is_missing() -> Generator[None, object, object]:
    """Skip a test if the library raises that its fit needs torch, as under the protocol of the paper."""
    try:
        return (yield)
    except Exception as error:
        if HAS_TORCH or "the package torch is not installed" not in str(error):
            raise
        pytest.skip("the fit needs torch")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Skip a test whose fixture needs torch."""
    return (yield from skip_if_torch_is_missing())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that needs torch."""
    return (yield from skip_if_torch_is_missing())
