"""Remove what old runs left: Prefect's records of them, stored calibrator fits, and explored results.

`python -m flows.prune --days 30` removes what is older; with `--dry-run` it only counts. What DVC keeps is left alone:
`dvc gc` removes old versions of that. Files that forms wrote (`data/served`) belong to their users.
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

from flows import HOME
from flows.server import own_home, queue_writers
from relmap.io.atomic import remove_path
from tasks.provenance.dvc_stages import stage_names
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tasks.provenance.stage import run_command
from tasks.records.store import DATA

DATABASE = HOME / "prefect.db"
EXPLORED = DATA / "explored"
SECONDS_PER_DAY = 24 * 60 * 60


def old_files(folder: Path, before: float) -> list[Path]:
    """Return the files directly in a folder that were neither written nor used since.

    Args:
        folder: Folder to look in; it may be missing.
        before: Time in seconds since 1970.

    Returns:
        The files, sorted. A calibrator fit that is found in the cache counts as used.
    """
    return [
        file
        for file in sorted(folder.glob("*"))
        if file.is_file() and max(file.stat().st_mtime, file.stat().st_atime) < before
    ]


def old_results(folder: Path, before: float) -> list[Path]:
    """Return the folders of explored results in which no file was written since.

    Args:
        folder: Folder that holds them; it may be missing.
        before: Time in seconds since 1970.

    Returns:
        The folders, sorted.
    """
    return [
        result
        for result in sorted(folder.glob("*"))
        if result.is_dir() and all(file.stat().st_mtime < before for file in result.rglob("*") if file.is_file())
    ]


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


async def _old_runs(before: timedelta) -> int:
    """Count the runs that ended longer ago than `before`, as Prefect's own cleaning would find them."""
    import sqlalchemy as sa  # noqa: PLC0415 - takes long, as all of Prefect's server
    from prefect.server.database import provide_database_interface  # noqa: PLC0415
    from prefect.server.schemas.states import TERMINAL_STATES  # noqa: PLC0415
    from prefect.types._datetime import now  # noqa: PLC0415

    database = provide_database_interface()
    run = database.FlowRun
    old = sa.select(sa.func.count(run.id)).where(
        run.parent_task_run_id.is_(None),
        run.state_type.in_(TERMINAL_STATES),
        run.end_time < now("UTC") - before,
    )
    async with database.session_context() as session:
        return int((await session.execute(old)).scalar_one())


async def _remove_old_runs() -> None:
    """Remove them with all that belongs to them, and old events, as Prefect's server does once an hour."""
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
    """Give the space of removed rows back to the disk, which SQLite does only when it is asked to."""
    with closing(sqlite3.connect(DATABASE, timeout=60)) as database:
        database.execute("VACUUM")


def _prune_database(days: int, dry_run: bool) -> str:
    """Remove old runs from Prefect's database; return a sentence about it."""
    own = "PREFECT_API_DATABASE_CONNECTION_URL" not in os.environ
    if own and not DATABASE.exists():
        return "Prefect's database does not exist yet."
    os.environ["PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD"] = str(days * SECONDS_PER_DAY)
    refresh_global_settings_context()  # Prefect was imported before
    queue_writers()
    runs = asyncio.run(_old_runs(timedelta(days=days)))
    if dry_run:
        return f"Prefect's database: {runs:,} runs would be removed."
    asyncio.run(_remove_old_runs())
    removed = f"Prefect's database: {runs:,} runs were removed"
    if not own:
        return f"{removed}."
    if is_lock_held(LOCKS / "serve.lock"):
        return f"{removed}. Its file shrinks when you run this command while flows.serve is stopped."
    before = size(DATABASE)
    _shrink_database()
    return f"{removed}, {megabytes(before - size(DATABASE))} of {megabytes(before)} are free again."


def _prune_paths(what: str, paths: list[Path], dry_run: bool) -> str:
    """Remove files or folders; return a sentence about it."""
    freed = megabytes(sum(map(size, paths)))
    if not dry_run:
        for path in paths:
            remove_path(path)
    return f"{what}: {len(paths):,} {'would be' if dry_run else 'were'} removed, {freed}."


def megabytes(count: int) -> str:
    """Return a number of bytes in words."""
    return f"{count / 1e6:.1f} MB"


def main(
    days: Annotated[int, typer.Option(min=1, help="Keep what was made or used in the last so many days.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
) -> None:
    """Remove old runs from Prefect's database, stored fits that no run used since, and old explored results."""
    own_home()
    before = time.time() - days * SECONDS_PER_DAY
    with ExitStack() as held:
        for name in ("refresh", *stage_names()):  # a run that reads a fit while it is removed would fail
            held.enter_context(hold_lock(name))
        fits = old_files(Path(str(PREFECT_LOCAL_STORAGE_PATH.value())), before)
        print(_prune_paths("Stored calibrator fits", fits, dry_run))
        print(_prune_paths("Explored results", old_results(EXPLORED, before), dry_run))
        print(_prune_database(days, dry_run))


if __name__ == "__main__":
    run_command(main, "prune")
