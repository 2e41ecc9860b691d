"""Flags that change memory are read, on a command line and in a list of arguments alike."""

from collections.abc import Mapping

import pytest

from vramscope.analyzers.planning.theory import TrainingSetup, count_parameters, estimate_stage
from vramscope.analyzers.planning.theory.configs import Flags, TrainingRun, read_megatron_run
from vramscope.analyzers.planning.theory.configs.cases import read_case
from vramscope.analyzers.planning.theory.configs.document import flag_torchtitan
from vramscope.analyzers.planning.theory.shape import Gpu
from vramscope.analyzers.planning.theory.weights import count_workspaces
from vramscope.engine.errors import UsageError

SIZES = {"num-layers": 12, "hidden-size": 512, "num-attention-heads": 8, "seq-length": 1024, "bf16": True}
EXPERTS = {"num-experts": 8, "expert-model-parallel-size": 2, "disable-bias-linear": True}
SENT = {"moe-token-dispatcher-type": "alltoall"}
MIB = 2**20


def read(flags: Mapping[str, object], gpu: Gpu = "h100") -> TrainingRun:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return read_megatron_run(Flags({**SIZES, **named}), world_size=8, gpu=gpu)


def allocate(run: TrainingRun) -> int:
    return estimate_stage(run.shape, run.layout, run.setup, -1).allocated_bytes


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ({"disable-bias-linear": True}, {"add_bias_linear": "False"}),
        ({"no-gradient-accumulation-fusion": True}, {"gradient_accumulation_fusion": "False"}),
        (
            {"no-create-attention-mask-in-dataloader": True},
            {"create_attention_mask_in_dataloader": "False"},
        ),
        ({"swiglu": True, "no-bias-swiglu-fusion": True}, {"swiglu": "True", "bias_swiglu_fusion": "False"}),
        ({"fp8-format": "hybrid"}, {"fp8": "hybrid", "fp8_param_gather": "False"}),
        (
            {"pipeline-model-parallel-size": 2, "num-layers-per-virtual-pipeline-stage": 3},
            {"pipeline_model_parallel_size": "2", "virtual_pipeline_model_parallel_size": "2"},
        ),
        (
            {"recompute-granularity": "selective", "recompute-modules": "mlp core_attn"},
            {"recompute_granularity": "selective", "recompute_modules": "['mlp', 'core_attn']"},
        ),
        ({}, {"encoder_num_layers": "12", "decoder_num_layers": "None", "bias_swiglu_fusion": "True"}),
    ],
)
def test_a_list_of_arguments_says_the_same_as_the_command_line(
    given: dict[str, object], printed: dict[str, object]
) -> None:
    assert read(given) == read(printed)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"moe_grouped_gemm": True, **EXPERTS}, "engine_workspaces", 5),
        ({"moe_grouped_gemm": True}, "engine_workspaces", 1),
        ({"tp_comm_overlap": True, "tensor_model_parallel_size": 2}, "engine_workspaces", 3),
        (
            {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.5},
            "expert_capacity",
            1.5,
        ),
        ({"moe_expert_capacity_factor": 1.5}, "expert_capacity", None),
        ({"moe_token_dispatcher_type": "alltoall"}, "gathers_experts_input", False),
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"}, "zero_stage", 2),
        ({"use_megatron_fsdp": True}, "keeps_gathered_weights", True),
    ],
)
def test_a_flag_sets_what_it_costs(flags: dict[str, object], field: str, value: object) -> None:
    assert getattr(read(flags).setup, field) == value
    assert getattr(TrainingSetup(seq_length=1, micro_batch_size=1), field) != value or value in (
        None,
        False,
        1,
    )


def test_grouped_products_and_gathered_tokens_cost_what_their_buffers_are() -> None:
    """Four workspaces of 32 MiB; tokens of two ranks of an expert group, 2 x 1024 x 512 x 2 bytes = 2 MiB."""
    plain = read({**EXPERTS, **SENT})
    assert allocate(read({**EXPERTS, **SENT, "moe-grouped-gemm": True})) == (allocate(plain) + 4 * 32 * MIB)
    assert allocate(read(EXPERTS)) == allocate(plain) + 2 * MIB


@pytest.mark.parametrize(("optimizer", "bytes_less"), [("sgd", 4), ("muon", 4), ("adam", 0)])
def test_moments_are_those_of_the_optimizer(optimizer: str, bytes_less: int) -> None:
    run = read({"optimizer": optimizer})
    less = allocate(read({})) - allocate(run)
    parameters = count_parameters(run.shape)
    assert 0.55 * bytes_less * parameters <= less <= bytes_less * parameters + 4096


