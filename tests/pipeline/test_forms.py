"""Forms of the commands: descriptions of fields, rejected values, and output files."""

import inspect
import json
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest
from prefect.exceptions import ParameterTypeError
from prefect.utilities.schema_tools import validate
from prefect.utilities.schema_tools.validation import ValidationError
from typer.testing import CliRunner

from flows import forms, serve
from relmap import cli
from relmap.calibrators.registry import CALIBRATORS
from relmap.cli import fill_in_registry_names
from relmap.errors import InputError
from relmap.maps.sql import DIALECTS
from relmap.projection.registry import DEPLOYABLE_VARIANTS
from tasks.settings.params import load_params

COMMANDS = {form.name.removeprefix("rerank-"): form for form in forms.RERANK_FLOWS}
PATHS = {"predictions", "map_file", "cuts", "unlabelled"}


def form_fields(form) -> dict[str, dict]:
    """Return the fields of a form as the server receives them."""
    deployment = forms.create_deployment(form, form.name)
    return deployment._parameter_openapi_schema.model_dump(exclude_unset=True)["properties"]


@pytest.mark.parametrize("name", COMMANDS)
def test_field_descriptions_are_the_help_of_the_command(name):
    text = " ".join(CliRunner(env={"COLUMNS": "1000"}).invoke(cli.app, [name, "--help"]).output.split())
    parameters = inspect.signature(getattr(cli, name)).parameters
    for field, schema in form_fields(COMMANDS[name]).items():
        _, option = get_args(parameters[field].annotation)
        assert fill_in_registry_names(option.help) in text, field
        words = fill_in_registry_names(option.help).replace("--map", "map_file").replace("--cost-error", "cost_error")
        words = words.replace("--cost-review", "cost_review").replace("--", "")
        assert words in schema["description"], field
        assert "--" not in schema["description"].replace("flows.serve --out", ""), field


@pytest.mark.parametrize("name", COMMANDS)
def test_a_form_has_the_parameters_of_its_command_required_ones_first(name):
    parameters = list(inspect.signature(getattr(cli, name)).parameters)
    fields = form_fields(COMMANDS[name])
    needed = set(COMMANDS[name].parameters.required)
    assert {"predictions", "out"} & set(fields) <= needed
    expected = sorted((parameter for parameter in parameters if parameter != "figure"), key=lambda p: p not in needed)
    assert list(fields) == expected
    assert [schema["position"] for schema in fields.values()] == list(range(len(fields)))


@pytest.mark.parametrize("name", COMMANDS)
def test_path_fields_state_their_location_and_groups_are_consecutive(name):
    for field, schema in form_fields(COMMANDS[name]).items():
        description = schema["description"]
        assert ("A path on the server" in description) == (field in PATHS), field
        assert ("relative to the served folder (data/served" in description) == (field == "out"), field
        assert description.startswith("How the file is read: ") == (
            field
            in {"label", "id", "decision", "confidence", "confidence_words", "percent", "logits"}
            | {"probabilities", "probability", "score", "border", "positive", "drop_unlabelled"}
        ), field


def test_fields_offer_no_null_and_may_be_omitted():
    for deployment in serve.create_deployments(load_params()):
        schema = deployment._parameter_openapi_schema.model_dump(exclude_unset=True)
        for name, field in schema["properties"].items():
            assert "null" not in json.dumps(field), (deployment.name, name)
            assert field["description"], (deployment.name, name)
    schema = forms.rerank_fit.parameters.model_dump(exclude_unset=True)
    validate({"predictions": "a", "out": "b.json"}, schema, raise_on_error=True)
    validate({"predictions": "a", "out": "b.json", "calibrator": "ts", "label": "y"}, schema, raise_on_error=True)
    with pytest.raises(ValidationError):
        validate({"predictions": "a", "out": "b.json", "calibrator": "platt"}, schema, raise_on_error=True)


def test_the_schema_has_the_limits_of_the_options():
    fields = form_fields(forms.rerank_fit)
    assert fields["hold_out"]["minimum"] == 0
    assert fields["hold_out"]["maximum"] == 0.9
    assert fields["calibrator"]["enum"] == list(CALIBRATORS)
    assert "default" not in fields["calibrator"]
    assert fields["variant"]["enum"] == list(DEPLOYABLE_VARIANTS)
    assert "default" not in fields["variant"]


