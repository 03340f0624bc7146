"""Every official layout: what it holds is counted, and its readers agree with one another."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from samples.official import LAYOUTS, write_archive, write_large
from samples.retrieval import write_esci_rerank_2, write_retrieval

from tasks.datasets import DATASETS
from tasks.datasets.base import TEXT_SCHEMA, Judged
from tasks.datasets.lists import COLUMNS
from tasks.datasets.loading import hub_library, load_file, load_repository
from tasks.datasets.raw import read_json_lines, read_parquet
from tasks.protocol.errors import BadInput
from tasks.protocol.params import Params, load_params
from tasks.protocol.splits import draw_splits
from tasks.provenance.stage import in_a_sentence

ROOT = Path(__file__).resolve().parent.parent
ALL = list(LAYOUTS)
RETRIEVAL = [("alloprof_rerank", "c"), ("esci_rerank_us", "v2"), ("scidocs", "beir"), ("scidocs", "mteb2")]
LISTS = [(name, origin) for name, origin in ALL if name in ("alloprof_rerank", "esci_rerank_us", "scidocs")]
ROWS = [("lamp", ["bright lamp", "table lamp"], ["rug", "old rug"]), ("rug", ["old rug"], ["lamp", "vase"])]
MANY_ROWS = pl.DataFrame({"query": map(str, range(3000)), "positive": [["good"]] * 3000, "negative": [["bad"]] * 3000})


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw folder for each layout; never changed."""
    folder = tmp_path_factory.mktemp("layouts")
    for name, origin in ALL:
        LAYOUTS[name, origin](folder / f"{name}-{origin}")
    return folder


def read(folder: Path, name: str, origin: str, **options: Any) -> Judged:
    dataset = DATASETS[name]
    chosen = {dataset.origin_option: origin} if dataset.origin_option else {}
    return dataset.read(folder / f"{name}-{origin}", {**chosen, **options})


def test_every_origin_has_a_layout_here():
    assert [(name, origin) for name, dataset in DATASETS.items() for origin in dataset.origins] == ALL


@pytest.mark.parametrize(("name", "origin"), ALL)
def test_what_is_published_is_counted(raw: Path, name: str, origin: str):
    counts = read(raw, name, origin).counts
    published = [count.what for count in DATASETS[name].origins[origin].published]
    assert set(published) <= set(counts)
    assert len(set(published)) == len(published)
    assert all(isinstance(count, int) for count in counts.values())


@pytest.mark.parametrize(("name", "origin"), ALL)
def test_published_counts_add_up(name: str, origin: str):
    found = {count.what: count.value for count in DATASETS[name].origins[origin].published}
    for whole, parts in (
        ("test pairs", ("test positives", "test negatives")),
        ("pairs", ("positives", "negatives")),
        ("rows", ("rows of Irrelevant", "rows of Partial", "rows of Exact")),
        ("rows", tuple(f"rows of {label}" for label in "ESCI")),
        ("rows", tuple(f"{locale} large {part} rows" for locale in ("us", "es", "jp") for part in ("train", "test"))),
        ("rows", ("train rows", "vali rows", "test rows")),
        ("rows", tuple(f"rows of grade {grade}" for grade in range(5))),
        *((f"{part} rows", tuple(f"{part} rows of grade {grade}" for grade in range(5))) for part in ("train", "test")),
    ):
        if whole in found and set(parts) <= set(found):
            assert found[whole] == sum(found[part] for part in parts)


@pytest.mark.parametrize(("name", "origin"), LISTS)
@pytest.mark.parametrize("options", [{}, {"cap_positive": 2, "cap_negative": 1}, {"require_both": True}])
def test_every_pair_is_kept_or_dropped_by_a_rule(raw: Path, name: str, origin: str, options: dict[str, Any]):
    found = read(raw, name, origin, **options)
    pairs = sum(count for what, count in found.counts.items() if what.split()[-1] == "pairs")
    assert (
        len(found.pairs) + sum(found.dropped.values()) - found.dropped.get("a candidate that was not judged", 0)
        == pairs
    )


