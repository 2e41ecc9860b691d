"""The hook on every optimizer of the process: PyTorch calls it after each step of any of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Callable

from .base import current
from .base.foreign import Foreign, Module, Optimizer
from .base.guard import Guard

if TYPE_CHECKING:
    from .session import Session

_guard = Guard("the hook after an optimizer's step")
_hooked: list[Module] = []
"""Modules `torch.optim.optimizer` that call us. A hook is never taken away: doing so from our thread while
PyTorch goes through its hooks would raise in the training. Without a session it returns at once."""
_tracer: Callable[[], Foreign] | None = None
_untraced: dict[Module, Callable[[Optimizer], None]] = {}
"""The function that tells the session, by the compiler that it is kept from."""


def hook_optimizers() -> bool:
    """Register the hook where `torch.optim.optimizer` is loaded and takes such; tell whether it stands."""
    module = sys.modules.get("torch.optim.optimizer")
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        return False
    _find_tracer()
    if not any(known is module for known in _hooked):
        _hooked.append(module)
        register(_after_step)
    return True


def _find_tracer() -> None:
    """Find the function that returns what traces this thread's frames, or None where nothing does."""
    global _tracer  # noqa: PLW0603 - looked up once for the process
    private = getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None)
    _tracer = getattr(getattr(private, "eval_frame", None), "get_eval_frame_callback", None)


def _after_step(optimizer: Optimizer, arguments: Foreign, named: Foreign) -> None:
    """Tell the session; what PyTorch's compiler would trace of us is kept from it."""
    if _tracer is None or _tracer() is not None:
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            _keep_from(dynamo)(optimizer)
            return
    _tell_session(optimizer)


# A compiler that traces an optimizer's step ends its graph here; that it does not trace what we call is the
# work of `disable`, which is there as soon as the compiler is.
_after_step._torchdynamo_disable = True  # type: ignore[attr-defined]


def _keep_from(dynamo: Module) -> Callable[[Optimizer], None]:
    """Return the function that tells the session so that frames below it are not compiled."""
    if dynamo not in _untraced:
        disable = getattr(dynamo, "disable", None)
        if disable is None:
            # The compiler is being imported by another thread.
            return _tell_session
        _untraced[dynamo] = disable(_tell_session)
    return _untraced[dynamo]


def _leave_or_begin() -> Session | None:
    """Do what an ended session left to this thread; in a forked child that trains, begin a new one."""
    if current.leftover is not None:
        leftover = current.leftover
        current.leftover = None
        leftover(sys.modules.get("torch"))
    if current.dormant is not None:
        current.dormant()
    return current.session


def _tell_session(optimizer: Optimizer) -> None:
    """Tell the session; an exception here would reach the training, so none leaves."""
    if _guard.is_shut:
        return
    try:
        session = current.session
        if session is None:
            session = _leave_or_begin()
        if session is not None:
            session.meet_optimizer(optimizer)
    except Exception as error:  # noqa: BLE001
        _guard.count(error)
