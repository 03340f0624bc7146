"""Names, units and contents of the columns of a file of predictions.

By default, the predictions are in `logits` or in `probabilities` (a list of K numbers in one column, or columns
`logits_0` ... `logits_K-1`), in `decision` and `confidence`, or only in `decision`. If there are logits and a column
`decision`, this column is the fixed decision; without the column, the decision is the first of the labels with the
largest logit. `label` is the true label, if it is known. A `Reading` states other names, or the column with the
probability or score of one of two labels.
"""

import csv
import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from relmap.errors import InputError, assignment, assignments, option

if TYPE_CHECKING:  # relmap.decisions imports NumPy, which `relmap --help` does not need
    from relmap.decisions import MapInput

COMMON_COLUMN_NAMES = {  # field of a Reading -> names that such columns often have
    "label": ("truth", "target", "gold", "true_label", "ground_truth", "y_true", "y", "relevance"),
    "decision": ("prediction", "predicted", "pred", "y_pred", "answer", "verdict"),
    "confidence": ("conf", "certainty", "sure", "how_sure"),
    "probabilities": ("probs", "softmax"),
    "probability": ("probability", "prob", "proba", "p", "y_prob"),
    "score": ("score", "relevance_score"),
}
N_RUN_FIELDS = 6  # of a line of a run of TREC; the second is Q0
WEIGHT_COLUMN = "inverse_probability"  # written by `label`
Kind = Literal["logits", "probabilities", "probability", "score", "confidence_only", "decision_only"]
LOGIT_COLUMNS = "logits or probabilities (a list in one column, or columns logits_0, logits_1, ...)"
PREDICTION_FIELDS = ("confidence", "logits", "probabilities", "probability", "score")  # at most one is given
DEFAULT_COLUMNS = ("label", "decision", "id", "confidence", "logits", "probabilities")  # read without an option
COLUMN_FIELDS = ("label", "decision", "id", *PREDICTION_FIELDS)  # name columns; logits and probabilities also prefixes
UNJUDGED_CHOICES = ("omit", "irrelevant")  # what happens to documents without a judgment
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
NUMBER_UP_TO_1 = re.compile(r"\s*(0?\.\d+|[01](\.0*)?)\s*")


class PredictionColumns(NamedTuple):
    """Columns that contain predictions.

    Attributes:
        kind: What the columns contain.
        columns: One column of lists, K columns of numbers, one column of numbers, or none.
    """

    kind: Kind
    columns: tuple[str, ...]


class Requirement(NamedTuple):
    """Columns that an input needs.

    Attributes:
        columns: Phrase that names the columns.
        fields: Fields of a Reading that can name such columns.
    """

    columns: str
    fields: tuple[str, ...]


REQUIREMENTS: dict[str | None, Requirement] = {  # by the input of a map; None for any input
    "logits": Requirement(LOGIT_COLUMNS, ("probabilities", "probability", "score")),
    "confidence_only": Requirement("decision and confidence", ("decision", "confidence")),
    "decision_only": Requirement("decision", ("decision",)),
    None: Requirement(
        f"{LOGIT_COLUMNS}, or decision and confidence, or only decision",
        tuple(field for field in COMMON_COLUMN_NAMES if field != "label"),
    ),
}


