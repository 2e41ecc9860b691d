"""Ctrl-C and SIGTERM during a watch: the first ends it with its report, the second ends the program."""

import signal
from collections.abc import Sequence
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While it is entered, the first signal is remembered instead of ending the program.

    Args:
        numbers: Signals; one that the program was started to ignore, as by nohup, stays ignored.
    """

    def __init__(self, numbers: Sequence[int] = _SIGNALS) -> None:
        self._numbers = [it for it in numbers if signal.getsignal(it) is not signal.SIG_IGN]
        self.is_asked = False
        """Whether the watch should end."""
        self._former: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        for number in self._numbers:
            self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type] # what signal.signal returned itself

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
