"""Data sets of the comparison: simulated ones, and real ones from a folder that does not belong to the project."""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from scipy.sparse import spmatrix
from sklearn.datasets import load_svmlight_file, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.evidence.methods import LabelledRows

Kind = Literal["real", "noise", "simulated", "judge", "nothing to learn"]
BASE_SHARE = 0.35  # of the queries or rows, to train the base model
LABELLED_SHARE = 0.4  # to sample labelled rows from; the others are test rows
MAX_BASE_ROWS = 12_000
MAX_LABELLED_ROWS = 8_000
MAX_TEST_ROWS = 6_000
NOISE = 0.08  # share of labels that are replaced at random, in simulated data and in noisy real data
SIMULATED_BASE_ROWS = 2_000
SIMULATED_LABELLED_ROWS = 3_000


@dataclass(frozen=True, eq=False)
class Case:
    """A data set with a base model.

    Attributes:
        key: Name in file names.
        title: Name of the data set in tables.
        base: Base model or class weights in tables.
        kind: Table that it belongs to.
        load: Return labelled rows and test rows; the argument is the number of the sample.
        noise: Share of the true labels of all rows to replace at random, in each sample.
    """

    key: str
    title: str
    base: str
    kind: Kind
    load: Callable[[int], tuple[LabelledRows, LabelledRows]]
    noise: float = 0


@dataclass(frozen=True, eq=False)
class Source:
    """Rows of a real data set.

    Attributes:
        inputs: Texts, or features of shape (n, F).
        label: Labels from 0, shape (n,).
        group: Query of each row, shape (n,).
        by_group: Whether the parts have different queries; else rows are split.
    """

    inputs: pl.Series | np.ndarray
    label: np.ndarray
    group: np.ndarray
    by_group: bool


def simulated_cases() -> Iterator[Case]:
    """Yield the simulated cases: linear and boosted base models, three and four labels, 8% label noise."""
    for model in ("linear", "boosted"):
        for n_labels in (3, 4):

            def load(sample: int, model: str = model, n_labels: int = n_labels) -> tuple[LabelledRows, LabelledRows]:
                return simulate(model, n_labels, sample)

            yield Case(f"simulated_{model}_{n_labels}", f"{n_labels} labels", model, "simulated", load)


def simulate(model: str, n_labels: int, seed: int) -> tuple[LabelledRows, LabelledRows]:
    """Simulate labelled rows and test rows of a base model that is trained with balanced class weights.

    Args:
        model: `linear` or `boosted`.
        n_labels: Number of labels.
        seed: Seed of the data.

    Returns:
        Labelled rows and test rows.
    """
    generator = np.random.default_rng(seed)
    inputs, label = make_classification(
        SIMULATED_BASE_ROWS + SIMULATED_LABELLED_ROWS + MAX_TEST_ROWS,
        n_features=12,
        n_informative=6,
        n_classes=n_labels,
        weights=[0.55, *[0.45 / (n_labels - 1)] * (n_labels - 1)],
        flip_y=0.0,
        class_sep=0.8,
        random_state=seed,
    )
    replaced = generator.random(len(label)) < NOISE
    label = np.where(replaced, generator.integers(0, n_labels, len(label)), label)
    if model == "linear":
        base = LogisticRegression(max_iter=300, class_weight="balanced")
    else:
        base = HistGradientBoostingClassifier(max_iter=40, class_weight="balanced", random_state=seed)
    base.fit(inputs[:SIMULATED_BASE_ROWS], label[:SIMULATED_BASE_ROWS])
    logits = np.log(np.clip(base.predict_proba(inputs), 1e-12, None))
    rows = _labelled_rows(logits, label, None, n_labels)
    end = SIMULATED_BASE_ROWS + SIMULATED_LABELLED_ROWS
    return rows.take(np.arange(SIMULATED_BASE_ROWS, end)), rows.take(np.arange(end, len(label)))


