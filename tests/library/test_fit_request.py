"""`fit_map` passes its request on to the reading of the rows and to the fit, and records where a map comes from."""

from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from relmap.metrics.advice import USE, Advice

from relmap import __version__, api
from relmap.api import fit_map
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.fitting import map_fit
from relmap.fitting.labelled_rows import fingerprint_rows, hash_predictions, read_labelled_rows
from relmap.io.files import open_predictions
from relmap.io.frames import FramePredictions
from relmap.maps.document import Source
from relmap.settings import DEFAULTS
from tests import maps

N_ROWS = 80
N_FIT_ROWS = 70  # as if the fit did not use all rows
NAMES = ("bad", "fair", "good")
DOCUMENT = maps.make_map("mrp")


class RecordedFit:
    """Fit that records its arguments and returns a made-up map."""

    def __init__(self) -> None:
        self.rows: FixedDecisions | None = None
        self.source: Source | None = None
        self.arguments: dict[str, Any] = {}
        self.is_weighted = False

    def __call__(self, rows: FixedDecisions, source: Source, settings: object, **arguments: Any) -> SimpleNamespace:
        assert settings is DEFAULTS
        self.rows = rows
        self.source = source
        self.arguments = arguments
        weight = np.ones(N_FIT_ROWS) if self.is_weighted else None
        fit_rows = replace(rows.take(slice(N_FIT_ROWS)), weight=weight)
        return SimpleNamespace(
            document=DOCUMENT,
            rows=fit_rows,
            advice=Advice(USE, "it is better", ("Then do this.",)),
            accuracy=0.75,
            describe=lambda target: [f"target {target}", "Last line."],
        )


@pytest.fixture
def recorded(monkeypatch) -> RecordedFit:
    recorded = RecordedFit()
    monkeypatch.setattr(map_fit, "fit_labelled_rows", recorded)
    return recorded


def make_frame() -> pl.DataFrame:
    frame = maps.make_predictions(N_ROWS, per_group=2)
    label = pl.col("label").replace_strict(dict(enumerate(NAMES)))
    return frame.with_columns(label, id=pl.format("row {}", pl.int_range(pl.len())), length=np.arange(N_ROWS) % 7)


def test_everything_is_passed_on_to_the_fit(recorded):
    file = FramePredictions.from_frame(make_frame())
    options = {"group": "group", "names": NAMES, "signals": ("length",), "seed": 6, "hold_out": 0.1}
    fit_map(file, **options, calibrator="diag", variant="label_platt")
    expected = read_labelled_rows(file, **options)
    np.testing.assert_array_equal(recorded.rows.signals, expected.rows.signals)
    np.testing.assert_array_equal(recorded.rows.group, expected.rows.group)
    ids = recorded.arguments.pop("ids")
    assert ids.tolist() == expected.ids.tolist()
    assert recorded.arguments == {
        "calibrator": "diag",
        "variant": "label_platt",
        "n_labels": 3,
        "names": NAMES,
        "signals": expected.signals,
        "id_column": "id",
    }
    assert (recorded.source.seed, recorded.source.group, recorded.source.hold_out) == (6, "group", 0.1)
    assert recorded.source.protocol is None


@pytest.mark.parametrize(
    ("frame", "calibrator"),
    [
        (maps.make_predictions(N_ROWS), "ts"),
        (maps.make_confidence_predictions(N_ROWS), "uncal"),
        (maps.make_confidence_predictions(N_ROWS).drop("confidence"), "constant"),
    ],
)
def test_the_calibrator_depends_on_the_predictions_by_default(frame, calibrator, recorded):
    fit_map(FramePredictions.from_frame(frame))
    assert recorded.arguments["calibrator"] == calibrator
    assert recorded.arguments["variant"] == "auto"
    assert recorded.source.seed == 1


