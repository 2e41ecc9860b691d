"""`GPTModelGraph` and `create_gpt_model_graph`: a model as a graph of layers, from a name or a file."""

from pathlib import Path
from typing import Self

from vramscope.analyzers.planning.graph import (
    Architecture,
    Batch,
    DataType,
    Figures,
    ModelGraph,
    find_model,
    plan_layers,
)
from vramscope.analyzers.planning.graph.config import decode_graph, read_architecture
from vramscope.analyzers.planning.graph.graph import LayerNode, LayerType
from vramscope.engine.files.base.input_file import read_input_file, show_path
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.files.run_config import read_model_config
from vramscope.exporters.plan.partition import encode_graph

from .model_file import find_model_file, make_name

LIMIT_BYTES = 256 << 20


class GPTModelGraph(ModelGraph):
    """A model as layers and what they hand on; `graph` is the NetworkX digraph.

    graph = vramscope.create_gpt_model_graph("gpt-1.5b")
    graph.save_to_json("gpt_1.5b_model_graph.json")
    """

    def save_to_json(self, path: str | Path) -> None:
        """Write it in the shape of llm_parallel_strategy's `*_model_graph.json`.

        Raises:
            OutputFileError: It cannot be written.
        """
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
        """Return the parameters of all layers, shared ones once."""
        return self.total_parameters

    def get_total_memory_usage(self) -> float:
        """Return the MiB of weights of all layers."""
        return self.total_memory_mib

    def get_total_compute_flops(self) -> float:
        """Return the GFLOP of the forward pass of one sequence."""
        return self.total_compute_gflops

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the graph that a file holds.

        Raises:
            InputFileError: It cannot be read, or holds no graph.
            UsageError: Its graph has a cycle, falls into parts, or lacks layers.
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
        model: A known name (`gpt-1.5b`, `llama3-8b`, …), its sizes, or the path of a `config.json` of Hugging
            Face or of the folder that it is in, a meta config or YAML file of Galvatron, or a saved graph,
            whose figures stay as they are.
        seq_length: Tokens of a sequence; None for the longest the model is made for.
        micro_batch: Sequences of a micro-batch.
        data_type: Of weights and of what layers hand on.
        figures: `legacy` for the original's `compute_flops`, which count the embedding in FLOP, not GFLOP.

    Raises:
        UsageError: The name is unknown (the text shows the nearest), or a size cannot be.
        InputFileError: The file cannot be read or understood.
    """
    sizes: str | Architecture
    if isinstance(model, Architecture):
        name = "model"
        sizes = model
    elif (path := find_model_file(model)) is None:
        name = make_name(str(model))
        sizes = str(model)
    else:
        config = read_model_config(path)
        if "nodes" in config:
            return GPTModelGraph.load(path)
        name = path.stem if path.stem != "config" else path.absolute().parent.name
        sizes = read_architecture(config, show_path(path))
    layers, edges, written = plan_layers(
        sizes, seq_length=seq_length, micro_batch=micro_batch, data_type=data_type, figures=figures
    )
    return GPTModelGraph(layers, edges, written, name, _find_batch(sizes, seq_length, micro_batch))


def _find_batch(model: str | Architecture, seq_length: int | None, micro_batch: int) -> Batch:
    sizes = find_model(model) if isinstance(model, str) else model
    return Batch(sizes.positions if seq_length is None else seq_length, micro_batch)
