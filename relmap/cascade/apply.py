"""Route rows through a cascade: which decisions are final, which rows to send to the next model, which to a person.

Nothing is sent anywhere. A call routes as far as the predictions in the rows go: first with those of the cheapest
model, then again with those of the next model in the rows that were to be sent to it.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import scipy

from relmap.cascade.document import ADDED_COLUMNS, CascadeDocument, CascadeStep
from relmap.cascade.fit import PERSON, title_of, with_signals
from relmap.cascade.identity import identify_rows
from relmap.cascade.models import MODEL_FIELDS
from relmap.cascade.policy import NEVER, tie_breakers
from relmap.errors import InputError, naming_model
from relmap.io.column_layout import PREDICTION_FIELDS, Layout, Reading
from relmap.io.columns import is_missing_label, join_names, parse_label
from relmap.io.files import rows_in_file
from relmap.io.frames import FramePredictions
from relmap.io.rows import read_rows
from relmap.maps.document import MapDocument
from relmap.maps.score import find_map_layout, ignore_progress, score_file

USE = "use"
PREFIX_FIELDS = ("logits", "probabilities")  # whose value may be a prefix of columns
MIN_SIMILARITY = 0.8  # of the name of a column that may have been meant


@dataclass(frozen=True)
class CascadeRoutes:
    """Rows by what happens to them next.

    Attributes:
        rows: Number of rows.
        asked: Number of rows that each model, or a person, was asked to decide; rows go to a person as soon as no model
            decides them.
        decided: Number of rows whose decision is final, by the model that decided them.
        waiting: Number of rows to send, by the model or person to send them to.
        expected_accuracy: Mean reliability of the final decisions; None without final decisions.
        expected_in_the_end: Expected accuracy of all rows with the decisions of a person; None while rows wait for a
            model.
        target_accuracy: Accuracy that the thresholds were chosen for; None with a budget.
        costs: Cost of one row for each model, and for a person if one is asked.
        are_identified: Whether columns identify the rows.
        similar_columns: Columns with a name similar to those of a model that rows wait for, and that have none, by the
            column that the model reads.
    """

    rows: int
    asked: dict[str, int]
    decided: dict[str, int]
    waiting: dict[str, int]
    expected_accuracy: float | None
    expected_in_the_end: float | None
    target_accuracy: float | None
    costs: dict[str, float]
    are_identified: bool
    similar_columns: dict[str, str]

    @property
    def cost(self) -> float:
        """Cost of the rows, as far as models and people were asked."""
        return sum(count * self.costs[name] for name, count in self.asked.items())

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
            if not self.are_identified:
                lines.append(
                    "These rows are identified by their number, since they have no other columns: give all rows to the "
                    "next call, in the same order."
                )
        for column, similar in self.similar_columns.items():
            lines.append(f"There is no column {column}; if {similar} has these predictions, rename it to {column}.")
        if not self.rows:
            return ["There are no rows."]
        if PERSON in self.waiting and self.expected_in_the_end is not None:
            lines.append(
                f"Expected accuracy of all decisions, those of the person included: {self.expected_in_the_end:.1%}."
            )
        lines += self._describe_missed_target()
        return [*lines, self._describe_cost()]

    def _describe_missed_target(self) -> list[str]:
        """Explain an expected accuracy below the target."""
        expected = self.expected_in_the_end
        if expected is None or self.target_accuracy is None or expected >= self.target_accuracy:
            return []
        return [
            f"This is below the target of {100 * self.target_accuracy:.4g}%, which is guaranteed for rows like the "
            "labelled ones only. The expected accuracy is an estimate: label a random sample of these rows, and fit "
            "the cascade again if they are harder."
        ]

    def _describe_cost(self) -> str:
        """Describe the cost of the rows, and of those that wait for a model."""
        terms = [f"{count:,} x {self.costs[name]:g} ({title_of(name)})" for name, count in self.asked.items() if count]
        waits_for_model = [name for name in self.waiting if name != PERSON]
        so_far = " so far" if waits_for_model else ""
        text = f"Cost{so_far}: {' + '.join(terms) or 0} = {self.cost:,.8g}, {self.cost / self.rows:.4g} per row"
        for name in waits_for_model:
            count = self.waiting[name]
            text += f"; asking {name} adds {count:,} x {self.costs[name]:g} = {count * self.costs[name]:,.8g}"
        return f"{text}."


def apply_cascade(document: CascadeDocument, rows: FramePredictions) -> tuple[pl.DataFrame, CascadeRoutes]:
    """Route rows with the predictions of the first model, and of further models as far as they were asked.

    The columns that are added: `cascade_decision`, the name of the decided label where it is final, otherwise missing;
    `cascade_reliability`, the probability that the decision of the last model that was asked is correct; and
    `cascade_route`: `use`, or the name of the model to send the row to, or `person`. Rows with the same reliability are
    divided at random, by the columns that identify them.

    Args:
        document: The cascade.
        rows: The predictions. In rows that were not sent to a model, its predictions are missing.

    Returns:
        The added columns, and a summary.

    Raises:
        InputError: The predictions of the first model are missing, a prediction cannot be read, or a column that
            identifies the rows is missing.
    """
    frame = rows.frame
    present = [name for name in ADDED_COLUMNS if name in frame.columns]
    if present:
        raise InputError(f"{rows.path} already has the column {join_names(present)}; drop or rename it")
    n_rows = len(frame)
    n_steps = len(document.steps)
    names = [step.name for step in document.steps]
    scores: list[tuple[np.ndarray, np.ndarray]] = []
    final_decision = np.full(n_rows, -1)
    reliability = np.full(n_rows, np.nan)
    route = np.full(n_rows, names[0], dtype=object)
    decided: dict[str, int] = {}
    is_pending = np.ones(n_rows, dtype=bool)
    ties = tie_breakers(identify_rows(rows, document.identity_columns), n_steps, document.seed)
    asked: dict[str, int] = {}
    for number, step in enumerate(document.steps):
        with naming_model(step.name, MODEL_FIELDS):
            readable = _read_step(step, rows, is_pending, is_first=number == 0)
            if readable is None:
                break
            file, has_prediction = readable
            layout = find_map_layout(step.map, file)  # the signals of the map are not read yet
            decision = _read_decisions(step.map, file, layout, has_prediction, are_numbered=document.are_numbered)
            file = replace(file, frame=with_signals(file.frame, names[:number], decision, scores))
            logit = score_file(step.map, file, ignore_progress).scores["logit"].to_numpy()
        scores.append((decision, logit))
        of_step = scipy.special.expit(logit)
        threshold = NEVER if step.threshold is None else step.threshold
        is_asked = is_pending & has_prediction
        is_final = is_asked & (of_step + ties[:, number] >= threshold)
        final_decision[is_final] = decision[is_final]
        reliability[is_asked] = of_step[is_asked]
        route[is_final] = USE
        route[is_asked & ~is_final] = names[number + 1] if number + 1 < n_steps else PERSON
        asked[step.name] = int(is_asked.sum())
        decided[step.name] = int(is_final.sum())
        is_pending = is_asked & ~is_final
    added = pl.DataFrame(
        [
            _name_decisions(document, final_decision, frame),
            pl.Series(ADDED_COLUMNS[1], reliability),
            pl.Series(ADDED_COLUMNS[2], route, pl.String),
        ]
    )
    return added, _summarize(document, frame.columns, reliability, route, asked, decided)


def _summarize(
    document: CascadeDocument,
    columns: Sequence[str],
    reliability: np.ndarray,
    route: np.ndarray,
    asked: Mapping[str, int],
    decided: Mapping[str, int],
) -> CascadeRoutes:
    """Summarize the reliabilities and the routes of n rows, both of shape (n,)."""
    n_rows = len(route)
    costs = {step.name: step.cost for step in document.steps}
    waiting = {}
    for name in [*costs, PERSON]:
        count = int((route == name).sum())
        if count:
            waiting[name] = count
    n_person = waiting.get(PERSON, 0)
    is_used = route == USE
    expected_correct = float(reliability[is_used].sum())
    in_the_end = None
    if n_rows and set(waiting) <= {PERSON}:
        in_the_end = (expected_correct + n_person * document.person_accuracy) / n_rows
    all_asked = dict(asked)
    if document.person_cost is not None:
        costs[PERSON] = document.person_cost
        all_asked[PERSON] = n_person
    return CascadeRoutes(
        rows=n_rows,
        asked=all_asked,
        decided=dict(decided),
        waiting=waiting,
        expected_accuracy=expected_correct / int(is_used.sum()) if is_used.any() else None,
        expected_in_the_end=in_the_end,
        target_accuracy=document.target_accuracy,
        costs=costs,
        are_identified=bool(document.identity_columns),
        similar_columns=_find_similar_columns(document, columns, waiting),
    )


def _name_decisions(document: CascadeDocument, decision: np.ndarray, frame: pl.DataFrame) -> pl.Series:
    """Name decisions, missing for -1, in the type of the first model's column of decisions if it can hold the names."""
    names = pl.Series(ADDED_COLUMNS[0], document.label_names, dtype=pl.String)
    column = Reading(**document.steps[0].map.reading).decision or "decision"  # type: ignore[arg-type]
    dtype = frame.schema.get(column, pl.String)
    values = names
    if dtype == pl.Boolean:
        truth_values = {parse_label(text, document.label_names): text == "true" for text in ("false", "true")}
        if truth_values.keys() == {*range(len(names))}:
            values = pl.Series(names.name, [truth_values[label] for label in range(len(names))])
    elif dtype.is_numeric():
        numbers = names.cast(dtype, strict=False)
        values = names if numbers.has_nulls() else numbers
    return values.gather(pl.Series(decision).replace(-1, None))


