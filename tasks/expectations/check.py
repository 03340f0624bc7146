"""Gates: checks of data with Great Expectations. A failed check stops the run of the data set with an error.

Great Expectations takes seconds to import, so the first check imports it. Most processes never check anything.
"""

import logging
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import LazyLoader, find_spec, module_from_spec
from threading import Lock
from typing import Any

import numpy as np
import polars as pl

from tasks.records.errors import RunFailed

MAX_NAMED_ROWS = 3  # violating rows that a message and a record name
LIMIT_ARGUMENTS = ("min_value", "max_value", "value_set", "or_equal")  # of the expectations below

EXPECTATION_CLASSES = {
    "between": "ExpectColumnValuesToBeBetween",
    "in set": "ExpectColumnValuesToBeInSet",
    "not null": "ExpectColumnValuesToNotBeNull",
    "unique": "ExpectColumnValuesToBeUnique",
    "equal": "ExpectColumnPairValuesToBeEqual",
    "at least": "ExpectColumnPairValuesAToBeGreaterThanB",
    "rows": "ExpectTableRowCountToBeBetween",
}
ALLOWED_WITHOUT_LIMITS = {
    "expect_column_values_to_not_be_null": "any value but null",
    "expect_column_values_to_be_unique": "each value once",
    "expect_column_pair_values_to_be_equal": "{} = {}",
    "expect_column_pair_values_a_to_be_greater_than_b": "{} ≥ {}",
}

# The context of Great Expectations is global to the process and not thread-safe.
_VALIDATION_LOCK = Lock()


