"""Options of the commands: their panels, limits, completion, defaults and help, as a user sees them."""

import inspect
from typing import Any, get_args

import pytest

from relmap import cli
from relmap.cli import COLUMNS_PANEL, CommandWithNames, calibrator_names, variant_names
from relmap.errors import option
from relmap.maps import options

COMMANDS = ("fit", "report", "apply", "label", "evaluate", "watch", "thresholds", "sql", "demo")
FIT_OPTIONS = {"calibrator", "variant", "seed", "signals", "hold_out", "accept_label_order"}
PANELS = {  # command -> panel -> its options
    "fit": {options.PANEL: FIT_OPTIONS | {"protocol"}},
    "report": {options.PANEL: FIT_OPTIONS},
    "thresholds": {
        cli.MAP_PANEL: {"target_accuracy", "coverage", "cost_error", "cost_review", "cut", "only_label"},
        cli.SCORE_PANEL: {"precision", "recall", "npv", "labels", "figure", "seed"},
    },
}
READING_OPTIONS = {
    "label",
    "decision",
    "confidence",
    "confidence_words",
    "percent",
    "logits",
    "probabilities",
    "probability",
    "score",
    "border",
    "positive",
    "id",
    "drop_unlabelled",
}
TREC_OPTIONS = {"run", "qrels", "relevant_from", "unjudged"}
TREC_OPTIONS_OF = {
    "fit": TREC_OPTIONS,
    "report": TREC_OPTIONS,
    "evaluate": TREC_OPTIONS,
    "thresholds": TREC_OPTIONS,
    "apply": {"run"},
    "label": {"run"},
    "watch": {"run"},
}
OMITTED_READING_OPTIONS = {
    "apply": {"label", "id", "drop_unlabelled"},
    "label": {"id", "drop_unlabelled"},
    "watch": {"label", "id", "drop_unlabelled"},
    "sql": READING_OPTIONS,
    "demo": READING_OPTIONS,
}
every_command = pytest.mark.parametrize("command", COMMANDS)


def parameters_of(command: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(cli, command)).parameters)


def options_of(command: str) -> dict[str, Any]:
    """Return the description that typer has of each option of a command, by name of the parameter."""
    return {name: get_args(parameter.annotation)[1] for name, parameter in parameters_of(command).items()}


def test_the_program_has_its_commands_and_shows_its_help_without_a_command():
    assert [registered.callback for registered in cli.app.registered_commands] == [
        getattr(cli, name) for name in COMMANDS
    ]
    assert {registered.cls for registered in cli.app.registered_commands} == {CommandWithNames}
    assert cli.app.info.no_args_is_help
    assert cli.app.info.context_settings == {"help_option_names": ["-h", "--help"]}
    assert cli.app.info.help == cli.app.registered_callback.callback.__doc__
    assert not cli.app.pretty_exceptions_enable


@every_command
def test_options_are_grouped_in_panels(command):
    expected = dict(PANELS.get(command, {}))
    reading_options = READING_OPTIONS - OMITTED_READING_OPTIONS.get(command, set())
    if reading_options:
        expected[COLUMNS_PANEL] = reading_options | TREC_OPTIONS_OF.get(command, set())
    found: dict[str, set[str]] = {}
    for name, option_info in options_of(command).items():
        if option_info.rich_help_panel is not None:
            found.setdefault(option_info.rich_help_panel, set()).add(name)
    assert found == expected


@every_command
def test_every_option_has_help_and_the_name_that_messages_use(command):
    for name, option_info in options_of(command).items():
        assert len(option_info.help.split()) > 2, name
        if option_info.param_decls:
            assert option_info.default == option(name) or option(name) in (
                option_info.default,
                *option_info.param_decls,
            ), name


@pytest.mark.parametrize("command", ["fit", "report"])
def test_names_of_the_registries_are_completed(command):
    completions = {}
    for name, option_info in options_of(command).items():
        if option_info.autocompletion is not None:
            completions[name] = option_info.autocompletion
    assert completions == {"calibrator": calibrator_names, "variant": variant_names}


def test_numbers_have_limits():
    found = {}
    for command in COMMANDS:
        for name, option_info in options_of(command).items():
            if (option_info.min, option_info.max) != (None, None):
                found[command, name] = (option_info.min, option_info.max)
    assert found == {
        ("fit", "seed"): (0, None),
        ("report", "seed"): (0, None),
        ("label", "seed"): (0, None),
        ("thresholds", "seed"): (0, None),
        ("label", "rows"): (1, None),
        ("fit", "hold_out"): (0, 0.9),
        ("report", "hold_out"): (0, 0.9),
    }


REQUIRED = {
    "fit": {"out"},  # and predictions or a run
    "report": {"out"},
    "apply": {"map_file", "out"},
    "label": {"map_file", "out", "rows"},
    "evaluate": {"map_file"},
    "watch": {"map_file"},
    "thresholds": set(),
    "sql": {"map_file"},
    "demo": set(),
}


@every_command
def test_required_options_have_no_default(command):
    required = {name for name, parameter in parameters_of(command).items() if parameter.default is parameter.empty}
    assert required == REQUIRED[command]


DEFAULTS = {
    "fit": {"seed": 1, "protocol": "own", "hold_out": 0.0, "unjudged": "omit"},
    "report": {"seed": 1, "hold_out": 0.0, "unjudged": "omit"},
    "label": {"seed": 1},
    "evaluate": {"unjudged": "omit"},
    "thresholds": {"seed": 1, "confidence_level": 0.95, "unjudged": "omit"},
    "sql": {"dialect": "duckdb", "column": "reliability"},
}


@every_command
def test_the_other_options_have_the_documented_default_or_none(command):
    found = {}
    for name, parameter in parameters_of(command).items():
        has_default = parameter.default not in (parameter.empty, None, False)
        if has_default or name == "hold_out":  # its default 0.0 equals False
            found[name] = parameter.default
    found.pop("folder", None)  # of demo, see below
    assert found == DEFAULTS.get(command, {})
    if command == "demo":
        assert str(parameters_of("demo")["folder"].default) == "relmap_demo"
