"""The memory theory next to Megatron-LM's own code: python -m benchmarks.memory_theory_simulated CHECKOUT.

CHECKOUT is a working tree of github.com/NVIDIA/Megatron-LM (commit d98e8a64); no file of it is changed. Each
case is a set of its flags. One rank of it makes two training steps on the simulated card, with tensors
without storage, and the theory reads the same flags. Nothing here is measured on a GPU: it is PyTorch's path
of Megatron-LM (`--transformer-impl local`), without Transformer Engine, Apex and flash attention. Workspaces
of libraries are left out of the theory's numbers, as the card has none.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vramscope.analyzers.planning.theory import estimate_stage
from vramscope.analyzers.planning.theory.configs.flags import BERT, Flags
from vramscope.analyzers.planning.theory.configs.megatron import read_megatron_run
from vramscope.engine.units import MIB
from vramscope.estimates import StepRequest, trace_steps

from .measure.tables import format_markdown, format_table, replace_table
from .memory_theory_simulated_step import CASE

COMMAND = "python -m benchmarks.memory_theory_simulated"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "memory-theory.md"
TARGET_ALLOCATED_PERCENT, TARGET_PEAK_PERCENT = 2.0, 3.0
HEAD = (
    "family and flags",
    "rank",
    "between steps, MiB",
    "theory",
    "at the peak, MiB",
    "theory",
)

_COMMON: dict[str, object] = {
    "transformer-impl": "local",
    "num-layers": 4,
    "hidden-size": 1024,
    "num-attention-heads": 16,
    "seq-length": 512,
    "max-position-embeddings": 512,
    "micro-batch-size": 8,
    "vocab-size": 4096,
    "tokenizer-type": "NullTokenizer",
    "bf16": True,
    "train-iters": 10,
    "lr": 1e-4,
    "mock-data": True,
    # Kernels that are built for CUDA.
    "no-masked-softmax-fusion": True,
    "no-persist-layer-norm": True,
    "no-gradient-accumulation-fusion": True,
    "no-bias-dropout-fusion": True,
    "no-bias-gelu-fusion": True,
    "no-rope-fusion": True,
}
_FULL: dict[str, object] = {
    "recompute-granularity": "full",
    "recompute-method": "uniform",
    "recompute-num-layers": 1,
}
_TENSOR: dict[str, object] = {"tensor-model-parallel-size": 2}
_SEQUENCE: dict[str, object] = {**_TENSOR, "sequence-parallel": True}
_PIPELINE: dict[str, object] = {"pipeline-model-parallel-size": 2}
_GATHER: dict[str, object] = {"moe-token-dispatcher-type": "allgather"}
_EXPERTS: dict[str, object] = {
    "num-experts": 8,
    "moe-router-topk": 2,
    "moe-ffn-hidden-size": 1024,
    "moe-token-dispatcher-type": "alltoall",
    "moe-router-load-balancing-type": "aux_loss",
    "moe-aux-loss-coeff": 0.01,
    "disable-bias-linear": True,
}
# As in mixtures of today.
_GATED: dict[str, object] = {
    **_EXPERTS,
    "swiglu": True,
    "normalization": "RMSNorm",
    "position-embedding-type": "rope",
    "untie-embeddings-and-output-weights": True,
    "hidden-dropout": 0.0,
    "attention-dropout": 0.0,
}
_CAPACITY: dict[str, object] = {"moe-expert-capacity-factor": 1.5, "moe-pad-expert-input-to-capacity": True}
_SHARED: dict[str, object] = {"moe-shared-expert-intermediate-size": 1024}


class Case(NamedTuple):
    """A run: what it is called, its flags beyond the common ones, ranks, and the rank that is looked at."""

    name: str
    flags: dict[str, object]
    ranks: int = 1
    rank: int = 0
    micro_batches: int = 1
    family: str = "gpt"


def _split(degree: int) -> dict[str, object]:
    return {"expert-model-parallel-size": degree}


def _select(*modules: str) -> dict[str, object]:
    return {"recompute-granularity": "selective", "recompute-modules": list(modules)}


CASES = (
    Case("GPT", {}),
    Case("GPT, distributed optimizer over 4", {"use-distributed-optimizer": True}, 4, 3),
    Case("GPT, fp16", {"bf16": None, "fp16": True}),
    Case("GPT, TP 2", _TENSOR, 2, 1),
    Case("GPT, TP 2 with SP", _SEQUENCE, 2, 1),
    Case("GPT, PP 2, first stage", _PIPELINE, 2, 0, 4),
    Case("GPT, PP 2, last stage", _PIPELINE, 2, 1, 4),
    Case("GPT, recompute full", _FULL),
    Case("GPT, recompute core_attn", _select("core_attn")),
    Case("GPT, SwiGLU without fusion", {"swiglu": True, "no-bias-swiglu-fusion": True}),
    Case(
        "GPT, RMSNorm, rotary, 4 groups",
        {**_GATED, **dict.fromkeys(_EXPERTS), "num-query-groups": 4, "group-query-attention": True},
    ),
    Case("MoE, 8 experts, top 2", _EXPERTS),
    Case("MoE, top 1", {**_EXPERTS, "moe-router-topk": 1, "moe-router-pre-softmax": True}),
    Case("MoE, all-gather", {**_EXPERTS, **_GATHER}),
    Case("MoE, EP 2", {**_EXPERTS, **_split(2)}, 2, 1),
    Case("MoE, EP 2, all-gather", {**_EXPERTS, **_split(2), **_GATHER}, 2, 1),
    Case("MoE, EP 4", {**_EXPERTS, **_split(4)}, 4, 3),
    Case("MoE, TP 2 with SP", {**_EXPERTS, **_SEQUENCE}, 2, 1),
    Case("MoE, TP 2 with SP, EP 2", {**_EXPERTS, **_SEQUENCE, **_split(2)}, 4, 3),
    Case("MoE, TP 2 with SP, EP 2, all-gather", {**_EXPERTS, **_SEQUENCE, **_split(2), **_GATHER}, 4, 3),
    Case(
        "MoE, TP 2 with SP, EP 2, expert TP 1",
        {**_EXPERTS, **_SEQUENCE, **_split(2), "expert-tensor-parallel-size": 1},
        2,
        1,
    ),
    Case("MoE, padded to capacity 1.5", {**_EXPERTS, **_CAPACITY}),
    Case("MoE, PP 2, first stage", {**_EXPERTS, **_PIPELINE}, 2, 0, 4),
    Case("MoE, PP 2, last stage", {**_EXPERTS, **_PIPELINE}, 2, 1, 4),
    Case("gated MoE", _GATED),
    Case("gated MoE, without fusion", {**_GATED, "no-bias-swiglu-fusion": True}),
    Case(
        "gated MoE, 64 experts, top 6",
        {**_GATED, "num-experts": 64, "moe-router-topk": 6, "moe-ffn-hidden-size": 256},
    ),
    Case("gated MoE, every second layer", {**_GATED, "moe-layer-freq": 2}),
    Case("gated MoE, router in fp32", {**_GATED, "moe-router-dtype": "fp32"}),
    Case("gated MoE, shared expert", {**_GATED, **_SHARED}),
    Case("gated MoE, shared expert, EP 4", {**_GATED, **_SHARED, **_split(4)}, 4, 3),
    Case("gated MoE, shared expert, TP 2 with SP", {**_GATED, **_SHARED, **_SEQUENCE}, 2, 1),
    Case(
        "gated MoE, EP 4, distributed optimizer",
        {**_GATED, **_split(4), "use-distributed-optimizer": True},
        4,
        3,
    ),
    Case("gated MoE, recompute full", {**_GATED, **_FULL}),
    Case("gated MoE, recompute moe", {**_GATED, **_select("moe")}),
    Case("gated MoE, recompute core_attn", {**_GATED, **_select("core_attn")}),
    Case("gated MoE, recompute shared_experts", {**_GATED, **_SHARED, **_select("shared_experts")}),
    Case("BERT", {}, family="bert"),
    Case("BERT, vocabulary of 32,768", {"vocab-size": 32768}, family="bert"),
    Case("BERT, TP 2", _TENSOR, 2, family="bert"),
    Case("BERT, TP 2 with SP", _SEQUENCE, 2, family="bert"),
    Case("BERT, PP 2, first stage", _PIPELINE, 2, 0, 4, "bert"),
    Case("BERT, PP 2, last stage", _PIPELINE, 2, 1, 4, "bert"),
    Case("BERT, recompute full", _FULL, family="bert"),
)


class Comparison(NamedTuple):
    """Bytes between steps and at the peak of a step, simulated and by the theory."""

    case: Case
    simulated: tuple[int, int]
    estimated: tuple[int, int]

    @property
    def errors(self) -> tuple[float, float]:
        """Signed, percent of what is simulated."""
        allocated, peak = (
            100 * (ours / theirs - 1) for ours, theirs in zip(self.estimated, self.simulated, strict=True)
        )
        return allocated, peak


def list_flags(case: Case) -> dict[str, object]:
    """Return the flags of a case as Megatron-LM reads them."""
    degrees = ("tensor-model-parallel-size", "pipeline-model-parallel-size")
    given = {**_COMMON, **case.flags}
    data = case.ranks
    for name in degrees:
        data //= int(str(given.get(name, 1)))
    given["global-batch-size"] = 8 * data * case.micro_batches
    if case.family == "bert":
        given["spec"] = "local"
    return {name: value for name, value in given.items() if value is not None}


def compare(case: Case, checkout: Path) -> Comparison:
    """Return what a case needs, simulated and by the theory."""
    flags = list_flags(case)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "bytes.json"
        asked = {"checkout": str(checkout), "family": case.family, "flags": flags, "output": str(output)}
        # Megatron-LM asks for the second one where it splits tensors.
        os.environ |= {CASE: json.dumps(asked), "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        trace_steps(
            StepRequest(
                factory="benchmarks.memory_theory_simulated_step:make_step", ranks=case.ranks, rank=case.rank
            )
        )
        allocated, peak = json.loads(output.read_text())
    run = read_megatron_run(Flags({**flags, BERT: case.family == "bert"}), world_size=case.ranks)
    stage = case.rank * run.layout.pipeline // case.ranks
    ours = estimate_stage(run.shape, run.layout, run.setup, stage)
    libraries = ours.moments[0].sum_group("libraries")
    return Comparison(
        case, (allocated, peak), (ours.allocated_bytes - libraries, ours.peak_bytes - libraries)
    )


def format_row(found: Comparison) -> list[str]:
    allocated, peak = found.simulated
    errors = [f"{error:+.2f} %" for error in found.errors]
    place = f"{found.case.rank} of {found.case.ranks}"
    return [found.case.name, place, f"{allocated / MIB:,.1f}", errors[0], f"{peak / MIB:,.1f}", errors[1]]


def list_misses(found: Sequence[Comparison]) -> Iterator[str]:
    for it in found:
        if abs(it.errors[0]) > TARGET_ALLOCATED_PERCENT or abs(it.errors[1]) > TARGET_PEAK_PERCENT:
            yield f"{it.case.name}: {it.errors[0]:+.2f} % between steps, {it.errors[1]:+.2f} % at the peak"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="working tree of Megatron-LM")
    parser.add_argument("words", nargs="*", metavar="WORD", help="cases whose name begins so; without: all")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    cases = [it for it in CASES if not options.words or it.name.startswith(tuple(options.words))]
    if not (options.checkout / "megatron" / "core").is_dir():
        print(f"{options.checkout}: no working tree of Megatron-LM; expected megatron/core", file=sys.stderr)
        return 2
    found = []
    for case in cases:
        found.append(compare(case, options.checkout.resolve()))
        print("  ".join(format_row(found[-1])), flush=True)
    rows = [format_row(it) for it in found]
    print(format_table("Simulated, and the theory's error", HEAD, rows))
    misses = list(list_misses(found))
    print(
        f"{len(found) - len(misses)} of {len(found)} cases within {TARGET_ALLOCATED_PERCENT:g} % between "
        f"steps and {TARGET_PEAK_PERCENT:g} % at the peak"
    )
    print(*misses, sep="\n")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replace_table(page, COMMAND, format_markdown(HEAD, rows)), encoding="utf-8")
    return int(bool(misses))


if __name__ == "__main__":
    sys.exit(main())
