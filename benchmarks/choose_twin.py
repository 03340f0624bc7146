"""Choose the parameters of the twins such that they behave like the paper's data sets.

`python -m benchmarks.choose_twin wands` starts from the values of `START`, changes them at random, and prints the entry
of the first twin that is within all tolerances. This entry is the one in params.yaml. Each candidate trains the base
predictor of the paper, fits MRP, and is compared with the numbers in the paper's tables: accuracy, ECE, label spread,
log loss of the confidence, AURC and AUPR-Error of confidence and MRP, and the sign of each change by MRP. The first
comparison is for two calibrators and one protocol seed; if all numbers agree, the second one is for all of them.

The numbers of MRP are among the targets. Twins therefore show nothing about MRP that the paper does not state; they
show that the pipeline works.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import yaml
from scipy.special import expit

from relmap.calibrators.registry import calibrators_with_role, fit_prefixes
from relmap.decisions import CalibratedDecisions, ProtocolDecisions, clip_logits, decide
from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.spread import LabelCells
from relmap.projection.registry import fit_variants
from relmap.projection.rows import FitBatch, select_validation_rows
from tasks import train
from tasks.datasets import find_dataset
from tasks.records.splits import SPLITS
from tasks.settings.dataset_params import DatasetParams
from tasks.settings.params import Params, load_params
from tasks.simulation import simulate

PAPER_TABLES = Path(__file__).resolve().parents[1] / "tasks/tables/published"
QUICK_CALIBRATORS = ("uncal", "ts")
ACCURACY_TOLERANCE = 0.03
ECE_TOLERANCE = 0.06
LOG_LOSS_TOLERANCE = 0.15  # relative
RANKING_TOLERANCE = 0.04  # of AURC and AUPR-Error
SPREAD_TOLERANCE = 6.0  # percentage points
CHANGES = ("nll_correct", "aupr_error", "aurc")  # metrics whose change by MRP must have the sign of the paper's change
SAFE_SHARE = 0.75  # of a tolerance: the loss counts what exceeds it, so that all calibrators and seeds are within it
SIGN_LOSS = 0.3
MAX_SEED = 50
SAME_SEED_SHARE = 0.5

# Start of each search, set by hand after a few trials. The label shares are the published ones, except for those of
# Amazon ESCI, which are not published, and of Alloprof-Rerank, which differ by less than 0.02.
START: dict[str, dict[str, Any]] = {
    "amazon_esci": {
        "rows": 48_000,
        "twin": {
            "label_shares": [0.06, 0.045, 0.07, 0.825],
            "strength": 7.0,
            "log_sharpness": -0.4,
            "noise": 0.105,
            "phrases": 1600,
            "stock_phrases": 1,
        },
    },
    "mslr_web10k": {
        "rows": 65_000,
        "twin": {
            "label_shares": [0.5201, 0.3219, 0.1329, 0.0178, 0.0073],
            "strength": 1.0,
            "log_sharpness": 0.0,
            "ordered": 0.9,
            "varying_features": 14,
        },
    },
    "alloprof_rerank": {
        "rows": 22_000,
        "twin": {"label_shares": [0.89, 0.11], "strength": 0.93, "log_sharpness": 0.2},
    },
    "esci_rerank_us": {
        "rows": 32_000,
        "twin": {"label_shares": [0.22, 0.78], "strength": 0.3, "log_sharpness": 0.3, "stock_phrases": 1},
    },
    "wands": {
        "rows": 22_000,
        "twin": {"label_shares": [0.2622, 0.6281, 0.1097], "strength": 4.0, "log_sharpness": 0.2, "phrases": 400},
    },
    "scidocs": {
        "rows": 72_000,
        "seed": 5,
        "twin": {"label_shares": [0.8347, 0.1653], "strength": 1.2, "log_sharpness": -2.4},
    },
}


class Step(NamedTuple):
    """How a candidate changes a parameter.

    Attributes:
        deviation: Standard deviation of the change; of the logarithm of the factor, unless `is_additive`.
        low: Lowest value.
        high: Highest value.
        digits: Number of decimals.
        is_additive: Whether the change is added.
    """

    deviation: float
    low: float
    high: float
    digits: int
    is_additive: bool = False


# A parameter changes if START names it. The words of a language limit the number of phrases.
STEPS = {
    "strength": Step(0.05, 0.05, 20, 2),
    "log_sharpness": Step(0.1, -3, 3, 2, is_additive=True),
    "noise": Step(0.1, 0.01, 0.5, 3),
    "ordered": Step(0.03, 0, 1, 2, is_additive=True),
    "phrases": Step(0.05, 2, 1700, 0),
    "varying_features": Step(0.05, 4, 136, 0),
}


class Comparison(NamedTuple):
    """One number of a twin and of the paper.

    Attributes:
        quantity: Name of the number, with its calibrator.
        paper: Value in the paper's tables.
        twin: Value on the twin.
        deviation: Absolute difference, divided by the tolerance; for the sign of a change, 0 if equal and infinite
            otherwise.
    """

    quantity: str
    paper: float
    twin: float
    deviation: float


class TwinDecisions(NamedTuple):
    """Decisions of the paper's base predictor on a twin."""

    validation: ProtocolDecisions
    test: ProtocolDecisions