@dataclass(frozen=True)
class Reading:
    """Names and units of the columns of a file; each field is an option of the commands, with its help."""

    label: Annotated[str | None, "Column with the true label."] = None
    decision: Annotated[str | None, "Column with the label that the model predicts."] = None
    confidence: Annotated[str | None, "Column with the confidence of the decision."] = None
    confidence_words: Annotated[
        str | None, "Number in [0, 1] for each word of a verbal confidence: low=.3,medium=.6,high=.9"
    ] = None
    percent: Annotated[bool, "Confidences or probabilities are in percent, from 0 to 100."] = False
    logits: Annotated[
        str | None,
        "Column with lists of logits, or prefix of columns PREFIX_0, PREFIX_1, ..., or columns in the order of the "
        "labels.",
    ] = None
    probabilities: Annotated[
        str | None,
        "Column with lists of probabilities, or prefix of columns PREFIX_0, PREFIX_1, ..., or columns in the order of "
        "the labels.",
    ] = None
    probability: Annotated[str | None, "Column with the probability of one of two labels."] = None
    score: Annotated[
        str | None,
        "Column with the scores of a ranker; scores above --border decide for the positive label, or for a higher "
        "grade (default for a run: score).",
    ] = None
    border: Annotated[
        str | float | None,
        "Score above which the positive label is decided; a row exactly at the border gets the other label. For more "
        "than two labels in ascending order, a border for each but the lowest, such as 0.5,1.5,2.5 (default of fit: "
        "each label is decided as often as it is the true label).",
    ] = None
    positive: Annotated[str | None, "Label that --probability or --score refers to (default: the second)."] = None
    id: Annotated[str | None, "Column that identifies fit rows later, if predictions repeat (default: id)."] = None
    drop_unlabelled: Annotated[bool, "Omit rows without a label."] = False

    def __post_init__(self) -> None:
        given = [name for name in PREDICTION_FIELDS if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(option(name) for name in given)} exclude each other; give one of them")
        if self.border is not None and self.score is None:
            example = assignments({"score": "COLUMN", "border": 0})
            raise InputError(
                f"{option('border')} needs {option('score')}: {example} decides for the positive label if "
                "the score is above 0"
            )
        borders = self.borders
        if len(borders) == 1:  # an option is text
            object.__setattr__(self, "border", borders[0])
        if len(borders) > 1 and self.positive is not None:
            raise InputError(
                f"{option('positive')} is for two labels, and {option('border')} has {len(borders)} borders, for "
                f"{len(borders) + 1} labels; omit {option('positive')}"
            )
        if self.positive is not None and self.probability is None and self.score is None:
            columns = f"{option('probability')} or {option('score')}"
            raise InputError(
                f"{option('positive')} names the label of {columns}; give one of these, or omit {option('positive')}"
            )
        for field in fields(self):
            if not str(getattr(self, field.name)).isprintable():
                raise InputError(f"{option(field.name)} has unprintable characters; rename that column")
        _ = self.words  # raises an error if they are invalid

    def to_stored(self) -> dict[str, str | float | bool]:
        """Return the fields that a map remembers: those that change how a file is read.

        The omission of unlabelled rows belongs to a file, and a map stores the column of ids with its hashes of rows.
        """
        stored = {}
        for field in fields(self):
            value = getattr(self, field.name)
            is_default_column = field.name in DEFAULT_COLUMNS and value == field.name
            is_default = is_default_column or value == field.default
            if field.name not in ("drop_unlabelled", "id") and not is_default:
                stored[field.name] = value
        return stored

    def completed_by(self, stored: Mapping[str, str | float | bool]) -> "Reading":
        """Complete the given fields with those that a map remembers.

        A given field replaces the remembered one, and words of the confidence are added to the remembered ones. Fields
        of another column of predictions are not remembered if such a column is given.

        Args:
            stored: Fields that `to_stored` returned.

        Returns:
            The completed reading.

        Raises:
            InputError: A word of the confidence has another number than in the fit.
        """
        given = {}
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                given[field.name] = getattr(self, field.name)
        remembered = {name: value for name, value in stored.items() if name not in ("id", "drop_unlabelled")}
        if self.confidence_words and "confidence_words" in stored:
            given["confidence_words"] = self._add_words(str(stored["confidence_words"]))
        if self._names_other_predictions(stored):
            for name in (*PREDICTION_FIELDS, "border", "positive", "percent"):
                remembered.pop(name, None)
        return Reading(**{**remembered, **given})

    def _add_words(self, stored: str) -> str:
        """Add the words of the confidence to those of the fit; a word may not have another number.

        Returns:
            All pairs of a word and its number.

        Raises:
            InputError: A word has another number than in the fit.
        """
        fitted = Reading(confidence_words=stored).words
        if any(fitted.get(word, number) != number for word, number in self.words.items()):
            raise InputError(
                f"{option('confidence_words')} differs from that of the fit, {stored}; omit it, or fit the map again"
            )
        pairs = [stored]
        for pair in str(self.confidence_words).split(","):
            if pair and normalize_name(pair.rpartition("=")[0]) not in fitted:
                pairs.append(pair)
        return ",".join(pairs)

    def _names_other_predictions(self, stored: Mapping[str, str | float | bool]) -> bool:
        """Return whether another column of predictions is given than the one that a map remembers."""
        given = {name: getattr(self, name) for name in PREDICTION_FIELDS if getattr(self, name) is not None}
        remembered = {name: stored[name] for name in PREDICTION_FIELDS if name in stored}
        if not remembered:  # the fit read a column with the default name
            return any(column != name for name, column in given.items())
        return bool(given) and given != remembered

    @property
    def borders(self) -> tuple[float, ...]:
        """Borders of the score, not decreasing: one for each label but the lowest; empty if they are not given."""
        if self.border is None:
            return ()
        try:
            numbers = tuple(float(text) for text in str(self.border).split(","))
        except ValueError:
            numbers = (math.nan,)
        if not all(map(math.isfinite, numbers)) or list(numbers) != sorted(numbers):
            example = assignment("border", "0.5,1.5,2.5")
            raise InputError(
                f"{option('border')} is {self.border!r}; give a number, or for more than two labels numbers in "
                f"ascending order, such as {example}"
            )
        return numbers

    @property
    def words(self) -> dict[str, float]:
        """Number in [0, 1] of each word of confidence, by the word in lower case."""
        words: dict[str, float] = {}
        for pair in (self.confidence_words or "").split(","):
            if not pair:
                continue
            word, _, value = pair.rpartition("=")
            if not word or not NUMBER_UP_TO_1.fullmatch(value):
                example = assignment("confidence_words", "low=.3,medium=.6,high=.9")
                raise InputError(
                    f"{option('confidence_words')} has {pair!r}; give each word a number in [0, 1]: {example}"
                )
            key = normalize_name(word)
            if key in words:
                raise InputError(
                    f"{option('confidence_words')} is {self.confidence_words!r}; give each word once (case is ignored)"
                )
            words[key] = float(value)
        return words


