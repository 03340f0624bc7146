"""A missing value is refused, or its row dropped, whether it is null, NaN or blank, in whatever form the rows come."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.api import MapAssessment, fit_map
from relmap.errors import InputError
from relmap.io.files import open_predictions
from relmap.io.frames import FramePredictions
from relmap.io.reading import DEFAULT_READING, Reading
from relmap.routing.apply import apply_map
from relmap.routing.score_thresholds import read_score
from tests import maps

N, ROW = 70, 41
LOGITS = maps.predictions(N).drop("group")
WIDE = LOGITS.select("label", **{f"logits_{k}": pl.col("logits").list.get(k) for k in range(3)})
JUDGE = maps.confidence_only(N)
TWO = pl.DataFrame(
    {"p": np.linspace(0.05, 0.95, N), "label": (np.arange(N) * 7 % 10 < np.linspace(0, 10, N)).astype(int)}
)
SIGNALS = maps.judged_with_signals(N).drop("group")
CASES = {  # rows, the column that is spoilt, how the rows are read, and other settings of a fit
    "logits": (WIDE, "logits_1", {}, {}),
    "probability": (TWO, "p", {"probability": "p"}, {}),
    "score": (TWO, "p", {"score": "p", "border": 0.5}, {}),
    "confidence": (JUDGE, "confidence", {}, {}),
    "decision": (JUDGE, "decision", {}, {}),
    "label": (WIDE, "label", {}, {}),
    "label by name": (WIDE, "label", {}, {"names": ("0.0", "1.0", "2.0")}),
    "group": (WIDE.with_columns(query=pl.int_range(N) // 2), "query", {}, {"group": "query"}),
    "weight": (WIDE.with_columns(inverse_probability=2.0), "inverse_probability", {}, {}),
    "number signal": (SIGNALS, "agreement", {}, {"signals": ("agreement",)}),
    "number signal, held out": (SIGNALS, "agreement", {}, {"signals": ("agreement",), "hold_out": 0.1}),
    "id": (JUDGE.with_columns(pair=pl.int_range(N) * 3 + 1), "pair", {"id": "pair"}, {}),
}
MISSING = {"null": None, "NaN": float("nan")}


def spoilt(frame: pl.DataFrame, column: str, value: float | None) -> pl.DataFrame:
    """The rows with another value of a column of numbers in one of them."""
    own = pl.when(pl.int_range(pl.len()) == ROW).then(pl.lit(value, dtype=pl.Float64)).otherwise(column)
    return frame.with_columns(own.cast(pl.Float64).alias(column))


def in_memory(frame: pl.DataFrame, reading: Reading, _: Path) -> FramePredictions:
    return replace(FramePredictions.from_frame(frame), reading=reading)


def in_file(suffix: str) -> Callable:
    def written(frame: pl.DataFrame, reading: Reading, folder: Path):
        path = folder / f"rows.{suffix}"
        if suffix == "json":
            frame.write_json(path)
        else:
            maps.write(frame, path)
        return open_predictions(path, reading)

    return written


FORMS = {"frame": in_memory} | {suffix: in_file(suffix) for suffix in ("parquet", "csv", "jsonl", "json")}
LINES = {"csv": f"line {ROW + 2}", "jsonl": f"row {ROW} (from 0)"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_a_missing_value_is_refused_by_its_row_and_column(case, form, tmp_path):
    frame, column, reading, settings = CASES[case]
    where = f"{LINES.get(form, f'row {ROW} (from 0)')}: {column} is missing"
    for kind, value in MISSING.items():
        if kind == "NaN" and form == "csv" and case in ("label", "label by name", "decision", "group", "id"):
            continue  # in text nan may be a name
        rows = FORMS[form](spoilt(frame, column, value), Reading(**reading), tmp_path)
        asked = {"group": None, "names": None} | settings
        with pytest.raises(InputError) as told:
            fit_map(rows, variant="label_signals" if "signal" in case else "label_intercept", **asked)
        assert where in str(told.value), kind


@pytest.mark.parametrize("case", ["logits", "confidence", "decision", "number signal"])
def test_new_rows_with_a_missing_value_are_refused_as_labelled_ones_are(case, tmp_path):
    frame, column, reading, settings = CASES[case]
    variant = "label_signals" if "signal" in case else "confidence"
    document, _ = fit_map(in_memory(frame, DEFAULT_READING, tmp_path), variant=variant, **settings)
    for value in MISSING.values():
        path = maps.write(spoilt(frame, column, value), tmp_path / "new.parquet")
        for use in (
            lambda file: apply_map(document, file, tmp_path / "out.parquet", reading=Reading(**reading)),
            lambda file: MapAssessment.from_predictions(document, open_predictions(file)),
        ):
            with pytest.raises(InputError, match=rf"row {ROW} \(from 0\): {column} is missing"):
                use(path)
        assert not (tmp_path / "out.parquet").exists()


LABELS = {
    "null": pl.lit(None, dtype=pl.Float64),
    "NaN": pl.lit(float("nan")),
    "null text": pl.lit(None, dtype=pl.String),
    "blank text": pl.lit("  "),
    "empty text": pl.lit(""),
}


@pytest.mark.parametrize("form", ["frame", "parquet", "csv", "jsonl"])
@pytest.mark.parametrize("kind", LABELS)
def test_rows_without_a_label_are_dropped_alike(kind, form, tmp_path):
    dropped = pl.int_range(pl.len()) % 9 == 4
    dtype = pl.String if "text" in kind else pl.Float64
    if kind == "NaN" and form == "csv":
        return
    frame = WIDE.with_columns(label=pl.when(dropped).then(LABELS[kind]).otherwise(pl.col("label").cast(dtype)))
    rows = FORMS[form](frame, Reading(drop_unlabelled=True), tmp_path)
    document, recommended = fit_map(rows, variant="confidence", group=None, names=None)
    left, _ = fit_map(in_memory(WIDE.filter(~dropped), DEFAULT_READING, tmp_path), variant="confidence")
    assert document.held_out == left.held_out
    assert document.source.rows == left.source.rows == N - 8
    assert "8 of 70 rows have no label" in " ".join(recommended.notes)
    score = FORMS[form](frame, Reading(score="logits_1", positive="1", drop_unlabelled=True), tmp_path)
    values, positive, _, notes = read_score(score, positive="1")
    kept = WIDE.filter(~dropped)
    assert values.tolist() == kept["logits_1"].to_list()
    assert positive.tolist() == (kept["label"] == 1).to_list()
    assert notes == ["8 rows without a label are dropped."]
    with pytest.raises(InputError, match=r"label is missing.*drop-unlabelled"):
        read_score(replace(score, reading=Reading(score="logits_1", positive="1")), positive="1")


@pytest.mark.parametrize("value", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("column", ["p", "group"])
def test_a_threshold_on_a_score_refuses_a_missing_score_or_group(column, value, tmp_path):
    frame = spoilt(TWO.with_columns(group=pl.int_range(N) // 2), column, value)
    with pytest.raises(InputError, match=rf"row {ROW} \(from 0\): {column} is missing"):
        read_score(in_memory(frame, Reading(score="p", positive="1"), tmp_path), positive="1", group="group")


def with_one_missing(values: np.ndarray, missing: object) -> list:
    return [missing if row == ROW else value for row, value in enumerate(values.tolist())]


TRUTH = WIDE["label"].to_numpy()
NAMED = np.array(["bad", "fair", "good"])[TRUTH]
CONTAINERS = {
    "list": list,
    "objects": lambda values: np.array(values, dtype=object),
    "pandas": pd.Series,
    "pandas objects": lambda values: pd.Series(values, dtype=object),
    "polars": lambda values: pl.Series(values, strict=False),
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA], ids=str)
@pytest.mark.parametrize(("truth", "labels"), [(TRUTH, None), (TRUTH, (0, 1, 2)), (NAMED, ("bad", "fair", "good"))])
def test_labels_of_an_array_may_be_missing_in_whatever_container(truth, labels, missing, kind):
    if missing is pd.NA and "pandas" not in kind:
        return
    if kind == "polars" and missing is not None and truth.dtype.kind == "U":
        return  # polars itself makes text of it
    logits, y = np.array(LOGITS["logits"].to_list()), CONTAINERS[kind](with_one_missing(truth, missing))
    before = repr(y)
    settings = {"variant": "confidence", "labels": labels}
    with pytest.raises(InputError, match=rf"row {ROW} \(from 0\): label is missing.*drop_unlabelled=True"):
        ReliabilityMap(**settings).fit(logits, y)
    made = ReliabilityMap(**settings, drop_unlabelled=True).fit(logits, y)
    others = np.arange(N) != ROW
    plain = ReliabilityMap(**settings).fit(logits[others], truth[others])
    assert made.document_.held_out == plain.document_.held_out
    assert made.classes_.tolist() == plain.classes_.tolist()
    assert repr(y) == before  # what was given is not changed


@pytest.mark.parametrize("missing", [None, float("nan")], ids=str)
def test_labels_beside_a_column_for_each_label_may_be_missing(missing):
    frame = WIDE.select(**{str(k): pl.col(f"logits_{k}") for k in range(3)})
    y, others = with_one_missing(TRUTH, missing), np.arange(N) != ROW
    made = ReliabilityMap(variant="confidence", drop_unlabelled=True).fit(frame, y)
    plain = ReliabilityMap(variant="confidence").fit(frame.filter(others), TRUTH[others])
    assert made.document_.held_out == plain.document_.held_out
    inside = frame.with_columns(label=pl.Series(y, dtype=pl.Float64))
    made = ReliabilityMap(variant="confidence", drop_unlabelled=True).fit(inside)
    assert made.document_.held_out == plain.document_.held_out


def test_an_id_that_nobody_named_identifies_no_row_if_one_is_missing():
    frame = JUDGE.with_columns(id=pl.int_range(N) * 3 + 1)
    by = {}
    for kind, value in {"none": 2.5, **MISSING}.items():
        document = ReliabilityMap(variant="confidence").fit(spoilt(frame, "id", value)).document_
        by[kind] = document.source.training_rows.by
    assert by == {"none": "id", "null": "nothing", "NaN": "nothing"}
