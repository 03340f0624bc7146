"""Write maps to files atomically, and validate them when they are read. Their JSON Schema is `map.schema.json`."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from relmap.calibrators.identity import Identity
from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import check_file, write_text
from relmap.maps import earlier
from relmap.maps.document import MapDocument

FORMAT = "mrp-reliability-map"
VERSION = 4
SCHEMA_FILE = Path(__file__).with_name("map.schema.json")
MAX_FILE_BYTES = 64 * 2**20  # a map of 8,000 thresholds for each of 100 labels is smaller


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a map, which is the content of `map.schema.json`.

    Returns:
        The schema.
    """
    schema = MapDocument.model_json_schema()
    del schema["title"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{FORMAT}, version {VERSION}",
        **schema,
    }


def describe_map(document: MapDocument) -> str:
    """Describe the models of a map and the rows that they were fitted on, for the last line of a report.

    Args:
        document: The map.

    Returns:
        A phrase.
    """
    calibrator = document.calibrator
    projection = document.projection
    calibrator_rows = f"fitted on {calibrator.rows:,} rows"
    if isinstance(calibrator.fitted, Identity):
        calibrator_rows = "(not fitted)"
    folds = f" in {len(document.folds)} folds" if document.folds else ""
    return (
        f"{calibrator.name} {calibrator_rows}, {projection.name} fitted on {projection.rows:,}, evaluated on "
        f"{document.held_out.rows:,}{folds}, of {document.source.rows:,} rows of {document.source.file}"
    )


def save_map(document: MapDocument, path: Path) -> None:
    """Write a map atomically, with one line for each entry or list of numbers.

    Args:
        document: The map.
        path: File to write.
    """
    write_text(path, _format_json(document.model_dump(mode="json")) + "\n")


def _format_json(content: object, indent: str = "") -> str:
    """Format JSON with one line for each entry; a list of plain values is on one line."""
    inner_indent = indent + "  "
    if isinstance(content, dict) and content:
        entries = []
        for key, value in content.items():
            entries.append(f"{inner_indent}{json.dumps(key)}: {_format_json(value, inner_indent)}")
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(content, list) and any(isinstance(value, dict | list) for value in content):
        items = [f"{inner_indent}{_format_json(value, inner_indent)}" for value in content]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def load_map(path: Path) -> MapDocument:
    """Read and validate a map.

    Args:
        path: The file.

    Returns:
        The map.

    Raises:
        InputError: The file is missing or not JSON, has another format or version, or is invalid; the message names
            the location.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from relmap import ReliabilityMap, load_map
        >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
        >>> labelled = simulate_predictions(600, seed=1)
        >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
        >>> with TemporaryDirectory() as folder:
        ...     model.save(Path(folder) / "map.json")
        ...     document = load_map(Path(folder) / "map.json")
        >>> document.label_names
        ('irrelevant', 'partial', 'exact')
    """
    check_file(path)
    text = _read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON, or a number of thousands of digits
        raise InputError(f"{path} is not a complete JSON file ({error}); fit the map again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is not a reliability map: it lacks the format {FORMAT!r}; give a map that fit wrote")
    version = content.get("version")
    if version == earlier.VERSION:
        text = json.dumps(earlier.convert_version_3(content, VERSION))
    elif version != VERSION:
        raise InputError(
            f"{path} has version {version!r} of the map format, and this program reads the versions {earlier.VERSION} "
            f"and {VERSION}; fit the map again, or use the version of the program that wrote it"
        )
    try:
        return MapDocument.model_validate_json(text)
    except ValidationError as error:
        errors = "; ".join(describe_validation_errors(error, "map"))
        raise InputError(f"{path} is not a valid reliability map; fit it again: {errors}") from None


def _read_text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"{path} has {size:,} bytes; a reliability map is far smaller; give a map that fit wrote")
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; `relmap fit` writes a map") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a complete JSON file ({error}); fit the map again") from None
