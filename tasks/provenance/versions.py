"""Versions of Python and of the libraries that results depend on."""

import platform
from importlib.metadata import version

LIBRARIES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "lightgbm",
    "polars",
    "datasets",
    "prefect",
    "dvc",
    "great-expectations",
)


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    return {"python": platform.python_version()} | {library: version(library) for library in LIBRARIES}
