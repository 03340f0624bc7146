"""DVC step `train`: train the base predictors of a data set and save their logits.

For a data set of saved logits, nothing is trained.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from relmap.decisions import ProtocolDecisions, decide
from relmap.errors import InputError
from relmap.io import atomic
from relmap.metrics.probability import accuracy
from tasks.datasets import base, find_dataset
from tasks.expectations.check import GateFailed
from tasks.expectations.pairs import check_contract, summarize_pairs
from tasks.predictors import Predictor, fit_predictor
from tasks.provenance.stage import run_dataset_stage
from tasks.records import store
from tasks.records.durations import measure_block
from tasks.records.splits import SPLITS, draw_splits
from tasks.settings.dataset_params import DatasetParams
from tasks.settings.params import TrainParams, load_params
from tasks.sources.hub import INDEX

logger = logging.getLogger(__name__)

PairsBySplit = Mapping[str, pl.DataFrame]
DecisionsBySplit = dict[str, ProtocolDecisions]
HELD_OUT_SPLITS = SPLITS[1:]
# The seeds of the members of a run are consecutive; each run starts 100 after the one before, as in the release.
RUN_SEED_STEP = 100


@dataclass(frozen=True)
class PredictorChoice:
    """Type, class weights and seed of a base predictor."""

    predictor: str
    class_weight: str
    seed: int


def main(name: str) -> None:
    """Read the raw files of a data set, fit on train rows, and write logits of validation and test rows.

    Args:
        name: Key of the data set.

    Raises:
        InputError: The files, or the entry in params.yaml, have a mistake.
        GateFailed: Released files differ from what the data set declares.
    """
    params = load_params()
    entry = params.dataset(name)
    dataset = find_dataset(name, entry.reader, entry.options)
    with measure_block("read"):
        released = dataset.read(store.raw_folder(name))
    contract_record = _check_released_files(name, dataset, entry, released.pairs)
    pairs, drawn_splits = _draw_missing_splits(released.pairs, dataset, entry)
    choice = choose_predictor(dataset, entry, params.train)
    if released.members:
        pairs_by_split = _split_pairs(pairs, name, HELD_OUT_SPLITS)
        decisions = _write_saved_logits(name, released.members)
    else:
        pairs_by_split = _split_pairs(pairs, name, SPLITS)
        with measure_block("train"):
            decisions = _train_predictors(name, dataset, entry, params.train, choice, pairs_by_split)
    with measure_block("write"):
        atomic.write_atomically(store.base_folder(name, "pairs.parquet"), summarize_pairs(pairs).write_parquet)
    if contract_record is not None:
        atomic.write_json(store.base_folder(name) / "contract.json", contract_record)
    download_index = store.read_json(store.raw_folder(name) / INDEX)
    facts = {
        "dataset": name,
        "title": dataset.title,
        "domain": dataset.domain,
        "task": dataset.task,
        "source": entry.source,
        "preset": entry.preset,
        "labels": dataset.labels,
        "split_by": entry.split.by if entry.split else dataset.split_by,
        "drawn": drawn_splits,
        "repeats_pairs": dataset.repeats_pairs,
        "predictor": entry.predictor if entry.reader != "logits" else "saved logits",
        "class_weight": choice.class_weight,
        **_count_rows(dataset, pairs_by_split),
        "dropped": released.dropped,
        "origin": {key: download_index[key] for key in ("origin", "revision", "licence")},
        "accuracy": {split: accuracy(rows.decision, rows.label) for split, rows in decisions.items()},
    }
    store.write_logits(name, decisions, facts)


def _draw_missing_splits(
    pairs: pl.DataFrame, dataset: base.Dataset, entry: DatasetParams
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Draw splits if the files do not define them; return the pairs with their splits, and the splits drawn."""
    if not pairs["split"].null_count():
        return pairs, dataset.drawn_splits
    assert entry.split is not None
    pairs = draw_splits(pairs, by=entry.split.by, shares=entry.split.shares, seed=entry.seed)
    return pairs, tuple(entry.split.shares)


