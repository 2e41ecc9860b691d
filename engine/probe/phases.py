"""Names that a program gives to parts of its steps; a list and nothing more where nobody listens."""

from __future__ import annotations

from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    from .foreign import Foreign

    Function = TypeVar("Function", bound=Callable[..., Any])

_open: dict[int, list[phase]] = {}
"""The parts in progress of each thread, by its identity, outermost first."""
_training: int | None = None
"""Identity of the thread that steps; None before the first step."""
_LONGEST_NAME = 80


class phase:  # noqa: N801 - reads as a word in `with vramscope.phase("forward")`
    """A named part of a step: a context manager, and a decorator of a function.

    Args:
        name: What the part is called, as in `forward` or `evaluation`.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> phase:
        """Begin the part."""
        me = get_ident()
        if me in _open:
            _open[me].append(self)
        else:
            _open[me] = [self]
        return self

    def __exit__(self, *_: object) -> None:
        """End the part; a generator may have taken it to another thread, or out of turn."""
        me = get_ident()
        mine = _open.get(me)
        if mine and mine[-1] is self:
            mine.pop()
            if not mine:
                del _open[me]
        elif not (mine and _take_out(mine, self)):
            any(_take_out(parts, self) for parts in list(_open.values()))

    def __call__(self, function: Function) -> Function:
        """Return the function so that each of its calls is such a part."""
        from functools import wraps

        name = self.name

        @wraps(function)
        def in_phase(*arguments: Foreign, **named: Foreign) -> Foreign:
            with phase(name):
                return function(*arguments, **named)

        return in_phase  # type: ignore[return-value]


def note_training_thread() -> None:
    """Take the calling thread for the one that trains, whose parts are told."""
    global _training  # noqa: PLW0603 - there is one training in a process
    _training = get_ident()


def innermost() -> str | None:
    """Return the name of the part that began last and has not ended in the thread that trains.

    Where that has begun none, the main thread's is told: a backward pass steps optimizers in a thread of its
    own. A part of any other thread, as of one that loads data, is not the training's.
    """
    from threading import main_thread

    for thread in (_training, main_thread().ident):
        try:
            return str(_open[thread or 0][-1].name)[:_LONGEST_NAME]
        except LookupError:
            continue
    return None


def _take_out(parts: list[phase], ended: phase) -> bool:
    """Take the newest occurrence of a part out of a thread's, and tell whether there was one."""
    for position in range(len(parts) - 1, -1, -1):
        if parts[position] is ended:
            del parts[position]
            return True
    return False
