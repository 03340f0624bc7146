"""Maps of every form, and rows to hold the engines of `sql` against: random confidences and all the edges."""

import numpy as np
from scipy.special import expit

from tasks.maps.document import MapDocument
from tasks.maps.reliability_map import ReliabilityMap, reliability_logit
from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks
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
        f"{name}, K = {n_labels}": document(name, value, n_labels=n_labels, names=None)
        for n_labels in (2, 5)
        for name, value in variants(n_labels, seed=n_labels).items()
    }
    extremes = {"mrp": _far_curves(), "label_intercept": Intercepts(np.array([-12.0, 12.0]))}
    extremes["label_platt"] = Lines(np.array([30.0, 0.0]), np.array([-20.0, 3.0]))
    extremes["label_isotonic"] = Isotonic(
        (np.array([0.0, 1e-290, 1.0]), np.array([0.7])), (np.array([0.1, 0.2, 1.0]), np.array([0.4]))
    )
    for name, own in extremes.items():
        value = own if isinstance(own, Curves) else _on_their_own(own)
        made[f"{name}, far out"] = document(name, value, n_labels=2, names=None)
    many = _on_their_own(_many_thresholds(thresholds))
    made["label_isotonic, many thresholds"] = document("label_isotonic", many, n_labels=2, names=None)
    return made


def rows(made: MapDocument, n: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Decisions `(m,)` and confidences `(m,)`: `n` at random, then every label at the edges and about every knot."""
    generator = np.random.default_rng(seed)
    half = n // 2
    random = np.r_[generator.random(half), expit(generator.normal(size=n - half) * 15)]
    knots = np.concatenate([[], *(knots[:: 1 + len(knots) // 50] for knots in _knots(made))])
    edges = np.unique(np.r_[EDGES, knots, np.nextafter(knots, 0), np.nextafter(knots, 1)])
    labels = np.arange(made.n_labels)
    decision = np.r_[generator.integers(0, made.n_labels, n), np.repeat(labels, len(edges))]
    return decision, np.r_[random, np.tile(edges, made.n_labels)]


def applied(made: MapDocument, decision: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """The reliability `(n,)` as `apply` has it."""
    return np.asarray(expit(reliability_logit(ReliabilityMap.of(made).projection, confidence, decision)))


def _knots(made: MapDocument) -> list[np.ndarray]:
    match ReliabilityMap.of(made).projection:
        case Curves(knots=knots) | SharedCurve(curves=Curves(knots=knots)):
            return [knots]
        case WithFallbacks(own=own, shared=shared):
            return [shared.curves.knots, *(own.confidence if isinstance(own, Isotonic) else [])]
        case _:
            return []


def _far_curves() -> Curves:
    """A curve that leaps between the farthest values, and one that is flat but for less than a rounding."""
    leaping = [-1000.0] * 3 + [-800.0, 3.0, 3.0, 1000.0, 1000.0]
    flat = [-1e-320, 0.0, 0.0, 5e-324, 1e-300, 1e-200, 1e-17, 1e-14]
    return Curves(KNOTS, np.array([leaping, flat]), np.array([500, 500]), ("none", "none"))


def _many_thresholds(n: int) -> Isotonic:
    generator = np.random.default_rng(n)
    heights = np.sort(generator.random(n))
    return Isotonic((np.arange(n) / n, np.array([0.5])), (heights, np.array([0.5])))


def _on_their_own(own: Intercepts | Lines | Isotonic) -> WithFallbacks:
    """Two labels that stand on no others."""
    shared = SharedCurve(Curves(KNOTS, np.zeros((1, 8)), np.array([1000]), ("none",)))
    return WithFallbacks(own, shared, ("none", "none"), np.array([500, 500]))