def real_cases(folder: Path) -> Iterator[Case]:
    """Yield the real cases of a folder, without and with balanced class weights and label noise, and the LLM judge.

    Args:
        folder: Folder with the data sets that `docs/evidence/real-data.md` lists.

    Yields:
        Cases; data are read when a case is loaded.
    """
    readers: dict[str, tuple[str, Callable[[], Source]]] = {
        "esci_150": ("ESCI, 150 queries", lambda: read_esci(folder / "esci_150")),
        "mslr_10k": (
            "MSLR, 10,000 rows",
            lambda: read_features(folder / "mslr_10k", ("train", "test"), 136, by_group=True),
        ),
        "home_depot_label3": ("Home Depot, 3 labels", lambda: read_home_depot(folder / "home_depot", "label3")),
        "home_depot_label5": ("Home Depot, 5 labels", lambda: read_home_depot(folder / "home_depot", "label5")),
        "mq2008": (
            "MQ2008",
            lambda: read_features(folder / "mq2008", ("train", "vali", "test"), 46, by_group=False),
        ),
        "science": ("Science", lambda: read_science(folder / "science")),
        "wikiqa": ("WikiQA", lambda: read_wikiqa(folder / "wikiqa")),
    }
    for key, (title, read) in readers.items():
        for class_weight in (None, "balanced"):
            base = class_weight or "none"

            def load(
                _: int, read: Callable[[], Source] = read, class_weight: str | None = class_weight
            ) -> tuple[LabelledRows, LabelledRows]:
                return predict(read(), class_weight)

            yield Case(f"{key}_{base}", title, base, "real", load)
            yield Case(f"{key}_{base}_noise", title, base, "noise", load, noise=NOISE)
    yield Case("llm_judge", "LLM judge", "none", "judge", lambda _: read_judge(folder / "llm_judge_dl"))


def predict(source: Source, class_weight: str | None) -> tuple[LabelledRows, LabelledRows]:
    """Train a linear base model on a part of the rows, and return predictions of two other parts.

    Args:
        source: Rows of the data set.
        class_weight: None, or `balanced`.

    Returns:
        Labelled rows and test rows.
    """
    generator = np.random.default_rng(0)
    units = source.group if source.by_group else np.arange(len(source.label))
    names = np.unique(units)
    generator.shuffle(names)
    n_base = round(BASE_SHARE * len(names))
    n_labelled = round(LABELLED_SHARE * len(names))
    base = _sample(units, names[:n_base], MAX_BASE_ROWS, generator)
    labelled = _sample(units, names[n_base : n_base + n_labelled], MAX_LABELLED_ROWS, generator)
    test = _sample(units, names[n_base + n_labelled :], MAX_TEST_ROWS, generator)
    is_text = isinstance(source.inputs, pl.Series)
    transform = _fit_tfidf if is_text else _fit_scaler
    inputs = transform(source.inputs, base, [labelled, test])
    model = SGDClassifier(
        loss="log_loss",
        alpha=1e-5 if is_text else 2e-5,
        max_iter=14 if is_text else 24,
        tol=None,
        class_weight=class_weight,
        random_state=0,
    )
    model.fit(inputs[0], source.label[base])
    n_labels = int(source.label.max()) + 1
    group = source.group if source.by_group else None
    parts = []
    for index, matrix in zip((labelled, test), inputs[1:], strict=True):
        score = model.decision_function(matrix)
        logits = np.column_stack([-score, score]) if score.ndim == 1 else score
        parts.append(_labelled_rows(logits, source.label[index], None if group is None else group[index], n_labels))
    return parts[0], parts[1]


def read_esci(folder: Path) -> Source:
    """Read the sample of ESCI."""
    frame = _read_lines(folder / "data.jsonl.gz")
    label = np.array([("I", "C", "S", "E").index(each) for each in frame["esci_label"]])
    columns = ["product_title", "product_brand", "product_color", "product_bullet_point"]
    return Source(_texts(frame, "query", columns), label, frame["query_id"].to_numpy(), by_group=True)


def read_home_depot(folder: Path, label: str) -> Source:
    """Read the product search data with three or five labels."""
    frame = _read_lines(folder / "data.jsonl.gz")
    return Source(_texts(frame, "query", ["title"]), frame[label].to_numpy(), frame["query"].to_numpy(), by_group=False)


