"""What a framework reads out of its file is the split that was planned, by that framework's own grammar."""

import json
import re
import shlex
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope import GraphAnalyzer, create_gpt_model_graph
from vramscope.analyzers.planning.graph import LayerType
from vramscope.analyzers.planning.joint import JointConfiguration, JointStage, StepTime
from vramscope.analyzers.planning.theory import ParallelLayout, RankMemory, TrainingSetup, split_layers
from vramscope.analyzers.planning.theory.configs.flags import Flags
from vramscope.analyzers.planning.theory.configs.megatron import read_layout
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.cli.plan import encode_outputs
from vramscope.exporters.plan.outputs import (
    PipelineSplit,
    take_configuration,
    take_partition,
    write_layout,
    write_uneven_flags,
)


def make_split(blocks: list[int], pieces: int = 1) -> PipelineSplit:
    """A decoder of these blocks in each stage."""
    stages: list[list[LayerType]] = [["transformer_block"] * count for count in blocks]
    stages[0].insert(0, "embedding")
    stages[-1] += ["layer_norm", "output_head"]
    return PipelineSplit(
        stages=tuple(tuple(stage) for stage in stages),
        layout=ParallelLayout(pipeline=len(blocks) // pieces, virtual_stages=pieces),
        setup=TrainingSetup(seq_length=1024, micro_batch_size=2, micro_batches=8),
        has_degrees=True,
    )


def expand(layout: str) -> list[str]:
    """Stages of a layout as Megatron-LM unrolls it: groups first, then letters; commas mean nothing."""
    text = layout.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text.split("|")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=9).filter(any))
def test_a_layout_unrolls_to_the_split(blocks: list[int]) -> None:
    split = make_split(blocks)
    expected = ["t" * count for count in blocks]
    expected[0] = "E" + expected[0]
    expected[-1] += "L"
    assert expand(write_layout(split)) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(any))
def test_flags_make_the_split_or_are_not_given(blocks: list[int]) -> None:
    flags = write_uneven_flags(make_split(blocks))
    shape = PRESETS["gpt2"]
    if flags is None:
        assert len(blocks) > 2 or not all(blocks)
        return
    words = [word.partition(" ") for word in flags]
    told = {name: value or True for name, _, value in words} | {"pipeline-model-parallel-size": len(blocks)}
    layout = read_layout(Flags(told), shape, len(blocks))
    assert [len(pieces[0]) for pieces in split_layers(sum(blocks), layout)] == blocks


@pytest.mark.parametrize(
    ("blocks", "flags"),
    [
        ([12, 12, 12, 12], ()),
        (
            [11, 12, 12, 11],
            ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"),
        ),
        (
            [11, 13, 13, 11],
            ("--decoder-first-pipeline-num-layers 11", "--decoder-last-pipeline-num-layers 11"),
        ),
        ([11, 13, 12, 12], None),
    ],
)
def test_the_simplest_flags_that_do_are_taken(blocks: list[int], flags: tuple[str, ...] | None) -> None:
    assert write_uneven_flags(make_split(blocks)) == flags


def test_torchtitan_and_deepspeed_get_every_layer_once() -> None:
    graph = create_gpt_model_graph("gpt-1.5b")
    result = GraphAnalyzer(graph).partition_graph_balanced(8, "memory")
    outputs = encode_outputs(take_partition(graph, result, 1, 8))
    assert not outputs.left_out
    parallelism = tomllib.loads(outputs.contents["torchtitan.toml"].decode())["parallelism"]
    names = parallelism["module_fqns_per_model_part"]
    expected = ["tok_embeddings", *(f"layers.{block}" for block in range(48)), "norm", "output"]
    assert [name for part in names for name in part] == expected
    assert [len(part) for part in names] == [5, 6, 6, 7, 7, 7, 7, 6]
    told = json.loads(outputs.contents["deepspeed_parts.json"])
    assert told["parts"] == [0, 5, 11, 17, 24, 31, 38, 45, 51]
    assert told["partition_method"] is None
    even = encode_outputs(make_split([12, 13, 13, 12 - 2])).contents
    assert json.loads(even["deepspeed_parts.json"])["partition_method"] == "uniform"


