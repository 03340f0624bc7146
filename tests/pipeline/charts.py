"""Titles, captions and Vega-Lite of the charts, without their rows, as somebody has looked at them.

`python -m tests.pipeline.charts` writes the file again after a chart has been changed on purpose and looked at.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from relmap.projection.registry import PIPELINE_VARIANTS
from relmap.report.curves import MapCurves, map_curves
from relmap.report.figure import DrawnFigure, theme
from tasks.figures import draw_all
from tests.report_data import make_results

CHARTS = Path(__file__).resolve().parents[1] / "data/charts.yaml"
DRAWN_VARIANTS = (
    "shared_1d",
    "label_intercept",
    "label_isotonic",
    "label_platt",
    "mrp",
    "label_2d",
    "mrp_exact",
    "mrp_pooled",
)


def chart_contents() -> dict[str, Any]:
    """Return the content of each figure of a data set and of a map, and the themes, as JSON values."""
    results = make_results()
    new_variants = set(PIPELINE_VARIANTS) - {"confidence", *DRAWN_VARIANTS}
    results = replace(results, metrics=results.metrics.filter(~pl.col("variant").is_in(new_variants)))
    curve = pl.DataFrame({"confidence": [0.4, 0.9], "reliability": [0.3, 0.8]})
    curves_of_map = map_curves(MapCurves(results, [curve] * len(results.labels)))
    figures = [*draw_all("data set", results), *([curves_of_map] if curves_of_map else [])]
    contents = {figure.key: _content(figure) for figure in figures}
    themes = {"page": theme(), "print": theme(8, for_print=True)}
    values: dict[str, Any] = json.loads(json.dumps(contents | {"themes": themes}))
    return values


def _content(figure: DrawnFigure) -> dict[str, Any]:
    spec = {name: value for name, value in figure.spec.items() if name not in ("config", "$schema")}
    return {"title": figure.title, "caption": figure.caption, "spec": spec}


if __name__ == "__main__":
    CHARTS.write_text(yaml.safe_dump(chart_contents(), sort_keys=False, width=120), encoding="utf-8")
