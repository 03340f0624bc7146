"""One column of a file as labels, numbers, shares or lists of numbers; what is none is refused by its row or line."""

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

SHOWN = 10  # names in a message
LARGEST = 2**31
MOST_UNNAMED = 1000  # labels that are numbers; more are ids of something
MOST_PASTED = 50  # names of labels in an option
TRUTH = {"false": "0", "true": "1"}


class FileRows(NamedTuple):
    """Rows of a file that follow one another, for messages."""

    file: str
    first: int = 0  # number of the first of them, from 0
    text: SeparatedText | None = None  # the file, if it has lines
    kept: np.ndarray | None = None  # numbers of the rows, where others between them are left away

    def refuse(self, wrong: np.ndarray | pl.Series, what: Callable[[int], str]) -> None:
        """InputError names the first row where `wrong (n,)` holds, says `what` of its place, and how many there are."""
        if wrong.any():
            row, many = int(np.asarray(wrong).argmax()), int(wrong.sum())
            more = f" ({many:,} of the {len(wrong):,} rows read with it are so)" if many > 1 else ""
            raise InputError(f"{self.file}, {self.place(row)}: {what(row)}{more}")

    def refuse_missing(self, column: pl.Series, advice: str = "drop or fill the row") -> None:
        """InputError names the first row without a value: null or NaN."""
        self.refuse(is_missing(column), lambda _: f"{column.name} is missing; {advice}")

    def place(self, row: int) -> str:
        """Where row `row` of these stands in the file: its line, or its number."""
        number = self.first + row if self.kept is None else int(self.kept[row])
        return f"row {number} (from 0)" if self.text is None else self.text.place(number)

    def without(self, missing: np.ndarray) -> "FileRows":
        """These rows but for those where `missing (n,)` holds."""
        return self._replace(kept=self.first + np.flatnonzero(~missing))


