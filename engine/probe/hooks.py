"""The hook on every optimizer of the process: PyTorch calls it after each step of any of them."""

from __future__ import annotations

import sys
from typing import Any

from . import current
from .foreign import Foreign, Optimizer
from .guard import Guard

_guard = Guard("the hook after an optimizer's step")
_hooked: list[Any] = []
"""Modules `torch.optim.optimizer` that call us. A hook is never taken away: doing so from our thread while
PyTorch goes through its hooks would raise in the training. Without a session it returns at once."""


def hook_optimizers() -> bool:
    """Register the hook where `torch.optim.optimizer` is loaded and takes such; tell whether it stands."""
    module = sys.modules.get("torch.optim.optimizer")
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        return False
    if not any(known is module for known in _hooked):
        _hooked.append(module)
        register(_after_step)
    return True


def _after_step(optimizer: Optimizer, arguments: Foreign, named: Foreign) -> None:
    """Tell the session; an exception here would reach the training, so none leaves."""
    if _guard.is_shut:
        return
    try:
        if current.leftover is not None:
            leftover, current.leftover = current.leftover, None
            leftover(sys.modules.get("torch"))
        if current.session is None and current.dormant is not None:
            current.dormant()
        session = current.session
        if session is not None:
            session.meet_optimizer(optimizer)
    except Exception as error:  # noqa: BLE001
        _guard.count(error)


# A compiler that traces an optimizer's step shall not trace us too.
_after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
