"""Files of predictions as people have them: read like our own once options say how, or refused with those options."""

import gzip
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from relmap.errors import InputError
from relmap.fitting.labelled_rows import read_labelled_rows
from relmap.io import files, output
from relmap.io.files import open_predictions, read_columns, rows_in_file
from relmap.io.reading import Reading
from relmap.routing.apply import apply_map
from tests import maps

TWO = maps.make_confidence_predictions(300, 2)
OF_SECOND = pl.when(pl.col("decision") == 1).then("confidence").otherwise(1 - pl.col("confidence"))
HUNDREDTHS = (pl.col("confidence") * 100).round().cast(int)


def save(rows: pl.DataFrame | bytes, path: Path) -> Path:
    """The file of a frame, or of its bytes."""
    if isinstance(rows, bytes):
        path.write_bytes(rows)
    elif path.suffix in {".json", ".xlsx"}:
        {".json": rows.write_json, ".xlsx": rows.write_excel}[path.suffix](path)
    else:
        maps.write_frame(rows, path)
    return path


def read(rows: pl.DataFrame | bytes, path: Path, names: str = "", **reading: object) -> list[np.ndarray]:
    """What a fit reads of a file."""
    labels = tuple(names.split(",")) if names else None
    checked = read_labelled_rows(open_predictions(save(rows, path), Reading(**reading)), group=None, names=labels)[0]
    return [part for part in vars(checked).values() if part is not None]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def labels(values: dict[int, object]) -> pl.DataFrame:
    return TWO.with_columns(pl.col("decision", "label").replace_strict(values))


def said(how: pl.Expr) -> pl.DataFrame:
    return TWO.with_columns(confidence=how)