@pytest.mark.parametrize(
    ("group", "is_weighted", "units"), [(None, False, "rows"), ("group", False, "groups"), (None, True, "rows")]
)
def test_a_recommendation_has_the_advice_its_limits_and_the_description(group, is_weighted, units, recorded):
    recorded.is_weighted = is_weighted
    document, recommendation = fit_map(
        FramePredictions.from_frame(maps.make_predictions(N_ROWS)), group=group, target=0.25
    )
    assert document is DOCUMENT
    limits = [
        f"Based on {N_FIT_ROWS} rows, calibrator ts. Intervals reflect the sampling of {units}, given the fit; they do "
        "not cover refitting or other data."
    ]
    if is_weighted:
        limits.append("Rows are weighted by the inverse of their sampling probability.")
    assert recommendation.lines == (
        f"{USE}: it is better.",
        "Then do this.",
        *limits,
        "target 0.25",
        "Last line.",
    )
    assert recommendation.numbers == {
        "advice": USE,
        "variant": "mrp",
        "calibrator": "ts",
        "accuracy": 0.75,
        **DOCUMENT.choice.model_dump(),
    }


def test_notes_of_reading_are_notes_of_the_recommendation(recorded):
    frame = make_frame().with_columns(label=pl.when(pl.int_range(pl.len()) < 70).then("label"))
    file = FramePredictions.from_frame(frame)
    file = replace(file, reading=replace(file.reading, drop_unlabelled=True))
    _, recommendation = fit_map(file, names=NAMES)
    assert recommendation.notes == tuple(read_labelled_rows(file, group=None, names=NAMES).notes)
    assert recommendation.notes
    assert recorded.source.rows == 70


@pytest.mark.parametrize(("target", "is_valid"), [(1e-5, True), (0.99e-5, False), (0.0, False), (-1.0, False)])
def test_a_target_is_at_least_a_hundred_thousandth(target, is_valid, recorded):
    file = FramePredictions.from_frame(maps.make_predictions(N_ROWS))
    if is_valid:
        fit_map(file, target=target)
        return
    with pytest.raises(InputError, match="give a log loss of 1e-05 or more"):
        fit_map(file, target=target)
    assert recorded.rows is None


def test_the_source_of_a_map_records_rows_options_and_versions(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    path = maps.write_frame(maps.make_predictions(N_ROWS), tmp_path / "my\x07rows.parquet")
    file = open_predictions(path)
    labelled = read_labelled_rows(file, group="group", names=None)
    source = api._describe_source(file, labelled, seed=9, group="group", hold_out=0.125, protocol="own")
    assert source == Source(
        file="my\\u0007rows.parquet",
        sha256=hash_predictions(file),
        fingerprint=fingerprint_rows(labelled.rows),
        rows=N_ROWS,
        seed=9,
        group="group",
        hold_out=0.125,
        protocol=None,
        at="2023-11-14T22:13:20+00:00",
        versions={"relmap": __version__, "numpy": version("numpy"), "scipy": version("scipy")},
    )


def test_the_protocol_of_the_paper_is_recorded_with_the_version_of_torch(monkeypatch):
    monkeypatch.setattr(api, "version", lambda library: f"version of {library}")
    file = FramePredictions.from_frame(maps.make_predictions(N_ROWS))
    labelled = read_labelled_rows(file, group=None, names=None)
    source = api._describe_source(file, labelled, seed=1, group=None, hold_out=0, protocol="paper")
    assert source.protocol == DEFAULTS.protocol
    libraries = ("numpy", "scipy", "torch")
    assert source.versions == {"relmap": __version__} | {library: f"version of {library}" for library in libraries}


def test_without_torch_the_protocol_of_the_paper_names_its_extra(monkeypatch):
    def fail(library: str) -> str:
        raise ModuleNotFoundError(name=library)

    monkeypatch.setattr(api, "version", fail)
    file = FramePredictions.from_frame(maps.make_predictions(N_ROWS))
    labelled = read_labelled_rows(file, group=None, names=None)
    with pytest.raises(InputError, match=r"run: pip install 'relmap\[pipeline\]'"):
        api._describe_source(file, labelled, seed=1, group=None, hold_out=0, protocol="paper")
