"""Work that takes a while, done on a thread while the screen stays usable."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar, cast

from textual.screen import Screen

from ...engine.errors import VramscopeError
from ...engine.extras import find_missing_package

ResultT = TypeVar("ResultT")
ScreenResultT = TypeVar("ScreenResultT")


def run_in_background(
    screen: Screen[ScreenResultT],
    work: Callable[[], ResultT],
    *,
    then: Callable[[ResultT], object],
    otherwise: Callable[[VramscopeError], object],
) -> None:
    """Run `work` on a thread of its own; the application then calls `then` or `otherwise`.

    Args:
        screen: Whose application waits for it; after that has ended, the result is dropped.
        otherwise: Gets an error that the user can do something about; any other ends the application.
    """
    app = screen.app
    loop = asyncio.get_running_loop()
    context = copy_context()

    def take(call: Callable[[], object]) -> None:
        if not app._exit:
            call()

    def run() -> None:
        try:
            result = work()
        except VramscopeError as error:
            call: Callable[[], object] = _bind(otherwise, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a person must see it
            missing = find_missing_package(error)
            if missing is None:
                call = _bind(cast("Callable[[Exception], object]", app._handle_exception), error)
            else:
                call = _bind(otherwise, missing)
        else:
            call = _bind(then, result)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(take, call, context=context)

    threading.Thread(target=run, name="background-work", daemon=True).start()


def _bind(take: Callable[[ResultT], object], value: ResultT) -> Callable[[], object]:
    return lambda: take(value)
