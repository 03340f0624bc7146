"""Measure how often thresholds for an accuracy miss it, and how much they find, where rows come in groups.

`python -m benchmarks.grouped_thresholds` compares the tests that use every row of each group with binomial tests of one
random row of each group. It writes the record `grouped-thresholds` of `docs/evidence/results.json`.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.special import expit, ndtri

from benchmarks.records import RESULTS, Record, last_commit, read_records, today, write_records
from relmap import ReliabilityMap
from relmap.maps.document import MapDocument
from relmap.routing.group_tests import RowGroups, min_groups_to_reject
from relmap.routing.thresholds import ThresholdEstimate, find_accuracy_thresholds, find_coverage_threshold

MEASURED_CODE = ("relmap/routing", "benchmarks/grouped_thresholds.py")
TARGET = 0.9
CONFIDENCE = 0.95
COVERAGE = "0.5"
ROWS_PER_GROUP = 10
N_GROUPS = (150, 300, 600, 1_200)
N_SAMPLES = 100
N_POPULATION = 50_000  # groups
COLUMNS = [
    "errors",
    "groups of 10 rows",
    "method",
    "target missed: all rows",
    "target missed: mean of groups",
    "samples with a threshold",
    "automatic rows, if found",
    "bound of `--coverage 0.5` too high",
]


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Rows in groups of equal size.

    Attributes:
        reliability: Shape (g, ROWS_PER_GROUP).
        correct: Shape (g, ROWS_PER_GROUP), bool.
    """

    reliability: np.ndarray
    correct: np.ndarray

    def accuracy_of_rows(self, threshold: float) -> float:
        """Return the accuracy of all rows at or above a threshold."""
        return float(self.correct[self.reliability >= threshold].mean())

    def mean_accuracy_of_groups(self, threshold: float) -> float:
        """Return the mean, over groups with rows at or above a threshold, of the accuracy of these rows."""
        selected = self.reliability >= threshold
        n_selected = selected.sum(axis=1)
        n_correct = (selected & self.correct).sum(axis=1)
        has_rows = n_selected > 0
        return float((n_correct[has_rows] / n_selected[has_rows]).mean())


def simulate_independent(generator: np.random.Generator, n_groups: int) -> GroupedRows:
    """Simulate independent errors, whose probability is 1 - reliability."""
    reliability = _simulate_reliability(generator, n_groups)
    return GroupedRows(reliability, generator.random(reliability.shape) < reliability)


def simulate_correlated(generator: np.random.Generator, n_groups: int) -> GroupedRows:
    """Simulate errors whose latent normal variables have a correlation of 0.5 in a group."""
    reliability = _simulate_reliability(generator, n_groups)
    return GroupedRows(reliability, _simulate_noise(generator, n_groups) < ndtri(reliability))


def simulate_shifted(generator: np.random.Generator, n_groups: int) -> GroupedRows:
    """Simulate reliabilities that are too high in some groups and too low in others.

    Groups with more automatic rows then have a lower accuracy, so that the accuracy of all rows is below the mean
    accuracy of groups.
    """
    reliability = _simulate_reliability(generator, n_groups)
    shift = generator.normal(size=(n_groups, 1))
    shown = expit(np.log(reliability / (1 - reliability)) + shift)
    return GroupedRows(shown, generator.random(reliability.shape) < reliability)


def simulate_just_missed(generator: np.random.Generator, n_groups: int) -> GroupedRows:
    """Simulate correlated errors where the accuracy is just below the target at every threshold."""
    reliability = _simulate_reliability(generator, n_groups)
    is_correct = _simulate_noise(generator, n_groups) < ndtri(TARGET - 1e-3)
    return GroupedRows(reliability, is_correct)


def _simulate_reliability(generator: np.random.Generator, n_groups: int) -> np.ndarray:
    return np.asarray(expit(1.8 + 1.5 * generator.normal(size=(n_groups, ROWS_PER_GROUP))))


def _simulate_noise(generator: np.random.Generator, n_groups: int) -> np.ndarray:
    """Return standard normal numbers; those of a group have a correlation of 0.5."""
    shared = generator.normal(size=(n_groups, 1))
    own = generator.normal(size=(n_groups, ROWS_PER_GROUP))
    return np.asarray((shared + own) / np.sqrt(2))


SIMULATIONS: dict[str, Callable[[np.random.Generator, int], GroupedRows]] = {
    "independent": simulate_independent,
    "correlated in a group": simulate_correlated,
    "reliability shifted by group": simulate_shifted,
    "accuracy just below the target": simulate_just_missed,
}


