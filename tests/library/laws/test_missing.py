"""Missing values (null, NaN or blank) are rejected, or their rows dropped, in every input format."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.errors import InputError
from relmap.evaluation.assessment import MapAssessment
from relmap.io.column_layout import DEFAULT_READING, Reading
from relmap.io.files import open_predictions
from relmap.io.frames import FramePredictions
from relmap.routing.apply import apply_map
from relmap.routing.score_thresholds import read_score
from tests import maps
from tests.maps import fit_file as fit_map

N_ROWS = 70
MISSING_ROW = 41
MISSING_PLACE = rf"row {MISSING_ROW} \(from 0\)"
LOGITS = maps.make_predictions(N_ROWS).drop("group")
WIDE = LOGITS.select("label", **{f"logits_{k}": pl.col("logits").list.get(k) for k in range(3)})
CONFIDENCES = maps.make_confidence_predictions(N_ROWS)
TWO_LABELS = pl.DataFrame(
    {
        "p": np.linspace(0.05, 0.95, N_ROWS),
        "label": (np.arange(N_ROWS) * 7 % 10 < np.linspace(0, 10, N_ROWS)).astype(int),
    }
)
SIGNALS = maps.make_predictions_with_signals(N_ROWS).drop("group")


class Case(NamedTuple):
    """Rows, and how they are read and fitted.

    Attributes:
        frame: Complete rows.
        column: Column that gets a missing value.
        reading: Options of `Reading`.
        fit_options: Options of `fit_map`.
    """

    frame: pl.DataFrame
    column: str
    reading: Mapping[str, object] = MappingProxyType({})
    fit_options: Mapping[str, object] = MappingProxyType({})


CASES = {
    "logits": Case(WIDE, "logits_1"),
    "probability": Case(TWO_LABELS, "p", reading={"probability": "p"}),
    "score": Case(TWO_LABELS, "p", reading={"score": "p", "border": 0.5}),
    "confidence": Case(CONFIDENCES, "confidence"),
    "decision": Case(CONFIDENCES, "decision"),
    "label": Case(WIDE, "label"),
    "label by name": Case(WIDE, "label", fit_options={"names": ("0.0", "1.0", "2.0")}),
    "group": Case(WIDE.with_columns(query=pl.int_range(N_ROWS) // 2), "query", fit_options={"group": "query"}),
    "weight": Case(WIDE.with_columns(inverse_probability=2.0), "inverse_probability"),
    "number signal": Case(SIGNALS, "agreement", fit_options={"signals": ("agreement",)}),
    "number signal, held out": Case(SIGNALS, "agreement", fit_options={"signals": ("agreement",), "hold_out": 0.1}),
    "id": Case(CONFIDENCES.with_columns(pair=pl.int_range(N_ROWS) * 3 + 1), "pair", reading={"id": "pair"}),
}
MISSING = {"null": None, "NaN": float("nan")}


def with_missing_value(frame: pl.DataFrame, column: str, value: float | None) -> pl.DataFrame:
    """Replace the value of a numeric column in one row."""
    changed_column = (
        pl.when(pl.int_range(pl.len()) == MISSING_ROW).then(pl.lit(value, dtype=pl.Float64)).otherwise(column)
    )
    return frame.with_columns(changed_column.cast(pl.Float64).alias(column))


def read_in_memory(frame: pl.DataFrame, reading: Reading, _: Path) -> FramePredictions:
    return replace(FramePredictions.from_frame(frame), reading=reading)


def make_file_reader(suffix: str) -> Callable:
    """Make a function that writes a frame to a file and opens it."""

    def write_and_open(frame: pl.DataFrame, reading: Reading, folder: Path):
        path = folder / f"rows.{suffix}"
        if suffix == "json":
            frame.write_json(path)
        else:
            maps.write_frame(frame, path)
        return open_predictions(path, reading)

    return write_and_open


READERS = {
    "frame": read_in_memory,
    "parquet": make_file_reader("parquet"),
    "csv": make_file_reader("csv"),
    "jsonl": make_file_reader("jsonl"),
    "json": make_file_reader("json"),
}
ROW_NAMES = {"csv": f"line {MISSING_ROW + 2}", "jsonl": f"row {MISSING_ROW} (from 0)"}


@pytest.mark.parametrize("file_format", READERS)
@pytest.mark.parametrize("case", CASES)
def test_missing_value_is_rejected_with_row_and_column(case, file_format, tmp_path):
    frame, column, reading, fit_options = CASES[case]
    variant = None if "signal" in case else "label_intercept"
    row_name = ROW_NAMES.get(file_format, f"row {MISSING_ROW} (from 0)")
    message = rf"{re.escape(row_name)}: {column} \w+ (|'(nan|NaN)', .*)missing"
    # in a text file, NaN may be the name of a decision, a group or a row
    nan_is_a_name = file_format == "csv" and case in ("decision", "group", "id")
    for kind, value in MISSING.items():
        if kind == "NaN" and nan_is_a_name:
            continue
        rows = READERS[file_format](with_missing_value(frame, column, value), Reading(**reading), tmp_path)
        with pytest.raises(InputError) as error:
            fit_map(rows, variant=variant, **fit_options)
        assert re.search(message, str(error.value)), kind


@pytest.mark.parametrize("case", ["logits", "confidence", "decision", "number signal"])
def test_missing_value_of_new_rows_is_rejected_with_row_and_column(case, tmp_path):
    frame, column, reading, fit_options = CASES[case]
    variant = None if "signal" in case else "confidence"
    document, _ = fit_map(read_in_memory(frame, DEFAULT_READING, tmp_path), variant=variant, **fit_options)
    message = rf"{MISSING_PLACE}: {column} .*missing"
    out = tmp_path / "out.parquet"
    for value in MISSING.values():
        path = maps.write_frame(with_missing_value(frame, column, value), tmp_path / "new.parquet")
        with pytest.raises(InputError, match=message):
            apply_map(document, path, out, reading=Reading(**reading))
        assert not out.exists()
        with pytest.raises(InputError, match=message):
            MapAssessment.from_predictions(document, open_predictions(path))


MISSING_LABELS = {
    "null": pl.lit(None, dtype=pl.Float64),
    "NaN": pl.lit(float("nan")),
    "null text": pl.lit(None, dtype=pl.String),
    "blank text": pl.lit("  "),
    "empty text": pl.lit(""),
}


@pytest.mark.parametrize("file_format", ["frame", "parquet", "csv", "jsonl"])
@pytest.mark.parametrize("kind", MISSING_LABELS)
def test_rows_without_a_label_are_dropped_in_every_format(kind, file_format, tmp_path):
    is_unlabelled = pl.int_range(pl.len()) % 9 == 4
    label = pl.col("label").cast(pl.String if "text" in kind else pl.Float64)
    frame = WIDE.with_columns(label=pl.when(is_unlabelled).then(MISSING_LABELS[kind]).otherwise(label))
    rows = READERS[file_format](frame, Reading(drop_unlabelled=True), tmp_path)
    document, recommended = fit_map(rows, variant="confidence", group=None, names=None)
    expected, _ = fit_map(read_in_memory(WIDE.filter(~is_unlabelled), DEFAULT_READING, tmp_path), variant="confidence")
    assert document.held_out == expected.held_out
    assert document.source.rows == expected.source.rows == N_ROWS - 8
    assert re.search("8 of 70 .*no label", " ".join(recommended.notes))

    has_label_one = (pl.col("label") == 1).cast(int).cast(pl.String if "text" in kind else pl.Float64)
    two_labels = WIDE.with_columns(label=pl.when(is_unlabelled).then(MISSING_LABELS[kind]).otherwise(has_label_one))
    score = READERS[file_format](two_labels, Reading(score="logits_1", positive="1", drop_unlabelled=True), tmp_path)
    values, grade, _, _, notes = read_score(score)
    labelled_rows = WIDE.filter(~is_unlabelled)
    assert values.tolist() == labelled_rows["logits_1"].to_list()
    assert (grade == 1).tolist() == (labelled_rows["label"] == 1).to_list()
    assert len(notes) == 1
    assert re.match("8 of 70 .*omitted", notes[0])
    with pytest.raises(InputError, match=r"label is .*missing.*drop-unlabelled"):
        read_score(replace(score, reading=Reading(score="logits_1", positive="1")))


@pytest.mark.parametrize("value", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("column", ["p", "group"])
def test_score_thresholds_reject_a_missing_score_or_group(column, value, tmp_path):
    frame = with_missing_value(TWO_LABELS.with_columns(group=pl.int_range(N_ROWS) // 2), column, value)
    with pytest.raises(InputError, match=rf"{MISSING_PLACE}: {column} .*missing"):
        read_score(read_in_memory(frame, Reading(score="p", positive="1"), tmp_path), group="group")


def replace_one_value(values: np.ndarray, missing: object) -> list:
    return [missing if row == MISSING_ROW else value for row, value in enumerate(values.tolist())]


LABELS = WIDE["label"].to_numpy()
LABEL_NAMES = np.array(["bad", "fair", "good"])[LABELS]
CONTAINERS = {
    "list": list,
    "objects": lambda values: np.array(values, dtype=object),
    "pandas": pd.Series,
    "pandas objects": lambda values: pd.Series(values, dtype=object),
    "polars": lambda values: pl.Series(values, strict=False),
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA], ids=str)
@pytest.mark.parametrize(
    ("true_labels", "labels"), [(LABELS, None), (LABELS, (0, 1, 2)), (LABEL_NAMES, ("bad", "fair", "good"))]
)
def test_missing_labels_of_every_container_are_rejected_or_dropped(true_labels, labels, missing, kind):
    if missing is pd.NA and "pandas" not in kind:
        return
    if kind == "polars" and missing is not None and true_labels.dtype.kind == "U":
        return  # polars converts NaN to text
    logits = np.array(LOGITS["logits"].to_list())
    labels_with_missing = replace_one_value(true_labels, missing)
    y = CONTAINERS[kind](labels_with_missing)
    content_before = repr(y)
    settings = {"variant": "confidence", "labels": labels}
    with pytest.raises(InputError, match=rf"{MISSING_PLACE}: label .*missing.*drop_unlabelled=True"):
        ReliabilityMap(**settings).fit(logits, y)

    model = ReliabilityMap(**settings, drop_unlabelled=True).fit(logits, y)
    has_label = np.arange(N_ROWS) != MISSING_ROW
    expected = ReliabilityMap(**settings).fit(logits[has_label], true_labels[has_label])
    assert model.document_.held_out == expected.document_.held_out
    assert model.classes_.tolist() == expected.classes_.tolist()
    assert repr(y) == content_before  # the input is not changed


@pytest.mark.parametrize("missing", [None, float("nan")], ids=str)
def test_missing_labels_of_a_frame_of_logit_columns_are_dropped(missing):
    frame = WIDE.select(**{str(k): pl.col(f"logits_{k}") for k in range(3)})
    y = replace_one_value(LABELS, missing)
    has_label = np.arange(N_ROWS) != MISSING_ROW
    model = ReliabilityMap(variant="confidence", drop_unlabelled=True).fit(frame, y)
    expected = ReliabilityMap(variant="confidence").fit(frame.filter(has_label), LABELS[has_label])
    assert model.document_.held_out == expected.document_.held_out

    labelled_frame = frame.with_columns(label=pl.Series(y, dtype=pl.Float64))
    model = ReliabilityMap(variant="confidence", drop_unlabelled=True).fit(labelled_frame)
    assert model.document_.held_out == expected.document_.held_out


def test_id_column_with_a_missing_value_does_not_identify_rows():
    frame = CONFIDENCES.with_columns(id=pl.int_range(N_ROWS) * 3 + 1)
    identified_by = {}
    for kind, value in {"none": 2.5, **MISSING}.items():
        document = ReliabilityMap(variant="confidence").fit(with_missing_value(frame, "id", value)).document_
        identified_by[kind] = document.source.training_rows.by

    assert identified_by == {"none": "id", "null": "nothing", "NaN": "nothing"}
