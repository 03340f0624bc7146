"""MRP's lattice as published: label-wise monotone curves, fitted by Adam (paper, sections 3.4 and 4.3).

The problem is convex and separates over labels; B fits and their labels descend side by side, in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Literal

import numpy as np
import torch
from torch.nn.functional import softplus

from tasks.projection.cells import Cells, Triple, sort_into_cells
from tasks.projection.curves import place
from tasks.projection.device import device_turn
from tasks.protocol.params import ProjectionParams

Several = np.ndarray | Sequence[np.ndarray]  # (B, m), or of each of B fits its own (m,), or (m,) that all share
Triples = tuple[Several, Several, Several]  # confidence, decision and correct; the confidence is never shared


@dataclass(frozen=True)
class LatticeSettings:
    """The paper's settings; what it leaves open is ours: uniform knots, the last epoch, the rows a label needs."""

    knots: int = 8  # J on [0, 1]; at least 3
    knots_at: Literal["uniform", "quantiles"] = "uniform"  # or at quantiles of the projection-fit confidences
    smoothness: float = 1e-4  # rho, the weight of the squared second differences
    learning_rate: float = 0.03
    epochs: int = 400
    selection: Literal["last", "best"] = "last"  # or the epoch with the lowest loss on projection-selection
    minimum_rows: int = 20  # a label with fewer projection-fit rows takes the shared curve

    @classmethod
    def chosen(cls, params: ProjectionParams) -> LatticeSettings:
        """As params.yaml has them."""
        return cls(**params.model_dump())

    @property
    def places(self) -> np.ndarray:
        """Where the knots lie, `(J,)` in [0, 1], or where they are placed if they lie at quantiles."""
        return np.linspace(0.0, 1.0, self.knots)


def objective(
    values: np.ndarray, confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, smoothness: float
) -> np.ndarray:
    """What the fit minimises, `(B,)`: the mean log loss of `correct` plus rho times the mean squared bend.

    `values (B, K, J)` on uniform knots, `confidence (B, m)`, `decision` and `correct` `(B, m)` or `(m,)`.
    """
    interval, weight = place(confidence, np.linspace(0.0, 1.0, values.shape[2]))
    fit, decision = np.arange(len(values))[:, None], np.broadcast_to(decision, np.shape(confidence))
    t = (1 - weight) * values[fit, decision, interval] + weight * values[fit, decision, interval + 1]
    loss = np.logaddexp(0, t) - np.asarray(correct, dtype=np.float64) * t
    return np.asarray(loss.mean(axis=1) + smoothness * (np.diff(values, n=2, axis=2) ** 2).mean(axis=(1, 2)))


def fit_lattices(
    confidence: Several,
    decision: Several,
    correct: Several,
    *,
    n_labels: int,
    settings: LatticeSettings,
    selection: Triples | None = None,
    device: str = "cpu",
) -> np.ndarray:
    """Confidence `(B, m)` in [0, 1], decision and correct `(B, m)` or `(m,)`, to lattice values `(B, K, J)`.

    The fits may have different numbers of rows: then each of the three is a sequence of B arrays. `selection` are the
    projection-selection triples, read only if `settings.selection` is `best`: then each fit keeps the first epoch
    with the lowest loss there. The same rows in any order give the same bits on one machine, and on the CPU each fit
    of a batch the same as alone. A label without rows keeps its start. Raises ValueError if `best` has no selection
    rows.
    """
    if settings.selection == "best" and (selection is None or any(len(one) == 0 for one in selection[0])):
        raise ValueError("selection 'best' needs projection-selection rows")

    def cells(triples: Triples) -> Cells:
        return sort_into_cells(_each(triples), n_labels=n_labels, knots=settings.places, device=device)

    start = np.stack([_start(fit, n_labels, settings.places) for fit in _each((confidence, decision, correct))])
    judge = cells(selection) if settings.selection == "best" and selection is not None else None
    with _one_thread(), device_turn(device):
        values = _descend(torch.from_numpy(start).to(device), cells((confidence, decision, correct)), judge, settings)
        return values.cpu().numpy()


