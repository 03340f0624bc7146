"""What the estimator is given in memory, checked and read: its settings and names of labels."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from relmap.errors import InputError
from relmap.io.frames import Holds, without_missing

ARRAYS = ("auto", *get_args(Holds))


def check_settings(given: Mapping[str, Any]) -> None:
    """Raise InputError where a parameter of the estimator, by its name, is not what it has to be."""
    names = ["0", "1"] if given["labels"] is None else names_of(given["labels"]).tolist()
    distinct = np.ndim(names) == 1 and 2 <= len({*names}) == len(names) and all(map(str.isprintable, names))
    are_names = np.ndim(given["signals"]) == 1 and all(isinstance(name, str) for name in given["signals"])
    for name, sound, due in (
        ("labels", distinct, "a list of two names or more, each once"),
        ("signals", are_names, "a list of the names of columns"),
        (
            "hold_out",
            isinstance(given["hold_out"], Real) and 0 <= float(given["hold_out"]) <= 0.9,
            "a share in [0, 0.9]",
        ),
        ("seed", isinstance(given["seed"], Integral) and int(given["seed"]) >= 0, "a whole number, 0 or more"),
        ("protocol", given["protocol"] in ("own", "paper"), "one of own, paper"),
        ("arrays", given["arrays"] in ARRAYS, f"one of {', '.join(ARRAYS)}"),
    ):
        if not sound:
            raise InputError(f"{name} is {given[name]!r}; give {due}")
    if given["classifier"] is not None and not hasattr(given["classifier"], "predict_proba"):
        model = type(given["classifier"]).__name__
        raise InputError(f"the classifier, {model}, has no predict_proba; wrap it in CalibratedClassifierCV")


def refuse_other_than_numbers(asked: Mapping[str, Any]) -> None:
    """Raise InputError where what is asked for, by its name, is neither a number nor None."""
    for name, given in asked.items():
        if not isinstance(given, Real | None):
            raise InputError(f"{name} is {given!r:.80}; give a number")


def names_of(labels: Any) -> np.ndarray:
    """Names of labels; whole numbers have no decimals in theirs, however they are kept. A missing label is None."""
    given = without_missing(labels)
    missing = np.equal(given, None)
    if missing.any():
        names = np.full(given.shape, None, dtype=object)
        names[~missing] = names_of(given[~missing].tolist())
        return names
    whole = given.dtype.kind == "f" and bool((np.abs(given) < 2**53).all() and (given == np.rint(given)).all())
    return (given.astype(np.int64) if whole else given).astype(str)
