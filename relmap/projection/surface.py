"""Label-wise 2D: reliability as a surface of confidence and gap, fitted by Adam as the paper's authors do.

A surface on 8 by 6 knots is a start plus increments along the confidence, along the gap, and of their product, all
positive: it falls along neither, and rises the faster along one the further along the other.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.optimizers import Adam
from relmap.projection.curves import interpolate, locate_interval
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.lattice import initial_curve, uniform_knots
from relmap.serialization import Axes, Value
from relmap.settings import ProjectionParams

N_GAP_KNOTS = 6
INITIAL_GAP_INCREMENT, INITIAL_PRODUCT_INCREMENT = (
    1e-2,
    1e-3,
)  # increments along the gap, and of the product, at the start


class Surfaces(Value):
    """One surface for each label, bilinear on the logit scale, that falls along neither confidence nor gap.

    Beyond the outer gap knots a surface stays as it is there. At one label
    and gap, reliability never falls as the confidence rises, to the last bit; along the gap, up to rounding.
    """

    knots: Annotated[np.ndarray, Axes("J")]  # 0 = u_1 < ... < u_J = 1
    gap_knots: Annotated[np.ndarray, Axes("G")]  # rising, G >= 2
    values: Annotated[np.ndarray, Axes("K", "J", "G")]  # logit of the reliability

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions, with their gap, to logit of the reliability `(n,)` float64."""
        below, up = locate_interval(np.clip(decisions.gap, *self.gap_knots[[0, -1]]), self.gap_knots)
        by_knot, cell = np.hstack([*self.values]), decisions.decision * len(self.gap_knots) + below
        at_knots = interpolate(by_knot.take(cell, axis=1), by_knot.take(cell + 1, axis=1), up)
        at_knots = np.maximum.accumulate(at_knots, axis=0)  # rounding alone could make a curve of c fall
        interval, weight = locate_interval(decisions.confidence, self.knots)
        row = np.arange(len(interval))
        return interpolate(at_knots[interval, row], at_knots[interval + 1, row], weight)

    def _contradictions(self) -> list[str]:
        wrong = []
        if self.knots[0] != 0 or self.knots[-1] != 1 or not (np.diff(self.knots) > 0).all():
            wrong.append(f"the knots do not rise from 0 to 1: {self.knots.tolist()}")
        if len(self.gap_knots) < 2 or not (np.diff(self.gap_knots) > 0).all():
            wrong.append(f"the gap knots do not rise: {self.gap_knots.tolist()}")
        for label, i, j in np.argwhere(~np.isfinite(self.values)):
            wrong.append(f"label {label} is {self.values[label, i, j]} at knot {i}, gap knot {j}")
        for axis, name in ((1, "confidence"), (2, "gap")):
            for label, i, j in np.argwhere(np.diff(self.values, axis=axis) < 0):
                wrong.append(f"label {label} falls along the {name} after knot {i}, gap knot {j}")
        return wrong


def fit_surfaces(
    confidence: np.ndarray,
    gap: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    n_labels: int,
    settings: ProjectionParams,
) -> Surfaces:
    """Confidence in [0, 1], gap, decision 0..K-1 and correct, `(m,)` each, to the surfaces of the last epoch.

    The gap knots are uniform between its 1% and 99% quantiles. A label without rows keeps its start. The same rows in
    any order give the same bits.
    """
    order = np.lexsort((correct, gap, confidence, decision))
    confidence, gap, decision = confidence[order], gap[order], decision[order]
    correct = np.asarray(correct, dtype=np.float64)[order]
    low, high = np.quantile(gap, [0.01, 0.99]) if len(gap) else (0.0, 1.0)
    knots, gap_knots = uniform_knots(settings.knots), np.linspace(low, max(high, low + 1e-6), N_GAP_KNOTS)
    shape = (n_labels, len(knots), N_GAP_KNOTS)
    (i, right), (j, above) = (
        locate_interval(confidence, knots),
        locate_interval(np.clip(gap, *gap_knots[[0, -1]]), gap_knots),
    )
    corner = [((decision * shape[1] + i + x) * shape[2] + j + y) for x in (0, 1) for y in (0, 1)]
    weight = [u * v for u in (1 - right, right) for v in (1 - above, above)]
    of_row = np.arange(0, 4 * len(i) + 1, 4)
    bilinear = np.stack(weight, axis=1).ravel(), np.stack(corner, axis=1).ravel(), of_row
    hats = scipy.sparse.csr_array(bilinear, (len(i), int(np.prod(shape))))
    turned = hats.T.tocsr()
    theta = np.empty(shape)  # start and increments: along the confidence in the first column, along the gap in row one
    theta[:] = np.log(np.expm1(INITIAL_PRODUCT_INCREMENT))
    theta[:, 0] = np.log(np.expm1(INITIAL_GAP_INCREMENT))
    theta[:, :, 0] = initial_curve(len(knots))
    bends = [np.diff(np.eye(size), n=2, axis=0) for size in shape[1:]]
    bending = [
        2 * settings.smoothness / (n_labels * len(d) * other) * d.T @ d
        for d, other in zip(bends, shape[:0:-1], strict=True)
    ]
    adam = Adam(settings.learning_rate)
    for _ in range(settings.epochs):
        values = _values(theta)
        residual = scipy.special.expit(hats @ values.ravel()) - correct
        gradient = (turned @ residual / max(len(correct), 1)).reshape(shape)
        gradient += np.einsum("ij,kjg->kig", bending[0], values) + np.einsum("gh,kih->kig", bending[1], values)
        # each increment lifts what follows
        gradient = gradient[:, ::-1, ::-1].cumsum(axis=1).cumsum(axis=2)[:, ::-1, ::-1]
        factor = scipy.special.expit(theta)
        factor[:, 0, 0] = 1
        theta = theta + adam.step(gradient * factor)
    return Surfaces(knots, gap_knots, np.maximum.accumulate(np.maximum.accumulate(_values(theta), axis=1), axis=2))


def _values(theta: np.ndarray) -> np.ndarray:
    """Start and, before the softplus, increments `(K, J, G)` to the values at the knots."""
    increments = np.logaddexp(0, theta)
    increments[:, 0, 0] = theta[:, 0, 0]
    return np.asarray(increments.cumsum(axis=1).cumsum(axis=2))
