"""Small modules: hashes, timestamps, errors, settings, serialized values, and the demonstration."""

import hashlib
import io
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import polars as pl
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from relmap import InputError
from relmap.errors import describe_validation_errors, escape_unprintable, needs_extra
from relmap.io import timestamps
from relmap.io.hashing import hash_file, sha256_of_arrays, sha256_of_file
from relmap.io.serialization import Axes, Count, Share, Value
from relmap.settings import DEFAULTS, LEARNING_CURVE_ROWS, ProtocolParams, Settings, row_counts
from relmap.simulation import demo
from relmap.simulation.predictions import simulate_predictions


def test_files_are_hashed_by_the_named_algorithm(tmp_path):
    path = tmp_path / "rows.bin"
    path.write_bytes(b"a\r\nb" * 1000)
    assert hash_file(path, "md5") == hashlib.md5(b"a\r\nb" * 1000, usedforsecurity=False).hexdigest()
    assert sha256_of_file(path) == hashlib.sha256(b"a\r\nb" * 1000).hexdigest()


def test_files_are_hashed_by_md5_where_it_is_forbidden_for_security(tmp_path, monkeypatch):
    new_hash = hashlib.new

    def new_hash_of_strict_system(name: str, *, usedforsecurity: bool = True) -> "hashlib._Hash":
        if usedforsecurity and name == "md5":
            raise ValueError("disabled for FIPS")
        return new_hash(name, usedforsecurity=usedforsecurity)

    monkeypatch.setattr(hashlib, "new", new_hash_of_strict_system)
    path = tmp_path / "rows.bin"
    path.write_bytes(b"rows")
    assert hash_file(path, "md5") == hashlib.md5(b"rows", usedforsecurity=False).hexdigest()


