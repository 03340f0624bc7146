"""Saved logits: what is read is what was saved, from either kind of file, and what cannot be is refused by name."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tasks.datasets.logits import read_saved_logits
from tasks.protocol.errors import BadInput

N = {"val": 9, "test": 6}
K = 3


def arrays(members: int | None = 2) -> dict[str, np.ndarray]:
    """What a `.npz` holds; without `members` its logits have two axes."""
    generator = np.random.default_rng(0)
    made = {f"{part}_labels": np.arange(n) % K for part, n in N.items()}
    for part, n in N.items():
        logits = generator.normal(size=(members or 1, n, K)).astype(np.float32)
        made[f"{part}_logits"] = logits[0] if members is None else logits
    return made


def columns(**other: object) -> pl.DataFrame:
    """The same, of one member, as a frame; `other` columns come in place of its own."""
    made = arrays(None)
    frame = pl.DataFrame(
        {
            "split": ["validation"] * N["val"] + ["test"] * N["test"],
            "label": np.concatenate([made[f"{part}_labels"] for part in N]),
            "logits": np.concatenate([made[f"{part}_logits"] for part in N]).tolist(),
            "group": [f"q{row // 2}" for row in range(sum(N.values()))],
        }
    )
    return frame.with_columns(**other)


def saved(folder: Path, made: dict[str, np.ndarray] | pl.DataFrame) -> Path:
    """A file with these columns (parquet) or arrays (a `.npz`)."""
    if isinstance(made, pl.DataFrame):
        made.write_parquet(folder / "logits.parquet")
        return folder / "logits.parquet"
    np.savez_compressed(folder / "logits.npz", **made)
    return folder / "logits.npz"


@pytest.mark.parametrize("members", [1, 3, None])
def test_each_member_is_read_as_it_was_saved_and_without_queries_each_row_is_a_group_of_its_own(members, tmp_path):
    made = arrays(members)
    frames = read_saved_logits(saved(tmp_path, {**made, "temperatures": np.ones(members or 1), "other": np.ones(2)}))
    assert len(frames) == (members or 1)
    for member, frame in enumerate(frames):
        kinds = {"split": pl.String, "group": pl.String, "label": pl.Int8, "logits": pl.Array(pl.Float64, K)}
        assert frame.schema == kinds | {"pair": pl.String}
        assert frame["split"].to_list() == columns()["split"].to_list()
        assert frame["group"].to_list() == [str(row) for row in range(15)]
        assert frame["label"].to_list() == [*made["val_labels"], *made["test_labels"]]
        parts = [made[f"{part}_logits"].reshape(-1, n, K)[member] for part, n in N.items()]
        np.testing.assert_array_equal(frame["logits"].to_list(), np.concatenate(parts).astype(np.float64))


@pytest.mark.parametrize("kind", [np.int64, np.str_])
def test_query_ids_are_the_groups(kind, tmp_path):
    for frame in read_saved_logits(saved(tmp_path, with_queries(kind))):
        assert frame["group"].to_list() == [str(row) for n in N.values() for row in range(n)]


KINDS = (pl.List(pl.Float32), pl.Array(pl.Float64, K), pl.Array(pl.Float32, K))


def test_a_parquet_file_says_the_same_whatever_the_order_of_its_splits_and_the_type_of_its_lists(tmp_path):
    (expected,) = read_saved_logits(saved(tmp_path, arrays(None)))
    of_kinds = [columns(logits=pl.col("logits").cast(kind)) for kind in KINDS]
    for made in (columns(), pl.concat([columns()[9:], columns()[:9]]), *of_kinds):
        (frame,) = read_saved_logits(saved(tmp_path, made))
        assert_frame_equal(frame.drop("group"), expected.drop("group"))
        assert frame["group"].to_list() == columns()["group"].to_list()
    (frame,) = read_saved_logits(saved(tmp_path, columns().drop("group")))
    assert frame["group"].n_unique() == len(frame)


@pytest.mark.real_data
@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize(("name", "k", "rows"), [("mslr_10k_balanced", 5, 6959), ("science_balanced", 2, 11387)])
def test_logits_in_the_format_of_the_release_are_read(name, k, rows):
    frames = read_saved_logits(Path(os.environ["REAL_DATA"]) / "authors_check" / name / "logits_and_labels.npz")
    assert [frame["logits"].to_numpy().shape for frame in frames] == [(rows, k)]


CONTENTS = {  # of a file, from that of a whole one -> what is said
    "half": (lambda whole: whole[: len(whole) // 2], "is not a whole"),
    "cut": (lambda whole: whole[:-1], "is not a whole"),
    "the first bytes alone": (lambda whole: whole[:4] + bytes(80), "is not a whole"),
    "rotten": (lambda whole: whole[:300] + bytes(50) + whole[350:], "is not a whole .npz"),
    "a page": (lambda _: b"<!DOCTYPE html><title>Sign in</title>", "is a web page"),
}


@pytest.mark.parametrize(("change", "message"), CONTENTS.values(), ids=CONTENTS)
def test_a_file_that_is_cut_or_no_data_is_refused_by_name(change, message, tmp_path):
    for made in (arrays(), columns())[: 1 if message.endswith(".npz") else 2]:
        path = saved(tmp_path, made)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(BadInput, match=f"{path} {message}"):
            read_saved_logits(path)


def test_a_missing_file_and_another_kind_of_file_are_refused(tmp_path):
    for name, message in (("two.npz", "is missing"), ("logits.pt", r"saved logits are read from \.npz and \.parquet")):
        with pytest.raises(BadInput, match=f"{name}:? {message}"):
            read_saved_logits(tmp_path / name)


def changed(change, *names: str) -> dict[str, np.ndarray]:
    made = arrays()
    return made | {name: change(made[name]) for name in names}


def with_cell(name: str, place: object, value: object) -> dict[str, np.ndarray]:
    made = arrays()
    made[name][place] = value
    return made


def with_row_4(column: str, value: object) -> pl.DataFrame:
    return columns(**{column: pl.when(pl.int_range(len(columns())) == 3).then(value).otherwise(column)})


def without(name: str) -> dict[str, np.ndarray]:
    return {other: array for other, array in arrays().items() if other != name}


def with_queries(kind: type) -> dict[str, np.ndarray]:
    return arrays() | {f"{part}_query_ids": np.arange(n).astype(kind) for part, n in N.items()}


WRONG = {  # arrays of a `.npz` or columns of a parquet file, what is said
    "no logits of a split": (without("test_logits"), "has no array test_logits; it has val_labels"),
    "query ids of one split": ({**arrays(), "val_query_ids": np.arange(9)}, "has val_query_ids only"),
    "pickled": (changed(lambda x: x.astype(object), "val_labels"), "an array of no plain type"),
    "four axes": (changed(lambda x: x[None], "test_logits"), r"test_logits: found .* shape \(1, 2, 6, 3\)"),
    "no numbers": (changed(lambda x: x.astype(str), "val_logits"), "val_logits: found <U"),
    "another K": (changed(lambda x: np.dstack([x, x]), "test_logits"), "val_logits has 3 logits in each row, .* has 6"),
    "fewer members": (changed(lambda x: x[:1], "test_logits"), "val_logits has 2 members, .*test_logits has 1"),
    "one label": (changed(lambda x: x[..., :1], "val_logits", "test_logits"), "each row has 1;"),
    "too few labels": (changed(lambda x: x[:-1], "val_labels"), r"val_labels: found int64 of shape \(8,\); .* 9 rows"),
    "labels that are floats": (changed(lambda x: x.astype(float), "val_labels"), "val_labels: found float64"),
    "NaN": (with_cell("test_logits", (1, 4, 2), np.nan), "test_logits, row 4: found nan for label 2 of member 1"),
    "infinite": (with_cell("val_logits", (0, 8, 0), -np.inf), "val_logits, row 8: found -inf"),
    "a label too high": (with_cell("val_labels", 5, 3), "val_labels, row 5: found 3; .* 0 to 2"),
    "a label below 0": (with_cell("test_labels", 0, -1), "test_labels, row 0: found -1"),
    "a class missing": (changed(lambda x: x % 2, "test_labels"), "test_labels: no row has the label 2"),
    "an empty split": (changed(lambda x: x[:, :0], "val_logits") | {"val_labels": np.arange(0)}, ": no row is there"),
    "no members": (changed(lambda x: x[:0], "val_logits"), "val_logits: no row is there"),
    "query ids that are floats": (with_queries(float), "val_query_ids: found float64"),
    "no column of logits": (columns().drop("logits"), "has no column 'logits'; it has split, label, group"),
    "another split": (with_row_4("split", pl.lit("train")), "column 'split': found 'train'; it is validation or test"),
    "no test rows": (columns()[:9], "logits of test: no row is there"),
    "texts for logits": (columns(logits=pl.lit("1,2,3")), "column 'logits' is String"),
    "lists of texts": (columns(logits=pl.col("logits").cast(pl.List(pl.String))), "column 'logits' is List"),
    "lists without numbers": (columns(logits=pl.col("logits").list.head(0)), "logits of validation: each row has 0"),
    "a shorter list": (
        with_row_4("logits", pl.col("logits").list.head(2)),
        "row 4, column 'logits': found 2; so many numbers; the first row has 3",
    ),
    "no number in a list": (with_row_4("logits", pl.lit([1.0, None, 2.0])), "validation, row 4: found nan for label 1"),
    "no logits in a row": (with_row_4("logits", None), "row 4, column 'logits': found None"),
    "no label": (with_row_4("label", None), "row 4, column 'label': found None"),
    "no group": (with_row_4("group", None), "row 4, column 'group': found None"),
    "a label of a row too high": (with_row_4("label", 3), "label of validation, row 4: found 3; .* 0 to 2"),
}


@pytest.mark.parametrize(("made", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_by_file_and_name(made, message, tmp_path):
    path = saved(tmp_path, made)
    with pytest.raises(BadInput, match=message) as refused:
        read_saved_logits(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
