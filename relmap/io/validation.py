"""Validation of the settings and label names that the estimator receives in memory."""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from relmap.errors import InputError
from relmap.io.frames import unify_missing
from relmap.io.rows import ArrayKind

ARRAY_KINDS = ("auto", *get_args(ArrayKind))
MAX_HOLD_OUT = 0.9


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the parameters of the estimator.

    Args:
        settings: Value of each parameter, by name.

    Raises:
        InputError: A parameter is invalid; the message names it and the valid values.
    """
    array_kinds = ", ".join(ARRAY_KINDS)
    _require(settings, "labels", _are_distinct_labels(settings["labels"]), "a list of two names or more, each once")
    _require(settings, "signals", _are_column_names(settings["signals"]), "a list of the names of columns")
    _require(settings, "hold_out", _is_share(settings["hold_out"]), "a share in [0, 0.9]")
    _require(settings, "seed", _is_seed(settings["seed"]), "a whole number, 0 or more")
    _require(settings, "protocol", settings["protocol"] in ("own", "paper"), "one of own, paper")
    _require(settings, "arrays", settings["arrays"] in ARRAY_KINDS, f"one of {array_kinds}")
    classifier = settings["classifier"]
    if classifier is not None and not hasattr(classifier, "predict_proba"):
        model = type(classifier).__name__
        raise InputError(f"the classifier, {model}, has no predict_proba; wrap it in CalibratedClassifierCV")


def _require(settings: Mapping[str, Any], name: str, is_valid: bool, expected: str) -> None:
    if not is_valid:
        raise InputError(f"{name} is {settings[name]!r}; give {expected}")


def _are_distinct_labels(labels: ArrayLike | None) -> bool:
    if labels is None:
        return True
    names = label_names(labels)
    if names.ndim != 1 or None in names.tolist():
        return False
    distinct = set(names.tolist())
    return 2 <= len(distinct) == len(names) and all(name.isprintable() for name in distinct)


def _are_column_names(signals: Iterable[object]) -> bool:
    return np.ndim(signals) == 1 and all(isinstance(name, str) for name in signals)  # type: ignore[arg-type]


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= MAX_HOLD_OUT


def _is_seed(value: object) -> bool:
    return isinstance(value, Integral) and int(value) >= 0


def require_numbers(values: Mapping[str, object]) -> None:
    """Check that options are numbers.

    Args:
        values: Value of each option, by name; None if it is not given.

    Raises:
        InputError: A value is neither a number nor None; the message names the option.
    """
    for name, value in values.items():
        if not isinstance(value, Real | None):
            raise InputError(f"{name} is {value!r:.80}; give a number")


def label_names(labels: ArrayLike) -> np.ndarray:
    """Convert labels to names.

    Args:
        labels: Labels of any type; whole numbers stored as floats have names without decimals.

    Returns:
        Names, of the shape of `labels`; str, or objects if labels are missing. A missing label is None.
    """
    values = unify_missing(labels)
    if values.dtype == object and None in values:
        missing = np.array([value is None for value in values.ravel()]).reshape(values.shape)
        names = np.full(values.shape, None)
        names[~missing] = label_names(values[~missing].tolist())
        return names
    if values.dtype.kind == "f":
        is_exact = np.abs(values) < 2**53
        if bool(is_exact.all() and (values == np.rint(values)).all()):
            values = values.astype(np.int64)
    return values.astype(str)
