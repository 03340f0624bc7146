"""Fixed decisions, validation parts, drawn splits, params.yaml and written files."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from difflib import ndiff
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import pytest
import yaml
from dvc.utils.hydra import apply_overrides
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError
from scipy.special import log_softmax, logit

from relmap.calibrators.registry import calibrators_with_role
from relmap.decisions import ProtocolDecisions, confidence_logit, decide
from relmap.errors import InputError
from relmap.io.serialization import Axes, Value
from relmap.projection.rows import select_validation_rows, split_validation
from relmap.settings import METRIC_DEFAULTS, ProtocolParams
from tasks.records.splits import draw_splits
from tasks.records.store import base_folder, read_base, read_members, write_decisions, write_logits
from tasks.settings.dataset_params import DatasetParams, SplitParams
from tasks.settings.params import DaskParams, Params, load_params
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS
from tests.project_copy import ROOT, write_params


def test_first_largest_logit_is_decided_in_float64():
    assert decide(np.array([[0.0, 1.0, 1.0], [2.0, 2.0, 2.0], [1.0, 1.0 + 1e-12, 0.0]])).tolist() == [1, 0, 1]


@given(arrays(np.float64, (7, 4), elements=st.floats(-9, 9)))
@settings(max_examples=25, deadline=None)
def test_the_confidence_logit_is_the_logit_of_the_confidence(logits):
    decision = decide(logits)
    log_probabilities = log_softmax(logits, axis=1)
    confidence = np.exp(log_probabilities[np.arange(7), decision])
    np.testing.assert_allclose(confidence_logit(log_probabilities, decision), logit(confidence), atol=1e-6)


def test_the_confidence_logit_distinguishes_saturated_confidences():
    decision = np.array([0, 0])
    log_probabilities = log_softmax(np.array([[50.0, 0.0], [60.0, 0.0]]), axis=1)
    np.testing.assert_allclose(confidence_logit(log_probabilities, decision), [50, 60])
    certain = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    assert confidence_logit(certain, decision).tolist() == [np.inf, -np.inf]


def make_protocol(**changes) -> ProtocolParams:
    defaults = {"parts": (0.5, 0.25, 0.25), "projection_cap": 8000, "temperature_rows": "validation", "split": "row"}
    return ProtocolParams(**{**defaults, **changes})


@given(n=st.integers(4, 500), seed=st.integers(0, 2**20), split=st.sampled_from(["row", "group"]))
@settings(max_examples=25, deadline=None)
def test_validation_parts_are_a_partition_and_keep_groups_together(n, seed, split):
    group = np.array([f"g{i % 7}" for i in range(n)])
    parts = split_validation(n, seed, make_protocol(split=split), group)
    assert sorted(np.concatenate(parts)) == list(range(n))
    if split == "group":
        assert sum(len(set(group[part])) for part in parts) == len(set(group))


@pytest.mark.parametrize(("n", "first", "second"), [(3355, 1678, 838), (5529, 2764, 1382), (10, 5, 2), (8, 4, 2)])
def test_split_equals_the_authors_code(n, first, second):
    expected = np.split(np.random.default_rng(2026 + 1009 * 2).permutation(n), [first, first + second])
    assert [part.tolist() for part in split_validation(n, 2, make_protocol())] == [part.tolist() for part in expected]


def test_cap_samples_and_sorts_the_projection_parts():
    without_cap = split_validation(300, 1, make_protocol(projection_cap=8000))
    with_cap = split_validation(300, 1, make_protocol(projection_cap=50))
    assert (with_cap[0] == without_cap[0]).all()
    for part, all_rows, seed_offset in zip(with_cap[1:], without_cap[1:], (11, 23), strict=True):
        sample = np.random.default_rng(2026 + 1009 + seed_offset).choice(all_rows, 50, replace=False)
        assert part.tolist() == sorted(sample)


def test_group_names_do_not_affect_the_split():
    group = np.repeat(np.arange(30), 3)
    first = split_validation(90, 1, make_protocol(split="group"), group)
    second = split_validation(90, 1, make_protocol(split="group"), 99 - group)
    assert [part.tolist() for part in first] == [part.tolist() for part in second]


@pytest.mark.parametrize(("rows", "leak"), [("validation", True), ("calibrator_fit", False)])
def test_only_the_temperature_may_see_all_validation_rows(rows, leak):
    logits = np.arange(40.0).reshape(20, 2)
    validation = ProtocolDecisions(
        decision=decide(logits), logits=logits, label=np.zeros(20, int), group=np.arange(20).astype(str)
    )
    parts = select_validation_rows(validation, 1, make_protocol(temperature_rows=rows))
    assert (len(parts.rows_for_calibrator("ts")) == 20) is leak
    assert parts.rows_for_calibrator("diag") is parts.calibrator_fit


def make_frame(n: int = 1000, split: str | None = None) -> pl.DataFrame:
    return pl.DataFrame({"group": [f"q{i // 5}" for i in range(n)], "split": pl.Series([split] * n, dtype=pl.String)})


@pytest.mark.parametrize("by", ["row", "group"])
def test_drawn_splits_have_the_requested_shares_and_are_reproducible(by):
    shares = {"train": 0.597, "validation": 0.2, "test": 0.203}  # of 199 groups: 118.8, rounded, then 39.8
    drawn = draw_splits(make_frame(995), by=by, shares=shares, seed=3)
    redrawn = draw_splits(make_frame(995), by=by, shares=shares, seed=3)
    other_seed = draw_splits(make_frame(995), by=by, shares=shares, seed=4)
    counts = [594, 199, 202] if by == "row" else [595, 200, 200]

    assert dict(drawn["split"].value_counts().iter_rows()) == dict(zip(shares, counts, strict=True))
    if by == "group":
        assert (drawn.group_by("group").agg(pl.col("split").n_unique())["split"] == 1).all()
    assert drawn.equals(redrawn)
    assert not drawn.equals(other_seed)


@pytest.mark.parametrize("by", ["row", "group"])
def test_known_split_does_not_change(by):
    mixed = pl.concat(
        [make_frame(100), make_frame(50, "test").with_columns(group=pl.lit("q0"))]
    )  # a group with open rows
    drawn = draw_splits(mixed, by=by, shares={"train": 0.5, "validation": 0.5}, seed=0)
    assert drawn["split"][100:].to_list() == ["test"] * 50
    assert "test" not in drawn["split"][:100].to_list()
    assert drawn["group"].to_list() == mixed["group"].to_list()


class Fitted(Value):
    knots: Annotated[np.ndarray, Axes("J")]
    values: Annotated[np.ndarray, Axes("K", "J")]


def test_fitted_value_copies_its_arrays_and_names_wrong_shapes():
    knots = np.arange(3.0)
    fitted = Fitted(knots, np.zeros((2, 3)))
    knots[0] = 9

    with pytest.raises(ValueError, match="read-only"):
        fitted.knots[0] = 1
    assert fitted.knots.tolist() == [0, 1, 2]
    assert fitted.violations(2) == []
    (violation,) = fitted.violations(3)
    assert re.fullmatch(r"values .*\(2, 3\) .*\(3, 3\)", violation)


@pytest.fixture
def base(tmp_path, monkeypatch, decisions) -> Path:
    """Write a base predictor, and return its folder."""
    monkeypatch.chdir(tmp_path)
    facts = {"labels": ["a", "b", "c"], "split_by": "group", "drawn": [], "source": "simulated"}
    parts = {"validation": decisions.take(slice(600)), "test": decisions.take(slice(500))}
    write_logits("wands", parts, facts | {"accuracy": {"test": 0.5}})
    return base_folder("wands")


def change(**columns: object) -> Callable[[Path], None]:
    """Replace columns of saved logits."""
    return lambda path: pl.read_parquet(path).with_columns(**columns).write_parquet(path)


def change_first_logits(*logits: float) -> Callable[[Path], None]:
    """Replace the logits of the first row."""
    return change(logits=pl.when(pl.int_range(pl.len()) == 0).then(list(logits)).otherwise("logits"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("logits.parquet", Path.unlink, "is missing; .*`dvc repro`"),
        ("logits.parquet", truncate, "is not .*complete parquet"),
        ("base.json", truncate, "is not .*JSON"),
        ("base.json", lambda path: path.write_text("[]"), "contains list,"),
        ("logits.parquet", change_first_logits(0.0, np.nan, 1.0), r": validation row 0 .*\[0\.0, nan, 1\.0\];"),
        ("logits.parquet", change_first_logits(0.0, 1.0), ": validation row 0 .*2 logits, .*K = 3"),
        ("logits.parquet", change(split=pl.lit("validation")), ".*no test rows"),
    ],
)
def test_damaged_file_is_named_with_the_mistake(base, file, damage, message):
    damage(base / file)
    with pytest.raises(InputError, match=f"data/base/wands/{file} ?{message}"):
        read_base("wands")


PARAMS = ROOT / "params.yaml"


def test_defaults_are_the_settings_of_the_paper():
    params = load_params(PARAMS)
    assert params.seeds == (1, 2, 3)
    # those without a params.yaml, except for the bounds of the authors
    assert params.metrics == METRIC_DEFAULTS.model_copy(update={"smallest_probability": 1e-6})
    assert params.protocol.clip == params.metrics.smallest_reliability == 1e-6
    assert (params.projection.knots, params.projection.epochs) == (8, 400)
    assert (params.projection.smoothness, params.projection.learning_rate) == (1e-4, 0.03)
    assert params.protocol.projection_cap == 8000
    assert params.calibrators == PAPER_CALIBRATORS
    assert params.rivals.calibrators == calibrators_with_role("rival")
    assert params.sensitivity.calibrators == ("uncal", "ts")
    assert set(params.datasets) == {*PAPER_DATASETS, BOOSTED}

    own_calibrators = {name: entry.calibrators for name, entry in params.datasets.items() if entry.calibrators}
    assert own_calibrators == {BOOSTED: ("uncal",)}
    with pytest.raises(InputError, match=r"data set 'wand'.*wands"):
        params.dataset("wand")
    with pytest.raises(ValueError, match="frozen"):
        params.projection.knots = 9


@pytest.mark.parametrize(
    ("change", "n_lines"), [("datasets.wands.rows=9000", 2), ("calibrators=[uncal,ts]", 4), ("projection.knots=9", 2)]
)
def test_dvc_experiment_changes_only_its_lines_of_params_yaml(tmp_path, change, n_lines):
    copied = Path(shutil.copy(PARAMS, tmp_path))
    apply_overrides(copied, [change])
    difference = ndiff(PARAMS.read_text().splitlines(), copied.read_text().splitlines())
    assert sum(line.startswith(("+", "-")) for line in difference) == n_lines


def test_row_counts_end_at_the_first_one_above_the_available_rows():
    rivals = load_params(PARAMS).rivals
    for n_available, n_counts in ((50, 1), (1000, 3), (1001, 4), (20_000, 5)):
        assert rivals.row_counts(n_available) == (100, 300, 1000, 3000, 8000)[:n_counts]


def test_alternative_changes_only_what_it_names():
    params = load_params(PARAMS)
    metrics = params.metrics.model_copy(update={"ece_bins": 25})
    assert params.with_alternative("ece_25_bins") == params.model_copy(update={"metrics": metrics})


ALTERNATIVES = "sensitivity.alternatives"
OWN_DATA_SET = {"source": "files", "reader": "files", "path": "mine.csv"}
SPLIT_DATA_SET = OWN_DATA_SET | {"split": {"by": "row"}}
INVALID_VALUES: dict[str, tuple[object, ...]] = {  # setting -> invalid values
    "seeds": ([], [-1]),
    "projection.knots": (2, "eight"),
    "protocol.split": ("query",),
    "protocol.temperature_rows": ("test",),
    "protocol.projection_cap": (0,),
    "metrics.resamples": (200,),
    f"{ALTERNATIVES}.ece_25_bins.metricz": ({},),
    "dask.workers": (0,),
    "dask.address": ("ip:8786", "http://ip:8786", "tcp://ip"),
    "train.members": (0,),
    "datasets": ({},),
    "train.alternatives": (["member_9"],),
    "datasets.Bad-Name": (SPLIT_DATA_SET,),
    "datasets.wands.source": ("magic",),
    "datasets.wands.rows": (5,),
    "datasets.wands.residual": (-1,),
    "datasets.wands.class_weight": ("heavy",),
    "datasets.wands.revision": ("main", "0123abc"),
}
CONTRADICTIONS = (
    (f"{ALTERNATIVES}.ece_25_bins", {"metrics": {"ece_binz": 25}}, "ece_binz"),
    (f"{ALTERNATIVES}.ece_25_bins", {"metrics": {"ece_bins": 9}, "simplex": {"off_top_alpha": 0}}, "one of"),
    ("calibrators", ["ts", "matrix"], "matrix .*more than once"),
    ("seeds", [1, 2, 2], "seed 2 .*more than once"),
    ("datasets.wands.rows", None, "needs `rows`"),
    ("datasets.wands.split", {"by": "row"}, "defines split"),
    ("datasets.wands.source", "files", "not read .*`files`"),
    ("datasets.wands.reader", "files", "need `preset: paper`; .*files"),
    ("datasets.mine", OWN_DATA_SET | {"split": {"by": "query"}}, "found 'query'"),
    ("datasets.mine", OWN_DATA_SET | {"split": {"by": "row", "test": 2}}, "split.test"),
    ("datasets.mine", OWN_DATA_SET | {"split": {"by": "row", "validation": 0.6, "test": 0.5}}, r"sum to 1\.1"),
    ("metrics", {"ties": "expected"}, "ece_bins"),  # a section names each of its choices
    ("projection", {"knots": 8}, "epochs, learning_rate, minimum_rows, smoothness .*missing"),
    *((setting, value, rf"^  {setting}.*\(found ") for setting, values in INVALID_VALUES.items() for value in values),
)


@pytest.mark.parametrize(("key", "value", "message"), CONTRADICTIONS)
def test_invalid_setting_is_reported_with_place_and_value(tmp_path, key, value, message):
    with pytest.raises(InputError, match=rf"(?m)params\.yaml .* [1-9] .*:(.|\n)*{message}"):
        load_params(write_params(tmp_path, {key: value}))


def test_missing_or_invalid_yaml_is_an_error(tmp_path):
    with pytest.raises(InputError, match="root folder"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("seeds: [1, 2\n  x: ]")
    with pytest.raises(InputError, match="not valid YAML"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize("train", [0.6, 0.0])
def test_own_files_need_no_preset_and_train_gets_the_remaining_share(tmp_path, train):
    entry = OWN_DATA_SET | {"split": {"by": "row", "validation": 0.8 - train, "test": 0.2}, "class_weight": "balanced"}
    data_set = load_params(write_params(tmp_path, {"datasets.mine": entry})).dataset("mine")
    assert data_set.class_weight == "balanced"
    assert data_set.split.shares == pytest.approx({"train": train, "validation": 0.8 - train, "test": 0.2})


def dataset_entry(**fields: object) -> DatasetParams:
    return DatasetParams(**{"source": "hub", "path": "x", **fields})


OWN_READER = {"source": "files", "reader": "files"}
ROW_SPLIT = {"by": "row", "validation": 0.3, "test": 0.2}
TWIN = {"label_shares": [0.4, 0.6], "strength": 1.0, "log_sharpness": 0.0}
SIMULATED = {"source": "simulated", "rows": 100, "residual": 0, "twin": TWIN}
NEEDS_PRESET = "need `preset: paper`; .* files, logits or hub .*not"
PRESET_DEFINES = "`preset: paper` .*split, .*weights and options; "
INVALID_ENTRIES = [
    ({"reader": "csv"}, "reader 'csv'; [^,]* files, logits, hub$"),
    ({}, NEEDS_PRESET),
    (OWN_READER | {"preset": "paper", "split": ROW_SPLIT}, NEEDS_PRESET),
    ({"preset": "paper", "split": ROW_SPLIT}, PRESET_DEFINES),
    ({"preset": "paper", "options": {"a": 1}}, PRESET_DEFINES),
    ({"preset": "paper", "class_weight": "balanced"}, PRESET_DEFINES),
    (OWN_READER, "`split` is missing"),
    ({"source": "hub", "reader": "hub"}, "`split` is missing"),
    (SIMULATED | {"preset": "paper", "rows": None}, "simulated .*`rows`, `residual` and `twin`$"),
    (SIMULATED | {"preset": "paper", "residual": None}, "simulated .*`rows`, `residual` and `twin`$"),
    (SIMULATED | {"preset": "paper", "twin": None}, "simulated .*`rows`, `residual` and `twin`$"),
    ({"source": "files", "preset": "paper"}, "reader None .*`files`$"),
    ({"source": "hub", "reader": "files", "split": ROW_SPLIT}, "reader 'files' .*`hub`$"),
    ({"source": "files", "reader": "hub", "split": ROW_SPLIT}, "reader 'hub' .*`files`$"),
    ({"source": "hub", "reader": "logits"}, "reader 'logits' .*`hub`$"),
]


@pytest.mark.parametrize(("fields", "message"), INVALID_ENTRIES)
def test_a_contradictory_entry_of_a_data_set_is_reported(fields, message):
    with pytest.raises(ValidationError) as error:
        dataset_entry(**fields)
    (mistake,) = error.value.errors()
    assert mistake["type"] == "value_error"
    assert re.search(message, mistake["msg"])


@pytest.mark.parametrize(
    "fields",
    [
        {"preset": "paper"},
        {"preset": "paper", "reader": "wands", "predictor": "boosted"},
        SIMULATED | {"preset": "paper"},
        OWN_READER | {"split": ROW_SPLIT, "class_weight": "balanced", "options": {"a": 1}},
        {"source": "files", "reader": "logits"},
        {"source": "hub", "reader": "hub", "split": ROW_SPLIT},
    ],
)
def test_a_complete_entry_of_a_data_set_is_accepted(fields):
    entry = dataset_entry(**fields)
    assert (entry.seed, entry.calibrators, entry.revision) == (0, None, None)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({}, {"train": 1}),
        ({"validation": 0.3}, {"train": 0.7, "validation": 0.3}),
        ({"test": 0.2}, {"train": 0.8, "test": 0.2}),
        ({"validation": 0.3, "test": 0.6}, {"train": 0.1, "validation": 0.3, "test": 0.6}),
        ({"validation": 0.75, "test": 0.25}, {"train": 0, "validation": 0.75, "test": 0.25}),
        ({"validation": 0.75, "test": 0.25 + 1e-10}, {"train": -1e-10, "validation": 0.75, "test": 0.25 + 1e-10}),
    ],
)
def test_shares_of_splits_sum_to_one(shares, expected):
    assert SplitParams(by="row", **shares).shares == pytest.approx(expected, abs=1e-15)


def test_held_out_shares_above_one_are_reported():
    with pytest.raises(ValidationError, match=r"validation and test .*1\.25"):
        SplitParams(by="row", validation=0.75, test=0.5)


def test_a_sum_of_shares_may_exceed_one_by_a_rounding_error():
    rest = 1 + 1e-9 - 0.75
    assert SplitParams(by="row", validation=0.75, test=rest).test == rest
    with pytest.raises(ValidationError, match="more than 1"):
        SplitParams(by="row", validation=0.75, test=rest + 1e-12)


TLS = {"ca_file": "a", "cert_file": "b", "key_file": "c"}
ENCRYPTED = r"tls:// .*dask\.tls .*both or neither"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"address": None}, ""),
        ({"address": "tls://host:1", "tls": TLS}, ""),
        ({"address": "tcp://host:1", "allow_unencrypted": True}, ""),
        ({"address": "tcp://host:1"}, "tcp://host:1 .*not encrypted"),
        ({"address": "tls://host:1"}, ENCRYPTED),
        ({"address": None, "tls": TLS}, ENCRYPTED),
        ({"address": "tcp://host:1", "tls": TLS, "allow_unencrypted": True}, ENCRYPTED),
    ],
)
def test_an_address_of_a_scheduler_is_encrypted_unless_the_params_allow_otherwise(fields, message):
    if not message:
        assert DaskParams(workers=1, **fields).address == fields["address"]
        return
    with pytest.raises(ValidationError, match=message):
        DaskParams(workers=1, **fields)


def test_an_alternative_replaces_only_the_values_that_it_names():
    params = load_params(PARAMS)
    thirds = params.with_alternative("thirds")
    assert thirds.protocol == params.protocol.model_copy(update={"parts": (0.3334, 0.3333, 0.3333)})
    assert thirds.model_copy(update={"protocol": params.protocol}) == params
    assert params.with_alternative("member_1") == params


def test_drawn_splits_follow_the_order_of_a_seeded_permutation():
    drawn = draw_splits(make_frame(10), by="row", shares={"train": 0.5, "validation": 0.25, "test": 0.25}, seed=8)
    order = np.random.default_rng(8).permutation(10)
    expected = np.empty(10, dtype=object)
    expected[order[:5]] = "train"
    expected[order[5:8]] = "validation"  # 7.5 is rounded up
    expected[order[8:]] = "test"
    assert drawn["split"].to_list() == expected.tolist()


def test_drawn_splits_of_groups_follow_their_first_rows_and_ignore_groups_without_open_rows():
    groups = ["c", "a", "c", "known", "b", "d"]
    frame = pl.DataFrame({"group": groups, "split": [None, None, None, "test", None, None]})
    drawn = draw_splits(frame, by="group", shares={"train": 0.5, "validation": 0.5}, seed=2)
    order = np.random.default_rng(2).permutation(4)
    split_of_group = {"cabd"[group]: "train" if rank < 2 else "validation" for rank, group in enumerate(order)}
    assert drawn["split"].to_list() == [split_of_group.get(group, "test") for group in groups]


def test_written_decisions_are_read_unchanged(tmp_path, monkeypatch, decisions):
    monkeypatch.chdir(tmp_path)
    parts = {"test": decisions.take(slice(40, 70)), "validation": decisions.take(slice(25))}
    facts = {"labels": ["a", "b", "c"], "split_by": "row", "drawn": ["test"], "source": "hub"}
    write_logits("wands", parts, facts | {"accuracy": {"validation": 0.25, "test": 0.75}})
    write_decisions(base_folder("wands") / "sensitivity/other.parquet", parts)
    for member in ("run_0_member_2", "run_0_member_10", "run_3_member_0"):
        write_decisions(base_folder("wands") / f"members/{member}.parquet", parts)

    read = read_base("wands")
    assert (read.name, read.labels, read.split_by, read.drawn) == ("wands", ("a", "b", "c"), "row", ("test",))
    assert (read.source, read.seed0_accuracy) == ("hub", 0.75)
    for split, expected in parts.items():
        part = getattr(read, split)
        for field in ("logits", "decision", "label", "group"):
            assert getattr(part, field).tolist() == getattr(expected, field).tolist()
        assert (part.label.dtype, part.decision.dtype, part.logits.flags.f_contiguous) == (np.int64, np.int64, True)
    assert (read_base("wands", "other").test.logits == read.test.logits).all()
    assert [len(members) for members in read_members("wands")] == [2, 1]

    shifted = replace(parts["test"], logits=parts["test"].logits + 1)
    write_decisions(base_folder("wands") / "members/run_0_member_10.parquet", {**parts, "test": shifted})
    first, last = read_members("wands")[0]
    assert (first.test.logits == read.test.logits).all()  # member 2 before member 10
    assert (last.test.logits == shifted.logits).all()


def test_a_mistake_of_several_sections_is_named_with_the_file(tmp_path):
    path = write_params(tmp_path, {"seeds": [2, 1, 2, 1]})
    with pytest.raises(InputError) as error:
        load_params(path)
    first, second = str(error.value).splitlines()
    assert first.startswith(f"{path} has 1 ")
    assert second.startswith(f"  {path}: ")
    assert re.search("seed 1, 2 .*more than once", second)


def test_optional_settings_have_defaults():
    content = yaml.safe_load(PARAMS.read_text())
    for section, name in ((content, "stage_minutes"), (content["train"], "alternatives_on_simulated")):
        del section[name]
    for name in ("tls", "allow_unencrypted"):
        del content["dask"][name]
    params = Params.model_validate(content)
    assert (params.stage_minutes, params.train.alternatives_on_simulated) == (0, False)
    assert (params.dask.tls, params.dask.allow_unencrypted) == (None, False)


LIMITS = [  # setting, the valid value nearest to a limit, the nearest invalid one
    ("seeds", [0], [-1]),
    ("seeds", [5], []),
    ("calibrators", ["ts"], []),
    ("rivals.rows", [1], [0]),
    ("rivals.rows", [5], []),
    ("stage_minutes", 0, -0.5),
    ("stage_minutes", 0.25, "soon"),
    ("lanes", 1, 0),
    ("simplex.off_top_alpha", 0, -0.5),
    ("train.members", 1, 0),
    ("train.runs", 1, 0),
    ("dask.workers", 1, 0),
    ("schedule.refresh", "0 3 * * 1", "0 3 * *"),
    ("schedule.refresh", None, "0 3 * * 1 9"),
    ("datasets.wands.rows", 100, 99),
    ("datasets.wands.residual", 0, -0.5),
    ("metrics.resamples", 300, 299),
]


@pytest.mark.parametrize(("setting", "valid", "invalid"), LIMITS)
def test_settings_of_the_params_have_limits(setting, valid, invalid):
    content = yaml.safe_load(PARAMS.read_text())
    *sections, key = setting.split(".")
    section = content
    for name in sections:
        section = section[name]
    section[key] = valid
    Params.model_validate(content)
    section[key] = invalid
    with pytest.raises(ValidationError, match=setting.replace(".", r"\.")):
        Params.model_validate(content)


@pytest.mark.parametrize(("key", "is_valid"), [("a", True), ("2b_", True), ("_a", False), ("A", False), ("", False)])
def test_keys_of_data_sets_are_lower_case_letters_digits_and_underscores(key, is_valid):
    content = yaml.safe_load(PARAMS.read_text())
    content["datasets"] = {key: SPLIT_DATA_SET}
    if is_valid:
        assert [*Params.model_validate(content).datasets] == [key]
        return
    with pytest.raises(ValidationError, match="datasets"):
        Params.model_validate(content)
