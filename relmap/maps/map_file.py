"""The file of a map: written whole, read with all of it checked. Its JSON Schema is `map.schema.json` beside this."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from relmap.calibrators.identity import Identity
from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import check_file, write_atomically
from relmap.maps.document import MapDocument

FORMAT = "mrp-reliability-map"
VERSION = 3
SCHEMA_FILE = Path(__file__).with_name("map.schema.json")
LARGEST_FILE = 64 * 2**20  # bytes; a map of 8,000 thresholds for each of 100 labels is smaller


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a map, as `map.schema.json` holds it."""
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{FORMAT}, version {VERSION}"}
    return draft | {key: value for key, value in MapDocument.model_json_schema().items() if key != "title"}


def described(document: MapDocument) -> str:
    """What a map is and what it was fitted on, for the last line of a report."""
    calibrator, projection = document.calibrator, document.projection
    without = isinstance(calibrator.fitted, Identity)
    fitted = "(which fits nothing and so takes no rows)" if without else f"on {calibrator.rows:,} rows"
    judged = f"judged on {document.held_out.rows:,}" + (f" in {len(document.folds)} folds" if document.folds else "")
    on = f"{projection.name} on {projection.rows:,}, {judged}, of {document.source.rows:,} in {document.source.file}"
    return f"{calibrator.name} {fitted}, {on}"


def save_map(document: MapDocument, path: Path) -> None:
    """Write a map: an entry a line, lists of numbers on one; it appears whole or not at all."""
    text = _readable(document.model_dump(mode="json")) + "\n"
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _readable(content: Any, indent: str = "") -> str:
    """JSON with a line for each entry, except that a list of plain values stands on one line."""
    deeper = indent + "  "
    if isinstance(content, dict) and content:
        inner = [f"{deeper}{json.dumps(key)}: {_readable(value, deeper)}" for key, value in content.items()]
        return "{\n" + ",\n".join(inner) + f"\n{indent}}}"
    if isinstance(content, list) and any(isinstance(value, dict | list) for value in content):
        return "[\n" + ",\n".join(f"{deeper}{_readable(value, deeper)}" for value in content) + f"\n{indent}]"
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def load_map(path: Path) -> MapDocument:
    """Read a map and check all of it.

    Raises:
        InputError: no such file, no file, not JSON, another format or version, or what is wrong with it, by its place.
    """
    check_file(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} has {path.stat().st_size:,} bytes; a reliability map is far smaller")
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: there is no such file; `relmap fit` makes a map") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or a number of thousands of digits
        raise InputError(f"{path} is not a whole JSON file ({error}); fit the map again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is no reliability map: it does not say format {FORMAT!r}")
    if (version := content.get("version")) != VERSION:
        known = f"of the map format, and this program reads version {VERSION}"
        raise InputError(
            f"{path} has version {version!r} {known}; fit the map again, or take the program that wrote it"
        )
    try:
        return MapDocument.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"{path} is no sound reliability map; fit it again: {'; '.join(describe_validation_errors(error, 'map'))}"
        ) from None
