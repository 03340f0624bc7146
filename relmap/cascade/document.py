"""A cascade as a document: the maps of its models, the thresholds of its steps, and what was promised."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from relmap.cascade.settings import MAX_COST
from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import read_json_object, write_text
from relmap.io.serialization import Count, Share
from relmap.maps.document import MapDocument, MapPart
from relmap.maps.labelled_rows import DEFAULT_ID_COLUMN

FORMAT = "relmap-cascade"
MAX_FILE_BYTES = 2**28  # of up to ten maps
MAX_MODELS = 5
NO_NAMES = ("person", "use")  # words of the output that no model may be called by
ADDED_COLUMNS = ("cascade_decision", "cascade_reliability", "cascade_route")

Cost = Annotated[float, Field(ge=0, le=MAX_COST)]


class CascadeStep(MapPart):
    """One model of a cascade.

    Attributes:
        name: Name of the model.
        cost: Its cost for one row.
        threshold: Minimum reliability of decisions that are final. Null if this model decides no row.
        map: The reliability map of the model.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)]
    cost: Cost
    threshold: Annotated[float, Field(ge=0, le=1.00001)] | None  # ties are broken by less than 1e-9
    map: MapDocument


class CascadeDocument(MapPart):
    """Models in the order in which they are asked, and who decides the rest.

    Attributes:
        format: Name of the format.
        version: Version of the format.
        steps: The models, the cheapest first.
        person_cost: Cost of a person for one row; null if the last model decides all rows that reach it.
        person_accuracy: Assumed share of decisions of a person that are correct.
        target_accuracy: Accuracy of the final decisions that the thresholds were chosen for; null with a budget.
        budget: Mean cost of a row that the thresholds were chosen for; null with a target.
        confidence_level: Confidence level of `lower_bound`.
        lower_bound: Lower bound of the accuracy of the final decisions.
        seed: Seed of the order of rows with the same reliability.
        identity_columns: Columns that identify a row and so determine this order; if empty, it is the row's number.
        are_numbered: Whether the labelled rows had the labels 0..K-1 without names, so that other words are errors.
    """

    format: Literal["relmap-cascade"] = "relmap-cascade"
    version: Literal[1] = 1
    steps: Annotated[tuple[CascadeStep, ...], Field(min_length=1, max_length=MAX_MODELS)]
    person_cost: Cost | None
    person_accuracy: Share
    target_accuracy: Share | None
    budget: Cost | None
    confidence_level: Share
    lower_bound: Share
    seed: Count
    identity_columns: tuple[str, ...]
    are_numbered: bool = False

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in their order."""
        names = self.steps[0].map.label_names
        assert names is not None
        return names

    @model_validator(mode="after")
    def _validate_steps(self) -> "CascadeDocument":
        """Check that the maps fit together."""
        names = [step.name for step in self.steps]
        if len(set(names)) < len(names):
            raise ValueError(f"the models {', '.join(names)} do not have different names")
        labels = {step.map.label_names for step in self.steps}
        if len(labels) > 1 or None in labels:
            raise ValueError("the maps of the models have different labels, or no names of labels")
        for number, step in enumerate(self.steps):
            found = tuple(signal.name for signal in step.map.signals)
            if found != signal_names(names[:number]):
                raise ValueError(f"the map of {step.name} does not read the decisions of the models before it")
        return self


def signal_names(earlier_models: "list[str]") -> tuple[str, ...]:
    """Return the names of the signals that a map reads from the models before its own.

    Args:
        earlier_models: Names of these models.

    Returns:
        Two names for each: whether the decisions agree, and how much the earlier model supports the decision.
    """
    names = []
    for model in earlier_models:
        names += [f"agrees_with_{model}", f"support_of_{model}"]
    return tuple(names)


def save_cascade(document: CascadeDocument, path: Path) -> None:
    """Write a cascade atomically.

    Args:
        document: The cascade.
        path: File to write.
    """
    write_text(path, document.model_dump_json(indent=1) + "\n")


def load_cascade(path: Path) -> CascadeDocument:
    """Read and validate a cascade.

    Args:
        path: The file.

    Returns:
        The cascade.

    Raises:
        InputError: The file is missing or invalid; the message names the location.
    """
    text, content = read_json_object(path, kind="cascade", command="relmap cascade fit", max_bytes=MAX_FILE_BYTES)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is not a cascade; give a file that `relmap cascade fit` wrote")
    if "id_column" in content:
        text = json.dumps(_convert_identity(content))
    try:
        return CascadeDocument.model_validate_json(text)
    except ValidationError as error:
        errors = "; ".join(describe_validation_errors(error, "cascade"))
        raise InputError(f"{path} is not a valid cascade; fit it again: {errors}") from None


def _convert_identity(content: dict[str, Any]) -> dict[str, Any]:
    """Convert a cascade that named a column of ids and, where rows had none, other columns that identify a row."""
    converted = dict(content)
    id_column = converted.pop("id_column")
    others = converted.pop("name_columns", [])
    if id_column is None and DEFAULT_ID_COLUMN in others:
        id_column = DEFAULT_ID_COLUMN
    return converted | {"identity_columns": others if id_column is None else [id_column]}
