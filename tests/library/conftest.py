"""Leave out the tests of the published lattice where torch is missing: the library runs without it."""

from importlib.util import find_spec

NEED_TORCH = ["test_exact.py", "test_lattice.py", "test_surface.py"]
collect_ignore = NEED_TORCH if find_spec("torch") is None else []


def pytest_report_header() -> list[str]:
    """Name the files that are left out."""
    return [f"not run without torch: {', '.join(collect_ignore)}"] if collect_ignore else []
