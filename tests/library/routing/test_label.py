"""Samples of rows to label: their probabilities by hand, the sentences, the file and the rejected input."""

import re

import numpy as np
import polars as pl
import pytest

from relmap import InputError
from relmap.io.column_layout import DEFAULT_READING, Reading
from relmap.io.files import open_predictions
from relmap.maps.score import ignore_progress
from relmap.routing.label import LabelSample, sample_rows_to_label, sample_systematically, sampling_probabilities
from tests import maps
from tests.texts import numbers_in

CONFIDENCE_MAP = maps.make_map("confidence", confidence_only=True)
LOGITS_MAP = maps.make_map("confidence")


def make_sample(**fields: object) -> LabelSample:
    values = {
        "n_rows": 2000,
        "probability": np.repeat([0.2, 0.5], 1000),
        "reliability": np.repeat([0.9, 0.6], 1000),
        "sampled_reliability": np.repeat([0.9, 0.6], [400, 1000]),
        "row_number": np.arange(1400),
        "decision_counts": np.array([1300, 0, 100]),
        "label_column": "truth",
        "prediction_columns": ("pred", "conf"),
        "notes": ("First.",),
    }
    return LabelSample(**values | fields)


def test_a_sample_is_described_with_the_precision_of_its_estimates():
    # The variance of the estimated number of errors is the sum of p (1 - p) (1 / probability - 1) over all rows:
    # 1000 (0.09 * 4 + 0.24 * 1) = 24.49^2, or, with the probability 0.7 of a uniform sample, 11.89^2. Half-widths:
    # 1.96 * 24.49 / 2000 = 2.4% and 1.96 * 11.89 / 2000 = 1.2%.
    note, sampled, precision, instructions = make_sample().describe(["no", "some", "yes"], 0.75)
    assert note == "First."
    assert re.match(
        r"1,400 of 2,000 rows .*: no \(1,300\), yes \(100\)\. 400 .* threshold .*\(0\.75\), .* 50\.0% ", sampled
    )
    assert re.search(r" ±2\.4 .*uniform .* ±1\.2\).* halve .*four times ", precision)
    assert re.search(
        r" column truth\. .* pred, conf .*`fit`, `evaluate` and `thresholds` .* inverse_probability; .*score .*"
        r"--unlabelled ",
        instructions,
    )


@pytest.mark.parametrize(("threshold", "n_automatic", "share"), [(0.9, "400", "50.0%"), (0.6, "1,400", "100.0%")])
def test_rows_at_the_threshold_reach_it(threshold, n_automatic, share):
    sampled = make_sample().describe(["no", "some", "yes"], threshold)[1]
    assert {n_automatic, share} <= {*numbers_in(sampled)}
    assert numbers_in(sampled)[4] == n_automatic


def test_probabilities_mix_a_uniform_part_with_the_standard_deviation_by_hand():
    reliability = np.array([0.5, 0.8, 0.8, 0.9])
    decision = np.array([0, 2, 2, 2])
    deviation = np.array([0.5, 0.4 / np.sqrt(3), 0.4 / np.sqrt(3), 0.3 / np.sqrt(3)])
    size = 0.25 * deviation.mean() + 0.75 * deviation
    np.testing.assert_allclose(sampling_probabilities(reliability, decision, 2), 2 * size / size.sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("third_reliability", "n_certain"),
    [
        (0.99, 2),
        (0.95, 4),  # the third and fourth row exceed 1 once the first two are certain
    ],
)
def test_probabilities_above_1_are_set_to_1_and_the_others_increased(third_reliability, n_certain):
    reliability = np.array([0.5, 0.5, third_reliability, third_reliability, 0.9999, 0.9999])
    decision = np.array([0, 1, 2, 2, 2, 2])
    deviation = np.sqrt(reliability * (1 - reliability) / np.array([1, 1, 4, 4, 4, 4]))
    size = 0.25 * deviation.mean() + 0.75 * deviation
    others = size[n_certain:]
    expected = np.r_[np.ones(n_certain), (5 - n_certain) * others / others.sum()]
    np.testing.assert_allclose(sampling_probabilities(reliability, decision, 5), expected, rtol=1e-12)


def test_a_certain_row_does_not_make_the_probabilities_uniform():
    reliability = np.array([1.0, 0.5, 0.9])
    deviation = np.sqrt(reliability * (1 - reliability) / 3)
    size = deviation.mean() / 4 + deviation * 3 / 4
    probability = sampling_probabilities(reliability, np.zeros(3, dtype=np.int64), 1)
    np.testing.assert_allclose(probability, size / size.sum())


