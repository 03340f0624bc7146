"""Every parameter of every public function and command changes what comes out.

The tests walk the signatures. A new parameter fails until it has a probe: two calls that differ in it alone.
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
from relmap import ReliabilityMap, ReliabilityPipeline, cli, load_map
from relmap.errors import InputError
from relmap.maps.document import MapDocument
from tests import maps

N = 80
GENERATOR = np.random.default_rng(0)
LOGITS = maps.predictions(N, shift=1.5, per_group=2)
ARRAY, TRUTH, GROUPS = np.array(LOGITS["logits"].to_list()), LOGITS["label"].to_numpy(), LOGITS["group"].to_numpy()
NEW = np.array(maps.predictions(N, shift=1.5, seed=5)["logits"].to_list())
SHARES = softmax(ARRAY, axis=1)
WIDE = pl.DataFrame(
    {f"logits_{k}": ARRAY[:, k] for k in range(3)}
    | {f"other_{k}": ARRAY[:, k] * (k + 1) / 2 for k in range(3)}
    | {f"share_{k}": SHARES[:, k] for k in range(3)}
    | {"label": TRUTH, "query": GROUPS, "site": np.arange(N) // 4, "length": GENERATOR.normal(size=N)}
)
SURE = np.round(SHARES.max(axis=1), 1)
JUDGE = pl.DataFrame(
    {"decision": ARRAY.argmax(axis=1), "confidence": SURE, "label": TRUTH, "other_label": np.roll(TRUTH, 1)}
    | {"other_decision": ARRAY[:, ::-1].argmax(axis=1), "other_confidence": np.roll(SURE, 1)}
    | {"said": np.where(SURE > 0.6, "high", "low"), "pair": np.arange(N) * 3 + 5, "other_pair": np.arange(N) * 5 + 7}
    | {"query": GROUPS, "site": np.arange(N) // 4}
)
GAPS = JUDGE.with_columns(label=pl.when(pl.int_range(N) % 9 > 0).then("label"))
CHANCE = expit(np.linspace(-3, 3, N))
TWO = pl.DataFrame({"p": CHANCE, "q": CHANCE**2, "label": (GENERATOR.random(N) < CHANCE).astype(int), "query": GROUPS})
MANY = pl.DataFrame({"p": GENERATOR.random(600)}).with_columns(
    label=(pl.col("p") + pl.Series(GENERATOR.random(600)) > 1)
)
ROWS = {"wide": WIDE, "judge": JUDGE, "gaps": GAPS, "two": TWO, "part": JUDGE[:60], "many": MANY}


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        maps.few_resamples(patch, 30)
        maps.few_deviations(patch)
        patch.setenv("SOURCE_DATE_EPOCH", "86400")
        yield


def outcome(call: Callable[[], object]) -> tuple[str, object]:
    """What a call returns, or the error that it is refused with."""
    try:
        return "returned", call()
    except InputError as error:
        return "refused", str(error)


def assert_probed(before: tuple[str, object], after: tuple[str, object]) -> None:
    assert before != after
    assert "returned" in (before[0], after[0])


# The parameters of ReliabilityMap: rows, settings of both calls, and the values of the parameter before and after

INPUTS = (ARRAY, TRUTH)
SETTINGS: dict[str, tuple[tuple, dict[str, object], object, object]] = {
    "classifier": (INPUTS, {}, None, LogisticRegression()),
    "calibrator": (INPUTS, {}, None, "uncal"),
    "variant": (INPUTS, {}, "label_intercept", "shared_1d"),
    "seed": (INPUTS, {}, 1, 2),
    "labels": (INPUTS, {}, None, (2, 1, 0)),
    "signals": ((WIDE,), {"variant": "label_signals"}, (), ("length",)),
    "hold_out": (INPUTS, {}, 0.0, 0.2),
    "protocol": (INPUTS, {}, "own", "paper"),
    "arrays": ((SHARES, TRUTH), {}, "auto", "logits"),
    "accept_label_order": ((ARRAY[:, ::-1] * 3, ARRAY.argmax(axis=1)), {}, False, True),
    "probabilities": ((WIDE.drop("logits_0", "logits_1", "logits_2"),), {}, None, "share"),
    "logits": ((WIDE,), {}, None, "other"),
    "probability": ((TWO,), {}, "p", "q"),
    "score_column": ((TWO,), {"border": 0.5}, "p", "q"),
    "border": ((TWO,), {"score_column": "p"}, 0.5, 0.6),
    "positive": ((TWO,), {"probability": "p"}, None, "0"),
    "label": ((JUDGE,), {}, None, "other_label"),
    "decision": ((JUDGE,), {}, None, "other_decision"),
    "confidence_column": ((JUDGE,), {}, None, "other_confidence"),
    "confidence_words": ((JUDGE,), {"confidence_column": "said"}, None, "low=.3,high=.9"),
    "percent": ((JUDGE,), {}, False, True),
    "id": ((JUDGE,), {}, None, "pair"),
    "drop_unlabelled": ((GAPS,), {}, False, True),
}


def fitted(inputs: tuple, **settings: object) -> str:
    """A fit, as far as a test can see it."""
    made = ReliabilityMap(**{"variant": "label_intercept", "accept_label_order": True} | settings).fit(*inputs)
    return f"{made.document_.model_dump_json()} {made.recommendation_} {made.classes_} {made.predict(inputs[0])[:9]}"


FITTED: dict[str, tuple[str, object]] = {}


def fit_once(inputs: tuple, settings: dict[str, object]) -> tuple[str, object]:
    """What comes of a fit; many probes share the first of their calls."""
    defaults = ReliabilityMap().get_params()
    key = f"{id(inputs[0])} {[(name, value) for name, value in settings.items() if value is not defaults[name]]}"
    if key not in FITTED:
        FITTED[key] = outcome(lambda: fitted(inputs, **settings))
    return FITTED[key]


def test_every_parameter_of_the_estimator_has_a_probe():
    assert set(SETTINGS) == set(inspect.signature(ReliabilityMap).parameters)
    assert set(SETTINGS) == set(ReliabilityMap().get_params())


@pytest.mark.parametrize("name", SETTINGS)
def test_every_parameter_of_the_estimator_changes_the_fit(name):
    inputs, settings, before, after = SETTINGS[name]
    calls = [fit_once(inputs, {**settings, name: value}) for value in (before, after)]
    assert_probed(*calls)


# The methods: for each parameter two sets of arguments

LABELLED = maps.predictions(400, shift=1.5, seed=7, per_group=2)
OTHERS = np.array(LABELLED["logits"].to_list()), LABELLED["label"].to_numpy()
Calls = tuple[Mapping[str, object], Mapping[str, object]]


@pytest.fixture(scope="module")
def known() -> ReliabilityMap:
    return ReliabilityMap(variant="label_intercept").fit(ARRAY, TRUTH, GROUPS)


@pytest.fixture(scope="module")
def behind_classifier() -> ReliabilityMap:
    return ReliabilityMap(classifier=LogisticRegression(), variant="confidence").fit(ARRAY, TRUTH)


def labelled(**more: object) -> dict[str, Any]:
    return {"X": OTHERS[0], "y": OTHERS[1], **more}


OF_ROWS: dict[str, Calls] = {
    "X": (labelled(), labelled(X=OTHERS[0][::-1])),
    "y": (labelled(), labelled(y=OTHERS[1][::-1])),
    "groups": (labelled(), labelled(groups=LABELLED["group"].to_numpy())),
}
OF_THRESHOLDS: dict[str, Calls] = {
    **{name: tuple({**call, "coverage": 0.5} for call in calls) for name, calls in OF_ROWS.items()},
    "target_accuracy": (labelled(target_accuracy=0.6), labelled(target_accuracy=0.65)),
    "coverage": (labelled(coverage=0.5), labelled(coverage=0.6)),
    "cut": (labelled(cut=0.6), labelled(cut=0.7)),
    "confidence": (labelled(coverage=0.5), labelled(coverage=0.5, confidence=0.9)),
    "cost_error": (labelled(cost_error=3, cost_review=1), labelled(cost_error=4, cost_review=1)),
    "cost_review": (labelled(cost_error=3, cost_review=1), labelled(cost_error=3, cost_review=2)),
}
OF_APPLY: dict[str, Calls] = {
    "X": ({"X": ARRAY}, {"X": NEW}),
    "coverage": ({"X": NEW}, {"X": NEW, "coverage": 0.3}),
    "cut": ({"X": NEW}, {"X": NEW, "cut": 0.8}),
    "cuts": ({"X": NEW}, {"X": NEW, "cuts": "cuts.json"}),
}
METHODS: dict[str, dict[str, Calls]] = {
    "fit": {
        "X": ({"X": ARRAY, "y": TRUTH}, {"X": ARRAY[::-1], "y": TRUTH}),
        "y": ({"X": ARRAY, "y": TRUTH}, {"X": ARRAY, "y": np.roll(TRUTH, 1)}),
        "groups": ({"X": ARRAY, "y": TRUTH}, {"X": ARRAY, "y": TRUTH, "groups": GROUPS}),
    },
    "reliability": {"X": ({"X": ARRAY}, {"X": NEW})},
    "predict": {"X": ({"X": ARRAY}, {"X": NEW})},
    "predict_proba": {"X": ({"X": ARRAY}, {"X": NEW})},
    "score": {
        "X": OF_ROWS["X"],
        "y": OF_ROWS["y"],
        "groups": ({"X": ARRAY, "y": TRUTH, "groups": GROUPS}, {"X": ARRAY, "y": TRUTH, "groups": np.roll(GROUPS, 1)}),
    },
    "apply": OF_APPLY,
    "evaluate": OF_ROWS,
    "plot": OF_ROWS,
    "thresholds": OF_THRESHOLDS,
    "sql": {"dialect": ({}, {"dialect": "postgres"})},
    "save": {"path": ({"path": "one.json"}, {"path": "two.json"})},
    "load": {
        "path": ({"path": "map.json"}, {"path": "other.json"}),
        "arrays": ({"path": "map.json"}, {"path": "map.json", "arrays": "probabilities"}),
    },
    "get_params": {"deep": ({}, {"deep": False})},
    "set_params": {"params": ({}, {"seed": 9})},
}
PIPELINE: dict[str, dict[str, Calls]] = {
    "reliability": METHODS["reliability"],
    "apply": OF_APPLY,
    "evaluate": OF_ROWS,
    "thresholds": OF_THRESHOLDS,
}


def shown(value: object) -> str:
    """What a method returns, and what it leaves in the estimator, as far as a test can see it."""
    if isinstance(value, ReliabilityMap):
        document = getattr(value, "document_", None)
        requests = {name: kind for name, kind in vars(value).items() if name in ("_metadata_request", "arrays_")}
        return f"{value.get_params()} {requests} {document and document.model_dump_json()}"
    return f"{value} {value.to_dict() if hasattr(value, 'to_dict') else ''}"


def public_methods(kind: type) -> set[str]:
    """Names of the methods that a class itself defines."""
    own = {name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    return {name for name in own if not name.endswith("_request")}  # those that scikit-learn adds


def parameters(method: Callable) -> set[str]:
    return set(inspect.signature(method).parameters) - {"self"}


def test_every_parameter_of_every_method_has_a_probe():
    for kind, probes in ((ReliabilityMap, METHODS), (ReliabilityPipeline, PIPELINE)):
        assert public_methods(kind) == {name for name in probes if name in vars(kind)}
        for name in public_methods(kind):
            assert parameters(getattr(kind, name)) == set(probes[name]), name
    assert parameters(load_map) == {"path"}
    assert {name for name in relmap.__all__ if inspect.isfunction(getattr(relmap, name))} == {"load_map"}


@pytest.fixture(scope="module")
def folder(known, tmp_path_factory) -> Path:
    """Maps and thresholds in files."""
    place = tmp_path_factory.mktemp("methods")
    known.save(place / "map.json")
    ReliabilityMap(variant="shared_1d").fit(ARRAY, TRUTH).save(place / "other.json")
    (place / "cuts.json").write_text(json.dumps(known.thresholds(*OTHERS, coverage=0.2).to_dict()))
    return place


OWN = [(name, parameter) for name, probes in METHODS.items() for parameter in probes if name in vars(ReliabilityMap)]


@pytest.mark.parametrize(("method", "parameter"), OWN)
def test_every_parameter_of_every_method_changes_its_answer(
    method, parameter, known, behind_classifier, folder, monkeypatch
):
    monkeypatch.chdir(folder)
    calls = METHODS[method][parameter]

    def call(arguments: Mapping[str, object]) -> str:
        if method == "load":
            return shown(ReliabilityMap.load(**arguments))
        made = known
        if method in ("fit", "set_params"):
            made = ReliabilityMap(variant="label_intercept")
        if method in ("predict_proba", "get_params"):
            made = behind_classifier
        answer = getattr(made, method)(**arguments)
        written = sorted(path.name for path in folder.iterdir()) if method == "save" else []
        return f"{shown(answer)} {written}"

    assert_probed(*[outcome(lambda arguments=arguments: call(arguments)) for arguments in calls])


@pytest.mark.parametrize(
    ("method", "parameter"), [(name, each) for name, probes in PIPELINE.items() for each in probes]
)
def test_every_parameter_of_a_pipeline_changes_the_answer(method, parameter, known):
    model = ReliabilityPipeline([("map", known)])
    calls = [
        outcome(lambda given=given: shown(getattr(model, method)(**given))) for given in PIPELINE[method][parameter]
    ]
    assert_probed(*calls)
    alone = outcome(lambda: shown(getattr(known, method)(**PIPELINE[method][parameter][1])))
    assert calls[1] == alone


# The commands: for each parameter the options of both calls

Options = dict[str, object]
READING: dict[str, tuple[str, Options, Options]] = {
    "label": ("judge", {}, {"label": "other_label"}),
    "decision": ("judge", {}, {"decision": "other_decision"}),
    "confidence_column": ("judge", {}, {"confidence_column": "other_confidence"}),
    "confidence_words": ("judge", {"confidence_column": "said"}, {"confidence_words": "low=.3,high=.9"}),
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
SCORE: Options = {"predictions": "many.parquet", "map_file": None, "coverage": None, "score": "p", "positive": "1"}
COMMANDS: dict[str, dict[str, tuple[str, Options, Options]]] = {
    "fit": {
        "predictions": ("judge", {}, {"predictions": "part.parquet"}),
        "out": ("judge", {}, {"out": "elsewhere.json"}),
        "calibrator": ("judge", {}, {"calibrator": "spline"}),
        "variant": ("judge", {}, {"variant": "shared_1d"}),
        "seed": ("judge", {}, {"seed": 2}),
        "group": ("judge", {}, {"group": "site"}),
        "labels": ("wide", {}, {"labels": "2,1,0", "accept_label_order": True}),
        "protocol": ("judge", {}, {"protocol": "paper"}),
        "signals": ("wide", {"variant": "label_signals"}, {"signals": "length"}),
        "hold_out": ("judge", {}, {"hold_out": 0.2}),
        "target": ("judge", {}, {"target": 0.01}),
        "accept_label_order": ("wide", {"labels": "2,1,0"}, {"accept_label_order": True}),
    },
    "apply": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "predictions": ("wide", {}, {"predictions": "judge.parquet"}),
        "out": ("wide", {}, {"out": "elsewhere.csv"}),
        "coverage": ("wide", {}, {"coverage": "0.3"}),
        "cut": ("wide", {}, {"cut": 0.8}),
        "cuts": ("wide", {}, {"cuts": "cuts.json"}),
    },
    "label": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "predictions": ("wide", {}, {"predictions": "unlabelled_judge.parquet"}),
        "rows": ("wide", {}, {"rows": 9}),
        "out": ("wide", {}, {"out": "elsewhere.csv"}),
        "seed": ("wide", {}, {"seed": 2}),
        "label": ("judge", {}, {"label": "truth"}),
    },
    "evaluate": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "predictions": ("wide", {}, {"predictions": "judge.parquet"}),
        "group": ("judge", {}, {"group": "site"}),
        "unlabelled": ("wide", {}, {"unlabelled": "unlabelled_wide.parquet"}),
        "out": ("wide", {}, {"out": "elsewhere.json"}),
    },
    "thresholds": {
        "predictions": ("wide", {}, {"predictions": "judge.parquet"}),
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "target_accuracy": ("wide", {"coverage": None, "target_accuracy": 0.3}, {"target_accuracy": 0.4}),
        "coverage": ("wide", {}, {"coverage": "0.6"}),
        "cut": ("wide", {"coverage": None, "cut": 0.6}, {"cut": 0.7}),
        "cost_error": ("wide", {"coverage": None, "cost_error": 3, "cost_review": 1}, {"cost_error": 4}),
        "cost_review": ("wide", {"coverage": None, "cost_error": 3, "cost_review": 1}, {"cost_review": 2}),
        "precision": ("two", {**SCORE, "precision": 0.6}, {"precision": 0.65}),
        "recall": ("two", {**SCORE, "recall": 0.6}, {"recall": 0.65}),
        "npv": ("two", {**SCORE, "npv": 0.6}, {"npv": 0.65}),
        "figure": ("two", {**SCORE, "precision": 0.6}, {"figure": "curve.svg"}),
        "seed": ("two", {**SCORE, "precision": 0.6}, {"seed": 2}),
        "confidence": ("wide", {}, {"confidence": 0.9}),
        "group": ("judge", {}, {"group": "site"}),
        "out": ("wide", {}, {"out": "elsewhere.json"}),
    },
    "sql": {
        "map_file": ("wide", {}, {"map_file": "two.json"}),
        "dialect": ("wide", {}, {"dialect": "postgres"}),
    },
}
COMMANDS["report"] = {
    name: probe for name, probe in COMMANDS["fit"].items() if name not in ("protocol", "target", "out")
} | {"out": ("judge", {}, {"out": "elsewhere.html"})}
PROBES = [
    (command.callback.__name__, parameter)
    for command in cli.app.registered_commands
    for parameter in inspect.signature(command.callback).parameters
    if command.callback.__name__ != "demo"
]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Files of rows, and a map of each kind of rows, fitted on others."""
    place = tmp_path_factory.mktemp("commands")
    for name, frame in ROWS.items():
        frame.write_parquet(place / f"{name}.parquet")
        frame.drop("label").write_parquet(place / f"unlabelled_{name}.parquet")
    for name, settings in (("wide", {}), ("judge", {"id": "pair"}), ("two", {"probability": "p"})):
        rows = ROWS[name] if name == "judge" else ROWS[name].sample(N, shuffle=True, seed=1)[:70]
        ReliabilityMap(variant="label_intercept", accept_label_order=True, **settings).fit(rows).save(
            place / f"{name}.json"
        )
    for name in ("gaps", "part"):
        (place / f"{name}.json").write_text((place / "judge.json").read_text())
    known = ReliabilityMap.load(place / "wide.json")
    (place / "cuts.json").write_text(json.dumps(known.thresholds(WIDE, coverage=0.2).to_dict()))
    return place


