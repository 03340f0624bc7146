"""`python -m flows.rerank`: from files to a map, scored rows, a verdict, a cut and SQL; and what is wrong, in words."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import duckdb
import maps
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from flows import rerank
from flows.console import show
from tasks.protocol.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: object) -> object:
    """A command as it is typed, in this process."""
    return rerank.app([str(one) for one in arguments], standalone_mode=False)


def fit(frame: pl.DataFrame, folder: Path, *options: object, name: str = "p.parquet") -> dict:
    """What `fit` writes to `map.json` of a frame that it reads in the format of `name`."""
    run("fit", "--predictions", maps.write(frame, folder / name), *options, "--out", folder / "map.json")
    return json.loads((folder / "map.json").read_text())


def typed(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    """A command as it is typed, in a process of its own."""
    command, path = [sys.executable, *map(str, arguments)], {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(command, cwd=cwd, env=path, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Labelled predictions and a map that was fitted on some of them."""
    place = tmp_path_factory.mktemp("rerank")
    for seed, name in enumerate(("validation", "test", "new")):
        maps.predictions(3000, shift=2.0, seed=seed).write_parquet(place / f"{name}.parquet")
        maps.stated(3000, shift=2.0, seed=seed).write_csv(place / f"{name}.csv")
    run("fit", "--predictions", place / "validation.parquet", "--group", "group", "--out", place / "map.json")
    run("fit", "--predictions", place / "validation.csv", "--out", place / "stated.json")
    return place


TOO_SMALL = r"beyond what a map holds .*take the calibrator ts"
LINES = ("bad,fair,good\nworse", "bad\r,fair,good", 'bad,"fa\nir",good')  # names of several lines
HEAVY = {"torch", "prefect", "great_expectations", "sklearn", "dvc", "pandas", "scipy.stats", "lightgbm"}
READS = """
from flows import rerank
folder, out = Path(sys.argv[1]), Path(sys.argv[2])
rerank.apply(folder / "map.json", folder / "new.parquet", out / "scored.parquet")
rerank.thresholds(folder / "map.json", folder / "test.parquet", 0.8, out=out / "cut.json")
rerank.evaluate(folder / "map.json", folder / "test.parquet", out=out / "evaluation.json")
rerank.sql(folder / "map.json")
"""


@pytest.mark.parametrize(
    ("code", "unknown"), [(READS, HEAVY), ("import tasks.maps.learn", HEAVY & {"prefect", "great_expectations", "dvc"})]
)
def test_no_command_imports_an_orchestrator_and_what_reads_a_map_no_torch(code, unknown, folder, tmp_path):
    """The interpreter tells what it has imported once everything has run."""
    code = f"import sys; from pathlib import Path\n{code}\nprint(sorted({unknown!r} & set(sys.modules)))"
    assert typed("-c", code, folder, tmp_path).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("command", "out", "told"),
    [
        (("fit", "--predictions", "validation.csv"), "validation.csv", "a file that is read"),
        (("evaluate", "--map", "map.json", "--predictions", "test.parquet"), "map.json", "a file that is read"),
        (("evaluate", "--map", "map.json", "--predictions", "test.parquet"), "test.parquet", "a file that is read"),
        (("apply", "--map", "map.json", "--predictions", "new.parquet"), ".", "is a folder"),
        (("fit", "--predictions", "validation.csv"), "test.csv/map.json", "no folder that you may write to"),
    ],
)
def test_nothing_that_is_read_is_overwritten(folder, monkeypatch, command, out, told):
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(BadInput, match=told):
        run(*command, "--out", out)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ({}, ("--group", "label"), "--group names"),
        ({}, ("--group", "logits"), "--group names"),
        ({"place": pl.col("logits")}, ("--group", "place"), "holds lists"),
        ({"gr\u200bup": pl.lit("one")}, ("--group", "gr\u200bup"), "--group names"),
        *(({"logits": pl.col("logits") * 1e-300}, ("--calibrator", name), TOO_SMALL) for name in ("vector", "matrix")),
        *(({}, ("--labels", names), "--labels is") for names in ("one", "a,a", "a,,b", "", *LINES)),
    ],
)
def test_what_fit_cannot_take_is_told_in_a_sentence_and_no_map_is_written(columns, options, told, tmp_path):
    with pytest.raises(BadInput, match=told):
        fit(maps.predictions(600).with_columns(**columns), tmp_path, *options)
    assert not (tmp_path / "map.json").exists()