def decide_twin(name: str, entry: DatasetParams, params: Params) -> TwinDecisions:
    """Simulate a twin, read it like the released files, and train the base predictor.

    Args:
        name: Key of the data set.
        entry: Its entry, with the parameters of the twin.
        params: All parameters.

    Returns:
        The decisions on validation and test rows.
    """
    assert entry.rows is not None
    assert entry.residual is not None
    assert entry.twin is not None
    dataset = find_dataset(name, entry.reader, entry.options)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder)
        simulate(dataset.name, raw, rows=entry.rows, residual=entry.residual, twin=entry.twin, seed=entry.seed)
        pairs = dataset.read(raw).pairs
    parts = {split: pairs.filter(pl.col("split") == split) for split in SPLITS}
    choice = train.choose_predictor(dataset, entry, params.train)
    decisions = train.decide_held_out(train.fit_choice(choice, dataset, entry, parts), parts)
    return TwinDecisions(decisions["validation"], decisions["test"])


def measure_twin(
    name: str,
    decisions: TwinDecisions,
    params: Params,
    calibrators: tuple[str, ...] = QUICK_CALIBRATORS,
    seeds: tuple[int, ...] = (1,),
) -> dict[tuple[str, str], float]:
    """Compute the numbers of a twin that are compared with the paper, as the pipeline does.

    Args:
        name: Key of the data set.
        decisions: Decisions of the base predictor.
        params: All parameters.
        calibrators: Calibrators.
        seeds: Protocol seeds.

    Returns:
        (calibrator, quantity) -> mean over the protocol seeds. Quantities are `accuracy`, `ece`, `label_spread` in
        percentage points, and each metric of CHANGES with `_conf` or `_mrp`.
    """
    test = decisions.test
    clip = params.protocol.clip
    projection = params.projection.model_copy(update={"minimum_rows": 0})
    values: dict[tuple[str, str], list[float]] = {}
    for seed in seeds:
        rows = select_validation_rows(decisions.validation, seed, params.protocol)
        fits = []
        for calibrator in calibrators:
            fit_rows = rows.rows_for_calibrator(calibrator)
            settings = params.calibrator_settings.get(name, {}).get(calibrator)
            fits += fit_prefixes(
                calibrator,
                fit_rows.logits,
                fit_rows.label,
                [len(fit_rows)],
                seed=seed,
                settings=settings,
                published=True,
            )
        batch = FitBatch.from_validation_rows(fits, rows, projection, "cpu", smallest_probability=clip)
        models = fit_variants(batch, ("confidence", "mrp"))
        for index, calibrator in enumerate(calibrators):
            calibrated = CalibratedDecisions.from_calibrator(fits[index], test)
            measured = {"accuracy": float(test.correct.mean()), "label_spread": _label_spread(calibrated, test, params)}
            for variant, suffix in (("confidence", "conf"), ("mrp", "mrp")):
                logit = clip_logits(models[variant][index](calibrated.clip(clip)), clip)
                metrics = compute_reliability_metrics(logit, test.correct, params.metrics)
                for metric in CHANGES:
                    measured[f"{metric}_{suffix}"] = float(metrics[metric])
                if variant == "confidence":
                    measured["ece"] = float(ece(expit(logit), test.correct, params.metrics.ece_bins))
            for quantity, value in measured.items():
                values.setdefault((calibrator, quantity), []).append(value)
    return {key: float(np.mean(of_seeds)) for key, of_seeds in values.items()}


