"""Cascades from labelled rows to routes: in Python, and with the commands."""

import inspect
import json
import re
from dataclasses import fields

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit

from relmap import Cascade, InputError, cli
from relmap.cascade.document import load_cascade
from relmap.cascade.models import MODEL_FIELDS
from relmap.cascade.settings import CascadeSettings
from relmap.io.unlabelled import find_unlabelled
from relmap.routing.group_tests import min_groups_to_reject
from tests.cascades import judge_rows, replace_fits
from tests.maps import run_command

NAMES = ("no", "yes")
MODELS = {"small": {"decision": "small", "confidence": "small_confidence"}, "large": {"decision": "large"}}
COSTS = {"small": 1, "large": 10, "person": 100}
CALLS = {"models": MODELS, "costs": COSTS, "labels": NAMES}
N_ROWS = 600
TARGET = 0.93


def simulate(n_rows: int, seed: int) -> pl.DataFrame:
    """Simulate two judges of the same rows, of which only the small one states a confidence."""
    generator = np.random.default_rng(seed)
    judged = judge_rows(generator, n_rows, mean_skill=1.2)
    return pl.DataFrame(
        {
            "id": np.arange(n_rows) + 1000 * seed,
            "query": np.arange(n_rows) // 5,
            "small": np.array(NAMES)[judged.small],
            "small_confidence": expit(judged.skill + generator.normal(size=n_rows) / 2).round(3),
            "large": np.array(NAMES)[judged.large],
            "label": np.array(NAMES)[judged.label],
        }
    )


LABELLED = simulate(N_ROWS, 1)
NEW = simulate(300, 2).drop("label")


@pytest.fixture(scope="module")
def cascade() -> Cascade:
    return Cascade(**CALLS, target_accuracy=TARGET).fit(LABELLED)


