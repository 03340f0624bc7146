"""The six data sets of the paper, by key, in the paper's order; and those of one's own, made from their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.datasets.alloprof_rerank import ALLOPROF_RERANK
from tasks.datasets.amazon_esci import AMAZON_ESCI
from tasks.datasets.base import Dataset
from tasks.datasets.esci_rerank_us import ESCI_RERANK_US
from tasks.datasets.files import files_dataset
from tasks.datasets.hub import hub_dataset
from tasks.datasets.logits import logits_dataset
from tasks.datasets.mslr_web10k import MSLR_WEB10K
from tasks.datasets.scidocs import SCIDOCS
from tasks.datasets.wands import WANDS
from tasks.protocol.errors import BadInput

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (AMAZON_ESCI, MSLR_WEB10K, ALLOPROF_RERANK, ESCI_RERANK_US, WANDS, SCIDOCS)
}


def dataset_named(name: str, reader: str | None, options: Mapping[str, Any]) -> Dataset:
    """The declared set that `reader` names, or the one that `options` describe, for a reader of one's own sets.

    Raises
    ------
    BadInput: there is no such reader; it lists those there are.
    """
    own = {"files": files_dataset, "hub": hub_dataset, "logits": logits_dataset}
    if reader in own:
        return own[reader](name, options)
    if (reader or name) not in DATASETS:
        raise BadInput(f"{name}: no reader {reader or name!r}; there are {', '.join([*DATASETS, *own])}")
    return DATASETS[reader or name]