def test_a_map_that_was_fitted_by_group_says_where_a_file_has_none(folder, tmp_path, capsys):
    pl.read_parquet(folder / "test.parquet").drop("group").write_parquet(tmp_path / "test.parquet")
    run("thresholds", "--map", folder / "map.json", "--predictions", tmp_path / "test.parquet", "--coverage", "0.5")
    assert "taken as independent" in capsys.readouterr().err


IDS = {"decision": [0, 10**8] * 50, "confidence": [0.5] * 100, "label": [0, 10**8] * 50}
NO_ROWS = {"logits_0": [], "logits_1": [], "label": []}


@pytest.mark.parametrize(("columns", "told"), [(IDS, "a label is 100000000"), (NO_ROWS, "no rows")])
def test_labels_that_are_ids_and_files_without_rows_are_refused_at_once(columns, told, tmp_path):
    with pytest.raises(BadInput, match=told):
        fit(pl.DataFrame(columns), tmp_path)


def test_many_labels_are_fitted_without_matrix_scaling(tmp_path, capsys):
    made = maps.predictions(600, 60)
    fit(made, tmp_path)
    assert "matrix" not in capsys.readouterr().err
    with pytest.raises(BadInput, match="takes too long for 60 labels"):
        fit(made, tmp_path, "--calibrator", "matrix")


def test_labels_that_are_true_and_false_are_one_and_zero(tmp_path):
    made = maps.predictions(900, 2)
    numbers, truth = (fit(made.cast({"label": kind}), tmp_path) for kind in (pl.Int64, pl.Boolean))
    assert numbers["projection"] == truth["projection"]


def test_probabilities_of_two_digits_are_read(tmp_path):
    made = maps.predictions(900, 5)
    rounded = np.round(softmax(np.array(made["logits"].to_list()), axis=1), 2)
    assert fit(made.select("label", probabilities=pl.Series(rounded.tolist())), tmp_path)["n_labels"] == 5


def test_a_certain_confidence_is_not_left_to_a_shift_of_the_logit(folder, tmp_path):
    """1.0 has an infinite logit, which no shift or line can move."""
    document = json.loads((folder / "stated.json").read_text())
    assert {one["variant"] for one in document["choice"]["candidates"]} == {"confidence", "shared_1d", "mrp"}
    scored = tmp_path / "scored.csv"
    run("apply", "--map", folder / "stated.json", "--predictions", folder / "new.csv", "--out", scored)
    certain = pl.read_csv(scored).filter(pl.col("confidence") == 1)
    assert certain["reliability"].max() < 1


def test_fit_says_what_to_deploy_and_why(tmp_path, capsys):
    written = fit(maps.predictions(3000, shift=2.0), tmp_path, "--labels", "bad,fair,good")
    told = capsys.readouterr().err
    assert told.startswith("Recommendation: ")
    assert "standard error" in told
    assert "100 rows" in told
    assert written["label_names"] == ["bad", "fair", "good"]


@pytest.mark.parametrize(("map_file", "new"), [("map.json", "new.parquet"), ("stated.json", "new.csv")])
def test_apply_adds_its_columns_touches_no_other_and_the_sql_of_the_map_gives_the_same(
    folder, map_file, new, tmp_path, capsys
):
    out = tmp_path / f"scored{Path(new).suffix}"
    run("apply", "--map", folder / map_file, "--predictions", folder / new, "--out", out, "--coverage", "0.7")
    read = pl.read_parquet if new.endswith("parquet") else pl.read_csv
    before, after = read(folder / new), read(out)
    assert after.columns[: before.width] == before.columns
    assert after.select(before.columns).equals(before)
    assert {"decision", "reliability", "review_rank", "route"} <= set(after.columns)
    assert (after["route"] == "automatic").sum() == 2100
    assert sorted(after["review_rank"].to_list()) == list(range(1, 3001))
    run("sql", "--map", folder / map_file)
    # a stated confidence that no calibrator moved is the calibrated one
    again = computed(capsys.readouterr().out, "decision, confidence", out)
    np.testing.assert_allclose(again, after["reliability"], rtol=0, atol=1e-12)