def route_in_two_calls(cascade: Cascade, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Route rows as a user would: the predictions of the large model are added only where they were asked for."""
    first = cascade.apply(rows.drop("large"))
    is_sent = pl.col("cascade_route") == "large"
    asked = first.with_columns(rows["large"]).with_columns(pl.when(is_sent).then("large").alias("large"))
    return first, cascade.apply(asked)


def test_the_summary_has_the_thresholds_the_guarantee_and_the_alternatives(cascade):
    numbers = cascade.summary_.numbers
    assert numbers["lower_bound"] == TARGET
    assert sum(numbers["chosen"]["shares"]) == pytest.approx(1)
    assert set(numbers["alternatives"]) == {"random routing", "thresholds on the confidences"}
    assert set(numbers["alone"]) == {"small alone", "large alone", "a person alone"}
    assert numbers["chosen"]["cost"] < numbers["alternatives"]["random routing"]["cost"]
    assert set(numbers["curves"]) == {"the cascade", *numbers["alternatives"]}
    assert json.loads(json.dumps(cascade.summary_.to_dict())) == cascade.summary_.to_dict()


def test_an_accuracy_alone_is_that_of_the_test_rows(cascade):
    numbers = cascade.summary_.numbers
    accuracy = (LABELLED["small"] == LABELLED["label"]).mean()
    assert numbers["alone"]["small alone"]["accuracy"] == pytest.approx(accuracy, abs=0.06)
    assert numbers["test_rows"] == N_ROWS // 2


def test_two_calls_route_as_one_with_all_predictions(cascade):
    at_once = cascade.apply(NEW)
    first, second = route_in_two_calls(cascade, NEW)
    assert set(first["cascade_route"]) == {"use", "large"}
    assert "large" not in set(second["cascade_route"])
    columns = ["cascade_decision", "cascade_reliability", "cascade_route"]
    assert second.select(columns).equals(at_once.select(columns))


def test_decisions_that_are_used_are_those_of_a_model(cascade):
    routed = cascade.apply(NEW)
    used = routed.filter(pl.col("cascade_route") == "use")
    decided = (used["cascade_decision"] == used["small"]) | (used["cascade_decision"] == used["large"])
    assert decided.all()
    assert used["cascade_reliability"].is_between(0, 1).all()
    assert cascade.routes_.decided.keys() == {"small", "large"}
    assert sum(cascade.routes_.decided.values()) == len(used)
    assert cascade.routes_.waiting == {"person": len(routed) - len(used)}


def test_the_order_of_rows_with_ids_changes_no_route(cascade):
    order = np.random.default_rng(0).permutation(len(NEW))
    shuffled = cascade.apply(NEW[order])
    assert shuffled.sort("id").equals(cascade.apply(NEW).sort("id"))


def test_agreement_raises_the_reliability_of_a_decision(cascade):
    routed = cascade.apply(NEW.with_columns(large=pl.lit("yes"), small_confidence=pl.lit(0.6), id=pl.lit(1)))
    asked = routed.filter(pl.col("cascade_route") != "large")
    agrees = asked.filter(pl.col("small") == "yes")["cascade_reliability"].mean()
    differs = asked.filter(pl.col("small") == "no")["cascade_reliability"].mean()
    assert agrees > differs


def test_a_saved_cascade_routes_alike(cascade, tmp_path):
    cascade.save(tmp_path / "cascade.json")
    loaded = Cascade.load(tmp_path / "cascade.json")
    assert loaded.apply(NEW).equals(cascade.apply(NEW))
    assert loaded.document_.model_dump_json() == cascade.document_.model_dump_json()
    assert loaded.summary_ is None
    for name in inspect.signature(Cascade).parameters:
        expected = {"labels": NAMES, "id": ["id"]}.get(name, getattr(cascade, name))
        assert getattr(loaded, name) == expected, name


def test_a_saved_cascade_may_have_neither_person_nor_names_nor_ids(fits, tmp_path):
    rows = NUMBERED.select("small", "large", "label")
    fitted = Cascade(DECISIONS, {"small": 1, "large": 10}, budget=8, hold_out=0.4).fit(rows)
    fitted.save(tmp_path / "cascade.json")
    loaded = Cascade.load(tmp_path / "cascade.json")
    assert loaded.costs == {"small": 1, "large": 10}
    assert loaded.labels is None
    assert loaded.id is None
    assert loaded.budget == 8
    assert loaded.target_accuracy is None
    again = loaded.fit(rows)
    assert again.document_.identity_columns == ()
    assert again.document_.are_numbered


def test_columns_of_an_earlier_call_are_replaced(cascade):
    once = cascade.apply(NEW)
    assert cascade.apply(once).equals(once)
    assert cascade.apply(once.drop("cascade_route")).columns[-3:] == once.columns[-3:]


def test_frames_of_pandas_are_routed(cascade):
    routed = cascade.apply(NEW.to_pandas())
    assert isinstance(routed, pd.DataFrame)
    assert routed["cascade_route"].tolist() == cascade.apply(NEW)["cascade_route"].to_list()


def test_the_same_rows_give_the_same_cascade(cascade):
    again = Cascade(**CALLS, target_accuracy=TARGET).fit(LABELLED)
    assert again.summary_.to_dict() == cascade.summary_.to_dict()


def test_groups_are_a_column_or_an_array(fits):
    by_name = Cascade(**CALLS, target_accuracy=0.75).fit(LABELLED, groups="query")
    assert "new groups" in str(by_name.summary_)
    assert set(fits.files[0].frame["query"].value_counts()["count"]) == {5}
    by_array = Cascade(**CALLS, target_accuracy=0.75).fit(LABELLED, groups=LABELLED["query"].to_numpy())
    assert by_array.summary_.to_dict() == by_name.summary_.to_dict()
    assert fits.options[0].group == "query"
    assert fits.options[-1].group == "group"
    assert "group" not in LABELLED.columns


def test_too_few_groups_are_named():
    few = LABELLED.with_columns(query=pl.col("query") // 8)
    with pytest.raises(InputError, match=r"^No thresholds: 8 groups ") as refusal:
        Cascade(**CALLS, target_accuracy=0.9).fit(few, groups="query")
    shown, needed = re.findall(r"at most ([0-9.]+)%.*label about ([0-9]+) groups", str(refusal.value))[0]
    assert min_groups_to_reject(float(shown) / 100, 0.05) <= 8 < min_groups_to_reject(float(shown) / 100 + 0.01, 0.05)
    assert int(needed) * 0.5 > 1.5 * min_groups_to_reject(0.9, 0.05)


def test_a_model_that_does_not_pay_is_not_asked():
    noise = np.random.default_rng(3).integers(0, 2, N_ROWS)
    useless = LABELLED.with_columns(large=pl.Series(np.array(NAMES)[noise]))
    cascade = Cascade(**CALLS, target_accuracy=TARGET).fit(useless)
    assert cascade.summary_.numbers["chosen"]["models"] == ["small"]
    assert set(cascade.apply(NEW.drop("large"))["cascade_route"]) == {"use", "person"}
    assert any(line.startswith("Not asked: large;") for line in cascade.summary_.lines)


def test_only_the_strong_model_is_asked_if_the_cheap_one_saves_nothing():
    costs = {"small": 10, "large": 1, "person": 100}
    cascade = Cascade(MODELS, costs, labels=NAMES, target_accuracy=0.85).fit(LABELLED)
    assert cascade.summary_.numbers["chosen"]["models"] == ["large"]
    assert set(cascade.apply(NEW.drop("small", "small_confidence"))["cascade_route"]) <= {"use", "person"}


def test_there_is_no_cascade_if_a_person_alone_is_cheaper(fits):
    costs = {"small": 10, "large": 20, "person": 1}
    cascade = Cascade(MODELS, costs, labels=NAMES, target_accuracy=0.95)
    with pytest.raises(InputError, match=r"No cascade .*95%.* person .*\(1 per "):
        cascade.fit(LABELLED)
    assert cascade.document_ is None
    assert cascade.summary_.numbers["chosen"]["models"] == []


def test_without_ids_the_sent_rows_alone_are_routed_as_all_rows(fits):
    names = LABELLED.rename({"id": "passage"})
    fitted = Cascade(**CALLS, target_accuracy=TARGET).fit(names)
    assert fitted.document_.identity_columns == ("passage", "query")
    rows = NEW.rename({"id": "passage"})
    at_once = fitted.apply(rows)
    is_sent = fitted.apply(rows.drop("large"))["cascade_route"] == "large"
    assert fitted.apply(rows.filter(is_sent)).equals(at_once.filter(is_sent))


def test_without_a_person_a_target_may_be_out_of_reach():
    costs = {"small": 1, "large": 10}
    with pytest.raises(InputError, match=r" 99% .*cost of .*person"):
        Cascade(MODELS, costs, labels=NAMES, target_accuracy=0.99).fit(LABELLED)
    cascade = Cascade(MODELS, costs, labels=NAMES, target_accuracy=0.75).fit(LABELLED)
    assert set(cascade.apply(NEW)["cascade_route"]) == {"use"}


def test_a_person_who_errs_costs_more(cascade):
    unsure = Cascade(**CALLS, target_accuracy=TARGET, person_accuracy=0.97).fit(LABELLED)
    assert unsure.summary_.numbers["chosen"]["cost"] > cascade.summary_.numbers["chosen"]["cost"]


def test_one_model_and_a_person_are_a_cascade():
    cascade = Cascade({"small": MODELS["small"]}, {"small": 1, "person": 100}, labels=NAMES, target_accuracy=0.85)
    assert set(cascade.fit(LABELLED).apply(NEW)["cascade_route"]) == {"use", "person"}


def test_rows_without_labels_are_dropped_on_request_only(fits):
    partly = LABELLED.with_columns(label=pl.when(pl.col("id") % 10 > 0).then("label"))
    with pytest.raises(InputError, match="label is missing"):
        Cascade(**CALLS, target_accuracy=0.8).fit(partly)
    cascade = Cascade(**CALLS, target_accuracy=0.8, drop_unlabelled=True).fit(partly)
    assert cascade.summary_.numbers["rows"] == 540


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {}}, "give 1 to 5"),
        ({"models": {"person": MODELS["small"]}}, "called 'person'"),
        ({"models": {"a b": MODELS["small"]}}, "called 'a b'"),
        ({"models": {"small": "small"}}, "give its columns"),
        ({"costs": {"small": 1}}, "given for small;.*small, large,.*person"),
        ({"costs": COSTS | {"people": 1}}, "people is no model.*cost person"),
        ({"costs": COSTS | {"small": -1}}, "at least 0"),
        ({"costs": COSTS | {"small": float("nan")}}, "at least 0"),
        ({"hold_out": 1}, "hold_out is 1"),
        ({"costs": COSTS | {"small": "1"}}, "cost of small .*'1'"),
    ],
)
def test_invalid_parameters_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        Cascade(**(CALLS | {"target_accuracy": 0.8} | change)).fit(LABELLED)


PROBES = {  # every parameter -> another value than in `CALLS`
    "models": {"large": MODELS["large"], "small": MODELS["small"]},
    "costs": COSTS | {"large": 11},
    "target_accuracy": 0.9,
    "budget": 20,
    "labels": ("yes", "no"),
    "label": "other_label",
    "id": "other_id",
    "drop_unlabelled": True,
    "person_accuracy": 0.97,
    "confidence_level": 0.8,
    "hold_out": 0.6,
    "seed": 2,
}


def test_every_parameter_has_a_probe():
    assert PROBES.keys() == inspect.signature(Cascade).parameters.keys()


@pytest.fixture(scope="module")
def content_by_hand() -> dict[str, object]:
    """Fit the cascade of `CALLS` with maps by hand, and return its content."""
    with pytest.MonkeyPatch.context() as patch:
        replace_fits(patch)
        return Cascade(**CALLS, target_accuracy=TARGET).fit(LABELLED).document_.model_dump()


@pytest.mark.parametrize("name", PROBES)
def test_every_parameter_changes_the_result(name, content_by_hand, fits):
    other_label = np.roll(LABELLED["label"].to_numpy(), 1)
    rows = LABELLED.with_columns(other_label=pl.Series(other_label), other_id=pl.col("id") + 7)
    settings = CALLS | {"target_accuracy": TARGET, name: PROBES[name]}
    if name == "budget":
        settings["target_accuracy"] = None
    if name == "drop_unlabelled":  # without it, such rows are an error
        rows = rows.with_columns(label=pl.when(pl.col("id") % 10 > 0).then("label"))
    try:
        changed = Cascade(**settings).fit(rows).document_.model_dump()
    except InputError as error:  # labels that are not those of the decisions reach no target
        changed = str(error)
    assert changed != content_by_hand


def test_defaults_are_those_of_the_command():
    parameters = inspect.signature(Cascade).parameters
    for field in fields(CascadeSettings):
        assert parameters[field.name].default == field.default


def test_an_unfitted_cascade_says_so():
    with pytest.raises(InputError, match="not fitted"):
        Cascade(**CALLS, target_accuracy=0.8).apply(NEW)
    with pytest.raises(InputError, match="not fitted"):
        Cascade(**CALLS, target_accuracy=0.8).save("cascade.json")


# Types of files and frames

NUMBERED = (  # labels 0 and 1, decisions without confidences, and rows that two columns of numbers identify
    LABELLED.with_columns(pl.col("small", "large", "label").replace_strict({"no": 0, "yes": 1}))
    .rename({"id": "passage"})
    .drop("small_confidence")
)
DECISIONS = {"small": {"decision": "small"}, "large": {"decision": "large"}}
FORMATS = {
    "csv": lambda frame, folder: frame.write_csv(folder / "rows.csv"),
    "parquet": lambda frame, folder: frame.write_parquet(folder / "rows.parquet"),
}
FRAMES = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: frame.to_pandas(),
    "arrow": lambda frame: frame.to_arrow(),
    "floats": lambda frame: frame.with_columns(pl.col("query", "passage").cast(pl.Float64)),
    "texts": lambda frame: frame.with_columns(pl.all().cast(pl.String)),
}


def fit_decisions(rows, **settings) -> Cascade:
    return Cascade(DECISIONS, COSTS, target_accuracy=0.9, **settings).fit(rows)


@pytest.fixture(scope="module")
def of_decisions() -> Cascade:
    return fit_decisions(NUMBERED)


@pytest.mark.parametrize("kind", FRAMES)
def test_the_type_of_a_frame_changes_neither_cascade_nor_route(kind, of_decisions):
    rows = FRAMES[kind](NUMBERED)
    fitted = fit_decisions(rows)
    thresholds = [step.threshold for step in of_decisions.document_.steps]
    assert [step.threshold for step in fitted.document_.steps] == thresholds
    routes = list(map(str, of_decisions.apply(rows)["cascade_route"]))
    assert routes == of_decisions.apply(NUMBERED)["cascade_route"].to_list()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_is_divided_as_a_frame(kind, of_decisions, tmp_path):
    FORMATS[kind](NUMBERED, tmp_path)
    rows, saved = tmp_path / f"rows.{kind}", tmp_path / "cascade.json"
    models = [part for name in DECISIONS for part in ("--model", f"{name} decision={name}")]
    costs = ("--cost", "small=1,large=10,person=100", "--target-accuracy", 0.9)
    run_command("cascade", "fit", "--predictions", rows, *models, *costs, "--out", saved)
    thresholds = [step.threshold for step in of_decisions.document_.steps]
    assert [step.threshold for step in load_cascade(saved).steps] == thresholds
    routed = tmp_path / "routed.parquet" if kind == "parquet" else tmp_path / "routed.csv"
    run_command("cascade", "apply", "--cascade", saved, "--predictions", rows, "--out", routed)
    read = pl.read_parquet if kind == "parquet" else pl.read_csv
    assert read(routed)["cascade_route"].to_list() == of_decisions.apply(NUMBERED)["cascade_route"].to_list()


# Columns that identify a row


def test_a_column_that_identified_the_labelled_rows_is_required(fits):
    extra = fit_decisions(NUMBERED.with_columns(assessor=pl.lit("A")))
    assert extra.document_.identity_columns == ("assessor", "passage", "query")
    assert any(re.search("identified .*assessor, passage, query:", line) for line in extra.summary_.lines)
    with pytest.raises(InputError, match=r"no column assessor.*id='passage,query'"):
        extra.apply(NUMBERED)
    named = fit_decisions(NUMBERED.with_columns(assessor=pl.lit("A")), id=["passage", "query"])
    assert named.apply(NUMBERED).equals(fit_decisions(NUMBERED).apply(NUMBERED))


# Decisions, costs and answers under another name


def test_words_for_numbered_labels_are_refused_as_in_the_fit(of_decisions):
    words = NUMBERED.with_columns(pl.col("large").replace_strict({0: "no", 1: "yes"}))
    for call in (fit_decisions, of_decisions.apply):
        with pytest.raises(InputError, match=r"large is '(no|yes)'"):
            call(words)
    truth = NUMBERED.with_columns(pl.col("large") == 1)
    assert of_decisions.apply(truth)["cascade_route"].equals(of_decisions.apply(NUMBERED)["cascade_route"])


# Descriptions of the fit


def test_the_shares_that_are_asked_give_the_cost(cascade):
    chosen = cascade.summary_.numbers["chosen"]
    costs = [COSTS[name] for name in [*chosen["models"], "person"]]
    assert chosen["cost"] == pytest.approx(np.dot(chosen["asked"], costs))
    line = next(line for line in cascade.summary_.lines if line.startswith("Cost of these"))
    terms = re.findall(r"([0-9,]+) x ([0-9.]+)", line)
    total = sum(int(count.replace(",", "")) * float(cost) for count, cost in terms)
    assert f"= {total:,.8g}." in line


def test_decisions_that_are_divided_by_lot_are_named(cascade, of_decisions):
    lots = [line for line in of_decisions.summary_.lines if "divided by lot" in line]
    assert lots
    assert re.search(r"decisions [01] of (small|large).*% go to (large|a person)", lots[0])
    only = Cascade({"small": MODELS["small"]}, {"small": 1, "person": 100}, labels=NAMES, target_accuracy=0.9)
    assert not any("divided by lot" in line for line in only.fit(LABELLED).summary_.lines)


def test_the_help_lists_the_fields_of_a_model():
    help_text = inspect.signature(cli.cascade_fit).parameters["model"].annotation.__metadata__[0].help
    assert f"fit`: {', '.join(MODEL_FIELDS)}." in help_text


# Commands


def fit_command(folder, *more: object) -> list[str]:
    LABELLED.write_csv(folder / "labelled.csv")
    return run_command(
        *("cascade", "fit", "--predictions", folder / "labelled.csv", "--labels", "no,yes"),
        *("--model", "small decision=small confidence=small_confidence", "--model", "large decision=large"),
        *("--cost", "small=1,large=10,person=100", "--out", folder / "cascade.json", *more),
    )


def test_commands_give_the_cascade_and_routes_of_python(cascade, tmp_path):
    fit_command(tmp_path, "--target-accuracy", TARGET)
    document = load_cascade(tmp_path / "cascade.json")
    thresholds = [step.threshold for step in document.steps]
    assert thresholds == [step.threshold for step in cascade.document_.steps]
    new, routed = tmp_path / "new.csv", tmp_path / "routed.csv"
    NEW.write_csv(new)
    run_command("cascade", "apply", "--cascade", tmp_path / "cascade.json", "--predictions", new, "--out", routed)
    assert pl.read_csv(routed)["cascade_route"].to_list() == cascade.apply(NEW)["cascade_route"].to_list()
    again = tmp_path / "again.csv"  # columns of an earlier call are replaced
    run_command("cascade", "apply", "--cascade", tmp_path / "cascade.json", "--predictions", routed, "--out", again)
    assert again.read_bytes() == routed.read_bytes()


def test_the_figure_and_the_numbers_are_written(tmp_path, fits):
    fit_command(tmp_path, "--budget", 30, "--figure", tmp_path / "curve.svg", "--numbers", tmp_path / "numbers.json")
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "numbers.json").read_text())["budget"] == 30


def test_a_refusal_still_writes_the_figure_and_the_numbers_and_has_one_line(tmp_path, fits):
    figure, numbers = tmp_path / "curve.svg", tmp_path / "numbers.json"
    with pytest.raises(InputError, match=r"^No thresholds: [^\n]*$"):
        fit_command(tmp_path, "--target-accuracy", 0.9999, "--figure", figure, "--numbers", numbers)
    assert figure.exists()
    assert numbers.exists()
    assert not (tmp_path / "cascade.json").exists()


def test_a_refusal_says_that_an_earlier_cascade_is_unchanged(tmp_path, fits):
    (tmp_path / "cascade.json").write_text("earlier")
    with pytest.raises(InputError, match=r"cascade\.json .*not changed"):
        fit_command(tmp_path, "--target-accuracy", 0.9999, "--force")
    assert (tmp_path / "cascade.json").read_text() == "earlier"


def test_an_existing_cascade_is_kept_without_force(tmp_path):
    (tmp_path / "cascade.json").write_text("mine")
    with pytest.raises(InputError, match="--force"):
        fit_command(tmp_path, "--target-accuracy", 0.8)
    assert (tmp_path / "cascade.json").read_text() == "mine"


# Rows that cannot be used


def test_a_label_that_only_a_later_model_decides_is_never_omitted():
    rows = pl.DataFrame({"small": ["no", "yes"], "large": ["no", "unknown"], "label": ["no", "unknown"]})
    assert find_unlabelled(rows, "label", None, decisions=["small"]).to_list() == [False, True]
    assert not find_unlabelled(rows, "label", None, decisions=["small", "large"]).any()


def test_messages_name_the_fields_of_a_model_on_the_command_line(tmp_path):
    percent = LABELLED.with_columns(pl.col("small_confidence") * 100)
    percent.write_parquet(tmp_path / "p.parquet")
    arguments = ["cascade", "fit", "--predictions", tmp_path / "p.parquet", "--cost", "small=1,large=10,person=100"]
    arguments += ["--target-accuracy", TARGET, "--labels", "no,yes", "--out", tmp_path / "c.json"]
    arguments += ["--model", "small decision=small confidence=small_confidence"]
    with pytest.raises(InputError, match=r"percent=true .*--model small"):
        run_command(*arguments, "--model", "large decision=large")
    arguments[-1] += " percent=true"
    with pytest.raises(InputError, match=r"column larg,.*decision.*--model large"):
        run_command(*arguments, "--model", "large decision=larg")
    with pytest.raises(InputError, match="give percent=True"):
        Cascade(**CALLS, target_accuracy=TARGET).fit(percent)
