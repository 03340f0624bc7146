"""The calibrator and the variants of a reliability map, fitted as the pipeline fits them for one seed."""

from collections.abc import Sequence

import numpy as np

from tasks.calibrators import CALIBRATORS, calibrators_for, fit_on_first
from tasks.calibrators.identity import Identity
from tasks.calibrators.spline import fit_spline_of_confidence
from tasks.maps.document import Calibrator, Variant
from tasks.maps.labelled import Parts
from tasks.maps.reliability_map import calibrated_logit
from tasks.predictions.rows import PredictedRows
from tasks.projection.batch import Batch, project_together
from tasks.projection.decisions import Decisions, LabelledDecisions
from tasks.projection.lattice import LatticeSettings
from tasks.projection.variants import DEPLOYABLE, SIMPLEST_FIRST, VARIANTS, project_batch
from tasks.protocol.errors import BadInput

AUTO = "auto"
OF_THE_LOGIT = tuple(key for key, variant in VARIANTS.items() if variant.of_the_logit)
MOST_LABELS = 50  # for a class-wise calibrator
OF_CONFIDENCE = tuple(key for key, calibrator in CALIBRATORS.items() if calibrator.of_confidence)


def check_names(calibrator: str, variant: str, *, stated: bool, n_labels: int) -> None:
    """Raise BadInput where a calibrator or a variant is unknown, or cannot be had from what is there."""
    if calibrator not in CALIBRATORS:
        raise BadInput(f"there is no calibrator {calibrator!r}; there are {', '.join(CALIBRATORS)}")
    if stated and calibrator not in OF_CONFIDENCE:
        raise BadInput(
            f"the calibrator {calibrator} needs logits or probabilities; "
            f"for a decision and a confidence there are {' and '.join(OF_CONFIDENCE)}"
        )
    if calibrator in calibrators_for("rival") and n_labels > MOST_LABELS:
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
    assert rows.stated is not None
    return [fit_spline_of_confidence(rows.stated[:n], rows.correct[:n]) for n in first]


def batch_under(calibrator: Calibrator, parts: Parts, settings: LatticeSettings, first: int | None = None) -> Batch:
    """What the variants are fitted on under one calibrator, on the first rows only if `first` says so."""

    def rows_under(rows: PredictedRows) -> LabelledDecisions:
        return LabelledDecisions([Decisions(calibrated_logit(calibrator, rows), rows.decision)], rows.correct)

    fit = rows_under(parts.projection_fit.take(slice(first)))
    selection = rows_under(parts.projection_selection) if parts.paper is not None else None
    return Batch(fit, parts.n_labels, settings, selection)


def offered(calibrator: Calibrator, parts: Parts) -> tuple[str, ...]:
    """What auto chooses from: a shift or a line needs a logit, which a confidence of exactly 0 or 1 does not have."""
    seen = (calibrated_logit(calibrator, rows) for rows in (parts.projection_fit, parts.projection_selection))
    certain = any(np.isinf(logits).any() for logits in seen)
    return tuple(name for name in SIMPLEST_FIRST if not (certain and name in OF_THE_LOGIT))


def fit_variants(batch: Batch, names: Sequence[str]) -> dict[str, Variant]:
    """The variants `names` by name, in that order."""
    return {name: fitted[0] for name, fitted in project_batch(batch, tuple(names)).items()}


def fit_variant_on_each(batches: Sequence[Batch], name: str) -> list[Variant]:
    """The variant `name` on each batch; MRP's curves descend side by side."""
    if name == "mrp":
        return [curves for (curves,) in project_together(batches)]
    return [fit_variants(batch, [name])[name] for batch in batches]
