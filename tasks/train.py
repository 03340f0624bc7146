"""DVC verb: train the base predictor of one data set, model seed 0, and save its logits once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from tasks.datasets import dataset_named
from tasks.datasets.base import Dataset, Judged
from tasks.expectations.check import GateFailed
from tasks.expectations.contract import check_contract
from tasks.expectations.pairs import outline
from tasks.metrics.probability import accuracy
from tasks.predictors import fit_predictor
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.errors import BadInput
from tasks.protocol.params import DatasetParams, Params, Preset, load_params
from tasks.protocol.splits import SPLITS, draw_splits
from tasks.protocol.store import (
    base_folder,
    failed_gates_file,
    raw_folder,
    read_json,
    write_json,
    write_logits,
    write_pairs,
)
from tasks.provenance.stage import as_stage
from tasks.sources.origin import INDEX

logger = logging.getLogger(__name__)


def main(name: str) -> None:
    """Read the raw files of `name`, fit on train rows, write logits of validation and test rows."""
    params = load_params()
    entry = params.dataset(name)
    dataset = dataset_named(name, entry.reader, entry.chosen.options)
    judged = dataset.read(raw_folder(name), entry.chosen.options)
    record = contract(name, dataset, entry, judged)
    frame, drawn = with_splits(judged.pairs, entry.chosen, entry.seed)
    parts = by_split(frame, name)
    predictor = fit_predictor(
        entry.chosen.predictor,
        parts["train"],
        n_labels=dataset.n_labels,
        class_weight=entry.chosen.class_weight,
        seed=params.train.seed,
        settings=params.train.settings(entry.chosen.settings),
    )
    decided = {split: decisions(predictor(parts[split]), parts[split]) for split in ("validation", "test")}
    predictor.save(base_folder(name))
    write_pairs(name, outline(frame))
    if record is not None:
        write_json(base_folder(name) / "contract.json", record)
    told = read_json(raw_folder(name) / INDEX)
    facts = {
        **described(name, dataset, entry, params, drawn),
        **counted(parts, dataset.n_labels),
        "counts": judged.counts,
        "dropped": judged.dropped,
        "published": published(dataset, entry),
        "origin": {fact: told[fact] for fact in ("origin", "revision", "licence")},
        "accuracy": {split: accuracy(rows.decision, rows.labels) for split, rows in decided.items()},
    }
    write_logits(name, decided, facts)


def contract(name: str, dataset: Dataset, entry: DatasetParams, judged: Judged) -> dict[str, Any] | None:
    """The record of the gate that official files must pass before anything is trained on them; None for others.

    Where it fails, `failed_gates_file` keeps the record.
    """
    failed_gates_file(name).unlink(missing_ok=True)
    if entry.source != "official":
        return None
    try:
        return check_contract(
            judged.pairs,
            judged.counts,
            published=dataset.origin(entry.chosen.options).published,
            n_labels=dataset.n_labels,
            features=dataset.features,
            coordinates={"dataset": name},
        )
    except GateFailed as error:
        write_json(failed_gates_file(name), {"dataset": name, "source": entry.source, "gates": [error.record]})
        raise


def with_splits(frame: pl.DataFrame, chosen: Preset, seed: int) -> tuple[pl.DataFrame, list[str]]:
    """Judged pairs, each with its split, and the splits that were drawn."""
    if not frame["split"].null_count():
        return frame, []
    shares = chosen.split.shares
    return draw_splits(frame, by=chosen.split.by, shares=shares, seed=seed), list(shares)


def by_split(frame: pl.DataFrame, name: str) -> dict[str, pl.DataFrame]:
    """The judged pairs of each split; BadInput where one has none."""
    parts = {split: frame.filter(pl.col("split") == split) for split in SPLITS}
    for split, part in parts.items():
        if part.is_empty():
            raise BadInput(
                f"{name}: no pair is in the split {split}: its files name none, or none is left. In params.yaml, give "
                f"`split` of {name} a share for it (`{split}: 0.2`), or mend the data"
            )
    return parts


def decisions(logits: np.ndarray, part: pl.DataFrame) -> FixedDecisions:
    """What is decided about the rows of `part`, once and for all."""
    return FixedDecisions(
        logits=logits,
        labels=part["label"].to_numpy().astype(np.int64),
        decision=decide(logits),
        group=part["group"].to_numpy(),
    )


def described(name: str, dataset: Dataset, entry: DatasetParams, params: Params, drawn: list[str]) -> dict[str, Any]:
    """What is said of the data set and of how it was trained on."""
    return {
        "dataset": name,
        "title": dataset.title,
        "domain": dataset.domain,
        "task": dataset.task,
        "source": entry.source,
        "preset": entry.preset,
        "labels": list(dataset.labels),
        "split_by": entry.chosen.split.by,
        "drawn": drawn,
        "predictor": entry.chosen.predictor,
        "class_weight": entry.chosen.class_weight,
        "seed": params.train.seed,
    }


def counted(parts: Mapping[str, pl.DataFrame], n_labels: int) -> dict[str, Any]:
    """Rows, groups and rows of each class, for each split."""
    counts = {split: np.bincount(part["label"].to_numpy(), minlength=n_labels) for split, part in parts.items()}
    for split, classes in counts.items():
        shares = ", ".join(f"{share:.4f}" for share in classes / classes.sum())
        logger.info(
            "%s: %d rows, %d groups, classes %s", split, classes.sum(), parts[split]["group"].n_unique(), shares
        )
    return {
        "rows": {split: len(part) for split, part in parts.items()},
        "groups": {split: part["group"].n_unique() for split, part in parts.items()},
        "class_counts": {split: classes.tolist() for split, classes in counts.items()},
    }


def published(dataset: Dataset, entry: DatasetParams) -> list[dict[str, Any]]:
    """What is stated about the official set that this one is, or is a twin of."""
    if entry.source not in ("official", "simulated"):
        return []
    stated = dataset.origin(entry.chosen.options).published
    return [{"what": one.what, "value": one.value, "verified": one.verified} for one in stated]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # readers say what they leave out
    as_stage("train", main)
