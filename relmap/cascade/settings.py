"""Options of the fit of a cascade: one value that the command line and `Cascade` create."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated

from relmap.errors import InputError, assignment, option
from relmap.maps.options import CONFIDENCE_LEVEL_HELP, OptionText

MAX_COST = 1e30
MAX_SEED = 2**53  # larger whole numbers are not exact in JSON


@dataclass(frozen=True, kw_only=True)
class CascadeSettings:
    """What a cascade must reach, and how it is tested; each field is an option of the command, with its help."""

    target_accuracy: Annotated[float | None, OptionText("Accuracy that the final decisions must have.")] = None
    budget: Annotated[float | None, OptionText("Mean cost of a row, instead of a target accuracy.")] = None
    person_accuracy: Annotated[float, OptionText("Share of decisions of a person that are correct.")] = 1.0
    confidence_level: Annotated[float, OptionText(CONFIDENCE_LEVEL_HELP)] = 0.95
    hold_out: Annotated[float, OptionText("Share of the rows, or groups, that only test the thresholds.")] = 0.5
    seed: Annotated[int, OptionText("Seed of the divisions of the rows.", minimum=0)] = 1

    def __post_init__(self) -> None:
        if (self.target_accuracy is None) == (self.budget is None):
            target = assignment("target_accuracy", 0.95)
            raise InputError(f"give either a target, such as {target}, or {option('budget')}")
        for name in ("target_accuracy", "confidence_level", "hold_out"):
            value = getattr(self, name)
            is_omitted = value is None and name == "target_accuracy"
            if not is_omitted and not (isinstance(value, Real) and 0 < float(value) < 1):
                raise InputError(f"{option(name)} is {value!r}; give a number above 0 and below 1, such as 0.5")
        if self.budget is not None and not (isinstance(self.budget, Real) and 0 < self.budget <= MAX_COST):
            raise InputError(
                f"{option('budget')} is {self.budget!r}; give the mean cost of a row, above 0 and at most {MAX_COST:g}"
            )
        if not (isinstance(self.person_accuracy, Real) and 0 < self.person_accuracy <= 1):
            raise InputError(
                f"{option('person_accuracy')} is {self.person_accuracy!r}; give a number above 0 and at most 1"
            )
        if not (isinstance(self.seed, Integral) and 0 <= self.seed <= MAX_SEED):
            raise InputError(f"{option('seed')} is {self.seed!r}; give a whole number from 0 to {MAX_SEED:,}")
        object.__setattr__(self, "seed", int(self.seed))  # a whole number of NumPy is not one of JSON
