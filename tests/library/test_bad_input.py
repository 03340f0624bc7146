"""What a person types, or what their file holds, that cannot be: told in a sentence with its cause and its remedy."""

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
from maps import confidence_only, document, predictions, write

from relmap.maps.map_file import save_map
from tests.project_copy import ROOT, write_params

FIT, REPORT = (f"{name} --predictions" for name in ("fit --out new.json", "report --out new.html"))
SCORE = "thresholds --score length --positive 1 --precision 0.9 --predictions"
APPLY, LABEL = (f"{name} --map map.json --out new.csv --predictions" for name in ("apply", "label --rows 5"))
JUDGE, CUT = (f"{name} --map map.json --out new.json --predictions" for name in ("evaluate", "thresholds"))

ROWS, SAID, TWO = predictions(300), confidence_only(300), confidence_only(300, 2)
SPLIT = ROWS.select("label", "group", *(pl.col("logits").list.get(k).alias(f"logits_{k}") for k in range(3)))
LISTS = ROWS.select("label", probabilities=pl.lit([0.2, 0.3, 0.5]))
OF_ONE = TWO.select("label", p=0.4, s=1.5)
OTHERS = TWO.rename({"decision": "pred", "confidence": "conf", "label": "y_true"})
SMALL, DRAWN = ROWS.with_columns(pl.col("logits") * 1e-300), ROWS.with_columns(inverse_probability=1.0)
NUMBER = pl.int_range(300)
CUTS = {"map_fingerprint": document().fingerprint, "overall": {"cut": None}, "labels": []}
BAD_CUTS = (  # that apply is to take
    (CUTS, "bad.json has no threshold", "a lower accuracy or more rows"),
    (CUTS | {"map_fingerprint": "0"}, "the thresholds of another map", "run `thresholds` again"),
    (
        CUTS | {"labels": [{"label": 3, "cut": 0.5}]},
        r"has the labels \[3\]; the labels of the map are 0 to 2",
        "run `thresholds` again",
    ),
    (CUTS | {"overall": {"cut": 1.5}}, "is not an output of `thresholds` .overall.cut", "run `thresholds` again"),
)
STEERS = 'logits_0,logits_1,logits_2,"x\n\u202e"\n1,2,3,4\n\x1b]0;mine\x07,\x9b2J\n'
CLAIMS = '"x\nrelmap: all is well \u202e\x1b[2J"\n1\n'
OWN_FILE = {"reader": "files", "source": "files", "path": "mine.csv"}


def row_7(of: pl.DataFrame, **values: object) -> pl.DataFrame:
    """The frame with other values in that row."""
    return of.with_columns(**{k: pl.when(NUMBER == 7).then(v).otherwise(k) for k, v in values.items()})


def names(zero: object, one: object) -> pl.DataFrame:
    return TWO.with_columns(pl.col("decision", "label").replace_strict({0: zero, 1: one}))


def each(typed: str, given: str, cause: str, remedy: str) -> list[tuple[str, None, str, str]]:
    """A case for each word that is given."""
    return [(typed.format(word), None, cause.format(word), remedy) for word in given.split(" ")]


