"""Twins: raw files as the official ones, labels from a known truth, and a residual of known size."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, softmax

from tasks.datasets import DATASETS
from tasks.datasets.base import SCHEMA
from tasks.protocol.errors import BadInput
from tasks.protocol.splits import SPLITS
from tasks.simulation import TWINS, simulate, texts
from tasks.simulation.judgements import Relevance, draw_queries, judge, solve_relevance
from tasks.simulation.mslr_web10k import MIX

ROWS = 5000
CAPPED = ("esci_rerank_us", "scidocs")  # not every pair of theirs is drawn
MIXES = {name: np.array(shape.mix) for name, shape in texts.SHAPES.items()} | {"mslr_web10k": np.array(MIX)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The raw folder of a small twin of every set."""
    root = tmp_path_factory.mktemp("twins")
    for name in TWINS:
        simulate(name, root / name, rows=ROWS, residual=1.0, seed=0)
    return {name: root / name for name in TWINS}


@pytest.fixture(scope="module")
def frames(folders):
    """What the official readers make of them, each pair with its true probabilities."""
    return {
        name: DATASETS[name].read(folder).pairs.join(truth(folder), on="pair", how="left", maintain_order="left")
        for name, folder in folders.items()
    }


def truth(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "truth.parquet")


def evidence_of(rows: int, labels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, labels)) * 2


def test_the_decided_label_is_sharpened_about_its_pivot_and_the_others_keep_their_odds():
    evidence, sharpness, pivot = evidence_of(500, 4), np.array([3.0, 0.3, 1.0, 0.5]), np.array([1.0, 0.5, 2.0, 0.0])
    plain, decision = softmax(evidence, axis=1), evidence.argmax(axis=1)
    confidence = plain.max(axis=1)
    sharpened = expit(pivot[decision] + sharpness[decision] * (logit(confidence) - pivot[decision]))
    expected = plain * ((1 - sharpened) / (1 - confidence))[:, None]
    expected[np.arange(500), decision] = sharpened
    np.testing.assert_allclose(Relevance(np.zeros(4), sharpness, pivot)(evidence), expected)


@settings(deadline=None, max_examples=6)
@given(st.lists(st.floats(0.02, 1), min_size=2, max_size=5), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 99))
def test_the_bias_gives_the_mix_that_was_asked_for_and_without_residual_the_truth_is_the_softmax(share, residual, seed):
    mix, evidence = np.array(share) / sum(share), evidence_of(2000, len(share), seed)
    relevance = solve_relevance(evidence, mix, residual)
    true = relevance(evidence)
    np.testing.assert_allclose(true.sum(axis=1), 1)
    assert (true >= 0).all()
    assert np.abs(true.mean(axis=0) - mix).max() < 0.005
    if residual == 0:
        np.testing.assert_allclose(true, softmax(evidence + relevance.bias, axis=1), atol=1e-12)
    else:  # the commonest label is sharper than it seems, the others are flatter
        assert ((relevance.sharpness > 1) == (np.arange(len(mix)) == mix.argmax())).all()
        assert (relevance.sharpness > 0).all()


def test_a_candidate_is_judged_once_or_twice_never_twice_near_by_and_of_the_same_truth():
    judgements = judge(5000, (0.7, 0.3), 1.0, np.random.default_rng(0))
    assert set(np.bincount(judgements.candidate)) == {1, 2}
    again = np.setdiff1d(np.arange(5000), judgements.first)
    before = judgements.first[judgements.candidate[again]]
    assert (again - before > 1000).all()
    assert (judgements.probabilities[again] == judgements.probabilities[before]).all()


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=300),
    *(st.integers(1, 5), st.integers(0, 5), st.booleans(), st.integers(0, 99)),
)
def test_queries_are_whole_in_order_and_where_asked_go_on_until_they_have_both_labels(label, low, more, both, seed):
    label = np.array(label)
    query = draw_queries(len(label), (low, low + more), np.random.default_rng(seed), label if both else None)
    assert (len(query), query[0]) == (len(label), 0)
    assert set(np.diff(query)) <= {0, 1}
    sizes = np.bincount(query)
    assert (sizes[:-1] >= low).all()
    assert both or (sizes <= low + more).all()
    if both and len(set(label)) == 2:
        assert all(len(set(label[query == number])) == 2 for number in range(len(sizes)))


@pytest.mark.parametrize("tongue", texts.SYLLABLES)
def test_words_can_be_read_in_one_way_only(tongue):
    count = len(texts.SYLLABLES[tongue].split()) ** 3
    assert len(set(texts.draw_words(tongue, count, np.random.default_rng(0)))) == count


def test_titles_and_queries_differ_whatever_they_say_and_a_body_says_the_evidence_and_its_topic_and_nothing_else():
    generator = np.random.default_rng(0)
    language = texts.make_language("fr", 2000, generator)
    assert len(set(texts.title_texts(np.zeros((2000, 6), dtype=int), language))) == 2000
    assert len(set(texts.query_texts(np.zeros(2000, dtype=int), language))) == 2000
    choice, topic = generator.integers(6, size=(10, 6)), generator.integers(12, size=10)
    for text, chosen, about in zip(texts.body_texts(choice, topic, language, generator), choice, topic, strict=True):
        evidence = " ".join(language.evidence[slot, place] for slot, place in enumerate(chosen))
        stock = language.stock[about]
        assert text in {f"{evidence} {a} {b}" for a, b in itertools.product(stock, stock)}


