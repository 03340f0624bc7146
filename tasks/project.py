"""Prefect task: one protocol seed, every calibrator and variant in as few batches as possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore

import numpy as np
from filelock import FileLock
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.lattice import LatticeSettings
from tasks.projection.variants import Variant, project_batch
from tasks.protocol.decisions import FixedDecisions, confidence_logit
from tasks.protocol.results import Calibrated, Projected, ProjectedDecisions

_ONE_AT_A_TIME = Semaphore(1)


@contextmanager
def device_turn(device: str) -> Iterator[None]:
    """Hold the accelerator alone, across threads and processes; the CPU needs no turn."""
    if device == "cpu":
        yield
        return
    with _ONE_AT_A_TIME, FileLock(Path(".prefect") / f"{device.replace(':', '_')}.lock"):
        yield


def lattices(fitted: dict[str, Variant]) -> dict[str, Curves]:
    """The curves of those variants that are lattices."""
    curves = {name: value.curves if isinstance(value, SharedCurve) else value for name, value in fitted.items()}
    return {name: value for name, value in curves.items() if isinstance(value, Curves)}


@task(task_run_name="project/{seed}", cache_policy=NO_CACHE, tags=["gpu"])
def project(
    fitting: FixedDecisions,
    selection: FixedDecisions,
    test: FixedDecisions,
    calibrated: list[Calibrated],
    seed: int,
    settings: LatticeSettings,
    device: str,
) -> Projected:
    """Fit every variant on the projection-fit rows of `seed`, then read each on the test rows.

    `fitting` and `selection` are projection-fit and projection-selection rows; test rows are only read.
    """

    def confidences(rows: FixedDecisions) -> np.ndarray:
        return np.stack([confidence_logit(fit.value(rows.logits), rows.decision) for fit in calibrated])

    with device_turn(device):
        variants = project_batch(
            confidences(fitting),
            fitting.decision,
            fitting.correct,
            n_labels=fitting.n_labels,
            settings=settings,
            selection=(confidences(selection), selection.decision, selection.correct),
            device=device,
        )
    rows = []
    for place, fit in enumerate(calibrated):
        log_probabilities = fit.value(test.logits)
        confidence = confidence_logit(log_probabilities, test.decision)
        fitted = {name: values[place] for name, values in variants.items()}
        rows.append(
            ProjectedDecisions(
                calibrator=fit.calibrator,
                decision=test.decision.copy(),
                log_probabilities=log_probabilities,
                reliability_logits={name: value(confidence, test.decision) for name, value in fitted.items()},
                lattices=lattices(fitted),
            )
        )
    return Projected(seed, rows, gates=[])