def test_optimizer_instances_shard_the_states_of_experts_too() -> None:
    """Two instances of four ranks each: an expert's four copies shard over two ranks, not four."""
    flags = {**EXPERTS, **SENT, "use-distributed-optimizer": True}
    one, two = read(flags), read({**flags, "num-distributed-optimizer-instances": 2})
    # Each of eight experts, four on a rank, in eleven or twelve layers: two matrices of 512 x 2048.
    routed = 12 * 4 * 2 * 512 * 2048
    parameters = count_parameters(one.shape) - 12 * 8 * 2 * 512 * 2048
    more = 12 * (routed * (1 / 2 - 1 / 4) + parameters * (1 / 4 - 1 / 8))
    assert allocate(two) - allocate(one) == pytest.approx(more, rel=0.01)


def test_dist_muon_gives_layers_to_the_data_ranks() -> None:
    muon, spread = read({"optimizer": "muon"}), read({"optimizer": "dist_muon"})
    assert (muon.setup.zero_stage, spread.setup.zero_stage) == (0, 1)
    assert allocate(spread) < allocate(muon)


@pytest.mark.parametrize(
    ("gpu", "flags", "workspace_mib"),
    [
        ("a100", {}, 8.125),
        ("h100", {}, 32),
        ("h200", {}, 32),
        ("gb200", {}, 8.125),
        ("gb200", {"deterministic-mode": True}, 32),
    ],
)
def test_cublas_has_large_workspaces_on_hopper_alone(
    gpu: Gpu, flags: dict[str, object], workspace_mib: float
) -> None:
    setup = read({"transformer-impl": "local", **flags}, gpu).setup
    assert count_workspaces(setup) == 2 * workspace_mib * MIB


def test_fp8_keeps_one_copy_where_the_gpu_multiplies_either_way() -> None:
    assert read({"fp8-format": "hybrid"}).setup.fp8_copies == 2
    assert read({"fp8-format": "hybrid"}, "gb200").setup.fp8_copies == 1
    assert read({"fp8-format": "e4m3", "fp8-recipe": "mxfp8"}, "gb200").setup.fp8_copies == 2


def test_a_case_of_bert_has_its_heads_and_one_of_t5_is_refused() -> None:
    row = {
        "case": "x",
        "num_layers": "24",
        "hidden": "1024",
        "heads": "16",
        "seq": "512",
        "vocab_size": "30522",
    }
    bert = read_case({**row, "family": "bert", "platform": "dgx_gb200"})
    gpt = read_case({**row, "family": "gpt"})
    assert bert.setup.gpu == "gb200"
    dense = 2 * (1024**2 + 1024) + 2 * 1024
    rest = 2 * 1024 + 30592 + 2 * 1024 + 2
    assert count_parameters(bert.shape) - count_parameters(gpt.shape) == dense + rest
    with pytest.raises(UsageError, match="family 't5' cannot be estimated"):
        read_case({**row, "family": "t5"})


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"mode": "none"}, ("none", 1)),
        ({"mode": "full"}, ("full", 1)),
        ({}, ("full", 2)),
        ({"mode": "selective", "selective_ac_option": "3"}, ("full", 3)),
        ({"mode": "selective", "selective_ac_option": "op"}, ("operations", 1)),
    ],
)
def test_checkpoints_of_torchtitan_are_what_it_documents(
    section: dict[str, object], expected: tuple[str, int]
) -> None:
    flags = flag_torchtitan({"training": {"seq_len": 1024}, "activation_checkpoint": section})
    setup = read_megatron_run(Flags({**SIZES, **flags}), world_size=8).setup
    assert (setup.recompute, setup.recompute_every) == expected


def test_an_unknown_checkpoint_of_torchtitan_is_refused() -> None:
    with pytest.raises(UsageError, match="mode 'selective' with option 'ops' is unknown"):
        flag_torchtitan({"activation_checkpoint": {"mode": "selective", "selective_ac_option": "ops"}})


@pytest.mark.parametrize(
    ("columns", "ranks"),
    [({"tp": "2"}, 8), ({"tp": "8", "pp": "4"}, 32), ({"pp": "3"}, 3), ({"world_size": "64"}, 64)],
)
def test_a_case_without_a_world_size_has_one_node_or_as_many_ranks_as_it_needs(
    columns: dict[str, str], ranks: int
) -> None:
    row = {"case": "x", "num_layers": "24", "hidden": "1024", "heads": "16", "seq": "512", **columns}
    assert read_case(row).layout.world_size == ranks
