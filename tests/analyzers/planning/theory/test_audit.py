"""Every flag of Megatron-LM is counted, named with the estimate, or known to change nothing."""

import json
import re
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.vramscope.cli.running import call
from vramscope.analyzers.planning.theory.configs.audit import (
    COUNTED,
    NOT_COUNTED,
    WITHOUT_INFLUENCE,
    is_known,
    list_not_counted,
)
from vramscope.analyzers.planning.theory.configs.document import describe_config
from vramscope.analyzers.planning.theory.configs.flags import (
    ADAPTER_RANK,
    ASSUMED_TYPE,
    BERT,
    MICRO_BATCHES,
    NF4,
    NORMS,
    PLAIN_TRAINING,
    PURE,
    RECOMPUTE_EVERY,
    SINKS,
    STATES_DROPOUT,
    Flags,
)
from vramscope.engine.errors import UsageError
from vramscope.engine.files.run_config import RunConfig

FLAGS = (Path(__file__).parent / "megatron_flags.txt").read_text(encoding="utf-8").split()
"""All flags of the version in `MEGATRON_COMMIT`: `python -m benchmarks.megatron_flags CHECKOUT --all`."""
SIZES = {
    **{"num-layers": 4, "hidden-size": 512, "num-attention-heads": 8, "seq-length": 1024},
    **{"micro-batch-size": 2, "global-batch-size": 16, "vocab-size": 50257, "bf16": True},
    "attention-backend": "fused",
}
CONFIG = {
    **{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8},
    **{"vocab_size": 32000, "intermediate_size": 1376, "max_position_embeddings": 2048},
}


def test_every_flag_of_the_version_is_in_a_table() -> None:
    assert len(FLAGS) > 900
    assert [flag for flag in FLAGS if not is_known(flag)] == []


def test_no_flag_is_said_to_matter_and_not_to() -> None:
    named = {rule.flag for rule in NOT_COUNTED}
    # Some values of these are counted, and others are not.
    assert COUNTED & named == {"moe-token-dispatcher-type", "optimizer", "position-embedding-type"}
    assert WITHOUT_INFLUENCE & (COUNTED | named) == set()


def test_what_is_said_to_be_counted_is_read() -> None:
    room = REPOSITORY / "analyzers/planning/theory/configs"
    source = "".join((room / name).read_text(encoding="utf-8") for name in ("megatron.py", "cases.py"))
    read = set(re.findall(r'"([a-z0-9-]+)"', source))
    forms = {
        flag: {flag, flag.removeprefix("no-"), f"add-{flag.removeprefix('disable-')}"} for flag in COUNTED
    }
    ours = {ADAPTER_RANK, BERT, MICRO_BATCHES, NF4, NORMS, PLAIN_TRAINING, PURE, RECOMPUTE_EVERY, SINKS}
    ours |= {ASSUMED_TYPE, STATES_DROPOUT}
    assert {flag for flag, names in forms.items() if not names & read} <= ours


def test_a_log_of_all_arguments_at_their_defaults_names_nothing() -> None:
    quiet = dict.fromkeys(FLAGS, "False")
    defaults = {
        **{"optimizer": "adam", "muon_scalar_optimizer": "adam", "softmax_type": "vanilla"},
        **{"cuda_graph_impl": "none", "activation_offload_fraction": "1.0", "mlp_chunks_for_training": "1"},
        **{
            "moe_token_dispatcher_type": "allgather",
            "moe_dispatch_fwd_dtype": "bf16",
            "cp_comm_type": "['p2p']",
        },
        **{"megatron_fsdp_main_params_dtype": "torch.float32", "megatron_fsdp_main_grads_dtype": "auto"},
        **{"outer_dp_sharding_strategy": "no_shard", "position_embedding_type": "learned_absolute"},
        **{
            "cpu_offloading_num_layers": "0",
            "offload_modules": "[]",
            "glu_linear_offset": "0.0",
            "fp4": "None",
        },
        **{"torch_fsdp2_reshard_after_forward": "True", "bias_gelu_fusion": "True", "lr": "0.0003"},
    }
    numbers = dict.fromkeys(("lr-decay-iters", "num-workers", "cuda-graph-warmup-steps", "seed"), "0.1")
    assert list_not_counted(Flags({**quiet, **numbers, **defaults})) == ()


@pytest.mark.parametrize(
    ("flags", "effect"),
    [
        ({"optimizer": "lion"}, "unknown"),
        ({"cp-comm-type": ["p2p", "allgather"]}, "more"),
        ({"no-bias-gelu-fusion": True}, "more"),
        ({"no-bias-gelu-fusion": True, "swiglu": True}, None),
        ({"torch_fsdp2_reshard_after_forward": "False"}, "more"),
        ({"fp32-residual-connection": True}, "more"),
        ({"freeze-all-layers": True}, "less"),
        ({"moe-token-dispatcher-type": "flex"}, "more"),
        ({"NCCL_ALGO": "Ring", "CUDA_DEVICE_MAX_CONNECTIONS": 1}, None),
    ],
)
def test_a_value_that_changes_memory_is_named_and_one_that_does_not_is_not(
    flags: dict[str, object], effect: str | None
) -> None:
    assert [it.effect for it in list_not_counted(Flags(flags))] == ([] if effect is None else [effect])


def test_a_flag_that_nobody_knows_is_named_and_nothing_is_said_to_fit(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**SIZES, "keep-everything-twice": True, "newest-thing": False}))
    words = ("estimate", "--model", str(path), "--dp", "8", "--capacity", "80GiB")
    found = json.loads(call(*words, "--json").stdout)
    assert (found["bound"], found["does_fit"]) == ("open", None)
    assert [it["flag"] for it in found["run"]["not_counted"]] == ["keep-everything-twice"]
    assert "a flag that is not known (keep-everything-twice)" in " ".join(call(*words).stdout.split())


def test_a_plan_names_what_the_file_of_its_model_has_and_it_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**SIZES, "enable-cuda-graph": True}))
    words = ("plan", "--model", str(path), "--cluster", "1x8xh100", "--global-batch", "64")
    assert [it["flag"] for it in json.loads(call(*words, "--json").stdout)["not_counted"]] == [
        "enable-cuda-graph"
    ]
    assert "Not counted: CUDA graphs (enable-cuda-graph)" in " ".join(call(*words).stdout.split())


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("num_memory_blocks", 4, True),
        ("word_embed_proj_dim", 256, True),
        ("word_embed_proj_dim", 512, False),
        ("quantization_config", {"bits": 4}, True),
        ("rope_theta", 500000.0, False),
        ("num_beams", 1, False),
        ("moe_intermediate_size", 0, False),
    ],
)
def test_a_key_of_a_configuration_that_is_a_size_and_not_read_is_named(
    key: str, value: object, named: bool
) -> None:
    described = describe_config(RunConfig("hugging_face", {**CONFIG, key: value}))
    found = [it.flag for it in list_not_counted(Flags(described.flags))]
    assert found == ([key.replace("_", "-")] if named else [])


def test_a_hybrid_is_refused_from_a_file_as_from_a_table() -> None:
    with pytest.raises(UsageError, match="hybrid-layer-pattern is set"):
        describe_config(RunConfig("megatron", {**SIZES, "hybrid-layer-pattern": "M*M-"}))