def _label_spread(calibrated: CalibratedDecisions, test: ProtocolDecisions, params: Params) -> float:
    """Compute the label spread of the labels of a calibrator, in percentage points."""
    log_probabilities = calibrated.log_probabilities
    assert log_probabilities is not None
    label = decide(log_probabilities)
    confidence = np.exp(log_probabilities[np.arange(len(label)), label])
    return 100 * LabelCells.from_decisions(confidence, label, label == test.label, params.metrics).spread()


def compare_with_paper(name: str, measured: Mapping[tuple[str, str], float]) -> list[Comparison]:
    """Compare the numbers of a twin with the paper's tables.

    Args:
        name: Key of the data set.
        measured: Output of `measure_twin`.

    Returns:
        The comparisons.
    """
    main = pl.read_csv(PAPER_TABLES / "main.csv").filter(pl.col("dataset") == name)
    paper_of_calibrator = {row["calibrator"]: row for row in main.iter_rows(named=True)}
    spreads = pl.read_csv(PAPER_TABLES / "label_spread.csv").filter(pl.col("dataset") == name)
    calibrators = list(dict.fromkeys(calibrator for calibrator, _ in measured))
    uncalibrated = paper_of_calibrator["uncal"]
    comparisons = []

    def add(quantity: str, paper: float, twin: float, tolerance: float) -> None:
        comparisons.append(Comparison(quantity, paper, twin, abs(twin - paper) / tolerance))

    add("accuracy", uncalibrated["accuracy"], measured["uncal", "accuracy"], ACCURACY_TOLERANCE)
    add("ece uncal", uncalibrated["ece"], measured["uncal", "ece"], ECE_TOLERANCE)
    spread = float(np.mean([measured[calibrator, "label_spread"] for calibrator in calibrators]))
    add("label_spread", spreads["label_spread_pp"][0], spread, SPREAD_TOLERANCE)
    for calibrator in calibrators:
        paper = paper_of_calibrator[calibrator]
        confidence_loss = "nll_correct_conf"
        tolerance = LOG_LOSS_TOLERANCE * paper[confidence_loss]
        add(f"{confidence_loss} {calibrator}", paper[confidence_loss], measured[calibrator, confidence_loss], tolerance)
        for metric in ("aupr_error", "aurc"):
            for suffix in ("conf", "mrp"):
                key = f"{metric}_{suffix}"
                add(f"{key} {calibrator}", paper[key], measured[calibrator, key], RANKING_TOLERANCE)
        for metric in CHANGES:
            change = measured[calibrator, f"{metric}_mrp"] - measured[calibrator, f"{metric}_conf"]
            paper_change = paper[f"{metric}_delta"]
            deviation = 0.0 if np.sign(change) == np.sign(paper_change) else np.inf
            comparisons.append(Comparison(f"sign of {metric} {calibrator}", paper_change, change, deviation))
    return comparisons


def compute_loss(comparisons: list[Comparison]) -> float:
    """Compute how far a twin is from the paper; 0 if every number is within SAFE_SHARE of its tolerance."""
    loss = 0.0
    for comparison in comparisons:
        if np.isinf(comparison.deviation):
            loss += SIGN_LOSS
        else:
            loss += max(comparison.deviation - SAFE_SHARE, 0.0) ** 2
    return loss


def start_entry(name: str, params: Params) -> DatasetParams:
    """Return the entry of a twin in params.yaml, with the values of `START`.

    Args:
        name: Key of a data set of the paper.
        params: All parameters.

    Returns:
        The entry.
    """
    entry = params.dataset(name).model_dump(exclude_defaults=True)
    return DatasetParams.model_validate(entry | {"seed": 0} | START[name])


def draw_candidate(entry: DatasetParams, generator: np.random.Generator) -> DatasetParams:
    """Change the parameters of a twin at random, and its seed in half of the candidates.

    The seed has a larger effect than a step of the parameters.

    Args:
        entry: Entry to change. Parameters that it does not name keep their defaults.
        generator: Random generator.

    Returns:
        The changed entry.
    """
    assert entry.twin is not None
    named = entry.twin.model_dump(exclude_defaults=True)
    for parameter, step in STEPS.items():
        if parameter in named:
            named[parameter] = _change(named[parameter], step, generator)
    seed = entry.seed if generator.random() < SAME_SEED_SHARE else int(generator.integers(MAX_SEED))
    return DatasetParams.model_validate(entry.model_dump(exclude_defaults=True) | {"twin": named, "seed": seed})


