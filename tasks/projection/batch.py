"""Everything that the variants of one protocol seed are fitted on, and the lattices that several of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from tasks.projection.cells import Triple
from tasks.projection.curves import Curves, Fallback, SharedCurve, fallbacks, with_fallbacks
from tasks.projection.exact import Exact, fit_exact
from tasks.projection.lattice import LatticeSettings, Triples, fit_lattices
from tasks.projection.rows import Rows, rows_under
from tasks.protocol.results import Calibrator
from tasks.protocol.splits import ValidationRows


@dataclass(frozen=True, eq=False)
class Batch:
    """Everything that the variants of one protocol seed are fitted on; what several of them need is fitted once."""

    fit: Rows  # projection-fit
    n_labels: int  # K
    settings: LatticeSettings
    selection: Rows | None = None  # projection-selection, by which the penalty of label-only shifts is chosen
    device: str = "cpu"
    surfaces: int | None = None  # how many of the first fits get a surface, which takes the longest; all by default

    @classmethod
    def under(
        cls,
        calibrators: Sequence[Calibrator],
        parts: ValidationRows,
        settings: LatticeSettings,
        device: str,
        surfaces: int | None = None,
    ) -> Batch:
        """The validation rows of one protocol seed under several calibrators."""
        selection = rows_under(calibrators, parts.projection_selection) if len(parts.projection_selection) else None
        fit = rows_under(calibrators, parts.projection_fit)
        return cls(fit, parts.projection_fit.n_labels, settings, selection, device, surfaces)

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows behind each label, `(K,)`."""
        return np.bincount(self.fit.decision, minlength=self.n_labels)

    @cached_property
    def fallback(self) -> tuple[Fallback, ...]:
        """What each label stands on."""
        return fallbacks(self.rows, self.settings.minimum_rows)

    def triples(self, rows: Rows, *, shared: bool) -> list[Triple]:
        """Confidence, decision and correct of each fit, as the lattice takes them; all of one label if `shared`."""
        decision = np.zeros_like(rows.decision) if shared else rows.decision
        return [(confidence, decision, rows.correct) for confidence in expit(rows.confidence_logit)]

    @cached_property
    def shared(self) -> np.ndarray:
        """Values `(B, J)` of the curves that all labels share."""
        return lattices([self], shared=True)[0][:, 0]

    @cached_property
    def stand_in(self) -> np.ndarray:
        """`shared` where a label takes it; where none does nobody reads it, and it is not fitted for that."""
        return (
            self.shared
            if "shared" in self.fallback
            else np.zeros((len(self.fit.confidence_logit), self.settings.knots))
        )

    @cached_property
    def adam(self) -> np.ndarray:
        """Values `(B, K, J)` of MRP as published."""
        return lattices([self], shared=False)[0]

    @cached_property
    def exact(self) -> Exact:
        """The convex optimum of the same problem."""
        return fit_exact(
            expit(self.fit.confidence_logit),
            self.fit.decision,
            self.fit.correct,
            n_labels=self.n_labels,
            settings=self.settings,
            device=self.device,
        )

    def shared_curves(self) -> list[SharedCurve]:
        """The shared curve of each fit; without any rows it is the identity."""
        rows, knots = np.array([len(self.fit.decision)]), self.settings.places
        return [SharedCurve(with_fallbacks(knots, curve[None], rows, curve, least=1)) for curve in self.shared]

    def curves(self, values: np.ndarray, stand_in: np.ndarray | None = None) -> list[Curves]:
        """Fitted `values (B, K, J)` with `stand_in (B, J)`, or the batch's own, where few rows lie behind a label."""
        fits = zip(values, self.stand_in if stand_in is None else stand_in, strict=True)
        knots, least = self.settings.places, self.settings.minimum_rows
        return [with_fallbacks(knots, own, self.rows, shared, least) for own, shared in fits]


def lattices(batches: Sequence[Batch], *, shared: bool) -> list[np.ndarray]:
    """Of each batch the values `(B, K, J)`, or `(B, 1, J)` of what all labels share: one descent for all.

    The batches have their settings, number of labels and device in common.
    """
    if not batches:
        return []
    first = batches[0]
    fits = [one for batch in batches for one in batch.triples(batch.fit, shared=shared)]
    values = fit_lattices(
        *_in_columns(fits),
        n_labels=1 if shared else first.n_labels,
        settings=first.settings,
        device=first.device,
    )
    return np.split(values, np.cumsum([len(batch.fit.confidence_logit) for batch in batches])[:-1])


def _in_columns(fits: Sequence[Triple]) -> Triples:
    confidence, decision, correct = zip(*fits, strict=True)
    return confidence, decision, correct
