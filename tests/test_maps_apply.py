"""A map is applied to a file row by row: the input untouched, ranks and routes exact, in memory or beyond it."""

from math import inf, nan
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.maps.apply import SCORES, apply_map, ranked
from tasks.maps.reliability_map import ReliabilityMap
from tasks.predictions import files
from tasks.predictions.files import columns_of, opened
from tasks.protocol.errors import BadInput
from tests.maps import NAMES, checked, confidence_only, document, predictions, write

ADDED = ["decision", "decision_name", "confidence", "reliability", "review_rank", "route"]


@pytest.fixture
def path(tmp_path) -> Path:
    """90 predictions over 3 labels."""
    return write(predictions(90), tmp_path / "new.parquet")


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


def test_the_input_comes_first_and_what_the_map_says_after_it(path):
    table = scored(path)
    assert table.columns == [*predictions(90).columns, *ADDED]
    assert table.select(predictions(90).columns).equals(predictions(90))
    assert table.select(ADDED).dtypes == [pl.Int64, pl.String, pl.Float64, pl.Float64, pl.Int64, pl.String]
    expected = ReliabilityMap.of(document())(checked(predictions(90)))
    assert (table["confidence"].to_numpy() == expected.confidence).all()
    assert (table["reliability"].to_numpy() == expected.reliability).all()
    assert table["decision"].to_list() == [max(range(3), key=row.__getitem__) for row in predictions(90)["logits"]]
    assert table["decision_name"].to_list() == [NAMES[decision] for decision in table["decision"]]
    assert table["review_rank"].to_list() == naive_ranks(expected.logit.tolist())
    once = path.with_name("scored.parquet").read_bytes()
    assert "decision_name" not in scored(path, reliability_map=document(names=None)).columns
    scored(path)
    assert path.with_name("scored.parquet").read_bytes() == once


COVERAGES = {
    "0.7": 63,
    "0": 0,
    "1": 90,
    ".1": 9,
    "0.2999999999999999999": 26,
    "0.3": 27,
    "7e-1": 63,
    None: 63,
}


@pytest.mark.parametrize(("coverage", "automatic"), COVERAGES.items())
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
    applied, shared = (apply_map(document(name), path, path.with_name("out.parquet")) for name in ("mrp", "shared_1d"))
    decided = checked(predictions(90)).decision
    assert applied.rows == 90
    assert applied.leaning == {1: (decided == 1).sum(), 2: (decided == 2).sum()}
    assert shared.leaning == {}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@pytest.mark.parametrize("variant", ["confidence", "label_isotonic"])
def test_in_every_format_in_pieces_and_out_of_core_it_is_the_same(variant, suffix, tmp_path, monkeypatch):
    folder = tmp_path / "odd [name]?*'s"
    folder.mkdir()
    path = write(confidence_only(200), folder / f"new{suffix}")  # round numbers: many ties
    asked = {"suffix": suffix, "reliability_map": document(variant, confidence_only=True)}
    ours = [*ADDED[1:2], "calibrated_confidence", *ADDED[3:]]
    whole = scored(path, **asked)
    small_pieces(monkeypatch)
    assert scored(path, **asked).equals(whole)
    assert scored(path, **asked, in_memory=50).equals(whole)
    assert sorted(file.name for file in folder.iterdir()) == [path.name, f"scored{suffix}"]
    in_parquet = scored(write(confidence_only(200), tmp_path / "new.parquet"), **asked | {"suffix": ".parquet"})
    assert whole.select(ours).cast(dict(in_parquet.select(ours).schema)).equals(in_parquet.select(ours))


@pytest.mark.parametrize(
    ("made", "columns"),
    [
        (predictions(90).with_columns(decision=pl.lit("exact")), ["decision_code", *ADDED[1:]]),
        (predictions(90).with_columns(confidence=pl.lit("high")), [*ADDED[:2], "calibrated_confidence", *ADDED[3:]]),
        (confidence_only(90), ["decision_name", "calibrated_confidence", *ADDED[3:]]),
    ],
)
def test_a_decision_or_a_confidence_that_is_there_stays_beside_ours(made, columns, path):
    made.write_parquet(path)
    table = scored(path, reliability_map=document(confidence_only="logits" not in made.columns))
    assert table.columns == [*made.columns, *columns]
    assert table.select(made.columns).equals(made)
    if "decision_code" in columns:  # the decision that is there is the fixed one
        assert set(table["decision_name"]) == {"exact"}
        assert set(table["decision_code"]) == {2}
    else:
        assert table["calibrated_confidence"].dtype == pl.Float64


