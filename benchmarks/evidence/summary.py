"""Tables of the measured cases."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from benchmarks.evidence.cases import Kind
from benchmarks.evidence.methods import DECISION_ONLY_METHODS, METHODS, METRICS, TRAINED_MODELS

AUTO = "`auto`"
KINDS: dict[Kind, str] = {"real": "real", "simulated": "simulated"}


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
        found = [e.metrics[metric] for e in self.measurements if e.n_rows == n_rows and e.method == method]
        return fmean(found)

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
    for kind, prefix in KINDS.items():
        cases = [result for result in results if result.kind == kind]
        if not cases:
            continue
        summaries[f"{prefix}-methods"] = summarize_methods(cases)
        summaries[f"{prefix}-differences"] = summarize_differences(cases)
        summaries[f"{prefix}-log-loss"] = summarize_cases(cases, "log loss")
        summaries[f"{prefix}-aurc"] = summarize_cases(cases, "AURC")
        summaries[f"{prefix}-samples"] = summarize_samples(cases)
        if kind == "real":
            summaries["readme"] = summarize_for_readme(cases)
    judges = [result for result in results if result.kind == "judge"]
    if judges:
        summaries["judge-methods"] = summarize_methods(judges, DECISION_ONLY_METHODS)
    return summaries


def summarize_methods(cases: list[CaseResult], methods: Iterable[str] = METHODS) -> Summary:
    """Return the mean metrics over cases, for each size and method; the lowest log loss and AURC in bold."""
    rows = []
    for size in _sizes(cases):
        measured = _with_size(cases, size)
        means = {method: _mean_metrics(measured, size, method) for method in methods}
        for method, metrics in means.items():
            cells = []
            for metric in METRICS:
                best = min(values[metric] for values in means.values())
                is_bold = metric in ("log loss", "AURC") and metrics[metric] == best
                text = _signed(metrics[metric], 3) if metric == "top gap" else _decimal(metrics[metric], 4)
                cells.append(f"**{text}**" if is_bold else text)
            rows.append([f"{size:,}", method, *cells])
    return Summary(["labelled rows", "method", *METRICS], rows, {"cases": str(len(cases))}, _cases_note(cases))


def summarize_differences(cases: list[CaseResult]) -> Summary:
    """Return how much lower the log loss and AURC of `auto` are than those of each trained model."""
    rows = []
    values: dict[str, str] = {}
    for size in _sizes(cases):
        measured = _with_size(cases, size)
        for model in TRAINED_MODELS:
            cells = []
            for metric in ("log loss", "AURC"):
                differences = [case.mean(size, AUTO, metric) - case.mean(size, model, metric) for case in measured]
                n_lower = sum(difference < 0 for difference in differences)
                cells.append(_signed(fmean(differences), 4))
                cells.append(f"{_signed(min(differences), 3)} to {_signed(max(differences), 3)}")
                cells.append(f"{n_lower} of {len(differences)}")
                if metric == "log loss":
                    key = f"{model.replace(' ', '-')}-{size}-log-loss"
                    values[key] = _decimal(abs(fmean(differences)), 3)
                    values[f"{key}-cases"] = cells[-1]
            rows.append([f"{size:,}", model, *cells])
    columns = ["labelled rows", f"{AUTO} minus"]
    for metric in ("log loss", "AURC"):
        columns += [f"{metric}: mean", "range over cases", "cases with lower"]
    return Summary(columns, rows, values, _cases_note(cases))


def summarize_cases(cases: list[CaseResult], metric: str, size: int = 1_000) -> Summary:
    """Return a metric of each case and method at one size; the lowest of each case in bold."""
    rows = []
    for case in _with_size(cases, size):
        values = [case.mean(size, method, metric) for method in METHODS]
        cells = [f"**{_decimal(v, 3)}**" if v == min(values) else _decimal(v, 3) for v in values]
        rows.append([case.title, case.base, *cells])
    base = "class weights" if cases[0].kind == "real" else "base model"
    return Summary(["data set", base, *METHODS], rows)


def summarize_for_readme(cases: list[CaseResult]) -> Summary:
    """Return the mean log loss and AURC at each size, for each method."""
    sizes = _sizes(cases)
    rows = []
    for method in METHODS:
        means = [_mean_metrics(_with_size(cases, size), size, method) for size in sizes]
        losses = [_decimal(metrics["log loss"], 3) for metrics in means]
        aurc = [_decimal(metrics["AURC"], 3) for metrics in means]
        rows.append([method, *losses, *aurc])
    columns = ["method", *(f"log loss, {size:,} rows" for size in sizes), *(f"AURC, {size:,} rows" for size in sizes)]
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
    base = "class weights" if results[0].kind == "real" else "base model"
    columns = ["data set", base, "samples", "test rows", "processor time"]
    return Summary(columns, rows, values)


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


def _decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
