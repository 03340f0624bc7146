"""Device and threads of the projection."""

import pytest

from relmap import InputError
from relmap.projection.mrp import lock_device, select_device

torch = pytest.importorskip("torch")


def test_the_requested_device_is_used_if_it_exists():
    assert select_device("cpu") == "cpu"
    assert select_device("meta") == "meta"  # torch's device without memory exists everywhere


def test_without_a_request_the_device_is_cuda_if_there_is_one(monkeypatch):
    for is_available, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda answer=is_available: answer)
        assert select_device(None) == device


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_missing_device_is_rejected():
    with pytest.raises(InputError, match=r"the_device .*'cuda'.*to cpu"):
        select_device("cuda", setting="the_device")


def test_an_accelerator_is_locked_and_the_cpu_is_not(tmp_path, monkeypatch):
    filelock = pytest.importorskip("filelock")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with lock_device("cpu"):
        assert list(tmp_path.iterdir()) == []
    with lock_device("cuda"):
        (lock,) = tmp_path.rglob("*.lock")
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(lock).acquire(timeout=0)


def test_a_fit_restores_the_number_of_threads():
    from relmap.projection.lattices_torch import one_thread

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
