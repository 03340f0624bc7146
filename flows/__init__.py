"""Defaults for Prefect and other libraries in this project, set before any of them is imported; nothing else happens.

Python runs this file before any flow beside it, and so before Prefect. Prefect reads `prefect.toml` only from the
current folder, so its settings are read here, from the project's root. What a person has set in the environment wins.
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
HOME = ROOT / ".prefect"

# An environment may hold another checkout's editable install; a clone must run its own library.
_LIBRARY = find_spec("relmap")
if _LIBRARY is None or not Path(str(_LIBRARY.origin)).is_relative_to(ROOT):
    found = "nowhere" if _LIBRARY is None else _LIBRARY.origin
    raise ImportError(f"relmap was found at {found}, not in {ROOT}; start Python in {ROOT}, with -m and without -P")

# Prefect's own settings stand in pyproject.toml under [tool.prefect], where its command line finds them too. These are
# of other libraries, or depend on where the project lies.
SETTINGS = {
    # nowhere, where the checkout is another's or read-only; `flows.server.own_home` says so to those that need a home
    "PREFECT_HOME": str(HOME if os.access(HOME if HOME.exists() else ROOT, os.W_OK | os.X_OK) else "/dev/null/none"),
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # data sets and calibrators run side by side; threads within their small matrix products would only take turns
    "OMP_NUM_THREADS": "1",
    # the console shows our own words; an error is raised there anyway, and all of it is in the UI's Logs tab
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


def _named(section: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Prefect's settings as environment variables: `server.ui.api_url` is PREFECT_SERVER_UI_API_URL."""
    settings: dict[str, str] = {}
    for key, value in section.items():
        name = f"{prefix}_{key.upper()}"
        settings |= _named(value, name) if isinstance(value, dict) else {name: str(value)}
    return settings


OF_PREFECT = _named(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["prefect"], "PREFECT")
for _name, _value in (OF_PREFECT | SETTINGS).items():
    os.environ.setdefault(_name, _value)
# Prefect and Great Expectations make millions of objects at import that stay: looking for garbage among them takes
# a sixth of the time.
gc.set_threshold(100_000, 20, 20)
warnings.filterwarnings("ignore", "Failed to create the Prefect home directory")
