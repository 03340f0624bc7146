"""Gates of checks by Great Expectations; a violated one stops the run and names what failed.

Great Expectations is imported at the first check only: that takes seconds, and most processes never check anything.
"""

import logging
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import LazyLoader, find_spec, module_from_spec
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tasks.records.errors import RunFailed

ROWS_NAMED = 3  # violating rows that a message and a record name
LIMITS = ("min_value", "max_value", "value_set", "or_equal")  # of the expectations that are used here
ALLOWED = {  # by those without a limit
    "expect_column_values_to_not_be_null": "any value but null",
    "expect_column_values_to_be_unique": "each value once",
    "expect_column_pair_values_to_be_equal": "{} = {}",
    "expect_column_pair_values_a_to_be_greater_than_b": "{} ≥ {}",
}

KINDS = {
    "between": "ExpectColumnValuesToBeBetween",
    "in set": "ExpectColumnValuesToBeInSet",
    "not null": "ExpectColumnValuesToNotBeNull",
    "unique": "ExpectColumnValuesToBeUnique",
    "equal": "ExpectColumnPairValuesToBeEqual",
    "at least": "ExpectColumnPairValuesAToBeGreaterThanB",
    "rows": "ExpectTableRowCountToBeBetween",
}

# Its context is global to the process and not safe for threads: one context, one validation at a time.
_ONE_AT_A_TIME = Lock()


