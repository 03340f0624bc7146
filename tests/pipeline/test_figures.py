"""Figures are made of the results and of nothing else: their rows agree with counts made another way."""

import json
import re
from dataclasses import replace
from functools import cache

import altair as alt
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from scipy.special import expit
from scipy.stats import binomtest

from relmap.projection.variants import VARIANTS
from relmap.report.curves import BARS, FEWEST_ROWS, GROUPS, curve_rows, histogram, observed
from relmap.report.figure import DARK, LIGHT, DrawnFigure, Results, colour, pdf, svg, written_out
from relmap.report.ranking import retained
from tasks.figures import FIGURES, draw_all
from tasks.figures.overview import overview_picture, select_changes
from tasks.page.page import describe_facts
from tests.report_data import KNOTS, contrast_ratio, make_curve, make_results

TEN = tuple(f"grade {place}" for place in range(10))
SHAPES = {  # what data sets differ in
    "two labels": {"labels": ("no", "yes")},
    "three labels": {},
    "ten labels of the hub": {"labels": TEN, "rows": 900, "source": "hub"},
    "one label decided": {"decided": 1},
    "few groups, one seed, one calibrator": {"groups": 5, "seeds": (7,), "calibrators": ("spline",)},
}
NAMES = {key: variant.title for key, variant in VARIANTS.items()}
VEGA_LITE = Draft7Validator(alt.load_schema())
every_shape = pytest.mark.parametrize("shape", SHAPES)


@cache
def results(shape: str) -> Results:
    return make_results(**SHAPES[shape])


@cache
def figures(shape: str) -> dict[str, DrawnFigure]:
    return {figure.key: figure for figure in draw_all("data set", results(shape))}


def each_seed(shape: str) -> list[pl.DataFrame]:
    """Test rows under each seed."""
    return [results(shape).scored(seed) for seed in results(shape).seeds]


def lines(shape: str, name: str) -> dict[str, pl.DataFrame]:
    """The rows of a figure by the name of their variant."""
    return {variant: rows for (variant,), rows in figures(shape)[name].rows.group_by("variant", maintain_order=True)}


@pytest.mark.parametrize("shape", ["ten labels of the hub", "one label decided"])
def test_a_figure_is_valid_vega_lite_with_its_rows(shape):
    for figure in figures(shape).values():
        values = json.loads(figure.rows[:2].fill_nan(None).write_json())
        assert VEGA_LITE.is_valid(figure.spec | {"data": {"values": values}}), figure.key


@every_shape
def test_a_chart_reads_columns_of_its_rows_has_colours_of_both_themes_and_says_what_is_simulated(shape):
    shown = "shop" if "hub" in shape else "shop (simulated)"
    for figure in figures(shape).values():
        text = json.dumps(figure.spec)
        assert not re.search('"data(sets)?":', text)
        computed = set(re.findall(r'"as": "(\w+)"', text))
        read = {*re.findall(r'"field": "(\w+)"', text), *re.findall(r"datum\.(?!label)(\w+)", text)}
        assert read - computed <= set(figure.rows.columns), figure.key
        kinds = figure.rows["kind"] if "kind" in figure.rows.columns else []
        assert set(kinds) <= set(re.findall("datum.kind === '([^']+)'", text)), figure.key  # each has a layer
        assert set() < set(re.findall(r"var\(--([\w-]+)\)", text)) <= set(LIGHT)
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b", text)
        alone = written_out(figure.spec)
        assert "var(" not in alone
        assert set(re.findall(r"#[0-9a-f]{6}", alone)) <= set(LIGHT.values())
        assert (bool(figure.title), figure.caption[-1]) == (True, ".")
        assert re.fullmatch(rf"{re.escape(shown)}(, calibrator \w+)?", figure.spec["title"]), figure.key


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_stand_out_from_their_ground(colours):
    assert contrast_ratio("#000000", "rgb(255, 255, 255)") == pytest.approx(21)
    assert list(LIGHT) == list(DARK)
    assert len({colours[name] for name in ("confidence", "isotonic", "platt", "mrp", "fifth")}) == 5
    for name in ("ink", "quiet", "mrp", "confidence", "isotonic", "platt", "other", "fifth"):  # WCAG 2.2, level AA
        assert contrast_ratio(colours[name], colours["paper"]) >= (4.5 if name in ("ink", "quiet", "mrp") else 3), name


