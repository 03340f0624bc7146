"""Data Docs: the recorded results of the gates as Great Expectations draws them."""

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.expectations.check import library


def build_docs(gates: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> Path:
    """Write a page for each check of `gates`, and their index, which is returned; what was in `folder` goes.

    Nothing is checked again: the pages show what was recorded when the gates were reached.

    Args:
        gates: a data set as people read it -> the records of its gates.
    """
    great_expectations = library()
    from great_expectations.core import ExpectationSuiteValidationResult  # noqa: PLC0415 - takes seconds
    from great_expectations.core.run_identifier import RunIdentifier  # noqa: PLC0415
    from great_expectations.data_context.types.resource_identifiers import (  # noqa: PLC0415
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    context = great_expectations.get_context(mode="ephemeral")
    for name in list(context.get_site_names()):
        context.delete_data_docs_site(name)
    shutil.rmtree(folder, ignore_errors=True)
    context.add_data_docs_site(
        site_name="gates",
        site_config={
            "class_name": "SiteBuilder",
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())},
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        },
    )
    now = datetime.now(UTC)
    for dataset, records in gates.items():
        run = RunIdentifier(run_name=dataset, run_time=now)
        for check in (check for record in records for check in record["checks"]):
            suite = f"{dataset}, {check['gate'].replace(':', '')}"
            results = [_result(expectation, check["rows"]) for expectation in check["expectations"]]
            succeeded = sum(result.success for result in results)
            validation = ExpectationSuiteValidationResult(
                success=check["success"],
                results=results,
                suite_name=suite,
                statistics={
                    "evaluated_expectations": len(results),
                    "successful_expectations": succeeded,
                    "unsuccessful_expectations": len(results) - succeeded,
                    "success_percent": 100 * succeeded / len(results),
                },
                meta={"run_id": run, "batch_spec": {"data_asset_name": dataset}},
            )
            expectations = [result.expectation_config.to_domain_obj() for result in results]
            context.suites.add_or_update(great_expectations.ExpectationSuite(name=suite, expectations=expectations))
            seed = check["coordinates"].get("seed")
            rows = "all rows" if seed is None else f"seed {seed}"
            place = ValidationResultIdentifier(ExpectationSuiteIdentifier(suite), run, rows)
            context.validation_results_store.set(place, validation)
    context.build_data_docs()
    return folder / "index.html"


def _result(expectation: Mapping[str, Any], rows: int) -> Any:
    """The record of an expectation on so many rows as a result of Great Expectations."""
    from great_expectations.core import ExpectationValidationResult  # noqa: PLC0415 - takes seconds
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration  # noqa: PLC0415

    columns, observed = expectation["columns"], expectation["observed"]
    names = ("column",) if len(columns) == 1 else ("column_A", "column_B")
    limits = dict(zip(names, columns, strict=False)) | expectation["limits"]
    seen = {"observed_value": observed["value"]}
    if observed["violations"] is not None:
        seen = {
            "element_count": rows,
            "unexpected_count": observed["violations"],
            "unexpected_percent": 100 * observed["violations"] / max(rows, 1),
            "partial_unexpected_list": [row[columns[-1]] for row in observed["violating_rows"]],
        }
    words = {key: expectation[key] for key in ("type", "description", "severity")}
    configuration = ExpectationConfiguration(kwargs=limits, **words)
    return ExpectationValidationResult(success=expectation["success"], expectation_config=configuration, result=seen)
