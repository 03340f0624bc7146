"""Prefect's settings for this project, made before Prefect is imported anywhere.

Python runs this file before any flow beside it, and so before Prefect. Prefect reads `prefect.toml` only from the
current folder, so they are read here, from the project's root. What a person has set in the environment wins.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tomllib
import urllib.error
import urllib.request
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tasks.protocol.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".prefect"

# Prefect's own settings stand in pyproject.toml under [tool.prefect], where its command line finds them too. These are
# of other libraries, or depend on where the project lies.
SETTINGS = {
    "PREFECT_HOME": str(HOME),
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # the console shows our own words; an error is raised there anyway, and all of it is in the UI's Logs tab
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


def _named(section: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Prefect's settings as environment variables: `server.ui.api_url` is PREFECT_SERVER_UI_API_URL."""
    found: dict[str, str] = {}
    for key, value in section.items():
        name = f"{prefix}_{key.upper()}"
        found |= _named(value, name) if isinstance(value, dict) else {name: str(value)}
    return found


def prefect_settings() -> dict[str, str]:
    """Those of pyproject.toml, by the names of their environment variables."""
    return _named(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["prefect"], "PREFECT")


def answers(api_url: str) -> bool:
    """Does a Prefect API answer there within five seconds? A dead one of this machine says so at once."""
    try:
        with urllib.request.urlopen(f"{api_url.rstrip('/')}/health", timeout=5) as answer:  # noqa: S310 - http(s) as the user set it
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _choose_server() -> None:
    """Set PREFECT_API_URL to a living server: the one that it names, or that `flows.serve` runs here; else to none.

    With a dead one Prefect would fail, where a server of the run's own does as well. That of `flows.serve` has a
    secret, and is left aside by a user who may not read it.
    """
    wanted = os.environ.get("PREFECT_API_URL")
    if wanted is not None and not answers(wanted):
        print(f"no Prefect API answers at {os.environ.pop('PREFECT_API_URL')}: this run starts a server of its own")
    served = ROOT / "data" / ".state" / "server.json"
    if served.exists() and _is_held(served.parent / "locks" / "serve.lock"):
        url, secret = json.loads(served.read_text(encoding="utf-8"))["api_url"], served.with_name("secret")
        told = {"PREFECT_API_AUTH_STRING": secret.read_text()} if os.access(secret, os.R_OK) else {}
        if wanted in {None, url} and bool(told) == secret.exists() and answers(url):
            os.environ.update({"PREFECT_API_URL": url, **told})


def _is_held(lock: Path) -> bool:
    """Does a living process hold it? One that was killed has left its words behind, but not its lock."""
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # in a checkout that is another's, or read-only: no server there is ours
        return False


def own_home() -> None:
    """Make the folder of Prefect's state, for this user alone; BadInput where the checkout does not allow it."""
    try:
        HOME.mkdir(exist_ok=True)
        HOME.chmod(0o700)
    except OSError as error:
        raise BadInput(
            f"{HOME} cannot be made this user's own ({error.strerror}): runs leave their state there; "
            "take a checkout that belongs to you and may be written to"
        ) from None


# Prefect and Great Expectations make millions of objects at import that stay: looking for garbage among them takes
# a sixth of the time.
gc.set_threshold(100_000, 20, 20)
for _name, _value in {**prefect_settings(), **SETTINGS}.items():
    os.environ.setdefault(_name, _value)
if "flows.rerank" not in sys.orig_argv:  # it needs none
    _choose_server()
    try:
        own_home()
    except BadInput:  # told by those that need it; `--help` does not, but Prefect reads its home when it is imported
        os.environ["PREFECT_HOME"] = f"{os.devnull}/none"
        warnings.filterwarnings("ignore", "Failed to create the Prefect home directory")
