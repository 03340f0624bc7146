"""Options of a fit: what a user gets without any, and what the command line needs to know of each."""

from dataclasses import FrozenInstanceError, fields
from typing import get_args, get_type_hints

import pytest

from relmap.calibrators.registry import CALIBRATORS
from relmap.maps.options import DEFAULT_FIT_OPTIONS, FitOptions, OptionText
from relmap.projection.registry import VARIANTS

OPTIONS = [field.name for field in fields(FitOptions)]


def text_of(name: str) -> OptionText:
    _, text = get_args(get_type_hints(FitOptions, include_extras=True)[name])
    return text


def test_without_options_the_defaults_are_fitted_on_all_rows_in_independent_folds():
    given = {name: getattr(DEFAULT_FIT_OPTIONS, name) for name in OPTIONS}
    assert {name: value for name, value in given.items() if value} == {"seed": 1, "protocol": "own"}
    assert [name for name, value in given.items() if value is None] == ["calibrator", "variant", "group", "labels"]


def test_options_cannot_be_changed_after_they_were_given():
    with pytest.raises(FrozenInstanceError):
        FitOptions(seed=2).seed = 3


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_has_a_help_and_limits_that_its_default_keeps(name):
    text = text_of(name)
    shown = text.help.format(calibrators=", ".join(CALIBRATORS), variants=", ".join(VARIANTS))
    assert shown.endswith(".")
    default = getattr(DEFAULT_FIT_OPTIONS, name)
    assert text.minimum is None or text.minimum <= default
    assert text.maximum is None or default <= text.maximum
    assert bool(text.example) == (name in ("labels", "signals"))


def test_limits_leave_rows_for_the_fit_and_two_labels():
    assert (text_of("hold_out").minimum, text_of("hold_out").maximum) == (0, 0.9)
    assert (text_of("seed").minimum, text_of("seed").maximum) == (0, None)
    assert [text_of(name).min_names for name in ("labels", "signals")] == [2, 1]
