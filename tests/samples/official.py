"""Small raw folders of the official sets: every layout is theirs, the content made up here.

Each writer takes a folder and a number of `queries`: without any it writes the quirks that the sets are known for, a
few rows each; `queries` are added to them, with texts or features from which their labels can be learnt.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from samples.lists import write_alloprof, write_esci_rerank, write_scidocs
from samples.retrieval import write_alloprof_c, write_beir, write_esci_rerank_2, write_scidocs_2
from samples.shops import svmlight_line, write_esci, write_mslr, write_wands

__all__ = ["LAYOUTS", "PAGE", "POINTER", "WRITERS", "svmlight_line", "write_archive", "write_large"]

Writer = Callable[..., None]  # (folder: Path, queries: int = 0)

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 51286808\n".encode()
PAGE = b"<!DOCTYPE html>\n<html><body>404: Not Found</body></html>"

LAYOUTS: dict[tuple[str, str], Writer] = {  # (data set, key of its origin)
    ("amazon_esci", "github"): write_esci,
    **{("mslr_web10k", str(fold)): partial(write_mslr, fold=fold) for fold in range(1, 6)},
    ("alloprof_rerank", "b"): write_alloprof,
    ("alloprof_rerank", "c"): write_alloprof_c,
    ("esci_rerank_us", "v1"): write_esci_rerank,
    ("esci_rerank_us", "v2"): write_esci_rerank_2,
    ("wands", "github"): write_wands,
    ("scidocs", "mteb"): write_scidocs,
    ("scidocs", "beir"): write_beir,
    ("scidocs", "mteb2"): write_scidocs_2,
}
WRITERS: dict[str, Writer] = {  # of each set's default layout
    "amazon_esci": write_esci,
    "mslr_web10k": partial(write_mslr, inside="MSLR-WEB10K"),  # one folder deeper, as some copies are
    "alloprof_rerank": write_alloprof,
    "esci_rerank_us": write_esci_rerank,
    "wands": write_wands,
    "scidocs": write_scidocs,
}


def write_large(name: str, origin: str, folder: Path, queries: int = 120) -> None:
    """A raw folder to train on: 12 pairs for each query, every label in every split of both presets."""
    LAYOUTS[name, origin](folder, queries=queries)


def write_archive(folder: Path, archive: Path) -> None:
    """Pack all that lies in `folder` into a zip; the same files give the same bytes."""
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            packed.writestr(
                zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes(), zipfile.ZIP_DEFLATED
            )
