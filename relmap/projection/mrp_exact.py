"""Convex optimum of MRP's lattice: the published problem, solved by a projected Newton method with a certificate.

The problem separates over labels, which share the factors 1/m and rho / (K (J - 2)) of the paper's objective. B fits
of K labels are therefore P = B K independent problems in J variables, which are solved together. The variables are the
value at the first knot and the increments to the next knots. In these variables the paper's monotonicity is a box: the
first value is free, and each increment lies in [MIN_INCREMENT, MAX_INCREMENT].

The smallest increment excludes flat pieces, and so ties between different confidences. The largest one bounds the
curves of labels whose confidences nearly coincide. If a threshold on the confidence separates the wrong rows of a label
from its correct rows (also if it has only wrong, only correct or no rows), the minimum is not unique. For such a label,
and for all labels if rho is 0, RIDGE times the squared distance to a curve through the base rate is added. Otherwise
the objective is as published.

Sums over the rows of lattice cells are computed in NumPy, or in torch on another device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from relmap.projection.mrp import (
    MAX_NODE_RISE,
    N_NODES,
    FitRows,
    SortedCells,
    lock_device,
    sort_into_cells,
    uniform_knots,
)
from relmap.settings import ProjectionParams

# numpy.ndarray on the host, torch.Tensor on another device; a static type would need torch
DeviceArray = Any


class ArrayBackend(Protocol):
    """Operations that have different names in NumPy and torch."""

    @property
    def library(self) -> ModuleType:
        """Module with the elementwise functions: numpy or torch."""

    def from_host(self, array: np.ndarray) -> DeviceArray:
        """Copy a NumPy array to the device."""

    def stack_on_host(self, arrays: list[DeviceArray]) -> np.ndarray:
        """Stack arrays of one shape into a NumPy array."""

    def repeat(self, per_cell: DeviceArray, rows_per_cell: np.ndarray, n_rows: int) -> DeviceArray:
        """Repeat the value of each cell, shape (C,), for each of its rows, shape (R,)."""

    def sum_cells(self, per_row: DeviceArray, rows_per_cell: np.ndarray) -> DeviceArray:
        """Sum the values of the rows, shape (R,), over each nonempty cell, shape (C,)."""


class NumpyBackend:
    """Array operations of NumPy."""

    @property
    def library(self) -> ModuleType:
        """Module with the elementwise functions."""
        return np

    def from_host(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def stack_on_host(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Stack arrays of one shape."""
        return np.array(arrays)

    def repeat(self, per_cell: np.ndarray, rows_per_cell: np.ndarray, n_rows: int) -> np.ndarray:  # noqa: ARG002
        """Repeat the value of each cell for each of its rows."""
        return np.repeat(per_cell, rows_per_cell)

    def sum_cells(self, per_row: np.ndarray, rows_per_cell: np.ndarray) -> np.ndarray:
        """Sum the values of the rows over each nonempty cell."""
        starts = np.cumsum(rows_per_cell) - rows_per_cell
        return np.add.reduceat(per_row, starts)


class TorchBackend:
    """Array operations of torch on one device.

    Args:
        device: Name of a torch device.
    """

    def __init__(self, device: str) -> None:
        import torch  # noqa: PLC0415 - takes two seconds to import, and the CPU path does not need it

        self._torch = torch
        self._device = device

    @property
    def library(self) -> ModuleType:
        """Module with the elementwise functions."""
        library: ModuleType = self._torch
        return library

    def from_host(self, array: np.ndarray) -> DeviceArray:
        """Copy a NumPy array to the device."""
        return self._torch.from_numpy(array).to(self._device)

    def stack_on_host(self, arrays: list[DeviceArray]) -> np.ndarray:
        """Stack arrays of one shape into a NumPy array."""
        return np.asarray(self._torch.stack(arrays).cpu())

    def repeat(self, per_cell: DeviceArray, rows_per_cell: np.ndarray, n_rows: int) -> DeviceArray:
        """Repeat the value of each cell for each of its rows."""
        return per_cell.repeat_interleave(self.from_host(rows_per_cell), output_size=n_rows)

    def sum_cells(self, per_row: DeviceArray, rows_per_cell: np.ndarray) -> DeviceArray:
        """Sum the values of the rows over each nonempty cell, without atomic additions."""
        return self._torch.segment_reduce(per_row, "sum", lengths=self.from_host(rows_per_cell), unsafe=True)