def computed(expression: str, columns: str, table: Path) -> np.ndarray:
    """What DuckDB makes of an expression of `columns` of a file, row by row."""
    return np.array(
        [row[0] for row in duckdb.sql(f"select {expression} from (select {columns} from '{table}')").fetchall()]
    )


@pytest.mark.parametrize(("map_file", "test"), [("map.json", "test.parquet"), ("stated.json", "test.csv")])
def test_evaluate_gives_a_verdict_in_words_and_the_metrics_as_json(folder, map_file, test, capsys):
    run("evaluate", "--map", folder / map_file, "--predictions", folder / test)
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["drift"]
    assert "Use the reliability: " in printed.err
    assert ("Rows of one group go together" in printed.err) == (map_file == "map.json")  # which was fitted by group
    assert "map still holds" in printed.err


def test_rows_that_the_map_was_fitted_on_are_left_out(folder, capsys):
    run("evaluate", "--map", folder / "map.json", "--predictions", folder / "validation.parquet")
    printed = capsys.readouterr()
    assert "1,000 rows that no fit has seen" in printed.err
    assert json.loads(printed.out)["rows"] == 1000
    assert json.loads(printed.out)["drift"] is None
    assert "later rows can tell" in printed.err
    asked = json.loads((folder / "map.json").read_text())["choice"]["asked"]
    assert ("The choice of the variant has seen 1,000 of them" in printed.err) == (asked == "auto")


def test_a_cut_with_its_guarantee_is_what_apply_takes(folder, capsys, tmp_path):
    run("thresholds", "--map", folder / "map.json", "--predictions", folder / "test.parquet", "--target-accuracy", 0.8,
        "--out", tmp_path / "cut.json")  # fmt: skip
    assert "80%" in capsys.readouterr().err
    cut = json.loads((tmp_path / "cut.json").read_text())["overall"]["cut"]
    run("apply", "--map", folder / "map.json", "--predictions", folder / "new.parquet", "--out",
        tmp_path / "scored.parquet", "--cut", cut)  # fmt: skip
    scored = pl.read_parquet(tmp_path / "scored.parquet")
    assert ((scored["reliability"] >= cut) == (scored["route"] == "automatic")).all()
    kept = scored.filter(pl.col("route") == "automatic")
    assert (kept["decision"] == kept["label"]).mean() > 0.8


def test_the_guarantee_takes_one_row_of_each_group(folder, capsys):
    run("thresholds", "--map", folder / "map.json", "--predictions", folder / "test.parquet", "--coverage", "0.5",
        "--group", "group")  # fmt: skip
    printed = capsys.readouterr()
    assert "300 rows" in printed.err
    assert json.loads(printed.out)


def test_the_map_has_the_date_of_the_source_date_epoch(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    one, two = (fit(maps.stated(900), tmp_path, name="p.csv") for _ in range(2))
    assert json.dumps(one) == json.dumps(two)
    assert one["source"]["at"] == "1970-01-02T00:00:00+00:00"


STEERS = 'logits_0,logits_1,logits_2,"x\n\u202e"\n1,2,3,4\n\x1b]0;mine\x07,\x9b2J\n'
CLAIMS = '"x\nrerank: all is well \u202e\x1b[2J"\n1\n'


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, r"rerank: new\.csv.*\n"), (STEERS, r".*\\u001b.*\n"), (CLAIMS, r".*\\u001b.*\n")],
)
def test_a_mistake_is_one_line_without_a_traceback_that_cannot_steer_the_terminal(content, told, folder, tmp_path):
    if content is not None:
        (tmp_path / "new.csv").write_text(content)
    before = list(tmp_path.iterdir())
    files = "--map", folder / "map.json", "--predictions", "new.csv", "--out", "out.csv"
    refused = typed("-m", "flows.rerank", "apply", *files, cwd=tmp_path)
    assert refused.returncode == 1
    assert re.fullmatch(told, refused.stderr)
    assert refused.stderr.removesuffix("\n").isprintable()
    assert list(tmp_path.iterdir()) == before


