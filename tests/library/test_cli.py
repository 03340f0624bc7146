"""Commands: protected inputs, printed lines, JSON, and the arguments of a fit. No map is fitted, for speed."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import typer
from scipy.special import expit

from relmap import InputError, __version__, cli
from relmap.evaluation import assessment
from relmap.evaluation.agreement import PopulationSummary
from relmap.evaluation.assessment import MapAssessment
from relmap.evaluation.summary import FitSummary
from relmap.io.files import open_predictions
from relmap.maps import fit as api
from relmap.maps.document import describe_map, load_map, save_map
from relmap.maps.options import FitOptions
from relmap.maps.score import ignore_progress
from relmap.report import page, score
from relmap.routing.choose import choose_cut
from relmap.routing.score_thresholds import find_score_thresholds
from tests import maps

MAP = maps.make_map("confidence")
N_ROWS = 120


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Write a map, labelled rows and new rows, and change to their folder."""
    frame = maps.make_predictions(N_ROWS)
    frame.write_parquet(tmp_path / "rows.parquet")
    frame.drop("label").write_parquet(tmp_path / "new.parquet")
    save_map(MAP, tmp_path / "map.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


PROTECTED_INPUTS = {  # command, its input that the output must not replace
    "fit predictions": ("fit --predictions rows.parquet --out rows.parquet", "rows.parquet"),
    "report predictions": ("report --predictions rows.parquet --out rows.parquet", "rows.parquet"),
    "report map": ("report --predictions rows.map.json --out rows.html", "rows.map.json"),
    "apply map": ("apply --map map.json --predictions new.parquet --out map.json", "map.json"),
    "apply predictions": ("apply --map map.json --predictions new.parquet --out new.parquet", "new.parquet"),
    "apply cuts": ("apply --map map.json --predictions new.parquet --cuts cuts.json --out cuts.json", "cuts.json"),
    "label map": ("label --map map.json --predictions new.parquet --rows 9 --out map.json", "map.json"),
    "label predictions": ("label --map map.json --predictions new.parquet --rows 9 --out new.parquet", "new.parquet"),
    "evaluate map": ("evaluate --map map.json --predictions rows.parquet --out map.json", "map.json"),
    "evaluate predictions": ("evaluate --map map.json --predictions rows.parquet --out rows.parquet", "rows.parquet"),
    "evaluate unlabelled": (
        "evaluate --map map.json --predictions rows.parquet --unlabelled new.parquet --out new.parquet",
        "new.parquet",
    ),
    "thresholds map": ("thresholds --map map.json --predictions rows.parquet --cut 0.5 --out map.json", "map.json"),
    "thresholds predictions": (
        "thresholds --map map.json --predictions rows.parquet --cut 0.5 --out rows.parquet",
        "rows.parquet",
    ),
    "score thresholds": (
        "thresholds --predictions rows.parquet --score s --positive 1 --recall 0.5 --out rows.parquet",
        "rows.parquet",
    ),
    "figure predictions": (
        "thresholds --predictions rows.parquet --score s --positive 1 --recall 0.5 --figure rows.parquet",
        "rows.parquet",
    ),
    "figure output": (
        "thresholds --predictions rows.parquet --score s --positive 1 --recall 0.5 --out cuts.json --figure cuts.json",
        "cuts.json",
    ),
}


@pytest.mark.parametrize(("command", "name"), PROTECTED_INPUTS.values(), ids=PROTECTED_INPUTS)
def test_an_output_that_is_an_input_is_rejected_and_unchanged(command, name, folder):
    for other in ("cuts.json", "rows.map.json"):
        (folder / other).write_text("{}")
    before = (folder / name).read_bytes()
    with pytest.raises(InputError, match=f"^{re.escape(name)} .*input file"):
        maps.run_command(*command.split())
    assert (folder / name).read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        "apply --map map.json --predictions new.parquet --out out.parquet",
        "label --map map.json --predictions new.parquet --rows 9 --out out.parquet",
        "evaluate --map map.json --predictions rows.parquet --out out.json",
        "thresholds --map map.json --predictions rows.parquet --cut 0.5 --out out.json",
    ],
)
def test_an_output_of_an_earlier_command_is_replaced(command, folder):
    out = folder / command.rpartition(" ")[2]
    out.write_text("earlier")
    maps.run_command(*command.split())
    assert out.read_bytes() != b"earlier"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("report --predictions rows.parquet --out page.txt", "page.txt .*.html"),
        (
            "thresholds --predictions rows.parquet --score s --positive 1 --recall 0.5 --figure curve.png",
            "curve.png .*.svg",
        ),
    ],
)
def test_outputs_need_their_suffix(command, message, folder):
    with pytest.raises(InputError, match=message):
        maps.run_command(*command.split())
    assert not list(folder.glob("*.png")) + list(folder.glob("*.txt")) + list(folder.glob("*.map.json"))


