"""A map is applied to a file row by row: the input untouched, ranks and routes exact, in memory or beyond it."""

import signal
import subprocess
import sys
from fractions import Fraction
from math import floor, inf
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.maps.apply import SCORES, apply_map, ranked
from tasks.maps.document import save_map
from tasks.maps.reliability_map import ReliabilityMap
from tasks.predictions import files
from tasks.predictions.files import columns_of, opened
from tasks.predictions.rows import checked_rows, find_layout
from tasks.protocol.errors import BadInput
from tests.maps import NAMES, document, predictions, stated, write

ADDED = ["decision", "decision_name", "confidence", "reliability", "review_rank", "route"]


@pytest.fixture
def path(tmp_path) -> Path:
    """90 predictions over 3 labels."""
    predictions(90).write_parquet(tmp_path / "new.parquet")
    return tmp_path / "new.parquet"


def scored(path: Path, suffix: str = ".parquet", **options) -> pl.DataFrame:
    """What apply writes; the map is that of `document`, unless another one is given."""
    out = path.with_name(f"scored{suffix}")
    apply_map(options.pop("reliability_map", document()), path, out, **options)
    return columns_of(opened(out), opened(out).schema.names)


def naive_ranks(logit: list[float]) -> list[int]:
    """1 for the lowest; ties by row order."""
    order = sorted(range(len(logit)), key=lambda row: (logit[row], row))
    return [order.index(row) + 1 for row in range(len(logit))]


def small_pieces(monkeypatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 512)
    monkeypatch.setattr(files, "PIECE_ROWS", 7)


def test_the_input_comes_first_and_ours_after_it(path):
    table = scored(path)
    assert table.columns == [*predictions(90).columns, *ADDED]
    assert table.select(predictions(90).columns).equals(predictions(90))
    assert table.select(ADDED).dtypes == [pl.Int64, pl.String, pl.Float64, pl.Float64, pl.Int64, pl.String]


def test_scores_are_those_of_the_map(path):
    table = scored(path)
    rows = checked_rows(predictions(90), find_layout(["logits"], "f", labelled=False), "f", n_labels=3)
    expected = ReliabilityMap.of(document())(rows)
    assert (table["confidence"].to_numpy() == expected.confidence).all()
    assert (table["reliability"].to_numpy() == expected.reliability).all()
    assert table["decision"].to_list() == [max(range(3), key=row.__getitem__) for row in predictions(90)["logits"]]
    assert table["decision_name"].to_list() == [NAMES[decision] for decision in table["decision"]]
    assert table["review_rank"].to_list() == naive_ranks(expected.logit.tolist())


def test_a_map_without_names_gives_none(path):
    assert "decision_name" not in scored(path, reliability_map=document(names=None)).columns


@pytest.mark.parametrize(
    ("coverage", "automatic"),
    [
        ("0.7", 63),
        ("0", 0),
        ("1", 90),
        ("1.0", 90),
        (".1", 9),
        ("0.2999999999999999999", 26),
        ("0.3", 27),
        ("7e-1", 63),
        (None, 63),
    ],
)
def test_automatic_rows_are_the_exact_floor_of_coverage(coverage, automatic, path):
    assert 0.7 * 90 < 63  # in floats
    out = path.with_name("scored.parquet")
    applied = apply_map(document(), path, out, coverage=coverage)
    table = pl.read_parquet(out)
    used = table.filter(pl.col("route") == "automatic")
    assert applied.automatic == len(used) == automatic
    assert applied.lowest_automatic == used["reliability"].min()
    assert set(used["review_rank"]) == set(range(91 - automatic, 91))
    assert set(table["route"]) <= {"automatic", "review"}


def test_a_cut_makes_rows_automatic_from_there_on(path):
    cut = scored(path)["reliability"].sort()[40]
    applied = apply_map(document(), path, path.with_name("scored.parquet"), cut=cut)
    table = pl.read_parquet(path.with_name("scored.parquet"))
    assert ((table["route"] == "automatic") == (table["reliability"] >= cut)).all()
    assert (applied.automatic, applied.lowest_automatic) == (50, cut)


