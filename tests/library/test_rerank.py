"""`relmap`: from files to a map, scored rows, a verdict, a cut and SQL; and what is wrong, in words."""

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import maps
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from maps import run

from relmap.console import write_json_output
from relmap.errors import InputError
from relmap.fitting.folds import split_folds
from relmap.io.files import open_predictions, read_columns

ROOT = Path(__file__).resolve().parents[2]


def fit(frame: pl.DataFrame, folder: Path, *options: object, name: str = "p.parquet", out: str = "map.json") -> dict:
    """What `fit` writes to `out` of a frame that it reads in the format of `name`."""
    run("fit", "--predictions", maps.write(frame, folder / name), *options, "--out", folder / out)
    return json.loads((folder / out).read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Labelled predictions and a map that was fitted on some of them."""
    place = tmp_path_factory.mktemp("rerank")
    for seed, name in enumerate(("validation", "test", "new")):
        maps.predictions(3000, shift=2.0, seed=seed).write_parquet(place / f"{name}.parquet")
        maps.confidence_only(3000, shift=2.0, seed=seed).write_csv(place / f"{name}.csv")
    pl.read_parquet(place / "new.parquet").drop("label").write_parquet(place / "unlabelled.parquet")
    by_group = "--group", "group", "--variant", "mrp"
    fit(pl.read_parquet(place / "validation.parquet"), place, *by_group, name="validation.parquet")
    fit(pl.read_csv(place / "validation.csv"), place, name="validation.csv", out="stated.json")
    words = maps.confidence_only(900, 2).with_columns(pl.col("decision", "label").replace_strict({0: "no", 1: "yes"}))
    spline = "--labels", "no,yes", "--calibrator", "spline", "--variant", "mrp"
    fit(words, place, *spline, name="words.jsonl", out="words.json")
    return place


ORCHESTRATORS, HEAVY = "prefect great_expectations dvc", "torch sklearn pandas scipy.stats lightgbm altair vl_convert"
READS = """
import sys
from pathlib import Path
from relmap import cli as rerank
heavy, orchestrators, folder, out = {*sys.argv[1].split()}, {*sys.argv[2].split()}, *map(Path, sys.argv[3:])
rerank.apply(folder / "map.json", folder / "new.parquet", out / "scored.parquet")
rerank.thresholds(folder / "test.parquet", folder / "map.json", 0.8, out=out / "cut.json")
rerank.evaluate(folder / "map.json", folder / "test.parquet", out=out / "evaluation.json")
rerank.sql(folder / "map.json")
assert not heavy & set(sys.modules), heavy & set(sys.modules)
import relmap.fitting.map_fit
assert not orchestrators & set(sys.modules), orchestrators & set(sys.modules)
"""


def test_no_command_imports_an_orchestrator_and_what_reads_a_map_nothing_slow(folder, tmp_path):
    """The interpreter tells what it has imported once everything has run."""
    command = [sys.executable, "-c", READS, f"{HEAVY} {ORCHESTRATORS}", ORCHESTRATORS, folder, tmp_path]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_many_labels_are_fitted_without_matrix_scaling(tmp_path, capsys):
    fit(maps.predictions(600, 60), tmp_path, "--variant", "confidence")
    assert "matrix" not in capsys.readouterr().err


def test_fit_says_what_to_deploy_and_why_and_a_certain_confidence_counts_as_a_little_less(folder, tmp_path, capsys):
    """1.0 has an infinite logit, which no shift or line could move."""
    written = fit(maps.confidence_only(3000, shift=2.0), tmp_path, "--labels", "bad,fair,good", name="p.csv")
    words = capsys.readouterr().err
    assert words.startswith("Use the map: ")
    assert "\nThe map contains " in words
    assert "95% interval" in words
    assert "100 rows" in words
    assert written["label_names"] == ["bad", "fair", "good"]
    variants = {candidate["variant"] for candidate in written["choice"]["candidates"]}
    assert {"label_intercept", "label_platt"} < variants
    scored = tmp_path / "scored.csv"
    run("apply", "--map", tmp_path / "map.json", "--predictions", folder / "new.csv", "--out", scored)
    assert pl.read_csv(scored).filter(pl.col("confidence") == 1)["reliability"].max() < 1


@pytest.mark.parametrize(
    ("map_file", "new", "columns"),
    [
        ("map.json", "new.parquet", "decision, confidence"),
        ("stated.json", "new.csv", "decision, confidence"),  # which no calibrator moved
        ("words.json", "words.jsonl", "decision_code as decision, calibrated_confidence as confidence"),
    ],
)
def test_apply_touches_no_column_and_the_sql_of_a_map_says_the_same(folder, map_file, new, columns, tmp_path, capsys):
    out = tmp_path / f"scored{Path(new).suffix}"
    run("apply", "--map", folder / map_file, "--predictions", folder / new, "--out", out, "--coverage", "0.7")
    before, after = (
        read_columns(open_predictions(path), open_predictions(path).schema.names) for path in (folder / new, out)
    )
    assert after.select(before.columns).equals(before)
    assert (after["route"] == "automatic").sum() == 0.7 * len(before)
    run("sql", "--map", folder / map_file)
    query = f"select {capsys.readouterr().out} from (select {columns} from '{out}')"
    again = np.array(duckdb.sql(query).fetchall())[:, 0]
    np.testing.assert_allclose(again, after["reliability"].cast(pl.Float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_rows_to_label_come_back_labelled_through_every_command(suffix, folder, tmp_path, capsys):
    drawn, known = tmp_path / f"to_label.{suffix}", ("--map", folder / "map.json", "--predictions")
    run("label", *known, folder / "unlabelled.parquet", "--rows", 300, "--out", drawn)
    assert "300 of 3,000 rows are sampled" in capsys.readouterr().err
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[suffix](drawn)
    assert (len(read), read["label"].null_count()) == (300, 300)
    assert "decision" not in read.columns  # it must not sway who labels
    truth = pl.read_parquet(folder / "new.parquet").with_columns(first=pl.col("logits").list.first())
    given = read["logits_0"] if suffix == "csv" else read["logits"].list.first()
    places = [truth["first"].index_of(value) for value in given]
    maps.write(read.with_columns(label=truth["label"].gather(places)), drawn)
    run("fit", "--predictions", drawn, "--out", tmp_path / "again.json")
    run("evaluate", *known, drawn, "--unlabelled", folder / "unlabelled.parquet", "--out", tmp_path / "e.json")
    run("thresholds", *known, drawn, "--target-accuracy", 0.6)
    said, agreed = capsys.readouterr().err, json.loads((tmp_path / "e.json").read_text())["agreement"]
    right = float((truth["logits"].list.arg_max() == truth["label"]).mean())
    assert agreed["rows"] == 3000
    assert agreed["accuracy"]["low"] < right < agreed["accuracy"]["high"]
    assert "Accuracy on all 3,000 rows" in said
    assert "in which all rows have the same probability" in said


def test_signals_of_whole_groups_and_drawn_rows_do_not_go_together(tmp_path):
    made = maps.judged_with_signals(900)
    fit(made, tmp_path, "--signals", "agreement,group_rank", "--group", "group")
    files, new = ("--map", tmp_path / "map.json", "--predictions"), maps.write(made.drop("label"), tmp_path / "new.csv")
    with pytest.raises(InputError, match="signals of whole groups"):
        run("label", *files, new, "--rows", 9, "--out", tmp_path / "o.csv")
    drawn = made.with_columns(inverse_probability=2.0)
    with pytest.raises(InputError, match="groups are incomplete"):
        run("evaluate", *files, maps.write(drawn, tmp_path / "drawn.csv"))


@pytest.mark.parametrize(
    ("options", "note", "left", "guaranteed"),
    [
        ((), "each row is scored by the model that was fitted without its fold", 900, False),
        (("--hold-out", 0.3), "only the 270 rows that were held out are used", 270, True),
        (("--protocol", "paper"), "only the 225 rows that were held out are used", 225, True),
    ],
)
def test_rows_of_the_fit_are_judged_by_fits_that_have_not_seen_them(options, note, left, guaranteed, tmp_path, capsys):
    written = fit(maps.predictions(900), tmp_path, "--variant", "label_intercept", *options)
    assert (written["source"]["protocol"] is None) == ("paper" not in options)
    files = "--map", tmp_path / "map.json", "--predictions", tmp_path / "p.parquet"
    for command in (("evaluate",), ("thresholds", "--coverage", "0.5")):
        capsys.readouterr()
        run(*command, *files)
        printed = capsys.readouterr()
        assert note in printed.err
    assert json.loads(printed.out)["overall"]["rows"] == left
    assert json.loads(printed.out)["guaranteed"] == guaranteed == ("estimates without a guarantee" not in printed.err)


def test_a_judge_without_a_confidence_is_trusted_by_label_and_better_with_signals(tmp_path, capsys):
    made = maps.judged_with_signals(1500)
    bare = made.select("decision", "label")
    assert fit(bare, tmp_path)["projection"]["name"] == "label_intercept"
    written = fit(made, tmp_path, "--signals", "agreement,source,group_rank", "--group", "group", name="p.csv")
    assert written["projection"]["name"] == "label_signals"
    assert [signal["kind"] for signal in written["signals"]] == ["number", "text", "number"]
    files = "--map", tmp_path / "map.json", "--predictions"
    capsys.readouterr()
    run("evaluate", *files, maps.write(maps.judged_with_signals(1500, seed=1), tmp_path / "new.csv"))
    assert "Use the map: " in capsys.readouterr().err
    run("apply", *files, tmp_path / "new.csv", "--out", tmp_path / "scored.csv")
    assert pl.read_csv(tmp_path / "scored.csv")["reliability"].n_unique() > 100
    for wrong, column in ((made.drop("agreement"), "agreement"), (made.drop("group"), "group")):
        with pytest.raises(InputError, match=f"no column {column}"):
            run("apply", *files, maps.write(wrong, tmp_path / "wrong.csv"), "--out", tmp_path / "none.csv")


def test_a_signal_is_read_the_same_in_every_format_whatever_rows_are_kept_aside_or_stand_beside_it(tmp_path):
    made = maps.judged_with_signals(900).with_columns(web=pl.col("source") == "web").drop("source")
    asked = "--signals", "agreement,web,group_rank", "--group", "group", "--hold-out", "0.3"
    written = [fit(made, tmp_path, *asked, name=f"p.{suffix}") for suffix in ("parquet", "csv")]
    assert written[0]["signals"] == written[1]["signals"]
    assert written[0]["signals"][1]["values"] == ["false", "true"]
    aside = split_folds(900, made["group"].cast(str).to_numpy(), 1, hold_out=0.3).held_out
    other = made.with_columns(agreement=pl.when(pl.int_range(900).is_in(aside)).then(999).otherwise("agreement"))
    assert fit(other, tmp_path, *asked)["signals"] == written[0]["signals"]
    pandas = made.drop("label").with_columns(web=pl.when("web").then(pl.lit("True")).otherwise(pl.lit("False")))
    scored = []
    for name, frame in (("new.parquet", made.drop("label")), ("new.csv", pandas), ("few.csv", pandas.head(10))):
        out = tmp_path / f"scored_{name}"
        run("apply", "--map", tmp_path / "map.json", "--predictions", maps.write(frame, tmp_path / name), "--out", out)
        scored.append(read_columns(open_predictions(out), ["reliability"])["reliability"].cast(pl.Float64).to_numpy())
    np.testing.assert_allclose(scored[1], scored[0], atol=1e-12)
    np.testing.assert_allclose(scored[2], scored[0][:10], atol=1e-12)  # a whole group


def test_a_cut_with_its_guarantee_is_what_apply_takes(folder, capsys, tmp_path):
    judge, new = ("--predictions", folder / "test.parquet"), ("--predictions", folder / "new.parquet")
    target, scored = ("--target-accuracy", 0.8, "--out", tmp_path / "cut.json"), tmp_path / "scored.parquet"
    run("thresholds", "--map", folder / "map.json", *judge, *target)
    assert "80%" in capsys.readouterr().err
    cut = json.loads((tmp_path / "cut.json").read_text())["overall"]["cut"]
    run("apply", "--map", folder / "map.json", *new, "--out", scored, "--cut", cut)
    kept = pl.read_parquet(scored).filter(pl.col("route") == "automatic")
    assert kept["reliability"].min() >= cut
    assert (kept["decision"] == kept["label"]).mean() > 0.8
    cuts = json.loads((tmp_path / "cut.json").read_text())
    for own, at_all in (({0: 0.7, 2: 0.8}, cut), ({0: 0.7, 2: 0.8}, None), ({0: 0.7, 1: 0.9, 2: 0.8}, cut), ({}, cut)):
        labels = [{"label": label, "cut": own.get(label)} for label in range(3)]
        (tmp_path / "cut.json").write_text(json.dumps(cuts | {"labels": labels, "overall": {"cut": at_all}}))
        run("apply", "--map", folder / "map.json", *new, "--out", scored, "--cuts", tmp_path / "cut.json")
        table = pl.read_parquet(scored)
        by_label = at_all is None or len(own) == 3  # then a label without a cut of its own goes to review
        least = pl.Series([own.get(label, 2) if by_label else cut for label in table["decision"]])
        assert ((table["reliability"] >= least) == (table["route"] == "automatic")).all()
        assert ("No separate threshold" in capsys.readouterr().err) == (at_all is None)


def test_a_chosen_cut_is_validated_on_other_rows_and_only_estimated_on_rows_of_the_fit(folder, capsys, tmp_path):
    found, scored = tmp_path / "cut.json", tmp_path / "scored.parquet"
    chosen = "--map", folder / "map.json", "--cut", 0.75, "--out", found, "--predictions"
    for name, guaranteed in (("validation.parquet", False), ("test.parquet", True)):
        run("thresholds", *chosen, folder / name)
        printed = capsys.readouterr().err
        assert "those with a reliability of at least 0.75 (" in printed
        assert ("without looking at these rows" in printed) == guaranteed
        assert ("estimates without a guarantee" in printed) == (not guaranteed)
        assert json.loads(found.read_text())["guaranteed"] == guaranteed
    cuts = json.loads(found.read_text())
    assert cuts["asked_cut"] == 0.75
    (tmp_path / "cut.json").write_text(json.dumps(cuts | {"labels": cuts["labels"][:1]}))  # labels without rows
    run(
        "apply", "--map", folder / "map.json", "--predictions", folder / "new.parquet", "--out", scored, "--cuts", found
    )
    table = pl.read_parquet(scored)
    assert ((table["reliability"] >= 0.75) == (table["route"] == "automatic")).all()
    with pytest.raises(InputError, match="or a cut to validate"):
        run("thresholds", *chosen, folder / "test.parquet", "--coverage", "0.5")


def test_the_guarantee_takes_one_row_of_each_group_and_a_file_without_groups_is_told(folder, tmp_path, capsys):
    pl.read_parquet(folder / "test.parquet").drop("group").write_parquet(tmp_path / "test.parquet")
    for place, words in ((folder, "300 rows"), (tmp_path, "treated as independent")):
        run("thresholds", "--map", folder / "map.json", "--predictions", place / "test.parquet", "--coverage", "0.5")
        printed = capsys.readouterr()
        assert words in printed.err
        assert json.loads(printed.out)["overall"]["rows"] == (300 if place == folder else 3000)
    pl.read_parquet(folder / "validation.parquet").drop("group").write_parquet(tmp_path / "fitted.parquet")
    with pytest.raises(InputError, match="give the same here"):
        run("evaluate", "--map", folder / "map.json", "--predictions", tmp_path / "fitted.parquet")


def test_the_map_has_the_date_of_the_source_date_epoch(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    once, again = (fit(maps.confidence_only(300), tmp_path, "--variant", "confidence") for _ in range(2))
    assert json.dumps(once) == json.dumps(again)
    assert once["source"]["at"] == "1970-01-02T00:00:00+00:00"


def test_json_that_is_printed_is_printable_and_means_the_same(capsys):
    content = {"a": ["\u202e\x1b[2J\x9b", "\n", "ü", "完", "\U000e0001"], "b": {"c": 1.5}}
    write_json_output(content, None)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == content


@pytest.mark.parametrize(("calibrator", "slow"), [("hcal", True), ("ts", False)])
def test_a_fit_that_may_take_long_says_so_first(calibrator, slow, tmp_path, capsys):
    (tmp_path / "p.csv").write_text("a\n1\n")
    with pytest.raises(InputError):
        run("fit", "--predictions", tmp_path / "p.csv", "--calibrator", calibrator, "--out", tmp_path / "map.json")
    assert ("can take some minutes" in capsys.readouterr().err) == slow


CELLS = st.one_of(
    st.none(), st.integers(-2, 3), st.floats(), st.sampled_from(["", "nan", "1e400", "0.5", " 1", "good", "１", "0x1"])
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4), st.booleans(), st.sampled_from([*maps.WRITE]))
def test_any_small_file_of_predictions_is_refused_in_words_or_scored_right(folder, tmp_path, rows, stated, suffix):
    names = ["decision", "confidence", "label"] if stated else ["logits_0", "logits_1", "logits_2"]
    frame = pl.DataFrame(rows, schema=names, orient="row", strict=False, infer_schema_length=None)
    path, out = maps.write(frame, tmp_path / f"any{suffix}"), tmp_path / f"scored{suffix}"
    out.unlink(missing_ok=True)
    refused = ""
    try:
        map_file = folder / ("stated.json" if stated else "map.json")
        run("apply", "--map", map_file, "--predictions", path, "--out", out)
    except InputError as error:
        refused = str(error)  # anything else that is raised fails this test
    assert out.exists() == (not refused)
    assert str(path) in (refused or str(path))
    if refused or (suffix == ".jsonl" and not rows):
        return
    scored = read_columns(open_predictions(out), open_predictions(out).schema.names)
    assert scored.height == len(rows)
    assert scored["reliability"].cast(pl.Float64).is_between(0, 1).all()
    if not stated and rows:
        logits = scored.select(pl.col(names).cast(pl.String).str.strip_chars().cast(pl.Float64)).to_numpy()
        assert scored["decision"].cast(pl.Int64).to_list() == logits.argmax(axis=1).tolist()


def test_where_too_few_decisions_are_wrong_to_choose_by_the_confidence_is_kept(tmp_path, capsys):
    sure = maps.predictions(900).with_columns(label=pl.col("logits").list.arg_max())
    assert fit(sure, tmp_path)["projection"]["name"] == "confidence"
    assert "The map contains your confidence, calibrated by ts: 0 of 900" in capsys.readouterr().err
