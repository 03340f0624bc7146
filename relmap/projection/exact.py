"""MRP's lattice at its convex optimum: the published problem, solved by a projected Newton method to a certificate.

The problem separates over labels (all share the 1/m and the rho / (K (J - 2)) of the paper's objective), so B fits of
K labels are B * K problems in J variables, descended side by side. Each is solved in the coordinates (b, increments),
where the paper's monotonicity is a box: b is free, each increment lies in [1e-6, 1000].

The least increment leaves no flat piece, hence no ties that the confidence would have told apart; the largest keeps
finite the labels whose confidences all but coincide. A label for which some threshold on the confidence parts all
wrong rows from all right ones (only wrong, only right or no rows among them) has no unique minimum: there, and
everywhere if rho is 0, 1e-6 times the squared distance to the base-rate start is added. All else is the objective as
published.
"""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from relmap.projection.device import lock_device
from relmap.projection.lattice import MAX_NODE_RISE, N_NODES, FitRows, sort_into_cells, uniform_knots
from relmap.settings import ProjectionParams

MIN_INCREMENT = 1e-6
MAX_INCREMENT = 1e3
RIDGE = 1e-6
TOLERANCE = 1e-12  # where Newton stops; rounding allows no less
ROUNDING_TOLERANCE = 4e-15  # what the objective may rise by: near the optimum its last digits say nothing
MAX_ITERATIONS = (
    2001  # over the nodes; a fit takes about ten, and some with hardly any wrong (or correct) row many hundreds
)


class ExactFit(NamedTuple):
    """The optimum of B fits, and what proves it."""

    values: np.ndarray  # (B, K, J) float64, logit of the reliability at each knot
    kkt: np.ndarray  # (B, K) how far a unit gradient step, cut to the box, would move (b, increments) at most
    objective: np.ndarray  # (B,) the lowest value of the stated problem, its ridge included
    ridged: np.ndarray  # (B, K) bool, labels that needed the ridge


def fit_exact(fits: Sequence[FitRows], *, n_labels: int, settings: ProjectionParams, device: str = "cpu") -> ExactFit:
    """Confidence, decision and correct of B fits, each with rows of its own, to their optimal curves.

    Of `settings` only the knots and the smoothness are read. The order of the rows does not matter, nor does a fit
    feel its neighbours. A label without rows keeps its start.

    On `cpu` the passes over the rows run in NumPy, on any other device of torch there, in float64; all else stays on
    the host. On torch's own CPU (`cpu:0`) the objectives agree to rounding, and so do the values unless hardly any
    smoothness leaves some of them all but free. We have not run it on CUDA; the tests do where there is one.
    """
    problem = _state_problem(fits, n_labels, settings)
    shape = len(fits), n_labels
    with lock_device(device):
        placed = problem if device == "cpu" else problem._replace(rows=problem.rows.on(device))
        theta, objective, kkt = _descend(placed)
    return ExactFit(
        values=np.cumsum(theta, axis=1).reshape(*shape, settings.knots),
        kkt=kkt.reshape(shape),
        objective=objective.reshape(shape).sum(axis=1),
        ridged=(problem.ridge > 0).reshape(shape),
    )