def choose_predictor(dataset: base.Dataset, entry: DatasetParams, settings: TrainParams) -> PredictorChoice:
    """Choose the base predictor of a data set; presets fix the class weights and the seed.

    Args:
        dataset: Declaration of the data set.
        entry: Its entry in params.yaml.
        settings: Section `train` of params.yaml.

    Returns:
        Type, class weights and seed.
    """
    if entry.preset:
        seed = dataset.boosted_seed if entry.predictor == "boosted" else dataset.predictor_seed
        return PredictorChoice(entry.predictor, "balanced", seed)
    return PredictorChoice(entry.predictor, entry.class_weight, settings.seed)


def _write_saved_logits(name: str, members: tuple[pl.DataFrame, ...]) -> DecisionsBySplit:
    """Write the decisions of each member if there are several; return the decisions of the first member."""
    decisions_of_members: list[DecisionsBySplit] = []
    for frame in members:
        decisions_by_split: DecisionsBySplit = {}
        for split, part in _split_pairs(frame, name, HELD_OUT_SPLITS).items():
            decisions_by_split[split] = _decisions(part["logits"].to_numpy(), part)
        decisions_of_members.append(decisions_by_split)
    if len(members) > 1:
        for member, decisions in enumerate(decisions_of_members):
            store.write_decisions(store.base_folder(name) / f"members/run_0_member_{member}.parquet", decisions)
    return decisions_of_members[0]


def _train_predictors(
    name: str,
    dataset: base.Dataset,
    entry: DatasetParams,
    settings: TrainParams,
    choice: PredictorChoice,
    pairs: PairsBySplit,
) -> DecisionsBySplit:
    """Train the predictors that params.yaml lists; save the base predictor and return its decisions."""
    base_predictor = fit_choice(choice, dataset, entry, pairs)
    base_predictor.save(store.base_folder(name))
    # several paths may need the same predictor, which is trained once
    decisions_by_choice = {choice: decide_held_out(base_predictor, pairs)}
    for path, other in _other_choices(choice, entry, settings).items():
        if other not in decisions_by_choice:
            other_predictor = fit_choice(other, dataset, entry, pairs)
            decisions_by_choice[other] = decide_held_out(other_predictor, pairs)
        store.write_decisions(store.base_folder(name) / f"{path}.parquet", decisions_by_choice[other])
    for run in range(1, settings.runs):
        pairs_of_run = _read_run(name, dataset, run) or pairs
        for path, member in _member_choices(choice, settings, run).items():
            decisions = decide_held_out(fit_choice(member, dataset, entry, pairs_of_run), pairs_of_run)
            store.write_decisions(store.base_folder(name) / f"{path}.parquet", decisions)
    return decisions_by_choice[choice]


def _read_run(name: str, dataset: base.Dataset, run: int) -> PairsBySplit | None:
    """Read the rows of a training run; None if all runs of the data set have the same rows."""
    if dataset.read_run is None:
        return None
    return _split_pairs(dataset.read_run(store.raw_folder(name), run).pairs, name, SPLITS)


def fit_choice(choice: PredictorChoice, dataset: base.Dataset, entry: DatasetParams, pairs: PairsBySplit) -> Predictor:
    """Fit a base predictor; settings of params.yaml replace those that the data set declares.

    Args:
        choice: Type, class weights and seed.
        dataset: Declaration of the data set.
        entry: Its entry in params.yaml.
        pairs: Labelled pairs of each split.

    Returns:
        The fitted predictor.
    """
    return fit_predictor(
        choice.predictor,
        pairs["train"],
        pairs["validation"],
        n_labels=len(dataset.labels),
        class_weight=choice.class_weight,
        seed=choice.seed,
        settings=_dataset_settings(dataset, choice.predictor) | dict(entry.settings),
    )


def decide_held_out(predictor: Predictor, pairs: PairsBySplit) -> DecisionsBySplit:
    """Decide the validation and test rows.

    Args:
        predictor: Fitted base predictor.
        pairs: Labelled pairs of each split.

    Returns:
        Decisions of both splits.
    """
    return {split: _decisions(predictor(pairs[split]), pairs[split]) for split in HELD_OUT_SPLITS}


