"""The library runs without the modules and functions that only POSIX systems have.

A process on Linux runs it without them. This replaces runs on macOS and Windows, which have not been done yet.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_POSIX = """
import os, signal, sys

MODULES = {
    "crypt", "fcntl", "grp", "nis", "ossaudiodev", "pty", "pwd", "readline", "resource", "spwd", "syslog", "termios",
    "tty",
}
FUNCTIONS = (
    "chown", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid",
    "initgroups", "killpg", "lchown", "mkfifo", "mknod", "nice", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "pread",
    "pwrite", "sched_getaffinity", "sched_setaffinity", "setpgid", "setsid", "setuid", "statvfs", "sysconf", "uname",
)
SIGNALS = ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "alarm", "setitimer", "pthread_sigmask")

class NotOnThisSystem:
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotOnThisSystem())
for name in MODULES:
    sys.modules.pop(name, None)
"""
REMOVE_FUNCTIONS = """
for name in FUNCTIONS:
    if hasattr(os, name):
        delattr(os, name)
for name in SIGNALS:
    if hasattr(signal, name):
        delattr(signal, name)
"""
DEPENDENCIES = """
import altair, duckdb, jinja2, joblib, narwhals, numpy, polars, pyarrow.parquet, pydantic, rich, sqlglot, typer
import scipy.optimize, scipy.stats, sklearn.model_selection, vl_convert
"""
EVERYTHING = """
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
import relmap
for module in walk_packages(relmap.__path__, "relmap."):
    # the last two need torch
    if module.name not in ("relmap.__main__", "relmap.projection.lattices_torch"):
        import_module(module.name)

from relmap import cli
from relmap.simulation import demo
from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions

Path("demo").mkdir()
for seed, (name, rows) in enumerate(demo.ROWS.items()):
    columns = ["label"] if name == "new" else []
    simulate_predictions(rows, seed=seed).drop(columns).write_parquet(f"demo/{name}.parquet")
for command in demo.demo_commands(Path("demo")):
    cli.app(command, standalone_mode=False)
labels = ["--labels", ",".join(LABEL_NAMES)]
report = ["report", "--predictions", "demo/validation.parquet", *labels, "--out", "report.html"]
cli.app(report, standalone_mode=False)
cli.app(["sql", "--map", "report.map.json"], standalone_mode=False)

from page_code import run_page
run_page(Path(sys.argv[1]))
"""


def run_without_posix(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code without the modules and functions of POSIX; dependencies may use the functions."""
    paths = f"sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'docs/_ext')!r}]"
    lines = [WITHOUT_POSIX, DEPENDENCIES, REMOVE_FUNCTIONS, paths, code]
    command = [sys.executable, "-c", "\n".join(lines), str(ROOT / "README.md")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_command_and_the_readme_run_without_posix(tmp_path):
    completed = run_without_posix(EVERYTHING, tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "demo/scored.parquet").exists()


PRINT_ERRORS = """
for statement in ("import fcntl", "os.getuid()", "signal.SIGALRM"):
    try:
        exec(statement)
    except (ImportError, AttributeError) as error:
        print(error)
"""


def test_code_that_needs_posix_fails(tmp_path):
    errors = run_without_posix(PRINT_ERRORS, tmp_path).stdout.splitlines()
    assert [re.findall(r"'(\w+)'", error) for error in errors] == [["fcntl"], ["os", "getuid"], ["signal", "SIGALRM"]]
