"""Simulated predictions of a relevance model over three labels, for a demonstration."""

import numpy as np
import polars as pl

from relmap.simulation.judgements import draw_labels, solve_relevance

LABEL_NAMES = ("irrelevant", "partial", "exact")
LABEL_SHARES = np.array([0.5, 0.3, 0.2])
EVIDENCE_DEVIATION = 1.6  # standard deviation of the evidence for a label, in logits; it sets the accuracy
RESIDUAL = 1.0  # size of the differences in accuracy between labels at the same confidence; twins have the same value
OVERCONFIDENCE = 1.5  # factor of the logits; with 1 and without a residual, their softmax would be the true probability
ROWS_PER_QUERY = 10


def simulate_predictions(rows: int, *, seed: int) -> pl.DataFrame:
    """Simulate overconfident predictions with true labels; at the same confidence, accuracy differs between labels.

    Args:
        rows: Number of rows.
        seed: Seed of the simulation.

    Returns:
        Columns `query`, `logits` (a list of three) and `label` (a name); the rows of a query are contiguous.
    """
    generator = np.random.default_rng(seed)
    evidence = EVIDENCE_DEVIATION * generator.normal(size=(rows, len(LABEL_NAMES)))
    relevance = solve_relevance(evidence, LABEL_SHARES, RESIDUAL)
    true_probabilities = relevance(evidence)
    label = draw_labels(true_probabilities, generator)
    logits = OVERCONFIDENCE * (evidence + relevance.bias)
    return pl.DataFrame(
        {
            "query": [f"query {row // ROWS_PER_QUERY}" for row in range(rows)],
            "logits": pl.Series(logits).arr.to_list(),
            "label": np.array(LABEL_NAMES)[label].tolist(),
        }
    )
