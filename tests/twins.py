"""Twins for the tests of what the pipeline finds in them: raw files, reader, split and base predictor."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from tasks.datasets import DATASETS
from tasks.predictors import fit_predictor
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.params import load_params
from tasks.protocol.splits import draw_splits
from tasks.simulation import simulate

PARAMS = load_params(Path(__file__).resolve().parent.parent / "params.yaml")


class Twin(NamedTuple):
    """Made-up decisions and their truth."""

    validation: FixedDecisions
    test: FixedDecisions
    truth: np.ndarray  # (n,), the true probability that each test decision is right


def twin_of_files(name: str, folder: Path, *, residual: float, seed: int = 0) -> Twin:
    """Raw files read as the official ones, split, trained on and decided as params.yaml says, with no orchestrator."""
    entry = PARAMS.dataset(name)
    simulate(name, folder, rows=entry.rows, residual=residual, seed=seed)
    dataset, split = DATASETS[name], entry.chosen.split
    frame = dataset.read(folder, entry.chosen.options).pairs
    if frame["split"].null_count():
        frame = draw_splits(frame, by=split.by, shares=split.shares, seed=seed)
    parts = {part: frame.filter(pl.col("split") == part) for part in ("train", "validation", "test")}
    weighted = {"class_weight": entry.chosen.class_weight, "seed": PARAMS.train.seed, "settings": {}}
    predictor = fit_predictor(entry.chosen.predictor, parts["train"], n_labels=dataset.n_labels, **weighted)

    def decided(part: pl.DataFrame) -> FixedDecisions:
        logits = predictor(part)
        return FixedDecisions(
            logits, part["label"].to_numpy().astype(np.int64), decide(logits), part["group"].to_numpy()
        )

    test = decided(parts["test"])
    told = parts["test"].join(pl.read_parquet(folder / "truth.parquet"), on="pair", how="left", maintain_order="left")
    truth = np.array(told["probabilities"].to_list())[np.arange(len(test)), test.decision]
    return Twin(decided(parts["validation"]), test, truth)
