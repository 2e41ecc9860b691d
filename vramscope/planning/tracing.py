"""`trace_model_graph`: the graph of any module of PyTorch, traced on the meta device."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from vramscope.analyzers.planning.graph import MIB, Batch, EdgeInfo, LayerNode, LayerType
from vramscope.engine.child_processes import module_command, user_code_environment
from vramscope.engine.errors import UsageError

from .model_graph import GPTModelGraph

_SCRIPT = "vramscope.engine.workloads.model_tracer"
TracedType = Literal["float32", "bfloat16", "float16"]


class TracedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """One call of one layer, as the tracer tells it."""

    name: str
    kind: LayerType
    parameters: int
    shared_parameters: int
    weight_bytes: int
    forward_flops: int
    backward_flops: int
    activation_bytes: int
    output_shape: tuple[int, ...]
    heads: int | None = None
    vocabulary: int | None = None


class TracedEdge(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer hands to another."""

    source: int
    target: int
    shape: tuple[int, ...]
    dtype: str
    bytes: int


class TracedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What the tracer found, or why it found nothing."""

    name: str = ""
    layers: tuple[TracedLayer, ...] = ()
    edges: tuple[TracedEdge, ...] = ()
    unused: tuple[str, ...] = ()
    """Parameters of layers that the forward pass does not call."""
    error: str | None = None


def trace_model_graph(
    model: str | Callable[..., object],
    *inputs: object,
    dtype: TracedType | None = None,
    name: str | None = None,
) -> GPTModelGraph:
    """Return the graph of a module without allocating its weights or activations.

    A module, or a function that makes one, is traced in this process, where torch is then imported already. A
    name is traced in a process of its own, which imports torch.

        graph = vramscope.trace_model_graph("train:make_model", "4x1024:int64")
        graph = vramscope.trace_model_graph(make_model, torch.zeros(4, 1024, dtype=torch.int64))

    Args:
        model: `module:function`, its module looked for in the working folder too; or the function; or
            a `torch.nn.Module`.
        inputs: Arguments of the forward pass: shape and type as text, or tensors, of which only these count.
        dtype: Of floating weights and inputs; None for what they are.
        name: What people call the model; None for that of its class.

    Raises:
        UsageError: It cannot be traced; the text names layer and operation. What the user's own function
            raises is raised as it is, or, by name, printed as it is on stderr before this.
    """
    if isinstance(model, str):
        traced = _trace_apart(model, [str(each) for each in inputs], dtype)
    else:
        traced = _trace_here(model, inputs, dtype)
    if traced.error is not None:
        raise UsageError(traced.error)
    return _make_graph(traced, name or traced.name)


def _trace_apart(spec: str, inputs: list[str], dtype: str | None) -> TracedModel:
    module, colon, function = spec.partition(":")
    if not (module and colon and function):
        raise UsageError(f"--factory {spec}: expected module:function, as train:make_model")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = module_command(_SCRIPT, "--factory", spec, "--result", str(result))
        command += [word for each in inputs for word in ("--input", each)]
        command += [] if dtype is None else ["--dtype", dtype]
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=2, env=user_code_environment(), check=False
        )
        if not result.is_file():
            raise UsageError(
                f"{spec} was not traced: {sys.executable} ended with {ended.returncode}; it needs PyTorch "
                "(pip install 'vramscope[train]')"
            )
        return msgspec.json.decode(result.read_bytes(), type=TracedModel)


def _trace_here(model: Callable[..., object], inputs: tuple[object, ...], dtype: str | None) -> TracedModel:
    import importlib

    tracer = importlib.import_module("vramscope.engine.workloads.model_tracer")
    try:
        found: Mapping[str, object] = tracer.trace_made(model, inputs, dtype)
    except tracer.TraceError as error:
        raise UsageError(str(error)) from None
    return msgspec.convert(found, TracedModel)


def _make_graph(traced: TracedModel, name: str) -> GPTModelGraph:
    first = traced.layers[0].output_shape
    sequences = first[0] if len(first) > 2 else 1
    layers = [_make_layer(place, layer, sequences) for place, layer in enumerate(traced.layers)]
    edges = [
        EdgeInfo(
            source_id=edge.source,
            target_id=edge.target,
            data_shape=edge.shape,
            data_type=edge.dtype,
            communication_cost=edge.bytes / MIB,
        )
        for edge in traced.edges
    ]
    batch = Batch(layers[0].seq_length, sequences) if len(first) > 2 else None
    config = {"traced": traced.name, "unused_parameters": list(traced.unused)}
    return GPTModelGraph(layers, edges, config, name, batch)


def _make_layer(place: int, traced: TracedLayer, sequences: int) -> LayerNode:
    shape = traced.output_shape
    return LayerNode(
        layer_id=place,
        layer_type=traced.kind,
        name=traced.name,
        hidden_size=shape[-1] if shape else 1,
        seq_length=shape[-2] if len(shape) > 1 else 1,
        num_heads=traced.heads,
        vocab_size=traced.vocabulary,
        parameter_count=traced.parameters,
        memory_usage=traced.weight_bytes / MIB,
        compute_flops=traced.forward_flops / sequences / 1e9,
        tensor_parallel_dim=traced.heads or traced.vocabulary,
        shared_parameter_count=traced.shared_parameters or None,
        forward_flops=traced.forward_flops,
        backward_flops=traced.backward_flops,
        activation_bytes=traced.activation_bytes,
    )
