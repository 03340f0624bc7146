"""`ReliabilityMap` on arrays and frames: the numbers of the commands, the kind that came in, scikit-learn's ways."""

import json
from copy import copy

import maps
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relmap import ReliabilityMap
from relmap import cli as rerank
from relmap.errors import InputError

ROWS, NEW = maps.predictions(600), maps.predictions(1000, seed=1)
LOGITS, LABEL, GROUP = np.array(ROWS["logits"].to_list()), ROWS["label"].to_numpy(), ROWS["group"].to_numpy()
KINDS = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: frame.to_pandas().set_index(np.arange(len(frame)) * 3 + 7),
    "arrow": pl.DataFrame.to_arrow,
}
SHIFTS = ReliabilityMap(variant="label_intercept")


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    return clone(SHIFTS).fit(LOGITS, LABEL, groups=GROUP)


def learned(document: object) -> dict:
    """A map but for where it comes from."""
    return {key: value for key, value in document.model_dump(mode="json").items() if key != "source"}


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_each_kind_give_the_numbers_of_arrays_in_their_own_kind(kind, fitted):
    rows, new = KINDS[kind](ROWS), KINDS[kind](NEW)
    mine = clone(SHIFTS).fit(rows, groups="group")
    assert learned(mine.document_) == learned(fitted.document_)
    scored, logits = mine.apply(new, coverage=0.6), np.array(NEW["logits"].to_list())
    assert type(scored) is type(new)
    again = pl.DataFrame(scored)
    assert again.select(NEW.columns).equals(NEW)
    np.testing.assert_array_equal(again["reliability"], fitted.reliability(logits))
    alone, array = mine.reliability(new), fitted.apply(logits, coverage=0.6)
    assert type(alone) is type(new["label"])
    np.testing.assert_array_equal(np.asarray(alone), again["reliability"])
    for name in array.dtype.names:
        assert array[name].tolist() == again[name].to_list()
    assert kind != "pandas" or (scored.index.equals(new.index) and alone.index.equals(new.index))
    assert mine.evaluate(rows).to_dict() == fitted.evaluate(LOGITS, LABEL, groups=GROUP).to_dict()


def test_the_map_and_the_answers_are_those_of_the_commands_whatever_loads_them(fitted, tmp_path, capsys):
    ROWS.write_parquet(tmp_path / "rows.parquet")
    NEW.write_parquet(tmp_path / "new.parquet")
    rerank.fit(tmp_path / "rows.parquet", tmp_path / "map.json", variant="label_intercept", group="group")
    fitted.save(str(tmp_path / "saved.json"))
    saved, written = (ReliabilityMap.load(str(tmp_path / name)) for name in ("saved.json", "map.json"))
    assert learned(saved.document_) == learned(written.document_) == learned(fitted.document_)
    assert saved.get_params() == written.get_params()
    capsys.readouterr()
    rerank.evaluate(tmp_path / "map.json", tmp_path / "new.parquet")
    printed, answer = capsys.readouterr(), saved.evaluate(NEW)
    assert answer.to_dict().items() <= json.loads(printed.out).items()
    assert sorted(str(answer).split("\n")) == sorted(printed.err.splitlines())
    assert "Rows are grouped by group" in printed.err
    rerank.thresholds(tmp_path / "new.parquet", tmp_path / "map.json", coverage="0.5")
    cuts = saved.thresholds(NEW, coverage=0.5)
    assert cuts.to_dict().items() <= json.loads(capsys.readouterr().out).items()
    of_least_cost = saved.thresholds(NEW, cost_error=np.float32(5), cost_review=1)
    validated = saved.thresholds(NEW, cut=0.7)
    assert validated.cut == 0.7
    for answer in (cuts, of_least_cost, validated):
        route = pl.Series(saved.apply(NEW, cuts=answer)["route"])
        assert (route == "automatic").to_list() == (saved.reliability(NEW) >= answer.cut).to_list()
    assert of_least_cost.cut == 0.8
    assert json.dumps(of_least_cost.to_dict())
    assert saved.apply(NEW, cuts=cuts.to_dict()).equals(saved.apply(NEW, cuts=cuts))
    for ask, asked, why in (
        (saved.apply, {"cuts": 0.8}, "give the result of `thresholds` or the path of its file"),
        (saved.apply, {"cut": "0.8"}, "cut is '0.8'; give a number"),
        (saved.thresholds, {"coverage": 0.5, "cost_review": 1}, "give a target accuracy, a coverage, the costs"),
        (saved.thresholds, {"target_accuracy": "0.9"}, "target_accuracy is '0.9'; give a number"),
    ):
        with pytest.raises(InputError, match=why):
            ask(NEW, **asked)
    vector, path = clone(SHIFTS).set_params(variant="label_vector").fit(LOGITS, LABEL), tmp_path / "vector.json"
    vector.save(path)
    assert (text := rerank.sql(path)) == vector.sql()
    assert text.startswith(f"/* {capsys.readouterr().err.strip()} */\nCASE")
    assert "decision and logits_0 to logits_2, which must be logits" in text


