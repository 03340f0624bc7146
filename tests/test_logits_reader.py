"""Saved logits: what is read is what was saved, from either kind of file, and what cannot be is refused by name."""

from __future__ import annotations

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
    made = {}
    for short, n in N.items():
        made[f"{short}_logits"] = generator.normal(size=(members or 1, n, K)).astype(np.float32)
        made[f"{short}_labels"] = np.arange(n) % K
        if members is None:
            made[f"{short}_logits"] = made[f"{short}_logits"][0]
    return made


def columns(**other: object) -> pl.DataFrame:
    """The same, of one member, as a frame; `other` columns come in place of its own."""
    made = arrays(None)
    frame = pl.DataFrame(
        {
            "split": ["validation"] * N["val"] + ["test"] * N["test"],
            "label": np.concatenate([made["val_labels"], made["test_labels"]]),
            "logits": np.concatenate([made["val_logits"], made["test_logits"]]).tolist(),
            "group": [f"q{row // 2}" for row in range(sum(N.values()))],
        }
    )
    return frame.with_columns(**other)


def saved(folder: Path, **made: np.ndarray) -> Path:
    path = folder / "logits.npz"
    np.savez_compressed(path, **made)
    return path


def written(folder: Path, frame: pl.DataFrame) -> Path:
    path = folder / "logits.parquet"
    frame.write_parquet(path)
    return path


# ------------------------------------------------------------------ what is read


@pytest.mark.parametrize("members", [1, 3, None])
def test_each_member_is_read_as_it_was_saved(members, tmp_path):
    made = arrays(members)
    found = read_saved_logits(saved(tmp_path, **made, temperatures=np.ones(members or 1), other=np.ones(2)))
    assert len(found) == (members or 1)
    for member, frame in enumerate(found):
        kinds = {"split": pl.String, "group": pl.String, "label": pl.Int8, "logits": pl.Array(pl.Float64, K)}
        assert frame.schema == kinds | {"pair": pl.String}
        assert frame["split"].to_list() == ["validation"] * N["val"] + ["test"] * N["test"]
        assert frame["label"].to_list() == [*made["val_labels"], *made["test_labels"]]
        parts = [made[f"{short}_logits"].reshape(-1, N[short], K)[member] for short in N]
        np.testing.assert_array_equal(frame["logits"].to_list(), np.concatenate(parts).astype(np.float64))


def test_rows_without_a_query_are_each_a_group_of_their_own(tmp_path):
    (frame,) = read_saved_logits(saved(tmp_path, **arrays(None)))
    assert frame["group"].to_list() == [str(row) for row in range(15)]
    (frame,) = read_saved_logits(written(tmp_path, columns().drop("group")))
    assert frame["group"].n_unique() == len(frame)


