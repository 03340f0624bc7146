"""Options of the fit of a cascade, at their limits."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from relmap.cascade.settings import CascadeSettings
from relmap.errors import InputError, naming

EPSILON = np.finfo(float).eps
LIMITS = [  # option, valid values with the smallest and the largest, and invalid ones
    ("target_accuracy", (1e-300, 1 - EPSILON), (0, 1, 1.5, -0.5, float("nan"), "0.9", True)),
    ("confidence_level", (1e-300, 1 - EPSILON), (0, 1, 1.5, -0.5, float("nan"), None, "0.9")),
    ("hold_out", (1e-300, 1 - EPSILON), (0, 1, 1.5, -0.5, float("nan"), None, "0.9")),
    ("person_accuracy", (1e-300, 1), (0, 1 + EPSILON, 1.5, -0.5, float("nan"), None, "0.9")),
    ("budget", (1e-300, 1, 1.5, 1e30), (0, -1, 2e30, float("inf"), float("nan"), "3")),
    ("seed", (0, 2**53), (-1, 2**53 + 1, 1.5, None, "1")),
]
VALID = [(name, value) for name, values, _ in LIMITS for value in values]
INVALID = [(name, value) for name, _, values in LIMITS for value in values]


def settings_with(name: str, value: object) -> CascadeSettings:
    """Create settings with this value of an option, and the target or budget that they need."""
    needed = {} if name in ("target_accuracy", "budget") else {"target_accuracy": 0.9}
    return CascadeSettings(**needed, **{name: value})


def test_defaults_are_the_documented_ones():
    settings = CascadeSettings(target_accuracy=0.9)
    assert settings.budget is None
    assert settings.person_accuracy == 1
    assert settings.confidence_level == 0.95
    assert settings.hold_out == 0.5
    assert settings.seed == 1
    assert CascadeSettings(budget=3).target_accuracy is None


@pytest.mark.parametrize(("name", "value"), VALID)
def test_values_at_the_limits_are_valid(name, value):
    assert getattr(settings_with(name, value), name) == value


@pytest.mark.parametrize(("name", "value"), INVALID)
def test_values_beyond_the_limits_are_refused(name, value):
    with naming("python"), pytest.raises(InputError) as refusal:
        settings_with(name, value)
    assert str(refusal.value).startswith(f"{name} is {value!r}; give ")


@pytest.mark.parametrize("given", [{}, {"target_accuracy": 0.9, "budget": 3}])
def test_either_a_target_or_a_budget_is_required(given):
    with naming("python"), pytest.raises(InputError, match=r"target_accuracy=0\.95, or budget$"):
        CascadeSettings(**given)


def test_a_seed_of_numpy_is_a_whole_number():
    assert type(CascadeSettings(budget=3, seed=np.int64(7)).seed) is int


def test_settings_are_named_and_never_change():
    with pytest.raises(TypeError):
        CascadeSettings(0.9)
    with pytest.raises(FrozenInstanceError):
        CascadeSettings(target_accuracy=0.9).seed = 2
