"""Reading of labelled rows to fit and to evaluate: columns, notes, messages, and how each row is scored."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from relmap.errors import InputError
from relmap.io.column_layout import Reading
from relmap.io.files import open_predictions
from relmap.io.frames import FramePredictions
from relmap.io.hashing import sha256_of_arrays, sha256_of_file
from relmap.maps import labelled_rows
from relmap.maps.document import MapDocument
from relmap.maps.fit_rows import ScoredRows, fingerprint_rows, hash_predictions, read_and_score_rows, score_out_of_fold
from relmap.maps.folds import paper_fit_rows, restore_fold_split, split_folds
from relmap.maps.score import FittedMap
from tests import maps
from tests.maps import fit_file as fit_map
from tests.maps import read_labelled as read_labelled_rows
from tests.texts import assert_matches

N_ROWS = 90
ROWS = maps.make_predictions(N_ROWS, shift=2.5, per_group=4)
NEW_ROWS = maps.make_predictions(40, shift=2.5, seed=1, per_group=4)
CONFIDENCES = maps.make_confidence_predictions(N_ROWS, shift=2.5).with_columns(group=ROWS["group"])
TWO_LABELLINGS = CONFIDENCES.drop("group").with_columns(other=(pl.col("label") + pl.int_range(N_ROWS) % 2) % 3)
SIGNALS = maps.make_predictions_with_signals(N_ROWS)


def predictions(frame: pl.DataFrame, **reading: object) -> FramePredictions:
    return replace(FramePredictions.from_frame(frame), reading=Reading(**reading))


def fit(frame: pl.DataFrame, *, reading: dict[str, object] | None = None, **options) -> MapDocument:
    return fit_map(predictions(frame, **(reading or {})), **({"variant": "label_intercept"} | options))[0]


@pytest.fixture(scope="module")
def document() -> MapDocument:
    return fit(ROWS.drop("group"))


@pytest.fixture(scope="module")
def grouped() -> MapDocument:
    return fit(ROWS, group="group")


@pytest.fixture(scope="module")
def held_out() -> MapDocument:
    return fit(ROWS.drop("group"), hold_out=0.3)


@pytest.fixture(scope="module")
def paper() -> MapDocument:
    return fit(ROWS.drop("group"), protocol="paper")


@pytest.fixture(scope="module")
def confidence_map() -> MapDocument:
    return fit(TWO_LABELLINGS)


def score(document: MapDocument, frame: pl.DataFrame, *, group: str | None = None, **reading: object) -> ScoredRows:
    return read_and_score_rows(document, predictions(frame, **reading), group=group)


def message_of_read(frame: pl.DataFrame, reading: dict[str, object] | None = None, **options) -> str:
    options = {"group": None, "names": None} | options
    with pytest.raises(InputError) as error:
        read_labelled_rows(predictions(frame, **(reading or {})), **options)
    return str(error.value)


def message_of_score(document: MapDocument, frame: pl.DataFrame, **options) -> str:
    with pytest.raises(InputError) as error:
        score(document, frame, **options)
    return str(error.value)


def check_notes(notes: list[str], *patterns: str) -> None:
    """Check that there is one note for each pattern, in this order."""
    assert_matches(notes, patterns)


IDS = pl.format("r{}", 7 * pl.int_range(N_ROWS))


def test_rows_are_read_with_groups_names_and_ids():
    frame = ROWS.with_columns(id=IDS, pair=pl.format("p{}", pl.int_range(N_ROWS)))
    read = read_labelled_rows(predictions(frame), group="group", names=("a", "b", "c"))
    assert (read.n_labels, read.names, read.signals, read.notes, read.id_column) == (3, ("a", "b", "c"), (), [], "id")
    np.testing.assert_array_equal(read.rows.logits, np.array(ROWS["logits"].to_list()))
    assert read.rows.group.tolist() == ROWS["group"].to_list()
    assert read.ids.tolist() == frame["id"].to_list()
    assert read.rows.signals is None
    by_pair = read_labelled_rows(predictions(frame, id="pair"), group=None, names=None)
    assert (by_pair.id_column, by_pair.names) == ("pair", None)
    assert by_pair.ids.tolist() == frame["pair"].to_list()
    without_ids = read_labelled_rows(predictions(ROWS), group=None, names=None)
    assert (without_ids.ids, without_ids.id_column) == (None, "id")


@pytest.mark.parametrize(
    ("numbers", "identify"), [([4, 5, 7], True), ([4, 6, 5], False), ([7, 5, 3], True), ([3, 4, 4], False)]
)
def test_column_named_id_identifies_rows_unless_it_repeats_or_numbers_them(numbers, identify):
    ids = labelled_rows._read_default_ids(pl.Series("id", numbers))
    assert (ids is not None) == identify
    if ids is not None:
        assert ids.tolist() == [str(number) for number in numbers]


def test_number_of_labels_is_found_by_names_logits_or_largest_label():
    five = CONFIDENCES.with_columns(label=pl.when(pl.int_range(N_ROWS) == 3).then(4).otherwise("label"))
    larger_decision = CONFIDENCES.with_columns(
        decision=pl.when(pl.int_range(N_ROWS) == 3).then(6).otherwise("decision")
    )
    names = ("a", "b", "c", "d", "e", "f")
    assert read_labelled_rows(predictions(CONFIDENCES), group=None, names=None).n_labels == 3
    assert read_labelled_rows(predictions(five), group=None, names=None).n_labels == 5
    assert read_labelled_rows(predictions(larger_decision), group=None, names=None).n_labels == 7
    assert read_labelled_rows(predictions(five.drop("confidence")), group=None, names=None).n_labels == 5
    assert read_labelled_rows(predictions(five), group=None, names=names).n_labels == 6
    assert read_labelled_rows(predictions(ROWS), group=None, names=None).n_labels == 3
    other = ROWS.with_columns(label=pl.lit(1))
    assert read_labelled_rows(predictions(other), group=None, names=None).n_labels == 3


@pytest.mark.parametrize(("positive", "names"), [(None, None), ("no", ("yes", "no")), ("yes", ("no", "yes"))])
@pytest.mark.parametrize("kind", ["probability", "score"])
def test_names_of_two_labels_follow_the_positive_one(kind, positive, names):
    is_second = np.arange(N_ROWS) % 3 == 0
    frame = pl.DataFrame({"p": np.where(is_second, 0.8, 0.3), "label": np.where(is_second, "yes", "no")})
    if positive == "no":
        frame = frame.with_columns(p=1 - pl.col("p"))
    reading = {kind: "p", "positive": positive} | ({"border": 0.5} if kind == "score" else {})
    if positive is None:
        assert "name its label" in message_of_read(frame, reading)
        return
    read = read_labelled_rows(predictions(frame, **reading), group=None, names=None)
    assert (read.names, read.n_labels) == (names, 2)
    assert read.rows.correct.all()


def test_signals_are_learned_from_the_rows_that_are_not_held_out():
    names = ("agreement", "source")
    options = {"group": None, "names": None, "signals": names}
    split = split_folds(N_ROWS, None, 3, hold_out=0.4)
    changed = SIGNALS.with_columns(
        agreement=pl.when(pl.int_range(N_ROWS).is_in(split.held_out.tolist())).then(9.0).otherwise("agreement")
    )
    learned = read_labelled_rows(predictions(SIGNALS), seed=3, hold_out=0.4, **options)
    with_changed_held_out = read_labelled_rows(predictions(changed), seed=3, hold_out=0.4, **options)
    all_rows = read_labelled_rows(predictions(changed), seed=3, **options)
    other_seed = read_labelled_rows(predictions(changed), seed=4, hold_out=0.4, **options)
    assert learned.signals == with_changed_held_out.signals
    assert [signal.name for signal in learned.signals] == list(names)
    assert all_rows.signals != learned.signals
    assert other_seed.signals != learned.signals
    assert learned.rows.signals.shape == with_changed_held_out.rows.signals.shape
    grouped_split = split_folds(N_ROWS, SIGNALS["group"].to_numpy(), 3, hold_out=0.4)
    by_group = SIGNALS.with_columns(
        agreement=pl.when(pl.int_range(N_ROWS).is_in(grouped_split.held_out.tolist())).then(9.0).otherwise("agreement")
    )
    options["group"] = "group"
    first = read_labelled_rows(predictions(SIGNALS), seed=3, hold_out=0.4, **options)
    second = read_labelled_rows(predictions(by_group), seed=3, hold_out=0.4, **options)
    assert first.signals == second.signals


def test_notes_on_omitted_rows_come_before_doubts_about_the_columns():
    frame = CONFIDENCES.drop("group").with_columns(
        label=pl.when(pl.int_range(N_ROWS) % 9 == 2).then(None).otherwise("label"),
        confidence=pl.when(pl.int_range(N_ROWS) == 0).then(0.1).otherwise("confidence"),
    )
    reading = {"drop_unlabelled": True, "confidence": "confidence"}
    read = read_labelled_rows(predictions(frame, **reading), group=None, names=None)
    check_notes(read.notes, r"^10 of 90 .*no label.*omitted", r"\b1 of 80 rows confidence .*1/3,")
    assert len(read.rows) == 80
    rows = predictions(CONFIDENCES.drop("group"), drop_unlabelled=True)
    complete = read_labelled_rows(rows, group=None, names=None)
    assert complete.notes == []


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (ROWS, {"signals": ("group", "label")}, "^X: .*column label .*signal.*omit"),
        (
            ROWS,
            {"signals": ("z", "group_rank", "b", "group")},
            "^X .*no column b,.*--signals.*logits, label, group$",
        ),
        (ROWS, {"reading": {"id": "pair"}}, "^X has no column pair,.*--id.* logits, label, group$"),
        (ROWS.head(0), {}, "^X has no rows;"),
        (
            ROWS.with_columns(label=pl.when(pl.int_range(N_ROWS) != 5).then("label")),
            {},
            r"^X, row 5 \(from 0\): label .*missing.* --drop-unlabelled$",
        ),
        (
            ROWS.with_columns(truth=pl.lit(None)),
            {"reading": {"drop_unlabelled": True, "label": "truth"}},
            "^X has no value .*truth;.* --label$",
        ),
        (
            ROWS.with_columns(label=pl.when(pl.int_range(N_ROWS) != 5).then("label")),
            {"reading": {"drop_unlabelled": True}, "group": "group", "signals": ("group_gap",)},
            "^X .*without a label.* group_rank .*group_gap .*omit",
        ),
        (
            ROWS.with_columns(inverse_probability=pl.lit(2.0)),
            {"group": "group", "signals": ("group_rank",)},
            "^X .*sample .*group_rank .*group_gap .*omit",
        ),
        (
            ROWS.with_columns(id=pl.concat_list(pl.int_range(N_ROWS))),
            {"reading": {"id": "id"}},
            "^X: .* in id,.* lists;",
        ),
        (
            ROWS.with_columns(id=pl.when(pl.int_range(N_ROWS) == 60).then(pl.lit("r7")).otherwise(IDS)),
            {"reading": {"id": "id"}},
            r"^X, row 60 \(from 0\): .*id r7 .*repeated",
        ),
        (
            ROWS.with_columns(id=pl.when(pl.int_range(N_ROWS) != 60).then(IDS)),
            {"reading": {"id": "id"}},
            r"^X, row 60 \(from 0\): id .*missing",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_rejected(frame, options, message):
    assert re.search(message, message_of_read(frame, **options))


def test_sampled_or_unlabelled_rows_are_accepted_with_other_signals():
    sampled = SIGNALS.with_columns(inverse_probability=pl.lit(2.0))
    options = {"group": "group", "names": None}
    assert len(read_labelled_rows(predictions(sampled), signals=("agreement",), **options).signals) == 1
    unlabelled = SIGNALS.with_columns(label=pl.when(pl.int_range(N_ROWS) != 5).then("label"))
    read = read_labelled_rows(predictions(unlabelled, drop_unlabelled=True), signals=("agreement",), **options)
    assert len(read.rows) == 89


def test_label_order_is_checked_unless_it_is_accepted():
    wrong = ROWS.with_columns(label=2 - pl.col("label"))
    assert re.search("another order.* --labels 2,1,0;.* --accept-label-order$", message_of_read(wrong))
    assert read_labelled_rows(predictions(wrong), group=None, names=None, accept_label_order=True).n_labels == 3


ALL_ROWS_NOTE = "^X .*each row .*without its fold"


def test_all_fit_rows_are_scored_out_of_fold(grouped):
    scored = score(grouped, ROWS)
    split = split_folds(N_ROWS, ROWS["group"].to_numpy(), 1)
    expected = np.empty(N_ROWS)
    for fold, members in zip(grouped.folds, split.folds, strict=True):
        model = FittedMap(fold.calibrator, fold.projection)
        expected[members] = model(scored.rows.take(members)).logit
    np.testing.assert_array_equal(scored.scored.logit, expected)
    check_notes(scored.notes, r"grouped by group\b", ALL_ROWS_NOTE)
    assert scored.origin == "out_of_fold"
    assert scored.fitted.tolist() == [True] * N_ROWS
    check_notes(score(grouped, ROWS, group="group").notes, ALL_ROWS_NOTE)


def test_rows_beyond_the_maximum_of_a_fit_are_scored_by_the_map(document):
    rows = maps.rows_of_frame(ROWS.drop("group"))
    projection = document.projection.model_copy(update={"rows": 70})
    limited = document.model_copy(update={"projection": projection})
    scored = score(limited, ROWS)
    split = restore_fold_split(limited, rows)
    assert len(split.held_out) == 20
    assert np.flatnonzero(~scored.fitted).tolist() == split.held_out.tolist()
    by_map = FittedMap.from_document(limited)(rows.take(split.held_out))
    np.testing.assert_array_equal(scored.scored.logit[split.held_out], by_map.logit)
    np.testing.assert_array_equal(scored.scored.logit, score_out_of_fold(limited, rows, split).logit)
    by_fold = FittedMap(limited.folds[2].calibrator, limited.folds[2].projection)(rows.take(split.folds[2]))
    np.testing.assert_array_equal(scored.scored.logit[split.folds[2]], by_fold.logit)


@pytest.mark.parametrize("kind", ["held out", "paper"])
def test_only_rows_that_were_held_out_are_used_if_there_are_any(kind, held_out, paper):
    document = held_out if kind == "held out" else paper
    rows = maps.rows_of_frame(ROWS.drop("group"))
    if kind == "held out":
        unused = split_folds(N_ROWS, None, 1, hold_out=0.3).held_out
    else:
        used = paper_fit_rows(document.source, rows, document.calibrator.fitted)
        unused = np.array([row for row in range(N_ROWS) if row not in used])
    scored = score(document, ROWS)
    np.testing.assert_array_equal(scored.rows.logits, rows.logits[unused])
    np.testing.assert_array_equal(scored.scored.logit, FittedMap.from_document(document)(rows.take(unused)).logit)
    assert scored.origin == "held_out"
    assert scored.fitted.tolist() == [False] * len(unused)
    check_notes(scored.notes, rf"^X .*\b{len(unused)} rows .*held out")


@pytest.mark.parametrize("kind", ["held out", "paper"])
def test_fit_rows_among_others_are_omitted_if_rows_were_held_out(kind, held_out, paper):
    document = held_out if kind == "held out" else paper
    mixed = pl.concat([NEW_ROWS, ROWS[::-1]])  # 40 new rows, then the fit rows: fit row r is in row 129 - r
    scored = score(document, mixed)
    rows = maps.rows_of_frame(mixed.drop("group"))
    if kind == "held out":
        fit_rows = split_folds(N_ROWS, None, 1, hold_out=0.3).fit_rows
    else:
        fit_rows = paper_fit_rows(document.source, maps.rows_of_frame(ROWS), document.calibrator.fitted)
    is_new = np.ones(130, dtype=bool)
    is_new[129 - fit_rows] = False
    np.testing.assert_array_equal(scored.rows.logits, rows.logits[is_new])
    np.testing.assert_array_equal(scored.scored.logit, FittedMap.from_document(document)(rows.take(is_new)).logit)
    assert scored.origin == "new"
    assert not scored.fitted.any()
    assert len(scored.fitted) == is_new.sum()
    check_notes(scored.notes, f"^{(~is_new).sum()} of 130 rows .*omitted")


def test_fit_rows_among_others_are_scored_without_their_fold(document):
    mixed = pl.concat([NEW_ROWS, ROWS[::-1]])  # 40 new rows, then the fit rows: fit row r is in row 129 - r
    scored = score(document, mixed)
    rows = maps.rows_of_frame(mixed.drop("group"))
    split = split_folds(N_ROWS, None, 1)
    new = FittedMap.from_document(document)(rows.take(slice(40)))
    np.testing.assert_array_equal(scored.scored.logit[:40], new.logit)
    for fold, members in zip(document.folds, split.folds, strict=True):
        positions = 129 - members
        expected = FittedMap(fold.calibrator, fold.projection)(rows.take(positions)).logit
        np.testing.assert_array_equal(scored.scored.logit[positions], expected)
    assert scored.origin == "partly_out_of_fold"
    assert scored.fitted.tolist() == [False] * 40 + [True] * 90
    check_notes(scored.notes, "^90 of 130 rows .*without its fold")
    only_fit_rows = score(document, ROWS[::-1])
    assert only_fit_rows.origin == "out_of_fold"
    assert only_fit_rows.fitted.all()
    new_rows = score(document, NEW_ROWS)
    assert (new_rows.origin, new_rows.notes, new_rows.fitted.tolist()) == ("new", [], [False] * 40)


def test_only_fit_rows_of_a_map_with_held_out_rows_are_scored_out_of_fold(held_out):
    fit_rows = split_folds(N_ROWS, None, 1, hold_out=0.3).fit_rows
    scored = score(held_out, ROWS[fit_rows.tolist()])
    assert (scored.origin, len(scored.rows)) == ("out_of_fold", 63)
    assert scored.fitted.all()


def test_only_fit_rows_of_a_map_without_folds_are_rejected(paper):
    used = paper_fit_rows(paper.source, maps.rows_of_frame(ROWS), paper.calibrator.fitted)
    assert re.search("^X: .*no folds", message_of_score(paper, ROWS[used.tolist()]))


def test_missing_group_column_of_the_map_is_noted(grouped):
    scored = score(grouped, NEW_ROWS.drop("group"))
    check_notes(scored.notes, r"grouped by group, .*\bX .*independent")
    assert scored.rows.group is None
    assert score(grouped, NEW_ROWS).rows.group.tolist() == NEW_ROWS["group"].to_list()


def test_fit_rows_with_other_groups_are_rejected(document, grouped):
    assert re.search("^X .*with no groups;", message_of_score(document, ROWS, group="group"))
    other = ROWS.with_columns(group=pl.lit("all"))
    assert re.search("^X .*groups by group;", message_of_score(grouped, other))
    renamed = ROWS.with_columns(group=pl.format("new {}", pl.col("group")))
    assert score(grouped, renamed).origin == "out_of_fold"


IN_ANOTHER_ORDER = "^X .*fitted on, .*another order;"


def test_fit_rows_that_cannot_be_recognized_one_by_one_are_rejected_in_another_order(confidence_map):
    assert confidence_map.source.training_rows.by == "nothing"
    assert re.search(IN_ANOTHER_ORDER, message_of_score(confidence_map, TWO_LABELLINGS[::-1]))
    other_labels = message_of_score(confidence_map, TWO_LABELLINGS, label="other")
    assert re.search("^X .*fitted on, .*other labels ", other_labels)
    new_rows = maps.make_confidence_predictions(30, seed=5)
    scored = score(confidence_map, new_rows)
    assert scored.origin == "new"
    check_notes(scored.notes, r"cannot be recognized.*\(--id\)\.$")


def test_fit_rows_are_recognized_by_their_ids():
    frame = CONFIDENCES.drop("group").with_columns(pair=IDS)
    by_id = fit(frame, reading={"id": "pair"})
    part = frame[::-1].head(30)
    scored = score(by_id, part)
    assert scored.fitted.all()
    check_notes(scored.notes, "^30 of 30 rows .*without its fold")
    renamed = part.rename({"pair": "other"})
    assert score(by_id, renamed, id="other").fitted.all()
    assert not score(by_id, part.with_columns(other=pl.format("x{}", pl.col("pair"))), id="other").fitted.any()
    without_ids = score(by_id, part.drop("pair"))
    assert not without_ids.fitted.any()
    check_notes(without_ids.notes, r"recognized by .*column pair,.*\bX\b")
    assert re.search(IN_ANOTHER_ORDER, message_of_score(by_id, frame.drop("pair")[::-1]))
    assert score(by_id, frame[::-1]).origin == "out_of_fold"


@pytest.mark.parametrize(("share", "notes"), [(1.0, []), (0.97, [r"^3\.0% of .*cannot be recognized"])])
def test_share_of_rows_that_cannot_be_recognized_is_noted(document, share, notes):
    training_rows = document.source.training_rows.model_copy(update={"share": share})
    changed = document.model_copy(
        update={"source": document.source.model_copy(update={"training_rows": training_rows})}
    )
    check_notes(score(changed, NEW_ROWS).notes, *notes)


@pytest.mark.parametrize(("share", "is_recognized"), [(0.95, True), (0.949, False)])
def test_almost_all_rows_must_be_recognized_to_give_them_in_another_order(document, share, is_recognized):
    training_rows = document.source.training_rows.model_copy(update={"share": share})
    changed = document.model_copy(
        update={"source": document.source.model_copy(update={"training_rows": training_rows})}
    )
    if is_recognized:
        assert score(changed, ROWS[::-1]).origin == "out_of_fold"
    else:
        assert re.search(IN_ANOTHER_ORDER, message_of_score(changed, ROWS[::-1]))


def without_fingerprints(document: MapDocument, group: str | None = None) -> MapDocument:
    """Return a map as earlier versions wrote it."""
    update = {"fingerprint": None, "training_rows": None, "group": group}
    return document.model_copy(update={"source": document.source.model_copy(update=update)})


def test_maps_of_earlier_versions_recognize_only_their_file(document):
    earlier = without_fingerprints(document)
    file = ROWS.drop("group")
    check_notes(score(earlier, file).notes, ALL_ROWS_NOTE)
    reversed_rows = score(earlier, file[::-1])
    assert reversed_rows.origin == "new"
    check_notes(reversed_rows.notes, "earlier version.*recognized")
    assert re.search("^X .*groups by query;", message_of_score(without_fingerprints(document, "query"), file))


def test_maps_of_earlier_versions_recognize_their_groups_by_the_name_of_the_column():
    file = ROWS.with_columns(query=pl.col("group"))
    earlier = without_fingerprints(fit(file, group="group"), "group")
    assert score(earlier, file, group="group").origin == "out_of_fold"
    assert re.search("^X .*groups by group;", message_of_score(earlier, file, group="query"))


def test_signals_of_groups_are_computed_from_the_group_column_of_the_map():
    frame = SIGNALS.with_columns(group=pl.int_range(N_ROWS) // 4)
    names = ("group_rank", "group_gap", "agreement")
    with_groups = fit(frame, variant=None, signals=names, group="group")
    missing = message_of_score(with_groups, frame.drop("group"))
    assert re.search("^X has no column group,.* group_rank .*group_gap", missing)
    reordered = frame[::-1].with_columns(other=pl.lit("all"))
    learned = score(with_groups, frame).rows.signals
    np.testing.assert_array_equal(score(with_groups, reordered, group="other").rows.signals, learned[::-1])
    by_logits = ROWS.with_columns(agreement=pl.int_range(N_ROWS) % 7)
    with_logits = fit(by_logits, variant=None, signals=names, group="group")
    computed = score(with_logits, by_logits).rows.signals
    np.testing.assert_array_equal(score(with_logits, by_logits[::-1]).rows.signals, computed[::-1])
    sampled = frame.with_columns(inverse_probability=pl.lit(2.0))
    assert re.search("^X .*sample .*group_rank .*group_gap", message_of_score(with_groups, sampled))


def test_signals_of_a_map_are_read_as_they_were_learned():
    document = fit(SIGNALS, variant=None, signals=("agreement", "source"))
    learned = score(document, SIGNALS).rows.signals
    np.testing.assert_array_equal(score(document, SIGNALS.head(9)).rows.signals, learned[:9])


def test_fingerprints_are_hashes_of_decisions_labels_groups_and_sorted_scores():
    rows = maps.rows_of_frame(ROWS, "group")
    fingerprint = fingerprint_rows(rows)
    first_rows = np.arange(N_ROWS) // 4 * 4  # first row of the group of each row; groups have four rows
    label_counts = np.bincount(rows.label)
    assert fingerprint.rows == sha256_of_arrays(rows.decision, rows.label)
    assert fingerprint.groups == sha256_of_arrays(first_rows)
    assert fingerprint.any_order == sha256_of_arrays(np.sort(rows.logits[:, 0]), label_counts)
    confidence_rows = maps.rows_of_frame(CONFIDENCES)
    assert fingerprint_rows(confidence_rows).any_order == sha256_of_arrays(
        np.sort(confidence_rows.confidence), label_counts
    )
    assert fingerprint_rows(confidence_rows).groups is None
    assert fingerprint_rows(replace(confidence_rows, confidence=None)).any_order is None


def test_predictions_are_hashed_by_their_rows_or_their_file(tmp_path):
    assert hash_predictions(predictions(ROWS)) == FramePredictions.from_frame(ROWS).sha256
    path = maps.write_frame(CONFIDENCES, tmp_path / "rows.csv")
    assert hash_predictions(open_predictions(path)) == sha256_of_file(path)


@pytest.mark.parametrize(
    ("name", "values", "is_noted"),
    [
        ("query_id", pl.int_range(N_ROWS, eager=True) // 4, True),
        ("Query", pl.int_range(N_ROWS, eager=True).cast(pl.String), False),  # all differ: they are ids
        ("shop", pl.int_range(N_ROWS, eager=True) // 4, False),
        ("topic", pl.Series([[1]] * N_ROWS), False),
    ],
)
def test_a_column_that_is_named_like_a_group_is_noted_unless_it_is_given(name, values, is_noted):
    frame = ROWS.drop("group").with_columns(values.alias(name))
    notes = read_labelled_rows(predictions(frame)).notes
    assert any(f"--group {name}" in note for note in notes) == is_noted
    if is_noted:
        assert not any("--group" in note for note in read_labelled_rows(predictions(frame), group=name).notes)


def test_mixed_values_in_a_column_that_only_looks_like_a_group_are_no_error(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = ROWS.drop("group").write_ndjson().splitlines()
    mixed = [line[:-1] + f', "qid": {value}}}' for line, value in zip(lines, ["1", '"a"', "null"] * 30, strict=True)]
    path.write_text("\n".join(mixed))
    assert len(read_labelled_rows(open_predictions(path)).rows) == N_ROWS


@pytest.mark.parametrize(
    ("columns", "advice"),
    [
        ({"doc": [f"d{row}" for row in range(300)]}, "give --id doc,"),
        ({"number": range(300), "key": [7 * row for row in range(300)]}, "give --id key,"),
        ({"number": range(300), "text": ["a" * 80 + str(row) for row in range(300)]}, r"name a column .* --id\."),
        ({"twice": [f"d{row // 2}" for row in range(300)]}, r"name a column .* --id\."),
    ],
)
def test_a_column_that_identifies_rows_is_named(columns, advice):
    frame = maps.make_confidence_predictions(300).with_columns(pl.Series(k, [*v]) for k, v in columns.items())
    assert re.search(advice, labelled_rows.describe_missing_ids(FramePredictions.from_frame(frame)))


def test_a_score_with_nine_borders_has_ten_labels_so_that_9_is_one_of_them():
    frame = pl.DataFrame({"score": np.linspace(0, 10, 100), "label": np.arange(100) // 10})
    borders = ",".join(str(border) for border in range(1, 10))
    labelled = read_labelled_rows(predictions(frame, score="score", border=borders, drop_unlabelled=True))
    assert len(labelled.rows) == 100