def test_counts_are_those_of_the_raw_files_whatever_is_asked_for(raw: Path):
    counts = read(raw, "amazon_esci", "github").counts
    assert read(raw, "amazon_esci", "github", version="small", locale="es").counts == counts
    assert (counts["rows"], counts["products"], counts["rows of I"]) == (11, 8, 3)
    assert (counts["us small train queries"], counts["us small train rows"]) == (1, 3)
    assert (counts["us large train queries"], counts["us large train rows"]) == (3, 7)
    assert (counts["jp small test rows"], counts["jp large test rows"], counts["es small train rows"]) == (0, 1, 1)
    capped = read(raw, "alloprof_rerank", "b", cap_negative=1).counts
    assert capped == read(raw, "alloprof_rerank", "b").counts
    assert (capped["documents"], capped["test queries"], capped["test pairs"], capped["train queries"]) == (
        30,
        5,
        55,
        12,
    )


def test_a_join_on_the_id_alone_would_multiply_rows(raw: Path):
    home = raw / "amazon_esci-github" / "shopping_queries_dataset"
    examples, products = (
        pl.read_parquet(home / f"shopping_queries_dataset_{name}.parquet") for name in ("examples", "products")
    )
    assert len(examples.join(products, on="product_id", how="left")) > len(examples)
    found = read(raw, "amazon_esci", "github", locale="all")
    assert len(found.pairs) + sum(found.dropped.values()) == len(examples)


def test_scidocs_is_the_same_in_both_layouts_of_mteb(raw: Path):
    columns = ["split", "group", "query", "candidate", "label"]
    lists, retrieval = (read(raw, "scidocs", origin).pairs.select(columns) for origin in ("mteb", "mteb2"))
    assert lists.sort(columns).equals(retrieval.sort(columns))


def test_both_generations_of_alloprof_ask_the_same_test_questions(raw: Path):
    b, c = (read(raw, "alloprof_rerank", origin).pairs for origin in "bc")
    columns = ["group", "query", "candidate", "label"]
    tested = b.filter(split="test").select(columns).sort(columns)
    assert tested.equals(c.filter(pl.col("group").is_in(tested["group"].implode())).select(columns).sort(columns))
    assert c["split"].null_count() == len(c)  # no split is given: all are drawn


def both_kinds(counts: Mapping[str, int]) -> list[int]:
    return [counts[f"test {what} with both kinds"] for what in ("queries", "pairs of queries", "positives of queries")]


def test_the_second_layout_of_esci_rerank_is_what_the_first_has_of_queries_with_both_kinds(raw: Path):
    first, second = (read(raw, "esci_rerank_us", origin).counts for origin in ("v1", "v2"))
    assert both_kinds(first) == [second[f"test {what}"] for what in ("queries", "pairs", "positives")]
    assert first["test queries"] > second["test queries"]
    lists, retrieval = (
        {one.what: one.value for one in DATASETS["esci_rerank_us"].origins[origin].published} for origin in ("v1", "v2")
    )
    assert both_kinds(lists) == [retrieval[f"test {what}"] for what in ("queries", "pairs", "positives")]


def test_the_second_layout_of_scidocs_publishes_what_the_first_does():
    first, second = (set(DATASETS["scidocs"].origins[origin].published) for origin in ("mteb", "mteb2"))
    assert {one for one in first if one.verified} == second


