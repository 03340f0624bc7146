"""Figures of rankings: error rates and errors found of rows that are ranked by hand, and the layers of the charts."""

import re
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import pytest

from relmap.metrics.resampling import draw_resamples
from relmap.report.figure import Results
from relmap.report.ranking import (
    COVERAGE,
    errors_found,
    layers_by_coverage,
    percentile_band,
    retained_errors,
    risk_coverage,
)

N_ROWS = 100
FIRST_WRONG = 80  # rows are sorted by their logit; the last 20 are wrong
COLORS = {"domain": ["confidence", "MRP"], "range": ["var(--confidence)", "var(--mrp)"]}
DASHED_CONFIDENCE = {"condition": {"test": "(datum.variant === 'confidence')", "value": [5, 4]}, "value": [1, 0]}


def make_results(n_groups: int = N_ROWS, seeds: tuple[int, ...] = (1,), **columns: np.ndarray) -> Results:
    """Make 100 rows: the logit of MRP ranks the 20 wrong rows last, and that of the confidence ranks them evenly.

    Under the seeds after the first, MRP ranks as the confidence does.
    """
    row = np.arange(N_ROWS)
    perfect = -row.astype(float)
    even = -np.where(row < FIRST_WRONG, row + row // 4, 5 * (row - FIRST_WRONG) + 4).astype(float)
    frames = []
    for number, seed in enumerate(seeds):
        frames.append(
            pl.DataFrame(
                {
                    "row": row,
                    "group": [f"q{value % n_groups:03}" for value in row],
                    "label": (row >= FIRST_WRONG).astype(np.int64),
                    "decision": 0,
                    "calibrator": "ts",
                    "seed": seed,
                    "confidence": 0.8,
                    "logit_confidence": even,
                    "logit_mrp": even if number else perfect,
                    **columns,
                }
            )
        )
    return Results(name="shop", display_name="shop", labels=("a", "b"), scores=pl.concat(frames), test_rows=N_ROWS)


def column_of(frame: pl.DataFrame, variant: str, column: str) -> np.ndarray:
    return frame.filter(variant=variant)[column].to_numpy()


def test_retained_errors_count_the_wrong_rows_among_those_with_the_highest_logits():
    errors = retained_errors(make_results())
    n_used = np.arange(1, 101)
    np.testing.assert_allclose(errors.estimate["mrp"], np.maximum(n_used - FIRST_WRONG, 0) / 100, atol=1e-12)
    np.testing.assert_allclose(errors.estimate["confidence"], n_used // 5 / 100, atol=1e-12)
    np.testing.assert_allclose(COVERAGE, n_used / 100)
    both = retained_errors(make_results(seeds=(1, 2))).estimate["mrp"]
    np.testing.assert_allclose(both, (errors.estimate["mrp"] + errors.estimate["confidence"]) / 2)


@pytest.mark.parametrize(("n_groups", "n_resamples"), [(9, 0), (10, 400)])
def test_ten_groups_are_enough_for_resamples(n_groups, n_resamples):
    errors = retained_errors(make_results(n_groups))
    assert {name: values.shape for name, values in errors.resampled.items()} == dict.fromkeys(
        ("confidence", "mrp"), (n_resamples, 100)
    )


def test_variants_without_a_column_or_a_color_are_not_in_the_figures():
    logit = np.zeros(N_ROWS)
    results = make_results(logit_label_platt=logit, logit_label_intercept=logit)
    assert [*retained_errors(results).estimate] == ["confidence", "label_platt", "mrp"]
    shown = replace(results, variant="label_intercept")
    assert [*retained_errors(shown).estimate] == ["confidence", "label_intercept", "label_platt", "mrp"]


def test_a_band_contains_95_percent_of_the_replicates():
    band = percentile_band(np.arange(0.0, 41.0)[:, None] * [1, 2])
    assert [*band] == ["low", "high"]
    np.testing.assert_allclose([band["low"], band["high"]], [[1, 2], [39, 78]])
    without = percentile_band(np.empty((0, 3)))
    assert np.isnan([without["low"], without["high"]]).all()


def test_the_error_rate_by_coverage_begins_at_five_percent():
    results = make_results()
    rows = risk_coverage(results).rows
    coverage = np.arange(5, 101) / 100
    assert rows["variant"].unique(maintain_order=True).to_list() == ["confidence", "MRP"]
    np.testing.assert_allclose(column_of(rows, "MRP", "coverage"), coverage)
    np.testing.assert_allclose(column_of(rows, "MRP", "risk"), np.maximum(coverage - 0.8, 0) / coverage, atol=1e-12)
    np.testing.assert_allclose(column_of(rows, "confidence", "risk"), np.arange(5, 101) // 5 / np.arange(5, 101))
    for name in ("low", "high"):
        assert np.isfinite(column_of(rows, "MRP", name)).all()


def test_errors_found_are_those_of_the_reviewed_rows_and_their_change():
    """Reviews of 20 of the 100 rows find all 20 errors by the reliability, and every fifth row by the confidence."""
    rows = errors_found(make_results()).rows
    assert rows.columns == ["variant", "reviewed", "found", "change", "change_low", "change_high"]
    assert len(rows) == 2 * 46
    assert (rows["reviewed"].min(), rows["reviewed"].max()) == pytest.approx((0.05, 0.5))
    at_20 = rows.filter((pl.col("reviewed") - 0.2).abs() < 1e-9)
    found = {row["variant"]: row["found"] for row in at_20.to_dicts()}
    assert found == pytest.approx({"MRP": 1000, "confidence": 200})
    np.testing.assert_allclose(at_20["change"], [800, 800])
    at_50 = rows.filter((pl.col("reviewed") - 0.5).abs() < 1e-9)
    assert {row["variant"]: row["found"] for row in at_50.to_dicts()} == pytest.approx({"MRP": 400, "confidence": 200})
    assert (at_20["change_low"] < 800).all()


def test_the_error_rate_has_a_band_lines_and_invisible_points_with_tooltips():
    spec = risk_coverage(make_results()).spec
    assert (spec["title"], spec["height"]) == ("shop, calibrator ts", 300)
    band, lines, points = spec["layer"]
    assert band["mark"] == {"type": "area", "opacity": 0.18}
    assert (band["encoding"]["y"]["field"], band["encoding"]["y2"]) == ("low", {"field": "high"})
    assert lines["mark"] == {"type": "line", "strokeWidth": 2}
    assert lines["encoding"]["strokeDash"] == DASHED_CONFIDENCE
    assert lines["encoding"]["y"] == {
        "axis": {"format": "%"},
        "field": "risk",
        "title": "error rate of the decisions used",
        "type": "quantitative",
    }
    assert points["mark"] == {"type": "point", "opacity": 0, "size": 120}
    assert points["encoding"]["y"] == {"field": "risk", "type": "quantitative"}
    formats = {tooltip["field"]: tooltip.get("format") for tooltip in points["encoding"]["tooltip"]}
    assert formats == {"variant": None, "coverage": "%", "risk": ".2%", "low": ".2%", "high": ".2%"}
    for layer in spec["layer"]:
        assert layer["encoding"]["color"] == {"field": "variant", "scale": COLORS, "type": "nominal"}
        assert (layer["encoding"]["x"]["field"], layer["encoding"]["x"]["axis"]) == ("coverage", {"format": "%"})


def test_the_share_at_or_above_the_threshold_of_a_map_is_a_dotted_line():
    results = replace(make_results(), automatic_share=0.65)
    figure = risk_coverage(results)
    _, rule, _, _ = figure.spec["layer"]
    assert rule["mark"] == {"type": "rule", "color": "var(--quiet)", "strokeDash": [2, 3]}
    assert rule["encoding"]["x"] == {"datum": 0.65}
    assert "Dotted line" in figure.caption
    assert "Dotted line" not in risk_coverage(make_results()).caption


def test_errors_found_are_lines_from_zero_with_tooltips_of_the_change():
    spec = errors_found(make_results()).spec
    lines, points = spec["layer"]
    assert spec["height"] == 260
    assert lines["mark"] == {"type": "line", "strokeWidth": 2}
    assert lines["encoding"]["strokeDash"] == DASHED_CONFIDENCE
    assert points["mark"] == {"type": "point", "opacity": 0, "size": 120}
    formats = {tooltip["field"]: tooltip.get("format") for tooltip in points["encoding"]["tooltip"]}
    changes = dict.fromkeys(("change", "change_low", "change_high"), "+.0f")
    assert formats == {"variant": None, "reviewed": "%", "found": ".0f", **changes}
    for layer in spec["layer"]:
        assert layer["encoding"]["color"]["scale"] == COLORS
        assert layer["encoding"]["y"]["scale"] == {"zero": True}
        assert (layer["encoding"]["x"]["field"], layer["encoding"]["x"]["axis"]) == ("reviewed", {"format": "%"})


def test_without_an_interval_there_is_no_band_and_the_captions_say_why():
    results = make_results(n_groups=9)
    risk = risk_coverage(results)
    assert [layer["mark"]["type"] for layer in risk.spec["layer"]] == ["line", "point"]
    assert risk.rows["low"].is_null().all()
    assert "No band" in risk.caption
    found = errors_found(results)
    assert found.rows["change_low"].is_null().all()
    assert "too few groups" in found.caption
    assert "too few" not in errors_found(make_results()).caption


@pytest.mark.parametrize("has_variants", [False, True])
def test_only_curves_of_several_variants_are_told_apart_by_dashes(has_variants):
    columns: dict[str, Any] = {"coverage": [0.5, 1.0], "low": [0.1, 0.2], "high": [0.3, 0.4], "risk": [0.2, 0.3]}
    rows = pl.DataFrame(columns | ({"variant": ["MRP", "MRP"]} if has_variants else {}))
    layers = layers_by_coverage(rows, {"value": "red"}, alt.Y("risk:Q"), [], make_results())
    (band,) = layers.band
    lines, points = (layer.to_dict(validate=False) for layer in layers.curves)
    assert ("strokeDash" in lines["encoding"]) == has_variants
    assert lines["mark"] == {"type": "line", "strokeWidth": 2}
    assert lines["encoding"]["color"] == {"value": "red"}
    assert points["encoding"]["tooltip"] == []
    assert band.to_dict(validate=False)["mark"] == {"type": "area", "opacity": 0.18}
    without_band = layers_by_coverage(
        rows.with_columns(low=pl.lit(None)), {"value": "red"}, alt.Y("risk:Q"), [], make_results()
    )
    assert without_band.band == []
    assert "fewer than 10 rows" in without_band.note
    assert "400" in layers.note


def make_ranking_results(n_groups: int = 30, seeds: tuple[int, ...] = (4, 5)) -> Results:
    """Make 60 rows in groups; the scores differ between seeds."""
    generator = np.random.default_rng(3)
    n_rows = 60
    frames = []
    for seed in seeds:
        frames.append(
            pl.DataFrame(
                {
                    "row": np.arange(n_rows),
                    "group": [f"q{row % n_groups:02}" for row in range(n_rows)],
                    "label": np.arange(n_rows) % 4 == 0,
                    "decision": np.zeros(n_rows, dtype=bool),
                    "calibrator": "ts",
                    "seed": seed,
                    "confidence": generator.random(n_rows),
                    "logit_confidence": np.round(generator.normal(size=n_rows), 1),
                    "logit_mrp": generator.normal(size=n_rows),
                }
            )
        )
    return Results(name="shop", display_name="shop", labels=("a", "b"), scores=pl.concat(frames), test_rows=n_rows)


def test_resampled_errors_are_means_over_the_seeds_in_the_same_resamples_of_groups():
    results = make_ranking_results()
    errors = retained_errors(results)
    frames = [results.scored_rows(seed) for seed in results.seeds]
    resamples = draw_resamples(frames[0]["group"].to_numpy(), resamples=400, seed=0)
    for variant in ("confidence", "mrp"):
        by_seed = []
        for frame in frames:
            correct = frame["correct"].to_numpy()
            by_seed.append(resamples.errors_retained(frame[f"logit_{variant}"].to_numpy(), correct, COVERAGE))
        np.testing.assert_allclose(errors.resampled[variant], np.mean(by_seed, axis=0))
    assert errors.resampled["mrp"].shape == (400, 100)


def test_bands_are_percentiles_of_the_resampled_curves():
    results = make_ranking_results()
    resampled = retained_errors(results).resampled["mrp"]
    risk = risk_coverage(results).rows.filter(variant="MRP")
    is_shown = COVERAGE >= 0.05
    low, high = np.percentile(resampled / COVERAGE, [2.5, 97.5], axis=0)
    np.testing.assert_allclose(risk["low"], low[is_shown])
    np.testing.assert_allclose(risk["high"], high[is_shown])
    np.testing.assert_allclose(risk["coverage"], np.arange(5, 101) / 100)


def test_errors_found_have_the_interval_of_the_difference_between_the_map_and_the_confidence():
    results = make_ranking_results()
    figure = errors_found(results)
    reviewed_shares = np.arange(5, 51) / 100
    assert figure.rows["variant"].unique(maintain_order=True).to_list() == ["MRP", "confidence"]
    np.testing.assert_allclose(figure.rows["reviewed"], np.tile(reviewed_shares, 2))
    resampled = retained_errors(results).resampled
    found_per_1000_reviews = {}
    for variant, errors in resampled.items():
        reviewed_errors = errors[:, -1:] - errors[:, :-1]
        found_per_1000_reviews[variant] = 1000 * reviewed_errors / (1 - COVERAGE[:-1])
    change = found_per_1000_reviews["mrp"] - found_per_1000_reviews["confidence"]
    low, high = np.percentile(change, [2.5, 97.5], axis=0)
    by_coverage = figure.rows.filter(variant="confidence").sort("reviewed", descending=True)
    is_shown = slice(49, 95)  # coverage 0.5 to 0.95
    np.testing.assert_allclose(by_coverage["change_low"], low[is_shown])
    np.testing.assert_allclose(by_coverage["change_high"], high[is_shown])


@pytest.mark.parametrize(
    ("n_groups", "seeds", "risk_note", "found_note"),
    [
        (
            10,
            (4, 5),
            r" Band: .*pointwise 95% .* 400 .* groups\b.*\. .*protocol seeds\.",
            r" .*change .* 95% interval\. .*protocol seeds\.",
        ),
        (9, (4,), r" No band: [^.]* fewer than 10 groups\.", r" [^.]*too few groups [^.]*interval\."),
    ],
)
def test_captions_of_rankings_explain_the_interval(n_groups, seeds, risk_note, found_note):
    results = make_ranking_results(n_groups, seeds)
    for figure, note in ((risk_coverage, risk_note), (errors_found, found_note)):
        caption = figure(results).caption
        assert caption.startswith(figure.caption)
        assert re.fullmatch(note, caption.removeprefix(figure.caption))


def test_the_variant_of_the_map_is_plotted_even_without_a_color():
    results = make_ranking_results()
    scores = results.scores.with_columns(logit_label_intercept=pl.col("logit_mrp"))
    shown = replace(results, scores=scores, variant="label_intercept")
    assert [*retained_errors(shown).estimate] == ["confidence", "label_intercept", "mrp"]
    assert [*retained_errors(replace(shown, variant="mrp")).estimate] == ["confidence", "mrp"]
