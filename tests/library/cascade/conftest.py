"""Fixtures of the tests of cascades."""

import pytest

from tests.cascades import HandFits, replace_fits


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> HandFits:
    """Let cascades have maps by hand in place of fits, and try fewer thresholds."""
    return replace_fits(monkeypatch)