def _dataset_settings(dataset: base.Dataset, predictor: str) -> dict[str, Any]:
    """Return the settings that a data set declares for its linear predictors."""
    settings: dict[str, Any] = {}
    if predictor != "boosted" and dataset.max_terms is not None:
        settings["max_features"] = dataset.max_terms
    if predictor == "linear" and dataset.max_training_passes is not None:
        settings["passes"] = dataset.max_training_passes
    return settings


def _other_choices(choice: PredictorChoice, entry: DatasetParams, settings: TrainParams) -> dict[str, PredictorChoice]:
    """Return the other base predictors on the rows of the first run by the paths of their files.

    These are its members, if there is more than one member or run, and the alternatives of the sensitivity tables.
    """
    others = {}
    if settings.runs * settings.members > 1:
        others = _member_choices(choice, settings, run=0)
    if _has_alternatives(entry, settings):
        alternatives = {
            "unweighted": replace(choice, class_weight="none"),
            "multinomial": replace(choice, predictor="multinomial"),
            "member_1": replace(choice, seed=choice.seed + 1),
            "member_2": replace(choice, seed=choice.seed + 2),
        }
        for alternative in settings.alternatives:
            others[f"sensitivity/{alternative}"] = alternatives[alternative]
    return others


def _member_choices(choice: PredictorChoice, settings: TrainParams, run: int) -> dict[str, PredictorChoice]:
    """Return the members of a run by the paths of their files."""
    members = {}
    for member in range(settings.members):
        seed = choice.seed + RUN_SEED_STEP * run + member
        members[f"members/run_{run}_member_{member}"] = replace(choice, seed=seed)
    return members


def _has_alternatives(entry: DatasetParams, settings: TrainParams) -> bool:
    """Return whether the sensitivity tables include a data set: a preset with linear predictors."""
    is_included_source = entry.source != "simulated" or settings.alternatives_on_simulated
    return entry.preset is not None and entry.predictor == "linear" and is_included_source


def _check_released_files(
    name: str, dataset: base.Dataset, entry: DatasetParams, pairs: pl.DataFrame
) -> dict[str, Any] | None:
    """Run the gate for released files; return its record, or None for other data sets.

    The record of a failed gate is stored for the report.
    """
    failed_gates_file = store.failed_gates_file(name)
    failed_gates_file.unlink(missing_ok=True)
    if entry.preset is None or entry.source != "hub":
        return None
    try:
        return check_contract(
            pairs,
            n_labels=len(dataset.labels),
            coordinates={"dataset": name},
            repeats_pairs=dataset.repeats_pairs,
        )
    except GateFailed as error:
        atomic.write_json(failed_gates_file, {"dataset": name, "source": entry.source, "gates": [error.record]})
        raise


def _split_pairs(pairs: pl.DataFrame, name: str, splits: tuple[str, ...]) -> dict[str, pl.DataFrame]:
    parts = {split: pairs.filter(pl.col("split") == split) for split in splits}
    for split, part in parts.items():
        if part.is_empty():
            raise InputError(
                f"{name}: the split {split} has no pair: no pair was assigned to it, or all of them were dropped. In "
                f"params.yaml, give `split` of {name} shares that leave pairs for each split, or correct the data"
            )
    return parts


def _decisions(logits: np.ndarray, pairs: pl.DataFrame) -> ProtocolDecisions:
    return ProtocolDecisions(
        decision=decide(logits),
        logits=logits,
        label=pairs["label"].to_numpy().astype(np.int64),
        group=pairs["group"].to_numpy(),
    )


def _count_rows(dataset: base.Dataset, pairs: PairsBySplit) -> dict[str, dict[str, Any]]:
    """Count rows, groups and labels of each split, and log them."""
    rows = {}
    groups = {}
    class_counts = {}
    for split, part in pairs.items():
        counts = np.bincount(part["label"], minlength=len(dataset.labels))
        rows[split] = len(part)
        groups[split] = part["group"].n_unique()
        class_counts[split] = counts.tolist()
        shares = ", ".join(f"{share:.4f}" for share in counts / counts.sum())
        logger.info(
            "%s, %s: %d rows, %d groups, class shares %s", dataset.name, split, len(part), groups[split], shares
        )
    return {"rows": rows, "groups": groups, "class_counts": class_counts}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # readers log which rows they drop
    run_dataset_stage("train", main)
