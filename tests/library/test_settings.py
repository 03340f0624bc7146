"""Settings of the library, at their limits."""

import pytest
from pydantic import ValidationError

from relmap.settings import DEFAULTS, ProtocolParams, Settings


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
    }


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
        with pytest.raises(ValidationError, match=r"parts sum to 1, .*1"):
            ProtocolParams.model_validate(content | {"parts": parts})
    with pytest.raises(ValidationError, match=r"parts sum to 0\.9, .*1"):
        ProtocolParams.model_validate(content | {"parts": (0.5, 0.25, 0.15)})


def test_unknown_settings_are_rejected_and_settings_are_frozen():
    with pytest.raises(ValidationError, match="Extra inputs"):
        ProtocolParams.model_validate(DEFAULTS.protocol.model_dump() | {"other": 1})
    with pytest.raises(ValidationError, match="frozen"):
        DEFAULTS.seed = 1
