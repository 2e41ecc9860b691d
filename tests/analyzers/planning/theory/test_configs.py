"""Configurations of other programs: the same model from each, and garbage refused in one line."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.planning.theory import count_parameters
from vramscope.analyzers.planning.theory.configs import Flags, read_megatron_run
from vramscope.analyzers.planning.theory.configs.audit import list_not_counted
from vramscope.analyzers.planning.theory.configs.document import describe_config, flag_hugging_face
from vramscope.analyzers.planning.theory.configs.megatron import build_run, read_shape
from vramscope.analyzers.planning.theory.presets import PRESETS, find_preset
from vramscope.cli.estimating import PREDICTED, predict_case
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.run_config import read_run_config

HUGGING_FACE = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
MEGATRON = {
    "num-layers": 32,
    "hidden-size": 4096,
    "ffn-hidden-size": 11008,
    "num-attention-heads": 32,
    "seq-length": 4096,
    "swiglu": True,
    "normalization": "RMSNorm",
    "position-embedding-type": "rope",
    "disable-bias-linear": True,
    "untie-embeddings-and-output-weights": True,
    "padded-vocab-size": 32000,
}
ARGUMENTS = "".join(f"  {name.replace('-', '_')} {'.' * 20} {value}\n" for name, value in MEGATRON.items())
GALVATRON = """\
# as Galvatron writes it
model_size: llama2-7b
hidden_size: 4096
num_layers: 32
num_attention_heads: 32
num_query_groups: null         # as many as heads
ffn_hidden_size: 11008
vocab_size: 32000
normalization: RMSNorm
gated_linear_unit: true
position_embedding_type: rope
add_bias_linear: false
add_qkv_bias: false
untie_embeddings_and_output_weights: true
make_vocab_size_divisible_by: 128
"""
TORCHTITAN = """\
[model]
name = "llama2"
flavor = "7B"
[training]
seq_len = 4096
local_batch_size = 2
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 2
"""
OLD_GALVATRON = {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32000, "multiple_of": 256}


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("config.json", json.dumps(HUGGING_FACE), "hugging_face"),
        ("arguments.json", json.dumps(MEGATRON), "megatron"),
        (
            "model_config.yaml",
            "MODEL_ARGS:\n" + "".join(f"  --{n}: {v}\n" for n, v in MEGATRON.items()),
            "megatron",
        ),
        ("train.log", "[rank0]: starting\n" + ARGUMENTS, "megatron"),
        ("llama2-7b.yaml", GALVATRON, "galvatron"),
        ("llama2-7b.json", json.dumps(OLD_GALVATRON), "galvatron"),
        ("train.toml", TORCHTITAN, "torchtitan"),
    ],
)
def test_every_format_gives_the_same_model(tmp_path: Path, name: str, text: str, kind: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    config = read_run_config(path)
    assert config.kind == kind
    shape = describe_config(config).shape
    assert count_parameters(shape) == count_parameters(PRESETS["llama2-7b"])
    assert (shape.kv_groups, shape.head_channels, shape.learned_positions) == (32, 128, 0)


NEOX = {"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 64}
QWEN3 = {"model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "vocab_size": 151936}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "vocab_size": 129280,
}


def make_gemma(kind: str, *sizes: int, vocab: int = 256000) -> dict[str, object]:
    names = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
    return {"model_type": kind, "vocab_size": vocab, **dict(zip(names.split(), sizes, strict=True))}


GPT_OSS = {
    **make_gemma("gpt_oss", 2880, 2880, 24, 64, 8, 64, vocab=201088),
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "tie_word_embeddings": False,
}
LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        ({**NEOX, "num_hidden_layers": 44, "vocab_size": 50432}, 20_554_567_680),
        (
            {
                "model_type": "gemma",
                "hidden_size": 2048,
                "intermediate_size": 16384,
                "num_attention_heads": 8,
                "num_hidden_layers": 18,
                "num_key_value_heads": 1,
                "vocab_size": 256000,
            },
            2_506_172_416,
        ),
        (
            {
                **QWEN3,
                "moe_intermediate_size": 768,
                "num_experts": 128,
                "num_experts_per_tok": 8,
                "num_hidden_layers": 48,
                "num_key_value_heads": 4,
                "decoder_sparse_step": 1,
            },
            30_532_122_624,
        ),
        (
            {
                **DEEPSEEK,
                **LATENT,
                "intermediate_size": 18432,
                "moe_intermediate_size": 2048,
                "n_routed_experts": 256,
                "n_shared_experts": 1,
                "num_experts_per_tok": 8,
                "num_hidden_layers": 61,
                "first_k_dense_replace": 3,
                "v_head_dim": 128,
            },
            671_026_404_352,
        ),
        # Gemma 2 (arXiv 2408.00118, table 2) without its embedding, and that of 256,000 words.
        (make_gemma("gemma2", 2304, 9216, 26, 8, 4, 256), 2_024_517_888 + 256000 * 2304),
        (make_gemma("gemma2", 3584, 14336, 42, 16, 8, 256), 8_324_201_984 + 256000 * 3584),
        (make_gemma("gemma2", 4608, 36864, 46, 32, 16, 128), 26_047_480_320 + 256000 * 4608),
        # As transformers builds them; 302 and 698 M (arXiv 2503.19786, table 1); 20.91 and 116.83 B
        # (arXiv 2508.10925, table 1).
        (make_gemma("gemma3_text", 1152, 6912, 26, 4, 1, 256, vocab=262144), 999_885_952),
        # The section of a published file lacks its vocabulary, heads and positions (Gemma 3 4B).
        (
            {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
            3_880_263_168,
        ),
        (GPT_OSS, 20_914_757_184),
        ({**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128}, 116_829_156_672),
    ],
    ids=[
        *("gpt-neox-20b", "gemma-2b", "qwen3-30b-a3b", "deepseek-v3", "gemma2-2b", "gemma2-9b", "gemma2-27b"),
        *("gemma3-1b", "gemma3-4b", "gpt-oss-20b", "gpt-oss-120b"),
    ],
)
def test_families_of_hugging_face_have_the_parameters_of_their_checkpoints(
    config: dict[str, object], parameters: int
) -> None:
    assert count_parameters(read_shape(Flags(flag_hugging_face(config)))) == parameters


def test_the_vocabulary_that_a_log_tells_after_its_arguments_counts(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    listed = ARGUMENTS.replace("padded_vocab_size .................... 32000\n", "vocab_size ...... None\n")
    path.write_text(listed + " > padded vocab (size: 50257) with 943 dummy tokens (new size: 51200)\n")
    assert describe_config(read_run_config(path)).shape.pad_vocab(8) == 51200


def test_torchtitan_shards_weights_over_its_data_ranks(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(TORCHTITAN)
    described = describe_config(read_run_config(path))
    assert described.data == 8
    flags = Flags(described.flags)
    assert flags.get_count("micro-batch-size") == 2
    run = build_run(described.shape, flags, world_size=16, gpu="h100", name="train.toml")
    assert (run.setup.attention, run.setup.has_transformer_engine) == ("fused", False)


def test_what_torchtitan_does_with_memory_and_nobody_models_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(
        """\
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[training]
steps = 10
enable_cpu_offload = true
mixed_precision_param = "bfloat16"
[compile]
enable = true
components = ["loss"]
[parallelism]
a_name_of_tomorrow = 3
[optimizer]
name = "AdamW"
"""
    )
    named = {each.flag for each in list_not_counted(Flags(describe_config(read_run_config(path)).flags))}
    assert named == {
        "compile.enable",
        "training.enable-cpu-offload",
        "model.converters",
        "parallelism.a-name-of-tomorrow",
    }


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"num_layers": 3,', "truncated"),
        ("a.json", '{"num_layers" 3}', "line 1, column"),
        ("a.json", '{"a": 1}', "describes no model"),
        ("a.yaml", "hidden_size 3\n", "line 1: expected `name: value`"),
        ("a.toml", "[model\n", "not TOML"),
        ("a.json", "", "empty"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputFileError, match=words) as caught:
        read_run_config(path)
    assert "\n" not in str(caught.value)


def test_flags_of_megatron_mean_what_its_defaults_say() -> None:
    """GPT of 12 layers on eight ranks: what is not given has Megatron-LM's default."""
    flags = Flags(
        {
            "--num-layers": 12,
            "hidden_size": "512",
            "num-attention-heads": 8,
            "seq-length": 1024,
            "max-position-embeddings": 1024,
            "micro-batch-size": 4,
            "global-batch-size": 40,
            "tensor-model-parallel-size": 1,
            "pipeline-model-parallel-size": 4,
            "num-layers-per-virtual-pipeline-stage": 1,
            "microbatch-group-size-per-virtual-pipeline-stage": 5,
            "sequence-parallel": True,
            "use-distributed-optimizer": True,
            "bf16": True,
        }
    )
    run = read_megatron_run(flags, world_size=8)
    assert (run.shape.ffn, run.shape.vocab, run.shape.pad_vocab(1)) == (2048, 50257, 50304)
    assert run.shape.is_tied
    assert run.shape.has_linear_bias
    assert run.shape.learned_positions == 1024
    assert (run.layout.data, run.layout.virtual_stages, run.layout.is_sequence_parallel) == (2, 3, False)
    assert (run.setup.micro_batches, run.setup.zero_stage, run.setup.micro_batch_group) == (5, 1, 5)
    assert run.setup.has_hidden_dropout
    assert run.setup.has_attention_mask


