"""scikit-learn pipeline that ends in a reliability map."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.pipeline import Pipeline

from relmap.api import Cuts, Evaluation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from narwhals.typing import IntoDataFrame, IntoSeries

    from relmap.estimator import ReliabilityMap, Rows, Values


class ReliabilityPipeline(Pipeline):
    """Pipeline whose last step is a `ReliabilityMap`, with the methods of that step.

    A plain `Pipeline` only has the methods that scikit-learn knows, such as `predict` and `predict_proba`.

    Example:
        >>> import numpy as np
        >>> from relmap import ReliabilityMap, ReliabilityPipeline
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.preprocessing import StandardScaler
        >>> generator = np.random.default_rng(0)
        >>> features = generator.normal(size=(600, 2))
        >>> y = (features[:, 0] + generator.normal(size=600) > 0).astype(int)
        >>> last = ReliabilityMap(classifier=LogisticRegression())
        >>> model = ReliabilityPipeline([("scale", StandardScaler()), ("map", last)]).fit(features, y)
        >>> model.reliability(features).shape, model.predict_proba(features).shape
        ((600,), (600, 2))
    """

    def reliability(self, X: "Rows") -> "np.ndarray | IntoSeries":
        """Estimate the probability that each decision is correct; see `ReliabilityMap.reliability`.

        Args:
            X: The features that the first step reads.

        Returns:
            Probabilities in [0, 1]: an array, shape (n,), or a series of the library of the
            transformed rows if these are a frame.

        Example:
            >>> import numpy as np
            >>> from relmap import ReliabilityMap, ReliabilityPipeline
            >>> from sklearn.linear_model import LogisticRegression
            >>> generator = np.random.default_rng(0)
            >>> features = generator.normal(size=(600, 2))
            >>> y = (features[:, 0] + generator.normal(size=600) > 0).astype(int)
            >>> last = ReliabilityMap(classifier=LogisticRegression())
            >>> model = ReliabilityPipeline([("map", last)]).fit(features, y)
            >>> model.reliability(features[:10]).shape
            (10,)
        """
        return self._map.reliability(self._transformed(X))

    def apply(
        self,
        X: "Rows",
        *,
        coverage: float | str | None = None,
        cut: float | None = None,
        cuts: "Cuts | Mapping[str, Any] | str | Path | None" = None,
    ) -> "np.ndarray | IntoDataFrame":
        """Add decision, confidence, reliability, review rank and route to each row; see `ReliabilityMap.apply`.

        Args:
            X: The features that the first step reads.
            coverage: Share of the rows of `X` with the route `automatic`, in [0, 1]; for large batches.
            cut: Minimum reliability of the rows with the route `automatic`.
            cuts: Result of `thresholds`, or the file that the command wrote.

        Returns:
            The transformed rows with columns `decision`, `confidence`, `reliability`, `review_rank` and `route` added;
            if they are an array, a structured array with only these fields.

        Example:
            >>> import numpy as np
            >>> from relmap import ReliabilityMap, ReliabilityPipeline
            >>> from sklearn.linear_model import LogisticRegression
            >>> generator = np.random.default_rng(0)
            >>> features = generator.normal(size=(600, 2))
            >>> y = (features[:, 0] + generator.normal(size=600) > 0).astype(int)
            >>> last = ReliabilityMap(classifier=LogisticRegression())
            >>> model = ReliabilityPipeline([("map", last)]).fit(features, y)
            >>> int((model.apply(features, coverage=0.5)["route"] == "automatic").sum())
            300
        """
        return self._map.apply(self._transformed(X), coverage=coverage, cut=cut, cuts=cuts)

    def evaluate(self, X: "Rows", y: "Values | None" = None, groups: "Values | str | None" = None) -> Evaluation:
        """Compare the reliability with the confidence on labelled rows; see `ReliabilityMap.evaluate`.

        Args:
            X: The features that the first step reads.
            y: True labels, shape (n,).
            groups: Group of each row, shape (n,), or a column of the transformed rows.

        Returns:
            Comparison with the confidence, and drift, in sentences and numbers.

        Example:
            >>> import numpy as np
            >>> from relmap import ReliabilityMap, ReliabilityPipeline
            >>> from sklearn.linear_model import LogisticRegression
            >>> generator = np.random.default_rng(0)
            >>> features = generator.normal(size=(600, 2))
            >>> y = (features[:, 0] + generator.normal(size=600) > 0).astype(int)
            >>> last = ReliabilityMap(classifier=LogisticRegression())
            >>> model = ReliabilityPipeline([("map", last)]).fit(features[:400], y[:400])
            >>> model.evaluate(features[400:], y[400:]).to_dict()["rows"]
            200
        """
        return self._map.evaluate(self._transformed(X), y, groups)

    def thresholds(
        self,
        X: "Rows",
        y: "Values | None" = None,
        groups: "Values | str | None" = None,
        *,
        target_accuracy: float | None = None,
        coverage: float | str | None = None,
        confidence_level: float = 0.95,
        cost_error: float | None = None,
        cost_review: float | None = None,
        cut: float | None = None,
    ) -> Cuts:
        """Find or validate a cut on the reliability; see `ReliabilityMap.thresholds`.

        Give exactly one of `target_accuracy`, `coverage`, the two costs, and `cut`.

        Args:
            X: The features that the first step reads.
            y: True labels, shape (n,).
            groups: Group of each row, shape (n,), or a column of the transformed rows.
            target_accuracy: Accuracy that automatic rows must have, in (0, 1).
            coverage: Share of the rows of `X` that is automatic, in (0, 1].
            confidence_level: Probability that the guarantee holds, over random samples of labelled rows; in (0, 1).
            cost_error: Cost of a wrong decision that is used automatically; needs `cost_review`.
            cost_review: Cost of a review, in the unit of `cost_error`.
            cut: Cut to validate; the result has the accuracy at or above it, and the lower bound of this accuracy.

        Returns:
            The cut, in sentences and numbers. `apply` accepts it as `cuts`.

        Example:
            >>> import numpy as np
            >>> from relmap import ReliabilityMap, ReliabilityPipeline
            >>> from sklearn.linear_model import LogisticRegression
            >>> generator = np.random.default_rng(0)
            >>> features = generator.normal(size=(600, 2))
            >>> y = (features[:, 0] + generator.normal(size=600) > 0).astype(int)
            >>> last = ReliabilityMap(classifier=LogisticRegression())
            >>> model = ReliabilityPipeline([("map", last)]).fit(features[:300], y[:300])
            >>> cuts = model.thresholds(features[300:], y[300:], coverage=0.5)
            >>> 0.5 < cuts.cut < 1
            True
        """
        return self._map.thresholds(
            self._transformed(X),
            y,
            groups,
            target_accuracy=target_accuracy,
            coverage=coverage,
            confidence_level=confidence_level,
            cost_error=cost_error,
            cost_review=cost_review,
            cut=cut,
        )

    @property
    def _map(self) -> "ReliabilityMap":
        last: ReliabilityMap = self.steps[-1][1]
        return last

    def _transformed(self, X: "Rows") -> "Rows":
        """Apply all steps before the map."""
        if len(self.steps) == 1:
            return X
        transformed: Rows = self[:-1].transform(X)
        return transformed