def test_json_that_is_printed_is_printable_and_means_the_same(capsys):
    content = {"a": ["\u202e\x1b[2J\x9b", "\n", "ü", "完", "\U000e0001"], "b": {"c": 1.5}}
    show(content, None)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == content


def test_a_map_under_the_papers_protocol_has_its_parts(tmp_path):
    for protocol, rows in (("own", [200, 200, 200]), ("paper", [600, 150, 150])):
        written = fit(maps.predictions(600), tmp_path, "--variant", "mrp", "--protocol", protocol)
        assert [written[part]["rows"] for part in ("calibrator", "projection", "held_out")] == rows
        assert (written["source"]["protocol"] is None) == (protocol == "own")


@pytest.mark.parametrize(("calibrator", "slow"), [("hcal", True), ("ts", False)])
def test_a_fit_that_may_take_long_says_so_first(calibrator, slow, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("flows.rerank.read_to_fit", stop)
    with pytest.raises(BadInput, match="enough"):
        fit(maps.predictions(600), tmp_path, "--calibrator", calibrator)
    assert ("may take a minute" in capsys.readouterr().err) == slow


def stop(*_: object, **__: object) -> None:
    """As a person who does not want to wait."""
    raise BadInput("enough")


MISTAKES = {
    "probabilities that do not sum to one": ({"probabilities": [[0.5, 0.6]]}, "row 0 (from 0): the probabilities"),
    "a label outside K": ({"logits": [[0.0, 1.0]], "label": [2]}, "row 0 (from 0): label is 2, not one of 0..1"),
    "a negative label": ({"logits": [[0.0, 1.0]], "label": [-1]}, "label is -1"),
    "half a label": ({"logits": [[0.0, 1.0]], "label": [0.5]}, "label is 0.5"),
    "a label without names": ({"logits": [[0.0, 1.0]], "label": ["good"]}, "--labels"),
    "a missing label": ({"logits": [[0.0, 1.0]], "label": [None]}, "label is missing"),
    "no label": ({"logits": [[0.0, 1.0]], "truth": [1]}, "no column label"),
    "no predictions": ({"score": [1.0], "label": [1]}, "it needs logits or probabilities"),
    "predictions twice": ({"logits": [[0.0, 1.0]], "probabilities": [[0.5, 0.5]], "label": [0]}, "twice"),
    "a gap in the columns": ({"logits_0": [0.0], "logits_2": [0.0], "label": [0]}, "none left out"),
    "a confidence above one": ({"decision": [0], "confidence": [95.0], "label": [0]}, "must lie in"),
    "a confidence that is text": ({"decision": [0], "confidence": ["high"], "label": [0]}, "'high', not a number"),
    "too few rows": ({"logits": [[0.0, 1.0]] * 10, "label": [0, 1] * 5}, "10 labelled rows"),
}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize(("columns", "told"), MISTAKES.values(), ids=MISTAKES)
def test_bad_predictions_are_refused_by_file_row_and_column(columns, told, suffix, tmp_path):
    length = len(next(iter(columns.values())))
    frame = pl.DataFrame({"label": [0] * length} | columns, strict=False)
    if told == "no column label":
        frame = frame.drop("label")
    path = maps.write(frame, tmp_path / f"predictions.{suffix}")
    with pytest.raises(BadInput, match=re.escape(told)) as refused:
        run("fit", "--predictions", path, "--out", tmp_path / "map.json")
    assert str(path) in str(refused.value) or "labelled rows" in told
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


CELLS = st.one_of(
    st.none(), st.integers(-2, 3), st.floats(), st.sampled_from(["", "nan", "1e400", "0.5", " 1", "good", "１", "0x1"])
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4),
    names=st.sampled_from([("decision", "confidence", "label"), ("logits_0", "logits_1", "logits_2")]),
    suffix=st.sampled_from(["csv", "jsonl", "parquet"]),
)
def test_any_small_file_of_predictions_is_refused_in_words_or_scored_right(folder, tmp_path, rows, names, suffix):
    path, out = tmp_path / f"any.{suffix}", tmp_path / f"scored.{suffix}"
    out.unlink(missing_ok=True)
    frame = pl.DataFrame(rows, schema=list(names), orient="row", strict=False, infer_schema_length=None)
    maps.write(frame, path)
    stated = "decision" in names
    refused = ""
    try:
        run("apply", "--map", folder / ("stated.json" if stated else "map.json"), "--predictions", path, "--out", out)
    except BadInput as error:
        refused = str(error)  # anything else that is raised fails this test
    assert out.exists() == (not refused)
    if refused:
        assert str(path) in refused
        return
    read = {"csv": partial(pl.read_csv, infer_schema=False), "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}[
        suffix
    ]
    if suffix == "jsonl" and not rows:
        return
    scored = read(out)
    assert scored.height == len(rows)
    assert scored["reliability"].cast(pl.Float64).is_between(0, 1).all()
    if not stated and rows:
        logits = scored.select(pl.col(names).cast(pl.String).str.strip_chars().cast(pl.Float64)).to_numpy()
        assert scored["decision"].cast(pl.Int64).to_list() == logits.argmax(axis=1).tolist()