def test_rows_that_a_label_without_its_own_curve_decides_are_counted(path):
    applied = apply_map(document(), path, path.with_name("scored.parquet"))
    decided = pl.read_parquet(path.with_name("scored.parquet"))["decision"]
    assert applied.rows == 90
    assert applied.rows_by_fallback == {1: (decided == 1).sum(), 2: (decided == 2).sum()}
    shared = apply_map(document("shared_1d"), path, path.with_name("scored.parquet"))
    assert shared.rows_by_fallback == {}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@pytest.mark.parametrize("variant", ["confidence", "mrp", "label_isotonic"])
def test_in_pieces_and_out_of_core_it_is_the_same(variant, suffix, tmp_path, monkeypatch):
    made = stated(200)  # round numbers: many ties
    folder = tmp_path / "odd [name]?*'s"
    folder.mkdir()
    path = write(made, folder / f"new{suffix}")
    reliability_map = document(variant, stated=True)
    whole = scored(path, suffix, reliability_map=reliability_map)
    small_pieces(monkeypatch)
    assert scored(path, suffix, reliability_map=reliability_map).equals(whole)
    assert scored(path, suffix, reliability_map=reliability_map, in_memory=50).equals(whole)
    assert sorted(file.name for file in folder.iterdir()) == [path.name, f"scored{suffix}"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_every_format_gives_the_same_scores(suffix, path):
    wide = predictions(90).with_columns(pl.col("logits").list.to_struct(fields=[f"logits_{k}" for k in range(3)]))
    other = write(wide.unnest("logits"), path.with_suffix(suffix))
    assert scored(other).select(ADDED).equals(scored(path).select(ADDED))


def test_text_stays_text(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text('id,logits_0,logits_1\n007,1.10,2e0\n"a, b",-0.0,1\n')
    apply_map(document(n_labels=2, names=None), path, tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert all(line.startswith(kept) for line, kept in zip(lines, path.read_text().splitlines(), strict=True))


def test_a_decision_that_is_there_is_fixed_and_stays(path):
    made = predictions(90).with_columns(decision=pl.lit("exact"))
    made.write_parquet(path)
    table = scored(path)
    assert table.columns == [*made.columns, "decision_code", *ADDED[1:]]
    assert table.select(made.columns).equals(made)
    assert set(table["decision_name"]) == {"exact"}
    assert set(table["decision_code"]) == {2}


def test_a_confidence_that_is_there_stays_beside_the_calibrated_one(path):
    stated(90).write_parquet(path)
    table = scored(path, reliability_map=document(stated=True))
    assert table.columns == [*stated(90).columns, "decision_name", "calibrated_confidence", *ADDED[3:]]
    assert table.select(stated(90).columns).equals(stated(90))
    both = predictions(90).with_columns(confidence=pl.lit("high"))
    both.write_parquet(path)
    assert scored(path)["calibrated_confidence"].dtype == pl.Float64
    assert set(scored(path)["confidence"]) == {"high"}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("origin", [".parquet", ".csv"])
def test_no_rows_give_no_rows_and_every_column(origin, suffix, tmp_path):
    made = stated(10).clear()
    path = write(made, tmp_path / f"new{origin}")
    out = tmp_path / f"out{suffix}"
    applied = apply_map(document(stated=True), path, out)
    assert (applied.rows, applied.automatic, applied.lowest_automatic) == (0, 0, None)
    if suffix == ".jsonl":  # without a line it has no columns
        assert out.read_bytes() == b""
    else:
        assert columns_of(opened(out), [*made.columns, "calibrated_confidence", "route"]).height == 0


LOGITS = st.lists(
    st.one_of(st.sampled_from([-inf, -1.0, -0.0, 0.0, 5e-324, 1.0, inf]), st.floats(allow_nan=False)), max_size=40
)


def ranks(logit: list[float], folder: Path, size: int, in_memory: int) -> list[int]:
    """Ranks of logits that come `size` at a time."""
    whole = pl.DataFrame(
        {"decision": [1] * len(logit), "confidence": [0.5] * len(logit), "logit": logit}, schema=SCORES
    )
    with ranked(whole.iter_slices(size), folder / "out.parquet", in_memory=in_memory) as ranking:
        assert ranking.n_rows == len(logit)
        found = [ranking.rows(first, size) for first in range(0, len(logit), size)]
    assert not list(folder.iterdir())
    together = pl.concat([pl.DataFrame(schema={**SCORES, "rank": pl.Int64}), *found])
    assert together.drop("rank").equals(whole)
    return together["rank"].to_list()


@pytest.mark.parametrize("in_memory", [2**23, -1])
@settings(deadline=None, max_examples=30)
@given(logit=LOGITS, size=st.integers(1, 7))
def test_ranks_in_memory_and_out_of_core_are_those_of_a_plain_sort(in_memory, logit, size, tmp_path_factory):
    assert ranks(logit, tmp_path_factory.mktemp("ranks"), size, in_memory=in_memory) == naive_ranks(logit)


def test_ranks_out_of_core_over_many_row_groups(tmp_path):
    logit = np.random.default_rng(0).integers(-50, 50, 300_000) / 7
    logit[::1000], logit[1::1000], logit[2::1000] = inf, -inf, -0.0
    found = ranks(logit.tolist(), tmp_path, 70_001, in_memory=100_000)
    order = np.argsort(logit, kind="stable")
    assert (np.array(found)[order] == np.arange(1, len(logit) + 1)).all()


@settings(deadline=None, max_examples=25)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.3, 0.9, 0.95, 1.0])), max_size=30),
    hundredths=st.integers(0, 100),
)
def test_ranks_are_a_permutation_and_routes_follow_them(rows, hundredths, tmp_path_factory):
    path = tmp_path_factory.mktemp("apply") / "new.parquet"
    pl.DataFrame(rows, schema={"decision": pl.Int8, "confidence": pl.Float64}, orient="row").write_parquet(path)
    table = scored(path, reliability_map=document(stated=True), coverage=str(hundredths / 100))
    assert sorted(table["review_rank"]) == list(range(1, len(rows) + 1))
    assert (table.sort("review_rank")["reliability"].diff().drop_nulls() >= 0).all()
    automatic = floor(Fraction(hundredths, 100) * len(rows))
    assert table.sort("review_rank")["route"].to_list() == (
        ["review"] * (len(rows) - automatic) + ["automatic"] * automatic
    )


