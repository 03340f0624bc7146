"""Fitted calibrators as they stand in `map.json`, and back.

Each form has the `value()` that it describes and names what its schema cannot say is wrong with it for K labels.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError

from tasks.calibrators.diagonal import Diagonal
from tasks.calibrators.hcalibration import HCalibration
from tasks.calibrators.identity import Identity
from tasks.calibrators.matrix import Matrix
from tasks.calibrators.smart import Smart
from tasks.calibrators.spline import Spline
from tasks.calibrators.temperature import Temperature
from tasks.maps.parts import Number, Part, Positive, Share, plain
from tasks.protocol.errors import BadInput, mistakes

Calibrator = Identity | Temperature | Diagonal | Spline | HCalibration | Smart | Matrix


class _CalibratorPart(Part):
    """A calibrator with which nothing can be wrong that its schema does not say."""

    def contradictions(self, n_labels: int) -> list[str]:  # noqa: ARG002 - the contract
        """What is wrong with it for K labels, a sentence each; empty if nothing is."""
        return []


class IdentityForm(_CalibratorPart):
    """The probabilities, or the stated confidence, as they came."""

    kind: Literal["identity"] = "identity"

    def value(self) -> Identity:
        """The calibrator."""
        return Identity()


class TemperatureForm(_CalibratorPart):
    """softmax(beta z)."""

    kind: Literal["temperature"] = "temperature"
    beta: Positive

    def value(self) -> Temperature:
        """The calibrator."""
        return Temperature(self.beta)


class DiagonalForm(_CalibratorPart):
    """Factors of the gaps between the sorted logits of a row, the largest logit first."""

    kind: Literal["diagonal"] = "diagonal"
    factors: Annotated[tuple[Positive, ...], Field(min_length=1)]

    def value(self) -> Diagonal:
        """The calibrator."""
        return Diagonal(np.array(self.factors))

    def contradictions(self, n_labels: int) -> list[str]:
        """Are there K - 1 gaps?"""
        found = len(self.factors)
        return [] if found == n_labels - 1 else [f"the calibrator has {found} factors, not {n_labels - 1}"]


class SplineForm(_CalibratorPart):
    """The logit of the calibrated confidence: between two knots a cubic of the place, 0..1; constant beyond."""

    kind: Literal["spline"] = "spline"
    knots: Annotated[tuple[Share, ...], Field(min_length=2)]
    coefficients: tuple[
        Annotated[tuple[Number, ...], Field(min_length=4, max_length=4)], ...
    ]  # of powers 0..3, for each interval

    def value(self) -> Spline:
        """The calibrator."""
        return Spline(np.array(self.knots), np.array(self.coefficients).T)

    def contradictions(self, n_labels: int) -> list[str]:  # noqa: ARG002 - the contract
        """Do the knots rise, with a cubic between each two?"""
        if len(self.coefficients) != len(self.knots) - 1:
            return ["the spline has not one cubic for each two knots"]
        return [] if (np.diff(self.knots) > 0).all() else ["the knots of the spline do not rise"]


class HCalibrationForm(_CalibratorPart):
    """Factors of -log p, on equal segments of [0, 100]."""

    kind: Literal["hcalibration"] = "hcalibration"
    factors: Annotated[tuple[Positive, ...], Field(min_length=1)]

    def value(self) -> HCalibration:
        """The calibrator."""
        return HCalibration(np.array(self.factors))


class SmartForm(_CalibratorPart):
    """The network of the margin: standardisation, then weights and biases of three layers, H hidden units in two."""

    kind: Literal["smart"] = "smart"
    mean: Number
    deviation: Positive
    parameters: Annotated[tuple[Number, ...], Field(min_length=4)]

    def value(self) -> Smart:
        """The calibrator."""
        return Smart(self.mean, self.deviation, np.array(self.parameters))

    def contradictions(self, n_labels: int) -> list[str]:  # noqa: ARG002 - the contract
        """Are there as many parameters as a network has?"""
        found = len(self.parameters)
        hidden = round((found + 3) ** 0.5) - 2
        right = hidden > 0 and hidden**2 + 4 * hidden + 1 == found
        return [] if right else [f"the network has {found} parameters, which is not H^2 + 4 H + 1"]


class MatrixForm(_CalibratorPart):
    """An affine map of the centred logits, a row of weights for each new logit."""

    kind: Literal["matrix"] = "matrix"
    weights: tuple[tuple[Number, ...], ...]
    bias: tuple[Number, ...]

    def value(self) -> Matrix:
        """The calibrator."""
        return Matrix(np.array(self.weights), np.array(self.bias))

    def contradictions(self, n_labels: int) -> list[str]:
        """Is it K by K?"""
        right = [len(row) for row in (*self.weights, self.bias)] == [n_labels] * (n_labels + 1)
        return [] if right else [f"the matrix is not {n_labels} by {n_labels} with a bias for each label"]


CalibratorForm = Annotated[
    IdentityForm | TemperatureForm | DiagonalForm | SplineForm | HCalibrationForm | SmartForm | MatrixForm,
    Field(discriminator="kind"),
]


def calibrator_form(value: object) -> CalibratorForm:
    """The form of a fitted calibrator; BadInput where its numbers are beyond what a map holds."""
    try:
        return _form(value)
    except ValidationError as error:
        raise BadInput(
            f"the fitted calibrator is beyond what a map holds ({mistakes(error, 'calibrator')[0]}), as from logits "
            "that are far too large or too small; scale them, or take the calibrator ts"
        ) from None


def _form(value: object) -> CalibratorForm:
    form: CalibratorForm = IdentityForm()
    match value:
        case Temperature(beta=beta):
            form = TemperatureForm(beta=beta)
        case Diagonal(factors=factors):
            form = DiagonalForm(factors=plain(factors))
        case Spline(knots=knots, coefficients=coefficients):
            form = SplineForm(knots=plain(knots), coefficients=tuple(plain(of_powers) for of_powers in coefficients.T))
        case HCalibration(factors=factors):
            form = HCalibrationForm(factors=plain(factors))
        case Smart(mean=mean, deviation=deviation, parameters=parameters):
            form = SmartForm(mean=mean, deviation=deviation, parameters=plain(parameters))
        case Matrix(weights=weights, bias=bias):
            form = MatrixForm(weights=tuple(plain(row) for row in weights), bias=plain(bias))
    return form