def test_probabilities_are_uniform_if_all_rows_are_certain():
    probability = sampling_probabilities(np.array([1.0, 0.0, 1.0, 1.0]), np.array([0, 1, 1, 3]), 3)
    assert probability.tolist() == [0.75] * 4


@pytest.mark.parametrize("rows", [1, 3])
def test_all_rows_are_certain_if_all_are_sampled(rows):
    assert sampling_probabilities(np.full(rows, 0.7), np.zeros(rows, dtype=np.int64), rows).tolist() == [1.0] * rows


def naive_systematic_sample(probability: np.ndarray, rows: int, seed: int) -> list[int]:
    """Walk over the rows in random order, and select a row for each position that its interval has."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(probability))
    start = generator.random()
    selected = []
    end = 0.0
    for row in order:
        begin = end
        end = begin + probability[row]
        selected += [int(row)] * sum(begin <= start + k < end for k in range(rows))
    return sorted(selected)


@pytest.mark.parametrize("seed", range(5))
def test_systematic_sample_equals_a_walk_over_cumulative_probabilities(seed):
    probability = np.array([0.5, 0.25, 0.75, 1.0, 0.125, 0.375])
    sampled = sample_systematically(probability, 3, seed)
    assert sampled.tolist() == naive_systematic_sample(probability, 3, seed)
    assert 3 in sampled


def test_systematic_sample_ends_with_the_last_row_if_probabilities_round_down():
    probability = np.full(10, 0.3 - 1e-3)
    samples = {tuple(sample_systematically(probability, 3, seed)) for seed in range(400)}
    assert all(max(sample) < 10 for sample in samples)


def make_confidences() -> pl.DataFrame:
    decision = [0, 1, 1, 2, 0, 1, 1, 2]
    confidence = [0.95, 0.6, 0.7, 0.5, 0.9, 0.85, 0.65, 0.99]
    return pl.DataFrame({"decision": decision, "confidence": confidence, "text": list("abcdefgh")})


def draw(path, out, document=CONFIDENCE_MAP, reading: Reading = DEFAULT_READING, **options: object) -> LabelSample:
    values = {"rows": 5, "seed": 3, "progress": ignore_progress} | options
    return sample_rows_to_label(document, open_predictions(path, reading), out, **values)


def test_sampled_rows_are_written_in_their_order_with_an_empty_label_and_their_weight(tmp_path):
    path = maps.write_frame(make_confidences(), tmp_path / "new.parquet")
    sample = draw(path, tmp_path / "sample.parquet")
    frame = make_confidences()
    probability = sampling_probabilities(frame["confidence"].to_numpy(), frame["decision"].to_numpy(), 5)
    written = pl.read_parquet(tmp_path / "sample.parquet")
    rows = sample.row_number.tolist()

    assert rows == sample_systematically(probability, 5, 3).tolist()
    assert len(rows) == 5
    assert written.columns == ["decision", "confidence", "text", "label", "inverse_probability"]
    assert written.select(frame.columns).equals(frame[rows])
    assert written["label"].dtype == pl.String
    assert written["label"].null_count() == 5
    np.testing.assert_allclose(written["inverse_probability"], 1 / probability[rows])

    assert (sample.n_rows, sample.label_column) == (8, "label")
    np.testing.assert_allclose(sample.probability, probability)
    np.testing.assert_allclose(sample.reliability, frame["confidence"])
    assert sample.decision_counts.tolist() == [frame["decision"][rows].to_list().count(label) for label in range(3)]
    assert draw(path, tmp_path / "sample.parquet", seed=4).row_number.tolist() == (
        sample_systematically(probability, 5, 4).tolist()
    )


def test_sampled_rows_over_many_batches_are_the_same(tmp_path, monkeypatch):
    frame = pl.concat([make_confidences()] * 12)
    path = maps.write_frame(frame, tmp_path / "new.parquet")
    at_once = draw(path, tmp_path / "a.parquet", rows=30)
    maps.read_in_small_batches(monkeypatch)
    in_batches = draw(path, tmp_path / "b.parquet", rows=30)
    assert at_once.row_number.tolist() == in_batches.row_number.tolist()
    assert pl.read_parquet(tmp_path / "a.parquet").equals(pl.read_parquet(tmp_path / "b.parquet"))
    written = pl.read_parquet(tmp_path / "b.parquet")
    assert written.select(frame.columns).equals(frame[at_once.row_number.tolist()])


def test_a_map_without_names_has_empty_labels_of_whole_numbers(tmp_path):
    path = maps.write_frame(make_confidences(), tmp_path / "new.parquet")
    document = maps.make_map("confidence", confidence_only=True, names=None)
    sample = draw(path, tmp_path / "sample.parquet", document, reading=Reading(label="truth"))
    assert pl.read_parquet(tmp_path / "sample.parquet").schema["truth"] == pl.Int64
    assert sample.label_column == "truth"


@pytest.mark.parametrize("is_array", [False, True])
def test_lists_become_columns_in_formats_without_lists(is_array, tmp_path):
    logits = [[1.0, 2.5, -1.0], [0.5, 0.25, 3.0], [4.0, 1.5, 0.0]]
    dtype = pl.Array(pl.Float64, 3) if is_array else pl.List(pl.Float64)
    frame = pl.DataFrame({"logits": pl.Series(logits, dtype=dtype), "text": ["a", "b", "c"]})
    path = maps.write_frame(frame, tmp_path / "new.parquet")
    draw(path, tmp_path / "sample.csv", LOGITS_MAP, rows=3)
    written = pl.read_csv(tmp_path / "sample.csv")
    assert written.columns == ["text", "logits_0", "logits_1", "logits_2", "label", "inverse_probability"]
    assert written.select("logits_0", "logits_1", "logits_2").rows() == [tuple(row) for row in logits]
    assert written["inverse_probability"].to_list() == [1, 1, 1]

    draw(path, tmp_path / "sample.jsonl", LOGITS_MAP, rows=2)
    assert pl.read_ndjson(tmp_path / "sample.jsonl").columns == ["logits", "text", "label", "inverse_probability"]


@pytest.mark.parametrize("rows", [0, 9])
def test_the_number_of_sampled_rows_must_be_between_1_and_all(rows, tmp_path):
    path = maps.write_frame(make_confidences(), tmp_path / "new.parquet")
    with pytest.raises(InputError, match=rf"--rows.* {rows},.*{re.escape(str(path))}.* 8 .* 1 .* 8$"):
        draw(path, tmp_path / "sample.csv", rows=rows)
    assert not (tmp_path / "sample.csv").exists()
    assert len(draw(path, tmp_path / "sample.csv", rows=8).row_number) == 8
    assert len(draw(path, tmp_path / "sample.csv", rows=1).row_number) == 1


@pytest.mark.parametrize(("column", "reading"), [("label", DEFAULT_READING), ("truth", Reading(label="truth"))])
def test_rows_with_a_label_are_skipped(column, reading, tmp_path):
    label = pl.Series(column, [1, None, 0, 1, None, 2, 1, None])
    path = maps.write_frame(make_confidences().with_columns(label), tmp_path / "new.parquet")
    sample = draw(path, tmp_path / "sample.csv", rows=3, reading=reading)
    assert sorted(sample.row_number) == [1, 4, 7]
    labelled = maps.write_frame(make_confidences().with_columns(pl.lit(1).alias(column)), tmp_path / "all.parquet")
    with pytest.raises(InputError, match=r"all\.parquet .*no row\b"):
        draw(labelled, tmp_path / "sample.csv", rows=1, reading=reading)


def test_rows_with_a_weight_are_rejected(tmp_path):
    path = maps.write_frame(make_confidences().with_columns(inverse_probability=1.0), tmp_path / "new.parquet")
    with pytest.raises(InputError, match=r"new\.parquet .*column inverse_probability,"):
        draw(path, tmp_path / "sample.csv", rows=1)


def test_a_column_named_label_is_allowed_if_another_label_column_is_named(tmp_path):
    path = maps.write_frame(make_confidences().with_columns(label=pl.lit(1)), tmp_path / "new.parquet")
    assert draw(path, tmp_path / "sample.parquet", reading=Reading(label="truth")).label_column == "truth"


def test_a_mistyped_column_of_labels_is_refused_and_another_name_is_noted(tmp_path):
    path = maps.write_frame(make_confidences().with_columns(label=pl.lit(1)), tmp_path / "new.parquet")
    with pytest.raises(InputError, match=r"column lable,.*--label.*mean label\b"):
        draw(path, tmp_path / "sample.csv", reading=Reading(label="lable"))
    assert "no column truth" in draw(path, tmp_path / "sample.csv", reading=Reading(label="truth")).notes[-1]
