"""What each thread is doing on the simulated device; CUDA keeps the current device per thread too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

UNNAMED = -2
"""The call in progress named no device."""
HOST = -1
"""The call in progress names the host."""


class ThreadState(threading.local):
    """Current device and streams of a thread, and what the call in progress asked for."""

    def __init__(self) -> None:
        self.device = 0
        """Current device, as `torch.cuda.set_device` left it."""
        self.target = UNNAMED
        """Device that the call in progress names: an ordinal, HOST or UNNAMED."""
        self.streams: dict[int, int] = {}
        """Current stream of each device; absent for the default stream."""
        self.uncharged = 0
        """How many contexts are open in which new storages cost nothing on the card."""
        self.is_inside = False
        """Whether PyTorch computes shapes, and tensors answer as those of the host."""
        self.next_cost_bytes: int | None = None
        """What the next new storage costs, where that is not its own size."""


state = ThreadState()


@contextmanager
def targeting(target: int) -> Iterator[None]:
    """Let new storages of this thread be on a device (an ordinal, or HOST) for a while."""
    before = state.target
    state.target = target
    try:
        yield
    finally:
        state.target = before


@contextmanager
def inside() -> Iterator[None]:
    """Let tensors answer as those of the host that they are, for code of PyTorch that computes shapes."""
    before = state.is_inside
    state.is_inside = True
    try:
        yield
    finally:
        state.is_inside = before


@contextmanager
def uncharged() -> Iterator[None]:
    """Let new storages of this thread be on their device without being counted for a while."""
    state.uncharged += 1
    try:
        yield
    finally:
        state.uncharged -= 1
