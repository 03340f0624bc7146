"""Made-up predictions of a relevance model over three labels, for a demonstration without anybody's data."""

import numpy as np
import polars as pl

from relmap.simulation.judgements import draw_labels, solve_relevance

LABELS = ("irrelevant", "partial", "exact")
MIX = np.array([0.5, 0.3, 0.2])
OVERCONFIDENCE = 1.5  # factor of the model's logits over those that would be right without a residual
PER_QUERY = 10
RESIDUAL = 1.0  # that of the twins; with 0, labels would be right equally often at equal confidence


def simulate_predictions(rows: int, *, seed: int) -> pl.DataFrame:
    """Columns `query`, `logits` (a list of three) and `label` (by name), rows of a query together."""
    generator = np.random.default_rng(seed)
    evidence = 1.6 * generator.normal(size=(rows, len(LABELS)))
    relevance = solve_relevance(evidence, MIX, RESIDUAL)
    label = draw_labels(relevance(evidence), generator)
    logits = OVERCONFIDENCE * (evidence + relevance.bias)
    return pl.DataFrame(
        {
            "query": [f"query {row // PER_QUERY}" for row in range(rows)],
            "logits": pl.Series(logits).arr.to_list(),
            "label": np.array(LABELS)[label].tolist(),
        }
    )
