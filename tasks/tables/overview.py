"""Overview table and headline: whether MRP helps, on which data sets and by how much."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from relmap.metrics.comparison import BETTER, WORSE, compare_interval
from relmap.metrics.registry import COMPARED_METRICS, METRICS
from tasks.results.comparison import compare_dataset, list_remarks, summarize_datasets
from tasks.results.values import AVERAGE, FAILED, display_name
from tasks.tables.additional import intervals_table, rivals_table
from tasks.tables.paper import ablation_by_dataset, main_table
from tasks.tables.runs import NUMBER, PAPER_DATASETS, TEXT, Runs, finish_table, table

# A cheaper method is as good as MRP if each of its values of CRITERIA exceeds the value of MRP by at most MAX_LOSS, and
# by at most this share of the gain of MRP over the confidence.
MAX_LOSS = 0.001
MAX_SHARE_OF_GAIN = 0.1
BASE_CALIBRATOR = "ts"  # of MRP in the comparison with recalibration
CRITERIA = ("nll_correct", "aurc")  # metrics that a cheaper method must reach; lower is better
COLUMN_TITLES = {  # of the columns that the page shows, numbers first; the CSV has more columns
    "dataset": "data set",
    "found_per_1000_conf": "errors found in 1,000 reviews, by confidence",
    "found_per_1000_mrp": "by reliability",
    "found_per_1000_low": "more, at least",
    "found_per_1000_high": "more, at most",
    "nll_correct_delta": "change of the log loss",
    "low": "at least",
    "high": "at most",
    "accuracy": "accuracy",
    "commonest_label": "accuracy of the most frequent label",
    "comparison": "reliability compared with confidence",
}
FURTHER_COLUMNS = ("aurc_conf", "aurc_mrp", "label_spread_pp", "random_p95_pp")
SCHEMA = pl.Schema(
    dict.fromkeys((*COLUMN_TITLES, *FURTHER_COLUMNS), NUMBER)
    | dict.fromkeys(("dataset", "comparison", "remarks", "source"), TEXT)
)
SCOPE_OF_INTERVALS = (
    "Comparisons and changes are about means over the calibrators and protocol seeds that ran. Intervals reflect the "
    "sampling of test groups, for the given fits. They cover neither other training and validation rows nor other data "
    "sets, and are not corrected for the number of data sets."
)


@table(
    "overview",
    "Does reranking by reliability help, and by how much.",
    "Means over calibrators and protocol seeds, with 95% intervals of the changes. Errors are found among the least "
    "reliable 30% of decisions; log loss means correctness log loss. The reliability is better or worse than the "
    "confidence if the 95% interval of the change of the log loss excludes 0. A method is as good as MRP if its log "
    "loss and AURC are higher by at most .001 and by at most a tenth of the gain of MRP. It is better if the 95% "
    "interval of the difference in log loss excludes 0.",
    placement="first",
)
def overview_table(runs: Runs) -> pl.DataFrame:
    """Summarize each data set in one row, with the comparison of reliability and confidence.

    Args:
        runs: Results of all data sets.

    Returns:
        Numbers of `summarize_datasets`, the comparison in one of three words, and remarks. The label spread and its
        95th percentile over shuffled labels are in percentage points.
    """
    rows = summarize_datasets(runs.table_metrics(include_own=True), runs.intervals, runs.facts)
    ablation = ablation_by_dataset(runs)
    rivals = rivals_table(runs)
    comparison_rows = []
    for row in rows.iter_rows(named=True):
        comparison = compare_dataset(row)
        word = None if comparison is None else comparison.word
        remarks = []
        if word == BETTER:
            remarks += _list_alternatives(runs, row["dataset"], ablation, rivals)
        remarks += list_remarks(row)
        comparison_rows.append((word, " ".join(remarks)))
    comparison_columns = pl.DataFrame(comparison_rows, schema={"comparison": TEXT, "remarks": TEXT}, orient="row")
    return finish_table(rows.hstack(comparison_columns).select(SCHEMA.names()), runs, include_own=True)


@dataclass(frozen=True)
class _Losses:
    """Values of CRITERIA of one method."""

    values: tuple[float, ...]

    @classmethod
    def from_row(cls, row: Mapping[str, Any] | None, suffix: str = "") -> "_Losses | None":
        """Read the values from a row; None if one of them is unknown."""
        values = [None if row is None else row[f"{metric}{suffix}"] for metric in CRITERIA]
        known = tuple(value for value in values if value is not None)
        return cls(known) if len(known) == len(CRITERIA) else None

    def is_as_good_as(self, mrp: "_Losses", confidence: "_Losses") -> bool:
        """Return whether no value exceeds the value of MRP by more than MAX_LOSS and MAX_SHARE_OF_GAIN allow."""
        return all(
            value <= mrp_value + min(MAX_LOSS, MAX_SHARE_OF_GAIN * max(confidence_value - mrp_value, 0))
            for value, mrp_value, confidence_value in zip(self.values, mrp.values, confidence.values, strict=True)
        )

    def describe(self, mrp: "_Losses") -> str:
        """Describe the values, each compared with the value of MRP."""
        parts = [
            f"{METRICS[metric].title} {value:.3f} compared with {mrp_value:.3f}"
            for metric, value, mrp_value in zip(CRITERIA, self.values, mrp.values, strict=True)
        ]
        return ", ".join(parts)


def _list_alternatives(runs: Runs, dataset: str, ablation: pl.DataFrame, rivals: pl.DataFrame) -> list[str]:
    """Describe cheaper methods that are as good as MRP on a data set, and matrix scaling if it is better."""
    sentences = []
    by_variant = {row["variant"]: row for row in ablation.filter(dataset=dataset).to_dicts()}
    platt = _Losses.from_row(by_variant.get("label_platt"))
    mean_mrp = _Losses.from_row(by_variant.get("mrp"))
    mean_confidence = _Losses.from_row(by_variant.get("confidence"))
    if platt and mean_mrp and mean_confidence and platt.is_as_good_as(mean_mrp, mean_confidence):
        sentences.append(f"A Platt line for each label is as good ({platt.describe(mean_mrp)}).")
    with_projection_rows = rivals.filter(pl.col("projection_fit_rows") > 0, dataset=dataset)
    with_most_rows = with_projection_rows.filter(pl.col("rows") == pl.col("rows").max())
    by_calibrator = {row["calibrator"]: row for row in with_most_rows.to_dicts()}
    matrix = _Losses.from_row(by_calibrator.get("matrix"), "_conf")
    # unlike the means over calibrators above, these are for one calibrator
    mrp = _Losses.from_row(by_calibrator.get(BASE_CALIBRATOR), "_mrp")
    confidence = _Losses.from_row(by_calibrator.get(BASE_CALIBRATOR), "_conf")
    if matrix and mrp and confidence:
        is_better = _is_recalibration_better(runs, dataset)
        if is_better or matrix.is_as_good_as(mrp, confidence):
            comparison = "better" if is_better else "as good"
            sentences.append(f"If probabilities may change, matrix scaling is {comparison} ({matrix.describe(mrp)}).")
    return sentences


def _is_recalibration_better(runs: Runs, dataset: str) -> bool:
    """Return whether the interval of matrix scaling minus MRP is below 0."""
    intervals = runs.intervals.filter(dataset=dataset, quantity="versus_mrp")
    words = [compare_interval(low, high) for low, high in intervals.select("low", "high").iter_rows()]
    return BETTER in words


def compute_headline(runs: Runs) -> dict[str, Any]:
    """Compute the numbers of the headline for `dvc metrics`.

    Args:
        runs: Results of all data sets.

    Returns:
        Display name of a data set -> metric -> change, MRP minus confidence, averaged over calibrators. `data_sets`
        has for each metric the numbers of data sets with an interval: improved, worsened and all.
    """
    finished = main_table(runs).filter(pl.col("source") != FAILED)
    means = finished.group_by("dataset", "source", maintain_order=True).agg(
        pl.col(f"{metric}_delta").mean().alias(metric) for metric in COMPARED_METRICS
    )
    headline: dict[str, Any] = {}
    for row in means.iter_rows(named=True):
        name = display_name(row["dataset"], row["source"])
        headline[name] = {metric: row[metric] for metric in COMPARED_METRICS}
    averages = compare_averages(runs)
    counts = {metric: _count_comparisons(averages.filter(metric=metric)) for metric in COMPARED_METRICS}
    return headline | {"data_sets": counts}


def compare_averages(runs: Runs) -> pl.DataFrame:
    """Compare reliability and confidence by the average change of each data set and metric.

    Args:
        runs: Results of all data sets.

    Returns:
        Averages over calibrators of `intervals_table`, with `comparison`: better, worse or no measurable difference, by
        the 95% interval.
    """
    averages = intervals_table(runs).filter(pl.col("calibrator") == AVERAGE)
    words = [
        compare_interval(low, high, direction=METRICS[metric].direction)
        for metric, low, high in averages.select("metric", "low", "high").iter_rows()
    ]
    return averages.with_columns(comparison=pl.Series(words, dtype=pl.String))


def _count_comparisons(averages: pl.DataFrame) -> dict[str, int]:
    return {
        "improved": averages.filter(comparison=BETTER).height,
        "worsened": averages.filter(comparison=WORSE).height,
        "of": averages["low"].count(),
    }


def describe_headline(runs: Runs) -> str:
    """Describe on how many data sets MRP lowers the correctness log loss, and the scope of the intervals.

    Args:
        runs: Results of all data sets.

    Returns:
        Sentences about the paper's data sets, own data sets and failed data sets.
    """
    averages = compare_averages(runs).filter(metric="nll_correct")
    is_paper_dataset = pl.col("dataset").is_in(PAPER_DATASETS)
    sentences = []
    for family, name in (
        (averages.filter(is_paper_dataset), "data sets"),
        (averages.filter(~is_paper_dataset), "own data sets"),
    ):
        if len(family):
            sentences.append(_describe_family(family, name))
    if not sentences:
        return "No interval was computed, so there is no number of improved data sets."
    if runs.missing:
        sentences.append(f"Not finished: {', '.join(runs.missing)}.")
    return " ".join([*sentences, SCOPE_OF_INTERVALS])


def _describe_family(averages: pl.DataFrame, name: str) -> str:
    counts = _count_comparisons(averages)
    sources = []
    for source, count in averages.group_by("source", maintain_order=True).len().iter_rows():
        sources.append(source if count == len(averages) else f"{count} {source}")
    sentence = (
        f"On {counts['improved']} of {len(averages)} {name} ({', '.join(sources)}) MRP lowers the correctness "
        "log loss: the 95% interval is below zero"
    )
    if counts["worsened"]:
        sentence += f"; on {counts['worsened']} it is higher with MRP"
    n_without_interval = len(averages) - counts["of"]
    if n_without_interval:
        sentence += f"; on {n_without_interval} there are too few test groups for an interval"
    return f"{sentence}."
