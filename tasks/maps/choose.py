"""The calibrator and the variants of a map, fitted on all labelled rows, and which one to deploy.

Each row is judged by a fit on the folds that it is not in. The variant of the lowest log loss out of fold is taken, the
simpler of two equal ones. The fits shrink by themselves, so nothing is added for being complex; how sure the gain is
beside the confidence stands in an interval, and does not choose.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import stdtrit

from tasks.calibrators import CALIBRATORS, calibrators_for, fit_on_first
from tasks.calibrators.identity import Identity
from tasks.calibrators.spline import fit_spline_of_confidence
from tasks.maps.constant import fit_constant
from tasks.maps.document import Calibrator, Candidate, Choice, Fold, Gain, Variant
from tasks.maps.labelled import Division, paper_parts
from tasks.maps.reliability_map import ReliabilityMap, Scored, calibrated_logit
from tasks.metrics.reliability import nll_correct_of_rows, order_by_risk, ranking_metrics
from tasks.predictions.rows import PredictedRows
from tasks.projection.batch import Batch
from tasks.projection.decisions import Decisions, LabelledDecisions
from tasks.projection.lattice import LatticeSettings
from tasks.projection.variants import AUTOMATIC, DEPLOYABLE, PROJECTED, VARIANTS, project_batch, project_pooled
from tasks.projection.whole_vector import MOST_LABELS
from tasks.protocol.errors import BadInput
from tasks.protocol.params import Params, ProtocolParams

AUTO = "auto"
CONSTANT = "constant"  # the calibrator of decisions without a confidence
FEWEST_ERRORS = 10  # or correct decisions
MOST_LABELS_CLASSWISE = 50  # for a class-wise calibrator
LEVEL = 0.95  # of intervals
WIDER = 1.3  # than for one fit: the fits of the folds share rows, and one of several candidates is chosen; measured


def check_names(calibrator: str, variant: str, rows: PredictedRows, n_labels: int) -> None:
    """Raise BadInput where a calibrator or a variant is unknown, or cannot be had from what is there."""
    if rows.kind == "decision_only":
        if calibrator != CONSTANT:
            raise BadInput(f"the calibrator {calibrator} needs a confidence, and there is a decision alone")
    elif calibrator not in CALIBRATORS:
        raise BadInput(f"there is no calibrator {calibrator!r}; there are {', '.join(CALIBRATORS)}")
    elif rows.logits is None and not CALIBRATORS[calibrator].of_confidence:
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
    if variant != AUTO and variant not in offered(rows, n_labels, DEPLOYABLE):
        needs = {"logits": f"logits or probabilities of {MOST_LABELS} labels at most", "signals": "--signals"}
        needed = needs.get(VARIANTS[variant].reads, "a confidence")
        raise BadInput(f"the variant {variant} needs {needed}")


def offered(rows: PredictedRows, n_labels: int, names: Sequence[str] = AUTOMATIC) -> tuple[str, ...]:
    """Which of `names` can be had from what these rows hold."""
    there = {"confidence"}
    if rows.logits is not None and n_labels <= MOST_LABELS:
        there.add("logits")
    if rows.signals is not None:
        there.add("signals")
    names = tuple(name for name in names if VARIANTS[name].reads in there)
    if rows.kind == "decision_only":  # without a confidence there is nothing to draw a curve over
        names = tuple(name for name in names if name in ("confidence", "label_intercept", "label_signals"))
    return names


def fit_calibrator(name: str, rows: PredictedRows, *, seed: int) -> Calibrator:
    """The calibrator `name` on all rows."""
    assert rows.label is not None
    if rows.logits is not None:
        return fit_on_first(name, rows.logits, rows.label, [len(rows)], seed=seed)[0]
    if name == CONSTANT:
        return fit_constant(int(rows.correct.sum()), len(rows))
    if name == "uncal":
        return Identity()
    assert rows.confidence is not None
    return fit_spline_of_confidence(rows.confidence, rows.correct)


@dataclass(frozen=True, eq=False)
class Fit:
    """A calibrator, and variants by name."""

    calibrator: Calibrator
    variants: Mapping[str, Variant]
    matrix: Calibrator | None = None  # matrix scaling of the same rows, for who may recalibrate instead


def matrix_beside(calibrator: str, rows: PredictedRows, n_labels: int) -> Calibrator | None:
    """Matrix scaling of `rows`, for who may recalibrate instead; None without logits, and beside a rival like it."""
    if rows.logits is None or n_labels > MOST_LABELS or calibrator in calibrators_for("rival"):
        return None
    return fit_calibrator("matrix", rows, seed=0)


def batch_under(
    calibrator: Calibrator,
    rows: PredictedRows,
    n_labels: int,
    settings: LatticeSettings,
    selection: PredictedRows | None = None,
) -> Batch:
    """What the variants are fitted on under one calibrator."""

    def of(rows: PredictedRows) -> LabelledDecisions:
        seen = Decisions(calibrated_logit(calibrator, rows), rows.decision, None, rows.logits, rows.signals)
        return LabelledDecisions([seen], rows.correct, rows.label)

    return Batch(of(rows), n_labels, settings, None if selection is None else of(selection))


@dataclass(frozen=True, eq=False)
class Trial:
    """What is to be deployed, and what candidates say of rows that the fits behind it have not seen."""

    deployed: Fit
    folds: tuple[Fit, ...]
    rows: PredictedRows  # that are judged
    fold: np.ndarray  # (n,) which of the folds has not seen the row
    scores: Mapping[str, Scored]  # of each candidate
    rival: Scored | None  # of matrix scaling, the same decisions
    moved: float  # share of the rows that it would decide otherwise
    decided: np.ndarray  # decisions of the rows that the variants of what is deployed are fitted on

    def losses(self, name: str, smallest: float) -> np.ndarray:
        """The log loss of the reliability of each row `(n,)`, in nats."""
        return nll_correct_of_rows(self.scores[name].logit, self.rows.correct, smallest)


def cross_fit(
    rows: PredictedRows,
    division: Division,
    n_labels: int,
    calibrator: str,
    names: Sequence[str],
    params: Params,
    seed: int,
) -> Trial:
    """Fit everything on all folds but one, for each, and on all of them."""
    settings = LatticeSettings.chosen(params.projection)

    def fit(training: np.ndarray) -> Fit:
        on = rows.take(training)
        fitted = fit_calibrator(calibrator, on, seed=seed)
        values = project_pooled(batch_under(fitted, on, n_labels, settings), tuple(names))
        return Fit(fitted, {name: value for name, (value,) in values.items()}, matrix_beside(calibrator, on, n_labels))

    folds = tuple(fit(division.training(place)) for place in range(len(division.folds)))
    fold = np.repeat(np.arange(len(folds)), [len(part) for part in division.folds])
    used = rows.take(division.fitted)
    return _tried(fit(division.fitted), folds, used, fold, used.decision)


def as_in_the_paper(
    rows: PredictedRows,
    n_labels: int,
    calibrator: str,
    names: Sequence[str],
    params: Params,
    seed: int,
    protocol: ProtocolParams,
) -> tuple[Trial, tuple[int, int]]:
    """Fit everything on the parts of the paper's protocol, and read it on projection-selection rows.

    Returns what was tried, and the rows behind the calibrator and behind the variants.
    """
    everything, calibrator_fit, projection_fit, selection = paper_parts(rows, seed, protocol)
    settings = replace(LatticeSettings.chosen(params.projection), minimum_rows=0)  # each label on its own rows
    behind = everything if calibrator == "ts" else calibrator_fit
    fitted = fit_calibrator(calibrator, behind, seed=seed)
    values = project_batch(batch_under(fitted, projection_fit, n_labels, settings, selection), tuple(names))
    matrix = matrix_beside(calibrator, calibrator_fit, n_labels)
    fit = Fit(fitted, {name: value for name, (value,) in values.items()}, matrix)
    trial = _tried(fit, (fit,), selection, np.zeros(len(selection), dtype=np.int64), projection_fit.decision)
    return trial, (len(behind), len(projection_fit))


def _tried(deployed: Fit, folds: tuple[Fit, ...], rows: PredictedRows, fold: np.ndarray, decided: np.ndarray) -> Trial:
    def read(say: Callable[[Fit, PredictedRows], Scored]) -> Scored:
        parts = [say(fit, rows.take(fold == place)) for place, fit in enumerate(folds)]
        return Scored(
            np.concatenate([part.confidence for part in parts]), np.concatenate([part.logit for part in parts])
        )

    scores = {name: read(partial(_scored, name)) for name in folds[0].variants}
    if any(fit.matrix is None for fit in folds) or rows.logits is None:
        return Trial(deployed, folds, rows, fold, scores, None, 0.0, decided)
    logits = rows.logits
    rival = read(lambda fit, part: ReliabilityMap(fit.matrix)(part))
    otherwise = [fit.matrix(logits[fold == place]).argmax(axis=1) for place, fit in enumerate(folds)]  # type: ignore[misc]
    moved = float(np.mean(np.concatenate(otherwise) != rows.decision))
    return Trial(deployed, folds, rows, fold, scores, rival, moved, decided)


def _scored(name: str, fit: Fit, rows: PredictedRows) -> Scored:
    return ReliabilityMap(fit.calibrator, fit.variants[name])(rows)


@dataclass(frozen=True)
class Difference:
    """The mean over rows of a difference of losses."""

    mean: float
    standard_error: float
    units: int  # rows, or groups of rows that stand and fall together

    @classmethod
    def of(cls, losses: np.ndarray, group: np.ndarray | None) -> "Difference":
        """Differences `(n,)`; rows of one group `(n,)` stand and fall together."""
        n = len(losses)
        away = losses - losses.mean()
        if group is not None:
            _, code = np.unique(group, return_inverse=True)
            away = np.bincount(code, away)
        few = len(away) / max(len(away) - 1, 1)
        return cls(float(losses.mean()), float(np.sqrt(few * (away**2).sum()) / n), len(away))

    @property
    def interval(self) -> tuple[float, float]:
        """Where the difference lies for fresh rows with 95% confidence, by Student's t, made `WIDER`."""
        half = float(stdtrit(max(self.units - 1, 1), (1 + LEVEL) / 2)) * WIDER * self.standard_error
        return self.mean - half, self.mean + half