def test_arrays_are_hashed_with_their_shape_type_and_order():
    array = np.arange(6, dtype=np.int32)
    digest = hashlib.sha256(b"(6,)<i4" + array.tobytes() + b"(2, 3)<i4" + array.tobytes()).hexdigest()
    assert sha256_of_arrays(array, array.reshape(2, 3)) == digest
    assert sha256_of_arrays(array.reshape(2, 3), array) != digest
    transposed = array.reshape(2, 3).T
    assert sha256_of_arrays(transposed) == sha256_of_arrays(transposed.copy())


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [("0", "1970-01-01T00:00:00+00:00"), ("1700000001", "2023-11-14T22:13:21+00:00"), ("99999999999", "5138-11-16")],
)
def test_the_timestamp_of_the_environment_is_used(epoch, expected, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert timestamps.current_timestamp().startswith(expected)


@pytest.mark.parametrize("epoch", [None, ""])
def test_the_current_time_is_used_without_a_timestamp_of_the_environment(epoch, monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    text = timestamps.current_timestamp()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", text)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()) < 60


@pytest.mark.parametrize("epoch", ["-1", "1.5", "today", "100000000000", "12 "])
def test_invalid_timestamps_of_the_environment_are_rejected(epoch, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(InputError) as error:
        timestamps.current_timestamp()
    assert str(error.value) == (f"SOURCE_DATE_EPOCH is {epoch!r}; it must be a number of seconds, or not be set")


def test_unprintable_characters_are_escaped():
    assert escape_unprintable("größe 3\n\x1b\u202e\U000e0001") == "größe 3\\n\\u001b\\u202e\\udb40\\udc01"


@pytest.mark.parametrize("module", ["altair", "altair.vegalite", None])
def test_a_missing_package_is_reported_with_its_extra(module):
    with pytest.raises(InputError) as error, needs_extra("report"):
        raise ModuleNotFoundError(name=module)
    assert str(error.value) == f"the package {module} is not installed; run: pip install 'relmap[report]'"
    assert error.value.__suppress_context__


@pytest.mark.parametrize("module", ["relmap.missing", "tasks", "flows.missing.part"])
def test_a_missing_module_of_the_project_is_a_bug(module):
    with pytest.raises(ModuleNotFoundError), needs_extra("report"):
        raise ModuleNotFoundError(name=module)


def test_other_errors_pass_through():
    with pytest.raises(ImportError, match="cannot"), needs_extra("report"):
        raise ImportError("cannot")


class Nested(BaseModel):
    """Model with a list."""

    model_config = ConfigDict(extra="forbid")

    shares: list[Share]


def validation_error(content: object) -> ValidationError:
    with pytest.raises(ValidationError) as error:
        Nested.model_validate(content)
    return error.value


def test_each_validation_error_has_location_reason_and_value():
    error = validation_error({"shares": [0.5, 2.0, "x" * 100], "other": 1})
    assert describe_validation_errors(error, "params.yaml") == [
        "shares.1: Input should be less than or equal to 1 (found 2.0)",
        "shares.2: Input should be a valid number, unable to parse string as a number (found '" + "x" * 79 + ")",
        "other: unknown name; correct or remove it (found 1)",
    ]


def test_an_error_of_the_whole_value_has_its_name():
    (description,) = describe_validation_errors(validation_error([3]), "params.yaml")
    assert description.startswith("params.yaml: Input should be a valid dictionary")
    assert description.endswith("(found [3])")


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (1, (100,)),
        (100, (100,)),
        (101, (100, 300)),
        (300, (100, 300)),
        (301, (100, 300, 1000)),
        (5000, (100, 300, 1000)),
    ],
)
def test_steps_of_a_learning_curve_end_with_the_first_that_has_all_rows(available, expected):
    assert row_counts((1000, 100, 300), available) == expected


def test_defaults_are_valid_and_have_the_documented_values():
    assert Settings.model_validate(DEFAULTS.model_dump()) == DEFAULTS
    assert DEFAULTS.model_dump() == {
        "protocol": {
            "parts": (0.5, 0.25, 0.25),
            "projection_cap": 8000,
            "temperature_rows": "validation",
            "split": "row",
        },
        "projection": {
            "knots": 8,
            "smoothness": 1e-4,
            "learning_rate": 0.03,
            "epochs": 400,
            "minimum_rows": 20,
        },
        "metrics": {
            "ece_bins": 15,
            "ties": "expected",
            "smallest_probability": 1e-12,
            "smallest_reliability": 1e-6,
            "spread_groups": 10,
            "spread_minimum_cell": 30,
            "spread_permutations": 200,
            "resamples": 1000,
        },
        "learning_curve_rows": LEARNING_CURVE_ROWS,
    }
    assert LEARNING_CURVE_ROWS == (100, 300, 1000, 3000, 8000)


LIMITS = [  # section, setting, valid value at the limit, first invalid value
    ("protocol", "projection_cap", 1, 0),
    ("projection", "knots", 3, 2),
    ("projection", "smoothness", 0, -1e-9),
    ("projection", "learning_rate", 1e-300, 0),
    ("projection", "epochs", 1, 0),
    ("projection", "minimum_rows", 0, -1),
    ("metrics", "ece_bins", 1, 0),
    ("metrics", "smallest_probability", 0, -1e-300),
    ("metrics", "smallest_probability", 0.4999, 0.5),
    ("metrics", "smallest_reliability", 1e-300, 0),
    ("metrics", "smallest_reliability", 0.4999, 0.5),
    ("metrics", "spread_groups", 1, 0),
    ("metrics", "spread_minimum_cell", 1, 0),
    ("metrics", "spread_permutations", 1, 0),
    ("metrics", "resamples", 300, 299),
]


@pytest.mark.parametrize(("section", "setting", "valid", "invalid"), LIMITS)
def test_settings_are_valid_up_to_their_limits(section, setting, valid, invalid):
    content = DEFAULTS.model_dump()
    content[section][setting] = valid
    assert getattr(getattr(Settings.model_validate(content), section), setting) == valid
    content[section][setting] = invalid
    with pytest.raises(ValidationError, match=rf"{section}\.{setting}"):
        Settings.model_validate(content)


def test_shares_of_the_protocol_sum_to_1():
    content = DEFAULTS.protocol.model_dump()
    assert ProtocolParams.model_validate(content | {"parts": (0.5, 0.25, 0.25 + 9e-10)})
    for parts in ((0.5, 0.25, 0.25 + 2e-9), (0.5, 0.25, 0.25 - 2e-9)):
        with pytest.raises(ValidationError, match="the parts sum to 1, not to 1"):
            ProtocolParams.model_validate(content | {"parts": parts})
    with pytest.raises(ValidationError, match=re.escape("the parts sum to 0.9, not to 1")):
        ProtocolParams.model_validate(content | {"parts": (0.5, 0.25, 0.15)})


def test_unknown_settings_are_rejected_and_settings_are_frozen():
    with pytest.raises(ValidationError, match="Extra inputs"):
        ProtocolParams.model_validate(DEFAULTS.protocol.model_dump() | {"other": 1})
    with pytest.raises(ValidationError, match="frozen"):
        DEFAULTS.seed = 1


class Shapes(Value):
    """Value whose arrays share lengths."""

    knots: Annotated[np.ndarray, Axes("J")]
    heights: Annotated[np.ndarray, Axes("K", "J-1")]
    counts: Annotated[np.ndarray, Axes("K", of=Count)]
    names: Annotated[tuple[str, ...], Axes(2)]


def make_shapes(**fields: object) -> Shapes:
    values = {"knots": [0, 0.5, 1], "heights": [[1, 2], [3, 4]], "counts": [5, 6], "names": ("a", "b")}
    return Shapes(**values | fields)


def test_arrays_of_a_value_are_read_only_copies_with_their_type():
    given = np.array([0.0, 0.5, 1.0])
    value = make_shapes(knots=given)
    given[0] = 9
    assert value.knots.tolist() == [0, 0.5, 1]
    assert (value.heights.dtype, value.counts.dtype) == (np.float64, np.int64)
    for array in (value.knots, value.heights, value.counts):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(ValueError, match=r"^lists differ in length$"):
        make_shapes(heights=[[1, 2], [3]])


@pytest.mark.parametrize(
    ("fields", "n_labels", "violations"),
    [
        ({}, None, []),
        ({}, 2, []),
        ({}, 3, ["heights has shape (2, 2) instead of (3, 2)", "counts has shape (2,) instead of (3,)"]),
        ({"knots": [0, 1]}, None, ["heights has shape (2, 2) instead of (2, 1)"]),
        ({"counts": [5]}, None, ["counts has shape (1,) instead of (2,)"]),
        ({"names": ("a",)}, None, ["names has shape (1,) instead of (2,)"]),
        ({"knots": [[0, 0.5, 1]]}, None, ["knots has shape (1, 3) instead of (1,)"]),
    ],
)
def test_shapes_that_disagree_are_violations(fields, n_labels, violations):
    found = make_shapes(**fields).violations(n_labels)
    assert found[: len(violations)] == violations
    assert bool(found) == bool(violations)


def test_a_length_that_is_one_less_fixes_the_named_length():
    axes = Axes("J-1")
    lengths = {}
    assert axes.expected_shape((4,), lengths) == (4,)
    assert lengths == {"J": 5}
    assert Axes("J").expected_shape((4,), lengths) == (5,)
    assert axes.expected_shape((9,), lengths) == (4,)
    assert Axes(3, "K").expected_shape((7, 2), {}) == (3, 2)


def test_arrays_in_json_are_nested_lists_that_are_not_empty():
    adapter = TypeAdapter(Annotated[np.ndarray, Axes("K", 2, of=Share)])
    array = adapter.validate_python([[0.5, 1.0], [0.25, 0.0]])
    assert array.shape == (2, 2)
    assert adapter.dump_json(array) == b"[[0.5,1.0],[0.25,0.0]]"
    assert adapter.validate_python(array).tolist() == array.tolist()
    for invalid in ([], [[0.5]], [[0.5, 0.5, 0.5]], [[0.5, 1.5]], [[]]):
        with pytest.raises(ValidationError):
            adapter.validate_python(invalid)


@pytest.mark.parametrize(("bounded", "valid", "invalid"), [(Share, 1.0, 1.001), (Share, 0.0, -0.001), (Count, 0, -1)])
def test_bounded_numbers_include_their_limits(bounded, valid, invalid):
    adapter = TypeAdapter(bounded)
    assert adapter.validate_python(valid) == valid
    with pytest.raises(ValidationError):
        adapter.validate_python(invalid)


def test_values_with_axes_are_compared_by_identity_and_others_by_content():
    class Level(Value):
        share: Annotated[float, Field(ge=0)]

    assert Level(0.5) == Level(0.5)
    assert make_shapes() != make_shapes()


def run_demo(folder: Path, monkeypatch: pytest.MonkeyPatch, *, failing: str | None = None) -> list[list[str]]:
    """Run the demonstration without its commands, one of which can fail; return these commands."""
    commands = []

    def run(command: list[str], **options: object) -> SimpleNamespace:
        assert options == {"check": False, "stderr": subprocess.STDOUT}
        commands.append(command)
        return SimpleNamespace(returncode=3 if failing in command else 0)

    monkeypatch.setattr(demo, "ROWS", {"validation": 20, "test": 30, "new": 40})
    monkeypatch.setattr(demo.subprocess, "run", run)
    demo.run_demo(folder)
    return commands


def test_the_demonstration_writes_its_files_and_prints_each_command(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "deep" / "my demo"
    commands = run_demo(folder, monkeypatch)
    assert commands == [[sys.executable, "-m", "relmap", *words] for words in demo.demo_commands(folder)]
    assert [words[3] for words in commands] == ["fit", "apply", "thresholds", "label", "evaluate"]
    for seed, (name, rows) in enumerate({"validation": 20, "test": 30, "new": 40}.items(), start=4):
        expected = simulate_predictions(rows, seed=seed)
        if name == "new":
            expected = expected.drop("label")
        assert pl.read_parquet(folder / f"{name}.parquet").equals(expected)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"Simulated predictions of a relevance model with three labels are in {folder}/. Nothing below is real data."
    )
    assert lines[1:3] == [
        "",
        f"$ relmap fit --predictions '{folder}/validation.parquet' --group query --labels irrelevant,partial,exact "
        f"--out '{folder}/map.json' --force",
    ]
    assert len(lines) == 11
    run_demo(folder, monkeypatch)  # the folder may exist


def test_each_command_of_the_demonstration_is_shown_before_it_runs(tmp_path, monkeypatch):
    shown = io.BytesIO()
    last_lines = []

    def run(*_: object, **__: object) -> SimpleNamespace:
        last_lines.append(shown.getvalue().decode().splitlines()[-1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(demo, "ROWS", {"validation": 20, "test": 30, "new": 40})
    monkeypatch.setattr(demo.subprocess, "run", run)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="utf-8"))
    demo.run_demo(tmp_path)
    assert last_lines == [f"$ relmap {shlex.join(words)}" for words in demo.demo_commands(tmp_path)]


def test_a_failed_command_ends_the_demonstration(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"^the command `relmap thresholds` failed with exit status 3$"):
        run_demo(tmp_path, monkeypatch, failing="thresholds")


def test_commands_of_the_demonstration_read_files_of_known_sizes():
    read = [Path(words[words.index("--predictions") + 1]).stem for words in demo.demo_commands(Path("folder"))]
    assert read == ["validation", "new", "test", "new", "test"]
    assert demo.ROWS == {"validation": 600, "test": 4000, "new": 4000}


def test_each_command_of_the_demonstration_is_printed_before_its_output(tmp_path, monkeypatch, capfd):
    def write_output(command: list[str], **_: object) -> SimpleNamespace:
        os.write(1, f"output of {command[3]}\n".encode())
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("relmap.simulation.demo.subprocess.run", write_output)
    demo.run_demo(tmp_path / "demo")

    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith(("$ relmap", "output of"))]
    commands = [words[0] for words in demo.demo_commands(tmp_path / "demo")]
    assert [line.split()[2] for line in lines[::2]] == commands
    assert [line.split()[2] for line in lines[1::2]] == commands
