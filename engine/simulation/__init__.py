"""The simulated device: a user's own script runs on the CPU while its tensors are on a modelled card.

Loaded by path into the interpreter that trains, under the name `vramscope_simulation`. Only here, and only
below this file, torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .card import AllocatorModule

__all__ = ["install"]


def install(config: Mapping[str, Any], allocator_module: AllocatorModule) -> None:
    """Put the simulated device into this process; call it once, right after torch was imported.

    Args:
        config: JSON of VRAMSCOPE_SIMULATE: `total_bytes` and, if given, the other fields of
            `SimulationConfig` in card.py.
        allocator_module: The package `allocator_model`, which the engine may not import itself.

    Raises:
        SystemExit: The device cannot be modelled on this host; one line on stderr says why.
    """
    from .installation import install as put_in

    put_in(config, allocator_module)