ANEW, NO_TRUTH, LIKE_FIT = (
    "write the predictions again",
    "no column label, which must contain the true label",
    "as the rows had",
)
TYPED = {  # the command -> what is typed behind it, what the file `bad` holds or params.yaml has, cause, remedy
    "": [
        ("fitt --out a", None, "No such command 'fitt'", "Did you mean 'fit'"),
        ("fit --predictons a.csv", None, "No such option: --predictons", "Possible options: --predictions"),
        ("sql --map gone.json", None, "gone.json does not exist", "relmap fit` writes a map"),
        (f"{REPORT} rows.parquet --out r.pdf", None, "r.pdf must end in", ".html"),
        (f"{REPORT} rows.parquet --out .html", None, ".html has no name before its suffix", "such as result.html"),
        (f"{SCORE} rows.parquet --figure .svg", None, ".svg has no name before its suffix", "such as result.svg"),
        (f"{FIT} http://a.test/b.csv", None, "http://a.test/b.csv is a URL", "download it"),
        (f"{REPORT} split.csv --group query", None, "no column query, which must contain", "it has label, group"),
        (f"{JUDGE} new.parquet", None, NO_TRUTH, "--label COLUMN"),
        (f"{JUDGE} split.csv --unlabelled bad.parquet", ROWS.clear(), "has no rows", "--unlabelled must name the file"),
        (f"{LABEL} split.csv", None, "has the column label already", "give rows without labels"),
        (f"{LABEL} new.parquet --rows 301", None, "--rows is 301, and .* has 300 rows", "give a number from 1 to 300"),
        (f"{LABEL} bad.parquet", LISTS.drop("label").with_columns(x=[1]), "csv file cannot contain", "a .parquet file"),
        (
            "sql --map map.json --dialect mysql",
            None,
            "the dialect is 'mysql'",
            "duckdb, postgres, postgresql, bigquery",
        ),
    ],
    FIT: [
        ("gone.csv", None, "gone.csv is missing", ANEW),
        ("bad.txt", b"a\t1\n", "bad.txt: predictions are read as", r"\.parquet, \.csv, .*rename the file accordingly"),
        ("bad.parquet", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "git lfs pull"),
        ("bad.csv", b"a,b\n1,2\n1\n", "csv file .*Row #3: Expected 2 columns, got 1", ANEW),
        ("bad.jsonl", b'{"a": 1, "\\u0061": 2}\n', "line 1 has an object with a repeated key", "keep one of the two"),
        ("bad.parquet", ROWS.clear(), "bad.parquet has no rows", "give a file with labelled rows"),
        ("bad.csv --drop-unlabelled", TWO.with_columns(label=pl.lit(" ")), "no rows with a label", "with --label"),
        ("bad.parquet", row_7(ROWS, logits=[0.0, np.nan, 1.0]), r"row 7 \(from 0\): logits 1 is nan", "must be finite"),
        ("bad.parquet", row_7(ROWS, logits=[0.0]), "row 7 .*: logits has 1 numbers", "one for each label"),
        ("bad.parquet", row_7(LISTS, probabilities=[0.5, 0.6, 0.0]), "row 7 .* sum to 1.1;", "are these logits"),
        (
            "bad.csv",
            LISTS.with_columns(probabilities=pl.lit("[a, b]")),
            "not a list of numbers",
            r"such as \[0.1, 0.9\]",
        ),
        ("bad.csv", SPLIT.drop("logits_1"), "columns logits_0, logits_2;", "numbered 0, 1, ... without gaps"),
        ("bad.parquet", LISTS.with_columns(logits="probabilities"), "contains predictions twice", "drop one"),
        ("bad.csv", SAID.with_columns(confidence=95.0), "line 2: confidence is 95.0", "give --percent"),
        ("bad.csv", TWO.with_columns(confidence=pl.lit("high")), "is 'high', not a num", "--confidence-words 'high=.'"),
        ("bad.csv --labels a,b,c", SAID.with_columns(decision=pl.lit("d")), "decision is 'd'", "labels are a, b, c"),
        ("bad.csv --labels ok,oK", names("OK", "Ok"), "'O[Kk]'", "the labels are ok, oK"),
        ("bad.csv", names("not ok", "ok"), "is 'not ok'", "--labels 'not ok,ok' .* .300 of the 300 rows"),
        ("bad.csv", names(-1, 1), "line [0-9]+: .* is '-1'", "--labels -1,1 "),
        ("bad.parquet", LISTS.with_columns(pl.col("label") + 1), "is 3, not one of 0..2", "--labels 1,2,3 "),
        ("bad.parquet", SAID.with_columns(label=10**8), "a label is 100000000", "names that --labels gives"),
        ("bad.parquet", row_7(ROWS, label=None), "row 7 .*: label is missing", "with --drop-unlabelled"),
        ("bad.csv", TWO.rename({"label": "gold"}), NO_TRUTH, "name yours: --label gold"),
        ("rows.parquet --label gold", None, "no column gold, which --label names", "it has logits, label, group"),
        ("bad.csv", OTHERS, "pred, conf, y_true; it needs", "--decision pred --confidence-column conf --label y_true"),
        ("bad.csv --label label", TWO.drop("decision"), "confidence, label; it needs logits", "--score COLUMN$"),
        ("said.csv --decision label", None, "label would be read twice", "name another column"),
        ("bad.csv --probability p --labels a,b,c", OF_ONE, "one of two labels, but there are 3", "give one number"),
        ("bad.csv --probability p --positive 2", OF_ONE, "--positive is '2'", "the labels are 0, 1"),
        ("bad.csv --probability p --score s --border 0", OF_ONE, "exclude each other", "give one of them"),
        ("bad.csv --score s", OF_ONE, "--score needs --border", "--score s --border 0"),
        ("bad.csv --score s --border 0", OF_ONE.with_columns(s=np.inf), "s is inf", "must be finite"),
        ("bad.csv --score s --border 0", b"s;label\n1,234;0\n7;1\n", "line 2: .*1,234", "with decimal points"),
        ("said.csv --positive 1", None, "names the label of --probability or", "give one of these"),
        ("said.csv --confidence-words low", None, "has 'low'", "--confidence-words low=.3,medium=.6"),
        ("said.csv --confidence-words a=.3,A=.6", None, "is 'a=.3,A=.6'", "give each word once"),
        ("said.csv --confidence-column 'a\u200bb'", None, "column has unprintable characters", "rename that column"),
        *each("rows.parquet --labels {}", "one a,a a,,b '' 'a,b\nc'", "--labels is", "2 names or more on one line"),
        ("rows.parquet --group query", None, "no column query, .* contain the groups", "it has logits, label, group"),
        ("bad.parquet --group x", ROWS.with_columns(x=pl.lit([1])), "x, which contains lists", "of numbers or text"),
        ("bad.parquet --group group", row_7(ROWS, group=None), "row 7 .*: group is missing", "drop or fill"),
        ("bad.parquet --group group", ROWS.with_columns(group=1), "belong to one group", "omit the groups"),
        ("bad.parquet", row_7(DRAWN, inverse_probability=0.0), "row 7 .*ability is 0.0", "must be above 0"),
        ("bad.parquet", ROWS.head(59), "59 labelled rows", "label more"),
        ("bad.parquet", ROWS.with_columns(label=1), "every label is 1", "label more"),
        ("rows.parquet --hold-out 0.001", None, "a hold-out of 0.001 .* is less than one", "increase --hold-out"),
        ("rows.parquet --protocol paper --hold-out 0.2", None, "has its own split", "omit --signals and --hold-out"),
        ("rows.parquet --target 0", None, "--target is 0", "give a log loss of 1e-05 or more"),
        (
            "bad.parquet --calibrator matrix",
            predictions(300, 60),
            "too long for 60 labels",
            "use ts, which has no such limit",
        ),
        ("bad.parquet --calibrator vector", SMALL, "a map cannot store the fit", "or use the calibrator ts"),
        ("rows.parquet --variant label_2d", None, "'label_2d', which needs the runner-up", "choose one of auto"),
        ("said.csv --calibrator ts", None, "ts needs logits", "there are uncal and spline"),
        ("bad.csv --calibrator uncal", SAID.drop("confidence"), "uncal needs a confidence", "omit the calibrator"),
        ("rows.parquet --variant label_signals", None, "needs signals", "provide them, or use the variant auto"),
        ("said.csv --variant label_vector", None, "needs logits or probabilities", "or use the variant auto"),
        ("rows.parquet --signals length", None, "no column length, which signals", "it has logits, label, group"),
        ("rows.parquet --signals label", None, "label holds the true labels and cannot be a signal", "omit it"),
        ("rows.parquet --signals group_rank", None, "need groups", "name the column of the groups"),
        ("bad.parquet --signals x", ROWS.with_columns(x=1), "x is the same in every row", "omit it"),
        ("bad.parquet --signals x", ROWS.with_columns(x=NUMBER * 1e8), "x is not within ±1e", "scale or shift it"),
        ("bad.parquet --signals x", ROWS.with_columns(x=NUMBER.cast(str) + "a"), "x has 300 values", "omit it"),
        ("rows.parquet --out rows.parquet", None, "is an input file", "write to another file"),
        ("rows.parquet --out said.csv/map.json", None, "not a folder that you may write to", "write elsewhere"),
    ],
    APPLY: [
        ("split.csv --map said.csv", None, "said.csv is not a complete JSON file", "fit the map again"),
        ("said.csv", None, f"it needs logits .*{LIKE_FIT}", "name yours with --probabilities"),
        ("bad.csv", SPLIT.drop("logits_2"), "2 logits in each row, but there are 3 labels", "give one number for each"),
        ("bad.csv", STEERS.encode(), r"Row #3: Expected 4 .*\\u001b", ANEW),
        ("bad.csv", CLAIMS.encode(), r"has the columns x\\n?.*all is well .*\\u202e\\u001b", "it needs logits"),
        ("rows.parquet", None, "logits is large_list.*, which a .csv file cannot contain", "write a .parquet file"),
        ("split.csv --out o.txt", None, "o.txt: predictions are written as", "rename the file accordingly"),
        ("bad.csv", SPLIT.with_columns(route=1, reliability=0.5), "columns? reliability, route already", "drop it or"),
        ("split.csv --out split.csv", None, "is an input file", "write to another file"),
        *each("split.csv --cut {}", "1.5 nan", "the cut is {}", r"in \[0, 1\]"),
        ("split.csv --cut 0.5 --cuts bad.json", b"{}", "or a cut or a coverage", "not both"),
        *(("split.csv --cuts bad.json", json.dumps(bad).encode(), *told) for bad, *told in BAD_CUTS),
        *each("split.csv --coverage {}", "1.01 -0.1 nan 70% 1e-999999999", "the coverage is '{}'", "such as 0.7"),
    ],
    CUT: [
        ("split.csv", None, "give a target", "the costs"),
        ("split.csv --coverage 1 --target-accuracy 0.9", None, "give a target", "the costs"),
        *each("split.csv --cost-error {} --cost-review 1", "0.0 -1.0 inf nan", "an error is {}", "give both"),
        ("split.csv --cost-error 5", None, "of a review is None", "give both"),
        ("split.csv --cost-error 1e300 --cost-review 1", None, "an error is 1e.300", r"1e\+30 at most"),
        *each("split.csv --target-accuracy {}", "0.0 1.0 -0.1 nan 95.0", "an accuracy of {}", "such as 0.95"),
        *each("split.csv --coverage '{}'", "0.0 1.1 -0.5 70%  nan 1e-9 .", "the coverage is '{}'", "such as 0.7"),
        *each("split.csv --coverage 1 --confidence {}", "0.0 1.0 nan", "a confidence of {}", "such as 0.95"),
    ],
    "flows.reliability": [
        ("", None, "Missing argument", "--help"),
        ("unknown", None, "no data set 'unknown' in params.yaml", "it has .*wands"),
        ("wands --calibrator platt", None, "no calibrator platt", "there are uncal, ts"),
        ("wands", {"seedz": [1]}, "params.yaml has 1 mistake.*seedz", "correct or remove it"),
        ("wands", {"projection.knotz": 8}, r"projection\.knotz", "correct or remove it"),
        ("wands", {"engine": "ray"}, "engine: .* .found 'ray'", "'thread' or 'dask'"),
        ("wands", {"protocol.parts": [0.5, 0.25, 0.2]}, "the parts sum to 0.95", "not to 1"),
        ("wands", {"datasets.mine": OWN_FILE}, r"datasets\.mine", "`split` is missing"),
    ],
    "flows.refresh": [("nostage", None, "no stage 'nostage'", "wands"), ("train@wand", None, "no data set", "wands")],
    "tasks.train": [("wand", None, "train: no data set 'wand'", "wands"), ("../wands", None, "'../wands'", "wands")],
}
OF_PIPELINE = ("flows.", "tasks.")
CASES = [
    (f"{command} {rest}".strip(), *case)
    for command, cases in TYPED.items()
    for rest, *case in cases
    if not command.startswith(OF_PIPELINE) or find_spec("prefect")  # the library is tested without the pipeline too
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Settings of a checkout, and files that are as they should be."""
    place = tmp_path_factory.mktemp("typed")
    for frame, name in ((ROWS, "rows.parquet"), (ROWS.drop("label"), "new.parquet"), (SPLIT, "split.csv")):
        write(frame, place / name)
    write(SAID, place / "said.csv")
    save_map(document(), place / "map.json")
    (place / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    return place


def spoil(folder: Path, typed: str, content: object) -> None:
    """Put what is bad into `folder` or its params.yaml, in place of what was bad before."""
    for bad in folder.glob("bad.*"):
        bad.unlink()
    write_params(folder, content if isinstance(content, dict) else {})
    for bad in (word for word in typed.split() if word.startswith("bad.")):
        (folder / bad).write_bytes(content) if isinstance(content, bytes) else write(content, folder / bad)


@pytest.mark.parametrize(("typed", "content", "cause", "remedy"), CASES)
def test_what_cannot_be_is_told_with_its_cause_and_remedy_and_nothing_is_written(
    typed, content, cause, remedy, folder, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    spoil(folder, typed, content)
    before, words = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}, shlex.split(typed)
    module = words.pop(0) if typed.startswith(OF_PIPELINE) else "relmap.cli"
    monkeypatch.setattr("sys.argv", [module, *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / module.replace(".", "/")) + ".py", run_name="__main__")
    status, printed = ended.value.code, "".join(capsys.readouterr())
    said = status if isinstance(status, str) else re.sub(r"[\s│╭╮╰╯─]+", " ", printed)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert status == 2 or said.isprintable() or isinstance(content, dict)  # which has a line for each mistake
    assert "Traceback" not in printed
    assert re.search(cause, said, re.DOTALL), said
    assert re.search(remedy, said, re.DOTALL), said


SEEN_AT_ONCE = "is missing|does not exist|are read as|written as|no column|it needs|is an input file|a folder"
SEEN_AT_ONCE += "|must end in|an ending|an address"
HEAVY = "torch sklearn pandas scipy.special scipy.stats lightgbm altair vl_convert great_expectations prefect dvc"
TYPE = """
import shlex, sys
from relmap import cli as rerank
for typed in sys.argv[2:]:
    try:
        rerank.app(shlex.split(typed), standalone_mode=False)
    except ValueError:
        print(typed)
    assert not {*sys.argv[1].split()} & {*sys.modules}, (typed, {*sys.argv[1].split()} & {*sys.modules})
"""


def test_what_can_be_seen_before_a_row_is_read_is_told_before_anything_slow_is_imported(folder):
    """The interpreter tells what it has imported: seconds would tell how busy the machine is."""
    typed = [each for each, content, cause, _ in CASES if content is None and re.search(SEEN_AT_ONCE, cause)]
    typed = [each for each in typed if not each.startswith(OF_PIPELINE)]
    command = [sys.executable, "-c", TYPE, HEAVY, *typed]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.stdout.splitlines() == typed, done.stderr
