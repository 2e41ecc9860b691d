"""Demands for memory by module: who waits for it, and the answers, packed into parts that fit the wire."""

from __future__ import annotations

import base64
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Callable, NamedTuple

from .. import wire
from ..base.foreign import Module, Optimizer
from ..clock import SystemClock
from .watched_profile import WatchedProfile

_MOST_WANTED = 8
_COMPRESSION = 3


class _Wanted(NamedTuple):
    """A profile that was asked for."""

    request: int
    until_s: float
    wait_s: float


class ModuleDemands:
    """Takes and answers demands in our own thread; the profile is made by the thread that trains.

    An answer is the profile as it stands at the end of a step. Who goes on asking keeps it going.

    Args:
        torch: The module.
        list_optimizers: Returns the optimizers that have stepped.
        clock: Where the time comes from.
    """

    def __init__(
        self, torch: Module, list_optimizers: Callable[[], list[Optimizer]], clock: SystemClock
    ) -> None:
        self._profile = WatchedProfile(torch, list_optimizers)
        self._clock = clock
        self._wanted: deque[_Wanted] = deque(maxlen=_MOST_WANTED)
        self._news_told = 0

    @property
    def needs_steps(self) -> bool:
        """Whether the end of a step is waited for."""
        return self._profile.needs_steps

    def want(self, request: int, wait_s: float) -> None:
        """Take a demand.

        Args:
            request: Its number.
            wait_s: How long it may wait for the end of a step.
        """
        if not self._wanted:
            self._news_told = self._profile.news  # what was there before is no answer
        self._wanted.append(_Wanted(request, self._clock.monotonic_s() + wait_s, wait_s))
        self._profile.renew()

    def meet_step(self, index: int) -> None:
        """Follow the end of a step; called there by the thread that trains.

        Args:
            index: Of the step, from 1.
        """
        if self._profile.needs_steps:
            self._profile.meet_step(index)

    def end(self) -> None:
        """Take every hook away; called by the thread that trains."""
        self._profile.end()

    def take_packets(self) -> list[bytes]:
        """Return the packets of what can be answered now."""
        if not self._wanted:
            return []
        refusal = self._profile.refusal
        news = self._profile.news
        if refusal is not None:
            return [wire.encode_refused(it.request, refusal) for it in self._take_all()]
        if news != self._news_told:
            self._news_told = news
            pieces = _pack(self._profile.take_lines())
            return [
                wire.encode_modules_part(wanted.request, part, len(pieces), piece)
                for wanted in self._take_all()
                for part, piece in enumerate(pieces)
            ]
        return self._expire()

    def _expire(self) -> list[bytes]:
        """Refuse those who have waited for too long."""
        now_s = self._clock.monotonic_s()
        late = [wanted for wanted in self._wanted if now_s >= wanted.until_s]
        for wanted in late:
            self._wanted.remove(wanted)
        if late and not self._wanted:
            self._profile.give_up()
        return [
            wire.encode_refused(it.request, f"has not ended a step within {it.wait_s:.0f} s") for it in late
        ]

    def _take_all(self) -> Iterator[_Wanted]:
        while self._wanted:
            yield self._wanted.popleft()


def _pack(pieces: Iterable[str]) -> list[str]:
    """Return text as parts: base64 of zlib. Between its pieces the thread that trains can have the lock."""
    packer = zlib.compressobj(_COMPRESSION)
    packed = []
    for piece in pieces:
        packed.append(packer.compress(piece.encode()))
        time.sleep(0)
    text = base64.b64encode(b"".join(packed) + packer.flush()).decode()
    return [text[start : start + wire.PART_CHARACTERS] for start in range(0, len(text), wire.PART_CHARACTERS)]
