"""Which maps score an array without a frame."""

from types import SimpleNamespace

import pytest

from relmap.maps.score import reads_only_logits


@pytest.mark.parametrize("kind", ["logits", "confidence_only", "decision_only"])
@pytest.mark.parametrize("signals", [(), ("length",)])
def test_only_a_map_of_logits_without_signals_scores_arrays(kind, signals):
    document = SimpleNamespace(input=kind, signals=signals)
    assert reads_only_logits(document) == (kind == "logits" and signals == ())