DEFAULT_READING = Reading()


@dataclass(frozen=True)
class TrecFiles:
    """Files of TREC; each field is an option of the commands, with its help."""

    run: Annotated[
        Path | None,
        "Run of TREC to read instead of --predictions: lines of query, Q0, document, rank, score and tag. The query is "
        "the group.",
    ] = None
    qrels: Annotated[Path | None, "Relevance judgments of the run: lines of query, iteration, document and grade."] = (
        None
    )
    relevant_from: Annotated[
        int | None,
        "Lowest grade of a relevant document (default: 1 if all grades are 0 and 1; otherwise grades are the labels).",
    ] = None
    unjudged: Annotated[
        str, "What to do with retrieved documents without a judgment: omit them, or count them as irrelevant."
    ] = "omit"

    def __post_init__(self) -> None:
        if self.unjudged not in UNJUDGED_CHOICES:
            raise InputError(f"{option('unjudged')} is {self.unjudged!r}; give {' or '.join(UNJUDGED_CHOICES)}")
        if self.run is not None:
            return
        is_given = {
            "qrels": self.qrels is not None,
            "relevant_from": self.relevant_from is not None,
            "unjudged": self.unjudged != "omit",
        }
        for name, given in is_given.items():
            if given:
                raise InputError(f"{option(name)} is for a run of TREC; give {assignment('run', 'RUN')}, or omit it")

    def to_options(self) -> dict[str, object]:
        """Return the options that read these files, by parameter; those with their default are omitted."""
        options: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                options[field.name] = value
        return options

    @property
    def paths(self) -> list[Path]:
        """The files that are read."""
        return [path for path in (self.run, self.qrels) if path is not None]


NO_TREC_FILES = TrecFiles()


def _plain_decimal(number: float) -> str:
    """Write a number in [0, 1] without an exponent."""
    return f"{number:.15f}".rstrip("0").rstrip(".")


