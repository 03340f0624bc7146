"""The paper's table of data sets, with what was realised: rows, groups and class priors."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from tasks.tables.runs import BOOSTED, Runs, finished, in_order, table

SPLITS = ("train", "validation", "test")
TEXTS = ("dataset", "domain", "n_classes", "labels", "task")
SCHEMA = pl.Schema(
    dict.fromkeys(TEXTS, pl.String)
    | {"n_classes": pl.Int64}
    | {f"{counted}_{split}": pl.Int64 for counted in ("rows", "groups") for split in SPLITS}
    | dict.fromkeys([*(f"class_priors_{split}" for split in SPLITS), "preset", "source"], pl.String)
)


@table("datasets", "Data sets, and what was realised of them.", "Class priors in the order of the labels.")
def datasets_table(runs: Runs) -> pl.DataFrame:
    """Return one row for each data set; priors are shares of the true labels, in the order of `labels`."""
    described = pl.DataFrame([_described(fact) for fact in runs.facts if fact["dataset"] != BOOSTED], schema=SCHEMA)
    return finished(in_order(runs, described, own=True), runs, own=True)


def _described(fact: Mapping[str, Any]) -> dict[str, Any]:
    """A data set as one row; what its facts do not say stays empty."""
    row = {name: fact.get(name) for name in ("dataset", "domain", "task", "preset", "source")}
    row |= {"n_classes": len(fact["labels"]), "labels": "/".join(fact["labels"])}
    for split in SPLITS:
        row |= {f"{counted}_{split}": fact.get(counted, {}).get(split) for counted in ("rows", "groups")}
        counts = fact.get("class_counts", {}).get(split, [])
        row[f"class_priors_{split}"] = "/".join(f"{count / max(sum(counts), 1):.3f}" for count in counts) or None
    return row
