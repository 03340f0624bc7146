"""Invalid commands and files are reported in a sentence with cause and remedy."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from relmap.maps.document import Seen, SeenColumn, save_map
from tests.maps import make_confidence_predictions, make_map, make_predictions, write_frame
from tests.project_copy import ROOT, write_params

FIT = "fit --out new.json --predictions"
REPORT = "report --out new.html --predictions"
SCORE = "thresholds --score length --positive 1 --precision 0.9 --predictions"
GRADES = "thresholds --score s --precision 0.9 --out new.json --predictions"
APPLY = "apply --map map.json --out new.csv --predictions"
LABEL = "label --rows 5 --map map.json --out new.csv --predictions"
EVALUATE = "evaluate --map map.json --out new.json --predictions"
CASCADE = "cascade fit --out new.json --predictions bad.csv --target-accuracy 0.9"
FIND_THRESHOLDS = "thresholds --map map.json --out new.json --predictions"
RUN = "thresholds --precision 0.9 --out new.json --qrels qrels.txt --run"
WATCH = "watch --map watched.json --out new.json --predictions"
QRELS = "thresholds --precision 0.9 --out new.json --run my.run --qrels"

ROWS = make_predictions(300)
CONFIDENCES = make_confidence_predictions(300)
TWO_LABELS = make_confidence_predictions(300, 2)
SEPARATE_LOGITS = ROWS.select("label", "group", *(pl.col("logits").list.get(k).alias(f"logits_{k}") for k in range(3)))
PROBABILITY_LISTS = ROWS.select("label", probabilities=pl.lit([0.2, 0.3, 0.5]))
ONE_PROBABILITY = TWO_LABELS.select("label", p=0.4, s=1.5)
GRADED = pl.DataFrame({"s": np.arange(300.0), "label": np.arange(300) % 3})
OTHER_COLUMN_NAMES = TWO_LABELS.rename({"decision": "pred", "confidence": "conf", "label": "y_true"})
TINY_LOGITS = ROWS.with_columns(pl.col("logits") * 1e-300)
WEIGHTED = ROWS.with_columns(inverse_probability=1.0)
ROW_NUMBER = pl.int_range(300)
THRESHOLDS = {"map_fingerprint": make_map().fingerprint, "overall": {"cut": None}, "labels": []}
BAD_THRESHOLDS = (  # content of a file of `apply --cuts`, cause, remedy
    (THRESHOLDS, "bad.json has no threshold", "a lower accuracy or more rows"),
    (THRESHOLDS | {"map_fingerprint": "0"}, "the thresholds of another map", "run `thresholds` again"),
    (
        THRESHOLDS | {"labels": [{"label": 3, "cut": 0.5}]},
        r"has the labels \[3\]; the labels of the map are 0 to 2",
        "run `thresholds` again",
    ),
    (THRESHOLDS | {"overall": {"cut": 1.5}}, "is not an output of `thresholds` .overall.cut", "run `thresholds` again"),
)
RISING_RANKS = b"1 Q0 d1 1 -2.5 t\n1 Q0 d2 2 -1.5 t\n"
EXCHANGED_RANKS = b"1 Q0 d1 2.5 1 t\n1 Q0 d2 1.5 2 t\n"
CONTROL_CHARACTERS = 'logits_0,logits_1,logits_2,"x\n\u202e"\n1,2,3,4\n\x1b]0;mine\x07,\x9b2J\n'
FORGED_MESSAGE = '"x\nrelmap: all is well \u202e\x1b[2J"\n1\n'
OWN_FILE = {"reader": "files", "source": "files", "path": "mine.csv"}


def change_row_7(frame: pl.DataFrame, **values: object) -> pl.DataFrame:
    """Change the values of columns in row 7."""
    changes = {name: pl.when(ROW_NUMBER == 7).then(value).otherwise(name) for name, value in values.items()}
    return frame.with_columns(**changes)


def rename_labels(name_0: object, name_1: object) -> pl.DataFrame:
    """Rename the labels of the rows of two labels."""
    return TWO_LABELS.with_columns(pl.col("decision", "label").replace_strict({0: name_0, 1: name_1}))


def cases_for_each(command: str, values: str, cause: str, remedy: str) -> list[tuple[str, None, str, str]]:
    """Make a case for each of the values, which are separated by spaces."""
    return [(command.format(word), None, cause.format(word), remedy) for word in values.split(" ")]


WRITE_AGAIN = "write the file again"
NO_LABEL_COLUMN = "no column label, which must contain the true label"
AS_IN_THE_FIT = "like the rows"
# Start of the command -> rest of the command, content of its file `bad.*` or changes of params.yaml, cause, remedy
CASES_BY_COMMAND = {
    "": [
        ("fitt --out a", None, "No such command 'fitt'", "Did you mean 'fit'"),
        (
            "fit --predictons a.csv",
            None,
            "No such option:? '?--predictons",  # quoted by some versions of click
            "(Possible options:|Did you mean) '?--predictions",
        ),
        ("sql --map gone.json", None, "gone.json does not exist", "relmap fit` writes a map"),
        (f"{REPORT} rows.parquet --out r.pdf", None, "r.pdf must end in", ".html"),
        (f"{REPORT} rows.parquet --out .html", None, ".html has no name before its suffix", "such as result.html"),
        (f"{SCORE} rows.parquet --figure .svg", None, ".svg has no name before its suffix", "such as result.svg"),
        (f"{FIT} http://a.test/b.csv", None, "http://a.test/b.csv is a URL", "download it"),
        (f"{REPORT} logits.csv --group query", None, "no column query, which --group names", "it has label, group"),
        (f"{EVALUATE} new.parquet", None, NO_LABEL_COLUMN, "--label COLUMN"),
        (
            f"{EVALUATE} logits.csv --unlabelled bad.parquet",
            ROWS.clear(),
            "has no rows",
            "--unlabelled must name the file",
        ),
        (f"{LABEL} logits.csv", None, "has no row without a label", "give rows to label"),
        (f"{LABEL} new.parquet --rows 301", None, "--rows is 301, and .* has 300 rows", "give a number from 1 to 300"),
        (
            f"{LABEL} bad.parquet",
            PROBABILITY_LISTS.drop("label").with_columns(x=[1]),
            "csv file cannot contain",
            "a .parquet file",
        ),
        (
            "thresholds --precision 0.9",
            None,
            "give the predictions once: --predictions FILE",
            "--run RUN --qrels QRELS",
        ),
        ("report --predictions rows.parquet --out page.html", None, "page.map.json exists", "give --force to replace"),
        (f"{EVALUATE} bad.parquet", change_row_7(ROWS, label=3), "is 3, not one of 0..2", "the labels are irrelevant"),
        (
            "apply --map judge.json --out new.csv --predictions bad.csv",
            change_row_7(TWO_LABELS, decision=2).drop("label"),
            "decision is 2, not one of 0..1",
            "the map knows no other labels: correct the row, or fit a new map",
        ),
        (
            f"{WATCH} bad.csv",
            SEPARATE_LOGITS.drop("label").clear(),
            "has no rows, so nothing was tested",
            "at least 20",
        ),
        (f"{WATCH} bad.csv", SEPARATE_LOGITS.drop("label").head(5), "bad.csv has 5 rows", "at least 20"),
        (f"{WATCH} new.parquet --cuts map.json", None, "map.json is not an output of `thresholds`", "again"),
        ("thresholds --precision 0.9 --run my.run", None, "a run needs relevance judgments", "give --run RUN --qrels"),
        (f"{SCORE} rows.parquet --qrels qrels.txt", None, "--qrels is for a run of TREC", "give --run RUN, or omit it"),
        (
            "sql --map map.json --dialect mysql",
            None,
            "the dialect is 'mysql'",
            "duckdb, postgres, postgresql, bigquery",
        ),
    ],
    FIT: [
        ("gone.csv", None, "gone.csv is missing", "check its name and its folder"),
        ("bad.txt", b"a\t1\n", "bad.txt: predictions are read as", r"\.parquet, \.csv, .*rename the file accordingly"),
        ("bad.parquet", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "git lfs pull"),
        ("bad.csv", b"a,b\n1,2\n1\n", "csv file .*Row #3: Expected 2 columns, got 1", WRITE_AGAIN),
        ("bad.jsonl", b'{"logits": [1, 2]}\n{"logits": [1, \n', "line 2 is not .*JSON", WRITE_AGAIN),
        ("bad.jsonl", b'{"a": 1, "\\u0061": 2}\n', "line 1 has an object with a repeated key", "keep one of the two"),
        ("bad.parquet", ROWS.clear(), "bad.parquet has no rows", "give a file with labelled rows"),
        (
            "bad.csv --drop-unlabelled",
            TWO_LABELS.with_columns(label=pl.lit(" ")),
            "no value in the column label",
            "with --label",
        ),
        (
            "bad.parquet",
            change_row_7(ROWS, logits=[0.0, np.nan, 1.0]),
            r"row 7 \(from 0\): logits 1 is nan",
            "must be finite",
        ),
        (
            "bad.parquet",
            change_row_7(ROWS, logits=[0.0]),
            "row 7 .*: logits has 1 numbers",
            "one number for each label",
        ),
        (
            "bad.parquet",
            change_row_7(PROBABILITY_LISTS, probabilities=[0.5, 0.6, 0.0]),
            "row 7 .* sum to 1.1;",
            "are these logits",
        ),
        (
            "bad.csv",
            PROBABILITY_LISTS.with_columns(probabilities=pl.lit("[a, b]")),
            "not a list of numbers",
            r"such as \[0.1, 0.9\]",
        ),
        ("bad.csv", SEPARATE_LOGITS.drop("logits_1"), "columns logits_0, logits_2;", "numbered 0, 1, ... without gaps"),
        (
            "bad.parquet",
            PROBABILITY_LISTS.with_columns(logits="probabilities"),
            "contains predictions twice",
            "drop one",
        ),
        ("bad.csv", CONFIDENCES.with_columns(confidence=95.0), "line 2: confidence is 95;", "give --percent"),
        (
            "bad.csv",
            TWO_LABELS.with_columns(confidence=pl.lit("high")),
            "is 'high', not a num",
            "--confidence-words 'high=.'",
        ),
        (
            "bad.csv --labels a,b,c",
            CONFIDENCES.with_columns(decision=pl.lit("d")),
            "decision is 'd'",
            "labels are a, b, c",
        ),
        ("bad.csv --labels ok,oK", rename_labels("OK", "Ok"), "'O[Kk]'", "the labels are ok, oK"),
        ("bad.csv", rename_labels("not ok", "ok"), "is 'not ok'", "--labels 'not ok,ok' .* .300 of the 300 rows"),
        ("bad.csv", rename_labels(-1, 1), "line [0-9]+: .* is '-1'", "--labels -1,1 "),
        (
            "bad.parquet",
            PROBABILITY_LISTS.with_columns(pl.col("label") + 1),
            "is 3, not one of 0..2",
            "--labels 1,2,3 ",
        ),
        ("bad.parquet", CONFIDENCES.with_columns(label=10**8), "a label is 100000000", "names that --labels lists"),
        ("bad.parquet", change_row_7(ROWS, label=None), "row 7 .*: label is missing", "with --drop-unlabelled"),
        ("bad.csv", TWO_LABELS.rename({"label": "gold"}), NO_LABEL_COLUMN, "name yours: --label gold"),
        ("rows.parquet --label gold", None, "no column gold, which --label names", "it has logits, label, group"),
        (
            "bad.csv",
            OTHER_COLUMN_NAMES,
            "pred, conf, y_true; it needs",
            "--decision pred --confidence conf --label y_true",
        ),
        (
            "bad.csv",
            TWO_LABELS.rename({"decision": "Decision", "confidence": "Confidence", "label": "LABEL"}),
            "Decision, Confidence, LABEL; it needs",
            "name yours: --decision Decision --confidence Confidence --label LABEL$",
        ),
        (
            "bad.csv",
            TWO_LABELS.with_columns(pl.col("confidence") * 10),
            "must lie in",
            "on a scale from 0 to 10, divide",
        ),
        ("gone.parqet", None, "gone.parqet is missing", "check its name"),
        (
            "bad.parquet",
            rename_labels(1, 2).with_columns(label=pl.col("label") == 2),
            "decision has 1, 2, and label has false, true",
            "number both from 0$",
        ),
        ("bad.csv --label label", TWO_LABELS.drop("decision"), "confidence, label; it needs logits", "--score COLUMN$"),
        ("confidences.csv --decision label", None, "label would be read twice", "name another column"),
        (
            "bad.csv --probability p --labels a,b,c",
            ONE_PROBABILITY,
            "one of two labels, but there are 3",
            "give one number",
        ),
        ("bad.csv --probability p --positive 2", ONE_PROBABILITY, "--positive is '2'", "the labels are 0, 1"),
        ("bad.csv --probability p --score s --border 0", ONE_PROBABILITY, "exclude each other", "give one of them"),
        ("bad.csv --score s", ONE_PROBABILITY, "--score needs --border", "--score s --border 0"),
        ("bad.csv --score s --border 0", ONE_PROBABILITY.with_columns(s=np.inf), "s is inf", "must be finite"),
        ("bad.csv --score s --border low", ONE_PROBABILITY, "--border is 'low'", "--border 0.5,1.5,2.5"),
        ("bad.csv --score s --border 2,1", GRADED, "--border is '2,1'", "in ascending order"),
        ("bad.csv --score s --border 1,2 --positive 1", GRADED, "--positive is for two labels", "omit --positive"),
        ("bad.csv --score s --border 1,2,3 --labels 0,1,2", GRADED, "has 3 borders, for 4 labels", "but the lowest"),
        (
            "bad.csv --score s",
            GRADED.with_columns(label=pl.col("label").replace_strict({0: "a", 1: "b", 2: "c"})),
            "has the labels a, b, c",
            "give them in ascending order: --labels LOWEST",
        ),
        ("bad.csv --score s --border 0", b"s;label\n1,234;0\n7;1\n", "line 2: .*1,234", "with decimal points"),
        ("confidences.csv --positive 1", None, "names the label of --probability or", "give one of these"),
        ("confidences.csv --confidence-words low", None, "has 'low'", "--confidence-words low=.3,medium=.6"),
        ("confidences.csv --confidence-words a=.3,A=.6", None, "is 'a=.3,A=.6'", "give each word once"),
        (
            "confidences.csv --confidence 'a\u200bb'",
            None,
            "--confidence has unprintable characters",
            "rename that column",
        ),
        *cases_for_each(
            "rows.parquet --labels {}", "one a,a a,,b '' 'a,b\nc'", "--labels is", "2 names or more on one line"
        ),
        (
            "bad.parquet",
            change_row_7(ROWS, label=-1),
            r"row 7 .*: label is -1, not one of 0\.\.2",
            "leave the cell empty",
        ),
        ("bad.parquet", change_row_7(ROWS, label=3), r"row 7 .*: label is 3, not one of 0\.\.2", "--labels"),
        ("rows.parquet --group query", None, "no column query, which --group names", "it has logits, label, group"),
        ("bad.parquet --group x", ROWS.with_columns(x=pl.lit([1])), "x, which contains lists", "of numbers or text"),
        ("bad.parquet --group group", change_row_7(ROWS, group=None), "row 7 .*: group is missing", "drop or fill"),
        ("bad.parquet", change_row_7(WEIGHTED, inverse_probability=0.0), "row 7 .*ability is 0.0", "must be above 0"),
        ("bad.parquet", change_row_7(WEIGHTED, inverse_probability=None), "row 7 .*ability is missing", "give 1 to a"),
        ("bad.parquet", ROWS.head(1), "1 labelled rows", "label more"),
        ("rows.parquet --hold-out 0.001", None, "a hold-out of 0.001 .* is less than one", "increase --hold-out"),
        (
            "rows.parquet --protocol paper --hold-out 0.2",
            None,
            "splits the rows itself",
            "omit --signals and --hold-out",
        ),
        (
            "bad.parquet --calibrator matrix",
            make_predictions(300, 60),
            "too long for 60 labels",
            "use sms or ts, which have no such limit",
        ),
        ("bad.parquet --calibrator vector", TINY_LOGITS, "a map cannot store the fit", "or use the calibrator ts"),
        ("rows.parquet --variant label_2d", None, "'label_2d', which needs the runner-up", "choose one of confidence"),
        ("confidences.csv --calibrator ts", None, "ts needs logits", "use uncal or spline"),
        (
            "bad.csv --calibrator uncal",
            CONFIDENCES.drop("confidence"),
            "uncal needs a confidence",
            "omit the calibrator",
        ),
        ("rows.parquet --variant auto", None, "the variant auto", "omit --variant"),
        ("rows.parquet --variant label_vector", None, "cannot contain the variant 'label_vector'", "mrp_pooled"),
        ("bad.parquet --variant mrp --signals x", ROWS.with_columns(x=ROW_NUMBER), "mrp does not read signals", "omit"),
        ("bad.csv --variant mrp", CONFIDENCES.drop("confidence"), "mrp needs a confidence", "omit --variant"),
        ("confidences.csv --calibrator sms", None, "sms needs logits", "use uncal or spline"),
        (
            "rows.parquet --signals length",
            None,
            "no column length, which --signals names",
            "it has logits, label, group",
        ),
        ("rows.parquet --signals label", None, "label holds the true labels and cannot be a signal", "omit it"),
        ("rows.parquet --signals group_rank", None, "need groups", "name the column of the groups"),
        ("bad.parquet --signals x", ROWS.with_columns(x=1), "x is the same in every row", "omit it"),
        ("bad.parquet --signals x", ROWS.with_columns(x=ROW_NUMBER * 1e8), "x is not within ±1e", "scale or shift it"),
        ("bad.parquet --signals x", ROWS.with_columns(x=ROW_NUMBER.cast(str) + "a"), "x has 300 values", "omit it"),
        ("rows.parquet --out rows.parquet", None, "is an input file", "write to another file"),
        ("rows.parquet --out confidences.csv/map.json", None, "not a folder that you may write to", "write elsewhere"),
    ],
    APPLY: [
        ("logits.csv --map confidences.csv", None, "confidences.csv is not a complete JSON file", "fit the map again"),
        ("confidences.csv", None, f"it needs logits .*{AS_IN_THE_FIT}", "name yours with --probabilities"),
        (
            "bad.csv",
            SEPARATE_LOGITS.drop("logits_2"),
            "2 logits in each row, but there are 3 labels",
            "give one number for each",
        ),
        ("bad.csv", CONTROL_CHARACTERS.encode(), r"Row #3: Expected 4 .*\\u001b", WRITE_AGAIN),
        ("bad.csv", FORGED_MESSAGE.encode(), r"has the columns x\\n?.*all is well .*\\u202e\\u001b", "it needs logits"),
        ("rows.parquet", None, "logits is large_list.*, which a .csv file cannot contain", "write a .parquet file"),
        ("logits.csv --out o.txt", None, "o.txt: predictions are written as", "rename the file accordingly"),
        (
            "bad.csv",
            SEPARATE_LOGITS.with_columns(route=1, reliability=0.5),
            "already has the column reliability, route",
            "drop or rename it",
        ),
        ("logits.csv --out logits.csv", None, "is an input file", "write to another file"),
        *cases_for_each("logits.csv --cut {}", "1.5 nan", "the cut is {}", r"in \[0, 1\]"),
        (
            "logits.csv --cut 0.5 --cuts bad.json",
            b"{}",
            "combined with a cut or a coverage",
            "omit the output or these",
        ),
        *(("logits.csv --cuts bad.json", json.dumps(content).encode(), *report) for content, *report in BAD_THRESHOLDS),
        *cases_for_each(
            "logits.csv --coverage {}", "1.01 -0.1 nan 70% 1e-999999999", "the coverage is '{}'", "such as 0.7"
        ),
    ],
    FIND_THRESHOLDS: [
        ("logits.csv", None, "give exactly one of these: a target accuracy", "the costs"),
        (
            "logits.csv --coverage 1 --target-accuracy 0.9",
            None,
            "give exactly one of these: a target accuracy",
            "the costs",
        ),
        *cases_for_each(
            "logits.csv --cost-error {} --cost-review 1", "0.0 -1.0 inf nan", "an error is {}", "give an error cost"
        ),
        ("logits.csv --cost-error 5", None, "of a review is None", "give an error cost"),
        ("logits.csv --cost-error 1e300 --cost-review 1", None, "an error is 1e.300", r"at most 1e\+30"),
        *cases_for_each(
            "logits.csv --target-accuracy {}", "0.0 1.0 -0.1 nan 95.0", "an accuracy of {}", "such as 0.95"
        ),
        *cases_for_each(
            "logits.csv --coverage '{}'", "0.0 1.1 -0.5 70%  nan 1e-9 .", "the coverage is '{}'", "such as 0.7"
        ),
        *cases_for_each(
            "logits.csv --coverage 1 --confidence-level {}", "0.0 1.0 nan", "the confidence is {}", "such as 0.95"
        ),
        ("logits.csv --coverage 1 --only-label exact", None, "--only-label needs", "--target-accuracy 0.95"),
        (
            "logits.csv --target-accuracy 0.9 --only-label none",
            None,
            "--only-label is 'none'",
            "labels are irrelevant, partial, exact",
        ),
        (
            "logits.csv --target-accuracy 0.9 --label none",
            None,
            "no column none, which --label names",
            "it has label, group",
        ),
        (
            "logits.csv --precision 0.9",
            None,
            "precision of a label is the accuracy of its decisions",
            "give --target-accuracy 0.9 --only-label LABEL instead .* omit --map",
        ),
        ("logits.csv --labels a,b", None, "--labels is not possible with a map", "omit --map"),
    ],
    GRADES: [
        ("bad.csv --labels 0,1,2", GRADED.filter(pl.col("label") < 2), "no row has a grade of at least 2", "omit"),
        ("bad.csv --labels 1,2", GRADED, "label is '0'", "the labels are 1, 2"),
        ("bad.csv --labels 0,1,2 --positive 1", GRADED, "exclude each other", "or --positive for one label"),
        ("bad.csv", GRADED.with_columns(label=pl.col("label") % 2), "name the label that counts", "--positive LABEL"),
        (
            "bad.csv --positive some",
            GRADED.with_columns(label=pl.Series(["none", "some"] * 150)),
            "looks like a missing value",
            "--labels none,some instead of --positive",
        ),
        (
            "bad.csv --positive a",
            GRADED.with_columns(label=pl.Series(["a", "b", "-1"] * 100)),
            "label is '-1'.* exactly two labels; label has a .100., b .100.",
            "--drop-unlabelled omits such rows",
        ),
        (
            "bad.csv",
            GRADED.with_columns(label=pl.col("label").replace_strict({0: "a", 1: "b", 2: "c"})),
            "name the grades in ascending order",
            "label has a, b, c",
        ),
        ("bad.csv", change_row_7(GRADED, label=-1), "line 9: label is '-1'", "leave the cell empty"),
    ],
    RUN: [
        ("gone.run", None, "gone.run is missing", "lines of query, Q0, document, rank, score, tag"),
        ("qrels.txt", None, "qrels.txt, line 1: there are 4 fields", "give a run of TREC, with lines of query, Q0"),
        ("bad.run", b"1 Q0 d1 1 0.5 t\n\n1 Q0 d2 2 high t\n", "line 3: score is 'high'", "must be a finite number"),
        ("bad.run", b"1 Q0 d1 1 nan t\n", "line 1: score is 'nan'", "must be a finite number"),
        (
            "bad.run",
            b"1 Q0 d1 1 0.5 t\n1 Q0 d1 2 0.4 t\n",
            "line 2: document 'd1' has another score for query '1' in an earlier line",
            "keep one of the lines",
        ),
        ("bad.run", b"1 Q0 \xff 1 0.5 t\n", "bad.run is not UTF-8 text", "give a run of TREC"),
        ("bad.run.gz", b"1 Q0 d1 1 0.5 t\n", "bad.run.gz is not a complete gzip file", WRITE_AGAIN),
        ("bad.run", b"q1 Q0 d1 1 0.5 t\n", "no judgment of a document of bad.run: .* query 'q1'", "give the judgments"),
        ("my.run --score score --border 1", None, r"grades 0 \(1\), 1 \(1\), 2 \(1\)", "such as --relevant-from 2"),
        ("my.run --relevant-from 3", None, "with --relevant-from 3, .* are of one kind", "above 0 and up to 2"),
        ("my.run --labels 2,1,0", None, "--labels is 2,1,0, but grades .* are in ascending order", "--labels 0,1,2,"),
        (
            "bad.run",
            RISING_RANKS,
            "bad.run: in 1 of 1 queries, the document of the first rank",
            "change the sign of th",
        ),
        (
            "bad.run",
            EXCHANGED_RANKS,
            "as if the two columns were exchanged: .* rank 2.5 and score 1;",
            "query, Q0, doc",
        ),
        ("my.run --unjudged 0", None, "--unjudged is '0'", "give omit or irrelevant"),
        ("my.run --predictions rows.parquet", None, "give the predictions once", "--run RUN --qrels QRELS"),
        ("my.run --out my.run --force", None, "is an input file", "write to another file"),
    ],
    QRELS: [
        (
            "my.run",
            None,
            "my.run, line 1: there are 6 fields",
            "give a file of judgments of TREC, with lines of query, it",
        ),
        ("bad.txt", b"1 0 d1 1.5\n", "line 1: grade is '1.5'", "must be a whole number"),
        ("bad.txt", b"1 0 d1 1\n1 0 d1 0\n", "line 2: document 'd1' has another grade", "keep one of the lines"),
        (
            "bad.txt",
            b"1 d1 0 1\n1 d2 0 0\n",
            "another grade .*; columns 2 and 3 seem to be exchanged",
            "query, iterati",
        ),
        (
            "bad.txt",
            b"1 1 d1 0\n1 0 d2 0\n",
            "documents of the run have the grade 0; the grade is column 4",
            "give judgm",
        ),
        ("bad.txt", b"1 0 d1 1\n", "documents of the run have the grade 1; give", "or --unjudged irrelevant to count"),
        ("bad.txt", b" \n", "bad.txt is empty", "give a file of judgments of TREC"),
    ],
    "flows.reliability": [
        ("", None, "Missing argument", "--help"),
        ("unknown", None, "no data set 'unknown' in params.yaml", "it has .*wands"),
        ("wands --calibrator platt", None, "unknown calibrator platt", "choose from uncal, ts"),
        ("wands", {"seedz": [1]}, "params.yaml has 1 mistake.*seedz", "correct or remove it"),
        ("wands", {"projection.knotz": 8}, r"projection\.knotz", "correct or remove it"),
        ("wands", {"engine": "ray"}, "engine: .* .found 'ray'", "'thread' or 'dask'"),
        ("wands", {"protocol.parts": [0.5, 0.25, 0.2]}, "the parts sum to 0.95", "not to 1"),
        ("wands", {"datasets.mine": OWN_FILE}, r"datasets\.mine", "`split` is missing"),
    ],
    CASCADE: [
        ("--cost a=1 --model 'a confidence=c'", CONFIDENCES, "a names no predictions", "--model 'a decision=COLUMN'"),
        ("--cost a=1 --model 'a colour=c'", CONFIDENCES, "the model a has colour", "use decision, confidence"),
        (
            "--cost a=1,people=9 --model 'a decision=decision'",
            CONFIDENCES,
            "costs are given for a, people",
            "people is no model, and people who decide the rest have the cost person",
        ),
        (
            "--cost a=1 --model 'a decision=decision' --id page,page",
            CONFIDENCES,
            "--id is 'page,page'",
            "each once: query,passage",
        ),
    ],
    "flows.refresh": [("nostage", None, "no stage 'nostage'", "wands"), ("train@wand", None, "no data set", "wands")],
    "tasks.train": [("wand", None, "train: no data set 'wand'", "wands"), ("../wands", None, "'../wands'", "wands")],
}
PIPELINE_COMMANDS = ("flows.", "tasks.")
# The library is also tested without the pipeline
CASES = [
    (f"{command} {rest}".strip(), *case)
    for command, cases in CASES_BY_COMMAND.items()
    for rest, *case in cases
    if find_spec("prefect") or not command.startswith(PIPELINE_COMMANDS)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Make a folder with the settings of a checkout and valid files."""
    folder = tmp_path_factory.mktemp("typed")
    for frame, name in ((ROWS, "rows.parquet"), (ROWS.drop("label"), "new.parquet"), (SEPARATE_LOGITS, "logits.csv")):
        write_frame(frame, folder / name)
    write_frame(CONFIDENCES, folder / "confidences.csv")
    for name in ("map.json", "page.map.json"):
        save_map(make_map(), folder / name)
    save_map(make_map(n_labels=2, names=None, confidence_only=True), folder / "judge.json")
    decisions = SeenColumn(column="decision", edges=(), counts=(200.0, 200.0, 100.0), effect=1.0)
    seen = Seen(groups=None, automatic=0.7, columns=(decisions,))
    save_map(make_map().model_copy(update={"seen": seen}), folder / "watched.json")
    (folder / "my.run").write_text("".join(f"1 Q0 d{grade} 1 {grade}.5 tag\n" for grade in range(4)))
    (folder / "qrels.txt").write_text("".join(f"1 0 d{grade} {grade}\n" for grade in range(3)))
    (folder / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    return folder


def write_bad_input(folder: Path, command: str, content: object) -> None:
    """Write the invalid content into `folder` or its params.yaml, and remove the files of the previous case."""
    for previous in folder.glob("bad.*"):
        previous.unlink()
    write_params(folder, content if isinstance(content, dict) else {})
    for name in command.split():
        if not name.startswith("bad."):
            continue
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            write_frame(content, folder / name)


@pytest.mark.parametrize(("command", "content", "cause", "remedy"), CASES)
def test_invalid_input_is_reported_with_cause_and_remedy_and_writes_nothing(
    command, content, cause, remedy, folder, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    write_bad_input(folder, command, content)
    times_before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    arguments = shlex.split(command)
    module = arguments.pop(0) if command.startswith(PIPELINE_COMMANDS) else "relmap.cli"
    monkeypatch.setattr("sys.argv", [module, *arguments])
    with pytest.raises(SystemExit) as exit_info:
        runpy.run_path(str(ROOT / module.replace(".", "/")) + ".py", run_name="__main__")

    status = exit_info.value.code
    printed = "".join(capsys.readouterr())
    message = status if isinstance(status, str) else re.sub(r"[\s│╭╮╰╯─]+", " ", printed)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == times_before
    # Usage errors (status 2) are printed in a panel, and errors of settings have a line for each mistake
    assert status == 2 or isinstance(content, dict) or message.isprintable()
    assert "Traceback" not in printed
    assert re.search(cause, message, re.DOTALL), message
    assert re.search(remedy, message, re.DOTALL), message


CHECKED_BEFORE_READING = "is missing|does not exist|are read as|written as|no column|it needs|is an input file|a folder"
CHECKED_BEFORE_READING += "|must end in"
SLOW_IMPORTS = (
    "torch sklearn pandas scipy.special scipy.stats lightgbm altair vl_convert great_expectations prefect dvc"
)
PRINT_REJECTED_COMMANDS = """
import shlex, sys
from relmap import cli
slow_imports = {*sys.argv[1].split()}
for command in sys.argv[2:]:
    try:
        cli.app(shlex.split(command), standalone_mode=False)
    except ValueError:
        print(command)
    imported = slow_imports & {*sys.modules}
    assert not imported, (command, imported)
"""


def test_errors_found_before_reading_are_reported_without_slow_imports(folder):
    """Imports are checked in place of seconds, which depend on the load of the machine."""
    commands = []
    for command, content, cause, _ in CASES:
        is_checked_early = content is None and re.search(CHECKED_BEFORE_READING, cause)
        if is_checked_early and not command.startswith(PIPELINE_COMMANDS):
            commands.append(command)
    arguments = [sys.executable, "-c", PRINT_REJECTED_COMMANDS, SLOW_IMPORTS, *commands]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    completed = subprocess.run(arguments, cwd=folder, env=environment, check=False, capture_output=True, text=True)

    assert completed.stdout.splitlines() == commands, completed.stderr
