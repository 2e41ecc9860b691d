"""vramscope: will this training job run out of GPU memory, when, why, and what should I do?

A program that watches this node:

    import vramscope

    with vramscope.connect() as agent:
        for sample in agent.samples():
            print(sample.node, [device.memory.used_bytes for device in sample.devices])

A program that trains and reports without `vramscope run`:

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

TYPE_CHECKING = False  # not from typing: that import would come before `__main__` removes the current folder
if TYPE_CHECKING:
    from vramscope.analyzers.planning.graph import EdgeInfo, LayerNode
    from vramscope.engine.errors import VramscopeError
    from vramscope.engine.jobs.in_code import attach, on_advice, phase, step
    from vramscope.engine.model.phase_memory import PhaseTraining
    from vramscope.engine.viewer.client import connect
    from vramscope.estimates import estimate_step
    from vramscope.memory.distributed_exchange import DistributedRole
    from vramscope.memory.distributed_monitor import DistributedMemoryMonitor
    from vramscope.memory.fragmentation_analyzer import FragmentationAnalyzer
    from vramscope.memory.leak_detector import MemoryLeakDetector
    from vramscope.memory.module_profiler import SimpleMemoryProfiler, initialize_llm_profile
    from vramscope.memory.oom_detector import OOMDetector
    from vramscope.memory.profiler import MemoryProfiler
    from vramscope.phases.running import run_phases
    from vramscope.planning.graph_analyzer import GraphAnalyzer
    from vramscope.planning.joint import plan_cluster, read_cluster
    from vramscope.planning.model_graph import GPTModelGraph, create_gpt_model_graph, trace_model_graph
    from vramscope.sweeps import MemoryHeatmapVisualizer

__version__ = "0.1.0"

__all__ = [
    "DistributedMemoryMonitor",
    "DistributedRole",
    "EdgeInfo",
    "FragmentationAnalyzer",
    "GPTModelGraph",
    "GraphAnalyzer",
    "LayerNode",
    "MemoryHeatmapVisualizer",
    "MemoryLeakDetector",
    "MemoryProfiler",
    "OOMDetector",
    "PhaseTraining",
    "SimpleMemoryProfiler",
    "VramscopeError",
    "__version__",
    "attach",
    "connect",
    "create_gpt_model_graph",
    "estimate_step",
    "initialize_llm_profile",
    "on_advice",
    "phase",
    "plan_cluster",
    "read_cluster",
    "run_phases",
    "step",
    "trace_model_graph",
]

_IN_MODULES = {
    "DistributedMemoryMonitor": "vramscope.memory.distributed_monitor",
    "DistributedRole": "vramscope.memory.distributed_exchange",
    "EdgeInfo": "vramscope.analyzers.planning.graph",
    "FragmentationAnalyzer": "vramscope.memory.fragmentation_analyzer",
    "MemoryHeatmapVisualizer": "vramscope.sweeps",
    "GPTModelGraph": "vramscope.planning.model_graph",
    "GraphAnalyzer": "vramscope.planning.graph_analyzer",
    "LayerNode": "vramscope.analyzers.planning.graph",
    "MemoryLeakDetector": "vramscope.memory.leak_detector",
    "MemoryProfiler": "vramscope.memory.profiler",
    "OOMDetector": "vramscope.memory.oom_detector",
    "PhaseTraining": "vramscope.engine.model.phase_memory",
    "SimpleMemoryProfiler": "vramscope.memory.module_profiler",
    "VramscopeError": "vramscope.engine.errors",
    "attach": "vramscope.engine.jobs.in_code",
    "connect": "vramscope.engine.viewer.client",
    "create_gpt_model_graph": "vramscope.planning.model_graph",
    "estimate_step": "vramscope.estimates",
    "initialize_llm_profile": "vramscope.memory.module_profiler",
    "on_advice": "vramscope.engine.jobs.in_code",
    "phase": "vramscope.engine.jobs.in_code",
    "plan_cluster": "vramscope.planning.joint",
    "read_cluster": "vramscope.planning.joint",
    "run_phases": "vramscope.phases.running",
    "step": "vramscope.engine.jobs.in_code",
    "trace_model_graph": "vramscope.planning.model_graph",
}
"""Modules of the public names."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import vramscope` costs nothing."""
    module = _IN_MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(module), name)
    globals()[name] = value  # next time without this function: `step` is called in every step
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
