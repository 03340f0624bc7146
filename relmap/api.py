"""What is asked of a map: fit one, hold it against labelled rows, find a cut. One door for files and for memory.

An answer is a frozen value: words for people, as text or as HTML, and the numbers behind them.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib.metadata import version
from typing import Any

import numpy as np

from relmap import __version__
from relmap.errors import InputError, escape_unprintable, needs_extra
from relmap.evaluation.agreement import PopulationSummary, describe_agreement, measure_agreement
from relmap.evaluation.drift import detect_drift
from relmap.evaluation.evaluate import evaluate_alternatives, evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.top_calibration import describe_top_calibration, measure_top_calibration, top_calibration_as_json
from relmap.evaluation.verdict import (
    OUT_OF_FOLD,
    advise_from_evaluation,
    describe_alternatives,
    describe_evaluation,
    describe_limits,
)
from relmap.fitting.labelled_rows import (
    RowOrigin,
    fingerprint_rows,
    hash_predictions,
    read_and_score_rows,
    read_labelled_rows,
)
from relmap.io.files import Predictions
from relmap.io.rows import PredictedRows
from relmap.maps.document import MapDocument, Source
from relmap.maps.reliability_map import ScoredDecisions
from relmap.options import Protocol, option
from relmap.routing.costs import estimate_costs
from relmap.routing.thresholds import (
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
    sample_independent_rows,
)
from relmap.settings import DEFAULTS
from relmap.timestamps import current_timestamp

LIBRARIES = ("numpy", "scipy")  # that a fit computes with; the protocol of the paper also uses torch
BY_DEFAULT = {"logits": "ts", "confidence_only": "uncal", "decision_only": "constant"}  # calibrators
LEAST_TARGET = 1e-5
NO_DRIFT = "Whether the map still holds, later rows can tell: these are among those that it was made of."
OUT_OF_FOLD_ROWS = ("out_of_fold", "partly_out_of_fold")
ESTIMATE = (
    "So what follows is an estimate and no guarantee: the map was chosen and fitted on rows of these. For a guarantee, "
    "give labelled rows of another file, or fit with a hold-out of 0.3."
)
CHOSEN_WITHOUT_ROWS = "The bounds hold if the cut was chosen without looking at these rows."


@dataclass(frozen=True)
class Answer:
    """Words, of which the first line says what to do; how the rows were read; the numbers behind it all."""

    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON; a copy."""
        return deepcopy(dict(self.numbers))

    def __str__(self) -> str:
        return "\n".join(map(escape_unprintable, (*self.lines, *self.notes)))

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        first, _, rest = escape(str(self)).partition("\n")
        return f'<p><strong>{first}</strong></p><pre style="white-space: pre-wrap">{rest}</pre>'


class Recommendation(Answer):
    """What to deploy, and why."""


class Evaluation(Answer):
    """What the reliability buys beside the confidence, on labelled rows."""


class Cuts(Answer):
    """From which reliability on decisions can be used as they are."""

    @property
    def cut(self) -> float | None:
        """The cut for all decisions, which `apply` takes; None where there is none."""
        found: float | None = self.numbers["overall"]["cut"]
        return found


