"""The container of fixed decisions."""

import numpy as np
import pytest

from relmap.decisions import FixedDecisions, ProtocolDecisions

DECISION = np.array([0, 1, 1])


def test_protocol_decisions_require_logits_labels_and_groups():
    with pytest.raises(TypeError, match="'logits', 'label', and 'group'"):
        ProtocolDecisions(decision=DECISION)


def test_selected_and_concatenated_rows_keep_their_class_and_their_values():
    rows = ProtocolDecisions(decision=DECISION, logits=np.eye(3), label=DECISION[::-1], group=np.array(["a", "b", "c"]))

    both = ProtocolDecisions.concatenate([rows.take(slice(1)), rows.take([2, 1])])

    assert isinstance(both, ProtocolDecisions)
    np.testing.assert_array_equal(both.decision, [0, 1, 1])
    np.testing.assert_array_equal(both.logits, np.eye(3)[[0, 2, 1]])
    np.testing.assert_array_equal(both.correct, [False, False, True])
    np.testing.assert_array_equal(both.group, ["a", "c", "b"])
    assert both.weight is None


def test_concatenated_rows_lack_what_a_part_lacks():
    labelled = FixedDecisions(decision=DECISION, label=DECISION, weight=np.ones(3))
    unlabelled = FixedDecisions(decision=DECISION, weight=np.full(3, 2.0))

    both = FixedDecisions.concatenate([labelled, unlabelled])

    assert len(both) == 6
    assert both.label is None
    np.testing.assert_array_equal(both.weight, [1, 1, 1, 2, 2, 2])
