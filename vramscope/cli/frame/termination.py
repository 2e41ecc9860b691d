"""SIGTERM and a terminal that hangs up, where they must not end the program between two instructions."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_EXIT_BY_SIGNAL = 128


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Let these signals end what runs inside as Ctrl-C does, so that files that are half written go.

    One that the program was started to ignore, as by nohup, stays ignored.

    Raises:
        SystemExit: One came; the code is 128 and its number.
    """
    former = {it: signal.getsignal(it) for it in _SIGNALS}
    for number in [it for it, handler in former.items() if handler is not signal.SIG_IGN]:
        signal.signal(number, _unwind)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _unwind(number: int, frame: FrameType | None) -> None:
    raise SystemExit(_EXIT_BY_SIGNAL + number)
