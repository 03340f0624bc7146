"""Prediction files in other layouts are read with options, or rejected with a message that names the options."""

import gzip
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from relmap.errors import InputError
from relmap.io import files, output
from relmap.io.column_layout import Reading
from relmap.io.files import open_predictions, read_columns, rows_in_file
from relmap.routing.apply import apply_map
from tests import maps
from tests.maps import read_labelled as read_labelled_rows

JUDGE_ROWS = maps.make_confidence_predictions(300, 2)  # as of a language model that judges answers
PROBABILITY_OF_SECOND = pl.when(pl.col("decision") == 1).then("confidence").otherwise(1 - pl.col("confidence"))
HUNDREDTHS = (pl.col("confidence") * 100).round().cast(int)


def write_file(rows: pl.DataFrame | bytes, path: Path) -> Path:
    """Write a frame or bytes to a file."""
    if isinstance(rows, bytes):
        path.write_bytes(rows)
    elif path.suffix in {".json", ".xlsx"}:
        {".json": rows.write_json, ".xlsx": rows.write_excel}[path.suffix](path)
    else:
        maps.write_frame(rows, path)
    return path


def read_arrays(rows: pl.DataFrame | bytes, path: Path, names: str = "", **reading: object) -> list[np.ndarray]:
    """Write rows to a file and return the arrays that a fit reads from it."""
    label_names = tuple(names.split(",")) if names else None
    predictions = open_predictions(write_file(rows, path), Reading(**reading))
    rows_of_fit = read_labelled_rows(predictions, group=None, names=label_names).rows
    return [part for part in vars(rows_of_fit).values() if part is not None]