def test_what_was_not_run_has_no_figure():
    whole = make_results()
    other = pl.col("metric").is_in(["label_spread", "nll_correct", "aurc"]) | (pl.col("variant") == "mrc")
    without = replace(whole, rivals=whole.rivals.clear(), metrics=whole.metrics.filter(~other))
    every = [key for key, figure in FIGURES.items() if figure.role == "data set"]
    assert [*figures("three labels")] == every
    assert set(every) - {figure.key for figure in draw_all("data set", without)} == {
        *("labelled_rows", "simplex_feasibility", "label_spread", "ablation")
    }
    assert set(every) - set(figures("one label decided")) == {"label_spread"}
    no_line = replace(whole, scores=whole.scores.drop("logit_label_platt"))
    assert [*retained(no_line)[0]] == ["confidence", "label_isotonic", "mrp"]


@every_shape
def test_at_full_coverage_the_risk_is_the_error_rate_whatever_ranks_and_the_gain_is_a_difference_of_risks(shape):
    rate = np.mean([1 - frame["correct"].mean() for frame in each_seed(shape)])
    risk = lines(shape, "risk_coverage")
    assert [*risk] == [NAMES[name] for name in ("confidence", "label_isotonic", "label_platt", "mrp")]
    assert [rows["risk"][-1] for rows in risk.values()] == pytest.approx([rate] * 4)
    gain = figures(shape)["accuracy_gain"].rows
    assert gain["coverage"].to_list() == risk["MRP"]["coverage"].to_list()
    assert gain["coverage"][-1] == 1
    assert gain["gain"].to_list() == pytest.approx((risk["confidence"]["risk"] - risk["MRP"]["risk"]).to_list())


def test_risks_and_errors_found_agree_with_counts_of_the_rows_kept_and_of_those_reviewed():
    def share_wrong(variant: str, share: float, *, most_reliable: bool) -> float:
        ranked = [frame.sort(f"logit_{variant}", descending=most_reliable) for frame in each_seed("three labels")]
        return np.mean([1 - frame["correct"][: round(share * len(frame))].mean() for frame in ranked])

    for variant in ("confidence", "label_platt"):  # no two rows tie under these
        rows = lines("three labels", "risk_coverage")[NAMES[variant]]
        kept = [share_wrong(variant, coverage, most_reliable=True) for coverage in rows["coverage"]]
        assert rows["risk"].to_list() == pytest.approx(kept)
    before, after = (lines("three labels", "errors_found")[NAMES[name]] for name in ("confidence", "mrp"))
    shares = np.arange(5, 51) / 100
    assert before["reviewed"].to_list() == pytest.approx(shares.tolist())
    counted = [1000 * share_wrong("confidence", share, most_reliable=False) for share in shares]
    assert before["found"].to_list() == pytest.approx(counted)
    change = (after["found"] - before["found"]).to_list()
    assert after["change"].to_list() == before["change"].to_list() == pytest.approx(change)


def test_bands_hold_their_curves_and_close_where_nothing_is_chosen():
    rows = figures("three labels")["risk_coverage"].rows
    inside = (rows["low"] <= rows["risk"]) & (rows["risk"] <= rows["high"])
    assert inside.mean() > 0.95
    gain = figures("three labels")["accuracy_gain"].rows
    assert gain.filter(coverage=1.0).select("gain", "low", "high").row(0) == pytest.approx((0, 0, 0))


@pytest.mark.parametrize("name", ["risk_coverage", "accuracy_gain", "errors_found"])
def test_with_too_few_groups_there_are_curves_without_bands(name):
    both = [figures(shape)[name] for shape in ("few groups, one seed, one calibrator", "three labels")]
    few, enough = (figure.rows for figure in both)
    for figure, bands in zip(both, (0, name != "errors_found"), strict=True):  # a band lies below its curves
        drawn = ["low" in json.dumps(layer["encoding"]["y"]) for layer in figure.spec["layer"]]
        assert drawn == [True] * bands + [False] * (len(drawn) - bands)
    bounds = pl.selectors.matches("low$|high$")
    assert few.select(bounds).null_count().row(0) == (len(few), len(few))
    for whole in (few.select(~bounds), enough):
        assert whole.null_count().sum_horizontal().item() == 0


def panels(shape: str, name: str) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """The rows of each label's panel, and the test rows of that label under the first seed."""
    by_label = dict(iter(figures(shape)[name].rows.group_by("label", maintain_order=True)))
    assert [label for (label,) in by_label] == [*results(shape).labels]
    return [(rows, each_seed(shape)[0].filter(decision=place)) for place, rows in enumerate(by_label.values())]


