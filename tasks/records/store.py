"""Paths and file formats under `data/`. All paths are relative to the root folder of the project."""

import json
import os
import re
from collections.abc import Callable, Mapping
from configparser import RawConfigParser
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from relmap.decisions import ProtocolDecisions
from relmap.errors import InputError
from relmap.io.atomic import write_atomically, write_json, write_text

DATA = Path("data")
REPORT = DATA / "report"
STATE = DATA / ".state"  # locks and records of runs on this machine; not the input of a stage
PRIVATE_FOLDERS = (DATA, Path(".dvc"), Path(".dvc/cache"), Path(".dvc/tmp"), Path(".prefect"))
DVC_STATE = Path(".dvc/tmp/site")
Content = TypeVar("Content")

# Each function takes the key of a data set.
raw_folder = (DATA / "raw").joinpath  # raw files, as downloaded, simulated or linked; never changed afterwards
base_folder = (DATA / "base").joinpath  # base predictor, its logits and the summary of all labelled pairs
runs_folder = (DATA / "runs").joinpath  # metrics, scores, curves and gates
explored_folder = (DATA / "explored").joinpath  # results of selected seeds or calibrators; not the input of a stage


def make_private() -> None:
    """Deny other users of the machine access to the folders of data, DVC's cache and Prefect's state.

    A clone creates them with the mode that git and DVC choose, usually readable by everyone. Folders of another user
    are left as they are. `dvc exp run --temp` and `--queue` run stages in a folder below `.dvc` of the checkout, and
    fill its cache, so a `.dvc` folder above the current folder is made private too.
    """
    if Path(".dvc/config").exists():
        _keep_dvc_state_private()
    outer_folders = [folder for folder in Path.cwd().parents if folder.name == ".dvc"]
    for folder in (*PRIVATE_FOLDERS, *outer_folders):
        with suppress(FileNotFoundError):
            state = folder.stat()
            if state.st_uid == os.getuid() and state.st_mode & 0o077:
                folder.chmod(0o700)


def _keep_dvc_state_private() -> None:
    """Create the folder of DVC's state, and write its absolute path to `.dvc/config.local`.

    DVC unpickles what it finds in this folder, and by default uses one that every user of the machine can change. The
    path in `.dvc/config` protects a clone from its first command on, but DVC takes it relative to the current folder,
    so it is right in the root folder of the project only.
    """
    (DVC_STATE / "repo").mkdir(mode=0o700, parents=True, exist_ok=True)  # DVC would make it writable for everyone
    local_config = Path(".dvc/config.local")
    config = RawConfigParser()
    config.read(local_config, encoding="utf-8")
    if not config.has_section("core"):
        config.add_section("core")
    folder = f'"{DVC_STATE.absolute()}"'
    if config.get("core", "site_cache_dir", fallback=None) != folder:
        config.set("core", "site_cache_dir", folder)
        text = StringIO()
        config.write(text)
        write_text(local_config, text.getvalue())


def metrics_file(dataset: str) -> Path:
    """Return the path of the numbers of a data set that `dvc metrics` shows.

    Args:
        dataset: Key of the data set.
    """
    return DATA / "metrics" / f"{dataset}.json"


def failed_gates_file(dataset: str) -> Path:
    """Return the path of the gate records of a data set whose last run failed at a gate.

    The next run removes the file. No stage depends on it; the report shows it for the failed data set.

    Args:
        dataset: Key of the data set.
    """
    return STATE / "gates" / f"{dataset}.json"


def read_text(path: Path) -> str:
    """Read a text file of the pipeline.

    Args:
        path: Path of the file.

    Returns:
        Its content.

    Raises:
        InputError: The file is missing or not UTF-8 text.
    """
    return _read(path, lambda: path.read_text(encoding="utf-8"), "text")


def read_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file of the pipeline.

    Args:
        path: Path of the file.

    Returns:
        Its rows.

    Raises:
        InputError: The file is missing or not CSV text.
    """
    return _read(path, lambda: pl.read_csv(path), "text")


def read_parquet(path: Path) -> pl.DataFrame:
    """Read a parquet file of the pipeline.

    Args:
        path: Path of the file.

    Returns:
        Its rows.

    Raises:
        InputError: The file is missing or incomplete.
    """
    return _read(path, lambda: pl.read_parquet(path), "a complete parquet file")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of the pipeline.

    Args:
        path: Path of the file.

    Returns:
        The object.

    Raises:
        InputError: The file is missing, incomplete or contains another type.
    """
    content = _read(path, lambda: json.loads(path.read_text(encoding="utf-8")), "complete JSON")
    if not isinstance(content, dict):
        raise InputError(f"{path} contains {type(content).__name__}, not an object; delete it and run `dvc repro`")
    return content


