"""Options from fields, help with names of the registries, printed lines, JSON and the progress line of commands."""

import inspect
import json
import sys
from dataclasses import dataclass
from typing import Annotated, get_args

import pytest
import typer
from typer.testing import CliRunner

from relmap.calibrators.registry import CALIBRATORS
from relmap.cli import (
    COLUMNS_PANEL,
    CommandWithNames,
    calibrator_names,
    fill_in_registry_names,
    options_from_fields,
    print_lines,
    print_summary,
    row_progress,
    variant_names,
    write_json_output,
)
from relmap.projection.registry import DEPLOYABLE_VARIANTS


@dataclass(frozen=True)
class Columns:
    """Fields of each kind."""

    score_column: Annotated[str, "Column of the score."] = "s"
    group_column: Annotated[str | None, "Column of the groups."] = None
    high_border: Annotated[float, "Border."] = 0.5
    hidden: Annotated[int, "Hidden."] = 7


@options_from_fields(Columns, "columns", without=("hidden",))
def command(group: int, columns: Columns = Columns(), *, extra: str = "x") -> tuple[object, ...]:
    """Return the arguments."""
    return group, columns, extra


def test_the_parameter_of_a_value_is_replaced_by_options_for_its_fields():
    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["group", "score_column", "group_column", "high_border", "extra"]
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    assert defaults == {
        "group": inspect.Parameter.empty,
        "extra": "x",
        "score_column": "s",
        "group_column": None,
        "high_border": 0.5,
    }
    assert command.__name__ == "command"


def test_options_have_the_type_the_help_and_the_name_of_their_field():
    parameters = inspect.signature(command).parameters
    found = {}
    for name in ("score_column", "group_column", "high_border"):
        kind, option = get_args(parameters[name].annotation)
        assert isinstance(option, type(typer.Option()))
        assert option.rich_help_panel == COLUMNS_PANEL
        found[name] = (kind, [option.default, *option.param_decls], option.help)
    assert found == {
        "score_column": (str, ["--score-column"], "Column of the score."),
        "group_column": (
            str | None,
            ["--group-column"],
            "Column of the groups.",
        ),
        "high_border": (float, ["--high-border"], "Border."),
    }


def test_a_command_receives_the_value_of_its_options():
    assert command(3, score_column="a", high_border=0.25, extra="y") == (
        3,
        Columns(score_column="a", high_border=0.25),
        "y",
    )
    assert command(4) == (4, Columns(), "x")


def test_names_of_the_registries_are_filled_in():
    assert calibrator_names() == list(CALIBRATORS)
    assert variant_names() == list(DEPLOYABLE_VARIANTS)
    text = fill_in_registry_names("C {calibrators}; V {variants}")
    assert text == f"C {', '.join(CALIBRATORS)}; V {', '.join(DEPLOYABLE_VARIANTS)}"
    assert fill_in_registry_names("No } name") == "No } name"


@pytest.mark.parametrize("markup_mode", [None, "rich"])
def test_help_is_shown_with_the_names_of_the_registries(markup_mode):
    app = typer.Typer(rich_markup_mode=markup_mode)

    @app.command(cls=CommandWithNames)
    def calibrate(name: Annotated[str, typer.Option(help="One of {calibrators}.")] = "ts") -> None:
        """Calibrate."""

    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0, result.output
    assert "{" not in result.output
    assert "spline" in result.output


def test_lines_are_printed_to_the_error_stream_with_escapes(capsys):
    assert print_lines(["two rows", "a\x1b[31mred\ttext"]) == ["two rows", "a\\u001b[31mred\\ttext"]
    printed = capsys.readouterr()
    assert printed.err == "two rows\na\\u001b[31mred\\ttext\n"
    assert printed.out == ""


@pytest.mark.parametrize("verbose", [False, True])
def test_details_of_a_summary_are_printed_on_request(verbose, capsys):
    printed = print_summary(["note"], ["first", "second"], ["detail"], verbose=verbose, last=["written"])
    assert printed == ["note", "first", "second", *(["detail"] if verbose else []), "written"]
    assert capsys.readouterr().err.splitlines() == printed


CONTENT = {"name": "größe\u202e", "rows": 12, "parts": [0.5, None]}


def test_json_without_a_file_is_printed_with_escapes(capsys):
    write_json_output(CONTENT, None)
    printed = capsys.readouterr()
    assert printed.out == ('{\n  "name": "größe\\u202e",\n  "rows": 12,\n  "parts": [\n    0.5,\n    null\n  ]\n}\n')
    assert printed.err == ""
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_output({"value": float("nan")}, None)


def test_json_with_a_file_is_written_and_not_printed(tmp_path, capsys):
    write_json_output(CONTENT, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == CONTENT
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_for_each_stage_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with row_progress() as advance:
        advance("scored", 1200)
        advance("scored", 34)
        advance("written", 5)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "1,234 rows scored" in printed.err
    assert "5 rows written" in printed.err
    assert "0:00:00" in printed.err
    assert printed.err.rstrip("\n").endswith("\x1b[2K")  # the lines are erased at the end


def test_progress_is_not_shown_without_a_terminal(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with row_progress() as advance:
        advance("scored", 1200)
    assert capsys.readouterr() == ("", "")