def configure() -> JointConfiguration:
    """A configuration of 32 layers in four stages, with ZeRO-3 and full recomputation."""
    chosen = ParallelLayout(pipeline=4, stage_layers=(7, 9, 9, 7), tensor=2, data=4)
    stages = tuple(
        JointStage(
            stage=rank,
            layers=tuple(layer for piece in pieces for layer in piece),
            devices=(rank,),
            capacity_bytes=1,
            memory=RankMemory(stage=rank, layers=(), parameters=0, in_flight=1, moments=()),
            compute_s=1.0,
        )
        for rank, pieces in enumerate(split_layers(32, chosen))
    )
    setup = TrainingSetup(
        seq_length=4096, micro_batch_size=2, micro_batches=16, zero_stage=3, recompute="full"
    )
    time = StepTime(compute_s=1, tensor_s=0, pipeline_s=0, bubble_s=0, data_s=0, optimizer_s=0)
    return JointConfiguration(layout=chosen, setup=setup, stages=stages, time=time)


def test_galvatron_of_either_release_is_told_the_degrees() -> None:
    contents = encode_outputs(take_configuration(configure())).contents
    for name in ("galvatron_2.4_strategy.json", "galvatron_3.0_strategy.json"):
        told = json.loads(contents[name])
        for key in ("tp_sizes_enc", "tp_consecutive_flags", "dp_types_enc", "use_sp", "checkpoint"):
            assert len(told[key].split(",")) == sum(map(int, told["pp_division"].split(","))) == 32
        assert (told["pp_deg"], told["pp_division"], told["vtp"]) == (4, "7,9,9,7", 2)
        assert (told["global_bsz"], told["chunks"]) == (2 * 16 * 4, 16)
        assert {*told["tp_sizes_enc"].split(",")} == {"2"}
        assert told["embed_sdp"] == told["vocab_sdp"] == 1
        assert {*told["dp_types_enc"].split(","), *told["checkpoint"].split(",")} == {"1"}
    assert told["world_size"] == 32
    assert len(told["cp_sizes_enc"].split(",")) == 32


def test_megatron_and_torchtitan_are_told_the_degrees() -> None:
    contents = encode_outputs(take_configuration(configure())).contents
    words = shlex.split(contents["megatron_arguments.txt"].decode(), comments=True)
    told = dict(zip(words, [*words[1:], ""], strict=True))
    assert told["--tensor-model-parallel-size"] == "2"
    assert told["--recompute-granularity"] == "full"
    assert told["--data-parallel-sharding-strategy"] == "optim_grads_params"
    assert [stage.count("t") for stage in expand(told["--pipeline-model-parallel-layout"])] == [7, 9, 9, 7]
    config = tomllib.loads(contents["torchtitan.toml"].decode())
    assert config["parallelism"]["data_parallel_shard_degree"] == 4
    assert config["training"]["local_batch_size"] == 32
    assert config["activation_checkpoint"]["mode"] == "full"


def test_what_a_framework_cannot_be_told_is_said() -> None:
    alone = encode_outputs(make_split([0, 3, 3]))
    assert [each.split(" is not written: ")[0] for each in alone.left_out] == [
        "galvatron_2.4_strategy.json",
        "galvatron_3.0_strategy.json",
    ]
    assert "stage 0 has none" in alone.left_out[0]
    pieces = encode_outputs(make_split([2, 2, 2, 2], pieces=2))
    assert {*pieces.contents} == {"megatron_arguments.txt", "torchtitan.toml"}
    assert b"--num-virtual-stages-per-pipeline-rank 2" in pieces.contents["megatron_arguments.txt"]
    assert b"Interleaved1F1B" in pieces.contents["torchtitan.toml"]
    graph = create_gpt_model_graph("t5-small")
    result = GraphAnalyzer(graph).partition_graph_balanced(4)
    t5 = encode_outputs(take_partition(graph, result, 1, 8))
    assert {*t5.contents} >= {"galvatron_2.4_strategy.json", "deepspeed_parts.json"}
    assert "made of other layers" in t5.left_out[0]
