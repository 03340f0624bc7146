"""Convert a reliability map to one SQL expression, for tables that are too large for a single machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np
from sqlglot import expressions as exp
from sqlglot import parse_one

from relmap.calibrators.identity import Constant, Identity
from relmap.calibrators.matrix import Matrix
from relmap.calibrators.structured import StructuredMatrix
from relmap.calibrators.temperature import Temperature
from relmap.errors import InputError
from relmap.maps.document import MapDocument, Variant
from relmap.maps.earlier import Corrected, LinesWithSignals, WholeVector
from relmap.projection.labelwise import Intercepts, Isotonic, Labelwise, Lines, WithFallbacks
from relmap.projection.mrp import Confidence, Curves, SharedCurve
from relmap.projection.pooled import ShrunkCurves, SignalAdjusted

Column = Literal["reliability", "confidence"]
COLUMNS: tuple[Column, ...] = ("reliability", "confidence")
DIALECTS = ("duckdb", "postgres", "postgresql", "bigquery", "spark")

# PostgreSQL rejects results that overflow or underflow; BigQuery those that overflow
MAX_EXPONENT = 700.0  # exp(700) is finite, and exp(-700) is positive
MAX_LOGIT_SUM = 1e300
MAX_DISTANCE = 1e100  # of a logit from the largest one, relative to the scale; its square does not overflow
MIN_DIVIDEND = 1e-300  # the quotient does not underflow for divisors up to 1e6
MIN_RISE = 1e-15  # minimum rise of a curve between two knots; smaller ones are rounding errors


class _Curve(Protocol):
    """Reliability of one label as a function of the columns; hashable, so that labels can share its text."""

    def reliability(self) -> exp.Expr:
        """Return the reliability, in [0, 1]."""


def sql_expression(document: MapDocument, dialect: str, column: Column = "reliability") -> str:
    """Write the reliability or the calibrated confidence, a double in [0, 1], as an SQL expression.

    The expression of the reliability reads the columns `decision` (integer 0..K-1) and `confidence` (calibrated, a
    double in [0, 1]); for a map of decisions only, it reads `decision`. The expression of the confidence reads
    `decision` and `logits_0`, `logits_1`, .... An expression is NULL if the decision is NULL or not a label of the map,
    or if the confidence or a logit is NULL, NaN or out of range.

    The expression agrees with `FittedMap` to 1e-12, unless a map is so steep that rounding the confidence changes the
    reliability by more. No part of the expression overflows or divides by zero. Equal maps give equal texts. The text
    is longer for more knots or thresholds; labels with the same curve share its text.

    Args:
        document: The map.
        dialect: duckdb, postgres (or postgresql), bigquery or spark.
        column: What the expression computes.

    Returns:
        The expression, after comments on the columns that it reads.

    Raises:
        InputError: The dialect or the column is unknown; or the map reads signals, was written by an earlier version,
            or has a calibrator without an SQL expression.
    """
    if dialect not in DIALECTS:
        raise InputError(f"the dialect is {dialect!r}; give one of {', '.join(DIALECTS)}")
    if column not in COLUMNS:
        raise InputError(f"the column is {column!r}; give one of {', '.join(COLUMNS)}")
    if column == "confidence":
        curves = _confidence_curves(document)
        is_valid = _has_finite_logits(document.n_labels)
    else:
        curves = _reliability_curves(document.projection.fitted, document.n_labels)
        is_valid = _confidence().between(0, 1)
    tree: exp.Expr = exp.Case(ifs=[exp.If(this=is_valid, true=_select_label(curves, document.n_labels))])
    if isinstance(document.calibrator.fitted, Constant):
        tree = _replace_confidence(tree, document.calibrator.fitted.share)
    if dialect.startswith("postgres"):
        tree = tree.transform(_cast_to_double, copy=False)
    text = tree.sql(dialect="postgres" if dialect == "postgresql" else dialect)
    comments = "".join(f"/* {sentence} */\n" for sentence in describe_columns(document, column))
    return comments + text.replace(" WHEN ", "\nWHEN ")  # one line for each case


def describe_columns(document: MapDocument, column: Column) -> list[str]:
    """Describe the columns that an expression reads, if the map reads logits.

    Args:
        document: The map.
        column: What the expression computes.

    Returns:
        One sentence; none if the map does not read logits.
    """
    if document.input != "logits":
        return []
    if column == "confidence":
        return [
            "This expression reads the column decision, and logits from the columns logits_0 to logits_"
            f"{document.n_labels - 1}. If the model returns a probability p, use ln(greatest(p, 1e-12)) as its logit."
        ]
    return [
        "This expression reads the columns decision and confidence. The confidence is calibrated: compute it with "
        "the expression of the column confidence."
    ]


def _confidence_curves(document: MapDocument) -> list["_Curve"]:
    """Return the calibrated confidence of each label 0..K-1 as a function of the logits."""
    if document.input != "logits":
        raise InputError("this map reads no logits, so that the calibrated confidence is not computed by SQL")
    n_labels = document.n_labels
    scale: float | None = None
    match document.calibrator.fitted:
        case Identity():
            table = np.eye(n_labels, n_labels + 1)
        case Temperature(beta=beta):
            table = beta * np.eye(n_labels, n_labels + 1)
        case Matrix(weights=weights, bias=bias):
            table = np.column_stack([weights - weights.mean(axis=1, keepdims=True), bias])
        case StructuredMatrix() as structured:
            scale = structured.scale
            table = np.column_stack([structured.weights, structured.bias])
        case _:
            raise InputError(
                f"SQL does not support the calibrator {document.calibrator.name}; use apply, or fit with the "
                "calibrator sms or ts"
            )
    curves: list[_Curve] = []
    for label, own in enumerate(table):
        differences = np.delete(table - own, label, axis=0)
        rows = tuple(_LogitDifference(tuple(row[:-1]), row[-1]) for row in differences.tolist())
        curves.append(_VectorScore(rows, scale))
    return curves


def _select_label(curves: Sequence[_Curve], n_labels: int) -> exp.Expr:
    """Select the curve of the decision; labels with equal curves share one case."""
    labels_by_curve: dict[_Curve, list[int]] = {}
    for label, curve in enumerate(curves):
        labels_by_curve.setdefault(curve, []).append(label)
    cases = []
    for curve, labels in labels_by_curve.items():
        cases.append(exp.If(this=_decision_is_one_of(labels, n_labels), true=curve.reliability()))
    return exp.Case(ifs=cases)


def _has_finite_logits(n_labels: int) -> exp.Expr:
    """Return the condition that no logit is NULL, NaN or infinite."""
    logit_sum = " + ".join(f"abs(logits_{label})" for label in range(n_labels))
    return exp.Between(this=parse_one(f"({logit_sum})"), low=_number(0), high=_number(MAX_LOGIT_SUM))


def _replace_confidence(tree: exp.Expr, confidence: float) -> exp.Expr:
    """Replace the column `confidence` with a number."""
    column = _confidence()
    number = _number(confidence)
    return tree.transform(lambda node: number.copy() if node == column else node, copy=False)


def _reliability_curves(projection: Variant | Labelwise, n_labels: int) -> list[_Curve]:
    """Return the curve of each label 0..K-1."""
    curves: Sequence[_Curve]
    match projection:
        case Confidence():
            curves = [_Identity()] * n_labels
        case SharedCurve(curves=shared):
            curves = _reliability_curves(shared, 1) * n_labels
        case Curves():
            curves = _lattices_with_fallbacks(projection)
        case WithFallbacks():
            curves = _curves_with_fallbacks(projection, n_labels)
        case Intercepts(alpha=shifts):
            curves = [_Shift(shift) for shift in shifts.tolist()]
        case Lines():
            curves = _line_curves(projection)
        case ShrunkCurves(line=lines, curves=lattices, share=shares, largest=largest):
            terms = zip(shares.tolist(), _line_curves(lines), _lattices(lattices), strict=True)
            curves = [_ShrunkCurve(share, line, lattice, largest) for share, line, lattice in terms]
        case Isotonic(confidence=knots_by_label, reliability=values_by_label):
            points = zip(knots_by_label, values_by_label, strict=True)
            curves = [_Interpolation(tuple(knots.tolist()), tuple(values.tolist())) for knots, values in points]
        case SignalAdjusted():
            raise InputError("this map reads signals, which SQL does not support; use apply, or fit without signals")
        case Corrected() | WholeVector() | LinesWithSignals():
            raise InputError("this map was written by an earlier version; use apply, or fit it again to export SQL")
        case _:
            raise InputError(f"SQL does not support the model {type(projection).__name__} of this map; use apply")
    return [*curves]


def _lattices(curves: Curves) -> list["_Lattice"]:
    knots = tuple(curves.knots.tolist())
    return [_Lattice(knots, tuple(values)) for values in curves.values.tolist()]


def _lattices_with_fallbacks(curves: Curves) -> list[_Curve]:
    """Return the curve of each label: its lattice, or the identity if that is its fallback."""
    identity = _Identity()
    pairs = zip(curves.fallback, _lattices(curves), strict=True)
    return [identity if fallback == "identity" else lattice for fallback, lattice in pairs]


def _line_curves(lines: Lines) -> list["_Line"]:
    coefficients = zip(lines.slope.tolist(), lines.intercept.tolist(), strict=True)
    return [_Line(slope, intercept, lines.farthest) for slope, intercept in coefficients]


def _curves_with_fallbacks(projection: WithFallbacks, n_labels: int) -> list[_Curve]:
    curves_by_fallback: dict[str, Sequence[_Curve]] = {
        "none": _reliability_curves(projection.own, n_labels),
        "shared": _reliability_curves(projection.shared, n_labels),
        "identity": [_Identity()] * n_labels,
    }
    return [curves_by_fallback[fallback][label] for label, fallback in enumerate(projection.fallback)]


@dataclass(frozen=True)
class _Identity:
    """The confidence."""

    def reliability(self) -> exp.Expr:
        return _confidence()


@dataclass(frozen=True)
class _Interpolation:
    """Linear between knots of the confidence, constant outside."""

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def reliability(self) -> exp.Expr:
        if self.values[0] == self.values[-1]:
            return _number(self.values[0])
        cases = [exp.If(this=_confidence() <= _number(self.knots[0]), true=_number(self.values[0]))]
        points = zip(self.knots, self.values, strict=True)
        for (left, low), (right, high) in pairwise(points):
            segment = _linear_segment(left, right, low, high)
            cases.append(exp.If(this=_confidence() <= _number(right), true=segment))
        return exp.Case(ifs=cases, default=_number(self.values[-1]))


@dataclass(frozen=True)
class _Lattice:
    """A logit that is linear between knots of the confidence."""

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def logit(self) -> exp.Expr:
        return _Interpolation(self.knots, self.values).reliability()  # the values are logits here

    def reliability(self) -> exp.Expr:
        return _expit(self.logit(), self.max_logit)

    @property
    def max_logit(self) -> float:
        return max(abs(value) for value in self.values)


@dataclass(frozen=True)
class _Shift:
    """A shifted logit without logarithms: c / (c + (1 - c) exp(-shift))."""

    shift: float

    def reliability(self) -> exp.Expr:
        divisor = exp.Add(this=_confidence(), expression=_complement_of_confidence() * _number(math.exp(-self.shift)))
        return _divide(_at_least(_confidence(), MIN_DIVIDEND), exp.paren(divisor))


@dataclass(frozen=True)
class _Line:
    """A line in the logit of the confidence c, which is clipped to ±farthest by clipping c and 1 - c."""

    slope: float
    intercept: float
    farthest: float

    def logit(self) -> exp.Expr:
        lowest = math.exp(-self.farthest) / (1 + math.exp(-self.farthest))
        highest = math.exp(self.farthest) / (1 + math.exp(self.farthest))
        clipped = _at_most(_at_least(_confidence(), lowest), highest)
        clipped_complement = _at_most(_at_least(_complement_of_confidence(), lowest), highest)
        odds = _divide(clipped, clipped_complement)
        return exp.Add(this=_number(self.slope) * exp.Ln(this=odds), expression=_number(self.intercept))

    def reliability(self) -> exp.Expr:
        return _expit(self.logit(), self.max_logit)

    @property
    def max_logit(self) -> float:
        return self.slope * self.farthest + abs(self.intercept)


@dataclass(frozen=True)
class _ShrunkCurve:
    """Weighted mean of a line and a lattice on the logit scale; the share is that of the lattice.

    The odds of an error are those of this mean plus exp(-largest).
    """

    share: float
    line: _Line
    lattice: _Lattice
    largest: float | None = None

    def logit(self) -> exp.Expr:
        line = _number(1 - self.share) * exp.paren(self.line.logit())
        lattice = _number(self.share) * exp.paren(self.lattice.logit())
        return exp.Add(this=line, expression=lattice)

    def reliability(self) -> exp.Expr:
        least_odds = 0.0 if self.largest is None else math.exp(-self.largest)
        return _expit(self.logit(), max(self.line.max_logit, self.lattice.max_logit), least_odds)


class _LogitDifference(NamedTuple):
    """Difference between the recalibrated logits of another label and of the decision: weights and bias."""

    weights: tuple[float, ...]
    bias: float


@dataclass(frozen=True)
class _VectorScore:
    """Probability of the decision by calibrated logits: 1 / (1 + odds of the other labels)."""

    differences: tuple[_LogitDifference, ...]
    scale: float | None  # at which distances from the largest logit are compressed; None for no compression

    def reliability(self) -> exp.Expr:
        divisor = exp.Add(this=exp.Literal.number(1), expression=self._odds())
        return _divide(exp.Literal.number(1), exp.Paren(this=divisor))

    def _odds(self) -> exp.Expr:
        """Return the odds of a wrong decision: the sum of exp(difference) over the other labels."""
        n_labels = len(self.differences[0].weights)
        logits = [exp.column(f"logits_{label}") for label in range(n_labels)]
        largest = exp.Greatest(this=logits[0], expressions=logits[1:], ignore_nulls=True)
        powers: list[exp.Expr] = []
        for difference in self.differences:
            total: exp.Expr = _number(difference.bias)
            for logit, weight in zip(logits, difference.weights, strict=True):
                if weight == 0:
                    continue
                distance = exp.paren(exp.Sub(this=largest, expression=logit))
                total = exp.Add(this=total, expression=_number(-weight) * self._compressed(distance))
            clipped = _at_most(_at_least(total, -MAX_EXPONENT), MAX_EXPONENT)
            powers.append(exp.Exp(this=clipped))
        return reduce(lambda odds, power: exp.Add(this=odds, expression=power), powers)

    def _compressed(self, distance: exp.Expr) -> exp.Expr:
        """Return scale * asinh(distance / scale) with logarithm and root, which every dialect has."""
        if self.scale is None:
            return distance
        ratio = exp.paren(_at_most(_divide(distance, _number(self.scale)), MAX_DISTANCE))
        square = exp.Add(this=ratio * ratio.copy(), expression=exp.Literal.number(1))
        root = exp.Sqrt(this=square)
        return _number(self.scale) * exp.Ln(this=exp.Add(this=ratio.copy(), expression=root))


def _decision_is_one_of(labels: list[int], n_labels: int) -> exp.Expr:
    decision = exp.column("decision")
    if len(labels) == n_labels:
        return decision.between(0, n_labels - 1)
    return decision.eq(labels[0]) if len(labels) == 1 else decision.isin(*labels)


def _confidence() -> exp.Expr:
    return exp.column("confidence")


def _complement_of_confidence() -> exp.Expr:
    return exp.Literal.number(1) - _confidence()


def _linear_segment(left: float, right: float, low: float, high: float) -> exp.Expr:
    """Interpolate from the right end; from the left end, the product could underflow near a knot at 0."""
    if high - low < MIN_RISE:
        return _number(high)
    distance = exp.Paren(this=exp.Sub(this=_number(right), expression=_confidence()))
    weight = _divide(distance, _number(right - left))
    return exp.Sub(this=_number(high), expression=exp.Mul(this=weight, expression=_number(high - low)))


def _expit(logit: exp.Expr, max_logit: float, least_odds: float = 0.0) -> exp.Expr:
    """Return 1 / (1 + exp(-logit) + least_odds), where the logit lies within ±max_logit."""
    if max_logit > MAX_EXPONENT:
        logit = _at_most(_at_least(logit, -MAX_EXPONENT), MAX_EXPONENT)
    power = exp.Exp(this=exp.Neg(this=exp.Paren(this=logit)))
    divisor = exp.Add(this=exp.Literal.number(1), expression=power)
    if least_odds:
        divisor = exp.Add(this=divisor, expression=_number(least_odds))
    return _divide(exp.Literal.number(1), exp.Paren(this=divisor))


def _at_least(value: exp.Expr, lower: float) -> exp.Expr:
    # engines treat NULL differently here, which has no effect: NULL is excluded before
    return exp.Greatest(this=value, expressions=[_number(lower)], ignore_nulls=True)


def _at_most(value: exp.Expr, upper: float) -> exp.Expr:
    if upper == 1:  # a limit of a confidence that rounds to 1 has no effect
        return value
    return exp.Least(this=value, expressions=[_number(upper)], ignore_nulls=True)


def _divide(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    return exp.Div(this=dividend, expression=divisor, typed=True)  # both are doubles, so no dialect needs a cast


def _number(value: float) -> exp.Expr:
    """Write a number that is read as the same double; without an exponent, DuckDB and Spark would read a decimal."""
    digits = repr(abs(float(value)))
    literal = exp.Literal.number(digits if "e" in digits else f"{digits}e0")
    return exp.Neg(this=literal) if value < 0 else literal


def _cast_to_double(node: exp.Expr) -> exp.Expr:
    """Cast a literal with an exponent, which PostgreSQL reads as a decimal."""
    return exp.cast(node, exp.DType.DOUBLE) if isinstance(node, exp.Literal) and "e" in node.name else node
