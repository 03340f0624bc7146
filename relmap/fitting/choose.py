"""Which variant of a map to deploy: the one of the lowest log loss out of fold, the simpler of two equal ones.

The whole vector is taken instead, unless it is behind by more than two standard errors: on real sets it is the best of
them, and where the rows do not speak for it it is temperature scaling, which chance must not be let to reject. The fits
shrink by themselves, so nothing is added for being complex; how sure the gain is beside the confidence stands in an
interval, and does not choose. Where rows were drawn with known probabilities, losses are those of all rows: each counts
by the inverse. Curves take no weights: how often a decision is right at a confidence and a label does not depend on how
many rows were drawn there, and what is one for all labels loses where it would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.errors import InputError
from relmap.evaluation.evaluate import JudgedDecisions, compared
from relmap.fitting.cross_fit import CONSTANT, Trial, as_in_the_paper, cross_fit
from relmap.fitting.labelled import Division
from relmap.io.rows import PredictedRows
from relmap.maps.document import Candidate, Choice, Gain, Source
from relmap.metrics.advice import KEEP, SAFE, USE, Advice, advise_map, describe_insufficient_errors
from relmap.metrics.reliability import find_tie_groups, ranking_metrics
from relmap.projection.variants import AUTO_VARIANTS, DEPLOYABLE_VARIANTS, PIPELINE_VARIANTS, VARIANTS
from relmap.projection.whole_vector import MAX_LABELS
from relmap.settings import MetricParams, Settings, row_counts

AUTO = "auto"
WHOLE_VECTOR = "label_vector"
MOST_LABELS_CLASSWISE = 50  # for a class-wise calibrator
LEVEL = 0.95  # of intervals
CLEARLY = 2  # standard errors; measured at 100 to 3,000 rows
WIDER = 1.3  # than for one fit: the fits of the folds share rows, and one of several candidates is chosen; measured


def check_names(calibrator: str, variant: str, rows: PredictedRows, n_labels: int) -> None:
    """Raise InputError where a calibrator or a variant is unknown, or cannot be had from what is there."""
    if rows.kind == "decision_only":
        if calibrator != CONSTANT:
            raise InputError(
                f"the calibrator {calibrator} needs a confidence, and there is a decision alone; leave it away"
            )
    elif calibrator not in CALIBRATORS:
        raise InputError(f"there is no calibrator {calibrator!r}; there are {', '.join(CALIBRATORS)}")
    elif rows.logits is None and not CALIBRATORS[calibrator].accepts_confidence:
        able = " and ".join(key for key, each in CALIBRATORS.items() if each.accepts_confidence)
        needed = f"the calibrator {calibrator} needs logits or probabilities"
        raise InputError(f"{needed}; for a decision and a confidence there are {able}")
    if calibrator in calibrators_with_role("rival") and n_labels > MOST_LABELS_CLASSWISE:
        raise InputError(
            f"the calibrator {calibrator} takes too long for {n_labels} labels; ts is for any number of them"
        )
    if variant not in (AUTO, *DEPLOYABLE_VARIANTS):
        why = ", which reads the runner-up as well as the confidence" if variant == "label_2d" else ""
        raise InputError(
            f"a map cannot hold the variant {variant!r}{why}; it can hold {', '.join((AUTO, *DEPLOYABLE_VARIANTS))}"
        )
    if variant != AUTO and variant not in offered(rows, n_labels, DEPLOYABLE_VARIANTS):
        needs = {"logits": f"logits or probabilities of {MAX_LABELS} labels at most", "signals": "signals"}
        needed = needs.get(VARIANTS[variant].required_input, "a confidence")
        raise InputError(f"the variant {variant} needs {needed}; give them, or take the variant auto")


def offered(rows: PredictedRows, n_labels: int, names: Sequence[str] = AUTO_VARIANTS) -> tuple[str, ...]:
    """Which of `names` can be had from what these rows hold."""
    there = {"confidence"}
    if rows.logits is not None and n_labels <= MAX_LABELS:
        there.add("logits")
    if rows.signals is not None:
        there.add("signals")
    names = tuple(name for name in names if VARIANTS[name].required_input in there)
    if rows.kind == "decision_only":  # without a confidence there is nothing to draw a curve over
        names = tuple(name for name in names if name in ("confidence", "label_intercept", "label_signals"))
    return names


@dataclass(frozen=True)
class Difference:
    """The mean over rows of a difference of losses."""

    mean: float
    standard_error: float
    units: int  # rows, or groups of rows that stand and fall together

    @classmethod
    def of(cls, losses: np.ndarray, group: np.ndarray | None, weight: np.ndarray | None = None) -> "Difference":
        """Differences `(n,)`; rows of one group `(n,)` stand and fall together, each counts by its `weight`."""
        mean, total = np.average(losses, weights=weight), len(losses) if weight is None else weight.sum()
        away = (losses - mean) * (1 if weight is None else weight)
        if group is not None:
            _, code = np.unique(group, return_inverse=True)
            away = np.bincount(code, away)
        few = len(away) / max(len(away) - 1, 1)
        return cls(float(mean), float(np.sqrt(few * (away**2).sum()) / total), len(away))

    @property
    def interval(self) -> tuple[float, float]:
        """Where the difference lies for fresh rows with 95% confidence, by Student's t, made `WIDER`."""
        half = float(scipy.special.stdtrit(max(self.units - 1, 1), (1 + LEVEL) / 2)) * WIDER * self.standard_error
        return self.mean - half, self.mean + half


