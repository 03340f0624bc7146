"""Prefect task: one calibrator, one protocol seed. A finished fit is kept, and found again under what it depends on."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import TaskRunContext
from prefect.serializers import CompressedPickleSerializer

from relmap import splits
from relmap.calibrators.registry import CALIBRATORS, fit_prefixes
from relmap.hashing import sha256_of_arrays
from tasks.provenance.hashing import code_fingerprint, imported_files, imported_modules
from tasks.records import results

# its checksum tells a kept fit that rotted, which is fitted again, not believed: a pickle may be read as another one
WITH_CHECKSUM = CompressedPickleSerializer(compressionlib="gzip")
LIBRARIES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}  # that a calibrator may compute with


@cache
def _code_of(calibrator: str) -> list[str]:
    """The code that a calibrator's own file reaches, and the versions of the libraries that it computes with."""
    file = Path(*CALIBRATORS[calibrator].fit.__module__.split(".")).with_suffix(".py")
    used = {
        name.split(".")[0] for reached in imported_files(file, packages=False) for name in imported_modules(reached)
    }
    return [code_fingerprint(file), *(f"{name}{version(LIBRARIES[name])}" for name in sorted(used & LIBRARIES.keys()))]


def fit_key(_context: TaskRunContext | None, arguments: dict[str, Any]) -> str:
    """Return the name under which a fit is stored: a readable start, and a hash of everything that it depends on.

    The key is a file name, and file systems allow 255 bytes.

    Args:
        _context: Unused; Prefect passes it.
        arguments: The arguments of `calibrate`.

    Returns:
        The calibrator, the seed and a hash of both, of the rows, the settings, the code and the versions of libraries.
    """
    calibrator, seed, few = arguments["calibrator"], arguments["seed"], arguments["few"]
    parts: splits.ValidationRows = arguments["parts"]
    rows = parts.rows_for_calibrator(calibrator)
    content = [
        calibrator,
        seed,
        list(few),
        dict(arguments["chosen"] or {}),
        sha256_of_arrays(rows.logits, rows.labels),
        sha256_of_arrays(parts.calibrator_fit.logits, parts.calibrator_fit.labels) if few else None,
        _code_of(calibrator),
    ]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return f"{calibrator}-{seed}-{digest[:32]}"


@task(
    task_run_name="calibrate/{calibrator}/{seed}",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=fit_key),
    persist_result=True,
    result_serializer=WITH_CHECKSUM,
)
def calibrate(
    parts: splits.ValidationRows,
    calibrator: str,
    seed: int,
    few: tuple[int, ...] = (),
    chosen: Mapping[str, int] | None = None,
) -> results.Calibrated:
    """Fit `calibrator` with its `chosen` settings on its rows, and on only the first calibrator-fit rows, by `few`."""
    rows, first = parts.rows_for_calibrator(calibrator), parts.calibrator_fit
    steps = [len(first), *few] if rows is first else few  # together, since equal numbers share one fit
    fits = fit_prefixes(calibrator, first.logits, first.labels, steps, seed=seed, settings=chosen)
    if rows is not first:
        fits = fit_prefixes(calibrator, rows.logits, rows.labels, [len(rows)], seed=seed, settings=chosen) + fits
    return results.Calibrated(calibrator, seed, len(rows), fits[0], dict(zip(few, fits[1:], strict=True)))