@pytest.mark.parametrize(
    ("tokenizer", "given", "words"),
    [
        ("TikTokenizer", None, 131_072),
        ("Llama2Tokenizer", None, 32_000),
        ("NullTokenizer", 131_072, 131_073),
        ("BertWordPieceLowerCase", None, 30_522),
    ],
)
def test_tokenizers_tell_their_words_by_the_names_that_megatron_has(
    tokenizer: str, given: int | None, words: int
) -> None:
    sizes = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 2, "seq-length": 16}
    flags = Flags({**sizes, "tokenizer-type": tokenizer, "vocab-size": given})
    assert read_megatron_run(flags, world_size=1).shape.vocab == words


@pytest.mark.parametrize("frequency", ["([0]*1+[1]*3)", [0, 1, 1, 1], "[0, 1, 1, 1]", "[0]+[1]*3"])
def test_layers_of_experts_are_read_as_they_are_given_and_as_a_log_prints_them(frequency: object) -> None:
    sizes = {"num-layers": 4, "hidden-size": 64, "num-attention-heads": 2, "seq-length": 16}
    flags = Flags({**sizes, "num-experts": 4, "moe-layer-freq": frequency})
    shape = read_megatron_run(flags, world_size=1).shape
    assert [shape.is_expert_layer(layer) for layer in range(4)] == [False, True, True, True]


