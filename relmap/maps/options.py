"""Options of a fit: one value that the command line and `ReliabilityMap` create, and that reaches the fit."""

from dataclasses import dataclass
from typing import Annotated, Literal

Protocol = Literal["own", "paper"]  # `own`: cross-fitting; `paper`: the split and the fits of the paper's tables
PANEL = "How the map is fitted"  # group of options in the help
# Help of options that several commands have
GROUP_HELP = "Column of groups, such as the query, whose rows are not independent of each other."
LABELS_HELP = "Names of the labels in their order, such as bad,fair,good."
CONFIDENCE_LEVEL_HELP = "Confidence level of the guarantee, over random samples of labelled rows."
MAX_HOLD_OUT = 0.9


@dataclass(frozen=True)
class OptionText:
    """How the command line shows and reads a field.

    Attributes:
        help: Help of the option.
        panel: Group of options in the help; None for the first group.
        minimum: Smallest valid number.
        maximum: Largest valid number.
        example: Example of names that are separated by commas, for a field with several names; empty for other fields.
        min_names: Smallest number of such names.
    """

    help: str
    panel: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    example: str = ""
    min_names: int = 1


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What is fitted, and on which rows; each field is an option of the commands, with its help."""

    calibrator: Annotated[
        str | None,
        OptionText(
            "Calibrator of the confidence: {calibrators} (default: sms, or uncal without logits). hcal can make the "
            "calibration of two imbalanced labels worse.",
            panel=PANEL,
        ),
    ] = None
    variant: Annotated[
        str | None, OptionText("Model of the reliability: {variants} (default: mrp_pooled).", panel=PANEL)
    ] = None
    seed: Annotated[int, OptionText("Seed of the split of the rows into folds.", panel=PANEL, minimum=0)] = 1
    group: Annotated[str | None, OptionText(GROUP_HELP)] = None
    labels: Annotated[
        tuple[str, ...] | None,
        OptionText(LABELS_HELP, example="bad,fair,good", min_names=2),
    ] = None
    protocol: Annotated[
        Protocol,
        OptionText(
            "own, or paper for the split and the fits of the paper's tables, which include data leakage.", panel=PANEL
        ),
    ] = "own"
    signals: Annotated[
        tuple[str, ...],
        OptionText(
            "Columns that may indicate whether a decision is correct, such as length,source. relmap computes "
            "group_rank and group_gap from --group.",
            panel=PANEL,
            example="length,source",
        ),
    ] = ()
    hold_out: Annotated[
        float,
        OptionText(
            "Share of the rows to hold out from the fit, for evaluate and thresholds.",
            panel=PANEL,
            minimum=0,
            maximum=MAX_HOLD_OUT,
        ),
    ] = 0.0
    accept_label_order: Annotated[
        bool,
        OptionText(
            "Fit even if another order of the labels matches the predictions significantly better.", panel=PANEL
        ),
    ] = False


DEFAULT_FIT_OPTIONS = FitOptions()
