"""A twin of MSLR-WEB10K: `train`, `validation` and `test`, a row a query with lists of 136 features and of grades.

Every other feature is a count. The evidence is linear in the features, as the base predictor is. A feature shares most
of what it says with others, and some of it with the other documents of its query.
"""

import numpy as np
import polars as pl

from relmap.simulation.judgements import Difficulty, draw_labels, draw_queries, solve_relevance

FEATURES = 136
FACTORS = 16  # what features have in common
MIX = (0.5201, 0.3219, 0.1329, 0.0178, 0.0073)
DIFFICULTY = Difficulty(strength=1.22, log_sharpness=0.2)  # chosen to match accuracy and label spread
SIZES = (1, 239)  # documents of a query: 120 on average, fewer where that would leave fewer than some 40 queries
SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}  # of the queries

CENTRE = np.resize([2.0, 0.0, 40.0, -2.0, 600.0, 1.0, 0.5, 3.0], FEATURES)
SPREAD = np.resize([9.0, 0.5, 15.0, 2.0, 80.0], FEATURES)
COUNT = np.arange(FEATURES) % 2 == 0


def mslr_web10k(
    rows: int, residual: float, generator: np.random.Generator
) -> tuple[dict[tuple[str, str], pl.DataFrame], pl.DataFrame]:
    """The tables of a twin, and its truth, `pair, probabilities`."""
    query = draw_queries(rows, (SIZES[0], min(SIZES[1], rows // 20)), generator)
    queries = int(query[-1]) + 1
    single, common = np.float32, generator.normal(size=(queries, FACTORS)).astype(np.float32)[query]
    factors = np.sqrt(single(0.15)) * common
    factors += np.sqrt(single(0.85)) * generator.standard_normal(common.shape, dtype=single)
    features = np.sqrt(single(0.7)) * np.resize(factors.T, (FEATURES, rows)).T
    features += np.sqrt(single(0.3)) * generator.standard_normal(features.shape, dtype=single)
    features *= SPREAD.astype(single)
    features += CENTRE.astype(single)
    features[:, COUNT] = np.rint(features[:, COUNT])
    evidence = ((features - CENTRE) / SPREAD) @ generator.normal(size=(FEATURES, len(MIX)))
    evidence *= DIFFICULTY.strength / evidence.std(axis=0)
    relevance = solve_relevance(evidence, np.array(MIX), residual, DIFFICULTY.log_sharpness)
    probabilities = relevance(evidence)
    part = np.searchsorted(np.cumsum(list(SHARES.values()))[:-1], (query + 0.5) / queries)
    judged = pl.DataFrame(
        {
            "query": 3 * query + 1,
            "labels": draw_labels(probabilities, generator),
            "features": pl.Series(features).arr.to_list(),
            "probabilities": pl.Series(probabilities).arr.to_list(),
        }
    )
    tables, truths = {}, []
    for number, split in enumerate(SHARES):
        lists = judged.filter(part == number).group_by("query", maintain_order=True).agg(pl.all())
        tables["default", split] = lists.drop("probabilities")
        places = pl.int_ranges(pl.col("labels").list.len())
        row = lists.select("probabilities", row=pl.int_range(1, pl.len() + 1), place=places)
        pairs = row.explode("probabilities", "place")
        truths.append(pairs.select(pl.format("{}:{}:{}", pl.lit(split), "row", "place").alias("pair"), "probabilities"))
    return tables, pl.concat(truths)
