"""A model graph keeps what its file says, and refuses files that describe none."""

import hashlib
import json
from pathlib import Path

import pytest

from tests import REPOSITORY
from vramscope import GPTModelGraph, create_gpt_model_graph
from vramscope.engine.errors import InputFileError, UsageError

ORIGINAL = REPOSITORY.parent / "shared/data/model_graph/gpt_1.5b_model_graph.json"
SHA256_OF_ORIGINAL = "216960e8705780ba89e0e69aa40ecb97f14cf977505bfcfbcb99c9dffba02e63"


def _save(folder: Path, **changes: object) -> Path:
    """Write the graph of a small model with some of its keys changed."""
    path = folder / "small_model_graph.json"
    create_gpt_model_graph("gpt2", seq_length=8).save_to_json(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def _edge(source: int, target: int) -> dict[str, object]:
    return {
        "source_id": source,
        "target_id": target,
        "data_shape": [1, 8, 768],
        "data_type": "float32",
        "communication_cost": 1.0,
    }


def test_the_original_s_graph_is_made_to_the_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    create_gpt_model_graph("gpt-1.5b", figures="legacy").save_to_json(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256_OF_ORIGINAL
    again = tmp_path / "again.json"
    GPTModelGraph.load(path).save_to_json(again)
    assert again.read_bytes() == path.read_bytes()


def test_the_original_s_file_is_read_and_written_to_the_last_byte(tmp_path: Path) -> None:
    if not ORIGINAL.exists():
        pytest.skip("shared/data/model_graph is not here")
    graph = GPTModelGraph.load(ORIGINAL)
    assert (len(graph.layers), len(graph.edges), graph.total_parameters) == (51, 50, 1_635_537_600)
    assert (graph.total_memory_mib, graph.total_compute_gflops) == (6239.080810546875, 3281231.003648)
    graph.save_to_json(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == ORIGINAL.read_bytes()


def test_counted_figures_survive_their_file(tmp_path: Path) -> None:
    graph = create_gpt_model_graph("t5-small", seq_length=64, data_type="bfloat16")
    graph.save_to_json(tmp_path / "t5-small_model_graph.json")
    again = GPTModelGraph.load(tmp_path / "t5-small_model_graph.json")
    assert (again.layers, again.edges, again.config) == (graph.layers, graph.edges, graph.config)
    assert again.name == "t5-small"
    assert create_gpt_model_graph(tmp_path / "t5-small_model_graph.json").layers == graph.layers


def test_networkx_holds_layers_and_edges() -> None:
    graph = create_gpt_model_graph("gpt2", seq_length=8)
    assert graph.graph.nodes[3]["layer"].name == "transformer_block_2"
    assert graph.graph.edges[3, 4]["edge"].data_shape == (1, 8, 768)


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (
            [_edge(place, place + 1) for place in range(14)] + [_edge(5, 2)],
            r"form a cycle \(2 -> 3 -> 4 -> 5 -> 2\)",
        ),
        (
            [_edge(place, place + 1) for place in range(13)],
            "2 parts without an edge .* layer 14 is not connected",
        ),
        ([_edge(0, 99)], "the edge from 0 to 99 names layer 99, which is not among the nodes"),
    ],
    ids=["circle", "parts", "stranger"],
)
def test_a_graph_that_is_no_pipeline_is_refused(edges: list[object], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        GPTModelGraph.load(_save(tmp_path, edges=edges))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a model graph"),
        ('{"nodes": {}}', "missing required field `edges`"),
        ('{"nodes": {"0": {"layer_id": 0}}, "edges": []}', r"missing required field .* at `\$.nodes"),
    ],
)
def test_a_file_that_is_no_graph_is_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(content)
    with pytest.raises(InputFileError, match=rf"graph\.json: .*{words}"):
        GPTModelGraph.load(path)
    path.write_text('{"nodes": {}, "edges": []}')
    with pytest.raises(UsageError, match="no layers"):
        GPTModelGraph.load(path)


def test_negative_figures_are_refused(tmp_path: Path) -> None:
    path = _save(tmp_path)
    path.write_text(path.read_text().replace('"parameter_count": 1536', '"parameter_count": -1'))
    with pytest.raises(InputFileError, match="node '13' has a number out of range"):
        GPTModelGraph.load(path)
