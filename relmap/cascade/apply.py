"""Route rows through a cascade: which decisions are final, which rows to send to the next model, which to a person.

Nothing is sent anywhere. A call routes as far as the predictions in the rows go: first with those of the cheapest
model, then again with those of the next model in the rows that were to be sent to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import scipy

from relmap.cascade.document import CascadeDocument, CascadeStep
from relmap.cascade.fit import PERSON, name_rows, with_signals
from relmap.cascade.models import MODEL_FIELDS
from relmap.cascade.policy import NEVER, tie_breakers
from relmap.errors import InputError, naming_model
from relmap.io.column_layout import PREDICTION_FIELDS, Layout, Reading
from relmap.io.columns import is_missing_label, join_names
from relmap.io.files import rows_in_file
from relmap.io.frames import FramePredictions
from relmap.io.rows import read_rows
from relmap.maps.document import MapDocument
from relmap.maps.score import find_map_layout, ignore_progress, score_file

USE = "use"
PREFIX_FIELDS = ("logits", "probabilities")  # whose value may be a prefix of columns
ADDED_COLUMNS = ("cascade_decision", "cascade_reliability", "cascade_route")


@dataclass(frozen=True)
class CascadeRoutes:
    """Rows by what happens to them next.

    Attributes:
        rows: Number of rows.
        decided: Number of rows whose decision is final, by the model that decided them.
        waiting: Number of rows to send, by the model or person to send them to.
        expected_accuracy: Mean reliability of the final decisions; None without final decisions.
        expected_in_the_end: Expected accuracy of all rows with the decisions of a person; None while rows wait for a
            model, or none for a person.
        are_named: Whether ids or other columns name the rows.
    """

    rows: int
    decided: dict[str, int]
    waiting: dict[str, int]
    expected_accuracy: float | None
    expected_in_the_end: float | None
    are_named: bool

    def describe(self) -> list[str]:
        """Describe the routes.

        Returns:
            One sentence for final decisions, and one for the rows to send.
        """
        lines = []
        total = sum(self.decided.values())
        if self.expected_accuracy is not None:
            by_model = join_names([f"{name} decides {count:,}" for name, count in self.decided.items()])
            lines.append(
                f"{total:,} of {self.rows:,} decisions are final ({by_model}), with an expected accuracy of "
                f"{self.expected_accuracy:.1%}."
            )
        for name, count in self.waiting.items():
            if name == PERSON:
                lines.append(f"{count:,} rows go to a person.")
                continue
            lines.append(
                f"{count:,} rows go to {name}: add its predictions to these rows, then call `cascade apply` again."
            )
            if not self.are_named:
                lines.append(
                    "These rows have no ids, so rows with the same reliability are divided by their number: give all "
                    "rows to the next call, in the same order."
                )
        if self.expected_in_the_end is not None:
            lines.append(
                f"Expected accuracy of all decisions, those of the person included: {self.expected_in_the_end:.1%}."
            )
        return lines or ["There are no rows."]


def apply_cascade(document: CascadeDocument, rows: FramePredictions) -> tuple[pl.DataFrame, CascadeRoutes]:
    """Route rows with the predictions of the first model, and of further models as far as they were asked.

    The columns that are added: `cascade_decision`, the name of the decided label; `cascade_reliability`, the
    probability that it is correct; and `cascade_route`: `use`, or the name of the model to send the row to, or
    `person`. Decision and reliability are those of the last model that was asked. Rows with the same reliability are
    divided at random, by their id or, without ids, by the other columns that the rows of the fit had.

    Args:
        document: The cascade.
        rows: The predictions. In rows that were not sent to a model, its predictions are missing.

    Returns:
        The added columns, and a summary.

    Raises:
        InputError: The predictions of the first model are missing, or a prediction cannot be read.
    """
    frame = rows.frame
    present = [name for name in ADDED_COLUMNS if name in frame.columns]
    if present:
        raise InputError(f"{rows.path} already has the column {join_names(present)}; drop or rename it")
    n_rows = len(frame)
    n_steps = len(document.steps)
    names = [step.name for step in document.steps]
    scores: list[tuple[np.ndarray, np.ndarray]] = []
    final_decision = np.zeros(n_rows, dtype=np.int64)
    reliability = np.full(n_rows, np.nan)
    route = np.full(n_rows, names[0], dtype=object)
    decided: dict[str, int] = {}
    is_pending = np.ones(n_rows, dtype=bool)
    row_names = name_rows(frame, document.id_column, document.name_columns)
    ties = tie_breakers(row_names, n_steps, document.seed)
    for number, step in enumerate(document.steps):
        with naming_model(step.name, MODEL_FIELDS):
            readable = _read_step(step, rows, is_pending, is_first=number == 0)
            if readable is None:
                break
            file, has_prediction = readable
            layout = find_map_layout(step.map, file)  # the signals of the map are not read yet
            decision = _read_decisions(step.map, file, layout)
            file = replace(file, frame=with_signals(file.frame, names[:number], decision, scores))
            logit = score_file(step.map, file, ignore_progress).scores["logit"].to_numpy()
        scores.append((decision, logit))
        of_step = scipy.special.expit(logit)
        threshold = NEVER if step.threshold is None else step.threshold
        is_asked = is_pending & has_prediction
        is_final = is_asked & (of_step + ties[:, number] >= threshold)
        final_decision[is_asked] = decision[is_asked]
        reliability[is_asked] = of_step[is_asked]
        route[is_final] = USE
        route[is_asked & ~is_final] = names[number + 1] if number + 1 < n_steps else PERSON
        decided[step.name] = int(is_final.sum())
        is_pending = is_asked & ~is_final
    labels = pl.Series(ADDED_COLUMNS[0], np.array(document.label_names, dtype=object)[final_decision], dtype=pl.String)
    added = pl.DataFrame(
        [labels, pl.Series(ADDED_COLUMNS[1], reliability), pl.Series(ADDED_COLUMNS[2], route, pl.String)]
    )
    is_used = route == USE
    counts = {name: int((route == name).sum()) for name in [*names, PERSON]}
    waiting = {name: count for name, count in counts.items() if count}
    expected_correct = float(reliability[is_used].sum())
    in_the_end = None
    if set(waiting) == {PERSON}:
        in_the_end = (expected_correct + waiting[PERSON] * document.person_accuracy) / n_rows
    summary = CascadeRoutes(
        rows=n_rows,
        decided=decided,
        waiting=waiting,
        expected_accuracy=expected_correct / int(is_used.sum()) if is_used.any() else None,
        expected_in_the_end=in_the_end,
        are_named=not isinstance(row_names, range),
    )
    return added, summary


def _read_step(
    step: CascadeStep, rows: FramePredictions, is_pending: np.ndarray, *, is_first: bool
) -> tuple[FramePredictions, np.ndarray] | None:
    """Find the rows with predictions of a model.

    Rows without predictions get a copy of those of another row, and are ignored later, so that messages number rows as
    the file does.

    Returns:
        The rows, and whether each has predictions, shape (n,); None if no pending row has predictions.
    """
    reading = Reading(**step.map.reading)  # type: ignore[arg-type]
    file = replace(rows, reading=reading)
    if not is_first and not has_columns(reading, rows.frame.columns):
        return None
    layout = find_map_layout(step.map, file)
    columns = [*layout.columns, *([layout.decision] if layout.decision else [])]
    if is_first:
        return file, np.ones(len(rows.frame), dtype=bool)
    complete = np.ones(len(rows.frame), dtype=bool)
    for name in columns:
        names = step.map.label_names if name == layout.decision else None
        complete &= ~is_missing_label(rows.frame[name], names).to_numpy()
    if not (complete & is_pending).any():
        return None
    example = int(np.flatnonzero(complete)[0])
    filled = []
    for name in columns:
        column = rows.frame[name]
        filled.append(pl.Series(name, column.gather(np.where(complete, np.arange(len(column)), example))))
    return replace(file, frame=rows.frame.with_columns(filled)), complete


def has_columns(reading: Reading, columns: Sequence[str]) -> bool:
    """Return whether a file has any of the columns of predictions that a reading names.

    Args:
        reading: Names of the columns; a name may be a prefix of numbered columns or a list of columns.
        columns: Columns of the file.
    """
    for field in ("decision", *PREDICTION_FIELDS):
        value = getattr(reading, field)
        if value is None:
            continue
        for name in str(value).split(","):
            is_prefix = field in PREFIX_FIELDS and any(column.startswith(f"{name}_") for column in columns)
            if name in columns or is_prefix:
                return True
    return False


def _read_decisions(document: MapDocument, file: FramePredictions, layout: Layout) -> np.ndarray:
    """Return the decision of each row, shape (n,)."""
    rows = read_rows(
        file.frame.select(layout.all_columns),
        layout,
        rows_in_file(file),
        names=document.label_names,
        n_labels=document.n_labels,
    )
    return rows.decision
