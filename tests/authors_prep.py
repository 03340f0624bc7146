"""Comparison of the project with results of the authors' released functions on artificial rows.

The folder is `authors_prep` in the folder REAL_DATA. `python -m tests.authors_prep` prints a table; the tests in
`tests/library/laws/test_authors_prep.py` require that all items agree. Other folders with the same keys can be compared
too.

Reasons of the tolerances:

- EXACT: integers, and float64 numbers that differ by rounding only.
- SINGLE: the release computes them in float32, also the thresholds of isotonic regression.
- ADAM: MRP and its relatives after 400 epochs in float32, whose rounding errors add up.
- HCAL_LOSS: the release's sort leaves events with the same float32 probability in any order. This changes the moving
  averages.
- HCAL_FIT: Adam amplifies these differences in each epoch; slopes of segments with few events differ most.
- DIAG: the release stops L-BFGS before the optimum, and the project does not.
- INTERCEPT: the same, for up to 80 iterations.
- TIES: the release ranks tied rows in the order of the file, and the project averages over all orders.
- NULL: the 95th percentile of 200 shuffles has a standard error of about 4%, and the shuffles differ.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from scipy.special import expit, logit

from relmap.calibrators import hcalibration, smart
from relmap.calibrators.diagonal import fit_diagonal
from relmap.calibrators.hcalibration import MAX_SURPRISAL, Pieces, TrainingEvents, fit_hcal
from relmap.calibrators.identity import Identity, floored_log_softmax, log_softmax
from relmap.calibrators.registry import CALIBRATORS
from relmap.calibrators.spline import PublishedSpline, fit_published_spline
from relmap.calibrators.temperature import Temperature
from relmap.decisions import (
    CalibratedDecisions,
    Calibrator,
    LabelledDecisions,
    ProtocolDecisions,
    clip_log_probabilities,
    clip_logits,
    decide,
)
from relmap.metrics.probability import ece
from relmap.metrics.registry import ProbabilityView, compute_reliability_metrics, metrics_for_views
from relmap.metrics.spread import LabelCells, assign_confidence_groups
from relmap.projection import labelwise
from relmap.projection.registry import fit_variants
from relmap.projection.rows import FitBatch, split_validation
from relmap.projection.simplex import project_simplex
from relmap.settings import METRIC_DEFAULTS, ProjectionParams, ProtocolParams

FOLDER = Path(os.environ.get("REAL_DATA", "nowhere")) / "authors_prep"
CLIP = 1e-6
PARAMS = METRIC_DEFAULTS.model_copy(update={"smallest_probability": CLIP, "smallest_reliability": CLIP})
EXACT = 1e-9
SINGLE = 2e-5
ADAM = 1e-2
HCAL_LOSS = 5e-3
HCAL_FIT = 1e-3
DIAG = 1e-3
INTERCEPT = 2e-3
TIES = 4e-2
NULL = 2e-2
VARIANTS = {
    "confidence": "confidence",
    "intercept": "label_intercept",
    "isotonic": "label_isotonic",
    "shared": "shared_1d",
    "mrp": "mrp",
    "surface": "label_2d",
}
Arrays = Mapping[str, np.ndarray]


class Comparison(NamedTuple):
    """An item that the release and the project compute.

    Attributes:
        item: Key of the item.
        deviation: Largest absolute difference of its numbers; relative for losses.
        tolerance: Largest deviation that counts as agreement.
    """

    item: str
    deviation: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the deviation is within the tolerance; NaN is not."""
        return bool(self.deviation <= self.tolerance)


def compare(item: str, measured: object, expected: object, tolerance: float = EXACT) -> Comparison:
    """Compare numbers of equal shape; two NaN are equal."""
    found = np.asarray(measured, dtype=np.float64)
    wanted = np.asarray(expected, dtype=np.float64)
    if found.shape != wanted.shape:
        return Comparison(item, np.inf, tolerance)
    both_missing = np.isnan(found) & np.isnan(wanted)
    difference = np.where(both_missing | (found == wanted), 0, np.abs(found - wanted))
    return Comparison(item, float(difference.max(initial=0)), tolerance)


