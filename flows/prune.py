"""Remove data of old runs: records in Prefect's database, stored calibrator fits, and explored results.

Explored results are written to `data/explored` by runs outside of DVC, such as runs that a form started.

`python -m flows.prune --days 30` removes data that were neither written nor used in the last 30 days; with `--dry-run`
it only counts them. Files that DVC tracks do not change: use `dvc gc` to remove old versions. Files that forms wrote
(`data/served`) are not removed, since they belong to their users.
"""

import asyncio
import os
import sqlite3
import time
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_LOCAL_STORAGE_PATH

from flows import PREFECT_HOME
from flows.server import create_prefect_home, serialize_transactions
from relmap.io.atomic import remove_path
from tasks.provenance.dvc_stages import stage_names
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tasks.provenance.stage import run_command
from tasks.records.store import DATA

DATABASE = PREFECT_HOME / "prefect.db"
EXPLORED_FOLDER = DATA / "explored"
SECONDS_PER_DAY = 24 * 60 * 60


def list_old_files(folder: Path, before: float) -> list[Path]:
    """List the files of a folder that were neither written nor used since a given time.

    Args:
        folder: Folder to look in; it may be missing.
        before: Time in seconds since 1970.

    Returns:
        The files, sorted. A calibrator fit that was reused counts as used.
    """
    old = []
    for file in sorted(folder.glob("*")):
        if file.is_file() and max(file.stat().st_mtime, file.stat().st_atime) < before:
            old.append(file)
    return old


def list_old_results(folder: Path, before: float) -> list[Path]:
    """List the folders of explored results in which no file was written since a given time.

    Args:
        folder: Folder that holds them; it may be missing.
        before: Time in seconds since 1970.

    Returns:
        The folders, sorted.
    """
    old = []
    for result in sorted(folder.glob("*")):
        if result.is_dir() and all(file.stat().st_mtime < before for file in _files_in(result)):
            old.append(result)
    return old


def size_in_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder.

    Args:
        path: File or folder.

    Returns:
        Size in bytes.
    """
    files = [path] if path.is_file() else _files_in(path)
    return sum(file.stat().st_size for file in files)


def _files_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


async def _count_old_runs(age: timedelta) -> int:
    """Count the runs that ended longer ago than `age`, with the conditions of Prefect's own clean-up."""
    import sqlalchemy as sa  # noqa: PLC0415 - slow, as all imports of Prefect's server
    from prefect.server.database import provide_database_interface  # noqa: PLC0415
    from prefect.server.schemas.states import TERMINAL_STATES  # noqa: PLC0415
    from prefect.types._datetime import now  # noqa: PLC0415

    database = provide_database_interface()
    flow_runs = database.FlowRun
    old = sa.select(sa.func.count(flow_runs.id)).where(
        flow_runs.parent_task_run_id.is_(None),
        flow_runs.state_type.in_(TERMINAL_STATES),
        flow_runs.end_time < now("UTC") - age,
    )
    async with database.session_context() as session:
        return int((await session.execute(old)).scalar_one())


async def _remove_old_runs() -> None:
    """Remove old runs with their records, and old events, as Prefect's server does once an hour."""
    from prefect.server.database import provide_database_interface  # noqa: PLC0415
    from prefect.server.services import db_vacuum  # noqa: PLC0415

    database = provide_database_interface()
    await db_vacuum.vacuum_old_flow_runs(db=database)
    await db_vacuum.vacuum_events_with_retention_overrides(db=database)
    await db_vacuum.vacuum_old_events(db=database)
    await db_vacuum.vacuum_orphaned_logs(db=database)
    await db_vacuum.vacuum_orphaned_artifacts(db=database)
    await db_vacuum.vacuum_stale_artifact_collections(db=database)


def _shrink_database() -> None:
    """Release the disk space of removed rows. SQLite does this only on request."""
    with closing(sqlite3.connect(DATABASE, timeout=60)) as database:
        database.execute("VACUUM")


def _prune_database(days: int, dry_run: bool) -> str:
    """Remove old runs from Prefect's database, or only count them; return a message."""
    is_own_database = "PREFECT_API_DATABASE_CONNECTION_URL" not in os.environ
    if is_own_database and not DATABASE.exists():
        return "Prefect's database does not exist yet."
    os.environ["PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD"] = str(days * SECONDS_PER_DAY)
    refresh_global_settings_context()  # Prefect read the environment when it was imported
    serialize_transactions()
    n_runs = asyncio.run(_count_old_runs(timedelta(days=days)))
    if dry_run:
        return f"Prefect's database: {n_runs:,} runs would be removed."
    asyncio.run(_remove_old_runs())
    message = f"Prefect's database: {n_runs:,} runs were removed"
    if not is_own_database:
        return f"{message}."
    if is_lock_held(LOCKS / "serve.lock"):
        return f"{message}. The file shrinks if you run this command while flows.serve is stopped."
    size_before = size_in_bytes(DATABASE)
    _shrink_database()
    freed = size_before - size_in_bytes(DATABASE)
    return f"{message}, {format_megabytes(freed)} of {format_megabytes(size_before)} are free again."


def _prune_paths(description: str, paths: list[Path], dry_run: bool) -> str:
    """Remove files or folders, or only count them; return a message."""
    freed = format_megabytes(sum(size_in_bytes(path) for path in paths))
    verb = "would be" if dry_run else "were"
    if not dry_run:
        for path in paths:
            remove_path(path)
    return f"{description}: {len(paths):,} {verb} removed, {freed}."


def format_megabytes(n_bytes: int) -> str:
    """Format a size in megabytes.

    Args:
        n_bytes: Size in bytes.

    Returns:
        Text such as `1.5 MB`.
    """
    return f"{n_bytes / 1e6:.1f} MB"


def main(
    days: Annotated[int, typer.Option(min=1, help="Keep data that were written or used in the last DAYS days.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
) -> None:
    """Remove old runs from Prefect's database, unused calibrator fits, and old explored results."""
    create_prefect_home()
    before = time.time() - days * SECONDS_PER_DAY
    with ExitStack() as locks:
        for name in ("refresh", *stage_names()):  # a run would fail if the fit that it reads were removed
            locks.enter_context(hold_lock(name))
        fits = list_old_files(Path(str(PREFECT_LOCAL_STORAGE_PATH.value())), before)
        print(_prune_paths("Stored calibrator fits", fits, dry_run))
        print(_prune_paths("Explored results", list_old_results(EXPLORED_FOLDER, before), dry_run))
        print(_prune_database(days, dry_run))


if __name__ == "__main__":
    run_command(main, "prune")
