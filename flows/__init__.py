"""Default settings of Prefect and other libraries in this project.

Python runs this file before any module of the package, and so before Prefect is imported. Prefect reads its settings
only from the current folder, so they are read here from the root folder of the project. Environment variables that the
user has set take precedence.
"""

import gc
import os
import tomllib
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PREFECT_HOME = ROOT / ".prefect"
# In a read-only checkout, for which `flows.server.create_prefect_home` raises an error with a remedy.
UNUSABLE_HOME = "/dev/null/none"

# The environment may contain an editable install of another checkout, but each checkout must run its own library.
_LIBRARY = find_spec("relmap")
if _LIBRARY is None or not Path(str(_LIBRARY.origin)).is_relative_to(ROOT):
    _location = "nowhere" if _LIBRARY is None else _LIBRARY.origin
    raise ImportError(f"relmap was found at {_location}, not in {ROOT}; start Python in {ROOT}, with -m and without -P")


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _prefect_home() -> str:
    """Return the folder of Prefect's files, or UNUSABLE_HOME if this user cannot write to it."""
    writable_folder = PREFECT_HOME if PREFECT_HOME.exists() else ROOT
    return str(PREFECT_HOME) if _can_write(writable_folder) else UNUSABLE_HOME


# Settings of other libraries, and two settings of Prefect: its folder, and its log level in the console. The other
# settings of Prefect are in pyproject.toml under [tool.prefect], where its command line finds them too.
SETTINGS = {
    "PREFECT_HOME": _prefect_home(),
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # data sets and calibrators run in parallel; threads of their small matrix products would only compete
    "OMP_NUM_THREADS": "1",
    # the console shows the messages of this project; all log lines are in the Logs tab of the UI
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


def _environment_variables(section: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Convert settings of Prefect to environment variables: `server.ui.api_url` is PREFECT_SERVER_UI_API_URL."""
    variables: dict[str, str] = {}
    for key, value in section.items():
        name = f"{prefix}_{key.upper()}"
        if isinstance(value, dict):
            variables |= _environment_variables(value, name)
        else:
            variables[name] = str(value)
    return variables


_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PREFECT_SETTINGS = _environment_variables(_PROJECT["tool"]["prefect"], "PREFECT")
for _name, _value in (PREFECT_SETTINGS | SETTINGS).items():
    os.environ.setdefault(_name, _value)
# Prefect and Great Expectations create millions of permanent objects at import. With the default threshold, the garbage
# collector takes a sixth of the time of a run.
gc.set_threshold(100_000, 20, 20)
# `create_prefect_home` reports this with a remedy.
warnings.filterwarnings("ignore", "Failed to create the Prefect home directory")
