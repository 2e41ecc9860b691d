"""Names that a program gives to parts of its steps; a list and nothing more without a session."""

from __future__ import annotations

from _thread import _local, get_ident

from .base import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    from .base.foreign import Foreign

    Function = TypeVar("Function", bound=Callable[..., Any])

# The parts in progress of each thread, by its identity, outermost first.
_open: dict[int, list[phase]] = {}
# The list of the calling thread, whose identity may be that of a thread which ended within a part.
_own = _local()
# What is counted of each name, if a session measures phases.
counted: dict[str, Counted] = {}
# Parts in progress whose begin was read, by thread.
read: dict[int, list[tuple[phase, Foreign]]] = {}
# The parts of the thread that steps; None before the first step.
_training: list[phase] | None = None
LONGEST_NAME = 80


class Counted:
    """Calls of one name. Most are only counted, because every line of ours runs with cold caches."""

    __slots__ = ("calls", "is_due", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        # The next call is to be read at its begin and its end.
        self.is_due = True


class phase:  # noqa: N801 - reads as a word in `with vramscope.phase("forward")`
    """A named part of a step: a context manager, and a decorator of a function.

    Args:
        name: For example `forward` or `evaluation`.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> phase:
        mine = _list_own()
        mine.append(self)
        _open[get_ident()] = mine
        if mine is _training and not read and type(self.name) is str:
            known = counted.get(self.name)
            if known is not None and not known.is_due:
                known.calls += 1
                return self
        session = current.session
        if session is not None:
            session.begin_phase(self, is_training=mine is _training)
        return self

    def __exit__(self, *_: object) -> None:
        """End the part; a generator may have taken it to another thread, or out of turn."""
        if read:
            session = current.session
            if session is not None:
                session.end_phase(self)
        mine = _list_own()
        if mine and mine[-1] is self:
            mine.pop()
            if not mine:
                _open.pop(get_ident(), None)
        elif not _remove(mine, self):
            any(_remove(parts, self) for parts in list(_open.values()))

    def __call__(self, function: Function) -> Function:
        """Wrap a function so that each of its calls is such a part."""
        from functools import wraps

        name = self.name

        @wraps(function)
        def in_phase(*arguments: Foreign, **named: Foreign) -> Foreign:
            with phase(name):
                return function(*arguments, **named)

        return in_phase  # type: ignore[return-value]


def note_training_thread() -> None:
    """Note that the calling thread is the one that trains, whose parts are reported."""
    global _training  # noqa: PLW0603 - there is one training in a process
    _training = _list_own()


def innermost() -> str | None:
    """Return the name of the part that began last and has not ended in the thread that trains.

    If that has begun no part, the main thread's counts: a backward pass steps optimizers in a thread of its
    own. A part of any other thread, as of one that loads data, is not the training's.
    """
    if not _open:
        return None
    from threading import main_thread

    for parts in (_training, _open.get(main_thread().ident or 0)):
        try:
            if parts:
                return str(parts[-1].name)[:LONGEST_NAME]
        except IndexError:
            # It ended this very moment.
            continue
    return None


def _list_own() -> list[phase]:
    """Return the parts in progress of the calling thread."""
    try:
        found: list[phase] = _own.parts
    except AttributeError:
        found = _own.parts = []
    return found


def _remove(parts: list[phase], ended: phase) -> bool:
    """Remove the newest occurrence of a part from a thread's list; return whether there was one."""
    for position in range(len(parts) - 1, -1, -1):
        if parts[position] is ended:
            del parts[position]
            return True
    return False
