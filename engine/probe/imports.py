"""Notice that torch, JAX or a module on top was imported, by whomever and whenever, without importing it."""

from __future__ import annotations

import sys

from .base import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Callable

    from .base.foreign import Foreign, Module

    Callback = Callable[[Module], None]


def after_torch_import(callback: Callback) -> None:
    """Call back with the module each time that torch has been fully executed; at once if it has been.

    First come, first called, and all before the probe starts. What a callback raises is kept as a note.
    """
    _watch.add(callback, is_last=False)


def watch_torch(callback: Callback) -> None:
    """Call back with `torch` after all callbacks of `after_torch_import`; replaces an earlier callback."""
    _watch.add(callback, is_last=True)


def watch_jax(callback: Callback) -> None:
    """Call back with `jax` once it has been imported; replaces an earlier callback."""
    _jax_watch.add(callback, is_last=True)


def watch_keras(callback: Callback) -> None:
    """Call back with the module of Keras' optimizers once it has been imported; replaces an earlier callback.

    It stays: what Keras calls is hooked once, and looks by itself whether there is a session.
    """
    _keras_watch.add(callback, is_last=True)


def is_importing() -> bool:
    """Return whether an import of torch or JAX is under way, at whose end the probe starts."""
    return any(watch.is_importing() for watch in (_watch, _jax_watch))


def forget_imports() -> None:
    """Undo `watch_torch` and `watch_jax`."""
    _watch.forget_last()
    _jax_watch.forget_last()


class ImportWatch:
    """A finder that finds nothing itself: the others find a module, and it waits until that is executed.

    Args:
        name: Name of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._callbacks: list[Callback] = []
        self._last: Callback | None = None
        # The module that is being imported, at whose end there will be a call.
        self._awaited: Module | None = None

    def add(self, callback: Callback, *, is_last: bool) -> None:
        """Add a callback and put the finder in front of the others, once."""
        if is_last:
            self._last = callback
        else:
            self._callbacks.append(callback)
        if not any(finder is self for finder in sys.meta_path):
            sys.meta_path.insert(0, self)
        module = sys.modules.get(self._name)
        if module is not None and _is_executed(module):
            self._call(callback, module)
        elif module is not None:
            self._await_end(module)

    def forget_last(self) -> None:
        self._last = None

    def is_importing(self) -> bool:
        return self._awaited is not None

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Foreign = None) -> Foreign:
        """Return the other finders' spec of the module, with a prepared loader; None for all others."""
        if name != self._name:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._prepare(spec.loader)
                return spec
        return None

    def _prepare(self, loader: Foreign) -> None:
        """Make one loader call us after it has executed the module; afterwards it is as it was."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
            return

        def execute_and_call(module: Module) -> None:
            loader.__dict__.pop("exec_module", None)
            self._awaited = module
            try:
                execute(module)
                self._call_all(module)
            finally:
                self._awaited = None

        loader.exec_module = execute_and_call

    def _await_end(self, module: Module) -> None:
        """Call back at the end of an import that is under way, as in a process that was attached to early.

        Its loader runs already. What is left to happen is that the import system sets `_initializing` of the
        module's spec to False: until then that name is a property of the spec.
        """
        if self._awaited is module:
            return
        usual = type(module.__spec__)

        def end(spec: Foreign, value: bool) -> None:
            spec.__class__ = usual
            spec._initializing = value
            self._awaited = None
            # An import that failed has removed its module.
            if sys.modules.get(self._name) is module:
                self._call_all(module)

        awaited = type("AwaitedSpec", (usual,), {"_initializing": property(lambda _spec: True, end)})
        module.__spec__.__class__ = awaited
        self._awaited = module

    def _call_all(self, module: Module) -> None:
        for callback in [*self._callbacks, *([self._last] if self._last else [])]:
            self._call(callback, module)

    def _call(self, callback: Callback, module: Module) -> None:
        try:
            callback(module)
        except Exception as error:  # noqa: BLE001 - the import succeeds whatever we do afterwards
            current.note_failure(f"what follows the import of {self._name}", error)


def _is_executed(module: Module) -> bool:
    """Return whether the body of a module has run to its end (`_initializing` of PEP 451's spec)."""
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


_watch = ImportWatch("torch")
_jax_watch = ImportWatch("jax")
_keras_watch = ImportWatch("keras.src.optimizers.base_optimizer")
