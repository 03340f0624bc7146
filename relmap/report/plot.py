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

from relmap.api import Judged
from relmap.errors import InputError
from relmap.io.atomic import check_output_path, write_atomically, write_text
from relmap.maps.document import MapDocument
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.pooling import WithSignals
from relmap.projection.whole_vector import WholeVector
from relmap.report.curves import map_curves
from relmap.report.figure import DrawnFigure, Results, pdf, svg, theme, written_out
from relmap.report.ranking import risk_coverage

SCALE = 2.0  # pixels of a PNG for each unit of the chart
WIDTH = 480  # of a chart without panels
ENDINGS = (".html", ".json", ".pdf", ".png", ".svg")
GRID = np.unique(np.r_[np.linspace(0.001, 0.999, 150), 0.9995, 0.9999])  # confidences at which curves are drawn
GROUPS = 12  # of rows of one label, where a map has no curve over the confidence
MIN_GROUP_ROWS = 10


@dataclass(frozen=True, eq=False)
class Plot:
    """Charts that a notebook displays and that can be saved.

    Attributes:
        figures: The charts, each with its title, its caption and the rows that it is drawn from.
    """

    figures: tuple[DrawnFigure, ...]
    _spec: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = []
        for figure in self.figures:
            part = {name: value for name, value in figure.spec.items() if name != "config"}
            if part.get("width") == "container":
                part["width"] = WIDTH
            part["data"] = {"values": figure.rows.fill_nan(None).to_dicts()}
            parts.append(part)
        whole = {"vconcat": parts, "spacing": 30, "config": theme(for_print=True, size=12)}
        object.__setattr__(self, "_spec", json.loads(written_out(whole)))

    def to_dict(self) -> dict[str, Any]:
        """Return the charts as one specification of Vega-Lite, with their data."""
        copied: dict[str, Any] = json.loads(json.dumps(self._spec))
        return copied

    def save(self, path: str | Path) -> None:
        """Write the charts to a file, which needs no other file and no network.

        Args:
            path: A file that ends in .html, .json (Vega-Lite), .pdf, .png or .svg.

        Raises:
            InputError: The file has another ending or cannot be written.
        """
        out = Path(path)
        check_output_path(out)
        if out.suffix not in ENDINGS:
            raise InputError(f"charts are saved as {', '.join(ENDINGS)}, and {out} has another ending; rename it")
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
        return bytes(vl_convert.vegalite_to_png(json.dumps(self._spec), scale=SCALE))

    def _repr_html_(self) -> str:
        """Return the charts and their captions, for a notebook: SVG, which no script and no network has to draw."""
        captions = "".join(
            f"<p><strong>{escape(figure.title)}</strong> {escape(figure.caption)}</p>" for figure in self.figures
        )
        return f"<div>{svg(self._spec)}{captions}</div>"


def plot_map(judged: Judged) -> Plot:
    """Draw a map and labelled rows: a curve for each label, and the errors among the decisions kept.

    Args:
        judged: The map, and labelled rows that it has scored.

    Returns:
        The charts.

    Raises:
        InputError: The rows have weights, or there are none.
    """
    if judged.rows.weight is not None:
        raise InputError("rows with weights cannot be drawn; plot a random sample")
    if not len(judged.rows):
        raise InputError("there is no row to plot; give predictions with their labels")
    results = results_of(judged)
    figures = (map_curves((results, fitted_curves(judged))), risk_coverage(results))
    return Plot(tuple(figure for figure in figures if figure is not None))


def results_of(judged: Judged) -> Results:
    """Return labelled rows and their scores in the form that figures read."""
    rows, scored, document = judged.rows, judged.scored, judged.document
    variant = document.projection.name
    numbers = np.arange(len(rows))
    scores = pl.DataFrame(
        {
            "row": numbers,
            "group": numbers.astype(str) if rows.group is None else rows.group,
            "label": rows.label,
            "decision": rows.decision,
            "calibrator": document.calibrator.name,
            "seed": document.source.seed,
            "confidence": scored.confidence,
            "reliability": scored.reliability,
            "logit_confidence": scipy.special.logit(scored.confidence),
        }
    )
    return Results(
        name=document.source.file,
        shown=document.source.file,
        labels=document.shown_names,
        scores=scores.with_columns(pl.Series(f"logit_{variant}", scored.logit)),
        test_rows=len(rows),
        variant=variant,
    )


def fitted_curves(judged: Judged) -> list[pl.DataFrame]:
    """Return the reliability by calibrated confidence for each label, with columns `confidence` and `reliability`.

    A map that reads more than the confidence has no such curve; its curve is the mean reliability of groups of rows.

    Args:
        judged: The map, and labelled rows that it has scored.

    Returns:
        One frame for each label.
    """
    document = judged.document
    if isinstance(document.projection.fitted, WholeVector | WithSignals):
        return [_mean_reliability(judged, label) for label in range(document.n_labels)]
    return [_curve(document, label) for label in range(document.n_labels)]


def _curve(document: MapDocument, label: int) -> pl.DataFrame:
    decisions = CalibratedDecisions(scipy.special.logit(GRID), np.full(len(GRID), label))
    logit = np.asarray(document.projection.fitted(decisions))
    if document.correction is not None:
        logit = document.correction(logit)
    return pl.DataFrame({"confidence": GRID, "reliability": scipy.special.expit(logit)})


def _mean_reliability(judged: Judged, label: int) -> pl.DataFrame:
    mine = judged.rows.decision == label
    confidence, reliability = judged.scored.confidence[mine], judged.scored.reliability[mine]
    groups = max(min(GROUPS, len(confidence) // MIN_GROUP_ROWS), 1)
    parts = np.array_split(np.argsort(confidence, kind="stable"), groups)
    filled = [part for part in parts if len(part)]
    means = {
        "confidence": [float(confidence[part].mean()) for part in filled],
        "reliability": [float(reliability[part].mean()) for part in filled],
    }
    return pl.DataFrame(means, schema={"confidence": pl.Float64, "reliability": pl.Float64})
