"""Headless Chromium for tests of what a user sees. The browser itself makes no requests."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}  # program -> its Debian package
CHROMIUM_FLAGS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "window-size=1400,1300",
)
NOT_READY_ERRORS = (OSError, LookupError, TypeError, StopIteration)  # raised by a page or a server that is starting
WAIT_SECONDS = 300  # a busy machine is slow


def open_browser(profile: Path, *flags: str) -> Any:
    """Start Chromium with logs of its requests and of its console; fail if a program is missing."""
    for program, package in PROGRAMS.items():
        assert shutil.which(program), f"{program} is missing; install the Debian package {package}"
    from selenium import webdriver  # `make test-system` installs it

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in [*CHROMIUM_FLAGS, f"user-data-dir={profile}", *flags]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def requested_urls(driver: Any) -> set[str]:
    """Return the addresses that the page has requested since the last call, without requests that a policy blocked."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    blocked = set()
    for message in messages:
        if message["method"] == "Network.loadingFailed" and message["params"].get("blockedReason") == "csp":
            blocked.add(message["params"]["requestId"])
    requests = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return {request["request"]["url"] for request in requests if request["requestId"] not in blocked}


def wait_until(condition: Callable[[], Any], timeout: float = WAIT_SECONDS) -> Any:
    """Call `condition` until it returns a true value, and return that value.

    Errors of a page that is still loading count as false.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            result = condition()
            if result:
                return result
        except Exception as error:
            if not (isinstance(error, NOT_READY_ERRORS) or type(error).__module__.startswith("selenium")):
                raise
            result = error
        assert time.monotonic() < deadline, f"still {result!r} after {timeout} seconds"
        time.sleep(0.2)