@every_shape
def test_a_panel_shows_every_test_row_once_says_on_how_many_rows_it_stands_and_draws_the_curve_of_each_seed(shape):
    for place, (rows, mine) in enumerate(panels(shape, "curves")):
        bars = rows.filter(kind="histogram")
        assert bars["rows"].sum() == len(mine)
        assert bars["reliability"].max() is None or bars["reliability"].max() == pytest.approx(0.18)
        heading = rows["panel"][0]
        assert heading.endswith(f"\n{len(mine):,} test rows")
        assert f"\n{' to '.join(f'{100 * seed:,}' for seed in results(shape).seeds)} fit rows" in heading
        assert ("confidence kept" in heading, "shared curve" in heading) == (place % 3 == 2, place % 3 == 1)
        drawn = rows.filter(kind="curve")
        assert drawn["seed"].unique(maintain_order=True).to_list() == results(shape).seeds
        for (seed,), part in drawn.group_by("seed"):
            fitted, expected = make_curve(place, "", int(seed)), part["confidence"].to_numpy()
            if fitted["fallback"] != "identity":
                expected = expit(np.interp(expected, KNOTS, fitted["values"]))
            assert part["reliability"].to_numpy() == pytest.approx(expected)


@every_shape
@pytest.mark.parametrize(
    ("figure", "kinds"), [("curves", {"test rows"}), ("reliability_by_label", {NAMES["confidence"], NAMES["mrp"]})]
)
def test_the_dots_stand_for_every_test_row_once_where_there_are_enough(shape, figure, kinds):
    for rows, mine in panels(shape, figure):
        dots = rows.filter(~pl.col("kind").is_in(["identity", "curve", "histogram"]))
        assert {*dots["kind"]} == (kinds if len(mine) >= FEWEST_ROWS else set())
        for _, part in dots.group_by("kind"):
            assert part["rows"].sum() == len(mine)
            assert part["rows"].min() >= FEWEST_ROWS
            assert (part["rows"] * part["reliability"]).sum() == pytest.approx(mine["correct"].sum())


def test_dots_by_hand_of_twenty_rows_at_least_and_eight_in_a_panel_at_most():
    said, correct = np.arange(80) / 100, np.arange(80) % 4 == 0
    order = np.random.default_rng(0).permutation(80)
    dots = pl.DataFrame(observed(pl.Series(said[order]), pl.Series(correct[order])))
    assert dots.select("rows", "reliability").rows() == [(20, 0.25)] * 4
    assert dots["confidence"].to_list() == pytest.approx([0.095, 0.295, 0.495, 0.695])
    assert dots.select("low", "high").row(0) == pytest.approx(binomtest(5, 20).proportion_ci())  # Clopper and Pearson's
    for rows, groups in {0: 0, 19: 0, 20: 1, 79: 3, 160: 8, 5000: GROUPS}.items():
        assert len(observed(pl.Series(np.linspace(0, 1, rows)), pl.Series(np.ones(rows, dtype=bool)))) == groups


def test_bars_by_hand():
    bars = pl.DataFrame(histogram(pl.Series([0.2, 0.21, 0.99, 1.0]), 0.2))
    assert bars["rows"].to_list() == [2, 2]
    assert bars["confidence"].to_list() == pytest.approx([0.2, 1 - 0.8 / BARS])
    assert bars["to"].to_list() == pytest.approx([0.2 + 0.8 / BARS, 1])
    assert histogram(pl.Series([], dtype=pl.Float64), 0.5) == []


def test_spreads_are_in_percentage_points_by_calibrator_and_what_is_measured_under_a_rival_alone_is_not_drawn():
    rows = figures("three labels")["label_spread"].rows
    assert rows["calibrator"].to_list() == results("three labels").calibrators
    assert rows.select("spread", "shuffled").unique().rows() == [(pytest.approx(20), pytest.approx(5))]
    whole = make_results()
    other = whole.metrics.with_columns(calibrator=pl.lit("matrix"), value=pl.lit(99.0))
    for figure in draw_all("data set", replace(whole, metrics=pl.concat([whole.metrics, other]))):
        assert figure.rows.equals(figures("three labels")[figure.key].rows), figure.key


