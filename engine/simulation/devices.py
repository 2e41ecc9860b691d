"""Names of devices: which ordinals this process has, on which cards they are, what a script may name."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

# The call in progress named no device.
UNNAMED = -2
# The call in progress names the host.
HOST = -1


class ThreadState(threading.local):
    """Current device and streams of a thread, and the device that the call in progress asked for."""

    def __init__(self) -> None:
        # Current device, as `torch.cuda.set_device` left it.
        self.device = 0
        # Device that the call in progress names: an ordinal, HOST or UNNAMED.
        self.target = UNNAMED
        # Current stream of each device; absent for the default stream.
        self.streams: dict[int, int] = {}
        # How many contexts are open in which new storages cost nothing on the card.
        self.uncharged = 0
        # Whether PyTorch is computing shapes; tensors then claim to be on the host.
        self.is_inside = False
        # Whether a functional collective is being made, whose result says when somebody waits.
        self.is_functional = False
        # Bytes the next new storage costs, where they differ from its size.
        self.next_cost_bytes: int | None = None


state = ThreadState()


@contextmanager
def targeting(target: int) -> Iterator[None]:
    """Within the block, new storages of this thread are on a device (an ordinal, or HOST)."""
    before = state.target
    state.target = target
    try:
        yield
    finally:
        state.target = before


@contextmanager
def inside() -> Iterator[None]:
    """Within the block, tensors answer as the host tensors that they are, for PyTorch code that computes
    shapes.
    """
    before = state.is_inside
    state.is_inside = True
    try:
        yield
    finally:
        state.is_inside = before


@contextmanager
def uncharged() -> Iterator[None]:
    """Within the block, new storages of this thread are on their device without being counted."""
    state.uncharged += 1
    try:
        yield
    finally:
        state.uncharged -= 1


# A device that is neither the host nor simulated, such as `meta`.
ELSEWHERE = -4

Device = torch.device


class Devices:
    """The ordinals of this process. With fewer cards than local ranks, rank r's ordinal r is card r mod N."""

    def __init__(self, card_count: int, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        local_ranks = _read_count(environment.get("LOCAL_WORLD_SIZE")) or 1
        visible = _read_visible(environment.get("CUDA_VISIBLE_DEVICES"))
        self.cards = [ordinal % card_count for ordinal in range(max(card_count, local_ranks))]
        if visible is not None:
            self.cards = [self.cards[number] for number in visible if number < len(self.cards)]
        self.names = [Device("cuda", ordinal) for ordinal in range(len(self.cards))]
        # Whether this process was forked from one that had used a device; CUDA refuses to work
        # there.
        self.is_foreign = False

    @property
    def count(self) -> int:
        return len(self.cards)

    def resolve(self, device: Any) -> int:
        """Return the ordinal that a script names, HOST, or ELSEWHERE.

        Args:
            device: A `torch.device`, a string, or an ordinal.

        Raises:
            RuntimeError: There is no such device, in CUDA's words.
        """
        if isinstance(device, int) and not isinstance(device, bool):
            return self.check(device)
        if not isinstance(device, Device):
            device = Device(device)
        if device.type == "cuda":
            return self.check(state.device if device.index is None else device.index)
        return HOST if device.type == "cpu" else ELSEWHERE

    def check(self, ordinal: int) -> int:
        """Return an ordinal if it exists and may be used here.

        Raises:
            RuntimeError: It does not, or this process was forked after its parent had used a device.
        """
        if self.is_foreign:
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
                "you must use the 'spawn' start method"
            )
        if not torch.cuda._initialized:
            torch.cuda._lazy_init()
        if not 0 <= ordinal < len(self.cards):
            # Older versions of PyTorch have no class for errors of CUDA.
            raise getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: invalid device ordinal")
        return ordinal


def _read_count(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _read_visible(text: str | None) -> list[int] | None:
    """Parse CUDA_VISIBLE_DEVICES; as in CUDA, the first entry that is no ordinal ends the list."""
    if text is None:
        return None
    numbers = []
    for part in text.split(","):
        if not part.strip().isdigit():
            break
        numbers.append(int(part))
    return numbers
