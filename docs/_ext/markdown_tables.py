"""Tables in Markdown."""

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Args:
        header: Column names.
        rows: Cells; each row has one for each column.

    Returns:
        The table, with a line break at its end.
    """
    lines = [header, ["---"] * len(header)]
    for row in rows:
        lines.append([cell.replace("|", "\\|").replace("\n", " ") for cell in row])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
