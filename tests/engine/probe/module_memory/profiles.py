"""Profiles as small as can be, and trees as large as those of a model of 7 billion parameters."""

import json
from pathlib import Path
from typing import Any

from vramscope.analyzers.modules import BreakdownNode

STATE = """Memory State:
time: {time}
---summary---
total_memory: 55953.57 MB
params_memory: 13965.51 MB, grads_memory: 13965.51 MB, os_params_memory: 3461.52 MB, \
os_state_memory: 6923.03 MB, activation_memory: {activation} MB
"""
LAYOUT = """---Layout---
params_layout:
layer: param_mem, layer_mem: 0.00 MB, total_mem: 13965.51 MB
layer: param_mem.embedding, layer_mem: 0.00 MB, total_mem: 806.00 MB
layer: param_mem.embedding.weight, layer_mem: 806.00 MB, total_mem: 806.00 MB
layer: param_mem.blocks.0.mixer.Wqkv.bias, layer_mem: 0.02 MB, total_mem: 0.02 MB
......
activation_base_layout:
layer: activations_0, layer_mem: 0.00 MB, total_mem: 12.00 MB
layer: activations_0.embedding, layer_mem: 12.00 MB, total_mem: 12.00 MB
layer: activations_1., layer_mem: -1.50 MB, total_mem: -1.50 MB
"""

_DATA = [
    {"name": "embedding", "children": [{"name": "weight", "value": 806}]},
    {"name": "norm", "value": 0.0},
]
_OPTION = {"series": [{"type": "sunburst", "name": "params_memory_sunburst", "data": _DATA}]}
CHART = f"""<script>
    var option_{"0a" * 16} = {json.dumps(_OPTION, indent=4)};
    chart.setOption(option);</script>"""
"""As pyecharts writes a page, shortened."""


def write_lines(path: Path, *lines: dict[str, Any]) -> Path:
    """Write JSON lines and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


def write_profile(folder: Path, **header: Any) -> Path:
    """Write a profile of ours with one moment and return its path."""
    kinds = {
        "params": {"computed_bytes": 300, "measured_bytes": 512},
        "activation": {"computed_bytes": 0, "measured_bytes": 0},
        "activation_peak": {"computed_bytes": 4096, "measured_bytes": 6144},
    }
    layouts = {
        "params": [["param_mem.a.weight", 200, 256], ["param_mem.<b>.weight", 100, 256]],
        "activation": [["activations_0.a", 4096, 4096], ["(outside of modules)", 0, 2048]],
    }
    head = {"schema": "vramscope.modules/1", "device": "cuda:0", **header}
    moment = {"tag": "step 1", "time_s": 1.5, "allocated_bytes": 7000, "kinds": kinds, "layouts": layouts}
    return write_lines(
        folder / "module_memory.jsonl", head, {"tag": "creation", "time_s": 0, "kinds": {}}, moment
    )


def make_large_tree(layers: int = 32) -> BreakdownNode:
    """Return a tree of five kinds and of nine parameters in each layer, as a model of 7 billion has."""

    def make(name: str, *children: BreakdownNode, size: int = 0) -> BreakdownNode:
        total = size + sum(child.measured_bytes or 0 for child in children)
        return BreakdownNode(name, total, total, children)

    names = [
        f"{part}.{leaf}" for part in ("attention", "mlp", "norm") for leaf in ("first", "second", "third")
    ]
    size = 33_554_432

    def make_kind(kind: str) -> BreakdownNode:
        blocks = [
            make(str(layer), *(make(name, make("weight", size=size)) for name in names))
            for layer in range(layers)
        ]
        return make(kind, make("embedding", size=4 * size), make("layers", *blocks))

    return make(
        "all", *(make_kind(kind) for kind in ("params", "grads", "os_params", "os_state", "activation"))
    )
