"""`fit_map` passes its request on to the reading of the rows and to the fit, and records where a map comes from."""

from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from relmap import __version__
from relmap.errors import InputError
from relmap.io.files import open_predictions
from relmap.io.frames import FramePredictions
from relmap.maps import fit as map_fit
from relmap.maps.document import Source
from relmap.maps.fit import describe_source
from relmap.maps.fit_rows import fingerprint_rows, hash_predictions
from relmap.maps.labelled_rows import LabelledRows, read_labelled_rows
from relmap.maps.options import FitOptions
from relmap.settings import DEFAULTS
from tests import maps

N_ROWS = 80
NAMES = ("bad", "fair", "good")


class RecordedFit:
    """Fit that records its arguments and returns a map that was not fitted."""

    def __init__(self) -> None:
        self.labelled: LabelledRows | None = None
        self.options: FitOptions | None = None
        self.source: Source | None = None
        self.reading: object = None

    def __call__(
        self, labelled: LabelledRows, options: FitOptions, source: Source, settings: object, *, reading: object
    ) -> SimpleNamespace:
        assert settings is DEFAULTS
        self.labelled = labelled
        self.options = options
        self.source = source
        self.reading = reading
        return SimpleNamespace(document=maps.make_map())


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
    options = FitOptions(
        calibrator="diag", variant="label_platt", group="group", labels=NAMES, signals=("length",), seed=6, hold_out=0.1
    )
    assert map_fit.fit_map(file, options).document.fingerprint == maps.make_map().fingerprint
    expected = read_labelled_rows(file, options)
    np.testing.assert_array_equal(recorded.labelled.rows.signals, expected.rows.signals)
    np.testing.assert_array_equal(recorded.labelled.rows.group, expected.rows.group)
    assert recorded.labelled.ids.tolist() == expected.ids.tolist()
    assert recorded.reading == file.reading
    assert recorded.options == options
    assert recorded.labelled.signals == expected.signals
    assert recorded.labelled.id_column == "id"
    assert (recorded.source.seed, recorded.source.group, recorded.source.hold_out) == (6, "group", 0.1)
    assert recorded.source.protocol is None


def test_calibrator_and_variant_are_left_to_the_fit_by_default(recorded):
    map_fit.fit_map(FramePredictions.from_frame(maps.make_predictions(N_ROWS)))
    assert (recorded.options.calibrator, recorded.options.variant) == (None, None)
    assert recorded.source.seed == 1


@pytest.mark.parametrize(
    ("frame", "protocol", "calibrator", "variant"),
    [
        (maps.make_predictions(N_ROWS), "own", "sms", "mrp_pooled"),
        (maps.make_predictions(N_ROWS), "paper", "ts", "mrp"),
        (maps.make_confidence_predictions(N_ROWS), "own", "uncal", "mrp_pooled"),
        (maps.make_confidence_predictions(N_ROWS).drop("confidence"), "own", "constant", "mrp_pooled"),
    ],
)
def test_each_kind_of_predictions_has_a_default_calibrator_and_variant(frame, protocol, calibrator, variant):
    document, summary = maps.fit_file(FramePredictions.from_frame(frame), protocol=protocol)
    assert (document.calibrator.name, document.projection.name) == (calibrator, variant)
    assert (summary.numbers["calibrator"], summary.numbers["variant"]) == (calibrator, variant)
    assert (document.baseline is not None) == (calibrator == "sms")


def test_notes_of_reading_are_the_first_notes_of_the_summary():
    frame = make_frame().with_columns(label=pl.when(pl.int_range(pl.len()) < 70).then("label"))
    file = FramePredictions.from_frame(frame)
    file = replace(file, reading=replace(file.reading, drop_unlabelled=True))
    document, summary = maps.fit_file(file, names=NAMES)
    notes = tuple(maps.read_labelled(file, names=NAMES).notes)
    assert notes
    assert summary.notes[: len(notes)] == notes
    assert document.source.rows == 70


def test_the_source_of_a_map_records_rows_options_and_versions(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    path = maps.write_frame(maps.make_predictions(N_ROWS), tmp_path / "my\x07rows.parquet")
    file = open_predictions(path)
    options = FitOptions(seed=9, group="group", hold_out=0.125)
    labelled = read_labelled_rows(file, options)
    source = describe_source(file, labelled.rows, options, DEFAULTS)
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
    monkeypatch.setattr(map_fit, "version", lambda library: f"version of {library}")
    file = FramePredictions.from_frame(maps.make_predictions(N_ROWS))
    options = FitOptions(protocol="paper")
    source = describe_source(file, read_labelled_rows(file, options).rows, options, DEFAULTS)
    assert source.protocol == DEFAULTS.protocol
    libraries = ("numpy", "scipy", "torch")
    assert source.versions == {"relmap": __version__} | {library: f"version of {library}" for library in libraries}


def test_without_torch_the_protocol_of_the_paper_names_its_extra(monkeypatch):
    def fail(library: str) -> str:
        raise ModuleNotFoundError(name=library)

    monkeypatch.setattr(map_fit, "version", fail)
    file = FramePredictions.from_frame(maps.make_predictions(N_ROWS))
    options = FitOptions(protocol="paper")
    rows = read_labelled_rows(file, options).rows
    with pytest.raises(InputError, match=r"pip install 'relmap\[pipeline\]'"):
        describe_source(file, rows, options, DEFAULTS)
