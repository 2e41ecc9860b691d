"""The memory theory and the values that others published: python -m benchmarks.memory_theory_published.

Each row names its source. `peak` and `states` are what PyTorch's allocator counted and can be compared.
`reserved` is more than that by what fragmentation takes, an upper bound: torchtitan's table does not say
which of the two it has. What a source does not say, and was chosen knowing its values, is in the column
`assumed`.

Not here, for want of sizes: DeepSpeed issue 1378 (a pipelined GPT, stage by stage) and Megatron-LM pull
request 482 (Llama 2 7B; neither its sequence nor its optimizer is known).
"""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vramscope.analyzers.planning.theory import (
    ModelShape,
    ParallelLayout,
    TrainingSetup,
    count_parameters,
    estimate_stages,
)
from vramscope.analyzers.planning.theory.activations import list_layer_activations
from vramscope.analyzers.planning.theory.configs import Flags, TrainingRun, read_megatron_run
from vramscope.analyzers.planning.theory.configs.document import describe_config
from vramscope.analyzers.planning.theory.configs.megatron import build_run
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.engine.files.run_config import RunConfig
from vramscope.engine.units import GIB

from .measure.tables import format_table

BRIDGE = "Megatron-Bridge, skills/mbridge-perf-memory-tuning and -activation-recompute"
TITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
SWEEP = "485B on 8,192 simulated ranks, fp16 (the heat map's six runs)"
MOONLIGHT = "Megatron-Bridge, Moonlight-16B on H100, TP 2 EP 8"
LLAMA = {
    "swiglu": True,
    "normalization": "RMSNorm",
    "position-embedding-type": "rope",
    "disable-bias-linear": True,
    "untie-embeddings-and-output-weights": True,
    "hidden-dropout": 0,
    "attention-dropout": 0,
    "no-create-attention-mask-in-dataloader": True,
    "sequence-parallel": True,
    "use-distributed-optimizer": True,
    "bf16": True,
    "seq-length": 4096,
    "micro-batch-size": 1,
}
LLAMA_70B = {
    **LLAMA,
    "num-layers": 80,
    "hidden-size": 8192,
    "ffn-hidden-size": 28672,
    "num-attention-heads": 64,
    "group-query-attention": True,
    "num-query-groups": 8,
    "padded-vocab-size": 128256,
    "global-batch-size": 32,
    "fp8-format": "hybrid",
    "fp8-param-gather": True,
    "grad-reduce-in-bf16": True,
}
MOONLIGHT_16B = {
    **LLAMA,
    "num-layers": 27,
    "hidden-size": 2048,
    "ffn-hidden-size": 11264,
    "num-attention-heads": 16,
    "padded-vocab-size": 163840,
    "num-experts": 64,
    "moe-router-topk": 6,
    "moe-ffn-hidden-size": 1408,
    "moe-shared-expert-intermediate-size": 2816,
    "moe-layer-freq": "([0]*1+[1]*26)",
    "moe-grouped-gemm": True,
    "moe-token-dispatcher-type": "alltoall",
    "multi-latent-attention": True,
    "kv-lora-rank": 512,
    "tensor-model-parallel-size": 2,
    "expert-model-parallel-size": 8,
    "expert-tensor-parallel-size": 1,
}
INTERNLM_7B = ModelShape(
    layers=32,
    hidden=4096,
    heads=32,
    kv_groups=32,
    head_channels=128,
    ffn=11008,
    vocab=103168,
    is_gated=True,
    has_qkv_bias=True,
)


class Published(NamedTuple):
    """One published figure, and how ours is worked out."""

    name: str
    source: str
    kind: str
    """`peak` or `states` of PyTorch's allocator, `reserved`, `layer`: activations of one, or `saving`."""
    measured_gib: float
    work_out: Callable[[], float]
    """Returns ours in bytes."""
    assumed: str = ""


def _peak(run: TrainingRun, stage: int | None = None) -> float:
    stages = estimate_stages(run.shape, run.layout, run.setup)
    return max(memory.peak_bytes for memory in stages) if stage is None else stages[stage].peak_bytes


def _bridge(tensor: int, pipeline: int, pieces: int, gib: float, modules: str = "") -> Published:
    flags = {
        **LLAMA_70B,
        "tensor-model-parallel-size": tensor,
        "pipeline-model-parallel-size": pipeline,
        "num-virtual-stages-per-pipeline-rank": pieces,
        "recompute-granularity": "selective" if modules else "",
        "recompute-modules": modules or "core_attn",
    }
    return Published(
        f"Llama 3 70B, fp8, TP {tensor} PP {pipeline} x {pieces} {modules}".rstrip(),
        BRIDGE,
        "peak",
        gib,
        lambda: _peak(read_megatron_run(Flags(flags), world_size=32), -1),
        "last rank; weights kept in fp8, gradients in bf16",
    )


def _moonlight(modules: str, gib: float) -> Published:
    def work_out() -> float:
        flags = {"recompute-granularity": "selective", "recompute-modules": modules}
        plain = _peak(read_megatron_run(Flags(MOONLIGHT_16B), world_size=8))
        return plain - _peak(read_megatron_run(Flags({**MOONLIGHT_16B, **flags}), world_size=8))

    return Published(f"Moonlight 16B, saved by recomputing {modules}", MOONLIGHT, "saving", gib, work_out)


