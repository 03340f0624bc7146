"""Data Docs: pages of Great Expectations that show the recorded results of gates."""

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.expectations.check import column_arguments, import_great_expectations


def build_docs(gates: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> Path:
    """Write a page for each recorded check, and an index. Nothing is checked again.

    Args:
        gates: Display name of a data set -> records of its gates.
        folder: Folder of the pages. Its previous content is deleted.

    Returns:
        Path of the index.
    """
    great_expectations = import_great_expectations()
    context = great_expectations.get_context(mode="ephemeral")
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
        run_identifier = great_expectations.core.RunIdentifier(run_name=dataset, run_time=now)
        for record in records:
            for check in record["checks"]:
                _add_check(context, dataset, check, run_identifier)
    context.build_data_docs(site_names=["gates"])
    return folder / "index.html"


def _add_check(context: Any, dataset: str, check: Mapping[str, Any], run_identifier: Any) -> None:
    """Add the recorded results of one check to the context."""
    great_expectations = import_great_expectations()
    suite_name = f"{dataset}, {check['gate'].replace(':', '')}"  # names a folder
    results = [_to_validation_result(expectation, check["rows"]) for expectation in check["expectations"]]
    statistics = great_expectations.validator.validation_statistics.calc_validation_statistics(results)
    validation = great_expectations.core.ExpectationSuiteValidationResult(
        success=check["success"],
        results=results,
        suite_name=suite_name,
        statistics=statistics._asdict(),
        meta={"run_id": run_identifier, "batch_spec": {"data_asset_name": dataset}},
    )
    expectations = [result.expectation_config.to_domain_obj() for result in results]
    context.suites.add_or_update(great_expectations.ExpectationSuite(name=suite_name, expectations=expectations))
    seed = check["coordinates"].get("seed")
    batch_name = "all rows" if seed is None else f"seed {seed}"
    identifiers = great_expectations.data_context.types.resource_identifiers
    suite_identifier = identifiers.ExpectationSuiteIdentifier(suite_name)
    result_identifier = identifiers.ValidationResultIdentifier(suite_identifier, run_identifier, batch_name)
    context.validation_results_store.set(result_identifier, validation)


def _to_validation_result(expectation: Mapping[str, Any], n_rows: int) -> Any:
    """Convert the record of an expectation to a result of Great Expectations."""
    great_expectations = import_great_expectations()
    columns = expectation["columns"]
    observed = expectation["observed"]
    if observed["violations"] is None:
        result = {"observed_value": observed["value"]}
    else:
        # if two columns are compared, the page shows only the values of the second one
        result = {
            "element_count": n_rows,
            "unexpected_count": observed["violations"],
            "unexpected_percent": 100 * observed["violations"] / max(n_rows, 1),
            "partial_unexpected_list": [row[columns[-1]] for row in observed["violating_rows"]],
        }
    configuration = great_expectations.expectations.expectation_configuration.ExpectationConfiguration(
        type=expectation["type"],
        kwargs=column_arguments(columns) | expectation["limits"],
        description=expectation["description"],
        severity=expectation["severity"],
    )
    return great_expectations.core.ExpectationValidationResult(
        success=expectation["success"], expectation_config=configuration, result=result
    )
