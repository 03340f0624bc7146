"""Measure time and memory of `relmap apply` on files of many rows, and the time of the same scores as SQL.

A file repeats two million simulated rows of five labels. The sizes are multiples of a million rows; a hundred million
rows need 15 GB of disk space.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
from pyarrow import parquet

from benchmarks.conftest import simulate_predictions
from benchmarks.records import RESULTS, ROOT, Record, last_commit, read_records, today, write_records
from relmap.io.atomic import write_atomically
from relmap.maps.document import load_map
from relmap.maps.sql import sql_expression

N_LABELS = 5
N_FIT_ROWS = 20_000
MILLIONS = (1, 10, 100)
MEASURED_CODE = ("relmap/routing/apply.py", "relmap/io", "relmap/maps/score.py")
COLUMNS = ["rows", "file, MB", "seconds", "CPU seconds", "rows per second", "peak memory, MB"]


def simulate_file(blocks: Sequence[Path], n_blocks: int, out: Path) -> None:
    """Write a file that repeats the rows of several files, in row groups of 125,000 rows."""
    tables = [parquet.read_table(block) for block in blocks]

    def write(path: Path) -> None:
        with parquet.ParquetWriter(
            path, tables[0].schema, compression="zstd", use_dictionary=["group"], write_page_checksum=True
        ) as writer:
            for number in range(n_blocks):
                writer.write_table(tables[number % len(tables)], row_group_size=125_000)

    write_atomically(out, write)


def simulate_predictions_file(folder: Path, n_blocks: int, block_rows: int) -> None:
    """Write `predictions.parquet` in a folder."""
    blocks = []
    for seed in (1, 2):
        block = folder / f"block{seed}.parquet"
        simulate_predictions(block_rows, N_LABELS, seed).write_parquet(block)
        blocks.append(block)
    simulate_file(blocks, n_blocks, folder / "predictions.parquet")


def run_apart(function: Callable[..., None], *arguments: object) -> None:
    """Call a function in a new process: a command that starts in this one begins with the peak memory of this one."""
    process = get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def run_command(*arguments: str) -> list[str]:
    """Run `relmap` in a new process; return its wall and CPU seconds and its peak memory in MB, as cells."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "relmap", *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return [f"{seconds:.1f}", f"{usage.ru_utime + usage.ru_stime:.1f}", f"{usage.ru_maxrss * 1024 / 1e6:,.0f}"]


def measure(folder: Path, n_blocks: int, block_rows: int) -> list[str]:
    """Apply a map to a file of `n_blocks` times `block_rows` rows; return the cells of COLUMNS."""
    labelled = folder / "labelled.parquet"
    fitted = folder / "map.json"
    simulate_predictions(min(N_FIT_ROWS, block_rows), N_LABELS, 0).write_parquet(labelled)
    run_command("fit", "--predictions", str(labelled), "--out", str(fitted), "--force")
    run_apart(simulate_predictions_file, folder, n_blocks, block_rows)
    file = folder / "predictions.parquet"
    options = ("--map", str(fitted), "--predictions", str(file), "--out", str(folder / "routed.parquet"), "--force")
    seconds, cpu_seconds, memory = run_command("apply", *options)
    n_rows = n_blocks * block_rows
    megabytes = f"{file.stat().st_size / 1e6:,.0f}"
    return [f"{n_rows:,}", megabytes, seconds, cpu_seconds, f"{n_rows / float(seconds):,.0f}", memory]


def measure_sql(folder: Path, block_rows: int) -> float:
    """Compute confidence and reliability of a file in DuckDB, as files; return CPU seconds."""
    labelled = folder / "labelled.parquet"
    fitted = folder / "map.json"
    file = folder / "predictions.parquet"
    simulate_predictions(min(N_FIT_ROWS, block_rows), N_LABELS, 0).write_parquet(labelled)
    simulate_predictions(block_rows, N_LABELS, 1).write_parquet(file)
    run_command("fit", "--predictions", str(labelled), "--out", str(fitted), "--force")
    document = load_map(fitted)
    logits = ", ".join(f"logits[{label + 1}] AS logits_{label}" for label in range(N_LABELS))
    decision = "list_position(logits, list_max(logits)) - 1 AS decision"
    decided = f"SELECT label, {decision}, {logits} FROM '{file}'"
    calibrated = f"SELECT *, {sql_expression(document, 'duckdb', 'confidence')} AS confidence FROM ({decided})"
    scored = f"SELECT *, {sql_expression(document, 'duckdb')} AS reliability FROM ({calibrated})"
    with duckdb.connect() as engine:
        start = time.process_time()
        engine.execute(f"COPY ({scored}) TO '{folder / 'scored.parquet'}' (FORMAT parquet)")
        return time.process_time() - start


def describe(rows: Sequence[Sequence[str]], block_rows: int, sql_seconds: float) -> dict[str, str]:
    """Compute CPU microseconds for a row, and CPU hours for a billion rows, as they are shown in sentences."""
    microseconds = [1e6 * float(row[3]) / int(row[0].replace(",", "")) for row in rows]
    sql_microseconds = 1e6 * sql_seconds / block_rows
    return {
        "cpu-first": f"{microseconds[0]:.1f}",
        "cpu-last": f"{microseconds[-1]:.1f}",
        "rows-first": rows[0][0],
        "rows-last": rows[-1][0],
        "memory-last": rows[-1][5],
        "hours": f"{1e9 * microseconds[-1] / 3.6e9:.1f}",
        "half-hours": f"{1e9 * microseconds[-1] / 7.2e9:.1f}",
        "sql": f"{sql_microseconds:.1f}",
        "sql-hours": f"{1e9 * sql_microseconds / 3.6e9:.1f}",
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apply_by_rows", description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=MILLIONS, help="millions of rows")
    parser.add_argument("--block-rows", type=int, default=1_000_000, help="rows that count as a million, for tests")
    parser.add_argument("--folder", type=Path, help="folder for temporary files (default: that of the system)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of records; other records in it are kept")
    arguments = parser.parse_args()
    rows = []
    for n_blocks in arguments.millions:
        with TemporaryDirectory(dir=arguments.folder) as folder:
            rows.append(measure(Path(folder), n_blocks, arguments.block_rows))
        print(*rows[-1], sep=" | ", flush=True)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        sql_seconds = measure_sql(Path(folder), arguments.block_rows)
    print(f"SQL: {sql_seconds:.1f} CPU seconds", flush=True)
    records = read_records(arguments.out)
    records["apply-by-rows"] = Record(
        commit=last_commit(*MEASURED_CODE),
        date=today(),
        command=f"python -m benchmarks.apply_by_rows --millions {' '.join(map(str, arguments.millions))}",
        columns=COLUMNS,
        rows=rows,
        values=describe(rows, arguments.block_rows, sql_seconds),
    )
    write_records(records, arguments.out)


if __name__ == "__main__":
    main()
