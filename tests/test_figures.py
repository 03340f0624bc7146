"""Figures are made of the results and of nothing else: their rows agree with counts made another way."""

import json
import re
from functools import cache

import altair as alt
import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from scipy.stats import binomtest

from tasks.figures import figures_of
from tasks.figures.curves import BARS, FEWEST_ROWS, GROUPS, histogram, observed, read
from tasks.figures.figure import Figure, pdf, svg
from tasks.figures.for_paper import paper_figures
from tasks.figures.overview import overview
from tasks.figures.ranking import band
from tasks.figures.results import Results
from tasks.figures.style import DARK, LIGHT, written_out
from tasks.projection.variants import VARIANTS
from tests.report_data import KNOTS, curve, made

TEN = tuple(f"grade {place}" for place in range(10))
SHAPES = {  # what data sets differ in
    "two labels": {"labels": ("no", "yes")},
    "three labels": {},
    "ten labels": {"labels": TEN, "rows": 900},
    "one label decided": {"decided": 1},
    "too few groups": {"groups": 5},
    "one seed, one calibrator": {"seeds": (7,), "calibrators": ("spline",)},
    "hub": {"source": "hub"},
}
SERIES = ("confidence", "label_isotonic", "label_platt", "mrp")


@cache
def results(shape: str) -> Results:
    return made(**SHAPES[shape]).results()


@cache
def in_turn(shape: str) -> list[Figure]:
    return figures_of(results(shape))


def figures(shape: str) -> dict[str, Figure]:
    return {figure.name: figure for figure in in_turn(shape)}


def first_rows(shape: str) -> pl.DataFrame:
    """Test rows under the first seed."""
    mine = results(shape)
    return mine.scored(mine.seeds[0])


def kept(frame: pl.DataFrame, variant: str, coverage: float) -> pl.DataFrame:
    """The share of rows of lowest risk, without care for ties."""
    return frame.sort(f"logit_{variant}", descending=True)[: round(coverage * len(frame))]


def each_seed(shape: str) -> list[pl.DataFrame]:
    return [results(shape).scored(seed) for seed in results(shape).seeds]


# Every figure


def valid(figure: Figure) -> bool:
    """Is it Vega-Lite, with its rows?"""
    values = json.loads(figure.rows[:2].fill_nan(None).write_json())
    return bool(alt.Chart.from_dict(figure.spec | {"data": {"values": values}}).to_dict(validate=True)["data"])


