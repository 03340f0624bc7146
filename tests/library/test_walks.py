"""The six walks that people take, as they type them: each begins with their own file and ends with what comes back.

Two stand elsewhere: a notebook in test_reliability_object (`test_frames_of_each_kind_…`), a csv of one's own in
params.yaml in test_end_to_end (`test_an_own_csv_goes_…`); Chromium opens the page in system/test_report_page.
"""

import re
from pathlib import Path

import polars as pl
import pytest
from maps import confidence_only, predictions, run, write

from relmap import ReliabilityMap

ROWS, SAID = predictions(600), confidence_only(600, 2)
NAMES = ("<b>bad</b>", "fair", "good")
HOW_SURE = pl.when(pl.col("confidence") < 0.8).then(pl.lit("low")).otherwise(pl.lit("high"))
IN_PERCENT = pl.format("{}%", (pl.col("confidence") * 100).round().cast(int))


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def in_words(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return frame.with_columns(pl.col(columns).replace_strict(dict(enumerate(NAMES))))


def test_a_csv_of_pandas_with_arrays_as_text_labels_as_words_and_semicolons_takes_one_fit(capsys):
    in_words(ROWS, "label").to_pandas().to_csv("val.csv", sep=";")
    run("fit", "--predictions", "val.csv", "--labels", ",".join(NAMES), "--group", "group", "--out", "map.json")
    said, document = capsys.readouterr().err, ReliabilityMap.load("map.json").document_
    assert said.startswith("val.csv is read with columns separated by semicolons.\n")
    assert "\nThe map contains " in said
    assert (document.input, document.label_names) == ("logits", NAMES)


@pytest.mark.parametrize(("sure", "how"), [(HOW_SURE, ("--confidence-words", "low=.6,high=.9")), (IN_PERCENT, ())])
def test_a_judge_with_words_or_percent_is_typed_through_every_command(sure, how, capsys):
    names = {"decision": "answer", "confidence": "how sure", "label": "truth"}
    judge = in_words(SAID.with_columns(confidence=sure), "decision", "label").rename(names)
    judge.write_csv("judge.csv", separator=";")
    judge.drop("truth").write_csv("new.csv", separator=";")
    how = "--decision", "answer", "--confidence-column", "how sure", *how
    known = "--map", "map.json", *how, "--predictions"
    run(
        "fit",
        "--predictions",
        "judge.csv",
        *how,
        "--label",
        "truth",
        "--labels",
        "<b>bad</b>,fair",
        "--out",
        "map.json",
    )
    run("apply", *known, "new.csv", "--out", "scored.csv")
    run("label", *known, "new.csv", "--label", "truth", "--rows", 5, "--out", "drawn.csv")
    run("evaluate", *known, "judge.csv", "--label", "truth", "--unlabelled", "scored.csv", "--out", "e.json")
    run("thresholds", *known, "judge.csv", "--label", "truth", "--target-accuracy", 0.7, "--confidence", 0.9)
    assert capsys.readouterr().err.count("is read with columns separated by semicolons") == 6
    scored, drawn = (pl.read_csv(name, separator=";") for name in ("scored.csv", "drawn.csv"))
    assert scored.select(judge.drop("truth").columns).equals(judge.drop("truth"))
    assert scored["decision_name"].equals(judge["answer"], check_names=False)
    assert drawn["truth"].null_count() == 5


def test_a_ranker_decides_above_its_border():
    score = ROWS["logits"].list.get(0)
    write(ROWS.select(score=score, relevant=(pl.col("label") == 0).cast(int)), Path("ranked.csv"))
    how = "--score", "score", "--border", "0.5", "--label", "relevant", "--predictions", "ranked.csv"
    run("fit", *how, "--labels", "other,relevant", "--out", "map.json")
    run("apply", "--map", "map.json", *how[:4], *how[6:], "--out", "scored.csv")
    decided = pl.read_csv("scored.csv")["decision_name"] == "relevant"
    assert decided.to_list() == (score > 0.5).to_list()


def test_one_command_writes_the_page_of_ones_own_predictions_and_the_map_beside_it(capsys):
    write(in_words(ROWS, "label").rename({"logits": "raw"}), Path("judged.parquet"))
    asked = "--predictions", "judged.parquet", "--labels", ",".join(NAMES), "--group", "group", "--logits", "raw"
    run("report", *asked, "--out", "report.html")
    said, page = capsys.readouterr().err, Path("report.html").read_text()
    assert said.startswith("Use the map: ")
    assert page.index("Use the map: ") < page.index("The map contains ") < page.index("rows that the fit did not use")
    assert "<b>bad" not in page.split("<script>")[0]
    assert page.count("<figure") == 3
    assert not re.search('(src|href)="http', page)
    assert re.search("apply --map report.map.json --predictions new.parquet --out scored.parquet --logits raw<", page)
    run("fit", *asked, "--out", "map.json")
    written, alone = (ReliabilityMap.load(name).document_ for name in ("report.map.json", "map.json"))
    assert written.model_dump(exclude={"source"}) == alone.model_dump(exclude={"source"})
