"""Command `make data-docs`: write the results of the gates as Data Docs of Great Expectations."""

from typing import Any

from relmap import errors
from tasks.expectations.docs import build_docs
from tasks.provenance.stage import run_command
from tasks.records import results, store
from tasks.settings import params


def read_gate_records(dataset: str) -> list[dict[str, Any]]:
    """Read the records of the gates that a data set reached in its last run, which may have failed.

    Args:
        dataset: Key of the data set.

    Returns:
        The record of the contract, then the records of the other gates. Gates that were not reached are omitted.
    """
    records = []
    contract_file = store.base_folder(dataset) / "contract.json"
    if contract_file.exists():
        records.append(store.read_json(contract_file))
    gates_file = store.failed_gates_file(dataset)
    if not gates_file.exists():
        gates_file = store.runs_folder(dataset) / "gates.json"
    if gates_file.exists():
        records += store.read_json(gates_file)["gates"]
    return records


def read_all_gate_records() -> dict[str, list[dict[str, Any]]]:
    """Read the records of the gates of all data sets.

    Returns:
        Records of each data set, by its display name.

    Raises:
        InputError: No data set has reached a gate.
    """
    records_by_dataset = {}
    for name, entry in params.load_params().datasets.items():
        records_by_dataset[results.display_name(name, entry.source)] = read_gate_records(name)
    if not any(records_by_dataset.values()):
        raise errors.InputError("no data set has reached a gate yet; run `make repro`")
    return records_by_dataset


def main() -> None:
    """Write the results of the gates of all data sets to data/docs/."""
    store.make_private()
    records_by_dataset = read_all_gate_records()
    index = build_docs(records_by_dataset, store.DATA / "docs")
    print(f"Data Docs: {index.resolve()}")
    print("index and styling are loaded from CDNs; without a network, see the gates in data/report/index.html")


if __name__ == "__main__":
    run_command(main, "docs")