def _titan(name: str, flavor: str, gib: float, mode: str, **sizes: int) -> Published:
    degrees = {key: sizes.get(key, 1) for key in ("tensor", "pipeline", "context")}
    parallel: dict[str, object] = {f"{key}_parallel_degree": value for key, value in degrees.items()}
    parallel["data_parallel_shard_degree"] = sizes["data"]
    # The release of then split a rank's sequences into as many micro-batches as there are stages.
    parallel["pipeline_parallel_microbatch_size"] = max(1, sizes["sequences"] // degrees["pipeline"])
    parallel["pipeline_parallel_schedule"] = "Interleaved1F1B" if sizes.get("pieces", 1) > 1 else "1F1B"
    config: dict[str, object] = {
        "model": {"name": "llama3", "flavor": flavor},
        "training": {"seq_len": sizes["tokens"], "local_batch_size": sizes["sequences"]},
        "parallelism": parallel,
        "activation_checkpoint": {"mode": mode, "selective_ac_option": "op"},
    }

    def work_out() -> float:
        described = describe_config(RunConfig("torchtitan", config))
        world = sizes["data"] * degrees["tensor"] * degrees["pipeline"] * degrees["context"]
        return _peak(build_run(described.shape, Flags(described.flags), world_size=world))

    return Published(f"{flavor} {name}", TITAN, "reserved", gib, work_out, "not compiled, in bf16")


def _sweep(tensor: int, pipeline: int, mib: float) -> Published:
    flags = {
        "num-layers": 96,
        "hidden-size": 20480,
        "num-attention-heads": 160,
        "seq-length": 2048,
        "fp16": True,
    }
    degrees = {"tensor-model-parallel-size": tensor, "pipeline-model-parallel-size": pipeline}

    def work_out() -> float:
        run = read_megatron_run(Flags({**flags, **degrees}), world_size=8192, gpu="a100")
        return estimate_stages(run.shape, run.layout, run.setup)[0].allocated_bytes

    name = f"485B, TP {tensor} PP {pipeline}"
    return Published(name, SWEEP, "states", mib / 1024, work_out, "its one micro-batch leaves nothing")


def _count_llama_layer() -> float:
    setup = TrainingSetup(seq_length=4096, micro_batch_size=1)
    return sum(list_layer_activations(PRESETS["llama2-7b"], ParallelLayout(), setup, 0).values())


ROWS: tuple[Published, ...] = (
    Published(
        "InternLM 7B, weights in fp16",
        "InternLM, simple_memory_profiler, memory.log",
        "states",
        13965.51 / 1024,
        lambda: 2.0 * (count_parameters(INTERNLM_7B) + 32 * 4096),
        "a bias in each of attention's four projections",
    ),
    Published(
        "Llama 2 7B, one layer's activations",
        "Galvatron, memory_profiling_bf16_llama2-7b_all.json, layertype_0",
        "layer",
        514.5634765625 / 1024,
        _count_llama_layer,
        "4,096 tokens, as its checkpoint of 32 MB shows",
    ),
    _sweep(4, 32, 76.0 * 1024),
    _sweep(8, 16, 73.6 * 1024),
    _sweep(8, 32, 38.4 * 1024),
    _bridge(4, 4, 5, 58.8),
    _bridge(4, 4, 10, 60.2),
    _bridge(4, 4, 5, 55.6, "mlp"),
    _bridge(4, 8, 5, 53.2),
    _bridge(8, 4, 5, 50.2),
    _moonlight("mla_up_proj", 36.618 - 35.902),
    _moonlight("moe_act", 36.618 - 35.941),
    _moonlight("core_attn", 36.618 - 36.614),
    _titan("FSDP 8", "8B", 82.4, "selective", data=8, sequences=2, tokens=8192),
    _titan("FSDP 128", "8B", 67.0, "selective", data=128, sequences=2, tokens=8192),
    _titan("FSDP 8, 32k", "8B", 83.9, "full", data=8, sequences=1, tokens=32768),
    _titan("FSDP 4 CP 2, 64k", "8B", 84.2, "full", data=4, context=2, sequences=1, tokens=65536),
    _titan("FSDP 1 CP 8, 256k", "8B", 84.5, "full", data=1, context=8, sequences=1, tokens=262144),
    _titan("FSDP 32 TP 8", "70B", 71.9, "full", data=32, tensor=8, sequences=16, tokens=8192),
    _titan("FSDP 8 TP 8 PP 8", "405B", 82.5, "full", data=8, tensor=8, pipeline=8, sequences=32, tokens=8192),
    _titan(
        "the same, interleaved",
        "405B",
        72.7,
        "full",
        data=8,
        tensor=8,
        pipeline=8,
        pieces=2,
        sequences=32,
        tokens=8192,
    ),
)


def format_rows(rows: Sequence[Published] = ROWS) -> str:
    """Return every value with ours next to it, as text."""
    cells = []
    for row in rows:
        ours = row.work_out() / GIB
        error = 100 * (ours / row.measured_gib - 1)
        shown = f"{ours:.3f}" if row.measured_gib < 1 else f"{ours:.2f}"
        sign = f"{error:+.1f}" if row.kind != "saving" else f"{ours - row.measured_gib:+.2f} GiB"
        cells.append([row.name, row.kind, f"{row.measured_gib:.3f}", shown, sign, row.assumed])
    head = ["what", "kind", "published GiB", "ours GiB", "error %", "assumed"]
    sources = sorted({row.source for row in rows})
    return "\n".join([format_table("published figures, and ours", head, cells), "", "sources:", *sources])


if __name__ == "__main__":
    sys.stdout.write(format_rows() + "\n")
