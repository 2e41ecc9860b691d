"""Files of anybody's making: a graph, or an error in a sentence; never a traceback."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope import create_gpt_model_graph
from vramscope.analyzers.planning.partition import GraphAnalyzer
from vramscope.engine.errors import VramscopeError

NUMBERS = st.one_of(st.integers(-2, 70), st.integers(2**31, 2**70), st.floats(), st.booleans())
VALUES = st.one_of(NUMBERS, st.text(max_size=5), st.none(), st.lists(NUMBERS, max_size=2))
SOUND = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
CONFIG_KEYS = st.sampled_from(
    [
        *SOUND,
        "num_experts",
        "num_experts_per_tok",
        "multiple_of",
        "head_dim",
        "num_key_value_heads",
        "feed_forward_proj",
        "nodes",
    ]
)
CONFIGS = st.dictionaries(CONFIG_KEYS, VALUES | st.sampled_from(["mixtral", "t5", "bert"]), max_size=3).map(
    lambda changes: SOUND | changes
)
NODES = st.fixed_dictionaries(
    {
        "layer_id": st.integers(-1, 3),
        "layer_type": st.sampled_from(["embedding", "transformer_block", "mlp", "rocket"]),
        "name": st.text(max_size=3),
        "hidden_size": st.integers(0, 4),
        "seq_length": st.integers(0, 4),
        "parameter_count": NUMBERS,
        "memory_usage": NUMBERS,
        "compute_flops": NUMBERS,
    }
)
EDGES = st.fixed_dictionaries(
    {
        "source_id": st.integers(0, 3),
        "target_id": st.integers(0, 3),
        "data_shape": st.lists(st.integers(0, 4), max_size=3),
        "data_type": st.just("float32"),
        "communication_cost": NUMBERS,
    }
)
GRAPHS = st.fixed_dictionaries(
    {
        "nodes": st.lists(NODES, max_size=4).map(lambda nodes: {str(it["layer_id"]): it for it in nodes}),
        "edges": st.lists(EDGES, max_size=5),
    }
)


@given(st.one_of(CONFIGS, GRAPHS).map(json.dumps) | st.text(max_size=40))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", ["config.json", "model.yaml"])
def test_any_content_is_a_graph_or_an_error(name: str, tmp_path: Path, content: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    try:
        graph = create_gpt_model_graph(path)
        result = GraphAnalyzer(graph).partition_graph_balanced(1)
    except VramscopeError as error:
        told = str(error)
    else:
        told = f"{result.total_stages} stage of {len(graph.layers)} layers"
    assert told
    assert "\n" not in told
