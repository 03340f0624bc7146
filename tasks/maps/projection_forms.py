"""Fitted variants as they stand in `map.json`, and back.

Each form has the `value()` that it describes and names what its schema cannot say is wrong with it for K labels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from tasks.maps.parts import Part, Rows, Share, plain
from tasks.projection.curves import Confidence, Curves, Fallback, SharedCurve
from tasks.projection.label_maps import Intercepts, Isotonic, Lines
from tasks.projection.labelwise import Labelwise, WithFallbacks

Variant = Confidence | SharedCurve | Curves | WithFallbacks
Logit = Annotated[float, Field(ge=-1000, le=1000)]  # of a reliability; a curve's differences cannot overflow
Knots = Annotated[tuple[Share, ...], Field(min_length=2)]


class LabelPart(Part):
    """What every label's part of a projection says: the rows behind it, and what it stands on."""

    label: Rows
    name: str
    rows: Rows  # projection-fit rows with this decision
    fallback: Fallback  # none: its own curve; shared: the curve of all labels; identity: reliability = confidence


class ConfidenceForm(Part):
    """Reliability = calibrated confidence."""

    kind: Literal["confidence"] = "confidence"

    def value(self) -> Confidence:
        """The variant."""
        return Confidence()

    def contradictions(self, n_labels: int) -> list[str]:  # noqa: ARG002 - the contract
        """Nothing can be wrong."""
        return []


class SharedForm(Part):
    """One monotone curve for every label."""

    kind: Literal["shared"] = "shared"
    knots: Knots
    values: tuple[Logit, ...]
    rows: Rows

    def value(self) -> SharedCurve:
        """The variant."""
        return SharedCurve(Curves(np.array(self.knots), np.array([self.values]), np.array([self.rows]), ("none",)))

    def contradictions(self, n_labels: int) -> list[str]:  # noqa: ARG002 - the contract
        """Has each knot a value, and does the curve rise?"""
        if len(self.values) != len(self.knots):
            return ["the shared curve has not one value for each knot"]
        return self.value().violations()


class LabelwiseForm(Part):
    """A projection with a part for each label."""

    kind: str
    labels: tuple[Any, ...]

    @abstractmethod
    def value(self) -> Variant:
        """The variant."""

    def contradictions(self, n_labels: int) -> list[str]:
        """Has each label its part, is each part whole, and does none fall?"""
        if [one.label for one in self.labels] != [*range(n_labels)]:
            return [f"the projection has not one part for each of the labels 0..{n_labels - 1}, in order"]
        return self.unequal() or self.value().violations()

    def unequal(self) -> list[str]:
        """Lists that should be equally long, and are not."""
        return []

    def column(self, name: str) -> np.ndarray:
        """One number of each label, `(K,)`, or `(K, J)` of a list of J."""
        return np.array([getattr(one, name) for one in self.labels])

    @property
    def fallback(self) -> tuple[Fallback, ...]:
        """What each label stands on."""
        return tuple(one.fallback for one in self.labels)


class LabelCurve(LabelPart):
    """A label's curve: the logit of the reliability at each knot; straight in the confidence between them."""

    values: tuple[Logit, ...]


class LatticeForm(LabelwiseForm):
    """Monotone curves between knots of the confidence: MRP."""

    kind: Literal["lattice"] = "lattice"
    knots: Knots
    labels: tuple[LabelCurve, ...]

    def value(self) -> Curves:
        """The variant."""
        return Curves(np.array(self.knots), self.column("values"), self.column("rows"), self.fallback)

    def unequal(self) -> list[str]:
        """Has each knot a value?"""
        short = [one.label for one in self.labels if len(one.values) != len(self.knots)]
        return [f"label {label} has not one value for each knot" for label in short]


class _OwnOrShared(LabelwiseForm):
    """A simple map of each label, and the curve that labels with few rows share."""

    shared: SharedForm

    @abstractmethod
    def own(self) -> Labelwise:
        """The map of the labels that have enough rows."""

    def value(self) -> WithFallbacks:
        """The variant."""
        return WithFallbacks(self.own(), self.shared.value(), self.fallback, self.column("rows"))

    def unequal(self) -> list[str]:
        """Has each knot of the shared curve a value?"""
        return self.shared.contradictions(1)


