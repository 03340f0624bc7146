"""A figure as a file that stands alone: SVG for the web, PDF for papers."""

import json
import re
from typing import Any

import vl_convert

from tasks.figures.style import written_out

# The lists of names in a PDF, which come in another order each time; sorted, they are as long.
RESOURCES = re.compile(rb"(/(?:XObject|ExtGState|Font|Pattern|Shading) <<\n)(.*?)(\n *>>)", re.DOTALL)


def svg(spec: dict[str, Any]) -> str:
    """The chart with its data, as SVG on a light ground."""
    return str(vl_convert.vegalite_to_svg(json.dumps(written_out(spec))))


def pdf(spec: dict[str, Any]) -> bytes:
    """The same as PDF, a point for each pixel; the same chart gives the same bytes."""
    written = bytes(vl_convert.vegalite_to_pdf(json.dumps(written_out(spec))))
    return RESOURCES.sub(lambda found: found[1] + b"\n".join(sorted(found[2].split(b"\n"))) + found[3], written)
