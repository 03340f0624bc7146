"""Fallbacks of label-wise variants, and the registry."""

import numpy as np
import pytest
from scipy.special import expit

from relmap.projection import registry as variants
from relmap.projection.registry import VARIANTS, variants_with_role
from relmap.settings import ProjectionParams
from tests.fits import make_batch


def simulate_batch_rows(n_fits: int = 2, n_rows: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(4)
    confidence_logit = np.round(generator.normal(size=(n_fits, n_rows)), 1)
    return confidence_logit, generator.integers(0, 3, n_rows), generator.random(n_rows) < 0.6


def test_rows_of_a_label_are_sorted_by_confidence_then_by_correctness():
    confidence_logit, decision, correct = simulate_batch_rows()
    batch = make_batch((confidence_logit, decision, correct.astype(int)), 4)
    for fit, labels in enumerate(batch.rows_by_label):
        assert len(labels) == 4
        for label, rows in enumerate(labels):
            is_label = decision == label
            expected = sorted(zip(confidence_logit[fit, is_label], correct[is_label], strict=True))
            assert [*zip(rows.confidence_logit, rows.correct, strict=True)] == expected
            assert (rows.confidence_logit.dtype, rows.correct.dtype) == (np.float64, np.bool_)
    assert batch.rows_per_label.tolist() == np.bincount(decision, minlength=4).tolist()
    assert batch.n_fits == 2


def test_rows_of_a_lattice_have_their_label_or_share_one():
    confidence_logit, decision, correct = simulate_batch_rows()
    batch = make_batch((confidence_logit, decision, correct), 3)
    for is_shared, expected in ((False, decision), (True, np.zeros(40))):
        for fit, rows in enumerate(batch.lattice_rows(shared=is_shared)):
            np.testing.assert_allclose(rows.confidence, expit(confidence_logit[fit]))
            np.testing.assert_array_equal(rows.decision, expected)
            np.testing.assert_array_equal(rows.correct, correct)


@pytest.mark.parametrize(("minimum_rows", "uses_shared"), [(0, False), (100, True)])
def test_the_shared_curve_is_fitted_only_if_a_label_uses_it(minimum_rows, uses_shared):
    settings = ProjectionParams(minimum_rows=minimum_rows, knots=5)
    batch = make_batch(simulate_batch_rows(), 3, settings)
    shared = np.arange(10.0).reshape(2, 5)
    vars(batch)["shared_values"] = shared
    np.testing.assert_array_equal(batch.fallback_values, shared if uses_shared else np.zeros((2, 5)))


REGISTRY = {  # key -> title, role, color, whether a map can contain it
    "confidence": ("confidence", "paper", "confidence", True),
    "shared_1d": ("shared 1D", "paper", "", True),
    "label_intercept": ("label intercept", "paper", "", True),
    "label_isotonic": ("label isotonic", "paper", "isotonic", True),
    "label_platt": ("label Platt", "rival", "platt", True),
    "mrp": ("MRP", "paper", "mrp", True),
    "label_2d": ("label-wise 2D", "paper", "", False),
    "mrp_exact": ("MRP, optimum", "sensitivity", "", True),
    "mrp_pooled": ("MRP, pooled", "rival", "", True),
}


def test_the_registry_lists_where_each_variant_is_used():
    found = {}
    for key, variant in VARIANTS.items():
        found[key] = (variant.title, variant.role, variant.color, bool(variant.description))
    assert found.items() >= REGISTRY.items()  # a new variant changes nothing here
    rivals = [key for key in variants_with_role("rival") if key in REGISTRY]
    assert rivals == ["label_platt", "mrp_pooled"]
    others = [key for key in variants_with_role("sensitivity", "rival") if key in REGISTRY]
    assert others == ["label_platt", "mrp_exact", "mrp_pooled"]
    assert REGISTRY.keys() & variants.DEPLOYABLE_VARIANTS == REGISTRY.keys() - {"label_2d"}
