"""Looks up the addresses of hosts beside the loop: a name server that is silent must hold nobody else up."""

import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

from ..errors import UsageError
from .tcp_address import TcpAddress, resolve

MOST_THREADS = 4


class FoundAddress(NamedTuple):
    """What became of a question."""

    asked: TcpAddress
    numeric: TcpAddress | None
    reason: str | None = None
    """Why there is none, in one sentence."""


class NameLookup:
    """Answers on threads of its own, that nobody waits for.

    Args:
        on_found: Called on such a thread when there is an answer to take.
    """

    def __init__(self, on_found: Callable[[], None]) -> None:
        self._on_found = on_found
        self._asked: queue.SimpleQueue[TcpAddress | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[FoundAddress] = queue.SimpleQueue()
        self._threads = 0

    def ask(self, address: TcpAddress) -> None:
        """Ask for the numeric address of a host; returns at once."""
        self._asked.put(address)
        if self._threads < MOST_THREADS:
            self._threads += 1
            threading.Thread(target=self._look_up, name="name-lookup", daemon=True).start()

    def take(self) -> list[FoundAddress]:
        """Return the answers that have come."""
        found: list[FoundAddress] = []
        while True:
            try:
                found.append(self._found.get_nowait())
            except queue.Empty:
                return found

    def stop(self) -> None:
        """Let the threads end, each after what it does now."""
        for _ in range(self._threads):
            self._asked.put(None)

    def _look_up(self) -> None:
        while (address := self._asked.get()) is not None:
            try:
                self._found.put(FoundAddress(address, resolve(address)))
            except UsageError as error:
                self._found.put(FoundAddress(address, None, str(error)))
            self._on_found()