def _change(value: float, step: Step, generator: np.random.Generator) -> float:
    """Change a value at random."""
    change = step.deviation * generator.normal()
    changed = value + change if step.is_additive else value * np.exp(change)
    rounded = round(float(np.clip(changed, step.low, step.high)), step.digits)
    return rounded if step.digits else int(rounded)


class Candidate(NamedTuple):
    """A measured candidate.

    Attributes:
        entry: Its entry for params.yaml.
        loss: Loss of the numbers of two calibrators and one protocol seed.
        comparisons: Comparisons with the paper.
        is_complete: Whether they include all calibrators and protocol seeds.
    """

    entry: DatasetParams
    loss: float
    comparisons: list[Comparison]
    is_complete: bool

    @property
    def is_within(self) -> bool:
        """Whether all compared numbers are within their tolerances."""
        return all(comparison.deviation <= 1 for comparison in self.comparisons)


def measure_candidate(name: str, entry: DatasetParams, params: Params) -> Candidate:
    """Measure a candidate with two calibrators and one seed, and with all of them if it is within the tolerances.

    Args:
        name: Key of the data set.
        entry: Entry of the candidate.
        params: All parameters.

    Returns:
        The candidate with its last comparisons.
    """
    decisions = decide_twin(name, entry, params)
    comparisons = compare_with_paper(name, measure_twin(name, decisions, params))
    candidate = Candidate(entry, compute_loss(comparisons), comparisons, is_complete=False)
    if not candidate.is_within:
        return candidate
    measured = measure_twin(name, decisions, params, calibrators_with_role("paper"), params.seeds)
    return candidate._replace(comparisons=compare_with_paper(name, measured), is_complete=True)


def search(name: str, params: Params, n_candidates: int) -> Iterator[Candidate]:
    """Measure the start of a twin, and candidates near the best one so far, until one is within all tolerances.

    Args:
        name: Key of the data set.
        params: All parameters.
        n_candidates: Maximum number of candidates.

    Yields:
        Each measured candidate.
    """
    generator = np.random.default_rng(0)
    entry = start_entry(name, params)
    best_loss = np.inf
    best_entry = entry
    for _ in range(n_candidates):
        candidate = measure_candidate(name, entry, params)
        yield candidate
        if candidate.is_complete and candidate.is_within:
            return
        if candidate.loss < best_loss:
            best_loss = candidate.loss
            best_entry = entry
        entry = draw_candidate(best_entry, generator)


def print_comparisons(comparisons: list[Comparison]) -> None:
    """Print the numbers of paper and twin, with a mark where a tolerance is exceeded."""
    for quantity, paper, twin, deviation in comparisons:
        mark = "" if deviation <= 1 else "  outside the tolerance"
        print(f"  {quantity:28} paper {paper:7.3f}  twin {twin:7.3f}{mark}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Choose the parameters of a twin.")
    parser.add_argument("name", choices=START, help="key of a data set of the paper")
    parser.add_argument("--candidates", type=int, default=60, help="maximum number of candidates")
    parser.add_argument("--check", action="store_true", help="only measure params.yaml, with all calibrators and seeds")
    arguments = parser.parse_args()
    params = load_params()
    if arguments.check:
        decisions = decide_twin(arguments.name, params.dataset(arguments.name), params)
        measured = measure_twin(arguments.name, decisions, params, calibrators_with_role("paper"), params.seeds)
        print_comparisons(compare_with_paper(arguments.name, measured))
        return
    for candidate in search(arguments.name, params, arguments.candidates):
        entry = candidate.entry
        assert entry.twin is not None
        twin = entry.twin.model_dump(exclude_defaults=True)
        print(f"loss {candidate.loss:.3f}, seed {entry.seed}, {twin}", flush=True)
        if candidate.is_complete:
            print_comparisons(candidate.comparisons)
    if not (candidate.is_complete and candidate.is_within):
        sys.exit(f"none of {arguments.candidates} candidates is within all tolerances")
    print(yaml.safe_dump({arguments.name: entry.model_dump(mode="json", exclude_defaults=True)}, sort_keys=False))


if __name__ == "__main__":
    main()
