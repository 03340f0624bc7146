"""A reliability map as one SQL expression, for tables that no single machine holds."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from math import exp as e_to_the
from typing import Any

import numpy as np
from sqlglot import expressions as exp
from sqlglot import parse_one

from relmap.errors import InputError
from relmap.maps.constant import Constant
from relmap.maps.correction import Correction
from relmap.maps.document import MapDocument, Variant
from relmap.projection.curves import Curves, SharedCurve
from relmap.projection.labelwise import Intercepts, Isotonic, Labelwise, Lines, WithFallbacks
from relmap.projection.pooling import ShrunkCurves, WithSignals
from relmap.projection.whole_vector import MIN_RELATIVE_LOGIT, WholeVector

DIALECTS = ("duckdb", "postgres", "postgresql", "bigquery", "spark")

# PostgreSQL stops a query where a result overflows, or is too small to be anything but 0; BigQuery where it overflows.
FARTHEST_POWER = 700.0  # e to it is finite, and one over that is not 0
FARTHEST_SUM = 1e300  # of logits
LEAST_DIVIDEND = 1e-300  # over 1e6 it is not 0
LEAST_RISE = 1e-15  # of a curve from knot to knot; below, rounding is all there is

Curve = tuple[Any, ...]  # a function of this file that writes a curve, and what to call it with


def sql_expression(document: MapDocument, dialect: str) -> str:
    """The reliability, a double in [0, 1], as an expression of the columns `decision` and `confidence`.

    A map that reads the whole vector is one of `decision` and `logits_0`, `logits_1`, ..., which a comment before it
    says as `said_of_logits` has it; one of decisions alone is one of `decision`. `decision` is an integer 0..K-1,
    `confidence` the calibrated one, a double in [0, 1]. Where the decision is NULL or no label of the map, or the
    confidence is NULL, NaN or outside [0, 1], the expression is NULL, never a number.

    It agrees with `FittedMap` to 1e-12 unless a map is so steep that rounding the confidence moves its
    reliability by more. No part of it overflows or divides by zero. The same map gives the same text.

    Its size grows with the number of knots or thresholds over all labels; labels of one curve share its text. A
    correction repeats the text of the score once per knot. Spark
    compiles a few hundred of them in seconds, a few thousand not within a gigabyte of driver memory.
    `dialect` is duckdb, postgres (or postgresql), bigquery or spark. Raises InputError for any other, and for a map
    that reads signals.
    """
    if dialect not in DIALECTS:
        raise InputError(f"there is no dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}")
    fitted, labels_of = document.projection.fitted, dict[Curve, list[int]]()
    if isinstance(fitted, WithSignals):
        raise InputError("this map reads signals, which SQL does not get from us; use apply, or fit without signals")
    curves = _scores(fitted) if isinstance(fitted, WholeVector) else _curves(fitted, document.n_labels)
    if document.correction is not None:
        curves = _corrected_curves(document.correction, curves)
    for label, curve in enumerate(curves):
        labels_of.setdefault(curve, []).append(label)
    arms = [
        exp.If(this=_decides(labels, document.n_labels), true=write(*numbers))
        for (write, *numbers), labels in labels_of.items()
    ]
    tree: exp.Expr = exp.Case(ifs=arms)
    whole = " + ".join(f"logits_{label}" for label in range(document.n_labels))
    there = _confidence().between(0, 1)
    if isinstance(fitted, WholeVector):  # no NULL lies between, and no NaN
        there = exp.Between(this=parse_one(f"({whole})"), low=_number(-FARTHEST_SUM), high=_number(FARTHEST_SUM))
    tree = exp.Case(ifs=[exp.If(this=there, true=tree)])
    if isinstance(document.calibrator.fitted, Constant):
        same = _number(document.calibrator.fitted.share)
        tree = tree.transform(lambda node: same.copy() if node == _confidence() else node, copy=False)
    if dialect.startswith("postgres"):
        tree = tree.transform(_as_double, copy=False)
    text = tree.sql(dialect="postgres" if dialect == "postgresql" else dialect)
    comment = "".join(f"/* {sentence} */\n" for sentence in said_of_logits(document))
    return comment + text.replace(" WHEN ", "\nWHEN ")  # a line for each case


def said_of_logits(document: MapDocument) -> list[str]:
    """What columns of logits must hold, in one sentence, where a map reads the whole vector; else none."""
    if not isinstance(document.projection.fitted, WholeVector):
        return []
    columns = f"the columns decision and logits_0 to logits_{document.n_labels - 1}"
    return [f"This reads {columns}, which must be logits: of a probability p, its logarithm ln(greatest(p, 1e-12))."]


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
        case Lines(slope=slopes, intercept=intercepts, farthest=farthest):
            curves = [(_line, *line, farthest) for line in zip(slopes.tolist(), intercepts.tolist(), strict=True)]
        case ShrunkCurves(line=lines, curves=own, share=shares):
            both = zip(shares.tolist(), _curves(lines, n_labels), _curves(own, n_labels), strict=True)
            curves = [(_shrunk, share, line[1:], curve[1:]) for share, line, curve in both]
        case Isotonic(confidence=thresholds, reliability=heights):
            pairs = zip(thresholds, heights, strict=True)
            curves = [(_interpolated, *(tuple(steps.tolist()) for steps in pair)) for pair in pairs]
    return curves


def _corrected_curves(correction: Correction, curves: list[Curve]) -> list[Curve]:
    """The curve of each label with the correction of its logit; `MapDocument` allows no other curves than these."""
    writers = {_line: _line_logit, _shrunk: _shrunk_logit, _score: _score_logit}
    points = tuple(zip(correction.knots.tolist(), correction.values.tolist(), strict=True))
    slopes = correction.first_slope, correction.last_slope
    return [(_corrected, points, slopes, writers[write], *rest) for write, *rest in curves]


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


def _line(slope: float, intercept: float, farthest: float) -> exp.Expr:
    """A line in the logit of c, which is cut to [-farthest, farthest] where c and 1 - c are."""
    return _expit(_line_logit(slope, intercept, farthest), slope * farthest + abs(intercept))


def _line_logit(slope: float, intercept: float, farthest: float) -> exp.Expr:
    least, most = (e_to_the(-far) / (1 + e_to_the(-far)) for far in (farthest, -farthest))
    odds = _over(*(_at_most(_at_least(side, least), most) for side in (_confidence(), _doubt())))
    return exp.Add(this=_number(slope) * exp.Ln(this=odds), expression=_number(intercept))


def _shrunk(share: float, line: tuple[float, ...], curve: tuple[Sequence[float], Sequence[float]]) -> exp.Expr:
    """A curve that leans on a line, on the logit scale."""
    slope, intercept, farthest = line
    reach = max(slope * farthest + abs(intercept), *map(abs, curve[1]))
    return _expit(_shrunk_logit(share, line, curve), reach)


def _shrunk_logit(share: float, line: tuple[float, ...], curve: tuple[Sequence[float], Sequence[float]]) -> exp.Expr:
    parts = _number(1 - share) * exp.paren(_line_logit(*line)), _number(share) * exp.paren(_interpolated(*curve))
    return exp.Add(this=parts[0], expression=parts[1])


def _corrected(
    points: Sequence[tuple[float, float]],
    slopes: tuple[float, float],
    write_logit: Callable[..., exp.Expr],
    *numbers: Any,
) -> exp.Expr:
    """The reliability of a corrected logit: the value at the first knot, and what each interval adds to it.

    An interval adds its slope times the distance that the logit has covered of it.
    """
    logit = exp.paren(write_logit(*numbers))
    (first, value), (last, _) = points[0], points[-1]
    total = _sum_of_distance(_number(value), slopes[0], _lesser(logit.copy(), first), first)
    for (left, low), (right, high) in pairwise(points):
        within = _lesser(_at_least(logit.copy(), left), right)
        total = _sum_of_distance(total, (high - low) / (right - left), within, left)
    return _expit(_sum_of_distance(total, slopes[1], _at_least(logit.copy(), last), last), np.inf)


def _sum_of_distance(total: exp.Expr, slope: float, place: exp.Expr, begin: float) -> exp.Expr:
    """The total plus the slope times the distance of a place from the begin of its interval."""
    distance = exp.paren(exp.Sub(this=place, expression=_number(begin)))
    return exp.Add(this=total, expression=_number(slope) * distance)


def _scores(projection: WholeVector) -> list[Curve]:
    """For each label 0..K-1 what makes its probability from the logits."""
    table = np.column_stack([projection.weights, projection.bias])
    return [
        (_score, tuple(map(tuple, np.delete(table - own, label, axis=0).tolist()))) for label, own in enumerate(table)
    ]


def _score(others: Sequence[Sequence[float]]) -> exp.Expr:
    """1 / (1 + odds)."""
    odds = exp.Add(this=exp.Literal.number(1), expression=_score_odds(others))
    return _over(exp.Literal.number(1), exp.Paren(this=odds))


def _score_logit(others: Sequence[Sequence[float]]) -> exp.Expr:
    return exp.Neg(this=exp.Ln(this=_score_odds(others)))


def _score_odds(others: Sequence[Sequence[float]]) -> exp.Expr:
    """The odds of a wrong decision: the sum of exp, of each other label, how far its new logit lies above."""
    powers: list[exp.Expr] = []
    logits = [exp.column(f"logits_{place}") for place in range(len(others[0]) - 1)]
    largest = exp.Greatest(this=logits[0], expressions=logits[1:], ignore_nulls=True)
    for *weights, bias in others:
        above: exp.Expr = _number(bias)
        for logit, weight in zip(logits, weights, strict=True):
            beside = _at_least(exp.paren(exp.Sub(this=logit, expression=largest)), MIN_RELATIVE_LOGIT)
            above = exp.Add(this=above, expression=_number(weight) * beside)
        near = exp.Least(
            this=_at_least(above, -FARTHEST_POWER), expressions=[_number(FARTHEST_POWER)], ignore_nulls=False
        )
        powers.append(exp.Exp(this=near))
    return reduce(lambda odds, power: exp.Add(this=odds, expression=power), powers)


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
        logit = _at_most(_at_least(logit, -FARTHEST_POWER), FARTHEST_POWER)
    power = exp.Exp(this=exp.Neg(this=exp.Paren(this=logit)))
    return _over(exp.Literal.number(1), exp.Paren(this=exp.Add(this=exp.Literal.number(1), expression=power)))


def _at_least(value: exp.Expr, least: float) -> exp.Expr:
    # what engines do with NULL in here differs, and does not matter: a NULL never comes so far
    return exp.Greatest(this=value, expressions=[_number(least)], ignore_nulls=True)


def _at_most(value: exp.Expr, most: float) -> exp.Expr:
    if most == 1:  # to which the float64 nearest it rounds
        return value
    return _lesser(value, most)


def _lesser(value: exp.Expr, other: float) -> exp.Expr:
    return exp.Least(this=value, expressions=[_number(other)], ignore_nulls=True)


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