class GateFailed(RunFailed):
    """A check of a gate failed.

    Attributes:
        record: Record of the gate, with the checks that passed and the one that failed.
    """

    def __init__(self, message: str, record: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.record = record or {}


@dataclass(frozen=True, eq=False)
class Check:
    """A data frame and the expectations that all of its rows must meet.

    Attributes:
        name: Name of the check in messages and records.
        frame: Rows to check. If it has a column `calibrator`, records name it with the row.
        expectations: Expectations made by `make_expectation`.
        row_name_column: Column that identifies a row in messages. Without it, rows are named by their number.
        n_rows: Number of rows that the frame represents, if it holds only the rows that could fail.
    """

    name: str
    frame: pl.DataFrame
    expectations: Sequence[Any]
    row_name_column: str | None = None
    n_rows: int | None = None


def run_gate(
    name: str,
    coordinates: Mapping[str, object],
    checks: Iterable[Check],
    remedy: str = "Correct the rows named above and run again.",
) -> dict[str, Any]:
    """Run checks one after the other and stop at the first one that fails.

    Nulls and NaN satisfy every expectation except `not null`, so a column may need this expectation too. An empty frame
    always fails, although every expectation about its columns would hold.

    Args:
        name: Name of the gate.
        coordinates: Place in the run: data set, protocol seed, calibrator.
        checks: Checks; a generator creates each frame only after the previous check has passed.
        remedy: What the user should do if the gate fails.

    Returns:
        Record of the gate, which can be written as JSON.

    Raises:
        GateFailed: A check failed. The message names the check, the coordinates, each failed expectation, the number
            of rows and the first of them.
    """
    coordinate_values = {key: _to_json_scalar(value) for key, value in coordinates.items()}
    location = ", ".join(f"{key} {value}" for key, value in coordinate_values.items())
    check_records: list[dict[str, Any]] = []
    gate_record = {"gate": name, "coordinates": coordinate_values, "success": True, "checks": check_records}
    for check in checks:
        expectation_records = _validate(check)
        failed = [record for record in expectation_records if not record["success"]]
        check_records.append(
            {
                "gate": check.name,
                "coordinates": coordinate_values,
                "success": not failed,
                "rows": _row_count(check),
                "expectations": expectation_records,
            }
        )
        if failed:
            gate_record["success"] = False
            lines = [f"check `{check.name}` failed for {location}"]
            lines += [_describe_failure(record) for record in failed]
            lines.append(remedy)
            raise GateFailed("\n".join(lines), gate_record)
    return gate_record


def list_failed_expectations(gate_records: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """List the failed expectations of gates.

    Args:
        gate_records: Records returned by `run_gate`, or held by a `GateFailed`.

    Returns:
        One row for each failed expectation: place in the run, expectation, values found and values allowed.
    """
    rows: list[dict[str, object]] = []
    for gate_record in gate_records:
        for check in gate_record["checks"]:
            for expectation in check["expectations"]:
                if expectation["success"]:
                    continue
                violating_rows = expectation["observed"]["violating_rows"]
                calibrators = sorted({row["calibrator"] for row in violating_rows if "calibrator" in row})
                rows.append(
                    {
                        "gate": check["gate"],
                        "dataset": check["coordinates"].get("dataset"),
                        "seed": check["coordinates"].get("seed"),
                        "calibrator": ", ".join(calibrators) or None,
                        "expectation": expectation["description"],
                        "found": expectation["found"],
                        "allowed": expectation["allowed"],
                        "severity": expectation["severity"],
                    }
                )
    return rows


def make_expectation(kind: str, *columns: str, description: str | None = None, **limits: Any) -> Any:
    """Create an expectation of Great Expectations.

    Args:
        kind: Key of `EXPECTATION_CLASSES`.
        columns: One or two column names, or none for the number of rows.
        description: Requirement in plain words.
        limits: Arguments of the expectation, such as `min_value`.

    Returns:
        The expectation.
    """
    expectation_class = getattr(import_great_expectations().expectations, EXPECTATION_CLASSES[kind])
    return expectation_class(**column_arguments(columns), description=description, **limits)


def column_arguments(columns: Sequence[str]) -> dict[str, str]:
    """Map columns to the argument names of Great Expectations.

    Args:
        columns: One or two column names.

    Returns:
        Argument name -> column.
    """
    if len(columns) == 1:
        return {"column": columns[0]}
    return dict(zip(("column_A", "column_B"), columns, strict=False))


def make_range_expectations(column: str, lowest: float, highest: float | None, description: str) -> list[Any]:
    """Create the two expectations of a numeric column: no missing values, and values within a range.

    Both are needed, since null and NaN satisfy every range.

    Args:
        column: Numeric column.
        lowest: Lower end of the range.
        highest: Upper end of the range; None for no limit.
        description: Requirement in plain words.

    Returns:
        The two expectations.
    """
    return [
        make_expectation("not null", column, description=f"{description}, never NaN"),
        make_expectation("between", column, min_value=lowest, max_value=highest, description=description),
    ]


@cache
def import_great_expectations() -> Any:
    """Import Great Expectations without the parts that are slow to import and unused here."""
    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # it logs each registered expectation
    for name in ("altair", "scipy.stats"):
        if name in sys.modules:
            continue
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            continue
        spec.loader = LazyLoader(spec.loader)
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    import great_expectations.expectations  # noqa: PLC0415

    return great_expectations


@cache
def get_batch_definition() -> Any:
    """Return the batch definition for data frames, in one silent in-memory context per process."""
    great_expectations = import_great_expectations()
    from great_expectations.data_context.types.base import ProgressBarsConfig, logger  # noqa: PLC0415

    logger.setLevel(logging.WARNING)  # this module sets its own level, and logs each temporary folder
    context = great_expectations.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    frames = context.data_sources.pandas_default.add_dataframe_asset("frame")
    return frames.add_batch_definition_whole_dataframe("all")


def _validate(check: Check) -> list[dict[str, Any]]:
    """Validate the frame of a check; return a record for each expectation."""
    with _VALIDATION_LOCK:
        at_least_one_row = make_expectation("rows", min_value=1, description="there is at least one row")
        expectations = [at_least_one_row, *check.expectations]
        suite = import_great_expectations().ExpectationSuite(name="gate", expectations=expectations)
        needed_columns = set()
        for expectation in check.expectations:
            needed_columns.update(_columns(expectation.configuration))
        # Great Expectations does not read polars frames.
        frame = check.frame.select(sorted(needed_columns)).to_pandas()
        batch = get_batch_definition().get_batch({"dataframe": frame})
        result_format = {"result_format": "SUMMARY", "partial_unexpected_count": MAX_NAMED_ROWS}
        results = batch.validate(suite, result_format=result_format).results
    return [_expectation_record(result, check) for result in results]


def _row_count(check: Check) -> int:
    return len(check.frame) if check.n_rows is None else check.n_rows


def _describe_failure(record: Mapping[str, Any]) -> str:
    columns = f" (column {', '.join(record['columns'])})" if record["columns"] else ""
    return f"- expected: {record['description']}{columns}; found: {record['found']}"


def _columns(configuration: Any) -> list[str]:
    """Return the columns of an expectation."""
    return [configuration.kwargs[name] for name in ("column", "column_A", "column_B") if name in configuration.kwargs]


def _expectation_record(result: Any, check: Check) -> dict[str, Any]:
    """Return the record of one validated expectation."""
    configuration = result.expectation_config
    columns = _columns(configuration)
    observed = _observed(result, check, columns)
    limits = {}
    for name in LIMIT_ARGUMENTS:
        if configuration.kwargs.get(name) is not None:
            limits[name] = configuration.kwargs[name]
    return {
        "type": configuration.type,
        "columns": columns,
        "limits": limits,
        "description": configuration.description or configuration.type.removeprefix("expect_").replace("_", " "),
        "severity": configuration.severity.value,
        "success": bool(result.success),
        "allowed": _describe_allowed(configuration),
        "found": _describe_found(columns, observed, _row_count(check)),
        "observed": observed,
    }


def _observed(result: Any, check: Check, columns: Sequence[str]) -> dict[str, Any]:
    """Return what Great Expectations observed: value, number of violations, first violating rows and errors."""
    shown_columns = ["calibrator", *columns] if "calibrator" in check.frame.columns else list(columns)
    violating_rows = []
    for index in result.result.get("partial_unexpected_index_list", [])[:MAX_NAMED_ROWS]:
        row_name = f"row {index}"
        if check.row_name_column is not None:
            row_name = f"{check.row_name_column} {check.frame[check.row_name_column][index]}"
        values = {column: _to_json_scalar(check.frame[column][index]) for column in shown_columns}
        violating_rows.append({"row": row_name, **values})
    # Great Expectations reports a single error directly, and errors of several metrics in a dictionary.
    exception_info = result.exception_info
    exceptions = [exception_info] if "raised_exception" in exception_info else exception_info.values()
    errors = {str(exception["exception_message"]) for exception in exceptions if exception["raised_exception"]}
    return {
        # the number of rows is the only expectation about a whole frame
        "value": _row_count(check) if "observed_value" in result.result else None,
        "violations": result.result.get("unexpected_count"),
        "violating_rows": violating_rows,
        "errors": sorted(errors),
    }


def _describe_allowed(configuration: Any) -> str:
    """Describe the values that an expectation allows."""
    allowed_values = configuration.kwargs.get("value_set")
    if allowed_values is not None:
        names = [str(value) for value in allowed_values]
        return f"one of {', '.join(names)}" if any(names) else "nothing"
    lowest = configuration.kwargs.get("min_value")
    highest = configuration.kwargs.get("max_value")
    if lowest is None:
        return ALLOWED_WITHOUT_LIMITS[configuration.type].format(*_columns(configuration))
    if highest is None:
        return f"at least {lowest:g}"
    if lowest == highest:
        return f"{lowest:g}"
    return f"{lowest:g} to {highest:g}"


def _describe_found(columns: Sequence[str], observed: Mapping[str, Any], n_rows: int) -> str:
    """Describe the values that were found."""
    if observed["errors"]:
        return f"this could not be evaluated: {'; '.join(observed['errors'])}"
    if observed["violations"] is None:
        return str(observed["value"])
    if not observed["violations"]:
        return f"all {n_rows} rows"
    examples = []
    for row in observed["violating_rows"]:
        values = ", ".join(f"{column} = {row[column]}" for column in columns)
        examples.append(f"{row['row']}: {values}")
    return f"{observed['violations']} of {n_rows} rows, such as {'; '.join(examples)}"


def _to_json_scalar(value: object) -> object:
    """Convert a scalar to a JSON type; NaN and infinities become text, since JSON has none."""
    scalar = value.item() if isinstance(value, np.generic) else value
    if isinstance(scalar, float) and not math.isfinite(scalar):
        return str(scalar)
    return scalar
