"""The card of a made-up repository: what `datasets` reads its layout from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

Tables = Mapping[tuple[str, str], pl.DataFrame]  # (config, split) -> rows


def write_repository(folder: Path, tables: Tables) -> None:
    """Write each table as `<config>/<split>-00000-of-00001.parquet` (`data/` for default), and README.md."""
    configs: dict[str, list[str]] = {}
    for (config, split), frame in tables.items():
        place = f"{'data' if config == 'default' else config}/{split}-00000-of-00001.parquet"
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(folder / place)
        configs.setdefault(config, []).append(f"  - split: {split}\n    path: {place}\n")
    listed = "".join(f"- config_name: {name}\n  data_files:\n{''.join(files)}" for name, files in configs.items())
    card = f"---\nconfigs:\n{listed}---\nMade up: no row of it was ever judged by anybody.\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
