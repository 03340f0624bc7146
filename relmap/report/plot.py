"""Charts of a reliability map and labelled rows, for notebooks and files."""

import json
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy
import vl_convert

from relmap.decisions import CalibratedDecisions
from relmap.errors import InputError
from relmap.evaluation.assessment import MapAssessment
from relmap.evaluation.sentences import describe_baseline
from relmap.io.atomic import check_output_path, write_atomically, write_text
from relmap.maps.document import MapDocument
from relmap.projection.labelwise import WithFallbacks
from relmap.projection.mrp import Confidence, Curves, SharedCurve
from relmap.projection.pooled import ShrunkCurves
from relmap.report.curves import MapCurves, map_curves
from relmap.report.figure import DrawnFigure, Results, pdf, svg, theme, with_light_colors
from relmap.report.ranking import risk_coverage
from relmap.routing.apply import default_threshold

PNG_SCALE = 2.0  # pixels per unit of the chart
CHART_WIDTH = 480  # width of a chart without panels
CHART_SPACING = 30
SUFFIXES = (".html", ".json", ".pdf", ".png", ".svg")
GRID = np.unique(np.r_[np.linspace(0.001, 0.999, 150), 0.9995, 0.9999])  # confidences at which curves are evaluated
CURVE_TYPES = (Confidence, Curves, SharedCurve, ShrunkCurves, WithFallbacks)  # functions of the confidence
MAX_GROUPS = 12  # groups of rows with similar confidence, for a label without a curve over the confidence
MIN_GROUP_ROWS = 10


@dataclass(frozen=True, eq=False)
class Plot:
    """Charts that a notebook displays and that can be saved.

    Attributes:
        figures: The charts with title, caption and data.
    """

    figures: tuple[DrawnFigure, ...]
    _spec: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = []
        for figure in self.figures:
            part = {name: value for name, value in figure.spec.items() if name != "config"}
            if part.get("width") == "container":
                part["width"] = CHART_WIDTH
            part["data"] = {"values": figure.rows.fill_nan(None).to_dicts()}
            parts.append(part)
        combined = {"vconcat": parts, "spacing": CHART_SPACING, "config": theme(for_print=True, size=12)}
        object.__setattr__(self, "_spec", json.loads(with_light_colors(combined)))

    def to_dict(self) -> dict[str, Any]:
        """Copy the charts as one Vega-Lite specification with its data."""
        copied: dict[str, Any] = json.loads(json.dumps(self._spec))
        return copied

    def save(self, path: str | Path) -> None:
        """Write the charts to a file that needs no other file and no network.

        Args:
            path: File that ends in .html, .json (Vega-Lite), .pdf, .png or .svg.

        Raises:
            InputError: The file has another ending or cannot be written.
        """
        out = Path(path)
        check_output_path(out)
        if out.suffix not in SUFFIXES:
            raise InputError(f"charts cannot be saved as {out}; use one of the endings {', '.join(SUFFIXES)}")
        if out.suffix == ".json":
            write_text(out, json.dumps(self._spec))
        elif out.suffix == ".svg":
            write_text(out, svg(self._spec))
        elif out.suffix == ".html":
            write_text(out, f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">{self._repr_html_()}</html>\n')
        else:
            content = pdf(self._spec) if out.suffix == ".pdf" else self._png()
            write_atomically(out, lambda partial: partial.write_bytes(content))

    def _png(self) -> bytes:
        return bytes(vl_convert.vegalite_to_png(json.dumps(self._spec), scale=PNG_SCALE))

    def _repr_html_(self) -> str:
        """Format charts and captions for a notebook, as SVG without scripts."""
        captions = []
        for figure in self.figures:
            captions.append(f"<p><strong>{escape(figure.title)}</strong> {escape(figure.caption)}</p>")
        return f"<div>{svg(self._spec)}{''.join(captions)}</div>"


def plot_map(assessment: MapAssessment) -> Plot:
    """Draw the curve of each label with labelled rows, and the error rate by coverage.

    Args:
        assessment: The map, and labelled rows that it has scored.

    Returns:
        The charts.

    Raises:
        InputError: The rows have weights, or there are none.
    """
    if assessment.rows.weight is not None:
        raise InputError("rows with sampling weights cannot be plotted; plot a simple random sample")
    if not len(assessment.rows):
        raise InputError("there are no rows to plot; give predictions with their labels")
    results = results_of_map(assessment)
    figures = (map_curves(MapCurves(results, fitted_curves(assessment))), risk_coverage(results))
    return Plot(tuple(figure for figure in figures if figure is not None))


def results_of_map(assessment: MapAssessment) -> Results:
    """Convert labelled rows and their scores to the data of the figures.

    Args:
        assessment: The map, and labelled rows that it has scored.

    Returns:
        The data.
    """
    rows = assessment.rows
    scored = assessment.scored
    document = assessment.document
    variant = document.projection.name
    row_number = np.arange(len(rows))
    scores = pl.DataFrame(
        {
            "row": row_number,
            "group": row_number.astype(str) if rows.group is None else rows.group,
            "label": rows.label,
            "decision": rows.decision,
            "calibrator": (document.baseline or document.calibrator).name,
            "seed": document.source.seed,
            "confidence": scored.confidence,
            "reliability": scored.reliability,
            "logit_confidence": scipy.special.logit(scored.confidence),
        }
    )
    return Results(
        name=document.source.file,
        display_name=document.source.file,
        labels=document.shown_names,
        scores=scores.with_columns(pl.Series(f"logit_{variant}", scored.logit)),
        test_rows=len(rows),
        variant=variant,
        confidence=f"confidence: {describe_baseline(document)}",
        automatic_share=float((scored.reliability >= default_threshold(document)).mean()) if len(rows) else None,
    )


def fitted_curves(assessment: MapAssessment) -> list[pl.DataFrame]:
    """Compute the reliability by calibrated confidence for each label.

    A map that uses more than the shown confidence has no such curve. It is replaced with the mean reliability of groups
    of rows that have similar confidence.

    Args:
        assessment: The map, and labelled rows that it has scored.

    Returns:
        A frame with columns `confidence` and `reliability` for each label.
    """
    document = assessment.document
    if document.baseline is not None or not isinstance(document.projection.fitted, CURVE_TYPES):
        return [_mean_reliability(assessment, label) for label in range(document.n_labels)]
    return [_curve(document, label) for label in range(document.n_labels)]


def _curve(document: MapDocument, label: int) -> pl.DataFrame:
    decisions = CalibratedDecisions(scipy.special.logit(GRID), np.full(len(GRID), label))
    logit = np.asarray(document.projection.fitted(decisions))
    return pl.DataFrame({"confidence": GRID, "reliability": scipy.special.expit(logit)})


def _mean_reliability(assessment: MapAssessment, label: int) -> pl.DataFrame:
    """Average confidence and reliability in groups of rows with similar confidence."""
    has_label = assessment.rows.decision == label
    confidence = assessment.scored.confidence[has_label]
    reliability = assessment.scored.reliability[has_label]
    n_groups = max(min(MAX_GROUPS, len(confidence) // MIN_GROUP_ROWS), 1)
    groups = np.array_split(np.argsort(confidence, kind="stable"), n_groups)
    nonempty = [members for members in groups if len(members)]
    means = {
        "confidence": [float(confidence[members].mean()) for members in nonempty],
        "reliability": [float(reliability[members].mean()) for members in nonempty],
    }
    return pl.DataFrame(means, schema={"confidence": pl.Float64, "reliability": pl.Float64})
