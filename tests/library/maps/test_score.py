"""Which maps score an array without a frame, and how several maps, or the pieces of a file, are scored."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from relmap.calibrators.identity import Constant, Identity
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io.frames import FramePredictions
from relmap.maps.score import (
    FittedMap,
    find_map_layout,
    ignore_progress,
    reads_only_logits,
    score_in_pieces,
    score_parts,
)
from tests import maps


@pytest.mark.parametrize("kind", ["logits", "confidence_only", "decision_only"])
@pytest.mark.parametrize("signals", [(), ("length",)])
def test_only_a_map_of_logits_without_signals_scores_arrays(kind, signals):
    document = SimpleNamespace(input=kind, signals=signals)
    assert reads_only_logits(document) == (kind == "logits" and signals == ())


def test_constants_of_several_maps_are_averaged_over_the_rows_so_that_they_rank_nothing():
    rows = FixedDecisions(decision=np.array([0, 1, 0, 1]))
    parts = [(FittedMap(Constant(0.5)), np.array([0, 2, 3])), (FittedMap(Constant(0.9)), np.array([1]))]
    scored = score_parts(rows, parts)
    np.testing.assert_allclose(scored.confidence, [0.6] * 4, rtol=1e-12)  # (3 * 0.5 + 0.9) / 4
    np.testing.assert_allclose(scored.reliability, [0.5, 0.9, 0.5, 0.5], rtol=1e-12)


@pytest.mark.parametrize("other", [Identity(), Constant(0.5)])
def test_confidences_of_maps_that_are_not_all_constant_are_kept(other):
    rows = FixedDecisions(decision=np.array([0, 1, 0]), confidence=np.array([0.6, 0.7, 0.8]))
    parts = [(FittedMap(Identity()), np.array([0, 1])), (FittedMap(other), np.array([2]))]
    expected = [0.6, 0.7, 0.5 if isinstance(other, Constant) else 0.8]
    np.testing.assert_allclose(score_parts(rows, parts).confidence, expected, rtol=1e-12)


def test_a_label_that_the_map_does_not_know_has_the_same_message_with_signals_of_groups():
    labelled = maps.make_predictions_with_signals(60)
    row = pl.int_range(60)
    unknown = labelled.drop("label").with_columns(decision=pl.when(row == 7).then(5).otherwise("decision"))
    file = FramePredictions.from_frame(unknown)
    messages = set()
    for signals in ((), ("agreement",), ("group_rank",)):
        document, _ = maps.fit_file(FramePredictions.from_frame(labelled), signals=signals, group="group")
        with pytest.raises(InputError, match=r"row 7 .*\bdecision is 5\b.*\b0\.\.2\b") as error:
            list(score_in_pieces(document, file, find_map_layout(document, file), ignore_progress))
        messages.add(str(error.value))
    assert len(messages) == 1
