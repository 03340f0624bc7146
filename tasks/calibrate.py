"""Prefect task: fit one calibrator for one protocol seed. A cached fit is reused while its inputs are the same."""

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

from relmap.calibrators.registry import CALIBRATORS, fit_prefixes
from relmap.io.hashing import sha256_of_arrays
from relmap.projection import rows as splits
from tasks.provenance.hashing import code_fingerprint, imported_files, imported_modules
from tasks.records.durations import measured
from tasks.results.values import CalibratorFit

# gzip has a checksum, so a damaged file is an error, and the fit is repeated. Without a checksum, a damaged pickle may
# load with other values.
SERIALIZER = CompressedPickleSerializer(compressionlib="gzip")
NUMERICAL_LIBRARIES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}  # module -> distribution


@cache
def _describe_code(calibrator: str) -> list[str]:
    """Return the fingerprint of the code of a calibrator, and the versions of the numerical libraries that it uses."""
    file = Path(*CALIBRATORS[calibrator].fit.__module__.split(".")).with_suffix(".py")
    imported: set[str] = set()
    for imported_file in imported_files(file, packages=False):
        imported.update(module.split(".")[0] for module in imported_modules(imported_file))
    libraries = sorted(imported & NUMERICAL_LIBRARIES.keys())
    return [code_fingerprint(file), *(f"{name}{version(NUMERICAL_LIBRARIES[name])}" for name in libraries)]


def fit_key(_context: TaskRunContext | None, arguments: dict[str, Any]) -> str:
    """Compute the cache key of a fit.

    The key is a file name, and file systems allow 255 bytes.

    Args:
        _context: Unused; Prefect passes it.
        arguments: Arguments of `calibrate`.

    Returns:
        The calibrator, the seed, and a hash of everything that the fit depends on: calibrator, seed, row counts,
        settings, rows, code, versions of libraries, and the fields of the result.
    """
    calibrator = arguments["calibrator"]
    seed = arguments["seed"]
    row_counts = arguments["row_counts"]
    parts: splits.ValidationRows = arguments["parts"]
    rows = parts.rows_for_calibrator(calibrator)
    calibrator_fit_hash = None
    if row_counts:
        calibrator_fit_hash = sha256_of_arrays(parts.calibrator_fit.logits, parts.calibrator_fit.label)
    content = [
        calibrator,
        seed,
        list(row_counts),
        dict(arguments["settings"] or {}),
        sha256_of_arrays(rows.logits, rows.label),
        calibrator_fit_hash,
        _describe_code(calibrator),
        CalibratorFit._fields,
    ]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return f"{calibrator}-{seed}-{digest[:32]}"


@task(
    task_run_name="calibrate/{calibrator}/{seed}",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=fit_key),
    persist_result=True,
    result_serializer=SERIALIZER,
)
@measured("fit")
def calibrate(
    parts: splits.ValidationRows,
    calibrator: str,
    seed: int,
    row_counts: tuple[int, ...] = (),
    settings: Mapping[str, int] | None = None,
) -> CalibratorFit:
    """Fit a calibrator on all of its rows, and again on the first n calibrator-fit rows for each n in `row_counts`.

    Args:
        parts: Validation rows of the protocol seed.
        calibrator: Key of the calibrator.
        seed: Protocol seed.
        row_counts: Numbers n of calibrator-fit rows for further fits.
        settings: Settings of the calibrator that differ from its defaults.

    Returns:
        The fitted calibrators.
    """
    rows = parts.rows_for_calibrator(calibrator)
    calibrator_fit = parts.calibrator_fit
    if rows is calibrator_fit:  # one call, which fits once if a row count is the number of all rows
        model, *prefix_models = fit_prefixes(
            calibrator,
            rows.logits,
            rows.label,
            [len(rows), *row_counts],
            seed=seed,
            settings=settings,
            published=True,
        )
    else:
        (model,) = fit_prefixes(
            calibrator, rows.logits, rows.label, [len(rows)], seed=seed, settings=settings, published=True
        )
        prefix_models = fit_prefixes(
            calibrator,
            calibrator_fit.logits,
            calibrator_fit.label,
            row_counts,
            seed=seed,
            settings=settings,
            published=True,
        )
    return CalibratorFit(
        calibrator=calibrator,
        seed=seed,
        n_rows=len(rows),
        model=model,
        models_by_row_count=dict(zip(row_counts, prefix_models, strict=True)),
    )
