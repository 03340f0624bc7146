"""Prefect's settings are made before Prefect, tell nobody anything, and keep its server from spinning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows import SETTINGS

ROOT = Path(__file__).resolve().parent.parent


def after_import(code: str, **environment: str) -> str:
    """What a fresh Python prints after importing `flows` with this environment."""
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS and "PREFECT" not in name}
    done = subprocess.run(
        [sys.executable, "-c", f"import os, sys, flows; {code}"],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PREFECT_SERVER_ANALYTICS_ENABLED", "false"),
        ("DO_NOT_TRACK", "1"),
        ("GX_ANALYTICS_ENABLED", "false"),
        ("DVC_NO_ANALYTICS", "1"),
        ("HF_HUB_DISABLE_TELEMETRY", "1"),
        ("PREFECT_SERVER_API_HOST", "127.0.0.1"),
        ("PREFECT_HOME", str(ROOT / ".prefect")),
    ],
)
def test_nothing_is_told_to_anybody_and_all_state_is_the_projects_own(name, value):
    assert after_import(f"print(os.environ['{name}'])") == value


def test_dvc_tells_nobody_anything_either():
    assert "analytics = false" in (ROOT / ".dvc/config").read_text()


def test_what_a_person_has_set_wins():
    assert after_import("print(os.environ['PREFECT_HOME'])", PREFECT_HOME="elsewhere") == "elsewhere"


def test_prefect_is_not_imported_by_the_settings():
    assert after_import("print('prefect' in sys.modules)") == "False"


def test_the_recorder_flushes_in_whole_seconds():
    # Prefect 3.8.8 cuts the interval to an int; at 0 its server loops without a pause
    assert int(float(SETTINGS["PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL"])) >= 1


def test_a_dead_server_is_said_and_left_aside():
    printed = after_import("print('PREFECT_API_URL' in os.environ)", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert printed.splitlines()[0].startswith("no Prefect API answers at http://127.0.0.1:9/api")
    assert printed.splitlines()[-1] == "False"
