"""Inputs that people really have: each is read with the right values, or is an error with the right remedy."""

import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relmap import InputError, ReliabilityMap, cli
from relmap.evaluation.watch import watch_file
from relmap.io.column_layout import Reading
from relmap.io.files import open_predictions
from relmap.maps.document import load_map
from relmap.maps.labelled_rows import LabelledRows
from relmap.routing.score_thresholds import ScoreRows, find_score_thresholds, read_score
from tests.maps import read_labelled as read_labelled_rows
from tests.texts import message_of

N_ROWS = 300
GENERATOR = np.random.default_rng(0)
DECISION = GENERATOR.integers(0, 2, N_ROWS)
CONFIDENCE = GENERATOR.uniform(0.55, 0.99, N_ROWS).round(3)
LABEL = np.where(GENERATOR.random(N_ROWS) < CONFIDENCE, DECISION, 1 - DECISION)
ACCURACY = float((DECISION == LABEL).mean())
OF_SECOND = np.where(DECISION == 1, CONFIDENCE, 1 - CONFIDENCE)
PROBABILITIES = np.column_stack([1 - OF_SECOND, OF_SECOND])
PERCENT = PROBABILITIES * 100
SCORE = (GENERATOR.normal(size=N_ROWS) + LABEL).round(3)
WORDS = np.array(["no", "yes"])
IS_OTHER = np.arange(N_ROWS) % 7 == 3  # rows whose label is replaced
FORMATS = ("csv", "tsv", "parquet", "jsonl", "json", "xlsx")
MISSING_TEXTS = ("NA", "nan", "None", "null", "N/A", "#N/A", "<NA>", "NaT", " n/a ", "NULL", "\\N", "n.a.", "(null)")
MAP = {"variant": "confidence"}  # fast to fit


def says_omitted(note: str, label: object = None) -> bool:
    """Whether a note has the number of omitted rows, and the text of their label, if one is given."""
    n_omitted = IS_OTHER.sum()
    with_label = "" if label is None else rf".* {re.escape(str(label))} \({n_omitted}\)"
    return re.match(rf"{n_omitted} of {N_ROWS} .*omitted{with_label}", note) is not None


def write(frame: pl.DataFrame, path: Path) -> Path:
    """Write a frame in the format of the suffix."""
    if path.suffix in (".csv", ".tsv"):
        frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".jsonl":
        frame.write_ndjson(path)
    elif path.suffix == ".json":
        frame.write_json(path)
    else:
        frame.write_excel(path)
    return path


def read(path: Path, names: tuple[str, ...] | None = None, **reading: object) -> LabelledRows:
    return read_labelled_rows(open_predictions(path, Reading(**reading)), group=None, names=names)


def accuracy(read_rows: LabelledRows) -> float:
    return float(read_rows.rows.correct.mean())


def judge(decision: object, label: object, confidence: object = CONFIDENCE) -> pl.DataFrame:
    columns = {"decision": list(decision), "confidence": list(confidence), "label": list(label)}
    return pl.DataFrame(columns, strict=False)


def replaced(values: np.ndarray, other: object) -> list[object]:
    """Replace every seventh value."""
    return [other if is_other else value for value, is_other in zip(values.tolist(), IS_OTHER, strict=True)]


def with_probabilities(numbers: np.ndarray, prefix: str = "probabilities") -> pl.DataFrame:
    return pl.DataFrame({f"{prefix}_0": numbers[:, 0], f"{prefix}_1": numbers[:, 1], "label": LABEL})


def read_scores(path: Path, label: object, positive: str, *, drop: bool) -> ScoreRows:
    write(pl.DataFrame({"score": SCORE, "label": list(label)}, strict=False), path)
    reading = Reading(score="score", positive=positive, drop_unlabelled=drop)
    return read_score(open_predictions(path, reading))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("other", [-1, 9, 99, "NA", "not judged", "unlabelled", "ERROR", "?", None])
def test_unjudged_rows_of_a_score_are_refused_or_dropped_with_their_number(other, suffix, tmp_path):
    is_number = isinstance(other, int)
    labels = replaced(LABEL if is_number else WORDS[LABEL], other)
    positive = "1" if is_number else "yes"
    path = tmp_path / f"p.{suffix}"
    place = "line 5" if suffix == "csv" else r"row 3 \(from 0\)"
    with pytest.raises(InputError, match=f"{place}: label .*--drop-unlabelled"):
        read_scores(path, labels, positive, drop=False)
    rows = read_scores(path, labels, positive, drop=True)
    np.testing.assert_array_equal(rows.score, SCORE[~IS_OTHER])
    np.testing.assert_array_equal(rows.grade == 1, LABEL[~IS_OTHER] == 1)
    assert says_omitted(rows.notes[-1])


@pytest.mark.parametrize("other", [2, "unsure", "Yes."])
@pytest.mark.parametrize("drop", [False, True])
def test_a_third_label_of_a_score_is_refused(other, drop, tmp_path):
    labels = replaced(LABEL, other) if isinstance(other, int) else replaced(WORDS[LABEL], other)
    with pytest.raises(InputError, match=r"line 5: label .*\btwo\b"):
        read_scores(tmp_path / "p.csv", labels, "1" if isinstance(other, int) else "yes", drop=drop)


@pytest.mark.parametrize(
    ("label", "positive"),
    [
        (2 * LABEL - 1, "1"),
        (LABEL.astype(float), "1"),
        (LABEL.astype(bool), "1"),
        (LABEL, "true"),
        ([" Yes\u00a0" if x and i % 2 else WORDS[x] for i, x in enumerate(LABEL)], "yes"),
    ],
)
def test_two_labels_of_a_score_have_any_spelling(label, positive, tmp_path):
    rows = read_scores(tmp_path / "p.parquet", label, positive, drop=False)
    np.testing.assert_array_equal(rows.grade == 1, LABEL == 1)


LABEL_N = np.array(["LABEL_0", "LABEL_1"])
RELEVANT = np.array(["irrelevant", "relevant"])
GRADES = np.array(["bad", "good"])
TRUTH = np.array(["False", "True"])


@pytest.mark.parametrize(
    ("decision", "label", "remedy"),
    [
        (LABEL_N[DECISION], LABEL, "--labels LABEL_0,LABEL_1"),
        (RELEVANT[DECISION], LABEL, "--labels irrelevant,relevant .*--labels relevant,irrelevant"),
        (DECISION, RELEVANT[LABEL], "--labels irrelevant,relevant .*--labels relevant,irrelevant"),
        (WORDS[DECISION], TRUTH[LABEL], "--labels no,yes"),
        (GRADES[DECISION], RELEVANT[LABEL], "same words"),
        ([f"{word}." for word in RELEVANT[DECISION]], RELEVANT[LABEL], "same words"),
    ],
)
def test_two_vocabularies_are_shown_and_never_joined(decision, label, remedy, tmp_path):
    message = message_of(read, write(judge(decision, label), tmp_path / "p.csv"))
    assert "different words" in message
    assert re.search(remedy, message)
    both = sorted({str(value) for value in (*decision, *label)})
    assert ",".join(both) not in message
    if not set(map(str, decision)) & set(map(str, label)):
        assert "no decision" in message_of(read, tmp_path / "p.csv", tuple(both))