def options_of(command: str, kind: str) -> Options:
    """The options of a command that works."""
    fit: Options = {"predictions": f"{kind}.parquet", "variant": "label_intercept"}
    score: Options = {"map_file": f"{kind}.json", "predictions": f"unlabelled_{kind}.parquet", "out": "out.csv"}
    judge: Options = {"map_file": f"{kind}.json", "predictions": f"{kind}.parquet", "out": "out.json"}
    return {
        "fit": {**fit, "out": "out.json"},
        "report": {**fit, "out": "out.html"},
        "apply": score,
        "label": {**score, "rows": 8},
        "evaluate": judge,
        "thresholds": {**judge, "coverage": "0.5"},
        "sql": {"map_file": f"{kind}.json"},
    }[command]


def ran(command: str, options: Options, folder: Path) -> dict[str, str]:
    """What a command returns and writes."""
    words: list[object] = [command]
    for name, value in options.items():
        if value is not None:
            flag = "--map" if name == "map_file" else f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, value]
    before = set(folder.iterdir())
    try:
        returned = maps.run(*words)
    finally:
        written = {path.name: path for path in set(folder.iterdir()) - before}
        contents = {name: path.read_text() for name, path in written.items()}
        for path in written.values():
            path.unlink()
    return {"": str(returned), **contents}


KNOWN: dict[str, tuple[str, object]] = {}


def remembered(command: str, options: Options, folder: Path) -> tuple[str, object]:
    """What a command does; many probes share the first of their calls."""
    key = f"{command} {options}"
    if key not in KNOWN:
        KNOWN[key] = outcome(lambda: ran(command, options, folder))
    return KNOWN[key]


def test_every_parameter_of_every_command_has_a_probe():
    for command, parameter in PROBES:
        assert parameter in COMMANDS[command] or parameter in READING, (command, parameter)


@pytest.mark.parametrize(("command", "parameter"), PROBES)
def test_every_parameter_of_every_command_changes_what_it_does(command, parameter, files, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.setattr(
        "relmap.report.page.render_map_page",
        lambda assessment, answer, place, how: f"{assessment.scored} {answer} {place} {how}",
    )
    kind, before, change = COMMANDS[command].get(parameter) or READING[parameter]
    options = options_of(command, kind) | before
    calls = [remembered(command, asked, files) for asked in (options, options | change)]
    assert_probed(*calls)
    assert "--help" not in str(calls)


def test_the_map_of_a_command_is_what_load_map_reads(files):
    assert isinstance(load_map(files / "wide.json"), MapDocument)
