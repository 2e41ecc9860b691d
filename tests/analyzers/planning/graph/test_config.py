"""Configurations of Hugging Face and of both eras of Galvatron give the model they describe."""

import json
from pathlib import Path

import pytest

from vramscope import create_gpt_model_graph
from vramscope.engine.errors import InputFileError, VramscopeError

from ....vramscope.cli.running import call

HUGGING_FACE: dict[str, dict[str, object]] = {
    "gpt2-xl": {
        "model_type": "gpt2",
        "n_embd": 1600,
        "n_layer": 48,
        "n_head": 25,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "llama3-8b": {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "t5-3b": {
        "model_type": "t5",
        "d_model": 1024,
        "d_ff": 16384,
        "d_kv": 128,
        "num_layers": 24,
        "num_heads": 32,
        "vocab_size": 32128,
    },
    "bert-base": {
        "model_type": "bert",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    },
}
HUGGING_FACE |= {
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_nextn_predict_layers": 1,
        "vocab_size": 129280,
    },
}
GALVATRON = {
    "gpt-2.7b": {
        "n_layer": 32,
        "n_embd": 2560,
        "n_head": 32,
        "head_dim": 80,
        "vocab_size": 50257,
        "n_positions": 2048,
    },
    "llama2-7b": {
        "dim": 4096,
        "n_layers": 32,
        "n_heads": 32,
        "multiple_of": 256,
        "norm_eps": 1e-6,
        "vocab_size": 32000,
    },
}
YAML = """\
# a model of today's Galvatron
model_size: gpt2-xl

hidden_size: 1600
num_layers: 48
num_attention_heads: 25
num_query_groups: null         # as many as heads
ffn_hidden_size: 6400
vocab_size: 50257
seq_length: 1024
normalization: LayerNorm
gated_linear_unit: false
position_embedding_type: learned_absolute
add_bias_linear: true
untie_embeddings_and_output_weights: false
make_vocab_size_divisible_by: 1
"""


@pytest.mark.parametrize("name", [*HUGGING_FACE, *GALVATRON])
def test_a_configuration_gives_the_model_of_that_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps((HUGGING_FACE | GALVATRON)[name]))
    known = create_gpt_model_graph(name, seq_length=256)
    assert create_gpt_model_graph(str(path), seq_length=256).layers == known.layers


@pytest.mark.parametrize("name", ["gpt2-xl", "llama3-8b", "mixtral-8x7b", "t5-3b", "bert-base"])
def test_a_configuration_without_a_model_type_gives_the_model_that_its_sizes_suggest(
    name: str, tmp_path: Path
) -> None:
    config = {key: value for key, value in HUGGING_FACE[name].items() if key != "model_type"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    known = create_gpt_model_graph(name, seq_length=256)
    assert create_gpt_model_graph(path, seq_length=256).layers == known.layers


# The parameters that their makers publish; layers of these have what a plain Llama has not.
PUBLISHED: dict[str, tuple[int, dict[str, object]]] = {
    "gemma2": (
        9_241_705_984,
        {
            "hidden_size": 3584,
            "num_hidden_layers": 42,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "intermediate_size": 14336,
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
        },
    ),
    "gpt_oss": (
        20_914_757_184,
        {
            "hidden_size": 2880,
            "num_hidden_layers": 24,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "intermediate_size": 2880,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "vocab_size": 201088,
            "max_position_embeddings": 131072,
        },
    ),
    # Its makers count 2,048 more: a norm behind the embedding, which neither counts.
    "bloom": (
        559_212_544,
        {
            "n_embed": 1024,
            "n_layer": 24,
            "num_attention_heads": 16,
            "vocab_size": 250880,
            "seq_length": 2048,
        },
    ),
}


def _estimate_parameters(path: Path) -> int:
    (found,) = call("estimate", "--model", str(path), "--tp", "1", "--pp", "1", "--json").lines
    parameters: int = found["stages"][0]["parameters"]
    return parameters


@pytest.mark.parametrize("kind", PUBLISHED)
def test_a_configuration_has_the_published_parameters_in_a_plan_and_in_an_estimate(
    kind: str, tmp_path: Path
) -> None:
    parameters, config = PUBLISHED[kind]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind, **config}))
    graph = create_gpt_model_graph(path)
    assert graph.total_parameters == parameters
    assert graph.batch is not None
    assert graph.batch.sequence == (2048 if kind == "bloom" else 4096)
    assert _estimate_parameters(path) == parameters


