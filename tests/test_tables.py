"""The main table is a plain mean over seeds, and nothing simulated reads as real."""

from __future__ import annotations

import numpy as np
import polars as pl

from tasks.tables.display import cell, display_name, displayed, markdown
from tasks.tables.main import headline, main_table, with_holes

PAPER_COLUMNS = ["dataset", "calibrator", "accuracy", "ece"] + [
    f"{metric}_{column}"
    for metric in ("nll_correct", "aupr_error", "aurc")
    for column in ("conf", "conf_std", "mrp", "mrp_std", "delta")
]


def metrics() -> pl.DataFrame:
    """Two calibrators, three seeds; the value of a metric is 10 * calibrator + seed, and MRP subtracts one."""
    return pl.DataFrame(
        [
            {
                "dataset": "wands",
                "source": "simulated",
                "calibrator": calibrator,
                "seed": seed,
                "variant": variant,
                "metric": metric,
                "value": 10.0 * place + seed - (variant == "mrp"),
            }
            for place, calibrator in enumerate(("uncal", "ts"))
            for seed in (1, 2, 3)
            for variant in ("confidence", "mrp")
            for metric in ("accuracy", "ece", "nll_correct", "aupr_error", "aurc")
        ]
    )


def test_the_columns_are_the_papers_and_the_source():
    assert main_table(metrics()).columns == [*PAPER_COLUMNS, "source"]


def test_a_cell_is_the_mean_over_seeds_with_the_population_deviation():
    row = main_table(metrics()).row(1, named=True)
    # values 11, 12, 13: mean 12, deviation sqrt(2/3)
    assert row["calibrator"] == "ts"
    assert row["aurc_conf"] == 12
    assert np.isclose(row["aurc_conf_std"], np.sqrt(2 / 3))
    assert row["aurc_mrp"] == 11
    assert row["aurc_delta"] == -1


def test_rows_keep_the_order_of_the_runs():
    assert main_table(metrics())["calibrator"].to_list() == ["uncal", "ts"]


def test_a_simulated_set_is_named_so_wherever_people_read():
    assert display_name("wands", "simulated") == "wands (simulated)"
    assert display_name("wands", "official") == "wands"
    assert "wands (simulated)" in markdown(main_table(metrics()))
    assert all("(simulated)" in row[0] for row in displayed(main_table(metrics()))[1])


def test_an_undefined_metric_is_a_dash():
    assert cell(float("nan")) == cell(None) == "–"
    assert cell(0.12345) == "0.123"


def test_a_data_set_that_failed_is_a_marked_hole():
    table = with_holes(main_table(metrics()), ["scidocs"], ["uncal", "ts"])
    assert len(table) == 4
    assert "scidocs (failed)" in markdown(table)
    assert table.filter(pl.col("dataset") == "scidocs")["aurc_mrp"].null_count() == 2


def test_the_headline_is_the_mean_change_over_calibrators_and_leaves_holes_out():
    found = headline(with_holes(main_table(metrics()), ["scidocs"], ["uncal", "ts"]))
    assert found == {"wands": {"nll_correct": -1.0, "aupr_error": -1.0, "aurc": -1.0}}
