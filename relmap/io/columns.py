"""Read columns as labels, numbers, probabilities or lists of numbers; errors name the row or line of the file."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from relmap.errors import InputError
from relmap.io.reading import Reading
from relmap.io.text import SeparatedText
from relmap.options import assignment, labels_to_paste, option

MAX_LISTED_NAMES = 10
UNKNOWN_N_LABELS = 2**31  # replaces the number of labels K where it is not known; label numbers are smaller
MAX_UNNAMED_LABELS = 1000  # labels given as numbers; larger numbers identify something else
MAX_SUGGESTED_LABELS = 50  # maximum number of names in a suggested option, where K is not known
BOOLEAN_LABELS = {"false": "0", "true": "1"}


class FileRows(NamedTuple):
    """Rows of a file, for messages.

    Attributes:
        file: Name of the file.
        first: Number of the first row, from 0.
        text: The file, if it has lines.
        row_number: Number of each row in the file, shape (n,); None if the rows are consecutive.
    """

    file: str
    first: int = 0
    text: SeparatedText | None = None
    row_number: np.ndarray | None = None

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

    Names are matched exactly, or else ignoring surrounding spaces and case.

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
    rows.reject_missing(column)
    valid = f"0..{n_labels - 1}" if n_labels < UNKNOWN_N_LABELS else "0, 1, 2, ..."
    is_text = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    if is_text or (has_numeric_name(names) and column.dtype.is_numeric()):
        codes = _read_named_labels(column, rows, names, advice)
    elif column.dtype == pl.Boolean or column.dtype.is_integer() or column.dtype.is_float():
        values = column.to_numpy()
        with np.errstate(invalid="ignore"):
            codes = values.astype(np.int64)
        rows.reject(
            codes != values, lambda row: f"{column.name} is {values[row]}, not one of {valid}{_advise_label_option()}"
        )
    else:
        raise InputError(
            f"{rows.file}: the column {column.name} is {column.dtype}; it must hold numbers 0..K-1 or names"
        )
    is_outside = (codes < 0) | (codes >= n_labels)
    rows.reject(
        is_outside,
        lambda row: f"{column.name} is {codes[row]}, not one of {valid}{advice() or _advise_label_option()}",
    )
    return np.asarray(codes)


def _read_named_labels(
    column: pl.Series, rows: FileRows, names: Sequence[str] | None, advice: Callable[[], str]
) -> np.ndarray:
    """Read labels from a column of text, or of numbers that are names."""
    text = column.cast(pl.String)
    label_by_text = {value: parse_label(value, names) for value in text.unique()}
    remedy = f"; the labels are {join_names(names)}" if names else advice() or _advise_label_option()
    labels = text.replace_strict(label_by_text, return_dtype=pl.Int64)
    rows.reject(labels.is_null(), lambda row: f"{column.name} is {text[row]!r}{remedy}")
    return labels.to_numpy()


def parse_label(text: str, names: Sequence[str] | None) -> int | None:
    """Find the label that a text names.

    Args:
        text: A name, matched exactly, or else ignoring surrounding spaces and case; or a number, if no name is one.
        names: Names of the labels, or None.

    Returns:
        The label 0..K-1; None if the text names no label, or several.
    """
    if names is not None and text in names:
        return names.index(text)
    normalized_names = [_normalize_name(name) for name in names or ()]
    normalized = _normalize_name(text)
    if normalized in normalized_names:
        is_unique = normalized_names.count(normalized) == 1
        return normalized_names.index(normalized) if is_unique else None
    if has_numeric_name(names):
        return None
    number = BOOLEAN_LABELS.get(normalized, text.strip())
    return int(float(number)) if re.fullmatch(r"[0-9]{1,9}(\.0+)?", number) else None


def _normalize_name(name: str) -> str:
    """Remove surrounding spaces, upper case, and the zero decimals of a whole number."""
    return re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", name.strip().casefold())


def _advise_label_option() -> str:
    return f"; fit takes names of labels by {option('labels')}"


def find_label_names(frame: pl.DataFrame, columns: Sequence[str | None]) -> list[str]:
    """Find the names of labels that occur in columns.

    Args:
        frame: The rows.
        columns: Names of columns; None, and columns of lists, are ignored.

    Returns:
        Each name once, ignoring case and surrounding spaces; whole numbers in their order, else alphabetically.
    """
    series = [frame[name] for name in columns if name is not None and not frame[name].dtype.is_nested()]
    if not series:
        return []
    texts = pl.concat([column.cast(pl.String, strict=False).drop_nulls() for column in series]).unique().sort()
    spelling = {_normalize_name(text): text.strip() for text in texts}
    if are_whole_numbers([*spelling]):
        return [str(number) for number in sorted(map(int, spelling))]
    return sorted(spelling.values())


def are_whole_numbers(names: Sequence[str]) -> bool:
    """Return whether every name is a whole number, so that the order of the names is known.

    Args:
        names: Names of labels.

    Returns:
        Whether all are whole numbers.
    """
    return all(re.fullmatch(r"-?[0-9]{1,9}", name) for name in names)


def advise_names(
    frame: pl.DataFrame, columns: Sequence[str | None], n_labels: int, by_position: Sequence[str] = ()
) -> str:
    """Suggest, as the end of a message, how to name the labels.

    The names are suggested in an order only if they are numbers, whose order is known, or if no column depends on the
    order. Otherwise, the user has to give the order.

    Args:
        frame: The rows.
        columns: Columns with labels.
        n_labels: Number K of labels; UNKNOWN_N_LABELS if it is not known.
        by_position: Columns with a number for each label, such as logits, which depend on the order of the labels.

    Returns:
        Advice with an option; empty if the columns do not have K names.
    """
    names = find_label_names(frame, columns)
    are_numbers = are_whole_numbers(names)
    # labels 1..K, some of which may not occur
    if are_numbers and names and int(names[0]) == 1 and int(names[-1]) == n_labels:
        names = [str(number) for number in range(1, n_labels + 1)]
    is_complete = len(names) == n_labels
    is_plausible = n_labels == UNKNOWN_N_LABELS and 2 <= len(names) <= MAX_SUGGESTED_LABELS
    needs_quotes = re.search(r'[,"]', "".join(names))
    if not (is_complete or is_plausible) or needs_quotes:
        return ""
    if are_numbers:
        return f"; name the labels to fit, in their order: {labels_to_paste(names)}"
    if not by_position:
        return f"; name the labels to fit: {labels_to_paste(names)} (the order matters only for signals of groups)"
    order = f"of the numbers in {by_position[0]}" if len(by_position) == 1 else f"of {join_names(by_position)}"
    return (
        f"; name the labels with {option('labels')} in the order {order}; the file has the labels {join_names(names)}"
    )


def is_missing(column: pl.Series) -> pl.Series:
    """Return whether each value is null or NaN.

    Args:
        column: A column.

    Returns:
        Series of n booleans.
    """
    return (column.fill_nan(None) if column.dtype.is_float() else column).is_null()


def is_unlabelled(label: pl.Series) -> np.ndarray:
    """Return whether each row has no label: null, NaN or blank text.

    Args:
        label: The column of labels.

    Returns:
        Shape (n,), bool.
    """
    if label.dtype == pl.String:
        return (label.str.strip_chars() == "").fill_null(True).to_numpy()
    return is_missing(label).to_numpy()


def count_labels(frame: pl.DataFrame, columns: Sequence[str], rows: FileRows) -> int:
    """Count the labels of columns of whole numbers.

    Args:
        frame: The rows.
        columns: Columns of labels 0..K-1.
        rows: The rows, for messages.

    Returns:
        The largest label plus one, at least 2.

    Raises:
        InputError: A value is not a label, or a label is so large that it needs a name.
    """
    advice = partial(advise_names, frame, columns, UNKNOWN_N_LABELS)
    labels = []
    for name in columns:
        labels.append(read_labels(frame[name], rows, names=None, n_labels=UNKNOWN_N_LABELS, advice=advice))
    largest = int(np.concatenate(labels).max(initial=0))
    if largest >= MAX_UNNAMED_LABELS:
        raise InputError(
            f"{rows.file}: a label is {largest}; labels are the numbers 0..K-1, or names that {option('labels')} "
            "lists in order"
        )
    return max(2, largest + 1)


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
    if column.dtype == pl.String:
        column = _text_to_numbers(column, rows, advice)
    if not (column.dtype.is_float() or column.dtype.is_integer() or column.dtype.is_decimal()):
        raise InputError(f"{rows.file}: the column {column.name} is {column.dtype}; it must hold numbers")
    values = column.cast(pl.Float64)
    rows.reject_missing(values)  # text may be "nan"
    return values.to_numpy()


def _text_to_numbers(column: pl.Series, rows: FileRows, advice: str) -> pl.Series:
    text = column.str.strip_chars()
    if rows.text is not None and rows.text.separator != ",":  # in such a file, a comma may precede the decimals
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


def read_probabilities(column: pl.Series, rows: FileRows, reading: Reading) -> np.ndarray:
    """Read a column of probabilities, given as numbers, in percent or as words.

    Args:
        column: The column.
        rows: The rows of the column, for messages.
        reading: Units, and the number of each word.

    Returns:
        Shape (n,), float64, in [0, 1].

    Raises:
        InputError: A value is missing, unknown or outside [0, 1]; the message names the first such row.
    """
    name = column.name
    is_percent = np.full(len(column), reading.percent)
    advice = ""
    if column.dtype == pl.String:
        rows.reject_missing(column)
        text = column.str.strip_chars().str.to_lowercase()
        words = reading.words
        is_word = text.is_in(list(words)).to_numpy()
        is_percent = (is_percent | text.str.ends_with("%").to_numpy()) & ~is_word
        column = text.str.strip_chars_end("% ").replace({word: repr(value) for word, value in words.items()})
        advice = _advise_words(text.filter(~is_word))
    values = read_numbers(column, rows, advice)
    values = np.where(is_percent, values / 100, values)

    def describe(row: int) -> str:
        hint = ""
        if 1 < values[row] <= 100 and not is_percent[row]:
            hint = f"; if it is in percent, give {assignment('percent', True)}"
        return f"{name} is {values[row]}; it must lie in [0, 1]{hint}"

    rows.reject(~((values >= 0) & (values <= 1)), describe)
    return values


def _advise_words(text: pl.Series) -> str:
    """Suggest, as the end of a message, an option with the number of each word of confidence; empty without words."""
    words = sorted(word for word in text.unique() if re.fullmatch(r"[^\W\d][^,=]*", word))
    if not words:
        return ""
    pairs = ",".join(f"{word}=?" for word in words[:MAX_LISTED_NAMES])
    return f"; give each word a number in [0, 1]: {assignment('confidence_words', pairs)}"


def read_number_lists(column: pl.Series, rows: FileRows) -> np.ndarray:
    """Read a column of lists of equal length.

    Args:
        column: A column of lists, arrays, or text such as "[0.1, 0.9]".
        rows: The rows of the column, for messages.

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
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_numeric():
        raise InputError(
            f"{rows.file}: the column {name} is {column.dtype}; it must hold lists of numbers, "
            f"or be split into columns {name}_0, {name}_1, ..."
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
    return flat.cast(pl.Float64).to_numpy().reshape(shape)


def _text_to_lists(column: pl.Series, rows: FileRows) -> pl.Series:
    """Parse lists and arrays as pandas writes them into csv."""
    rows.reject_missing(column)
    text = column.str.strip_chars()
    is_list = text.str.contains(r"^\[[\s\d.,eE+-]*\]$")
    rows.reject(~is_list, lambda row: f"{column.name} is {text[row]!r:.60}, not a list of numbers such as [0.1, 0.9]")
    numbers = text.str.strip_chars("[] \t\r\n").str.replace_all(r"[\s,]+", " ").str.split(" ")
    return numbers.cast(pl.List(pl.Float64), strict=False)