MEGATRON = """\
  num_layers ...................................... 4
  hidden_size ..................................... 512
  num_attention_heads ............................. 8
  ffn_hidden_size ................................. 1408
  swiglu .......................................... True
  normalization ................................... RMSNorm
  add_bias_linear ................................. False
  position_embedding_type ......................... rope
  untie_embeddings_and_output_weights ............. True
  vocab_size ...................................... 32000
  seq_length ...................................... 1024
"""
NEMO = """\
trainer:
  precision: bf16
model:
  num_layers: 4
  hidden_size: 512
  num_attention_heads: 8
  encoder_seq_length: 1024
  megatron_amp_O2: true
  optim:
    name: adam
"""
TORCHTITAN = """\
[model]
name = "llama3"
flavor = "8B"
[training]
seq_len = 1024
"""


@pytest.mark.parametrize(
    ("name", "text"), [("train.log", MEGATRON), ("nemo.yaml", NEMO), ("train.toml", TORCHTITAN)]
)
def test_a_file_of_a_framework_is_the_same_model_in_a_plan_and_in_an_estimate(
    name: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    graph = create_gpt_model_graph(path)
    assert graph.total_parameters == _estimate_parameters(path)


def test_the_batch_that_torchtitan_takes_where_its_file_has_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(TORCHTITAN.replace("seq_len = 1024\n", ""))
    words = ("estimate", "--model", str(path), "--dp", "8", "--json")
    (found,) = call(*words).lines
    assumed = ["sequences of 2,048 tokens", "micro-batches of 8 sequences"]
    assert found["run"]["assumptions"][:2] == assumed
    (found,) = call(*words, "--seq", "4096", "--micro-batch", "1").lines
    assert not {*assumed, "sequences of 4,096 tokens"} & {*found["run"]["assumptions"]}
    assert create_gpt_model_graph(path).batch == (2048, 1)


def test_galvatron_s_yaml_gives_the_model(tmp_path: Path) -> None:
    path = tmp_path / "gpt2-xl.yaml"
    path.write_text(YAML)
    graph = create_gpt_model_graph(path)
    assert (graph.name, graph.total_parameters) == ("gpt2-xl", 1_557_611_200)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("c.json", '{"model_type": "lama"}', "model_type 'lama' cannot be estimated: its layers are unknown"),
        ("c.json", '{"model_type": "mamba"}', "layers with a state in place of attention are not modelled"),
        (
            "c.json",
            '{"model_type": "llama", "hidden_size": "big", "num_hidden_layers": 2,'
            ' "num_attention_heads": 2, "vocab_size": 100}',
            "hidden-size is 'big'; expected a number",
        ),
        (
            "c.json",
            '{"model_type": "bert", "hidden_size": 8}',
            "num_layers or num_hidden_layers is not given",
        ),
        ("c.json", '{"zero_optimization": {"stage": 2}}', "DeepSpeed describes no model; give --model"),
        ("c.json", '{"model_type": "deepseek_v3"}', r"c\.json: num_hidden_layers is not given"),
        ("c.json", '{"model_type": "llama"}', "num_hidden_layers is not given"),
        ("c.json", "[]", "expected a JSON object"),
        ("c.json", "{]", "not JSON"),
        ("c.yaml", "layers:\n  - 3\n", "describes no model; expected num_layers"),
    ],
)
def test_a_configuration_of_nothing_known_is_refused(
    name: str, content: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputFileError, match=words):
        create_gpt_model_graph(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(VramscopeError, match=r"absent\.json"):
        create_gpt_model_graph(tmp_path / "absent.json")
