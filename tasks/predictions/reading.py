"""How the columns of a file of predictions are understood where they are not named, or not written, as ours are."""

import csv
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

from tasks.protocol.errors import BadInput

USUAL = {  # options -> what others call such a column
    "--label": ("truth", "target", "gold", "true_label", "ground_truth", "y_true", "y", "relevance"),
    "--decision": ("prediction", "predicted", "pred", "y_pred", "answer", "verdict"),
    "--confidence-column": ("conf", "certainty", "sure", "how_sure"),
    "--probabilities": ("probs", "softmax"),
    "--probability": ("probability", "prob", "proba", "p", "y_prob"),
    "--border 0 --score": ("score", "relevance_score"),
}


@dataclass(frozen=True)
class Reading:
    """Columns of a file by what they hold; each field is an option of the commands, with its help."""

    label: Annotated[str | None, "The column of the true label."] = None
    decision: Annotated[str | None, "The column of the decided label."] = None
    confidence_column: Annotated[str | None, "The column that says how sure the decision is."] = None
    confidence_words: Annotated[str | None, "What words of confidence count as: low=.3,medium=.6,high=.9"] = None
    percent: Annotated[bool, "A confidence or probability goes from 0 to 100."] = False
    logits: Annotated[str | None, "The column of lists of logits, or what stands before _0, _1, ..."] = None
    probabilities: Annotated[str | None, "The same of probabilities."] = None
    probability: Annotated[str | None, "The column with the probability of one of two labels."] = None
    score: Annotated[
        str | None,
        "The column of a ranker's scores: above --border it decides for one of two labels, else the other.",
    ] = None
    border: Annotated[float | None, "The score above which that label is decided."] = None
    positive: Annotated[str | None, "The label of --probability or --score; without it the second."] = None
    drop_unlabelled: Annotated[bool, "Leave rows without a label away."] = False

    def __post_init__(self) -> None:
        ways = ("confidence_column", "logits", "probabilities", "probability", "score")
        given = [_option(way) for way in ways if getattr(self, way) is not None]
        if len(given) > 1:
            raise BadInput(f"{' and '.join(given)} say the same thing twice; give one of them")
        if (self.score is None) != (self.border is None):
            column = shlex.quote(self.score or "COLUMN")
            raise BadInput(f"--score and --border go together: --score {column} --border 0 decides by the sign of it")
        if self.positive is not None and not {"--probability", "--score"} & set(given):
            raise BadInput(
                "--positive names the label of --probability or --score; give one of these, or leave it away"
            )
        unreadable = [field.name for field in fields(self) if not str(getattr(self, field.name)).isprintable()]
        if unreadable:
            raise BadInput(f"{_option(unreadable[0])} holds what cannot be shown; rename that column")
        _ = self.words

    @property
    def words(self) -> dict[str, float]:
        """What each word of confidence counts as, in [0, 1], by the word in small letters."""
        pairs = [pair.rpartition("=") for pair in (self.confidence_words or "").split(",") if pair]
        number = re.compile(r"\s*(0?\.\d+|[01](\.0*)?)\s*")
        if wrong := [word + sign + value for word, sign, value in pairs if not (word and number.fullmatch(value))]:
            example = "--confidence-words low=.3,medium=.6,high=.9"
            raise BadInput(f"--confidence-words has {wrong[0]!r}; give each word a number in [0, 1]: {example}")
        words = {word.strip().lower(): float(value) for word, _, value in pairs}
        if len(words) < len(pairs):
            raise BadInput(f"--confidence-words is {self.confidence_words!r}; give each word once, in any case")
        return words

    def check(self, names: Sequence[str], file: str, *, labelled: bool) -> None:
        """BadInput unless each column that is named is among the `names` of `file`."""
        for field in ("decision", "confidence_column", "probability", "score", *(["label"] if labelled else [])):
            name = getattr(self, field)
            if name is not None and name not in names:
                raise BadInput(f"{file} has no column {name}, which {_option(field)} names; it has {', '.join(names)}")


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


AS_NAMED = Reading()


def to_paste(names: Sequence[str], options: Sequence[str]) -> str:
    """The end of a message: those of `options` that name columns which are there under a usual name."""
    usual = {option: name for option in options for name in reversed(names) if name.lower() in USUAL[option]}
    given = [f"{option} {shlex.quote(name)}" for option, name in usual.items()]
    return f"; name yours: {' '.join(given)}" if given else f"; name yours with {', '.join(options)} COLUMN"


def listed_names(option: str, given: str | None, example: str, least: int = 1) -> tuple[str, ...] | None:
    """What an option gives like the `example` as names, of labels or of columns; BadInput for what is none."""
    if given is None:
        return None
    one_line = [given] if given.isprintable() else []
    names = tuple(name.strip() for name in next(csv.reader(one_line, skipinitialspace=True), []))
    if len(names) < least or len(set(names)) < len(names) or not all(names):
        many = f"{least} names or more" if least > 1 else "names"
        raise BadInput(f"{option} is {given!r}; it must give {many} on one line, each once: {example}")
    return names
