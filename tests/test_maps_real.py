"""Reliability maps of real predictions: those of our own base model on the sets that REAL_DATA holds."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from tasks.calibrate import calibrate
from tasks.datasets import dataset_named
from tasks.maps.reliability_map import ReliabilityMap
from tasks.predictions.rows import PredictedRows
from tasks.predictors import fit_predictor
from tasks.project import project
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.params import DatasetParams
from tasks.protocol.splits import draw_splits, validation_rows
from tests.maps import PARAMS, learned

ROOT = Path(__file__).resolve().parent.parent


def decided(name: str) -> tuple[dict[str, FixedDecisions], DatasetParams]:
    """Fixed decisions on validation and test rows of a real set, as the pipeline makes them."""
    sets = yaml.safe_load((ROOT / "flows/real_sets.yaml").read_text().replace("REAL_DATA", os.environ["REAL_DATA"]))
    entry = DatasetParams.model_validate(sets[name])
    path, split = Path(entry.path), entry.split
    frame = dataset_named(name, "files", entry.options).read(path.parent if path.is_file() else path).pairs
    if frame["split"].null_count():
        frame = draw_splits(frame, by=split.by, shares=split.shares, seed=entry.seed)
    parts = {part: frame.filter(pl.col("split") == part) for part in ("train", "validation", "test")}
    predictor = fit_predictor(
        entry.predictor,
        parts.pop("train"),
        parts["validation"],
        n_labels=len(entry.options["labels"]),
        class_weight=entry.class_weight,
        seed=0,
        settings=entry.settings,
    )
    found = {}
    for part, rows in parts.items():
        logits = predictor(rows)
        labels = rows["label"].to_numpy().astype(np.int64)
        found[part] = FixedDecisions(logits, labels, decide(logits), rows["group"].to_numpy())
    return found, entry


@pytest.mark.real_data
@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize("name", ["mq2008", "science", "wikiqa"])
def test_a_map_of_real_predictions_says_what_the_pipeline_says(name):
    parts, entry = decided(name)
    validation, test = parts["validation"], parts["test"]
    group = validation.group if entry.split.by == "group" else None
    cut = validation_rows(validation, 1, PARAMS.protocol)
    fits = [calibrate.fn(cut, calibrator, 1) for calibrator in PARAMS.calibrators]
    rows = PredictedRows(validation.logits, None, validation.decision, validation.labels, group)
    for pipeline in project.fn(fits, cut, test, PARAMS, "cpu").rows:
        document = learned(rows, "mrp", pipeline.calibrator, protocol=PARAMS.protocol, names=None).document
        scored = ReliabilityMap.of(document)(PredictedRows(test.logits, None, test.decision, None, None))
        expected = 1 / (1 + np.exp(-pipeline.reliability_logits["mrp"]))
        np.testing.assert_allclose(scored.reliability, expected, rtol=0, atol=1e-12)
