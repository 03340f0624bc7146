"""MRP's lattice as published: label-wise monotone curves, fitted by Adam (paper, sections 3.4 and 4.3).

The problem is convex and separates over labels; B fits and their labels descend side by side, in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from scipy.special import logit
from torch.nn.functional import softplus

from tasks.projection.cells import Cells, Triple, sort_into_cells
from tasks.projection.curves import place
from tasks.projection.device import device_turn
from tasks.protocol.params import ProjectionParams

Several = np.ndarray | Sequence[np.ndarray]  # (B, m), or of each of B fits its own (m,), or (m,) that all share
Triples = tuple[Several, Several, Several]  # confidence, decision and correct; the confidence is never shared


@dataclass(frozen=True)
class LatticeSettings:
    """The paper's settings; the rows that a label needs are for one's own predictions."""

    knots: int = 8  # J, uniform on [0, 1]; at least 3
    smoothness: float = 1e-4  # rho, the weight of the squared second differences
    learning_rate: float = 0.03
    epochs: int = 400
    minimum_rows: int = 0  # a label with fewer projection-fit rows takes the shared curve

    @classmethod
    def chosen(cls, params: ProjectionParams) -> LatticeSettings:
        """As params.yaml has them."""
        return cls(**params.model_dump())

    @property
    def places(self) -> np.ndarray:
        """Where the knots lie, `(J,)` in [0, 1]."""
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
    device: str = "cpu",
) -> np.ndarray:
    """Confidence `(B, m)` in [0, 1], decision and correct `(B, m)` or `(m,)`, to lattice values `(B, K, J)`.

    The fits may have different numbers of rows: then each of the three is a sequence of B arrays. The same rows in any
    order give the same bits on one machine, and on the CPU each fit of a batch the same as alone. A label without
    rows keeps its start.
    """
    fits = _each((confidence, decision, correct))
    cells = sort_into_cells(fits, n_labels=n_labels, knots=settings.places, device=device)
    start = np.tile(first_curve(settings.knots), (len(fits), n_labels, 1))
    with _one_thread(), device_turn(device):
        return _descend(torch.from_numpy(start).to(device), cells, settings).cpu().numpy()


def _each(triples: Triples) -> list[Triple]:
    """The rows of each fit, with what all share given to each."""
    confidence, *others = triples
    shared = [isinstance(part, np.ndarray) and part.ndim == 1 for part in others]
    own = [[part] * len(confidence) if one else part for part, one in zip(others, shared, strict=True)]
    return [(np.asarray(c, dtype=np.float64), d, z) for c, d, z in zip(confidence, *own, strict=True)]


def first_curve(knots: int) -> np.ndarray:
    """Where every curve starts, `(J,)`: b, then eta: the logit of the line from .03 to .97 over the knots."""
    start = logit(np.linspace(0.03, 0.97, knots))
    return np.append(start[0], np.log(np.expm1(np.diff(start))))


def _descend(theta: torch.Tensor, cells: Cells, settings: LatticeSettings) -> torch.Tensor:
    """Adam from `theta (B, K, J)`, (b, eta) of every curve, to the values `(B, K, J)` of the last epoch.

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
    for epoch in range(1, settings.epochs + 1):
        slope = cells.slope(values) + (values[..., None, :] * bending).sum(dim=-1)
        gradient = (slope[..., None, :] * below.T).sum(dim=-1)  # b lifts every knot, an increment those after it
        gradient[..., 1:] *= torch.sigmoid(theta[..., 1:])
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        size = (second / (1 - 0.999**epoch)).sqrt() + 1e-8
        theta = theta - settings.learning_rate * (first / (1 - 0.9**epoch)) / size
        values = _values(theta, below)
    return values


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
