"""DVC verb: train the base predictors of one data set and save their logits once; saved ones are taken as they are."""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from relmap.decisions import FixedDecisions, decide
from relmap.errors import InputError
from relmap.io import atomic
from relmap.metrics.probability import accuracy
from tasks.datasets import base, dataset_named
from tasks.expectations.check import GateFailed
from tasks.expectations.pairs import check_contract, summarize_pairs
from tasks.predictors import fit_predictor
from tasks.provenance.stage import run_dataset_stage
from tasks.records import store
from tasks.records.splits import SPLITS, draw_splits
from tasks.settings.dataset_params import DatasetParams
from tasks.settings.params import Params, load_params
from tasks.sources.hub import INDEX

logger = logging.getLogger(__name__)

Parts = Mapping[str, pl.DataFrame]  # split -> its judged pairs
TESTED = SPLITS[1:]
RUN = 1000  # inferred: member seeds of the next run are so much larger, those of the next member larger by one


class _Trained(NamedTuple):  # how a base predictor is
    predictor: str
    class_weight: str
    seed: int


def main(name: str) -> None:
    """Read the raw files of `name`, fit on train rows, write logits of validation and test rows."""
    params = load_params()
    entry = params.dataset(name)
    dataset = dataset_named(name, entry.reader, entry.options)
    judged = dataset.read(store.raw_folder(name))
    record = _contract(name, dataset, entry, judged.pairs)
    frame, drawn = judged.pairs, dataset.drawn
    if frame["split"].null_count():
        assert entry.split is not None
        drawn = tuple(entry.split.shares)
        frame = draw_splits(frame, by=entry.split.by, shares=entry.split.shares, seed=entry.seed)
    parts = _by_split(frame, name, TESTED if judged.members else SPLITS)
    first = _Trained(entry.predictor, entry.class_weight, params.train.seed)
    if entry.preset:
        first = first._replace(class_weight="balanced", seed=dataset.member_seed)
    decided = _saved(name, judged.members) if judged.members else _trained(name, dataset, entry, params, first, parts)
    atomic.write_whole(store.base_folder(name, "pairs.parquet"), summarize_pairs(frame).write_parquet)
    if record is not None:
        atomic.write_json(store.base_folder(name) / "contract.json", record)
    origin = store.read_json(store.raw_folder(name) / INDEX)
    facts = {
        "dataset": name,
        **{fact: getattr(dataset, fact) for fact in ("title", "domain", "task")},
        "source": entry.source,
        "preset": entry.preset,
        "labels": dataset.labels,
        "split_by": entry.split.by if entry.split else dataset.split_by,
        "drawn": drawn,
        "predictor": entry.predictor if entry.reader != "logits" else "saved logits",
        "class_weight": first.class_weight,
        **_counted(dataset, parts),
        "dropped": judged.dropped,
        "origin": {fact: origin[fact] for fact in ("origin", "revision", "licence")},
        "accuracy": {split: accuracy(rows.decision, rows.labels) for split, rows in decided.items()},
    }
    store.write_logits(name, decided, facts)


def _saved(name: str, frames: tuple[pl.DataFrame, ...]) -> dict[str, FixedDecisions]:
    """What the first member decides whose logits were saved; where there are others, all are written."""
    decided = [
        {split: _decisions(part["logits"].to_numpy(), part) for split, part in _by_split(frame, name, TESTED).items()}
        for frame in frames
    ]
    for member, parts in enumerate(decided if len(decided) > 1 else ()):
        store.write_decisions(store.base_folder(name) / f"members/run_0_member_{member}.parquet", parts)
    return decided[0]


def _trained(
    name: str, dataset: base.Dataset, entry: DatasetParams, params: Params, first: _Trained, parts: Parts
) -> dict[str, FixedDecisions]:
    """What `first` decides; all other base predictors that params.yaml asks for are trained and written."""

    @cache
    def decided(how: _Trained) -> dict[str, FixedDecisions]:
        own = {"max_features": dataset.terms, "passes": dataset.passes if how.predictor == "linear" else None}
        given = {key: value for key, value in own.items() if value is not None and how.predictor != "boosted"}
        predictor = fit_predictor(
            how.predictor,
            parts["train"],
            parts["validation"],
            n_labels=len(dataset.labels),
            class_weight=how.class_weight,
            seed=how.seed,
            settings={**given, **entry.settings},  # those of the data set, then those of its entry
        )
        if how == first:
            predictor.save(store.base_folder(name))
        return {split: _decisions(predictor(parts[split]), parts[split]) for split in TESTED}

    decided(first)
    for place, how in _others(first, entry, params).items():
        store.write_decisions(store.base_folder(name) / f"{place}.parquet", decided(how))
    return decided(first)


def _others(first: _Trained, entry: DatasetParams, params: Params) -> dict[str, _Trained]:
    """By the places of their files: those of all runs, if more than one, and those for what a choice is worth."""
    places = [(run, member) for run in range(params.train.runs) for member in range(params.train.members)]
    asked = {
        f"members/run_{run}_member_{member}": first._replace(seed=first.seed + RUN * run + member)
        for run, member in (places if len(places) > 1 else ())
    }
    if entry.preset is None or entry.predictor != "linear":
        return asked
    choices = {
        "unweighted": first._replace(class_weight="none"),
        "multinomial": first._replace(predictor="multinomial"),
        "member_1": first._replace(seed=first.seed + 1),
        "member_2": first._replace(seed=first.seed + 2),
    }
    return asked | {f"sensitivity/{name}": choices[name] for name in params.train.alternatives}


def _contract(name: str, dataset: base.Dataset, entry: DatasetParams, pairs: pl.DataFrame) -> dict[str, Any] | None:
    """The record of the gate that released files must pass, kept for the report where it fails; None for others."""
    kept = store.failed_gates_file(name)
    kept.unlink(missing_ok=True)
    if entry.preset is None or entry.source != "hub":
        return None
    try:
        return check_contract(pairs, n_labels=len(dataset.labels), coordinates={"dataset": name})
    except GateFailed as error:
        atomic.write_json(kept, {"dataset": name, "source": entry.source, "gates": [error.record]})
        raise


def _by_split(frame: pl.DataFrame, name: str, splits: tuple[str, ...]) -> dict[str, pl.DataFrame]:
    parts = {split: frame.filter(pl.col("split") == split) for split in splits}
    for split, part in parts.items():
        if part.is_empty():
            raise InputError(
                f"{name}: no pair is in the split {split}: its files name none, or none is left. In params.yaml, give "
                f"`split` of {name} a share for it (`{split}: 0.2`), or mend the data"
            )
    return parts


def _decisions(logits: np.ndarray, part: pl.DataFrame) -> FixedDecisions:
    labels = part["label"].to_numpy().astype(np.int64)
    return FixedDecisions(logits, labels, decide(logits), part["group"].to_numpy())


def _counted(dataset: base.Dataset, parts: Parts) -> dict[str, dict[str, Any]]:
    groups = {split: part["group"].n_unique() for split, part in parts.items()}
    counts = {split: np.bincount(part["label"], minlength=len(dataset.labels)) for split, part in parts.items()}
    for split, classes in counts.items():
        shares = ", ".join(f"{share:.4f}" for share in classes / classes.sum())
        logger.info("%s: %d rows, %d groups, classes %s", split, classes.sum(), groups[split], shares)
    return {
        "rows": {split: len(part) for split, part in parts.items()},
        "groups": groups,
        "class_counts": {split: classes.tolist() for split, classes in counts.items()},
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # readers say what they leave out
    run_dataset_stage("train", main)
