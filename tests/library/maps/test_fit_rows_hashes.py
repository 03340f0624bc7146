"""Hashes of single training rows: their content, limits and encoding, by hand."""

import base64
import hashlib

import numpy as np
import pytest

from relmap.decisions import FixedDecisions
from relmap.maps import fit_rows as training_rows
from relmap.maps.document import TrainingRows
from relmap.maps.fit_rows import (
    HASH_BYTES,
    MAX_REPEATED_SHARE,
    NOT_RECOGNIZED,
    canonical_predictions,
    hash_training_rows,
    recognize_rows,
)
from tests.maps import SOURCE

SALT = hashlib.blake2b(f"{SOURCE.sha256} {SOURCE.seed}".encode(), digest_size=16).digest()


def make_rows(confidence: list[float]) -> FixedDecisions:
    """Make rows with a confidence and the decisions 0, 1, 2, 0, ..."""
    decision = np.arange(len(confidence)) % 3
    return FixedDecisions(decision=decision, confidence=np.array(confidence), label=decision)


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=6, salt=SALT).digest()


def digest_of_row(confidence: float, decision: int) -> bytes:
    return digest(np.array([confidence], "<f4").tobytes() + np.array([decision], "<i4").tobytes())


def encode(digests: list[bytes]) -> str:
    return base64.b64encode(b"".join(sorted(digests))).decode()


def test_each_fold_has_the_hashes_of_confidence_and_decision():
    confidence = [0.3, 0.9, 0.55, 0.7, 0.1]
    training = hash_training_rows(make_rows(confidence), [np.array([3, 0]), np.array([1, 4])], SOURCE)
    digests = [digest_of_row(value, row % 3) for row, value in enumerate(confidence)]
    assert training == TrainingRows(
        by="prediction",
        id_column=None,
        salt=SALT.hex(),
        share=1.0,
        folds=(encode([digests[3], digests[0]]), encode([digests[1], digests[4]])),
    )
    assert recognize_rows(training, make_rows(confidence)).tolist() == [0, 1, NOT_RECOGNIZED, 0, 1]


def test_ids_are_hashed_as_text():
    rows = make_rows([0.5] * 6)
    ids = np.array(["a", "bé", "c", "d", "e", "f"])
    folds = [np.array([5, 1]), np.array([2, 0])]
    training = hash_training_rows(rows, folds, SOURCE, ids=ids, id_column="pair")
    digests = [digest(text.encode()) for text in ids.tolist()]
    assert training == TrainingRows(
        by="id",
        id_column="pair",
        salt=SALT.hex(),
        share=1.0,
        folds=(encode([digests[5], digests[1]]), encode([digests[2], digests[0]])),
    )
    assert recognize_rows(training, rows, ids).tolist() == [1, 0, 1, NOT_RECOGNIZED, NOT_RECOGNIZED, 0]
    assert recognize_rows(training, rows).tolist() == [NOT_RECOGNIZED] * 6


@pytest.mark.parametrize(("n_repeated", "by", "share"), [(2, "prediction", 0.95), (3, "nothing", 0.0)])
def test_predictions_are_hashed_if_at_most_5_percent_repeat(n_repeated, by, share):
    confidence = np.linspace(0.1, 0.9, 40)
    confidence[:n_repeated] = 0.95
    decision = np.zeros(40, dtype=np.int64)
    rows = FixedDecisions(decision=decision, confidence=confidence, label=decision)
    folds = [np.arange(20), np.arange(20, 40)]
    training = hash_training_rows(rows, folds, SOURCE)
    assert MAX_REPEATED_SHARE == 0.05
    assert (training.by, training.share, training.salt) == (by, share, SALT.hex())
    unique = [digest_of_row(value, 0) for value in confidence]
    expected = (encode(unique[n_repeated:20]), encode(unique[20:])) if by == "prediction" else ()
    assert training.folds == expected
    not_recognized = recognize_rows(training, rows) == NOT_RECOGNIZED
    assert not_recognized.sum() == (n_repeated if by == "prediction" else 40)
    with_ids = hash_training_rows(rows, folds, SOURCE, ids=np.arange(40), id_column="id")
    assert (with_ids.by, with_ids.id_column) == (("prediction", None) if by == "prediction" else ("id", "id"))