def test_ranks_follow_the_law_of_zipf():
    count = np.bincount(texts.zipf(100, (100_000,), np.random.default_rng(0)), minlength=100)
    expected = 1 / np.arange(2, 102)
    np.testing.assert_allclose(count[:10] / count.sum(), (expected / expected.sum())[:10], rtol=0.1)
    assert count[-1] > 0


CANDIDATES = {  # fewest, most and mean of a query
    **{"amazon_esci": (8, 32, 20), "mslr_web10k": (1, 239, 120), "alloprof_rerank": (8, 70, 11)},
    **{"esci_rerank_us": (2, 10, 8), "wands": (15, 45, 30), "scidocs": (2, 30, 11)},  # a title may stand in two rows
}


@pytest.mark.parametrize("name", TWINS)
def test_every_set_is_one_frame_with_the_splits_labels_and_queries_of_the_official_one_the_same_each_time(
    name, folders, frames
):
    dataset, frame = DATASETS[name], frames[name].drop("probabilities")
    assert frame.equals(dataset.read(folders[name]).pairs)
    inputs = {"features": pl.Array(pl.Float32, 136)} if name == "mslr_web10k" else {"text": pl.String}
    assert dict(frame.schema) == {column: kind for column, kind in SCHEMA.items() if column != "text"} | inputs
    labels = frame.group_by("split").agg(pl.col("label").unique().sort())
    assert dict(labels.rows()) == {split: [*range(dataset.n_labels)] for split in SPLITS}
    if name == "alloprof_rerank":  # rows are in an order of their own
        assert not frame.filter(pl.col("split") == "train")["group"].is_sorted()
    of_queries = [pl.len(), pl.col("label").n_unique(), pl.col("split").n_unique()]
    queries = frame.group_by("group", maintain_order=True).agg(of_queries)
    assert dataset.split_by == "row" or queries["split"].max() == 1
    assert dataset.n_labels > 2 or queries["label"].min() == 2
    sizes, (smallest, largest, mean) = queries["len"].sort(), CANDIDATES[name]
    assert sizes[-1] <= largest
    assert sizes[min(3, len(sizes) - 1)] >= smallest  # the last query of a split is cut off
    assert sizes.mean() == pytest.approx(mean, rel=0.25)


def test_every_official_set_has_a_twin_and_another_is_refused_by_name(tmp_path):
    assert set(TWINS) == set(DATASETS)
    with pytest.raises(BadInput, match=r"'trec'.*wands"):
        simulate("trec", tmp_path / "new", rows=100, residual=1.0, seed=0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", TWINS)
def test_every_pair_that_is_drawn_has_one_truth_a_distribution_of_the_official_class_mix(name, folders, frames):
    drawn, whole = frames[name]["pair"], truth(folders[name])
    assert whole["pair"].n_unique() == ROWS
    assert drawn.is_unique().all()
    assert set(drawn) <= set(whole["pair"])
    assert (len(drawn) == ROWS) == (name not in CAPPED)
    distribution = np.array(whole["probabilities"].to_list())
    assert distribution.shape == (ROWS, DATASETS[name].n_labels)
    assert (distribution >= 0).all()
    np.testing.assert_allclose(distribution.sum(axis=1), 1)
    np.testing.assert_allclose(distribution.mean(axis=0), MIXES[name], atol=0.005)


@pytest.mark.parametrize("name", [name for name in TWINS if name not in CAPPED])
def test_the_labels_are_what_their_truth_makes_likely(name, frames):
    """Each class as often as expected, among all rows and among those where it is likelier than usual: a pair whose
    truth were another's would show here."""
    true, label = np.array(frames[name]["probabilities"].to_list()), frames[name]["label"].to_numpy()
    for k in range(true.shape[1]):
        for rows in (true[:, k] >= 0, true[:, k] > true[:, k].mean()):
            p = true[rows, k]
            assert abs((label[rows] == k).sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum()) + 1
    likelihood = true[np.arange(ROWS), label]
    assert np.log(likelihood).mean() > np.log(MIXES[name])[label].mean() + 0.1


@pytest.mark.parametrize("name", TWINS)
def test_the_same_seed_gives_the_same_bytes_another_gives_others_and_the_smallest_twin_can_be_read(name, tmp_path):
    made = []
    for place, seed in (("first", 0), ("again", 0), ("other", 1)):
        folder = tmp_path / place
        simulate(name, folder, rows=100, residual=0.0, seed=seed)
        files = (path for path in folder.rglob("*") if path.is_file())
        made.append({path.relative_to(folder).as_posix(): path.read_bytes() for path in files})
    first, again, other = made
    assert first == again
    assert first.keys() == other.keys()
    assert first["truth.parquet"] != other["truth.parquet"]
    assert len(DATASETS[name].read(tmp_path / "first").pairs) >= 20


def test_layouts_have_the_peculiarities_of_the_official_ones(folders, frames):
    features = frames["mslr_web10k"]["features"].to_numpy()
    assert (features == np.rint(features)).all(axis=0).sum() == 68  # counts
    assert frames["wands"].group_by("group").agg(pl.col("split").n_unique())["split"].max() == 3
    tested = frames["amazon_esci"].group_by("group").agg((pl.col("split") == "test").mean())["split"]
    assert set(tested) == {0, 1}
    assert tested.mean() == pytest.approx(0.302, abs=0.01)
    queries = pl.read_parquet(folders["scidocs"] / "data/test-00000-of-00001.parquet")["query"]
    assert queries.n_unique() < len(queries)