@pytest.mark.parametrize("kind", [np.int64, np.str_])
def test_query_ids_are_the_groups(kind, tmp_path):
    queries = {f"{short}_query_ids": (np.arange(n) // 2).astype(kind) for short, n in N.items()}
    found = read_saved_logits(saved(tmp_path, **arrays(), **queries))
    for frame in found:
        assert frame["group"].to_list() == [str(row // 2) for n in N.values() for row in range(n)]


def test_a_parquet_file_says_the_same_whatever_the_order_of_its_splits(tmp_path):
    (expected,) = read_saved_logits(saved(tmp_path, **arrays(None)))
    for frame in (columns(), columns().reverse().sort("split", maintain_order=True).reverse(), columns()[::-1][::-1]):
        (found,) = read_saved_logits(written(tmp_path, frame))
        assert_frame_equal(found.drop("group"), expected.drop("group"))
        assert found["group"].to_list() == columns()["group"].to_list()
    mixed = pl.concat([columns()[9:], columns()[:9]])
    assert_frame_equal(read_saved_logits(written(tmp_path, mixed))[0], found)


@pytest.mark.parametrize("kind", [pl.List(pl.Float32), pl.Array(pl.Float64, K), pl.Array(pl.Float32, K)])
def test_lists_and_arrays_of_either_precision_are_read(kind, tmp_path):
    single = columns(logits=pl.col("logits").cast(pl.List(pl.Float32)))
    found = read_saved_logits(written(tmp_path, single.with_columns(pl.col("logits").cast(kind))))
    assert_frame_equal(found[0], read_saved_logits(written(tmp_path, single))[0])


@pytest.mark.real_data
@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize(("name", "k", "rows"), [("mslr_10k_balanced", 5, 6959), ("science_balanced", 2, 11387)])
def test_logits_in_the_format_of_the_release_are_read(name, k, rows):
    found = read_saved_logits(Path(os.environ["REAL_DATA"]) / "authors_check" / name / "logits_and_labels.npz")
    assert [frame["logits"].to_numpy().shape for frame in found] == [(rows, k)]


# ------------------------------------------------------------------ arrays that cannot be


def changed(name: str, change) -> dict[str, np.ndarray]:
    made = arrays()
    return made | {name: change(made[name])}


def with_cell(array: np.ndarray, place: object, value: object) -> np.ndarray:
    array = array.copy()
    array[place] = value
    return array


WRONG_ARRAYS = {
    "no logits of a split": ({**arrays(), "test_logits": None}, "has no array test_logits; it has val_logits"),
    "no labels": ({**arrays(), "val_labels": None}, "has no array val_labels"),
    "query ids of one split": ({**arrays(), "val_query_ids": np.arange(9)}, "has val_query_ids only"),
    "pickled": (changed("val_labels", lambda x: x.astype(object)), "an array of no plain type"),
    "one axis": (changed("val_logits", np.ravel), r"val_logits: found float32 of shape \(54,\)"),
    "four axes": (changed("test_logits", lambda x: x[None]), r"test_logits: found .* shape \(1, 2, 6, 3\)"),
    "no numbers": (changed("val_logits", lambda x: x.astype(str)), "val_logits: found <U"),
    "another K": (changed("test_logits", lambda x: np.dstack([x, x])), "val_logits has 3 logits in each row, .* has 6"),
    "fewer members": (changed("test_logits", lambda x: x[:1]), "val_logits has 2 members, .*test_logits has 1"),
    "one label": ({name: a[..., :1] if a.ndim == 3 else a * 0 for name, a in arrays().items()}, "each row has 1;"),
    "too few labels": (changed("val_labels", lambda x: x[:-1]), r"val_labels: found int64 of shape \(8,\); .* 9 rows"),
    "labels with two axes": (changed("test_labels", lambda x: x[None]), r"test_labels: found .* shape \(1, 6\)"),
    "labels that are floats": (changed("val_labels", lambda x: x.astype(float)), "val_labels: found float64"),
    "NaN": (
        changed("test_logits", lambda x: with_cell(x, (1, 4, 2), np.nan)),
        "test_logits, row 4: found nan for label 2 of member 1",
    ),
    "infinite": (changed("val_logits", lambda x: with_cell(x, (0, 8, 0), -np.inf)), "val_logits, row 8: found -inf"),
    "a label too high": (changed("val_labels", lambda x: with_cell(x, 5, 3)), "val_labels, row 5: found 3; .* 0 to 2"),
    "a label below 0": (changed("test_labels", lambda x: with_cell(x, 0, -1)), "test_labels, row 0: found -1"),
    "a class missing": (changed("test_labels", lambda x: x % 2), "test_labels: no row has the label 2"),
    "an empty split": (
        {name: a[:, :0] if a.ndim == 3 else a[:0] for name, a in arrays().items()},
        "val_logits: no row is there",
    ),
    "no members": (changed("val_logits", lambda x: x[:0]), "val_logits: no row is there"),
    "too few query ids": (
        {**arrays(), "val_query_ids": np.arange(8), "test_query_ids": np.arange(6)},
        r"val_query_ids: found int64 of shape \(8,\)",
    ),
    "query ids that are floats": (
        {**arrays(), "val_query_ids": np.ones(9), "test_query_ids": np.ones(6)},
        "val_query_ids: found float64",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_ARRAYS)
def test_arrays_that_cannot_be_are_refused_by_file_and_name(wrong, tmp_path):
    made, told = WRONG_ARRAYS[wrong]
    path = saved(tmp_path, **{name: array for name, array in made.items() if array is not None})
    with pytest.raises(BadInput, match=told) as refused:
        read_saved_logits(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


# ------------------------------------------------------------------ files that are none


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_a_file_that_is_missing_cut_or_no_data_is_refused_by_name(kind, tmp_path):
    path = saved(tmp_path, **arrays()) if kind == "npz" else written(tmp_path, columns())
    whole = path.read_bytes()
    middle = len(whole) // 3
    wrong = {
        "not a whole": [whole[: len(whole) // 2], whole[:-1], b"PK\x03\x04" + bytes(80), b"PAR1" + bytes(80)],
        "is a Git LFS pointer": [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"],
        "is empty": [b""],
        "is a web page": [b"<!DOCTYPE html><title>Sign in</title>"],
    }
    if kind == "npz":
        wrong["not a whole"].append(whole[:middle] + bytes(50) + whole[middle + 50 :])
    for told, contents in wrong.items():
        for content in contents:
            path.write_bytes(content)
            with pytest.raises(BadInput, match=f"{path} .*{told}|{path} {told}"):
                read_saved_logits(path)
    path.unlink()
    with pytest.raises(BadInput, match=f"{path} is missing"):
        read_saved_logits(path)


def test_a_single_array_or_another_kind_of_file_is_refused(tmp_path):
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(BadInput, match=r"one\.npz is not a whole"):
        read_saved_logits(tmp_path / "one.npz")
    with pytest.raises(BadInput, match=r"logits\.pt: saved logits are read from \.npz and \.parquet"):
        read_saved_logits(tmp_path / "logits.pt")


# ------------------------------------------------------------------ columns that cannot be

ROWS = sum(N.values())
first_of_three = pl.int_range(ROWS) == 3
WRONG_COLUMNS = {
    "no logits": (columns().drop("logits"), "has no column 'logits'; it has split, label, group"),
    "a split of another name": (
        columns(split=pl.when(first_of_three).then(pl.lit("train")).otherwise("split")),
        "row 4, column 'split': found 'train'; it is validation or test",
    ),
    "no test rows": (columns()[:9], "logits of test: no row is there"),
    "no rows": (columns()[:0], "logits of validation: no row is there"),
    "texts for logits": (columns(logits=pl.lit("1,2,3")), "column 'logits' is String"),
    "lists of texts": (columns(logits=pl.col("logits").cast(pl.List(pl.String))), "column 'logits' is List"),
    "lists without numbers": (columns(logits=pl.col("logits").list.head(0)), "logits of validation: each row has 0"),
    "a shorter list": (
        columns(logits=pl.when(first_of_three).then(pl.col("logits").list.head(2)).otherwise("logits")),
        "row 4, column 'logits': found 2; so many numbers; the first row has 3",
    ),
    "no logits in a row": (
        columns(logits=pl.when(~first_of_three).then("logits")),
        "row 4, column 'logits': found None",
    ),
    "no number in a list": (
        columns(logits=pl.when(first_of_three).then(pl.lit([1.0, None, 2.0])).otherwise("logits")),
        "logits of validation, row 4: found nan for label 1",
    ),
    "no label": (columns(label=pl.when(~first_of_three).then("label")), "row 4, column 'label': found None"),
    "labels that are floats": (columns(label=pl.col("label").cast(pl.Float64)), "label of validation: found float64"),
    "labels that are texts": (columns(label=pl.col("label").cast(pl.String)), "label of validation: found object"),
    "a label too high": (columns(label=pl.int_range(ROWS) % 4), "label of validation, row 4: found 3; .* 0 to 2"),
    "a class missing": (columns(label=pl.int_range(ROWS) % 2), "label of validation: no row has the label 2"),
    "no group": (columns(group=pl.when(~first_of_three).then("group")), "row 4, column 'group': found None"),
    "groups that are floats": (columns(group=pl.lit(0.5)), "group of validation: found float64"),
}


@pytest.mark.parametrize("wrong", WRONG_COLUMNS)
def test_columns_that_cannot_be_are_refused_by_file_and_name(wrong, tmp_path):
    frame, told = WRONG_COLUMNS[wrong]
    path = written(tmp_path, frame)
    with pytest.raises(BadInput, match=told) as refused:
        read_saved_logits(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
