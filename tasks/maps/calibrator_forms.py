"""Fitted calibrators as they stand in `map.json`, and back.

Each form has the `value()` that it describes and names what its schema cannot say is wrong with it for K labels.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tasks.calibrators.diagonal import Diagonal
from tasks.calibrators.hcalibration import HCalibration
from tasks.calibrators.identity import Identity
from tasks.calibrators.matrix import Matrix
from tasks.calibrators.smart import Smart
from tasks.calibrators.spline import Spline
from tasks.calibrators.temperature import Temperature
from tasks.maps.parts import Number, Part, Positive, Share, plain

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
    """The calibrated confidence at distinct confidences; straight between them, constant beyond, cut at 1e-6."""

    kind: Literal["spline"] = "spline"
    confidence: Annotated[tuple[Share, ...], Field(min_length=1)]
    calibrated: Annotated[tuple[Number, ...], Field(min_length=1)]

    def value(self) -> Spline:
        """The calibrator."""
        return Spline(np.array(self.confidence), np.array(self.calibrated))

    def contradictions(self, n_labels: int) -> list[str]:  # noqa: ARG002 - the contract
        """Do the confidences rise, with a value for each?"""
        if len(self.confidence) != len(self.calibrated):
            return ["the spline has not one value for each confidence"]
        return [] if (np.diff(self.confidence) > 0).all() else ["the confidences of the spline do not rise"]


class HCalibrationForm(_CalibratorPart):
    """Slopes of a curve on -log p, on equal segments of [0, 100]."""

    kind: Literal["hcalibration"] = "hcalibration"
    slopes: Annotated[tuple[Positive, ...], Field(min_length=1)]

    def value(self) -> HCalibration:
        """The calibrator."""
        return HCalibration(np.array(self.slopes))


class SmartForm(_CalibratorPart):
    """The network of the margin: standardisation, then hidden weights, hidden biases, output weights, output bias."""

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
        return [] if found % 3 == 1 else [f"the network has {found} parameters, which is not 3 H + 1"]


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
    """The form of a fitted calibrator."""
    form: CalibratorForm = IdentityForm()
    match value:
        case Temperature(beta=beta):
            form = TemperatureForm(beta=beta)
        case Diagonal(factors=factors):
            form = DiagonalForm(factors=plain(factors))
        case Spline(confidence=confidence, calibrated=calibrated):
            form = SplineForm(confidence=plain(confidence), calibrated=plain(calibrated))
        case HCalibration(slopes=slopes):
            form = HCalibrationForm(slopes=plain(slopes))
        case Smart(mean=mean, deviation=deviation, parameters=parameters):
            form = SmartForm(mean=mean, deviation=deviation, parameters=plain(parameters))
        case Matrix(weights=weights, bias=bias):
            form = MatrixForm(weights=tuple(plain(row) for row in weights), bias=plain(bias))
    return form
