"""Labelled predictions to a whole reliability map: fitted, chosen, and described for those who will rely on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from pydantic import ValidationError

from relmap.errors import InputError, describe_validation_errors
from relmap.evaluation.drift import reference, top_reference
from relmap.evaluation.evaluate import plain
from relmap.evaluation.top import TOP_TENTHS
from relmap.evaluation.verdict import OUT_OF_FOLD, of_candidates, of_leaning, of_recalibration, of_spread
from relmap.fitting.choose import AUTO, Difference, check_names, choose_map, gains_shown
from relmap.fitting.cross_fit import Trial
from relmap.fitting.labelled import check_enough, divide, seen_in_the_paper
from relmap.fitting.training_rows import hash_training_rows
from relmap.io.columns import listed
from relmap.io.rows import PredictedRows
from relmap.io.signals import Signal
from relmap.maps.document import Calibration, Fold, HeldOut, MapDocument, Others, Projection, Recalibrated, Source
from relmap.maps.reliability_map import FittedMap, Scored
from relmap.metrics.advice import Advice, format_change
from relmap.metrics.reliability import count_retained_rows
from relmap.metrics.resampling import BOOTSTRAP_SEED
from relmap.metrics.spread import LabelCells
from relmap.projection.variants import VARIANTS
from relmap.settings import METRIC_DEFAULTS, MetricParams, Settings

DEFAULT_COVERAGE = 0.7  # of the rows, out of fold, whose decisions are used by default
LEAST_THRESHOLD = 0.5


@dataclass(frozen=True, eq=False)
class Learned:
    """A map, and what else the rows said."""

    document: MapDocument
    rows: PredictedRows  # that no fit behind what is said of them has seen
    scored: Scored  # what the map's fits say of them
    accuracy: float  # of the decisions on all rows
    doubts: tuple[str, ...]  # on the labels, in sentences
    advice: Advice  # the headline
    correction: tuple[str, ...] = ()  # what the correction of the score changes, in a sentence; empty without one
    smallest_relevant_change: float = METRIC_DEFAULTS.smallest_relevant_change

    def in_words(self, target: float | None = None) -> list[str]:
        """What the map contains, how sure its gain is, what it was chosen from, and what to beware of.

        `target` is how far at most the interval of the gain is to reach to either side, in nats.
        """
        choice, decided = self.document.choice, f"Of the decisions {100 * self.accuracy:.1f}% are correct."
        lines = [f"The map contains {choice.reason}."]
        lines.append(
            f"By default, `apply` uses decisions with a reliability of {self.document.default_threshold:.4g} or more."
        )
        lines += [*self.correction, *_of_the_gain(self.document, target, self.smallest_relevant_change)]
        judged = self.document.judged_out_of_fold
        if choice.asked == AUTO:
            lines += of_candidates(judged["candidates"], self.document, OUT_OF_FOLD)
        if self.document.input != "decision_only":
            lines.append(of_spread(self.document.held_out.label_spread, self.document.held_out.label_spread_shuffled))
        lines += of_leaning(self.document) + _of_gains(self.document)
        return [*lines, *of_recalibration(judged["recalibrated"], self.document), " ".join([decided, *self.doubts])]


def learn_map(
    rows: PredictedRows,
    source: Source,
    settings: Settings,
    *,
    calibrator: str,
    variant: str,
    n_labels: int,
    names: Sequence[str] | None,
    signals: tuple[Signal, ...] = (),
    ids: np.ndarray | None = None,
    id_column: str | None = None,
) -> Learned:
    """The reliability map of labelled `rows` under the protocol seed of `source`, with these `settings`.

    `ids (n,)`, of the column `id_column`, identify the rows later, where their predictions repeat.

    Raises:
        InputError: an unknown calibrator or variant, or too few rows, groups or labels.
    """
    check_names(calibrator, variant, rows, n_labels)
    division = divide(len(rows), rows.group, source.seed, hold_out=source.hold_out)
    check_enough(rows, division, source.hold_out)
    taken = choose_map(rows, division, n_labels, calibrator, variant, settings, source)
    chosen, trial, choice = taken.variant, taken.trial, taken.choice
    assert rows.label is not None
    decided = np.bincount(trial.decided, minlength=n_labels)
    seen = division.folds
    if source.protocol is not None:
        seen = (seen_in_the_paper(source, rows, trial.deployed.calibrator),)
    training_rows = hash_training_rows(rows, seen, source, ids=ids, id_column=id_column)
    source = source.model_copy(update={"training_rows": training_rows})
    try:
        document = MapDocument(
            input=rows.kind,
            n_labels=n_labels,
            label_names=tuple(names) if names else None,
            calibrator=Calibration(name=calibrator, rows=trial.calibrated_on, fitted=trial.deployed.calibrator),
            projection=Projection(
                name=chosen,
                rows=len(trial.decided),
                rows_by_label=tuple(decided.tolist()),
                fitted=trial.deployed.variants[chosen],
            ),
            correction=trial.corrections[chosen].full if chosen in trial.corrections else None,
            signals=signals if chosen == "label_signals" else (),
            choice=choice,
            others=_others(trial, chosen),
            held_out=held_out(trial, chosen, n_labels, settings.metrics),
            default_threshold=default_threshold(trial, chosen),
            folds=_folds(trial, chosen) if source.protocol is None else (),
            source=source,
        )
    except ValidationError as error:
        raise InputError(
            f"the fit is beyond what a map holds ({describe_validation_errors(error, 'fit')[0]}), as from logits that "
            "are far too large or too small; scale them, or take the calibrator ts"
        ) from None
    met = np.intersect1d(rows.decision, rows.label)
    unseen = [name for label, name in enumerate(document.shown_names) if label not in met]
    doubts = [f"Never decided, or never the true label: {listed(unseen)}."] if unseen else []
    shares = np.bincount(rows.label, rows.weight) / (len(rows) if rows.weight is None else rows.weight.sum())
    accuracy = float(np.average(rows.correct, weights=rows.weight))
    counts = (np.bincount(of, minlength=n_labels) for of in (rows.decision, rows.label))
    if accuracy < shares.max():
        doubts.append(f"Always deciding the commonest label would be correct in {100 * shares.max():.1f}%.")
    if float(np.prod(list(counts), axis=0, dtype=np.float64).sum()) > len(rows) * int(rows.correct.sum()):
        doubts.append("Are the labels numbered as they should be? Decisions agree with them less than by chance.")
    scored, correction = trial.scores(chosen), _of_correction(trial, chosen)
    return Learned(
        document=document,
        rows=trial.rows,
        scored=scored,
        accuracy=accuracy,
        doubts=tuple(doubts),
        advice=taken.advice,
        correction=correction,
        smallest_relevant_change=settings.metrics.smallest_relevant_change,
    )


def held_out(trial: Trial, chosen: str, n_labels: int, params: MetricParams) -> HeldOut:
    """What was said of rows that the fits had not seen: what drift and thresholds start from."""
    rows, scored = trial.rows, trial.scores(chosen)
    cells = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct, params)
    deployed = trial.with_deployed_correction().scores(chosen).reliability
    halves, reference_cells = reference(deployed, rows.decision, rows.correct, rows.group, n_labels)
    quantiles = tuple(np.quantile(scored.reliability, np.linspace(0, 1, 101)).tolist())
    return HeldOut(
        rows=len(rows),
        label_spread=plain(cells.spread()),
        label_spread_shuffled=plain(cells.shuffled_quantile(BOOTSTRAP_SEED)),
        quantiles=quantiles,
        halves=halves,
        cells=reference_cells,
        top=top_reference(deployed, rows.correct, rows.group, quantiles),
    )


def default_threshold(trial: Trial, chosen: str) -> float:
    """Return the reliability that 70% of the rows reach out of fold, at least 0.5.

    Below 0.5 a decision is more likely wrong than right, so it is never used by default.
    """
    rows = trial.rows
    reliability = trial.scores(chosen).reliability
    if rows.kind == "decision_only":
        # few distinct values, which differ a little between the folds and the map: take those of the map
        reliability = FittedMap(trial.deployed.calibrator, trial.deployed.variants[chosen])(rows).reliability
    reached = np.quantile(reliability, 1 - DEFAULT_COVERAGE, weights=rows.weight, method="inverted_cdf")
    return max(float(reached), LEAST_THRESHOLD)


def _of_correction(trial: Trial, chosen: str) -> tuple[str, ...]:
    """Describe what the correction of the score changes on out-of-fold predictions."""
    if chosen not in trial.corrections:
        return ()
    rows = trial.rows
    before = replace(trial, corrections={})
    copies = rows.copies
    order = np.argsort(-before.scores(chosen).logit[copies], kind="stable")
    top = copies[order[: count_retained_rows(len(copies), TOP_TENTHS[0])]]
    log_loss = [np.average(each.losses(chosen), weights=rows.weight) for each in (before, trial)]
    mean = [each.scores(chosen).reliability[top].mean() for each in (before, trial)]
    correct = rows.correct[top].mean()
    return (
        "A monotone correction of this score, which keeps its ranking, changes the log loss out of fold from "
        f"{log_loss[0]:.4f} to {log_loss[1]:.4f}, and the mean reliability of the most reliable "
        f"{10 * TOP_TENTHS[0]}% from {mean[0]:.3f} to {mean[1]:.3f}; {correct:.3f} of them are correct.",
    )


def _folds(trial: Trial, chosen: str) -> tuple[Fold, ...]:
    """Return the fits without one fold each, with their corrections."""
    corrected = trial.corrections.get(chosen)
    corrections = [None] * len(trial.folds) if corrected is None else corrected.folds
    return tuple(
        Fold(calibrator=fit.calibrator, projection=fit.variants[chosen], correction=correction)
        for fit, correction in zip(trial.folds, corrections, strict=True)
    )


def _others(trial: Trial, chosen: str) -> Others:
    """What the map holds beside the variant that was chosen."""
    recalibrated, rival, variants = None, trial.recalibrated(), trial.deployed.variants
    if rival is not None:
        change = Difference.of(rival[0] - trial.losses(chosen), trial.rows.group, trial.rows.weight)
        facts = {"change": change.mean, "standard_error": change.standard_error, "decisions_changed": rival[1]}
        recalibrated = Recalibrated(low=change.interval[0], high=change.interval[1], **facts)
    beside = {name: variants[name] for name in variants if name not in (chosen, "confidence", "label_signals")}
    try:
        return Others(variants=beside, matrix=trial.deployed.matrix, recalibrated=recalibrated)
    except ValidationError:  # one of them is beyond what a map holds, as from logits that are far too small
        return Others(recalibrated=recalibrated)


def _of_the_gain(document: MapDocument, target: float | None, smallest: float) -> list[str]:
    """How sure the gain is, and how many labels would make it surer."""
    chosen = next(each for each in document.choice.candidates if each.variant == document.projection.name)
    rows = document.held_out.rows
    if chosen.variant == "confidence":
        return []
    interval = f" (95% interval, made wider for the choice: {chosen.low:+z.4f} to {chosen.high:+z.4f})"
    half = (chosen.high - chosen.low) / 2
    beside = "the confidence" if document.input != "decision_only" else "one reliability for all"
    lines = [
        format_change(f"the log loss beside {beside}", chosen.change, interval, smallest)
        + f" With {3 * rows:,} more labelled rows, that interval would be half as wide."
    ]
    if target is not None:
        more = max(ceil(rows * (half / target) ** 2) - rows, 0)
        lines.append(f"For {target:g} to either side it takes about {more:,} labelled rows more.")
    return lines


def _of_gains(document: MapDocument) -> list[str]:
    if not document.choice.gains:
        return []
    name = gains_shown(document.projection.name, document.choice.candidates)
    assert name is not None
    lines = [f"What {VARIANTS[name].description} changes with fewer labelled rows:"]
    for gain in document.choice.gains:
        log_loss = f"log loss {gain.nll_correct:+z.4f} ({gain.nll_correct_standard_error:.4f})"
        lines.append(f"    {gain.rows:>6,} rows: {log_loss}, AURC {gain.aurc:+z.4f}")
    return lines
