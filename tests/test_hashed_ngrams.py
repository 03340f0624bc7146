"""Hashed n-grams: scikit-learn's HashingVectorizer is the slow reference, to the last number."""

from __future__ import annotations

import os
import sys
import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tasks.predictors import hashed_ngrams as module
from tasks.predictors.hashed_ngrams import hashed_ngrams

# What both editions of Unicode know: a surrogate is no character, and one unassigned here may be a letter there.
characters = st.characters(exclude_categories=("Cs", "Cn"))
words = st.text(
    st.one_of(st.sampled_from("aAzZ09_-'  \n\t\xa0ßİΣςσé́½²ⅷ日本語ー🙂\u200d\u0345\x00"), characters), max_size=40
)


def by_scikit_learn(texts: list[str], longest: int, bits: int) -> csr_array:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        ngram_range=(1, longest), n_features=2**bits, alternate_sign=False, norm=None, token_pattern=r"\w+"
    )
    return csr_array(hashing.transform(texts))


def assert_same(found: csr_array, expected: csr_array) -> None:
    assert found.shape == expected.shape
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
        assert getattr(found, part).dtype == getattr(expected, part).dtype


@settings(deadline=None, max_examples=100)
@given(texts=st.lists(words, min_size=1, max_size=6), longest=st.integers(1, 4), bits=st.integers(4, 24))
def test_any_texts_are_counted_as_scikit_learn_counts_them(texts, longest, bits):
    ours = hashed_ngrams(pl.Series(texts, dtype=pl.String), longest=longest, bits=bits)
    assert_same(ours, by_scikit_learn(texts, longest, bits))


def test_every_character_that_python_knows_is_read_as_python_reads_it():
    known = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cs", "Cn")]
    texts = ["".join(f"a{one}b {one} " for one in known[start : start + 100]) for start in range(0, len(known), 100)]
    assert_same(hashed_ngrams(pl.Series(texts), longest=1, bits=24), by_scikit_learn(texts, 1, 24))


@pytest.mark.parametrize("at_once", [1, 7, 1000])
@pytest.mark.parametrize("cores", [1, 3])
def test_neither_cores_nor_pieces_change_a_count(at_once, cores, monkeypatch):
    texts = [f"word{number % 7} word{number % 11} x {number}" for number in range(50)]
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", at_once)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert_same(hashed_ngrams(pl.Series(texts), longest=3, bits=12), by_scikit_learn(texts, 3, 12))


def test_no_texts_have_no_rows():
    assert hashed_ngrams(pl.Series([], dtype=pl.String), longest=2, bits=10).shape == (0, 1024)


def test_a_text_without_words_has_an_empty_row():
    counts = hashed_ngrams(pl.Series(["", "a b a", " -- "]), longest=2, bits=10)
    assert counts.sum(axis=1).tolist() == [0, 5, 0]
