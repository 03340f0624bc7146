"""What dvc.yaml declares of a stage, with the data set filled in."""

import re
from collections.abc import Mapping
from functools import lru_cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from relmap.errors import InputError
from tasks.records.store import manifest_file
from tasks.settings.params import PARAMS_FILE, load_params

DVC_FILE = Path("dvc.yaml")
CODE = ("flows", "tasks", "relmap")  # the project's own folders of code


class Declared(NamedTuple):
    """One stage of dvc.yaml; all paths are as they stand there, most relative to the project's root."""

    stage: str  # as DVC calls it: train@wands, report
    command: str
    inputs: tuple[Path, ...]  # files and folders of data that it reads
    code: tuple[Path, ...]  # files and folders of code that it runs
    parameters: Mapping[str, Any]  # dotted name in params.yaml -> value
    outputs: tuple[Path, ...]  # files and folders that it writes, but for its manifest
    lasting: tuple[Path, ...]  # those of them that a new run goes on with
    manifest: Path


def _read() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The stages of dvc.yaml and all of params.yaml; InputError where the latter has a mistake."""
    try:
        return _parsed(DVC_FILE.read_text(encoding="utf-8"), PARAMS_FILE.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{error.filename} is not there; run from the project's root folder") from None


@lru_cache(maxsize=2)  # nobody changes what is handed out, and every stage asks for it
def _parsed(stages: str, params: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    load_params()  # tells what is wrong with that file
    return yaml.safe_load(stages)["stages"], yaml.safe_load(params)


def declared(name: str) -> Declared:
    """The stage that DVC calls `name`; InputError where there is no such stage or data set."""
    kind, _, key = name.partition("@")
    stages, params = _read()
    if kind not in stages or ("foreach" in stages[kind]) != bool(key):
        raise InputError(f"no stage {name!r} in {DVC_FILE}; it has {', '.join(stage_names())}")
    if key:
        load_params().dataset(key)  # tells those that there are
    values = {"key": key, **{f"item.{field}": value for field, value in params["datasets"].get(key, {}).items()}}

    def filled(text: str) -> str:
        return re.sub(r"\$\{([\w.]+)\}", lambda match: str(values[match[1]]), text)

    stage = stages[kind].get("do", stages[kind])
    reads = [Path(filled(path)) for path in stage["deps"]]
    manifest = manifest_file(key, kind)
    options = [out if isinstance(out, dict) else {out: {}} for out in (*stage["outs"], *stage.get("metrics", []))]
    writes = {Path(filled(path)): how for out in options for path, how in out.items()}
    code = tuple(path for path in reads if path.parts[0] in CODE)
    dotted = map(filled, stage.get("params", []))
    return Declared(
        stage=name,
        command=filled(stage["cmd"]),
        inputs=tuple(path for path in reads if path not in code),
        code=code,
        parameters={place: reduce(getitem, place.split("."), params) for place in dotted},
        outputs=tuple(path for path in writes if path != manifest),
        lasting=tuple(path for path, how in writes.items() if how.get("persist")),
        manifest=manifest,
    )


def stage_names() -> list[str]:
    """Every stage by DVC's name, in the order of dvc.yaml and of the data sets in params.yaml."""
    stages, params = _read()
    return [
        name
        for kind, stage in stages.items()
        for name in ([f"{kind}@{key}" for key in params["datasets"]] if "foreach" in stage else [kind])
    ]
