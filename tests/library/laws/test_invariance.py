"""Invariance to the order of rows, names of groups and labels, the unit of weights, and copies of the data."""

from dataclasses import replace
from operator import itemgetter

import numpy as np
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.decisions import FixedDecisions
from relmap.io.frames import FramePredictions
from relmap.maps.folds import split_folds
from relmap.maps.score import FittedMap
from relmap.routing.apply import apply_to_frame
from tests import maps

N_ROWS = 120
COUNT_KEYS = {"rows", "errors", "automatic", "reviews"}
NEW_LABEL = np.array([2, 0, 1])  # new number of each label
OLD_LABEL = np.argsort(NEW_LABEL)
LOGITS = maps.make_predictions(N_ROWS, shift=2.5, seed=1)
CONFIDENCES = maps.make_confidence_predictions(N_ROWS, shift=2.5, seed=1).with_columns(group=LOGITS["group"])
SIGNALS = maps.make_predictions_with_signals(N_ROWS, seed=1)
# 100 on average: the library counts weights in hundredths of their mean
COPIES = np.random.default_rng(0).permutation(np.tile([50, 150, 70, 130], N_ROWS // 4))


def flatten(value: object, path: str = "") -> dict[str, object]:
    """Return the scalars of a JSON value by their path."""
    if isinstance(value, dict):
        return {
            inner_path: leaf
            for key, inner in value.items()
            for inner_path, leaf in flatten(inner, f"{path}/{key}").items()
        }
    if isinstance(value, list | tuple):
        return {
            inner_path: leaf
            for index, inner in enumerate(value)
            for inner_path, leaf in flatten(inner, f"{path}/{index}").items()
        }
    return {path: value}


def assert_same(first: object, second: object, rel: float = 1e-9, atol: float = 1e-11) -> None:
    """Compare the scalars of two JSON values, numbers up to rounding."""
    first_values = flatten(first)
    second_values = flatten(second)
    assert list(first_values) == list(second_values)
    for path, value in first_values.items():
        if isinstance(value, float) and second_values[path] is not None:
            assert second_values[path] == pytest.approx(value, rel=rel, abs=atol), path
        else:
            assert second_values[path] == value, path


@pytest.fixture(scope="module", autouse=True)
def _limit_work():
    with pytest.MonkeyPatch.context() as patch:
        maps.limit_resamples(patch, 60)
        maps.limit_prior_deviations(patch)
        yield


@pytest.fixture(scope="module")
def fitted_map() -> ReliabilityMap:
    return ReliabilityMap().fit(maps.make_predictions(240, shift=2.5, seed=2))


@pytest.fixture(scope="module")
def new_rows() -> pl.DataFrame:
    return LOGITS.with_columns(inverse_probability=pl.Series(COPIES / 100))


@pytest.mark.parametrize("columns", [("inverse_probability",), ()], ids=["weights", "plain"])
def test_evaluation_does_not_depend_on_row_order(fitted_map, new_rows, columns):
    frame = new_rows.select("logits", "label", "group", *columns)
    order = np.random.default_rng(1).permutation(N_ROWS)
    assert_same(
        fitted_map.evaluate(frame, groups="group").to_dict(),
        fitted_map.evaluate(frame[order], groups="group").to_dict(),
    )


def test_thresholds_do_not_depend_on_row_order(fitted_map, new_rows):
    frame = new_rows.drop("inverse_probability", "group")
    order = np.random.default_rng(1).permutation(N_ROWS)
    for target in ({"target_accuracy": 0.6}, {"coverage": 0.5}):
        assert (
            fitted_map.thresholds(frame, **target).to_dict() == fitted_map.thresholds(frame[order], **target).to_dict()
        )


@pytest.mark.parametrize("settings", [{}, {"coverage": "0.6"}, {"cut": 0.7}], ids=str)
def test_scores_and_routes_do_not_depend_on_row_order(fitted_map, new_rows, settings):
    order = np.random.default_rng(1).permutation(N_ROWS)
    scored = [
        apply_to_frame(fitted_map.document_, FramePredictions.from_frame(rows.select("logits")), **settings)[0]
        for rows in (new_rows, new_rows[order])
    ]

    assert scored[1].equals(scored[0][order])
    assert fitted_map.reliability(new_rows[order]).to_list() == fitted_map.reliability(new_rows)[order].to_list()


@pytest.mark.parametrize("groups", ["group", None])
def test_results_do_not_depend_on_the_unit_of_weights(fitted_map, new_rows, groups):
    rescaled = new_rows.with_columns(pl.col("inverse_probability") * 37.5)
    assert_same(
        fitted_map.evaluate(new_rows, groups=groups).to_dict(), fitted_map.evaluate(rescaled, groups=groups).to_dict()
    )

    for target in ({"target_accuracy": 0.6}, {"cost_error": 3.0, "cost_review": 1.0}):
        results = [fitted_map.thresholds(rows, groups=groups, **target).to_dict() for rows in (new_rows, rescaled)]
        assert_same(*results)
    models = [ReliabilityMap().fit(rows, groups=groups) for rows in (new_rows, rescaled)]
    assert_same(*[map_content(model) for model in models], rel=1e-6, atol=1e-8)
    assert str(models[0].summary_) == str(models[1].summary_)


@pytest.mark.parametrize("groups", ["group", None])
def test_equal_weights_equal_no_weights(fitted_map, new_rows, groups):
    unweighted = new_rows.drop("inverse_probability")
    equal_weights = new_rows.with_columns(inverse_probability=3.0)
    models = [ReliabilityMap().fit(rows, groups=groups) for rows in (unweighted, equal_weights)]
    assert_same(*[map_content(model) for model in models], atol=1e-8)

    evaluations = [fitted_map.evaluate(rows, groups=groups).to_dict() for rows in (unweighted, equal_weights)]
    assert [evaluation.pop("weighted") for evaluation in evaluations] == [False, True]
    for evaluation in evaluations:
        for metric in ("aupr_error", "aurc", "augrc"):  # sums over ranks, which weights smooth
            evaluation["metrics"].pop(metric)
    assert_same(*evaluations)


def map_content(model: ReliabilityMap) -> dict:
    """Return the content of a map without its source."""
    return model.document_.model_dump(mode="json", exclude={"source"})


@pytest.mark.parametrize("rows", [LOGITS, CONFIDENCES], ids=["logits", "judge"])
def test_results_do_not_depend_on_group_names(rows):
    renamed = rows.with_columns(group=pl.col("group").str.slice(1).cast(int) * -7 % 1009)  # in another order
    prefixed = rows.with_columns(group=pl.format("z{}", pl.col("group")))  # in the same order
    model = ReliabilityMap().fit(rows, groups="group")
    renamed_model = ReliabilityMap().fit(renamed, groups="group")
    prefixed_model = ReliabilityMap().fit(prefixed, groups="group")

    assert map_content(model) == map_content(prefixed_model)
    assert str(model.summary_) == str(prefixed_model.summary_)
    assert model.evaluate(rows).to_dict() == prefixed_model.evaluate(prefixed).to_dict()
    assert_same(map_content(model), map_content(renamed_model))


def test_fit_does_not_depend_on_row_order_within_groups():
    """The rows of several groups alternate."""
    rows = LOGITS.with_columns(inverse_probability=pl.Series(COPIES / 100))
    numbered = rows.with_row_index("row").with_columns(
        within=pl.int_range(pl.len()).over("group"), first=pl.col("row").min().over("group")
    )
    alternating = numbered.sort("within", "first").select(rows.columns)
    assert not alternating.equals(rows)

    model = ReliabilityMap(hold_out=0.2).fit(rows, groups="group")
    alternating_model = ReliabilityMap(hold_out=0.2).fit(alternating, groups="group")
    assert_same(map_content(model), map_content(alternating_model), rel=1e-6, atol=1e-7)
    # weights are rounded to numbers of copies at random, row by row, so the metrics differ slightly
    summary = model.summary_.to_dict()
    alternating_summary = alternating_model.summary_.to_dict()
    assert summary["comparison"] == alternating_summary["comparison"]
    assert_same(summary["log_loss"], alternating_summary["log_loss"], rel=0.01)


def renumber_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with other numbers of the labels."""
    columns = [
        pl.col(name).replace_strict(dict(enumerate(NEW_LABEL.tolist())))
        for name in ("label", "decision")
        if name in frame
    ]
    if "logits" in frame:
        columns.append(pl.concat_list([pl.col("logits").list.get(old) for old in OLD_LABEL.tolist()]).alias("logits"))
    return frame.with_columns(columns)


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (LOGITS, {}),
        (LOGITS, {"calibrator": "matrix", "variant": "mrp_exact"}),
        (LOGITS, {"calibrator": "vector", "variant": "label_isotonic"}),
        (CONFIDENCES, {}),
        (CONFIDENCES.drop("confidence"), {}),
        (SIGNALS, {"signals": ["agreement", "source"]}),
    ],
    ids=["logits", "exact", "isotonic", "judge", "decisions", "signals"],
)
def test_results_do_not_depend_on_label_numbers(rows, settings):
    names = np.array(["bad", "fair", "good"])
    settings = {"seed": 3, **settings}
    model = ReliabilityMap(labels=names, **settings).fit(rows, groups="group")
    renumbered_model = ReliabilityMap(labels=names[OLD_LABEL], **settings).fit(renumber_labels(rows), groups="group")
    assert model.document_.projection.name == renumbered_model.document_.projection.name
    np.testing.assert_allclose(renumbered_model.reliability(renumber_labels(rows)), model.reliability(rows), atol=1e-5)
    assert renumbered_model.predict(renumber_labels(rows)).tolist() == model.predict(rows).tolist()

    evaluation_before = model.evaluate(rows).to_dict()
    renumbered_evaluation = renumbered_model.evaluate(renumber_labels(rows)).to_dict()
    assert [label["label"] for label in renumbered_evaluation["labels"]] == [0, 1, 2]

    labels = renumbered_evaluation["labels"]
    renumbered_evaluation["labels"] = [labels[new] | {"label": old} for old, new in enumerate(NEW_LABEL)]
    agreement = renumbered_evaluation["agreement"]
    agreement["labels"] = [agreement["labels"][new] for new in NEW_LABEL]
    for evaluation in (evaluation_before, renumbered_evaluation):
        evaluation["label_spread"].pop("shuffled_p95")  # depends on random permutations
    assert_same(evaluation_before, renumbered_evaluation, rel=1e-3, atol=1e-3)

    halves = np.array(renumbered_model.document_.held_out.halves)[NEW_LABEL]
    np.testing.assert_allclose(halves, model.document_.held_out.halves, atol=1e-5)

    cells = {(NEW_LABEL[cell.label], cell.half): cell for cell in model.document_.held_out.cells}
    for cell in renumbered_model.document_.held_out.cells:
        cell_before = cells.pop((cell.label, cell.half))
        assert (cell.rows, cell.mean_residual) == (cell_before.rows, pytest.approx(cell_before.mean_residual, abs=1e-5))
    assert not cells


def test_copies_of_grouped_rows_do_not_change_means_and_errors(fitted_map, new_rows):
    """Sums over ranks, such as AURC, and bounds that depend on the number of rows are excluded."""
    frame = new_rows.drop("inverse_probability")
    single = fitted_map.evaluate(frame, groups="group").to_dict()
    double = fitted_map.evaluate(pl.concat([frame, frame]), groups="group").to_dict()
    assert (double["rows"], double["errors"], double["groups"]) == (
        2 * single["rows"],
        2 * single["errors"],
        single["groups"],
    )
    for evaluation in (single, double):
        for metric in ("aupr_error", "aurc", "augrc"):
            evaluation["metrics"].pop(metric)
        del evaluation["label_spread"]
        drift = evaluation.pop("drift")
        drift_keys = ("mean_reliability", "correct", "expected")
        top_keys = ("predicted", "correct", "gap")
        evaluation["drift"] = [itemgetter(*drift_keys)(cell) for cell in (*drift["cells"], *drift["top"])]
        evaluation["top"] = [itemgetter(*top_keys)(top) for top in evaluation["top"]]
        for share in (evaluation["accuracy"], *[label["correct"] for label in evaluation["labels"]]):
            del share["low"], share["high"]
    assert_same(without_counts(single), without_counts(double))

    costs = {"cost_error": 3.0, "cost_review": 1.0}
    single_thresholds = without_counts(fitted_map.thresholds(frame, groups="group", **costs).to_dict())
    doubled_frame = pl.concat([frame, frame])
    double_thresholds = without_counts(fitted_map.thresholds(doubled_frame, groups="group", **costs).to_dict())

    assert_same(single_thresholds, double_thresholds)


def without_counts(value: object) -> object:
    """Return a JSON value without counts of rows."""
    if isinstance(value, dict):
        rates = {key: inner for key, inner in value.items() if key not in COUNT_KEYS or isinstance(inner, list)}
        return {key: without_counts(inner) for key, inner in rates.items()}
    return [without_counts(inner) for inner in value] if isinstance(value, list) else value


def test_held_out_rows_do_not_change_the_map():
    hold_out = 0.3
    held_out = split_folds(N_ROWS, None, 1, hold_out=hold_out).held_out
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    label = rows.label.copy()
    logits = rows.logits.copy()
    label[held_out] = 0
    logits[held_out] = logits[held_out] ** 2
    changed_rows: FixedDecisions = replace(rows, label=label, logits=logits, decision=logits.argmax(axis=1))
    models = [
        ReliabilityMap(hold_out=hold_out).fit(given_rows.logits, given_rows.label)
        for given_rows in (rows, changed_rows)
    ]

    assert map_content(models[0]) == map_content(models[1])
    assert len(held_out) > 0
    assert models[0].document_.held_out.rows == N_ROWS - len(held_out)


def test_score_of_a_row_does_not_depend_on_other_rows():
    model = ReliabilityMap().fit(LOGITS.drop("group"))
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    scored = FittedMap.from_document(model.document_)(rows)
    for row in range(0, N_ROWS, 40):
        single_row = FittedMap.from_document(model.document_)(rows.take(slice(row, row + 1)))
        assert (single_row.confidence[0], single_row.logit[0]) == (scored.confidence[row], scored.logit[row])
