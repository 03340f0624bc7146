"""Amazon ESCI, US part: products labelled for shopping queries, with four labels."""

import polars as pl

from tasks.datasets import base, raw, sampling
from tasks.sources.hub import Repository

SEED = 20260515
MAX_TRAIN_AND_VALIDATION_ROWS = 75_000
MAX_VALIDATION_ROWS = 15_000
MAX_TEST_ROWS = 40_000
LABELS = ("Irrelevant", "Complement", "Substitute", "Exact")


def sample_splits(read_split: raw.RepositoryReader, run: int = 0) -> dict[str, pl.DataFrame]:
    """Draw 60,000 train and 15,000 validation rows of the released train split, and 40,000 rows of its test split.

    The last drawn rows of the train split are validation. If there are fewer rows, only train has fewer.

    Args:
        read_split: Reader of the repository.
        run: Training run. The rows of runs above 0 are inferred: the authors' script makes one run of this data set.

    Returns:
        Rows of each split.
    """
    seed = SEED + sampling.RUN_SEED_STEP * run
    drawn = sampling.draw_rows(_read_products(read_split("train")), seed, MAX_TRAIN_AND_VALIDATION_ROWS)
    n_train = len(drawn) - min(MAX_VALIDATION_ROWS, len(drawn))
    test = sampling.draw_rows(_read_products(read_split("test")), seed + 1, MAX_TEST_ROWS)
    return {"train": drawn[:n_train], "validation": drawn[n_train:], "test": test}


def _read_products(rows: raw.RepositoryRows) -> pl.DataFrame:
    """Read `query`, `title`, `text` and `label`; some releases have another name for the title, or no text."""
    columns = rows.data.column_names
    titles = [column for column in ("product_title", "title") if column in columns] or ["product_title"]
    texts = [column for column in ("text",) if column in columns]
    kinds = dict.fromkeys(["query", *titles, *texts], "text")
    frame = rows.labelled_table({**kinds, "label": "integer"}, LABELS)
    title = sampling.first_not_blank(titles)
    text = sampling.stripped("text") if texts else pl.lit("")
    return frame.with_columns(query=sampling.stripped("query"), title=title, text=text)


TEXT = sampling.prefixed_lines({"query: ": pl.col("query"), "product_title: ": pl.col("title"), "": pl.col("text")})
READ = sampling.repository_reader(sample_splits, "query", TEXT.str.strip_chars(raw.WHITE_SPACE))
DATASET = base.Dataset(
    name="amazon_esci",
    title="Amazon ESCI",
    domain="E-commerce search",
    task="Query-product relevance classification",
    labels=LABELS,
    licence="Apache-2.0",
    read=READ,
    read_run=READ,
    repository=Repository("shuttie/esci-us-small"),
    drawn_splits=("train", "validation"),
    predictor_seed=3001,
)