@pytest.mark.parametrize(
    ("decision", "label", "other"),
    [
        (replaced(WORDS[DECISION], "ERROR"), WORDS[LABEL], "decision has ERROR (43)"),
        (WORDS[DECISION], replaced(WORDS[LABEL], "-1"), "label has -1 (43)"),
        (WORDS[DECISION], replaced(WORDS[LABEL], "not judged"), "label has not judged (43)"),
        (replaced(WORDS[DECISION], "Yes."), WORDS[LABEL], "decision has Yes. (43)"),
    ],
)
def test_only_names_of_decisions_and_labels_are_suggested(decision, label, other, tmp_path):
    message = message_of(read, write(judge(decision, label), tmp_path / "p.csv"))
    assert ": --labels no,yes (" in message
    assert other in message


@pytest.mark.parametrize("code", [-1, -9, 9, 99, 999, -1.0, "not judged", "ERROR", "?", "skipped"])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_codes_of_missing_labels_are_no_labels(code, suffix, tmp_path):
    is_text = isinstance(code, str)
    decision, label = (WORDS[DECISION], WORDS[LABEL]) if is_text else (DECISION, LABEL)
    names = ("no", "yes") if is_text else None
    path = write(judge(decision, replaced(label, code)), tmp_path / f"p.{suffix}")
    message = message_of(read, path, names)
    assert f"if {code:g} means" in message if isinstance(code, float) else f"if {code} means" in message
    assert "--labels" not in message
    rows = read(path, names, drop_unlabelled=True)
    np.testing.assert_array_equal(rows.rows.label, LABEL[~IS_OTHER])
    is_shortened = suffix == "xlsx" and isinstance(code, float)  # a workbook has -1 for -1.0
    assert says_omitted(rows.notes[0], int(code) if is_shortened else code)


@pytest.mark.parametrize(
    ("decision", "label", "names"),
    [
        (DECISION - 1, replaced(LABEL - 1, -1), ("-1", "0")),  # a name
        (replaced(DECISION, -1), replaced(LABEL, -1), ("0", "1", "-1")),  # a decision
        (WORDS[DECISION], replaced(WORDS[LABEL], "skip"), ("no", "yes", "skip")),
        (DECISION + 8, LABEL + 8, ("8", "9")),
    ],
)
def test_a_label_that_is_a_name_or_a_decision_is_never_omitted(decision, label, names, tmp_path):
    rows = read(write(judge(decision, label), tmp_path / "p.csv"), names, drop_unlabelled=True)
    assert len(rows.rows) == N_ROWS


def test_two_codes_of_labels_are_not_taken_for_missing_ones(tmp_path):
    path = write(judge(DECISION, 2 * LABEL - 1), tmp_path / "p.csv")  # labels -1 and 1
    assert "label is '-1'" in message_of(read, path, drop_unlabelled=True)


def test_a_negative_name_of_three_labels_is_no_code_of_a_missing_label(tmp_path):
    label = np.arange(N_ROWS) % 3
    logits = GENERATOR.normal(size=(N_ROWS, 3)) + 3 * np.eye(3)[label]
    frame = pl.DataFrame({"logits": logits.tolist(), "label": label - 1})
    path = write(frame, tmp_path / "p.parquet")
    message = message_of(read, path, drop_unlabelled=True)
    assert "--labels -1,0,1" in message  # before, the rows of -1 were omitted, and the advice was --labels 2,0,1
    rows = read(path, ("-1", "0", "1"), drop_unlabelled=True)
    assert accuracy(rows) == np.mean(logits.argmax(axis=1) == label)
    with_code = frame.with_columns(label=pl.Series(replaced(label, -1)))  # four values for three labels
    assert len(read(write(with_code, path), drop_unlabelled=True).rows) == N_ROWS - IS_OTHER.sum()


def is_judged_if(condition: np.ndarray) -> list[int | None]:
    return [int(label) if judged else None for label, judged in zip(LABEL, condition, strict=True)]


@pytest.mark.parametrize(
    ("column", "reading"),
    [
        (CONFIDENCE, {}),
        ([f"{100 * c:.1f}%" for c in CONFIDENCE], {}),
        (np.where(CONFIDENCE > 0.85, "high", "low"), {"confidence_words": "low=.6,high=.9"}),
    ],
)
def test_rows_that_are_judged_by_their_score_are_noted(column, reading, tmp_path):
    judged_only = "judged rows only"
    path = write(judge(DECISION, is_judged_if(CONFIDENCE > 0.85), column), tmp_path / "p.csv")
    notes = read(path, drop_unlabelled=True, **reading).notes
    assert judged_only in notes[1]
    n_most = N_ROWS // 2 + 10
    by_chance = np.random.default_rng(1).permutation(N_ROWS) >= n_most
    path = write(judge(DECISION, is_judged_if(by_chance), column), tmp_path / "q.csv")
    assert judged_only not in " ".join(read(path, drop_unlabelled=True, **reading).notes)
    path = write(judge(DECISION, is_judged_if(CONFIDENCE > 0.7), column), tmp_path / "r.csv")  # few are omitted
    assert judged_only not in " ".join(read(path, drop_unlabelled=True, **reading).notes)


def test_thresholds_on_scores_of_judged_rows_are_noted(tmp_path):
    labels = is_judged_if(np.sort(SCORE)[-80] <= SCORE)
    rows = read_scores(tmp_path / "p.csv", labels, "1", drop=True)
    assert "judged rows only" in rows.notes[1]


def test_python_notes_that_guarantees_hold_for_judged_rows_only(tmp_path):
    frame = judge(DECISION, is_judged_if(CONFIDENCE > 0.85))
    model = ReliabilityMap(drop_unlabelled=True, **MAP).fit(frame)
    new = frame.with_columns(confidence=pl.col("confidence") - 0.001)
    for result in (model.summary_, model.evaluate(new), model.thresholds(new, target_accuracy=0.8)):
        assert "judged rows only" in str(result)


def test_a_named_label_that_looks_missing_and_is_never_decided_is_noted(tmp_path):
    path = write(judge(DECISION, replaced(LABEL, -1)), tmp_path / "p.csv")
    [note] = read(path, ("-1", "0", "1")).notes
    assert re.search(r"No decision .*-1,.* 43 rows .*wrong", note)