def test_texts_that_differ_in_outer_white_space_only_count_as_one(raw: Path, tmp_path: Path):
    rows = [("lamp", ["rug ", "rug", " "], ["\nrug", "vase", ""])]
    write_retrieval(tmp_path / "esci_rerank_us-v2", {"train": rows, "test": rows}, prefix="us-")
    assert read(tmp_path, "esci_rerank_us", "v2").counts["test distinct texts"] == 3  # rug, vase, none
    LAYOUTS["alloprof_rerank", "b"](tmp_path / "alloprof_rerank-b")
    text = pl.when(pl.col("doc_id") == "d1").then(pl.lit("Leçon 0\nles égalités \u00a0")).otherwise("text")
    rewritten(tmp_path, "documents", lambda frame: frame.with_columns(text.alias("text")))  # d1 is d0, nearly
    before, after = (read(folder, "alloprof_rerank", "b").counts["test distinct texts"] for folder in (raw, tmp_path))
    assert after == before - 1


# MTEB's second layout --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "origin"), RETRIEVAL)
def test_ids_reach_neither_texts_nor_names(raw: Path, name: str, origin: str):
    frame = read(raw, name, origin).pairs
    assert dict(frame.schema) == TEXT_SCHEMA
    for column in ("pair", "group", "query", "candidate"):
        assert not frame[column].str.contains("positive_|negative_|_query").any()