def numeric(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.cast(pl.String).select(pl.all().str.replace(",", ".", literal=True).cast(pl.Float64))


def text(separator: str) -> str:
    """The frame as text, with decimal commas, where commas part no columns."""
    commas = TWO.cast(pl.String).with_columns(pl.all().str.replace(".", ",", literal=True), ä=pl.lit("ä"))
    return commas.write_csv(separator=separator)


NO_LABEL = pl.DataFrame({"decision": [9], "confidence": [0.5], "label": [None]})
OTHER_NAMES = {"decision": "answer", "confidence": "how sure", "label": "truth"}
BY_OTHER_NAMES = {"decision": "answer", "confidence_column": "how sure", "label": "truth"}
WITH_GAPS = pl.concat([NO_LABEL, TWO[:100], NO_LABEL, TWO[100:]], how="vertical_relaxed")
SURE = ",".join(f"sure {value}={value}" for value in TWO["confidence"].unique())
AS_STATED = {  # a file that says the same as TWO, and how it is read
    "names in other case, with spaces": ("p.csv", labels({0: " No", 1: "YES "}), {"names": "no,yes"}),
    "truth": ("p.parquet", labels({0: False, 1: True}), {}),
    "truth as text": ("p.csv", labels({0: "False", 1: "True"}), {}),
    "-1 and 1": ("p.csv", labels({0: -1, 1: 1}), {"names": "-1,1"}),
    "numbers, where not every name is one": ("p.jsonl", labels({0: 1, 1: 2}), {"names": "1,2,none"}),
    "1 to K, with decimals": ("p.parquet", labels({0: 1.0, 1: 2.0}), {"names": "1,2"}),
    "names with decimals": ("p.parquet", labels({0: 1.0, 1: 2.0}), {"names": "1.0,2.0"}),
    "1 to K, as text with decimals": ("p.csv", labels({0: 1.0, 1: 2.0}), {"names": "1,2"}),
    "percent": ("p.csv", said(pl.format("{} %", HUNDREDTHS)), {}),
    "0 to 100": ("p.parquet", said(HUNDREDTHS), {"percent": True}),
    "words": ("p.csv", said(pl.format("Sure {}", "confidence")), {"confidence_words": SURE}),
    "other names": ("p.csv", TWO.rename(OTHER_NAMES), BY_OTHER_NAMES),
    "rows without a label": ("p.csv", WITH_GAPS, {"drop_unlabelled": True}),
    "semicolons, decimal commas, Windows": ("p.csv", text(";").encode("cp1252"), {}),
    "bars, UTF-16": ("p.csv", text("|").encode("utf-16"), {}),
    "tabs": ("p.tsv", text("\t").encode(), {}),
    "gzip": ("p.csv.gz", gzip.compress(TWO.write_csv().encode()), {}),
    "a JSON list": ("p.json", TWO, {}),
    "a workbook": ("p.xlsx", TWO, {}),
    "a workbook with gaps": ("p.xlsx", WITH_GAPS.cast({"label": pl.String}), {"drop_unlabelled": True}),
}


@pytest.mark.parametrize(("name", "rows", "how"), AS_STATED.values(), ids=AS_STATED)
def test_a_judge_says_the_same_in_whatever_form_a_person_has_it(name, rows, how, tmp_path):
    assert same(read(rows, tmp_path / name, **how), read(TWO, tmp_path / "own.parquet"))


FORMS = {row[0]: name for name, row in AS_STATED.items()} | {
    "p.xlsx": "a workbook",
    "p.csv": "semicolons, decimal commas, Windows",
}
OF_ONE = TWO.select("label", p=OF_SECOND)
SCORES = pl.DataFrame({"s": np.random.default_rng(0).normal(size=300), "label": TWO["label"]})
TIED = SCORES.with_columns(pl.col("s").round())
THREE = maps.make_predictions(300).drop("group")
VECTORS = softmax(np.array(THREE["logits"].to_list()), axis=1)
LISTS = pl.DataFrame({"probabilities": VECTORS, "label": THREE["label"]})
IN_TEXT = [str(row) for row in VECTORS.tolist()]
AS_ARRAYS = [row.replace(", ", "\n  ") for row in IN_TEXT]
SOFTMAX = ["softmax_0", "softmax_1", "softmax_2"]
ONE, OTHER, FIRST = pl.col("p"), 1 - pl.col("p"), {"probability": "p", "positive": "0"}
AS_OURS = {  # a file of our own; one that says the same, and how it is read
    "of the second": (OF_ONE.select("label", probabilities_0=OTHER, probabilities_1=ONE), OF_ONE, {"probability": "p"}),
    "of the first": (
        OF_ONE.select("label", probabilities_0=OTHER, probabilities_1=ONE),
        OF_ONE.with_columns(p=OTHER),
        FIRST,
    ),
    "a score": (
        SCORES.select("label", logits_0=0.0, logits_1=pl.col("s") - 0.5),
        SCORES,
        {"score": "s", "border": 0.5},
    ),
    "a score on the border": (
        TIED.select("label", logits_0="s", logits_1=0.0, decision=(pl.col("s") <= 0).cast(int)),
        TIED,
        {"score": "s", "border": 0.0, "positive": "0"},
    ),
    "lists as text": (LISTS, LISTS.with_columns(probabilities=pl.Series(IN_TEXT)), {}),
    "arrays as text": (LISTS, LISTS.with_columns(probabilities=pl.Series(AS_ARRAYS)), {}),
    "own names": (LISTS, pl.DataFrame(VECTORS, schema=SOFTMAX).hstack([LISTS["label"]]), {"probabilities": "softmax"}),
}


@pytest.mark.parametrize(("ours", "rows", "how"), AS_OURS.values(), ids=AS_OURS)
def test_columns_say_the_same_as_ours(ours, rows, how, tmp_path):
    expected = read(ours, tmp_path / "own.parquet")
    for name in ("p.csv", "p.parquet"):
        assert same(read(rows, tmp_path / name, **how), expected)


@pytest.mark.parametrize("out", maps.WRITERS)
@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.csv.gz", "p.json", "p.xlsx"])
def test_what_is_written_beside_rows_is_the_same_whatever_they_came_in(name, out, tmp_path):
    document, both = maps.make_map(confidence_only=True, n_labels=2), []
    for source, rows in ((name, AS_STATED[FORMS[name]][1]), ("own.parquet", TWO)):
        apply_map(document, save(rows, tmp_path / source), tmp_path / f"o{out}")
        both.append(read_columns(open_predictions(tmp_path / f"o{out}"), ["confidence", "reliability", "review_rank"]))
    assert numeric(both[0]).equals(numeric(both[1]))


def test_a_decision_in_names_that_are_other_numbers_gets_its_number(tmp_path):
    rows = TWO.with_columns(pl.col("decision").replace_strict({0: 2, 1: 1}))
    document = maps.make_map(confidence_only=True, n_labels=2, names=("2", "1"))
    apply_map(document, save(rows, tmp_path / "p.parquet"), tmp_path / "o.parquet")
    assert pl.read_parquet(tmp_path / "o.parquet")["decision_code"].equals(TWO["decision"], check_names=False)


OF_NAMES = TWO.with_columns(note=pl.Series(["=1+1", 'a,b;c\t"d"', "007"] * 100), query=pl.lit("ä"))
QUESTIONS = {
    "a fixed label": (TWO.with_columns(confidence=OF_SECOND), "is this the .* --probability confidence --positive 1"),
    "of three": (
        maps.make_confidence_predictions(300).with_columns(confidence=0.2),
        "In 300 of 300 rows confidence is below 1/3",
    ),
    "1 to K": (maps.make_confidence_predictions(300).with_columns(pl.col("decision", "label") + 1), "--labels 1,2,3"),
    "not logits": (LISTS.rename({"probabilities": "logits"}), "look like probabilities.* --probabilities logits"),
    "dialect": (text(";").encode("cp1252"), "columns separated by semicolons.*is not UTF-8: it is read as cp1252"),
}


@pytest.mark.parametrize(("rows", "question"), QUESTIONS.values(), ids=QUESTIONS)
def test_what_is_doubtful_is_asked_and_what_is_taken_is_told(rows, question, tmp_path):
    path = tmp_path / ("p.csv" if isinstance(rows, bytes) else "p.parquet")
    notes = read_labelled_rows(open_predictions(save(rows, path)), group=None, names=None)[3]
    assert re.search(question, " ".join(notes))


def test_a_row_of_text_is_told_by_its_line(tmp_path):
    content = 'label,decision,note\n\n1,1,"a\nb"\n\n0,0,c\n0,bad,d\n'
    at = rows_in_file(open_predictions(save(content.encode(), tmp_path / "p.csv")))
    assert [at.locate(row) for row in range(4)] == ["line 3", "line 6", "line 7", "row 3 (from 0)"]
    with pytest.raises(InputError, match="line 7: decision is 'bad'"):
        read(content.encode(), tmp_path / "p.csv")
    with pytest.raises(InputError, match="line 7: decision is 'bad'"):
        read(content.replace("1,1", " ,1").encode(), tmp_path / "p.csv", drop_unlabelled=True)


@pytest.mark.parametrize("out", files.FORMATS)
@pytest.mark.parametrize("rows", [TWO, OF_NAMES, TWO.clear()], ids=["numbers", "text", "nothing"])
def test_every_format_that_is_read_is_written_and_reads_as_the_same_rows(out, rows, tmp_path, monkeypatch):
    maps.read_in_small_batches(monkeypatch)
    document = maps.make_map(confidence_only=True, n_labels=2)
    path, expected = tmp_path / f"o{out}", tmp_path / "own.scored.parquet"
    for place in (expected, path):
        apply_map(document, save(rows, tmp_path / "own.parquet"), place)
    if out == ".jsonl" and rows.is_empty():
        assert path.read_bytes() == b""  # which has no columns to read
        return
    written, as_parquet = (
        pl.concat([pl.DataFrame(batch) for batch in [*open_predictions(place).batches()]] or [pl.DataFrame()])
        for place in (path, expected)
    )
    assert written.columns == as_parquet.columns or (out in {".json", ".jsonl"} and rows.is_empty())
    assert len(written) == len(as_parquet) == len(rows)
    for name in written.columns if len(rows) else ():
        ours, theirs = (frame[name].cast(as_parquet.schema[name], strict=False) for frame in (written, as_parquet))
        assert ours.to_list() == pytest.approx(theirs.to_list(), abs=1e-15) if ours.dtype.is_float() else True
        assert ours.dtype.is_float() or ours.to_list() == theirs.to_list()


def test_a_workbook_has_no_more_rows_than_a_sheet(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "MAX_SHEET_ROWS", 300)
    with pytest.raises(InputError, match=r"o.xlsx: a workbook holds 299 rows .* write a .parquet file"):
        apply_map(maps.make_map(confidence_only=True, n_labels=2), save(TWO, tmp_path / "p.csv"), tmp_path / "o.xlsx")
    assert not (tmp_path / "o.xlsx").exists()
