"""MSLR-WEB10K (Microsoft Research, 2010): web search, 136 ready-made features, grades 0 to 4.

Raw: `Fold{1..5}/{train,vali,test}.txt`, svmlight lines. The official archive holds all five folds; the download stage
unpacks it, and some copies of it have the folds one folder deeper. Each file of a fold is a split of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import polars as pl
from pydantic import Field

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.options import Options, checked
from tasks.datasets.raw import ROW, label_codes, located_one
from tasks.datasets.svmlight import read_svmlight
from tasks.sources.origin import Origin, Published, RawFile

T = TypeVar("T")

FEATURES = 136
LABELS = ("0", "1", "2", "3", "4")
SPLITS = {"train": "train", "vali": "validation", "test": "test"}

# A fold's vali and test files are one fifth of the queries each, S1 to S5, byte for byte the same in two folds.
FIFTHS = (
    "44add582ccd674cf63af24d3bf6e1074e87a678db77f00b44c37980a3010917a",
    "c0a5a3c6bd7790d0b4ff3d5e961d0c8c5f8ff149089ce492540fa63035801b7a",
    "dc6083c24a5f0c03df3c91ad3eed7542694115b998acf046e51432cb7a22b848",
    "e86fb3fe7e8a5f16479da7ce04f783ae85735f17f66016786c3ffc797dd9d4db",
    "33fe002374a4fce58c4e12863e4eee74745d5672a26f3e4ddacc20ccfe7d6ba0",
)
TRAINS = (
    "6eb3fae4e1186e1242a6520f53a98abdbcde5b926dd19a28e51239284b1d55dc",
    "40e4a2fcc237d9c164cbb6a3f2fa91fe6cf7d46a419d2f73e21cf090285659eb",
    "f13005ceb8de0db76c93b02ee4b2bded6f925097d3ab7938931e8d07aa72acd7",
    "6c1677cf9b2ed491e26ac6b8c8ca7dfae9c1a375e2bce8cba6df36ab67ce5836",
    "4249797a2f0f46bff279973f0fb055d4a78f67f337769eabd56e82332c044794",
)
# rows of the fold's train file, and of the fifths
TRAIN_ROWS = (723_412, 716_683, 719_111, 718_768, 722_602)
FIFTH_ROWS = (241_988, 239_093, 242_331, 235_259, 241_521)
GRADE_ROWS = (624_263, 386_280, 159_451, 21_317, 8_881)  # of all three files together
FOLD_1_GRADE_ROWS = {
    "train": (377_957, 232_569, 95_082, 12_658, 5_146),
    "vali": (121_522, 75_815, 31_910, 4_209, 1_803),
    "test": (124_784, 77_896, 32_459, 4_450, 1_932),
}
QUERIES = {"train": 6_000, "vali": 2_000, "test": 2_000}


def fold_of(fold: int, trains: tuple[T, ...], fifths: tuple[T, ...]) -> dict[str, T]:
    """What belongs to the files of fold 1..5: vali is the fourth fifth from the fold's own, test the fifth."""
    return {"train": trains[fold - 1], "vali": fifths[(fold + 2) % 5], "test": fifths[(fold + 3) % 5]}


def published(fold: int) -> tuple[Published, ...]:
    """Rows are recalled and add up; queries were read for the first fold."""
    rows = {f"{part} rows": count for part, count in fold_of(fold, TRAIN_ROWS, FIFTH_ROWS).items()}
    rows |= {"rows": sum(GRADE_ROWS)} | {f"rows of grade {grade}": count for grade, count in enumerate(GRADE_ROWS)}
    if fold == 1:
        rows |= {
            f"{part} rows of grade {grade}": count
            for part, counts in FOLD_1_GRADE_ROWS.items()
            for grade, count in enumerate(counts)
        }
    queries = (Published(f"{part} queries", count, verified=fold == 1) for part, count in QUERIES.items())
    return (*queries, *(Published(what, count, verified=False) for what, count in rows.items()))


ORIGINS: dict[str, Origin] = {
    str(fold): Origin(
        homepage="https://www.microsoft.com/en-us/research/project/mslr/",
        revision="MSLR-WEB10K.zip, SHA-256 2902142ea33f18c5",
        licence="Microsoft Research terms",
        terms="Microsoft asks you to accept its terms on the page before you use the data; no leave to pass the files"
        " on was found, so keep them to yourself.",
        files=tuple(
            RawFile(path=f"Fold{fold}/{part}.txt", sha256=sha256)
            for part, sha256 in fold_of(fold, TRAINS, FIFTHS).items()
        ),
        archive=RawFile(
            path="MSLR-WEB10K.zip",
            url="https://api.onedrive.com/v1.0/shares/s!AtsMfWUz5l8nbOIoJ6Ks0bEMp78/root/content",
            size=1_234_144_912,
            sha256="2902142ea33f18c59414f654212de5063033b707d5c3939556124b1120d3a0ba",
        ),
        published=published(fold),
    )
    for fold in range(1, 6)
}


class MslrOptions(Options):
    """Which of the five folds is read."""

    fold: Annotated[int, Field(ge=1, le=5)] = 1


def read(folder: Path, options: Mapping[str, Any]) -> Judged:
    """One row for each line; `pair` is `<file>:<line>`, `group` the query's id."""
    fold = checked(MslrOptions, options, "mslr_web10k").fold
    parts = {
        part: read_part(located_one(folder, f"Fold{fold}/{part}.txt"), part, split) for part, split in SPLITS.items()
    }
    counts = {f"{part} {what}": count for part, frame in parts.items() for what, count in counted(frame).items()}
    pairs = pl.concat(parts.values())
    return Judged(pairs, counts | counted(pairs))


def counted(frame: pl.DataFrame) -> dict[str, int]:
    """Rows, queries and rows of each grade."""
    grades = np.bincount(frame["label"], minlength=len(LABELS))
    by_grade = {f"rows of grade {grade}": int(count) for grade, count in enumerate(grades)}
    return {"rows": len(frame), "queries": frame["group"].n_unique(), **by_grade}


def read_part(path: Path, part: str, split: str) -> pl.DataFrame:
    """The rows of one file of a fold."""
    frame = read_svmlight(path, FEATURES)
    codes = label_codes(frame, "label", {name: place for place, name in enumerate(LABELS)}, path)
    return frame.select(
        pl.format("{}:{}", pl.lit(part), ROW).alias("pair"),
        pl.lit(split).alias("split"),
        "group",
        "features",
        codes.alias("label"),
    )


MSLR_WEB10K = Dataset(
    name="mslr_web10k",
    title="MSLR-WEB10K",
    domain="Web search",
    task="Learning-to-rank relevance prediction",
    labels=LABELS,
    bibkey="microsoft2010mslr",
    origins=ORIGINS,
    origin_option="fold",
    read=read,
    features=FEATURES,
    options=MslrOptions().model_dump(),
)