def read_wikiqa(folder: Path) -> Source:
    """Read questions with candidate sentences."""
    frame = _read_lines(folder / "data.jsonl.gz")
    return Source(_texts(frame, "query", ["doc"]), frame["label"].to_numpy(), frame["qid"].to_numpy(), by_group=True)


def read_science(folder: Path) -> Source:
    """Read queries with candidate abstracts, from three files."""
    pairs = pl.read_csv(gzip.decompress((folder / "pairs.tsv.gz").read_bytes()), separator="\t")
    queries = _read_lines(folder / "queries.jsonl.gz").select("qid", "query")
    documents = _read_lines(folder / "docs.jsonl.gz").select("doc_id", "title", "doc")
    frame = pairs.join(queries, on="qid", maintain_order="left").join(documents, on="doc_id", maintain_order="left")
    texts = _texts(frame, "query", ["title", "doc"])
    return Source(texts, frame["label"].to_numpy(), frame["qid"].to_numpy(), by_group=True)


def read_features(folder: Path, parts: tuple[str, ...], n_features: int, *, by_group: bool) -> Source:
    """Read features and labels of svmlight files; a query belongs to one file."""
    features: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    groups: list[str] = []
    for part in parts:
        lines = gzip.decompress((folder / f"{part}.svmlight.gz").read_bytes()).decode().splitlines()
        words = [line.split() for line in lines]
        groups += [f"{part} {row[1]}" for row in words]
        without_query = "\n".join(" ".join([row[0], *row[2:]]) for row in words)  # names are no integers
        matrix, label = load_svmlight_file(BytesIO(without_query.encode()), n_features=n_features)
        features.append(matrix.toarray())
        labels.append(label.astype(int))
    return Source(np.vstack(features), np.concatenate(labels), np.array(groups), by_group=by_group)


def read_judge(folder: Path) -> tuple[LabelledRows, LabelledRows]:
    """Read decisions and criteria of a language model: labelled rows of 2019, and test rows of 2020."""
    frame = pl.read_parquet(folder / "judged.parquet")
    year = pl.col("year").cast(pl.String)
    return _judged_rows(frame.filter(year == "2019")), _judged_rows(frame.filter(year == "2020"))


def _judged_rows(frame: pl.DataFrame) -> LabelledRows:
    criteria = frame.select("exactness", "topicality", "coverage", "contextual_fit")
    return LabelledRows(
        label=frame["label"].to_numpy(),
        decision=frame["decision"].to_numpy(),
        logits=None,
        signals=criteria.to_numpy().astype(float),
        group=frame["query"].to_numpy(),
        n_labels=4,
    )


def _labelled_rows(logits: np.ndarray, label: np.ndarray, group: np.ndarray | None, n_labels: int) -> LabelledRows:
    return LabelledRows(label, logits.argmax(axis=1), logits, signals=None, group=group, n_labels=n_labels)


def _sample(units: np.ndarray, names: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """Return at most the given number of random rows of the units."""
    index = np.flatnonzero(np.isin(units, names))
    return generator.permutation(index)[:size]


def _fit_tfidf(texts: pl.Series, base: np.ndarray, others: list[np.ndarray]) -> list[spmatrix]:
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=3, max_features=80_000, sublinear_tf=True)
    return [vectorizer.fit_transform(texts[base]), *(vectorizer.transform(texts[index]) for index in others)]


def _fit_scaler(features: np.ndarray, base: np.ndarray, others: list[np.ndarray]) -> list[np.ndarray]:
    scaler = StandardScaler().fit(features[base])
    return [scaler.transform(features[index]) for index in (base, *others)]


def _read_lines(path: Path) -> pl.DataFrame:
    return pl.read_ndjson(gzip.decompress(path.read_bytes()), infer_schema_length=None)


def _texts(frame: pl.DataFrame, query: str, columns: list[str]) -> pl.Series:
    candidate = pl.concat_str([pl.col(name).fill_null("").cast(pl.String) for name in columns], separator=" ")
    return frame.select(pl.concat_str([pl.col(query), candidate], separator=" ")).to_series()
