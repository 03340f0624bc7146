"""DVC verb: train the base predictor of one data set, model seed 0, and save its logits once."""

from __future__ import annotations

import logging

import numpy as np
import polars as pl

from tasks.datasets import dataset_named
from tasks.expectations.pairs import outline
from tasks.metrics.probability import accuracy
from tasks.predictors import fit_predictor
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.errors import BadInput
from tasks.protocol.params import load_params
from tasks.protocol.splits import SPLITS, draw_splits
from tasks.protocol.store import base_folder, raw_folder, write_logits, write_pairs
from tasks.provenance.stage import as_stage


def main(name: str) -> None:
    """Read the raw files of `name`, fit on train rows, write logits of validation and test rows."""
    params = load_params()
    entry = params.dataset(name)
    chosen = entry.chosen
    dataset = dataset_named(name, entry.reader, chosen.options)
    frame = dataset.read(raw_folder(name), chosen.options)
    drawn = list(chosen.split.shares) if frame["split"].null_count() else []
    if drawn:
        frame = draw_splits(frame, by=chosen.split.by, shares=chosen.split.shares, seed=entry.seed)
    parts = {split: frame.filter(pl.col("split") == split) for split in SPLITS}
    for split, part in parts.items():
        if part.is_empty():
            raise BadInput(
                f"{name}: no pair is in the split {split}; mend `split` of {name} in params.yaml or its data"
            )
    predictor = fit_predictor(
        chosen.predictor,
        parts["train"],
        n_labels=dataset.n_labels,
        class_weight=chosen.class_weight,
        seed=params.train.seed,
        settings=params.train.settings(chosen.settings),
    )
    decided = {}
    for split in ("validation", "test"):
        logits = predictor(parts[split])
        decided[split] = FixedDecisions(
            logits=logits,
            labels=parts[split]["label"].to_numpy().astype(np.int64),
            decision=decide(logits),
            group=parts[split]["group"].to_numpy(),
        )
    predictor.save(base_folder(name))
    write_pairs(name, outline(frame))
    facts = {
        "dataset": name,
        "title": dataset.title,
        "domain": dataset.domain,
        "task": dataset.task,
        "source": entry.source,
        "preset": entry.preset,
        "labels": list(dataset.labels),
        "split_by": chosen.split.by,
        "drawn": drawn,
        "predictor": chosen.predictor,
        "class_weight": chosen.class_weight,
        "seed": params.train.seed,
        "rows": {split: len(part) for split, part in parts.items()},
        "groups": {split: part["group"].n_unique() for split, part in parts.items()},
        "class_counts": {
            split: np.bincount(part["label"].to_numpy(), minlength=dataset.n_labels).tolist()
            for split, part in parts.items()
        },
        "accuracy": {split: accuracy(rows.decision, rows.labels) for split, rows in decided.items()},
    }
    write_logits(name, decided, facts)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # readers say what they leave out
    as_stage("train", main)