MAP_OPTIONS = ["target-accuracy", "coverage", "cost-error", "cost-review", "cut"]
SCORE_OPTIONS = ["precision", "recall", "npv", "figure"]


@pytest.mark.parametrize("name", MAP_OPTIONS)
def test_options_of_a_map_need_a_map(name, folder):
    with pytest.raises(InputError, match=f"^--{name} .*--map,.*--precision,.*--recall.*--npv"):
        maps.run_command("thresholds", "--predictions", "rows.parquet", "--score", "s", f"--{name}", "0.5")


@pytest.mark.parametrize("name", SCORE_OPTIONS)
def test_options_of_a_score_are_rejected_with_a_map(name, folder):
    with pytest.raises(InputError) as error:
        maps.run_command("thresholds", "--predictions", "rows.parquet", "--map", "map.json", f"--{name}", "0.5")
    remedy = "--only-label LABEL" if name == "precision" else "omit --map"
    assert f"--{name}" in str(error.value)
    assert remedy in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", r"--map,.*--score COLUMN --positive LABEL --precision 0\.95$"),
        ("--score s", r"--map,.*--score COLUMN --positive LABEL --precision 0\.95$"),
        ("--recall 0.5", "--score COLUMN,.*--probability COLUMN$"),
        ("--recall 0.5 --score s", r"^rows\.parquet .*column s,.*--score.*logits, label, group$"),
    ],
)
def test_missing_options_of_a_score_are_named(arguments, message, folder):
    with pytest.raises(InputError, match=message):
        maps.run_command("thresholds", "--predictions", "rows.parquet", *arguments.split())


def test_apply_prints_its_summary_and_the_number_of_rows(folder, capsys):
    options = ("--map", "map.json", "--predictions", "new.parquet", "--out", "out.parquet")
    printed = maps.run_command("apply", *options, "--coverage", "0.25", "--cut", "0.125")
    written = pl.read_parquet("out.parquet")
    automatic = written.filter(pl.col("route") == "automatic")
    assert automatic.height == 30
    assert printed == capsys.readouterr().err.splitlines()
    assert printed[-1] == "out.parquet: 120 rows."
    assert re.match(r"30 of 120 rows \(25\.0%\) .*automatic, .*reliability", printed[-2])
    notes_on_checksums = [line for line in printed if "checksums" in line]
    assert len(printed) == 2 + len(notes_on_checksums)


@pytest.mark.parametrize(
    ("many_rows", "last_line"), [(121, r": 120 rows\."), (120, r": 120 rows, [\d,]+ per second\.")]
)
def test_apply_prints_its_speed_for_many_rows(many_rows, last_line, folder, monkeypatch):
    monkeypatch.setattr(cli, "MANY_ROWS", many_rows)
    printed = maps.run_command("apply", "--map", "map.json", "--predictions", "new.parquet", "--out", "out.parquet")
    assert re.fullmatch(f"out.parquet{last_line}", printed[-1])


def test_label_prints_its_summary_and_the_number_of_rows(folder, capsys):
    printed = maps.run_command(
        "label", "--map", "map.json", "--predictions", "new.parquet", "--rows", "20", "--out", "out.csv"
    )
    assert printed == capsys.readouterr().err.splitlines()
    assert printed[-1] == "out.csv: 20 rows."
    assert re.match(r"20 of 120 rows .*sampled, .*: irrelevant \(", printed[0])
    sample_of_default_seed = Path("out.csv").read_bytes()
    maps.run_command(
        "label", "--map", "map.json", "--predictions", "new.parquet", "--rows", 20, "--seed", 1, "--out", "out.csv"
    )
    assert Path("out.csv").read_bytes() == sample_of_default_seed