def test_rows_of_the_fit_are_judged_out_of_fold_even_behind_a_classifier(fitted):
    for made, cap in ((fitted, 0), (ReliabilityMap(protocol="paper").fit(LOGITS, LABEL, groups=GROUP), 0), (fitted, 9)):
        held_out = made.document_.held_out.model_copy(update={"rows": cap} if cap else {})  # the rest chose nothing
        (again := copy(made)).document_ = made.document_.model_copy(update={"held_out": held_out})
        log_loss = again.evaluate(LOGITS, LABEL, groups=GROUP).numbers["metrics"]["nll_correct"]
        assert (log_loss["low"] in [each.low for each in made.document_.choice.candidates]) == (not cap)
    assert "each row is scored by the model that was fitted without its fold" not in str(
        fitted.evaluate(LOGITS[:500], LABEL[:500])
    )
    same = LOGITS.astype(np.float32), LABEL.astype(float)  # whatever they are written in
    assert "each row is scored by the model that was fitted without its fold" in str(
        fitted.evaluate(*same, groups=GROUP)
    )
    source = fitted.document_.source.model_copy(update={"fingerprint": None})
    before = ReliabilityMap().fit(LOGITS, LABEL)  # as a map was that knew its file alone
    before.document_ = fitted.document_.model_copy(update={"source": source})
    for made, rows, why in (
        (before, (LOGITS, LABEL, None), "give the same here"),
        (fitted, (LOGITS, LABEL, None), "give the same here"),
        (fitted, (LOGITS, LABEL, np.roll(GROUP, 1)), "give the same here"),
    ):
        with pytest.raises(InputError, match=why):
            made.evaluate(*rows)
    turned = fitted.evaluate(LOGITS[::-1], LABEL[::-1], groups=GROUP[::-1])
    assert turned.to_dict()["fitted_rows"] == len(LABEL)
    names = np.array(["bad", "fair", "good"])
    wide = np.hstack([LOGITS, np.random.default_rng(0).normal(size=(len(LOGITS), 150))])  # to learn by heart
    model = make_pipeline(StandardScaler(), ReliabilityMap(classifier=LogisticRegression(C=100, max_iter=900)))
    last = model.fit(wide, names[LABEL])[-1]
    assert model.predict(wide).tolist() == last.classifier_.predict(model[:-1].transform(wide)).tolist()
    assert (model.predict(wide) == names[LABEL]).mean() > 0.8
    answer = last.evaluate(model[:-1].transform(wide), names[LABEL])
    assert answer.to_dict()["accuracy"]["value"] < 0.7
    assert [label["name"] for label in answer.to_dict()["labels"]] == names.tolist()


def test_it_is_an_estimator_of_scikit_learn(fitted):
    asked = {"calibrator": "diag", "variant": "mrp", "labels": ("a", "b", "c"), "hold_out": 0.2, "seed": 3}
    made = clone(ReliabilityMap(**asked))
    assert asked.items() <= made.get_params().items()
    with pytest.raises(NotFittedError):
        made.set_params(seed=4).reliability(LOGITS)
    folds = cross_val_score(SHIFTS, LOGITS, LABEL, groups=GROUP, cv=GroupKFold(3), error_score="raise")
    assert ((folds < 0) & (folds > np.log(0.5))).all()
    with_confidence = cross_val_score(clone(SHIFTS).set_params(variant="confidence"), LOGITS, LABEL, cv=3)
    assert folds.mean() > with_confidence.mean()  # label 1 is right less often than it says
    assert fitted.predict(LOGITS).tolist() == LOGITS.argmax(axis=1).tolist()


