"""Figures of the report: chart, data, caption and theme.

A chart names its colors as CSS variables. The page defines them for light, dark and print; a file without a page gets
the light colors. The colors can be distinguished by colorblind readers (Okabe and Ito, 2008).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import altair as alt
import numpy as np
import polars as pl
import vl_convert

from relmap.projection.registry import VARIANTS

ROWS = alt.NamedData(name="rows")  # charts contain no data; the rows of the figure are added when it is displayed
# Dictionaries of resource names in a PDF. vl-convert writes their lines in a random order. Sorting the lines makes the
# file reproducible, and does not change the byte offsets that it contains.
PDF_RESOURCES = re.compile(rb"(/(?:XObject|ExtGState|Font|Pattern|Shading) <<\n)(.*?)(\n *>>)", re.DOTALL)
RENDER_PDF = """
import sys
import vl_convert
sys.stdout.buffer.write(vl_convert.vegalite_to_pdf(sys.stdin.buffer.read().decode()))
"""
MIN_FIT_ROWS = 100  # a label with fewer projection-fit rows is marked
FEW_ROWS = "few rows"
DEFAULT_CALIBRATOR = "ts"
COLORS = {  # on a light and on a dark background
    "ink": ("#1a1a1a", "#ececec"),
    "quiet": ("#595959", "#b4b4b4"),
    "grid": ("#e3e3e3", "#3a3d40"),
    "paper": ("#ffffff", "#17191b"),
    "bars": ("#bfc7ce", "#4d555c"),
    "confidence": ("#595959", "#b4b4b4"),
    "mrp": ("#0072b2", "#56b4e9"),
    "isotonic": ("#b87f00", "#e69f00"),
    "platt": ("#007a5a", "#1dbf91"),
    "other": ("#a8517f", "#dd93b8"),
    "fifth": ("#c24e00", "#f08a4b"),
    "sixth": ("#2a8fc7", "#f0e442"),
    "failed": ("#c02626", "#ff8a80"),
}
LIGHT = {name: light for name, (light, _) in COLORS.items()}
DARK = {name: dark for name, (_, dark) in COLORS.items()}
# Colors of the labels in one panel, by label; they repeat from the eleventh label on.
LABEL_COLORS = ("mrp", "isotonic", "platt", "other", "fifth", "sixth", "ink", "quiet", "failed", "bars")
FONT = "system-ui, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
PRINT_FONT = "Liberation Sans, Arial, sans-serif"  # vl-convert includes the first
PRINT_LEGEND = {"symbolSize": 40, "symbolStrokeWidth": 2, "columnPadding": 6, "rowPadding": 1}
PRINT_FONT_SIZE = 8  # points

# Data that a figure is drawn from:
# - data set: the `Results` of one data set
# - all data sets: the table `overview`
# - paper: the `Results` of all data sets
Role = Literal["data set", "all data sets", "paper"]


class Drawing(NamedTuple):
    """Result of a drawing function.

    Attributes:
        rows: Data of the chart.
        spec: Vega-Lite without data.
        note: Sentence that is appended to the caption; empty if there is none.
    """

    rows: pl.DataFrame
    spec: dict[str, Any]
    note: str = ""


DrawFunction = Callable[..., Drawing | None]


class DrawnFigure(NamedTuple):
    """A figure with its data.

    Attributes:
        key: Name of the files of the figure.
        title: Title.
        caption: Sentences that explain the chart.
        rows: Data of the chart.
        spec: Vega-Lite without data.
    """

    key: str
    title: str
    caption: str
    rows: pl.DataFrame
    spec: dict[str, Any]


class Figure(NamedTuple):
    """A figure of the report, before it is drawn.

    Attributes:
        key: Name of the files of the figure.
        title: Title.
        caption: Sentences that explain the chart.
        role: Kind of data that the figure is drawn from.
        draw: Function that draws the figure; returns None if the data were not computed.
    """

    key: str
    title: str
    caption: str
    role: Role
    draw: DrawFunction

    def __call__(self, source: object) -> DrawnFigure | None:
        """Draw the figure.

        Args:
            source: Data to draw; `role` determines their type.

        Returns:
            The figure; None if its data were not computed.
        """
        drawing = self.draw(source)
        if drawing is None or drawing.rows.is_empty():
            return None
        caption = f"{self.caption} {drawing.note}".strip()
        return DrawnFigure(self.key, self.title, caption, drawing.rows, drawing.spec)


def figure(key: str, title: str, caption: str, role: Role = "data set") -> Callable[[DrawFunction], Figure]:
    """Make a decorator that turns a drawing function into a `Figure`.

    Args:
        key: Name of the files of the figure.
        title: Title.
        caption: Sentences that explain the chart.
        role: Kind of data that the figure is drawn from.

    Returns:
        The decorator.
    """

    def decorate(draw: DrawFunction) -> Figure:
        return Figure(key=key, title=title, caption=caption, role=role, draw=draw)

    return decorate


def page_spec(chart: alt.TopLevelMixin, *, subtitle: str, height: int | None = 260) -> dict[str, Any]:
    """Convert a chart to Vega-Lite for the page.

    Args:
        chart: The chart.
        subtitle: Line above the chart: the data set, marked if it is simulated.
        height: Height in pixels; the width fills the container. None if the chart has its own size.

    Returns:
        Vega-Lite without data.
    """
    if height is not None:
        chart = chart.properties(width="container", height=height)
    spec = chart.properties(title=subtitle).to_dict(validate=False)
    return _without_data_and_config(spec) | {"config": theme()}


def print_spec(chart: alt.TopLevelMixin, rows: pl.DataFrame, size: int = PRINT_FONT_SIZE) -> dict[str, Any]:
    """Convert a chart to Vega-Lite for a separate file.

    Args:
        chart: The chart.
        rows: Its data.
        size: Font size in points.

    Returns:
        Vega-Lite with the data.
    """
    spec = _without_data_and_config(chart.to_dict(validate=False))
    data = {"values": rows.fill_nan(None).to_dicts()}
    return spec | {"data": data, "config": theme(size, for_print=True)}


def layer_of_kind(kind: str) -> alt.Chart:
    """Start a layer of the rows with this value in the column `kind`."""
    chart: alt.Chart = alt.Chart(ROWS).transform_filter(alt.datum.kind == kind)
    return chart


def tooltips(**formats: str) -> list[alt.Tooltip]:
    """List columns to show in a tooltip.

    Args:
        **formats: Number format of each column; an empty one shows the value as it is.

    Returns:
        A tooltip for each column.
    """
    shown = []
    for column, number_format in formats.items():
        kind = "Q" if number_format else "N"
        title = column.replace("_", " ")
        shown.append(alt.Tooltip(f"{column}:{kind}", title=title, format=number_format or alt.Undefined))
    return shown


def svg(spec: dict[str, Any]) -> str:
    """Render a chart with its data as SVG in the light colors."""
    return str(vl_convert.vegalite_to_svg(with_light_colors(spec)))


def pdf(spec: dict[str, Any]) -> bytes:
    """Render a chart with its data as PDF, one point for each pixel; the same chart gives the same bytes.

    vl-convert prefers fonts of the machine to the ones that it includes, and reads its font settings once in a process.
    A new process finds no fonts of the machine: its settings name a folder without fonts.

    Args:
        spec: Chart in Vega-Lite with its data.

    Returns:
        Content of the file.
    """
    with TemporaryDirectory() as folder:
        settings = Path(folder, "fonts.conf")
        settings.write_text(f"<fontconfig><dir>{escape(folder)}</dir></fontconfig>", encoding="utf-8")
        completed = subprocess.run(  # noqa: S603 - this Python and a constant program
            [sys.executable, "-P", "-c", RENDER_PDF],
            input=with_light_colors(spec).encode(),
            stdout=subprocess.PIPE,
            env=os.environ | {"FONTCONFIG_FILE": str(settings)},
            check=True,
        )
    return PDF_RESOURCES.sub(_sort_lines, completed.stdout)


def _sort_lines(resources: re.Match[bytes]) -> bytes:
    """Sort the lines of a dictionary of names in a PDF."""
    opening, lines, closing = resources.groups()
    return bytes(opening + b"\n".join(sorted(lines.split(b"\n"))) + closing)


def _without_data_and_config(spec: dict[str, Any]) -> dict[str, Any]:
    """Remove data and theme from a chart and from the charts inside it."""
    content: dict[str, Any] = {}
    for name, value in spec.items():
        if name not in ("data", "datasets", "config"):
            content[name] = _without_nested_data(value)
    return content


def _without_nested_data(value: object) -> object:
    """Remove data and theme from charts inside a value of a chart."""
    if isinstance(value, dict):
        return _without_data_and_config(value)
    if isinstance(value, list):
        return [_without_nested_data(element) for element in value]
    return value


@dataclass(frozen=True, eq=False)
class Results:
    """Results of one data set.

    Attributes:
        name: Key of the data set.
        display_name: Name for readers, such as `wands (simulated)`.
        labels: Names of the labels.
        scores: Rows of scores.parquet.
        test_rows: Number of test rows; `scores` may contain a sample of them.
        lattices: Fitted curves, as in curves.json: one entry for each calibrator, variant and protocol seed.
        metrics: Table `metrics`.
        rivals: Table `rivals`.
        simplex: Rows of simplex.parquet.
        preferred_calibrator: Calibrator of the figures, if it was run.
        variant: Variant that the column `reliability` comes from.
        confidence: What the confidence is, for the line above figures; empty to name the calibrator.
        automatic_share: Share of the rows at or above the threshold of a map; None without a threshold.
    """

    name: str
    display_name: str
    labels: tuple[str, ...]
    scores: pl.DataFrame
    test_rows: int
    lattices: Sequence[Mapping[str, Any]] = ()
    metrics: pl.DataFrame = field(default_factory=pl.DataFrame)
    rivals: pl.DataFrame = field(default_factory=pl.DataFrame)
    simplex: pl.DataFrame = field(default_factory=pl.DataFrame)
    preferred_calibrator: str = DEFAULT_CALIBRATOR
    variant: str = "mrp"
    confidence: str = ""
    automatic_share: float | None = None

    @cached_property
    def calibrators(self) -> list[str]:
        """Calibrators in `scores`, in the order of their first rows."""
        return self.scores["calibrator"].unique(maintain_order=True).to_list()

    @cached_property
    def calibrator(self) -> str:
        """Calibrator of the rows in the figures."""
        if self.preferred_calibrator in self.calibrators:
            return self.preferred_calibrator
        return self.calibrators[-1]

    @cached_property
    def seeds(self) -> list[int]:
        """Protocol seeds of the run."""
        return self.scores["seed"].unique(maintain_order=True).to_list()

    @cached_property
    def labels_with_few_rows(self) -> tuple[str, ...]:
        """Labels with fewer than `MIN_FIT_ROWS` projection-fit rows under at least one protocol seed."""
        curves = [lattice["curves"] for lattice in self.lattices if lattice["variant"] == "mrp"]
        labels = []
        for index, label in enumerate(self.labels):
            fit_rows = [curves_of_fit[index]["rows"] for curves_of_fit in curves]
            if any(n_rows < MIN_FIT_ROWS for n_rows in fit_rows):
                labels.append(label)
        return tuple(labels)

    def scored_rows(self, seed: int) -> pl.DataFrame:
        """Select the test rows of one protocol seed under `calibrator`.

        Args:
            seed: Protocol seed.

        Returns:
            Columns of `scores`, and `correct`.
        """
        selected = self.scores.filter(calibrator=self.calibrator, seed=seed)
        return selected.with_columns(correct=pl.col("label") == pl.col("decision"))

    def metric_means(self, variant: str, **metrics: str) -> pl.DataFrame:
        """Average metrics over protocol seeds.

        Args:
            variant: Variant whose metrics are averaged.
            **metrics: Name of each column of the result, with the metric that is averaged in it.

        Returns:
            A row for each calibrator, with its name and a column for each metric. Rows without the first metric are
            omitted.
        """
        rows = self.metrics.filter(pl.col("calibrator").is_in(self.calibrators), variant=variant)
        means = {}
        for name, metric in metrics.items():
            values = pl.col("value").filter(pl.col("metric") == metric)
            means[name] = values.mean()
        averaged = rows.group_by("calibrator", maintain_order=True).agg(**means).fill_nan(None)
        return averaged.drop_nulls(next(iter(metrics)))

    @property
    def subtitle(self) -> str:
        """Line above a figure: data set, calibrator, and size of the sample."""
        n_rows = self.scores["row"].n_unique()
        sample = f", {n_rows:,} of {self.test_rows:,} test rows" if n_rows < self.test_rows else ""
        confidence = self.confidence or f"calibrator {self.calibrator}"
        return f"{self.display_name}, {confidence}{sample}"

    @property
    def units(self) -> str:
        """Plural noun for what is resampled: groups, or rows if each row is its own group."""
        rows = self.scores.unique("row")
        return "rows" if rows["group"].n_unique() == len(rows) else "groups"

    @property
    def averaging_note(self) -> str:
        """Sentence for captions if there is more than one protocol seed; else empty."""
        return "Means over protocol seeds." if len(self.seeds) > 1 else ""

    def min_confidence(self) -> float:
        """Compute the lower end of confidence axes: 1/K, or if lower, the lowest confidence, rounded down."""
        lowest = np.min(self.scores["confidence"].to_numpy())
        rounded_down = np.floor(20 * lowest) / 20
        return float(min(1 / len(self.labels), rounded_down))


def css_color(name: str) -> str:
    """Return the CSS variable of a color in `COLORS`."""
    return f"var(--{name})"


def variant_color(variant: str) -> str:
    """Return the color of a variant; variants without their own color have the color of MRP."""
    return css_color(VARIANTS[variant].color or "mrp")


def with_light_colors(spec: Mapping[str, Any]) -> str:
    """Write a chart as JSON with the light colors instead of CSS variables, for a file without a page."""
    return re.sub(r"var\(--(\w+)\)", lambda variable: LIGHT[variable[1]], json.dumps(spec))


def theme(size: int = 12, *, for_print: bool = False) -> dict[str, Any]:
    """Build the Vega-Lite config of all charts.

    Args:
        size: Font size, in pixels on the page and in points for print.
        for_print: White background, a font that vl-convert includes, and a compact legend.

    Returns:
        The config.
    """
    ink = css_color("ink")
    quiet = css_color("quiet")
    axis_lines = {"gridColor": css_color("grid"), "domainColor": quiet, "tickColor": quiet, "tickCount": 5}
    axis_labels = {"labelColor": quiet, "labelFontSize": size - 1, "labelOverlap": "greedy", "labelSeparation": 6}
    axis_title = {"titleColor": ink, "titleFontSize": size, "titleFontWeight": "normal"}
    category_names = {"labelColor": ink, "titleColor": ink, "labelFontSize": size, "labelLimit": 260}
    legend_layout = {"orient": "top", "title": None, "columns": 2}
    legend_symbols = {"symbolType": "stroke", "symbolOpacity": 1}
    legend_size = PRINT_LEGEND if for_print else {"symbolStrokeWidth": 3}
    return {
        "background": "white" if for_print else "transparent",
        "font": PRINT_FONT if for_print else FONT,
        "aria": False,  # no accessible name for each of a thousand dots; the page describes the figure
        "axis": axis_lines | axis_labels | axis_title | {"labelLimit": 220},
        "header": category_names,
        "legend": category_names | legend_symbols | legend_size | legend_layout,
        "title": {"color": quiet, "fontSize": size, "fontWeight": "normal", "anchor": "start", "offset": 6},
        "view": {"stroke": None},
    }