def assess() -> MapAssessment:
    return MapAssessment.from_predictions(load_map(Path("map.json")), open_predictions(Path("rows.parquet")), None)


def as_json(content: object) -> object:
    return json.loads(json.dumps(content))


@pytest.mark.parametrize(("out", "has_population"), [(None, False), ("out.json", True)])
def test_evaluate_writes_the_numbers_and_prints_notes_before_lines(out, has_population, folder, capsys, monkeypatch):
    maps.limit_resamples(monkeypatch, 300)
    options = ["--out", out] if out else []
    population = None
    if has_population:
        options += ["--unlabelled", "new.parquet"]
        document = load_map(Path("map.json"))
        population = PopulationSummary.from_file(document, open_predictions(Path("new.parquet")), ignore_progress)
    printed = maps.run_command("evaluate", "--map", "map.json", "--predictions", "rows.parquet", *options)
    output = capsys.readouterr()
    expected = assess().evaluate(population)
    assert printed == [*expected.notes, *expected.lines] == output.err.splitlines()
    content = json.loads(Path(out).read_text() if out else output.out)
    assert content == as_json({"predictions": "rows.parquet", "map": "map.json"} | expected.to_dict())
    assert bool(output.out) == (out is None)


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        ("--target-accuracy 0.5 --confidence-level 0.75", {"target_accuracy": 0.5, "confidence_level": 0.75}),
        ("--coverage 0.25", {"coverage": "0.25"}),
        ("--cut 0.625", {"cut": 0.625}),
        ("--cost-error 5 --cost-review 2", {"cost_error": 5, "cost_review": 2}),
    ],
)
def test_thresholds_of_a_map_are_written_and_printed(arguments, request_, folder, capsys):
    printed = maps.run_command("thresholds", "--map", "map.json", "--predictions", "rows.parquet", *arguments.split())
    output = capsys.readouterr()
    expected = choose_cut(assess(), **request_)
    assert printed == [*expected.notes, *expected.lines] == output.err.splitlines()
    assert json.loads(output.out) == as_json({"predictions": "rows.parquet", "map": "map.json"} | expected.to_dict())


def make_scores() -> pl.DataFrame:
    random = np.random.default_rng(0)
    probability = expit(random.normal(size=300) * 3)
    return pl.DataFrame({"s": probability, "label": np.where(random.random(300) < probability, "yes", "no")})


SCORE_TARGETS = {"precision": 0.8, "recall": 0.75, "npv": 0.7, "confidence_level": 0.875, "seed": 5}


def run_score_thresholds(column_option: str, *options: object) -> list[str]:
    make_scores().write_csv("scores.csv")
    targets = ["--precision", 0.8, "--recall", 0.75, "--npv", 0.7, "--confidence-level", 0.875, "--seed", 5]
    column = [column_option, "s", "--positive", "yes"]
    return maps.run_command("thresholds", "--predictions", "scores.csv", *column, *targets, *options)


@pytest.mark.parametrize("column_option", ["--score", "--probability"])
def test_thresholds_of_a_score_are_written_and_printed(column_option, folder, capsys):
    printed = run_score_thresholds(column_option)
    output = capsys.readouterr()
    frame = make_scores()
    expected = find_score_thresholds(frame["s"].to_numpy(), (frame["label"] == "yes").to_numpy(), **SCORE_TARGETS)
    content = as_json({"predictions": "scores.csv", "score": "s", "positive": "yes"} | expected.to_dict())
    curve = content.pop("curve")
    assert printed == expected.describe() == output.err.splitlines()
    assert json.loads(output.out) == content  # without the curve

    run_score_thresholds(column_option, "--out", "out.json")
    assert json.loads(Path("out.json").read_text()) == content | {"curve": curve}
    assert capsys.readouterr().out == ""