def fit_map(
    file: Predictions,
    *,
    calibrator: str | None = None,
    variant: str = "auto",
    seed: int = 1,
    group: str | None = None,
    names: tuple[str, ...] | None = None,
    signals: tuple[str, ...] = (),
    hold_out: float = 0,
    protocol: Protocol = "own",
    target: float | None = None,
    accept_label_order: bool = False,
) -> tuple[MapDocument, Recommendation]:
    """The reliability map of labelled predictions, and what it recommends, as `fit` of `relmap.cli` has it.

    Settings are as `ReliabilityMap` has them; `names` are those of the labels, `group` is the column whose rows go
    together, and how many rows it takes to know the gain to `target`, a log loss in nats, is said where it is given.
    InputError says what is wrong with the rows, or with what is asked.
    """
    if target is not None and not target >= LEAST_TARGET:
        raise InputError(f"{option('target')} is {target}; give a log loss of {LEAST_TARGET} or more, such as 0.01")
    if not (group or "").isprintable():
        raise InputError(f"the column of groups is {group!r}, which holds what cannot be shown; rename it")
    read = read_labelled_rows(
        file,
        group=group,
        names=names,
        signals=signals,
        seed=seed,
        hold_out=hold_out,
        accept_label_order=accept_label_order,
    )
    rows = read.rows
    if protocol == "paper" and (signals or hold_out):
        raise InputError(
            f"the protocol of the paper has parts of its own: omit {option('signals')} and {option('hold_out')}"
        )
    from relmap.fitting.map_fit import fit_labelled_rows  # noqa: PLC0415 - what is wrong with the rows is said before it is there

    settings = DEFAULTS
    libraries = (*LIBRARIES, "torch") if protocol == "paper" else LIBRARIES
    with needs_extra("pipeline"):  # the paper's protocol fits with torch
        versions = {"relmap": __version__} | {name: version(name) for name in libraries}
    source = Source(
        file=escape_unprintable(file.path.name),
        sha256=hash_predictions(file),
        fingerprint=fingerprint_rows(rows),
        rows=len(rows),
        seed=seed,
        group=group,
        hold_out=hold_out,
        protocol=settings.protocol if protocol == "paper" else None,
        at=current_timestamp(),
        versions=versions,
    )
    learned = fit_labelled_rows(
        rows,
        source,
        settings,
        calibrator=calibrator or BY_DEFAULT[rows.kind],
        variant=variant,
        n_labels=read.n_labels,
        names=read.names,
        signals=read.signals,
        ids=read.ids,
        id_column=read.id_column,
    )
    document = learned.document
    advice = learned.advice
    judged = learned.rows
    rests = {"rows": len(judged), "grouped": judged.group is not None, "weighted": judged.weight is not None}
    lines = [str(advice), *advice.then, *describe_limits(rests, document), *learned.describe(target)]
    numbers = {
        "advice": advice.answer,
        "variant": document.projection.name,
        "calibrator": document.calibrator.name,
        "accuracy": learned.accuracy,
    }
    return document, Recommendation(tuple(lines), tuple(read.notes), numbers | document.choice.model_dump())


def _where_chosen(evaluation: dict[str, Any], document: MapDocument) -> dict[str, Any]:
    """An evaluation of the rows that chose the variant: its log loss has the interval that was made wider for that."""
    ends = {each.variant: {"low": each.low, "high": each.high} for each in document.choice.candidates}
    log_loss = evaluation["metrics"]["nll_correct"] | ends.get(document.projection.name, {})
    return evaluation | {"metrics": evaluation["metrics"] | {"nll_correct": log_loss}}