def test_errors_name_the_fields_of_the_form(folder, monkeypatch):
    monkeypatch.setattr(forms, "hold_run_lock", nullcontext)  # there is no flow run
    Path("rows.csv").write_text("gold,confidence\na,0.5\n")
    given = {"predictions": Path("rows.csv"), "out": "map.json"}
    with pytest.raises(InputError, match=r"name yours: label = gold") as raised:
        forms.rerank_fit.fn(**given)
    assert "--" not in str(raised.value)
    with pytest.raises(InputError, match=r"^positive names the label of probability or score; .* omit positive$"):
        forms.rerank_fit.fn(**given, positive="a")
    with pytest.raises(
        InputError, match=r"^give map_file, or .*: score = COLUMN, positive = LABEL, precision = 0\.95$"
    ):
        forms.rerank_thresholds.fn(**given)
    with pytest.raises(InputError, match="--positive names"):  # on the command line
        cli.fit(**given, positive="a")


def test_the_forms_offer_all_registered_names():
    assert set(get_args(forms.CalibratorName)) == set(CALIBRATORS)
    assert set(get_args(forms.VariantName)) == set(DEPLOYABLE_VARIANTS)
    assert set(get_args(forms.Dialect)) <= set(DIALECTS)


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        (serve.reliabilities, {"datasets": []}),
        (serve.reliabilities, {"datasets": ["wands"], "seeds": [-1]}),
        (serve.reliabilities, {"datasets": ["wands"], "calibrators": ["platt"]}),
        (serve.refresh, {"targets": ["wands"]}),
        (forms.rerank_fit, {"predictions": "a", "out": "b", "calibrator": "platt"}),
        (forms.rerank_apply, {"map_file": "a", "predictions": "b", "out": "c", "coverage": 70}),
        (forms.rerank_sql, {"map_file": "a", "dialect": "oracle"}),
        (forms.rerank_label, {"map_file": "a", "predictions": "b", "out": "c", "rows": 0}),
    ],
)
def test_a_form_rejects_invalid_values(form, wrong):
    with pytest.raises(ParameterTypeError):
        form.validate_parameters(wrong)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Folder to which forms may write."""
    monkeypatch.chdir(tmp_path)
    forms.set_served_folder(forms.DEFAULT_FOLDER)
    return tmp_path / forms.DEFAULT_FOLDER


OUTSIDE = ("/etc/map.json", "../map.json", "a/../../map.json", "link/map.json", "out.json", ".")
REFUSED = dict.fromkeys(OUTSIDE, r"the only folder(.|\n)*--out")
REFUSED |= dict.fromkeys(["map", "map.sh", "map.json.py"], r"must end in \.json or \.csv")
REFUSED[".json"] = r"\.json has no name before its suffix; give a name, such as result\.json"
REFUSED["~/map.json"] = "begins with ~"
REFUSED["a\0b.json"] = "contains a NUL character"
REFUSED["m" * 300 + ".json"] = "has more than 220 bytes"


@pytest.mark.parametrize("out", REFUSED)
def test_a_form_writes_only_to_its_folder_with_the_endings_of_its_command(folder, out):
    (folder / "link").symlink_to("..")
    (folder / "out.json").symlink_to("../new.json")
    with pytest.raises(InputError, match=REFUSED[out]), forms.guard_output(out, ".json", ".csv"):
        pytest.fail("it would have written")


def test_a_form_replaces_only_files_that_forms_wrote(folder):
    assert folder.stat().st_mode & 0o777 == 0o700
    for out in ("map.json", "a/map.json", str(folder / "b.json"), "map.json"):
        with forms.guard_output(out, ".json") as place:
            assert place == folder / out
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"{len(list(folder.iterdir()))}")
    (folder / "map.json").write_text("changed by the user")
    (folder / "mine.json").write_text("of the user")
    for out in ("map.json", "mine.json"):
        with pytest.raises(InputError, match="name another file"), forms.guard_output(out, ".json"):
            pytest.fail("it would have written")


def test_every_writing_form_guards_its_output(folder, monkeypatch):
    monkeypatch.setattr(forms, "hold_run_lock", nullcontext)  # there is no flow run
    wrong = {"map_file": folder / "map.json", "predictions": folder / "rows.csv", "out": "/etc/x.json"}
    writing = [form for form in forms.RERANK_FLOWS if "out" in form.parameters.properties]
    names = [f"rerank-{name}" for name in ("fit", "report", "apply", "evaluate", "label", "thresholds")]
    assert [form.name for form in writing] == names
    for form in writing:
        with pytest.raises(InputError, match="the only folder"):
            form.fn(**{name: wrong[name] for name in form.parameters.properties if name in wrong})
