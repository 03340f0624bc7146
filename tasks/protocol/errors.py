"""The one error that a person can mend: it names the file and the place, what was found and what to do."""


class BadInput(ValueError):
    """Something handed in by a person is wrong: a file, a column, a name in `params.yaml`.

    The message is written for that person. The doors of the project (stages, flows, command line) print it
    without a traceback and exit with 1; anything else that is raised is our fault and keeps its traceback.
    """
