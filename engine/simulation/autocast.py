"""Autocast for "cuda" is autocast of the host with the dtype that CUDA would take, where the kernels run."""

from __future__ import annotations

from typing import Any

import torch

from .patching import replace


def install() -> None:
    """Let what is set for CUDA hold for the host too; questions about CUDA are answered by torch itself."""
    replace(torch, "set_autocast_enabled", _make_setter)
    replace(torch, "set_autocast_dtype", _make_setter)
    replace(torch, "set_autocast_gpu_dtype", lambda _: lambda dtype: torch.set_autocast_dtype("cuda", dtype))


def _make_setter(original: Any) -> Any:
    def set_value(*args: Any) -> None:
        # The old form names no device and means CUDA.
        device, value = args if len(args) == 2 else ("cuda", args[0])
        original(device, value)
        if device == "cuda":
            original("cpu", value)

    return set_value
