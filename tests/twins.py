"""Twins for the tests of what the pipeline finds in them, and the steps that it takes from raw files to reliability."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from tasks.calibrators.temperature import fit_temperature
from tasks.datasets import DATASETS
from tasks.predictors import fit_predictor
from tasks.projection.batch import Batch, project_together
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import LatticeSettings
from tasks.protocol.decisions import FixedDecisions, confidence_logit, decide
from tasks.protocol.params import load_params
from tasks.protocol.splits import ValidationRows
from tasks.simulation import simulate

PARAMS = load_params(Path(__file__).resolve().parent.parent / "params.yaml")
SETTINGS = LatticeSettings()


class Twin(NamedTuple):
    """Made-up decisions and their truth."""

    validation: FixedDecisions
    test: FixedDecisions
    truth: np.ndarray  # (n,), the true probability that each test decision is right


class Reliability(NamedTuple):
    """Logits `(n,)` of the test rows' confidence under temperature scaling, and of their reliability by MRP."""

    before: np.ndarray
    after: np.ndarray


def twin_of_files(name: str, folder: Path, *, residual: float, seed: int = 0) -> Twin:
    """Raw files read as the released ones, trained on and decided, with no orchestrator.

    With a residual the base predictor is the paper's. Without one it is the multinomial regression without weights:
    balanced weights alone would put a residual in, which depends on the label.
    """
    simulate(name, folder, rows=PARAMS.dataset(name).rows, residual=residual, seed=seed)
    dataset = DATASETS[name]
    frame = dataset.read(folder).pairs
    parts = {part: frame.filter(pl.col("split") == part) for part in ("train", "validation", "test")}
    predictor = fit_predictor(
        "linear" if residual else "multinomial",
        parts["train"],
        parts["validation"],
        n_labels=dataset.n_labels,
        class_weight="balanced" if residual else "none",
        seed=dataset.member_seed,
        settings={} if residual else {"inverse_penalty": 3.0},  # less or more leaves a spread of its own
    )

    def decided(part: pl.DataFrame) -> FixedDecisions:
        logits, labels = predictor(part), part["label"].to_numpy().astype(np.int64)
        return FixedDecisions(logits, labels, decide(logits), part["group"].to_numpy())

    test, truth = decided(parts["test"]), pl.read_parquet(folder / "truth.parquet")
    of_test = parts["test"].join(truth, on="pair", how="left", maintain_order="left")["probabilities"]
    return Twin(decided(parts["validation"]), test, np.array(of_test.to_list())[np.arange(len(test)), test.decision])


def projected(twins: list[Twin], parts: list[ValidationRows]) -> list[Reliability]:
    """Temperature scaling and MRP as the pipeline fits them, of several twins side by side, to save time."""
    calibrators = [fit_temperature(rows.calibrator_fit.logits, rows.calibrator_fit.labels, seed=1) for rows in parts]
    batches = [Batch.under([fitted], rows, SETTINGS, "cpu") for fitted, rows in zip(calibrators, parts, strict=True)]
    scored = []
    for twin, fitted, (mrp,) in zip(twins, calibrators, project_together(batches), strict=True):
        before = confidence_logit(fitted(twin.test.logits), twin.test.decision)
        scored.append(Reliability(before, mrp(Decisions(before, twin.test.decision))))
    return scored


def loss(logit: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Each row's part of the correctness NLL, given that it is correct, or its probability to be."""
    return np.logaddexp(0, logit) - correct * logit