def test_a_repeated_header_is_named_by_its_line(tmp_path):
    path = write(judge(WORDS[DECISION], WORDS[LABEL]), tmp_path / "p.csv")
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *lines[:50], header, *lines[50:]]))
    for names in (None, ("no", "yes")):
        assert re.search(r"line 52: .*repeats", message_of(read, path, names))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pr\u00e9cis", "pre\u0301cis"),
        ("relevant", "rel\u200bevant"),
        ("relevant", "\ufeffrelevant"),
        ("relevant", "\uff52elevant"),
        ("not good", "Not\u00a0 GOOD "),
    ],
)
def test_one_label_in_two_unicode_forms_is_one_label(first, second, tmp_path):
    decision = np.array(["other", first])[DECISION]
    label = np.array(["other", second])[LABEL]
    path = write(judge(decision, label), tmp_path / "p.jsonl")
    assert accuracy(read(path, ("other", first))) == ACCURACY


def test_invisible_differences_of_unknown_labels_are_visible(tmp_path):
    path = write(judge(["a\u200b."] * N_ROWS, WORDS[LABEL]), tmp_path / "p.jsonl")
    assert r"decision is 'a\u200b.'" in message_of(read, path, ("no", "yes"))


@pytest.mark.parametrize("suffix", FORMATS)
def test_all_forms_of_percent_are_read_as_fractions(suffix, tmp_path):
    expected = read(write(with_probabilities(PROBABILITIES), tmp_path / "fractions.parquet")).rows
    signs = with_probabilities(PERCENT).with_columns(pl.col("^prob.*$").cast(pl.String) + "%")
    in_percent = [(with_probabilities(PERCENT), True), (signs, False)]
    if suffix in ("parquet", "json", "jsonl"):
        lists = [[f"{number}%" for number in row] for row in PERCENT]
        in_percent.append((pl.DataFrame({"probabilities": PERCENT.tolist(), "label": LABEL}), True))
        in_percent.append((pl.DataFrame({"probabilities": lists, "label": LABEL}), False))
    if suffix in ("csv", "tsv"):
        texts = [f"[{first}, {second}]" for first, second in PERCENT]
        in_percent.append((pl.DataFrame({"probabilities": texts, "label": LABEL}), True))
    for frame, percent in in_percent:
        found = read(write(frame, tmp_path / f"p.{suffix}"), percent=percent).rows
        np.testing.assert_allclose(found.logits, expected.logits)


@pytest.mark.parametrize(
    ("X", "kind"),
    [
        (PERCENT, "array"),
        (PERCENT.tolist(), "list"),
        (PERCENT[:, 1], "one probability"),
        (pd.DataFrame(PERCENT, columns=["no", "yes"]), "pandas"),
        (pl.DataFrame(PERCENT, schema=["no", "yes"]), "polars"),
    ],
)
def test_percent_in_python_gives_the_map_of_fractions(X, kind):
    y = WORDS[LABEL]
    expected = ReliabilityMap(labels=["no", "yes"], **MAP).fit(PROBABILITIES, y)
    model = ReliabilityMap(labels=["no", "yes"], percent=True, **MAP).fit(X, y)
    np.testing.assert_allclose(np.asarray(model.reliability(X)), expected.reliability(PROBABILITIES))
    with pytest.raises(InputError, match="percent=True"):
        ReliabilityMap(labels=["no", "yes"], **MAP).fit(X, y)


def test_rows_with_a_constant_sum_are_no_logits_without_a_word():
    with pytest.raises(InputError, match=r"sums to 1\.3 .*divide.*arrays='logits'"):
        ReliabilityMap(**MAP).fit(1.3 * PROBABILITIES, LABEL)
    assert ReliabilityMap(arrays="logits", **MAP).fit(1.3 * PROBABILITIES, LABEL).arrays_ == "logits"


@pytest.mark.parametrize("field", ["label", "decision", "confidence", "probabilities", "logits", "probability", "id"])
def test_an_option_that_names_no_column_is_an_error_with_similar_names(field, tmp_path):
    frame = judge(WORDS[DECISION], WORDS[LABEL]).with_columns(nothing_here=pl.lit(0.5))
    path = write(frame, tmp_path / "p.csv")
    message = message_of(read, path, ("no", "yes"), **{field: "nothing_her"})
    assert re.search(rf"nothing_her, .*--{field} .*nothing_here\?", message)
    with pytest.raises(InputError, match="nothing_her"):
        ReliabilityMap(labels=["no", "yes"], **{field: "nothing_her"}, **MAP).fit(frame)
    if field != "label":
        with pytest.raises(InputError, match=f"{field}='nothing_her' .*array"):
            ReliabilityMap(**{field: "nothing_her"}, **MAP).fit(PROBABILITIES, LABEL)


def test_a_confidence_level_is_not_taken_for_a_column(tmp_path):
    path = write(judge(WORDS[DECISION], WORDS[LABEL]), tmp_path / "p.csv")
    assert "give --confidence-level 0.9" in message_of(read, path, ("no", "yes"), confidence="0.9")


def test_columns_are_named_for_each_label(tmp_path):
    frame = pl.DataFrame({"p_no": PROBABILITIES[:, 0], "p_yes": PROBABILITIES[:, 1], "label": WORDS[LABEL]})
    path = write(frame, tmp_path / "p.csv")
    message = message_of(read, path, ("no", "yes"), probabilities="p")
    assert "--probabilities p_no,p_yes" in message
    assert accuracy(read(path, ("no", "yes"), probabilities="p_no,p_yes")) == ACCURACY
    assert "no column p_ye, " in message_of(read, path, ("no", "yes"), probabilities="p_no,p_ye")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("names", [("0", "1"), ("1", "0"), ("yes", "no"), ("true", "false"), ("False", "True"), None])
def test_true_is_the_name_1_in_any_order_and_format(names, suffix, tmp_path):
    truth = LABEL.astype(bool)
    label = TRUTH[LABEL] if suffix in ("csv", "tsv") else truth
    path = write(judge(DECISION, label), tmp_path / f"p.{suffix}")
    rows = read(path, names)
    assert accuracy(rows) == ACCURACY
    first_is_false = names in (None, ("0", "1"), ("False", "True"))
    np.testing.assert_array_equal(rows.rows.label, LABEL if first_is_false else 1 - LABEL)


@pytest.mark.parametrize("y", [LABEL.astype(bool), LABEL.astype(bool).astype(object), pd.Series(LABEL == 1), LABEL])
@pytest.mark.parametrize("labels", [[1, 0], [True, False], ["1", "0"], ["yes", "no"]])
def test_true_is_1_in_python_in_any_order_of_the_labels(y, labels):
    model = ReliabilityMap(labels=labels, **MAP).fit(PROBABILITIES[:, ::-1], y)
    assert model.summary_.numbers["accuracy"] == pytest.approx(ACCURACY)


def test_truth_values_in_another_order_than_named_decisions_are_refused(tmp_path):
    path = write(judge(np.array(["fail", "pass"])[DECISION], LABEL.astype(bool)), tmp_path / "p.parquet")
    assert accuracy(read(path, ("fail", "pass"))) == ACCURACY
    assert "give --labels fail,pass" in message_of(read, path, ("pass", "fail"))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
