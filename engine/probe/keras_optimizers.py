"""Keras has optimizers of its own: on PyTorch they end steps, and answer what is asked of PyTorch's."""

from __future__ import annotations

import sys
from typing import Any, Callable
from weakref import WeakKeyDictionary, ref

from .base.current import Guard
from .base.foreign import Foreign, Module, Optimizer, Tensor

_MARK = "_vramscope_watched"


class AnsweringOptimizer:
    """Parameters and state of an optimizer of Keras, under the names that PyTorch has for them."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = ref(optimizer)
        self._calls = 0

    @property
    def param_groups(self) -> list[dict[str, list[Tensor]]]:
        return [{"params": _read_values(getattr(self._optimizer(), "_trainable_variables", ()))}]

    @property
    def state(self) -> dict[Tensor, list[Tensor]]:
        """All its variables under the first parameter: which belongs to which has no name that all share."""
        parameters = self.param_groups[0]["params"]
        held = _read_values(getattr(self._optimizer(), "variables", ()))
        return {parameters[0]: held} if parameters else {}

    def ends_step(self) -> bool:
        """Note a call; return whether it changed the weights, rather than only adding to gradients."""
        self._calls += 1
        accumulated = getattr(self._optimizer(), "gradient_accumulation_steps", None) or 1
        return self._calls % int(accumulated) == 0


def watch(module: Module, after_step: Callable[[Optimizer, Foreign, Foreign], None]) -> None:
    """Call back after each step of an optimizer of Keras whose variables are PyTorch's; once for a module.

    Args:
        module: `keras.src.optimizers.base_optimizer`, where the class is that all of them inherit.
    """
    kind = module.BaseOptimizer
    apply = kind.apply
    if getattr(apply, _MARK, False):
        return
    guard = Guard("what follows a step of Keras")
    answering: WeakKeyDictionary[Any, AnsweringOptimizer] = WeakKeyDictionary()

    def notify(optimizer: Optimizer) -> None:
        if guard.is_shut:
            return
        try:
            keras = sys.modules.get("keras")
            if keras is None or keras.config.backend() != "torch":
                return
            found = answering.get(optimizer)
            if found is None:
                found = answering[optimizer] = AnsweringOptimizer(optimizer)
            if found.ends_step():
                after_step(found, (), {})
        except Exception as error:  # noqa: BLE001 - it would reach the training
            guard.count(error)

    # A compiler that traces a step of the training does not trace what we do.
    notify._torchdynamo_disable = True  # type: ignore[attr-defined]

    def apply_and_notify(optimizer: Optimizer, *args: Foreign, **kwargs: Foreign) -> Foreign:
        made = apply(optimizer, *args, **kwargs)
        notify(optimizer)
        return made

    apply_and_notify.__doc__ = apply.__doc__
    setattr(apply_and_notify, _MARK, True)
    kind.apply = apply_and_notify


def _read_values(variables: Foreign) -> list[Tensor]:
    """Return the tensors of variables as they are, without a cast for mixed precision."""
    values = [getattr(it, "_value", None) for it in variables]
    return [it for it in values if hasattr(it, "untyped_storage")]