class LabelShift(LabelPart):
    """logit of the reliability = logit of the confidence + shift."""

    shift: Annotated[float, Field(ge=-12, le=12)]


class InterceptsForm(_OwnOrShared):
    """A shift for each label."""

    kind: Literal["intercepts"] = "intercepts"
    labels: tuple[LabelShift, ...]

    def own(self) -> Intercepts:
        """The shifts."""
        return Intercepts(self.column("shift"))


class LabelLine(LabelPart):
    """logit of the reliability = slope * (logit of the confidence, cut to [-40, 40]) + intercept."""

    slope: Annotated[float, Field(ge=0, le=1e6)]
    intercept: Annotated[float, Field(ge=-1e6, le=1e6)]


class LinesForm(_OwnOrShared):
    """A line in the logit for each label (Platt)."""

    kind: Literal["lines"] = "lines"
    labels: tuple[LabelLine, ...]

    def own(self) -> Lines:
        """The lines."""
        return Lines(self.column("slope"), self.column("intercept"))


class LabelSteps(LabelPart):
    """The reliability at thresholds of the confidence; straight between them, constant beyond."""

    confidence: Annotated[tuple[Share, ...], Field(min_length=1)]
    reliability: Annotated[tuple[Share, ...], Field(min_length=1)]


class IsotonicForm(_OwnOrShared):
    """Isotonic steps for each label."""

    kind: Literal["isotonic"] = "isotonic"
    labels: tuple[LabelSteps, ...]

    def own(self) -> Isotonic:
        """The steps."""
        each = self.labels
        return Isotonic(
            tuple(np.array(one.confidence) for one in each), tuple(np.array(one.reliability) for one in each)
        )

    def unequal(self) -> list[str]:
        """Has each threshold a reliability?"""
        short = [one.label for one in self.labels if len(one.confidence) != len(one.reliability)]
        return [f"label {label} has not one reliability for each threshold" for label in short] or super().unequal()


ProjectionForm = Annotated[
    ConfidenceForm | SharedForm | InterceptsForm | LinesForm | IsotonicForm | LatticeForm, Field(discriminator="kind")
]


def projection_form(value: Variant, label_names: Sequence[str], rows: int) -> ProjectionForm:
    """The form of a variant fitted on `rows` projection-fit rows; `label_names` has a name for every label."""
    form: ProjectionForm = ConfidenceForm()
    match value:
        case SharedCurve(curves=curve):
            form = SharedForm(knots=plain(curve.knots), values=plain(curve.values[0]), rows=rows)
        case Curves():
            curves = [LabelCurve(**head, values=plain(own)) for head, own in _each(value, label_names, value.values)]
            form = LatticeForm(knots=plain(value.knots), labels=tuple(curves))
        case WithFallbacks():
            shared = projection_form(value.shared, label_names, rows)
            assert isinstance(shared, SharedForm)
            form = _own_form(value, label_names, shared)
    return form


def _own_form(value: WithFallbacks, names: Sequence[str], shared: SharedForm) -> ProjectionForm:
    own = value.own
    if isinstance(own, Intercepts):
        shifts = [LabelShift(**head, shift=float(shift)) for head, shift in _each(value, names, own.alpha)]
        return InterceptsForm(labels=tuple(shifts), shared=shared)
    if isinstance(own, Lines):
        both = _each(value, names, np.stack([own.slope, own.intercept], axis=1))
        lines = [LabelLine(**head, slope=float(line[0]), intercept=float(line[1])) for head, line in both]
        return LinesForm(labels=tuple(lines), shared=shared)
    assert isinstance(own, Isotonic)
    pairs = _each(value, names, list(zip(own.confidence, own.reliability, strict=True)))
    steps = [LabelSteps(**head, confidence=plain(at), reliability=plain(to)) for head, (at, to) in pairs]
    return IsotonicForm(labels=tuple(steps), shared=shared)


def _each(value: Curves | WithFallbacks, names: Sequence[str], own: Any) -> list[tuple[dict[str, Any], Any]]:
    """What every label's part says, with what is its own."""
    standing = zip(names, value.rows.tolist(), value.fallback, own, strict=True)
    return [
        ({"label": label, "name": name, "rows": rows, "fallback": kind}, mine)
        for label, (name, rows, kind, mine) in enumerate(standing)
    ]