def candidates(losses: Mapping[str, np.ndarray], group: np.ndarray | None) -> tuple[Candidate, ...]:
    """Each variant's losses `(n,)` beside those of the confidence, in the order given."""
    judged = []
    for name, of_rows in losses.items():
        change = Difference.of(of_rows - losses["confidence"], group)
        low, high = change.interval
        judged.append(
            Candidate(variant=name, nll_correct=float(of_rows.mean()), change=change.mean, low=low, high=high)
        )
    return tuple(judged)


def best_of(judged: Sequence[Candidate]) -> Candidate:
    """The candidate of the lowest loss; of equals the first, which is the simpler."""
    return min(judged, key=lambda candidate: candidate.nll_correct)


def gains_shown(chosen: str, judged: Sequence[Candidate]) -> str | None:
    """The variant whose gains are shown: `chosen`, or the best beside a confidence that is kept; None without any."""
    others = [candidate for candidate in judged if candidate.variant != "confidence"]
    return (chosen if chosen != "confidence" else best_of(others).variant) if others else None


def too_little(rows: PredictedRows) -> str:
    """Why rows cannot choose; empty if they can."""
    rarer = min(int(rows.correct.sum()), int((~rows.correct).sum()))
    if rarer < FEWEST_ERRORS:
        which = "correct" if rows.correct.mean() < 0.5 else "wrong"
        return f"{rarer} of {len(rows):,} decisions are {which}, and it takes {FEWEST_ERRORS} to choose by"
    return ""


