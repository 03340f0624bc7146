"""Figures of the report: their rows agree with independent counts, and their charts are valid and complete."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache

import altair as alt
import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from scipy.special import expit
from scipy.stats import binomtest

from relmap.projection.registry import VARIANTS
from relmap.report.curves import MIN_BIN_ROWS, N_BARS, N_BINS, binned_accuracy, histogram_bars
from relmap.report.figure import DARK, LIGHT, RENDER_PDF, DrawnFigure, Results, css_color, pdf, svg, with_light_colors
from relmap.report.ranking import retained_errors
from tasks.figures import FIGURES, draw_all
from tasks.figures.curves import curve_rows
from tasks.figures.overview import overview_picture, select_changes
from tasks.figures.variants import METHODS
from tasks.page.page import describe_facts
from tests.pipeline.charts import CHARTS, DRAWN_VARIANTS, chart_contents
from tests.report_data import KNOTS, contrast_ratio, make_curve, make_results

TEN_LABELS = tuple(f"grade {number}" for number in range(10))
CASES = {  # arguments of `make_results`
    "two labels": {"labels": ("no", "yes")},
    "three labels": {},
    "ten labels of the hub": {"labels": TEN_LABELS, "rows": 900, "source": "hub"},
    "one label decided": {"decided": 1},
    "few groups, one seed, one calibrator": {"groups": 5, "seeds": (7,), "calibrators": ("spline",)},
}
TITLES = {key: variant.title for key, variant in VARIANTS.items()}
DATASET_FIGURES = [key for key, figure in FIGURES.items() if figure.role == "data set"]
VEGA_LITE = Draft7Validator(alt.load_schema())
PAGE_WIDTH = 504  # points, of a page with two columns
COLUMN_WIDTH = 252
every_case = pytest.mark.parametrize("case", CASES)


@cache
def results(case: str) -> Results:
    return make_results(**CASES[case])


@cache
def figures(case: str) -> dict[str, DrawnFigure]:
    return {figure.key: figure for figure in draw_all("data set", results(case))}


@cache
def paper_figures(*cases: str) -> dict[str, DrawnFigure]:
    results_of_cases = [results(case) for case in cases]
    return {figure.key: figure for figure in draw_all("paper", results_of_cases)}


def rows_by_seed(case: str) -> list[pl.DataFrame]:
    """Return the test rows of each seed."""
    return [results(case).scored_rows(seed) for seed in results(case).seeds]


def rows_by_variant(case: str, key: str) -> dict[str, pl.DataFrame]:
    groups = figures(case)[key].rows.group_by("variant", maintain_order=True)
    return {variant: rows for (variant,), rows in groups}


@pytest.mark.parametrize("case", ["ten labels of the hub", "one label decided"])
def test_a_figure_with_its_rows_is_valid_vega_lite(case):
    for figure in figures(case).values():
        values = json.loads(figure.rows[:2].fill_nan(None).write_json())
        assert VEGA_LITE.is_valid(figure.spec | {"data": {"values": values}}), figure.key


@every_case
def test_a_chart_has_no_data_and_uses_only_columns_of_its_rows(case):
    for figure in figures(case).values():
        text = json.dumps(figure.spec)
        assert not re.search('"data(sets)?":', text)
        computed = set(re.findall(r'"as": "(\w+)"', text))
        fields = set(re.findall(r'"field": "(\w+)"', text))
        in_expressions = set(re.findall(r"datum\.(?!label)(\w+)", text))
        assert (fields | in_expressions) - computed <= set(figure.rows.columns), figure.key


def test_charts_are_those_that_somebody_has_looked_at():
    """If a chart has changed on purpose, look at it and run `python -m tests.pipeline.charts`."""
    expected = yaml.safe_load(CHARTS.read_text(encoding="utf-8"))
    contents = chart_contents()
    assert contents.keys() == expected.keys()
    for key, content in contents.items():
        assert content == expected[key], key


@every_case
def test_each_kind_of_rows_has_a_layer(case):
    for figure in figures(case).values():
        if "kind" in figure.rows.columns:
            drawn_kinds = set(re.findall("datum.kind === '([^']+)'", json.dumps(figure.spec)))
            assert set(figure.rows["kind"]) <= drawn_kinds, figure.key


@every_case
def test_colors_are_names_on_the_page_and_values_in_a_separate_file(case):
    for figure in figures(case).values():
        text = json.dumps(figure.spec)
        names = set(re.findall(r"var\(--([\w-]+)\)", text))
        assert names
        assert names <= set(LIGHT)
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b", text)
        separate = with_light_colors(figure.spec)
        assert "var(" not in separate
        assert set(re.findall(r"#[0-9a-f]{6}", separate)) <= set(LIGHT.values())


@every_case
def test_a_figure_has_titles_and_a_caption_and_marks_simulated_data(case):
    name = "shop" if "hub" in case else "shop (simulated)"
    for figure in figures(case).values():
        assert figure.title
        assert figure.caption.endswith(".")
        assert re.fullmatch(rf"{re.escape(name)}(, calibrator \w+)?", figure.spec["title"]), figure.key


def test_the_contrast_of_black_and_white_is_21():
    assert contrast_ratio("#000000", "rgb(255, 255, 255)") == pytest.approx(21)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_have_the_contrast_of_wcag_level_aa(colors):
    assert list(LIGHT) == list(DARK)
    assert len({colors[name] for name in ("confidence", "isotonic", "platt", "mrp", "fifth")}) == 5
    for name in ("ink", "quiet", "mrp"):  # also colors of text
        assert contrast_ratio(colors[name], colors["paper"]) >= 4.5, name
    for name in ("confidence", "isotonic", "platt", "other", "fifth"):
        assert contrast_ratio(colors[name], colors["paper"]) >= 3, name


def test_complete_results_have_every_figure():
    assert [*figures("three labels")] == DATASET_FIGURES


def test_without_its_data_a_figure_is_omitted():
    complete = make_results()
    is_missing = pl.col("metric").is_in(["label_spread", "nll_correct", "aurc"]) | (pl.col("variant") == "mrc")
    incomplete = replace(complete, rivals=complete.rivals.clear(), metrics=complete.metrics.filter(~is_missing))
    drawn = {figure.key for figure in draw_all("data set", incomplete)}
    assert set(DATASET_FIGURES) - drawn == {"labelled_rows", "simplex_feasibility", "label_spread", "ablation"}
    assert set(DATASET_FIGURES) - set(figures("one label decided")) == {"label_spread"}


def test_a_variant_without_scores_is_omitted_from_rankings():
    complete = make_results()
    without_platt = replace(complete, scores=complete.scores.drop("logit_label_platt"))
    assert [*retained_errors(without_platt).estimate] == ["confidence", "label_isotonic", "mrp"]


@every_case
def test_at_full_coverage_the_risk_is_the_error_rate(case):
    error_rate = np.mean([1 - rows["correct"].mean() for rows in rows_by_seed(case)])
    risk = rows_by_variant(case, "risk_coverage")
    assert [*risk] == [TITLES[key] for key in ("confidence", "label_isotonic", "label_platt", "mrp")]
    for rows in risk.values():
        assert rows["risk"][-1] == pytest.approx(error_rate)


@every_case
def test_the_accuracy_gain_is_a_difference_of_risks(case):
    risk = rows_by_variant(case, "risk_coverage")
    gain = figures(case)["accuracy_gain"].rows
    assert gain["coverage"].to_list() == risk["MRP"]["coverage"].to_list()
    assert gain["coverage"][-1] == 1
    difference = risk["confidence"]["risk"] - risk["MRP"]["risk"]
    assert gain["gain"].to_list() == pytest.approx(difference.to_list())


def share_of_errors(variant: str, share: float, *, most_reliable: bool) -> float:
    """Return the share of errors among the most, or least, reliable rows, as a mean over seeds."""
    shares = []
    for rows in rows_by_seed("three labels"):
        ranked = rows.sort(f"logit_{variant}", descending=most_reliable)
        shares.append(1 - ranked["correct"][: round(share * len(ranked))].mean())
    return np.mean(shares)


@pytest.mark.parametrize("variant", ["confidence", "label_platt"])  # without ties
def test_the_risk_is_the_share_of_errors_among_the_retained_rows(variant):
    rows = rows_by_variant("three labels", "risk_coverage")[TITLES[variant]]
    expected = [share_of_errors(variant, coverage, most_reliable=True) for coverage in rows["coverage"]]
    assert rows["risk"].to_list() == pytest.approx(expected)


def test_errors_found_are_those_among_the_reviewed_rows():
    rows = rows_by_variant("three labels", "errors_found")
    before = rows[TITLES["confidence"]]
    after = rows[TITLES["mrp"]]
    shares = np.arange(5, 51) / 100
    assert before["reviewed"].to_list() == pytest.approx(shares.tolist())
    expected = [1000 * share_of_errors("confidence", share, most_reliable=False) for share in shares]
    assert before["found"].to_list() == pytest.approx(expected)
    change = (after["found"] - before["found"]).to_list()
    assert before["change"].to_list() == pytest.approx(change)
    assert after["change"].to_list() == pytest.approx(change)


def test_bands_contain_their_curves_and_are_empty_at_full_coverage():
    drawn = figures("three labels")
    risk = drawn["risk_coverage"].rows
    assert risk["risk"].is_between(risk["low"], risk["high"]).mean() > 0.95
    gain = drawn["accuracy_gain"].rows
    assert gain["gain"].is_between(gain["low"], gain["high"]).mean() > 0.95
    assert gain.filter(coverage=1.0).select("gain", "low", "high").row(0) == pytest.approx((0, 0, 0))


def layers_with_band(figure: DrawnFigure) -> list[bool]:
    return ["low" in json.dumps(layer["encoding"]["y"]) for layer in figure.spec["layer"]]


@pytest.mark.parametrize("key", ["risk_coverage", "accuracy_gain", "errors_found"])
def test_with_few_groups_there_are_curves_without_bands(key):
    figure = figures("few groups, one seed, one calibrator")[key]
    bounds = pl.selectors.matches("low$|high$")
    assert not any(layers_with_band(figure))
    assert figure.rows.select(bounds).null_count().row(0) == (len(figure.rows), len(figure.rows))
    assert figure.rows.select(~bounds).null_count().sum_horizontal().item() == 0


@pytest.mark.parametrize(
    ("key", "has_band"), [("risk_coverage", True), ("accuracy_gain", True), ("errors_found", False)]
)
def test_a_band_is_drawn_below_its_curves(key, has_band):
    figure = figures("three labels")[key]
    first_layer, *other_layers = layers_with_band(figure)
    assert first_layer == has_band
    assert not any(other_layers)
    assert figure.rows.null_count().sum_horizontal().item() == 0


def panels(case: str, key: str) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """Return the rows of the panel of each label, and its test rows under the first seed."""
    rows_by_label = dict(iter(figures(case)[key].rows.group_by("label", maintain_order=True)))
    assert [label for (label,) in rows_by_label] == [*results(case).labels]
    first_seed = rows_by_seed(case)[0]
    return [(rows, first_seed.filter(decision=label)) for label, rows in enumerate(rows_by_label.values())]


@every_case
def test_a_histogram_contains_every_test_row_once(case):
    for rows, test_rows in panels(case, "curves"):
        bars = rows.filter(kind="histogram")
        assert bars["rows"].sum() == len(test_rows)
        highest = bars["reliability"].max()
        assert highest is None or highest == pytest.approx(0.18)


@every_case
def test_the_heading_of_a_panel_has_the_numbers_of_rows_and_the_fallback(case):
    fit_rows = " to ".join(f"{100 * seed:,}" for seed in results(case).seeds)
    for label, (rows, test_rows) in enumerate(panels(case, "curves")):
        heading = rows["panel"][0]
        assert heading.endswith(f"\n{len(test_rows):,} test rows")
        assert f"\n{fit_rows} fit rows" in heading
        assert ("shared curve" in heading) == (label % 3 == 1)
        assert ("confidence kept" in heading) == (label % 3 == 2)


@every_case
def test_a_panel_has_the_curve_of_each_seed(case):
    for label, (rows, _) in enumerate(panels(case, "curves")):
        curves = rows.filter(kind="curve")
        assert curves["seed"].unique(maintain_order=True).to_list() == results(case).seeds
        for (seed,), points in curves.group_by("seed"):
            fitted = make_curve(label, "", int(seed))
            confidence = points["confidence"].to_numpy()
            expected = confidence
            if fitted["fallback"] != "identity":
                expected = expit(np.interp(confidence, KNOTS, fitted["values"]))
            assert points["reliability"].to_numpy() == pytest.approx(expected)


@every_case
@pytest.mark.parametrize(
    ("key", "kinds"), [("curves", {"test rows"}), ("reliability_by_label", {TITLES["confidence"], TITLES["mrp"]})]
)
def test_dots_represent_every_test_row_once_if_there_are_enough(case, key, kinds):
    for rows, test_rows in panels(case, key):
        dots = rows.filter(~pl.col("kind").is_in(["identity", "curve", "histogram"]))
        assert set(dots["kind"]) == (kinds if len(test_rows) >= MIN_BIN_ROWS else set())
        for _, dots_of_kind in dots.group_by("kind"):
            assert dots_of_kind["rows"].sum() == len(test_rows)
            assert dots_of_kind["rows"].min() >= MIN_BIN_ROWS
            n_correct = (dots_of_kind["rows"] * dots_of_kind["reliability"]).sum()
            assert n_correct == pytest.approx(test_rows["correct"].sum())


def test_dots_of_80_rows_by_hand():
    probability = np.arange(80) / 100
    correct = np.arange(80) % 4 == 0
    order = np.random.default_rng(0).permutation(80)
    dots = pl.DataFrame(binned_accuracy(pl.Series(probability[order]), pl.Series(correct[order])))
    assert dots.select("rows", "reliability").rows() == [(20, 0.25)] * 4
    assert dots["confidence"].to_list() == pytest.approx([0.095, 0.295, 0.495, 0.695])
    clopper_pearson = binomtest(5, 20).proportion_ci()
    assert dots.select("low", "high").row(0) == pytest.approx(clopper_pearson)


@pytest.mark.parametrize(("n_rows", "n_dots"), [(0, 0), (19, 0), (20, 1), (79, 3), (160, 8), (5000, N_BINS)])
def test_a_panel_has_at_most_eight_dots_of_at_least_twenty_rows(n_rows, n_dots):
    dots = binned_accuracy(pl.Series(np.linspace(0, 1, n_rows)), pl.Series(np.ones(n_rows, dtype=bool)))
    assert len(dots) == n_dots


def test_bars_by_hand():
    """From 0.2 to 1, each bar is 0.8 / N_BARS wide; two rows are in the first bar and two in the last."""
    confidence = pl.Series([0.2, 0.21, 0.99, 1.0])
    bars = pl.DataFrame(histogram_bars(confidence, 0.2))
    assert bars["rows"].to_list() == [2, 2]
    assert bars["confidence"].to_list() == pytest.approx([0.2, 1 - 0.8 / N_BARS])
    assert bars["to"].to_list() == pytest.approx([0.2 + 0.8 / N_BARS, 1])
    assert histogram_bars(pl.Series([], dtype=pl.Float64), 0.5) == []


def test_label_spreads_are_in_percentage_points_by_calibrator():
    rows = figures("three labels")["label_spread"].rows
    assert rows["calibrator"].to_list() == results("three labels").calibrators
    assert rows.select("spread", "shuffled").unique().rows() == [(pytest.approx(20), pytest.approx(5))]


def test_metrics_of_a_rival_are_not_drawn():
    complete = make_results()
    of_rival = complete.metrics.with_columns(calibrator=pl.lit("matrix"), value=pl.lit(99.0))
    with_rival = replace(complete, metrics=pl.concat([complete.metrics, of_rival]))
    for figure in draw_all("data set", with_rival):
        assert figure.rows.equals(figures("three labels")[figure.key].rows), figure.key


def test_solved_rows_are_blue_and_infeasible_rows_orange():
    figure = figures("three labels")["simplex_feasibility"]
    assert figure.rows.select("solved", "infeasible").unique().rows() == [(0.9, 0.08)]
    colors = {layer["encoding"]["x"]["field"]: layer["mark"]["color"] for layer in figure.spec["layer"]}
    assert colors == {"solved": css_color("mrp"), "infeasible": css_color("fifth")}


def test_the_ablation_is_a_mean_over_seeds_then_over_calibrators():
    rows = figures("three labels")["ablation"].rows
    metrics = results("three labels").metrics.filter(metric="aurc", variant="mrp")
    drawn = rows.filter(metric="AURC", variant="MRP")
    for calibrator, value, mean in drawn.select("calibrator", "value", "mean").iter_rows():
        assert value == pytest.approx(metrics.filter(calibrator=calibrator)["value"].mean())
        assert mean == pytest.approx(drawn["value"].mean())


def test_the_ablation_has_the_variants_in_the_order_of_the_registry():
    figure = figures("three labels")["ablation"]
    drawn = set(figure.rows["variant"])
    assert drawn == {variant.title for variant in VARIANTS.values() if variant.role != "sensitivity"}
    assert len(drawn & {TITLES[key] for key in ("confidence", *DRAWN_VARIANTS)}) == 8
    assert json.dumps([title for title in TITLES.values() if title in drawn]) in json.dumps(figure.spec)


def test_labelled_rows_distinguish_methods_by_the_rows_of_their_fits():
    rows = figures("three labels")["labelled_rows"].rows
    *on_one_part, on_both_parts = rows["method"].unique(maintain_order=True)
    assert on_one_part == ["ts, confidence", "MRP on ts", "matrix scaling"]
    assert [on_both_parts] == [method.title for method in METHODS if method.on_both_parts]
    assert rows["rows"].unique().sort().to_list() == [100, 400]
    aurc = dict(rows.filter(rows=400, metric="AURC").select("method", "value").iter_rows())
    expected = dict.fromkeys(on_one_part, 30 / 400 + 1.5) | {on_both_parts: 30 / 400 + 2.5}
    assert aurc == pytest.approx(expected)


OVERVIEW_COLUMNS = ["dataset", "nll_correct_delta", "low", "high", "found_per_1000_conf", "found_per_1000_mrp"]


def test_the_overview_omits_failed_data_sets_and_keeps_the_order():
    failed = ("a (failed)", None, None, None, None, None)
    rows = [("b", 0.1, 0.0, 0.2, 100.0, 90.0), failed, ("a", -0.1, None, None, 200.0, 250.0)]
    table = pl.DataFrame(rows, schema=OVERVIEW_COLUMNS, orient="row")
    (figure,) = draw_all("all data sets", table)
    drawn = figure.rows.select("dataset", "change", "low", "high").rows()
    assert drawn == [("b", 0.1, 0.0, 0.2), ("a", -0.1, None, None)]
    assert '"sort": ["b", "a"]' in json.dumps(figure.spec)
    assert draw_all("all data sets", table[1:2]) == []


def test_the_picture_of_the_overview_has_a_line_and_two_dots_for_the_errors_found():
    layers = overview_picture(make_overview([0.1, -0.1]))["hconcat"][1]["layer"]
    assert [layer["encoding"]["x"]["field"] for layer in layers] == ["found_conf", "found_conf", "found_mrp"]


def make_overview(changes: list[float], half_width: float = 0.02) -> pl.DataFrame:
    """Make the table `overview` with a data set for each change, and intervals of equal width."""
    return pl.DataFrame(
        {
            "dataset": [f"set {number}" for number in range(len(changes))],
            "nll_correct_delta": changes,
            "low": [change - half_width for change in changes],
            "high": [change + half_width for change in changes],
            "found_per_1000_conf": 100.0,
            "found_per_1000_mrp": 120.0,
        }
    )


@pytest.mark.parametrize("side", [-1, 1])
def test_an_outlier_of_the_overview_is_cut_off_and_has_an_arrow_with_its_numbers(side):
    changes = [side * change for change in (1.2, 0.05, 0.1, 0.08, 0.03)]
    (figure,) = draw_all("all data sets", make_overview(changes))
    outlier, *others = figure.rows.to_dicts()
    assert outlier["change"] == changes[0]  # the CSV has the true number
    assert outlier["drawn_change"] is None
    assert f"{changes[0]:g}" in outlier["numbers"]
    assert outlier["drawn_low"] == outlier["drawn_high"] == outlier["arrow_at"]
    assert np.sign(outlier["arrow_at"]) == side
    distances = [abs(row[column]) for row in others for column in ("drawn_low", "drawn_change", "drawn_high")]
    assert max(distances) > 0.75 * abs(outlier["arrow_at"])  # the others fill the axis
    for row in others:
        assert_drawn_as_measured(row)
        assert row["arrow_at"] is None
    assert "arrow" in figure.caption


def assert_drawn_as_measured(row: dict[str, float | None]) -> None:
    for name in ("change", "low", "high"):
        assert row[f"drawn_{name}"] == row[name]


@given(st.lists(st.floats(-2, 2), max_size=8), st.floats(0, 1))
def test_every_number_of_the_overview_is_drawn_in_its_place_or_cut_off(changes, half_width):
    rows = select_changes(make_overview(changes, half_width))
    for row in rows.iter_rows(named=True):
        is_cut_off = row["arrow_at"] is not None
        assert is_cut_off == (row["numbers"] is not None)
        if not is_cut_off:
            assert_drawn_as_measured(row)
        elif row["drawn_change"] is not None:
            assert row["drawn_change"] == row["change"]
    assert rows["arrow_at"].is_not_null().sum() <= len(rows) / 2


@pytest.mark.parametrize(("n_fit_rows", "is_marked"), [(100, False), (99, True)])
def test_labels_with_fewer_than_100_fit_rows_are_marked(n_fit_rows, is_marked):
    original = results("three labels")
    lattices = []
    for lattice in original.lattices:
        curves = [curve | {"rows": n_fit_rows} for curve in lattice["curves"]]
        lattices.append(lattice | {"curves": curves})
    changed = replace(original, lattices=lattices)
    headings = curve_rows(changed)["panel"].unique()
    assert headings.str.contains(r" fit rows \(few rows\)").all() == is_marked
    assert headings.str.contains("few rows").any() == is_marked
    assert changed.labels_with_few_rows == (changed.labels if is_marked else ())
    labels = describe_facts(changed.facts, changed.labels_with_few_rows)["labels"]
    assert labels.count("(few rows)") == (len(changed.labels) if is_marked else 0)
    drawn = {figure.key: figure for figure in draw_all("data set", changed)}
    assert drawn["reliability_by_label"].rows["panel"].str.contains("few rows").all() == is_marked


@pytest.mark.parametrize("key", [key for key, figure in FIGURES.items() if figure.role == "paper"])
def test_a_figure_of_the_paper_is_small_reproducible_and_marks_simulated_data(key):
    spec = paper_figures("two labels", "three labels", "ten labels of the hub")[key].spec
    svg_text = svg(spec)
    pdf_bytes = pdf(spec)
    width = float(re.match(r'<svg [^>]*?width="([\d.]+)"', svg_text)[1])
    assert width <= (COLUMN_WIDTH if key == "simplex_paths" else 1.05 * PAGE_WIDTH)
    assert "shop (simulated)" in svg_text
    assert "var(" not in svg_text
    assert pdf_bytes.startswith(b"%PDF")
    assert svg(spec) == svg_text
    assert pdf(spec) == pdf_bytes


@pytest.fixture(scope="module")
def results_with_large_spread() -> Results:
    original = make_results("spread")
    value = pl.when(pl.col("metric") == "label_spread").then(0.9).otherwise("value")
    return replace(original, metrics=original.metrics.with_columns(value=value))


def test_figures_of_the_paper_show_the_data_set_with_the_largest_label_spread(results_with_large_spread):
    drawn = {figure.key: figure for figure in draw_all("paper", [results("three labels"), results_with_large_spread])}
    assert "spread" in str(drawn["method_overview"].spec["title"])
    assert "spread" in str(drawn["simplex_paths"].spec["title"])


def test_the_method_overview_shows_the_first_seed_and_both_rankings():
    three_labels = results("three labels")
    rows = paper_figures("three labels")["method_overview"].rows
    assert set(rows.filter(kind="curve")["seed"]) == {three_labels.seeds[0]}
    scores = three_labels.scored_rows(three_labels.seeds[0])
    for score, logit in (("confidence", "logit_confidence"), ("reliability", "logit_mrp")):
        ranked = rows.filter(kind="rank", by=score).sort("place").select("row")
        assert ranked.join(scores, on="row", maintain_order="left")[logit].is_sorted(descending=True)


def test_the_figure_of_the_simplex_needs_three_labels():
    assert "simplex_paths" not in paper_figures("two labels", "ten labels of the hub")


def test_a_power_above_one_makes_a_row_surer():
    rows = paper_figures("three labels")["simplex_paths"].rows
    assert set(rows.filter(kind="move")["moved"]) == {"surer"}


@pytest.mark.parametrize(("number", "column"), [("1", "uncalibrated"), ("2", "base"), ("3", "mrc")])
def test_a_way_on_the_simplex_leads_from_the_uncalibrated_to_the_calibrated_vector_and_to_mrc(number, column):
    ends = paper_figures("three labels")["simplex_paths"].rows.filter(kind="end", text=number)
    assert len(ends)
    third = ends["y"].to_numpy() / (np.sqrt(3) / 2)
    second = ends["x"].to_numpy() - third / 2
    expected = np.array(results("three labels").simplex[column].to_list())
    for vector in np.stack([1 - second - third, second, third], axis=1):
        assert np.abs(expected - vector).max(axis=1).min() < 1e-6


@pytest.mark.parametrize(
    ("confidences", "expected"), [([0.9, 0.51], 1 / 3), ([0.9, 0.34], 0.3), ([0.9, 0.29], 0.25), ([0.04], 0.0)]
)
def test_confidence_axes_begin_at_chance_or_at_the_lowest_confidence_rounded_down(confidences, expected):
    results = make_results()
    scores = pl.DataFrame({"confidence": confidences})
    assert replace(results, scores=scores).min_confidence() == pytest.approx(expected)


def test_captions_name_means_over_several_seeds_only():
    assert "seeds" in make_results(seeds=(1, 2)).averaging_note
    assert make_results(seeds=(7,)).averaging_note == ""


def test_a_figure_of_one_of_several_protocol_seeds_names_it():
    one_seed = figures("few groups, one seed, one calibrator")
    assert not [key for key, figure in one_seed.items() if "First protocol seed." in figure.caption]
    assert [key for key, figure in figures("three labels").items() if "First protocol seed." in figure.caption]


def test_curves_are_drawn_inside_of_their_axes():
    drawn = curve_rows(results("three labels")).filter(kind="curve")["confidence"]
    assert drawn.min() >= results("three labels").min_confidence()
    assert 0.99 < drawn.max() < 1


def test_a_pdf_does_not_depend_on_the_fonts_of_the_machine(tmp_path, monkeypatch):
    spec = paper_figures("two labels", "three labels", "ten labels of the hub")["simplex_paths"].spec
    with_fonts = pdf(spec)
    settings = tmp_path / "fonts.conf"
    settings.write_text(f"<fontconfig><dir>{tmp_path}</dir></fontconfig>")
    monkeypatch.setenv("FONTCONFIG_FILE", str(settings))
    without_fonts = subprocess.run(
        [sys.executable, "-P", "-c", RENDER_PDF],
        input=with_light_colors(spec).encode(),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    fonts = set(re.findall(rb"/BaseFont /[A-Z]+\+(\S+)", with_fonts))
    assert sorted(with_fonts.split(b"\n")) == sorted(without_fonts.split(b"\n"))
    assert fonts <= {b"LiberationSans", b"LiberationSans-Bold", b"LiberationSans-Italic"}
