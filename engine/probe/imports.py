"""Notice that torch was imported, by whomever and whenever, without importing it."""

from __future__ import annotations

import sys

from .base import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Callable

    from .base.foreign import Foreign, Module

    Callback = Callable[[Module], None]

_TORCH = "torch"


def after_torch_import(callback: Callback) -> None:
    """Call back with the module each time that torch has been fully executed; at once if it has been.

    First come, first called, and all before the probe starts. What a callback raises is kept as a note.
    """
    _watch.add(callback, is_last=False)


def watch_torch(callback: Callback) -> None:
    """Call back with `torch` after all callbacks of `after_torch_import`; replaces an earlier callback."""
    _watch.add(callback, is_last=True)


def forget_torch() -> None:
    """Undo `watch_torch`."""
    _watch.forget_last()


class TorchWatch:
    """A finder that finds nothing itself: the others find torch, and it waits for torch to be executed."""

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []
        self._last: Callback | None = None

    def add(self, callback: Callback, *, is_last: bool) -> None:
        """Add a callback and put the finder in front of the others, once."""
        if is_last:
            self._last = callback
        else:
            self._callbacks.append(callback)
        if not any(finder is self for finder in sys.meta_path):
            sys.meta_path.insert(0, self)
        torch = sys.modules.get(_TORCH)
        if torch is not None and _is_executed(torch):
            _call(callback, torch)

    def forget_last(self) -> None:
        self._last = None

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Foreign = None) -> Foreign:
        """Return the other finders' spec of torch, with a prepared loader; None for all other modules."""
        if name != _TORCH:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._prepare(spec.loader)
                return spec
        return None

    def _prepare(self, loader: Foreign) -> None:
        """Make one loader call us after it has executed torch; afterwards it is as it was."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
            return

        def execute_and_call(module: Module) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            for callback in [*self._callbacks, *([self._last] if self._last else [])]:
                _call(callback, module)

        loader.exec_module = execute_and_call


def _is_executed(module: Module) -> bool:
    """Return whether the body of a module has run to its end (`_initializing` of PEP 451's spec)."""
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _call(callback: Callback, torch: Module) -> None:
    try:
        callback(torch)
    except Exception as error:  # noqa: BLE001 - the import of torch succeeds whatever we do afterwards
        current.note_failure("what follows the import of torch", error)


_watch = TorchWatch()