def candidates(losses: Mapping[str, np.ndarray], rows: PredictedRows) -> tuple[Candidate, ...]:
    """Each variant's losses of `rows`, `(n,)`, beside those of the confidence, in the order given."""
    judged = []
    for name, of_rows in losses.items():
        change = Difference.of(of_rows - losses["confidence"], rows.group, rows.weight)
        low, high = change.interval
        mean = float(np.average(of_rows, weights=rows.weight))
        judged.append(Candidate(variant=name, nll_correct=mean, change=change.mean, low=low, high=high))
    return tuple(judged)


def best_of(judged: Sequence[Candidate]) -> Candidate:
    """The candidate of the lowest loss; of equals the first, which is the simpler."""
    return min(judged, key=lambda candidate: candidate.nll_correct)


def to_deploy(judged: Sequence[Candidate], losses: Mapping[str, np.ndarray], rows: PredictedRows) -> Candidate:
    """The whole vector, or the best candidate where that is clearly better, or there is no whole vector."""
    best = best_of(judged)
    vector = next((candidate for candidate in judged if candidate.variant == WHOLE_VECTOR), best)
    behind = Difference.of(losses[vector.variant] - losses[best.variant], rows.group, rows.weight)
    return vector if behind.mean <= CLEARLY * behind.standard_error else best


def gains_shown(chosen: str, judged: Sequence[Candidate]) -> str | None:
    """The variant whose gains are shown: `chosen`, or the best beside a confidence that is kept; None without any."""
    others = [candidate for candidate in judged if candidate.variant != "confidence"]
    return (chosen if chosen != "confidence" else best_of(others).variant) if others else None


def reason(chosen: Candidate, best: Candidate, rows: int, calibrator: str) -> str:
    """Say what the map contains by the lowest loss on so many rows, and why."""
    lowest = "has the lowest log loss"
    if chosen is not best:
        lowest = f"is within {CLEARLY} standard errors of the lowest log loss ({VARIANTS[best.variant].title})"
    what = kept(calibrator) if chosen.variant == "confidence" else VARIANTS[chosen.variant].description
    return f"{what}, which {lowest} on {rows:,} rows that the fit had not seen ({chosen.nll_correct:.4f})"


def kept(calibrator: str) -> str:
    """Say what a map contains that keeps the confidence."""
    if calibrator == CONSTANT:
        return "the same reliability for every decision"
    return "your confidence" if calibrator == "uncal" else f"your confidence, calibrated by {calibrator}"


@dataclass(frozen=True, eq=False)
class Chosen:
    """The variant that a map contains, and what that rests on."""

    variant: str
    advice: Advice  # the headline of the fit
    choice: Choice
    trial: Trial


def advise_on(name: str, trial: Trial, judged: Sequence[Candidate], order: np.ndarray, params: MetricParams) -> Advice:
    """Return what to do with a variant by its out-of-fold predictions.

    Args:
        name: Key of the variant.
        trial: Out-of-fold predictions.
        judged: Log losses of the variants, with intervals made wider for the choice among them.
        order: Row numbers that sort the rows as in their file, shape (n,), so that an evaluation of the same file
            draws the same resamples.
        params: Settings of the metrics.
    """
    rows, scored = trial.rows.take(order), trial.scores(name).take(order)
    evaluation = compared(JudgedDecisions.of(rows, scored, params))
    log_loss = next(each for each in judged if each.variant == name)
    changes = evaluation["metrics"]
    changes["nll_correct"] |= {"low": log_loss.low, "high": log_loss.high}
    sizes = {size: evaluation[size] for size in ("rows", "errors", "groups")}
    return advise_map(changes, **sizes, smallest=params.smallest_relevant_change)