@pytest.mark.parametrize("shape", ["ten labels", "one label decided"])
def test_a_figure_is_valid_vega_lite_with_its_rows(shape):
    assert all(valid(figure) for figure in in_turn(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_chart_holds_no_data_and_asks_only_for_columns_of_its_rows(shape):
    for figure in figures(shape).values():
        text = json.dumps(figure.spec)
        assert '"data":' not in text
        assert '"datasets":' not in text
        made_in_chart = set(re.findall(r'"as": "(\w+)"', text))
        asked = set(re.findall(r'"field": "(\w+)"', text)) | set(
            re.findall(r"datum\.(\w+)", text.replace("datum.label", ""))
        )
        assert asked - made_in_chart <= set(figure.rows.columns), figure.name


@pytest.mark.parametrize("shape", SHAPES)
def test_every_colour_has_a_value_in_both_themes(shape):
    assert list(LIGHT) == list(DARK)
    for figure in figures(shape).values():
        named = set(re.findall(r"var\(--([\w-]+)\)", json.dumps(figure.spec)))
        assert named
        assert named <= set(LIGHT)
        alone = json.dumps(written_out(figure.spec))
        assert "var(" not in alone
        assert set(re.findall(r"#[0-9a-f]{6}", alone)) <= set(LIGHT.values())
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b", json.dumps([one.spec for one in figures(shape).values()]))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_figure_has_a_name_of_its_own_says_how_to_read_it_and_what_is_simulated(shape):
    drawn = in_turn(shape)
    assert len({figure.name for figure in drawn}) == len(drawn)
    shown = "shop" if shape == "hub" else "shop (simulated)"
    for figure in drawn:
        assert figure.title
        assert figure.caption.endswith(".")
        assert len(figure.rows)
        assert re.fullmatch(rf"{re.escape(shown)}(, calibrator \w+)?", figure.spec["title"]), figure.name


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_stand_out_from_their_ground(colours):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert len({colours[name] for name in ("confidence", "isotonic", "platt", "mrp", "fifth")}) == 5
    for name in ("ink", "quiet", "mrp"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name  # WCAG 2.2, level AA
    for name in ("confidence", "mrp", "isotonic", "platt", "other", "fifth"):
        assert contrast(colours[name], colours["paper"]) >= 3, name  # WCAG 2.2, of graphics


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


# What was not run


@pytest.mark.parametrize(
    ("field", "condition", "gone"),
    [
        ("rivals", pl.lit(value=False), "labelled_rows"),
        ("metrics", pl.col("variant") != "mrc", "simplex_feasibility"),
        ("metrics", pl.col("metric") != "label_spread", "label_spread"),
        ("metrics", ~pl.col("metric").is_in(["nll_correct", "aurc"]), "ablation"),
    ],
)
def test_what_was_not_run_has_no_figure(field, condition, gone):
    whole = made()
    without = whole.results(**{field: getattr(whole, field).filter(condition)})
    assert set(figures("three labels")) - {figure.name for figure in figures_of(without)} == {gone}
    assert set(figures("three labels")) - set(figures("one label decided")) == {"label_spread"}


# Ranking


@pytest.mark.parametrize("shape", SHAPES)
def test_the_risk_at_full_coverage_is_the_error_rate_whatever_ranks(shape):
    rate = np.mean([1 - frame["correct"].mean() for frame in each_seed(shape)])
    last = figures(shape)["risk_coverage"].rows.filter(coverage=1.0)
    assert last["variant"].to_list() == [VARIANTS[name].title for name in SERIES]
    assert last["risk"].to_list() == pytest.approx([rate] * 4)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gain_is_the_risk_of_the_confidence_less_that_of_mrp(shape):
    by = {name: rows for (name,), rows in figures(shape)["risk_coverage"].rows.group_by("variant")}
    gain = figures(shape)["fallback_gain"].rows
    assert gain["coverage"].to_list() == by["MRP"]["coverage"].to_list()
    assert gain["gain"].to_list() == pytest.approx((by["confidence"]["risk"] - by["MRP"]["risk"]).to_list())


@pytest.mark.parametrize("variant", ["confidence", "label_platt"])  # no two rows tie under these
def test_the_risk_is_that_of_the_rows_kept(variant):
    rows = figures("three labels")["risk_coverage"].rows.filter(variant=VARIANTS[variant].title)
    for coverage, risk in rows.select("coverage", "risk").iter_rows():
        naive = [1 - kept(frame, variant, coverage)["correct"].mean() for frame in each_seed("three labels")]
        assert risk == pytest.approx(np.mean(naive)), coverage


def test_errors_found_agree_with_a_count():
    rows = figures("three labels")["errors_found"].rows.filter(variant="confidence")
    assert rows["reviewed"].to_list() == pytest.approx((np.arange(5, 51) / 100).tolist())
    for reviewed, found in rows.select("reviewed", "found").iter_rows():
        naive = []
        for frame in each_seed("three labels"):
            seen = frame.sort("logit_confidence")[: round(reviewed * len(frame))]
            naive.append(1000 * (~seen["correct"]).sum() / len(seen))
        assert found == pytest.approx(np.mean(naive)), reviewed


def test_the_change_of_errors_found_stands_beside_both_lines():
    rows = figures("three labels")["errors_found"].rows
    by = {name: part for (name,), part in rows.group_by("variant")}
    assert by["MRP"]["change"].to_list() == pytest.approx((by["MRP"]["found"] - by["confidence"]["found"]).to_list())
    assert by["MRP"]["change"].to_list() == by["confidence"]["change"].to_list()
    # found errors and kept errors are all errors: what MRP finds more of 1,000 reviews, it keeps less of
    gain = figures("three labels")["fallback_gain"].rows
    for reviewed, change in by["MRP"].select("reviewed", "change").iter_rows():
        coverage = 1 - reviewed
        (gained,) = gain.filter((pl.col("coverage") - coverage).abs() < 1e-9)["gain"]
        assert change == pytest.approx(1000 * gained * coverage / reviewed)


def test_bands_hold_their_curves_and_close_where_nothing_is_chosen():
    rows = figures("three labels")["risk_coverage"].rows
    low, high = band(np.arange(201.0)[:, None]).values()
    assert [*low, *high] == pytest.approx([5, 195])
    inside = (rows["low"] <= rows["risk"]) & (rows["risk"] <= rows["high"])
    assert inside.mean() > 0.95
    gain = figures("three labels")["fallback_gain"].rows
    assert gain.filter(coverage=1.0).select("gain", "low", "high").row(0) == pytest.approx((0, 0, 0))


def test_with_too_few_groups_there_are_curves_without_bands():
    for name, columns in (
        ("risk_coverage", ("low", "high")),
        ("fallback_gain", ("low", "high")),
        ("errors_found", ("change_low", "change_high")),
    ):
        rows = figures("too few groups")[name].rows
        assert all(rows[column].is_nan().all() for column in columns)
        assert rows["coverage" if "coverage" in rows.columns else "reviewed"].is_finite().all()
        assert not any(figures("three labels")[name].rows[column].is_nan().any() for column in columns)


def test_what_was_not_projected_is_no_line():
    whole = made()
    rows = figures_of(whole.results(scores=whole.scores.drop("logit_label_platt")))[0].rows
    assert rows["variant"].unique(maintain_order=True).to_list() == ["confidence", "label isotonic", "MRP"]


# Curves and reliability diagrams


def panels(shape: str, name: str) -> dict[int, pl.DataFrame]:
    """The rows of each label's panel, by its place."""
    rows = figures(shape)[name].rows
    found = {label: part for (label,), part in rows.group_by("label", maintain_order=True)}
    assert len(found) == len(results(shape).labels)
    assert [*found] == [*results(shape).labels]
    return dict(enumerate(found.values()))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_histograms_count_every_test_row_once(shape):
    frame = first_rows(shape)
    for place, rows in panels(shape, "curves").items():
        bars = rows.filter(kind="histogram")
        assert bars["rows"].sum() == (frame["decision"] == place).sum()
        assert bars["reliability"].max() is None or bars["reliability"].max() == pytest.approx(0.18)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("figure", ["curves", "reliability_by_label"])
def test_the_dots_stand_for_every_test_row_once_where_there_are_enough(shape, figure):
    frame = first_rows(shape)
    for place, rows in panels(shape, figure).items():
        mine = int((frame["decision"] == place).sum())
        dots = rows.filter(~pl.col("kind").is_in(["identity", "curve", "histogram"]))
        for (_,), part in dots.group_by("kind"):
            assert part["rows"].sum() == mine
            assert part["rows"].min() >= FEWEST_ROWS
            right = (part["rows"] * part["reliability"]).sum()
            assert right == pytest.approx(frame.filter(decision=place)["correct"].sum())
        assert dots.is_empty() == (mine < FEWEST_ROWS)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_panel_says_how_many_rows_it_stands_on(shape):
    frame = first_rows(shape)
    for place, rows in panels(shape, "curves").items():
        mine = (frame["decision"] == place).sum()
        assert rows["panel"][0].endswith(f"\n{mine:,} test rows")
        fit = [100 * seed for seed in results(shape).seeds]
        assert f"\n{' to '.join(f'{one:,}' for one in fit)} fit rows" in rows["panel"][0]
        assert ("confidence kept" in rows["panel"][0]) == (place % 3 == 2)
        assert ("shared curve" in rows["panel"][0]) == (place % 3 == 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_drawn_curve_is_read_from_the_knots_of_its_seed(shape):
    for place, rows in panels(shape, "curves").items():
        drawn = rows.filter(kind="curve")
        assert drawn["seed"].unique(maintain_order=True).to_list() == results(shape).seeds
        for (seed,), part in drawn.group_by("seed"):
            said = part["confidence"].to_numpy()
            fitted = curve("", place, int(seed))
            expected = said if fitted["fallback"] == "identity" else expit(np.interp(said, KNOTS, fitted["values"]))
            assert part["reliability"].to_numpy() == pytest.approx(expected)


def test_a_curve_at_its_knots_is_its_values_and_an_identity_is_the_confidence():
    one = curve("no", 0, 1) | {"knots": KNOTS.tolist()}
    assert read(one, KNOTS) == pytest.approx(expit(np.array(one["values"])))
    halfway = (KNOTS[1:] + KNOTS[:-1]) / 2
    assert read(one, halfway) == pytest.approx(expit((np.array(one["values"])[1:] + one["values"][:-1]) / 2))
    assert (read(one | {"fallback": "identity", "values": []}, KNOTS) == KNOTS).all()


def test_dots_by_hand():
    said, correct = np.arange(80) / 100, np.arange(80) % 4 == 0
    order = np.random.default_rng(0).permutation(80)
    dots = observed(pl.Series(said[order]), pl.Series(correct[order]))
    assert [dot["rows"] for dot in dots] == [20] * 4
    assert [dot["reliability"] for dot in dots] == [0.25] * 4
    assert [dot["confidence"] for dot in dots] == pytest.approx([0.095, 0.295, 0.495, 0.695])
    interval = binomtest(5, 20).proportion_ci()  # Clopper and Pearson's
    assert (dots[0]["low"], dots[0]["high"]) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(("rows", "groups"), [(0, 0), (19, 0), (20, 1), (79, 3), (160, 8), (5000, GROUPS)])
def test_a_dot_has_twenty_rows_at_least_and_a_panel_eight_dots_at_most(rows, groups):
    dots = observed(pl.Series(np.linspace(0, 1, rows)), pl.Series(np.ones(rows, dtype=bool)))
    assert len(dots) == groups


def test_bars_by_hand():
    said = pl.Series([0.2, 0.21, 0.99, 1.0])
    bars = histogram(said, 0.2)
    assert [bar["rows"] for bar in bars] == [2, 2]
    assert [bar["to"] - bar["confidence"] for bar in bars] == pytest.approx([0.8 / BARS] * 2)
    assert (bars[0]["confidence"], bars[-1]["to"]) == pytest.approx((0.2, 1))
    assert histogram(pl.Series([], dtype=pl.Float64), 0.5) == []


def test_the_axis_begins_where_confidence_can():
    assert results("two labels").lowest() == 0.5
    assert results("ten labels").lowest() == pytest.approx(0.1)
    for shape in SHAPES:
        assert results(shape).lowest() <= results(shape).scores["confidence"].min()


def test_reliability_stands_beside_confidence_and_both_have_the_same_rows():
    for rows in panels("three labels", "reliability_by_label").values():
        before, after = (rows.filter(kind=VARIANTS[name].title) for name in ("confidence", "mrp"))
        assert before["rows"].sum() == after["rows"].sum()
        assert before["rows"].sum() > 0


# Calibrators, variants, labelled rows


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "one label decided"])
def test_spreads_are_in_percentage_points_by_calibrator(shape):
    rows = figures(shape)["label_spread"].rows
    assert rows["calibrator"].to_list() == results(shape).calibrators
    assert rows.select("spread", "shuffled").unique().rows() == [(pytest.approx(20), pytest.approx(5))]


def test_what_is_measured_under_a_rival_alone_is_not_drawn():
    whole = made()
    other = whole.metrics.with_columns(calibrator=pl.lit("matrix"), value=pl.lit(99.0))
    both = figures_of(whole.results(metrics=pl.concat([whole.metrics, other])))
    for figure in both:
        assert figure.rows.equals(figures("three labels")[figure.name].rows), figure.name


def test_the_ablation_is_a_mean_over_seeds_then_over_calibrators():
    rows = figures("three labels")["ablation"].rows
    mine = results("three labels").metrics.filter(metric="aurc", variant="mrp")
    drawn = rows.filter(metric="AURC", variant="MRP")
    for calibrator, value, mean in drawn.select("calibrator", "value", "mean").iter_rows():
        assert value == pytest.approx(mine.filter(calibrator=calibrator)["value"].mean())
        assert mean == pytest.approx(drawn["value"].mean())
    assert rows["variant"].n_unique() == 7


def test_labelled_rows_tell_apart_what_each_way_was_given():
    rows = figures("three labels")["labelled_rows"].rows
    assert rows["way"].unique(maintain_order=True).to_list() == [
        *("ts, confidence", "MRP on ts", "matrix scaling", "matrix scaling, the rows of both")
    ]
    assert rows["rows"].unique().sort().to_list() == [100, 400]
    assert rows.filter(rows=400)["value"].unique().to_list() == pytest.approx([30 / 400 + 1.5])


# All data sets in one picture


def test_the_overview_leaves_out_what_failed_and_keeps_the_order():
    table = pl.DataFrame(
        {
            "dataset": ["b", "a (failed)", "a"],
            "nll_correct_delta": [0.1, None, -0.1],
            "low": [0.0, None, None],
            "high": [0.2, None, None],
            "found_per_1000_conf": [100.0, None, 200.0],
            "found_per_1000_mrp": [90.0, None, 250.0],
        }
    )
    figure = overview(table)
    assert figure.rows["dataset"].to_list() == ["b", "a"]
    assert figure.rows["change"].to_list() == [0.1, -0.1]
    assert '"sort": ["b", "a"]' in json.dumps(figure.spec)
    assert valid(figure)


# For papers

PAGE, COLUMN = 504, 252  # points, of a page of two columns


@cache
def for_paper(*shapes: str) -> dict[str, Figure]:
    return {figure.name: figure for figure in paper_figures([results(shape) for shape in shapes])}


@pytest.mark.parametrize("name", ["method_overview", "labelwise_curves", "simplex_paths"])
def test_a_figure_for_a_paper_is_small_says_what_is_simulated_and_is_the_same_each_time(name):
    spec = for_paper("two labels", "three labels", "ten labels")[name].spec
    drawn = svg(spec)
    width = float(re.match(r'<svg [^>]*?width="([\d.]+)"', drawn)[1])
    assert width <= (COLUMN if name == "simplex_paths" else 1.05 * PAGE)
    assert "shop (simulated)" in drawn
    assert "var(" not in drawn
    assert svg(spec) == drawn
    first = pdf(spec)
    assert first.startswith(b"%PDF")
    assert first == pdf(spec)


def test_the_simplex_needs_three_labels():
    assert "simplex_paths" not in for_paper("two labels", "ten labels")


def test_a_path_on_the_simplex_ends_where_the_decision_has_the_reliability():
    ends = for_paper("three labels")["simplex_paths"].rows.filter(kind="end", text="2")
    assert len(ends)
    top = ends["y"].to_numpy() / (np.sqrt(3) / 2)
    probabilities = np.stack([1 - ends["x"] - top / 2, ends["x"] - top / 2, top], axis=1)
    mrc = np.array(results("three labels").simplex["mrc"].to_list())
    for vector in probabilities:
        assert np.abs(mrc - vector).max(axis=1).min() < 1e-6
