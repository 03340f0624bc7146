"""The layout of BEIR: `<name>/{corpus,queries}.jsonl`, and the judgements in `<name>/qrels/test.tsv`.

The text of a document is its title and its abstract. A score of 0 is a judgement, not the lack of one.
"""

from __future__ import annotations

from pathlib import Path

from tasks.datasets.base import Judged
from tasks.datasets.lists import ListOptions, list_pairs
from tasks.datasets.raw import ROW, label_codes, located_one, read_json_lines, read_table
from tasks.datasets.retrieval import id_and_text, judged_counts, judged_pairs, with_texts

JUDGED = ("query-id", "corpus-id", "score")


def read_beir(folder: Path, name: str, options: ListOptions) -> Judged:
    """One row for each judgement; the split of every query is left open."""
    corpus_path, queries_path = (located_one(folder, f"{name}/{kind}.jsonl") for kind in ("corpus", "queries"))
    path = located_one(folder, f"{name}/qrels/test.tsv")
    corpus = id_and_text(read_json_lines(corpus_path, dict.fromkeys(("_id", "title", "text"), "text")), corpus_path)
    queries = id_and_text(read_json_lines(queries_path, dict.fromkeys(("_id", "text"), "text")), queries_path)
    judged = read_table(path, JUDGED, "\t")
    score = label_codes(judged, "score", {"0": 0, "1": 1}, path)
    found = with_texts(judged.select(ROW, "query-id", "corpus-id", score), queries, corpus, path)
    counts = {**judged_counts(found), "documents": len(corpus)}
    return list_pairs([judged_pairs(found, "test", None)], name, options, counts)
