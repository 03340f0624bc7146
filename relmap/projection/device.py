"""Where the projection computes, and whose turn it is there."""

import getpass
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from relmap.errors import InputError, needs_extra


def select_device(wanted: str | None) -> str:
    """The device that is wanted, or else CUDA where there is one; InputError if the wanted one is not there."""
    import torch  # noqa: PLC0415 - takes two seconds, and the CPU does without

    if wanted is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"MRP_DEVICE is {wanted!r}, which this machine does not have ({error}); say cpu or unset it"
        ) from None
    return wanted


def lock_device(device: str) -> AbstractContextManager:
    """Hold an accelerator alone, across the processes of this user; the CPU needs no turn."""
    if device == "cpu":
        return nullcontext()
    with needs_extra("pipeline"):
        from filelock import FileLock  # noqa: PLC0415 - an extra
    return FileLock(Path(tempfile.gettempdir()) / f"mrp-{getpass.getuser()}-{device.replace(':', '-')}.lock")