def test_rows_with_the_smallest_hashes_are_stored(monkeypatch):
    monkeypatch.setattr(training_rows, "MAX_HASHES", 3)
    confidence = np.linspace(0.1, 0.9, 8).tolist()
    folds = [np.array([7, 2, 0, 5]), np.array([1, 3, 4, 6])]
    training = hash_training_rows(make_rows(confidence), folds, SOURCE)
    digests = [digest_of_row(value, row % 3) for row, value in enumerate(confidence)]
    smallest = sorted(digests)[:3]
    expected = []
    for fold in folds:
        expected.append(encode([digests[row] for row in fold if digests[row] in smallest]))
    assert training.folds == tuple(expected)
    assert training.share == 3 / 8


def test_hashes_have_six_bytes_with_the_most_significant_first():
    assert (HASH_BYTES, training_rows.MAX_HASHES) == (6, 125_000)  # 8 characters each: a million together
    numbers = training_rows._decode(base64.b64encode(bytes([1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 1, 0])).decode())
    assert numbers.tolist() == [0x010203040506, 0x0100]
    assert numbers.dtype == np.uint64
    encoded = training_rows._encode(np.array([0x010203040506, 0x0100], dtype=np.uint64))
    assert base64.b64decode(encoded) == bytes([0, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6])


def bits(numbers: list[list[float]]) -> np.ndarray:
    return np.array(numbers, dtype="<f4").view("<i4")


def test_content_of_a_row_is_its_numbers_in_single_precision_and_its_decision():
    decision = np.array([1, 0])
    logits = np.array([[0.1, -0.0], [3.0, 1e-300]])
    content = canonical_predictions(FixedDecisions(decision=decision, logits=logits))
    np.testing.assert_array_equal(content, np.column_stack([bits([[0.1, 0.0], [3.0, 0.0]]), decision]))
    confidence = canonical_predictions(FixedDecisions(decision=decision, confidence=np.array([0.7, 0.2])))
    np.testing.assert_array_equal(confidence, np.column_stack([bits([[0.7], [0.2]]), decision]))
    decisions_only = canonical_predictions(FixedDecisions(decision=decision))
    np.testing.assert_array_equal(decisions_only, decision[:, None])
    assert content.dtype == confidence.dtype == decisions_only.dtype == np.dtype("<i4")
    assert content.flags.c_contiguous


@pytest.mark.parametrize(
    ("sums", "are_probabilities"),
    [((1.0, 1.0), True), ((1.049, 0.951), True), ((1.0, 1.051), False), ((0.949, 1.0), False)],
)
def test_logarithms_of_probabilities_are_read_as_probabilities(sums, are_probabilities):
    probabilities = np.array([[0.25, 0.75], [0.6, 0.4]]) * np.array(sums)[:, None]
    logits = np.log(probabilities)
    content = canonical_predictions(FixedDecisions(decision=np.array([1, 0]), logits=logits))
    expected = np.exp(logits) if are_probabilities else logits
    np.testing.assert_array_equal(content[:, :2], bits(expected.tolist()))


def test_large_logits_do_not_overflow():
    logits = np.array([[800.0, 1.0]])
    content = canonical_predictions(FixedDecisions(decision=np.array([0]), logits=logits))
    np.testing.assert_array_equal(content, [[*bits([[800.0, 1.0]])[0], 0]])


def test_sums_of_probabilities_may_differ_from_1_by_the_limit(monkeypatch):
    logits = np.array([[0.0, 0.0]])  # as probabilities they have the sum 2
    for limit, expected in ((1.0, 1.0), (0.99, 0.0)):
        monkeypatch.setattr(training_rows, "MAX_SUM_ERROR", limit)
        content = canonical_predictions(FixedDecisions(decision=np.array([0]), logits=logits))
        np.testing.assert_array_equal(content, [[*bits([[expected, expected]])[0], 0]])
