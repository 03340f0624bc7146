"""DVC verb: train the base predictors of one data set and save their logits once; saved ones are taken as they are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tasks.datasets import dataset_named
from tasks.datasets.base import Dataset, Judged
from tasks.expectations.check import GateFailed
from tasks.expectations.contract import check_contract
from tasks.expectations.pairs import outline
from tasks.metrics.probability import accuracy
from tasks.predictors import Predictor, fit_predictor
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.errors import BadInput
from tasks.protocol.params import DatasetParams, Params, load_params
from tasks.protocol.splits import SPLITS, draw_splits
from tasks.protocol.store import (
    base_folder,
    failed_gates_file,
    raw_folder,
    read_json,
    write_decisions,
    write_json,
    write_logits,
    write_pairs,
)
from tasks.provenance.stage import as_stage
from tasks.sources.hub import INDEX

logger = logging.getLogger(__name__)

TESTED = ("validation", "test")
RUN = 1000  # inferred: member seeds of the next run are so much larger, those of the next member larger by one


class Trained(NamedTuple):
    """How a base predictor is trained."""

    predictor: str
    class_weight: str
    seed: int


def main(name: str) -> None:
    """Read the raw files of `name`, fit on train rows, write logits of validation and test rows."""
    params = load_params()
    entry = params.dataset(name)
    dataset = dataset_named(name, entry.reader, entry.options)
    judged = dataset.read(raw_folder(name))
    record = contract(name, dataset, entry, judged)
    frame, drawn = with_splits(judged.pairs, dataset, entry)
    parts = by_split(frame, name, TESTED if judged.members else SPLITS)
    decided = saved(name, judged.members) if judged.members else trained(name, dataset, entry, params, parts)
    write_pairs(name, outline(frame))
    if record is not None:
        write_json(base_folder(name) / "contract.json", record)
    origin = read_json(raw_folder(name) / INDEX)
    facts = {
        **described(name, dataset, entry, drawn, parts),
        "dropped": judged.dropped,
        "origin": {fact: origin[fact] for fact in ("origin", "revision", "licence")},
        "accuracy": {split: accuracy(rows.decision, rows.labels) for split, rows in decided.items()},
    }
    write_logits(name, decided, facts)


def saved(name: str, frames: tuple[pl.DataFrame, ...]) -> dict[str, FixedDecisions]:
    """What the first member decides whose logits were saved; where there are others, all are written."""
    decided = [
        {split: decisions(part["logits"].to_numpy(), part) for split, part in by_split(frame, name, TESTED).items()}
        for frame in frames
    ]
    for member, parts in enumerate(decided if len(decided) > 1 else ()):
        write_decisions(base_folder(name) / f"members/run_0_member_{member}.parquet", parts)
    return decided[0]


def trained(
    name: str, dataset: Dataset, entry: DatasetParams, params: Params, parts: Mapping[str, pl.DataFrame]
) -> dict[str, FixedDecisions]:
    """What run 0, member 0 decides; all other base predictors that params.yaml asks for are trained and written."""
    fitted: dict[Trained, dict[str, FixedDecisions]] = {}

    def decided(one: Trained) -> dict[str, FixedDecisions]:
        if one not in fitted:
            predictor = fit(one, dataset, entry, parts)
            if not fitted:
                predictor.save(base_folder(name))
            fitted[one] = {split: decisions(predictor(parts[split]), parts[split]) for split in TESTED}
        return fitted[one]

    asked = members(dataset, entry, params)
    first = decided(next(iter(asked.values())))
    others = {f"members/{key}": one for key, one in asked.items()} if len(asked) > 1 else {}
    others |= {f"sensitivity/{key}": one for key, one in alternatives(dataset, entry, params).items()}
    for place, one in others.items():
        write_decisions(base_folder(name) / f"{place}.parquet", decided(one))
    return first


def members(dataset: Dataset, entry: DatasetParams, params: Params) -> dict[str, Trained]:
    """The base predictors of the tables; their names are those of their files. The first is run 0, member 0."""
    weight = "balanced" if entry.preset else entry.class_weight
    seed = dataset.member_seed if entry.preset else params.train.seed
    return {
        f"run_{run}_member_{member}": Trained(entry.predictor, weight, seed + RUN * run + member)
        for run in range(params.train.runs)
        for member in range(params.train.members)
    }


def alternatives(dataset: Dataset, entry: DatasetParams, params: Params) -> dict[str, Trained]:
    """The base predictors that show what a choice of the paper's is worth."""
    if entry.preset is None or entry.predictor != "linear":
        return {}
    seed = dataset.member_seed
    known = {
        "unweighted": Trained("linear", "none", seed),
        "multinomial": Trained("multinomial", "balanced", seed),
        "member_1": Trained("linear", "balanced", seed + 1),
        "member_2": Trained("linear", "balanced", seed + 2),
    }
    return {name: known[name] for name in params.train.alternatives}


