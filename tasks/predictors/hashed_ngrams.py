"""Texts to counts of hashed word n-grams: the numbers of scikit-learn's HashingVectorizer, several times as fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tasks.predictors.threads import in_threads

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# What `\w+` finds in Python, but for characters that only one of the two editions of Unicode knows. Words of one
# character count too: "5 ft", "l bracket".
WORD = r"[\p{L}\p{N}_]+"
TEXTS_AT_ONCE = 2_000  # few enough to stay in the cache


def hashed_ngrams(texts: pl.Series, *, longest: int, bits: int) -> csr_array:
    r"""`n` texts to counts `(n, 2^bits)` float64 of their n-grams of 1 to `longest` words, in lower case.

    As `HashingVectorizer(alternate_sign=False, norm=None, token_pattern=r"\w+")` counts them: the bucket of an n-gram
    is the remainder of its murmur3 hash, taken as a signed number without its sign. Counts stay counts, without the
    alternating signs of scikit-learn's default, so that their logarithm means something.
    """
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415 (only texts need it)

    def counted(start: int) -> csr_array:
        part = texts[start : start + TEXTS_AT_ONCE]
        cells = np.concatenate([(row << bits) | bucket for row, bucket in _buckets(part, longest, 2**bits)])
        cells, counts = np.unique(cells, return_counts=True)
        ends = np.searchsorted(cells, np.arange(len(part) + 1) << bits)
        arrays = counts.astype(np.float64), (cells % 2**bits).astype(np.int32), ends.astype(np.int32)
        return csr_array(arrays, shape=(len(part), 2**bits))

    parts = in_threads(counted, range(0, len(texts), TEXTS_AT_ONCE))
    return vstack([csr_array((0, 2**bits)), *parts], format="csr")


def _buckets(texts: pl.Series, longest: int, buckets: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row and bucket, both int64, of every n-gram of one word, then of every one of two, and so on."""
    import polars_hash  # noqa: PLC0415 (only texts need it)

    words = pl.select(row=pl.int_range(len(texts)), word=texts.str.to_lowercase().str.extract_all(WORD))
    ngrams = words.explode("word", empty_as_null=False).with_columns(ngram="word")
    for further in range(longest):  # than its first word is the last one of an n-gram
        if further:
            same_text = pl.col("row") == pl.col("row").shift(-further)
            last = pl.when(same_text).then(pl.col("word").shift(-further))
            ngrams = ngrams.with_columns(ngram=pl.concat_str("ngram", last, separator=" "))
        found = ngrams.drop_nulls("ngram").select("row", hash=polars_hash.col("ngram").nchash.murmur32())
        size = np.abs(found["hash"].to_numpy().view(np.int32).astype(np.int64))
        yield found["row"].to_numpy(), size % buckets
