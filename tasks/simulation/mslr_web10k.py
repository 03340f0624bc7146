"""A twin of MSLR-WEB10K: `Fold1/{train,vali,test}.txt`, svmlight lines of 136 features, grades 0 to 4.

Features are heavy-tailed and every other one is a count. The evidence is linear in them on the scale
sign(x) log(1 + |x|), as they are printed. A feature shares most of what it says with others, and some of it with the
other documents of its query.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tasks.simulation.judgements import queries_by_size
from tasks.simulation.relevance import draw_labels, probability_lists, solve_relevance

FEATURES = 136
FACTORS = 16  # what features have in common
MIX = (0.5201, 0.3219, 0.1329, 0.0178, 0.0073)
STRENGTH = 2.0  # standard deviation of the evidence for a grade, in logits
SIZES = (1, 239)  # documents of a query: 120 on average, fewer where that would leave fewer than some 40 queries
SHARES = {"train": 0.6, "vali": 0.2, "test": 0.2}  # of the queries
AT_ONCE = 50_000  # rows whose features are in memory together; drawn once to be weighed and again to be written

CENTRE = np.resize([2.0, 0.0, 4.0, -2.0, 6.0, 1.0, 0.5, 3.0], FEATURES)
SPREAD = np.resize([1.0, 0.5, 1.5, 2.0, 0.8], FEATURES)
COUNT = np.arange(FEATURES) % 2 == 0


def write(folder: Path, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """Write the raw files; returns the truth, `pair, probabilities`."""
    query = queries_by_size(rows, (SIZES[0], min(SIZES[1], rows // 20)), generator)
    queries = int(query[-1]) + 1
    common = generator.normal(size=(queries, FACTORS))
    weights = generator.normal(size=(FEATURES, len(MIX)))
    pieces = np.array_split(np.arange(rows), np.arange(AT_ONCE, rows, AT_ONCE))
    seeds = generator.integers(2**62, size=len(pieces)).tolist()
    evidence = np.concatenate(
        [scaled(draw_features(common[query[piece]], seed)) @ weights for piece, seed in zip(pieces, seeds, strict=True)]
    )
    evidence *= STRENGTH / evidence.std(axis=0)
    probabilities = solve_relevance(evidence, np.array(MIX), residual)(evidence)
    label = draw_labels(probabilities, generator)
    part = np.searchsorted(np.cumsum(list(SHARES.values()))[:-1], (query + 0.5) / queries)
    (folder / "Fold1").mkdir()
    for piece, seed in zip(pieces, seeds, strict=True):
        lines = svmlight(label[piece], 3 * query[piece] + 1, draw_features(common[query[piece]], seed))
        for number, name in enumerate(SHARES):
            with (folder / "Fold1" / f"{name}.txt").open("a", newline="") as file:
                file.writelines(lines.filter(part[piece] == number))
    return pl.DataFrame([pair_names(part), probability_lists(probabilities)])


def draw_features(common: np.ndarray, seed: int) -> np.ndarray:
    """What each row's query has in common `(n, FACTORS)` to features `(n, FEATURES)`, rounded as they are printed."""
    generator = np.random.default_rng(seed)
    factors = np.sqrt(0.15) * common + np.sqrt(0.85) * generator.normal(size=common.shape)
    own = generator.normal(size=(len(common), FEATURES))
    place = CENTRE + SPREAD * (np.sqrt(0.7) * np.resize(factors.T, (FEATURES, len(common))).T + np.sqrt(0.3) * own)
    features = np.sign(place) * np.expm1(np.abs(place))
    return np.where(COUNT, np.rint(np.maximum(features, 0)), np.round(features, 6))


def scaled(features: np.ndarray) -> np.ndarray:
    """Features `(n, FEATURES)` on the scale on which they were drawn, about 0 and of about one spread."""
    return (np.sign(features) * np.log1p(np.abs(features)) - CENTRE) / SPREAD


def svmlight(label: np.ndarray, group: np.ndarray, features: np.ndarray) -> pl.Series:
    """`n` lines: grade, query, every feature, a space at the end."""
    columns = [
        pl.Series(str(place), features[:, place]).cast(pl.Int64 if COUNT[place] else pl.Float64)
        for place in range(FEATURES)
    ]
    tokens = [pl.format(f"{place + 1}:{{}}", str(place)) for place in range(FEATURES)]
    head = pl.format("{} qid:{}", pl.Series(label), pl.Series(group))
    return pl.DataFrame(columns).select(pl.format("{} \n", pl.concat_str(head, *tokens, separator=" "))).to_series()


def pair_names(part: np.ndarray) -> pl.Series:
    """`<file>:<line>`, lines counted from 1; `part (n,)` are places in SHARES, ascending."""
    frame = pl.DataFrame({"file": pl.Series(list(SHARES)).gather(part)})
    line = pl.int_range(1, pl.len() + 1).over("file")
    return frame.select(pair=pl.format("{}:{}", "file", line)).to_series()