@pytest.mark.parametrize("word", ["\u00b2", "9" * 5000, f"[1]*{'9' * 5000}", "0"])
def test_a_pattern_of_layers_that_no_model_has_is_refused(word: str) -> None:
    sizes = {"num-layers": 4, "hidden-size": 64, "num-attention-heads": 2, "seq-length": 16}
    with pytest.raises(UsageError, match="does not give 4 layers"):
        read_megatron_run(Flags({**sizes, "num-experts": 4, "moe-layer-freq": word}), world_size=1)
    stages = {"pipeline-model-parallel-size": 2, "pipeline-model-parallel-layout": f"E()*{word}t*4L"}
    with pytest.raises(UsageError, match=r"layout .*(not understood|not a multiple)"):
        read_megatron_run(Flags({**sizes, **stages}), world_size=2)


def test_the_precision_aware_optimizer_keeps_half_a_master_weight() -> None:
    flags = {**MEGATRON, "bf16": True, "use-precision-aware-optimizer": True, "exp-avg-dtype": "bf16"}
    numbers = read_megatron_run(Flags(flags), world_size=1).setup.numbers
    assert (numbers.weight_bytes, numbers.gradient_bytes) == (2, 4)
    assert (numbers.master_bytes, numbers.moment_bytes) == (2, 6)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=6),
    st.just([1]),
    st.sampled_from([10**13, 10**400, "\u00b2", "9" * 5000, "[1]*" + "9" * 30, "E()*" + "9" * 30 + "t*4L"]),
)
NAMES = st.sampled_from(
    [
        *MEGATRON,
        "tensor-model-parallel-size",
        "pipeline-model-parallel-size",
        "num-layers-per-virtual-pipeline-stage",
        "num-experts",
        "moe-layer-freq",
        "expert-model-parallel-size",
        "recompute-granularity",
        "recompute-num-layers",
        "pipeline-model-parallel-layout",
        "multi-latent-attention",
        "global-batch-size",
    ]
)


