"""Maps of version 3 of the format: the models that only they contain, and their conversion to the present version.

Version 3 had a model of all logits, weights of signals by label, and a monotone correction of the score. They are still
scored, but no longer fitted, compared or written as SQL.
"""

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from relmap.calibrators.identity import log_softmax
from relmap.calibrators.linear import transform_rows
from relmap.decisions import CalibratedDecisions, confidence_logit
from relmap.io.serialization import Axes, Number, Value
from relmap.projection.labelwise import Lines
from relmap.projection.mrp import Logit, interpolate, locate_interval
from relmap.projection.pooled import ShrunkCurves

VERSION = 3
# Smaller differences from the largest logit of the row are raised to this limit: exp(-87) is about the smallest normal
# float32, so that smaller probabilities of a float32 model are inaccurate.
MIN_RELATIVE_LOGIT = -87.0
POOLED_NAME = "mrp_pooled"  # present name of the curves that version 3 called EARLIER_POOLED_NAME
EARLIER_POOLED_NAME = "mrp"

Slope = Annotated[float, Field(ge=1e-6, le=1000)]


class WholeVector(Value, kind="whole_vector"):
    """The probability of the decision under recalibrated logits.

    Attributes:
        weights: One row for each new logit, shape (K, K). They apply to the logits minus the largest logit of the row.
        bias: Bias of each new logit, shape (K,).
    """

    weights: Annotated[np.ndarray, Axes("K", "K")]
    bias: Annotated[np.ndarray, Axes("K")]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by their logits.

        Args:
            decisions: n decisions with uncalibrated logits, shape (n, K).

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        assert decisions.logits is not None
        logits = np.asarray(decisions.logits, dtype=np.float64)
        relative = np.maximum(logits - logits.max(axis=1, keepdims=True), MIN_RELATIVE_LOGIT)
        recalibrated = log_softmax(transform_rows(relative, self.weights) + self.bias)
        return confidence_logit(recalibrated, decisions.decision)


class LinesWithSignals(Value, kind="signals"):
    """A line for each label plus weighted signals.

    Attributes:
        line: The lines.
        weights: Weight of each signal for each label, shape (S, K).
    """

    line: Lines
    weights: Annotated[np.ndarray, Axes("S", "K", of=Number)]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence, label and signals.

        Args:
            decisions: n decisions with signals, shape (n, S).

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        assert decisions.signals is not None
        weights = self.weights.T[decisions.decision]
        return np.asarray(self.line(decisions) + (decisions.signals * weights).sum(axis=1))

    def _content_violations(self) -> list[str]:
        return self.line.violations(self.weights.shape[1])


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


class Corrected(Value, kind="corrected"):
    """A model with a monotone correction of its score, which does not change the order of the rows.

    Attributes:
        base: The model.
        correction: The correction.
    """

    base: Annotated[Lines | ShrunkCurves | WholeVector | LinesWithSignals, Field(discriminator="kind")]
    correction: Correction

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions.

        Args:
            decisions: n decisions, with what the model reads.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        return self.correction(self.base(decisions))

    def violations(self, n_labels: int | None = None) -> list[str]:
        """Find violations of the model and of the correction.

        Args:
            n_labels: Number of labels K; None if it is unknown.

        Returns:
            One sentence for each violation; empty if both are valid.
        """
        return self.base.violations(n_labels) + self.correction.violations()


EARLIER_TYPES = (Lines, WholeVector, LinesWithSignals, Corrected)  # that no present fit returns as a projection


def convert_version_3(content: dict[str, Any], version: int) -> dict[str, Any]:
    """Convert the JSON of a map of version 3 to the present version.

    The reliabilities stay the same. What was stored for comparisons only is omitted.

    Args:
        content: Content of the file, with `version` 3.
        version: The present version.

    Returns:
        Content of the present version; it is not valid if the given content is not.
    """
    converted = {key: value for key, value in content.items() if key not in ("choice", "others", "correction")}
    converted["version"] = version
    converted["earlier_version"] = VERSION
    projection = converted.get("projection")
    if isinstance(projection, dict):
        projection = dict(projection)
        is_pooled = _kind(projection.get("fitted")) == "shrunk"
        if is_pooled and projection.get("name") == EARLIER_POOLED_NAME:
            projection["name"] = POOLED_NAME
        projection["fitted"] = _with_correction(projection.get("fitted"), content.get("correction"))
        converted["projection"] = projection
    if isinstance(content.get("folds"), list):
        converted["folds"] = [_convert_fold(fold) for fold in content["folds"]]
    return converted


def _convert_fold(fold: object) -> object:
    """Move the correction of a fold into its projection; leave what is no fold to the validation."""
    if not isinstance(fold, dict):
        return fold
    converted = {key: value for key, value in fold.items() if key != "correction"}
    if "projection" in converted:
        converted["projection"] = _with_correction(converted["projection"], fold.get("correction"))
    return converted


def _with_correction(fitted: object, correction: object) -> object:
    if correction is None:
        return fitted
    return {"kind": "corrected", "base": fitted, "correction": correction}


def _kind(fitted: object) -> object:
    return fitted.get("kind") if isinstance(fitted, dict) else None


def version_3_parts(parts: dict[str, Any]) -> dict[str, Any]:
    """Restore what version 3 hashed as the fingerprint of a map.

    Args:
        parts: The parts of the present version, as JSON: `input`, `n_labels`, `label_names`, `calibrator`, `projection`
            and `signals`.

    Returns:
        The parts of version 3, in its order.
    """
    projection = dict(parts["projection"])
    fitted = projection["fitted"]
    restored = {name: parts[name] for name in ("input", "n_labels", "label_names", "calibrator")}
    restored["calibrator"] = _without_first_slope(parts["calibrator"])
    if fitted["kind"] == "corrected":
        projection["fitted"] = fitted["base"]
    if projection["fitted"]["kind"] == "shrunk" and projection["name"] == POOLED_NAME:
        projection["name"] = EARLIER_POOLED_NAME
    restored["projection"] = projection
    if fitted["kind"] == "corrected":
        restored["correction"] = fitted["correction"]
    restored["signals"] = parts["signals"]
    return restored


def without_missing_bound(parts: dict[str, Any]) -> dict[str, Any]:
    """Omit the bound of the reliability if a map has none, since it is not part of the fingerprint of such a map.

    Args:
        parts: The parts of a map, as JSON.

    Returns:
        The parts, without a key `largest` that is null.
    """
    projection = parts["projection"]
    return parts | {"projection": projection | {"fitted": _omit_missing_bound(projection["fitted"])}}


def _omit_missing_bound(fitted: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in fitted.items() if name != "largest" or value is not None}
    if isinstance(kept.get("base"), dict):
        kept["base"] = _omit_missing_bound(kept["base"])
    return kept


def _without_first_slope(calibrator: dict[str, Any]) -> dict[str, Any]:
    """Omit the slope of h-calibration that version 3 did not have."""
    fitted = {name: value for name, value in calibrator["fitted"].items() if name != "first_slope"}
    return calibrator | {"fitted": fitted}
