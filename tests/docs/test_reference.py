"""The generated reference names every public item."""

import re
import sys
from pathlib import Path

import pytest

import relmap
from relmap import cli
from tasks.tables import TABLES
from tasks.tables.differences import DIFFERENCES

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/_ext"))

import reference_pages as reference  # noqa: E402 - needs the path above


def test_every_public_name_and_method_is_documented():
    text = reference.python_api()
    for public in relmap.__all__:
        assert f"relmap.{public}" in text
    for public in reference.public_classes():
        kind = getattr(relmap, public)
        documented = {method.__name__: method for method in reference.public_methods(kind)}
        expected = set()
        for name in vars(kind):
            is_of_scikit_learn = name.endswith("_request")
            if callable(getattr(kind, name)) and not name.startswith("_") and not is_of_scikit_learn:
                expected.add(name)
        assert documented.keys() == expected
        for name, method in documented.items():
            assert name in text
            assert method.__doc__


def test_every_command_and_option_is_documented():
    text = reference.command_line()
    for command in cli.app.registered_commands:
        assert f"## relmap {command.callback.__name__}\n" in text
    for command in reference.commands().values():
        assert command.help
        for option in command.params:
            if option.name != "help":
                assert option.help
                assert all(f"`{flag}`" in text for flag in option.opts)


def test_help_in_the_reference_has_the_names_of_the_registries():
    text = reference.command_line()
    assert "{" not in text
    assert "label_platt" in text


def test_every_key_of_params_yaml_is_described_and_nothing_else():
    assert reference.settings().keys() == reference.DESCRIPTIONS["params"].keys()
    assert all(f"| `{key}` |" in reference.params() for key in reference.settings())


def test_every_key_of_a_map_is_described_and_nothing_else():
    assert reference.SCHEMA["properties"].keys() == reference.DESCRIPTIONS["map"].keys()
    for part, schema in reference.SCHEMA["$defs"].items():
        assert f"### {part}\n" in reference.map_schema()
        assert all(f"| `{key}` |" in reference.map_schema() for key in schema.get("properties", {}))


def test_keys_of_the_parts_of_a_map_have_the_meanings_in_the_docstrings():
    text = reference.map_schema()
    assert re.search(r"^\| `name` \| text \| Name .*command line\. \|$", text, re.MULTILINE)
    of_two_lines = r"^\| `coefficients` \| .*0\.\.3 .*\[0, 1\] .*shape \(J - 1, 4\)\. \|$"
    assert re.search(of_two_lines, text, re.MULTILINE)
    assert "Attributes:" not in text


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_a_table_is_described(table):
    columns = reference.report_columns()[table]
    assert columns
    assert all(reference.column_meaning(table, column) for column in columns)


def test_a_column_without_a_description_is_an_error():
    with pytest.raises(KeyError):
        reference.column_meaning("overview", "unheard_of")


@pytest.mark.parametrize("registry", [reference.METRICS, reference.CALIBRATORS, reference.VARIANTS])
def test_every_model_and_metric_has_a_summary(registry):
    assert [key for key, member in registry.items() if not member.summary] == []


def test_every_added_column_is_described_and_nothing_else():
    assert set(reference.added_columns().columns) == reference.DESCRIPTIONS["apply"].keys()


def test_messages_of_errors_are_listed():
    assert len(reference.errors().splitlines()) > 50


def test_the_page_of_differences_has_every_sentence_of_the_registry():
    page = reference.differences()
    for difference in DIFFERENCES.values():
        assert f"### {difference.key}" in page
        for sentence in (difference.text, difference.release, difference.project, difference.effect):
            assert sentence.replace("|", "\\|") in page
