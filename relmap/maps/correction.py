"""A monotone correction of the score of a map: it changes reliabilities, but not the order of the rows."""

from typing import Annotated

import numpy as np
from pydantic import Field

from relmap.projection.curves import Logit, interpolate, locate_interval
from relmap.serialization import Axes, Value

Slope = Annotated[float, Field(ge=1e-6, le=1000)]


class Correction(Value):
    """A strictly increasing, piecewise linear function of the logit of the reliability.

    It interpolates between its knots and is linear outside.

    Attributes:
        knots: Increasing logits before the correction, shape (J,), J at least 2.
        values: Increasing logits after the correction, shape (J,).
        first_slope: Slope below the first knot.
        last_slope: Slope above the last knot.
    """

    knots: Annotated[np.ndarray, Axes("J", of=Logit)]
    values: Annotated[np.ndarray, Axes("J", of=Logit)]
    first_slope: Slope
    last_slope: Slope

    def __call__(self, logit: np.ndarray) -> np.ndarray:
        """Correct logits.

        Args:
            logit: Logits of reliabilities, shape (n,), float64; infinite ones stay infinite.

        Returns:
            Corrected logits, shape (n,), float64. Equal logits stay equal, and no rounding reverses an order.
        """
        logit = np.asarray(logit, dtype=np.float64)
        first = self.knots[0]
        last = self.knots[-1]
        interval, weight = locate_interval(np.clip(logit, first, last), self.knots)
        corrected = interpolate(self.values[interval], self.values[interval + 1], weight)
        below = np.minimum(logit - first, 0)
        above = np.maximum(logit - last, 0)
        return np.asarray(corrected + self.first_slope * below + self.last_slope * above)

    def _content_violations(self) -> list[str]:
        violations = []
        if len(self.knots) < 2:
            violations.append(f"a correction has {len(self.knots)} knots; it needs two")
        for name, numbers in (("knots", self.knots), ("values", self.values)):
            if not (np.diff(numbers) > 0).all():
                violations.append(f"the {name} of a correction do not increase: {numbers.tolist()}")
        return violations
