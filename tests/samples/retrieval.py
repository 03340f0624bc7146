"""Raw folders of the reranking sets in MTEB's second layout and in that of BEIR."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from samples.lists import Rows, alloprof_rows, esci_rerank_parts, scidocs_rows, write_card, write_json_lines
from samples.made_up import asked, texts_schema


def write_retrieval(folder: Path, parts: dict[str, Rows], prefix: str = "", named: str = "id") -> None:
    """Each part's rows as the official converter writes them: ids that hold labels, one document for each pair.

    `named`: what the column of ids is called, `id` or `_id`. In each part the first candidate list has a document
    more than was judged, and the last lacks one that was.
    """
    places = {kind: f"{prefix}{kind}" for kind in ("corpus", "queries", "top_ranked")}
    places["judged"] = f"{prefix}qrels" if prefix else "data"
    configs = {
        "default" if place == "data" else place: {part: f"{place}/{part}-*" for part in parts}
        for place in places.values()
    }
    write_card(folder, configs)
    for part, rows in parts.items():
        both = [row for row in rows if row[1] and row[2]]
        corpus = [(f"negative_{part}_extra", "", "Never judged")]
        queries, judged, ranked = [], [], []
        for number, (query, *lists) in enumerate(both):
            asked_for = f"{part}_query{number}"
            queries.append((asked_for, query))
            ids = []
            for kind, score, texts in zip(("apositive", "negative"), (1, 0), lists, strict=True):
                for place, text in enumerate(texts):
                    ids.append(f"{kind}_{asked_for}_{place:05}")
                    corpus.append((ids[-1], "", text))
                    judged.append((asked_for, ids[-1], score))
            ranked.append((asked_for, ids))
        ranked[0][1].append(corpus[0][0])
        ranked[-1][1].pop()
        frames = {
            "corpus": pl.DataFrame(corpus, schema=texts_schema(named, "title", "text"), orient="row"),
            "queries": pl.DataFrame(queries, schema=texts_schema(named, "text"), orient="row"),
            "judged": pl.DataFrame(judged, schema=["query-id", "corpus-id", "score"], orient="row"),
            "top_ranked": pl.DataFrame(ranked, schema=["query-id", "corpus-ids"], orient="row"),
        }
        for kind, frame in frames.items():
            path = folder / places[kind] / f"{part}-00000-of-00001.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(path)


def write_alloprof_c(folder: Path, queries: int = 0) -> None:
    texts, train, test = alloprof_rows(queries)
    named = [(query, [texts[i] for i in good], [texts[i] for i in bad]) for query, good, bad in test + train]
    write_retrieval(folder, {"test": named})


def write_esci_rerank_2(folder: Path, queries: int = 0, *, train: bool = True) -> None:
    learnt, tested = esci_rerank_parts(queries)
    parts = {"train": learnt} if train else {}
    write_retrieval(folder, {**parts, "test": tested}, prefix="us-", named="_id")


def write_scidocs_2(folder: Path, queries: int = 0) -> None:
    write_retrieval(folder, dict(zip(("validation", "test"), scidocs_rows(queries), strict=True)))


def write_beir(folder: Path, queries: int = 0) -> None:
    home = folder / "scidocs"
    (home / "qrels").mkdir(parents=True)
    about = {"authors": ["1"], "year": 2010, "cited_by": [], "references": ["2", "3"]}
    corpus = [
        {"_id": "a0", "title": "On wings", "text": "Birds & bees: a «study».", "metadata": about},
        {"_id": "a1", "title": "On heat", "text": "", "metadata": {**about, "year": None}},
        {"_id": "a2", "title": "", "text": "Without a title.", "metadata": about},
        {"_id": "a3", "title": "Never judged", "text": "x", "metadata": about},
    ]
    judged = [("q0", "a0", 1), ("q0", "a1", 0), ("q0", "a2", 0), ("q1", "a1", 1), ("q1", "a0", 0)]
    wanted = [("q0", "flight"), ("q1", "warmth"), ("q9", "not in the test")]
    for number, one in enumerate(asked(queries, labels=2)):
        wanted.append((f"made{number}", one.text))
        for place, (text, label) in enumerate(one.candidates):
            document = f"{number:05}b{place}"
            corpus.append({"_id": document, "title": text, "text": "", "metadata": about})
            judged.append((f"made{number}", document, label))
    write_json_lines(home / "corpus.jsonl", corpus)
    rows = [{"_id": name, "text": text, "metadata": about} for name, text in wanted]
    write_json_lines(home / "queries.jsonl", rows)
    table = pl.DataFrame(judged, schema=["query-id", "corpus-id", "score"], orient="row")
    table.write_csv(home / "qrels" / "test.tsv", separator="\t")