class GateFailed(RunFailed):
    """A gate is closed: the message is for a person, `record` is what the gate would have returned."""

    def __init__(self, message: str, record: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.record = record or {}


class Check(NamedTuple):
    """One frame of a gate, and what has to hold for its rows."""

    gate: str  # the name of the check
    frame: pl.DataFrame  # a column `calibrator` says where a row belongs, and the record names it with the row
    expectations: Sequence[Any]  # as `expect` makes them
    named_by: str | None = None  # the column that names a row to a person; without it rows go by their number
    rows: int | None = None  # that the frame stands for, where it holds only those that could violate anything


def pass_gate(
    name: str,
    coordinates: Mapping[str, object],
    checks: Iterable[Check],
    remedy: str = "Mend the rows named above and run again.",
) -> dict[str, Any]:
    """Make one check after the other; return the JSON-able record of what was expected and observed.

    Nulls and NaN satisfy every expectation but `not null`, so a column needs that one too. An empty frame never
    passes: every expectation would hold for no row at all. Behind a failed check nothing more is checked.

    Args:
        coordinates: where in the run we are: data set, protocol seed, calibrator.
        checks: drawn one by one, so that a frame is made only where the checks before it have passed.
        remedy: what to do if the gate is closed.

    Raises:
        GateFailed: names the check, the coordinates, each violated expectation, how many rows and the first of them;
            with the record of the whole gate: the checks that it has passed, and the failed one.
    """
    where: dict[str, object] = {key: _plain(value) for key, value in coordinates.items()}
    records: list[dict[str, Any]] = []
    gate = {"gate": name, "coordinates": where, "success": True, "checks": records}
    place = ", ".join(f"{key} {value}" for key, value in where.items())
    for check in checks:
        with _ONE_AT_A_TIME:
            some_rows = expect("rows", min_value=1, description="there is at least one row")
            suite = library().ExpectationSuite(name="gate", expectations=[some_rows, *check.expectations])
            # Great Expectations takes no polars frame. Without its own row names it stays fast where most rows fail.
            needed = {column for expected in check.expectations for column in _columns(expected.configuration)}
            batch = batches().get_batch({"dataframe": check.frame.select(sorted(needed)).to_pandas()})
            form = {"result_format": "SUMMARY", "partial_unexpected_count": ROWS_NAMED}
            results = batch.validate(suite, result_format=form).results
        rows = len(check.frame) if check.rows is None else check.rows
        observed = [_observed(result, check.frame, check.named_by, rows) for result in results]
        failed = [seen for seen in observed if not seen["success"]]
        of_check = {"gate": check.gate, "coordinates": where, "success": not failed}
        records.append({**of_check, "rows": rows, "expectations": observed})
        if failed:
            message = [f"gate `{check.gate}` is closed for {place}"]
            for seen in failed:
                columns = f" (column {', '.join(seen['columns'])})" if seen["columns"] else ""
                message.append(f"- expected: {seen['description']}{columns}; found: {seen['found']}")
            raise GateFailed("\n".join([*message, remedy]), gate | {"success": False})
    return gate


def violated(gates: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """A row for each expectation that the records of `gates` name as violated: where, what was expected, what found."""
    return [
        {
            "gate": check["gate"],
            **{key: check["coordinates"].get(key) for key in ("dataset", "seed")},
            "calibrator": ", ".join(sorted({row["calibrator"] for row in rows if "calibrator" in row})) or None,
            "expectation": expectation["description"],
            **{key: expectation[key] for key in ("found", "allowed", "severity")},
        }
        for gate in gates
        for check in gate["checks"]
        for expectation in check["expectations"]
        for rows in [expectation["observed"]["violating_rows"]]
        if not expectation["success"]
    ]


def expect(kind: str, *columns: str, description: str | None = None, **limits: Any) -> Any:
    """The expectation of a `kind` in KINDS of one or two columns, imported when it is needed.

    `description` says in plain words what must hold.
    """
    make = getattr(library().expectations, KINDS[kind])
    return make(**named(columns), description=description, **limits)


def named(columns: Sequence[str]) -> dict[str, str]:
    """Return one or two columns by the names of Great Expectations' arguments."""
    return dict(zip(("column",) if len(columns) == 1 else ("column_A", "column_B"), columns, strict=False))


def expect_numbers(column: str, lowest: float, highest: float | None, description: str) -> list[Any]:
    """Two expectations, since null and NaN satisfy every range."""
    return [
        expect("not null", column, description=f"{description}, never NaN"),
        expect("between", column, min_value=lowest, max_value=highest, description=description),
    ]


@cache
def library() -> Any:
    """Great Expectations, which takes seconds to import, a third less without what we do not use of it."""
    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # else it reports what it registers
    for name in ("altair", "scipy.stats"):  # for one expectation of the library's, which is not among ours
        if name not in sys.modules and (spec := find_spec(name)) is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
            sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
    import great_expectations.expectations  # noqa: PLC0415

    return great_expectations


@cache
def batches() -> Any:
    """The door for data frames of this process: one context in memory, silent, with no files."""
    great_expectations = library()
    from great_expectations.data_context.types.base import ProgressBarsConfig, logger  # noqa: PLC0415

    logger.setLevel(logging.WARNING)  # this module sets its own level, and reports each temporary folder
    context = great_expectations.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    frames = context.data_sources.pandas_default.add_dataframe_asset("frame")
    return frames.add_batch_definition_whole_dataframe("all")


def _columns(configuration: Any) -> list[str]:
    return [configuration.kwargs[name] for name in ("column", "column_A", "column_B") if name in configuration.kwargs]


def _observed(result: Any, frame: pl.DataFrame, named_by: str | None, rows: int) -> dict[str, Any]:
    """One expectation of a record: its type, columns and words, and what was seen."""
    configuration, seen = result.expectation_config, result.result
    place = ["calibrator"] if "calibrator" in frame.columns else []
    violating = [
        {
            "row": f"{named_by} {frame[named_by][at]}" if named_by else f"row {at}",
            **{column: _plain(frame[column][at]) for column in (*place, *_columns(configuration))},
        }
        for at in seen.get("partial_unexpected_index_list", [])[:ROWS_NAMED]
    ]
    # Great Expectations reports one error flat, and those of its metrics nested
    raised = result.exception_info
    raised = [raised] if "raised_exception" in raised else raised.values()
    observed = {
        "value": rows if "observed_value" in seen else None,  # nothing but the number of rows is observed as a whole
        "violations": seen.get("unexpected_count"),
        "violating_rows": violating,
        "errors": sorted({str(part["exception_message"]) for part in raised if part["raised_exception"]}),
    }
    columns = _columns(configuration)
    return {
        "type": configuration.type,
        "columns": columns,
        "limits": {name: value for name in LIMITS if (value := configuration.kwargs.get(name)) is not None},
        "description": configuration.description or configuration.type.removeprefix("expect_").replace("_", " "),
        "severity": configuration.severity.value,
        "success": bool(result.success),
        "allowed": _allowed(configuration),
        "found": _found(columns, observed, rows),
        "observed": observed,
    }


def _allowed(configuration: Any) -> str:
    """What an expectation lets through, in a few words."""
    values = configuration.kwargs.get("value_set")
    if values is not None:
        return f"one of {', '.join(map(str, values))}" if any(map(str, values)) else "nothing"
    least, most = (configuration.kwargs.get(name) for name in ("min_value", "max_value"))
    if least is not None:
        return f"at least {least:g}" if most is None else f"{least:g} to {most:g}" if least != most else f"{least:g}"
    return ALLOWED[configuration.type].format(*_columns(configuration))


def _found(columns: list[str], observed: Mapping[str, Any], rows: int) -> str:
    """What was seen, in a few words."""
    if observed["errors"]:
        return f"this could not be evaluated: {'; '.join(observed['errors'])}"
    if observed["violations"] is None:
        return str(observed["value"])
    if not observed["violations"]:
        return f"all {rows} rows"
    named = (
        f"{row['row']}: " + ", ".join(f"{name} = {row[name]}" for name in columns) for row in observed["violating_rows"]
    )
    return f"{observed['violations']} of {rows} rows, such as {'; '.join(named)}"


def _plain(value: object) -> object:
    """A scalar that JSON knows; it has no NaN and no infinity, so those become words."""
    plain = value.item() if isinstance(value, np.generic) else value
    return str(plain) if isinstance(plain, float) and not math.isfinite(plain) else plain