def reason(chosen: Candidate, rows: int, calibrator: str) -> str:
    """Why `chosen` was chosen on so many rows under `calibrator`, in a sentence."""
    own = VARIANTS[chosen.variant].in_words
    why = f"{own} has the lowest log loss on {rows:,} rows that the fit had not seen ({chosen.nll_correct:.4f})"
    if chosen.variant != "confidence":
        return why
    return f"{kept(calibrator)}: {why}"


def kept(calibrator: str) -> str:
    """The advice to keep the confidence."""
    if calibrator == CONSTANT:
        return "take the same reliability for every decision"
    return "keep your confidence" if calibrator == "uncal" else f"keep your confidence, calibrated by {calibrator}"


def gains(
    variant: str, trial: Trial, division: Division, rows: PredictedRows, n_labels: int, calibrator: str, params: Params
) -> tuple[Gain, ...]:
    """What `variant` buys over the confidence if it and the calibrator have only so many rows, for several numbers.

    Each fold is judged by fits on the first rows of the other ones; the last number is all of them.
    """
    settings, smallest = LatticeSettings.chosen(params.projection), params.metrics.smallest_reliability
    least = min(len(division.training(place)) for place in range(len(division.folds)))
    gained = []
    for step in (step for step in params.rivals.asked(least) if step <= least // 2):
        fits = []
        for place in range(len(division.folds)):
            on = rows.take(division.training(place)[:step])
            if on.label is None or not 0 < on.correct.sum() < len(on):
                break
            fitted = fit_calibrator(calibrator, on, seed=0)
            batch = batch_under(fitted, on, n_labels, settings)
            values = project_pooled(batch, ("confidence", variant))
            fits.append(Fit(fitted, {name: value for name, (value,) in values.items()}))
        if len(fits) == len(division.folds):
            gained.append(
                _gain(
                    step, variant, _tried(trial.deployed, tuple(fits), trial.rows, trial.fold, trial.decided), smallest
                )
            )
    return (*gained, _gain(len(division.fitted), variant, trial, smallest))


def _gain(rows: int, variant: str, trial: Trial, smallest: float) -> Gain:
    change = Difference.of(trial.losses(variant, smallest) - trial.losses("confidence", smallest), trial.rows.group)
    ranked = (order_by_risk(trial.scores[name].logit, trial.rows.correct) for name in (variant, "confidence"))
    after, before = (float(ranking_metrics(order)["aurc"][0]) for order in ranked)
    facts = {"nll_correct": change.mean, "nll_correct_standard_error": change.standard_error}
    return Gain(rows=rows, aurc=after - before, **facts)


def choose_map(
    rows: PredictedRows,
    division: Division,
    n_labels: int,
    calibrator: str,
    variant: str,
    params: Params,
    seed: int,
    protocol: ProtocolParams | None,
) -> tuple[str, Trial, Choice, tuple[int, int]]:
    """Fit what is asked for, or all that `auto` chooses from.

    Returns the name of the variant that is taken, what was tried, why, and the rows behind calibrator and variant.
    """
    names = offered(rows, n_labels) if variant == AUTO else tuple(dict.fromkeys(("confidence", variant)))
    if protocol is not None:
        names = tuple(name for name in names if name in PROJECTED)
        trial, behind = as_in_the_paper(rows, n_labels, calibrator, names, params, seed, protocol)
    else:
        trial = cross_fit(rows, division, n_labels, calibrator, names, params, seed)
        behind = len(division.fitted), len(division.fitted)
    smallest = params.metrics.smallest_reliability
    judged = candidates({name: trial.losses(name, smallest) for name in names}, trial.rows.group)
    if variant != AUTO:
        chosen, why = variant, f"{VARIANTS[variant].in_words}, as asked for"
    elif lacking := too_little(trial.rows):
        chosen, why = "confidence", f"{kept(calibrator)}: {lacking}"
    else:
        best = best_of(judged)
        chosen, why = best.variant, reason(best, len(trial.rows), calibrator)
    learned: tuple[Gain, ...] = ()
    if protocol is None and (shown := gains_shown(chosen, judged)):
        learned = gains(shown, trial, division, rows, n_labels, calibrator, params)
    return chosen, trial, Choice(asked=variant, reason=why, candidates=judged, gains=learned), behind


def folds_of(trial: Trial, variant: str, protocol: ProtocolParams | None) -> tuple[Fold, ...]:
    """The fits behind what was judged, as a map keeps them; none under the paper's protocol."""
    if protocol is not None:
        return ()
    return tuple(Fold(calibrator=fit.calibrator, projection=fit.variants[variant]) for fit in trial.folds)
