"""`ReliabilityMap` passes the estimator checks of scikit-learn, except the listed ones."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from relmap import ReliabilityMap
from tests.maps import limit_resamples, make_predictions

ONE_LABEL = "a map needs rows of two labels"
ROWS = make_predictions(600)
LOGITS = np.array(ROWS["logits"].to_list())
LABEL = ROWS["label"].to_numpy()
PROBABILITIES = softmax(LOGITS, axis=1)
GROUP = np.arange(600) // 10


class MapOfDistances(ReliabilityMap):
    """A map for data with features; the logit of a label is minus the squared distance to its mean."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> "MapOfDistances":
        features, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"there is only one class; {ONE_LABEL}")
        self.means_ = np.array([features[codes == code].mean(axis=0) for code in range(len(classes))])
        n_features = self.n_features_in_
        super().fit(self._logits(features), codes, groups)
        self.classes_ = classes
        self.n_features_in_ = n_features
        return self

    def _logits(self, features: np.ndarray) -> np.ndarray:
        return -((features[:, None, :].astype(float) - self.means_) ** 2).sum(axis=2)

    def predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "means_")
        return super().predict(self._logits(validate_data(self, X, reset=False)))

    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        codes = np.searchsorted(self.classes_, y)
        features = validate_data(self, X, reset=False)
        return ReliabilityMap.score(self._as_codes(), self._logits(features), codes, groups)

    def _as_codes(self) -> ReliabilityMap:
        """Return the map with the labels 0..K-1."""
        plain = ReliabilityMap(**super().get_params(deep=False))
        plain.__dict__.update(self.__dict__, classes_=np.arange(len(self.classes_)))
        return plain


WITH_CLASSIFIER = ReliabilityMap(classifier=LogisticRegression())
MAP_OF_DISTANCES = MapOfDistances(arrays="logits", accept_label_order=True)
ESTIMATORS = {"classifier": WITH_CLASSIFIER, "arrays": MAP_OF_DISTANCES}


def failed_checks(estimator: ReliabilityMap) -> dict[str, Exception]:
    """Return the checks of scikit-learn that fail, with what they raise."""
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(results) > 40
    return {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}


@pytest.mark.filterwarnings("ignore")  # checks fit on degenerate data
@pytest.mark.parametrize("mode", ESTIMATORS)
def test_all_estimator_checks_pass(mode, monkeypatch):
    limit_resamples(monkeypatch, 20)
    failed = failed_checks(ESTIMATORS[mode])
    assert not failed, failed


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_fitted_map_has_feature_names_and_count(kind):
    features = pd.DataFrame(LOGITS, columns=["a", "b", "c"])
    inputs = {"pandas": features, "polars": pl.from_pandas(features), "array": LOGITS}[kind]
    fitted = clone(WITH_CLASSIFIER).fit(inputs, LABEL)

    assert fitted.n_features_in_ == 3
    assert hasattr(fitted, "feature_names_in_") == (kind != "array")
    if kind != "array":
        assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert ReliabilityMap(variant="label_intercept").fit(LOGITS, LABEL).n_features_in_ == 3


@pytest.mark.parametrize("mode", ["classifier", "arrays"])
def test_pickled_map_is_unchanged_and_clone_is_unfitted(mode):
    settings = {"classifier": LogisticRegression()} if mode == "classifier" else {"arrays": "logits"}
    fitted = ReliabilityMap(variant="mrp_exact", **settings).fit(LOGITS, LABEL)
    restored = pickle.loads(pickle.dumps(fitted))

    np.testing.assert_array_equal(restored.reliability(LOGITS), fitted.reliability(LOGITS))
    assert str(restored.summary_) == str(fitted.summary_)
    assert not hasattr(clone(fitted), "document_")
    assert str(clone(fitted).get_params()) == str(fitted.get_params())


@pytest.mark.parametrize(("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_map_after_a_step_with_frame_output_routes_frames(library, kind):
    scaler = StandardScaler().set_output(transform=library)
    features = scaler.fit_transform(pd.DataFrame(LOGITS, columns=["a", "b", "c"]))
    fitted = clone(WITH_CLASSIFIER).fit(features, LABEL)
    routed = fitted.apply(features)

    assert isinstance(routed, kind)
    assert [*routed.columns][:4] == ["a", "b", "c", "decision"]
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]

    plain = clone(WITH_CLASSIFIER).fit(StandardScaler().fit_transform(LOGITS), LABEL)
    np.testing.assert_allclose(
        routed["reliability"], plain.reliability(StandardScaler().fit_transform(LOGITS)), atol=1e-9
    )


def test_groups_are_routed_to_fit_and_score():
    with config_context(enable_metadata_routing=True):
        routed = ReliabilityMap(variant="label_intercept").set_fit_request(groups=True).set_score_request(groups=True)
        scores = cross_validate(
            routed,
            PROBABILITIES,
            LABEL,
            params={"groups": GROUP},
            cv=GroupKFold(2),
            return_estimator=True,
            error_score="raise",
        )
    assert (scores["test_score"] < 0).all()
    assert [fitted.document_.source.group for fitted in scores["estimator"]] == ["group", "group"]
