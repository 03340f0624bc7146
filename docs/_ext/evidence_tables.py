"""Sphinx extension: tables and numbers of `docs/evidence/results.json` on the evidence pages.

The directive `evidence` shows the table of a record, and how it was measured. The role `measured` shows one number.
"""

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from evidence_records import RESULTS, Record, provenance, read_records, table, value
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

MAX_LINE = 28  # characters of a cell


class EvidenceTable(SphinxDirective):
    """Show the table of the record that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table and its provenance."""
        self.env.note_dependency(str(RESULTS))
        records = read_records()
        name = self.arguments[0]
        if name not in records:
            raise self.error(f"{RESULTS.name} has no record {name!r}")
        record = records[name]
        shown = self.parse_text_to_nodes(f"{table(record)}\n\n*{provenance(record)}*\n")
        classes = ["evidence", "numbers"] if has_short_cells(record) else ["evidence"]
        for each in shown:
            if isinstance(each, nodes.table):
                each["classes"] += classes
        return shown


def has_short_cells(record: Record) -> bool:
    """Return whether all cells, except the first of each row, fit on a line."""
    cells = [cell for row in record.rows for cell in row[1:]]
    return all(len(cell) <= MAX_LINE for cell in cells)


class MeasuredNumber(SphinxRole):
    """Show one number, named as `record/number`."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the number as text."""
        self.env.note_dependency(str(RESULTS))
        try:
            return [nodes.Text(value(read_records(), self.text))], []
        except KeyError:
            inliner: Inliner = self.inliner
            message = inliner.reporter.error(f"{RESULTS.name} has no number {self.text!r}", line=self.lineno)
            return [nodes.Text(self.text)], [message]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("evidence", EvidenceTable)
    app.add_role("measured", MeasuredNumber())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