@given(st.dictionaries(NAMES, JUNK, max_size=4), st.text(max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_row_gives_figures_or_a_sentence_and_never_an_exception(
    junk: dict[str, object], world_size: str
) -> None:
    arguments = json.dumps({**MEGATRON, **junk})
    cells = predict_case({"case": "x", "world_size": world_size, "arguments": arguments})
    allocated, peak, *_, error = (cells[name] for name in PREDICTED)
    assert bool(error) == (not allocated) == (not peak)
    assert error or 0 < int(allocated) <= int(peak)
    assert "\n" not in error


@pytest.mark.parametrize(
    ("hidden", "heads", "inner", "all_billions", "inner_billions"),
    # Minitron 4B and 8B in arXiv 2407.14679: all parameters, and those outside the embeddings.
    [(3072, 24, 9216, 4.2, 2.6), (4096, 48, 16384, 8.3, 6.2)],
)
def test_nemotron_has_the_published_parameters(
    hidden: int, heads: int, inner: int, all_billions: float, inner_billions: float
) -> None:
    config = {
        "model_type": "nemotron",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 32,
        "vocab_size": 256000,
    }
    found = count_parameters(read_shape(Flags(flag_hugging_face(config))))
    assert round(found / 1e9, 1) == all_billions
    assert round((found - 2 * 256000 * hidden) / 1e9, 1) == inner_billions


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("t5", "an encoder next to the decoder"),
        ("mamba2", "layers with a state in place of attention"),
        ("nemotron_h", "layers with a state in place of attention"),
        ("llava", "a vision tower"),
        ("qwen3_next", "layers of gated delta nets in place of attention, and the gate"),
        ("kimi_linear", "layers of Kimi Delta Attention"),
        ("gemma3n_text", "embeddings of each layer, .*AltUp.*LAuReL.* and layers that share keys are not"),
        ("olmo2", "its layers are unknown, known are llama, "),
    ],
)
def test_a_model_of_another_kind_is_refused_with_what_is_missing(kind: str, missing: str) -> None:
    with pytest.raises(UsageError, match=f"model_type '{kind}' cannot be estimated: {missing}.*--factory"):
        flag_hugging_face({**HUGGING_FACE, "model_type": kind})


@pytest.mark.parametrize(
    ("kind", "inner", "missing"),
    [
        (
            "gemma3",
            "gemma3_text",
            r"the tower of its vision_config is not modelled \(its section text_config",
        ),
        ("gemma3n", "gemma3n_text", r"towers \(vision_config, audio_config\) are not modelled, and emb"),
        ("mllama", "mllama_text_model", "vision_config is not modelled, and layers that attend"),
        ("new_vl", "new_text", "vision_config is not modelled, and its layers of type 'new_text'"),
        ("qwen3_vl", "qwen3_vl_text", "the tower of its vision_config is not modelled; "),
    ],
)
def test_a_tower_is_refused_with_its_section_and_with_what_its_decoder_lacks(
    kind: str, inner: str, missing: str
) -> None:
    """A section of the decoder is offered as a file only where that can be estimated."""
    text = {**HUGGING_FACE, "model_type": inner}
    towers = {"vision_config": {"hidden_size": 64}}
    if kind == "gemma3n":
        towers["audio_config"] = {"hidden_size": 64}
    with pytest.raises(UsageError, match=f"model_type '{kind}' cannot be estimated: .*{missing}"):
        flag_hugging_face({"model_type": kind, "text_config": text, **towers})


def test_every_size_in_the_published_file_of_gemma_2_is_known() -> None:
    config = {**make_gemma("gemma2", 3584, 14336, 42, 16, 8, 256), "sliding_window_size": 4096}
    config |= {"sliding_window": 4096, "query_pre_attn_scalar": 256, "cache_implementation": "hybrid"}
    assert list(list_not_counted(Flags(flag_hugging_face(config)))) == []


