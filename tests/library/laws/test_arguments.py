"""Every parameter of every public function and command changes the result.

The tests iterate over the signatures. A new parameter needs a probe: two calls that differ only in this parameter.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

import relmap
from relmap import ReliabilityMap, cli, load_map
from relmap.errors import InputError
from relmap.maps.document import MapDocument
from tests import maps

N_ROWS = 80
GENERATOR = np.random.default_rng(0)
FRAME = maps.make_predictions(N_ROWS, shift=1.5, per_group=2)
LOGIT_ARRAY = np.array(FRAME["logits"].to_list())
LABELS = FRAME["label"].to_numpy()
GROUPS = FRAME["group"].to_numpy()
NEW_LOGITS = np.array(maps.make_predictions(N_ROWS, shift=1.5, seed=5)["logits"].to_list())
PROBABILITIES = softmax(LOGIT_ARRAY, axis=1)
COLUMN_FRAME = pl.DataFrame(
    {f"logits_{k}": LOGIT_ARRAY[:, k] for k in range(3)}
    | {f"other_{k}": LOGIT_ARRAY[:, k] * (k + 1) / 2 for k in range(3)}
    | {f"share_{k}": PROBABILITIES[:, k] for k in range(3)}
    | {"label": LABELS, "query": GROUPS, "site": np.arange(N_ROWS) // 4, "length": GENERATOR.normal(size=N_ROWS)}
)
CONFIDENCE = np.round(PROBABILITIES.max(axis=1), 1)
CONFIDENCE_FRAME = pl.DataFrame(
    {
        "decision": LOGIT_ARRAY.argmax(axis=1),
        "confidence": CONFIDENCE,
        "label": LABELS,
        "other_label": np.roll(LABELS, 1),
    }
    | {"other_decision": LOGIT_ARRAY[:, ::-1].argmax(axis=1), "other_confidence": np.roll(CONFIDENCE, 1)}
    | {
        "confidence_word": np.where(CONFIDENCE > 0.6, "high", "low"),
        "pair": np.arange(N_ROWS) * 3 + 5,
        "other_pair": np.arange(N_ROWS) * 5 + 7,
    }
    | {"query": GROUPS, "site": np.arange(N_ROWS) // 4}
)
PARTLY_LABELLED = CONFIDENCE_FRAME.with_columns(label=pl.when(pl.int_range(N_ROWS) % 9 > 0).then("label"))
PROBABILITY = expit(np.linspace(-3, 3, N_ROWS))
TWO_LABELS = pl.DataFrame(
    {
        "p": PROBABILITY,
        "q": PROBABILITY**2,
        "label": (GENERATOR.random(N_ROWS) < PROBABILITY).astype(int),
        "query": GROUPS,
    }
)
MANY_ROWS = pl.DataFrame({"p": GENERATOR.random(600)}).with_columns(
    label=(pl.col("p") + pl.Series(GENERATOR.random(600)) > 1)
)
WRONG_LOGITS = np.array(maps.make_predictions(600, shift=1.5, seed=6)["logits"].to_list())
ALL_WRONG = pl.DataFrame({f"logits_{k}": WRONG_LOGITS[:, k] for k in range(3)}).with_columns(
    label=(WRONG_LOGITS.argmax(axis=1) + 1) % 3
)
ROWS = {  # kind of rows, as in the probes of commands
    "wide": COLUMN_FRAME,
    "judge": CONFIDENCE_FRAME,
    "gaps": PARTLY_LABELLED,
    "two": TWO_LABELS,
    "part": CONFIDENCE_FRAME[:60],
    "many": MANY_ROWS,
    "wrong": ALL_WRONG,
}


@pytest.fixture(scope="module", autouse=True)
def _limit_work():
    with pytest.MonkeyPatch.context() as patch:
        maps.limit_resamples(patch, 30)
        maps.limit_prior_deviations(patch)
        patch.setenv("SOURCE_DATE_EPOCH", "86400")
        yield


def outcome_of(call: Callable[[], object]) -> tuple[str, object]:
    """Return the result of a call, or the message of its InputError."""
    try:
        return "returned", call()
    except InputError as error:
        if "package torch" in str(error):
            raise
        return "refused", str(error)


def assert_probed(before: tuple[str, object], after: tuple[str, object]) -> None:
    """Check that the outcomes of two calls differ and that at least one call succeeded."""
    assert before != after
    assert "returned" in (before[0], after[0])


# Parameters of ReliabilityMap -> rows, settings of both calls, value of the parameter in each call

INPUTS = (LOGIT_ARRAY, LABELS)
ESTIMATOR_PROBES: dict[str, tuple[tuple, dict[str, object], object, object]] = {
    "classifier": (INPUTS, {}, None, LogisticRegression()),
    "calibrator": (INPUTS, {}, None, "uncal"),
    "variant": (INPUTS, {}, None, "shared_1d"),
    "seed": (INPUTS, {}, 1, 2),
    "labels": (INPUTS, {}, None, (2, 1, 0)),
    "signals": ((COLUMN_FRAME,), {}, (), ("length",)),
    "hold_out": (INPUTS, {}, 0.0, 0.2),
    "protocol": (INPUTS, {}, "own", "paper"),
    "arrays": ((PROBABILITIES, LABELS), {}, "auto", "logits"),
    "accept_label_order": ((LOGIT_ARRAY[:, ::-1] * 3, LOGIT_ARRAY.argmax(axis=1)), {}, False, True),
    "probabilities": ((COLUMN_FRAME.drop("logits_0", "logits_1", "logits_2"),), {}, None, "share"),
    "logits": ((COLUMN_FRAME,), {}, None, "other"),
    "probability": ((TWO_LABELS,), {}, "p", "q"),
    "score_column": ((TWO_LABELS,), {"border": 0.5}, "p", "q"),
    "border": ((TWO_LABELS,), {"score_column": "p"}, 0.5, 0.6),
    "positive": ((TWO_LABELS,), {"probability": "p"}, None, "0"),
    "label": ((CONFIDENCE_FRAME,), {}, None, "other_label"),
    "decision": ((CONFIDENCE_FRAME,), {}, None, "other_decision"),
    "confidence": ((CONFIDENCE_FRAME,), {}, None, "other_confidence"),
    "confidence_words": ((CONFIDENCE_FRAME,), {"confidence": "confidence_word"}, None, "low=.3,high=.9"),
    "percent": ((CONFIDENCE_FRAME,), {}, False, True),
    "confidence_column": ((CONFIDENCE_FRAME,), {}, None, "other_confidence"),
    "id": ((CONFIDENCE_FRAME,), {}, None, "pair"),
    "drop_unlabelled": ((PARTLY_LABELLED,), {}, False, True),
}


def describe_fit(inputs: tuple, **settings: object) -> str:
    """Describe the observable results of a fit."""
    model = ReliabilityMap(**{"accept_label_order": True} | settings).fit(*inputs)
    return f"{model.document_.model_dump_json()} {model.summary_} {model.classes_} {model.predict(inputs[0])[:9]}"


CACHED_FITS: dict[str, tuple[str, object]] = {}


def fit_once(inputs: tuple, settings: dict[str, object]) -> tuple[str, object]:
    """Fit once per settings, since many probes share their first call."""
    defaults = ReliabilityMap().get_params()
    key = f"{id(inputs[0])} {[(name, value) for name, value in settings.items() if value is not defaults[name]]}"
    if key not in CACHED_FITS:
        CACHED_FITS[key] = outcome_of(lambda: describe_fit(inputs, **settings))
    return CACHED_FITS[key]


def test_every_parameter_of_the_estimator_has_a_probe():
    assert set(ESTIMATOR_PROBES) == set(inspect.signature(ReliabilityMap).parameters)
    assert set(ESTIMATOR_PROBES) == set(ReliabilityMap().get_params())


@pytest.mark.parametrize("name", ESTIMATOR_PROBES)
def test_every_parameter_of_the_estimator_changes_the_fit(name):
    inputs, settings, before, after = ESTIMATOR_PROBES[name]
    outcomes = [fit_once(inputs, {**settings, name: value}) for value in (before, after)]
    assert_probed(*outcomes)


# Methods -> parameter -> arguments of both calls

NEW_FRAME = maps.make_predictions(400, shift=1.5, seed=7, per_group=2)
NEW_LABELLED = np.array(NEW_FRAME["logits"].to_list()), NEW_FRAME["label"].to_numpy()
Calls = tuple[Mapping[str, object], Mapping[str, object]]


@pytest.fixture(scope="module")
def fitted_map() -> ReliabilityMap:
    return ReliabilityMap().fit(LOGIT_ARRAY, LABELS, GROUPS)


@pytest.fixture(scope="module")
def map_with_classifier() -> ReliabilityMap:
    return ReliabilityMap(classifier=LogisticRegression(), variant="confidence").fit(LOGIT_ARRAY, LABELS)


def labelled_arguments(**more: object) -> dict[str, Any]:
    return {"X": NEW_LABELLED[0], "y": NEW_LABELLED[1], **more}


ROW_PROBES: dict[str, Calls] = {
    "X": (labelled_arguments(), labelled_arguments(X=NEW_LABELLED[0][::-1])),
    "y": (labelled_arguments(), labelled_arguments(y=NEW_LABELLED[1][::-1])),
    "groups": (labelled_arguments(), labelled_arguments(groups=NEW_FRAME["group"].to_numpy())),
}
THRESHOLD_PROBES: dict[str, Calls] = {
    **{name: (first | {"coverage": 0.5}, second | {"coverage": 0.5}) for name, (first, second) in ROW_PROBES.items()},
    "target_accuracy": (labelled_arguments(target_accuracy=0.6), labelled_arguments(target_accuracy=0.65)),
    "coverage": (labelled_arguments(coverage=0.5), labelled_arguments(coverage=0.6)),
    "cut": (labelled_arguments(cut=0.6), labelled_arguments(cut=0.7)),
    "confidence_level": (labelled_arguments(coverage=0.5), labelled_arguments(coverage=0.5, confidence_level=0.9)),
    "only_label": (labelled_arguments(target_accuracy=0.6), labelled_arguments(target_accuracy=0.6, only_label=0)),
    "cost_error": (labelled_arguments(cost_error=3, cost_review=1), labelled_arguments(cost_error=4, cost_review=1)),
    "cost_review": (labelled_arguments(cost_error=3, cost_review=1), labelled_arguments(cost_error=3, cost_review=2)),
}
APPLY_PROBES: dict[str, Calls] = {
    "X": ({"X": LOGIT_ARRAY}, {"X": NEW_LOGITS}),
    "coverage": ({"X": NEW_LOGITS}, {"X": NEW_LOGITS, "coverage": 0.3}),
    "cut": ({"X": NEW_LOGITS}, {"X": NEW_LOGITS, "cut": 0.8}),
    "cuts": ({"X": NEW_LOGITS}, {"X": NEW_LOGITS, "cuts": "cuts.json"}),
}
METHOD_PROBES: dict[str, dict[str, Calls]] = {
    "fit": {
        "X": ({"X": LOGIT_ARRAY, "y": LABELS}, {"X": LOGIT_ARRAY[::-1], "y": LABELS}),
        "y": ({"X": LOGIT_ARRAY, "y": LABELS}, {"X": LOGIT_ARRAY, "y": np.roll(LABELS, 1)}),
        "groups": ({"X": LOGIT_ARRAY, "y": LABELS}, {"X": LOGIT_ARRAY, "y": LABELS, "groups": GROUPS}),
    },
    "reliability": {"X": ({"X": LOGIT_ARRAY}, {"X": NEW_LOGITS})},
    "predict": {"X": ({"X": LOGIT_ARRAY}, {"X": NEW_LOGITS})},
    "predict_proba": {"X": ({"X": LOGIT_ARRAY}, {"X": NEW_LOGITS})},
    "score": {
        "X": ROW_PROBES["X"],
        "y": ROW_PROBES["y"],
        "groups": (
            {"X": LOGIT_ARRAY, "y": LABELS, "groups": GROUPS},
            {"X": LOGIT_ARRAY, "y": LABELS, "groups": np.roll(GROUPS, 1)},
        ),
    },
    "apply": APPLY_PROBES,
    "evaluate": ROW_PROBES,
    "plot": ROW_PROBES,
    "thresholds": THRESHOLD_PROBES,
    "sql": {"dialect": ({}, {"dialect": "postgres"}), "column": ({}, {"column": "confidence"})},
    "save": {"path": ({"path": "one.json"}, {"path": "two.json"})},
    "load": {
        "path": ({"path": "map.json"}, {"path": "other.json"}),
        "arrays": ({"path": "map.json"}, {"path": "map.json", "arrays": "probabilities"}),
    },
    "get_params": {"deep": ({}, {"deep": False})},
    "set_params": {"params": ({}, {"seed": 9})},
}


def describe_state(value: object) -> str:
    """Describe the result of a method, including the observable state of an estimator."""
    if isinstance(value, ReliabilityMap):
        document = getattr(value, "document_", None)
        requests = {name: kind for name, kind in vars(value).items() if name in ("_metadata_request", "arrays_")}
        return f"{value.get_params()} {requests} {document and document.model_dump_json()}"
    if isinstance(value, np.ndarray):
        return str(value.tolist())  # an array prints a part of its rows only
    return f"{value} {value.to_dict() if hasattr(value, 'to_dict') else ''}"


def public_methods(kind: type) -> set[str]:
    """Return the names of the public methods that a class itself defines."""
    methods = {name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    return {name for name in methods if not name.endswith("_request")}  # scikit-learn adds these


def parameter_names(method: Callable) -> set[str]:
    return set(inspect.signature(method).parameters) - {"self"}


def test_every_parameter_of_every_method_has_a_probe():
    assert public_methods(ReliabilityMap) == {name for name in METHOD_PROBES if name in vars(ReliabilityMap)}
    for name in public_methods(ReliabilityMap):
        assert parameter_names(getattr(ReliabilityMap, name)) == set(METHOD_PROBES[name]), name
    assert parameter_names(load_map) == {"path"}
    assert {name for name in relmap.__all__ if inspect.isfunction(getattr(relmap, name))} == {"load_map"}


@pytest.fixture(scope="module")
def method_folder(fitted_map, tmp_path_factory) -> Path:
    """Make a folder with files of maps and thresholds."""
    folder = tmp_path_factory.mktemp("methods")
    fitted_map.save(folder / "map.json")
    ReliabilityMap(variant="shared_1d").fit(LOGIT_ARRAY, LABELS).save(folder / "other.json")
    (folder / "cuts.json").write_text(json.dumps(fitted_map.thresholds(*NEW_LABELLED, coverage=0.2).to_dict()))
    return folder


METHOD_PARAMETERS = [
    (name, parameter) for name, probes in METHOD_PROBES.items() for parameter in probes if name in vars(ReliabilityMap)
]


@pytest.mark.parametrize(("method", "parameter"), METHOD_PARAMETERS)
def test_every_parameter_of_every_method_changes_its_result(
    method, parameter, fitted_map, map_with_classifier, method_folder, monkeypatch
):
    monkeypatch.chdir(method_folder)
    probes = METHOD_PROBES[method][parameter]

    def call(arguments: Mapping[str, object]) -> str:
        if method == "load":
            return describe_state(ReliabilityMap.load(**arguments))
        model = fitted_map
        if method in ("fit", "set_params"):
            model = ReliabilityMap()
        if method in ("predict_proba", "get_params"):
            model = map_with_classifier
        result = getattr(model, method)(**arguments)
        file_names = sorted(path.name for path in method_folder.iterdir()) if method == "save" else []
        return f"{describe_state(result)} {file_names}"

    assert_probed(*[outcome_of(lambda arguments=arguments: call(arguments)) for arguments in probes])


# Commands -> parameter -> kind of rows, options of the first call, changes of the second call

Options = dict[str, object]
READING_PROBES: dict[str, tuple[str, Options, Options]] = {
    "label": ("judge", {}, {"label": "other_label"}),
    "decision": ("judge", {}, {"decision": "other_decision"}),
    "confidence": ("judge", {}, {"confidence": "other_confidence"}),
    "confidence_words": ("judge", {"confidence": "confidence_word"}, {"confidence_words": "low=.3,high=.9"}),
    "percent": ("judge", {}, {"percent": True}),
    "logits": ("wide", {}, {"logits": "other"}),
    "probabilities": ("wide", {"logits": "other"}, {"logits": None, "probabilities": "share"}),
    "probability": ("two", {"probability": "p"}, {"probability": "q"}),
    "score": ("two", {"score": "p", "border": 0.5}, {"score": "q"}),
    "border": ("two", {"score": "p", "border": 0.5}, {"border": 0.6}),
    "positive": ("two", {"probability": "p"}, {"positive": "0"}),
    "id": ("part", {"id": "pair"}, {"id": "other_pair"}),
    "drop_unlabelled": ("gaps", {}, {"drop_unlabelled": True}),
}
RUN_OPTIONS: Options = {"predictions": None, "run": "my.run"}
JUDGED_OPTIONS: Options = RUN_OPTIONS | {"qrels": "qrels.txt", "relevant_from": 1, "score": "score", "border": 0.5}
READING_PROBES |= {
    "run": ("run", JUDGED_OPTIONS, {"run": "other.run"}),
    "qrels": ("run", JUDGED_OPTIONS, {"qrels": "other_qrels.txt"}),
    "relevant_from": ("run", JUDGED_OPTIONS, {"relevant_from": 2}),
    "unjudged": ("run", JUDGED_OPTIONS, {"unjudged": "irrelevant"}),
}
SCORE_OPTIONS: Options = {
    "predictions": "many.parquet",
    "map_file": None,
    "coverage": None,
    "score": "p",
    "positive": "1",
}
COMMAND_PROBES: dict[str, dict[str, tuple[str, Options, Options]]] = {
    "fit": {
        "predictions": ("judge", {}, {"predictions": "part.parquet"}),
        "out": ("judge", {}, {"out": "elsewhere.json"}),
        "calibrator": ("judge", {}, {"calibrator": "spline"}),
        "variant": ("judge", {}, {"variant": "shared_1d"}),
        "seed": ("judge", {}, {"seed": 2}),
        "group": ("judge", {}, {"group": "site"}),
        "labels": ("wide", {}, {"labels": "2,1,0", "accept_label_order": True}),
        "protocol": ("judge", {}, {"protocol": "paper"}),
        "signals": ("wide", {}, {"signals": "length"}),
        "hold_out": ("judge", {}, {"hold_out": 0.2}),
        "accept_label_order": ("wide", {"labels": "2,1,0"}, {"accept_label_order": True}),
    },
    "apply": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "predictions": ("wide", {}, {"predictions": "judge.parquet"}),
        "out": ("wide", {}, {"out": "elsewhere.csv"}),
        "coverage": ("wide", {}, {"coverage": "0.3"}),
        "cut": ("wide", {}, {"cut": 0.8}),
        "cuts": ("wide", {}, {"cuts": "cuts.json"}),
        "run": ("run", RUN_OPTIONS, {"run": "other.run"}),
    },
    "label": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "predictions": ("wide", {}, {"predictions": "unlabelled_judge.parquet"}),
        "rows": ("wide", {}, {"rows": 9}),
        "out": ("wide", {}, {"out": "elsewhere.csv"}),
        "seed": ("wide", {}, {"seed": 2}),
        "run": ("run", RUN_OPTIONS, {"run": "other.run"}),
        "label": ("judge", {}, {"label": "truth"}),
    },
    "evaluate": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "predictions": ("wide", {}, {"predictions": "judge.parquet"}),
        "group": ("judge", {}, {"group": "site"}),
        "unlabelled": ("wide", {}, {"unlabelled": "unlabelled_wide.parquet"}),
        "fail_on_drift": ("wide", {"predictions": "wrong.parquet"}, {"fail_on_drift": True}),
        "out": ("wide", {}, {"out": "elsewhere.json"}),
    },
    "watch": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "predictions": ("wide", {}, {"predictions": "judge.parquet"}),
        "group": ("two", {"probability": "q"}, {"group": "query"}),
        "cuts": ("wide", {}, {"cuts": "cuts.json"}),
        "out": ("wide", {}, {"out": "elsewhere.json"}),
        "figure": ("wide", {}, {"figure": "shares.svg"}),
        "run": ("run", RUN_OPTIONS, {"run": "other.run"}),
        "fail_on_change": (
            "two",
            {"map_file": "wide.json", "predictions": "wide.parquet", "logits": "share"},
            {"fail_on_change": True},
        ),
    },
    "thresholds": {
        "predictions": ("wide", {}, {"predictions": "judge.parquet"}),
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "target_accuracy": ("wide", {"coverage": None, "target_accuracy": 0.3}, {"target_accuracy": 0.4}),
        "coverage": ("wide", {}, {"coverage": "0.6"}),
        "cut": ("wide", {"coverage": None, "cut": 0.6}, {"cut": 0.7}),
        "only_label": ("wide", {"coverage": None, "target_accuracy": 0.3}, {"only_label": "0"}),
        "labels": ("two", {**SCORE_OPTIONS, "positive": None, "labels": "0,1", "precision": 0.6}, {"labels": "1,0"}),
        "cost_error": ("wide", {"coverage": None, "cost_error": 3, "cost_review": 1}, {"cost_error": 4}),
        "cost_review": ("wide", {"coverage": None, "cost_error": 3, "cost_review": 1}, {"cost_review": 2}),
        "precision": ("two", {**SCORE_OPTIONS, "precision": 0.6}, {"precision": 0.65}),
        "recall": ("two", {**SCORE_OPTIONS, "recall": 0.6}, {"recall": 0.65}),
        "npv": ("two", {**SCORE_OPTIONS, "npv": 0.6}, {"npv": 0.65}),
        "figure": ("two", {**SCORE_OPTIONS, "precision": 0.6}, {"figure": "curve.svg"}),
        "seed": ("two", {**SCORE_OPTIONS, "precision": 0.6}, {"seed": 2}),
        "confidence_level": ("wide", {}, {"confidence_level": 0.9}),
        "group": ("judge", {}, {"group": "site"}),
        "out": ("wide", {}, {"out": "elsewhere.json"}),
    },
    "sql": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "dialect": ("wide", {}, {"dialect": "postgres"}),
        "column": ("wide", {}, {"column": "confidence"}),
    },
}
COMMAND_PROBES["report"] = {
    name: probe for name, probe in COMMAND_PROBES["fit"].items() if name not in ("protocol", "out")
} | {"out": ("judge", {}, {"out": "elsewhere.html"})}
COMMAND_PARAMETERS = [
    (command.callback.__name__, parameter)
    for command in cli.app.registered_commands
    for parameter in inspect.signature(command.callback).parameters
    if command.callback.__name__ != "demo" and parameter not in ("verbose", "force")  # have tests of their own
]


def write_runs(folder: Path) -> None:
    """Write two runs of 30 queries, and two files of judgments of a part of their documents."""
    grade = GENERATOR.integers(0, 3, (30, 6))
    for name, noise in (("my.run", 0.5), ("other.run", 2.0)):
        score = grade + noise * GENERATOR.normal(size=grade.shape)
        lines = [f"q{i} Q0 d{j} 1 {score[i, j]} t\n" for i in range(30) for j in range(6)]
        (folder / name).write_text("".join(lines))
    for name, n_judged in (("qrels.txt", 5), ("other_qrels.txt", 4)):
        lines = [f"q{i} 0 d{j} {grade[i, j]}\n" for i in range(30) for j in range(n_judged)]
        (folder / name).write_text("".join(lines))


@pytest.fixture(scope="module")
def command_folder(tmp_path_factory) -> Path:
    """Make a folder with files of rows, and a map of each kind of rows, fitted to other rows."""
    folder = tmp_path_factory.mktemp("commands")
    for name, frame in ROWS.items():
        frame.write_parquet(folder / f"{name}.parquet")
        frame.drop("label").write_parquet(folder / f"unlabelled_{name}.parquet")
    for name, settings in (("wide", {}), ("judge", {"id": "pair"}), ("two", {"probability": "p"})):
        rows = ROWS[name] if name == "judge" else ROWS[name].sample(N_ROWS, shuffle=True, seed=1)[:70]
        ReliabilityMap(accept_label_order=True, **settings).fit(rows).save(folder / f"{name}.json")
    for name in ("gaps", "part"):
        (folder / f"{name}.json").write_text((folder / "judge.json").read_text())
    write_runs(folder)
    maps.run_command(
        *("fit", "--run", folder / "my.run", "--qrels", folder / "qrels.txt", "--relevant-from", 1),
        *("--score", "score", "--border", 0.5, "--out", folder / "run.json"),
    )
    fitted_map = ReliabilityMap.load(folder / "wide.json")
    (folder / "cuts.json").write_text(json.dumps(fitted_map.thresholds(COLUMN_FRAME, coverage=0.2).to_dict()))
    return folder


def valid_options(command: str, kind: str) -> Options:
    """Return valid options of a command."""
    fit_options: Options = {"predictions": f"{kind}.parquet"}
    apply_options: Options = {"map_file": f"{kind}.json", "predictions": f"unlabelled_{kind}.parquet", "out": "out.csv"}
    evaluation_options: Options = {"map_file": f"{kind}.json", "predictions": f"{kind}.parquet", "out": "out.json"}
    return {
        "fit": {**fit_options, "out": "out.json"},
        "report": {**fit_options, "out": "out.html"},
        "apply": apply_options,
        "label": {**apply_options, "rows": 8},
        "evaluate": evaluation_options,
        "watch": evaluation_options,
        "thresholds": {**evaluation_options, "coverage": "0.5"},
        "sql": {"map_file": f"{kind}.json"},
    }[command]


def run_and_collect(command: str, options: Options, folder: Path) -> dict[str, str]:
    """Run a command, and return its result and the contents of the files that it wrote."""
    arguments: list[object] = [command]
    for name, value in options.items():
        if value is not None:
            flag = "--map" if name == "map_file" else f"--{name.replace('_', '-')}"
            arguments += [flag] if value is True else [flag, value]
    files_before = set(folder.iterdir())
    try:
        returned = maps.run_command(*arguments)
    finally:
        new_files = {path.name: path for path in set(folder.iterdir()) - files_before}
        contents = {name: path.read_text() for name, path in new_files.items()}
        for path in new_files.values():
            path.unlink()
    return {"": str(returned), **contents}


CACHED_COMMANDS: dict[str, tuple[str, object]] = {}


def run_once(command: str, options: Options, folder: Path) -> tuple[str, object]:
    """Run a command once per options, since many probes share their first call."""
    key = f"{command} {options}"
    if key not in CACHED_COMMANDS:
        CACHED_COMMANDS[key] = outcome_of(lambda: run_and_collect(command, options, folder))
    return CACHED_COMMANDS[key]


def test_every_parameter_of_every_command_has_a_probe():
    for command, parameter in COMMAND_PARAMETERS:
        assert parameter in COMMAND_PROBES[command] or parameter in READING_PROBES, (command, parameter)


@pytest.mark.parametrize(("command", "parameter"), COMMAND_PARAMETERS)
def test_every_parameter_of_every_command_changes_its_result(command, parameter, command_folder, monkeypatch):
    monkeypatch.chdir(command_folder)
    monkeypatch.setattr(
        "relmap.report.page.render_map_page",
        lambda assessment, summary, map_file, trec: f"{assessment.scored} {summary} {map_file} {trec.qrels}",
    )
    kind, before, change = COMMAND_PROBES[command].get(parameter) or READING_PROBES[parameter]
    options = valid_options(command, kind) | before
    outcomes = [run_once(command, call_options, command_folder) for call_options in (options, options | change)]

    assert_probed(*outcomes)
    assert "--help" not in str(outcomes)  # no call had invalid options


@pytest.mark.parametrize(
    ("command", "options"), [("fit", {}), ("report", {}), ("evaluate", {}), ("thresholds", {"target_accuracy": 0.3})]
)
def test_verbose_prints_all_lines_and_more(command, options, command_folder, monkeypatch, capsys):
    monkeypatch.chdir(command_folder)
    given = valid_options(command, "wide") | options
    if options:
        del given["coverage"]
    printed = []
    for verbose in (False, True):
        run_and_collect(command, given | {"verbose": verbose or None}, command_folder)
        printed.append(capsys.readouterr().err.splitlines())
    assert set(printed[0]) <= set(printed[1])
    if command != "thresholds":  # with few labels, all of its lines are always printed
        assert len(printed[0]) < len(printed[1])


def test_load_map_reads_the_map_of_a_command(command_folder):
    assert isinstance(load_map(command_folder / "wide.json"), MapDocument)
