"""The comparison of a GPU with the CPU runs with few rows, on the CPU, and with no other packages than it names."""

import json
import subprocess
import sys

import pytest

from benchmarks import cuda
from benchmarks.conftest import ROOT
from relmap.projection.registry import VARIANTS

BLOCKED = ("pytest", "prefect", "dvc", "sklearn", "pyarrow", "narwhals", "typer", "yaml")


def test_the_device_agrees_with_the_cpu_without_other_packages(tmp_path):
    out = tmp_path / "results.json"
    arguments = ["--device", "cpu", "--rows", "60", "--fits", "1", "2", "--out", str(out)]
    program = "\n".join(
        [
            "import sys",
            f"sys.modules.update(dict.fromkeys({BLOCKED!r}))",  # importing one of them now fails
            "from benchmarks.cuda import main",
            f"sys.exit(main({arguments!r}))",
        ]
    )
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    results = json.loads(out.read_text())
    operations = [operation.name for operation in cuda.OPERATIONS]
    assert [check["name"] for check in results["checks"]] == [*operations, *(f"data set: {key}" for key in VARIANTS)]
    sizes = [(timing["name"], timing["n_fits"]) for timing in results["timings"]]
    assert sizes == [(name, n_fits) for name in operations for n_fits in (1, 2)]


@pytest.mark.parametrize(("difference", "is_repeatable"), [(2e-6, True), (0.0, False)])
def test_a_difference_fails_the_run(difference, is_repeatable, monkeypatch):
    monkeypatch.setattr(cuda, "check_operation", lambda *_: cuda.Check("mrp", difference, is_repeatable))
    monkeypatch.setattr(cuda, "check_data_set", lambda *_: [])
    monkeypatch.setattr(cuda, "OPERATIONS", cuda.OPERATIONS[:1])
    assert cuda.main(["--device", "cpu", "--rows", "20", "--fits", "1"]) == 1


def test_long_times_are_estimated_in_proportion():
    data = cuda.simulate_fits(4, 20)
    first, second = cuda.measure(cuda.OPERATIONS[1], data, (1, 4), "cpu:0", limit_s=0)
    assert not first.cpu.is_estimate
    assert second.cpu.is_estimate
    assert second.cpu.seconds == 4 * first.cpu.seconds


def test_without_a_gpu_the_script_says_so(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cuda.main([]) == 2
    assert "CUDA" in capsys.readouterr().err
