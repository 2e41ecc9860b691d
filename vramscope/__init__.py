"""vramscope: will this training job run out of GPU memory, when, why, and what should I do?

A program that watches:

    import vramscope

    with vramscope.connect() as agent:
        for sample in agent.samples():
            print(sample.node, [device.memory.used_bytes for device in sample.devices])

A program that trains, and wants to be watched without `vramscope run`:

    vramscope.attach()
    for batch in batches:
        with vramscope.phase("forward"):
            loss = model(batch)
        ...
        vramscope.step()

A program that watches its own memory:

    with vramscope.MemoryProfiler(sampling_interval=1.0) as profiler:
        train()
    profiler.generate_report("memory.json")
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramscope.engine.bus.client import connect
    from vramscope.engine.errors import VramscopeError
    from vramscope.engine.launch.in_code import attach, phase, step
    from vramscope.memory.fragmentation_analyzer import FragmentationAnalyzer
    from vramscope.memory.leak_detector import MemoryLeakDetector
    from vramscope.memory.oom_detector import OOMDetector
    from vramscope.memory.profiler import MemoryProfiler

__version__ = "0.1.0"

__all__ = [
    "FragmentationAnalyzer",
    "MemoryLeakDetector",
    "MemoryProfiler",
    "OOMDetector",
    "VramscopeError",
    "__version__",
    "attach",
    "connect",
    "phase",
    "step",
]

_IN_MODULES = {
    "FragmentationAnalyzer": "vramscope.memory.fragmentation_analyzer",
    "MemoryLeakDetector": "vramscope.memory.leak_detector",
    "MemoryProfiler": "vramscope.memory.profiler",
    "OOMDetector": "vramscope.memory.oom_detector",
    "VramscopeError": "vramscope.engine.errors",
    "attach": "vramscope.engine.launch.in_code",
    "connect": "vramscope.engine.bus.client",
    "phase": "vramscope.engine.launch.in_code",
    "step": "vramscope.engine.launch.in_code",
}
"""Public names and where they live."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import vramscope` costs nothing."""
    module = _IN_MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(module), name)
    globals()[name] = value  # found at once from here on: `step` is called in every step
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
