"""Twin of MSLR-WEB10K: queries with lists of documents, each with 136 features and a label.

Every other feature is a count. The evidence is linear in the features, as the base predictor is. Since the labels are
grades of relevance, most of it can be due to one relevance score, which favors the labels in their order. Features are
correlated with each other, and slightly between the documents of a query. Some features may be constant, since a twin
has fewer rows than the data set: stochastic gradient descent over few rows and many features ends far from its optimum.
"""

import numpy as np
import polars as pl

from relmap.simulation.judgements import draw_labels, draw_queries, solve_relevance
from tasks.settings.dataset_params import TwinParams

N_FEATURES = 136
N_FACTORS = 16  # latent factors that the features share
QUERY_SIZES = (1, 239)  # documents of a query, 120 on average
MIN_QUERIES = 20  # no query has more than 1/20 of the rows, so that few rows still give about 40 queries
SPLIT_SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}  # of the queries
QUERY_VARIANCE = 0.15  # share of the variance of a factor that the documents of a query have in common
FACTOR_VARIANCE = 0.7  # share of the variance of a feature that is due to the factors

CENTER = np.resize([2.0, 0.0, 40.0, -2.0, 600.0, 1.0, 0.5, 3.0], N_FEATURES)
SCALE = np.resize([9.0, 0.5, 15.0, 2.0, 80.0], N_FEATURES)
IS_COUNT = np.arange(N_FEATURES) % 2 == 0


def simulate_mslr_web10k(
    rows: int, residual: float, twin: TwinParams, generator: np.random.Generator
) -> tuple[dict[tuple[str, str], pl.DataFrame], pl.DataFrame]:
    """Simulate the tables of the twin.

    Args:
        rows: Number of documents.
        residual: Size of the residual.
        twin: Parameters of the twin.
        generator: Random generator.

    Returns:
        (configuration, split) -> table; and the truth, with the columns `pair` and `probabilities`.
    """
    query = draw_queries(rows, (QUERY_SIZES[0], min(QUERY_SIZES[1], rows // MIN_QUERIES)), generator)
    features = _draw_features(query, generator)
    features[:, twin.varying_features :] = CENTER[twin.varying_features :]
    evidence = twin.strength * _draw_evidence(features, len(twin.label_shares), twin.ordered, generator)
    shares = np.array(twin.label_shares)
    relevance = solve_relevance(evidence, shares, residual, twin.log_sharpness, twin.noise)
    probabilities = relevance(evidence)
    documents = pl.DataFrame(
        {
            "query": 3 * query + 1,
            "labels": draw_labels(probabilities, generator),
            "features": pl.Series(features).arr.to_list(),
            "probabilities": pl.Series(probabilities).arr.to_list(),
        }
    )
    n_queries = int(query[-1]) + 1
    split_ends = np.cumsum(list(SPLIT_SHARES.values()))[:-1]
    split_number = np.searchsorted(split_ends, (query + 0.5) / n_queries)
    tables = {}
    truths = []
    for number, split in enumerate(SPLIT_SHARES):
        in_split = documents.filter(split_number == number)
        queries = in_split.group_by("query", maintain_order=True).agg(pl.all())
        tables["default", split] = queries.drop("probabilities")
        truths.append(_document_truth(queries, split))
    return tables, pl.concat(truths)


def _draw_features(query: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw features of documents, shape (n, N_FEATURES), in single precision.

    feature = center + scale (sqrt(0.7) factor + sqrt(0.3) noise),
    factor = sqrt(0.15) factor of the query + sqrt(0.85) factor of the document. Counts are rounded.
    """
    single = np.float32
    n_queries = int(query[-1]) + 1
    query_factors = generator.normal(size=(n_queries, N_FACTORS)).astype(single)[query]
    factors = np.sqrt(single(QUERY_VARIANCE)) * query_factors
    factors += np.sqrt(single(1 - QUERY_VARIANCE)) * generator.standard_normal(query_factors.shape, dtype=single)
    features = np.sqrt(single(FACTOR_VARIANCE)) * np.resize(factors.T, (N_FEATURES, len(query))).T
    features += np.sqrt(single(1 - FACTOR_VARIANCE)) * generator.standard_normal(features.shape, dtype=single)
    features *= SCALE.astype(single)
    features += CENTER.astype(single)
    features[:, IS_COUNT] = np.rint(features[:, IS_COUNT])
    return features


def _draw_evidence(features: np.ndarray, n_labels: int, ordered: float, generator: np.random.Generator) -> np.ndarray:
    """Draw the evidence for each label, linear in the features, shape (n, K).

    evidence_k = sqrt(ordered) level_k relevance + sqrt(1 - ordered) own_k, where relevance and own_k have standard
    deviation 1, and the levels are -1 to 1 in equal steps.
    """
    weights = generator.normal(size=(N_FEATURES, 1 + n_labels))
    scores = ((features - CENTER) / SCALE) @ weights
    scores /= scores.std(axis=0)
    relevance = scores[:, :1]
    own = scores[:, 1:]
    level = np.linspace(-1, 1, n_labels)
    return np.sqrt(ordered) * level * relevance + np.sqrt(1 - ordered) * own


def _document_truth(queries: pl.DataFrame, split: str) -> pl.DataFrame:
    """Return `pair` and `probabilities` of each document; a pair is named `<split>:<row of the query>:<position>`."""
    positions = pl.int_ranges(pl.col("labels").list.len())
    rows = queries.select("probabilities", row=pl.int_range(1, pl.len() + 1), position=positions)
    documents = rows.explode("probabilities", "position")
    pair = pl.format("{}:{}:{}", pl.lit(split), "row", "position").alias("pair")
    return documents.select(pair, "probabilities")
