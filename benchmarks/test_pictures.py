"""The pictures of the first page: how the curves are drawn, and that the files are small."""

import numpy as np
import pytest

from benchmarks.evidence.methods import LabelledRows
from benchmarks.pictures import FOLDER, LABELS, draw_curves, to_frame

MAX_BYTES = 100_000


def simulate(n: int, seed: int) -> LabelledRows:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(n, 2))
    label = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    return LabelledRows(label, logits.argmax(axis=1), logits, signals=None, group=np.arange(n) // 2, n_labels=2)


def test_the_curves_of_both_labels_are_drawn(tmp_path):
    draw_curves(to_frame(simulate(200, 0)), to_frame(simulate(200, 1)), tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert all(f">{label}<" in text for label in LABELS)
    assert "Science" in text


@pytest.mark.parametrize("picture", ["curves.svg", "report.png"])
def test_the_pictures_are_small(picture):
    assert (FOLDER / picture).stat().st_size < MAX_BYTES