def _find_similar_columns(
    document: CascadeDocument, columns: Sequence[str], waiting: Mapping[str, int]
) -> dict[str, str]:
    """Find columns that may hold the answers of a model that rows wait for, under another name."""
    similar = {}
    used = {*document.identity_columns}
    for step in document.steps:
        used.update(_prediction_columns(Reading(**step.map.reading)))  # type: ignore[arg-type]
    for step in document.steps:
        reading = Reading(**step.map.reading)  # type: ignore[arg-type]
        if step.name not in waiting or has_columns(reading, columns):
            continue
        names = {column.strip().lower(): column for column in columns if column not in used}
        for wanted in _prediction_columns(reading):
            matches = difflib.get_close_matches(wanted.strip().lower(), names, cutoff=MIN_SIMILARITY)
            if matches:
                similar[wanted] = names[matches[0]]
    return similar


def _prediction_columns(reading: Reading) -> list[str]:
    """Return the names, or prefixes of names, of the columns of predictions that a reading names."""
    names: list[str] = []
    for field in ("decision", *PREDICTION_FIELDS):
        value = getattr(reading, field)
        if value is not None:
            names += str(value).split(",")
    return names


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


def _read_decisions(
    document: MapDocument, file: FramePredictions, layout: Layout, has_prediction: np.ndarray, *, are_numbered: bool
) -> np.ndarray:
    """Return the decision of each row, shape (n,), where words for numbered labels are errors as in the fit.

    Rows without predictions have the decision 0, which is ignored later. They are not read: a message would name them
    in place of the row whose predictions they got.
    """
    rows = read_rows(
        file.frame.select(layout.all_columns).filter(has_prediction),
        layout,
        rows_in_file(file).without(~has_prediction),
        names=None if are_numbered else document.label_names,
        n_labels=document.n_labels,
    )
    decision = np.zeros(len(has_prediction), dtype=np.int64)
    decision[has_prediction] = rows.decision
    return decision
