"""A figure: a chart, the rows behind it, and the words that say how to read it."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from tasks.figures.style import POINTS, print_theme, theme

ROWS = alt.NamedData(name="rows")  # a chart holds no data; who shows it puts in the rows of its figure


@dataclass(frozen=True, eq=False)
class Figure:
    """One figure. `spec` is Vega-Lite without data: whoever draws it adds `rows`."""

    name: str  # of its CSV
    title: str
    caption: str  # how to read it
    rows: pl.DataFrame
    spec: dict[str, Any]


def drawn(chart: Any, *, subtitle: str, height: int | None = 260) -> dict[str, Any]:
    """The chart as Vega-Lite, as wide as where it stands; `subtitle` names the data set, simulated or not."""
    if height is not None:
        chart = chart.properties(width="container", height=height)
    return _bare(chart.properties(title=subtitle)) | {"config": theme()}


def for_print(chart: Any, rows: pl.DataFrame, size: int = POINTS) -> dict[str, Any]:
    """The chart with its rows as Vega-Lite, text of `size` points, for a file that stands alone."""
    values = {"values": rows.fill_nan(None).to_dicts()}
    return _bare(chart) | {"data": values, "config": print_theme(size)}


def of_kind(kind: str) -> alt.Chart:
    """A layer of the rows whose `kind` it is."""
    return alt.Chart(ROWS).transform_filter(alt.datum.kind == kind)


def hover(**formats: str) -> list[alt.Tooltip]:
    """What the pointer shows: numbers of columns in their formats; those without one are shown as they are."""
    return [
        alt.Tooltip(f"{name}:{'Q' if form else 'N'}", title=name.replace("_", " "), format=form or alt.Undefined)
        for name, form in formats.items()
    ]


def _bare(chart: Any) -> dict[str, Any]:
    """The chart as Vega-Lite, without data and without how it looks."""
    return dict(_without_data({name: part for name, part in chart.to_dict(validate=False).items() if name != "config"}))


def _without_data(part: Any) -> Any:
    """A chart, its panels and layers, without where their rows would come from."""
    if isinstance(part, dict):
        left_out = ("data", "datasets")
        return {name: _without_data(value) for name, value in part.items() if name not in left_out}
    return [_without_data(one) for one in part] if isinstance(part, list) else part
