"""What a simulated device cannot do: refused in one clear line, or done otherwise and said once."""

from __future__ import annotations

from typing import Any, Callable

import torch

from .notices import tell
from .patching import replace


def install() -> None:
    """Refuse CUDA graphs, and run eagerly what would be compiled."""
    refused: dict[str, Any] = {
        **{name: _make_refusing_class(name) for name in ("CUDAGraph", "graph")},
        "make_graphed_callables": _make_refusal("make_graphed_callables"),
    }
    for owner in (torch.cuda, torch.cuda.graphs):
        for name, refusal in refused.items():
            setattr(owner, name, refusal)
    replace(torch, "compile", lambda original: _compile)
    replace(torch.nn.Module, "compile", lambda original: _compile_in_place)


def _make_refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"torch.cuda.{name} is not simulated: capture and replay need a real GPU; run without CUDA graphs"
        )

    return refuse


def _make_refusing_class(name: str) -> type:
    """Return what refuses to be made, and is a class for those who annotate with it."""
    return type(name, (), {"__init__": _make_refusal(name)})


def _compile(model: Any = None, **_: Any) -> Any:
    """Return a model or function as it is; as a decorator with options, return what does so."""
    tell("torch.compile is run eagerly here, so memory is that of eager mode")
    return (lambda function: function) if model is None else model


def _compile_in_place(module: Any, *_: Any, **__: Any) -> None:
    _compile(module)
