"""A reliability map as one SQL expression, for tables that no single machine holds."""

from collections.abc import Sequence
from itertools import pairwise
from math import exp as e_to_the
from typing import Any

from sqlglot import expressions as exp

from tasks.maps.document import MapDocument, Variant
from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.labelwise import FARTHEST_LOGIT, Intercepts, Isotonic, Labelwise, Lines, WithFallbacks
from tasks.protocol.errors import BadInput

DIALECTS = ("duckdb", "postgres", "postgresql", "bigquery", "spark")

# PostgreSQL stops a query where a result overflows, or is too small to be anything but 0; BigQuery where it overflows.
FARTHEST_POWER = 700.0  # e to it is finite, and one over that is not 0
LEAST_DIVIDEND = 1e-300  # over 1e6 it is not 0
LEAST_RISE = 1e-15  # of a curve from knot to knot; below, rounding is all there is
LEAST_CONFIDENCE = e_to_the(-FARTHEST_LOGIT) / (1 + e_to_the(-FARTHEST_LOGIT))

Curve = tuple[Any, ...]  # a function of this file that writes a curve, and what to call it with


def sql_expression(document: MapDocument, dialect: str) -> str:
    """The reliability, a double in [0, 1], as an expression of the columns `decision` and `confidence`.

    `decision` is an integer 0..K-1, `confidence` the calibrated one, a double in [0, 1]. Where the decision is NULL or
    no label of the map, or the confidence is NULL, NaN or outside [0, 1], the expression is NULL, never a number.

    It agrees with `ReliabilityMap` to 1e-12 unless a map is so steep that rounding the confidence moves its
    reliability by more. No part of it overflows or divides by zero. The same map gives the same text.

    Its size grows with the number of knots or thresholds over all labels; labels of one curve share its text. Spark
    compiles a few hundred of them in seconds, a few thousand not within a gigabyte of driver memory.
    `dialect` is duckdb, postgres (or postgresql), bigquery or spark. Raises BadInput for any other.
    """
    if dialect not in DIALECTS:
        raise BadInput(f"there is no dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}")
    labels_of: dict[Curve, list[int]] = {}
    for label, curve in enumerate(_curves(document.projection.fitted, document.n_labels)):
        labels_of.setdefault(curve, []).append(label)
    arms = [
        exp.If(this=_decides(labels, document.n_labels), true=write(*numbers))
        for (write, *numbers), labels in labels_of.items()
    ]
    inside = _confidence().between(0, 1)
    tree: exp.Expr = exp.Case(ifs=[exp.If(this=inside, true=exp.Case(ifs=arms))])
    if dialect.startswith("postgres"):
        tree = tree.transform(_as_double, copy=False)
    text = tree.sql(dialect="postgres" if dialect == "postgresql" else dialect)
    return text.replace(" WHEN ", "\nWHEN ")  # a line for each case


def _curves(projection: Variant | Labelwise, n_labels: int) -> list[Curve]:
    """The curve of each label 0..K-1."""
    same: Curve = (_confidence,)
    curves = [same] * n_labels
    match projection:
        case SharedCurve(curves=shared):
            curves = _curves(shared, 1) * n_labels
        case Curves(knots=knots, values=values, fallback=fallback):
            own = [(_lattice, tuple(knots.tolist()), tuple(heights)) for heights in values.tolist()]
            curves = [same if kind == "identity" else curve for kind, curve in zip(fallback, own, strict=True)]
        case WithFallbacks(own=labelwise, shared=shared, fallback=fallback):
            by_kind = {"none": _curves(labelwise, n_labels), "shared": _curves(shared, n_labels), "identity": curves}
            curves = [by_kind[kind][label] for label, kind in enumerate(fallback)]
        case Intercepts(alpha=shifts):
            curves = [(_shifted, shift) for shift in shifts.tolist()]
        case Lines(slope=slopes, intercept=intercepts):
            curves = [(_line, *line) for line in zip(slopes.tolist(), intercepts.tolist(), strict=True)]
        case Isotonic(confidence=thresholds, reliability=heights):
            pairs = zip(thresholds, heights, strict=True)
            curves = [(_interpolated, *(tuple(steps.tolist()) for steps in pair)) for pair in pairs]
    return curves


