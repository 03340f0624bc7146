"""`python -m flows.rerank`: from files to a map, scored rows, a verdict, a cut and SQL; and what is wrong, in words."""

from __future__ import annotations

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

from flows import rerank
from flows.console import show
from tasks.maps.map_file import load_map
from tasks.protocol.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: object) -> object:
    """A command as it is typed, in this process."""
    return rerank.app([str(one) for one in arguments], standalone_mode=False)


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


def test_what_scores_imports_neither_torch_nor_an_orchestrator(folder, tmp_path):
    """The interpreter tells what it has imported once everything has run that reads a map."""
    heavy = {"torch", "prefect", "great_expectations", "sklearn", "dvc", "pandas", "scipy.stats", "lightgbm"}
    code = f"""
import sys
from pathlib import Path
from flows import rerank
folder = Path({str(folder)!r})
rerank.apply(folder / "map.json", folder / "new.parquet", Path({str(tmp_path / "scored.parquet")!r}))
rerank.thresholds(folder / "map.json", folder / "test.parquet", 0.8, out=Path({str(tmp_path / "cut.json")!r}))
rerank.evaluate(folder / "map.json", folder / "test.parquet", out=Path({str(tmp_path / "evaluation.json")!r}))
rerank.sql(folder / "map.json")
print(sorted({heavy!r} & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert told.stdout.splitlines()[-1] == "[]"


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


def test_a_column_of_groups_that_holds_something_else_is_refused(folder, tmp_path):
    for group in ("label", "logits"):
        with pytest.raises(BadInput, match="--group names"):
            run("fit", "--predictions", folder / "validation.parquet", "--group", group, "--out", tmp_path / "map.json")


def test_a_map_that_was_fitted_by_group_says_where_a_file_has_none(folder, tmp_path, capsys):
    pl.read_parquet(folder / "test.parquet").drop("group").write_parquet(tmp_path / "test.parquet")
    run("thresholds", "--map", folder / "map.json", "--predictions", tmp_path / "test.parquet", "--coverage", "0.5")
    assert "taken as independent" in capsys.readouterr().err


def test_labels_that_are_ids_are_refused_at_once(tmp_path):
    ids = {"decision": [0, 10**8] * 50, "confidence": [0.5] * 100, "label": [0, 10**8] * 50}
    pl.DataFrame(ids).write_parquet(tmp_path / "ids.parquet")
    with pytest.raises(BadInput, match="a label is 100000000"):
        run("fit", "--predictions", tmp_path / "ids.parquet", "--out", tmp_path / "map.json")


def test_many_labels_are_fitted_without_matrix_scaling(tmp_path, capsys):
    maps.predictions(600, 60).write_parquet(tmp_path / "many.parquet")
    run("fit", "--predictions", tmp_path / "many.parquet", "--out", tmp_path / "map.json")
    assert "matrix" not in capsys.readouterr().err
    with pytest.raises(BadInput, match="takes too long for 60 labels"):
        run("fit", "--predictions", tmp_path / "many.parquet", "--calibrator", "matrix", "--out", tmp_path / "m.json")


def test_labels_that_are_true_and_false_are_one_and_zero(tmp_path):
    made = maps.predictions(900, 2)
    for name, label in (("numbers", made["label"]), ("truth", made["label"].cast(pl.Boolean))):
        made.with_columns(label=label).write_parquet(tmp_path / f"{name}.parquet")
        run("fit", "--predictions", tmp_path / f"{name}.parquet", "--out", tmp_path / f"{name}.json")
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("numbers", "truth"))
    assert one["projection"] == two["projection"]


def test_probabilities_of_two_digits_are_read(tmp_path):
    logits = np.array(maps.predictions(900, 5)["logits"].to_list())
    rounded = np.round(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), 2)
    frame = pl.DataFrame({"probabilities": rounded.tolist(), "label": maps.predictions(900, 5)["label"]})
    frame.write_parquet(tmp_path / "rounded.parquet")
    run("fit", "--predictions", tmp_path / "rounded.parquet", "--out", tmp_path / "map.json")
    assert (tmp_path / "map.json").exists()


def test_a_certain_confidence_is_not_left_to_a_shift_of_the_logit(folder, tmp_path):
    """1.0 has an infinite logit, which no shift or line can move."""
    document = json.loads((folder / "stated.json").read_text())
    assert {one["variant"] for one in document["choice"]["candidates"]} == {"confidence", "shared_1d", "mrp"}
    scored = tmp_path / "scored.csv"
    run("apply", "--map", folder / "stated.json", "--predictions", folder / "new.csv", "--out", scored)
    certain = pl.read_csv(scored).filter(pl.col("confidence") == 1)
    assert certain["reliability"].max() < 1


def test_fit_knows_no_orchestrator():
    code = "import sys, tasks.maps.learn; print(sorted({'prefect', 'great_expectations', 'dvc'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"


def test_fit_says_what_to_deploy_and_why(folder, capsys):
    run(
        "fit",
        "--predictions",
        folder / "validation.parquet",
        "--labels",
        "bad,fair,good",
        "--out",
        folder / "named.json",
    )
    told = capsys.readouterr().err
    assert told.startswith("Recommendation: ")
    assert "standard error" in told
    assert "100 rows" in told
    assert json.loads((folder / "named.json").read_text())["label_names"] == ["bad", "fair", "good"]


@pytest.mark.parametrize(("map_file", "new"), [("map.json", "new.parquet"), ("stated.json", "new.csv")])
def test_apply_adds_its_columns_and_touches_no_other(folder, map_file, new, tmp_path):
    out = tmp_path / f"scored{Path(new).suffix}"
    run("apply", "--map", folder / map_file, "--predictions", folder / new, "--out", out, "--coverage", "0.7")
    read = pl.read_parquet if new.endswith("parquet") else pl.read_csv
    before, after = read(folder / new), read(out)
    assert after.columns[: before.width] == before.columns
    assert after.select(before.columns).equals(before)
    assert {"decision", "reliability", "review_rank", "route"} <= set(after.columns)
    assert (after["route"] == "automatic").sum() == 2100
    assert sorted(after["review_rank"].to_list()) == list(range(1, 3001))


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


@pytest.mark.parametrize(("map_file", "new"), [("map.json", "new.parquet"), ("stated.json", "new.csv")])
def test_the_sql_of_a_map_gives_what_apply_gives(folder, map_file, new, tmp_path, capsys):
    run("apply", "--map", folder / map_file, "--predictions", folder / new, "--out", tmp_path / "scored.parquet")
    run("sql", "--map", folder / map_file)
    expression = capsys.readouterr().out
    table = tmp_path / "scored.parquet"
    columns = "cast(decision as int) as decision, cast(confidence as double) as confidence, reliability"
    query = f"select {expression} as again, reliability from (select {columns} from '{table}')"
    again, reliability = (np.array(one) for one in zip(*duckdb.sql(query).fetchall(), strict=True))
    np.testing.assert_allclose(again, reliability, rtol=0, atol=1e-12)


def test_the_map_has_the_date_of_the_source_date_epoch(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    for name in ("one", "two"):
        run("fit", "--predictions", folder / "validation.csv", "--out", tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert json.loads((tmp_path / "one").read_text())["source"]["at"] == "1970-01-02T00:00:00+00:00"


def test_a_mistake_is_told_without_a_traceback_and_with_exit_status_1(folder, tmp_path):
    arguments = ["apply", "--map", "map.json", "--predictions", "none.parquet", "--out", str(tmp_path / "out.parquet")]
    told = subprocess.run(
        [sys.executable, "-m", "flows.rerank", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 1
    assert re.fullmatch(r"rerank: none\.parquet.*\n", told.stderr)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_in_a_file_cannot_steer_the_terminal(folder, tmp_path):
    (tmp_path / "new.csv").write_text('logits_0,logits_1,logits_2,"x\n\u202e"\n1,2,3,4\n\x1b]0;mine\x07,\x9b2J\n')
    command = (
        "apply",
        "--map",
        folder / "map.json",
        "--predictions",
        tmp_path / "new.csv",
        "--out",
        tmp_path / "out.csv",
    )
    for header in (False, True):
        if header:
            (tmp_path / "new.csv").write_text('"x\nrerank: all is well \u202e\x1b[2J"\n1\n')
        typed = [sys.executable, "-m", "flows.rerank", *map(str, command)]
        told = subprocess.run(typed, cwd=ROOT, capture_output=True, text=True, check=False)
        assert told.returncode == 1
        assert told.stderr.removesuffix("\n").isprintable()
        assert "\\u001b" in told.stderr


def test_json_that_is_printed_is_printable_and_means_the_same(capsys):
    content = {"a": ["\u202e\x1b[2J\x9b", "\n", "ü", "完", "\U000e0001"], "b": {"c": 1.5}}
    show(content, None)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == content


def test_a_group_whose_name_cannot_be_shown_is_refused(tmp_path):
    maps.predictions(900).rename({"group": "gr\u200bup"}).write_parquet(tmp_path / "p.parquet")
    with pytest.raises(BadInput, match="--group names"):
        run("fit", "--predictions", tmp_path / "p.parquet", "--group", "gr\u200bup", "--out", tmp_path / "map.json")


@pytest.mark.parametrize("calibrator", ["vector", "matrix"])
def test_a_calibrator_that_no_map_can_hold_is_told_in_a_sentence(calibrator, tmp_path):
    maps.predictions(600).with_columns(pl.col("logits") * 1e-300).write_parquet(tmp_path / "p.parquet")
    with pytest.raises(BadInput, match=r"beyond what a map holds .*take the calibrator ts"):
        run("fit", "--predictions", tmp_path / "p.parquet", "--calibrator", calibrator, "--out", tmp_path / "map.json")
    assert not (tmp_path / "map.json").exists()


def test_a_map_under_the_papers_protocol_has_its_parts(tmp_path):
    maps.predictions(600).write_parquet(tmp_path / "p.parquet")
    asked = ("fit", "--predictions", tmp_path / "p.parquet", "--variant", "mrp", "--out", tmp_path / "map.json")
    for protocol, rows in (("own", (200, 200, 200)), ("paper", (600, 150, 150))):
        run(*asked, "--protocol", protocol)
        found = load_map(tmp_path / "map.json")
        assert (found.calibrator.rows, found.projection.rows, found.held_out.rows) == rows
        assert (found.source.protocol is None) == (protocol == "own")


def test_a_fit_that_may_take_long_says_so_first(tmp_path, capsys, monkeypatch):
    maps.predictions(600).write_parquet(tmp_path / "p.parquet")
    monkeypatch.setattr("tasks.maps.reading.read_to_fit", stop)
    for calibrator, said in (("hcal", True), ("ts", False)):
        with pytest.raises(BadInput, match="enough"):
            run(
                "fit", "--predictions", tmp_path / "p.parquet", "--calibrator", calibrator, "--out", tmp_path / "m.json"
            )
        assert ("may take a minute" in capsys.readouterr().err) == said


def stop(*_: object, **__: object) -> None:
    """As a person who does not want to wait."""
    raise BadInput("enough")


MISTAKES = {
    "logits that are no number": ({"logits": [[0.0, float("nan")]]}, "row 0 (from 0): logits 1 is nan"),
    "infinite logits": ({"logits": [[0.0, 1.0], [float("inf"), 0.0]]}, "row 1 (from 0): logits 0 is inf"),
    "probabilities that do not sum to one": ({"probabilities": [[0.5, 0.6]]}, "row 0 (from 0): the probabilities"),
    "rows of different lengths": ({"logits": [[0.0, 1.0], [0.0]]}, "row 1 (from 0): logits has 1 numbers"),
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
    "no rows": ({"logits_0": [], "logits_1": [], "label": []}, "no rows"),
    "too few rows": ({"logits": [[0.0, 1.0]] * 10, "label": [0, 1] * 5}, "10 labelled rows"),
}


NOT_IN_JSON = {"logits that are no number", "infinite logits", "no rows"}
REFUSED = [
    pytest.param(*mistake, suffix, id=f"{name}-{suffix}")
    for name, mistake in MISTAKES.items()
    for suffix in ("parquet", "jsonl")
    if suffix == "parquet" or name not in NOT_IN_JSON
]


@pytest.mark.parametrize(("columns", "told", "suffix"), REFUSED)
def test_bad_predictions_are_refused_by_file_row_and_column(columns, told, suffix, tmp_path):
    length = len(next(iter(columns.values())))
    frame = pl.DataFrame({"label": [0] * length} | columns, strict=False)
    if told == "no column label":
        frame = frame.drop("label")
    path = tmp_path / f"predictions.{suffix}"
    {"parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[suffix](path)
    with pytest.raises(BadInput, match=re.escape(told)) as refused:
        run("fit", "--predictions", path, "--out", tmp_path / "map.json")
    assert str(path) in str(refused.value) or "labelled rows" in told
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "labels", ["one", "a,a", "a,,b", "", "bad,fair,good\nworse", "bad\r,fair,good", 'bad,"fa\nir",good']
)
def test_label_names_that_are_none_are_refused(labels, folder):
    with pytest.raises(BadInput, match="--labels"):
        run("fit", "--predictions", folder / "validation.parquet", "--labels", labels, "--out", folder / "no.json")


def test_a_map_of_logits_does_not_take_a_stated_confidence(folder, tmp_path):
    with pytest.raises(BadInput, match="as the rows had that the map was fitted on"):
        run("apply", "--map", folder / "map.json", "--predictions", folder / "new.csv", "--out", tmp_path / "out.csv")


def test_coverage_and_cut_exclude_each_other(folder, tmp_path):
    with pytest.raises(BadInput, match="give one"):
        run("apply", "--map", folder / "map.json", "--predictions", folder / "new.parquet", "--out",
            tmp_path / "out.parquet", "--coverage", "0.5", "--cut", "0.5")  # fmt: skip


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
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[suffix](path)
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
    with pytest.raises(BadInput, match="say the same here"):
        run(
            "evaluate",
            "--map",
            folder / "map.json",
            "--predictions",
            folder / "validation.parquet",
            "--group",
            "label_",
        )


def test_names_that_are_numbers_mean_the_same_in_every_format(tmp_path):
    made = maps.stated(900).select("confidence", pl.col("decision", "label") + 1)
    made.write_parquet(tmp_path / "stars.parquet")
    made.write_csv(tmp_path / "stars.csv")
    found = []
    for suffix in ("parquet", "csv"):
        out = tmp_path / f"{suffix}.json"
        run("fit", "--predictions", tmp_path / f"stars.{suffix}", "--labels", "1,2,3", "--out", out)
        found.append(json.loads(out.read_text())["projection"])
    assert found[0] == found[1]
    with pytest.raises(BadInput, match=r"row 0 .from 0.: decision is"):
        run("fit", "--predictions", tmp_path / "stars.parquet", "--labels", "7,8,9", "--out", tmp_path / "no.json")


def test_a_decision_in_words_gets_its_number_beside_it(tmp_path):
    words = maps.stated(900, 2).with_columns(pl.col("decision", "label").replace_strict({0: "no", 1: "yes"}))
    words.write_parquet(tmp_path / "words.parquet")
    names = ("--labels", "no,yes", "--calibrator", "spline", "--variant", "mrp")
    run("fit", "--predictions", tmp_path / "words.parquet", *names, "--out", tmp_path / "map.json")
    run(
        "apply",
        "--map",
        tmp_path / "map.json",
        "--predictions",
        tmp_path / "words.parquet",
        "--out",
        tmp_path / "s.parquet",
    )
    scored = pl.read_parquet(tmp_path / "s.parquet")
    assert scored["decision_code"].to_list() == [["no", "yes"].index(word) for word in scored["decision"]]
    query = rerank.sql(tmp_path / "map.json").replace("decision", "decision_code")
    table = f"(select decision_code, calibrated_confidence as confidence, reliability from '{tmp_path / 's.parquet'}')"
    again, reliability = zip(*duckdb.sql(f"select {query}, reliability from {table}").fetchall(), strict=True)
    np.testing.assert_allclose(again, reliability, rtol=0, atol=1e-12)


def test_too_few_errors_or_groups_to_choose_by_keep_the_confidence(tmp_path, capsys):
    made = maps.predictions(900)
    sure = made.with_columns(label=pl.col("logits").list.arg_max())
    sites = made.with_columns(site=pl.int_range(900) % 9)
    for name, frame, more in (("sure", sure, ()), ("sites", sites, ("--group", "site"))):
        frame.write_parquet(tmp_path / f"{name}.parquet")
        run("fit", "--predictions", tmp_path / f"{name}.parquet", *more, "--out", tmp_path / f"{name}.json")
        assert "keep your confidence: " in capsys.readouterr().err
        assert json.loads((tmp_path / f"{name}.json").read_text())["projection"]["name"] == "confidence"


def test_labels_in_the_wrong_order_are_doubted(tmp_path, capsys):
    maps.predictions(900).with_columns(label=2 - pl.col("label")).write_parquet(tmp_path / "turned.parquet")
    run("fit", "--predictions", tmp_path / "turned.parquet", "--out", tmp_path / "map.json")
    assert "Are the labels numbered as they should be?" in capsys.readouterr().err


def test_a_group_that_is_a_list_is_refused(tmp_path):
    maps.predictions(900).with_columns(place=pl.col("logits")).write_parquet(tmp_path / "lists.parquet")
    with pytest.raises(BadInput, match="holds lists"):
        run("fit", "--predictions", tmp_path / "lists.parquet", "--group", "place", "--out", tmp_path / "map.json")


def test_a_confidence_that_is_not_calibrated_leaves_two_thirds_to_judge(folder, capsys):
    run("evaluate", "--map", folder / "stated.json", "--predictions", folder / "validation.csv")
    assert json.loads(capsys.readouterr().out)["rows"] == 2000
