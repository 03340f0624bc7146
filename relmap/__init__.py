"""Reliability maps: the probability that each fixed decision of a relevance model is correct."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relmap.errors import InputError
    from relmap.estimator import ReliabilityMap
    from relmap.maps.document import load_map

__version__ = "0.2.0"
__all__ = ["InputError", "ReliabilityMap", "__version__", "load_map"]

_MODULES = {  # imported when first used, so that `import relmap` imports no other package
    "InputError": "relmap.errors",
    "ReliabilityMap": "relmap.estimator",
    "load_map": "relmap.maps.document",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