def words_to_text(words: Mapping[str, float]) -> str:
    """Convert the number of each word of confidence to the text that a `Reading` has.

    Args:
        words: Number in [0, 1] of each word.

    Returns:
        Such as `low=0.3,high=0.9`.

    Raises:
        InputError: A value is not a number in [0, 1].
    """
    pairs: list[str] = []
    for word, number in words.items():
        if not isinstance(number, Real) or not 0 <= float(number) <= 1:
            raise InputError(
                f"{option('confidence_words')} has {word!r}: {number!r}; give each word a number in [0, 1]"
            )
        if "," in str(word):
            raise InputError(f"{option('confidence_words')} has {word!r}; replace the comma, also in the column")
        pairs.append(f"{word}={_plain_decimal(float(number))}")
    return ",".join(pairs)


@dataclass(frozen=True)
class Layout:
    """Kind of the predictions of a file, and the names of the columns to read.

    Attributes:
        kind: Kind of predictions; `probability` refers to one of two labels, and so does a `score` with one border.
        columns: Columns of the predictions: one of lists, K of numbers, one of numbers, or none.
        decision: Column of the decision, if there is one.
        label: Column of the true label, if it is read.
        group: Column of the groups, if it is read.
        weight: Column of the weights, if it is read.
        reading: Names and units of the columns.
    """

    kind: Kind
    columns: tuple[str, ...]
    decision: str | None
    label: str | None
    group: str | None
    weight: str | None = None
    reading: Reading = DEFAULT_READING

    @property
    def is_of_one_label(self) -> bool:
        """Whether the predictions are the probability or the score of one of two labels."""
        return self.kind == "probability" or (self.kind == "score" and len(self.reading.borders) < 2)

    @property
    def all_columns(self) -> list[str]:
        """Columns of predictions, decision, label, groups and weights, as far as they are read."""
        optional = (self.decision, self.label, self.group, self.weight)
        return [*self.columns, *(name for name in optional if name is not None)]


def find_layout(
    names: Sequence[str],
    file: str,
    *,
    labelled: bool,
    group: str | None = None,
    map_input: "MapInput | None" = None,
    reading: Reading = DEFAULT_READING,
) -> Layout:
    """Find the columns of predictions, labels and groups in a file.

    Args:
        names: Columns of the file.
        file: Name of the file, for messages.
        labelled: Whether true labels are required.
        group: Column of groups, which must exist.
        map_input: Kind of input of the map. None to use the first of logits, confidence and decision for which the file
            has columns.
        reading: Names and units of the columns.

    Returns:
        The layout.

    Raises:
        InputError: Columns are missing, incompletely numbered, ambiguous, or used twice.
    """
    _check_reading(names, file, labelled, map_input, reading)
    decision = reading.decision or "decision"
    label = reading.label or "label"
    predictions = _find_predictions(names, file, map_input, reading)
    if predictions is None:
        needs_label = labelled and not reading.label
        raise InputError(_describe_missing_predictions(names, file, map_input, needs_label=needs_label))
    if group is not None:
        require_column(names, file, "group", group)
    if labelled and label not in names:
        hint = suggest_options(names, ["label"])
        raise InputError(
            f"{file} has no column {label}, which must contain the true label; it has {', '.join(names)}{hint}"
        )
    if group is not None and group in (*predictions.columns, decision, label):
        raise InputError(
            f"{file}: {group} cannot be the column of groups, since it has predictions or labels; name another column"
        )
    layout = Layout(
        kind=predictions.kind,
        columns=predictions.columns,
        decision=decision if decision in names else None,
        label=label if labelled else None,
        group=group,
        weight=WEIGHT_COLUMN if labelled and WEIGHT_COLUMN in names else None,
        reading=reading,
    )
    for name in layout.all_columns:
        if layout.all_columns.count(name) > 1:
            raise InputError(
                f"{file}: the column {name} would be read twice, such as the decision and the true label; name another "
                "column for one of them"
            )
    return layout


def require_column(names: Sequence[str], file: str, field: str, column: str) -> None:
    """Check that a column exists that an option names.

    Args:
        names: Columns of the file.
        file: Name of the file, for messages.
        field: Parameter of the option.
        column: The column.

    Raises:
        InputError: There is no such column; the message names the option, and columns with similar names.
    """
    if column not in names:
        raise InputError(
            f"{file} has no column {column}, which {option(field)} names; {_describe_columns(names, file, column)}"
            f"{_advise_level(field, column)}"
        )