def test_the_groups_of_the_fit_are_those_of_what_is_judged(folder):
    asked = "--map", folder / "map.json", "--predictions", folder / "validation.parquet", "--group", "label_"
    with pytest.raises(BadInput, match="say the same here"):
        run("evaluate", *asked)


def test_names_that_are_numbers_mean_the_same_in_every_format(tmp_path):
    made = maps.stated(900).select("confidence", pl.col("decision", "label") + 1)
    in_parquet, in_csv = (fit(made, tmp_path, "--labels", "1,2,3", name=f"p.{suffix}") for suffix in ("parquet", "csv"))
    assert in_parquet["projection"] == in_csv["projection"]
    with pytest.raises(BadInput, match=r"row 0 .from 0.: decision is"):
        fit(made, tmp_path, "--labels", "7,8,9")


def test_a_decision_in_words_gets_its_number_beside_it(tmp_path):
    words = maps.stated(900, 2).with_columns(pl.col("decision", "label").replace_strict({0: "no", 1: "yes"}))
    fit(words, tmp_path, "--labels", "no,yes", "--calibrator", "spline", "--variant", "mrp")
    read, out = tmp_path / "p.parquet", tmp_path / "s.parquet"
    run("apply", "--map", tmp_path / "map.json", "--predictions", read, "--out", out)
    scored = pl.read_parquet(out)
    assert scored["decision_code"].to_list() == [["no", "yes"].index(word) for word in scored["decision"]]
    columns = "decision_code as decision, calibrated_confidence as confidence"
    again = computed(rerank.sql(tmp_path / "map.json"), columns, out)
    np.testing.assert_allclose(again, scored["reliability"], rtol=0, atol=1e-12)


SURE = {"label": pl.col("logits").list.arg_max()}


@pytest.mark.parametrize(("columns", "options"), [(SURE, ()), ({"site": pl.int_range(900) % 9}, ("--group", "site"))])
def test_too_few_errors_or_groups_to_choose_by_keep_the_confidence(columns, options, tmp_path, capsys):
    written = fit(maps.predictions(900).with_columns(**columns), tmp_path, *options)
    assert "keep your confidence: " in capsys.readouterr().err
    assert written["projection"]["name"] == "confidence"


def test_labels_in_the_wrong_order_are_doubted(tmp_path, capsys):
    fit(maps.predictions(900).with_columns(label=2 - pl.col("label")), tmp_path)
    assert "Are the labels numbered as they should be?" in capsys.readouterr().err


def test_a_confidence_that_is_not_calibrated_leaves_two_thirds_to_judge(folder, capsys):
    run("evaluate", "--map", folder / "stated.json", "--predictions", folder / "validation.csv")
    assert json.loads(capsys.readouterr().out)["rows"] == 2000
