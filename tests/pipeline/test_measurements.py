"""Metrics and lattices of a few made-up rows, averages over members, and MRC with another power.

MRC raises probabilities to a power. For rows whose decision is not the most probable label, the power is a setting.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

from relmap.decisions import ProtocolDecisions, decide
from relmap.metrics.registry import METRICS
from relmap.metrics.spread import LabelCells
from relmap.projection.mrp import Confidence, Curves, SharedCurve
from relmap.projection.simplex import project_simplex
from relmap.settings import METRIC_DEFAULTS
from tasks import project, write
from tasks.measure import change_off_top_alpha
from tasks.results.measurements import (
    average_calibrated_members,
    average_members,
    compute_metrics,
    find_affected_metrics,
)
from tasks.results.values import ProjectedDecisions, SeedResults

SPREADS = {"label_spread", "label_spread_null_p95"}
LABELS = np.array([0, 1, 2, 2, 1, 0])
LOGITS = np.array(
    [
        [2.0, 0.5, -1.0],
        [0.25, 1.5, 0.5],
        [-0.5, 0.75, 1.0],
        [1.0, 0.9, -2.0],
        [0.0, 0.125, 0.0],
        [3.0, -1.0, 2.5],
    ]
)


def make_decisions(logits: np.ndarray = LOGITS) -> ProtocolDecisions:
    return ProtocolDecisions(decision=decide(logits), logits=logits, label=LABELS, group=np.array([*"aabbcc"]))


def make_projection(decision: np.ndarray, off_top_alpha: float = 1.0) -> ProjectedDecisions:
    """Project the rows of LOGITS with given decisions, which need not be the most probable labels."""
    log_probabilities = log_softmax(LOGITS / 2, axis=1)
    reliability = np.array([0.5, -0.25, 1.0, 2.0, 0.75, -3.0])
    return ProjectedDecisions(
        calibrator="ts",
        decision=decision,
        log_probabilities=log_probabilities,
        reliability_logits={"confidence": reliability / 2, "mrp": reliability},
        lattices={},
        simplex=project_simplex(log_probabilities, decision, reliability, off_top_alpha=off_top_alpha),
        objective_excess=0.0,
        kkt_residual=0.0,
        violations=(),
    )


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("ece_bins", 16, {"ece", "top_ece"}),
        ("ties", "threshold", {"aupr_error"}),
        ("smallest_probability", 1e-3, {"ece", "top_ece", "nll", "brier", *SPREADS}),
        ("smallest_reliability", 1e-3, {"nll_correct"}),
        ("spread_groups", 5, SPREADS),
        ("spread_minimum_cell", 5, SPREADS),
        ("spread_permutations", 5, {"label_spread_null_p95"}),
        ("resamples", 999, set()),
        ("ece_bins", METRIC_DEFAULTS.ece_bins, set()),
    ],
)
def test_a_setting_affects_the_metrics_that_use_it(setting, value, expected):
    other = METRIC_DEFAULTS.model_copy(update={setting: value})
    assert find_affected_metrics(METRIC_DEFAULTS, other) == expected


def test_several_settings_affect_all_metrics_that_use_one_of_them():
    other = METRIC_DEFAULTS.model_copy(update={"ece_bins": 16, "ties": "threshold"})
    assert find_affected_metrics(METRIC_DEFAULTS, other) == {"ece", "top_ece", "aupr_error"}


def test_all_metrics_are_computed_and_only_the_label_spread_uses_its_own_probabilities():
    projection = make_projection(decide(LOGITS))
    settings = METRIC_DEFAULTS.model_copy(update={"spread_groups": 1, "spread_minimum_cell": 1})
    spread_probabilities = np.roll(projection.log_probabilities, 1, axis=1)
    default = compute_metrics(projection, LABELS, settings)
    changed = compute_metrics(projection, LABELS, settings, spread_probabilities=spread_probabilities)
    default_values = {(variant, metric): value for variant, metric, value in default}
    changed_values = {(variant, metric): value for variant, metric, value in changed}
    assert {metric for _, metric in default_values} == set(METRICS)
    assert list(changed_values) == list(default_values)
    for (variant, metric), value in default_values.items():
        if metric not in SPREADS:
            assert changed_values[variant, metric] == value
    spread = default_values["confidence", "label_spread"]
    assert np.isfinite(spread)
    assert changed_values["confidence", "label_spread"] != spread


def test_only_the_requested_metrics_are_computed():
    measurements = compute_metrics(
        make_projection(decide(LOGITS)), LABELS, METRIC_DEFAULTS, metric_keys=("nll", "aurc")
    )
    assert [measurement[:2] for measurement in measurements] == [
        ("confidence", "nll"),
        ("mrc", "nll"),
        ("confidence", "aurc"),
        ("mrp", "aurc"),
    ]


def test_the_label_spread_uses_the_most_probable_label_of_the_calibrator_and_not_the_fixed_decision():
    fixed = make_projection((decide(LOGITS) + 1) % 3)
    settings = METRIC_DEFAULTS.model_copy(update={"spread_groups": 1, "spread_minimum_cell": 1})
    values = {
        metric: value for variant, metric, value in compute_metrics(fixed, LABELS, settings) if variant == "confidence"
    }
    probabilities = np.exp(fixed.log_probabilities)
    top = probabilities.argmax(axis=1)
    expected = LabelCells.from_decisions(probabilities.max(axis=1), top, top == LABELS, settings).spread()
    assert values["label_spread"] == pytest.approx(expected)


def test_members_are_averaged_before_a_calibrator_is_fitted():
    members = [make_decisions(LOGITS), make_decisions(LOGITS[:, ::-1] * 3), make_decisions(LOGITS[::-1] / 2)]
    averaged = average_members(members)
    mean = sum(softmax(member.logits, axis=1) for member in members) / 3
    np.testing.assert_allclose(averaged.logits, np.log(mean + 1e-12))
    assert averaged.decision.tolist() == mean.argmax(axis=1).tolist()
    assert averaged.label is members[0].label


def test_calibrated_members_are_averaged():
    members = [make_decisions(LOGITS), make_decisions(LOGITS[:, ::-1] * 3)]
    calibrators = [lambda logits: log_softmax(logits / 2, axis=1), lambda logits: log_softmax(logits * 3, axis=1)]
    averaged = average_calibrated_members(members, calibrators)
    expected = (softmax(LOGITS / 2, axis=1) + softmax(LOGITS[:, ::-1] * 9, axis=1)) / 2
    np.testing.assert_allclose(np.exp(averaged), expected)


def test_a_label_with_probability_zero_for_all_members_causes_no_warning():
    certain = np.array([[0.0, -np.inf, -np.inf]] * 6)
    np.testing.assert_array_equal(average_calibrated_members([make_decisions()], [lambda _: certain]), certain)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 2.0])
def test_changing_the_power_equals_projecting_with_the_new_power(alpha):
    decision = np.array([0, 0, 1, 0, 2, 2])  # the second, third, fifth and last are not the most probable
    changed = change_off_top_alpha(make_projection(decision), alpha, clip=0.0)
    expected = make_projection(decision, alpha).simplex
    assert expected.solved.tolist() == [True, False, False, True, False, False]
    for field in ("log_probabilities", "alpha", "feasible", "solved"):
        np.testing.assert_array_equal(getattr(changed, field), getattr(expected, field))


def test_changing_the_power_leaves_the_original_projection_unchanged():
    decision = np.array([0, 0, 1, 0, 2, 2])
    projection = make_projection(decision)
    change_off_top_alpha(projection, 0.25, clip=0.0)
    expected = make_projection(decision).simplex
    np.testing.assert_array_equal(projection.simplex.alpha, expected.alpha)
    np.testing.assert_array_equal(projection.simplex.log_probabilities, expected.log_probabilities)


def test_the_probability_of_a_projected_decision_is_its_reliability():
    decision = np.array([0, 0, 1, 0, 2, 2])
    projection = make_projection(decision)
    simplex = projection.simplex
    projected = simplex.solved & simplex.feasible
    probability = np.exp(simplex.log_probabilities[np.arange(6), decision])
    np.testing.assert_allclose(probability[projected], expit(projection.reliability_logits["mrp"][projected]))


def fake_model(*violations: str) -> Any:
    return SimpleNamespace(violations=lambda: list(violations))


def test_violations_are_listed_with_their_variant():
    models = {"mrp": fake_model("a", "b"), "label_platt": fake_model(), "shared_1d": fake_model("c")}
    assert project._list_violations(models) == ("mrp: a", "mrp: b", "shared_1d: c")


def test_only_variants_that_are_curves_have_lattices():
    own_curves = Curves(
        knots=np.array([0.0, 0.25, 1.0]),
        values=np.array([[-1.0, 0.5, 3.0]]),
        rows=np.array([50]),
        fallback=("none",),
    )
    shared_curve = replace(own_curves, values=np.array([[-1.0, 0.75, 3.0]]))
    models = {"mrp": own_curves, "confidence": Confidence(), "shared_1d": SharedCurve(shared_curve)}
    lattices = project._select_curves(models)
    assert [*lattices] == ["mrp", "shared_1d"]
    assert lattices["mrp"] is own_curves
    assert lattices["shared_1d"] is shared_curve


def make_lattice(*values: list[float], rows: list[int], fallback: list[str]) -> Any:
    """Make a lattice with one list of values for each curve."""
    return SimpleNamespace(knots=np.array([0.0, 0.25, 1.0]), values=np.array(values), rows=rows, fallback=fallback)


def test_lattices_are_listed_with_their_values_rows_and_fallbacks():
    one_curve = make_lattice([1.0, 2.0, 4.0], rows=[70], fallback=["none"])
    two_curves = make_lattice([1.0, 2.0, 3.0], [-1.0, 0.5, 0.75], rows=[60, 7], fallback=["none", "shared"])
    results = []
    for seed in (3, 1):
        projections = [
            SimpleNamespace(calibrator="ts", lattices={"mrp": two_curves, "shared_1d": one_curve}),
            SimpleNamespace(calibrator="uncal", lattices={}),
        ]
        results.append(SeedResults(seed, projections, rows_per_label=(), fallbacks=(), gate_records=[]))
    listed = write.list_lattices(results, ("bad", "good"))
    assert [(lattice["seed"], lattice["variant"]) for lattice in listed] == [
        (3, "mrp"),
        (3, "shared_1d"),
        (1, "mrp"),
        (1, "shared_1d"),
    ]
    knots = [0.0, 0.25, 1.0]
    assert listed[2:] == [
        {
            "calibrator": "ts",
            "seed": 1,
            "variant": "mrp",
            "knots": knots,
            "curves": [
                {"label": "bad", "values": [1.0, 2.0, 3.0], "rows": 60, "fallback": "none"},
                {"label": "good", "values": [-1.0, 0.5, 0.75], "rows": 7, "fallback": "shared"},
            ],
        },
        {
            "calibrator": "ts",
            "seed": 1,
            "variant": "shared_1d",
            "knots": knots,
            "curves": [{"label": "every label", "values": [1.0, 2.0, 4.0], "rows": 70, "fallback": "none"}],
        },
    ]


def test_the_label_spread_of_a_run_with_other_rows_uses_the_labels_of_these_rows():
    """All other metrics stay those of the rows of the tables."""
    projection = make_projection(decide(LOGITS))
    settings = METRIC_DEFAULTS.model_copy(update={"spread_groups": 1, "spread_minimum_cell": 1})
    other_rows = np.tile(np.arange(len(LABELS)), 2)[1:]
    expected = compute_metrics(projection, LABELS, settings)
    found = compute_metrics(
        projection,
        LABELS,
        settings,
        spread_probabilities=projection.log_probabilities[other_rows],
        spread_labels=LABELS[other_rows],
    )
    for (variant, metric, value), (_, _, found_value) in zip(expected, found, strict=True):
        if metric == "label_spread":
            assert found_value != value
        elif metric not in SPREADS:
            np.testing.assert_equal(found_value, value, err_msg=f"{variant} {metric}")
