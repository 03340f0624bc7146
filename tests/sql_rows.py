"""Maps of every form, and rows to hold the engines of `sql` against: random confidences and all the edges."""

import numpy as np
import polars as pl
from scipy.special import expit, logit

from tasks.maps.document import MapDocument
from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.decisions import Decisions
from tasks.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks
from tasks.projection.pooling import ShrunkCurves
from tests.maps import KNOTS, document, variants

AGREEMENT = 1e-12
WITHOUT_ANSWER = [  # decision, confidence; the decision is no label of any map, or the confidence is no share
    *((decision, 0.7) for decision in (None, -1, 5, 10**6)),
    *((0, confidence) for confidence in (None, np.nan, -5e-324, -1.0, 1 + 2**-52, 2.0, np.inf, -np.inf)),
    (None, None),
    (-1, np.nan),
]
EDGES = (0.0, 5e-324, 1e-310, 2.3e-308, 1e-300, 1e-17, 0.3, 0.5, 0.65, 1 - 2**-53, 1.0)


def documents(thresholds: int) -> dict[str, MapDocument]:
    """A map of each form for K = 2 and 5, maps at the ends of what the format allows, and one of many thresholds."""
    made = {
        f"{name}, K = {n_labels}": document(name, value, n_labels=n_labels)
        for n_labels in (2, 5)
        for name, value in variants(n_labels, seed=n_labels).items()
    }
    behind, none = np.array([500, 500]), ("none", "none")
    leaping = [-1000.0] * 3 + [-800.0, 3.0, 3.0, 1000.0, 1000.0]
    flat = [-1e-320, 0.0, 0.0, 5e-324, 1e-300, 1e-200, 1e-17, 1e-14]
    made["mrp, far out"] = document("mrp", Curves(KNOTS, np.array([leaping, flat]), behind, none), n_labels=2)
    tiny = (np.array([0.0, 1e-290, 1.0]), np.array([0.7])), (np.array([0.1, 0.2, 1.0]), np.array([0.4]))
    heights, middle = np.sort(np.random.default_rng(thresholds).random(thresholds)), np.array([0.5])
    label_wise = {
        "label_intercept, far out": Intercepts(np.array([-12.0, 12.0])),
        "label_platt, far out": Lines(np.array([30.0, 0.0]), np.array([-20.0, 3.0])),
        "label_isotonic, far out": Isotonic(*tiny),
        "label_isotonic, many thresholds": Isotonic((np.arange(thresholds) / thresholds, middle), (heights, middle)),
    }
    shared = SharedCurve(Curves(KNOTS, np.zeros((1, 8)), behind[:1], none[:1]))
    for name, own in label_wise.items():
        made[name] = document(name.partition(",")[0], WithFallbacks(own, shared, none, behind), n_labels=2)
    return made


def rows(made: MapDocument, n: int = 3000, *, unanswered: bool = True) -> tuple[pl.DataFrame, np.ndarray]:
    """Columns `place`, `decision`, `confidence`, `logits_0` ..., and the reliability of `apply` `(m,)`, or NaN.

    `n` rows at random, then every label at the edges and about every knot, then those without an answer.
    """
    generator = np.random.default_rng(0)
    random = np.r_[generator.random(n // 2), expit(generator.normal(size=n - n // 2) * 15)]
    knots = np.concatenate([[], *(knots[:: 1 + len(knots) // 50] for knots in _knots(made.projection.fitted))])
    edges = np.unique(np.r_[EDGES, knots, np.nextafter(knots, 0), np.nextafter(knots, 1)])
    decision = np.r_[generator.integers(0, made.n_labels, n), np.repeat(np.arange(made.n_labels), len(edges))]
    confidence = np.r_[random, np.tile(edges, made.n_labels)]
    logits = generator.normal(size=(len(decision), made.n_labels)) * 10.0 ** generator.integers(
        -1, 3, (len(decision), 1)
    )
    with np.errstate(divide="ignore"):
        seen = Decisions(logit(confidence), decision, None, logits)
    reliability = expit(made.projection.fitted(seen))
    schema = {"decision": pl.Int32, "confidence": pl.Float64}
    frame = pl.DataFrame([decision.astype(np.int32), confidence], schema=schema)
    frame = frame.with_columns(**{f"logits_{label}": column for label, column in enumerate(logits.T)})
    if unanswered:
        without = pl.DataFrame(WITHOUT_ANSWER, schema=schema, orient="row")
        frame = pl.concat([frame, without], how="diagonal")
        reliability = np.r_[reliability, np.full(len(WITHOUT_ANSWER), np.nan)]
    return frame.with_row_index("place"), reliability


def _knots(fitted: object) -> list[np.ndarray]:
    match fitted:
        case Curves(knots=knots) | SharedCurve(curves=Curves(knots=knots)) | ShrunkCurves(curves=Curves(knots=knots)):
            return [knots]
        case WithFallbacks(own=own, shared=shared):
            return [shared.curves.knots, *(own.confidence if isinstance(own, Isotonic) else [])]
        case _:
            return []
