"""Runs and relevance judgments (qrels) of TREC, which are joined into rows with a score, a label and a query.

A line of a run has six fields: query, Q0, document, rank, score, tag. A line of judgments has four: query, iteration,
document, grade. Fields are separated by any number of spaces and tabs; files may be gzipped. As in trec_eval, documents
are ordered by their scores, not by their ranks, and a negative grade means that the document was not judged. Ranks are
read only to find runs whose lowest scores are the best, or whose columns are in another order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from relmap.errors import InputError, assignment, assignments, labels_to_paste, option
from relmap.io.column_layout import DEFAULT_READING, PREDICTION_FIELDS, Reading, TrecFiles
from relmap.io.columns import are_whole_numbers, join_names
from relmap.io.contents import check_content
from relmap.io.files import FORMATS, format_suffix
from relmap.io.frames import FramePredictions
from relmap.io.text import open_bytes
from relmap.io.unlabelled import describe_omitted_scores

RUN_FIELDS = ("query", "Q0", "document", "rank", "score", "tag")
QRELS_FIELDS = ("query", "iteration", "document", "grade")
FIELDS_OF_QRELS = "the columns query, iteration, document and grade in this order"
KEY = ["query", "document"]
QUERY = "query"
LABELS = ("irrelevant", "relevant")
BLOCK_CHARACTERS = 2**24  # read at once
MAX_LISTED_GRADES = 8
MAX_CONTRADICTING_SHARE = 0.5  # of the queries, in which the first document has a lower score than the last
MAX_LINE_BYTES = 2**16  # of the first line, which shows whether a file is a run


@dataclass(frozen=True, eq=False)
class Judgments:
    """Which retrieved documents of a run are judged, and how the grades are used.

    Attributes:
        qrels: File of the judgments.
        relevant_from: Lowest relevant grade; None if grades are the labels.
        unjudged: What happens to documents without a judgment: `omit` or `irrelevant`.
        score: Score of each retrieved document, shape (n,).
        is_judged: Whether each of them has a judgment, shape (n,), bool.
    """

    qrels: Path
    relevant_from: int | None
    unjudged: str
    score: np.ndarray
    is_judged: np.ndarray

    def to_dict(self) -> dict[str, object]:
        """Convert for JSON.

        Returns:
            Name of the file, the two choices, and the numbers of retrieved documents and of those without a judgment.
        """
        return {
            "qrels": self.qrels.name,
            "relevant_from": self.relevant_from,
            "unjudged": self.unjudged,
            "n_retrieved": len(self.score),
            "n_unjudged": int((~self.is_judged).sum()),
        }

    def describe_unjudged(self, at_least: Sequence[float], below: Sequence[float]) -> list[str]:
        """Describe how many retrieved documents on one side of each threshold have no judgment.

        Args:
            at_least: Thresholds whose guarantee is for documents at or above them.
            below: Thresholds whose guarantee is for documents below them.

        Returns:
            A sentence; empty if all documents are judged or there is no threshold.
        """
        if self.is_judged.all():
            return []
        sides = [(f"at or above {threshold:g}", self.score >= threshold) for threshold in dict.fromkeys(at_least)]
        sides += [(f"below {threshold:g}", self.score < threshold) for threshold in dict.fromkeys(below)]
        parts = [
            f"{(is_on_side & ~self.is_judged).sum():,} of {is_on_side.sum():,} {side}" for side, is_on_side in sides
        ]
        return [f"Retrieved documents without a judgment: {', '.join(parts)}."] if parts else []


class JudgedRun(NamedTuple):
    """Retrieved documents with their judgments.

    Attributes:
        rows: Columns query, document, score, grade and label, ordered by query and document.
        notes: Sentences for the user, such as on documents that nobody judged.
        judgments: Which documents are judged, and how the grades are used.
    """

    rows: FramePredictions
    notes: list[str]
    judgments: Judgments


def read_judged_run(files: TrecFiles, reading: Reading = DEFAULT_READING, *, all_grades: bool = False) -> JudgedRun:
    """Join a run with its judgments; the order of the lines does not matter.

    Args:
        files: The run and its judgments.
        reading: Names of the columns to read. If it names no predictions, `score` is read, and with two labels
            `relevant` is the positive one.
        all_grades: Whether grades are the labels if `files.relevant_from` is not given and there are other grades than
            0 and 1. Otherwise this is an error.

    Returns:
        The rows. Labels are `irrelevant` and `relevant`, or grades (int64).

    Raises:
        InputError: A file is missing or has an invalid line, a document has two values for a query, no document of the
            run is judged, or it is not known which grades are relevant.
    """
    if files.run is None or files.qrels is None:
        raise InputError(f"a run needs relevance judgments; give {assignments({'run': 'RUN', 'qrels': 'QRELS'})}")
    run = read_run(files.run)
    qrels = read_qrels(files.qrels)
    rows = run.join(qrels.filter(pl.col("grade") >= 0), on=KEY, how="left").sort(KEY)
    if rows["grade"].null_count() == len(rows):
        raise InputError(
            f"{files.qrels} has no judgment of a document of {files.run}: the run begins with query {run[QUERY][0]!r} "
            f"and document {run['document'][0]!r}, the judgments with query {qrels[QUERY][0]!r} and document "
            f"{qrels['document'][0]!r}; give the judgments of these queries and documents, with {FIELDS_OF_QRELS}"
        )
    is_judged = rows["grade"].is_not_null()
    labelled = rows.drop_nulls("grade") if files.unjudged == "omit" else rows.with_columns(pl.col("grade").fill_null(0))
    relevant_from = _find_relevant_from(files, labelled["grade"], all_grades=all_grades)
    notes = _describe_unjudged(files, rows, is_judged, qrels)
    notes += _describe_relevant(files, labelled, qrels, relevant_from)
    label = pl.col("grade")
    if relevant_from is not None:
        label = pl.when(label >= relevant_from).then(pl.lit(LABELS[1])).otherwise(pl.lit(LABELS[0]))
    predictions = _as_predictions(labelled.with_columns(label=label), files.run, reading)
    if predictions.reading.positive is None and relevant_from is not None:
        reading = replace(predictions.reading, positive=LABELS[1])
        predictions = replace(predictions, reading=reading)
    judgments = Judgments(
        qrels=files.qrels,
        relevant_from=relevant_from,
        unjudged=files.unjudged,
        score=rows["score"].to_numpy(),
        is_judged=is_judged.to_numpy(),
    )
    return JudgedRun(predictions, notes, judgments)


def is_run(path: Path) -> bool:
    """Return whether a file is a run: it has no suffix of another format, and its first line has the fields of a run.

    Args:
        path: The file; False if it does not exist.
    """
    if format_suffix(path) in FORMATS or not path.is_file():
        return False
    with open_bytes(path) as handle:
        fields = handle.readline(MAX_LINE_BYTES).split()
    return len(fields) == len(RUN_FIELDS) and fields[1] == b"Q0"


def open_run(path: Path, reading: Reading = DEFAULT_READING) -> FramePredictions:
    """Read a run without judgments, to score its documents with a map.

    Args:
        path: The file.
        reading: Names of the columns to read. If it names no predictions, `score` is read.

    Returns:
        Columns query, document and score, in the order of the lines.

    Raises:
        InputError: The file is missing, a line is invalid, or a document has two scores for a query.
    """
    return _as_predictions(read_run(path), path, reading)


def _as_predictions(rows: pl.DataFrame, path: Path, reading: Reading) -> FramePredictions:
    """Return rows as predictions, whose score is read if the reading names no predictions."""
    if all(getattr(reading, name) is None for name in PREDICTION_FIELDS):
        reading = replace(reading, score="score")
    return replace(FramePredictions.from_frame(rows), path=path, reading=reading, is_run=True)


def read_run(path: Path) -> pl.DataFrame:
    """Read a run; a line that occurs twice counts once.

    Args:
        path: The file.

    Returns:
        Columns query and document (text) and score (float64), in the order of the lines.

    Raises:
        InputError: The file is missing, a line is invalid, a document has two scores for a query, or ranks contradict
            scores in most queries.
    """
    rows = _read_file(path, "run", RUN_FIELDS, "score", pl.Float64, "a finite number")
    _check_ranks(path, rows)
    return rows.select(*KEY, "score")


def read_qrels(path: Path) -> pl.DataFrame:
    """Read relevance judgments; a line that occurs twice counts once.

    Args:
        path: The file.

    Returns:
        Columns query and document (text) and grade (int64), in the order of the lines.

    Raises:
        InputError: The file is missing, a line is invalid, or a document has two grades for a query.
    """
    return _read_file(path, "file of judgments", QRELS_FIELDS, "grade", pl.Int64, "a whole number").select(
        *KEY, "grade"
    )


def check_grade_order(labels: Sequence[str] | None) -> None:
    """Check that the names of grades are in ascending order, since grades of judgments are ordered numbers.

    Args:
        labels: Names of the labels in the given order; None or names that are no numbers are not checked.

    Raises:
        InputError: The names are numbers in another order.
    """
    if labels is None or not are_whole_numbers(labels):
        return
    ascending = sorted(labels, key=int)
    if list(labels) != ascending:
        raise InputError(
            f"{option('labels')} is {','.join(labels)}, but grades of judgments are in ascending order: give "
            f"{labels_to_paste(ascending)}, or omit {option('labels')}. If a lower score is better, change the sign of "
            "the score in the run"
        )


def _check_ranks(path: Path, rows: pl.DataFrame) -> None:
    """Raise InputError if ranks contradict scores in most queries, or if the two columns seem to be exchanged."""
    ranked = rows.select(QUERY, "score", rank=pl.col("rank").cast(pl.Float64, strict=False)).drop_nulls()
    rank = ranked["rank"]
    score = ranked["score"]
    if not _are_whole(rank) and _are_whole(score) and bool((score >= 0).all()):
        raise InputError(
            f"{path}: scores are whole numbers and ranks are not, as if the two columns were exchanged: the first line "
            f"has rank {rows['rank'][0]} and score {rows['score'][0]:g}; give the columns {join_names(RUN_FIELDS)} in "
            "this order"
        )
    ends = ranked.group_by(QUERY).agg(
        first=pl.col("score").filter(pl.col("rank") == pl.col("rank").min()).max(),
        last=pl.col("score").filter(pl.col("rank") == pl.col("rank").max()).min(),
        n_ranks=pl.col("rank").n_unique(),
    )
    compared = ends.filter(pl.col("n_ranks") > 1)
    n_contradicting = int((compared["first"] < compared["last"]).sum())
    if n_contradicting > MAX_CONTRADICTING_SHARE * len(compared):
        raise InputError(
            f"{path}: in {n_contradicting:,} of {len(compared):,} queries, the document of the first rank has a lower "
            "score than that of the last rank. If a lower score is better, change the sign of the score. Otherwise "
            "correct the ranks; they are not needed, and 0 in each line is accepted"
        )


def _are_whole(numbers: pl.Series) -> bool:
    """Return whether all numbers are whole."""
    return bool((numbers == numbers.round()).all())


def _read_file(
    path: Path, kind: str, fields: tuple[str, ...], value: str, dtype: type[pl.DataType], expected: str
) -> pl.DataFrame:
    """Read all fields of each line, of which `value` is a number; `kind` and `expected` are for messages."""
    advice = f"give a {kind} of TREC, with lines of {join_names(fields)}"
    check_content(path, advice)
    blocks = []
    n_lines = 0
    try:
        with open_bytes(path) as handle, TextIOWrapper(handle, "utf-8-sig") as text:
            for lines in iter(lambda: text.readlines(BLOCK_CHARACTERS), []):
                blocks.append(_split_lines(path, lines, n_lines + 1, fields, advice))
                n_lines += len(lines)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason}); {advice}") from None
    rows = pl.concat(blocks)
    number = rows[value].cast(dtype, strict=False)
    is_invalid = ~number.is_finite().fill_null(value=False)
    _reject(path, rows, is_invalid, lambda row: f"{value} is {rows[value][row]!r}; it must be {expected}")
    distinct = rows.with_columns(number).unique([*KEY, value], keep="first", maintain_order=True)
    is_repeated = ~distinct.select(pl.struct(KEY).is_first_distinct()).to_series()

    def describe(row: int) -> str:
        document, query = distinct["document"][row], distinct[QUERY][row]
        remedy = "keep one of the lines"
        if "iteration" in fields and distinct["iteration"].n_unique() > distinct["document"].n_unique():
            remedy = f"columns 2 and 3 seem to be exchanged: give {FIELDS_OF_QRELS}"
        return f"document {document!r} has another {value} for query {query!r} in an earlier line; {remedy}"

    _reject(path, distinct, is_repeated, describe)
    return distinct


def _split_lines(path: Path, lines: list[str], first: int, fields: tuple[str, ...], advice: str) -> pl.DataFrame:
    """Split lines into fields; a column `line` has the number of each line, from `first`. Blank lines are omitted."""
    split = pl.DataFrame({"text": lines}).with_row_index("line", offset=first)
    split = split.with_columns(parts=pl.col("text").str.extract_all(r"\S+")).filter(pl.col("parts").list.len() > 0)
    n_fields = split["parts"].list.len()
    _reject(path, split, n_fields != len(fields), lambda row: f"there are {n_fields[row]} fields; {advice}")
    return split.select("line", *(pl.col("parts").list.get(k).alias(name) for k, name in enumerate(fields)))


def _reject(path: Path, rows: pl.DataFrame, is_invalid: pl.Series, describe: Callable[[int], str]) -> None:
    """Raise InputError if a row is invalid; the message names the line of the first one."""
    invalid = is_invalid.arg_true()
    if len(invalid):
        row = int(invalid[0])
        raise InputError(f"{path}, line {rows['line'][row]}: {describe(row)}")


def _find_relevant_from(files: TrecFiles, grades: pl.Series, *, all_grades: bool) -> int | None:
    """Return the lowest relevant grade; None if grades are the labels."""
    counts = grades.value_counts().sort("grade")
    lowest, highest = counts["grade"][0], counts["grade"][-1]
    shown = [f"{grade} ({count:,})" for grade, count in counts.head(MAX_LISTED_GRADES).rows()]
    if files.relevant_from is None and lowest == highest:
        raise InputError(f"{files.qrels}: {_describe_one_grade(files, lowest)}")
    if files.relevant_from is None and highest > 1:
        if all_grades:
            return None
        example = assignment("relevant_from", 2)
        raise InputError(
            f"{files.qrels}: retrieved documents have the grades {join_names(shown)}; give the lowest relevant grade, "
            f"such as {example}"
        )
    relevant_from = 1 if files.relevant_from is None else files.relevant_from
    if lowest < relevant_from <= highest:
        return relevant_from
    remedy = f"give {option('relevant_from')} above {lowest} and up to {highest}"
    if lowest == highest:
        remedy = _advise_on_one_grade(files)
    raise InputError(
        f"{files.qrels}: with {assignment('relevant_from', relevant_from)}, all judged documents of the run are of one "
        f"kind; their grades are {join_names(shown)}; {remedy}"
    )


def _describe_one_grade(files: TrecFiles, grade: int) -> str:
    """Describe judgments that have the same grade, as if the column of the iteration were read."""
    found = f"all judged documents of the run have the grade {grade}"
    question = "" if grade else f"; the grade is column 4 of {join_names(QRELS_FIELDS)}"
    return f"{found}{question}; {_advise_on_one_grade(files)}"


def _advise_on_one_grade(files: TrecFiles) -> str:
    remedy = "give judgments of relevant and irrelevant documents"
    if files.unjudged == "omit":
        remedy += f", or {assignment('unjudged', 'irrelevant')} to count the documents without a judgment"
    return remedy


def _describe_unjudged(files: TrecFiles, rows: pl.DataFrame, is_judged: pl.Series, qrels: pl.DataFrame) -> list[str]:
    """Describe how many retrieved documents have no judgment, what happens to them, and whether scores differ."""
    n_unjudged = len(rows) - int(is_judged.sum())
    if not n_unjudged:
        return []
    found = f"{n_unjudged:,} of {len(rows):,} retrieved documents ({n_unjudged / len(rows):.1%}) have no judgment and"
    details = ""
    n_queries = rows[QUERY].n_unique() - rows.filter(is_judged)[QUERY].n_unique()
    if n_queries:
        details += f" Queries without a judgment: {n_queries:,}."
    n_negative = len(rows.join(qrels.filter(pl.col("grade") < 0), on=KEY, how="semi"))
    if n_negative:
        details += f" Documents with a negative grade, which means not judged: {n_negative:,}."
    if files.unjudged == "irrelevant":
        return [f"{found} count as irrelevant.{details}"]
    choice = assignment("unjudged", "irrelevant")
    omitted = f"{found} are omitted; {choice} counts them as irrelevant.{details}"
    score = rows["score"].to_numpy()
    judged = is_judged.to_numpy()
    differences = describe_omitted_scores(score[~judged], score[judged])
    return [omitted, *(differences or ["Results hold for judged documents only."])]


def _describe_relevant(
    files: TrecFiles, labelled: pl.DataFrame, qrels: pl.DataFrame, relevant_from: int | None
) -> list[str]:
    """Describe the numbers of documents by grade or relevance, and how many relevant ones the run does not have."""
    if relevant_from is None:
        lowest = 1
        kind = f"documents of grade {lowest} or more"
        counts = labelled["grade"].value_counts().sort("grade").rows()
        notes = [f"Documents by grade: {join_names([f'{grade} ({count:,})' for grade, count in counts])}."]
    else:
        lowest = relevant_from
        kind = "relevant documents"
        n_relevant = int((labelled["grade"] >= lowest).sum())
        notes = [f"{n_relevant:,} of {len(labelled):,} documents are relevant (grade {lowest} or more)."]
    relevant = qrels.filter(pl.col("grade") >= lowest).join(labelled, on=QUERY, how="semi")
    n_missing = len(relevant.join(labelled, on=KEY, how="anti"))
    if n_missing:
        notes.append(
            f"{n_missing:,} of {len(relevant):,} {kind} of these queries are not in {files.run}: a recall "
            "counts retrieved documents only."
        )
    return notes
