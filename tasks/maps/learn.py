"""Labelled predictions to a whole reliability map: fitted, chosen, and described for those who will rely on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import ValidationError

from tasks.calibrators import calibrators_for
from tasks.maps.choose import (
    IN_WORDS,
    Difference,
    candidates,
    gains,
    losses_of,
    reason,
    recalibration,
    simplest_within_one_standard_error,
    too_little,
)
from tasks.maps.document import Calibration, Choice, HeldOut, MapDocument, Projection, Source
from tasks.maps.drift import reference
from tasks.maps.fit import AUTO, batch_under, check_names, fit_calibrators, fit_variants, offered
from tasks.maps.labelled import Parts, cut
from tasks.maps.reliability_map import ReliabilityMap
from tasks.metrics.spread import label_spread, label_spread_null
from tasks.predictions.rows import PredictedRows
from tasks.projection.lattice import LatticeSettings
from tasks.protocol.errors import BadInput, mistakes
from tasks.protocol.params import MetricParams, Params


@dataclass(frozen=True, eq=False)
class Learned:
    """A map, and what else the rows said."""

    document: MapDocument
    recalibrated: Difference | None  # log loss of matrix scaling alone less that of the map; None where there is none
    moved: float  # share of rows that matrix scaling would decide otherwise
    accuracy: float  # of the decisions on all rows
    commonest: float  # share of the commonest true label
    silent: tuple[str, ...]  # labels that no row decides, or that are the truth of none


def learn_map(
    rows: PredictedRows,
    source: Source,
    params: Params,
    *,
    calibrator: str,
    variant: str,
    n_labels: int,
    names: Sequence[str] | None,
) -> Learned:
    """The reliability map of labelled `rows` under the protocol seed of `source`, with the settings of `params`.

    Raises
    ------
    BadInput: an unknown calibrator or variant, or too few rows, groups or labels.
    """
    check_names(calibrator, variant, stated=rows.logits is None, n_labels=n_labels)
    parts = cut(rows, n_labels, source.seed, source.protocol)
    chosen, learned, choice = choose_map(parts, params, calibrator, variant)
    behind, projected = len(parts.fit_rows(calibrator)), len(parts.projection_fit)
    try:
        calibration = Calibration(name=calibrator, rows=behind, fitted=learned.calibrator)
        projection = Projection(name=chosen, rows=projected, fitted=learned.projection)
    except ValidationError as error:
        raise BadInput(
            f"the fit is beyond what a map holds ({mistakes(error, 'fit')[0]}), as from logits that are far too large "
            "or too small; scale them, or take the calibrator ts"
        ) from None
    document = MapDocument(
        input="stated" if rows.logits is None else "logits",
        n_labels=n_labels,
        label_names=tuple(names) if names else None,
        calibrator=calibration,
        projection=projection,
        choice=choice,
        held_out=held_out(learned, parts, params.metrics),
        source=source,
    )
    smallest = params.metrics.smallest_reliability
    rival = None if calibrator in calibrators_for("rival") else recalibration(learned, parts, smallest)
    assert rows.label is not None
    met = set(np.intersect1d(rows.decision, rows.label).tolist())
    silent = tuple(name for label, name in enumerate(document.shown_names) if label not in met)
    recalibrated, moved = rival or (None, 0.0)
    commonest = float(np.bincount(rows.label).max()) / len(rows)
    return Learned(document, recalibrated, moved, float(rows.correct.mean()), commonest, silent)


def choose_map(parts: Parts, params: Params, calibrator: str, variant: str) -> tuple[str, ReliabilityMap, Choice]:
    """Fit what is asked for, or all that `auto` chooses from; the variant that is taken, its map, and why."""
    settings = LatticeSettings.chosen(params.projection)
    if parts.paper is not None:  # there every label stands on its own rows, however few
        settings = replace(settings, minimum_rows=0)
    smallest = params.metrics.smallest_reliability
    selection = parts.projection_selection
    fit_rows = parts.fit_rows(calibrator)
    (fitted,) = fit_calibrators(calibrator, fit_rows, [len(fit_rows)], seed=parts.seed)
    wanted = offered(fitted, parts) if variant == AUTO else tuple(dict.fromkeys(("confidence", variant)))
    variants = fit_variants(batch_under(fitted, parts, settings), wanted)
    maps = {name: ReliabilityMap(fitted, value) for name, value in variants.items()}
    judged = candidates({name: losses_of(one, selection, smallest) for name, one in maps.items()}, selection.group)
    chosen, why = variant, f"{IN_WORDS[variant]}, as asked for" if variant != AUTO else ""
    if variant == AUTO and (lacking := too_little(selection)):
        chosen, why = "confidence", f"keep your confidence: {lacking}"
    elif variant == AUTO:
        simplest = simplest_within_one_standard_error(judged)
        chosen, why = simplest.variant, reason(simplest, judged, len(selection), calibrator)
    shown = "mrp" if chosen == "confidence" else chosen
    steps = params.rivals.asked(min(len(parts.calibrator_fit), len(parts.projection_fit)))
    fewer = gains(calibrator, shown, parts, settings, steps, smallest)
    return chosen, maps[chosen], Choice(asked=variant, reason=why, candidates=tuple(judged), gains=tuple(fewer))


def held_out(learned: ReliabilityMap, parts: Parts, params: MetricParams) -> HeldOut:
    """What the map says of projection-selection rows: what drift and thresholds start from."""
    rows = parts.projection_selection
    scored = learned(rows)
    of_spread = scored.confidence, rows.decision, rows.correct
    groups, cell = params.spread_groups, params.spread_minimum_cell
    spread = label_spread(*of_spread, groups=groups, minimum_cell=cell)
    shuffled = label_spread_null(
        *of_spread,
        groups=groups,
        minimum_cell=cell,
        permutations=params.spread_permutations,
        seed=parts.seed,
    )
    halves, reference_cells = reference(scored.reliability, rows.decision, rows.correct, rows.group, parts.n_labels)
    return HeldOut(
        rows=len(rows),
        label_spread=None if np.isnan(spread) else spread,
        label_spread_shuffled=None if np.isnan(shuffled) else shuffled,
        quantiles=tuple(np.quantile(scored.reliability, np.linspace(0, 1, 101)).tolist()),
        halves=halves,
        cells=reference_cells,
    )
