"""How the columns of each model of a cascade are read."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from relmap.errors import InputError, assignment, option
from relmap.io.column_layout import Reading, words_to_text
from relmap.io.columns import join_names

ROW_FIELDS = ("label", "id", "drop_unlabelled")  # of rows, not of a model
MODEL_FIELDS = tuple(field.name for field in fields(Reading) if field.name not in ROW_FIELDS)
PREDICTIONS = ("decision", "probabilities", "logits", "probability", "score")
TRUE_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_models(
    models: Mapping[str, Mapping[str, Any]],
    *,
    label: str | None,
    id_columns: Sequence[str] | None,
    drop_unlabelled: bool,
) -> dict[str, Reading]:
    """Check how the columns of each model are read.

    Args:
        models: Fields of a reading for each model, by its name.
        label: Column of the true label.
        id_columns: Columns that identify a row. A single one is also read as the id of the fit rows of each map.
        drop_unlabelled: Whether to drop rows without a label.

    Returns:
        The readings, in the same order.

    Raises:
        InputError: A field is unknown, or a model names no column of predictions.
    """
    readings = {}
    id_column = id_columns[0] if id_columns is not None and len(id_columns) == 1 else None
    for name, given in models.items():
        if not isinstance(given, Mapping):
            raise InputError(f"the model {name} is {given!r}; give its columns, such as {{'decision': 'column'}}")
        unknown = [field for field in given if field not in MODEL_FIELDS]
        if unknown:
            raise InputError(f"the model {name} has {join_names(unknown)}; use {join_names(MODEL_FIELDS)}")
        if not any(given.get(field) for field in PREDICTIONS):
            raise InputError(
                f"the model {name} names no predictions; give one of {join_names(PREDICTIONS)}, {_example_of(name)}"
            )
        values = dict(given)
        if isinstance(values.get("confidence_words"), Mapping):
            values["confidence_words"] = words_to_text(values["confidence_words"])
        for field in ("probabilities", "logits", "border"):
            if isinstance(values.get(field), list | tuple):
                values[field] = ",".join(map(str, values[field]))
        readings[name] = Reading(**values, label=label, id=id_column, drop_unlabelled=drop_unlabelled)
    return readings


def parse_model(text: str) -> tuple[str, dict[str, Any]]:
    """Parse a model as the command line gives it: its name, then fields of its columns.

    Args:
        text: Such as `small decision=label_1 confidence=confidence_1`.

    Returns:
        The name, and the fields.

    Raises:
        InputError: The text cannot be parsed.

    Example:
        >>> parse_model("small decision=label_1 percent=true")
        ('small', {'decision': 'label_1', 'percent': True})
    """
    try:
        name, *parts = shlex.split(text)
    except ValueError:
        raise InputError(f"{option('model')} {text!r} has no name, or an open quote; {_example()}") from None
    given: dict[str, Any] = {}
    for part in parts:
        field, separator, value = part.partition("=")
        if not separator or not value or field in given:
            raise InputError(f"{option('model')} {text!r}: {part!r} is not one field with a value; {_example()}")
        given[field] = value
    if "percent" in given:
        given["percent"] = _parse_truth(given["percent"])
    return name, given


def parse_costs(text: str) -> dict[str, float]:
    """Parse costs such as `small=1,large=20,person=100`.

    Args:
        text: A name and a cost of each model, separated by commas.

    Returns:
        The cost of each name.

    Raises:
        InputError: The text cannot be parsed.

    Example:
        >>> parse_costs("small=1,person=2.5")
        {'small': 1.0, 'person': 2.5}
    """
    costs: dict[str, float] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or name in costs:
            raise InputError(f"{option('cost')} {text!r}: give each name one cost, such as small=1,large=20,person=100")
        costs[name] = parse_number(value, f"the cost of {name}")
    return costs


def parse_number(text: str, what: str) -> float:
    """Parse a number.

    Args:
        text: The number.
        what: What it is, for messages.

    Returns:
        The number.

    Raises:
        InputError: It is no number.
    """
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{what} is {text!r}, which is not a number") from None


def _parse_truth(text: str) -> bool:
    if text.lower() not in TRUE_WORDS:
        raise InputError(f"percent is {text!r}; say true or false")
    return TRUE_WORDS[text.lower()]


def _example_of(name: str) -> str:
    if option("model").startswith("--"):
        return f"such as {assignment('model', f'{name} decision=COLUMN')}"
    return "such as {'decision': 'COLUMN'}"


def _example() -> str:
    return f"such as {assignment('model', 'small decision=label_1 confidence=confidence_1')}"
