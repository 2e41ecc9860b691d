"""Calls that may never return, made on a thread that is left behind when one does not."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

Result = TypeVar("Result")


class AbandonableCall(Generic[Result]):
    """One call that was handed to another thread; its result is there once it has returned.

    Args:
        function: What to call.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self.started_s = monotonic()
        self._function = function
        self._has_returned = threading.Event()
        self._result: Result | None = None
        self._error: Exception | None = None

    @property
    def has_returned(self) -> bool:
        """Whether `result` may be asked for."""
        return self._has_returned.is_set()

    def run(self) -> None:
        """Make the call, on the thread that may be left behind in it."""
        self.started_s = monotonic()
        try:
            self._result = self._function()
        except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
            self._error = error
        self._has_returned.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the call has returned, and tell whether it has."""
        return self._has_returned.wait(max(0.0, timeout_s))

    def result(self) -> Result:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None only where the function returned None


class CallsInTurn(Generic[Result]):
    """Calls that one thread makes one after another: no thread waits for another between two of them.

    Args:
        calls: What to make, in this order.
    """

    def __init__(self, calls: Iterable[AbandonableCall[Result]]) -> None:
        self._left = deque(calls)

    def run(self) -> None:
        """Make the calls that are left; where one hangs, those after it are not begun."""
        while (call := self._take()) is not None:
            call.run()

    def stop(self) -> "list[AbandonableCall[Result]]":
        """Begin no more of them, and return those that were not begun."""
        return list(iter(self._take, None))

    def _take(self) -> "AbandonableCall[Result] | None":
        try:
            return self._left.popleft()
        except IndexError:
            return None


class AbandonableThread:
    """Makes calls one after another on one thread; after a call that hangs, a fresh thread goes on.

    The thread that was left behind ends as soon as its call returns. It holds no lock of ours.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] | None = None

    def call(self, function: Callable[[], Result], deadline_s: float) -> AbandonableCall[Result]:
        """Make a call; it has returned, or its thread was left behind after `deadline_s`."""
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=_work, args=(self._queue,), name=self._name, daemon=True).start()
        made = AbandonableCall(function)
        self._queue.put(made.run)
        if not made.wait(deadline_s):
            self.close()
        return made

    def close(self) -> None:
        """Let the thread end when it has nothing left to do."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None


def _work(queue: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (run := queue.get()) is not None:
        run()