def read_arrays(name: str) -> dict[str, np.ndarray]:
    """Read all arrays of a file."""
    with np.load(FOLDER / name, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def list_label_counts(inputs: Arrays) -> list[int]:
    """List the numbers of labels K in the inputs."""
    found = [re.fullmatch(r"logits_k(\d+)_fit", key) for key in inputs]
    return [int(match[1]) for match in found if match]


def make_decisions(logits: np.ndarray, labels: np.ndarray) -> ProtocolDecisions:
    """Decide rows without groups."""
    logits = logits.astype(np.float64)
    group = np.arange(len(labels)).astype(str)
    return ProtocolDecisions(decision=decide(logits), logits=logits, label=labels, group=group)


def compare_protocol() -> Iterator[Comparison]:
    """Compare the split of the validation rows."""
    expected = json.loads((FOLDER / "protocol_expected.json").read_text())
    protocol = ProtocolParams(parts=(0.5, 0.25, 0.25), projection_cap=10**6, temperature_rows="validation", split="row")
    for n_rows, sizes in expected["sizes_by_n"].items():
        parts = split_validation(int(n_rows), 1, protocol)
        yield compare(f"sizes, n = {n_rows}", [len(part) for part in parts], sizes)
    for key, rows in expected["rows"].items():
        match = re.fullmatch(r"n(\d+)_seed(\d+)_cap(\d+)", key)
        assert match
        capped = protocol.model_copy(update={"projection_cap": int(match[3])})
        parts = split_validation(int(match[1]), int(match[2]), capped)
        for name, part, expected_part in zip(parts._fields, parts, rows, strict=True):
            yield compare(f"rows, {key}, {name}", part, expected_part)
    for key, runs in expected.items():
        match = re.fullmatch(r"label_spread_rows_n(\d+)", key)
        if not match:
            continue
        for run, rows in runs.items():  # the label spread uses the calibrator-fit rows only
            part = split_validation(int(match[1]), int(run), protocol).calibrator_fit
            yield compare(f"label spread, calibrator-fit rows, run {run}", part, rows[0])


def compare_hcalibration() -> Iterator[Comparison]:
    """Compare mapping, loss and fit of h-calibration."""
    inputs = read_arrays("numeric_inputs.npz")
    expected = read_arrays("hcal_expected.npz")
    slopes = expected["slopes"].astype(np.float64)
    identity = np.ones(len(slopes))
    first = identity.copy()
    first[0] = 1.2
    second = identity.copy()
    second[1] = 1.2
    grid = expected["grid"].astype(np.float64)
    grids = {
        "grid_out": slopes,
        "grid_out_identity": identity,
        "slopes_only_first_changed_1p2_out": first,
        "slopes_only_second_changed_1p2_out": second,
    }
    n_segments = len(slopes) - 1

    def map_values(used_slopes: np.ndarray, surprisal: np.ndarray) -> np.ndarray:
        segment = hcalibration._locate_segment(surprisal, n_segments)
        return Pieces.from_slopes(used_slopes).map(surprisal, segment)

    for key, used_slopes in grids.items():
        yield compare(key, map_values(used_slopes, grid), expected[key], SINGLE)
    assert n_segments * 2 == MAX_SURPRISAL
    for k in list_label_counts(inputs):
        fit_logits = inputs[f"logits_k{k}_fit"].astype(np.float64)
        labels = inputs[f"labels_k{k}_fit"]
        test_logits = inputs[f"logits_k{k}_test"].astype(np.float64)
        yield compare(f"start_k{k}_fit", floored_log_softmax(fit_logits), expected[f"start_k{k}_fit"], SINGLE)
        mapped = map_values(slopes, -log_softmax(floored_log_softmax(test_logits)))
        yield compare(f"mapped_by_slopes_k{k}_test", -mapped, expected[f"mapped_by_slopes_k{k}_test"], SINGLE)
        surprisal = np.ascontiguousarray(-log_softmax(floored_log_softmax(fit_logits)))
        events = TrainingEvents(surprisal, hcalibration._locate_segment(surprisal, n_segments), labels)
        for name, used_slopes in (("identity", identity), ("slopes", slopes)):
            for window in (200, 20):
                key = f"loss_{name}_window{window}_k{k}_fit"
                loss = hcalibration._mapping_loss(used_slopes, events, window + 1)[0]
                yield compare(f"{key}, relative", loss / expected[key], 1, HCAL_LOSS)
        fitted = fit_hcal(fit_logits, labels, seed=2027)
        probabilities = np.exp(fitted(test_logits))
        key = f"fitted_probabilities_k{k}_test"
        yield compare(key, probabilities, expected[key], HCAL_FIT)
        assert fitted.first_slope is not None
        fitted_slopes = np.append(fitted.first_slope, fitted.factors)
        key = f"fitted_slopes_k{k}"
        yield compare(key, fitted_slopes, np.abs(expected[key]), 10 * HCAL_FIT)


def torch_start() -> np.ndarray:
    """Return the parameters with which the network of SMART starts in the release (PyTorch seed 2027)."""
    torch.manual_seed(2027)
    hidden = smart.N_HIDDEN
    layers = (torch.nn.Linear(1, hidden), torch.nn.Linear(hidden, hidden), torch.nn.Linear(hidden, 1))
    parameters = []
    for layer in layers:
        parameters += [layer.weight.detach().numpy().ravel(), layer.bias.detach().numpy()]
    return np.concatenate(parameters).astype(np.float64)


def compare_calibrators() -> Iterator[Comparison]:
    """Compare DIAG, Spline and SMART."""
    inputs = read_arrays("numeric_inputs.npz")
    expected = read_arrays("calibrators_expected.npz")
    grid = np.linspace(0, 1, 101)
    for k in list_label_counts(inputs):
        fit_logits = inputs[f"logits_k{k}_fit"].astype(np.float64)
        labels = inputs[f"labels_k{k}_fit"]
        test_logits = inputs[f"logits_k{k}_test"].astype(np.float64)
        diagonal = fit_diagonal(fit_logits, labels, seed=1)
        key = f"diag_probabilities_k{k}_test"
        yield compare(key, np.exp(diagonal(test_logits)), expected[key], DIAG)
        yield compare(f"diag_scales_k{k}", diagonal.factors, expected[f"diag_scales_k{k}"], 5 * DIAG)
        spline = fit_published_spline(fit_logits, labels, seed=1)
        yield compare(f"spline_map_k{k}", spline.calibrate_confidence(grid), expected[f"spline_map_k{k}"])
        key = f"spline_probabilities_k{k}_test"
        yield compare(key, np.exp(spline(test_logits)), expected[key], SINGLE)
        with patch.object(smart, "initial_parameters", lambda _seed: torch_start()):
            network = smart.fit_smart(fit_logits, labels, seed=1)
        key = f"smart_probabilities_k{k}_test"
        yield compare(key, np.exp(network(test_logits)), expected[key], SINGLE)
        key = f"smart_gap_mean_std_k{k}"
        yield compare(key, [network.mean, network.deviation], expected[key], SINGLE)
        first_rows = inputs[f"logits_k{k}_fit"][:20].astype(np.float64)
        constant = fit_published_spline(first_rows, decide(first_rows), seed=1)
        assert isinstance(constant, PublishedSpline)
        value = constant.calibrate_confidence(np.array(0.5))
        yield compare(f"spline_constant_if_all_correct, k{k}", value, expected["spline_constant_if_all_correct"])


def compare_projection() -> Iterator[Comparison]:
    """Compare decisions, confidences, and the variants with their metrics."""
    inputs = read_arrays("numeric_inputs.npz")
    expected = read_arrays("projection_expected.npz")
    for k in list_label_counts(inputs):
        parts = {
            part: make_decisions(inputs[f"logits_k{k}_{part}"], inputs[f"labels_k{k}_{part}"])
            for part in ("fit", "selection", "test")
        }
        for part, decisions in parts.items():
            yield compare(f"k{k}_{part}_decision", decisions.decision, expected[f"k{k}_{part}_decision"])
            yield compare(f"k{k}_{part}_correct", decisions.correct, expected[f"k{k}_{part}_correct"])
        views: dict[str, Calibrator] = {"raw": Identity(), "ts": Temperature(1 / 3)}
        for view, calibrator in views.items():
            if f"k{k}_{view}_test_confidence" in expected:
                yield from _compare_view(f"k{k}_{view}", calibrator, parts, expected)


def _compare_view(
    prefix: str, calibrator: Calibrator, parts: Mapping[str, ProtocolDecisions], expected: Arrays
) -> Iterator[Comparison]:
    for part, decisions in parts.items():
        clipped = CalibratedDecisions.from_calibrator(calibrator, decisions).clip(CLIP)
        key = f"{prefix}_{part}"
        yield compare(f"{key}_confidence", clipped.confidence, expected[f"{key}_confidence"])
        yield compare(f"{key}_gap", clipped.gap, expected[f"{key}_gap"], 1e-7)
    batch = FitBatch(
        fit_rows=LabelledDecisions.from_calibrators([calibrator], parts["fit"], CLIP),
        n_labels=parts["fit"].n_labels,
        settings=ProjectionParams(minimum_rows=0),
        selection_rows=LabelledDecisions.from_calibrators([calibrator], parts["selection"], CLIP),
    )
    yield from _compare_shifts(prefix, batch, expected)
    variants = {name: models[0] for name, models in fit_variants(batch, tuple(VARIANTS.values())).items()}
    knot_values = {
        "shared": variants["shared_1d"].curves.values[:1],
        "mrp": variants["mrp"].values,
        "surface": variants["label_2d"].values,
    }
    for name, values in knot_values.items():
        yield compare(f"{prefix}_{name}_knot_values", values, expected[f"{prefix}_{name}_knot_values"], ADAM)
    gap_knots = variants["label_2d"].gap_knots
    yield compare(f"{prefix}_surface_gap_range", gap_knots[[0, -1]], expected[f"{prefix}_surface_gap_range"], 1e-5)
    test = CalibratedDecisions.from_calibrator(calibrator, parts["test"]).clip(CLIP)
    for name, variant in VARIANTS.items():
        reliability_logit = clip_logits(variants[variant](test), CLIP)
        tolerance = {"confidence": EXACT, "isotonic": SINGLE, "intercept": INTERCEPT}.get(name, ADAM)
        key = f"{prefix}_{name}_test_q"
        yield compare(key, expit(reliability_logit), expected[key], tolerance)
        wanted = dict(zip(expected["metric_names"], expected[f"{prefix}_{name}_metrics"], strict=True))
        yield from _compare_metrics(f"{prefix}_{name}", reliability_logit, parts["test"].correct, wanted, tolerance)


def _compare_metrics(
    prefix: str, reliability_logit: np.ndarray, correct: np.ndarray, wanted: Mapping[str, float], tolerance: float
) -> Iterator[Comparison]:
    """Compare metrics; those of the ranking also with the tied rows in the order of the file."""
    metrics = compute_reliability_metrics(reliability_logit, correct, PARAMS)
    reliability = expit(reliability_logit)
    yield compare(f"{prefix}, NLL", metrics["nll_correct"], wanted["Binary_NLL"], tolerance)
    yield compare(f"{prefix}, ECE", ece(reliability, correct), wanted["Binary_ECE"], tolerance)
    wrong = ~correct[np.argsort(-reliability_logit, kind="stable")]
    ranks = np.arange(1, len(wrong) + 1)
    riskiest_first = ~correct[np.argsort(reliability_logit, kind="stable")]
    precision = riskiest_first.cumsum() / ranks
    in_file_order = {
        "AURC": (wrong.cumsum() / ranks).mean(),
        "Wrong_AUPRC": precision[riskiest_first].mean(),
    }
    expectations = {"AURC": metrics["aurc"], "Wrong_AUPRC": metrics["aupr_error"]}
    for tenths in (1, 5, 7, 9):
        n_retained = -(-len(wrong) * tenths // 10)
        in_file_order[f"SelAcc{tenths}0"] = 1 - wrong[:n_retained].mean()
        expectations[f"SelAcc{tenths}0"] = metrics[f"selacc_{tenths}0"]
    for name, value in in_file_order.items():
        yield compare(f"{prefix}, {name} in file order", value, wanted[name], max(tolerance, 1e-6))
        yield compare(f"{prefix}, {name}", expectations[name], wanted[name], TIES)


def _compare_shifts(prefix: str, batch: FitBatch, expected: Arrays) -> Iterator[Comparison]:
    """Compare the shifts of each penalty, and the chosen penalty."""
    wanted = expected[f"{prefix}_shift_by_lambda"]
    losses = []
    for penalty, shifts in zip(expected["lambdas"], wanted, strict=True):
        with patch.object(labelwise, "PENALTIES", (float(penalty),)):
            (fitted,) = labelwise.fit_intercepts(batch)
        yield compare(f"{prefix}_shift_by_lambda, {penalty:g}", fitted.alpha, shifts, INTERCEPT)
        assert batch.selection_rows is not None
        decisions = batch.selection_rows.by_calibrator[0]
        losses.append(labelwise.correctness_log_loss(fitted(decisions), batch.selection_rows.correct).mean())
    key = f"{prefix}_selection_loss_by_lambda"
    yield compare(key, losses, expected[key], INTERCEPT)
    (chosen,) = labelwise.fit_intercepts(batch)
    by_lambda = dict(zip(expected["lambdas"].tolist(), wanted, strict=True))
    expected_shifts = by_lambda[float(expected[f"{prefix}_chosen_lambda"])]
    yield compare(f"{prefix}_chosen_lambda, its shifts", chosen.alpha, expected_shifts, INTERCEPT)


def compare_simplex() -> Iterator[Comparison]:
    """Compare MRC and its metrics."""
    inputs = read_arrays("numeric_inputs.npz")
    expected = read_arrays("mrc_expected.npz")
    names = {"FixedECE": "ece", "TopECE": "top_ece", "NLL": "nll", "Brier": "brier"}
    prefixes = [key.removesuffix("_probabilities") for key in expected if key.endswith("_probabilities")]
    for prefix in prefixes:
        labels = inputs[f"labels_{prefix.split('_')[0]}_test"]
        decision = expected[f"{prefix}_decision"]
        q = np.clip(expected[f"{prefix}_q"], CLIP, 1 - CLIP)
        with np.errstate(divide="ignore"):
            log_p = np.log(expected[f"{prefix}_probabilities"])
        projection = project_simplex(clip_log_probabilities(log_p, CLIP), decision, logit(q))
        projected = np.exp(projection.log_probabilities)
        yield compare(f"{prefix}_projected", projected, expected[f"{prefix}_projected"], 1e-8)
        row = np.arange(len(labels))
        solved = projection.solved
        reachable = np.clip(q, 1 / projected.shape[1] + 1e-7, None)
        stats = {
            "q_below_uniform_rate": 1 - projection.feasible.mean(),
            "fixed_not_base_top_rate": 1 - solved.mean(),
            "solved_rate": solved.mean(),
            "mean_abs_target_error": np.abs(projected[row, decision] - reachable).mean(),
            "mean_alpha": projection.alpha[solved].mean(),
        }
        wanted_stats = dict(zip(expected["stat_names"], expected[f"{prefix}_stats"], strict=True))
        for name, value in stats.items():
            yield compare(f"{prefix}, {name}", value, wanted_stats[name], 1e-6)
        for part, log_probabilities in (("base", log_p), ("projected", projection.log_probabilities)):
            view = ProbabilityView(decision == labels, PARAMS, None, decision, log_probabilities, labels)
            values = {metric.key: metric.function(view) for metric in metrics_for_views(ProbabilityView)}
            wanted = dict(zip(expected["metric_names"], expected[f"{prefix}_{part}_metrics"], strict=True))
            for name, key in names.items():
                yield compare(f"{prefix}, {part}, {name}", values[key], wanted[name], 1e-8)


def compare_label_spread() -> Iterator[Comparison]:
    """Compare confidence groups, label spread and its null distribution."""
    expected = read_arrays("label_spread_expected.npz")
    confidence = expected["confidence"]
    groups = assign_confidence_groups(confidence, METRIC_DEFAULTS.spread_groups)
    yield compare("bin", groups, expected["bin"])
    cells = LabelCells.from_decisions(confidence, expected["decision"].astype(np.int64), expected["correct"] != 0)
    yield compare("spread", cells.spread(), expected["spread"])
    n_counted = (cells.rows >= METRIC_DEFAULTS.spread_minimum_cell).sum(axis=1)
    yield compare("n_used_bins", (n_counted > 1).sum(), expected["n_used_bins"])
    shuffled = cells.shuffled_spreads(int(expected["permutation_seed"]))
    yield compare("null_p95", np.quantile(shuffled, 0.95), expected["null_p95"], NULL)
    yield compare("null_mean", shuffled.mean(), expected["null_mean"], NULL / 2)
    p_value = (1 + np.count_nonzero(shuffled >= cells.spread())) / (1 + len(shuffled))
    yield compare("p_value", p_value, expected["p_value"], 2 * NULL)


COMPARISONS = {
    "protocol": compare_protocol,
    "h-calibration": compare_hcalibration,
    "calibrators": compare_calibrators,
    "projection": compare_projection,
    "MRC": compare_simplex,
    "label spread": compare_label_spread,
}


def main() -> None:
    """Print a table of all comparisons, and the items that do not agree."""
    assert CALIBRATORS["spline"].published_fit is fit_published_spline
    print("| part | items | agreeing | largest share of its tolerance | item |\n|---|---|---|---|---|")
    for name, function in COMPARISONS.items():
        comparisons = list(function())
        agreeing = [comparison for comparison in comparisons if comparison.agrees]
        worst = max(comparisons, key=lambda comparison: comparison.deviation / comparison.tolerance)
        share = worst.deviation / worst.tolerance
        print(f"| {name} | {len(comparisons)} | {len(agreeing)} | {share:.2g} | {worst.item}: {worst.deviation:.2g} |")
        for comparison in comparisons:
            if not comparison.agrees:
                print(f"  {comparison.item}: {comparison.deviation:.3g} > {comparison.tolerance:g}")


if __name__ == "__main__":
    main()
