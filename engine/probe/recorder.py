"""The switch of PyTorch's record of stacks, which the program may use as well: whose recording runs."""

from __future__ import annotations

import functools
import inspect
from typing import NamedTuple

from .base.foreign import Foreign, Module

_ENTRIES = (
    ("cuda", "memory", "_record_memory_history"),
    # A program that imported the function by its name comes by here.
    ("_C", "_cuda_record_memory_history"),
    ("_C", "_cuda_record_memory_history_legacy"),
)


class _Watched(NamedTuple):
    owner: Module
    name: str
    original: Foreign
    watcher: Foreign


class _Recording:
    """The one of ours, and whether the program has used the switch since it began."""

    def __init__(self) -> None:
        self.calls = 0
        """Of the program, that did not raise."""
        self._watched: list[_Watched] = []

    def watch(self, torch: Module) -> None:
        """Put a watcher before each entry of the switch; where one takes none, go without."""
        for *path, name in _ENTRIES:
            owner = functools.reduce(lambda it, part: getattr(it, part, None), path, torch)
            original = getattr(owner, name, None)
            if original is None:
                continue
            watcher = self._make_watcher(original)
            try:
                setattr(owner, name, watcher)
            except (AttributeError, TypeError):
                continue
            self._watched.append(_Watched(owner, name, original, watcher))

    def restore(self) -> None:
        """Take the watchers away, but for one that the program has wrapped meanwhile: that only hands on."""
        for owner, name, original, watcher in self._watched:
            if getattr(owner, name, None) is watcher:
                setattr(owner, name, original)

    def _make_watcher(self, original: Foreign) -> Foreign:
        @functools.wraps(original)
        def watcher(*arguments: Foreign, **named: Foreign) -> Foreign:
            # Counted before, so that no end of ours falls between the call and the count.
            self.calls += 1
            try:
                return original(*arguments, **named)
            except BaseException:
                self.calls -= 1
                raise

        return watcher


_ours: list[_Recording] = []
"""Our recording, or empty. Taken out by `pop`, so that of two threads that end it one does."""


def begin_recording(torch: Module) -> None:
    """Record the stacks of live blocks, and notice from here on when the program uses the switch.

    Args:
        torch: The module, of which `find_recorder` finds one.
    """
    find_recorder(torch)(enabled="state", context="alloc", stacks="python", max_entries=1)
    recording = _Recording()
    recording.watch(torch)
    _ours.append(recording)


def end_recording(torch: Module) -> None:
    """Switch our recording off, unless the program has used the switch since: what runs then is its own.

    May be called by any thread, and where no recording of ours runs.

    Args:
        torch: The module.
    """
    try:
        recording = _ours.pop()
    except IndexError:
        return
    recording.restore()
    record = find_recorder(torch)
    if record is not None and not recording.calls:
        record(enabled=None)


def is_taken_over() -> bool:
    """Tell whether the program has used the switch since our recording began."""
    return any(recording.calls for recording in tuple(_ours))


def find_recorder(torch: Module) -> Foreign:
    """Return the function that switches the recording, or None where it is missing or of the first kind.

    The first kind (PyTorch 2.0) takes other arguments and could lock up the process.
    """
    record = getattr(getattr(getattr(torch, "cuda", None), "memory", None), "_record_memory_history", None)
    try:
        names = set(inspect.signature(record).parameters) if record is not None else set()
    except (TypeError, ValueError):
        return None
    return record if {"enabled", "context", "stacks", "max_entries"} <= names else None


def can_tell(torch: Module) -> bool:
    """Tell whether this build of PyTorch says when somebody records."""
    return getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", None) is not None


def is_recording(torch: Module) -> bool:
    """Tell whether anybody records, we or the program; an allocator that is plugged in cannot record."""
    ask = getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", None)
    try:
        return ask is not None and bool(ask())
    except RuntimeError:
        return False
