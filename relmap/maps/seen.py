"""How the fit rows of a map are distributed: the reference of `relmap watch`."""

from collections.abc import Sequence

import numpy as np

from relmap.decisions import number_groups
from relmap.io.signals import NumberSignal, Signal
from relmap.maps.cross_fit import CrossFit
from relmap.maps.document import Seen, SeenColumn

DECISION = "decision"
CONFIDENCE = "confidence"
RELIABILITY = "reliability"
N_RANGES = 10
N_LABEL_RANGES = 5  # of the confidences of one label; a test of fewer ranges finds a shift with fewer rows
MIN_LABEL_ROWS = 50  # fit rows of a label, below which its confidences are not counted
MAX_COUNTED_LABELS = 20  # with more labels, the correction for many tests would hide changes


def summarize_fit_rows(fit: CrossFit, signals: Sequence[Signal], n_labels: int, threshold: float) -> Seen:
    """Summarize how the fit rows are distributed, as the deployed map scores them.

    Args:
        fit: The fit.
        signals: Signals of the map.
        n_labels: Number of labels K.
        threshold: Reliability from which decisions are automatic.

    Returns:
        Counts of the decisions and in ranges of the scores.
    """
    rows = fit.rows
    scored = fit.deployed(rows)
    columns = {CONFIDENCE: scored.confidence, RELIABILITY: scored.reliability, **signal_columns(signals, rows.signals)}
    counts, effect = count_codes(rows.decision, n_labels, rows.weight, rows.group)
    seen = [SeenColumn(column=DECISION, edges=(), counts=counts, effect=effect)]
    for name, values in columns.items():
        seen.append(count_column(name, values, rows.weight, rows.group))
    seen += count_confidences_by_label(scored.confidence, rows.decision, rows.weight, rows.group)
    return Seen(
        groups=None if rows.group is None else len(np.unique(rows.group)),
        automatic=float(np.average(scored.reliability >= threshold, weights=rows.weight)),
        columns=tuple(seen),
    )


def signal_columns(document_signals: Sequence[Signal], signals: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the values of the numeric signals by name, each of shape (n,).

    Args:
        document_signals: Signals of the map.
        signals: Values of all signals, shape (n, S), or None.
    """
    columns: dict[str, np.ndarray] = {}
    place = 0
    for signal in document_signals:
        if isinstance(signal, NumberSignal):
            assert signals is not None
            columns[signal.name] = signals[:, place]
            place += 1
        else:
            place += len(signal.values)
    return columns


def count_confidences_by_label(
    confidence: np.ndarray, decision: np.ndarray, weight: np.ndarray | None, group: np.ndarray | None
) -> list[SeenColumn]:
    """Count the fit rows of each frequent decided label in ranges of the confidence.

    Over all labels together, a rise for one label and a fall for another can cancel out.

    Args:
        confidence: Calibrated confidences, shape (n,).
        decision: Decided labels 0..K-1, shape (n,).
        weight: Number of rows that each row represents, shape (n,); None if all are equal.
        group: Group of each row, shape (n,); None without groups.

    Returns:
        The counts of at most `MAX_COUNTED_LABELS` labels, which have at least `MIN_LABEL_ROWS` rows and more than one
        confidence.
    """
    n_rows = np.bincount(decision)
    most_frequent = np.argsort(-n_rows, kind="stable")[:MAX_COUNTED_LABELS]
    columns = []
    for label in sorted(most_frequent[n_rows[most_frequent] >= MIN_LABEL_ROWS].tolist()):
        is_decided = decision == label
        column = count_column(
            CONFIDENCE,
            confidence[is_decided],
            None if weight is None else weight[is_decided],
            None if group is None else group[is_decided],
            n_ranges=N_LABEL_RANGES,
        )
        if column.edges:
            columns.append(column.model_copy(update={"label": label}))
    return columns


def count_column(
    column: str,
    values: np.ndarray,
    weight: np.ndarray | None,
    group: np.ndarray | None,
    *,
    n_ranges: int = N_RANGES,
) -> SeenColumn:
    """Count the fit rows in ranges of a column with about equal numbers of rows.

    Args:
        column: Name of the column.
        values: Numbers, shape (n,).
        weight: Number of rows that each row represents, shape (n,); None if all are equal.
        group: Group of each row, shape (n,); None without groups.
        n_ranges: Largest number of ranges.

    Returns:
        The counts.
    """
    distinct = np.unique(values)
    limits = np.unique(np.quantile(values, np.arange(1, n_ranges) / n_ranges, method="inverted_cdf"))
    places = np.searchsorted(distinct, limits)
    # between two values, so that a score whose last bit differs on another machine stays in its range
    edges = np.array([(distinct[place - 1] + distinct[place]) / 2 for place in places if place > 0])
    code = np.searchsorted(edges, values, side="right")
    counts, effect = count_codes(code, len(edges) + 1, weight, group)
    return SeenColumn(column=column, edges=tuple(edges.tolist()), counts=counts, effect=effect)


def count_codes(
    code: np.ndarray, n_codes: int, weight: np.ndarray | None, group: np.ndarray | None
) -> tuple[tuple[float, ...], float]:
    """Count rows, and estimate the design effect of the counts.

    Args:
        code: Number of the range or label of each row, shape (n,).
        n_codes: Number of ranges or labels.
        weight: Number of rows that each row represents, shape (n,); None if all are equal.
        group: Group of each row, shape (n,); None without groups.

    Returns:
        The counts, which sum to the effective number of rows; and the mean design effect of groups, at least 1.
    """
    weights = np.ones(len(code)) if weight is None else weight / weight.mean()
    share = np.bincount(code, weights, minlength=n_codes) / max(weights.sum(), 1)
    n_effective = weights.sum() ** 2 / max((weights**2).sum(), 1e-300)
    counts = tuple((share * n_effective).tolist())
    if group is None:
        return counts, 1.0
    return counts, max(1.0, _design_effect(code, share, weights, group, n_effective))


def _design_effect(
    code: np.ndarray, share: np.ndarray, weights: np.ndarray, group: np.ndarray, n_effective: float
) -> float:
    """Return the mean of the ratios of the variance of each share to that of independent rows."""
    group_code = number_groups(group)
    n_groups = int(group_code.max()) + 1
    if n_groups < 2:
        return float(len(code))
    present = np.flatnonzero(share > 0)
    if len(present) < 2:
        return 1.0
    size = np.bincount(group_code, weights)
    total = 0.0
    for number in present:
        in_range = np.bincount(group_code, weights * (code == number), minlength=n_groups)
        residual = in_range - share[number] * size
        variance = (residual**2).sum() * n_groups / (n_groups - 1) / weights.sum() ** 2
        independent = share[number] * (1 - share[number]) / n_effective
        total += (1 - share[number]) * variance / independent
    return total / (len(present) - 1)
