"""Which columns of a file of predictions say what was predicted, and how they are understood.

Four layouts: `logits` or `probabilities` (a list of K numbers in one column, or columns `logits_0` ... `logits_K-1`),
or, where a system gives no more, `decision` and `confidence`, or the `decision` alone. A column `decision` beside
logits is the fixed decision; without it that is the first argmax. `label` is the truth, where it is known. A `Reading`
gives columns other names, or two labels the probability or score of one.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from relmap.errors import InputError
from relmap.options import assignment, assignments, option

USUAL = {  # fields of a Reading -> what others call such a column
    "label": ("truth", "target", "gold", "true_label", "ground_truth", "y_true", "y", "relevance"),
    "decision": ("prediction", "predicted", "pred", "y_pred", "answer", "verdict"),
    "confidence_column": ("conf", "certainty", "sure", "how_sure"),
    "probabilities": ("probs", "softmax"),
    "probability": ("probability", "prob", "proba", "p", "y_prob"),
    "score": ("score", "relevance_score"),
}
WEIGHT = "inverse_probability"  # the column of weights, as `label` writes it
Kind = Literal["logits", "probabilities", "probability", "score", "confidence_only", "decision_only"]
Layouts = list[tuple[Kind, tuple[str, ...]]]  # with the columns that hold it
LOGITS = "logits or probabilities (a list in one column, or columns logits_0, logits_1, ...)"
NEEDED = {  # what a map reads -> the columns that hold it, in words, and fields of a Reading that name such columns
    "logits": (LOGITS, ("probabilities", "probability", "score")),
    "confidence_only": ("decision and confidence", ("decision", "confidence_column")),
    "decision_only": ("decision", ("decision",)),
    None: (
        f"{LOGITS}, or decision and confidence, or decision alone",
        tuple(field for field in USUAL if field != "label"),
    ),
}


@dataclass(frozen=True)
class Reading:
    """Columns of a file by what they hold; each field is an option of the commands, with its help."""

    label: Annotated[str | None, "The column of the true label."] = None
    decision: Annotated[str | None, "The column of the decided label."] = None
    confidence_column: Annotated[str | None, "The column with the confidence of the decision."] = None
    confidence_words: Annotated[
        str | None, "The number in [0, 1] that each word of confidence counts as: low=.3,medium=.6,high=.9"
    ] = None
    percent: Annotated[bool, "Confidences or probabilities are given from 0 to 100."] = False
    logits: Annotated[
        str | None, "The column of lists of logits, or the name before _0, _1, ... of one column for each label."
    ] = None
    probabilities: Annotated[
        str | None, "The column of lists of probabilities, or the name before _0, _1, ... of one column for each label."
    ] = None
    probability: Annotated[str | None, "The column with the probability of one of two labels."] = None
    score: Annotated[
        str | None,
        "The column of scores of a ranker: above --border one of two labels is decided, else the other.",
    ] = None
    border: Annotated[float | None, "The score above which the label of --positive is decided."] = None
    positive: Annotated[str | None, "The label that --probability or --score is of; by default the second."] = None
    id: Annotated[
        str | None, "The column that identifies rows of the fit later, if predictions repeat; by default id."
    ] = None
    drop_unlabelled: Annotated[bool, "Omit rows without a label."] = False

    def __post_init__(self) -> None:
        ways = ("confidence_column", "logits", "probabilities", "probability", "score")
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) > 1:
            names = " and ".join(option(way) for way in given)
            raise InputError(f"{names} say the same thing twice; give one of them")
        if self.border is not None and self.score is None:
            example = assignments({"score": "COLUMN", "border": 0})
            raise InputError(f"{option('border')} needs {option('score')}: {example} decides by the sign of the score")
        if self.positive is not None and not {"probability", "score"} & set(given):
            columns = f"{option('probability')} or {option('score')}"
            raise InputError(
                f"{option('positive')} names the label of {columns}; give one of these, or omit {option('positive')}"
            )
        unreadable = [field.name for field in fields(self) if not str(getattr(self, field.name)).isprintable()]
        if unreadable:
            raise InputError(f"{option(unreadable[0])} holds what cannot be shown; rename that column")
        _ = self.words

    @property
    def words(self) -> dict[str, float]:
        """What each word of confidence counts as, in [0, 1], by the word in small letters."""
        pairs = [pair.rpartition("=") for pair in (self.confidence_words or "").split(",") if pair]
        number = re.compile(r"\s*(0?\.\d+|[01](\.0*)?)\s*")
        if wrong := [word + sign + value for word, sign, value in pairs if not (word and number.fullmatch(value))]:
            example = assignment("confidence_words", "low=.3,medium=.6,high=.9")
            raise InputError(
                f"{option('confidence_words')} has {wrong[0]!r}; give each word a number in [0, 1]: {example}"
            )
        words = {word.strip().lower(): float(value) for word, _, value in pairs}
        if len(words) < len(pairs):
            raise InputError(
                f"{option('confidence_words')} is {self.confidence_words!r}; give each word once, in any case"
            )
        return words


AS_NAMED = Reading()


@dataclass(frozen=True)
class Layout:
    """Which columns of a file hold what; `label`, `group` and `weight` are None where they are not read."""

    kind: Kind  # confidence_only: a decision and a confidence, no more; probability and score: of one of two labels
    columns: tuple[str, ...]  # the numbers: one column of lists, K columns of one number each, the confidence, or none
    decision: str | None
    label: str | None
    group: str | None
    weight: str | None = None
    reading: Reading = AS_NAMED

    @property
    def read(self) -> list[str]:
        """Every column that is read."""
        others = (self.decision, self.label, self.group, self.weight)
        return [*self.columns, *(name for name in others if name is not None)]


def find_layout(
    names: Sequence[str],
    file: str,
    *,
    labelled: bool,
    group: str | None = None,
    reads: str | None = None,
    reading: Reading = AS_NAMED,
) -> Layout:
    """What the columns `names` of `file` hold; `labelled` asks for the truth, `group` names the column of groups.

    `reads`, a key of `NEEDED`, is what a map reads; without it the first of them is taken that is there.

    Raises:
        InputError: no layout, two at once, a gap in `logits_0` ..., or a column that is asked for and not there.
    """
    for field in ("decision", "confidence_column", "probability", "score", *(["label"] if labelled else [])):
        name = getattr(reading, field)
        if name is not None and name not in names:
            raise InputError(f"{file} has no column {name}, which {option(field)} names; it has {', '.join(names)}")
    if reading.score is not None and reading.border is None:
        example = assignments({"score": reading.score, "border": 0})
        targets = f"{option('precision')}, {option('recall')} or {option('npv')}"
        raise InputError(
            f"{option('score')} and {option('border')} go together: {example} decides by the sign of it. Only "
            f"`thresholds` with {targets}, without a map, reads a score without a border"
        )
    decision, label = reading.decision or "decision", reading.label or "label"
    decided, confidence = decision in names, reading.confidence_column or "confidence"
    there: dict[str, Layouts] = {
        "logits": [] if reading.confidence_column else _with_logits(names, file, reading),
        "confidence_only": [("confidence_only", (confidence,))] if decided and confidence in names else [],
        "decision_only": [("decision_only", ())] if decided else [],
    }
    layouts = there["logits"]
    if len(layouts) > 1 and reads in (None, "logits"):
        both = " and ".join(columns[0] for _, columns in layouts)
        raise InputError(f"{file} gives its predictions twice: {both}; drop one")
    layouts = there[reads] if reads else next(filter(None, there.values()), [])
    if not layouts:
        needed, wanted_fields = NEEDED[reads]
        like = "" if reads is None else ", as the rows had that the map was fitted on"
        apart = any(re.search(r"^ | $", name) for name in names)
        wanted_fields += ("label",) if labelled and reading.label is None else ()
        hint = "; are they separated by commas, without spaces?" if apart else to_paste(names, wanted_fields)
        raise InputError(f"{file} has the columns {', '.join(names) or '(none)'}; it needs {needed}{like}{hint}")
    for wanted, why in ((group, "it is to hold the groups"), (label if labelled else None, "it holds the truth")):
        if wanted is not None and wanted not in names:
            hint = to_paste(names, ["label"]) if wanted == label else ""
            raise InputError(f"{file} has no column {wanted}, and {why}; it has {', '.join(names)}{hint}")
    if group is not None and group in (*layouts[0][1], decision, label):
        raise InputError(f"{file}: the groups are to be in {group}, which holds something else; name another column")
    weight = WEIGHT if labelled and WEIGHT in names else None
    layout = Layout(*layouts[0], decision if decided else None, label if labelled else None, group, weight, reading)
    if twice := [name for name in layout.read if layout.read.count(name) > 1]:
        raise InputError(
            f"{file}: the column {twice[0]} would be read as two things, such as the decision and the truth; "
            "name another column for one of them"
        )
    return layout


def _with_logits(names: Sequence[str], file: str, reading: Reading) -> Layouts:
    """Columns of which logits can be made."""
    if reading.probability is not None:
        return [("probability", (reading.probability,))]
    if reading.score is not None:
        return [("score", (reading.score,))]
    layouts: Layouts = []
    own: dict[Kind, str | None] = {"logits": reading.logits, "probabilities": reading.probabilities}
    for kind, name in [(kind, name) for kind, name in own.items() if name] or [(kind, kind) for kind in own]:
        if name in names:
            layouts.append((kind, (name,)))
        ends = (other.removeprefix(f"{name}_") for other in names if other.startswith(f"{name}_"))
        numbers = sorted(int(end) for end in ends if re.fullmatch(r"0|[1-9]\d*", end))
        split = tuple(f"{name}_{number}" for number in numbers)
        if len(split) == 1 or numbers != list(range(len(split))):
            asked = "they must be numbered 0, 1, ... with none left out, one for each label"
            raise InputError(f"{file} has the columns {', '.join(split)}; {asked}")
        if split:
            layouts.append((kind, split))
    return layouts


def to_paste(names: Sequence[str], fields_to_name: Sequence[str]) -> str:
    """Return the end of a message: options that name the columns which are there under a usual name.

    Args:
        names: Columns of the file.
        fields_to_name: Fields of a Reading that would name what is missing.
    """
    usual = {field: name for field in fields_to_name for name in reversed(names) if name.lower() in USUAL[field]}
    values: dict[str, object] = {}
    for field, name in usual.items():
        if field == "score":
            values["border"] = 0
        values[field] = name
    if values:
        return f"; name yours: {assignments(values)}"
    named = []
    for field in fields_to_name:
        needed: dict[str, object] = {"border": 0} if field == "score" else {}
        named.append(assignments({**needed, field: "COLUMN"}))
    return f"; name yours with {' or '.join(named)}"


def listed_names(name: str, given: str | None, example: str, least: int = 1) -> tuple[str, ...] | None:
    """Split what the option of a parameter gives, like the `example`, into names of labels or columns.

    Raises:
        InputError: It has fewer than `least` names, a name twice or an empty name.
    """
    if given is None:
        return None
    one_line = [given] if given.isprintable() else []
    names = tuple(each.strip() for each in next(csv.reader(one_line, skipinitialspace=True), []))
    if len(names) < least or len(set(names)) < len(names) or not all(names):
        many = f"{least} names or more" if least > 1 else "names"
        raise InputError(f"{option(name)} is {given!r}; it must give {many} on one line, each once: {example}")
    return names
