"""Tables of the measured cases."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.evidence.cases import Kind
from benchmarks.evidence.methods import (
    DECISION_ONLY_METHODS,
    DEFAULT,
    METHODS,
    METRICS,
    POOLED_METHODS,
    TEMPERATURE_SCALING,
    TRAINED_MODELS,
)

KINDS: tuple[Kind, ...] = ("real", "noise", "simulated")
SIGNED_METRICS = ("top gap",)
BEST = "best of all methods"
README_METHODS = (*POOLED_METHODS, *TRAINED_MODELS)


@dataclass(frozen=True)
class Measurement:
    """Metrics of one method, fitted on one sample.

    Attributes:
        n_rows: Number of labelled rows.
        sample: Number of the random sample.
        method: Name of the method.
        metrics: Metrics by name, on test rows.
    """

    n_rows: int
    sample: int
    method: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class CaseResult:
    """All measurements of a case.

    Attributes:
        key: Name of the case in file names.
        title: Data set.
        base: Base model or class weights.
        kind: Kind of data.
        n_test_rows: Number of test rows.
        measurements: One for each sample, size and method.
        cpu_seconds: Processor time.
    """

    key: str
    title: str
    base: str
    kind: Kind
    n_test_rows: int
    measurements: list[Measurement]
    cpu_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values of JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "CaseResult":
        """Return the result that `to_dict` wrote."""
        measurements = [Measurement(**each) for each in content["measurements"]]
        return cls(**{**content, "measurements": measurements})

    def sizes(self) -> list[int]:
        """Return the numbers of labelled rows, rising."""
        return sorted({each.n_rows for each in self.measurements})

    def mean(self, n_rows: int, method: str, metric: str) -> float:
        """Return the mean of a metric over the samples of a size."""
        return fmean(self.of_samples(n_rows, method, metric))

    def of_samples(self, n_rows: int, method: str, metric: str) -> list[float]:
        """Return a metric of each sample of a size."""
        found = [each for each in self.measurements if each.n_rows == n_rows and each.method == method]
        return [each.metrics[metric] for each in sorted(found, key=lambda each: each.sample)]

    def n_samples(self) -> int:
        """Return the number of samples."""
        return len({each.sample for each in self.measurements})


@dataclass(frozen=True)
class Summary:
    """A table and numbers for a record, as in `evidence_records.Record`."""

    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    note: str = ""


def summarize(results: list[CaseResult]) -> dict[str, Summary]:
    """Return the summaries of all measured cases, by the name of their record.

    Args:
        results: Measured cases. Kinds without a case give no summary.

    Returns:
        Summaries by name.
    """
    summaries: dict[str, Summary] = {}
    for kind in KINDS:
        cases = [result for result in results if result.kind == kind]
        if not cases:
            continue
        summaries[f"{kind}-methods"] = summarize_methods(cases)
        summaries[f"{kind}-differences"] = summarize_differences(cases)
        summaries[f"{kind}-samples"] = summarize_samples(cases)
        summaries[f"{kind}-log-loss"] = summarize_cases(cases, "log loss")
        if kind == "real":
            summaries["real-aurc"] = summarize_cases(cases, "AURC")
            summaries["readme"] = summarize_for_readme(cases)
    judges = [result for result in results if result.kind == "judge"]
    if judges:
        summaries["judge-methods"] = summarize_methods(judges, DECISION_ONLY_METHODS)
    for result in results:
        if result.kind == "nothing to learn":
            summaries["nothing-to-learn"] = summarize_price(result)
    return summaries


def summarize_methods(cases: list[CaseResult], methods: Iterable[str] = METHODS) -> Summary:
    """Return the mean metrics over cases, for each size and method; the lowest log loss and AURC in bold."""
    rows = []
    values = {"cases": str(len(cases))}
    for size in _sizes(cases):
        measured = _with_size(cases, size)
        means = {method: _mean_metrics(measured, size, method) for method in methods}
        for method, metrics in means.items():
            values[f"{_key(method)}-{size}-absolute-top-gap"] = _decimal(metrics["absolute top gap"], 3)
        for method, metrics in means.items():
            cells = []
            for metric in METRICS:
                best = min(each[metric] for each in means.values())
                is_bold = metric in ("log loss", "AURC") and metrics[metric] == best
                is_signed = metric in SIGNED_METRICS
                text = _signed(metrics[metric], 3) if is_signed else _decimal(metrics[metric], 4)
                cells.append(f"**{text}**" if is_bold else text)
            rows.append([f"{size:,}", method, *cells])
    return Summary(["labelled rows", "method", *METRICS], rows, values, _cases_note(cases))


def summarize_differences(cases: list[CaseResult]) -> Summary:
    """Return how much lower the log loss and AURC of the default are than those of each other method.

    The last row of a size compares with the best of all methods, the default included, in each case.
    """
    rows = []
    values: dict[str, str] = {}
    others = [method for method in METHODS if method != DEFAULT]
    for size in _sizes(cases):
        measured = _with_size(cases, size)
        for other in (*others, BEST):
            cells = []
            for metric in ("log loss", "AURC"):
                differences = [_difference(case, size, other, metric) for case in measured]
                n_lower = sum(difference < 0 for difference in differences)
                cells.append(_signed(fmean(differences), 4))
                cells.append(f"{_signed(min(differences), 3)} to {_signed(max(differences), 3)}")
                cells.append(f"{n_lower} of {len(differences)}")
                if metric == "log loss":
                    key = f"{_key(other)}-{size}-log-loss"
                    values[key] = _signed(fmean(differences), 4)
                    values[f"{key}-max"] = _signed(max(differences), 3)
                    values[f"{key}-cases"] = cells[-1]
            rows.append([f"{size:,}", other, *cells])
    columns = ["labelled rows", f"{DEFAULT} minus"]
    for metric in ("log loss", "AURC"):
        columns += [f"{metric}: mean", "range over cases", "cases with lower"]
    return Summary(columns, rows, values, _cases_note(cases))


def summarize_price(result: CaseResult) -> Summary:
    """Return the log loss of the pooled methods minus that of temperature scaling, with standard errors."""
    rows = []
    values = {"samples": str(result.n_samples()), "test-rows": f"{result.n_test_rows:,}"}
    for size in result.sizes():
        baseline = np.array(result.of_samples(size, TEMPERATURE_SCALING, "log loss"))
        for method in POOLED_METHODS:
            losses = np.array(result.of_samples(size, method, "log loss"))
            differences = losses - baseline
            cells = [_decimal(losses.mean(), 4), "", ""]
            if method != TEMPERATURE_SCALING:
                standard_error = differences.std(ddof=1) / np.sqrt(len(differences))
                cells[1:] = [_signed(differences.mean(), 5), _decimal(standard_error, 5)]
            if method == DEFAULT:
                values[f"price-{size}"] = _decimal(differences.mean(), 4)
            rows.append([f"{size:,}", method, *cells])
    return Summary(["labelled rows", "method", "log loss", "price", "standard error"], rows, values)


def summarize_cases(cases: list[CaseResult], metric: str, size: int = 1_000) -> Summary:
    """Return a metric of each case and method at one size; the lowest of each case in bold."""
    rows = []
    for case in _with_size(cases, size):
        values = [case.mean(size, method, metric) for method in METHODS]
        cells = [f"**{_decimal(v, 3)}**" if v == min(values) else _decimal(v, 3) for v in values]
        rows.append([case.title, case.base, *cells])
    base = "base model" if cases[0].kind == "simulated" else "class weights"
    return Summary(["data set", base, *METHODS], rows)


def summarize_for_readme(cases: list[CaseResult]) -> Summary:
    """Return the mean log loss at each size, and the AURC and the absolute top gap at the largest two, of methods."""
    sizes = _sizes(cases)
    shown = [("log loss", "log loss", size) for size in sizes]
    for metric, title in (("AURC", "AURC"), ("absolute top gap", "top gap")):
        shown += [(metric, title, size) for size in sizes[-2:]]
    rows = []
    for method in README_METHODS:
        means = {size: _mean_metrics(_with_size(cases, size), size, method) for size in sizes}
        rows.append([method, *(_decimal(means[size][metric], 3) for metric, _, size in shown)])
    columns = ["method", *(f"{title}, {size:,} rows" for _, title, size in shown)]
    return Summary(columns, rows, note=_cases_note(cases))


def summarize_samples(results: list[CaseResult]) -> Summary:
    """Return the number of samples and test rows of each case, and the processor time of all."""
    rows = [
        [result.title, result.base, str(result.n_samples()), f"{result.n_test_rows:,}", f"{result.cpu_seconds:.0f} s"]
        for result in results
    ]
    seconds = sum(result.cpu_seconds for result in results)
    values = {
        "samples": str(results[0].n_samples()),
        "cases": str(len(results)),
        "minutes": f"{seconds / 60:.1f}",
    }
    base = "base model" if results[0].kind == "simulated" else "class weights"
    columns = ["data set", base, "samples", "test rows", "processor time"]
    return Summary(columns, rows, values)


def _difference(case: CaseResult, size: int, other: str, metric: str) -> float:
    """Return a metric of the default minus that of another method, or the lowest of all methods."""
    if other == BEST:
        return case.mean(size, DEFAULT, metric) - min(case.mean(size, method, metric) for method in METHODS)
    return case.mean(size, DEFAULT, metric) - case.mean(size, other, metric)


def _mean_metrics(cases: list[CaseResult], size: int, method: str) -> dict[str, float]:
    """Return the mean of each metric over cases, for one size and method."""
    means = {}
    for metric in METRICS:
        means[metric] = fmean(case.mean(size, method, metric) for case in cases)
    return means


def _sizes(cases: list[CaseResult]) -> list[int]:
    return sorted({size for case in cases for size in case.sizes()})


def _with_size(cases: list[CaseResult], size: int) -> list[CaseResult]:
    return [case for case in cases if size in case.sizes()]


def _cases_note(cases: list[CaseResult]) -> str:
    """State over how many cases the means of a size are, for sizes that not all cases have."""
    sentences = []
    for size in _sizes(cases):
        count = len(_with_size(cases, size))
        if count < len(cases):
            sentences.append(f"Means for {size:,} rows are over {count} of the {len(cases)} cases.")
    return " ".join(sentences)


def _key(method: str) -> str:
    """Return the name of a method in the names of numbers."""
    return method.strip("`").replace(" ", "-")


def _decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
