"""Made-up predictions of a relevance model over three labels, for a demonstration without anybody's data."""

import numpy as np
import polars as pl

from relmap.simulation.judgements import draw_labels, solve_relevance

LABEL_NAMES = ("irrelevant", "partial", "exact")
LABEL_SHARES = np.array([0.5, 0.3, 0.2])
OVERCONFIDENCE = 1.5  # factor of the model's logits over those that would be right without a residual
ROWS_PER_QUERY = 10
RESIDUAL = 1.0  # that of the twins; with 0, labels would be right equally often at equal confidence


def simulate_predictions(rows: int, *, seed: int) -> pl.DataFrame:
    """Columns `query`, `logits` (a list of three) and `label` (by name), rows of a query together."""
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
