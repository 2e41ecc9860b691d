"""vramscope: will this training job run out of GPU memory, when, why, and what should I do?

import vramscope

with vramscope.connect() as agent:
    for sample in agent.samples():
        print(sample.node, [device.memory.used_bytes for device in sample.devices])
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramscope.engine.bus.client import connect
    from vramscope.engine.errors import VramscopeError

__version__ = "0.1.0"

__all__ = ["VramscopeError", "__version__", "connect"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import vramscope` costs nothing."""
    if name == "connect":
        from vramscope.engine.bus.client import connect

        return connect
    if name == "VramscopeError":
        from vramscope.engine.errors import VramscopeError

        return VramscopeError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
