"""SQL of a reliability map, executed in PostgreSQL and Spark. `make test-system` runs it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from relmap.maps.sql import sql_expression
from tests.maps import SQL_TOLERANCE, make_maps_for_sql, make_rows_for_sql

pytestmark = pytest.mark.system

Evaluate = Callable[[str, pl.DataFrame], np.ndarray]  # SQL expression and rows -> reliabilities, NaN for NULL
# Spark compiles every query again: hundreds of thresholds take seconds, thousands more memory than it has
DOCUMENTS = {"postgres": make_maps_for_sql(n_thresholds=5000), "spark": make_maps_for_sql(n_thresholds=100)}


def postgres_program(name: str) -> str:
    """Return the path of a program of PostgreSQL; Debian installs server programs outside of PATH."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    program = shutil.which(name) or (str(installed[-1]) if installed else None)
    if program is None:
        pytest.fail(f"PostgreSQL's {name} is missing; install the Debian package postgresql")
    return program


def run(command: list[str], folder: Path, text: str | None = None) -> str:
    result = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, f"{command[0]} ... failed: {result.stderr[:2000]}"
    return result.stdout


@pytest.fixture(scope="module")
def postgres() -> Iterator[Evaluate]:
    """Temporary server on a socket in a temporary folder."""
    initdb = postgres_program("initdb")
    server = postgres_program("pg_ctl")
    psql = postgres_program("psql")
    # the server refuses to run as root, and so runs as nobody
    as_nobody = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
    # not in pytest's folder, which other users cannot enter; the path of a socket must be short
    with tempfile.TemporaryDirectory(prefix="mrp-sql-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if as_nobody:
            shutil.chown(folder, "nobody")
        data = str(folder / "data")
        run([*as_nobody, initdb, "-D", data, "-U", "mrp", "--auth=trust", "--encoding=UTF8", "--no-sync"], folder)
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        # the log is a file, since `run` would wait for a server that holds its pipe
        run([*as_nobody, server, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start"], folder)
        try:
            yield lambda expression, rows: evaluate_in_postgres([psql, "-h", name], folder, expression, rows)
        finally:
            run([*as_nobody, server, "-D", data, "-w", "-m", "immediate", "stop"], folder)


def evaluate_in_postgres(psql: list[str], folder: Path, expression: str, rows: pl.DataFrame) -> np.ndarray:
    rows.write_csv(folder / "rows.csv")
    kinds = {name: "double precision" if kind.is_float() else "int" for name, kind in rows.schema.items()}
    script = f"""
        CREATE TEMP TABLE predictions ({", ".join(map(" ".join, kinds.items()))});
        \\copy predictions FROM 'rows.csv' (FORMAT csv, HEADER)
        COPY (SELECT {expression} AS reliability FROM predictions ORDER BY place) TO STDOUT (FORMAT csv);
    """
    command = [*psql, "-U", "mrp", "-d", "postgres", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-"]
    return np.array([float(line or "nan") for line in run(command, folder, script).splitlines()])


@pytest.fixture(scope="module")
def spark(tmp_path_factory) -> Iterator[Evaluate]:
    """Spark in this process, on one core, bound to localhost."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.fail("Java is missing; install the Debian package openjdk-17-jre-headless")
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        pytest.fail("PySpark is missing; run `make test-system`, which installs it in a folder of its own")
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "ERROR",
    }
    session = SparkSession.builder.master("local[1]").appName("mrp").config(map=settings).getOrCreate()
    try:
        yield lambda expression, rows: evaluate_in_spark(session, folder, expression, rows)
    finally:
        session.stop()


def evaluate_in_spark(session, folder: Path, expression: str, rows: pl.DataFrame) -> np.ndarray:
    file = folder / "predictions.parquet"
    rows.write_parquet(file)
    selected = session.read.parquet(str(file)).selectExpr("place", f"{expression} AS reliability").orderBy("place")
    assert dict(selected.dtypes)["reliability"] == "double"
    return np.array([row["reliability"] for row in selected.collect()], dtype=float)  # NaN for None


@pytest.fixture(scope="module", params=["postgres", "spark"])
def engine(request) -> tuple[str, Evaluate]:
    return request.param, request.getfixturevalue(request.param)


@pytest.mark.parametrize("name", DOCUMENTS["spark"])
def test_the_engine_agrees_with_apply_and_returns_null_without_a_score(engine, name):
    dialect, evaluate = engine
    document = DOCUMENTS[dialect][name]
    frame, reliability = make_rows_for_sql(document)
    in_engine = evaluate(sql_expression(document, dialect), frame)
    print(
        f"{dialect}, {name}: {len(frame):,} rows, largest difference {np.nanmax(np.abs(in_engine - reliability)):.1e}"
    )
    np.testing.assert_allclose(in_engine, reliability, rtol=0, atol=SQL_TOLERANCE)
