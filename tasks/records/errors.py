"""Errors of pipeline runs."""


class RunFailed(Exception):
    """A run cannot continue; the message names the data set, calibrator or seed, and the reason."""
