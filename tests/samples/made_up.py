"""Made-up judgements: queries whose candidates say, more often than not, how relevant they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

CANDIDATES = 12  # of each query
HONEST = 0.75  # so often a candidate says its own label
TELLS = ("gravel", "clover", "walnut", "copper", "velvet")  # one for each label
TOPICS = ("désk", "lamp", "rug", "chaise", "畳", "shelf")


class Asked(NamedTuple):
    """A query and its judged candidates."""

    text: str
    candidates: list[tuple[str, int]]  # text, label; no text comes twice in all queries


def asked(queries: int, labels: int, seed: int = 0) -> list[Asked]:
    """So many queries with CANDIDATES each, every label among them; the same seed gives the same texts."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(queries):
        topic = TOPICS[generator.integers(len(TOPICS))]
        label = np.append(np.arange(labels), generator.integers(labels, size=CANDIDATES - labels))
        said = np.where(generator.random(CANDIDATES) < HONEST, label, generator.integers(labels, size=CANDIDATES))
        texts = [f"{TELLS[tell]} {topic} number {number}x{place}" for place, tell in enumerate(said)]
        found.append(Asked(f"{topic} wanted {number}", list(zip(texts, label.tolist(), strict=True))))
    return found


def as_lists(queries: list[Asked]) -> list[tuple[str, list[str], list[str]]]:
    """The same for two labels: query, positive texts, negative texts."""
    return [
        (one.text, *([text for text, label in one.candidates if label == wanted] for wanted in (1, 0)))
        for one in queries
    ]


def in_test(number: int) -> bool:
    """Every third query is one of the test split."""
    return number % 3 == 2


def split_of(queries: list[Asked]) -> tuple[list[Asked], list[Asked]]:
    """Those to learn from, and those of the test split."""
    return (
        [one for number, one in enumerate(queries) if not in_test(number)],
        [one for number, one in enumerate(queries) if in_test(number)],
    )


def features_of(queries: list[Asked], width: int, seed: int = 0) -> np.ndarray:
    """`(n, width)` features of all candidates: the first say the label with noise, the others have heavy tails."""
    generator = np.random.default_rng(seed)
    label = np.array([label for one in queries for _, label in one.candidates])
    features = generator.normal(0, 100, (len(label), width)) ** 3
    features[:, :20] = label[:, None] + generator.normal(0, 2, (len(label), 20))
    return features.round(3)


def texts_schema(*names: str) -> dict[str, type[pl.DataType]]:
    return dict.fromkeys(names, pl.String)
