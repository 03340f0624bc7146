"""Draw the pictures of the first page from real data, which do not belong to the project.

`python -m benchmarks.pictures --real-data FOLDER` writes `docs/_static/curves.svg`, the curves of a map, and
`docs/_static/report.png`, the top of a report page, with Chromium. The folder is that of `make evidence`.
"""

import argparse
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from benchmarks.evidence.cases import real_cases
from benchmarks.evidence.methods import LabelledRows
from relmap import ReliabilityMap, cli
from relmap.report.plot import Plot

FOLDER = Path(__file__).resolve().parent.parent / "docs/_static"
CASE = "science_balanced"
TITLE = "Science: confidence after temperature scaling, and the curves of the map"
LABELS = ("not relevant", "relevant")
N_FIT_ROWS = 3_000
WINDOW = (900, 715)  # pixels of the page
SCALE = 0.75  # pixels of the picture for each pixel of the page
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def load_rows(real_data: Path) -> tuple[LabelledRows, LabelledRows]:
    """Load labelled rows to fit a map on, and test rows.

    Args:
        real_data: Folder with the real data sets.

    Returns:
        Labelled rows and test rows.
    """
    (case,) = [case for case in real_cases(real_data) if case.key == CASE]
    return case.load(0)


def to_frame(rows: LabelledRows) -> pl.DataFrame:
    """Convert predictions to a frame with names of the labels."""
    assert rows.logits is not None
    label = [LABELS[code] for code in rows.label]
    return pl.DataFrame({"logits": rows.logits.tolist(), "label": label, "query": rows.group})


def draw_curves(labelled: pl.DataFrame, test: pl.DataFrame, out: Path) -> None:
    """Draw the curve of each label over the confidence after temperature scaling, with the accuracy of test rows.

    Args:
        labelled: Rows to fit the map on.
        test: Test rows.
        out: File of the picture.
    """
    model = ReliabilityMap(calibrator="ts", labels=LABELS).fit(labelled, groups="query")
    curves = model.plot(test).figures[0]
    Plot((curves._replace(spec={**curves.spec, "title": TITLE}),)).save(out)


def photograph_report(labelled: pl.DataFrame, out: Path) -> None:
    """Write a report page, and photograph its top with a browser.

    Args:
        labelled: Labelled rows.
        out: File of the picture.

    Raises:
        FileNotFoundError: No browser is installed.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise FileNotFoundError(f"install a browser: {' or '.join(BROWSERS)}")
    with TemporaryDirectory() as folder:
        rows = Path(folder, "science.parquet")
        page = Path(folder, "report.html")
        labelled.write_parquet(rows)
        options = ("--labels", ",".join(LABELS), "--group", "query")
        cli.app(["report", "--predictions", str(rows), "--out", str(page), *options], standalone_mode=False)
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                f"--window-size={WINDOW[0]},{WINDOW[1]}",
                f"--force-device-scale-factor={SCALE}",
                f"--screenshot={out}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )


def main() -> None:
    """Write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real-data", type=Path, required=True, help="folder with the real data sets")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures")
    options = parser.parse_args()
    labelled, test = map(to_frame, load_rows(options.real_data))
    draw_curves(labelled[:N_FIT_ROWS], test, options.out / "curves.svg")
    photograph_report(labelled[:N_FIT_ROWS], options.out / "report.png")


if __name__ == "__main__":
    main()
