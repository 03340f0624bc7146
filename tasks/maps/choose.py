"""Which variant to deploy: the simplest within one standard error of the best on projection-selection rows.

The rule is Breiman et al.'s (1984, section 3.4.3), on the log loss of the reliability against correct. The standard
error is that of the difference to the best one, row by row (group by group, where rows go together): all candidates
are judged on the same rows, and what they share says nothing about which is better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.maps.document import Candidate, Gain
from tasks.maps.fit import batch_under, fit_calibrator, fit_calibrators, fit_variant_on_each
from tasks.maps.labelled import Parts
from tasks.maps.reliability_map import ReliabilityMap
from tasks.metrics.reliability import nll_correct_of_rows, order_by_risk, ranking_metrics
from tasks.metrics.resampling import FEWEST_GROUPS
from tasks.predictions.rows import PredictedRows
from tasks.projection.lattice import LatticeSettings
from tasks.projection.variants import SIMPLEST_FIRST, VARIANTS

FEWEST_ERRORS = 10  # or right decisions
MOST_LABELS = 20  # for which matrix scaling is tried; its time grows with the fourth power


@dataclass(frozen=True)
class Difference:
    """The mean over rows of a difference of losses."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, losses: np.ndarray, group: np.ndarray | None) -> "Difference":
        """Differences `(n,)`; rows of one group `(n,)` stand and fall together."""
        n = len(losses)
        away = losses - losses.mean()
        if group is not None:
            _, code = np.unique(group, return_inverse=True)
            away = np.bincount(code, away)
        few = len(away) / max(len(away) - 1, 1)
        return cls(float(losses.mean()), float(np.sqrt(few * (away**2).sum()) / n))


def losses_of(reliability_map: ReliabilityMap, rows: PredictedRows, smallest: float) -> np.ndarray:
    """The log loss of the reliability of each row `(n,)`, in nats."""
    return nll_correct_of_rows(reliability_map(rows).logit, rows.correct, smallest)


def candidates(losses: Mapping[str, np.ndarray], group: np.ndarray | None) -> list[Candidate]:
    """Each variant's losses `(n,)` beside those of the best one, in the order given."""
    best = min(losses, key=lambda name: float(losses[name].mean()))
    above = {name: Difference.of(own - losses[best], group) for name, own in losses.items()}
    return [
        Candidate(
            variant=name,
            nll_correct=float(own.mean()),
            above_best=above[name].mean,
            standard_error=above[name].standard_error,
        )
        for name, own in losses.items()
    ]


def simplest_within_one_standard_error(judged: Sequence[Candidate]) -> Candidate:
    """The first candidate, from simple to complex, that is no more than its standard error above the best."""
    near = [candidate for candidate in judged if candidate.above_best <= candidate.standard_error]
    return min(near, key=lambda candidate: SIMPLEST_FIRST.index(candidate.variant))


def too_little(rows: PredictedRows) -> str:
    """Why projection-selection rows cannot choose; empty if they can."""
    rarer = min(int(rows.correct.sum()), int((~rows.correct).sum()))
    if rarer < FEWEST_ERRORS:
        which = "right" if rows.correct.mean() < 0.5 else "wrong"
        return f"{rarer} of {len(rows):,} projection-selection rows are {which}, and it takes {FEWEST_ERRORS} to choose"
    groups = len(rows) if rows.group is None else len(np.unique(rows.group))
    if groups < FEWEST_GROUPS:
        return f"there are {groups} groups of projection-selection rows, and it takes {FEWEST_GROUPS} to choose"
    return ""


def reason(chosen: Candidate, judged: Sequence[Candidate], rows: int, calibrator: str) -> str:
    """Why `chosen` was chosen on so many projection-selection rows under `calibrator`, in a sentence or two."""
    best = min(judged, key=lambda candidate: candidate.above_best)
    own, where = VARIANTS[chosen.variant].in_words, f"on {rows:,} projection-selection rows"
    if chosen.variant != best.variant:
        why = (
            f"{own} is the simplest within one standard error of the best {where}: its log loss is "
            f"{chosen.nll_correct:.4f}, {chosen.above_best:.4f} (standard error {chosen.standard_error:.4f}) above "
            f"{VARIANTS[best.variant].in_words}"
        )
    else:
        why = f"{own} has the lowest log loss {where} ({chosen.nll_correct:.4f})"
        if chosen.variant != min((candidate.variant for candidate in judged), key=SIMPLEST_FIRST.index):
            why += ", and everything simpler is more than one standard error worse"
    kept = "keep your confidence" if calibrator == "uncal" else f"keep your confidence, calibrated by {calibrator}"
    return f"{kept}: {why}" if chosen.variant == "confidence" else why


def recalibration(reliability_map: ReliabilityMap, parts: Parts, smallest: float) -> tuple[Difference, float] | None:
    """Matrix scaling on the calibrator-fit rows, confidence alone, against the map.

    The difference of its log loss to the map's on projection-selection rows, and the share of rows whose decision
    would no longer be the most probable label under it. None without logits, or for more than 20 labels.
    """
    rows = parts.projection_selection
    if rows.logits is None or parts.n_labels > MOST_LABELS:
        return None
    matrix = fit_calibrator("matrix", parts.calibrator_fit, seed=parts.seed)
    losses = losses_of(ReliabilityMap(matrix), rows, smallest) - losses_of(reliability_map, rows, smallest)
    moved = float(np.mean(matrix(rows.logits).argmax(axis=1) != rows.decision))
    return Difference.of(losses, rows.group), moved


def gains(
    calibrator: str, variant: str, parts: Parts, settings: LatticeSettings, steps: Sequence[int], smallest: float
) -> list[Gain]:
    """What `variant` buys over confidence if each of the two fits has only so many of the first rows, for each step."""
    rows = parts.projection_selection
    fits = fit_calibrators(calibrator, parts.calibrator_fit, steps, seed=parts.seed)
    batches = [batch_under(fit, parts, settings, step) for fit, step in zip(fits, steps, strict=True)]
    gained = []
    for step, fit, value in zip(steps, fits, fit_variant_on_each(batches, variant), strict=True):
        with_it, without = ReliabilityMap(fit, value), ReliabilityMap(fit)
        change = Difference.of(losses_of(with_it, rows, smallest) - losses_of(without, rows, smallest), rows.group)
        ranked = (order_by_risk(each(rows).logit, rows.correct) for each in (with_it, without))
        after, before = (float(ranking_metrics(order)["aurc"][0]) for order in ranked)
        facts = {"nll_correct": change.mean, "nll_correct_standard_error": change.standard_error}
        gained.append(Gain(rows=min(step, len(parts.projection_fit)), aurc=after - before, **facts))
    return gained
