"""A figure: what it is drawn from, a chart, the rows behind it, how it looks and the words that say how to read it.

As SVG or PDF it stands alone. Colours go by what they stand for, told apart by colour-blind readers too (Okabe and Ito,
2008). A chart names them as CSS variables: the page sets these for light, dark and paper; a file that stands alone has
them written out.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import altair as alt
import numpy as np
import polars as pl
import vl_convert

from relmap.projection.variants import VARIANTS

ROWS = alt.NamedData(name="rows")  # a chart holds no data; who shows it puts in the rows of its figure
# The lists of names in a PDF, which come in another order each time; sorted, they are as long.
RESOURCES = re.compile(rb"(/(?:XObject|ExtGState|Font|Pattern|Shading) <<\n)(.*?)(\n *>>)", re.DOTALL)
Drawing = tuple[pl.DataFrame, dict[str, Any], str]  # rows, Vega-Lite, and what these rows add to the caption
Make = Callable[[Any], Drawing | None]
Role = Literal["data set", "all data sets", "paper"]  # made of `Results`; of the table `overview`; of all Results
MIN_FIT_ROWS = 100  # a label with fewer projection-fit rows is marked as one with few rows
FEW_ROWS = "few rows"
DRAWN_UNDER = "ts"  # where it ran: the default for one's own predictions
COLOURS = {  # on a light ground, on a dark one
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
LIGHT, DARK = ({name: pair[theme] for name, pair in COLOURS.items()} for theme in (0, 1))
# Of the curves of labels in one panel, in turn.
LABELS = ("mrp", "isotonic", "platt", "other", "fifth", "sixth", "ink", "quiet", "failed", "bars")
FONT = "system-ui, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
PRINT_FONT = "Liberation Sans, Arial, sans-serif"  # the first comes with vl-convert
PRINT_SYMBOLS = {"symbolSize": 40, "symbolStrokeWidth": 2, "columnPadding": 6, "rowPadding": 1}  # of a legend
POINTS = 8  # of text in a paper


class DrawnFigure(NamedTuple):
    """One figure as it was drawn. `spec` is Vega-Lite without data: whoever shows it adds `rows`."""

    key: str  # of its files
    title: str
    caption: str  # how to read it
    rows: pl.DataFrame
    spec: dict[str, Any]


class Figure(NamedTuple):
    """A figure of the report."""

    key: str
    title: str
    caption: str
    role: Role  # what it is of, or that it is for print
    make: Make

    def __call__(self, source: Any) -> DrawnFigure | None:
        """Return the figure of what its role says it is made of; None where what it shows was not run."""
        made = self.make(source)
        if made is None or made[0].is_empty():
            return None
        rows, spec, more = made
        return DrawnFigure(self.key, self.title, f"{self.caption} {more}".strip(), rows, spec)


def figure(key: str, title: str, caption: str, role: Role = "data set") -> Callable[[Make], Figure]:
    """Make a figure of the function that is decorated."""
    return partial(Figure, key, title, caption, role)


def drawn(chart: Any, *, subtitle: str, height: int | None = 260) -> dict[str, Any]:
    """Return the chart as Vega-Lite, as wide as where it stands; `subtitle` names the data set, simulated or not."""
    if height is not None:
        chart = chart.properties(width="container", height=height)
    return _bare(chart.properties(title=subtitle).to_dict(validate=False)) | {"config": theme()}


def for_print(chart: Any, rows: pl.DataFrame, size: int = POINTS) -> dict[str, Any]:
    """Return the chart with its rows as Vega-Lite, text of `size` points, for a file that stands alone."""
    values = {"values": rows.fill_nan(None).to_dicts()}
    return _bare(chart.to_dict(validate=False)) | {"data": values, "config": theme(size, for_print=True)}


def of_kind(kind: str) -> alt.Chart:
    """Return a layer of the rows whose `kind` it is."""
    return alt.Chart(ROWS).transform_filter(alt.datum.kind == kind)


def hover(**formats: str) -> list[alt.Tooltip]:
    """Return what the pointer shows: numbers of columns in their formats; those without one are shown as they are."""
    return [
        alt.Tooltip(f"{name}:{'Q' if form else 'N'}", title=name.replace("_", " "), format=form or alt.Undefined)
        for name, form in formats.items()
    ]


def svg(spec: dict[str, Any]) -> str:
    """Return the chart with its data, as SVG on a light ground."""
    return str(vl_convert.vegalite_to_svg(written_out(spec)))


def pdf(spec: dict[str, Any]) -> bytes:
    """Return the same as PDF, a point for each pixel; the same chart gives the same bytes."""
    written = bytes(vl_convert.vegalite_to_pdf(written_out(spec)))
    return RESOURCES.sub(lambda part: part[1] + b"\n".join(sorted(part[2].split(b"\n"))) + part[3], written)


def _bare(part: Any) -> Any:
    """A chart, its panels and layers, without where their rows would come from and without how it looks."""
    if isinstance(part, dict):
        return {name: _bare(value) for name, value in part.items() if name not in ("data", "datasets", "config")}
    return [_bare(member) for member in part] if isinstance(part, list) else part


@dataclass(frozen=True, eq=False)
class Results:
    """The results of one data set, as its stages wrote them."""

    name: str
    shown: str  # as people read it: `wands (simulated)`
    labels: tuple[str, ...]
    scores: pl.DataFrame  # of scores.parquet
    test_rows: int  # of which scores.parquet may hold a sample
    lattices: Sequence[Mapping[str, Any]] = ()  # of curves.json
    metrics: pl.DataFrame = field(default_factory=pl.DataFrame)
    rivals: pl.DataFrame = field(default_factory=pl.DataFrame)
    simplex: pl.DataFrame = field(default_factory=pl.DataFrame)  # simplex.parquet
    drawn_under: str = DRAWN_UNDER
    variant: str = "mrp"  # whose reliability it is

    @cached_property
    def calibrators(self) -> list[str]:
        """Return those that were asked for: neither rivals nor alternatives."""
        return self.scores["calibrator"].unique(maintain_order=True).to_list()

    @cached_property
    def calibrator(self) -> str:
        """Return the one under which rows are drawn."""
        return self.drawn_under if self.drawn_under in self.calibrators else self.calibrators[-1]

    @cached_property
    def seeds(self) -> list[int]:
        """Return the protocol seeds that ran."""
        return self.scores["seed"].unique(maintain_order=True).to_list()

    @cached_property
    def labels_with_few_rows(self) -> tuple[str, ...]:
        """Labels with fewer than `MIN_FIT_ROWS` projection-fit rows under at least one protocol seed."""
        curves = [lattice["curves"] for lattice in self.lattices if lattice["variant"] == "mrp"]
        return tuple(
            label
            for place, label in enumerate(self.labels)
            if any(of_labels[place]["rows"] < MIN_FIT_ROWS for of_labels in curves)
        )

    def scored(self, seed: int) -> pl.DataFrame:
        """Return the test rows under `calibrator` and one protocol seed, with `correct`."""
        mine = self.scores.filter(calibrator=self.calibrator, seed=seed)
        return mine.with_columns(correct=pl.col("label") == pl.col("decision"))

    def measured(self, variant: str, **metrics: str) -> pl.DataFrame:
        """Return calibrator and means over seeds of metrics, by the names given; the first of them is never null."""
        rows = self.metrics.filter(pl.col("calibrator").is_in(self.calibrators), variant=variant)
        means = {name: pl.col("value").filter(pl.col("metric") == metric).mean() for name, metric in metrics.items()}
        measured = rows.group_by("calibrator", maintain_order=True).agg(**means).fill_nan(None)
        return measured.drop_nulls(next(iter(metrics)))

    @property
    def subtitle(self) -> str:
        """Return what stands above a figure: the data set, and under which calibrator it is drawn."""
        scored = self.scores["row"].n_unique()
        sample = f", {scored:,} of {self.test_rows:,} test rows" if scored < self.test_rows else ""
        return f"{self.shown}, calibrator {self.calibrator}{sample}"

    @property
    def averaged(self) -> str:
        """Return what a caption adds where there is more than one protocol seed."""
        return "Means over protocol seeds." if len(self.seeds) > 1 else ""

    def lowest(self) -> float:
        """Return the lowest confidence that a decision of K labels can have, or has."""
        least = np.min(self.scores["confidence"].to_numpy())
        return float(min(1 / len(self.labels), np.floor(20 * least) / 20))


def colour(name: str) -> str:
    """Return a colour of LIGHT and DARK, for either."""
    return f"var(--{name})"


def written_out(spec: Mapping[str, Any]) -> str:
    """Return the same chart as JSON with light colours in place of their names, for a file that no page surrounds."""
    return re.sub(r"var\(--(\w+)\)", lambda name: LIGHT[name[1]], json.dumps(spec))


def theme(size: int = 12, *, for_print: bool = False) -> dict[str, Any]:
    """Return the part of a chart that says how it looks; `size` of text in pixels on the page, in points for print."""
    ink, quiet, grid = colour("ink"), colour("quiet"), colour("grid")
    lines = {"gridColor": grid, "domainColor": quiet, "tickColor": quiet, "tickCount": 5}
    labels = {"labelColor": quiet, "labelFontSize": size - 1, "labelOverlap": "greedy", "labelSeparation": 6}
    names = {"labelColor": ink, "titleColor": ink, "labelFontSize": size, "labelLimit": 260}
    symbols = {"symbolType": "stroke", "symbolOpacity": 1} | (PRINT_SYMBOLS if for_print else {"symbolStrokeWidth": 3})
    title = {"titleColor": ink, "titleFontSize": size, "titleFontWeight": "normal"}
    return {
        "background": "white" if for_print else "transparent",
        "font": PRINT_FONT if for_print else FONT,
        "aria": False,  # the page says what a figure shows; a name for each of a thousand dots helps nobody
        "axis": lines | labels | title | {"labelLimit": 220},
        "header": names,
        "legend": names | symbols | {"orient": "top", "title": None, "columns": 2},
        "title": {"color": quiet, "fontSize": size, "fontWeight": "normal", "anchor": "start", "offset": 6},
        "view": {"stroke": None},
    }


def tone(variant: str) -> str:
    """Return the colour of a variant; whatever else a map may hold has that of MRP."""
    return colour(VARIANTS[variant].color or "mrp")
