"""The commands of `relmap` from files to a map, scored rows, an evaluation, thresholds and SQL."""

import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relmap.cli import write_json_output
from relmap.errors import InputError
from relmap.io.files import open_predictions, read_columns
from relmap.maps.folds import split_folds
from tests import maps
from tests.maps import run_command

ROOT = Path(__file__).resolve().parents[2]


def fit(frame: pl.DataFrame, folder: Path, *options: object, name: str = "p.parquet", out: str = "map.json") -> dict:
    """Fit a map to a frame in a file named `name`, and return the content of the map."""
    run_command("fit", "--predictions", maps.write_frame(frame, folder / name), *options, "--out", folder / out)
    return json.loads((folder / out).read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write labelled predictions, and maps that are fitted to some of them."""
    folder = tmp_path_factory.mktemp("commands")
    for seed, name in enumerate(("validation", "test", "new")):
        maps.make_predictions(3000, shift=2.0, seed=seed).write_parquet(folder / f"{name}.parquet")
        maps.make_confidence_predictions(3000, shift=2.0, seed=seed).write_csv(folder / f"{name}.csv")
    pl.read_parquet(folder / "new.parquet").drop("label").write_parquet(folder / "unlabelled.parquet")
    by_group = "--group", "group"
    fit(pl.read_parquet(folder / "validation.parquet"), folder, *by_group, name="validation.parquet")
    fit(pl.read_csv(folder / "validation.csv"), folder, name="validation.csv", out="stated.json")
    judge_rows = maps.make_confidence_predictions(900, 2).with_columns(
        pl.col("decision", "label").replace_strict({0: "no", 1: "yes"})
    )
    spline = "--labels", "no,yes", "--calibrator", "spline"
    fit(judge_rows, folder, *spline, name="words.jsonl", out="words.json")
    return folder


ORCHESTRATORS = "prefect great_expectations dvc"
SLOW_LIBRARIES = "torch sklearn pandas scipy.stats lightgbm altair vl_convert"
READ_ONLY_COMMANDS = """
import sys
from pathlib import Path
from relmap import cli
slow_libraries = {*sys.argv[1].split()}
orchestrators = {*sys.argv[2].split()}
folder = Path(sys.argv[3])
out = Path(sys.argv[4])
cli.apply(folder / "map.json", predictions=folder / "new.parquet", out=out / "scored.parquet")
cli.thresholds(folder / "test.parquet", folder / "map.json", 0.8, out=out / "cut.json")
cli.evaluate(folder / "map.json", folder / "test.parquet", out=out / "evaluation.json")
cli.sql(folder / "map.json")
imported = (slow_libraries | orchestrators) & set(sys.modules)
assert not imported, imported
import relmap.maps.fit
imported = orchestrators & set(sys.modules)
assert not imported, imported
"""


def test_commands_other_than_fit_import_no_orchestrator_and_no_slow_library(folder, tmp_path):
    """Inspect the imported modules of a process after all commands have run."""
    command = [
        sys.executable,
        "-c",
        READ_ONLY_COMMANDS,
        SLOW_LIBRARIES,
        ORCHESTRATORS,
        folder,
        tmp_path,
    ]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    completed = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr


def test_fit_prints_its_comparison_and_certain_confidence_stays_below_one(folder, tmp_path, capsys):
    """A confidence of 1.0 has an infinite logit, which no shift or line could change."""
    document = fit(
        maps.make_confidence_predictions(3000, shift=2.0), tmp_path, "--labels", "bad,fair,good", name="p.csv"
    )
    printed = capsys.readouterr().err
    first, second = printed.splitlines()[:2]
    assert re.search("repeat.*recognize.*--id", first)
    assert document["source"]["training_rows"]["by"] == "nothing"
    assert second.startswith("Better than ")
    assert "95% interval" in printed
    assert document["label_names"] == ["bad", "fair", "good"]
    assert (document["calibrator"]["name"], document["projection"]["name"]) == ("uncal", "mrp_pooled")

    scored = tmp_path / "scored.csv"
    run_command("apply", "--map", tmp_path / "map.json", "--predictions", folder / "new.csv", "--out", scored)
    assert pl.read_csv(scored).filter(pl.col("confidence") == 1)["reliability"].max() < 1


@pytest.mark.parametrize(
    ("map_file", "new", "columns"),
    [
        ("map.json", "new.parquet", "decision, confidence"),
        ("stated.json", "new.csv", "decision, confidence"),  # without a calibrator
        ("words.json", "words.jsonl", "decision_code as decision, calibrated_confidence as confidence"),
    ],
)
def test_apply_preserves_columns_and_agrees_with_sql(folder, map_file, new, columns, tmp_path, capsys):
    out = tmp_path / f"scored{Path(new).suffix}"
    run_command("apply", "--map", folder / map_file, "--predictions", folder / new, "--out", out, "--coverage", "0.7")
    before = read_columns(open_predictions(folder / new), open_predictions(folder / new).schema.names)
    after = read_columns(open_predictions(out), open_predictions(out).schema.names)

    assert after.select(before.columns).equals(before)
    assert (after["route"] == "automatic").sum() == 0.7 * len(before)

    run_command("sql", "--map", folder / map_file)
    query = f"select {capsys.readouterr().out} from (select {columns} from '{out}')"
    from_sql = np.array(duckdb.sql(query).fetchall())[:, 0]

    np.testing.assert_allclose(from_sql, after["reliability"].cast(pl.Float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_sampled_rows_pass_through_every_command_once_labelled(suffix, folder, tmp_path, capsys):
    sample = tmp_path / f"to_label.{suffix}"
    map_options = ("--map", folder / "map.json", "--predictions")
    run_command("label", *map_options, folder / "unlabelled.parquet", "--rows", 300, "--out", sample)

    assert re.search("300 of 3,000 rows .*sampled", capsys.readouterr().err)

    sampled = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[suffix](sample)
    assert (len(sampled), sampled["label"].null_count()) == (300, 300)
    assert "decision" not in sampled.columns  # it must not influence the labels

    truth = pl.read_parquet(folder / "new.parquet").with_columns(first=pl.col("logits").list.first())
    sampled_logits = sampled["logits_0"] if suffix == "csv" else sampled["logits"].list.first()
    positions = [truth["first"].index_of(value) for value in sampled_logits]
    maps.write_frame(sampled.with_columns(label=truth["label"].gather(positions)), sample)
    run_command("fit", "--predictions", sample, "--out", tmp_path / "again.json")
    unlabelled = ("--unlabelled", folder / "unlabelled.parquet")
    run_command("evaluate", *map_options, sample, *unlabelled, "--verbose", "--out", tmp_path / "e.json")
    run_command("thresholds", *map_options, sample, "--target-accuracy", 0.6, "--verbose")
    printed = capsys.readouterr().err
    agreement = json.loads((tmp_path / "e.json").read_text())["agreement"]
    accuracy = float((truth["logits"].list.arg_max() == truth["label"]).mean())

    assert agreement["rows"] == 3000
    assert agreement["accuracy"]["low"] < accuracy < agreement["accuracy"]["high"]
    assert re.search(r"^Accuracy .* 3,000 rows\.$", printed, re.MULTILINE)
    assert "all rows, weighted" in printed


def test_group_signals_are_rejected_for_sampled_rows(tmp_path):
    rows = maps.make_predictions_with_signals(900)
    fit(rows, tmp_path, "--signals", "agreement,group_rank", "--group", "group")
    map_options = ("--map", tmp_path / "map.json", "--predictions")
    new_rows = maps.write_frame(rows.drop("label"), tmp_path / "new.csv")

    with pytest.raises(InputError, match=r"signals .*whole groups"):
        run_command("label", *map_options, new_rows, "--rows", 9, "--out", tmp_path / "o.csv")

    sampled = rows.with_columns(inverse_probability=2.0)
    with pytest.raises(InputError, match="groups are incomplete"):
        run_command("evaluate", *map_options, maps.write_frame(sampled, tmp_path / "drawn.csv"))


@pytest.mark.parametrize(
    ("options", "note", "n_rows", "guaranteed"),
    [
        ((), "without its fold", 900, False),
        (("--hold-out", 0.3), "270 rows .*held out", 270, True),
        (("--protocol", "paper"), "225 rows .*held out", 225, True),
    ],
)
def test_training_rows_are_evaluated_by_models_that_have_not_seen_them(
    options, note, n_rows, guaranteed, tmp_path, capsys
):
    document = fit(maps.make_predictions(900), tmp_path, "--variant", "label_intercept", *options)
    assert (document["source"]["protocol"] is None) == ("paper" not in options)
    inputs = "--map", tmp_path / "map.json", "--predictions", tmp_path / "p.parquet"
    for command in (("evaluate",), ("thresholds", "--coverage", "0.5")):
        capsys.readouterr()
        run_command(*command, *inputs)
        printed = capsys.readouterr()
        assert re.search(note, printed.err)
        assert json.loads(printed.out)["fitted_rows"] == (0 if guaranteed else n_rows)
    assert json.loads(printed.out)["overall"]["rows"] == n_rows
    assert json.loads(printed.out)["guaranteed"] == guaranteed == ("without a guarantee" not in printed.err)


def test_judge_without_confidence_is_modelled_by_label_and_signals(tmp_path, capsys):
    rows = maps.make_predictions_with_signals(1500)
    without_signals = fit(rows.select("decision", "label"), tmp_path)
    assert (without_signals["calibrator"]["name"], without_signals["signals"]) == ("constant", [])

    document = fit(rows, tmp_path, "--signals", "agreement,source,group_rank", "--group", "group", name="p.csv")
    assert document["projection"]["fitted"]["kind"] == "signal_adjusted"
    assert [signal["kind"] for signal in document["signals"]] == ["number", "text", "number"]

    map_options = "--map", tmp_path / "map.json", "--predictions"
    capsys.readouterr()
    run_command(
        "evaluate",
        *map_options,
        maps.write_frame(maps.make_predictions_with_signals(1500, seed=1), tmp_path / "new.csv"),
    )

    assert "Better than " in capsys.readouterr().err

    run_command("apply", *map_options, tmp_path / "new.csv", "--out", tmp_path / "scored.csv")
    assert pl.read_csv(tmp_path / "scored.csv")["reliability"].n_unique() > 100
    for incomplete, column in ((rows.drop("agreement"), "agreement"), (rows.drop("group"), "group")):
        with pytest.raises(InputError, match=f"no column {column}"):
            run_command(
                "apply",
                *map_options,
                maps.write_frame(incomplete, tmp_path / "wrong.csv"),
                "--out",
                tmp_path / "none.csv",
            )


def test_signals_do_not_depend_on_format_held_out_rows_or_other_rows(tmp_path):
    rows = maps.make_predictions_with_signals(900).with_columns(web=pl.col("source") == "web").drop("source")
    options = "--signals", "agreement,web,group_rank", "--group", "group", "--hold-out", "0.3"
    documents = [fit(rows, tmp_path, *options, name=f"p.{suffix}") for suffix in ("parquet", "csv")]

    assert documents[0]["signals"] == documents[1]["signals"]
    assert documents[0]["signals"][1]["values"] == ["false", "true"]

    held_out = split_folds(900, rows["group"].cast(str).to_numpy(), 1, hold_out=0.3).held_out
    changed = rows.with_columns(agreement=pl.when(pl.int_range(900).is_in(held_out)).then(999).otherwise("agreement"))
    assert fit(changed, tmp_path, *options)["signals"] == documents[0]["signals"]

    with_text_booleans = rows.drop("label").with_columns(
        web=pl.when("web").then(pl.lit("True")).otherwise(pl.lit("False"))
    )
    scored = []
    for name, frame in (
        ("new.parquet", rows.drop("label")),
        ("new.csv", with_text_booleans),
        ("few.csv", with_text_booleans.head(10)),
    ):
        out = tmp_path / f"scored_{name}"
        run_command(
            "apply",
            "--map",
            tmp_path / "map.json",
            "--predictions",
            maps.write_frame(frame, tmp_path / name),
            "--out",
            out,
        )
        scored.append(read_columns(open_predictions(out), ["reliability"])["reliability"].cast(pl.Float64).to_numpy())

    np.testing.assert_allclose(scored[1], scored[0], atol=1e-12)
    np.testing.assert_allclose(scored[2], scored[0][:10], atol=1e-12)  # a whole group


def test_apply_uses_the_guaranteed_thresholds(folder, capsys, tmp_path):
    test_rows = ("--predictions", folder / "test.parquet")
    new_rows = ("--predictions", folder / "new.parquet")
    target = ("--target-accuracy", 0.8, "--out", tmp_path / "cut.json")
    scored = tmp_path / "scored.parquet"
    run_command("thresholds", "--map", folder / "map.json", *test_rows, *target)

    assert "80%" in capsys.readouterr().err

    cut = json.loads((tmp_path / "cut.json").read_text())["overall"]["cut"]
    run_command("apply", "--map", folder / "map.json", *new_rows, "--out", scored, "--cut", cut)
    automatic = pl.read_parquet(scored).filter(pl.col("route") == "automatic")

    assert automatic["reliability"].min() >= cut
    assert (automatic["decision"] == automatic["label"]).mean() > 0.8

    thresholds = json.loads((tmp_path / "cut.json").read_text())
    for by_label_cuts, overall in (
        ({0: 0.7, 2: 0.8}, cut),
        ({0: 0.7, 2: 0.8}, None),
        ({0: 0.7, 1: 0.9, 2: 0.8}, cut),
        ({}, cut),
    ):
        labels = [{"label": label, "cut": by_label_cuts.get(label)} for label in range(3)]
        (tmp_path / "cut.json").write_text(json.dumps(thresholds | {"labels": labels, "overall": {"cut": overall}}))
        run_command("apply", "--map", folder / "map.json", *new_rows, "--out", scored, "--cuts", tmp_path / "cut.json")
        table = pl.read_parquet(scored)
        has_cuts_by_label = overall is None or len(by_label_cuts) == 3
        unreachable = 2  # decisions for a label without a cut are reviewed
        cuts = [by_label_cuts.get(label, unreachable) if has_cuts_by_label else cut for label in table["decision"]]
        expected_cut = pl.Series(cuts)
        assert ((table["reliability"] >= expected_cut) == (table["route"] == "automatic")).all()
        assert ("without a threshold" in capsys.readouterr().err) == (overall is None)


def test_given_threshold_is_guaranteed_only_on_new_rows(folder, capsys, tmp_path):
    out = tmp_path / "cut.json"
    scored = tmp_path / "scored.parquet"
    options = "--map", folder / "map.json", "--cut", 0.75, "--out", out, "--predictions"

    for name, guaranteed in (("validation.parquet", False), ("test.parquet", True)):
        run_command("thresholds", *options, folder / name)
        printed = capsys.readouterr().err
        assert re.search(r"reliability .*least 0\.75 \(", printed)
        assert ("without looking" in printed) == guaranteed
        assert ("without a guarantee" in printed) == (not guaranteed)
        assert json.loads(out.read_text())["guaranteed"] == guaranteed

    thresholds = json.loads(out.read_text())
    assert thresholds["asked_cut"] == 0.75

    # as if the other labels had no rows
    (tmp_path / "cut.json").write_text(json.dumps(thresholds | {"labels": thresholds["labels"][:1]}))
    run_command(
        "apply", "--map", folder / "map.json", "--predictions", folder / "new.parquet", "--out", scored, "--cuts", out
    )
    table = pl.read_parquet(scored)

    assert ((table["reliability"] >= 0.75) == (table["route"] == "automatic")).all()
    with pytest.raises(InputError, match=r"exactly one.*coverage.*cut"):
        run_command("thresholds", *options, folder / "test.parquet", "--coverage", "0.5")


def test_guarantee_uses_every_row_with_and_without_groups(folder, tmp_path, capsys):
    pl.read_parquet(folder / "test.parquet").drop("group").write_parquet(tmp_path / "test.parquet")
    for source, note in ((folder, "3,000 rows .*300 groups"), (tmp_path, "treated as independent")):
        run_command(
            "thresholds", "--map", folder / "map.json", "--predictions", source / "test.parquet", "--coverage", "0.5"
        )
        printed = capsys.readouterr()
        assert re.search(note, printed.err)
        assert json.loads(printed.out)["overall"]["rows"] == 3000
    pl.read_parquet(folder / "validation.parquet").drop("group").write_parquet(tmp_path / "fitted.parquet")
    with pytest.raises(InputError, match=r"fitted\.parquet.*groups by group;"):
        run_command("evaluate", "--map", folder / "map.json", "--predictions", tmp_path / "fitted.parquet")


def test_map_date_is_source_date_epoch(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    first = fit(maps.make_confidence_predictions(300), tmp_path, "--variant", "confidence")
    second = fit(maps.make_confidence_predictions(300), tmp_path, "--variant", "confidence")
    assert json.dumps(first) == json.dumps(second)
    assert first["source"]["at"] == "1970-01-02T00:00:00+00:00"


def test_printed_json_is_printable_and_equivalent(capsys):
    content = {"a": ["\u202e\x1b[2J\x9b", "\n", "ü", "完", "\U000e0001"], "b": {"c": 1.5}}
    write_json_output(content, None)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == content


@pytest.mark.parametrize(("calibrator", "is_slow"), [("hcal", True), ("ts", False)])
def test_slow_fit_is_announced(calibrator, is_slow, tmp_path, capsys):
    (tmp_path / "p.csv").write_text("a\n1\n")
    with pytest.raises(InputError):
        run_command(
            "fit", "--predictions", tmp_path / "p.csv", "--calibrator", calibrator, "--out", tmp_path / "map.json"
        )
    assert bool(re.search(rf"calibrator {calibrator}\. .*minutes", capsys.readouterr().err)) == is_slow


CELL_VALUES = st.one_of(
    st.none(), st.integers(-2, 3), st.floats(), st.sampled_from(["", "nan", "1e400", "0.5", " 1", "good", "１", "0x1"])
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(CELL_VALUES, CELL_VALUES, CELL_VALUES), max_size=4),
    st.booleans(),
    st.sampled_from([*maps.WRITERS]),
)
def test_any_small_file_is_rejected_or_scored_correctly(folder, tmp_path, rows, has_confidence, suffix):
    names = ["decision", "confidence", "label"] if has_confidence else ["logits_0", "logits_1", "logits_2"]
    frame = pl.DataFrame(rows, schema=names, orient="row", strict=False, infer_schema_length=None)
    path = maps.write_frame(frame, tmp_path / f"any{suffix}")
    out = tmp_path / f"scored{suffix}"
    out.unlink(missing_ok=True)
    error_message = ""
    try:
        map_file = folder / ("stated.json" if has_confidence else "map.json")
        run_command("apply", "--map", map_file, "--predictions", path, "--out", out)
    except InputError as error:
        error_message = str(error)  # any other error fails this test

    assert out.exists() == (not error_message)
    if error_message:
        assert str(path) in error_message
        return
    if suffix == ".jsonl" and not rows:
        return
    scored = read_columns(open_predictions(out), open_predictions(out).schema.names)
    assert scored.height == len(rows)
    assert scored["reliability"].cast(pl.Float64).is_between(0, 1).all()
    if not has_confidence and rows:
        logits = scored.select(pl.col(names).cast(pl.String).str.strip_chars().cast(pl.Float64)).to_numpy()
        assert scored["decision"].cast(pl.Int64).to_list() == logits.argmax(axis=1).tolist()


def test_a_map_of_correct_rows_only_trusts_them(tmp_path):
    correct_rows = maps.make_predictions(900).with_columns(label=pl.col("logits").list.arg_max())
    document = fit(correct_rows, tmp_path)
    assert document["projection"]["name"] == "mrp_pooled"
    assert np.mean(document["held_out"]["quantiles"]) > 0.99