def _decides(labels: list[int], n_labels: int) -> exp.Expr:
    """That the decision is one of `labels`."""
    decision = exp.column("decision")
    if len(labels) == n_labels:
        return decision.between(0, n_labels - 1)
    return decision.eq(labels[0]) if len(labels) == 1 else decision.isin(*labels)


def _confidence() -> exp.Expr:
    return exp.column("confidence")


def _doubt() -> exp.Expr:
    return exp.Literal.number(1) - _confidence()


def _lattice(knots: Sequence[float], values: Sequence[float]) -> exp.Expr:
    """A curve between knots, on the logit scale."""
    return _expit(_interpolated(knots, values), max(map(abs, values)))


def _shifted(shift: float) -> exp.Expr:
    """c / (c + (1 - c) exp(-shift)): the logit of c, shifted, without logarithms."""
    whole = exp.Add(this=_confidence(), expression=_doubt() * _number(e_to_the(-shift)))
    return _over(_at_least(_confidence(), LEAST_DIVIDEND), exp.paren(whole))


def _line(slope: float, intercept: float) -> exp.Expr:
    """A line in the logit of c, which is cut to [-40, 40] where c and 1 - c are."""
    odds = _over(_at_least(_confidence(), LEAST_CONFIDENCE), _at_least(_doubt(), LEAST_CONFIDENCE))
    line = exp.Add(this=_number(slope) * exp.Ln(this=odds), expression=_number(intercept))
    return _expit(line, slope * FARTHEST_LOGIT + abs(intercept))


def _interpolated(knots: Sequence[float], heights: Sequence[float]) -> exp.Expr:
    """Heights at rising knots, straight between them, constant beyond."""
    if heights[0] == heights[-1]:
        return _number(heights[0])
    arms = [exp.If(this=_confidence() <= _number(knots[0]), true=_number(heights[0]))]
    for (left, low), (right, high) in pairwise(zip(knots, heights, strict=True)):
        arms.append(exp.If(this=_confidence() <= _number(right), true=_piece(left, right, low, high)))
    return exp.Case(ifs=arms, default=_number(heights[-1]))


def _piece(left: float, right: float, low: float, high: float) -> exp.Expr:
    """A straight piece, measured from its right end: from the left, near a knot at 0, the product can underflow."""
    if high - low < LEAST_RISE:
        return _number(high)
    weight = _over(exp.Paren(this=exp.Sub(this=_number(right), expression=_confidence())), _number(right - left))
    return exp.Sub(this=_number(high), expression=exp.Mul(this=weight, expression=_number(high - low)))


def _expit(logit: exp.Expr, farthest: float) -> exp.Expr:
    """1 / (1 + exp(-logit)), where the logit lies within `farthest` of 0."""
    if farthest > FARTHEST_POWER:
        logit = exp.Least(
            this=_at_least(logit, -FARTHEST_POWER), expressions=[_number(FARTHEST_POWER)], ignore_nulls=True
        )
    power = exp.Exp(this=exp.Neg(this=exp.Paren(this=logit)))
    return _over(exp.Literal.number(1), exp.Paren(this=exp.Add(this=exp.Literal.number(1), expression=power)))


def _at_least(value: exp.Expr, least: float) -> exp.Expr:
    # what engines do with NULL in here differs, and does not matter: a NULL never comes so far
    return exp.Greatest(this=value, expressions=[_number(least)], ignore_nulls=True)


def _over(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    return exp.Div(this=dividend, expression=divisor, typed=True)  # of doubles, so no dialect needs a cast


def _number(value: float) -> exp.Expr:
    """A literal that reads back as the same double: with an exponent, for else DuckDB and Spark make it a decimal."""
    digits = repr(abs(float(value)))
    literal = exp.Literal.number(digits if "e" in digits else f"{digits}e0")
    return exp.Neg(this=literal) if value < 0 else literal


def _as_double(node: exp.Expr) -> exp.Expr:
    """To PostgreSQL every literal with an exponent is a decimal."""
    return exp.cast(node, exp.DType.DOUBLE) if isinstance(node, exp.Literal) and "e" in node.name else node