@dataclass(frozen=True, eq=False)
class Judged:
    """Labelled rows and what a map says of them, as `read_and_score_rows` returns them."""

    document: MapDocument
    rows: PredictedRows
    scored: ScoredDecisions
    seen: RowOrigin
    notes: list[str]
    fitted: np.ndarray  # (n,) bool, whether a row was used for the fit

    @classmethod
    def read(cls, document: MapDocument, file: Predictions, group: str | None = None) -> "Judged":
        """Of labelled predictions; rows that the map was made of are judged by fits that have not seen them.

        `group` is the column whose rows go together; None is that of the map, where the predictions have it. InputError
        says what is wrong with the rows.
        """
        return cls(document, *read_and_score_rows(document, file, group=group))

    @property
    def _of_choice(self) -> bool:
        """Whether the variant was chosen on exactly these rows, which excludes held-out ones."""
        known = self.seen in ("held_out", "out_of_fold") and not self.document.source.hold_out
        return known and len(self.rows) == self.document.held_out.rows

    @cached_property
    def decisions(self) -> EvaluationSample:
        """Rows with their confidence and reliability, as metrics and intervals read them."""
        return EvaluationSample.from_rows(self.rows, self.scored, DEFAULTS.metrics)

    def evaluation(self, everything: PopulationSummary | None = None) -> Evaluation:
        """The reliability beside the confidence: a verdict, agreement with true labels, drift.

        `everything` are the rows that these were drawn from. InputError where there are none of these.
        """
        document, rows, scored, judged = self.document, self.rows, self.scored, self.decisions
        seen = self.seen in OUT_OF_FOLD_ROWS
        evaluation = evaluate_map(document, judged)
        evaluation |= (
            document.out_of_fold_results if seen or self._of_choice else evaluate_alternatives(document, judged)
        )
        if self._of_choice:
            evaluation = _where_chosen(evaluation, document)
        agreed = measure_agreement(document, judged, everything)
        top = measure_top_calibration(judged)
        smallest = DEFAULTS.metrics.smallest_relevant_change
        drifted, lines, where = None, [NO_DRIFT], OUT_OF_FOLD if seen else "on these rows"
        if self.seen in ("new", "partly_out_of_fold"):
            new, reliability = rows.take(~self.fitted), scored.reliability[~self.fitted]
            drifted = detect_drift(document, reliability, new.decision, new.correct, new.group)
            lines = drifted.describe(document.shown_names)
        lines += [*describe_alternatives(evaluation, document, where), *describe_agreement(agreed, len(rows))]
        numbers = evaluation | {"agreement": agreed, "drift": drifted and drifted.as_json()}
        numbers |= {
            "advice": advise_from_evaluation(evaluation, document, smallest).answer,
            "top": top_calibration_as_json(top),
        }
        numbers |= {"fitted_rows": int(self.fitted.sum())}
        lines = [*describe_evaluation(evaluation, document, smallest), *describe_top_calibration(top), *lines]
        return Evaluation(tuple(lines), (*self.notes, *(everything.notes if everything else ())), numbers)

    def cuts(
        self,
        *,
        target_accuracy: float | None = None,
        coverage: object = None,
        confidence: float = 0.95,
        cost_error: float | None = None,
        cost_review: float | None = None,
        cut: float | None = None,
    ) -> Cuts:
        """Find a cut on the reliability, or validate one that was chosen without these rows.

        On rows of the fit, cuts and bounds are estimates without a guarantee.

        Args:
            target_accuracy: Accuracy that automatic rows must have, in (0, 1).
            coverage: Share of the rows that is automatic, in (0, 1], as it is typed.
            confidence: Confidence of the guarantee, over random samples of such rows.
            cost_error: Cost of a wrong decision that is used; with `cost_review`, for the cut of least expected cost by
                the map, without a guarantee.
            cost_review: Cost of a review.
            cut: A cut to validate: the lower bound of the accuracy of decisions at or above it.

        Returns:
            The cut, in words and numbers.

        Raises:
            InputError: Not exactly one of the four is given, or one is out of range.
        """
        costs = (cost_error, cost_review)
        if [target_accuracy, coverage, cut, None if costs == (None, None) else costs].count(None) != 3:
            raise InputError(
                "give a target accuracy, a coverage, the costs of an error and of a review, or a cut to validate"
            )
        identity = {"map_fingerprint": self.document.fingerprint}
        if costs != (None, None):
            estimate = estimate_costs(self.decisions, *costs)
            return Cuts(tuple(estimate.describe()), tuple(self.notes), identity | estimate.as_json())
        kept, why = sample_independent_rows(self.rows, self.document.source.seed)
        judged = self.scored.reliability[kept], self.rows.decision[kept], self.rows.correct[kept]
        guaranteed = self.seen not in OUT_OF_FOLD_ROWS
        if target_accuracy is not None:
            cuts = find_accuracy_thresholds(self.document, *judged, target=target_accuracy, confidence=confidence)
        elif cut is not None:
            cuts = bound_accuracy(*judged, threshold=cut, confidence=confidence)
            why = [*why, *([CHOSEN_WITHOUT_ROWS] if guaranteed else [])]
        else:
            cuts = find_coverage_threshold(*judged, coverage=str(coverage), confidence=confidence)
        notes = [*self.notes, *why, *([] if guaranteed else [ESTIMATE])]
        fitted = {"fitted_rows": int(self.fitted.sum())}
        numbers = {"guaranteed": guaranteed} | fitted | identity | cuts.as_json()
        return Cuts(tuple(cuts.describe(self.document.shown_names)), tuple(notes), numbers)