def test_an_encoder_is_refused_as_one() -> None:
    with pytest.raises(UsageError, match="an encoder without a decoder is not modelled"):
        flag_hugging_face({**HUGGING_FACE, "model_type": "bert"})


def test_an_unknown_name_is_answered_with_near_ones_and_with_the_way_that_works_for_all() -> None:
    with pytest.raises(UsageError, match=r"did you mean gpt2.*\? The path of its config.json works too$"):
        find_preset("gpt-2")


def test_an_unknown_model_is_refused_with_the_sizes_that_nobody_reads() -> None:
    config = {**HUGGING_FACE, "model_type": "new", "linear_num_key_heads": 16, "ssm_state_size": 8}
    with pytest.raises(
        UsageError, match=r"unknown .and so are its linear_num_key_heads, ssm_state_size., known"
    ):
        flag_hugging_face(config)


NEMO = """\
name: megatron_gpt
trainer:
  devices: 8
  num_nodes: 2
  precision: bf16-mixed
model:
  micro_batch_size: 4
  global_batch_size: 64
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  encoder_seq_length: 2048
  num_layers: 24
  hidden_size: 2048
  num_attention_heads: 16
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  activations_checkpoint_num_layers: 1
  megatron_amp_O2: true
  cpu_offloading: true
  a_name_of_tomorrow: 3
  optim:
    name: distributed_fused_adam
    betas: [0.9, 0.98]
    sched:
      name: CosineAnnealing
"""


def test_nemo_says_the_same_as_the_flags_of_megatron(tmp_path: Path) -> None:
    path = tmp_path / "nemo.yaml"
    path.write_text(NEMO)
    flags = Flags(describe_config(read_run_config(path)).flags)
    assert flags.find_count("seq-length", 0) == 2048
    assert flags.find_count("world-size", 0) == 16
    assert flags.is_on("use-distributed-optimizer")
    assert flags.is_on("bf16")
    assert flags.find_word("recompute-granularity", "") == "full"
    assert {each.flag for each in list_not_counted(flags)} == {"cpu-offloading", "a-name-of-tomorrow"}


def test_nemo_s_own_names_of_gates_biases_groups_and_norms_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nemo.yaml"
    own = """\
  max_position_embeddings: ${.encoder_seq_length}
  num_query_groups: 4
  ffn_hidden_size: 5632
  activation: fast-swiglu
  normalization: rmsnorm
  bias: false
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  make_vocab_size_divisible_by: 1
  use_flash_attention: true
"""
    path.write_text(NEMO.replace("  num_layers: 24\n", "  num_layers: 24\n" + own))
    described = describe_config(read_run_config(path))
    matrices = 24 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 5632)
    assert count_parameters(described.shape) == matrices + 2 * 50257 * 2048 + 49 * 2048
    flags = Flags(described.flags)
    assert (flags.get_count("max-position-embeddings"), flags.is_on("use-flash-attn")) == (2048, True)
    assert {each.flag for each in list_not_counted(flags)} == {"cpu-offloading", "a-name-of-tomorrow"}


def test_weights_in_fp32_under_a_16_bit_trainer_of_nemo_are_named(tmp_path: Path) -> None:
    path = tmp_path / "nemo.yaml"
    path.write_text(NEMO.replace("amp_O2: true", "amp_O2: false"))
    not_counted = list_not_counted(Flags(describe_config(read_run_config(path)).flags))
    assert "without-megatron-amp-o2" in {each.flag for each in not_counted}


def test_a_configuration_of_deepspeed_is_refused_with_the_flags_that_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    content = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": "auto",
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "activation_checkpointing": {"cpu_checkpointing": True},
    }
    path.write_text(json.dumps(content))
    with pytest.raises(InputFileError) as refused:
        read_run_config(path)
    told = str(refused.value)
    assert "--zero 3 --offload optimizer --precision bf16 --micro-batch 4" in told
    for name in (
        "gradient_accumulation_steps",
        "activation_checkpointing",
        "zero_optimization.offload_param",
    ):
        assert name in told