def test_what_an_array_holds_is_seen_and_remembered_and_asked_where_it_is_not_known(fitted, tmp_path):
    shares = softmax(LOGITS, axis=1)
    of_shares = clone(SHIFTS).fit(shares.astype(np.float32), LABEL)
    assert (fitted.arrays_, of_shares.arrays_) == ("logits", "probabilities")
    of_logits = clone(SHIFTS).fit(LOGITS, LABEL)
    np.testing.assert_allclose(of_shares.reliability(shares), of_logits.reliability(LOGITS), atol=1e-5)
    fitted.reliability([[0.5, 0.3, 0.2]])  # which a map of logits takes as such
    two = LOGITS[:, 1] - LOGITS[:, 0]
    second, both = (clone(SHIFTS).fit(given, LABEL == 1) for given in (expit(two), np.c_[1 - expit(two), expit(two)]))
    np.testing.assert_array_equal(second.reliability(expit(two)), both.reliability(np.c_[1 - expit(two), expit(two)]))
    of_two = clone(SHIFTS).set_params(labels=(1.0, 2.0)).fit(two, (LABEL == 1) + 1.0)
    some = pl.DataFrame({"logits": np.c_[0 * two, two], "label": (LABEL == 1) + 1})[:500]
    assert of_two.score(some) == of_two.score(two[:500], some["label"])
    of_two.save(tmp_path / "map.json")
    loaded, near = ReliabilityMap.load(tmp_path / "map.json", arrays="logits"), np.array([0.2, 0.3])
    assert loaded.predict(near).tolist() == of_two.predict(near).tolist() == [2, 2]
    for made in (ReliabilityMap.load(tmp_path / "map.json"), clone(SHIFTS).fit(some.with_columns(pl.col("label") - 1))):
        with pytest.raises(InputError, match=r"may hold logits or probabilities.* arrays='logits'"):
            made.reliability(near)
    both = np.c_[1 - near, near]  # rows that sum to 1 are probabilities
    np.testing.assert_array_equal(ReliabilityMap.load(tmp_path / "map.json").predict(both), [1, 1])


def test_an_answer_is_text_and_html_with_what_a_name_holds_escaped():
    named = ReliabilityMap(labels=("<b>bad</b>", "fair", "good"), variant="mrp").fit(LOGITS, LABEL)
    answer = named.evaluate(NEW)
    assert "<b>bad</b>" in str(answer)
    assert "<b>bad</b>" not in answer._repr_html_()
    assert "\nThe map contains a monotone curve for each label (MRP)" in str(named.recommendation_)
    assert named.recommendation_.to_dict()["variant"] == "mrp"
    answer.to_dict()["metrics"].clear()
    assert answer.to_dict()["metrics"]


FRAME = ROWS.drop("label")


@pytest.mark.parametrize(
    ("settings", "given", "said"),
    [
        ({}, ("rows", LABEL), "X is of the type str; give an array"),
        ({}, (LOGITS, LABEL[:9]), r"X has 600 rows, and y has the shape \(9,\)"),
        ({}, (ROWS, LABEL), "X has a column label, and y is given too"),
        ({}, (FRAME.to_pandas().assign(x=[1, "a"] * 300), LABEL), "X is not a valid frame"),
        ({}, (np.clip(LOGITS, 0, 1), LABEL), r"but those of this row do not sum to 1; give arrays="),
        ({"arrays": "probabilities"}, (LOGITS, LABEL), "are these logits"),
        ({"labels": "ab"}, (LOGITS, LABEL), "labels is 'ab'; give a list"),
        ({"hold_out": 1.0}, (LOGITS, LABEL), "give a share in"),
        ({"seed": 1.5}, (LOGITS, LABEL), "seed is 1.5; give a whole number"),
        ({"classifier": StandardScaler()}, (LOGITS, LABEL), "the classifier, StandardScaler, has no predict_proba"),
        ({"classifier": LogisticRegression()}, (LOGITS, LABEL, "query"), "X has no column query, which groups names"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_one_sentence(settings, given, said):
    with pytest.raises(InputError, match=said):
        ReliabilityMap(**settings).fit(*given)


def test_signals_are_columns_of_a_frame():
    made = maps.judged_with_signals(400).to_pandas()
    mine = ReliabilityMap(signals=["agreement"]).fit(made.drop(columns="label"), made["label"], groups="group")
    assert isinstance(mine.reliability(made), pd.Series)


@pytest.mark.parametrize(
    ("frame", "options"),
    [
        (ROWS.with_columns(inverse_probability=pl.int_range(600) % 3 + 1.0), {}),
        (maps.confidence_only(300), {"variant": "confidence", "hold_out": 0.3}),
        (maps.judged_with_signals(400), {"signals": "agreement", "group": "group"}),
    ],
)
def test_every_kind_of_map_has_a_page(frame, options, tmp_path):
    rerank.report(maps.write(frame, tmp_path / "rows.parquet"), tmp_path / "page.html", **options)
    figures = {"variant": 2, "signals": 3}.get(next(iter(options), ""), 0)  # none of weighted rows
    page = (tmp_path / "page.html").read_text()
    assert page.count("<figure") == figures
    assert "The most reliable rows" in page
