"""The calibrator and the variants of a map, fitted as the pipeline fits them for one seed, and which one to deploy.

It is the simplest within one standard error of the best on projection-selection rows. The rule is Breiman et al.'s
(1984, section 3.4.3), on the log loss of the reliability against correct. The standard error is that of the difference
to the best one, row by row (group by group, where rows go together): all candidates are judged on the same rows, and
what they share says nothing about which is better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasks.calibrators import CALIBRATORS, calibrators_for, fit_on_first
from tasks.calibrators.identity import Identity
from tasks.calibrators.spline import fit_spline_of_confidence
from tasks.maps.document import Calibrator, Candidate, Choice, Gain, Variant
from tasks.maps.labelled import Parts
from tasks.maps.reliability_map import ReliabilityMap, calibrated_logit
from tasks.metrics.reliability import nll_correct_of_rows, order_by_risk, ranking_metrics
from tasks.metrics.resampling import FEWEST_GROUPS
from tasks.predictions.rows import PredictedRows
from tasks.projection.batch import Batch, project_together
from tasks.projection.decisions import Decisions, LabelledDecisions
from tasks.projection.lattice import LatticeSettings
from tasks.projection.variants import DEPLOYABLE, SIMPLEST_FIRST, VARIANTS, project_batch
from tasks.protocol.errors import BadInput
from tasks.protocol.params import Params

AUTO = "auto"
FEWEST_ERRORS = 10  # or right decisions
MOST_LABELS_CLASSWISE = 50  # for a class-wise calibrator
MOST_LABELS = 20  # for which matrix scaling is tried; its time grows with the fourth power


def check_names(calibrator: str, variant: str, *, confidence_only: bool, n_labels: int) -> None:
    """Raise BadInput where a calibrator or a variant is unknown, or cannot be had from what is there."""
    if calibrator not in CALIBRATORS:
        raise BadInput(f"there is no calibrator {calibrator!r}; there are {', '.join(CALIBRATORS)}")
    if confidence_only and not CALIBRATORS[calibrator].of_confidence:
        able = " and ".join(key for key, each in CALIBRATORS.items() if each.of_confidence)
        needed = f"the calibrator {calibrator} needs logits or probabilities"
        raise BadInput(f"{needed}; for a decision and a confidence there are {able}")
    if calibrator in calibrators_for("rival") and n_labels > MOST_LABELS_CLASSWISE:
        raise BadInput(
            f"the calibrator {calibrator} takes too long for {n_labels} labels; ts is for any number of them"
        )
    if variant not in (AUTO, *DEPLOYABLE):
        why = ", which reads the runner-up as well as the confidence" if variant == "label_2d" else ""
        raise BadInput(f"a map cannot hold the variant {variant!r}{why}; it can hold {', '.join((AUTO, *DEPLOYABLE))}")


def fit_calibrator(name: str, rows: PredictedRows, *, seed: int) -> Calibrator:
    """The calibrator `name` on all rows."""
    return fit_calibrators(name, rows, [len(rows)], seed=seed)[0]


def fit_calibrators(name: str, rows: PredictedRows, first: Sequence[int], *, seed: int) -> list[Calibrator]:
    """The calibrator `name` on so many of the first rows, for each of `first`."""
    assert rows.label is not None
    if rows.logits is not None:
        return fit_on_first(name, rows.logits, rows.label, first, seed=seed)
    if name == "uncal":
        return [Identity() for _ in first]
    assert rows.confidence is not None
    return [fit_spline_of_confidence(rows.confidence[:n], rows.correct[:n]) for n in first]


def batch_under(calibrator: Calibrator, parts: Parts, settings: LatticeSettings, first: int | None = None) -> Batch:
    """What the variants are fitted on under one calibrator, on the first rows only if `first` says so."""

    fit, selection = (
        LabelledDecisions([Decisions(calibrated_logit(calibrator, rows), rows.decision)], rows.correct)
        for rows in (parts.projection_fit.take(slice(first)), parts.projection_selection)
    )
    return Batch(fit, parts.n_labels, settings, None if parts.paper is None else selection)


def offered(calibrator: Calibrator, parts: Parts) -> tuple[str, ...]:
    """What auto chooses from: a shift or a line needs a logit, which a confidence of exactly 0 or 1 does not have."""
    logits = [calibrated_logit(calibrator, rows) for rows in (parts.projection_fit, parts.projection_selection)]
    certain = np.isinf(np.concatenate(logits)).any()
    return tuple(name for name in SIMPLEST_FIRST if not (certain and VARIANTS[name].of_the_logit))


def fit_variants(batch: Batch, names: Sequence[str]) -> dict[str, Variant]:
    """The variants `names` by name, in that order."""
    return {name: fitted[0] for name, fitted in project_batch(batch, tuple(names)).items()}


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
    best = min(losses.values(), key=lambda of_rows: float(of_rows.mean()))
    judged = []
    for name, of_rows in losses.items():
        above = Difference.of(of_rows - best, group)
        facts = {"above_best": above.mean, "standard_error": above.standard_error}
        judged.append(Candidate(variant=name, nll_correct=float(of_rows.mean()), **facts))
    return judged


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
    values: list[Variant] = []
    if variant == "mrp":  # its curves descend side by side
        values += [curves for (curves,) in project_together(batches)]
    else:
        values += [fit_variants(batch, [variant])[variant] for batch in batches]
    gained = []
    for step, fit, value in zip(steps, fits, values, strict=True):
        both = ReliabilityMap(fit, value), ReliabilityMap(fit)
        after, before = (losses_of(made, rows, smallest) for made in both)
        change = Difference.of(after - before, rows.group)
        ranked = (order_by_risk(made(rows).logit, rows.correct) for made in both)
        aurc, aurc_before = (float(ranking_metrics(order)["aurc"][0]) for order in ranked)
        facts = {"nll_correct": change.mean, "nll_correct_standard_error": change.standard_error}
        gained.append(Gain(rows=min(step, len(parts.projection_fit)), aurc=aurc - aurc_before, **facts))
    return gained


def choose_map(parts: Parts, params: Params, calibrator: str, variant: str) -> tuple[str, ReliabilityMap, Choice]:
    """Fit what is asked for, or all that `auto` chooses from; the variant that is taken, its map, and why."""
    settings = LatticeSettings.chosen(params.projection)
    if parts.paper is not None:  # there every label stands on its own rows, however few
        settings = replace(settings, minimum_rows=0)
    smallest = params.metrics.smallest_reliability
    selection = parts.projection_selection
    fitted = fit_calibrator(calibrator, parts.fit_rows(calibrator), seed=parts.seed)
    wanted = offered(fitted, parts) if variant == AUTO else tuple(dict.fromkeys(("confidence", variant)))
    variants = fit_variants(batch_under(fitted, parts, settings), wanted)
    maps = {name: ReliabilityMap(fitted, value) for name, value in variants.items()}
    judged = candidates({name: losses_of(made, selection, smallest) for name, made in maps.items()}, selection.group)
    if variant != AUTO:
        chosen, why = variant, f"{VARIANTS[variant].in_words}, as asked for"
    elif lacking := too_little(selection):
        chosen, why = "confidence", f"keep your confidence: {lacking}"
    else:
        simplest = simplest_within_one_standard_error(judged)
        chosen, why = simplest.variant, reason(simplest, judged, len(selection), calibrator)
    shown = "mrp" if chosen == "confidence" else chosen
    steps = params.rivals.asked(min(len(parts.calibrator_fit), len(parts.projection_fit)))
    fewer = gains(calibrator, shown, parts, settings, steps, smallest)
    return chosen, maps[chosen], Choice(asked=variant, reason=why, candidates=tuple(judged), gains=tuple(fewer))
