"""Twins for the tests of what the pipeline finds in them: raw files, reader and base predictor."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from tasks.datasets import DATASETS
from tasks.predictors import fit_predictor
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.params import load_params
from tasks.simulation import simulate

PARAMS = load_params(Path(__file__).resolve().parent.parent / "params.yaml")


class Twin(NamedTuple):
    """Made-up decisions and their truth."""

    validation: FixedDecisions
    test: FixedDecisions
    truth: np.ndarray  # (n,), the true probability that each test decision is right


def twin_of_files(name: str, folder: Path, *, residual: float, seed: int = 0) -> Twin:
    """Raw files read as the released ones, trained on and decided, with no orchestrator.

    With a residual the base predictor is the paper's. Without one it is the multinomial regression without weights:
    balanced weights alone would put a residual in, which depends on the label.
    """
    simulate(name, folder, rows=PARAMS.dataset(name).rows, residual=residual, seed=seed)
    dataset = DATASETS[name]
    frame = dataset.read(folder).pairs
    parts = {part: frame.filter(pl.col("split") == part) for part in ("train", "validation", "test")}
    chosen, weight = ("linear", "balanced") if residual else ("multinomial", "none")
    settings = {} if residual else {"inverse_penalty": 3.0}  # less or more leaves a spread of its own
    predictor = fit_predictor(
        chosen,
        parts["train"],
        parts["validation"],
        n_labels=dataset.n_labels,
        class_weight=weight,
        seed=dataset.member_seed,
        settings=settings,
    )

    def decided(part: pl.DataFrame) -> FixedDecisions:
        logits = predictor(part)
        return FixedDecisions(
            logits, part["label"].to_numpy().astype(np.int64), decide(logits), part["group"].to_numpy()
        )

    test = decided(parts["test"])
    told = parts["test"].join(pl.read_parquet(folder / "truth.parquet"), on="pair", how="left", maintain_order="left")
    truth = np.array(told["probabilities"].to_list())[np.arange(len(test)), test.decision]
    return Twin(decided(parts["validation"]), test, truth)
