"""Data Docs: the recorded results of the gates as Great Expectations draws them."""

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from tasks.expectations.check import library, named


def build_docs(gates: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> Path:
    """Write a page for each check of `gates`, and their index, which is returned; what was in `folder` goes.

    Nothing is checked again: the pages show what was recorded when the gates were reached.

    Args:
        gates: a data set as people read it -> the records of its gates.
    """
    gx = library()
    identifiers = gx.data_context.types.resource_identifiers
    context = gx.get_context(mode="ephemeral")
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
        run = gx.core.RunIdentifier(run_name=dataset, run_time=now)
        for check in chain.from_iterable(record["checks"] for record in records):
            suite = f"{dataset}, {check['gate'].replace(':', '')}"
            results = [_result(expectation, check["rows"]) for expectation in check["expectations"]]
            validation = gx.core.ExpectationSuiteValidationResult(
                success=check["success"],
                results=results,
                suite_name=suite,
                statistics=gx.validator.validation_statistics.calc_validation_statistics(results)._asdict(),
                meta={"run_id": run, "batch_spec": {"data_asset_name": dataset}},
            )
            expectations = [result.expectation_config.to_domain_obj() for result in results]
            context.suites.add_or_update(gx.ExpectationSuite(name=suite, expectations=expectations))
            seed = check["coordinates"].get("seed")
            rows = "all rows" if seed is None else f"seed {seed}"
            place = identifiers.ExpectationSuiteIdentifier(suite), run, rows
            context.validation_results_store.set(identifiers.ValidationResultIdentifier(*place), validation)
    context.build_data_docs(site_names=["gates"])
    return folder / "index.html"


def _result(expectation: Mapping[str, Any], rows: int) -> Any:
    """The record of an expectation on so many rows as a result of Great Expectations."""
    columns, observed = expectation["columns"], expectation["observed"]
    seen = {"observed_value": observed["value"]}
    if observed["violations"] is not None:
        seen = {
            "element_count": rows,
            "unexpected_count": observed["violations"],
            "unexpected_percent": 100 * observed["violations"] / max(rows, 1),
            "partial_unexpected_list": [row[columns[-1]] for row in observed["violating_rows"]],
        }
    configuration = library().expectations.expectation_configuration.ExpectationConfiguration(
        kwargs=named(columns) | expectation["limits"],
        **{key: expectation[key] for key in ("type", "description", "severity")},
    )
    return library().core.ExpectationValidationResult(
        success=expectation["success"], expectation_config=configuration, result=seen
    )
