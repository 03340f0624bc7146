"""Device on which the projection is computed, and the lock that serializes its use."""

import getpass
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from relmap.errors import InputError, needs_extra


def select_device(requested: str | None) -> str:
    """Select the device of the projection.

    Args:
        requested: Name of a torch device; None for CUDA if it is available, else the CPU.

    Returns:
        Name of an available device.

    Raises:
        InputError: The requested device is not available.
    """
    import torch  # noqa: PLC0415 - takes two seconds to import, and the CPU path does not need it

    if requested is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=requested)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"MRP_DEVICE is {requested!r}, which this machine does not have ({error}); set it to cpu or unset it"
        ) from None
    return requested


def lock_device(device: str) -> AbstractContextManager[object]:
    """Lock an accelerator against other processes of the same user.

    Args:
        device: Name of a torch device; the CPU is not locked.

    Returns:
        Context manager that holds the lock.

    Raises:
        InputError: The package filelock is not installed.
    """
    if device == "cpu":
        return nullcontext()
    with needs_extra("pipeline"):
        from filelock import FileLock  # noqa: PLC0415 - optional dependency
    lock_file = Path(tempfile.gettempdir()) / f"mrp-{getpass.getuser()}-{device.replace(':', '-')}.lock"
    return FileLock(lock_file)