@pytest.mark.parametrize("text", MISSING_TEXTS)
def test_missing_labels_written_as_text_are_missing(text, suffix, tmp_path):
    path = write(judge(WORDS[DECISION], replaced(WORDS[LABEL], text)), tmp_path / f"p.{suffix}")
    assert re.search(r": label .*missing.*--drop-unlabelled", message_of(read, path, ("no", "yes")))
    rows = read(path, ("no", "yes"), drop_unlabelled=True)
    np.testing.assert_array_equal(rows.rows.label, LABEL[~IS_OTHER])
    [note] = rows.notes
    assert says_omitted(note, text.strip())


@pytest.mark.parametrize("missing", ["None", "nan", None, float("nan"), pd.NA])
def test_missing_labels_in_python_are_missing(missing):
    y = replaced(WORDS[LABEL], missing)
    for values in (y, pd.Series(y, dtype=object)):
        model = ReliabilityMap(labels=["no", "yes"], drop_unlabelled=True, **MAP).fit(PROBABILITIES, values)
        assert model.document_.source.rows == N_ROWS - 43


def test_masked_labels_are_missing_and_masked_predictions_are_refused():
    masked = np.ma.array(LABEL, mask=IS_OTHER)
    assert "label is missing" in message_of(ReliabilityMap(**MAP).fit, PROBABILITIES, masked)
    model = ReliabilityMap(drop_unlabelled=True, **MAP).fit(PROBABILITIES, masked)
    assert model.summary_.numbers["accuracy"] == pytest.approx((DECISION == LABEL)[~IS_OTHER].mean())
    hidden = np.ma.array(PROBABILITIES, mask=np.column_stack([IS_OTHER, IS_OTHER]))
    assert "masked" in message_of(model.apply, hidden)


def test_a_label_that_is_listed_is_not_missing(tmp_path):
    severity = np.array(["none", "mild"])
    path = write(judge(severity[DECISION], severity[LABEL]), tmp_path / "p.csv")
    assert accuracy(read(path, ("none", "mild"), drop_unlabelled=True)) == ACCURACY
    assert "by --labels" in message_of(read, path)


@pytest.mark.parametrize("y", [[Decimal(int(x)) for x in LABEL], [Decimal(f"{x}.00") for x in LABEL]])
@pytest.mark.parametrize("labels", [None, [0, 1]])
def test_decimal_labels_are_numbers(y, labels, tmp_path):
    model = ReliabilityMap(labels=labels, **MAP).fit(PROBABILITIES, y)
    assert model.summary_.numbers["accuracy"] == pytest.approx(ACCURACY)
    frame = judge(DECISION, LABEL).with_columns(label=pl.Series(y, dtype=pl.Decimal(38, 2)))
    assert accuracy(read(write(frame, tmp_path / "p.parquet"), labels and ("0", "1"))) == ACCURACY


def test_values_without_a_common_type_in_json_are_text(tmp_path):
    truth = [bool(x) if i % 2 else int(x) for i, x in enumerate(LABEL)]
    lines = []
    for k in range(N_ROWS):
        unused = '{"a": 1}' if k % 2 else "[1]"
        label = str(truth[k]).lower()
        lines.append(
            f'{{"decision": {DECISION[k]}, "confidence": {CONFIDENCE[k]}, "label": {label}, "unused": {unused}}}'
        )
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    (tmp_path / "p.json").write_text(f"[{', '.join(lines)}]")
    assert accuracy(read(tmp_path / "p.jsonl")) == ACCURACY
    assert accuracy(read(tmp_path / "p.json")) == ACCURACY


class LikeTensor:
    """A tensor that NumPy cannot convert."""

    shape = (N_ROWS, 2)
    ndim = 2

    def __len__(self) -> int:
        return N_ROWS

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