def test_probability_vectors_that_can_follow_are_blue_and_those_that_cannot_orange():
    figure = figures("three labels")["simplex_feasibility"]
    assert figure.rows.select("solved", "infeasible").unique().rows() == [(0.9, 0.08)]
    tones = {layer["encoding"]["x"]["field"]: layer["mark"]["color"] for layer in figure.spec["layer"]}
    assert tones == {"solved": colour("mrp"), "infeasible": colour("fifth")}


def test_the_ablation_is_a_mean_over_seeds_then_over_calibrators():
    rows, spec = figures("three labels")["ablation"].rows, json.dumps(figures("three labels")["ablation"].spec)
    assert json.dumps([title for title in NAMES.values() if title in {*rows["variant"]}]) in spec  # in the order of all
    mine = results("three labels").metrics.filter(metric="aurc", variant="mrp")
    drawn = rows.filter(metric="AURC", variant="MRP")
    for calibrator, value, mean in drawn.select("calibrator", "value", "mean").iter_rows():
        assert value == pytest.approx(mine.filter(calibrator=calibrator)["value"].mean())
        assert mean == pytest.approx(drawn["value"].mean())
    assert rows["variant"].n_unique() == 8


def test_labelled_rows_tell_apart_what_each_way_was_given():
    rows = figures("three labels")["labelled_rows"].rows
    ways = ["ts, confidence", "MRP on ts", "matrix scaling", "matrix scaling, rows of both parts"]
    assert rows["way"].unique(maintain_order=True).to_list() == ways
    assert rows["rows"].unique().sort().to_list() == [100, 400]
    at_400 = dict(rows.filter(rows=400, metric="AURC").select("way", "value").iter_rows())
    assert at_400 == pytest.approx(dict.fromkeys(ways[:3], 30 / 400 + 1.5) | {ways[3]: 30 / 400 + 2.5})


def test_the_overview_leaves_out_what_failed_and_keeps_the_order():
    table = pl.DataFrame(
        [("b", 0.1, 0.0, 0.2, 100.0, 90.0), ("a (failed)", *[None] * 5), ("a", -0.1, None, None, 200.0, 250.0)],
        schema=["dataset", "nll_correct_delta", "low", "high", "found_per_1000_conf", "found_per_1000_mrp"],
        orient="row",
    )
    (figure,) = draw_all("all data sets", table)
    bounded = figure.rows.select("dataset", "change", "low", "high").rows()
    assert bounded == [("b", 0.1, 0.0, 0.2), ("a", -0.1, None, None)]
    assert '"sort": ["b", "a"]' in json.dumps(figure.spec)
    assert draw_all("all data sets", table[1:2]) == []
    errors = overview_picture(table)["hconcat"][1]["layer"]  # a line between the two ways, and a dot for each
    assert [layer["encoding"]["x"]["field"] for layer in errors] == ["found_conf", "found_conf", "found_mrp"]


def overview_rows(changes: list[float], half_width: float = 0.02) -> pl.DataFrame:
    """The table `overview` of as many data sets, whose intervals are of equal width."""
    return pl.DataFrame(
        {
            "dataset": [f"set {place}" for place in range(len(changes))],
            "nll_correct_delta": changes,
            "low": [change - half_width for change in changes],
            "high": [change + half_width for change in changes],
            "found_per_1000_conf": 100.0,
            "found_per_1000_mrp": 120.0,
        }
    )


@pytest.mark.parametrize("side", [-1, 1])
def test_an_outlier_of_the_overview_is_cut_off_at_an_arrow_that_has_its_numbers(side):
    changes = [side * change for change in (1.2, 0.05, 0.1, 0.08, 0.03)]
    (figure,) = draw_all("all data sets", overview_rows(changes))
    outlier, *others = figure.rows.to_dicts()
    assert outlier["change"] == changes[0]  # the CSV keeps the true number
    assert outlier["drawn_change"] is None
    assert f"{changes[0]:g}" in outlier["numbers"]
    assert outlier["drawn_low"] == outlier["drawn_high"] == outlier["arrow_at"]
    assert np.sign(outlier["arrow_at"]) == side
    drawn = [abs(row[column]) for row in others for column in ("drawn_low", "drawn_change", "drawn_high")]
    assert max(drawn) > 0.75 * abs(outlier["arrow_at"])  # the others fill the axis
    for row in others:
        assert (row["drawn_change"], row["drawn_low"], row["drawn_high"]) == (row["change"], row["low"], row["high"])
        assert row["arrow_at"] is None
    assert "arrow" in figure.caption


