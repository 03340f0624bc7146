"""Headless Chromium without background requests, for tests of pages."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}  # and the Debian package of each
QUIET = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
QUIET += " disable-component-update disable-sync window-size=1400,1300"
NOT_READY_ERRORS = (OSError, LookupError, TypeError, StopIteration)  # of a page or server that is not ready
PATIENCE = 120  # seconds, on a busy machine


def open_browser(profile: Path, *flags: str) -> Any:
    """Start a driver that logs requests and console messages; the test fails if a program is missing."""
    for program, package in PROGRAMS.items():
        assert shutil.which(program), f"{program} is missing; install the Debian package {package}"
    from selenium import webdriver  # `make test-system` installs it

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in [*QUIET.split(), f"user-data-dir={profile}", *flags]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def requested_addresses(driver: Any) -> set[str]:
    """Return the addresses that the page has requested since the last call."""
    sent = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    return {each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"}


def eventually(condition, within: float = PATIENCE):
    """Return the value of a function once it is true; errors of a page or server that is not ready are ignored."""
    until = time.monotonic() + within
    while True:
        try:
            value = condition()
            if value:
                return value
        except Exception as error:
            if not (isinstance(error, NOT_READY_ERRORS) or type(error).__module__.startswith("selenium")):
                raise
            value = error
        assert time.monotonic() < until, f"still {value!r} after {within} seconds"
        time.sleep(0.2)