def rewritten(folder: Path, place: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    for path in folder.rglob(f"{place}/*.parquet"):
        change(pl.read_parquet(path)).write_parquet(path)


def test_other_ids_give_the_same_rows_in_the_same_order(tmp_path: Path):
    for folder in ("scidocs-mteb2", "other/scidocs-mteb2"):
        LAYOUTS["scidocs", "mteb2"](tmp_path / folder)
    other = tmp_path / "other" / "scidocs-mteb2"

    def secret(column: str) -> pl.Expr:
        return pl.col(column).map_elements(lambda name: hashlib.md5(name.encode()).hexdigest(), return_dtype=pl.String)

    rewritten(other, "corpus", lambda frame: frame.with_columns(secret("id")).sort("id"))
    rewritten(other, "data", lambda frame: frame.with_columns(secret("corpus-id")))
    rewritten(
        other,
        "top_ranked",
        lambda frame: (
            frame.explode("corpus-ids")
            .with_columns(secret("corpus-ids"))
            .group_by("query-id", maintain_order=True)
            .agg("corpus-ids")
        ),
    )
    first, second = read(tmp_path, "scidocs", "mteb2"), read(tmp_path / "other", "scidocs", "mteb2")
    assert first.pairs.equals(second.pairs)
    assert first.dropped == second.dropped


@pytest.mark.parametrize(("name", "origin"), [*RETRIEVAL, ("alloprof_rerank", "b"), ("esci_rerank_us", "v1")])
def test_the_place_of_a_candidate_says_nothing_about_its_label(tmp_path: Path, name: str, origin: str):
    write_large(name, origin, tmp_path / f"{name}-{origin}")
    frame = read(tmp_path, name, origin).pairs
    place = pl.int_range(pl.len()).over("group") / pl.len().over("group")
    by_label = frame.with_columns(place=place).group_by("label").agg(pl.col("place").mean())
    assert abs(by_label["place"][0] - by_label["place"][1]) < 0.05


@pytest.mark.parametrize("named", ["id", "_id"])
def test_ids_may_be_called_either_way_and_titles_stand_before_texts(tmp_path: Path, named: str):
    folder = tmp_path / "scidocs-mteb2"
    write_retrieval(folder, {"validation": ROWS, "test": ROWS}, named=named)
    title = pl.when(pl.col("text") == "old rug").then(pl.lit("Worn")).otherwise("title").alias("title")
    rewritten(folder, "corpus", lambda frame: frame.with_columns(title))
    found = read(tmp_path, "scidocs", "mteb2").pairs
    assert set(found["candidate"]) == {"bright lamp", "table lamp", "rug", "Worn old rug", "lamp", "vase"}
    rewritten(folder, "corpus", lambda frame: frame.drop("title"))
    assert "old rug" in read(tmp_path, "scidocs", "mteb2").pairs["candidate"].to_list()


def test_what_was_judged_is_a_pair_and_what_was_only_ranked_is_counted(tmp_path: Path):
    write_retrieval(tmp_path / "scidocs-mteb2", {"validation": ROWS, "test": ROWS})
    found = read(tmp_path, "scidocs", "mteb2")
    assert found.dropped["a candidate that was not judged"] == 2  # one in each part
    assert (found.counts["validation pairs"], found.counts["test pairs"]) == (7, 7)
    assert found.counts["test distinct texts"] == 6
    assert "Never judged" not in set(found.pairs["candidate"])


def test_a_test_part_alone_leaves_every_split_open(tmp_path: Path):
    write_esci_rerank_2(tmp_path / "esci_rerank_us-v2")
    assert set(read(tmp_path, "esci_rerank_us", "v2").pairs["split"]) == {None, "test"}
    write_esci_rerank_2(tmp_path / "alone" / "esci_rerank_us-v2", train=False)
    assert set(read(tmp_path / "alone", "esci_rerank_us", "v2").pairs["split"]) == {None}


@pytest.mark.parametrize("place", ["us-corpus", "us-queries", "us-qrels", "us-top_ranked"])
def test_a_train_part_that_is_there_must_be_whole(tmp_path: Path, place: str):
    write_esci_rerank_2(tmp_path / "esci_rerank_us-v2")
    next(tmp_path.rglob(f"{place}/train-*")).unlink()
    with pytest.raises(BadInput, match=rf"holds no {place}/train"):
        read(tmp_path, "esci_rerank_us", "v2")


def test_judgements_may_lie_in_a_folder_of_their_own_name(raw: Path, tmp_path: Path):
    LAYOUTS["scidocs", "mteb2"](tmp_path / "scidocs-mteb2")
    (tmp_path / "scidocs-mteb2" / "data").rename(tmp_path / "scidocs-mteb2" / "qrels")
    assert read(tmp_path, "scidocs", "mteb2").pairs.equals(read(raw, "scidocs", "mteb2").pairs)


FIRST = pl.int_range(pl.len()) == 0
BAD = {  # what is wrong: folder, the change, what is said
    "an unknown document": (
        "us-qrels",
        lambda frame: frame.with_columns(pl.lit("d").alias("corpus-id")),
        r"row 1, column 'corpus-id': found 'd' .*one revision",
    ),
    "an unknown query": ("us-queries", lambda frame: frame[1:], r"column 'query-id': found '(train|test)_query0'"),
    "a score of two": (
        "us-qrels",
        lambda frame: frame.with_columns(score=pl.lit(2)),
        r"row 1, column 'score': found 2 .*must be 0 or 1",
    ),
    "scores that are texts": (
        "us-qrels",
        lambda frame: frame.with_columns(pl.col("score").cast(pl.String)),
        r"column 'score' is String, not integer",
    ),
    "a repeated document": ("us-corpus", lambda frame: pl.concat([frame, frame[:1]]), r"row 1, column '_id'"),
    "no ids": ("us-corpus", lambda frame: frame.drop("_id"), r"has no column 'id'; it has title, text"),
    "no candidate lists": (
        "us-top_ranked",
        lambda frame: frame.rename({"corpus-ids": "ids"}),
        r"no column 'corpus-ids'; it has query-id, ids",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_of_the_layout_is_named(tmp_path: Path, bad: str):
    place, change, says = BAD[bad]
    write_esci_rerank_2(tmp_path / "esci_rerank_us-v2")
    rewritten(tmp_path, place, change)
    with pytest.raises(BadInput, match=rf"(?s)us-.*{says}"):
        read(tmp_path, "esci_rerank_us", "v2")


@pytest.mark.parametrize(("name", "origin"), ALL)
def test_each_declared_file_of_a_layout_is_missed(raw: Path, tmp_path: Path, name: str, origin: str):
    LAYOUTS[name, origin](tmp_path / f"{name}-{origin}")
    for file in DATASETS[name].origins[origin].files:
        taken = {path: path.read_bytes() for path in tmp_path.rglob(file.path)}
        assert taken
        for path in taken:
            path.unlink()
        with pytest.raises(BadInput, match=r"holds no .*run the download stage"):
            read(tmp_path, name, origin)
        for path, content in taken.items():
            path.write_bytes(content)
    assert read(tmp_path, name, origin).pairs.equals(read(raw, name, origin).pairs)


# BEIR ------------------------------------------------------------------------------------------------------------


def test_beir_joins_title_and_abstract_and_keeps_scores_of_zero(raw: Path):
    found = read(raw, "scidocs", "beir")
    assert found.pairs.sort("pair").select("pair", "query", "candidate", "label").rows() == [
        ("test:0", "flight", "On wings Birds & bees: a «study».", 1),
        ("test:1", "flight", "On heat", 0),
        ("test:2", "flight", "Without a title.", 0),
        ("test:3", "warmth", "On heat", 1),
        ("test:4", "warmth", "On wings Birds & bees: a «study».", 0),
    ]
    assert found.pairs["split"].null_count() == 5
    # only the queries that were judged
    expected = {"queries": 2, "documents": 4, "pairs": 5, "positives": 2, "negatives": 3, "distinct texts": 3}
    assert found.counts == expected


def test_beir_is_read_from_what_its_archive_holds(raw: Path, tmp_path: Path):
    write_archive(raw / "scidocs-beir", tmp_path / "scidocs.zip")
    with zipfile.ZipFile(tmp_path / "scidocs.zip") as archive:
        assert sorted(archive.namelist()) == sorted(f.path for f in DATASETS["scidocs"].origins["beir"].files)
        archive.extractall(tmp_path / "scidocs-beir")
    assert read(tmp_path, "scidocs", "beir").pairs.equals(read(raw, "scidocs", "beir").pairs)


def test_a_score_that_is_none_is_named(tmp_path: Path):
    LAYOUTS["scidocs", "beir"](tmp_path / "scidocs-beir")
    path = tmp_path / "scidocs-beir" / "scidocs" / "qrels" / "test.tsv"
    path.write_text(path.read_text().replace("q0\ta2\t0", "q0\ta2\t2"))
    with pytest.raises(BadInput, match=r"test\.tsv, row 3, column 'score': found '2'"):
        read(tmp_path, "scidocs", "beir")


# Through the library of the hub ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["esci_rerank_us-v1/us/test-00000-of-00001.parquet", "scidocs-mteb/test.jsonl.gz"])
def test_the_library_reads_what_polars_reads(raw: Path, path: str):
    peer = read_parquet if path.endswith("parquet") else read_json_lines
    assert load_file(raw / path, COLUMNS).equals(peer(raw / path, COLUMNS))


def test_a_folder_may_have_the_signs_of_a_pattern_in_its_name(raw: Path, tmp_path: Path):
    folder = tmp_path / "a [1] * b"
    LAYOUTS["scidocs", "mteb"](folder / "scidocs-mteb")
    assert read(folder, "scidocs", "mteb").pairs.equals(read(raw, "scidocs", "mteb").pairs)


def test_no_data_behind_a_sound_footer_is_named(raw: Path, tmp_path: Path):
    path = tmp_path / "test.parquet"
    content = (raw / "esci_rerank_us-v1/us/test-00000-of-00001.parquet").read_bytes()
    path.write_bytes(content[:4] + bytes(200) + content[204:])
    with pytest.raises(BadInput, match=r"test\.parquet is not a whole parquet file"):
        load_file(path, COLUMNS)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"query": "a", "positive": "b", "negative": []}, r"Couldn't cast array of type string"),
        ({"query": "a", "positive": [], "negative": [], "more": 1}, r"more: int64 .*column names don't match"),
    ],
)
def test_lines_of_other_columns_are_named(tmp_path: Path, row: dict[str, Any], says: str):
    path = tmp_path / "test.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(row).encode()))
    with pytest.raises(
        BadInput, match=rf"test\.jsonl\.gz is not one JSON object per line with query, positive, negative .*{says}"
    ):
        load_file(path, COLUMNS)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_as_that_and_by_its_folder(
    raw: Path, monkeypatch: pytest.MonkeyPatch, number: int, tmp_path: Path
):
    library = hub_library()

    def no_room(*_: Any, **__: Any) -> None:
        raise library.exceptions.DatasetGenerationError("failed") from OSError(number, "no room")

    monkeypatch.setattr(library, "load_dataset", no_room)
    readers: list[Callable[[], Any]] = [
        lambda: load_file(raw / "esci_rerank_us-v1/us/test-00000-of-00001.parquet", COLUMNS),
        lambda: load_repository(raw / "esci_rerank_us-v1", "mteb/esci", "us"),
    ]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = rf"train: no room is left on the disk \(.*TMPDIR.*{re.escape(str(tmp_path))}.*make room"
    for reader in readers:
        with pytest.raises(SystemExit, match=said), in_a_sentence("train"):
            reader()