@given(st.lists(st.floats(-2, 2), max_size=8), st.floats(0, 1))
def test_nothing_is_drawn_at_a_wrong_place_of_the_overview(changes, half_width):
    rows = select_changes(overview_rows(changes, half_width))
    for row in rows.iter_rows(named=True):
        cut_off = row["arrow_at"] is not None
        assert cut_off == (row["numbers"] is not None)
        if not cut_off:
            assert (row["drawn_change"], row["drawn_low"], row["drawn_high"]) == (
                row["change"],
                row["low"],
                row["high"],
            )
        elif row["drawn_change"] is not None:
            assert row["drawn_change"] == row["change"]
    assert rows["arrow_at"].is_not_null().sum() <= len(rows) / 2


def test_a_label_with_fewer_than_100_fit_rows_is_marked_and_no_other():
    rows = figures("three labels")["curves"].rows
    for seed_rows, marked in ((100, False), (99, True)):
        lattices = [
            lattice | {"curves": [of_label | {"rows": seed_rows} for of_label in lattice["curves"]]}
            for lattice in results("three labels").lattices
        ]
        of_few = replace(results("three labels"), lattices=lattices)
        headings = curve_rows(of_few)["panel"].unique()
        assert headings.str.contains(r" fit rows \(few rows\)").all() == marked
        assert headings.str.contains("few rows").any() == marked
        assert of_few.labels_with_few_rows == (of_few.labels if marked else ())
        shown = describe_facts(of_few.facts, of_few.labels_with_few_rows)["labels"]
        assert shown.count("(few rows)") == marked * len(of_few.labels)
        (by_label,) = [figure for figure in draw_all("data set", of_few) if figure.key == "reliability_by_label"]
        assert by_label.rows["panel"].str.contains("few rows").all() == marked
    assert not rows["panel"].str.contains("few rows").any()


PAGE, COLUMN = 504, 252  # points, of a page of two columns


@cache
def for_paper(*shapes: str) -> dict[str, DrawnFigure]:
    return {figure.key: figure for figure in draw_all("paper", [results(shape) for shape in shapes])}


@pytest.mark.parametrize("name", [key for key, figure in FIGURES.items() if figure.role == "paper"])
def test_a_figure_for_a_paper_is_small_says_what_is_simulated_and_is_the_same_each_time(name):
    spec = for_paper("two labels", "three labels", "ten labels of the hub")[name].spec
    drawn, printed = svg(spec), pdf(spec)
    width = float(re.match(r'<svg [^>]*?width="([\d.]+)"', drawn)[1])
    assert width <= (COLUMN if name == "simplex_paths" else 1.05 * PAGE)
    assert "shop (simulated)" in drawn
    assert "var(" not in drawn
    assert printed.startswith(b"%PDF")
    assert (svg(spec), pdf(spec)) == (drawn, printed)


def test_a_paper_shows_the_set_whose_labels_differ_most_its_first_seed_and_its_own_two_orders():
    spread, apart = pl.when(pl.col("metric") == "label_spread").then(0.9).otherwise("value"), make_results("apart")
    apart = replace(apart, metrics=apart.metrics.with_columns(value=spread))
    drawn = {figure.key: figure for figure in draw_all("paper", [results("three labels"), apart])}
    overview, paths = (drawn[name] for name in ("method_overview", "simplex_paths"))
    assert all("apart" in str(figure.spec["title"]) for figure in (overview, paths))
    assert set(overview.rows.filter(kind="curve")["seed"]) == {apart.seeds[0]}
    assert set(paths.rows.filter(kind="move")["moved"]) == {"surer"}  # its alpha is above 1
    for by, logit in (("confidence", "logit_confidence"), ("reliability", "logit_mrp")):
        placed = overview.rows.filter(kind="rank", by=by).sort("place").select("row")
        ranked = placed.join(apart.scored(apart.seeds[0]), on="row", maintain_order="left")[logit]
        assert ranked.is_sorted(descending=True)


def test_a_path_on_the_simplex_of_three_labels_ends_where_the_decision_has_the_reliability():
    assert "simplex_paths" not in for_paper("two labels", "ten labels of the hub")
    ends = for_paper("three labels")["simplex_paths"].rows.filter(kind="end", text="2")
    assert len(ends)
    top = ends["y"].to_numpy() / (np.sqrt(3) / 2)
    mrc = np.array(results("three labels").simplex["mrc"].to_list())
    for vector in np.stack([1 - ends["x"] - top / 2, ends["x"] - top / 2, top], axis=1):
        assert np.abs(mrc - vector).max(axis=1).min() < 1e-6