class Tensor(LikeTensor):
    """A tensor with gradients, as far as the library uses one."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def detach(self) -> "Tensor":
        return self

    cpu = double = detach

    def is_floating_point(self) -> bool:
        return True

    def numpy(self) -> np.ndarray:
        return self.values


def test_tensors_are_read_or_refused_with_a_remedy():
    model = ReliabilityMap(**MAP).fit(Tensor(PROBABILITIES), Tensor(LABEL))
    assert model.summary_.numbers["accuracy"] == pytest.approx(ACCURACY)
    rows = [Tensor(row) for row in PROBABILITIES]
    assert ReliabilityMap(**MAP).fit(rows, LABEL).arrays_ == "probabilities"
    column = np.empty(N_ROWS, dtype=object)
    for index, row in enumerate(rows):  # assigning them at once would ask each for an array
        column[index] = row
    frame = pd.DataFrame({"probabilities": column, "label": LABEL})
    assert ReliabilityMap(**MAP).fit(frame).document_.n_labels == 2
    with pytest.raises(InputError, match=r"X\.detach\(\)\.cpu\(\)\.numpy\(\)"):
        ReliabilityMap(**MAP).fit(LikeTensor(), LABEL)
    with pytest.raises(InputError, match=r"y\.detach\(\)\.cpu\(\)\.numpy\(\)"):
        ReliabilityMap(**MAP).fit(PROBABILITIES, LikeTensor())


@pytest.mark.parametrize("other", [{1}, Path("a"), {"a": [1]}, 1j, np.zeros((2, 2)), len, [1, "a"]])
def test_columns_that_are_not_needed_may_hold_any_object(other):
    frame = judge(WORDS[DECISION], WORDS[LABEL]).to_pandas()
    frame["other"] = [other] * (N_ROWS - 1) + ["text"]
    model = ReliabilityMap(labels=["no", "yes"], **MAP).fit(frame)
    assert model.summary_.numbers["accuracy"] == pytest.approx(ACCURACY)
    assert model.apply(frame)["other"].iloc[0] is frame["other"].iloc[0]


def test_a_needed_column_of_objects_is_named():
    frame = judge(WORDS[DECISION], WORDS[LABEL]).to_pandas().assign(label=[len] * N_ROWS)
    with pytest.raises(InputError, match=rf"row 0 .*: label .*{re.escape(repr(len))}"):
        ReliabilityMap(labels=["no", "yes"], **MAP).fit(frame)
    with pytest.raises(InputError, match="complex"):
        ReliabilityMap(**MAP).fit(PROBABILITIES.astype(complex), LABEL)


def test_words_of_confidence_may_be_a_dictionary():
    words = {"low": 0.6, "high": 0.9}
    frame = judge(WORDS[DECISION], WORDS[LABEL], np.array(["low", "high"])[DECISION])
    model = ReliabilityMap(labels=["no", "yes"], confidence_words=words, **MAP).fit(frame)
    assert model.document_.input == "confidence_only"
    with pytest.raises(InputError, match="'low': 6"):
        ReliabilityMap(labels=["no", "yes"], confidence_words={"low": 6}, **MAP).fit(frame)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
def test_ratings_are_words_of_confidence_and_no_percentages(suffix, tmp_path):
    rating = GENERATOR.integers(1, 6, N_ROWS)
    path = write(judge(DECISION, LABEL, rating), tmp_path / f"p.{suffix}")
    message = message_of(read, path)
    assert "--confidence-words '1=?,2=?,3=?,4=?,5=?'" in message
    assert "--percent" not in message
    assert "look like ratings" in message_of(read, path, percent=True)
    rows = read(path, confidence_words="1=.55,2=.6,3=.7,4=.8,5=.9").rows
    np.testing.assert_allclose(rows.confidence, np.array([0.55, 0.6, 0.7, 0.8, 0.9])[rating - 1])


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (b"q0 Q0 d0 1 11.5 mine\nq0 Q0 d1 2 11.4 mine\n", "p.csv", "TREC.*--run RUN --qrels QRELS"),
        (b"q0 Q0 d0 1 11.5 mine\n", "p.trec", "TREC.*--run RUN --qrels QRELS"),
        (b"q0\tQ0\td0\t1\t11.5\tmine\n", "p.run", "TREC.*--run RUN --qrels QRELS"),
        (b"q0 0 d0 1\n", "qrels.txt", "separated by spaces"),
        (b"q0\tQ0\td0\t1\t11.5\nq0\tQ0\td1\t2\t11.4\n", "p.tsv", "first line.*add a line"),
        (b'{"decision": 0, "confidence": NaN}\n', "p.jsonl", "line 1 .*NaN.*null"),
        (b'{"logits": [-Infinity, 0]}\n', "p.jsonl", "line 1 .*-Infinity.*-9999"),
        (b'[{"decision": 0},\n{"decision": 1}]\n', "p.jsonl", r"line 1 .*JSON list.* p\.json\b"),
    ],
)
def test_files_of_other_formats_have_a_remedy(content, name, expected, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=expected):
        read(tmp_path / name)


def test_a_first_row_of_data_is_not_taken_for_names(tmp_path):
    (tmp_path / "p.tsv").write_text("q0\td0\t11.5\t1\nq0\td1\t11.4\t0\n")
    for options in ({"score": "11.5", "border": 0}, {"label": "1", "decision": "1"}):
        option, column = next(iter(options.items()))
        message = message_of(read, tmp_path / "p.tsv", **options)
        assert re.search(rf"--{option} .* {re.escape(column)}, .*\(q0, d0, 11\.5, 1\)", message)
    (tmp_path / "p.csv").write_text("0,1,2\nno,0.8,no\n")  # names that pandas gives to columns
    open_predictions(tmp_path / "p.csv", Reading(decision="0", confidence="1", label="2"))


@pytest.mark.parametrize("separator", [";", ",", "\t"])
def test_a_line_of_excel_with_the_separator_is_skipped(separator, tmp_path):
    judge(DECISION, LABEL).write_csv(tmp_path / "p.csv", separator=separator)
    text = (tmp_path / "p.csv").read_text()
    (tmp_path / "p.csv").write_text(f"sep={separator}\n{text}")
    assert accuracy(read(tmp_path / "p.csv")) == ACCURACY
    (tmp_path / "p.csv").write_text(f"sep={separator}\n{text}".replace(f"{separator}{LABEL[-1]}\n", f"{separator}x\n"))
    assert ", line 3" in message_of(read, tmp_path / "p.csv") or "label is 'x'" in message_of(read, tmp_path / "p.csv")


def test_decimal_commas_in_quotes_are_read(tmp_path):
    commas = [str(number).replace(".", ",") for number in CONFIDENCE]
    for suffix in ("csv", "jsonl", "xlsx"):
        rows = read(write(judge(DECISION, LABEL, commas), tmp_path / f"p.{suffix}")).rows
        np.testing.assert_array_equal(rows.confidence, CONFIDENCE)
    lists = [f"[{first:.3f}; {second:.3f}]".replace(".", ",") for first, second in PROBABILITIES]
    path = write(pl.DataFrame({"probabilities": lists, "label": LABEL}), tmp_path / "p.csv")
    assert "line 2: probabilities is '[0," in message_of(read, path)
    assert "decimal commas" in message_of(read, path)


def test_workbooks_name_the_row_of_the_sheet_and_what_is_read(tmp_path):
    path = write(judge(WORDS[DECISION], replaced(WORDS[LABEL], None)), tmp_path / "p.xlsx")
    assert re.search("row 5 .*sheet: label .*missing", message_of(read, path, ("no", "yes")))
    write(pl.DataFrame({"Judge export": ["decision", "no"], "x": ["label", "no"]}), path)
    assert re.search("Judge export, x;.*first sheet.*first row", message_of(read, path))


def test_blank_rows_at_the_end_of_a_workbook_are_ignored(tmp_path):
    blank = pl.DataFrame({"decision": [None] * 3, "confidence": [None] * 3, "label": [None] * 3})
    frame = pl.concat([judge(DECISION, LABEL), blank], how="vertical_relaxed")
    assert len(read(write(frame, tmp_path / "p.xlsx")).rows) == N_ROWS


def test_log_probabilities_and_the_mass_of_top_tokens_have_a_remedy(tmp_path):
    path = write(judge(DECISION, LABEL, np.log(CONFIDENCE)), tmp_path / "p.csv")
    assert "exp(confidence)" in message_of(read, path)
    path = write(with_probabilities(0.93 * PROBABILITIES), tmp_path / "p.csv")
    message = message_of(read, path)
    assert re.search(r"line 2: .* 0\.93;.*divide", message)
    assert "logits" not in message


def test_repeated_ids_have_a_remedy(tmp_path):
    frame = judge(DECISION, LABEL).with_columns(id=pl.int_range(N_ROWS) // 3, task=pl.int_range(N_ROWS) // 3)
    path = write(frame, tmp_path / "p.csv")
    assert any(re.search("200 of 300 .* id.*--group id", note) for note in read(path).notes)
    assert re.search("line 3: .*id 0 .*keep one row", message_of(read, path, id="task"))


def test_a_mistyped_file_name_is_compared_with_the_files_of_its_folder(tmp_path):
    write(judge(DECISION, LABEL), tmp_path / "judged.parquet")
    assert f"is it {tmp_path / 'judged.parquet'}?" in message_of(open_predictions, tmp_path / "judged.csv")
    assert f"is it {tmp_path / 'judged.parquet'}?" in message_of(open_predictions, tmp_path / "juged.parquet")
    assert f"folder {tmp_path / 'nowhere'}?" in message_of(open_predictions, tmp_path / "nowhere" / "judged.csv")


def test_maps_and_results_are_replaced_only_with_force(tmp_path):
    predictions = write(judge(DECISION, LABEL), tmp_path / "p.csv")
    fit = ["fit", "--predictions", str(predictions), "--out", str(tmp_path / "m.json"), "--variant", "confidence"]
    new_rows = ["--map", str(tmp_path / "m.json"), "--predictions", str(predictions), "--out"]
    commands = [
        fit,
        ["apply", *new_rows, str(tmp_path / "o.csv")],
        ["thresholds", *new_rows, str(tmp_path / "t.json"), "--coverage", "0.5"],
        ["evaluate", *new_rows, str(tmp_path / "e.json")],
    ]
    for command in commands:
        cli.app(command, standalone_mode=False)
        out = Path(command[command.index("--out") + 1])
        content = out.read_bytes()
        with pytest.raises(InputError, match=rf"{re.escape(str(out))} exists.*--force"):
            cli.app(command, standalone_mode=False)
        assert out.read_bytes() == content
        cli.app([*command, "--force"], standalone_mode=False)


# One case of each kind: rows of decisions and labels, and what the message must contain.
NUMBERED_FROM = [
    (DECISION + 1, LABEL, r"decision \D*1, 2, \D*label \D*0, 1, \D*\b0"),
    (DECISION, LABEL + 1, r"decision \D*0, 1, \D*label \D*1, 2, \D*\b0"),
    (2 * DECISION + LABEL + 1, 2 * DECISION + LABEL, r"decision \D*1, 2, 3, 4, \D*label \D*0, 1, 2, 3, \D*\b0"),
]


@pytest.mark.parametrize(("decision", "label", "expected"), NUMBERED_FROM)
def test_decisions_and_labels_with_other_first_numbers_are_refused(decision, label, expected, tmp_path):
    path = write(judge(decision, label), tmp_path / "p.csv")
    message = message_of(read, path)
    assert re.search(expected, message)
    names = ("0", "1", "2", "3", "4")
    assert len(read(path, names).rows) == N_ROWS  # names say that equal numbers mean the same


def test_letters_of_two_scripts_are_shown_with_escapes(tmp_path):
    looks_like_no = "n\u043e"
    path = write(judge(np.array([looks_like_no, "yes"])[DECISION], WORDS[LABEL]), tmp_path / "p.csv")
    assert "'n\\u043e'" in message_of(read, path, ("no", "yes"))


def test_columns_of_labels_are_suggested_with_their_numbers_or_names(tmp_path):
    numbers = pl.DataFrame({"predict": DECISION, "p2": OF_SECOND, "p1": 1 - OF_SECOND, "label": LABEL})
    message = message_of(read, write(numbers, tmp_path / "p.csv"), ("1", "2"), probabilities="p")
    assert "--probabilities p2,p1" in message
    named = pl.DataFrame({"no": 1 - OF_SECOND, "yes": OF_SECOND, "label": WORDS[LABEL]})
    message = message_of(read, write(named, tmp_path / "q.csv"), ("no", "yes"))
    assert message.endswith(" give --probabilities no,yes")
    assert accuracy(read(tmp_path / "q.csv", ("no", "yes"), probabilities="no,yes")) == ACCURACY


def test_wide_decimals_of_a_warehouse_are_numbers(tmp_path):
    path = tmp_path / "p.parquet"
    labels = pa.array([Decimal(int(label)) for label in LABEL], pa.decimal256(40, 0))
    pq.write_table(pa.table({"decision": DECISION, "confidence": CONFIDENCE, "label": labels}), path)
    assert accuracy(read(path)) == ACCURACY


def test_one_hot_labels_a_packed_file_and_a_folder_have_a_remedy(tmp_path):
    assert "y.argmax(axis=1)" in message_of(ReliabilityMap().fit, PROBABILITIES, np.eye(2)[LABEL])
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(b"packed")
    assert message_of(read, packed).endswith("unpack the file")
    folder = tmp_path / "part.parquet"
    folder.mkdir()
    assert "Join part files" in message_of(read, folder)


def test_repeated_ids_are_noted_when_a_map_is_evaluated():
    frame = judge(DECISION, LABEL)
    model = ReliabilityMap(**MAP).fit(frame)
    annotated = frame.with_columns(pl.col("confidence") - 0.001, id=pl.Series(np.arange(N_ROWS) // 3))
    assert re.search(r"200 of 300 .*\bid\b", str(model.evaluate(annotated)))


def test_correct_decisions_have_a_reliability_below_1_that_grows_with_their_number():
    largest = []
    for n_rows in (100, 300):
        label = np.random.default_rng(n_rows).integers(0, 2, 2 * n_rows)
        logits = np.random.default_rng(1).normal(size=(2 * n_rows, 2)) + 40 * np.eye(2)[label]
        model = ReliabilityMap().fit(logits[:n_rows], label[:n_rows])
        largest.append(float(model.reliability(logits[:n_rows]).max()))
        more = model.evaluate(logits[n_rows:], label[n_rows:])
        assert more.numbers["drift"]["holds"]
        assert "no longer holds" not in str(more)
    assert largest[0] <= 1 - 1 / 1000
    assert largest[0] < largest[1] <= 1 - 1 / 3000


def simulate_labels(n_rows: int, n_labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate logits of four labels, of which only the first ones are true labels."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, n_labels, n_rows)
    return 1.5 * generator.normal(size=(n_rows, 4)) + 2 * np.eye(4)[label], label


def test_a_label_without_fit_rows_gets_the_common_curve():
    logits, label = simulate_labels(900, 3, seed=1)
    is_kept = logits.argmax(axis=1) < 3  # the last label is neither decided nor a true label
    model = ReliabilityMap().fit(logits[is_kept], label[is_kept])
    assert "3" in str(model.summary_.notes)
    new_logits, new_label = simulate_labels(4000, 4, seed=2)
    reliability = model.reliability(new_logits)
    is_new = new_logits.argmax(axis=1) == 3
    assert reliability[is_new].mean() == pytest.approx(reliability[~is_new].mean(), abs=0.05)
    assert np.isfinite(reliability).all()
    document = model.document_
    others = document.projection.fitted.line
    assert others.intercept[3] == pytest.approx(others.intercept[:3].mean(), abs=0.2)
    evaluation = model.evaluate(new_logits, new_label)
    loss = -np.log(np.where(new_logits.argmax(axis=1) == new_label, reliability, 1 - reliability)).mean()
    accuracy = (new_logits.argmax(axis=1) == new_label).mean()
    assert loss < -(accuracy * np.log(accuracy) + (1 - accuracy) * np.log(1 - accuracy))
    assert evaluation.numbers["comparison"] != "worse"


def test_results_are_printed_in_a_short_form():
    model = ReliabilityMap(labels=["no", "yes"], **MAP).fit(PROBABILITIES, WORDS[LABEL])
    routed = model.apply(PROBABILITIES)
    assert str(routed) == repr(routed)
    assert len(str(routed).splitlines()) < 20
    assert type(routed["decision"]) is np.ndarray
    assert (routed["decision"] == WORDS[LABEL]).mean() == pytest.approx(ACCURACY)
    cuts = model.thresholds(PROBABILITIES, WORDS[LABEL], target_accuracy=0.6)
    assert repr(cuts).startswith(f"Cuts(cut={cuts.cut}, coverage=")
    assert len(repr(cuts)) < 80


@pytest.mark.parametrize("labels", [[0, 1], [1, 0], [False, True], ["no", "yes"], [0.0, 1.0]])
def test_routed_decisions_of_an_array_are_labels_that_can_be_compared(labels):
    y = np.array(labels)[LABEL]
    model = ReliabilityMap(labels=labels, accept_label_order=True, **MAP).fit(PROBABILITIES, y)
    routed = model.apply(PROBABILITIES)
    assert (routed["decision"] == y).mean() == pytest.approx(ACCURACY)
    np.testing.assert_array_equal(routed["decision"], model.predict(PROBABILITIES))
    np.testing.assert_array_equal(routed["decision_code"], DECISION)


def test_the_former_name_of_the_summary_warns():
    model = ReliabilityMap(**MAP).fit(PROBABILITIES, LABEL)
    with pytest.warns(FutureWarning, match="use summary_"):
        assert model.recommendation_ is model.summary_


IN_PERCENT = (100 * CONFIDENCE).round(1)


@pytest.mark.parametrize(
    ("values", "percent", "n_rows", "expected"),
    [
        (CONFIDENCE, True, N_ROWS, "confidence .*at most 1 .*100.*--percent"),
        (CONFIDENCE, True, 8, "confidence .*at most 1 .*100.*--percent"),
        (CONFIDENCE, True, 1, "confidence .*at most 1 .*100.*--percent"),
        ([f"{number}%" for number in CONFIDENCE], False, N_ROWS, "confidence .*at most 1 .*100.*--percent"),
        (np.where(IS_OTHER, CONFIDENCE, IN_PERCENT), True, N_ROWS, r"line 5: confidence .* 0\.\d+,.*same unit"),
    ],
)
def test_fractions_are_not_read_as_percentages(values, percent, n_rows, expected, tmp_path):
    rows = judge(DECISION, LABEL, values).head(n_rows)
    with pytest.raises(InputError, match=expected):
        read(write(rows, tmp_path / "p.csv"), names=("0", "1"), percent=percent)


def test_a_map_of_percentages_reads_no_fractions(tmp_path):
    model = ReliabilityMap(percent=True, **MAP).fit(judge(DECISION, LABEL, IN_PERCENT))
    model.save(tmp_path / "map.json")
    loaded = ReliabilityMap.load(tmp_path / "map.json")
    new = judge(DECISION, LABEL, CONFIDENCE).drop("label")
    for n_rows in (1, N_ROWS):
        assert "multiply it by 100" in message_of(loaded.apply, new.head(n_rows))


def test_an_array_of_one_probability_in_percent_is_no_array_of_fractions():
    second = PROBABILITIES[:, 1]
    assert "not in percent" in message_of(ReliabilityMap(percent=True, **MAP).fit, second, LABEL)
    assert "percent=True" in message_of(ReliabilityMap(**MAP).fit(second, LABEL).reliability, 100 * second)


@pytest.mark.parametrize("X", [PERCENT, PERCENT[:, 1], pl.DataFrame({"probabilities": PERCENT.tolist()})])
def test_a_loaded_map_remembers_that_its_rows_were_in_percent(X, tmp_path):
    model = ReliabilityMap(percent=True, **MAP).fit(X, LABEL)
    model.save(tmp_path / "map.json")
    loaded = ReliabilityMap.load(tmp_path / "map.json")
    np.testing.assert_array_equal(loaded.reliability(X), model.reliability(X))
    np.testing.assert_allclose(loaded.reliability(PROBABILITIES), model.reliability(X))  # rows that sum to 1


def test_lists_of_percentages_may_have_signs_or_not(tmp_path):
    with_signs = [[f"{number:.1f}%" for number in row] for row in PERCENT.tolist()]
    frame = pl.DataFrame({"probabilities": with_signs, "label": LABEL})
    path = write(frame, tmp_path / "p.jsonl")
    plain, percent = read(path).rows.logits, read(path, percent=True).rows.logits
    np.testing.assert_array_equal(plain, percent)


def test_numbers_that_are_smallest_for_the_label_are_not_taken_for_another_order():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), 500)
    label = (np.log(probabilities) + np.random.default_rng(1).gumbel(size=(500, 3))).argmax(axis=1)
    message = message_of(ReliabilityMap(**MAP).fit, -np.log(probabilities), label)
    assert "change the sign" in message
    assert "labels=" not in message
    ReliabilityMap(**MAP).fit(np.log(probabilities), label)


def test_lists_of_labels_of_a_score_are_named(tmp_path):
    message = message_of(read_scores, tmp_path / "p.jsonl", [[value] for value in LABEL.tolist()], "1", drop=False)
    assert re.search(r"label is List\(Int64\).*one label", message)


def test_a_failed_answer_in_decisions_and_labels_is_suggested_with_a_doubt(tmp_path):
    rows = judge(replaced(WORDS[DECISION], "ERROR"), replaced(WORDS[LABEL], "ERROR"))
    assert "if ERROR means" in message_of(read, write(rows, tmp_path / "p.csv"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("rating", [0, 1])
def test_a_rating_without_a_number_is_no_confidence(rating, suffix, tmp_path):
    rows = judge(DECISION, LABEL, replaced(np.full(N_ROWS, 3), rating))
    message = message_of(read, write(rows, tmp_path / f"p.{suffix}"), confidence_words="2=.5,3=.7,4=.9")
    assert re.search(rf"confidence \w+ '{rating}', .*--confidence-words 2=\.5,3=\.7,4=\.9", message)


def test_new_words_are_added_to_those_of_the_map():
    fitted = Reading(confidence_words="low=.5,high=.9").to_stored()
    completed = Reading(confidence_words="certain=.95,low=.5").completed_by(fitted)
    assert completed.words == {"low": 0.5, "high": 0.9, "certain": 0.95}
    message = message_of(Reading(confidence_words="low=.6").completed_by, fitted)
    assert re.search(r"--confidence-words .*low=\.5,high=\.9", message)


def test_a_message_on_a_new_word_suggests_all_words(tmp_path):
    rows = judge(DECISION, LABEL, replaced(np.full(N_ROWS, "low"), "certain"))
    message = message_of(read, write(rows, tmp_path / "p.csv"), confidence_words="low=.5")
    assert "--confidence-words 'low=.5,certain=?'" in message


@pytest.mark.parametrize(
    ("fitted", "given", "expected"),
    [
        ({"decision": "verdict"}, {"decision": "decision"}, {"decision": "decision"}),
        ({"confidence": "sure", "percent": True}, {"confidence": "confidence"}, {"confidence": "confidence"}),
        ({"confidence": "sure", "percent": True}, {"confidence": "sure"}, {"confidence": "sure", "percent": True}),
        ({"percent": True}, {"confidence": "confidence"}, {"confidence": "confidence", "percent": True}),
        ({"probability": "p", "positive": "yes"}, {"confidence": "confidence"}, {"confidence": "confidence"}),
        ({"label": "truth"}, {"label": "label"}, {"label": "label"}),
    ],
)
def test_an_option_replaces_what_a_map_remembers(fitted, given, expected):
    assert Reading(**given).completed_by(Reading(**fitted).to_stored()) == Reading(**expected)


def test_numbers_that_are_no_labels_of_a_map_are_compared_with_its_names():
    model = ReliabilityMap(labels=["no", "yes"], **MAP).fit(judge(WORDS[DECISION], WORDS[LABEL]))
    message = message_of(model.apply, judge(DECISION + 1, LABEL).drop("label"))
    assert re.search(r"row 0 .*: decision \w+ 2, .*labels \w+ no, yes", message)
    assert "labels=" not in message


def test_rows_with_sampling_weights_are_not_watched(tmp_path):
    rows = judge(DECISION, LABEL)
    ReliabilityMap(**MAP).fit(rows).save(tmp_path / "map.json")
    document = load_map(tmp_path / "map.json")
    weighted = write(rows.with_columns(inverse_probability=2.0), tmp_path / "p.csv")
    message = message_of(watch_file, document, open_predictions(weighted))
    assert re.search(r"p\.csv .*weights .*inverse_probability", message)


@pytest.mark.parametrize("cell", ["[0]", '{"choices": ["no"]}', " ['no']"])
def test_a_label_of_an_annotation_tool_has_a_remedy(cell, tmp_path):
    message = message_of(
        read, write(judge(WORDS[DECISION], replaced(WORDS[LABEL], cell)), tmp_path / "p.csv"), ("no", "yes")
    )
    assert message.count("line 5: label is") == 1
    assert "one label" in message


def test_a_probability_of_one_label_with_ties_at_one_half_is_no_confidence(tmp_path):
    with_ties = np.where(IS_OTHER, 0.5, OF_SECOND)
    path = write(judge(DECISION, LABEL, with_ties), tmp_path / "p.csv")
    assert "--probability confidence --positive 1" in message_of(read, path, confidence="confidence")
    underconfident = np.where(DECISION == 1, CONFIDENCE, 0.4)  # also above 1/2 for label 0 in some rows
    read(write(judge(DECISION, LABEL, np.where(IS_OTHER, 0.6, underconfident)), path), confidence="confidence")


@pytest.mark.parametrize("blank", ["", " ", None])
def test_a_blank_group_is_missing(blank, tmp_path):
    rows = judge(DECISION, LABEL).with_columns(query=pl.Series(replaced(np.arange(N_ROWS).astype(str), blank)))
    path = write(rows, tmp_path / "p.parquet")
    reading = Reading(confidence="confidence")
    message = message_of(read_labelled_rows, open_predictions(path, reading), group="query", names=("0", "1"))
    assert re.search("row 3 .*: query .*missing", message)
    of_score = Reading(score="confidence", positive="1")
    assert "query is missing" in message_of(read_score, open_predictions(path, of_score), group="query")


@pytest.mark.parametrize("offset", [0.0, 1e7, -1.7e9])
def test_a_threshold_of_a_score_does_not_depend_on_its_offset(offset):
    found = find_score_thresholds(offset + SCORE, LABEL == 1, precision=0.6)
    covered = [result.covered for result in found.thresholds]
    assert covered == [result.covered for result in find_score_thresholds(SCORE, LABEL == 1, precision=0.6).thresholds]
    assert found.thresholds[0].threshold is not None
    assert str(found.thresholds[0].threshold) in found.describe()[0]


@pytest.mark.parametrize("names", [("true", "fake"), ("fake", "true"), ("relevant", "no"), ("Y", "N"), ("f", "t")])
@pytest.mark.parametrize("convert", [int, bool])
def test_numbers_and_booleans_are_two_labels_whatever_their_names(names, convert, tmp_path):
    frame = judge(map(convert, DECISION), map(convert, LABEL))
    for suffix in ("csv", "parquet", "jsonl"):
        assert accuracy(read(write(frame, tmp_path / f"p.{suffix}"), names)) == ACCURACY


@pytest.mark.parametrize(
    ("decision", "label", "names"),
    [
        (np.array(["irrelevant", "relevant"])[DECISION], np.array(["not relevant", "relevant"])[LABEL], None),
        (np.array(["bad", "good"])[DECISION], np.array(["good", "poor"])[LABEL], ("bad", "good", "poor")),
        (DECISION, 2 * LABEL, None),
    ],
)
def test_decisions_and_labels_that_share_one_value_only_use_different_words(decision, label, names, tmp_path):
    names = names or ((*np.union1d(decision, label),) if isinstance(decision[0], str) else None)
    message = message_of(read, write(judge(decision, label), tmp_path / "p.csv"), names)
    assert re.search("different words;.*same words", message)
    assert all(str(value) in message for value in (*decision, *label))


def test_answers_that_failed_are_no_words_to_name(tmp_path):
    path = write(judge(np.array(["ERROR", "yes"])[DECISION], LABEL), tmp_path / "p.csv")
    assert "--labels" not in message_of(read, path)
    path = write(judge(replaced(WORDS[DECISION], "ERROR"), LABEL), tmp_path / "p.csv")
    message = message_of(read, path)
    assert "--labels no,yes" in message
    assert "if ERROR means" in message


@pytest.mark.parametrize("name", ["Confidence", " confidence", "conf", "how_sure"])
def test_a_confidence_that_is_not_read_is_noted(name, tmp_path):
    path = write(judge(DECISION, LABEL).rename({"confidence": name}), tmp_path / "p.csv")
    assert re.search(rf"column {name} .*not read", read(path).notes[-1])
    assert read(path, confidence=name).rows.confidence is not None
    assert not [note for note in read(path, confidence=name).notes if "is not read" in note]


def test_times_as_labels_are_refused_and_as_groups_are_read():
    days = (np.arange(N_ROWS) // 10).astype("datetime64[s]")
    message = message_of(ReliabilityMap(**MAP).fit, PROBABILITIES, days)
    assert "label is '1970-01-01T00:00:00'" in message
    model = ReliabilityMap(**MAP)
    by_time = model.fit(PROBABILITIES, LABEL, groups=days).summary_.notes
    assert by_time == model.fit(PROBABILITIES, LABEL, groups=np.arange(N_ROWS) // 10).summary_.notes


def test_a_word_of_confidence_with_a_comma_is_refused_as_such():
    assert "replace the comma" in message_of(
        ReliabilityMap(confidence_words={"very, high": 0.9}).fit, PROBABILITIES, LABEL
    )
