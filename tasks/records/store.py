"""The only place that knows paths and file formats under `data/`, all relative to the project's root folder."""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io.atomic import write_atomically, write_json

DATA = Path("data")
REPORT = DATA / "report"
STATE = DATA / ".state"  # locks and records of this machine's runs; no stage reads it
Content = TypeVar("Content")
# Each takes the name of a data set.
raw_folder = (DATA / "raw").joinpath  # raw files, as downloaded, simulated or linked; nothing changes them afterwards
base_folder = (DATA / "base").joinpath  # the base predictor, its seed-0 logits, the outline of every judged pair
runs_folder = (DATA / "runs").joinpath  # metrics, scores, curves and gates
explored_folder = (DATA / "explored").joinpath  # results of chosen seeds or calibrators only; no stage reads them


PRIVATE = (DATA, Path(".dvc"), Path(".dvc/cache"), Path(".dvc/tmp"), Path(".prefect"))


def make_private() -> None:
    """Close the folders that hold data, DVC's cache and Prefect's state to other users of the machine.

    A clone creates them with the mode that git and DVC choose, usually readable by everyone. Folders of another user
    are left as they are. `dvc exp run --temp` and `--queue` run stages in a folder below `.dvc` of the checkout, and
    fill the cache there: that `.dvc` is closed too.
    """
    outer = [folder for folder in Path.cwd().parents if folder.name == ".dvc"]
    for folder in (*PRIVATE, *outer):
        with suppress(FileNotFoundError):
            state = folder.stat()
            if state.st_uid == os.getuid() and state.st_mode & 0o077:
                folder.chmod(0o700)


def manifest_file(dataset: str, stage: str) -> Path:
    """Return the file that says what the outputs of a stage were made of; `dataset` is empty for the report."""
    return DATA / "manifests" / dataset / f"{stage}.json"


def metrics_file(dataset: str) -> Path:
    """Return the file of the numbers of a data set that `dvc metrics` shows."""
    return DATA / "metrics" / f"{dataset}.json"


def failed_gates_file(dataset: str) -> Path:
    """Return the file of the gates that the last run of a data set reached, where one of them failed.

    The next run removes it. No stage reads it: it is for the report in which that data set is a hole.
    """
    return STATE / "gates" / f"{dataset}.json"


def read_text(path: Path) -> str:
    """Read a text of ours; InputError where it is missing."""
    return _read(path, lambda: path.read_text(encoding="utf-8"))


def read_csv(path: Path) -> pl.DataFrame:
    """Read a results table of ours; InputError where it is missing."""
    return _read(path, lambda: pl.read_csv(path))


def read_parquet(path: Path) -> pl.DataFrame:
    """Read a parquet file of ours; InputError where it is missing or cut off."""
    return _read(path, lambda: pl.read_parquet(path), "a whole parquet file")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; InputError where it is missing or cut off."""
    content = _read(path, lambda: json.loads(path.read_text(encoding="utf-8")), "whole JSON")
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {type(content).__name__}, not an object; delete it and run `dvc repro`")
    return content


def _read(path: Path, read: Callable[[], Content], what: str = "text") -> Content:
    try:
        return read()
    except FileNotFoundError:
        raise InputError(f"{path} is missing; `dvc repro` makes it, `dvc checkout` brings it back") from None
    except (pl.exceptions.ComputeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not {what} ({error}); delete it and run `dvc repro`") from None


class Base(NamedTuple):
    """What `train` hands on: fixed decisions on validation and test rows, and the facts about them."""

    name: str  # key of the data set
    validation: FixedDecisions
    test: FixedDecisions
    labels: tuple[str, ...]  # names, index = label
    split_by: str  # row or group: what kept train, validation and test apart
    drawn: tuple[str, ...]  # the splits that were drawn from one pool, in place of given by the source
    source: str  # simulated, hub or files
    seed0_accuracy: float  # of the decisions on the test rows, as `train` saw it


def write_decisions(path: Path, parts: Mapping[str, FixedDecisions]) -> None:
    """Write `split, group, label, decision, logits`, rows in the order of `parts`."""
    frame = pl.concat(
        pl.DataFrame(
            {
                "split": [split] * len(rows),
                "group": pl.Series(rows.group.tolist(), dtype=pl.String),
                "label": pl.Series(rows.labels, dtype=pl.Int8),
                "decision": pl.Series(rows.decision, dtype=pl.Int8),
                "logits": pl.Series(rows.logits).arr.to_list(),
            }
        )
        for split, rows in parts.items()
    )
    write_atomically(path, frame.write_parquet)


def write_logits(dataset: str, parts: Mapping[str, FixedDecisions], facts: Mapping[str, Any]) -> None:
    """Write `base/<d>/logits.parquet` and `base/<d>/base.json`."""
    write_decisions(base_folder(dataset) / "logits.parquet", parts)
    write_json(base_folder(dataset) / "base.json", facts)


def read_members(dataset: str) -> list[list[Base]]:
    """Read the members of each model run, where `train` made several base predictors; else return an empty list."""
    files = (base_folder(dataset) / "members").glob("run_*_member_*.parquet")
    places = sorted((int(run), int(member)) for run, member in (re.findall(r"\d+", path.stem) for path in files))
    return [
        [read_base(dataset, f"run_{run}_member_{member}", "members") for _, member in of_run]
        for run, of_run in groupby(places, key=itemgetter(0))
    ]


def read_base(dataset: str, other: str | None = None, kind: str = "sensitivity") -> Base:
    """Read what `train` wrote, or another base predictor of its; InputError names the file, the row and the mistake."""
    path = base_folder(dataset) / (f"{kind}/{other}.parquet" if other else "logits.parquet")
    facts = read_json(base_folder(dataset) / "base.json")
    labels = tuple(facts["labels"])
    frame = read_parquet(path)
    parts = {}
    for split in ("validation", "test"):
        rows = frame.filter(pl.col("split") == split)
        if rows.is_empty():
            raise InputError(f"{path} has no {split} rows; check `split` of {dataset} in params.yaml")
        lengths = rows["logits"].list.len().to_numpy()
        for row in np.flatnonzero(lengths != len(labels))[:1]:
            raise InputError(f"{path}: {split} row {row} has {lengths[row]} logits, not K = {len(labels)}")
        logits = rows["logits"].list.to_array(len(labels)).to_numpy().astype(np.float64, order="F")  # label by label
        for row in np.flatnonzero(~np.isfinite(logits).all(axis=1))[:1]:
            raise InputError(f"{path}: {split} row {row} has logits {logits[row].tolist()}; every logit must be finite")
        label, decision = (rows[column].to_numpy().astype(np.int64) for column in ("label", "decision"))
        parts[split] = FixedDecisions(logits, label, decision, rows["group"].to_numpy())
    how = facts["split_by"], tuple(facts["drawn"]), facts["source"]
    return Base(dataset, parts["validation"], parts["test"], labels, *how, seed0_accuracy=facts["accuracy"]["test"])