def are_equal(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def with_label_values(values: dict[int, object]) -> pl.DataFrame:
    return JUDGE_ROWS.with_columns(pl.col("decision", "label").replace_strict(values))


def with_confidence(expression: pl.Expr) -> pl.DataFrame:
    return JUDGE_ROWS.with_columns(confidence=expression)


def as_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.cast(pl.String).select(pl.all().str.replace(",", ".", literal=True).cast(pl.Float64))


def as_text(separator: str) -> str:
    """Return the frame as text with decimal commas and a separator other than a comma."""
    commas = JUDGE_ROWS.cast(pl.String).with_columns(pl.all().str.replace(".", ",", literal=True), ä=pl.lit("ä"))
    return commas.write_csv(separator=separator)


NO_LABEL = pl.DataFrame({"decision": [9], "confidence": [0.5], "label": [None]})
OTHER_NAMES = {"decision": "answer", "confidence": "how sure", "label": "truth"}
BY_OTHER_NAMES = {"decision": "answer", "confidence": "how sure", "label": "truth"}
WITH_GAPS = pl.concat([NO_LABEL, JUDGE_ROWS[:100], NO_LABEL, JUDGE_ROWS[100:]], how="vertical_relaxed")
CONFIDENCE_WORDS = ",".join(f"sure {value}={value}" for value in JUDGE_ROWS["confidence"].unique())
EQUIVALENT_JUDGE_FILES = {  # a file with the content of JUDGE_ROWS, and options to read it
    "names in other case, with spaces": ("p.csv", with_label_values({0: " No", 1: "YES "}), {"names": "no,yes"}),
    "truth": ("p.parquet", with_label_values({0: False, 1: True}), {}),
    "truth as text": ("p.csv", with_label_values({0: "False", 1: "True"}), {}),
    "-1 and 1": ("p.csv", with_label_values({0: -1, 1: 1}), {"names": "-1,1"}),
    "numbers, where not every name is one": ("p.jsonl", with_label_values({0: 1, 1: 2}), {"names": "1,2,none"}),
    "1 to K, with decimals": ("p.parquet", with_label_values({0: 1.0, 1: 2.0}), {"names": "1,2"}),
    "names with decimals": ("p.parquet", with_label_values({0: 1.0, 1: 2.0}), {"names": "1.0,2.0"}),
    "1 to K, as text with decimals": ("p.csv", with_label_values({0: 1.0, 1: 2.0}), {"names": "1,2"}),
    "percent": ("p.csv", with_confidence(pl.format("{} %", HUNDREDTHS)), {}),
    "0 to 100": ("p.parquet", with_confidence(HUNDREDTHS), {"percent": True}),
    "words": ("p.csv", with_confidence(pl.format("Sure {}", "confidence")), {"confidence_words": CONFIDENCE_WORDS}),
    "other names": ("p.csv", JUDGE_ROWS.rename(OTHER_NAMES), BY_OTHER_NAMES),
    "rows without a label": ("p.csv", WITH_GAPS, {"drop_unlabelled": True}),
    "semicolons, decimal commas, Windows": ("p.csv", as_text(";").encode("cp1252"), {}),
    "bars, UTF-16": ("p.csv", as_text("|").encode("utf-16"), {}),
    "tabs": ("p.tsv", as_text("\t").encode(), {}),
    "gzip": ("p.csv.gz", gzip.compress(JUDGE_ROWS.write_csv().encode()), {}),
    "a JSON list": ("p.json", JUDGE_ROWS, {}),
    "a workbook": ("p.xlsx", JUDGE_ROWS, {}),
    "a workbook with gaps": ("p.xlsx", WITH_GAPS.cast({"label": pl.String}), {"drop_unlabelled": True}),
}


@pytest.mark.parametrize(("name", "rows", "options"), EQUIVALENT_JUDGE_FILES.values(), ids=EQUIVALENT_JUDGE_FILES)
def test_equivalent_judge_files_give_the_same_rows(name, rows, options, tmp_path):
    assert are_equal(read_arrays(rows, tmp_path / name, **options), read_arrays(JUDGE_ROWS, tmp_path / "own.parquet"))


CASE_OF_FILE = {file_name: case for case, (file_name, _, _) in EQUIVALENT_JUDGE_FILES.items()} | {
    "p.xlsx": "a workbook",
    "p.csv": "semicolons, decimal commas, Windows",
}
ONE_PROBABILITY = JUDGE_ROWS.select("label", p=PROBABILITY_OF_SECOND)
SCORES = pl.DataFrame({"s": np.random.default_rng(0).normal(size=300), "label": JUDGE_ROWS["label"]})
TIED_SCORES = SCORES.with_columns(pl.col("s").round())
THREE_LABEL_ROWS = maps.make_predictions(300).drop("group")
PROBABILITY_VECTORS = softmax(np.array(THREE_LABEL_ROWS["logits"].to_list()), axis=1)
PROBABILITY_LISTS = pl.DataFrame({"probabilities": PROBABILITY_VECTORS, "label": THREE_LABEL_ROWS["label"]})
LISTS_AS_TEXT = [str(row) for row in PROBABILITY_VECTORS.tolist()]
ARRAYS_AS_TEXT = [row.replace(", ", "\n  ") for row in LISTS_AS_TEXT]
SOFTMAX_COLUMNS = ["softmax_0", "softmax_1", "softmax_2"]
PROBABILITY = pl.col("p")
COMPLEMENT = 1 - pl.col("p")
OPTIONS_OF_FIRST_LABEL = {"probability": "p", "positive": "0"}
EQUIVALENT_COLUMNS = {  # a file in the standard layout; an equivalent one, and options to read it
    "probability of the second label": (
        ONE_PROBABILITY.select("label", probabilities_0=COMPLEMENT, probabilities_1=PROBABILITY),
        ONE_PROBABILITY,
        {"probability": "p"},
    ),
    "probability of the first label": (
        ONE_PROBABILITY.select("label", probabilities_0=COMPLEMENT, probabilities_1=PROBABILITY),
        ONE_PROBABILITY.with_columns(p=COMPLEMENT),
        OPTIONS_OF_FIRST_LABEL,
    ),
    "a score": (
        SCORES.select("label", logits_0=0.0, logits_1=pl.col("s") - 0.5),
        SCORES,
        {"score": "s", "border": 0.5},
    ),
    "a score equal to the border": (
        TIED_SCORES.select("label", logits_0="s", logits_1=0.0, decision=(pl.col("s") <= 0).cast(int)),
        TIED_SCORES,
        {"score": "s", "border": 0.0, "positive": "0"},
    ),
    "lists as text": (PROBABILITY_LISTS, PROBABILITY_LISTS.with_columns(probabilities=pl.Series(LISTS_AS_TEXT)), {}),
    "arrays as text": (PROBABILITY_LISTS, PROBABILITY_LISTS.with_columns(probabilities=pl.Series(ARRAYS_AS_TEXT)), {}),
    "own names": (
        PROBABILITY_LISTS,
        pl.DataFrame(PROBABILITY_VECTORS, schema=SOFTMAX_COLUMNS).hstack([PROBABILITY_LISTS["label"]]),
        {"probabilities": "softmax"},
    ),
}


@pytest.mark.parametrize(("standard", "rows", "options"), EQUIVALENT_COLUMNS.values(), ids=EQUIVALENT_COLUMNS)
def test_equivalent_columns_give_the_same_rows(standard, rows, options, tmp_path):
    expected = read_arrays(standard, tmp_path / "own.parquet")
    for name in ("p.csv", "p.parquet"):
        assert are_equal(read_arrays(rows, tmp_path / name, **options), expected)


@pytest.mark.parametrize("out", maps.WRITERS)
@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.csv.gz", "p.json", "p.xlsx"])
def test_added_columns_do_not_depend_on_the_input_format(name, out, tmp_path):
    document = maps.make_map(confidence_only=True, n_labels=2)
    outputs = []
    for source, rows in ((name, EQUIVALENT_JUDGE_FILES[CASE_OF_FILE[name]][1]), ("own.parquet", JUDGE_ROWS)):
        apply_map(document, write_file(rows, tmp_path / source), tmp_path / f"o{out}")
        outputs.append(
            read_columns(open_predictions(tmp_path / f"o{out}"), ["confidence", "reliability", "review_rank"])
        )
    assert as_numbers(outputs[0]).equals(as_numbers(outputs[1]))


def test_numeric_label_names_are_mapped_to_codes(tmp_path):
    rows = JUDGE_ROWS.with_columns(pl.col("decision").replace_strict({0: 2, 1: 1}))
    document = maps.make_map(confidence_only=True, n_labels=2, names=("2", "1"))
    apply_map(document, write_file(rows, tmp_path / "p.parquet"), tmp_path / "o.parquet")
    assert pl.read_parquet(tmp_path / "o.parquet")["decision_code"].equals(JUDGE_ROWS["decision"], check_names=False)


ROWS_WITH_TEXT = JUDGE_ROWS.with_columns(note=pl.Series(["=1+1", 'a,b;c\t"d"', "007"] * 100), query=pl.lit("ä"))
CONTRADICTORY_INPUTS = {
    "a fixed label": (
        JUDGE_ROWS.with_columns(confidence=PROBABILITY_OF_SECOND),
        "same label.* --probability confidence --positive 1",
    ),
    "of three": (maps.make_confidence_predictions(300).with_columns(confidence=0.2), "300 of 300 rows.*below 1/3"),
    "not logits": (
        PROBABILITY_LISTS.rename({"probabilities": "logits"}),
        "like probabilities.* --probabilities logits",
    ),
}
DOUBTFUL_INPUTS = {
    "1 to K": (maps.make_confidence_predictions(300).with_columns(pl.col("decision", "label") + 1), "--labels 1,2,3"),
    "dialect": (as_text(";").encode("cp1252"), "semicolons.*UTF-8.*cp1252"),
}


@pytest.mark.parametrize(("rows", "message"), CONTRADICTORY_INPUTS.values(), ids=CONTRADICTORY_INPUTS)
def test_contradictory_input_is_an_error(rows, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_labelled_rows(open_predictions(write_file(rows, tmp_path / "p.parquet")), group=None, names=None)


@pytest.mark.parametrize(("rows", "note"), DOUBTFUL_INPUTS.values(), ids=DOUBTFUL_INPUTS)
def test_doubtful_input_gives_a_note(rows, note, tmp_path):
    path = tmp_path / ("p.csv" if isinstance(rows, bytes) else "p.parquet")
    notes = read_labelled_rows(open_predictions(write_file(rows, path)), group=None, names=None).notes
    assert re.search(note, " ".join(notes))


def test_text_row_is_named_by_its_line(tmp_path):
    content = 'label,decision,note\n\n1,1,"a\nb"\n\n0,0,c\n0,bad,d\n'
    locations = rows_in_file(open_predictions(write_file(content.encode(), tmp_path / "p.csv")))
    assert [locations.locate(row) for row in range(4)] == ["line 3", "line 6", "line 7", "row 3 (from 0)"]
    with pytest.raises(InputError, match=r"line 7: .*decision.* 'bad'"):
        read_arrays(content.encode(), tmp_path / "p.csv")
    with pytest.raises(InputError, match=r"line 7: .*decision.* 'bad'"):
        read_arrays(content.replace("1,1", " ,1").encode(), tmp_path / "p.csv", drop_unlabelled=True)


def read_all_batches(path: Path) -> pl.DataFrame:
    batches = [pl.DataFrame(batch) for batch in open_predictions(path).batches()]
    return pl.concat(batches) if batches else pl.DataFrame()


@pytest.mark.parametrize("out", files.FORMATS)
@pytest.mark.parametrize("rows", [JUDGE_ROWS, ROWS_WITH_TEXT, JUDGE_ROWS.clear()], ids=["numbers", "text", "nothing"])
def test_every_format_round_trips(out, rows, tmp_path, monkeypatch):
    maps.read_in_small_batches(monkeypatch)
    document = maps.make_map(confidence_only=True, n_labels=2)
    path = tmp_path / f"o{out}"
    expected = tmp_path / "own.scored.parquet"
    for out_path in (expected, path):
        apply_map(document, write_file(rows, tmp_path / "own.parquet"), out_path)

    if out in {".jsonl", ".ndjson"} and rows.is_empty():
        assert path.read_bytes() == b""  # which has no columns to read
        return

    written = read_all_batches(path)
    from_parquet = read_all_batches(expected)
    if not (out in {".json", ".jsonl"} and rows.is_empty()):
        assert written.columns == from_parquet.columns
    assert len(written) == len(from_parquet) == len(rows)
    for name in written.columns if len(rows) else ():
        values = written[name].cast(from_parquet.schema[name], strict=False)
        expected_values = from_parquet[name].cast(from_parquet.schema[name], strict=False)
        if values.dtype.is_float():
            assert values.to_list() == pytest.approx(expected_values.to_list(), abs=1e-15)
        else:
            assert values.to_list() == expected_values.to_list()


def test_workbook_with_too_many_rows_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "MAX_SHEET_ROWS", 300)
    with pytest.raises(InputError, match=r"o\.xlsx: .* 299 rows .*\.parquet"):
        apply_map(
            maps.make_map(confidence_only=True, n_labels=2),
            write_file(JUDGE_ROWS, tmp_path / "p.csv"),
            tmp_path / "o.xlsx",
        )
    assert not (tmp_path / "o.xlsx").exists()
