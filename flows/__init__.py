"""Prefect's settings for this project, made before Prefect is imported anywhere.

Python runs this file before any flow beside it, and so before Prefect. Prefect reads `prefect.toml` only from the
current folder, so the settings are made here, from the project's root. What a person has set in the environment wins.
"""

from __future__ import annotations

import gc
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SETTINGS = {
    "PREFECT_HOME": str(ROOT / ".prefect"),
    # nothing leaves the machine
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PREFECT_SERVER_API_HOST": "127.0.0.1",
    # the page asks its own host, whatever the port
    "PREFECT_SERVER_UI_API_URL": "/api",
    # in one write for many task runs: with the defaults an ephemeral server dies before it has recorded them all
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    # a whole second: Prefect 3.8.8 cuts fractions off, and with 0 its server spins and takes a core to itself
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    # a fresh home migrates its database first, which takes 13 s and more on a busy machine
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # the console shows our own words; an error is raised there anyway, and all of it is in the UI's Logs tab
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


def _answers(api_url: str) -> bool:
    """Does a Prefect API answer there within half a second?"""
    try:
        with urllib.request.urlopen(f"{api_url.rstrip('/')}/health", timeout=0.5) as answer:  # noqa: S310 - http(s) as the user set it
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


# Prefect and Great Expectations make millions of objects at import that stay: looking for garbage among them takes
# a sixth of the time.
gc.set_threshold(100_000, 20, 20)
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)
# With a dead PREFECT_API_URL Prefect fails; a server of the run's own does as well. `flows.rerank` needs none.
_asks = "PREFECT_API_URL" in os.environ and "flows.rerank" not in sys.orig_argv
if _asks and not _answers(os.environ["PREFECT_API_URL"]):
    print(f"no Prefect API answers at {os.environ.pop('PREFECT_API_URL')}: this run starts a server of its own")