def _describe_columns(names: Sequence[str], file: str, column: str) -> str:
    """List the columns of a file, those with a similar name first."""
    lower_names = [name.strip().lower() for name in names]
    similar = difflib.get_close_matches(column.strip().lower(), dict.fromkeys(lower_names), n=2)
    matches = [name for match in similar for name, lower in zip(names, lower_names, strict=True) if lower == match]
    hint = f"did you mean {' or '.join(matches)}? " if matches else ""
    return f"{hint}it has {', '.join(names) or '(none)'}{advise_header(names, file)}"


def _advise_level(field: str, column: str) -> str:
    """Advise on the option for the level of a guarantee, where its number was given as a column."""
    if field != "confidence" or not NUMBER_UP_TO_1.fullmatch(column):
        return ""
    return f"; if this is the confidence level of a guarantee, give {assignment('confidence_level', column)}"


def advise_header(names: Sequence[str], file: str = "") -> str:
    """Advise, as the end of a message, to add names of columns, if the names look like a row of data.

    Args:
        names: Columns of the file.
        file: Name of the file.

    Returns:
        The advice; empty for other names.
    """
    if file.endswith(".xlsx"):
        return (
            "; only the first sheet is read, and its first row must have a name for each column: move the sheet to the "
            "front, delete rows above the names, and separate merged cells"
        )
    fields = " ".join(names).split()
    if len(fields) == N_RUN_FIELDS and fields[1] == "Q0":
        return f"; it looks like a run of TREC: give {assignments({'run': 'RUN', 'qrels': 'QRELS'})}"
    if len(names) == 1 and len(fields) > 1:
        return (
            "; if the columns are separated by spaces, separate them by commas or tabs, below a line with their names"
        )
    if not any(NUMBER.fullmatch(name) for name in names) or are_positions(names):
        return ""
    return "; if its first line is a row of data, add a line with the names of the columns before it"


def are_positions(names: Sequence[str]) -> bool:
    """Return whether columns are named 0, 1, ..., as programs name columns without names.

    Args:
        names: Columns of a file.
    """
    return [*names] == [str(number) for number in range(len(names))]


def check_header(names: Sequence[str], file: str, reading: Reading) -> None:
    """Check that no option names a column by a number that the first row of data has.

    Args:
        names: Fields of the first line of a text file.
        file: Name of the file, for messages.
        reading: Names of the columns to read.

    Raises:
        InputError: A column to read has a number as its name, and columns are not named 0, 1, ....
    """
    for field in COLUMN_FIELDS:
        column = getattr(reading, field)
        if column in names and NUMBER.fullmatch(column) and not are_positions(names):
            raise InputError(
                f"{file}: {option(field)} names the column {column}, a number, so the first line ({', '.join(names)}) "
                "looks like a row of data; add a line with the names of the columns before it"
            )


def _require_columns_of_labels(names: Sequence[str], file: str, field: str, value: str) -> None:
    """Check that an option names a column of lists, the prefix of numbered columns, or a column for each label."""
    if value in names or any(re.fullmatch(r"_[0-9]+", name.removeprefix(value)) for name in names):
        return
    if "," in value:
        for column in split_names(field, value, "p_no,p_yes", min_names=2) or ():
            require_column(names, file, field, column)
        return
    with_prefix = [name for name in names if name.startswith(value)]
    numbered = [name for name in with_prefix if re.fullmatch(r"[_.-]?[0-9]+", name.removeprefix(value))]
    separated = [name for name in with_prefix if name.removeprefix(value)[:1] in ("_", ".", "-")]
    with_prefix = next((found for found in (numbered, separated) if len(found) > 1), with_prefix)
    if len(with_prefix) > 1:
        example = assignment(field, ",".join(with_prefix))
        raise InputError(
            f"{file} has no column {value}, which {option(field)} names, nor columns {value}_0, {value}_1, ...; it has "
            f"{', '.join(with_prefix)}: name the columns in the order of the labels, such as {example}"
        )
    require_column(names, file, field, value)