class CellRows(NamedTuple):
    """R rows of C nonempty cells, cell after cell.

    Attributes:
        rows_per_cell: Number of rows of each cell, shape (C,), int64; always on the host.
        weight: Weight in [0, 1] of the upper knot of each row's interval, shape (R,), float64.
        nodes: Weights at the nodes of each cell, shape (C, N), float64.
        masses: Masses of the nodes, shape (C, N), float64.
        backend: Library and device of `weight`, `nodes` and `masses`.
    """

    rows_per_cell: np.ndarray
    weight: DeviceArray
    nodes: DeviceArray
    masses: DeviceArray
    backend: ArrayBackend = NumpyBackend()

    def to_device(self, device: str) -> "CellRows":
        """Copy the rows to a torch device; afterwards only numbers for each cell are transferred, not for each row.

        Args:
            device: Name of a torch device.

        Returns:
            The same rows on the device.
        """
        backend = TorchBackend(device)
        return CellRows(
            rows_per_cell=self.rows_per_cell,
            weight=backend.from_host(self.weight),
            nodes=backend.from_host(self.nodes),
            masses=backend.from_host(self.masses),
            backend=backend,
        )

    def select(self, cells: np.ndarray) -> "CellRows":
        """Select cells.

        Args:
            cells: Mask of the selected cells, shape (C,), bool.

        Returns:
            The rows of the selected cells, in their order.
        """
        mask = self.backend.from_host(cells)
        return CellRows(
            rows_per_cell=self.rows_per_cell[cells],
            weight=self.weight[self._repeat(mask)],
            nodes=self.nodes[mask],
            masses=self.masses[mask],
            backend=self.backend,
        )

    def sum_terms(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Sum the terms of the log loss and of its derivatives over the rows of each cell.

        A row with weight w of the upper knot has the reliability q = sigmoid(t) with t = left + rise w. The six terms
        are softplus(t); q and q w; and q (1 - q), q (1 - q) w and q (1 - q) w^2. Each is summed over the nodes of a
        cell, or over its rows if the curve is too steep for the nodes.

        Args:
            left: Logit at the left knot of each cell, shape (C,).
            rise: Logit at the right knot minus that at the left knot, shape (C,).

        Returns:
            Sums, shape (6, C), float64.
        """
        t = self.backend.from_host(left)[:, None] + self.backend.from_host(rise)[:, None] * self.nodes
        sums = self.backend.stack_on_host([(term * self.masses).sum(axis=1) for term in self._terms(t, self.nodes)])
        is_steep = (np.abs(rise) > MAX_NODE_RISE) & (self.rows_per_cell > N_NODES)
        if is_steep.any():
            sums[:, is_steep] = self.select(is_steep)._sum_terms_by_row(left[is_steep], rise[is_steep])
        return sums

    def _sum_terms_by_row(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Compute the sums of `sum_terms` row by row; there is at least one cell."""
        row_rise = self._repeat(self.backend.from_host(rise))
        row_left = self._repeat(self.backend.from_host(left))
        t = row_rise * self.weight + row_left
        terms = self._terms(t, self.weight)
        return self.backend.stack_on_host([self.backend.sum_cells(term, self.rows_per_cell) for term in terms])

    def _repeat(self, per_cell: DeviceArray) -> DeviceArray:
        return self.backend.repeat(per_cell, self.rows_per_cell, len(self.weight))

    def _terms(self, t: DeviceArray, weight: DeviceArray) -> list[DeviceArray]:
        """Evaluate the six terms of `sum_terms` without overflow, from t and weights of one shape."""
        library = self.backend.library
        tail = library.exp(-abs(t))
        softplus = t.clip(0) + library.log1p(tail)
        q = library.where(t >= 0, 1, tail) / (1 + tail)
        variance = tail / (1 + tail) ** 2
        return [softplus, q, q * weight, variance, variance * weight, variance * weight * weight]


MIN_INCREMENT = 1e-6
MAX_INCREMENT = 1e3
RIDGE = 1e-6
TOLERANCE = 1e-12  # largest KKT residual of a solved problem; rounding allows no smaller one
ROUNDING_TOLERANCE = 4e-15  # accepted increase of the objective, whose last digits are rounding errors at the optimum
MIN_STEP_SIZE = 1e-12
ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve
MAX_ITERATIONS = 2001  # a fit takes about ten; some with hardly any wrong (or correct) row take hundreds


class ExactFit(NamedTuple):
    """Optimal curves of B fits and their certificate.

    Attributes:
        values: Logit of the reliability at each knot, shape (B, K, J), float64.
        kkt_residual: Largest change of a variable by a unit gradient step projected on the box, shape (B, K).
        objective: Minimum of the objective, including the ridge, shape (B,).
        has_ridge: Whether the ridge was added for a label, shape (B, K), bool.
    """

    values: np.ndarray
    kkt_residual: np.ndarray
    objective: np.ndarray
    has_ridge: np.ndarray


def fit_exact(fits: Sequence[FitRows], *, n_labels: int, settings: ProjectionParams, device: str = "cpu") -> ExactFit:
    """Find the convex optimum of MRP's objective for each fit and label.

    The order of the rows does not matter, and fits are independent. A label without rows gets the curve at which its
    optimization starts.

    On the device "cpu", NumPy sums over the rows. On any other device, torch sums over the rows in float64, and NumPy
    computes the rest on the host. The objectives of "cpu" and of torch's CPU ("cpu:0") agree up to rounding, and so do
    the values unless the smoothness is so small that the objective hardly determines them. CUDA is tested only where it
    is available.

    Args:
        fits: Rows of each of B fits.
        n_labels: Number of labels K.
        settings: Settings of the projection; only the knots and the smoothness are used.
        device: Device of the sums over the rows.

    Returns:
        The optimal curves and their certificate.

    Raises:
        InputError: The lock of an accelerator needs a package that is not installed.
    """
    problem = _state_problem(fits, n_labels, settings)
    shape = (len(fits), n_labels)
    has_ridge = problem.ridge > 0
    with lock_device(device):
        if device != "cpu":
            problem = problem._replace(rows=problem.rows.to_device(device))
        solution = _minimize(problem)
    return ExactFit(
        values=np.cumsum(solution.theta, axis=1).reshape(*shape, settings.knots),
        kkt_residual=solution.kkt_residual.reshape(shape),
        objective=solution.objective.reshape(shape).sum(axis=1),
        has_ridge=has_ridge.reshape(shape),
    )


class CellSums(NamedTuple):
    """Sums over the rows of each cell of P problems, with q the reliability and w the weight of the upper knot.

    Attributes:
        softplus: Sum of softplus(logit q) over the rows of each problem, shape (P,).
        probability: Sums of q and q w over the rows of each cell, shape (2, P, J - 1).
        variance: Sums of q (1 - q) w^r for r = 0, 1, 2, shape (3, P, J - 1).
    """

    softplus: np.ndarray
    probability: np.ndarray
    variance: np.ndarray


class Derivatives(NamedTuple):
    """Objective of P problems with its derivatives in the variables theta.

    Attributes:
        objective: Shape (P,).
        gradient: Shape (P, J).
        hessian: Shape (P, J, J).
    """

    objective: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray


class LatticeProblem(NamedTuple):
    """P convex problems in J variables.

    With values v = cumsum(theta), the objective of a problem is

        scale (sum_i softplus(t_i) - correct_weight' v) + bending |D2 v|^2 + ridge |v - start|^2,

    where t_i is the logit of row i, linear between the two knots of its interval, and D2 takes second differences.

    Attributes:
        cell: Index (problem, interval) of each nonempty cell, increasing, shape (C,).
        rows: Rows of these cells. They may be on a device; all other arrays are on the host.
        scale: 1 / m for the m fit rows, shape (P,).
        correct_weight: Sum over the correct rows of their weights at each knot, shape (P, J).
        start: Values of the initial curve, shape (P, J).
        bending: Weight of the sum of the squared second differences.
        ridge: Weight of the squared distance to the initial curve, shape (P,).
    """

    cell: np.ndarray
    rows: CellRows
    scale: np.ndarray
    correct_weight: np.ndarray
    start: np.ndarray
    bending: float
    ridge: np.ndarray

    def select(self, problems: np.ndarray) -> "LatticeProblem":
        """Select problems.

        Args:
            problems: Mask of the selected problems, shape (P,), bool.

        Returns:
            The selected problems, in their order.
        """
        n_intervals = self.start.shape[1] - 1
        problem_of_cell = self.cell // n_intervals
        selected_cells = problems[problem_of_cell]
        new_number = np.cumsum(problems) - 1
        renumbered = new_number[problem_of_cell] * n_intervals + self.cell % n_intervals
        return LatticeProblem(
            cell=renumbered[selected_cells],
            rows=self.rows.select(selected_cells),
            scale=self.scale[problems],
            correct_weight=self.correct_weight[problems],
            start=self.start[problems],
            bending=self.bending,
            ridge=self.ridge[problems],
        )

    def derivatives(self, theta: np.ndarray) -> Derivatives:
        """Evaluate the objective, its gradient and its Hessian.

        Args:
            theta: First value and increments, shape (P, J).

        Returns:
            Objective and derivatives with respect to theta.
        """
        values = np.cumsum(theta, axis=1)
        sums = self._sum_rows(values)
        # the chain rule of a cumulative sum sums the derivatives over each knot and all knots after it
        gradient = _reverse_cumsum(self._value_gradient(values, sums), axis=1)
        hessian = _reverse_cumsum(_reverse_cumsum(self._value_hessian(sums), axis=1), axis=2)
        return Derivatives(self._objective(values, sums), gradient, hessian)

    def _sum_rows(self, values: np.ndarray) -> CellSums:
        n_problems, n_knots = values.shape
        left = values[:, :-1].ravel()[self.cell]
        rise = np.diff(values, axis=1).ravel()[self.cell]
        sums = np.zeros((6, n_problems * (n_knots - 1)))
        sums[:, self.cell] = self.rows.sum_terms(left, rise)
        sums = sums.reshape(6, n_problems, n_knots - 1)
        return CellSums(softplus=sums[0].sum(axis=1), probability=sums[1:3], variance=sums[3:])

    def _objective(self, values: np.ndarray, sums: CellSums) -> np.ndarray:
        second_difference = np.diff(values, n=2, axis=1)
        loss = self.scale * (sums.softplus - (self.correct_weight * values).sum(axis=1))
        bending = self.bending * (second_difference**2).sum(axis=1)
        ridge = self.ridge * ((values - self.start) ** 2).sum(axis=1)
        return np.asarray(loss + (bending + ridge))

    def _value_gradient(self, values: np.ndarray, sums: CellSums) -> np.ndarray:
        """Gradient with respect to the values at the knots, shape (P, J)."""
        gradient = -self.correct_weight
        gradient[:, :-1] += sums.probability[0] - sums.probability[1]
        gradient[:, 1:] += sums.probability[1]
        gradient = np.asarray(self.scale[:, None] * gradient + 2 * self.ridge[:, None] * (values - self.start))
        second_difference = np.diff(values, n=2, axis=1)
        n_differences = second_difference.shape[1]
        for knot, coefficient in enumerate((1, -2, 1)):
            gradient[:, knot : knot + n_differences] += 2 * self.bending * coefficient * second_difference
        return gradient

    def _value_hessian(self, sums: CellSums) -> np.ndarray:
        """Hessian with respect to the values at the knots, shape (P, J, J)."""
        n_knots = self.start.shape[1]
        scale = self.scale[:, None]
        difference_matrix = np.diff(np.eye(n_knots), n=2, axis=0)
        bending = 2 * self.bending * difference_matrix.T @ difference_matrix
        hessian = bending + 2 * self.ridge[:, None, None] * np.eye(n_knots)
        left = np.arange(n_knots - 1)
        right = left + 1
        hessian[:, left, left] += scale * (sums.variance[0] - 2 * sums.variance[1] + sums.variance[2])
        hessian[:, right, right] += scale * sums.variance[2]
        hessian[:, left, right] += scale * (sums.variance[1] - sums.variance[2])
        hessian[:, right, left] = hessian[:, left, right]
        return hessian


def _state_problem(fits: Sequence[FitRows], n_labels: int, settings: ProjectionParams) -> LatticeProblem:
    """State the problem of each label of each fit."""
    knots = uniform_knots(settings.knots)
    n_problems = len(fits) * n_labels
    cells = sort_into_cells(fits, n_labels, knots)
    nonempty = np.flatnonzero(cells.rows_per_cell)
    n_rows = cells.rows_per_cell.reshape(n_problems, -1).sum(axis=1)
    n_correct = np.rint(cells.correct_weight.sum(axis=1))
    needs_ridge = _is_separable(cells, n_rows) | (settings.smoothness == 0)
    return LatticeProblem(
        cell=nonempty,
        rows=CellRows(cells.rows_per_cell[nonempty], cells.weight, cells.nodes[nonempty], cells.masses[nonempty]),
        scale=np.repeat(1 / cells.n_rows, n_labels),
        correct_weight=cells.correct_weight,
        # a line of slope 1.4 that equals the logit of the base rate at confidence 5/7; Adam starts at another curve
        start=np.log((n_correct + 1) / (n_rows - n_correct + 1))[:, None] + 1.4 * (knots - 5 / 7),
        bending=settings.smoothness / (n_labels * (len(knots) - 2)),
        ridge=RIDGE * needs_ridge,
    )


def _is_separable(cells: SortedCells, n_rows: np.ndarray) -> np.ndarray:
    """Find the problems in which a threshold separates wrong from correct rows, or there are no rows, shape (P,)."""
    has_rows = n_rows > 0
    starts = (np.cumsum(n_rows) - n_rows)[has_rows]
    highest_wrong = np.maximum.reduceat(np.where(cells.correct, -np.inf, cells.confidence), starts)
    lowest_correct = np.minimum.reduceat(np.where(cells.correct, cells.confidence, np.inf), starts)
    separable = np.ones(len(n_rows), dtype=bool)
    separable[has_rows] = highest_wrong <= lowest_correct
    return separable


def _reverse_cumsum(array: np.ndarray, axis: int) -> np.ndarray:
    """Sum over each index and all indices after it."""
    return np.flip(np.cumsum(np.flip(array, axis), axis), axis)


class Bounds(NamedTuple):
    """Box of the variables: lower and upper bounds, shape (J,) each."""

    lower: np.ndarray
    upper: np.ndarray

    def project(self, theta: np.ndarray) -> np.ndarray:
        """Project variables on the box.

        Args:
            theta: Variables, shape (P, J).

        Returns:
            The nearest point of the box, shape (P, J).
        """
        return np.asarray(np.clip(theta, self.lower, self.upper))

    def kkt_residual(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Measure how far a unit gradient step, projected on the box, changes a variable.

        Args:
            theta: Variables within the box, shape (P, J).
            gradient: Gradient of the objective, shape (P, J).

        Returns:
            max_j |theta_j - project(theta - gradient)_j|, shape (P,); 0 at the optimum.
        """
        return np.asarray(np.abs(theta - self.project(theta - gradient)).max(axis=1))


@dataclass
class NewtonState:
    """State of the projected Newton method for P problems.

    Attributes:
        theta: Variables, shape (P, J).
        objective: Objective, shape (P,).
        gradient: Gradient, shape (P, J).
        direction: Newton direction, shape (P, J).
        step_size: Step size to try next, shape (P,).
        kkt_residual: Optimality residual, shape (P,).
    """

    theta: np.ndarray
    objective: np.ndarray
    gradient: np.ndarray
    direction: np.ndarray
    step_size: np.ndarray
    kkt_residual: np.ndarray


def _minimize(problem: LatticeProblem) -> NewtonState:
    """Minimize P problems by the projected Newton method of Bertsekas (1982).

    Each iteration tries one step of every unsolved problem. A step that decreases the objective enough is accepted
    and gives a new Newton direction; otherwise the step size is halved.

    Returns:
        State of the optimizer at the solutions.
    """
    n_problems, n_knots = problem.start.shape
    bounds = _increment_bounds(n_knots)
    state = _initial_state(problem, bounds)
    unsolved = np.arange(n_problems)
    for _ in range(MAX_ITERATIONS):
        continues = (state.kkt_residual[unsolved] > TOLERANCE) & (state.step_size[unsolved] > MIN_STEP_SIZE)
        if not continues.all():
            problem = problem.select(continues)
            unsolved = unsolved[continues]
        if len(unsolved) == 0:
            break
        trial = bounds.project(
            state.theta[unsolved] + state.step_size[unsolved, None] * state.direction[unsolved],
        )
        derivatives = problem.derivatives(trial)
        accepted = _decreases_enough(state, unsolved, trial, derivatives.objective)
        state.step_size[unsolved[~accepted]] /= 2
        moved = unsolved[accepted]
        state.theta[moved] = trial[accepted]
        state.objective[moved] = derivatives.objective[accepted]
        state.gradient[moved] = derivatives.gradient[accepted]
        state.kkt_residual[moved] = bounds.kkt_residual(state.theta[moved], state.gradient[moved])
        state.direction[moved] = _newton_direction(
            state.theta[moved], state.gradient[moved], derivatives.hessian[accepted], state.kkt_residual[moved], bounds
        )
        state.step_size[moved] = 1
    return state


def _increment_bounds(n_knots: int) -> Bounds:
    lower = np.full(n_knots, MIN_INCREMENT)
    upper = np.full(n_knots, MAX_INCREMENT)
    lower[0] = -np.inf  # the value at the first knot is free
    upper[0] = np.inf
    return Bounds(lower, upper)


def _initial_state(problem: LatticeProblem, bounds: Bounds) -> NewtonState:
    """Start at the initial curves with direction 0, so that the first iteration only evaluates them."""
    n_problems, n_knots = problem.start.shape
    return NewtonState(
        theta=bounds.project(np.diff(problem.start, axis=1, prepend=0)),
        objective=np.full(n_problems, np.inf),
        gradient=np.zeros((n_problems, n_knots)),
        direction=np.zeros((n_problems, n_knots)),
        step_size=np.ones(n_problems),
        kkt_residual=np.full(n_problems, np.inf),
    )


def _decreases_enough(
    state: NewtonState, problems: np.ndarray, trial: np.ndarray, trial_objective: np.ndarray
) -> np.ndarray:
    """Apply Armijo's rule: f(trial) <= f(theta) - ARMIJO gradient' (theta - trial), up to rounding."""
    predicted_decrease = (state.gradient[problems] * (state.theta[problems] - trial)).sum(axis=1)
    required = state.objective[problems] - ARMIJO * np.maximum(predicted_decrease, 0)
    return np.asarray(trial_objective <= required + ROUNDING_TOLERANCE)


def _newton_direction(
    theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray, kkt_residual: np.ndarray, bounds: Bounds
) -> np.ndarray:
    """Solve H d = -g for the free variables, with a scaled gradient step for those at a bound, shape (P, J).

    A variable is at a bound if it is near the bound and the gradient pushes it there. Its row and column of H keep only
    the diagonal.

    Returns:
        Directions, shape (P, J).
    """
    margin = np.minimum(kkt_residual, 1e-3)[:, None]
    at_lower = (theta <= bounds.lower + margin) & (gradient > 0)
    at_upper = (theta >= bounds.upper - margin) & (gradient < 0)
    is_free = ~(at_lower | at_upper)
    both_free = is_free[:, :, None] & is_free[:, None, :]
    diagonal = np.eye(theta.shape[1], dtype=bool)
    # the small term keeps the matrix regular where confidences nearly coincide
    reduced_hessian = np.where(both_free | diagonal, hessian, 0) + 1e-14 * diagonal
    return -np.linalg.solve(reduced_hessian, gradient[..., None])[..., 0]
