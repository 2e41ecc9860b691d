"""Advice from outside: requests to do something about memory, followed at the end of a step."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from . import wire
from .base import current
from .base.foreign import Foreign
from .clock import SystemClock
from .identity import TrainingDevice

# Between two ends of steps at which something is done: many requests must not slow the training.
_PAUSE_S = 1.0
_MOST_WANTED = 8
_DONE_BY_PROBE = "empty_cache"
_OPT_OUT = "VRAMSCOPE_ADVICE"
_OFF = {"off", "0", "no", "false"}


class _Wanted(NamedTuple):
    """An advice that waits for the end of a step."""

    request: int
    action: str
    reason: str
    until_s: float
    wait_s: float


class _Outcome(NamedTuple):
    """What was done, as a sentence whose subject is the process."""

    is_obeyed: bool
    sentence: str


class Advice:
    """Receives advice in our own thread; only the thread that trains acts upon it, between two steps.

    A callback of the program is asked first. Without its answer nothing is done, except for emptying the
    allocator's cache, which needs nobody's help. The environment can switch all of it off.
    """

    def __init__(self, device: TrainingDevice, clock: SystemClock) -> None:
        self._device = device
        self._clock = clock
        self._wanted: deque[_Wanted] = deque(maxlen=_MOST_WANTED)
        self._answers: deque[bytes] = deque(maxlen=_MOST_WANTED)
        self._next_s = float("-inf")

    @property
    def needs_steps(self) -> bool:
        return bool(self._wanted)

    def want(self, demand: wire.Demand, wait_s: float) -> None:
        """Queue an advice. `wait_s`: how long it may wait for the end of a step."""
        if os.environ.get(_OPT_OUT, "").strip().lower() in _OFF:
            reason = f"accepts no advice: it was started with {_OPT_OUT}={os.environ[_OPT_OUT]}"
            self._answers.append(wire.encode_refused(demand.request, reason))
            return
        until_s = self._clock.monotonic_s() + wait_s
        self._wanted.append(_Wanted(demand.request, demand.action, demand.reason, until_s, wait_s))

    def meet_step(self) -> None:
        """Act on what is wanted; called at the end of a step by the thread that trains."""
        now_s = self._clock.monotonic_s()
        if not self._wanted or now_s < self._next_s or _is_capturing(self._device.module):
            return
        self._next_s = now_s + _PAUSE_S
        for wanted in self._pop_all():
            before = self._device.read().reserved_bytes
            outcome = self._follow(wanted)
            after = self._device.read().reserved_bytes
            freed = None if before is None or after is None else max(0, before - after)
            answer = outcome.sentence + _describe_freed(freed, is_expected=outcome is _EMPTIED)
            self._answers.append(wire.encode_advised(wanted.request, outcome.is_obeyed, answer, freed))

    def take_packets(self) -> list[bytes]:
        self._expire()
        packets = []
        while self._answers:
            packets.append(self._answers.popleft())
        return packets

    def _follow(self, wanted: _Wanted) -> _Outcome:
        """Ask the callback of the program; do without it what needs none."""
        callback = current.on_advice
        answer = None
        try:
            if callback is not None:
                answer = callback(wanted.action, wanted.reason)
            if answer is None and wanted.action == _DONE_BY_PROBE:
                return _empty_cache(self._device.module)
        except Exception as error:  # noqa: BLE001 - the training goes on whatever its callback does
            return _Outcome(False, f"failed: {type(error).__name__}: {error}")
        if callback is None:
            return _Outcome(False, f"has no callback for {wanted.action}")
        return _understand(answer, wanted.action)

    def _expire(self) -> None:
        """Refuse what has waited too long."""
        now_s = self._clock.monotonic_s()
        for wanted in tuple(self._wanted):
            if now_s >= wanted.until_s:
                try:
                    self._wanted.remove(wanted)
                except ValueError:
                    continue  # the thread that trains has taken it meanwhile
                reason = f"has not ended a step within {wanted.wait_s:.0f} s"
                self._answers.append(wire.encode_refused(wanted.request, reason))

    def _pop_all(self) -> Iterator[_Wanted]:
        while self._wanted:
            try:
                yield self._wanted.popleft()
            except IndexError:
                return  # the other thread has refused the last


_EMPTIED = _Outcome(True, "emptied its cache")


def _empty_cache(module: Foreign) -> _Outcome:
    """Release what the caching allocator holds and nobody uses."""
    empty = getattr(module, "empty_cache", None)
    if empty is None:
        return _Outcome(False, "trains on no device with a cache to empty")
    empty()
    return _EMPTIED


def _understand(answer: object, action: str) -> _Outcome:
    """Judge a callback's answer; a tensor is not asked for its truth, which would wait for its device."""
    if answer is True:
        return _Outcome(True, "did it with its callback")
    if isinstance(answer, str):
        return _Outcome(True, f"did it with its callback: {answer}")
    if answer is False:
        return _Outcome(False, "declined: its callback returned False")
    if answer is None:
        return _Outcome(False, f"has a callback that did nothing about {action}")
    kind = type(answer).__name__
    return _Outcome(False, f"has a callback that returned {kind}; expected True, False, None or a sentence")


def _is_capturing(module: Foreign) -> bool:
    """While a CUDA graph is recorded, no call of ours may get into it."""
    ask = getattr(module, "is_current_stream_capturing", None)
    try:
        return ask is not None and bool(ask())
    except RuntimeError:
        # A build for the CPU has the name and nothing behind it.
        return False


def _describe_freed(freed_bytes: int | None, *, is_expected: bool) -> str:
    if freed_bytes:
        return f"; {freed_bytes / 2**20:,.1f} MiB freed"
    return "; nothing could be freed" if is_expected and freed_bytes == 0 else ""
