"""A figure as a file that stands alone: SVG for the web, PDF for papers."""

from __future__ import annotations

import json
from typing import Any

import vl_convert

from tasks.figures.style import written_out


def svg(spec: dict[str, Any]) -> str:
    """The chart with its data, as SVG on a light ground."""
    return str(vl_convert.vegalite_to_svg(json.dumps(written_out(spec))))


def pdf(spec: dict[str, Any]) -> bytes:
    """The same as PDF, a point for each pixel."""
    return bytes(vl_convert.vegalite_to_pdf(json.dumps(written_out(spec))))
