"""Label-wise 2D: reliability as a surface of confidence and gap, fitted by Adam as in the authors' code.

A surface is given by its values at J by 6 knots (J is 8 in the authors' code). They are sums of a start value and of
positive increments: along the confidence, along the gap, and of the product of both. The surface falls along neither
variable, and along each of them it rises faster if the other one is larger.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import scipy

from relmap.calibrators.optimizers import Adam
from relmap.decisions import CalibratedDecisions
from relmap.io.serialization import Axes, Value
from relmap.projection.mrp import initial_curve, interpolate, locate_interval, uniform_knots
from relmap.settings import ProjectionParams

if TYPE_CHECKING:
    from relmap.projection.rows import FitBatch

N_GAP_KNOTS = 6
MIN_GAP_WIDTH = 1e-8
INITIAL_GAP_INCREMENT = 1e-2
INITIAL_PRODUCT_INCREMENT = 1e-3


class SurfaceRows(NamedTuple):
    """Rows of one fit.

    Attributes:
        confidence: Confidence in [0, 1], shape (m,).
        gap: Gap of each decision, shape (m,).
        decision: Decided label 0..K-1, shape (m,).
        correct: Whether the decision is correct, shape (m,).
    """

    confidence: np.ndarray
    gap: np.ndarray
    decision: np.ndarray
    correct: np.ndarray


class Surfaces(Value):
    """One surface for each label, bilinear on the logit scale and constant outside the gap knots.

    The reliability never falls as the confidence rises. As the gap rises, it can fall by rounding errors only.

    Attributes:
        knots: Confidences of the knots, 0 = u_1 < ... < u_J = 1, shape (J,).
        gap_knots: Increasing gaps of the knots, shape (G,), G >= 2.
        values: Logit of the reliability at the knots, shape (K, J, G).
    """

    knots: Annotated[np.ndarray, Axes("J")]
    gap_knots: Annotated[np.ndarray, Axes("G")]
    values: Annotated[np.ndarray, Axes("K", "J", "G")]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence, gap and label.

        Args:
            decisions: n decisions with log-probabilities and logits.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        clipped_gap = np.clip(decisions.gap, self.gap_knots[0], self.gap_knots[-1])
        gap_interval, gap_weight = locate_interval(clipped_gap, self.gap_knots)
        values_by_knot = np.hstack([*self.values])  # shape (J, K G)
        cell = decisions.decision * len(self.gap_knots) + gap_interval
        at_knots = interpolate(values_by_knot.take(cell, axis=1), values_by_knot.take(cell + 1, axis=1), gap_weight)
        at_knots = np.maximum.accumulate(at_knots, axis=0)  # otherwise rounding could make it fall with the confidence
        interval, weight = locate_interval(decisions.confidence, self.knots)
        row = np.arange(len(interval))
        return interpolate(at_knots[interval, row], at_knots[interval + 1, row], weight)

    def _content_violations(self) -> list[str]:
        violations = []
        if self.knots[0] != 0 or self.knots[-1] != 1 or not (np.diff(self.knots) > 0).all():
            violations.append(f"the knots do not increase from 0 to 1: {self.knots.tolist()}")
        if len(self.gap_knots) < 2 or not (np.diff(self.gap_knots) > 0).all():
            violations.append(f"the gap knots do not increase: {self.gap_knots.tolist()}")
        for label, i, j in np.argwhere(~np.isfinite(self.values)):
            violations.append(
                f"the surface of label {label} has the value {self.values[label, i, j]} at knot {i}, gap knot {j}"
            )
        for axis, name in ((1, "confidence"), (2, "gap")):
            for label, i, j in np.argwhere(np.diff(self.values, axis=axis) < 0):
                violations.append(f"the surface of label {label} falls along the {name} after knot {i}, gap knot {j}")
        return violations


def fit_surfaces(
    confidence: np.ndarray,
    gap: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    n_labels: int,
    settings: ProjectionParams,
) -> Surfaces:
    """Fit a surface for each label by Adam.

    The objective is the mean log loss plus, along each variable, `smoothness` times the mean squared second
    difference. The gap knots are uniform between the 1% and 99% quantiles of the gap. A label without rows keeps its
    initial surface. The result is the same, bit for bit, in any order of the rows.

    Args:
        confidence: Confidence in [0, 1], shape (m,).
        gap: Gap of each decision, shape (m,).
        decision: Decided label 0..K-1, shape (m,).
        correct: Whether the decision is correct, shape (m,).
        n_labels: Number of labels K.
        settings: Knots of the confidence, smoothness, learning rate and epochs.

    Returns:
        The surfaces of the last epoch.
    """
    order = np.lexsort((correct, gap, confidence, decision))
    confidence = confidence[order]
    gap = gap[order]
    decision = decision[order]
    correct = np.asarray(correct, dtype=np.float64)[order]
    knots = uniform_knots(settings.knots)
    gap_knots = place_gap_knots(gap)
    shape = (n_labels, len(knots), N_GAP_KNOTS)
    basis = _bilinear_basis(confidence, gap, decision, knots, gap_knots, n_labels)
    transposed_basis = basis.T.tocsr()
    bending = bending_matrices(shape, settings.smoothness)
    theta = initial_parameters(shape)
    adam = Adam(settings.learning_rate)
    for _ in range(settings.epochs):
        values = _surface_values(theta)
        residual = scipy.special.expit(basis @ values.ravel()) - correct
        value_gradient = (transposed_basis @ residual / max(len(correct), 1)).reshape(shape)
        value_gradient += np.einsum("ij,kjg->kig", bending.confidence, values) + np.einsum(
            "gh,kih->kig", bending.gap, values
        )
        # an increment changes its knot and all later knots along both axes
        reversed_gradient = value_gradient[:, ::-1, ::-1]
        increment_gradient = reversed_gradient.cumsum(axis=1).cumsum(axis=2)[:, ::-1, ::-1]
        softplus_slope = scipy.special.expit(theta)
        softplus_slope[:, 0, 0] = 1  # the start value is not transformed
        theta = theta + adam.step(increment_gradient * softplus_slope)
    return build_surfaces(knots, gap_knots, _surface_values(theta))


def build_surfaces(knots: np.ndarray, gap_knots: np.ndarray, values: np.ndarray) -> Surfaces:
    """Build surfaces that do not fall, even by rounding.

    Args:
        knots: Knots of the confidence, shape (J,).
        gap_knots: Knots of the gap, shape (G,).
        values: Fitted logits, nondecreasing along both axes up to rounding, shape (K, J, G).

    Returns:
        The surfaces.
    """
    return Surfaces(knots, gap_knots, np.maximum.accumulate(np.maximum.accumulate(values, axis=1), axis=2))


def fit_label_surfaces(batch: "FitBatch") -> list[Surfaces]:
    """Fit the reliability as a surface of confidence and gap.

    Args:
        batch: Batch of B fits.

    Returns:
        Surfaces of the first `batch.n_surfaces` fits.

    Raises:
        InputError: torch is not installed, and the device is not "cpu".
    """
    return batch.surfaces


def place_gap_knots(gap: np.ndarray) -> np.ndarray:
    """Place the gap knots uniformly between the 1% and 99% quantiles, or all values if these coincide.

    Args:
        gap: Gap of each row, shape (m,).

    Returns:
        Increasing knots, shape (G,).
    """
    if not len(gap):
        return np.linspace(0.0, 1.0, N_GAP_KNOTS)
    low, high = np.quantile(gap, [0.01, 0.99])
    if high - low < MIN_GAP_WIDTH:
        low = gap.min()
        high = gap.max()
    if high - low < MIN_GAP_WIDTH:
        high = low + 1
    return np.linspace(low, high, N_GAP_KNOTS)


def _bilinear_basis(
    confidence: np.ndarray,
    gap: np.ndarray,
    decision: np.ndarray,
    knots: np.ndarray,
    gap_knots: np.ndarray,
    n_labels: int,
) -> "scipy.sparse.csr_array":
    """Return the weights of each row at the four knots around it, a sparse matrix of shape (m, K J G)."""
    interval, weight = locate_interval(confidence, knots)
    gap_interval, gap_weight = locate_interval(np.clip(gap, gap_knots[0], gap_knots[-1]), gap_knots)
    n_knots = len(knots)
    n_gap_knots = len(gap_knots)
    column = (decision * n_knots + interval) * n_gap_knots + gap_interval  # of the lower left knot
    columns = np.stack([column, column + 1, column + n_gap_knots, column + n_gap_knots + 1], axis=1)
    weights = np.stack(
        [
            (1 - weight) * (1 - gap_weight),
            (1 - weight) * gap_weight,
            weight * (1 - gap_weight),
            weight * gap_weight,
        ],
        axis=1,
    )
    row_starts = np.arange(0, 4 * len(interval) + 1, 4)
    size = (len(interval), n_labels * n_knots * n_gap_knots)
    return scipy.sparse.csr_array((weights.ravel(), columns.ravel(), row_starts), size)


class BendingMatrices(NamedTuple):
    """Hessians of the penalty along each variable: shape (J, J) for the confidence, (G, G) for the gap."""

    confidence: np.ndarray
    gap: np.ndarray


def bending_matrices(shape: tuple[int, int, int], smoothness: float) -> BendingMatrices:
    """Compute 2 smoothness D' D / (number of second differences) along each variable.

    Args:
        shape: Shape (K, J, G) of the values.
        smoothness: Weight of the mean squared second difference.

    Returns:
        Hessians of the penalty along each variable.
    """
    n_labels, n_knots, n_gap_knots = shape
    along_confidence = np.diff(np.eye(n_knots), n=2, axis=0)
    along_gap = np.diff(np.eye(n_gap_knots), n=2, axis=0)
    confidence_factor = 2 * smoothness / (n_labels * len(along_confidence) * n_gap_knots)
    gap_factor = 2 * smoothness / (n_labels * len(along_gap) * n_knots)
    return BendingMatrices(
        confidence=confidence_factor * along_confidence.T @ along_confidence,
        gap=gap_factor * along_gap.T @ along_gap,
    )


def initial_parameters(shape: tuple[int, int, int]) -> np.ndarray:
    """Compute the initial parameters.

    The entry at the first knot of both variables is the start value. The other entries at the first gap knot determine
    the increments along the confidence, those at the first confidence knot the increments along the gap, and all others
    the increments of the product. An increment is the softplus of its parameter.

    Args:
        shape: Shape (K, J, G) of the values.

    Returns:
        Parameters, of this shape.
    """
    theta = np.empty(shape)
    theta[:] = np.log(np.expm1(INITIAL_PRODUCT_INCREMENT))
    theta[:, 0] = np.log(np.expm1(INITIAL_GAP_INCREMENT))
    theta[:, :, 0] = initial_curve(shape[1])
    return theta


def _surface_values(theta: np.ndarray) -> np.ndarray:
    """Convert parameters, as in `initial_parameters`, to values at the knots, shape (K, J, G)."""
    increments = np.logaddexp(0, theta)
    increments[:, 0, 0] = theta[:, 0, 0]
    return np.asarray(increments.cumsum(axis=1).cumsum(axis=2))
