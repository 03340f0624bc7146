"""What a reliability map buys on labelled rows: confidence beside reliability, for the same fixed decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from tasks.maps.document import MapDocument
from tasks.maps.judged import KEPT_TENTHS, VIEWS, Judged, Numbers, measured, replicated
from tasks.maps.reliability_map import Scored
from tasks.metrics.bounded import SEED
from tasks.metrics.comparison import Comparison, Estimate
from tasks.metrics.registry import Reliability, metrics_of
from tasks.metrics.reliability import rows_kept
from tasks.metrics.resampling import FEWEST_GROUPS
from tasks.metrics.spread import label_spread, label_spread_null
from tasks.predictions.rows import PredictedRows
from tasks.protocol.errors import BadInput
from tasks.protocol.params import METRIC_DEFAULTS, MetricParams

METRICS = (*(metric.key for metric in metrics_of(Reliability)), "ece")


def evaluate(
    document: MapDocument, rows: PredictedRows, scored: Scored, params: MetricParams = METRIC_DEFAULTS
) -> dict[str, Any]:
    """Every metric by confidence and by reliability, with 95% intervals of the change; ready for JSON.

    Undefined numbers are None, and so are all intervals where there are fewer than ten groups. Errors are those found
    per 1,000 reviews of the least sure rows, over a random order of tied rows. The label spread, and what shuffles of
    the labels show, are of the rows that are resampled.

    Parameters
    ----------
    rows: labelled.
    scored: what the map of `document` says of them.

    Raises
    ------
    BadInput: there is no row.
    """
    if not len(rows):
        raise BadInput("there is no row to evaluate; give predictions with their labels")
    judged = Judged.of(rows, scored)
    some, values, drawn = judged.some(), measured(judged, params), judged.clusters >= FEWEST_GROUPS
    replicates = replicated(judged, some, params) if drawn else None
    n, errors = len(judged), int(np.count_nonzero(~judged.correct))
    return {
        "rows": n,
        "errors": errors,
        "groups": judged.clusters,
        "grouped": rows.group is not None,
        "resampled": {
            "resamples": params.resamples * drawn,
            "rows": len(some) * drawn,
            "groups": some.clusters * drawn,
        },
        "accuracy": _shares(judged, np.zeros(n, dtype=np.int64), 1)[0],
        "metrics": {name: _compared(name, values, replicates) for name in METRICS},
        "reviews": [
            {
                "reviewed": percent / 100,
                "reviews": int(n - rows_kept(n, tenths)),
                "at_random": 1000 * errors / n,
                **_compared(f"found_{percent}", values, replicates),
            }
            for percent, tenths in KEPT_TENTHS.items()
        ],
        "labels": _labels(document, judged),
        "label_spread": _spread(some, params),
    }


def _compared(name: str, values: Numbers, replicates: Numbers | None) -> dict[str, float | None]:
    pair = Comparison(
        *(Estimate(values[by][name], None if replicates is None else replicates[by][name]) for by in VIEWS)
    )
    change = pair.change
    low, high = change.interval.low, change.interval.high
    numbers = {"confidence": pair.before.value, "reliability": pair.after.value, "change": change.value}
    return {name: plain(number) for name, number in (numbers | {"low": low, "high": high, "p": change.p}).items()}


def _labels(document: MapDocument, judged: Judged) -> list[dict[str, Any]]:
    """What is said and what is right of each label's decisions, and what the map has behind it."""
    shares = _shares(judged, judged.decision, document.n_labels)
    rows = np.bincount(judged.decision, minlength=document.n_labels)
    said = {
        f"mean_{by}": np.bincount(judged.decision, of, document.n_labels) / np.where(rows, rows, np.nan)
        for by, of in judged.probability.items()
    }
    behind, fallback = document.projection.rows_by_label, document.projection.fallback
    return [
        {
            "label": label,
            "name": document.shown_names[label],
            "rows": int(rows[label]),
            "fit_rows": behind[label] if behind else None,
            "fallback": fallback[label] if fallback else None,
            **{name: plain(of[label]) for name, of in said.items()},
            "correct": share,
        }
        for label, share in enumerate(shares)
    ]


def _shares(judged: Judged, cell: np.ndarray, cells: int) -> list[dict[str, float | None]]:
    """The share of right rows in each cell, and Wilson's interval at the effective number of rows.

    Rows of a group stand and fall together, so they count for as many as would, each by itself, leave the share as
    uncertain as the groups do (Kish, 1965); where all rows are right, or wrong, as if each group were one row.
    """
    pair, at = np.unique(cell * judged.clusters + judged.cluster, return_inverse=True)
    cell, rows, right = pair // judged.clusters, np.bincount(at), np.bincount(at, judged.correct)
    total = np.bincount(cell, rows, cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.bincount(cell, right, cells) / total
        by_groups = share * (1 - share) * total**2 / np.bincount(cell, (right - share[cell] * rows) ** 2, cells)
        as_groups = total**2 / np.bincount(cell, rows.astype(float) ** 2, cells)
        effective = np.minimum(np.where((share > 0) & (share < 1), by_groups, as_groups), total)
        z2 = ndtri(0.975) ** 2 / effective
        middle, half = share + z2 / 2, np.sqrt(z2 * (share * (1 - share) + z2 / 4))
    enough = np.bincount(cell, minlength=cells) >= FEWEST_GROUPS
    low, high = (np.where(enough, np.clip((middle + side * half) / (1 + z2), 0, 1), np.nan) for side in (-1, 1))
    numbers = zip(share, low, high, strict=True)
    return [{"value": plain(one), "low": plain(least), "high": plain(most)} for one, least, most in numbers]


def _spread(some: Judged, params: MetricParams) -> dict[str, float | int | None]:
    """The label spread and what shuffled labels show, of the same rows, since the noise in both falls with these."""
    rows = some.probability["confidence"], some.decision, some.correct
    groups, cell = params.spread_groups, params.spread_minimum_cell
    value = label_spread(*rows, groups=groups, minimum_cell=cell)
    shuffles = params.spread_permutations
    shuffled = label_spread_null(*rows, groups=groups, minimum_cell=cell, permutations=shuffles, seed=SEED)
    return {"value": plain(value), "shuffled_p95": plain(shuffled), "rows": len(some)}


def plain(number: float) -> float | None:
    """A number as JSON has it; None where it is undefined."""
    return float(number) if np.isfinite(number) else None
