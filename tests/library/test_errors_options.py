"""Names of options in messages on the command line and in Python."""

import ast
import inspect
import re
from pathlib import Path
from typing import get_args

import pytest
import typer

import relmap
from relmap import cli
from relmap.errors import InputError, assignment, assignments, naming, option
from relmap.io.column_layout import Reading

SOURCES = Path(relmap.__file__).parent
LITERAL_OPTION = re.compile(r"--[a-z]")
# These files contain whole command lines, which are the same in every interface
COMMAND_LINES = {"simulation/demo.py", "report/page.py"}


def test_option_name_follows_the_interface():
    assert option("hold_out") == "--hold-out"
    assert option("map_file") == "--map"
    with naming("python"):
        assert option("hold_out") == "hold_out"
        assert option("group") == "groups"
    assert option("hold_out") == "--hold-out"


def test_assignment_has_the_syntax_of_the_interface():
    assert assignment("label", "truth") == "--label truth"
    assert assignment("label", "the truth") == "--label 'the truth'"
    assert assignment("percent", True) == "--percent"
    assert assignments({"border": 0, "score": "s"}) == "--border 0 --score s"
    with naming("python"):
        assert assignment("label", "the truth") == "label='the truth'"
        assert assignment("percent", True) == "percent=True"
        assert assignments({"border": 0, "score": "s"}) == "border=0, score_column='s'"


def test_naming_style_is_restored_after_an_error():
    with pytest.raises(InputError), naming("python"):
        raise InputError(option("label"))
    assert option("label") == "--label"


@pytest.mark.parametrize("command", cli.app.registered_commands, ids=lambda command: command.callback.__name__)
def test_every_command_parameter_has_the_option_named_in_messages(command):
    parsed = typer.main.get_command_from_info(command, pretty_exceptions_short=False, rich_markup_mode=None)
    names = {parameter.name: parameter.opts for parameter in parsed.params}
    for name in inspect.signature(command.callback).parameters:
        assert option(name) in names[name], name


def messages(file: Path) -> list[str]:
    """Return the string constants of a source file except docstrings and help texts."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    excluded: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            excluded.add(id(node.value))
        called = getattr(getattr(node, "func", None), "attr", "")
        if isinstance(node, ast.Call) and called in {"Option", "Typer"}:  # help, or the name of an option
            excluded.update(id(child) for child in ast.walk(node))
        if isinstance(node, ast.AnnAssign):  # the help of a field is in its type
            excluded.update(id(child) for child in ast.walk(node.annotation))
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in texts if id(node) not in excluded]


def test_messages_contain_no_literal_option():
    found = {}
    for file in sorted(SOURCES.rglob("*.py")):
        name = file.relative_to(SOURCES).as_posix()
        literal = [text for text in messages(file) if LITERAL_OPTION.search(text)]
        if literal and name not in COMMAND_LINES | {"errors.py"}:
            found[name] = literal
    assert found == {}, "name options with relmap.errors.option or assignment: Python shows these messages too"


def test_literal_option_is_found(tmp_path):
    file = tmp_path / "module.py"
    file.write_text('"""About --label."""\nraise InputError(f"{file} has no truth; give --label")\n')
    assert messages(file) == [" has no truth; give --label"]


def test_column_help_names_only_existing_options():
    known = {option(name) for name in Reading.__dataclass_fields__}
    for annotation in Reading.__annotations__.values():
        _, text = get_args(annotation)
        assert set(re.findall(r"--[a-z-]+", text)) <= known, text