def spoil(row: int, logits: list[float] | None):
    """The 90 predictions with other logits in one row."""
    made = predictions(90)
    column = made["logits"].to_list()
    column[row] = logits
    return made.with_columns(logits=pl.Series(column, dtype=pl.List(pl.Float64)))


MISTAKES = {
    "a NaN": (spoil(50, [0.0, float("nan"), 1.0]), {}, r"new.parquet, row 50 .from 0.: logits 1 is nan"),
    "an infinite logit": (spoil(50, [0.0, inf, 1.0]), {}, r"new.parquet, row 50 .from 0.: logits 1 is inf"),
    "a row without logits": (spoil(50, None), {}, r"new.parquet, row 50 .from 0.: logits is missing"),
    "a row of another length": (spoil(50, [0.0, 1.0]), {}, r"new.parquet.* row 50 .from 0.: logits has 2 numbers"),
    "another K": (predictions(90, 4), {}, r"new.parquet has 4 logits a row, where there are 3 labels"),
    "a decision outside K": (
        predictions(90).with_columns(decision=3),
        {},
        r"row 0 .from 0.: decision is 3",
    ),
    "an unknown name": (
        predictions(90).with_columns(decision=pl.lit("good")),
        {},
        r"row 0 .from 0.: decision is 'good'; the labels are irrelevant, partial, exact",
    ),
    "no logits": (stated(90), {}, r"needs logits or probabilities .* as the rows had that the map was fitted on"),
    "a column of ours": (
        predictions(90).with_columns(route=1, reliability=0.5),
        {},
        r"new.parquet has the column reliability, route already.*drop it or rename it",
    ),
    "a coverage beyond 1": (predictions(90), {"coverage": "1.01"}, r"the coverage is '1.01'; .* in \[0, 1\]"),
    "a coverage below 0": (predictions(90), {"coverage": "-0.1"}, r"the coverage is '-0.1'"),
    "a coverage that is no number": (predictions(90), {"coverage": "nan"}, r"the coverage is 'nan'"),
    "a coverage in per cent": (predictions(90), {"coverage": "70%"}, r"the coverage is '70%'"),
    "a coverage without end": (predictions(90), {"coverage": "1e-999999999"}, r"the coverage is '1e-999999999'"),
    "a cut beyond 1": (predictions(90), {"cut": 1.5}, r"the cut is 1.5"),
    "a cut that is no number": (predictions(90), {"cut": float("nan")}, r"the cut is nan"),
    "a coverage and a cut": (predictions(90), {"cut": 0.5, "coverage": "0.5"}, r"both a coverage"),
}


