"""Read columns as labels, numbers, probabilities or lists of numbers; errors name the row or line of the file."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from relmap.errors import InputError, assignment, labels_to_paste, option
from relmap.io.column_layout import NUMBER, Reading, normalize_name, remove_invisible
from relmap.io.text import SeparatedText

MAX_LISTED_NAMES = 10
UNKNOWN_N_LABELS = 2**31  # replaces the number of labels K where it is not known; label numbers are smaller
MAX_UNNAMED_LABELS = 1000  # labels given as numbers; larger numbers identify something else
MAX_SUGGESTED_LABELS = 50  # maximum number of names in a suggested option, where K is not known
BOOLEAN_LABELS = {"false": "0", "true": "1"}
NAMES_OF_VALUE = {  # text -> names of labels that it means, in this order, wherever these names are in their order
    "true": ("1", "yes"),
    "false": ("0", "no"),
    "yes": ("true", "1"),
    "no": ("false", "0"),
    "1": ("true", "yes"),
    "0": ("false", "no"),
}
OPPOSITE_VALUE = {"true": "false", "false": "true", "1": "0", "0": "1"}
LETTER_OF_VALUE = {"true": ("t", "y"), "1": ("t", "y"), "false": ("f", "n"), "0": ("f", "n")}
LETTER_NAMES = ({"t", "f"}, {"y", "n"})  # one of these letters alone may mean something else, such as m and f
MISSING_TEXTS = {  # how programs write a missing value, in lower case
    *("", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "nat", "none", "<none>", "null", "<null>", "nil", "\\n"),
    *("1.#qnan", "-1.#ind", "n.a.", "(null)", "[null]", "pd.na"),
}
UNJUDGED_TEXT = re.compile(  # how people write that a row has no label, or that a judge gave none; in lower case
    r"(not?|un|non)[ _-]*(judged|labell?ed|rated|annotated|assessed|scored|reviewed|answered|available|answer|label"
    r"|response|judge?ment|reply)|missing|unknown|pending|todo|tbd|skip(ped)?|blank|empty|undefined|[?.-]+|#[a-z/0]+[!?]"
    r"|errors?|failed|failure|timeout|timed out|exception|refused|refusal"
)
UNJUDGED_NUMBER = re.compile(r"-[0-9]+|9|99+")  # codes for a missing label, such as -1 and 999
ONE_LABEL = "write one label in each cell, not a list or an object"
MIN_ROWS_OF_UNIT = 20  # fewer rows do not show that numbers are in another unit
PERCENT = 100
MAX_FRACTIONS_IN_PERCENT = 0.5  # share of numbers below 1; more are seldom percentages
MAX_RATING = 10  # whole numbers up to 10 are ratings, such as 1 to 5


class FileRows(NamedTuple):
    """Rows of a file, for messages.

    Attributes:
        file: Name of the file.
        first: Number of the first row, from 0.
        text: The file, if it has lines.
        row_number: Number of each row in the file, shape (n,); None if the rows are consecutive.
        is_sheet: Whether the file is a workbook, whose first row has the names of the columns.
        has_map_labels: Whether a map determines the labels, so that no option names them.
    """

    file: str
    first: int = 0
    text: SeparatedText | None = None
    row_number: np.ndarray | None = None
    is_sheet: bool = False
    has_map_labels: bool = False

    def reject(self, is_invalid: np.ndarray | pl.Series, describe: Callable[[int], str]) -> None:
        """Reject the rows if any of them is invalid.

        Args:
            is_invalid: Whether each row is invalid, shape (n,), bool.
            describe: Describes the error of a row, by its index among these rows.

        Raises:
            InputError: Names the first invalid row and the number of invalid rows.
        """
        if not is_invalid.any():
            return
        row = int(np.asarray(is_invalid).argmax())
        n_invalid = int(is_invalid.sum())
        others = ""
        if n_invalid > 1:
            others = f" ({n_invalid:,} of the {len(is_invalid):,} rows read together are invalid)"
        raise InputError(f"{self.file}, {self.locate(row)}: {describe(row)}{others}")

    def reject_repeated_header(self, frame: pl.DataFrame) -> None:
        """Reject the rows if one of them repeats the names of the columns, as in concatenated files.

        Args:
            frame: Columns of the rows.

        Raises:
            InputError: Names the first such row.
        """
        texts = [name for name in frame.columns if frame[name].dtype == pl.String]
        if len(texts) < 2 or len(texts) < frame.width:  # one column may contain its own name
            return
        # the first column alone decides in almost all files
        is_header = frame.select((pl.col(texts[0]).str.strip_chars() == texts[0].strip()).fill_null(False)).to_series()
        if not is_header.any():
            return
        is_header = frame.select(
            pl.all_horizontal(pl.col(name).str.strip_chars() == name.strip() for name in texts).fill_null(False)
        ).to_series()
        self.reject(
            is_header,
            lambda _: "this line repeats the names of the columns, as if files were joined; delete such lines",
        )

    def reject_missing(self, column: pl.Series, advice: str = "drop or fill the row") -> None:
        """Reject the rows if a value is null or NaN.

        Args:
            column: A column of the rows.
            advice: Remedy, with which the message ends.

        Raises:
            InputError: Names the first row without a value.
        """
        self.reject(is_missing(column), lambda _: f"{column.name} is missing; {advice}")

    def locate(self, row: int) -> str:
        """Name the location of a row in the file.

        Args:
            row: Index among these rows.

        Returns:
            Its line, or its number.
        """
        number = self.first + row if self.row_number is None else int(self.row_number[row])
        if self.is_sheet:
            return f"row {number + 2} of the sheet"
        return f"row {number} (from 0)" if self.text is None else self.text.locate(number)

    def without(self, is_omitted: np.ndarray) -> "FileRows":
        """Omit rows.

        Args:
            is_omitted: Whether each row is omitted, shape (n,), bool.

        Returns:
            The other rows.
        """
        return self._replace(row_number=self.first + np.flatnonzero(~is_omitted))


def has_numeric_name(names: Sequence[str] | None) -> bool:
    """Return whether the name of a label is a number; then the label `1` is a name, and not the second label.

    Args:
        names: Names of the labels, or None.

    Returns:
        Whether any name is a number.
    """
    return names is not None and any(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", name) for name in names)


def read_labels(
    column: pl.Series, rows: FileRows, *, names: Sequence[str] | None, n_labels: int, advice: Callable[[], str]
) -> np.ndarray:
    """Read labels that are given as numbers 0..K-1, as false and true, or by name.

    Names are matched exactly, or else as `normalize_name` spells them. False and true are the names 0 and 1, or no and
    yes, in any order of the names.

    Args:
        column: The column.
        rows: The rows of the column, for messages.
        names: Names of the labels, or None.
        n_labels: Number K of labels; UNKNOWN_N_LABELS if it is not known.
        advice: Returns the remedy with which messages end; if it returns an empty text, messages have a default remedy.

    Returns:
        Label numbers, shape (n,), int64.

    Raises:
        InputError: A label is missing or unknown; the message names the first such row.
    """
    reject_missing_labels(column, rows, names, "drop or fill the row")
    valid = f"0..{n_labels - 1}" if n_labels < UNKNOWN_N_LABELS else "0, 1, 2, ..."
    dtype = column.dtype
    is_number = dtype.is_integer() or dtype.is_float() or dtype.is_decimal()
    if dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean) or (is_number and _have_truth_values(names)):
        codes = _read_named_labels(column, rows, names, advice)
    elif is_number:
        values = column.cast(pl.Float64).to_numpy()
        with np.errstate(invalid="ignore"):
            codes = values.astype(np.int64)
        rows.reject(
            codes != values, lambda row: f"{column.name} is {values[row]}, not one of {valid}{_advise_naming(rows)}"
        )
    else:
        raise InputError(
            f"{rows.file}: the column {column.name} is {dtype}; it must hold numbers 0..K-1 or names"
            f"{advise_scalar(column)}"
        )
    is_outside = (codes < 0) | (codes >= n_labels)

    def describe(row: int) -> str:
        named = f"; the labels are {join_names(names)}" if names else _advise_naming(rows)
        remedy = advice() or advise_unjudged(str(codes[row])) or named
        return f"{column.name} is {codes[row]}, not one of {valid}{remedy}"

    rows.reject(is_outside, describe)
    return np.asarray(codes)


def _have_truth_values(names: Sequence[str] | None) -> bool:
    """Return whether 0 and 1 are names, or words for false and true in another order than 0 and 1."""
    if names is None:
        return False
    return has_numeric_name(names) or parse_label("0", names) != 0 or parse_label("1", names) != 1


def reject_missing_labels(
    column: pl.Series, rows: FileRows, names: Sequence[str] | None, advice: str, *, can_name_labels: bool = True
) -> None:
    """Reject the rows if a label is missing, or is a text such as NA that means this.

    Args:
        column: The column of labels.
        rows: The rows of the column, for messages.
        names: Names of the labels, which are not missing; None if they are not known.
        advice: Remedy.
        can_name_labels: Whether an option of `fit` can say that the text is the name of a label.

    Raises:
        InputError: Names the first row without a label.
    """

    def describe(row: int) -> str:
        text = str(column[row]).strip() if column.dtype in (pl.String, pl.Categorical, pl.Enum) else ""
        if not text or column[row] is None:
            return f"{column.name} is missing; {advice}"
        named = _advise_label_option() if can_name_labels else ""
        return f"{column.name} is {text!r}, which looks like a missing value; {advice}{named}"

    rows.reject(is_missing_label(column, names), describe)


def advise_scalar(column: pl.Series) -> str:
    """Suggest, as the end of a message, how to write lists and objects as labels.

    Args:
        column: A column of labels.

    Returns:
        The advice with the first value; empty for columns of numbers or text.
    """
    if not column.dtype.is_nested():
        return ""
    value = column.drop_nulls().head(1).to_list()
    shown = f", such as {value[0]!r:.60}" if value else ""
    return f"{shown}; {ONE_LABEL}"


def _read_named_labels(
    column: pl.Series, rows: FileRows, names: Sequence[str] | None, advice: Callable[[], str]
) -> np.ndarray:
    """Read labels from a column of text, of booleans, or of numbers that are names."""
    text = label_texts(column)
    label_by_text = {value: parse_label(value, names) for value in text.unique()}
    labels = text.replace_strict(label_by_text, return_dtype=pl.Int64)

    def describe(row: int) -> str:
        remedy = advice() or _advise_naming(rows)
        if names:
            remedy = f"{advise_unjudged(text[row])}; the labels are {join_names(names)}"
        if text[row].lstrip().startswith(("[", "{")):  # JSON, such as the export of an annotation tool
            remedy += f"; {ONE_LABEL}"
        return f"{column.name} is {show_text(text[row])}{remedy}"

    rows.reject(labels.is_null(), describe)
    return labels.to_numpy()


def label_texts(column: pl.Series) -> pl.Series:
    """Convert labels to text.

    Args:
        column: A column of text, numbers or booleans.

    Returns:
        Series of n texts; false and true in lower case.
    """
    if column.dtype.is_decimal():
        column = column.cast(pl.Float64)
    return column.cast(pl.String)


def show_text(text: str) -> str:
    """Quote a text so that invisible and look-alike characters can be seen.

    Args:
        text: Any text.

    Returns:
        The text in quotes; with escapes if it has characters that are not ASCII and that a reader may not see.
    """
    scripts = {unicodedata.name(character, "").split(" ")[0] for character in text if character.isalpha()}
    is_mixed = "LATIN" in scripts and not scripts.isdisjoint({"CYRILLIC", "GREEK"})  # letters that look alike
    hidden = is_mixed or text != remove_invisible(text) or unicodedata.normalize("NFC", text) != text
    return ascii(text) if hidden else repr(text)


def advise_unjudged(text: str) -> str:
    """Advise, as part of a message, to leave a label empty if its text looks as if the row was not judged.

    Args:
        text: A label.

    Returns:
        The advice; empty for other labels.
    """
    if not looks_unjudged(text):
        return ""
    return f"; if {text.strip()} means that there is no label or no answer, omit these rows or leave the cell empty"


def looks_unjudged(text: str) -> bool:
    """Return whether a label looks as if the row was not judged, such as -1, 99, ERROR or NA.

    Args:
        text: A label.
    """
    normalized = normalize_name(text)
    return (
        normalized in MISSING_TEXTS
        or UNJUDGED_TEXT.fullmatch(normalized) is not None
        or UNJUDGED_NUMBER.fullmatch(normalized) is not None
    )


def parse_label(text: str, names: Sequence[str] | None) -> int | None:
    """Find the label that a text names.

    Args:
        text: A name, matched exactly, or else as `normalize_name` spells it; or false, true, 0 or 1 for names that mean
            this; or a number, if no name is one.
        names: Names of the labels, or None.

    Returns:
        The label 0..K-1; None if the text names no label, or several.
    """
    if names is not None and text in names:
        return names.index(text)
    normalized_names = [normalize_name(name) for name in names or ()]
    normalized = normalize_name(text)
    name = _find_name(normalized, normalized_names)
    if name is not None:
        is_unique = normalized_names.count(name) == 1
        return normalized_names.index(name) if is_unique else None
    if has_numeric_name(names):
        return None
    # where 1 is the name `true`, 0 is the other of two names, such as `fake`, wherever it is
    opposite = _find_name(OPPOSITE_VALUE.get(normalized, ""), normalized_names)
    if opposite is not None:
        return 1 - normalized_names.index(opposite) if len(normalized_names) == 2 else None
    number = BOOLEAN_LABELS.get(normalized, normalized)
    return int(number) if re.fullmatch(r"[0-9]{1,9}", number) else None


def _find_name(value: str, names: Sequence[str]) -> str | None:
    """Find the name that a text means, where both are in normal form; None if it is no name."""
    same_meaning = (value, *NAMES_OF_VALUE.get(value, ()))
    if {*names} in LETTER_NAMES:
        same_meaning += LETTER_OF_VALUE.get(value, ())
    if value.isdigit() and len(names) != 2:  # 1 means yes only if the other label is no
        same_meaning = (value,)
    return next((name for name in same_meaning if name in names), None)


def _advise_naming(rows: FileRows) -> str:
    """Suggest, as the end of a message, what to do about a label that is not known."""
    if rows.has_map_labels:
        return "; the map knows no other labels: correct the row, or fit a new map"
    return _advise_label_option()


def _advise_label_option() -> str:
    return f"; fit takes names of labels by {option('labels')}"


def find_label_names(frame: pl.DataFrame, columns: Sequence[str | None]) -> list[str]:
    """Find the names of labels that occur in columns.

    Args:
        frame: The rows.
        columns: Names of columns; None, and columns of lists, are ignored.

    Returns:
        Each name once, in any spelling, without missing values; whole numbers in their order, else alphabetically.
    """
    series = [label_texts(frame[name]) for name in columns if name is not None and not frame[name].dtype.is_nested()]
    return _sort_names([*_count_names(pl.concat(series))]) if series else []


def find_grade_names(column: pl.Series, rows: FileRows) -> tuple[str, ...]:
    """Find the names of grades in a column of labels, in ascending order.

    Args:
        column: The labels.
        rows: The rows of the column, for messages.

    Returns:
        Whole numbers, without codes for a missing label such as -1; if they are fewer than three, they are two labels.

    Raises:
        InputError: The labels are not whole numbers, so that their order is not known.
    """
    names = _sort_names([*_count_names(column)])
    if not are_whole_numbers(names):
        raise InputError(
            f"{rows.file}: {column.name} has the labels {join_names(names)}; give them in ascending order: "
            f"{assignment('labels', 'LOWEST,...,HIGHEST')}"
        )
    return tuple(name for name in names if not looks_unjudged(name) or (name.isdigit() and str(int(name) - 1) in names))


def _count_names(column: pl.Series) -> dict[str, int]:
    """Count the rows of each name in a column of labels, without missing values; empty for a column of lists."""
    if column.dtype.is_nested():
        return {}
    texts = label_texts(column).drop_nulls().value_counts().rows()
    spelling: dict[str, str] = {}
    counts: dict[str, int] = {}
    for text, count in sorted(texts, key=lambda row: (row[1], row[0])):  # the most frequent spelling is the last one
        normalized = normalize_name(text)
        if normalized not in MISSING_TEXTS:
            shown = unicodedata.normalize("NFKC", " ".join(remove_invisible(text).split()))
            spelling[normalized] = normalized if are_whole_numbers([normalized]) else shown
            counts[normalized] = counts.get(normalized, 0) + count
    return {spelling[normalized]: count for normalized, count in counts.items()}


def _sort_names(names: Sequence[str]) -> list[str]:
    return sorted(names, key=int) if are_whole_numbers(names) else sorted(names)


def are_whole_numbers(names: Sequence[str]) -> bool:
    """Return whether every name is a whole number, so that the order of the names is known.

    Args:
        names: Names of labels.

    Returns:
        Whether all are whole numbers.
    """
    return all(re.fullmatch(r"-?[0-9]{1,9}", name) for name in names)


def advise_names(
    frame: pl.DataFrame,
    decision: str | None,
    label: str | None,
    n_labels: int,
    by_position: Sequence[str] = (),
) -> str:
    """Suggest, as the end of a message, how to name the labels.

    With a column of decisions, only names that decisions and labels take are suggested: another one may be a second
    vocabulary, a failed answer, or a label that is missing. The names are suggested in an order only if they are
    numbers, whose order is known, or if no column depends on the order. Otherwise, the user has to give the order.

    Args:
        frame: The rows.
        decision: Column of the decisions; None without one.
        label: Column of the true labels; None without one.
        n_labels: Number K of labels; UNKNOWN_N_LABELS if it is not known.
        by_position: Columns with a number for each label, such as logits, which depend on the order of the labels.

    Returns:
        Advice with an option; empty if the columns do not have K names.
    """
    labelled = {} if label is None else _count_names(frame[label])
    decided = labelled if decision is None else _count_names(frame[decision])
    if label is None:
        labelled = decided
    normalized = {normalize_name(name) for name in labelled}
    names = _sort_names([name for name in decided if normalize_name(name) in normalized])
    if decision is not None and label is not None and len(names) < 2:
        return _describe_vocabularies(decision, decided, label, labelled)
    if decision is None:  # such as -1, 0 and 1 for three labels
        may_be_labels = len(names) == n_labels
        names = [name for name in names if not looks_unjudged(name) or (may_be_labels and name.startswith("-"))]
    others = "".join(advise_unjudged(name) for name in names if not are_whole_numbers([name]))
    others += _describe_other_names(decision, decided, label, labelled, names)
    are_numbers = are_whole_numbers(names)
    # labels 1..K, some of which may not occur
    if are_numbers and names and int(names[0]) == 1 and int(names[-1]) == n_labels:
        names = [str(number) for number in range(1, n_labels + 1)]
    is_complete = len(names) == n_labels
    is_plausible = n_labels == UNKNOWN_N_LABELS and 2 <= len(names) <= MAX_SUGGESTED_LABELS
    needs_quotes = re.search(r'[,"]', "".join(names))
    are_positions = names == [str(number) for number in range(len(names))]
    if not (is_complete or is_plausible) or needs_quotes or are_positions:
        return others
    alike = _find_alike(names)
    if alike:
        return f"; {' and '.join(map(show_text, alike))} look like one label in two spellings; make them equal{others}"
    if are_numbers:
        return f"; name the labels to fit, in their order: {labels_to_paste(names)}{others}"
    if not by_position:
        return (
            f"; name the labels to fit: {labels_to_paste(names)} (the order matters only for signals of groups){others}"
        )
    order = f"of the numbers in {by_position[0]}" if len(by_position) == 1 else f"of {join_names(by_position)}"
    return (
        f"; name the labels with {option('labels')} in the order {order}; the file has the labels {join_names(names)}"
        f"{others}"
    )


def _find_alike(names: Sequence[str]) -> tuple[str, str] | None:
    """Find two names that differ in punctuation only."""
    name_by_letters: dict[str, str] = {}
    for name in names:
        letters = re.sub(r"[\W_]+", "", normalize_name(name))
        if letters and letters in name_by_letters and not are_whole_numbers([name]):
            return name_by_letters[letters], name
        name_by_letters[letters] = name
    return None


def _describe_other_names(
    decision: str | None, decided: dict[str, int], label: str | None, labelled: dict[str, int], names: Sequence[str]
) -> str:
    """Name the values that only decisions or only labels take, with their numbers of rows."""
    if decision is None or label is None:
        return "".join(advise_unjudged(name) for name in labelled)
    known = {normalize_name(name) for name in names}
    text = ""
    for column, counts in ((decision, decided), (label, labelled)):
        others = [f"{name} ({count:,})" for name, count in counts.items() if normalize_name(name) not in known]
        if others:
            text += f"; only {column} has {join_names(others)}"
            text += "".join(advise_unjudged(name) for name in counts if normalize_name(name) not in known)
    return text


def _describe_vocabularies(decision: str, decided: dict[str, int], label: str, labelled: dict[str, int]) -> str:
    """Describe decisions and labels that have no two names in common, with the option or the change that helps."""
    decisions = _sort_names([*decided])
    labels = _sort_names([*labelled])
    found = f"; {decision} has {join_names(decisions)}, and {label} has {join_names(labels)}: different words"
    unjudged = [name for name in (*decisions, *labels) if looks_unjudged(name) and not are_whole_numbers([name])]
    no_answer = "".join(advise_unjudged(name) for name in dict.fromkeys(unjudged))
    decisions = [name for name in decisions if name not in unjudged]
    labels = [name for name in labels if name not in unjudged]
    remedies = {"decisions": decisions, "labels": labels}
    for words, numbers in (("decisions", labels), ("labels", decisions)):
        in_order = _order_words(remedies[words])
        are_codes = all(BOOLEAN_LABELS.get(normalize_name(name), name) in ("0", "1") for name in numbers) or (
            numbers == [str(number) for number in range(len(numbers))]
        )
        if not are_codes or are_whole_numbers(remedies[words]) or len(remedies[words]) < max(2, len(numbers)):
            continue
        first = "false" if "false" in map(normalize_name, numbers) else "0"
        if in_order is not None:
            order = f"if they are in the order of {join_names(numbers)}, give {labels_to_paste(in_order)}"
            return f"{found}; {order}{no_answer}"
        reverse = labels_to_paste(remedies[words][::-1])
        choice = f"{labels_to_paste(remedies[words])} or {reverse}" if len(remedies[words]) == 2 else option("labels")
        order = f"name them in the order of {join_names(numbers)}, the name of {first} first: {choice}"
        return f"{found}; {order}{no_answer}"
    return f"{found}; write the same words in both columns{no_answer}"


def _order_words(words: Sequence[str]) -> list[str] | None:
    """Return names such as LABEL_0 and LABEL_1, or no and yes, in the order of their numbers; None for other words."""
    truth = ({"false", "no"}, {"true", "yes"})
    if len(words) == 2 and all(any(normalize_name(word) in side for word in words) for side in truth):
        return sorted(words, key=lambda word: normalize_name(word) in truth[1])
    numbers = [re.fullmatch(r"(.*?)([0-9]{1,9})", word) for word in words]
    found = [match for match in numbers if match is not None]
    if len(found) < len(words) or len({match[1] for match in found}) > 1:
        return None
    ordered = sorted(found, key=lambda match: int(match[2]))
    is_complete = [int(match[2]) for match in ordered] == [*range(len(words))]
    return [match[0] for match in ordered] if is_complete else None


def describe_vocabularies(frame: pl.DataFrame, decision: str, label: str) -> str:
    """Describe decisions and labels that have different words, as the end of a message.

    Args:
        frame: The rows.
        decision: Column of the decisions.
        label: Column of the true labels.

    Returns:
        Both sets of words, and the remedy.
    """
    return _describe_vocabularies(decision, _count_names(frame[decision]), label, _count_names(frame[label]))


def is_missing(column: pl.Series) -> pl.Series:
    """Return whether each value is null or NaN.

    Args:
        column: A column.

    Returns:
        Series of n booleans.
    """
    return (column.fill_nan(None) if column.dtype.is_float() else column).is_null()


def read_groups(column: pl.Series, rows: FileRows) -> np.ndarray:
    """Read the group of each row.

    Args:
        column: The column of groups.
        rows: The rows of the column, for messages.

    Returns:
        The groups as text, shape (n,).

    Raises:
        InputError: A group is missing or a blank text, or the column has lists.
    """
    if column.dtype.is_nested():
        raise InputError(
            f"{rows.file}: the groups are in {column.name}, which contains lists; name a column of numbers or text"
        )
    rows.reject_missing(column)
    text = column.cast(pl.String)
    rows.reject(text.str.strip_chars() == "", lambda _: f"{column.name} is missing; drop or fill the row")
    return text.to_numpy()


def is_missing_label(label: pl.Series, names: Sequence[str] | None = None) -> pl.Series:
    """Return whether each row has no label: null, NaN, or a text such as NA that is not the name of a label.

    Args:
        label: The column of labels.
        names: Names of the labels; None if they are not known.

    Returns:
        Series of n booleans.
    """
    missing = is_missing(label)
    if label.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return missing
    text = label.cast(pl.String)
    missing_texts = MISSING_TEXTS - {normalize_name(name) for name in names or ()}
    distinct = text.unique()
    no_numbers = distinct.filter(~distinct.str.contains(f"^({NUMBER.pattern})$"))  # numbers can be millions of texts
    texts = [value for value in no_numbers if normalize_name(value) in missing_texts]
    if not texts:
        return missing
    return missing | text.is_in(texts).fill_null(False)


def describe_missing(label: pl.Series, missing: pl.Series) -> str:
    """Describe how missing labels are written, as the end of a note.

    Args:
        label: The column of labels.
        missing: Whether each label is missing.

    Returns:
        The texts with their numbers of rows; empty if all are empty cells.
    """
    texts = label.filter(missing).drop_nulls().cast(pl.String).str.strip_chars().value_counts(sort=True)
    written = [f"{text} ({count:,})" for text, count in texts.rows() if text]
    return f"; among them are the labels {join_names(written)}" if written else ""


def count_labels(frame: pl.DataFrame, decision: str, label: str, rows: FileRows) -> int:
    """Count the labels of columns of whole numbers.

    Args:
        frame: The rows.
        decision: Column of the decisions, 0..K-1.
        label: Column of the true labels, 0..K-1.
        rows: The rows, for messages.

    Returns:
        The largest label plus one, at least 2.

    Raises:
        InputError: A value is not a label, is a code for a missing label, or is so large that it needs a name.
    """
    advice = partial(advise_names, frame, decision, label, UNKNOWN_N_LABELS)
    decided = read_labels(frame[decision], rows, names=None, n_labels=UNKNOWN_N_LABELS, advice=advice)
    labelled = read_labels(frame[label], rows, names=None, n_labels=UNKNOWN_N_LABELS, advice=advice)
    _check_numbering(frame, decision, label, decided, labelled, rows)
    codes = np.union1d(decided, labelled)
    for code in np.setdiff1d(labelled, decided):
        is_isolated = code - 1 not in codes
        if is_isolated and looks_unjudged(str(code)):
            rows.reject(
                labelled == code, lambda row: f"{label} is {labelled[row]}{advise_unjudged(str(labelled[row]))}"
            )
    largest = int(codes.max(initial=0))
    if largest >= MAX_UNNAMED_LABELS:
        raise InputError(
            f"{rows.file}: a label is {largest}; labels are the numbers 0..K-1, or names that {option('labels')} "
            "lists in order"
        )
    return max(2, largest + 1)


def _check_numbering(
    frame: pl.DataFrame, decision: str, label: str, decided: np.ndarray, labelled: np.ndarray, rows: FileRows
) -> None:
    """Check that decisions and labels are not numbered from different first numbers, such as 1..K and 0..K-1.

    Raises:
        InputError: The numbers of one column are those of the other plus one, and more decisions are then correct.
    """
    for shift in (1, -1):
        has_shifted_numbers = np.array_equal(np.unique(labelled + shift), np.unique(decided))
        if has_shifted_numbers and np.sum(labelled + shift == decided) > np.sum(labelled == decided):
            raise InputError(f"{rows.file}{_describe_numbering(frame, decision, label)}")


def _describe_numbering(frame: pl.DataFrame, decision: str, label: str) -> str:
    """Show the numbers of decisions and labels, with the remedy."""
    decided = _sort_names([*_count_names(frame[decision])])
    labelled = _sort_names([*_count_names(frame[label])])
    names = _sort_names(sorted({*decided, *labelled}))
    same_meaning = f", or if equal numbers mean the same, give {labels_to_paste(names)}"
    return (
        f": {decision} has {join_names(decided)}, and {label} has {join_names(labelled)}, as if one of them were "
        f"numbered from another first number; number both from 0{same_meaning if are_whole_numbers(names) else ''}"
    )


def join_names(names: Sequence[str]) -> str:
    """Join the first names for a message.

    Args:
        names: Any names.

    Returns:
        The first ten, and the number of the others.
    """
    joined = ", ".join(names[:MAX_LISTED_NAMES])
    n_omitted = len(names) - MAX_LISTED_NAMES
    return f"{joined} and {n_omitted} more" if n_omitted > 0 else joined


def read_numbers(column: pl.Series, rows: FileRows, advice: str = "") -> np.ndarray:
    """Read a column of numbers; text is converted.

    Args:
        column: The column.
        rows: The rows of the column, for messages.
        advice: End of the message on text that is not a number.

    Returns:
        Shape (n,), float64, without NaN.

    Raises:
        InputError: A value is missing or not a number; the message names the first such row.
    """
    rows.reject_missing(column)
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = _text_to_numbers(column.cast(pl.String), rows, advice)
    if not (column.dtype.is_float() or column.dtype.is_integer() or column.dtype.is_decimal()):
        raise InputError(f"{rows.file}: the column {column.name} is {column.dtype}; it must hold numbers")
    values = column.cast(pl.Float64)
    rows.reject_missing(values)  # text may be "nan"
    return values.to_numpy()


def _convert_plain_numbers(text: pl.Series) -> pl.Series | None:
    """Convert text to numbers if every text is a finite number with a decimal point, which is fast; otherwise None."""
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.has_nulls() or not numbers.is_finite().all():
        return None
    return numbers


def _text_to_numbers(column: pl.Series, rows: FileRows, advice: str) -> pl.Series:
    """Convert text to numbers, with points or commas before the decimals."""
    plain_numbers = _convert_plain_numbers(column)
    if plain_numbers is not None:
        return plain_numbers
    rows.reject(
        is_missing_label(column),
        lambda row: f"{column.name} is {column[row]!r}, which looks like a missing value; drop or fill the row",
    )
    text = column.str.strip_chars()
    has_thousands_form = text.str.contains(r"^[+-]?[1-9]\d{0,2},\d{3}$")
    has_comma = text.str.contains(",", literal=True)
    if (has_comma == has_thousands_form).all():  # every comma may separate thousands
        rows.reject(
            has_thousands_form,
            lambda row: (
                f"{column.name} is {column[row]!r}, whose comma may separate thousands or decimals; save the "
                "numbers with decimal points and without thousands separators"
            ),
        )
    text = text.str.replace(r"^([+-]?\d*),(\d+)", "$1.$2")
    values = text.cast(pl.Float64, strict=False)
    rows.reject(values.is_null(), lambda row: f"{column.name} is {column[row]!r}, not a number{advice}")
    return values


class _Shares(NamedTuple):
    """Numbers of a column of probabilities, and which of them were given in percent; both of shape (n,)."""

    values: np.ndarray
    is_percent: np.ndarray


def read_shares(column: pl.Series, rows: FileRows, reading: Reading) -> _Shares:
    """Read a column of probabilities, given as numbers, in percent or as words, without a check of their range.

    Args:
        column: The column.
        rows: The rows of the column, for messages.
        reading: Units, and the number of each word.

    Returns:
        The probabilities, and which of them were given in percent.

    Raises:
        InputError: A value is missing or unknown; the message names the first such row.
    """
    is_percent = np.full(len(column), reading.percent)
    advice = ""
    words = reading.words
    given_words = assignment("confidence_words", reading.confidence_words or "")
    if words and column.dtype.is_numeric():  # such as a rating
        column = label_texts(column)
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
        rows.reject_missing(column)
        plain_numbers = None if words else _convert_plain_numbers(column)
        if plain_numbers is not None:
            column = plain_numbers
    if column.dtype == pl.String:
        number_of_text = {}
        if words:  # otherwise millions of numbers would be normalized in vain
            for text in column.unique():
                word = normalize_name(text)
                if word in words:
                    number_of_text[text] = repr(words[word])
        is_word = column.is_in([*number_of_text]).to_numpy()
        text = column.str.strip_chars().str.to_lowercase()
        is_percent = (is_percent | text.str.ends_with("%").to_numpy()) & ~is_word
        advice = _advise_words(text.filter(~is_word), reading.confidence_words)
        if any(NUMBER.fullmatch(word) for word in words):  # ratings, of which each needs a number
            rows.reject(~is_word, lambda row: f"{column.name} is {column[row]!r}, which has no number in {given_words}")
        numbers = text.str.strip_chars_end("% ")
        column = pl.select(pl.when(pl.lit(is_word)).then(column.replace(number_of_text)).otherwise(numbers)).to_series()
        column = column.alias(text.name)
    values = read_numbers(column, rows, advice)
    return _Shares(np.where(is_percent, values / PERCENT, values), is_percent)


def read_probabilities(column: pl.Series, rows: FileRows, reading: Reading, *, lowest: float = 0.0) -> np.ndarray:
    """Read a column of probabilities, given as numbers, in percent or as words.

    Args:
        column: The column.
        rows: The rows of the column, for messages.
        reading: Units, and the number of each word.
        lowest: Probability below which hardly any is expected, such as 1/K for the confidence of a decision. It shows
            that numbers are not in percent where the rows are few.

    Returns:
        Shape (n,), float64, in [0, 1].

    Raises:
        InputError: A value is missing, unknown or outside [0, 1], or is not in percent; the message names the first
            such row.
    """
    name = column.name
    values, is_percent = read_shares(column, rows, reading)
    hint = "" if is_percent.any() or not len(values) else _advise_unit(name, values)
    rows.reject(
        ~((values >= 0) & (values <= 1)), lambda row: f"{name} is {values[row]:.15g}; it must lie in [0, 1]{hint}"
    )
    _reject_fractions(name, values, is_percent, rows, lowest)
    return values


def _reject_fractions(name: str, values: np.ndarray, is_percent: np.ndarray, rows: FileRows, lowest: float) -> None:
    """Reject percentages that seem to be fractions: all are at most 1, or some are where none is expected.

    Args:
        name: Name of the column.
        values: Probabilities, shape (n,).
        is_percent: Which of them were given in percent, shape (n,), bool.
        rows: The rows, for messages.
        lowest: Probability below which hardly any is expected.

    Raises:
        InputError: Percentages seem to be fractions.
    """
    if not is_percent.any():
        return
    is_fraction = is_percent & (values > 0) & (values < 1 / PERCENT)
    is_unexpected = bool(is_fraction.any()) and lowest > 1 / PERCENT
    are_small = bool(is_percent.all() and values.max() <= 1 / PERCENT)
    if are_small and (is_unexpected or len(values) >= MIN_ROWS_OF_UNIT):
        raise InputError(
            f"{rows.file}: {name} is at most 1 in all rows, so it is not in percent; multiply it by 100, or omit "
            f"percent signs and {option('percent')}, which a map remembers"
        )
    if is_unexpected:
        rows.reject(
            is_fraction,
            lambda row: (
                f"{name} is {PERCENT * values[row]:.15g}, and others are percentages; write all rows in the same unit"
            ),
        )


def _advise_unit(name: str, values: np.ndarray) -> str:
    """Suggest, as the end of a message, how to read numbers that do not lie in [0, 1]."""
    if values.max() <= 0:
        return f"; if these are log-probabilities, write the exponential function of them: exp({name})"
    if values.min() < 0 or values.max() > 100:
        return ""
    n_fractions = int(((values > 0) & (values < 1)).sum())
    if n_fractions > MAX_FRACTIONS_IN_PERCENT * len(values):
        return f"; {n_fractions:,} of {len(values):,} rows are between 0 and 1; write all rows in the same unit"
    if is_rating(values):
        ratings = ",".join(f"{value:g}=?" for value in np.unique(values))
        return (
            "; if it is a rating, give each value the probability that such a decision is correct: "
            f"{assignment('confidence_words', ratings)}, or omit the column and use it as a signal: "
            f"{assignment('signals', name)}"
        )
    scale = f"; on a scale from 0 to {MAX_RATING}, divide it by {MAX_RATING}" if values.max() <= MAX_RATING else ""
    return f"; if it is in percent, give {assignment('percent', True)}{scale}"


def is_rating(values: np.ndarray) -> bool:
    """Return whether numbers look like ratings, such as 1 to 5, and not like percentages.

    Args:
        values: Shape (n,), at least one number.
    """
    return bool((values == np.rint(values)).all() and values.max() <= MAX_RATING)


def _advise_words(text: pl.Series, given: str | None) -> str:
    """Suggest, as the end of a message, an option with the number of each word of confidence; empty without words.

    Args:
        text: Cells that are no words yet.
        given: Words that have a number; None if there are none.

    Returns:
        The advice.
    """
    words = sorted(text.filter(text.str.contains(r"^[^\W\d][^,=]*$")).unique())
    if not words:
        return ""
    pairs = ",".join([*([given] if given else []), *(f"{word}=?" for word in words[:MAX_LISTED_NAMES])])
    return f"; give each word a number in [0, 1]: {assignment('confidence_words', pairs)}"


def read_number_lists(column: pl.Series, rows: FileRows, *, percent: bool = False) -> np.ndarray:
    """Read a column of lists of equal length; numbers with a percent sign are divided by 100.

    Args:
        column: A column of lists, arrays, or text such as "[0.1, 0.9]".
        rows: The rows of the column, for messages.
        percent: Whether numbers without a percent sign are in percent, and divided by 100 too.

    Returns:
        Shape (n, K), float64, K at least 2.

    Raises:
        InputError: A value is missing or not such a list; the message names the first such row.
    """
    name = column.name
    if column.dtype == pl.String:
        column = _text_to_lists(column, rows)
    elif isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if isinstance(column.dtype, pl.List) and column.dtype.inner == pl.String:
        column = _texts_to_numbers(column, rows, percent=percent)
        percent = False
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_numeric():
        raise InputError(
            f"{rows.file}: the column {name} is {column.dtype}; it must hold lists of numbers, "
            f"or be split into columns {name}_0, {name}_1, ...{_advise_nested(column)}"
        )
    rows.reject_missing(column)
    lengths = column.list.len()
    n_labels = int(lengths[0]) if len(column) else 2
    # the first row gives the number of labels; if it has fewer than two numbers, every row is invalid
    is_invalid = lengths != n_labels if n_labels > 1 else lengths >= 0
    rows.reject(
        is_invalid,
        lambda row: (
            f"{name} has {lengths[row]} numbers, and {rows.locate(0)} has {n_labels}; "
            "each row needs one number for each label, at least two"
        ),
    )
    flat = column.explode(empty_as_null=False)
    shape = (len(column), n_labels)
    has_missing = np.asarray(flat.is_null().to_numpy().reshape(shape).any(axis=1))
    rows.reject(has_missing, lambda _: f"{name} has a missing number; drop or fill the row")
    matrix = flat.cast(pl.Float64).to_numpy().reshape(shape)
    return matrix / PERCENT if percent else matrix


def _advise_nested(column: pl.Series) -> str:
    """Suggest, as the end of a message, how to write the values of a column of objects as lists of numbers."""
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if not isinstance(inner, pl.Struct):
        return ""
    members = [member.name for member in inner.fields]
    if "values" in members:
        return "; in Spark, convert vectors with pyspark.ml.functions.vector_to_array"
    return f"; write only the numbers of its members {join_names(members)}, in the order of the labels"


def _texts_to_numbers(column: pl.Series, rows: FileRows, *, percent: bool) -> pl.Series:
    """Convert lists of texts, such as ["87%", "13%"], to lists of numbers; fractions, if they are in percent."""
    text = pl.element().str.strip_chars()
    number = text.str.strip_chars_end("% ").cast(pl.Float64, strict=False)
    values = column.list.eval(
        pl.when(pl.lit(percent) | text.str.ends_with("%")).then(number / PERCENT).otherwise(number)
    )
    is_lost = (
        values.list.eval(pl.element().is_null().sum()) != column.list.eval(pl.element().is_null().sum())
    ).fill_null(False)
    rows.reject(is_lost, lambda row: f"{column.name} is {column[row].to_list()!r:.60}, not a list of numbers")
    return values


def _text_to_lists(column: pl.Series, rows: FileRows) -> pl.Series:
    """Split lists and arrays as pandas writes them into csv."""
    rows.reject_missing(column)
    text = column.str.strip_chars()
    is_list = text.str.contains(r"^\[[\s\d.,;eE+%-]*\]$")
    rows.reject(~is_list, lambda row: f"{column.name} is {text[row]!r:.60}, not a list of numbers such as [0.1, 0.9]")
    # a comma between digits separates decimals if other characters separate the numbers
    has_decimal_comma = (
        text.str.contains(r"\d,\d") & text.str.contains(r"[;]|,\s|\d\s+[\d+-]") & ~text.str.contains(".", literal=True)
    )
    rows.reject(
        has_decimal_comma,
        lambda row: (
            f"{column.name} is {text[row]!r:.60}, which may have decimal commas; write decimal points: [0.1, 0.9]"
        ),
    )
    return text.str.strip_chars("[] \t\r\n").str.replace_all(r"[\s,;]+", " ").str.split(" ")
