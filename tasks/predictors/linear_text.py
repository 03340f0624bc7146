"""Linear classifier over hashed word n-grams of query and candidate (paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
import pydantic
from pydantic import Field

from tasks.predictors.hashed_ngrams import hashed_ngrams
from tasks.predictors.multinomial import Multinomial, fit_multinomial, read_multinomial
from tasks.predictors.saved import pack, unpack, write_predictor
from tasks.predictors.training_labels import training_labels

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Texts = Iterable[str]  # a list, an array or a polars series


@pydantic.dataclasses.dataclass(frozen=True, config={"extra": "forbid"})
class LinearTextSettings:
    """How texts become numbers, and how these are fitted; `train.linear_text` in params.yaml."""

    longest_ngram: Annotated[int, Field(ge=1)] = 2  # words; shorter n-grams are taken too
    bucket_bits: Annotated[int, Field(ge=4, le=24)] = 18  # 2^18 buckets: few n-grams of a million collide
    characters: Annotated[int, Field(ge=1)] = 2000  # of each text, from its start; some documents have 48,000
    idf: bool = True  # weigh down n-grams that many training pairs hold
    inverse_penalty: Annotated[float, Field(gt=0)] = 3.0  # C, the inverse weight of the L2 penalty
    # Bounds the gradient of the mean loss. On rows of length 1 that gradient is small from the start: at 1e-3 a
    # balanced fit ends where it begins.
    tolerance: Annotated[float, Field(gt=0)] = 1e-5
    max_iterations: Annotated[int, Field(ge=1)] = 100


@dataclass(frozen=True)
class LinearText:
    """The fitted classifier; buckets that no training text filled have weight zero."""

    settings: LinearTextSettings
    idf: np.ndarray  # (buckets,)
    model: Multinomial

    def __call__(self, inputs: tuple[Texts, Texts]) -> np.ndarray:
        """Queries and candidates, `n` texts each, to logits `(n, K)` float64."""
        return self.model(weigh_ngrams(count_ngrams(inputs, self.settings), self.idf))

    def save(self, folder: Path) -> None:
        """Write `predictor.json` and `predictor.npz`."""
        write_predictor(
            folder,
            {"kind": "linear_text", "settings": asdict(self.settings), **self.model.header},
            file="predictor.npz",
            model=pack({"idf": self.idf, **self.model.arrays}),
            library="scikit-learn",
        )


def fit_linear_text(
    inputs: tuple[Texts, Texts],
    labels: np.ndarray,
    *,
    n_labels: int,
    class_weight: str,
    seed: int,  # noqa: ARG001 (hashing and a convex fit draw nothing at random)
    settings: LinearTextSettings,
) -> LinearText:
    """Queries and candidates of the `n` training rows and labels `(n,)` in 0..K-1 to the fitted classifier."""
    from tasks.predictors.split_products import SplitProducts  # noqa: PLC0415 (SciPy's sparse arrays take a moment)

    kept = training_labels(labels, n_labels, class_weight)
    counts = count_ngrams(inputs, settings)
    rows_with = np.bincount(counts.indices, minlength=counts.shape[1])
    # As scikit-learn smooths it: one more row that holds every n-gram, so that nothing divides by zero.
    idf = np.log((1 + len(labels)) / (1 + rows_with)) + 1 if settings.idf else np.ones(counts.shape[1])
    # An empty bucket would keep weight zero; leaving it out of the fit changes nothing but the time.
    filled = np.flatnonzero(rows_with)
    rows = SplitProducts(weigh_ngrams(counts, idf)[:, filled])
    del counts  # gigabytes, where a million texts are long
    model = fit_multinomial(
        rows,
        labels,
        kept,
        inverse_penalty=settings.inverse_penalty,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
    )
    weights = np.zeros((len(idf), model.weights.shape[1]))
    weights[filled] = model.weights
    return LinearText(settings, idf, replace(model, weights=weights))


def count_ngrams(inputs: tuple[Texts, Texts], settings: LinearTextSettings) -> csr_array:
    """Queries and candidates, `n` texts each, to n-gram counts `(n, buckets)` of the query and then the candidate.

    No n-gram reaches from the query into the candidate, so a text counts the same in all its pairs and is hashed
    once: a document that a hundred queries share costs as much as one. An empty text adds nothing.
    """

    def counted(texts: Texts) -> csr_array:
        whole = texts if isinstance(texts, pl.Series) else pl.Series(list(texts), dtype=pl.String)
        cut = pl.select(text=whole.str.head(settings.characters))
        distinct = cut.unique(maintain_order=True).with_row_index("place")
        place = cut.join(distinct, on="text", how="left", maintain_order="left")["place"]
        return hashed_ngrams(distinct["text"], longest=settings.longest_ngram, bits=settings.bucket_bits)[place]

    query, candidate = inputs
    return counted(query) + counted(candidate)


def weigh_ngrams(counts: csr_array, idf: np.ndarray) -> csr_array:
    """Counts `(n, buckets)` to rows of length 1 (or 0 for no words): (1 + log count) idf, then normalised."""
    from scipy.sparse import csr_array  # noqa: PLC0415 (scikit-learn takes a second to import)
    from sklearn.preprocessing import normalize  # noqa: PLC0415

    data = np.log(counts.data)
    data += 1  # in place, for there are hundreds of millions
    data *= idf[counts.indices]
    return normalize(csr_array((data, counts.indices, counts.indptr), shape=counts.shape), copy=False)


def read_linear_text(header: Mapping[str, Any], model: bytes) -> LinearText:
    """The value whose saved parts these are."""
    arrays = unpack(model)
    return LinearText(LinearTextSettings(**header["settings"]), arrays["idf"], read_multinomial(header, arrays))