def choose_map(
    rows: PredictedRows,
    division: Division,
    n_labels: int,
    calibrator: str,
    variant: str,
    settings: Settings,
    source: Source,
) -> Chosen:
    """Fit what is asked for, or all that `auto` chooses from, and choose what the map contains.

    `auto` adds a monotone correction to the chosen score. It keeps the confidence unless the advice on that score is to
    use it, so that the headline and the map always agree. The gains of a choice are those of a fit to so many rows, the
    first ones of each fold; the last number is all.
    """
    names = offered(rows, n_labels) if variant == AUTO else tuple(dict.fromkeys(("confidence", variant)))
    if source.protocol is not None:
        names = tuple(name for name in names if name in PIPELINE_VARIANTS)
        trial = as_in_the_paper(rows, n_labels, calibrator, names, settings, source)
    else:
        trial = cross_fit(rows, division, n_labels, calibrator, names, settings, source.seed)
    losses = {name: trial.losses(name) for name in names}
    judged = candidates(losses, trial.rows)
    lacking = describe_insufficient_errors(len(trial.rows), int((~trial.rows.correct).sum()))
    taken = to_deploy(judged, losses, trial.rows)
    chosen = variant if variant != AUTO else "confidence" if lacking else taken.variant
    corrected = variant == AUTO and source.protocol is None and can_be_corrected(chosen, rows)
    if corrected:
        trial = trial.with_correction(chosen)
        judged = candidates(losses | {chosen: trial.losses(chosen)}, trial.rows)
    why = reason(taken, best_of(judged), len(trial.rows), calibrator)
    if variant != AUTO:
        why = f"{VARIANTS[variant].description}, as asked for"
    if chosen == "confidence":
        advice = Advice(KEEP, lacking or ("as asked for" if variant != AUTO else "it has the lowest log loss"))
    else:
        unsorted = division.fitted if source.protocol is None else np.arange(len(trial.rows))
        advice = advise_on(chosen, trial, judged, np.argsort(unsorted), settings.metrics)
    if variant == AUTO and advice.answer not in (USE, SAFE):
        if chosen != "confidence":
            advice = Advice(KEEP, advice.because)
            why = f"{kept(calibrator)}, in place of {VARIANTS[chosen].description}: {advice.because}"
        elif lacking:
            why = f"{kept(calibrator)}: {lacking}"
        chosen = "confidence"
    gains: list[Gain] = []
    if source.protocol is None and (shown := gains_shown(chosen, judged)):
        corrects = corrected and shown == chosen
        trainings = [rows.take(division.training(place)).correct for place in range(len(division.folds))]
        for step in row_counts(settings.learning_curve_rows, least := min(map(len, trainings))):
            if step <= least // 2 and all(0 < correct[:step].sum() < step for correct in trainings):
                asked = division, n_labels, calibrator, ("confidence", shown), settings, source.seed
                fewer = cross_fit(rows, *asked, most=step)
                gains.append(_gain(step, shown, fewer.with_correction(shown, step) if corrects else fewer))
        gains.append(_gain(len(trial.rows), shown, trial))
    choice = Choice(asked=variant, reason=why, candidates=judged, gains=tuple(gains))
    return Chosen(chosen, advice, choice, trial)


def can_be_corrected(variant: str, rows: PredictedRows) -> bool:
    """Return whether `auto` corrects the score of a variant; without a confidence, scores differ by label alone."""
    return variant != "confidence" and rows.kind != "decision_only"


def _gain(rows: int, variant: str, trial: Trial) -> Gain:
    judged, at = trial.rows, trial.rows.copies
    change = Difference.of(trial.losses(variant) - trial.losses("confidence"), judged.group, judged.weight)
    ranked = (find_tie_groups(trial.scores(name).logit[at], judged.correct[at]) for name in (variant, "confidence"))
    after, before = (float(ranking_metrics(groups)["aurc"][0]) for groups in ranked)
    facts = {"nll_correct": change.mean, "nll_correct_standard_error": change.standard_error}
    return Gain(rows=rows, aurc=after - before, **facts)
