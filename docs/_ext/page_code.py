"""Run the code of a Markdown page, and insert what it prints.

Each page is a small program. Its blocks run from top to bottom, in one temporary folder:

- `python` blocks share one namespace;
- `bash` blocks are commands; lines that begin with `relmap` run in this process, which saves starting Python;
- `<!-- setup ... -->` holds Python code that runs and is not shown, such as code that writes the example's data.

`<!-- output -->` after a block is replaced by what the block printed. `<!-- not run: reason -->` before a block says
why it is not run. SVG files that the code writes are copied to a folder, so that the page can show them as figures.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relmap import cli

RUN = ("python", "bash")  # languages of blocks that run
FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
PART = re.compile(
    r"^```(?P<language>[^\n`]*)\n(?P<code>.*?)^```$"
    r"|^<!-- setup\n(?P<setup>.*?)^-->\n"
    r"|^<!-- not run: (?P<reason>[^\n]+?) -->\n"
    r"|^(?P<output><!-- output -->)$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class PageRun:
    """Result of running a page.

    Attributes:
        text: The page with the printed output inserted, and without the comments of this module.
        figures: Names of the SVG files that the code wrote.
    """

    text: str
    figures: tuple[str, ...]


def blocks_to_run(text: str) -> list[tuple[str, str]]:
    """Return language and code of the blocks of a page that run, without those that are marked as not run."""
    marked = re.sub(r"^<!-- not run: [^\n]+ -->\n```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [(each["language"], each["code"]) for each in FENCE.finditer(marked) if each["language"] in RUN]


def run_page(page: Path, figures: Path | None = None) -> PageRun:
    """Run the code of a page in a new temporary folder.

    Args:
        page: Markdown file.
        figures: Folder to copy SVG files to; None to leave them.

    Returns:
        The page as it is shown.

    Raises:
        Exception: What the code raised; a note names the page and the line of the block.
    """
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "__main__"}
    parts: list[str] = []
    output = ""
    position = 0  # in the text, after the last part
    skip = False  # whether a comment excludes the next block
    with tempfile.TemporaryDirectory() as folder, working_in(Path(folder)):
        for match in PART.finditer(text):
            parts.append(text[position : match.start()])
            position = match.end()
            if match["reason"] is not None:
                skip = True
                continue
            if match["output"] is not None:
                parts.append(f"```{{code-block}} text\n:class: output\n\n{output.rstrip()}\n```")
                continue
            line = text.count("\n", 0, match.start()) + 1
            try:
                if match["setup"] is not None:
                    _run("python", match["setup"], namespace, page, line)
                    continue
                if match["language"] in RUN and not skip:
                    output = _run(match["language"], match["code"], namespace, page, line)
            except BaseException as error:
                error.add_note(f"{page}, line {line}: this block failed")
                raise
            skip = False
            parts.append(match.group())
        drawn = sorted(Path(folder).glob("*.svg"))
        if figures is not None and drawn:
            figures.mkdir(parents=True, exist_ok=True)
            for figure in drawn:
                shutil.copy(figure, figures / figure.name)
        names = tuple(figure.name for figure in drawn)
    return PageRun("".join([*parts, text[position:]]), names)


def _run(language: str, code: str, namespace: dict[str, object], page: Path, line: int) -> str:
    """Run one block, which begins at a line of the page, and return what it printed."""
    if language == "python":
        with printed() as output:
            exec(compile("\n" * line + code, str(page), "exec"), namespace)  # noqa: S102 - code of our own pages
        return output.getvalue()
    text = ""
    for command in code.replace("\\\n", " ").splitlines():
        words = shlex.split(command, comments=True)
        if not words:
            continue
        if words[0] == "relmap" and ">" in words:
            *words, _, file = words
            result = io.StringIO()
            messages = io.StringIO()
            with contextlib.redirect_stdout(result), contextlib.redirect_stderr(messages):
                cli.app(words[1:], standalone_mode=False)
            Path(file).write_text(result.getvalue(), encoding="utf-8")
            text += messages.getvalue()
        elif words[0] == "relmap":
            with printed() as output:
                cli.app(words[1:], standalone_mode=False)
            text += output.getvalue()
        else:
            search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # finds `relmap`
            ended = subprocess.run(  # noqa: S602 - commands of our own pages
                command,
                shell=True,
                check=False,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PATH": search_path},
            )
            if ended.returncode:
                raise RuntimeError(f"{command!r} failed with exit status {ended.returncode}:\n{ended.stdout}")
            text += ended.stdout
    return text


@contextlib.contextmanager
def printed() -> Iterator[io.StringIO]:
    """Collect what is printed within the block."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield output


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Run the block in another working directory."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
