"""The error that the card raises when it has no room, worded as CUDA words it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import torch

if TYPE_CHECKING:
    from .card import Card

OutOfMemory: type[Exception] = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
"""What CUDA raises; the name is torch's own from 2.5 on."""

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def raise_out_of_memory(card: Card, size_bytes: int, cause: Exception | None) -> NoReturn:
    """Tell the probe, then raise.

    Args:
        card: Where there was no room.
        size_bytes: What was asked for.
        cause: What the allocator model said; None where the context itself did not fit.

    Raises:
        torch.OutOfMemoryError: Always.
    """
    message = _describe(card, size_bytes, cause)
    _tell_probe(card, size_bytes, message)
    raise OutOfMemory(message) from None


def _tell_probe(card: Card, size_bytes: int, message: str) -> None:
    """Let the probe write its flight record while everything is still held; it may not stop the error."""
    probe = sys.modules.get("vramscope_probe")
    record = getattr(probe, "record_out_of_memory", None)
    if record is not None:
        with suppress(Exception):
            record(
                size_bytes=size_bytes,
                message=message,
                device_free_bytes=card.memory.free_bytes(),
                device_index=card.ordinal,
                device_total_bytes=card.total_bytes,
            )


def _describe(card: Card, size_bytes: int, cause: Exception | None) -> str:
    """Return the text of c10/cuda/CUDACachingAllocator.cpp with this card's figures."""
    tried = getattr(cause, "segment_bytes", None) or size_bytes
    stats = card.allocator.memory_stats()
    allocated = int(stats.get("allocated_bytes.all.current", 0))
    reserved = int(stats.get("reserved_bytes.all.current", 0))
    limit = getattr(cause, "limit_bytes", None)
    context = card.context_bytes if card.has_context else 0
    allowed = f"{_format(limit)} allowed; " if limit is not None else ""
    return (
        f"CUDA out of memory. Tried to allocate {_format(tried)}. GPU {card.ordinal} has a total capacity of "
        f"{_format(card.total_bytes)} of which {_format(card.memory.free_bytes())} is free. "
        f"{_describe_others(card, reserved + context)}"
        f"Including non-PyTorch memory, this process has {_format(reserved + context)} memory in use. "
        f"{allowed}Of the allocated memory {_format(allocated)} is allocated by PyTorch, and "
        f"{_format(reserved - allocated)} is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def _describe_others(card: Card, own_bytes: int) -> str:
    """Name the other processes on a shared card, as far as the card knows them."""
    holders = getattr(card.memory, "holders", None)
    if holders is None:
        return ""
    return "".join(
        f"Process {pid} has {_format(size_bytes)} memory in use. "
        for pid, size_bytes in sorted(holders().items())
        if pid != os.getpid()
    )


def _format(size_bytes: int) -> str:
    for unit, name in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} bytes"
