"""Where the projection computes."""

from __future__ import annotations

import torch

from tasks.protocol.errors import BadInput


def available_device(wanted: str | None) -> str:
    """The device that is wanted, or else CUDA where there is one; BadInput if the wanted one is not there."""
    if wanted is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(
            f"MRP_DEVICE is {wanted!r}, which this machine does not have ({error}); say cpu or unset it"
        ) from None
    return wanted
