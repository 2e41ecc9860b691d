"""The model to plan: a known name, a file, or a module of the user, which is traced."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

import msgspec

from vramscope.analyzers.planning.graph import (
    MIB,
    Architecture,
    Batch,
    DataType,
    EdgeInfo,
    Figures,
    LayerNode,
    LayerType,
    ModelGraph,
    find_model,
    plan_layers,
)
from vramscope.analyzers.planning.graph.catalog import MODELS
from vramscope.analyzers.planning.graph.config import decode_graph, read_decoder, read_encoder
from vramscope.analyzers.planning.theory.configs.assumptions import choose_sequence
from vramscope.analyzers.planning.theory.configs.document import (
    Described,
    assume_model_type,
    describe_config,
    describe_preset,
)
from vramscope.analyzers.planning.theory.configs.flags import ASSUMED_TYPE
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.engine.errors import ErrorPart, InputFileError, Setting, SettingError, UsageError
from vramscope.engine.extras import require_package
from vramscope.engine.files.base.input_file import read_input_file, show_path
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.files.run_config import read_model_config, read_run_config

# A model with one of these endings is a file, whether it exists or not.
SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".txt", ".log")


def find_model_file(model: str | Path) -> Path | None:
    """Return the file that describes a model, in a folder its `config.json`; None for a name.

    A known name stays a name even where a folder has the same.
    """
    if isinstance(model, str) and {make_name(model)} & {*MODELS, *PRESETS}:
        return None
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputFileError(f"{show_path(path)}: no config.json in this folder; name the model's file")
        return path / "config.json"
    is_file = isinstance(model, Path) or path.suffix in SUFFIXES or path.exists()
    return path if is_file else None


def make_name(text: str) -> str:
    """Return a model's name in the form of the catalog."""
    return text.strip().lower().replace("_", "-")


def describe_model(model: str | Path) -> Described:
    """Return the model and the training that a name or a file describes."""
    path = find_model_file(model)
    if path is None:
        return describe_preset(check_is_decoder(str(model).strip()))
    config = read_run_config(path)
    try:
        return describe_config(config)
    except UsageError as error:
        raise InputFileError(f"{show_path(path)}: {error}") from error


def find_flags(model: str | Path) -> dict[str, object]:
    """Return the flags that the description of a model says, as `estimate` reads it.

    Of an encoder, or the saved graph of a model, which `estimate` cannot read, there is at most the assumed
    type of model.
    """
    try:
        flags = describe_model(model).flags
    except (UsageError, InputFileError):
        flags = _find_assumed_type(model)
    return {name: value for name, value in flags.items() if value is not None}


def _find_assumed_type(model: str | Path) -> dict[str, object]:
    with suppress(UsageError, InputFileError):
        path = find_model_file(model)
        if path is not None:
            return {ASSUMED_TYPE: assume_model_type(read_model_config(path))}
    return {}


def check_is_decoder(name: str) -> str:
    key = make_name(name)
    if key in MODELS and key not in PRESETS:
        raise UsageError(
            f"{name} is not a decoder, and the memory theory covers only decoders; to split its layers use "
            f"`vramscope plan --model {key} --stages 2-8`"
        )
    return name


LIMIT_BYTES = 256 << 20


