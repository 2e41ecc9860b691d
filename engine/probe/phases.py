"""Names that a program gives to parts of its steps; a list and nothing more where nobody listens."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    from .foreign import Foreign

    Function = TypeVar("Function", bound=Callable[..., Any])

_open: list[phase] = []
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
        _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """End the part, wherever in the list another thread has moved it."""
        for position in range(len(_open) - 1, -1, -1):
            if _open[position] is self:
                del _open[position]
                return

    def __call__(self, function: Function) -> Function:
        """Return the function so that each of its calls is such a part."""
        from functools import wraps

        name = self.name

        @wraps(function)
        def in_phase(*arguments: Foreign, **named: Foreign) -> Foreign:
            with phase(name):
                return function(*arguments, **named)

        return in_phase  # type: ignore[return-value]


def innermost() -> str | None:
    """Return the name of the part that began last and has not ended."""
    try:
        return str(_open[-1].name)[:_LONGEST_NAME]
    except IndexError:
        return None
