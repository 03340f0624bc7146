"""The six data sets of the paper, in the order of the paper, and data sets that a user describes with options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from relmap.errors import InputError, describe_validation_errors
from tasks.datasets import alloprof_rerank, amazon_esci, esci_rerank_us, files, hub, logits, mslr_web10k, scidocs, wands
from tasks.datasets.base import Dataset, LabelledPairs
from tasks.datasets.own import FilesOptions, HubOptions, OwnOptions
from tasks.settings.dataset_params import DatasetParams

DATASETS: dict[str, Dataset] = {
    module.DATASET.name: module.DATASET
    for module in (amazon_esci, mslr_web10k, alloprof_rerank, esci_rerank_us, wands, scidocs)
}
MAX_LISTED_FILES = 10


@dataclass(frozen=True)
class OwnReader:
    """Reader of a user's own data sets.

    Attributes:
        options: Pydantic model of its options.
        read: Function that reads a folder of raw files with the keyword argument `options`.
    """

    options: type[OwnOptions]
    read: Callable[..., LabelledPairs]


OWN_READERS = {
    "files": OwnReader(options=FilesOptions, read=files.read),
    "hub": OwnReader(options=HubOptions, read=hub.read),
    "logits": OwnReader(options=OwnOptions, read=logits.read),
}


def find_dataset(name: str, reader: str | None, options: Mapping[str, object]) -> Dataset:
    """Return a data set of the paper, or the one that options describe.

    Args:
        name: Key of the data set.
        reader: Reader; by default the data set of the paper with the same key.
        options: Options of the readers `files`, `hub` and `logits`.

    Returns:
        The declaration.

    Raises:
        InputError: The reader is unknown, or an option is wrong. The message lists the readers or the wrong options.
    """
    if reader in OWN_READERS:
        return _declare_own_dataset(name, OWN_READERS[reader], options)
    key = reader or name
    if key not in DATASETS:
        raise InputError(f"{name}: unknown reader {key!r}; known readers are {', '.join([*DATASETS, *OWN_READERS])}")
    return DATASETS[key]


def _declare_own_dataset(name: str, reader: OwnReader, values: Mapping[str, object]) -> Dataset:
    try:
        options = reader.options.model_validate(dict(values))
    except ValidationError as error:
        mistakes = describe_validation_errors(error, "options")
        known = ", ".join(reader.options.model_fields)
        raise InputError(
            f"options of {name}: {len(mistakes)} mistake(s); known options: {known}\n  " + "\n  ".join(mistakes)
        ) from None
    check_columns = None
    if isinstance(options, FilesOptions) and options.pairs is not None:
        check_columns = partial(files.check_columns, source=options.pairs)
    return Dataset(
        name=name,
        title=options.title or name,
        domain=options.domain,
        task=options.task,
        labels=options.labels,
        licence=options.licence,
        read=partial(reader.read, options=options),
        repository=options.repository,
        files=options.raw_files,
        check_columns=check_columns,
    )


def find_declared_dataset(name: str, entry: DatasetParams) -> Dataset:
    """Return the data set of an entry of params.yaml, and check that its local files exist.

    Args:
        name: Key of the data set.
        entry: Its entry.

    Returns:
        The declaration.

    Raises:
        InputError: The reader is unknown, an option is wrong, or a file or one of its columns does not exist. The
            message lists what exists.
    """
    dataset = find_dataset(name, entry.reader, entry.options)
    if entry.source != "files":
        return dataset
    path = Path(entry.path)
    if path.is_file() and dataset.files and dataset.files != (path.name,):
        names = ", ".join(dataset.files)
        raise InputError(f"{name}: path is the file {path}, but options name {names}; give their folder")
    required_files = [path]
    if path.is_dir():
        required_files = [path / file for file in dataset.files or (path.name,)]
    for file in required_files:
        if not file.is_file():
            raise InputError(
                f"{name}: {file} does not exist; correct its path in params.yaml, or move the file there. "
                f"{_describe_nearest_folder(file)}"
            )
    if dataset.check_columns is not None:
        try:
            dataset.check_columns(path if path.is_dir() else path.parent)
        except InputError as error:
            raise InputError(f"{name}: {error}; correct the options of {name} in params.yaml") from None
    return dataset


def _describe_nearest_folder(file: Path) -> str:
    """List the content of the nearest folder that exists above a missing file."""
    folder = next(parent for parent in file.absolute().parents if parent.is_dir())
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    listed = ", ".join(names[:MAX_LISTED_FILES]) or "nothing"
    others = f" and {len(names) - MAX_LISTED_FILES} more" if len(names) > MAX_LISTED_FILES else ""
    return f"{folder} has {listed}{others}"
