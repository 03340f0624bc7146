"""Cascades in Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from relmap.cascade.apply import apply_cascade
from relmap.cascade.document import ADDED_COLUMNS, CascadeDocument, load_cascade, save_cascade
from relmap.cascade.fit import fit_cascade
from relmap.cascade.models import read_models
from relmap.cascade.settings import CascadeSettings
from relmap.errors import InputError, naming
from relmap.io.atomic import check_output_path
from relmap.io.frames import FramePredictions, add_column, append_columns, to_polars

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame
    from numpy.typing import ArrayLike

    from relmap.cascade.apply import CascadeRoutes
    from relmap.evaluation.summary import Summary


class Cascade:
    """Ask a cheap model first, a stronger one where it is unsure, and a person for the rest.

    `fit` learns a reliability map for each model, and thresholds that reach the target accuracy at the least cost.
    Nothing is sent anywhere: `apply` says which rows to send to which model.

    Args:
        models: How the columns of each model are read, by the name of the model, the cheapest model first: such as
            `{"small": {"decision": "label_1", "confidence": "confidence_1"}, "large": {"decision": "label_2"}}`.
            The keys are `decision`, `confidence`, `probabilities`, `logits` and so on, as for `ReliabilityMap`.
        costs: Cost of one row for each model, and for `person` if a person decides what no model decides.
        target_accuracy: Accuracy that the final decisions must have, in (0, 1).
        budget: Mean cost of a row, instead of a target.
        labels: Names of the labels, in their order; None for 0..K-1.
        label: Column of the true label.
        id: Column, or list of columns, that identifies a row, so that every call divides rows with the same reliability
            in the same way. None for the column `id` or, without it, all columns that are neither labels nor
            predictions. `apply` needs these columns.
        drop_unlabelled: Whether to drop rows without a label.
        person_accuracy: Share of decisions of a person that are correct, in (0, 1].
        confidence_level: Confidence level of the guarantee, in (0, 1).
        hold_out: Share of the rows, or groups, that only test the thresholds, in (0, 1).
        seed: Seed of the divisions of the rows.

    Attributes:
        document_: The cascade, a frozen value.
        summary_: The thresholds, their guarantee and the alternatives; a loaded cascade has none.
        routes_: Summary of the rows of the last call of `apply`.

    Example:
        >>> import polars as pl
        >>> from relmap import Cascade
        >>> rows = pl.DataFrame({"small": [0, 1] * 60, "large": [0, 1, 1, 1] * 30, "label": [0, 1, 1] * 40})
        >>> models = {"small": {"decision": "small"}, "large": {"decision": "large"}}
        >>> cascade = Cascade(models, {"small": 1, "large": 9, "person": 99}, target_accuracy=0.6).fit(rows)
        >>> set(cascade.apply(rows)["cascade_route"]) <= {"use", "large", "person"}
        True
    """

    def __init__(
        self,
        models: Mapping[str, Mapping[str, Any]],
        costs: Mapping[str, float],
        *,
        target_accuracy: float | None = None,
        budget: float | None = None,
        labels: Sequence[object] | None = None,
        label: str | None = None,
        id: str | Sequence[str] | None = None,  # noqa: A002 - the same name as the option of the commands
        drop_unlabelled: bool = False,
        person_accuracy: float = 1.0,
        confidence_level: float = 0.95,
        hold_out: float = 0.5,
        seed: int = 1,
    ) -> None:
        self.models = models
        self.costs = costs
        self.target_accuracy = target_accuracy
        self.budget = budget
        self.labels = labels
        self.label = label
        self.id = id
        self.drop_unlabelled = drop_unlabelled
        self.person_accuracy = person_accuracy
        self.confidence_level = confidence_level
        self.hold_out = hold_out
        self.seed = seed
        self.document_: CascadeDocument | None = None
        self.summary_: Summary | None = None
        self.routes_: CascadeRoutes | None = None

    def fit(self, X: "IntoDataFrame", groups: "ArrayLike | str | None" = None) -> Self:
        """Fit the maps and choose the thresholds on labelled rows with the predictions of all models.

        Args:
            X: Frame of pandas, polars or Arrow.
            groups: Group of each row, such as its query, or a column of `X`.

        Returns:
            The fitted cascade.

        Raises:
            InputError: A row or parameter is invalid, or no thresholds reach the target.

        Example:
            >>> import polars as pl
            >>> from relmap import Cascade
            >>> rows = pl.DataFrame({"small": [0, 1] * 60, "large": [0, 1, 1, 1] * 30, "label": [0, 1, 1] * 40})
            >>> models = {"small": {"decision": "small"}, "large": {"decision": "large"}}
            >>> cascade = Cascade(models, {"small": 1, "large": 9, "person": 99}, target_accuracy=0.6).fit(rows)
            >>> cascade.summary_.numbers["lower_bound"]
            0.6
        """
        with naming("python"):
            settings = CascadeSettings(
                target_accuracy=self.target_accuracy,
                budget=self.budget,
                person_accuracy=self.person_accuracy,
                confidence_level=self.confidence_level,
                hold_out=self.hold_out,
                seed=self.seed,
            )
            frame = to_polars(X, None)
            group = groups if isinstance(groups, str) else None
            if groups is not None and group is None:
                group = "group"
                frame = add_column(frame, group, groups, "groups")
            id_columns = [self.id] if isinstance(self.id, str) else self.id
            models = read_models(
                self.models, label=self.label, id_columns=id_columns, drop_unlabelled=self.drop_unlabelled
            )
            labels = None if self.labels is None else [str(label) for label in self.labels]
            rows = FramePredictions.from_frame(frame)
            document, self.summary_ = fit_cascade(
                rows, models, self.costs, settings, labels=labels, group=group, id_columns=id_columns
            )
        if document is None:
            raise InputError(self.summary_.lines[0])
        self.document_ = document
        return self

    def apply(self, X: "IntoDataFrame") -> "IntoDataFrame":
        """Add decision, reliability and route to each row; see `apply_cascade`.

        Args:
            X: Frame with the predictions of the first model, and of further models in the rows that were sent to them.

        Returns:
            The frame with the columns `cascade_decision`, `cascade_reliability` and `cascade_route`, which replace
            columns of these names from an earlier call. Decisions have the type of the column of decisions of the first
            model, where it can hold the names of the labels, and are text otherwise.

        Raises:
            InputError: The rows cannot be read.

        Example:
            >>> import polars as pl
            >>> from relmap import Cascade
            >>> rows = pl.DataFrame({"small": [0, 1] * 60, "large": [0, 1, 1, 1] * 30, "label": [0, 1, 1] * 40})
            >>> models = {"small": {"decision": "small"}, "large": {"decision": "large"}}
            >>> cascade = Cascade(models, {"small": 1, "large": 9, "person": 99}, target_accuracy=0.6).fit(rows)
            >>> cascade.apply(rows).columns[-1]
            'cascade_route'
        """
        with naming("python"):
            if self.document_ is None:
                raise InputError("the cascade is not fitted; call fit, or load one with Cascade.load")
            frame = to_polars(X, None).drop(ADDED_COLUMNS, strict=False)
            added, self.routes_ = apply_cascade(self.document_, FramePredictions(frame, sha256=""))
        return append_columns(X, added)  # type: ignore[return-value]

    def save(self, path: str | Path) -> None:
        """Write the cascade to a JSON file.

        Args:
            path: The file.

        Raises:
            InputError: The cascade is not fitted, or the file cannot be written.

        Example:
            >>> import polars as pl
            >>> from relmap import Cascade
            >>> rows = pl.DataFrame({"small": [0, 1] * 60, "large": [0, 1, 1, 1] * 30, "label": [0, 1, 1] * 40})
            >>> models = {"small": {"decision": "small"}, "large": {"decision": "large"}}
            >>> cascade = Cascade(models, {"small": 1, "large": 9, "person": 99}, target_accuracy=0.6).fit(rows)
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     cascade.save(Path(folder) / "cascade.json")
        """
        if self.document_ is None:
            raise InputError("the cascade is not fitted; call fit first")
        check_output_path(Path(path))
        save_cascade(self.document_, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a cascade that `save` or `relmap cascade fit` wrote; nothing in the file is executed.

        Args:
            path: The file.

        Returns:
            A fitted cascade.

        Raises:
            InputError: The file is missing or invalid.

        Example:
            >>> import polars as pl
            >>> from relmap import Cascade
            >>> rows = pl.DataFrame({"small": [0, 1] * 60, "large": [0, 1, 1, 1] * 30, "label": [0, 1, 1] * 40})
            >>> models = {"small": {"decision": "small"}, "large": {"decision": "large"}}
            >>> cascade = Cascade(models, {"small": 1, "large": 9, "person": 99}, target_accuracy=0.6).fit(rows)
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     cascade.save(Path(folder) / "cascade.json")
            ...     loaded = Cascade.load(Path(folder) / "cascade.json")
            >>> loaded.costs
            {'small': 1.0, 'large': 9.0, 'person': 99.0}
        """
        document = load_cascade(Path(path))
        costs = {step.name: step.cost for step in document.steps}
        if document.person_cost is not None:
            costs["person"] = document.person_cost
        cascade = cls(
            {step.name: dict(step.map.reading) for step in document.steps},
            costs,
            target_accuracy=document.target_accuracy,
            budget=document.budget,
            labels=None if document.are_numbered else document.label_names,
            id=list(document.identity_columns) or None,
            person_accuracy=document.person_accuracy,
            confidence_level=document.confidence_level,
            seed=document.seed,
        )
        cascade.document_ = document
        return cascade