def test_the_figure_of_a_score_is_written_and_named(folder, monkeypatch):
    monkeypatch.setattr(score, "precision_recall_svg", lambda found: f"<svg {len(found.curve)}>")
    printed = run_score_thresholds("--score", "--figure", "curve.svg")
    assert printed[-1] == "curve.svg: precision-recall curve."
    assert Path("curve.svg").read_text() == "<svg 300>"


FIT_OPTIONS = {  # option -> text on the command line, argument of the fit, its value
    "--calibrator": ("vector", "calibrator", "vector"),
    "--variant": ("mrp", "variant", "mrp"),
    "--seed": ("7", "seed", 7),
    "--group": ("group", "group", "group"),
    "--labels": ("bad,fair,good", "labels", ("bad", "fair", "good")),
    "--signals": ("a,b", "signals", ("a", "b")),
    "--hold-out": ("0.25", "hold_out", 0.25),
}
DEFAULT_FIT = {
    "calibrator": None,
    "variant": None,
    "seed": 1,
    "group": None,
    "labels": None,
    "signals": (),
    "hold_out": 0.0,
    "protocol": "own",
    "accept_label_order": False,
}


class FitRecorder:
    """Fit that records its arguments and returns a made-up map."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.options: dict[str, object] = {}

    def __call__(self, file: object, options: FitOptions) -> SimpleNamespace:
        self.path = file.path
        self.options = asdict(options)
        return SimpleNamespace(document=MAP.model_copy(update={"default_threshold": 0.75}), held_out=None)


@pytest.fixture
def recorder(monkeypatch) -> FitRecorder:
    recorder = FitRecorder()
    monkeypatch.setattr(api, "fit_map", recorder)
    summary = FitSummary(("Better.", "Because."), ("Note.",), details=("Detail.",))
    monkeypatch.setattr(assessment, "describe_fit", lambda _: summary)
    monkeypatch.setattr(page, "render_map_page", lambda *arguments: f"page {len(arguments)}")
    return recorder


@pytest.mark.parametrize(("flag", "text", "name", "value"), [(flag, *case) for flag, case in FIT_OPTIONS.items()])
@pytest.mark.parametrize(("command", "out"), [("fit", "out.json"), ("report", "out.html")])
def test_each_option_of_a_fit_is_passed_on(command, out, flag, text, name, value, folder, recorder):
    maps.run_command(command, "--predictions", "rows.parquet", "--out", out, flag, text)
    assert recorder.path == Path("rows.parquet")
    assert recorder.options == DEFAULT_FIT | {name: value}


@pytest.mark.parametrize(("command", "out"), [("fit", "out.json"), ("report", "out.html")])
def test_the_order_of_labels_is_accepted_on_request(command, out, folder, recorder):
    maps.run_command(command, "--predictions", "rows.parquet", "--out", out, "--accept-label-order")
    assert recorder.options == DEFAULT_FIT | {"accept_label_order": True}


def test_the_protocol_of_a_fit_is_passed_on(folder, recorder):
    maps.run_command("fit", "--predictions", "rows.parquet", "--out", "out.json", "--protocol", "paper")
    assert recorder.options == DEFAULT_FIT | {"protocol": "paper"}


@pytest.mark.parametrize("options", [(), ("--verbose",)])
def test_fit_saves_the_map_and_prints_notes_the_result_and_the_next_step(options, folder, recorder, capsys):
    printed = maps.run_command("fit", "--predictions", "rows.parquet", "--out", "my out.json", *options)
    assert load_map(Path("my out.json")).fingerprint == MAP.fingerprint
    details = ["Detail.", f"{describe_map(MAP)}."] if options else []
    assert printed[:-1] == ["Note.", "Better.", "Because.", *details]
    assert re.match(r"my out\.json .*`relmap apply --map 'my out\.json' ", printed[-1])
    assert capsys.readouterr().err.splitlines() == printed


def test_report_replaces_its_page_and_map_only_on_request(folder, recorder):
    command = ("report", "--predictions", "rows.parquet", "--out", "again.html")
    maps.run_command(*command)
    Path("again.html").unlink()
    with pytest.raises(InputError, match=r"again\.map\.json exists"):
        maps.run_command(*command)
    assert not Path("again.html").exists()
    maps.run_command(*command, "--force")
    assert Path("again.html").exists()


def test_report_saves_map_and_page_next_to_each_other(folder, recorder, capsys):
    printed = maps.run_command("report", "--predictions", "rows.parquet", "--out", "out.html")
    assert load_map(Path("out.map.json")).fingerprint == MAP.fingerprint
    assert Path("out.html").read_text() == "page 4"
    assert printed[:-1] == ["Note.", "Better.", "Because."]
    assert re.match(r"out\.html .*out\.map\.json .*written", printed[-1])
    assert capsys.readouterr().err.splitlines() == printed


@pytest.mark.parametrize(
    ("calibrator", "is_announced"),
    [("ts", False), ("uncal", False), ("hcal", True), ("smart", True), ("unknown", False)],
)
def test_a_long_fit_is_announced(calibrator, is_announced, folder, recorder, capsys):
    maps.run_command("fit", "--predictions", "rows.parquet", "--out", "out.json", "--calibrator", calibrator)
    announcement = re.search(rf"calibrator {calibrator}\. .*minutes", capsys.readouterr().err)
    assert bool(announcement) == is_announced


@pytest.mark.parametrize(("flag", "text"), [("--labels", "good"), ("--labels", "a,,b"), ("--signals", "a,a")])
def test_invalid_lists_of_names_are_rejected(flag, text, folder, recorder):
    with pytest.raises(InputError, match=flag):
        maps.run_command("fit", "--predictions", "rows.parquet", "--out", "out.json", flag, text)
    assert recorder.path is None


def test_sql_prints_the_expression_of_a_column_and_describes_what_it_reads(folder, capsys):
    expressions = set()
    for column, columns in (("reliability", "decision and confidence"), ("confidence", "logits_0 to logits_2")):
        expression = maps.run_command("sql", "--map", "map.json", "--dialect", "postgres", "--column", column)
        printed = capsys.readouterr()
        assert printed.out == f"{expression}\n"
        assert columns in printed.out
        expressions.add(expression)
    assert len(expressions) == 2
    default = maps.run_command("sql", "--map", "map.json")
    assert default == maps.run_command("sql", "--map", "map.json", "--dialect", "duckdb", "--column", "reliability")
    assert capsys.readouterr().out != printed.out


def test_the_version_is_printed(capsys):
    assert maps.run_command("--version") in (None, 0)
    assert capsys.readouterr().out == f"relmap {__version__}\n"


@pytest.mark.skipif(find_spec("duckdb") is None, reason="duckdb is not installed")
def test_a_command_that_has_sorted_with_duckdb_ends_without_a_message():
    code = "import sys, duckdb; from relmap import cli; sys.argv = ['relmap', '--version']; cli.main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("row 3\x1b is missing"), "relmap: row 3\\u001b is missing"),
        (OSError(28, "No space", "out.json"), "relmap: [Errno 28] No space: 'out.json'"),
    ],
)
def test_errors_of_the_user_end_the_program_with_their_message(error, message, monkeypatch):
    def fail(*, prog_name: str) -> None:
        assert prog_name == "relmap"
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == message


def test_other_errors_of_the_program_are_raised(monkeypatch):
    def fail(**_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(ValueError, match="a bug"):
        cli.main()


@pytest.mark.parametrize(("option", "invalid"), [("--seed", "-1"), ("--hold-out", "-0.01"), ("--hold-out", "0.91")])
def test_numbers_outside_their_range_are_refused_before_the_fit(option, invalid, folder, recorder):
    with pytest.raises(typer.BadParameter):
        maps.run_command("fit", "--predictions", "rows.parquet", "--out", "out.json", option, invalid)
    assert recorder.path is None


@pytest.mark.parametrize(("option", "valid"), [("--seed", "0"), ("--hold-out", "0"), ("--hold-out", "0.9")])
def test_numbers_at_their_limits_are_accepted(option, valid, folder, recorder):
    maps.run_command("fit", "--predictions", "rows.parquet", "--out", "out.json", option, valid)
    name = option.removeprefix("--").replace("-", "_")
    assert recorder.options[name] == float(valid)