def _check_reading(
    names: Sequence[str], file: str, labelled: bool, map_input: "MapInput | None", reading: Reading
) -> None:
    """Check that the columns that a reading names exist and are read, and that a score has a border."""
    for field in COLUMN_FIELDS:
        column = getattr(reading, field)
        if column is None or (field in ("label", "id") and not labelled):
            continue
        if field in ("logits", "probabilities"):
            _require_columns_of_labels(names, file, field, column)
        else:
            require_column(names, file, field, column)
        is_read = map_input in (None, "logits") or field not in PREDICTION_FIELDS or field == "confidence"
        if not is_read:
            needed = REQUIREMENTS[map_input].columns
            raise InputError(f"{file}: {option(field)} names {column}, but the map reads {needed}; omit the option")
    if reading.score is not None and reading.border is None:
        example = assignments({"score": reading.score, "border": 0})
        targets = f"{option('precision')}, {option('recall')} or {option('npv')}"
        raise InputError(
            f"{option('score')} needs {option('border')}: {example} decides for the positive label if the "
            f"score is above 0. Only `thresholds` with {targets}, without a map, needs no {option('border')}, and "
            f"`fit` with more than two labels or with a run"
        )


def _find_predictions(
    names: Sequence[str], file: str, map_input: "MapInput | None", reading: Reading
) -> PredictionColumns | None:
    """Find the columns for `map_input`, or if it is None, for the first kind of input that has columns."""
    has_decision = (reading.decision or "decision") in names
    confidence = reading.confidence or "confidence"
    candidates: dict[MapInput, list[PredictionColumns]] = {"logits": [], "confidence_only": [], "decision_only": []}
    if reading.confidence is None:
        candidates["logits"] = _find_logit_columns(names, file, reading)
    if has_decision and confidence in names:
        candidates["confidence_only"] = [PredictionColumns("confidence_only", (confidence,))]
    if has_decision:
        candidates["decision_only"] = [PredictionColumns("decision_only", ())]
    if len(candidates["logits"]) > 1 and map_input in (None, "logits"):
        both = " and ".join(candidate.columns[0] for candidate in candidates["logits"])
        raise InputError(f"{file} contains predictions twice: {both}; drop one")
    for candidate_input, found in candidates.items():
        if found and map_input in (None, candidate_input):
            return found[0]
    return None


def _find_logit_columns(names: Sequence[str], file: str, reading: Reading) -> list[PredictionColumns]:
    """Find columns from which logits can be computed."""
    if reading.probability is not None:
        return [PredictionColumns("probability", (reading.probability,))]
    if reading.score is not None:
        return [PredictionColumns("score", (reading.score,))]
    if reading.logits or reading.probabilities:
        given_names: dict[Kind, str | None] = {"logits": reading.logits, "probabilities": reading.probabilities}
    else:
        given_names = {"logits": "logits", "probabilities": "probabilities"}
    found = []
    for kind, name in given_names.items():
        if not name:
            continue
        if name in names:
            found.append(PredictionColumns(kind, (name,)))
        elif "," in name and (reading.logits or reading.probabilities):
            found.append(PredictionColumns(kind, split_names(kind, name, "p_no,p_yes", min_names=2) or ()))
        numbered = _find_numbered_columns(names, file, name)
        if numbered:
            found.append(PredictionColumns(kind, numbered))
    return found


def _find_numbered_columns(names: Sequence[str], file: str, prefix: str) -> tuple[str, ...]:
    """Find the columns PREFIX_0, PREFIX_1, ..., one for each label; none, or at least two."""
    suffixes = [name.removeprefix(f"{prefix}_") for name in names if name.startswith(f"{prefix}_")]
    numbers = sorted(int(suffix) for suffix in suffixes if re.fullmatch(r"0|[1-9]\d*", suffix))
    columns = tuple(f"{prefix}_{number}" for number in numbers)
    if len(columns) == 1 or numbers != list(range(len(columns))):
        remedy = ""
        if prefix not in ("logits", "probabilities") and len(columns) > 1:
            remedy = f"; or name them in the order of the labels: {','.join(columns)}"
        raise InputError(
            f"{file} has the columns {', '.join(columns)}; they must be numbered 0, 1, ... without gaps, one for each "
            f"label{remedy}"
        )
    return columns


