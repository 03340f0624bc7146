"""The six data sets of the paper, by key, in the paper's order; and those of one's own, made from their options."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from relmap.errors import InputError, describe_validation_errors
from tasks.datasets import alloprof_rerank, amazon_esci, esci_rerank_us, files, hub, logits, mslr_web10k, scidocs, wands
from tasks.datasets.base import Dataset, Judged
from tasks.datasets.own import FilesOptions, HubOptions, OwnOptions
from tasks.settings.dataset_params import DatasetParams

DATASETS: dict[str, Dataset] = {
    each.DATASET.name: each.DATASET
    for each in (amazon_esci, mslr_web10k, alloprof_rerank, esci_rerank_us, wands, scidocs)
}
MOST_LISTED = 10  # files of a folder that a message names
OWN: dict[str, tuple[type[OwnOptions], Callable[..., Judged]]] = {  # reader of one's own sets -> options, `read`
    "files": (FilesOptions, files.read),
    "hub": (HubOptions, hub.read),
    "logits": (OwnOptions, logits.read),
}


def dataset_named(name: str, reader: str | None, options: Mapping[str, Any]) -> Dataset:
    """The declared set that `reader` names, or the one that `options` describe, for a reader of one's own sets.

    Raises:
        InputError: there is no such reader (it lists those there are), or each wrong option and what stood there.
    """
    if reader not in OWN:
        if (reader or name) not in DATASETS:
            raise InputError(f"{name}: no reader {reader or name!r}; there are {', '.join([*DATASETS, *OWN])}")
        return DATASETS[reader or name]
    model, read = OWN[reader]
    try:
        chosen = model.model_validate(dict(options))
    except ValidationError as error:
        wrong, known = describe_validation_errors(error, "options"), ", ".join(model.model_fields)
        raise InputError(
            f"options of {name}: {len(wrong)} mistake(s); known options: {known}\n  " + "\n  ".join(wrong)
        ) from None
    about = chosen.model_dump(include={"domain", "task", "labels", "licence"})
    origin = chosen.raw if isinstance(chosen, FilesOptions | HubOptions) else {}
    if isinstance(chosen, FilesOptions) and chosen.pairs is not None:
        origin["check_columns"] = partial(files.check_columns, source=chosen.pairs)
    return Dataset(name, chosen.title or name, read=partial(read, chosen=chosen), **about, **origin)


def declared_set(name: str, entry: DatasetParams) -> Dataset:
    """The data set that an entry of params.yaml declares.

    Raises:
        InputError: There is no such reader, an option is wrong, or a file or one of its columns does not exist. The
            message lists what exists.
    """
    dataset, path = dataset_named(name, entry.reader, entry.options), Path(entry.path)
    if entry.source != "files":
        return dataset
    if path.is_file() and dataset.files and dataset.files != (path.name,):
        others = ", ".join(dataset.files)
        raise InputError(f"{name}: path is the file {path}, but options name {others}; give their folder")
    for wanted in [path / file for file in dataset.files or (path.name,)] if path.is_dir() else [path]:
        if not wanted.is_file():
            folder = next(above for above in wanted.absolute().parents if above.is_dir())
            there = sorted(beside.name for beside in folder.iterdir() if not beside.name.startswith("."))
            more = f" and {len(there) - MOST_LISTED} more" if len(there) > MOST_LISTED else ""
            raise InputError(
                f"{name}: {wanted} is not there; mend its path in params.yaml, or put the file in that place. "
                f"{folder} has {', '.join(there[:MOST_LISTED]) or 'nothing'}{more}"
            )
    if dataset.check_columns is not None:
        try:
            dataset.check_columns(path if path.is_dir() else path.parent)
        except InputError as error:
            raise InputError(f"{name}: {error}; correct the options of {name} in params.yaml") from None
    return dataset
