"""Chromium without a screen, for tests that look at what a person sees; it asks for nothing by itself."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}  # and the Debian package of each
QUIET = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
QUIET += " disable-component-update disable-sync window-size=1400,1300"
NOT_YET = (OSError, LookupError, TypeError, StopIteration)  # what a page, or a server, that is not there yet raises
PATIENCE = 120  # seconds for what a busy machine does at last


def open_browser(profile: Path, *flags: str) -> Any:
    """A driver whose logs hold what a page asks for and what it says; the test fails where a program is missing."""
    for program, package in PROGRAMS.items():
        assert shutil.which(program), f"{program} is missing; install the Debian package {package}"
    from selenium import webdriver  # `make test-system` installs it

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in [*QUIET.split(), f"user-data-dir={profile}", *flags]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def asked_for(driver: Any) -> set[str]:
    """Addresses that the page has asked for since this was called last."""
    sent = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    return {each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"}


def eventually(happens, within: float = PATIENCE):
    """What `happens` returns, once that is true; errors of a page that is being drawn count as not yet."""
    until = time.monotonic() + within
    while True:
        try:
            if seen := happens():
                return seen
        except Exception as error:
            if not (isinstance(error, NOT_YET) or type(error).__module__.startswith("selenium")):
                raise
            seen = error
        assert time.monotonic() < until, f"still {seen!r} after {within} seconds"
        time.sleep(0.2)