@pytest.mark.parametrize("in_memory", [2**23, 10])
@pytest.mark.parametrize(("made", "options", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_nothing_is_left_behind(made, options, message, in_memory, tmp_path, monkeypatch):
    small_pieces(monkeypatch)
    made.write_parquet(tmp_path / "new.parquet")
    (tmp_path / "out.parquet").write_text("what was there")
    with pytest.raises(BadInput, match=message):
        apply_map(document(), tmp_path / "new.parquet", tmp_path / "out.parquet", in_memory=in_memory, **options)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new.parquet", "out.parquet"]
    assert (tmp_path / "out.parquet").read_text() == "what was there"


@pytest.mark.parametrize(
    ("predictions", "out", "told"),
    [
        ("scored.parquet", "again.parquet", "has the column decision_name, .*was this file scored before"),
        ("new.parquet", "new.parquet", "new.parquet is a file that is read here"),
        ("new.parquet", "out.csv", "the column logits is .*, which a .csv file cannot hold"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_and_none_is_touched(predictions, out, told, path):
    scored(path)
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(BadInput, match=told):
        apply_map(document(), path.with_name(predictions), path.with_name(out))
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


def test_the_same_input_gives_the_same_bytes(path):
    outs = [path.with_name(f"{name}.parquet") for name in "ab"]
    for out in outs:
        apply_map(document(), path, out)
    assert outs[0].read_bytes() == outs[1].read_bytes()


KILLED = """
import os, signal, sys
from pathlib import Path
from tasks.maps.apply import apply_map
from tasks.maps.document import load_map
folder = Path(sys.argv[1])
kill = lambda stage, _: os.kill(os.getpid(), signal.SIGKILL) if stage == "written" else None
apply_map(load_map(folder / "map.json"), folder / "new.parquet", folder / "out.parquet", in_memory=10, progress=kill)
"""


def test_what_a_killed_apply_left_is_gone_after_the_next_one(path):
    folder = path.parent
    save_map(document(), folder / "map.json")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(folder.glob(".out.parquet.*"))) == 2  # the ranks, and the rows that were written so far
    apply_map(document(), path, folder / "out.parquet")
    assert {file.name for file in folder.iterdir()} == {"map.json", "new.parquet", "out.parquet"}


def test_predictions_without_checksums_are_said_to_have_none(path):
    def warned(predictions: Path) -> bool:
        applied = apply_map(document(), predictions, path.with_name("out.parquet"))
        return "no page checksums" in applied.in_words(["a", "b", "c"])[-1]

    made = pl.read_parquet(path)
    assert warned(path)
    made.write_parquet(path, use_pyarrow=True, pyarrow_options={"write_page_checksum": True})
    assert not warned(path)
    made.select(logits_0=1.0, logits_1=2.0, logits_2=3.0).write_csv(path.with_suffix(".csv"))
    assert not warned(path.with_suffix(".csv"))
