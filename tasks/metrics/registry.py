"""The metrics by key: what people call them, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A metric of the tables and figures."""

    key: str  # under which its values are filed
    title: str
    direction: Literal[-1, 0, 1]  # the sign of an improvement


METRICS = {
    metric.key: metric
    for metric in (
        Metric("accuracy", "accuracy", 1),
        Metric("ece", "ECE", -1),
        Metric("top_ece", "ECE of the top label", -1),
        Metric("nll", "NLL", -1),
        Metric("brier", "Brier score", -1),
        Metric("nll_correct", "correctness NLL", -1),
        Metric("aupr_error", "AUPR-Error", 1),
        Metric("aurc", "AURC", -1),
        Metric("augrc", "AUGRC", -1),
        *(Metric(f"selacc_{share}", f"selective accuracy at {share}%", 1) for share in (10, 50, 70, 90)),
    )
}