def _describe_missing_predictions(
    names: Sequence[str], file: str, map_input: "MapInput | None", *, needs_label: bool
) -> str:
    requirement = REQUIREMENTS[map_input]
    as_in_fit = "" if map_input is None else ", like the rows that the map was fitted on"
    needed_fields = (*requirement.fields, "label") if needs_label else requirement.fields
    if any(re.search(r"^ | $", name) for name in names):
        hint = "; are they separated by commas, without spaces?"
    elif advise_header(names, file):
        hint = advise_header(names, file)
    else:
        hint = suggest_options(names, needed_fields)
    columns = ", ".join(names) or "(none)"
    return f"{file} has the columns {columns}; it needs {requirement.columns}{as_in_fit}{hint}"


def suggest_options(names: Sequence[str], needed_fields: Sequence[str]) -> str:
    """Suggest, as the end of a message, options that name the columns of a file.

    Args:
        names: Columns of the file.
        needed_fields: Fields of a Reading that can name the missing columns.

    Returns:
        Options with the columns whose names are common for these fields; if there are none, with a placeholder.
    """
    values: dict[str, object] = {}
    for field in needed_fields:
        usual_names = COMMON_COLUMN_NAMES[field]
        matches = [name for name in names if name.lower() in usual_names or (name.lower() == field != name)]
        if not matches:
            continue
        if field == "score":
            values["border"] = 0
        values[field] = matches[0]
    if values:
        return f"; name yours: {assignments(values)}"
    placeholders = []
    for field in needed_fields:
        example: dict[str, object] = {"border": 0} if field == "score" else {}
        column = "COLUMN,COLUMN" if field == "probabilities" else "COLUMN"  # a column for each label
        placeholders.append(assignments({**example, field: column}))
    return f"; name yours with {' or '.join(placeholders)}"


def describe_unread_confidence(names: Sequence[str], layout: Layout, others: Iterable[str]) -> list[str]:
    """Note a column that may be the confidence where only decisions are read.

    Args:
        names: Columns of the file.
        layout: How the columns are read.
        others: Further columns that are read, such as signals.

    Returns:
        A sentence for the first such column; empty without one.
    """
    if layout.kind != "decision_only":
        return []
    usual_names = ("confidence", *COMMON_COLUMN_NAMES["confidence"])
    for name in names:
        if name.strip().lower() in usual_names and name not in (*layout.all_columns, *others):
            return [
                f"The column {name} is not read. If it is the confidence of the decision, give "
                f"{assignment('confidence', name)}."
            ]
    return []


def normalize_name(name: str) -> str:
    """Spell the name of a label, or a word of confidence, in one form, in which names are compared.

    Args:
        name: The name.

    Returns:
        The name in Unicode form NFKC, in lower case, without invisible characters, surrounding and repeated spaces, and
        zero decimals of a whole number.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", remove_invisible(name)).casefold())
    return re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", " ".join(folded.split()))


def remove_invisible(text: str) -> str:
    """Remove characters without width, such as a byte order mark or a soft hyphen.

    Args:
        text: Any text.

    Returns:
        The other characters.
    """
    if text.isascii() and text.isprintable():  # nearly every text, decided in a hundredth of the time
        return text
    return "".join(
        character for character in text if character.isspace() or unicodedata.category(character) not in ("Cc", "Cf")
    )


def split_names(name: str, value: str | None, example: str, min_names: int = 1) -> tuple[str, ...] | None:
    """Split the value of an option into names of labels or columns.

    Args:
        name: Parameter of the option.
        value: Its value: names separated by commas, as in csv; None if it is not given.
        example: A valid value, for messages.
        min_names: Minimal number of names.

    Returns:
        The names; None if the option is not given.

    Raises:
        InputError: There are fewer names, or a name is empty or repeated.
    """
    if value is None:
        return None
    lines = [value] if value.isprintable() else []  # a value with line breaks is invalid
    values = next(csv.reader(lines, skipinitialspace=True), [])
    names = tuple(field.strip() for field in values)
    if len(names) < min_names or len(set(names)) < len(names) or not all(names):
        number = f"{min_names} names or more" if min_names > 1 else "names"
        raise InputError(f"{option(name)} is {value!r}; it must give {number} on one line, each once: {example}")
    return names
