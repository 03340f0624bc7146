"""The page in which `dvc plots` shows its plots: with Vega inside, so that it needs no network."""

from __future__ import annotations

from tasks.page.page import library


def dvc_plots_page() -> str:
    """HTML in which DVC fills in `{plot_divs}`; its own page would load Vega from a CDN."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <title>DVC Plot</title>
    <style>body {{ font-family: sans-serif; }} table {{ border-spacing: 15px; }}</style>
    <script>(() => {{ {library()} }})();</script>
</head>
<body>
    {{plot_divs}}
</body>
</html>
"""
