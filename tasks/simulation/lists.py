"""The raw format of the reranking sets: a row is a query with its positive and its negative candidates."""

from __future__ import annotations

import numpy as np
import polars as pl

from tasks.simulation.judgements import Judgements
from tasks.simulation.relevance import probability_lists


def judged_pairs(judgements: Judgements, line: np.ndarray, queries: pl.Series, candidates: pl.Series) -> pl.DataFrame:
    """A row for each judgement: `line`, `query`, `candidate`, `label`, `probabilities`.

    `line (n,)` is the row of the raw files that it will stand in, `queries (n,)` the text of its query, `candidates
    (m,)` the texts or ids of the candidates.
    """
    return pl.DataFrame(
        {
            "line": line,
            "query": queries,
            "candidate": candidates.gather(judgements.candidate),
            "label": judgements.label,
            "probabilities": probability_lists(judgements.probabilities),
        }
    )


def lists_and_truth(pairs: pl.DataFrame, part: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The pairs of one file as its rows `query, positive, negative`, and as truth `pair, probabilities`.

    A pair is named `<part>:<row>:<list>:<place>`, both counted from 0.
    """
    pairs = pairs.with_columns(pl.col("line") - pl.col("line").min())
    name = pl.when(pl.col("label") == 1).then(pl.lit("positive")).otherwise(pl.lit("negative"))
    place = pl.int_range(pl.len()).over("line", "label")
    truth = pairs.select(
        pair=pl.format("{}:{}:{}:{}", pl.lit(part), "line", name, place), probabilities="probabilities"
    )
    lists = (
        pairs.group_by("line", maintain_order=True)
        .agg(
            pl.col("query").first(),
            positive=pl.col("candidate").filter(pl.col("label") == 1),
            negative=pl.col("candidate").filter(pl.col("label") == 0),
        )
        .drop("line")
    )
    return lists, truth