def fit(one: Trained, dataset: Dataset, entry: DatasetParams, parts: Mapping[str, pl.DataFrame]) -> Predictor:
    """The base predictor; settings are those of the data set, then those of its entry."""
    own: dict[str, Any] = {"max_features": dataset.terms} if one.predictor != "boosted" else {}
    own |= {"passes": dataset.passes} if one.predictor == "linear" else {}
    return fit_predictor(
        one.predictor,
        parts["train"],
        parts["validation"],
        n_labels=dataset.n_labels,
        class_weight=one.class_weight,
        seed=one.seed,
        settings={**{key: value for key, value in own.items() if value is not None}, **entry.settings},
    )


def contract(name: str, dataset: Dataset, entry: DatasetParams, judged: Judged) -> dict[str, Any] | None:
    """The record of the gate that released files must pass before anything is trained on them; None for others.

    Where it fails, `failed_gates_file` keeps the record.
    """
    failed_gates_file(name).unlink(missing_ok=True)
    if entry.preset is None or entry.source != "hub":
        return None
    try:
        return check_contract(judged.pairs, n_labels=dataset.n_labels, coordinates={"dataset": name})
    except GateFailed as error:
        write_json(failed_gates_file(name), {"dataset": name, "source": entry.source, "gates": [error.record]})
        raise


def with_splits(frame: pl.DataFrame, dataset: Dataset, entry: DatasetParams) -> tuple[pl.DataFrame, list[str]]:
    """Judged pairs, each with its split, and the splits that were drawn from one pool."""
    if not frame["split"].null_count():
        return frame, list(dataset.drawn)
    assert entry.split is not None
    shares = entry.split.shares
    return draw_splits(frame, by=entry.split.by, shares=shares, seed=entry.seed), list(shares)


def by_split(frame: pl.DataFrame, name: str, splits: tuple[str, ...]) -> dict[str, pl.DataFrame]:
    """The judged pairs of each split; BadInput where one has none."""
    parts = {split: frame.filter(pl.col("split") == split) for split in splits}
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


def described(
    name: str, dataset: Dataset, entry: DatasetParams, drawn: list[str], parts: Mapping[str, pl.DataFrame]
) -> dict[str, Any]:
    """What is said of the data set, of how it was trained on, and of the rows, groups and classes of each split."""
    groups = {split: part["group"].n_unique() for split, part in parts.items()}
    counts = {split: np.bincount(part["label"].to_numpy(), minlength=dataset.n_labels) for split, part in parts.items()}
    for split, classes in counts.items():
        shares = ", ".join(f"{share:.4f}" for share in classes / classes.sum())
        logger.info("%s: %d rows, %d groups, classes %s", split, classes.sum(), groups[split], shares)
    return {
        "dataset": name,
        "title": dataset.title,
        "domain": dataset.domain,
        "task": dataset.task,
        "source": entry.source,
        "preset": entry.preset,
        "labels": list(dataset.labels),
        "split_by": entry.split.by if entry.split else dataset.split_by,
        "drawn": drawn,
        "predictor": entry.predictor if entry.reader != "logits" else "saved logits",
        "class_weight": "balanced" if entry.preset else entry.class_weight,
        "rows": {split: len(part) for split, part in parts.items()},
        "groups": groups,
        "class_counts": {split: classes.tolist() for split, classes in counts.items()},
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # readers say what they leave out
    as_stage("train", main)