class CellRows(NamedTuple):
    """The rows of C cells, of which none is empty, in NumPy, or in torch on a device, where nothing adds atomically."""

    lengths: np.ndarray  # (C,) int64, rows of each cell, on the host
    weight: Any  # (R,) float64, weight of the upper knot of each row's interval
    places: Any  # (C, N) float64, weights at the nodes of each cell
    masses: Any  # (C, N) float64, of the nodes
    library: ModuleType = np  # that computes with them

    def on(self, device: str) -> "CellRows":
        """The same rows in torch on a device; only arrays of a number for each cell come and go from then on."""
        import torch  # noqa: PLC0415 - takes two seconds, and the CPU does without

        parts = {name: torch.from_numpy(getattr(self, name)).to(device) for name in ("weight", "places", "masses")}
        return self._replace(library=torch, **parts)

    def only(self, stays: np.ndarray) -> "CellRows":
        """The rows of the cells `stays (C,)` bool, in their order."""
        kept = self._beside(stays)
        weight = self.weight[self._by_row(kept)]
        return CellRows(self.lengths[stays], weight, self.places[kept], self.masses[kept], self.library)

    def sums(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Value at the left knot of each cell and its rise to the right one, `(C,)` both, to sums `(6, C)` float64.

        With t the logit of a row's reliability q, and w the weight of the knot on its right, the sums are those of
        softplus(t), of q w^r, r < 2, and of q(1-q) w^r, r < 3: at the nodes that stand for the rows of a cell, or row
        by row where the curve is too steep for those.
        """
        t = self._beside(left)[:, None] + self._beside(rise)[:, None] * self.places
        sums = self._on_host([(terms * self.masses).sum(axis=1) for terms in self._terms(t, self.places)])
        steep = (np.abs(rise) > MAX_NODE_RISE) & (self.lengths > N_NODES)
        if steep.any():
            sums[:, steep] = self.only(steep)._sums_by_row(left[steep], rise[steep])
        return sums

    def _sums_by_row(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """The same by a term for each row; there is at least one cell."""
        t = self._by_row(self._beside(rise)) * self.weight + self._by_row(self._beside(left))
        terms = self._terms(t, self.weight)
        if self.library is np:
            starts = np.cumsum(self.lengths) - self.lengths
            return np.array([np.add.reduceat(of_rows, starts) for of_rows in terms])
        segments = {"lengths": self._beside(self.lengths), "unsafe": True}
        return self._on_host([self.library.segment_reduce(part, "sum", **segments) for part in terms])

    def _on_host(self, sums: list[Any]) -> np.ndarray:
        """Arrays of one shape stacked, in NumPy."""
        return np.array(sums) if self.library is np else np.asarray(self.library.stack(sums).cpu())

    def _beside(self, of_cells: np.ndarray) -> Any:
        """An array of the host where the rows are."""
        return of_cells if self.library is np else self.library.from_numpy(of_cells).to(self.weight.device)

    def _by_row(self, of_cells: Any) -> Any:
        """A number for each cell, `(C,)`, as one for each of its rows, `(R,)`."""
        if self.library is np:
            return np.repeat(of_cells, self.lengths)
        return of_cells.repeat_interleave(self._beside(self.lengths), output_size=len(self.weight))

    def _terms(self, t: Any, weight: Any) -> Iterator[Any]:
        """What `sums` sums, one array after the other, from t and w of one shape."""
        tail = self.library.exp(-abs(t))
        yield t.clip(0) + self.library.log1p(tail)
        probability = self.library.where(t >= 0, 1, tail) / (1 + tail)
        yield probability
        yield probability * weight
        variance = tail / (1 + tail) ** 2
        yield variance
        yield variance * weight
        yield variance * weight * weight


class LatticeProblem(NamedTuple):
    """P = B * K convex problems in J variables: rows in the order of cells (problem, interval), and a quadratic."""

    cell: np.ndarray  # (C,) the cells that have rows, ascending
    rows: CellRows  # their rows, which alone may lie on a device
    scale: np.ndarray  # (P,) 1 / m
    hits: np.ndarray  # (P, J) sum over the correct rows of their weights at the knots
    start: np.ndarray  # (P, J) values
    bending: float  # weight of the sum of the squared second differences
    ridge: np.ndarray  # (P,) weight of the squared distance to the start

    def only(self, kept: np.ndarray) -> "LatticeProblem":
        """The problems `kept (P,)` bool, in their order."""
        intervals = self.start.shape[1] - 1
        owner = self.cell // intervals
        stays = kept[owner]
        renumbered = (np.cumsum(kept) - 1)[owner] * intervals + self.cell % intervals
        parts = {name: getattr(self, name)[kept] for name in ("scale", "hits", "start", "ridge")}
        return self._replace(cell=renumbered[stays], rows=self.rows.only(stays), **parts)

    def derivatives(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`theta (P, J)`, b and increments, to the objective `(P,)`, gradient `(P, J)` and Hessian `(P, J, J)`."""
        values = np.cumsum(theta, axis=1)
        problems, knots = values.shape
        sums = np.zeros((6, problems * (knots - 1)))
        left, rise = values[:, :-1].ravel()[self.cell], np.diff(values, axis=1).ravel()[self.cell]
        sums[:, self.cell] = self.rows.sums(left, rise)
        sums = sums.reshape(6, problems, knots - 1)
        softplus, probability, variance = sums[0].sum(axis=1), sums[1:3], sums[3:]
        off, bend = values - self.start, np.diff(values, n=2, axis=1)
        scale, ridge = self.scale[:, None], self.ridge[:, None]
        objective = self.scale * (softplus - (self.hits * values).sum(axis=1))
        objective += self.bending * (bend**2).sum(axis=1) + self.ridge * (off**2).sum(axis=1)

        gradient = -self.hits
        gradient[:, :-1] += probability[0] - probability[1]
        gradient[:, 1:] += probability[1]
        gradient = scale * gradient + 2 * ridge * off
        for shift, factor in enumerate((1, -2, 1)):
            gradient[:, shift : shift + bend.shape[1]] += 2 * self.bending * factor * bend

        second = np.diff(np.eye(knots), n=2, axis=0)
        hessian = 2 * self.bending * second.T @ second + 2 * ridge[:, None] * np.eye(knots)
        left, right = np.arange(knots - 1), np.arange(1, knots)
        hessian[:, left, left] += scale * (variance[0] - 2 * variance[1] + variance[2])
        hessian[:, right, right] += scale * variance[2]
        hessian[:, left, right] += scale * (variance[1] - variance[2])
        hessian[:, right, left] = hessian[:, left, right]
        return objective, _above(gradient, 1), _above(_above(hessian, 1), 2)


def _state_problem(fits: Sequence[FitRows], n_labels: int, settings: ProjectionParams) -> LatticeProblem:
    """What the exact projection minimises (paper, section 3.4) for each label of each fit, rows sorted into cells."""
    knots, problems = uniform_knots(settings.knots), len(fits) * n_labels
    rows = sort_into_cells(fits, n_labels, knots)
    cell = np.flatnonzero(rows.lengths)
    total = rows.lengths.reshape(problems, -1).sum(axis=1)
    some, starts = total > 0, (np.cumsum(total) - total)[total > 0]
    hit, parted = np.rint(rows.hits.sum(axis=1)), np.ones(problems, dtype=bool)
    highest_wrong = np.maximum.reduceat(np.where(rows.correct, -np.inf, rows.confidence), starts)
    parted[some] = highest_wrong <= np.minimum.reduceat(np.where(rows.correct, rows.confidence, np.inf), starts)
    return LatticeProblem(
        cell=cell,
        rows=CellRows(rows.lengths[cell], rows.weight, rows.places[cell], rows.masses[cell]),
        scale=np.repeat(1 / rows.counts, n_labels),
        hits=rows.hits,
        # the start of the published fit: the base rate, on a line of slope 1.4 that crosses it at c = 5/7
        start=np.log((hit + 1) / (total - hit + 1))[:, None] + 1.4 * (knots - 5 / 7),
        bending=settings.smoothness / (n_labels * (len(knots) - 2)),
        ridge=RIDGE * (parted | (settings.smoothness == 0)),
    )


def _above(array: np.ndarray, axis: int) -> np.ndarray:
    """Sums over each index and all after it: by the chain rule, what is by values becomes by increments."""
    return np.flip(np.cumsum(np.flip(array, axis), axis), axis)


def _descend(problem: LatticeProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The optimal theta `(P, J)`, its objective `(P,)` and KKT residual `(P,)`, by the method of Bertsekas (1982)."""
    theta = np.diff(problem.start, axis=1, prepend=0)
    box = np.repeat([[MIN_INCREMENT], [MAX_INCREMENT]], theta.shape[1], axis=1)
    box[:, 0] = -np.inf, np.inf
    theta, alive, size = np.clip(theta, *box), np.arange(len(theta)), np.ones(len(theta))
    step, gradient = np.zeros((2, *theta.shape))  # so that the first pass stays where it is
    objective, kkt = np.full((2, len(theta)), np.inf)
    for _ in range(MAX_ITERATIONS):
        going = (kkt[alive] > TOLERANCE) & (size[alive] > 1e-12)
        if not going.all():
            problem, alive = problem.only(going), alive[going]
        if not len(alive):
            break
        trial = np.clip(theta[alive] + size[alive, None] * step[alive], *box)
        trial_objective, trial_gradient, hessian = problem.derivatives(trial)
        expected = (gradient[alive] * (theta[alive] - trial)).sum(axis=1)
        taken = trial_objective <= objective[alive] - 1e-4 * np.maximum(expected, 0) + ROUNDING_TOLERANCE
        size[alive[~taken]] /= 2
        now = alive[taken]
        theta[now], objective[now], gradient[now] = trial[taken], trial_objective[taken], trial_gradient[taken]
        step[now], kkt[now] = _step(theta[now], gradient[now], hessian[taken], box)
        size[now] = 1
    return theta, objective, kkt


def _step(theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, ...]:
    """The step `(P, J)`, and the largest part of the gradient that the box leaves, `(P,)`: 0 at an optimum."""
    kkt = np.abs(theta - np.clip(theta - gradient, *box)).max(axis=1)
    near = np.minimum(kkt, 1e-3)[:, None]
    # a Newton step of the free variables, and a gradient step of those near a bound that theirs pushes against
    at_bound = ((theta <= box[0] + near) & (gradient > 0)) | ((theta >= box[1] - near) & (gradient < 0))
    both_free, diagonal = ~at_bound[:, :, None] & ~at_bound[:, None, :], np.eye(theta.shape[1], dtype=bool)
    # never singular, where confidences all but coincide
    hessian = np.where(both_free | diagonal, hessian, 0) + 1e-14 * diagonal
    return -np.linalg.solve(hessian, gradient[..., None])[..., 0], kkt
