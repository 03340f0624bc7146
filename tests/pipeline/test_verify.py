"""`flows.verify` finds a flipped bit in an output of a stage and in DVC's cache."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows import verify
from tests.project_copy import clean_environment, flip_bit

STAGES = {
    "one": {"cmd": "mkdir out; echo abc > out/a.csv; echo def > out/b.csv", "outs": ["out"]},
    "two": {"cmd": "cp out/a.csv two.csv", "deps": ["out"], "outs": ["two.csv"]},
}


def dvc(*arguments: str) -> str:
    command = [sys.executable, "-m", "dvc", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=clean_environment()).stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        dvc("init", "-q", "--no-scm")
        dvc("config", "core.site_cache_dir", str(folder / ".dvc/tmp/site"))
        Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
        dvc("repro", "-q")
    return folder


def check(capsys) -> tuple[int, str]:
    """Run the command; return its exit status and its output."""
    try:
        verify.main()
    except SystemExit as ended:
        return int(str(ended.code)), capsys.readouterr().out
    return 0, capsys.readouterr().out


def test_a_flipped_bit_of_an_output_or_of_the_cache_is_reported_until_it_is_repaired(finished, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    assert check(capsys)[0] == 0

    flip_bit(Path("out/a.csv"))
    assert "up to date" in dvc("status")  # DVC trusts the inode, the size and the time
    status, printed = check(capsys)
    assert status == 1
    assert "out is modified\n" in printed
    assert "two.csv" not in printed
    dvc("checkout", "--force", "out")  # DVC still trusts the file
    assert check(capsys)[0] == 1
    subprocess.run(["rm", "-r", "out"], check=True)
    dvc("repro", "-q")
    assert check(capsys)[0] == 0

    (cached,) = [path for path in Path(".dvc/cache/files/md5").glob("??/*") if path.read_text() == "abc\n"]
    flip_bit(cached)
    status, printed = check(capsys)
    assert status == 1
    assert re.search(rf"^{re.escape(str(cached.absolute()))} \(DVC's cache\) .*corrupt$", printed, re.MULTILINE)
    cached.unlink()
    dvc("repro", "-q")
    assert check(capsys)[0] == 0


def test_a_missing_output_and_a_missing_object_are_reported(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    Path("two.csv").unlink()
    (listing,) = Path(".dvc/cache/files/md5").glob("??/*.dir")
    listing.rename(tmp_path / listing.name)
    printed = check(capsys)[1]
    assert "two.csv is deleted\n" in printed
    assert re.search("^out .*not in cache$", printed, re.MULTILINE)
