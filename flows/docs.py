"""`make data-docs`: recorded results of the gates as Data Docs of Great Expectations."""

from typing import Any

from relmap import errors
from tasks.expectations.docs import build_docs
from tasks.provenance.stage import run_command
from tasks.records import results, store
from tasks.settings import params


def recorded(dataset: str) -> list[dict[str, Any]]:
    """The records of all gates that the last run of `dataset` reached; of one that failed, those of that run."""
    contract, stopped = store.base_folder(dataset) / "contract.json", store.failed_gates_file(dataset)
    gates = stopped if stopped.exists() else store.runs_folder(dataset) / "gates.json"
    of_contract = [store.read_json(contract)] if contract.exists() else []
    return [*of_contract, *(store.read_json(gates)["gates"] if gates.exists() else [])]


def main() -> None:
    """Write what the gates of every data set found as Data Docs, into data/docs/, and say where that is."""
    store.make_private()
    sets = params.load_params().datasets
    gates = {results.display_name(name, entry.source): recorded(name) for name, entry in sets.items()}
    if not any(gates.values()):
        raise errors.InputError("no gate of any data set has been reached yet; `make repro` runs them")
    print(f"Data Docs: {build_docs(gates, store.DATA / 'docs').resolve()}")
    print("its index and styling are loaded from CDNs; without a network read the gates in data/report/index.html")


if __name__ == "__main__":
    run_command(main, "docs")
