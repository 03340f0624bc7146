"""Simulated predictions of a relevance model over three labels, for a demonstration."""

import numpy as np
import polars as pl

from relmap.simulation.judgements import draw_labels, solve_relevance

LABEL_NAMES = ("irrelevant", "partial", "exact")
LABEL_SHARES = np.array([0.5, 0.3, 0.2])
OVERCONFIDENCE = 1.5  # factor of the logits relative to those that are correct without a residual
ROWS_PER_QUERY = 10
RESIDUAL = 1.0  # as for the twins; with 0, labels of equal confidence would be correct equally often


def simulate_predictions(rows: int, *, seed: int) -> pl.DataFrame:
    """Simulate predictions.

    Args:
        rows: Number of rows.
        seed: Seed of the simulation.

    Returns:
        Columns `query`, `logits` (a list of three) and `label` (a name); the rows of a query are contiguous.
    """
    generator = np.random.default_rng(seed)
    evidence = 1.6 * generator.normal(size=(rows, len(LABEL_NAMES)))
    relevance = solve_relevance(evidence, LABEL_SHARES, RESIDUAL)
    label = draw_labels(relevance(evidence), generator)
    logits = OVERCONFIDENCE * (evidence + relevance.bias)
    return pl.DataFrame(
        {
            "query": [f"query {row // ROWS_PER_QUERY}" for row in range(rows)],
            "logits": pl.Series(logits).arr.to_list(),
            "label": np.array(LABEL_NAMES)[label].tolist(),
        }
    )