@pytest.mark.parametrize(("origin", "suffix"), [(".parquet", ".csv"), (".csv", ".parquet"), (".parquet", ".jsonl")])
def test_no_rows_give_no_rows_and_every_column(origin, suffix, tmp_path):
    path, out = write(confidence_only(10).clear(), tmp_path / f"new{origin}"), tmp_path / f"out{suffix}"
    applied = apply_map(document(confidence_only=True), path, out)
    assert (applied.rows, applied.automatic, applied.lowest_automatic) == (0, 0, None)
    if suffix == ".jsonl":  # without a line it has no columns
        assert out.read_bytes() == b""
    else:
        assert columns_of(opened(out), [*confidence_only(10).columns, "calibrated_confidence", "route"]).height == 0


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
        pieces = [ranking.rows(first, size) for first in range(0, len(logit), size)]
    assert not list(folder.iterdir())
    together = pl.concat([pl.DataFrame(schema={**SCORES, "rank": pl.Int64}), *pieces])
    assert together.drop("rank").equals(whole)
    return together["rank"].to_list()


@pytest.mark.parametrize("in_memory", [2**23, -1])
@settings(deadline=None, max_examples=20)
@given(logit=LOGITS, size=st.integers(1, 7))
def test_ranks_in_memory_and_out_of_core_are_those_of_a_plain_sort(in_memory, logit, size, tmp_path_factory):
    assert ranks(logit, tmp_path_factory.mktemp("ranks"), size, in_memory=in_memory) == naive_ranks(logit)


def test_ranks_out_of_core_over_many_row_groups(tmp_path):
    logit = np.random.default_rng(0).integers(-50, 50, 130_000) / 7
    logit[::1000], logit[1::1000], logit[2::1000] = inf, -inf, -0.0
    order = np.argsort(logit, kind="stable")
    in_order = np.array(ranks(logit.tolist(), tmp_path, 40_001, in_memory=50_000))[order]
    assert (in_order == np.arange(1, len(logit) + 1)).all()


def spoilt() -> pl.DataFrame:
    """The 90 predictions with a NaN in row 50."""
    logits = pl.when(pl.int_range(pl.len()) == 50).then([0.0, nan, 1.0]).otherwise("logits")
    return predictions(90).with_columns(logits=logits)


MISTAKES = {  # columns, options, what is said
    "a NaN": (spoilt(), {}, r"new.parquet, row 50 .from 0.: logits 1 is nan"),
    "another K": (predictions(90, 4), {}, r"new.parquet has 4 logits a row, where there are 3 labels"),
    "no logits": (
        confidence_only(90),
        {},
        r"needs logits or probabilities .* as the rows had that the map was fitted on",
    ),
    "columns of ours": (
        predictions(90).with_columns(route=1, reliability=0.5),
        {},
        r"new.parquet has the column reliability, route already.*drop it or rename it.*was this file scored before",
    ),
    "a cut beyond 1": (predictions(90), {"cut": 1.5}, r"the cut is 1.5"),
    "a cut that is no number": (predictions(90), {"cut": nan}, r"the cut is nan"),
    "a coverage and a cut": (predictions(90), {"cut": 0.5, "coverage": "0.5"}, r"both a coverage"),
    **{
        f"a coverage of {text}": (predictions(90), {"coverage": text}, rf"the coverage is '{text}'; .* in \[0, 1\]")
        for text in ("1.01", "-0.1", "nan", "70%", "1e-999999999")
    },
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


def test_an_output_that_cannot_hold_the_columns_is_refused(path):
    with pytest.raises(BadInput, match=r"the column logits is .*, which a .csv file cannot hold"):
        scored(path, ".csv")


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
