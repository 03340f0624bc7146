"""Typical uses, from the user's own file to the result.

Other uses are tested elsewhere: a csv file of the user in params.yaml in test_end_to_end
(`test_own_csv_reaches_the_report`), the page in Chromium in system/test_report_page.
"""

import re
from pathlib import Path

import polars as pl
import pytest

from relmap import ReliabilityMap
from tests.maps import make_confidence_predictions, make_predictions, run_command, write_frame

ROWS = make_predictions(600)
JUDGE_ROWS = make_confidence_predictions(600, 2)
NAMES = ("<b>bad</b>", "fair", "good")
CONFIDENCE_AS_WORD = pl.when(pl.col("confidence") < 0.8).then(pl.lit("low")).otherwise(pl.lit("high"))
CONFIDENCE_AS_PERCENT = pl.format("{}%", (pl.col("confidence") * 100).round().cast(int))


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def with_label_names(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return frame.with_columns(pl.col(columns).replace_strict(dict(enumerate(NAMES))))


def test_pandas_csv_with_arrays_as_text_is_fitted(capsys):
    with_label_names(ROWS, "label").to_pandas().to_csv("val.csv", sep=";")
    run_command("fit", "--predictions", "val.csv", "--labels", ",".join(NAMES), "--group", "group", "--out", "map.json")
    printed = capsys.readouterr().err
    document = ReliabilityMap.load("map.json").document_

    assert re.match(r"val\.csv .*semicolons\.\n", printed)
    assert "\nBetter than " in printed
    assert (document.input, document.label_names) == ("logits", NAMES)


@pytest.mark.parametrize(
    ("confidence", "options"),
    [(CONFIDENCE_AS_WORD, ("--confidence-words", "low=.6,high=.9")), (CONFIDENCE_AS_PERCENT, ())],
)
def test_judge_with_words_or_percent_passes_through_every_command(confidence, options, capsys):
    names = {"decision": "answer", "confidence": "how sure", "label": "truth"}
    judge = with_label_names(JUDGE_ROWS.with_columns(confidence=confidence), "decision", "label").rename(names)
    judge.write_csv("judge.csv", separator=";")
    judge.drop("truth").write_csv("new.csv", separator=";")
    column_options = ("--decision", "answer", "--confidence", "how sure", *options)
    map_options = ("--map", "map.json", *column_options, "--predictions")
    run_command(
        "fit",
        "--predictions",
        "judge.csv",
        *column_options,
        "--label",
        "truth",
        "--labels",
        "<b>bad</b>,fair",
        "--out",
        "map.json",
    )
    run_command("apply", *map_options, "new.csv", "--out", "scored.csv")
    run_command("label", *map_options, "new.csv", "--label", "truth", "--rows", 5, "--out", "sample.csv")
    run_command(
        "evaluate", *map_options, "judge.csv", "--label", "truth", "--unlabelled", "scored.csv", "--out", "e.json"
    )
    run_command(
        "thresholds", *map_options, "judge.csv", "--label", "truth", "--target-accuracy", 0.7, "--confidence-level", 0.9
    )

    # a note for each file that is read: evaluate reads two files, and the other four commands one
    assert capsys.readouterr().err.count("separated by semicolons") == 6

    scored = pl.read_csv("scored.csv", separator=";")
    sample = pl.read_csv("sample.csv", separator=";")
    assert scored.select(judge.drop("truth").columns).equals(judge.drop("truth"))
    assert scored["decision_name"].equals(judge["answer"], check_names=False)
    assert sample["truth"].null_count() == 5


def test_ranker_decides_above_its_border():
    score = ROWS["logits"].list.get(0)
    write_frame(ROWS.select(score=score, relevant=(pl.col("label") == 0).cast(int)), Path("ranked.csv"))
    score_options = ("--score", "score", "--border", "0.5", "--predictions", "ranked.csv")
    label_options = ("--label", "relevant", "--labels", "other,relevant")
    run_command("fit", *score_options, *label_options, "--out", "map.json")
    run_command("apply", "--map", "map.json", *score_options, "--out", "scored.csv")
    is_relevant = pl.read_csv("scored.csv")["decision_name"] == "relevant"

    assert is_relevant.to_list() == (score > 0.5).to_list()


def test_report_command_writes_page_and_map(capsys):
    write_frame(with_label_names(ROWS, "label").rename({"logits": "raw"}), Path("judged.parquet"))
    file_options = ("--predictions", "judged.parquet", "--labels", ",".join(NAMES), "--group", "group")
    options = (*file_options, "--logits", "raw")
    run_command("report", *options, "--out", "report.html")
    printed = capsys.readouterr().err
    page = Path("report.html").read_text()

    assert printed.startswith("Better than ")
    assert page.index("Better than ") < page.index("The map: ") < page.index("fit did not")
    assert "<b>bad" not in page.split("<script>")[0]
    assert page.count("<figure") == 3
    assert not re.search('(src|href)="http', page)
    assert re.search("apply --map report.map.json --predictions new.parquet --out scored.parquet<", page)

    run_command("fit", *options, "--out", "map.json")
    from_report = ReliabilityMap.load("report.map.json").document_
    from_fit = ReliabilityMap.load("map.json").document_

    assert from_report.model_dump(exclude={"source"}) == from_fit.model_dump(exclude={"source"})
