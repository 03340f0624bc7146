"""Stages as declared in dvc.yaml, with the data set filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from relmap.errors import InputError
from tasks.settings.params import PARAMS_FILE, load_params

DVC_FILE = Path("dvc.yaml")
LOCK_FILE = Path("dvc.lock")  # DVC's record of what ran on what
CODE_FOLDERS = ("flows", "tasks", "relmap")


@dataclass(frozen=True)
class DvcStage:
    """One stage of dvc.yaml. Paths are as written there, most of them relative to the project's root.

    Attributes:
        name: Name of the stage in DVC, such as `train@wands` or `report`.
        inputs: Data files and folders that the stage reads.
        code: Code files and folders that the stage runs.
        parameters: Dotted name in params.yaml -> value.
        outputs: Files and folders that the stage writes.
        persistent_outputs: Outputs that DVC keeps before a run, so that the run can continue from them.
    """

    name: str
    inputs: tuple[Path, ...]
    code: tuple[Path, ...]
    parameters: Mapping[str, Any]
    outputs: tuple[Path, ...]
    persistent_outputs: tuple[Path, ...]


def read_dvc_stage(name: str) -> DvcStage:
    """Read the declaration of a stage.

    Args:
        name: Name of the stage in DVC, such as `train@wands`.

    Raises:
        InputError: There is no such stage or data set, or params.yaml has a mistake.
    """
    kind, _, dataset = name.partition("@")
    stages, params = _read_files()
    if kind not in stages or ("foreach" in stages[kind]) != bool(dataset):
        raise InputError(f"no stage {name!r} in {DVC_FILE}; it has {', '.join(stage_names())}")
    if dataset:
        load_params().dataset(dataset)  # raises an error that lists the known data sets
    values = {"key": dataset}
    for field, value in params["datasets"].get(dataset, {}).items():
        values[f"item.{field}"] = value

    def fill_in(text: str) -> str:
        return re.sub(r"\$\{([\w.]+)\}", lambda match: str(values[match[1]]), text)

    declaration = stages[kind].get("do", stages[kind])
    dependencies = [Path(fill_in(path)) for path in declaration["deps"]]
    outputs = []
    persistent_outputs = []
    for entry in (*declaration["outs"], *declaration.get("metrics", [])):
        options_of_path = entry if isinstance(entry, dict) else {entry: {}}
        for path, options in options_of_path.items():
            output = Path(fill_in(path))
            outputs.append(output)
            if options.get("persist"):
                persistent_outputs.append(output)
    parameter_names = [fill_in(parameter) for parameter in declaration.get("params", [])]
    return DvcStage(
        name=name,
        inputs=tuple(path for path in dependencies if path.parts[0] not in CODE_FOLDERS),
        code=tuple(path for path in dependencies if path.parts[0] in CODE_FOLDERS),
        parameters={parameter: _look_up(params, parameter) for parameter in parameter_names},
        outputs=tuple(outputs),
        persistent_outputs=tuple(persistent_outputs),
    )


def stage_names() -> list[str]:
    """List all stages by their DVC names, in the order of dvc.yaml and of the data sets in params.yaml."""
    stages, params = _read_files()
    names = []
    for kind, declaration in stages.items():
        if "foreach" in declaration:
            names += [f"{kind}@{dataset}" for dataset in params["datasets"]]
        else:
            names.append(kind)
    return names


def _read_files() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Read the stages of dvc.yaml and all of params.yaml."""
    try:
        stages_text = DVC_FILE.read_text(encoding="utf-8")
        params_text = PARAMS_FILE.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{error.filename} is missing; run from the project's root folder") from None
    return _parse(stages_text, params_text)


@lru_cache(maxsize=2)  # every stage reads them, and no caller changes them
def _parse(stages_text: str, params_text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    load_params()  # raises an error that explains a mistake in params.yaml
    return yaml.safe_load(stages_text)["stages"], yaml.safe_load(params_text)


def _look_up(params: Mapping[str, Any], dotted_name: str) -> Any:
    """Return the value of a dotted name."""
    value: Any = params
    for key in dotted_name.split("."):
        value = value[key]
    return value


def read_recorded_digests() -> dict[str, str]:
    """Read the MD5 sums of the outputs of all stages from dvc.lock.

    Returns:
        Path of an output -> MD5 sum, as DVC computes it for a file or a folder; empty if there is no dvc.lock.
    """
    if not LOCK_FILE.exists():
        return {}
    stages = yaml.safe_load(LOCK_FILE.read_text(encoding="utf-8"))["stages"]
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", [])}
