"""A figure: a chart, the rows behind it, and the words that say how to read it."""

from __future__ import annotations

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
    spec = chart.properties(title=subtitle).to_dict(validate=False)
    return dict(_without_data({name: part for name, part in spec.items() if name != "config"})) | {"config": theme()}


def for_print(chart: Any, size: int = POINTS) -> dict[str, Any]:
    """The chart with its data as Vega-Lite, text of `size` points, for a file that stands alone."""
    spec = chart.to_dict(validate=False)
    return {name: part for name, part in spec.items() if name != "config"} | {"config": print_theme(size)}


def _without_data(part: Any) -> Any:
    """A chart, its panels and layers, without where their rows would come from."""
    if isinstance(part, dict):
        left_out = ("data", "datasets")
        return {name: _without_data(value) for name, value in part.items() if name not in left_out}
    return [_without_data(one) for one in part] if isinstance(part, list) else part


def numbers(format_of: str, *names: str) -> list[alt.Tooltip]:
    """What the pointer shows of columns with numbers."""
    return [alt.Tooltip(f"{name}:Q", format=format_of) for name in names]