@dataclass
class Tally:
    """Results of one method over samples.

    Attributes:
        n_samples: Number of samples.
        n_found: Number of samples with a threshold.
        n_missed_by_rows: Number of samples where the accuracy of all rows misses the target.
        n_missed_by_groups: Number of samples where the mean accuracy of groups misses the target.
        total_coverage: Sum of the coverages of the thresholds that were found.
        n_wrong_bounds: Number of samples where the bound for a coverage is above the accuracy of all rows.
    """

    n_samples: int = 0
    n_found: int = 0
    n_missed_by_rows: int = 0
    n_missed_by_groups: int = 0
    total_coverage: float = 0.0
    n_wrong_bounds: int = 0

    def add(self, population: GroupedRows, found: ThresholdEstimate, covered: ThresholdEstimate) -> None:
        """Add the results of a sample: for the target accuracy, and for the coverage."""
        self.n_samples += 1
        if found.threshold is not None:
            self.n_found += 1
            self.n_missed_by_rows += population.accuracy_of_rows(found.threshold) < TARGET
            self.n_missed_by_groups += population.mean_accuracy_of_groups(found.threshold) < TARGET
            self.total_coverage += float((population.reliability >= found.threshold).mean())
        if covered.threshold is not None and covered.lower_bound is not None:
            self.n_wrong_bounds += population.accuracy_of_rows(covered.threshold) < covered.lower_bound

    def cells(self) -> list[str]:
        """Return the cells of the last five columns."""
        coverage = f"{self.total_coverage / self.n_found:.0%}" if self.n_found else "-"
        return [
            f"{self.n_missed_by_rows / self.n_samples:.1%}",
            f"{self.n_missed_by_groups / self.n_samples:.1%}",
            f"{self.n_found / self.n_samples:.0%}",
            coverage,
            f"{self.n_wrong_bounds / self.n_samples:.1%}",
        ]


def measure(name: str, n_groups: int, n_samples: int, n_population: int = N_POPULATION) -> dict[str, Tally]:
    """Find thresholds on samples by both methods, and compare them with a population.

    Args:
        name: Name of the simulation.
        n_groups: Number of groups in a sample.
        n_samples: Number of samples.
        n_population: Number of groups in the population.

    Returns:
        The results of each method.
    """
    simulate = SIMULATIONS[name]
    population = simulate(np.random.default_rng(0), n_population)
    document = make_map(population.reliability)
    tallies = {"every row": Tally(), "one row of each group": Tally()}
    for seed in range(1, n_samples + 1):
        generator = np.random.default_rng(seed)
        rows = simulate(generator, n_groups)
        groups = RowGroups(np.repeat(np.arange(n_groups), ROWS_PER_GROUP))
        tallies["every row"].add(population, *_find(document, rows.reliability.ravel(), rows.correct.ravel(), groups))
        column = generator.integers(ROWS_PER_GROUP, size=n_groups)
        one_row = np.arange(n_groups), column
        tallies["one row of each group"].add(
            population, *_find(document, rows.reliability[one_row], rows.correct[one_row], None)
        )
    return tallies


def make_map(reliability: np.ndarray) -> MapDocument:
    """Make a map of two labels whose candidate thresholds are the quantiles of a reliability.

    The other contents of the map have no influence on the thresholds.
    """
    document = _fit_map()
    quantiles = np.quantile(reliability, np.linspace(0, 1, 101))
    return document.model_copy(
        update={"held_out": document.held_out.model_copy(update={"quantiles": tuple(quantiles.tolist())})}
    )


@cache
def _fit_map() -> MapDocument:
    confidence = np.linspace(0.5, 0.99, 100)
    probabilities = np.column_stack([1 - confidence, confidence])
    return ReliabilityMap().fit(probabilities, (np.arange(100) % 5 > 0).astype(int)).document_


def _find(
    document: MapDocument, reliability: np.ndarray, correct: np.ndarray, groups: RowGroups | None
) -> tuple[ThresholdEstimate, ThresholdEstimate]:
    """Return the estimate for the target accuracy, and for the coverage."""
    decision = np.zeros(len(reliability), dtype=np.int64)
    found = find_accuracy_thresholds(
        document, reliability, decision, correct, target=TARGET, confidence=CONFIDENCE, groups=groups
    )
    covered = find_coverage_threshold(
        reliability, decision, correct, coverage=COVERAGE, confidence=CONFIDENCE, groups=groups
    )
    return found.overall, covered.overall


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grouped_thresholds", description=__doc__)
    parser.add_argument("--samples", type=int, default=N_SAMPLES, help="samples of each simulation and size")
    parser.add_argument("--groups", type=int, nargs="+", default=N_GROUPS, help="numbers of groups in a sample")
    parser.add_argument("--population", type=int, default=N_POPULATION, help="groups in the population")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of records; other records in it are kept")
    arguments = parser.parse_args()
    rows = []
    for name in SIMULATIONS:
        for n_groups in arguments.groups:
            tallies = measure(name, n_groups, arguments.samples, arguments.population)
            for method, tally in tallies.items():
                rows.append([name, f"{n_groups:,}", method, *tally.cells()])
                print(*rows[-1], sep=" | ", flush=True)
    values = {"samples": f"{arguments.samples:,}"}
    for percent in (80, 90, 95):
        values[f"min{percent}"] = str(min_groups_to_reject(percent / 100, 1 - CONFIDENCE))
    records = read_records(arguments.out)
    records["grouped-thresholds"] = Record(
        commit=last_commit(*MEASURED_CODE),
        date=today(),
        command="python -m benchmarks.grouped_thresholds",
        columns=COLUMNS,
        rows=rows,
        values=values,
    )
    write_records(records, arguments.out)


if __name__ == "__main__":
    main()
