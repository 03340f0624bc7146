"""The variants of the ablation by name: what each makes of a fixed decision and its confidence (paper, section 3.5).

The one contract: `fit(Batch) -> list of B values`, one for each calibrator, each a frozen value that maps logit of the
confidence `(n,)` and decision `(n,)` to logit of the reliability `(n,)` float64 and names its own `violations()`.
Everything ranks and compares by that logit: the reliability itself saturates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import expit

from tasks.projection.curves import Confidence, SharedCurve, with_fallbacks
from tasks.projection.lattice import LatticeSettings, Triples, fit_lattices


class Variant(Protocol):
    """A fitted variant."""

    def __call__(self, confidence_logit: np.ndarray, decision: np.ndarray) -> np.ndarray:
        """logit of the confidence `(n,)` and decision `(n,)` to logit of the reliability `(n,)`."""
        ...

    def violations(self) -> list[str]:
        """What is wrong with it, a sentence for each place; empty if nothing is."""
        ...


@dataclass(frozen=True, eq=False)
class Batch:
    """The projection-fit rows of one protocol seed, under B calibrators that share the decisions."""

    confidence_logit: np.ndarray  # (B, m)
    decision: np.ndarray  # (m,) 0..K-1
    correct: np.ndarray  # (m,) bool
    n_labels: int  # K
    settings: LatticeSettings
    selection: Triples | None = None  # the same three of the projection-selection rows, where the settings use them
    device: str = "cpu"

    def lattices(self, *, shared: bool) -> np.ndarray:
        """Values `(B, K, J)`, or `(B, 1, J)` of the curve that all labels share: all B in one fit."""

        def triples(confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> Triples:
            return expit(confidence_logit), np.zeros_like(decision) if shared else decision, correct

        return fit_lattices(
            *triples(self.confidence_logit, self.decision, self.correct),
            n_labels=1 if shared else self.n_labels,
            settings=self.settings,
            selection=None if self.selection is None else triples(*self.selection),
            device=self.device,
        )

    @cached_property
    def shared(self) -> np.ndarray:
        """Values `(B, J)` of the shared curves: fitted once, for `shared_1d` and for the rare labels of `mrp`."""
        return self.lattices(shared=True)[:, 0]


def fit_confidence(batch: Batch) -> list[Variant]:
    """No projection at all."""
    return [Confidence() for _ in batch.confidence_logit]


def fit_shared(batch: Batch) -> list[Variant]:
    """One curve for all labels, however few rows there are; without any it is the identity."""
    rows = np.array([len(batch.decision)])
    knots = batch.settings.places
    return [SharedCurve(with_fallbacks(knots, curve[None], rows, curve, least=1)) for curve in batch.shared]


def fit_labelwise(batch: Batch) -> list[Variant]:
    """MRP as published; labels with too few rows fall back on the shared curve, those with none on the identity."""
    rows = np.bincount(batch.decision, minlength=batch.n_labels)
    knots, least = batch.settings.places, batch.settings.minimum_rows
    fits = zip(batch.lattices(shared=False), batch.shared, strict=True)
    return [with_fallbacks(knots, values, rows, shared, least) for values, shared in fits]


VARIANTS: dict[str, Callable[[Batch], list[Variant]]] = {
    "confidence": fit_confidence,
    "shared_1d": fit_shared,
    "mrp": fit_labelwise,
}


def project_batch(
    confidence_logit: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    n_labels: int,
    settings: LatticeSettings,
    *,
    selection: Triples | None = None,
    device: str = "cpu",
) -> dict[str, list[Variant]]:
    """Fit every variant for B calibrators at once: variant name to B fitted values, in the order of the calibrators.

    `confidence_logit (B, m)`, `decision (m,)` 0..K-1 and `correct (m,)` are the projection-fit rows; `selection` the
    same three of the projection-selection rows, needed if `settings.selection` is `best`.
    """
    batch = Batch(confidence_logit, decision, correct, n_labels, settings, selection, device)
    return {name: fit(batch) for name, fit in VARIANTS.items()}
