"""Measure how well each method predicts whether decisions are correct, for the evidence pages of the documentation.

Writes `docs/evidence/results.json` and the table of the README. Each case is stored when it is done. If a run
is interrupted, the next one continues it.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.evidence.cases import Case, real_cases, simulated_cases
from benchmarks.evidence.methods import measure, predict_reliabilities
from benchmarks.evidence.nothing_to_learn import KEY as NOTHING_TO_LEARN
from benchmarks.evidence.nothing_to_learn import measure_nothing_to_learn
from benchmarks.evidence.summary import CaseResult, Measurement, summarize
from benchmarks.records import RESULTS, ROOT, Record, git, last_commit, read_records, today, with_tables, write_records
from relmap import InputError
from relmap.io.atomic import write_text

STORE = ROOT / "data/evidence"
MEASURED_CODE = (
    "relmap",
    "benchmarks/evidence/methods.py",
    "benchmarks/evidence/cases.py",
    "benchmarks/evidence/nothing_to_learn.py",
)
SIZES = (100, 300, 1_000, 3_000)
N_SAMPLES = 2
N_SAMPLES_NOTHING_TO_LEARN = 120


def measure_case(case: Case, sizes: tuple[int, ...], n_samples: int) -> CaseResult:
    """Fit and measure every method on samples of the labelled rows of a case.

    Args:
        case: Data set and base model.
        sizes: Numbers of labelled rows. Sizes beyond the rows of the data set are omitted.
        n_samples: Number of random samples of each size.

    Returns:
        The metrics of each sample, size and method.
    """
    started = time.process_time()
    measurements: list[Measurement] = []
    rows, test = case.load(0)
    for sample in range(n_samples):
        if case.kind == "simulated" and sample > 0:
            rows, test = case.load(sample)
        generator = np.random.default_rng((sample, 1))
        fit_rows = rows.replace_labels(case.noise, generator)
        test_rows = test.replace_labels(case.noise, generator)
        order = np.random.default_rng(sample).permutation(len(rows.label))
        for size in sizes:
            if size > len(order):
                continue
            reliabilities = predict_reliabilities(fit_rows.take(order[:size]), test_rows, seed=sample + 1)
            for method, reliability in reliabilities.items():
                measurements.append(Measurement(size, sample, method, measure(reliability, test_rows.correct)))
    return CaseResult(
        key=case.key,
        title=case.title,
        base=case.base,
        kind=case.kind,
        n_test_rows=len(test.label),
        measurements=measurements,
        cpu_seconds=time.process_time() - started,
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--real-data", type=Path, help="folder of the real data sets; without it they are skipped")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of records; other records in it are kept")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="page whose table is updated")
    parser.add_argument("--store", type=Path, default=STORE, help="folder of finished cases")
    parser.add_argument("--samples", type=int, default=N_SAMPLES, help="random samples of each size")
    parser.add_argument(
        "--samples-nothing-to-learn",
        type=int,
        default=N_SAMPLES_NOTHING_TO_LEARN,
        help="samples of each size where there is nothing to learn",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of labelled rows")
    parser.add_argument(
        "--only", nargs="+", default=(), help="keys of cases: only measure and store these, and write no records"
    )
    arguments = parser.parse_args()

    commit = measured_commit()
    command = "make evidence"
    cases = list(simulated_cases())
    if arguments.real_data is not None and arguments.real_data.is_dir():
        cases += real_cases(arguments.real_data)
        command = "make evidence REAL_DATA=<folder>"
    else:
        problem = "--real-data is not given" if arguments.real_data is None else f"no folder {arguments.real_data}"
        print(f"real data are skipped ({problem}); the records of real data stay as they are")
    sizes = tuple(arguments.sizes)
    measurements: dict[str, Callable[[], CaseResult]] = {}
    for case in cases:
        measurements[case.key] = partial(measure_case, case, sizes, arguments.samples)
    measurements[NOTHING_TO_LEARN] = partial(measure_nothing_to_learn, arguments.samples_nothing_to_learn)

    folder = arguments.store / f"{commit}-{arguments.samples}-{'-'.join(map(str, sizes))}"
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for key, measure_result in measurements.items():
        if not arguments.only or key in arguments.only:
            results.append(load_or_measure(key, folder, measure_result))
    if not arguments.only:
        write_evidence(results, commit, command, arguments.out, arguments.readme)


def write_evidence(results: list[CaseResult], commit: str, command: str, out: Path, readme: Path) -> None:
    """Write the summaries of all cases to the records, and the table of the README.

    Args:
        results: Results of all cases.
        commit: Commit whose code was measured.
        command: Command that repeats the measurement.
        out: File of records; other records in it are kept.
        readme: Page whose table is updated.
    """
    date = today()
    records = read_records(out)
    for name, summary in summarize(results).items():
        records[name] = Record(
            commit=commit,
            date=date,
            command=command,
            columns=summary.columns,
            rows=summary.rows,
            values=summary.values,
            note=summary.note,
        )
    write_records(records, out)
    if "readme" in records:
        text = readme.read_text(encoding="utf-8")
        write_text(readme, with_tables(text, records))
    minutes = sum(result.cpu_seconds for result in results) / 60
    print(f"{out}: {len(results)} cases, {minutes:.1f} minutes of processor time, commit {commit}")


def load_or_measure(key: str, folder: Path, measure_result: Callable[[], CaseResult]) -> CaseResult:
    """Load the stored result of a case; measure and store it first if it is missing."""
    path = folder / f"{key}.json"
    if not path.exists():
        with threadpool_limits(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for example about labels with few rows
            try:
                result = measure_result()
            except InputError as error:
                error.add_note(f"in case {key}")
                raise
        write_text(path, json.dumps(result.to_dict()))
        print(f"{key}: {result.cpu_seconds:.0f} s of processor time", flush=True)
    return CaseResult.from_dict(json.loads(path.read_text(encoding="utf-8")))


def measured_commit() -> str:
    """Return the last commit that changed the measured code, marked if there are uncommitted changes.

    Cases are stored by this commit, so they stay valid after commits that do not change the measured code.
    """
    commit = last_commit(*MEASURED_CODE)
    changed = git("status", "--porcelain", "--", *MEASURED_CODE)
    return f"{commit[:7]} with changes" if changed else commit


if __name__ == "__main__":
    main()