def test_what_stops_the_library_from_writing_is_no_corrupt_file(tmp_path: Path):
    path = tmp_path / "test.parquet"
    MANY_ROWS.write_parquet(path)
    hub_library()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as failed:
            load_file(path, COLUMNS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.errno == errno.EFBIG


def test_reading_asks_nobody_on_the_network_and_leaves_nothing_behind(raw: Path, tmp_path: Path):
    code = (
        "from pathlib import Path; from tasks.datasets import DATASETS; import sys\n"
        "for name in ('scidocs-mteb', 'esci_rerank_us-v1'):\n"
        "    DATASETS[name.partition('-')[0]].read(Path(sys.argv[1]) / name, {})\n"
    )
    report, home = tmp_path / "calls", tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))}
    own = {"GUARD_REPORT": str(report), "HOME": str(home), "TMPDIR": str(home)}
    own["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "guard")])
    done = subprocess.run(
        [sys.executable, "-c", code, str(raw)], env={**kept, **own}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not report.exists()
    assert not list(home.iterdir())


# What others train on --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def params() -> Params:
    return load_params(ROOT / "params.yaml")


@pytest.mark.parametrize(("name", "origin"), ALL)
def test_a_large_folder_has_every_label_in_every_split(tmp_path: Path, params: Params, name: str, origin: str):
    write_large(name, origin, tmp_path / f"{name}-{origin}")
    entry = params.dataset(name)
    for preset in ("clean", "paper_guess"):
        chosen = entry.presets[preset]
        frame = read(tmp_path, name, origin, **chosen.options).pairs
        assert len(frame) >= 600
        shares = {"train": 0.6, "validation": 0.2, "test": 0.2}
        if frame["split"].null_count() < len(frame) or chosen.split.test:
            shares = chosen.split.shares
        drawn = draw_splits(frame, by=chosen.split.by, shares=shares, seed=0)
        cells = drawn.group_by("split", "label").len()
        assert len(cells) == 3 * DATASETS[name].n_labels
        assert cells["len"].min() >= 3


def test_the_same_writer_gives_the_same_bytes(tmp_path: Path):
    for name, origin in ALL:
        for folder in ("first", "second"):
            LAYOUTS[name, origin](tmp_path / folder / f"{name}-{origin}", queries=4)
    first, second = (
        {path.relative_to(tmp_path / folder): path.read_bytes() for path in (tmp_path / folder).rglob("*.*")}
        for folder in ("first", "second")
    )
    assert first == second


def test_labels_of_a_large_folder_can_be_learnt_but_not_by_heart(tmp_path: Path):
    write_large("wands", "github", tmp_path / "wands-github")
    frame = read(tmp_path, "wands", "github").pairs
    made = frame.filter(pl.col("candidate").str.contains(" number "))
    told = made["candidate"].str.split(" ").list.first()
    honest = (told == pl.Series(["gravel", "clover", "walnut"]).gather(made["label"])).mean()
    assert 0.75 < honest < 0.9