def _each(triples: Triples) -> list[Triple]:
    """The rows of each fit, with what all share given to each."""
    confidence, *others = triples
    shared = [isinstance(part, np.ndarray) and part.ndim == 1 for part in others]
    own = [[part] * len(confidence) if one else part for part, one in zip(others, shared, strict=True)]
    return [(np.asarray(c, dtype=np.float64), d, z) for c, d, z in zip(confidence, *own, strict=True)]


def _start(fit: Triple, n_labels: int, knots: np.ndarray) -> np.ndarray:
    """Where Adam starts, `(K, J)`: b in the first column, eta in the others.

    Each label starts at its base rate, on a line of slope 1.4 in c that crosses it at c = 5/7 (for J = 8: 0.2 from
    knot to knot, through the sixth). The paper names no start; from zeros 400 epochs end visibly short of the
    optimum.
    """
    _, decision, correct = fit
    total = np.bincount(decision, minlength=n_labels)
    right = np.bincount(decision[np.asarray(correct) != 0], minlength=n_labels)
    theta = np.empty((n_labels, len(knots)))
    theta[:, 0] = np.log((right + 1) / (total - right + 1)) - 1.4 * 5 / 7
    theta[:, 1:] = np.log(np.expm1(1.4 * np.diff(knots)))
    return theta


def _descend(theta: torch.Tensor, cells: Cells, judge: Cells | None, settings: LatticeSettings) -> torch.Tensor:
    """Adam from `theta (B, K, J)`, (b, eta) of every curve, to the values `(B, K, J)` of the chosen epoch.

    Adam is written out (Kingma and Ba, 2015, with their defaults): torch's own loads a compiler at its first step,
    which takes longer than all the epochs. Each sum runs over the last axis alone, so that no fit feels its
    neighbours, and in the same order for each knot, so that rounding cannot make the values fall.
    """
    _, labels, knots = theta.shape
    identity = torch.eye(knots, dtype=theta.dtype, device=theta.device)
    below = torch.ones_like(identity).tril()
    bend = identity.diff(n=2, dim=0)
    bending = 2 * settings.smoothness / (labels * (knots - 2)) * bend.T @ bend
    first, second = torch.zeros_like(theta), torch.zeros_like(theta)
    values = _values(theta, below)
    kept, lowest = values, torch.full_like(theta[:, 0, 0], torch.inf)
    for epoch in range(1, settings.epochs + 1):
        slope = cells.slope(values) + (values[..., None, :] * bending).sum(dim=-1)
        gradient = (slope[..., None, :] * below.T).sum(dim=-1)  # b lifts every knot, an increment those after it
        gradient[..., 1:] *= torch.sigmoid(theta[..., 1:])
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        size = (second / (1 - 0.999**epoch)).sqrt() + 1e-8
        theta = theta - settings.learning_rate * (first / (1 - 0.9**epoch)) / size
        values = _values(theta, below)
        if judge is not None:
            loss = judge.loss(values)
            kept = torch.where((loss < lowest)[:, None, None], values, kept)
            lowest = torch.minimum(loss, lowest)
    return values if judge is None else kept


def _values(theta: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """(b, eta) to a_j = b + the sum of softplus(eta_r) over r < j, both `(B, K, J)`."""
    steps = torch.cat([theta[..., :1], softplus(theta[..., 1:])], dim=-1)
    return (steps[..., None, :] * below).sum(dim=-1)


_NO_OTHER_FIT = Lock()  # the number of threads belongs to the process, so fits of two threads take turns


@contextmanager
def _one_thread() -> Iterator[None]:
    """One torch thread: at these sizes more do not help, and where they cut an array can show in its last bits."""
    with _NO_OTHER_FIT:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
