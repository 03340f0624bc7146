"""A pipeline of scikit-learn that ends in a reliability map."""

from typing import Any

from sklearn.pipeline import Pipeline

from relmap.api import Cuts, Evaluation


class ReliabilityPipeline(Pipeline):
    """A pipeline of scikit-learn that ends in a `ReliabilityMap` and has its methods.

    A plain `Pipeline` passes on methods that scikit-learn knows, such as `predict` and `predict_proba`, and no others.

    Example:
        >>> from relmap import ReliabilityMap
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.preprocessing import StandardScaler
        >>> last = ReliabilityMap(classifier=LogisticRegression())
        >>> model = ReliabilityPipeline([("scale", StandardScaler()), ("map", last)])
        >>> hasattr(model, "reliability"), hasattr(model, "predict_proba")
        (True, True)
    """

    def reliability(self, X: Any) -> Any:
        """Return the probability that each decision is correct, as `ReliabilityMap.reliability` has it."""
        return self.steps[-1][1].reliability(self._before_map(X))

    def apply(self, X: Any, **options: Any) -> Any:
        """Return the decisions with their route, as `ReliabilityMap.apply` has it."""
        return self.steps[-1][1].apply(self._before_map(X), **options)

    def evaluate(self, X: Any, y: Any = None, groups: Any = None) -> Evaluation:
        """Return a verdict on labelled rows, as `ReliabilityMap.evaluate` has it."""
        evaluation: Evaluation = self.steps[-1][1].evaluate(self._before_map(X), y, groups)
        return evaluation

    def thresholds(self, X: Any, y: Any = None, groups: Any = None, **options: Any) -> Cuts:
        """Return a threshold with its guarantee, as `ReliabilityMap.thresholds` has it."""
        found: Cuts = self.steps[-1][1].thresholds(self._before_map(X), y, groups, **options)
        return found

    def _before_map(self, X: Any) -> Any:
        return self[:-1].transform(X) if len(self.steps) > 1 else X
