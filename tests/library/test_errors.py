"""Errors in user input: escapes, extras and invalid values."""

import re

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from relmap import InputError
from relmap.errors import describe_validation_errors, escape_unprintable, needs_extra
from relmap.io.serialization import Share


def test_unprintable_characters_are_escaped():
    assert escape_unprintable("größe 3\n\x1b\u202e\U000e0001") == "größe 3\\n\\u001b\\u202e\\udb40\\udc01"


@pytest.mark.parametrize("module", ["altair", "altair.vegalite", None])
def test_a_missing_package_is_reported_with_its_extra(module):
    with pytest.raises(InputError) as error, needs_extra("report"):
        raise ModuleNotFoundError(name=module)
    assert f" {module} " in str(error.value)
    assert str(error.value).endswith(": pip install 'relmap[report]'")
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
    too_large, no_number, unknown = describe_validation_errors(error, "params.yaml")
    assert re.fullmatch(r"shares\.1: .*less .* 1 \(found 2\.0\)", too_large)
    assert re.fullmatch(r"shares\.2: .* number \(found 'x{79}\)", no_number)
    assert re.fullmatch(r"other: unknown name; .* \(found 1\)", unknown)


def test_an_error_of_the_whole_value_has_its_name():
    (description,) = describe_validation_errors(validation_error([3]), "params.yaml")
    assert re.fullmatch(r"params\.yaml: .*dictionary.* \(found \[3\]\)", description)
