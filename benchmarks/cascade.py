"""Study of cascades: is the guarantee kept, and what does a cascade save?

`python -m benchmarks.cascade [--real-data FOLDER]` measures two tables of `docs/evidence`. The first draws rows of
two simulated models, whose reliabilities are right or distorted, chooses thresholds, and computes the accuracy of the
chosen thresholds on 100,000 other rows: it may be below the target in at most 5% of the draws. The second fits cascades
on the judges of FOLDER (`llm_judges_many/judges.parquet`), on one year, and measures cost and accuracy on the other.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import expit

from benchmarks.records import RESULTS, Record, last_commit, read_records, today, write_records
from relmap.cascade.apply import USE
from relmap.cascade.estimator import Cascade
from relmap.cascade.policy import CascadeRows, Costs, Plan, choose_policy, measure_policy
from relmap.errors import InputError
from relmap.routing.group_tests import RowGroups

MEASURED_CODE = ("relmap/cascade", "benchmarks/cascade.py")
YEARS = (2019, 2020)
POPULATION = 100_000
GROUP_ROWS = 10
MODELS = ("cheap", "strong")
STEPS_OF_PLANS: tuple[tuple[int, ...], ...] = ((0,), (1,), (0, 1), ())  # in the last one, a person decides every row
COSTS = Costs(models=(1.0, 10.0), person=100.0)
REAL_COSTS = {"cheap": 1.0, "strong": 10.0, "person": 100.0}
JUDGES = ("llama_four", "llama_sum", "llama_then", "flan_sum", "flan_then")
TARGET = 0.9


@dataclass(frozen=True)
class Cell:
    """One row of the first table.

    Attributes:
        rows: Number of labelled rows of a draw.
        has_groups: Whether the rows of ten-row groups err together.
        distortion: What the log-odds of the reliabilities are multiplied by; 1 is right.
        target: Target accuracy.
    """

    rows: int
    has_groups: bool
    distortion: float
    target: float


CELLS = tuple(
    Cell(rows, has_groups, distortion, target)
    for rows, has_groups, distortion in (
        (400, False, 1.0),
        (2_000, False, 1.0),
        (2_000, False, 2.0),
        (2_000, True, 1.0),
        (2_000, True, 2.0),
    )
    for target in (0.85, 0.95)
)


def simulate_models(n_rows: int, *, has_groups: bool, distortion: float, seed: int) -> CascadeRows:
    """Simulate reliabilities and correct decisions of a cheap and a strong model, and of a person who is right.

    Args:
        n_rows: Number of rows.
        has_groups: Whether the rows of a group have a common difficulty.
        distortion: What the log-odds of the reliabilities are multiplied by.
        seed: Seed.

    Returns:
        The rows.
    """
    generator = np.random.default_rng(seed)
    difficulty = generator.normal(size=n_rows)
    if has_groups:
        difficulty = difficulty / 2 + np.repeat(generator.normal(size=-(-n_rows // GROUP_ROWS)), GROUP_ROWS)[:n_rows]
    columns = []
    correct = []
    for skill, noise in ((1.2, 1.0), (2.2, 0.7)):
        log_odds = skill - difficulty
        correct.append(generator.random(n_rows) < expit(log_odds))
        columns.append(expit(distortion * (log_odds + noise * generator.normal(size=n_rows)) / (1 + noise**2)))
    correct.append(np.ones(n_rows, dtype=bool))
    return CascadeRows(np.column_stack(columns), np.column_stack(correct))


def measure_cell(cell: Cell, draws: int) -> dict[str, object]:
    """Choose thresholds in many draws, and count those that miss the target on the population.

    Args:
        cell: The situation.
        draws: Number of draws.

    Returns:
        Shares of draws, and mean costs.
    """
    population = simulate_models(POPULATION, has_groups=cell.has_groups, distortion=cell.distortion, seed=0)
    missed = 0
    costs = []
    for draw in range(draws):
        rows = simulate_models(cell.rows, has_groups=cell.has_groups, distortion=cell.distortion, seed=1000 + draw)
        half = cell.rows // 2
        groups = RowGroups.from_names(np.arange(half) // GROUP_ROWS, draw) if cell.has_groups else None
        plans = [_plan_of(steps, rows, half, groups) for steps in STEPS_OF_PLANS]
        chosen = choose_policy(plans, target=cell.target).chosen
        if chosen is None:
            continue
        steps = STEPS_OF_PLANS[chosen.plan]
        on_population = measure_policy(chosen.thresholds, keep_steps(population, steps), plans[chosen.plan].costs)
        missed += on_population.accuracy < cell.target
        costs.append(on_population.cost)
    return {
        "rows": cell.rows,
        "groups of 10": cell.has_groups,
        "distortion": cell.distortion,
        "target": cell.target,
        "found": len(costs) / draws,
        "missed": missed / draws,
        "mean cost": float(np.mean(costs)) if costs else None,
    }


def _plan_of(steps: tuple[int, ...], rows: CascadeRows, half: int, groups: RowGroups | None) -> Plan:
    kept = keep_steps(rows, steps)
    candidates = CascadeRows(kept.score[:half], kept.correct[:half])
    tests = CascadeRows(kept.score[half : 2 * half], kept.correct[half : 2 * half], groups)
    return Plan(tuple(MODELS[step] for step in steps), costs_of(steps), candidates, tests)


def costs_of(steps: tuple[int, ...]) -> Costs:
    """Return the costs of the models of some steps, and of the person.

    Args:
        steps: Numbers of the models, in their order.
    """
    return replace(COSTS, models=tuple(COSTS.models[step] for step in steps))


def keep_steps(rows: CascadeRows, steps: tuple[int, ...]) -> CascadeRows:
    """Keep the models of some steps, and the person, who comes last.

    Args:
        rows: Rows with all models and the person.
        steps: Numbers of the models to keep, in their order.

    Returns:
        The rows, without their groups.
    """
    return CascadeRows(rows.score[:, list(steps)], rows.correct[:, [*steps, -1]])


def measure_judges(judges: pl.DataFrame, fit_year: int) -> Iterator[dict[str, object]]:
    """Fit a cascade on one year for each pair of judges, and measure it on the other year.

    Args:
        judges: Rows with `year`, `query`, `label` and a column for each judge.
        fit_year: Year to fit on.

    Yields:
        Costs and accuracies of a pair.
    """
    binary = judges.with_columns([(pl.col(name) >= 2).cast(pl.Int64) for name in (*JUDGES, "label")])
    binary = binary.with_row_index("id")
    fitted = binary.filter(pl.col("year") == fit_year)
    other = binary.filter(pl.col("year") != fit_year)
    for cheap, strong in permutations(JUDGES, 2):
        models = {"cheap": {"decision": cheap}, "strong": {"decision": strong}}
        try:
            cascade = Cascade(models, REAL_COSTS, target_accuracy=TARGET).fit(fitted)
        except InputError:
            continue
        routed = pl.DataFrame(cascade.apply(other.drop("label")))
        route = routed["cascade_route"].to_numpy()
        is_correct = routed["cascade_decision"].cast(pl.Int64).to_numpy() == other["label"].to_numpy()
        final = np.where(route == USE, is_correct, True)
        assert cascade.summary_ is not None
        numbers = cascade.summary_.numbers
        random = numbers["alternatives"]["random routing"]
        yield {
            "cheap": cheap,
            "strong": strong,
            "fitted on": fit_year,
            "cost": numbers["chosen"]["cost"],
            "cost, random": None if random is None else random["cost"],
            "accuracy, same year": numbers["chosen"]["accuracy"],
            "accuracy, other year": float(final.mean()),
            "to a person, other year": float((route == "person").mean()),
        }


def as_record(rows: list[dict[str, object]], command: str, measured_code: tuple[str, ...] = MEASURED_CODE) -> Record:
    """Format rows of one table as a record for the pages.

    Args:
        rows: The rows, all with the same keys.
        command: Command that measured them.
        measured_code: Files and folders of the code that was measured.

    Returns:
        The record.
    """
    cells = [[_format_cell(name, value) for name, value in row.items()] for row in rows]
    return Record(commit=last_commit(*measured_code), date=today(), command=command, columns=list(rows[0]), rows=cells)


def _format_cell(column: str, value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and "cost" in column:
        return f"{value:.1f}"
    if isinstance(value, float) and column != "distortion":
        return f"{100 * value:.1f}%"
    return f"{value:g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure the tables, and write them as records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cascade", description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--real-data", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of records; other records in it are kept")
    arguments = parser.parse_args()
    measured: dict[str, Record] = {}
    simulated = []
    for cell in CELLS:
        simulated.append(measure_cell(cell, arguments.draws))
        print(simulated[-1], flush=True)
    command = f"python -m benchmarks.cascade --draws {arguments.draws}"
    measured["cascade-guarantee"] = as_record(simulated, command)
    if arguments.real_data is not None:
        judges = pl.read_parquet(arguments.real_data / "llm_judges_many" / "judges.parquet")
        rows = []
        for year in YEARS:
            for row in measure_judges(judges, year):
                rows.append(row)
                print(row, flush=True)
        measured["cascade-judges"] = as_record(rows, f"{command} --real-data FOLDER")
    write_records(read_records(arguments.out) | measured, arguments.out)


if __name__ == "__main__":
    main()
