"""Print every message of library and pipeline that users read, on one page: `python -m tests.messages > messages.md`.

The texts are collected from the source: errors, warnings, notes and sentences, help of options and commands, log
messages, captions, and the pages' templates. Values that are filled in show as `…`. Read the page as a whole: a message
must be clear without the code that writes it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs/_ext"))

from source_texts import called_name, text_of  # noqa: E402 - needs the path above

PACKAGES = ("relmap", "tasks", "flows")
MIN_WORDS = 4  # shorter texts are names, units or parts of other texts
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log", "print"}
OPTION_CALLS = {"Option", "Argument", "Typer", "add_argument", "ArgumentParser", "Field"}
FIGURE_CALLS = {"figure", "Concept", "Table", "Figure"}


class Message(NamedTuple):
    """A text that users read.

    Attributes:
        kind: error, warning, help, log, figure, page, or sentence for everything else.
        file: Path from the root of the project.
        line: Line of the text in the file.
        text: The text.
    """

    kind: str
    file: str
    line: int
    text: str


def kind_of_call(node: ast.Call) -> str | None:
    """Return the kind of the texts in a call; None if the call does not determine it."""
    name = called_name(node)
    if name.endswith(("Error", "Exception", "Exit")) or name == "BadParameter":
        return "error"
    if name == "warn":
        return "warning"
    if name in OPTION_CALLS:
        return "help"
    if name in LOG_METHODS:
        return "log"
    if name in FIGURE_CALLS:
        return "figure"
    return None


def is_for_users(text: str) -> bool:
    """Check that a text is prose: some words, and not a pattern, a path, a query or markup."""
    words = re.findall(r"[A-Za-z]{2,}", text)
    is_code = re.search(r"\{\{|[\\^|]|\bSELECT\b|\bCASE\b|://|==|\(\?|</|</?\w+>|sans-serif", text)
    return len(words) >= MIN_WORDS and " " in text.strip() and not is_code


def messages_of_code(file: Path) -> Iterator[Message]:
    """Yield the messages of a Python file. Docstrings are omitted, except those of commands, which are their help."""
    path = file.relative_to(ROOT).as_posix()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    yield from _help_of_commands(tree, path)
    expressions = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = {id(value) for value in expressions if isinstance(value, ast.Constant)}
    yield from _messages_below(tree, "sentence", path, docstrings)


def _help_of_commands(tree: ast.Module, path: str) -> Iterator[Message]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        is_command = any("app.command" in name or name.startswith(("flow", "app.callback")) for name in decorators)
        docstring = ast.get_docstring(node)
        if is_command and docstring:
            yield Message("help", path, node.lineno, f"{node.name}: {docstring}")


def _messages_below(node: ast.AST, kind: str, path: str, docstrings: set[int]) -> Iterator[Message]:
    """Yield the messages inside a node. They have the kind of the innermost call that has one, otherwise `kind`."""
    for child in ast.iter_child_nodes(node):
        if id(child) in docstrings:
            continue
        child_kind = kind
        if isinstance(child, ast.Call):
            child_kind = kind_of_call(child) or kind
        if isinstance(child, ast.AnnAssign) and isinstance(child.annotation, ast.Subscript):
            child_kind = "help" if ast.unparse(child.annotation).startswith("Annotated") else kind
        text = text_of(child) if isinstance(child, ast.expr) else None
        if text is None:
            yield from _messages_below(child, child_kind, path, docstrings)
        elif is_for_users(text):
            yield Message(child_kind, path, child.lineno, " ".join(text.split()))


def messages_of_template(file: Path) -> Iterator[Message]:
    """Yield the texts of a page: all text between the tags of a template, and the string literals of a .js file."""
    path = file.relative_to(ROOT).as_posix()
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if file.suffix == ".js":
            texts = re.findall(r"\"([^\"]+)\"|`([^`]+)`", line)
            parts = [re.sub(r"\$\{[^}]*\}", "…", first or second) for first, second in texts]
        else:
            with_values = re.sub(r"\{\{.*?\}\}", "…", line)
            without_statements = re.sub(r"\{%.*?%\}", "", with_values)
            parts = [re.sub(r"<[^>]+>", "", without_statements)]
        for part in parts:
            if is_for_users(part):
                yield Message("page", path, number, " ".join(part.split()))


def all_messages() -> list[Message]:
    """Collect the messages of library and pipeline, in the order of the files."""
    messages: list[Message] = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            messages += messages_of_code(file)
        for file in sorted((ROOT / package).rglob("*")):
            if file.suffix in {".jinja", ".js"}:
                messages += messages_of_template(file)
    return messages


def format_page() -> str:
    """Format all messages as Markdown, grouped by file."""
    lines = ["# Messages", ""]
    file = ""
    for message in all_messages():
        if message.file != file:
            file = message.file
            lines += ["", f"## {file}", ""]
        lines.append(f"- {message.line} *{message.kind}*: {message.text}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(format_page(), end="")