def _read(path: Path, read: Callable[[], Content], expected_format: str) -> Content:
    """Call a function that reads a file; raise InputError with a remedy if the file is missing or damaged."""
    try:
        return read()
    except FileNotFoundError:
        raise InputError(f"{path} is missing; create it with `dvc repro`, or restore it with `dvc checkout`") from None
    except (pl.exceptions.ComputeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not {expected_format} ({error}); delete it and run `dvc repro`") from None


class Base(NamedTuple):
    """Output of the stage `train`: fixed decisions on validation and test rows.

    Attributes:
        name: Key of the data set.
        validation: Decisions on the validation rows.
        test: Decisions on the test rows.
        labels: Names of the K labels.
        split_by: Unit of the split into train, validation and test: "row" or "group".
        drawn: Splits that were drawn at random from one pool, instead of being fixed by the source.
        source: Source of the data set: "simulated", "hub" or "files".
        seed0_accuracy: Accuracy on the test rows, as computed by the stage `train`.
        repeats_pairs: True if a pair may occur more than once.
    """

    name: str
    validation: ProtocolDecisions
    test: ProtocolDecisions
    labels: tuple[str, ...]
    split_by: str
    drawn: tuple[str, ...]
    source: str
    seed0_accuracy: float
    repeats_pairs: bool = False


def write_decisions(path: Path, parts: Mapping[str, ProtocolDecisions]) -> None:
    """Write decisions to a parquet file with the columns `split, group, label, decision, logits`.

    Args:
        path: Path of the file.
        parts: Split -> decisions, in the order of the rows of the file.
    """
    frames = [
        pl.DataFrame(
            {
                "split": [split] * len(decisions),
                "group": decisions.group.tolist(),
                "label": pl.Series(decisions.label, dtype=pl.Int8),
                "decision": pl.Series(decisions.decision, dtype=pl.Int8),
                "logits": pl.Series(decisions.logits).arr.to_list(),
            }
        )
        for split, decisions in parts.items()
    ]
    write_atomically(path, pl.concat(frames).write_parquet)


def write_logits(dataset: str, parts: Mapping[str, ProtocolDecisions], facts: Mapping[str, Any]) -> None:
    """Write `logits.parquet` and `base.json` of a data set.

    Args:
        dataset: Key of the data set.
        parts: Split -> decisions.
        facts: Content of `base.json`.
    """
    write_decisions(base_folder(dataset) / "logits.parquet", parts)
    write_json(base_folder(dataset) / "base.json", facts)


def read_members(dataset: str) -> list[list[Base]]:
    """Read the decisions of all members of each model run.

    Args:
        dataset: Key of the data set.

    Returns:
        Members of each run; empty if the stage `train` made only one base predictor.
    """
    members_by_run: dict[int, list[int]] = {}
    for path in (base_folder(dataset) / "members").glob("run_*_member_*.parquet"):
        run, member = re.findall(r"\d+", path.stem)
        members_by_run.setdefault(int(run), []).append(int(member))
    runs = []
    for run, members in sorted(members_by_run.items()):
        runs.append([read_base(dataset, f"run_{run}_member_{member}", "members") for member in sorted(members)])
    return runs


def read_base(dataset: str, other: str | None = None, subfolder: str = "sensitivity") -> Base:
    """Read the decisions of a base predictor.

    Args:
        dataset: Key of the data set.
        other: Name of another base predictor that the stage `train` wrote; None for the main one.
        subfolder: Folder of the other base predictor.

    Returns:
        The decisions on validation and test rows.

    Raises:
        InputError: A file is missing or invalid. The message names the file, the row and the mistake.
    """
    path = base_folder(dataset) / (f"{subfolder}/{other}.parquet" if other else "logits.parquet")
    facts = read_json(base_folder(dataset) / "base.json")
    labels = tuple(facts["labels"])
    frame = read_parquet(path)
    parts = {}
    for split in ("validation", "test"):
        rows = frame.filter(pl.col("split") == split)
        if rows.is_empty():
            raise InputError(f"{path} has no {split} rows; check `split` of {dataset} in params.yaml")
        parts[split] = ProtocolDecisions(
            decision=rows["decision"].to_numpy().astype(np.int64),
            logits=_valid_logits(rows, len(labels), f"{path}: {split}"),
            label=rows["label"].to_numpy().astype(np.int64),
            group=rows["group"].to_numpy(),
        )
    return Base(
        name=dataset,
        validation=parts["validation"],
        test=parts["test"],
        labels=labels,
        split_by=facts["split_by"],
        drawn=tuple(facts["drawn"]),
        repeats_pairs=facts.get("repeats_pairs", False),
        source=facts["source"],
        seed0_accuracy=facts["accuracy"]["test"],
    )


def _valid_logits(rows: pl.DataFrame, n_labels: int, location: str) -> np.ndarray:
    """Return the logits of rows as an array (n, K); raise InputError for the first invalid row."""
    lengths = rows["logits"].list.len().to_numpy()
    wrong_length = np.flatnonzero(lengths != n_labels)
    if len(wrong_length):
        row = wrong_length[0]
        raise InputError(f"{location} row {row} has {lengths[row]} logits, not K = {n_labels}")
    # column by column in memory, since the calibrators compute label by label
    logits = rows["logits"].list.to_array(n_labels).to_numpy().astype(np.float64, order="F")
    not_finite = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if len(not_finite):
        row = not_finite[0]
        raise InputError(f"{location} row {row} has logits {logits[row].tolist()}; every logit must be finite")
    return logits