def are_numbers(names: Sequence[str] | None) -> bool:
    """Whether 1 is the name of a label, rather than the second label."""
    return names is not None and any(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", name) for name in names)


def label_codes(
    column: pl.Series, rows: FileRows, *, names: Sequence[str] | None, n_labels: int, advice: Callable[[], str]
) -> np.ndarray:
    """Labels as numbers 0..K-1, as false and true, or by name where names are known, to `(n,)` int64.

    A name may have spaces around it, or another case. InputError names the row, and gives `advice`.
    """
    rows.refuse_missing(column)
    within = f"0..{n_labels - 1}" if n_labels < LARGEST else "0, 1, 2, ..."
    if column.dtype in (pl.String, pl.Categorical, pl.Enum) or (are_numbers(names) and column.dtype.is_numeric()):
        text = column.cast(pl.String)
        code_of = {value: label_of(value, names) for value in text.unique()}
        known = f"; the labels are {listed(names)}" if names else advice() or _by_name()
        by_row = text.replace_strict(code_of, return_dtype=pl.Int64)
        rows.refuse(by_row.is_null(), lambda row: f"{column.name} is {text[row]!r}{known}")
        codes = by_row.to_numpy()
    elif column.dtype == pl.Boolean or column.dtype.is_integer() or column.dtype.is_float():
        given = column.to_numpy()
        with np.errstate(invalid="ignore"):
            codes = given.astype(np.int64)
        rows.refuse(codes != given, lambda row: f"{column.name} is {given[row]}, not one of {within}{_by_name()}")
    else:
        raise InputError(
            f"{rows.file}: the column {column.name} is {column.dtype}; it must hold numbers 0..K-1 or names"
        )
    outside = (codes < 0) | (codes >= n_labels)
    rows.refuse(outside, lambda row: f"{column.name} is {codes[row]}, not one of {within}{advice() or _by_name()}")
    return np.asarray(codes)


def label_of(text: str, names: Sequence[str] | None) -> int | None:
    """The label of a name, as it stands or but for spaces and case; or of a number, where names are none."""
    if names is not None and text in names:
        return names.index(text)
    plain = [_plain(name) for name in names or ()]
    if _plain(text) in plain:
        return plain.index(_plain(text)) if plain.count(_plain(text)) == 1 else None
    number = "" if are_numbers(names) else TRUTH.get(_plain(text), text.strip())
    return int(float(number)) if re.fullmatch(r"[0-9]{1,9}(\.0+)?", number) else None


def _plain(name: str) -> str:
    """A name without spaces around it and in small letters; of a whole number without decimals."""
    return re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", name.strip().casefold())


def _by_name() -> str:
    return f"; fit takes names of labels by {option('labels')}"


def names_in(frame: pl.DataFrame, columns: Sequence[str | None]) -> list[str]:
    """Return the names of labels that occur in columns.

    Args:
        frame: The rows.
        columns: Names of columns; None, and a column of lists, are left out.

    Returns:
        Each name once, whatever its case and the spaces around it: whole numbers in their order, else alphabetically.
    """
    series = [frame[name] for name in columns if name is not None and not frame[name].dtype.is_nested()]
    if not series:
        return []
    texts = pl.concat([column.cast(pl.String, strict=False).drop_nulls() for column in series]).unique().sort()
    spelling = {_plain(text): text.strip() for text in texts}
    if are_whole_numbers([*spelling]):
        return [str(number) for number in sorted(map(int, spelling))]
    return sorted(spelling.values())


def are_whole_numbers(names: Sequence[str]) -> bool:
    """Whether every name is a whole number, so that the order of the names is known."""
    return all(re.fullmatch(r"-?[0-9]{1,9}", name) for name in names)


def advise_names(
    frame: pl.DataFrame, columns: Sequence[str | None], n_labels: int, by_position: Sequence[str] = ()
) -> str:
    """Return the end of a message that says how to name the labels.

    An order is suggested only if it is known, as that of numbers, or does not matter, as where decision and label are
    both given by name.

    Args:
        frame: The rows.
        columns: The columns with labels.
        n_labels: K; `LARGEST` if it is not known.
        by_position: Columns of numbers that get their label from their position.

    Returns:
        Advice with an option, or "" if the columns do not hold so many names.
    """
    names = names_in(frame, columns)
    whole = are_whole_numbers(names)
    if whole and names and (int(names[0]), int(names[-1])) == (1, n_labels):
        names = [str(number) for number in range(1, n_labels + 1)]
    many = len(names) == n_labels or (n_labels == LARGEST and 2 <= len(names) <= MOST_PASTED)
    if not many or re.search(r'[,"]', "".join(names)):
        return ""
    if whole:
        return f"; name the labels to fit, in their order: {labels_to_paste(names)}"
    if not by_position:
        return f"; name the labels to fit: {labels_to_paste(names)} (the order matters only for signals of groups)"
    order = f"of the numbers in {by_position[0]}" if len(by_position) == 1 else f"of {listed(by_position)}"
    return f"; name the labels with {option('labels')} in the order {order}; the file has the labels {listed(names)}"


def is_missing(column: pl.Series) -> pl.Series:
    """Return whether each value is null or NaN, shape (n,), bool."""
    return (column.fill_nan(None) if column.dtype.is_float() else column).is_null()


def unlabelled(label: pl.Series) -> np.ndarray:
    """Whether each row has no label, `(n,)` bool: nothing, blank text or NaN."""
    if label.dtype == pl.String:
        return (label.str.strip_chars() == "").fill_null(True).to_numpy()
    return is_missing(label).to_numpy()


def labels_in(frame: pl.DataFrame, columns: Sequence[str], rows: FileRows) -> int:
    """The number of labels that whole numbers in `columns` speak of, at least 2: the largest of them plus one."""
    advice = partial(advise_names, frame, columns, LARGEST)
    codes = [label_codes(frame[name], rows, names=None, n_labels=LARGEST, advice=advice) for name in columns]
    most = int(np.concatenate(codes).max(initial=0))
    if most >= MOST_UNNAMED:
        raise InputError(
            f"{rows.file}: a label is {most}; labels are 0..K-1, or names that {option('labels')} gives in their order"
        )
    return max(2, most + 1)


def listed(names: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def numbers(column: pl.Series, rows: FileRows, advice: str = "") -> np.ndarray:
    """A column as `(n,)` float64; text is read as numbers. InputError names the row."""
    name, given = column.name, column
    rows.refuse_missing(column)
    if column.dtype == pl.String:
        column = column.str.strip_chars()
        if rows.text is not None and rows.text.separator != ",":  # then a comma may stand before the decimals
            thousands = column.str.contains(r"^[+-]?[1-9]\d{0,2},\d{3}$")
            if (column.str.contains(",", literal=True) == thousands).all():  # none says that commas are decimal
                what = "whose comma may part thousands or decimals; save the numbers with decimal points alone"
                rows.refuse(thousands, lambda row: f"{name} is {given[row]!r}, {what}")
            column = column.str.replace(r"^([+-]?\d*),(\d+)", "$1.$2")
        column = column.cast(pl.Float64, strict=False)
        rows.refuse(column.is_null(), lambda row: f"{name} is {given[row]!r}, not a number{advice}")
    if not (column.dtype.is_float() or column.dtype.is_integer() or column.dtype.is_decimal()):
        raise InputError(f"{rows.file}: the column {name} is {column.dtype}; it must hold numbers")
    column = column.cast(pl.Float64)
    rows.refuse_missing(column)  # text may say nan
    return column.to_numpy()


def shares(column: pl.Series, rows: FileRows, reading: Reading) -> np.ndarray:
    """Read a column as `(n,)` float64 in [0, 1]: numbers, percent, or words of `reading`; InputError names the row."""
    in_percent, advice = np.full(len(column), reading.percent), ""
    if column.dtype == pl.String:
        rows.refuse_missing(column)
        said, words = column.str.strip_chars().str.to_lowercase(), reading.words
        known = said.is_in(list(words)).to_numpy()
        in_percent = (in_percent | said.str.ends_with("%").to_numpy()) & ~known
        column = said.str.strip_chars_end("% ").replace({word: repr(share) for word, share in words.items()})
        if unknown := sorted(word for word in said.filter(~known).unique() if re.fullmatch(r"[^\W\d][^,=]*", word)):
            words_found = assignment("confidence_words", ",".join(f"{word}=?" for word in unknown[:SHOWN]))
            advice = f"; say what each word counts as, in [0, 1]: {words_found}"
    values = numbers(column, rows, advice)
    values = np.where(in_percent, values / 100, values)

    def what(row: int) -> str:
        may_be_percent = 1 < values[row] <= 100 and not in_percent[row]
        hint = f"; if it is in percent, say so with {assignment('percent', True)}" if may_be_percent else ""
        return f"{column.name} is {values[row]}; it must lie in [0, 1]{hint}"

    rows.refuse(~((values >= 0) & (values <= 1)), what)
    return values


def lists_of_numbers(column: pl.Series, rows: FileRows) -> np.ndarray:
    """A column of lists, all as long, as `(n, K)` float64, K at least 2. InputError names the row."""
    name = column.name
    if column.dtype == pl.String:  # as pandas writes lists and arrays into csv
        rows.refuse_missing(column)
        text = column.str.strip_chars()
        whole = text.str.contains(r"^\[[\s\d.,eE+-]*\]$")
        rows.refuse(~whole, lambda row: f"{name} is {text[row]!r:.60}, no list of numbers such as [0.1, 0.9]")
        parts = text.str.strip_chars("[] \t\r\n").str.replace_all(r"[\s,]+", " ").str.split(" ")
        column = parts.cast(pl.List(pl.Float64), strict=False)
    elif isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_numeric():
        raise InputError(
            f"{rows.file}: the column {name} is {column.dtype}; it must hold lists of numbers, "
            f"or be cut into columns {name}_0, {name}_1, ..."
        )
    rows.refuse_missing(column)
    lengths = column.list.len()
    n_labels = int(lengths[0]) if len(column) else 2
    rows.refuse(
        lengths != n_labels if n_labels > 1 else lengths >= 0,
        lambda row: (
            f"{name} has {lengths[row]} numbers, and {rows.place(0)} has {n_labels}; "
            "every row needs one for each label, and there are two labels at least"
        ),
    )
    flat = column.explode(empty_as_null=False)
    missing = np.asarray(flat.is_null().to_numpy().reshape(-1, n_labels).any(axis=1))
    rows.refuse(missing, lambda _: f"{name} holds a missing number; drop or fill the row")
    return flat.cast(pl.Float64).to_numpy().reshape(-1, n_labels)