class GPTModelGraph(ModelGraph):
    """A model as layers and the tensors between them; `graph` is the NetworkX digraph.

    graph = vramscope.create_gpt_model_graph("gpt-1.5b")
    graph.save_to_json("gpt_1.5b_model_graph.json")
    """

    def save_to_json(self, path: str | Path) -> None:
        """Write the graph in the format of llm_parallel_strategy's `*_model_graph.json`.

        Raises:
            OutputFileError: The file cannot be written.
        """

        from vramscope.exporters.plan.partition import encode_graph

        write_whole(encode_graph(self), Path(path))

    def get_transformer_nodes(self) -> list[LayerNode]:
        """Return the transformer blocks in the order in which they run."""
        return self.get_layers_by_type("transformer_block")

    def get_layers_by_type(self, layer_type: LayerType) -> list[LayerNode]:
        """Return the layers of one type in the order in which they run."""
        return [layer for layer in self.layers if layer.layer_type == layer_type]

    def get_layer_by_id(self, layer_id: int) -> LayerNode | None:
        """Return a layer, or None where no layer has that id."""
        return self.nodes.get(layer_id)

    def get_execution_order(self) -> list[int]:
        """Return the ids of the layers in the order in which they run."""
        return [layer.layer_id for layer in self.layers]

    def get_total_parameters(self) -> int:
        """Return the number of parameters of all layers, shared ones once."""
        return self.total_parameters

    def get_total_memory_usage(self) -> float:
        """Return the MiB of weights of all layers."""
        return self.total_memory_mib

    def get_total_compute_flops(self) -> float:
        """Return the GFLOP of the forward pass of one sequence."""
        return self.total_compute_gflops

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the graph saved in a file.

        Raises:
            InputFileError: The file cannot be read, or contains no graph.
            UsageError: The graph has a cycle, is not connected, or has no layers.
        """
        shown = show_path(Path(path))
        document = decode_graph(read_input_file(Path(path), LIMIT_BYTES), shown)
        name = Path(path).stem.removesuffix("_model_graph")
        return cls(list(document.nodes.values()), document.edges, document.config, name or shown)


def create_gpt_model_graph(
    model: str | Path | Architecture = "gpt-1.5b",
    *,
    seq_length: int | None = None,
    micro_batch: int = 1,
    data_type: DataType = "float32",
    figures: Figures = "counted",
) -> GPTModelGraph:
    """Return the graph of a model.

    Args:
        model: A known name (`gpt-1.5b`, `llama3-8b`, …), its sizes, or a path: of any file that `estimate`
            reads, of a folder with a `config.json`, or of a saved graph, whose numbers stay as they are.
        seq_length: Tokens in a sequence; None for the longest that the model allows.
        micro_batch: Sequences in a micro-batch.
        data_type: Type of weights and activations.
        figures: `legacy` for the original's `compute_flops`, which count the embedding in FLOP, not GFLOP.

    Raises:
        UsageError: The name is unknown (the text suggests similar ones), or a size is invalid.
        InputFileError: The file cannot be read.
    """
    sizes: str | Architecture
    if isinstance(model, Architecture):
        name = "model"
        sizes = model
    elif (path := find_model_file(model)) is None:
        name = make_name(str(model))
        sizes = str(model)
    else:
        values = _read_values(path)
        if "nodes" in values:
            return GPTModelGraph.load(path)
        name = path.stem if path.stem != "config" else path.absolute().parent.name
        shown = show_path(path)
        sizes = read_encoder(values, shown) or read_decoder(read_run_config(path), shown)
    layers, edges, written = plan_layers(
        sizes, seq_length=seq_length, micro_batch=micro_batch, data_type=data_type, figures=figures
    )
    known = find_model(sizes) if isinstance(sizes, str) else sizes
    batch = Batch(choose_sequence(known.positions) if seq_length is None else seq_length, micro_batch)
    return GPTModelGraph(layers, edges, written, name, batch, has_dropout=known.has_dropout)


def _read_values(path: Path) -> dict[str, object]:
    """Return what a flat file says; nothing of a log with arguments, and of YAML or TOML with sections."""
    try:
        return read_model_config(path)
    except InputFileError:
        if path.suffix == ".json":
            raise
        return {}


_SCRIPT = "vramscope.engine.workloads.model_tracer"
# The user's function: `trace_model_graph` takes it in place of a module.
_MODEL = Setting("--factory", "model")
TracedType = Literal["float32", "bfloat16", "float16"]


class TracedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """One call of one layer in the trace."""

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
    """A tensor passed from one layer to another."""

    source: int
    target: int
    shape: tuple[int, ...]
    dtype: str
    bytes: int


class TracedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the tracer, or its error."""

    name: str = ""
    layers: tuple[TracedLayer, ...] = ()
    edges: tuple[TracedEdge, ...] = ()
    # Parameters of layers that the forward pass does not call.
    unused: tuple[str, ...] = ()
    error: tuple[ErrorPart, ...] | None = None


def trace_model_graph(
    model: str | Callable[..., object],
    *inputs: object,
    dtype: TracedType | None = None,
    name: str | None = None,
) -> GPTModelGraph:
    """Return the graph of a module without allocating its weights or activations.

    A module, or a function that returns one, is traced in this process. A name is traced in another process,
    which imports torch.

        graph = vramscope.trace_model_graph("train:make_model", "4x1024:int64")
        graph = vramscope.trace_model_graph(make_model, torch.zeros(4, 1024, dtype=torch.int64))

    Args:
        model: `module:function`, also searched in the current folder; or a function, or a
            `torch.nn.Module`.
        inputs: Arguments of the forward pass: shape and type as text, or tensors, whose values do not count.
        dtype: Type of floating weights and inputs; None to leave them as they are.
        name: Name of the model; None for that of its class.

    Raises:
        UsageError: It cannot be traced; the text names layer and operation. An error of the user's own
            function passes through, or, for a name, is printed on stderr before this one.
    """
    if isinstance(model, str):
        traced = _trace_apart(model, [str(each) for each in inputs], dtype)
    else:
        traced = _trace_here(model, inputs, dtype)
    if traced.error is not None:
        raise SettingError(*traced.error)
    return _make_graph(traced, name or traced.name)


def _trace_apart(spec: str, inputs: list[str], dtype: str | None) -> TracedModel:
    from vramscope.engine.child_processes import module_command, user_code_environment

    module, colon, function = spec.partition(":")
    if not (module and colon and function):
        raise SettingError(_MODEL, f" {spec}: expected MODULE:FUNCTION, for example train:make_model")
    require_package("torch")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = module_command(_SCRIPT, "--factory", spec, "--result", str(result))
        command += [word for each in inputs for word in ("--input", each)]
        command += [] if dtype is None else ["--dtype", dtype]
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=2, env=user_code_environment(), check=False
        )
        if not result.is_file():
            raise UsageError(f"{spec} was not traced: {sys.executable} ended with {ended.returncode}")
        return msgspec.json.decode(result.read_bytes(), type=TracedModel)


def _trace_here(model: Callable[..., object], inputs: tuple[object, ...], dtype: str | None) -> TracedModel:
    import importlib

    tracer = importlib.import_module("vramscope.engine.workloads.model_tracer")
    try:
        found: Mapping[str, object] = tracer.trace_made(model, inputs, dtype)
    except tracer.TraceError as error:
        raise SettingError(*error.args) from None
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
