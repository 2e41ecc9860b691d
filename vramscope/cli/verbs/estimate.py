"""`vramscope estimate`: the memory of a training run, computed from its sizes."""

from argparse import Action, ArgumentParser, Namespace, _ArgumentGroup
from pathlib import Path

from vramscope.engine.errors import Setting, SettingError, UsageError

from ..frame.flags import (
    CAPACITY,
    add_figure_flag,
    add_fit_flag,
    add_format_flags,
    add_old_flag,
    between,
    build_look_flags,
    pick,
    refuse,
    size,
    whole,
)
from ..frame.help import list_groups
from ..frame.parse import Parser, SubParsers, add_verb

DESCRIPTION = (
    "Compute the memory that every rank of a training run allocates, between steps and at its peak; or, with "
    "--serve, what a server of a model holds and how many tokens fit."
)
EXAMPLES = """\
vramscope estimate --model llama2-7b --tp 2 --dp 4 --zero 1 --capacity 80GiB
vramscope estimate --model config.json --tp 8 --pp 4 --sp --recompute full
vramscope estimate --model gpt2-xl --gpu 'RTX 4090'
vramscope estimate --batch cases.csv --output predicted.csv
vramscope estimate --factory train:make_step --layers 48 --gpu h100
vramscope estimate --model llama3-8b --lora 16 --quantize nf4 --gpu 'RTX 4090'
vramscope estimate --model config.json --optimizer adam8bit --capacity 80GiB
vramscope estimate --serve --model config.json --tp 2 --gpu h100"""
NOTES = """\
The estimate has weights, gradients, master weights, optimizer, activations of each operation, logits and
loss, buffers and workspaces. Memory outside PyTorch's allocator (CUDA context, NCCL) is not counted. Neither
a GPU nor PyTorch is needed, except for --factory.

--model takes a name, config.json of Hugging Face, the arguments of Megatron-LM (JSON, YAML or the list in its
log), a configuration of NeMo or Galvatron, or TOML of torchtitan. Flags override the file.

--factory names a function that returns a training step, a module, or (module, optimizer, step). vramscope
traces two steps without storage in another process, which needs PyTorch.

--serve takes a name or config.json, and divides a device as vLLM does: weights, activations, libraries, and
the cache of keys and values that is left. Of the flags for training it knows --tp, --pp, --seq (the longest
sequence) and --precision."""
EXIT_CODES: dict[int | str, str] = {
    0: "estimated, also if it does not fit",
    2: "wrong flags, sizes that do not go together, or a file or step that cannot be read",
    3: "it does not fit, and --fail-on unfit is given",
    4: "a package of an extra is not installed",
}
COUNTS = {
    "tp": "tensor-parallel ranks",
    "pp": "pipeline stages",
    "dp": "data-parallel ranks",
    "cp": "context-parallel ranks",
    "ep": "expert-parallel ranks",
    "etp": "tensor-parallel ranks of one expert",
    "pieces": "model chunks on each pipeline rank (interleaved schedule)",
    "world-size": "all ranks, instead of --dp",
}
FACTORY_FLAGS = ("batch_size", "layers", "ranks", "rank", "input", "full", "snapshot")
# What each way of estimating trains with.
FACTORY_OPTIMIZERS = ("adamw", "adam", "sgd", "none")
MODEL_OPTIMIZERS = ("adamw", "adam", "sgd", "adam8bit")
SERVE_FLAGS = ("utilization", "max_seqs", "batched_tokens", "cache_type")
# Flags of training runs, which do not go with --serve.
TRAINING_FLAGS = (
    *("dp", "cp", "ep", "etp", "pieces", "world_size", "micro_batch", "global_batch", "micro_batches"),
    *("recompute_layers", "sp", "zero", "recompute", "attention", "calibration", "figure", "output"),
    *("lora", "quantize", "offload", "optimizer"),
)
RECOMPUTE = ("none", "selective", "operations", "full", "block")
BATCH_COUNTS = {
    "seq": "tokens in a sequence",
    "micro-batch": "sequences in a micro-batch",
    "global-batch": "sequences in a step, over all ranks",
    "micro-batches": "micro-batches in a step, instead of --global-batch",
    "recompute-layers": "layers in one checkpoint; with --recompute block, layers recomputed",
}


# Flags that the numbers of an estimate come from: whole groups, and single ones of other groups. The tool of
# `vramscope mcp` offers these, and so none that writes a file or runs code.
SIZE_GROUPS = ("with --serve", "degrees of parallelism", "batch", "training")
SIZE_FLAGS = ("model", "context", "capacity", "calibration")


def list_size_flags(parser: Parser) -> list[Action]:
    return [
        action
        for title, actions in list_groups(parser, parser.page)
        for action in actions
        if title in SIZE_GROUPS or action.dest in SIZE_FLAGS
    ]


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_look_flags(), *common]
    parser = add_verb(
        subparsers, parents, "estimate", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="NAME|FILE", help="the model: a name, or a configuration file")
    what.add_argument("--batch", metavar="FILE", type=Path, help="CSV file of runs to estimate, one a row")
    what.add_argument(
        "--factory", metavar="MODULE:FUNCTION", help="trace your own training step, without a GPU"
    )
    _add_factory(parser.add_argument_group("with --factory"))
    _add_serving(parser.add_argument_group("with --serve"))
    _add_counts(parser.add_argument_group("degrees of parallelism"), COUNTS)
    batch = parser.add_argument_group("batch")
    _add_counts(batch, BATCH_COUNTS)
    add_old_flag(batch, "--mbs", use="--micro-batch", dest="micro_batch", type=int)
    add_old_flag(batch, "--gbs", use="--global-batch", dest="global_batch", type=int)
    _add_choices(parser.add_argument_group("training"))
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="text is the default; github: annotations of GitHub Actions, with --factory at the lines that "
        "hold most",
        json="print one JSON object",
        more=("github",),
        old=("--table",),
    )
    output.add_argument("-o", "--output", metavar="FILE", type=Path, help="with --batch: write to this file")
    add_figure_flag(output, "draw every stage at its peak")
    output.add_argument(
        "--calibration", metavar="FILE", type=Path, help="apply the correction of `vramscope calibrate`"
    )
    output.add_argument(
        "--capacity",
        metavar="SIZE",
        type=CAPACITY,
        help="memory of a device (80GiB): say whether it fits, or what would",
    )
    add_fit_flag(output)


def _add_factory(group: _ArgumentGroup) -> None:
    group.add_argument("--batch-size", metavar="N", type=int, help="argument batch_size of the function")
    group.add_argument(
        "--layers",
        metavar="N",
        type=int,
        help="argument layers of the function; many are extrapolated, see --full",
    )
    group.add_argument(
        "--ranks", metavar="N", type=whole(1, 1 << 20), help="ranks of a distributed training; one is traced"
    )
    group.add_argument("--rank", metavar="K", type=whole(0, 1 << 20), help="which of them (default 0)")
    group.add_argument("--full", action="store_true", help="trace every layer instead of extrapolating")
    group.add_argument(
        "--context",
        metavar="SIZE",
        type=size(),
        help="memory of the CUDA context on your GPU, if you have measured it (default: a range)",
    )
    group.add_argument(
        "--input",
        metavar="SHAPE",
        action="append",
        default=[],
        help="an input of the module, for example 4x1024:int64; once for each input",
    )
    group.add_argument("--snapshot", metavar="FILE", type=Path, help="write the peak as a memory snapshot")


def _add_serving(group: _ArgumentGroup) -> None:
    group.add_argument(
        "--serve", action="store_true", help="estimate a server of --model instead of training"
    )
    group.add_argument(
        "--utilization",
        metavar="SHARE",
        type=between(0.01, 1),
        help="share of the device for the server, as --gpu-memory-utilization of vLLM (default 0.9)",
    )
    group.add_argument(
        "--max-seqs",
        metavar="N",
        type=whole(1, 1_000_000),
        help="most sequences at once, as --max-num-seqs (default: as vLLM for such a device)",
    )
    group.add_argument(
        "--batched-tokens",
        metavar="N",
        type=whole(1, 10_000_000),
        help="most tokens in a forward pass, as --max-num-batched-tokens (default: as vLLM)",
    )
    group.add_argument(
        "--cache-type",
        choices=("bf16", "fp16", "fp32", "fp8"),
        help="type of cached keys and values (default: the model's)",
    )


def _add_counts(group: _ArgumentGroup, counts: dict[str, str]) -> None:
    for name, text in counts.items():
        group.add_argument(f"--{name}", metavar="N", type=int, help=text)


def _add_choices(group: _ArgumentGroup) -> None:
    group.add_argument(
        "--sp", action="store_true", help="sequence parallelism: split norms and dropout along the sequence"
    )
    group.add_argument(
        "--zero",
        type=int,
        choices=(0, 1, 2, 3),
        help="ZeRO stage: shard optimizer (1), gradients too (2), weights too (3)",
    )
    group.add_argument(
        "--precision",
        choices=("bf16", "fp16", "fp32", "pure-bf16"),
        help="bf16 keeps gradients in fp32 and master weights; pure-bf16 has weights, gradients and moments "
        "in bf16 alone",
    )
    group.add_argument(
        "--optimizer",
        choices=tuple(dict.fromkeys((*MODEL_OPTIMIZERS, *FACTORY_OPTIMIZERS))),
        help="optimizer (default adamw): adam8bit with --model alone; with --factory, where only a module is "
        "returned",
    )
    group.add_argument(
        "--lora",
        metavar="RANK",
        type=whole(1, 65_536),
        help="train adapters of this rank on all linear layers outside of experts, and freeze the model",
    )
    group.add_argument(
        "--quantize", choices=("nf4",), help="frozen matrices in 4 bits, as QLoRA has them; needs --lora"
    )
    group.add_argument(
        "--offload", choices=("optimizer",), help="master weights and moments are in the host's memory"
    )
    group.add_argument("--recompute", choices=RECOMPUTE, help="activations to recompute")
    group.add_argument("--attention", choices=("fused", "flash", "unfused"), help="attention kernel")
    group.add_argument(
        "--schedule", choices=("1f1b", "gpipe"), default="1f1b", help="pipeline schedule (default 1f1b)"
    )
    group.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU, for example 4090: its memory as --capacity, its workspaces (default: those of h100), and "
        "with --factory the range of its CUDA context",
    )
    group.add_argument(
        "--theory",
        choices=("vramscope", "megatron", "megatron-fork"),
        default="vramscope",
        help="memory theory: ours (default), Megatron-LM's published formula, or that of the fork that wrote "
        "sweep traces",
    )


def run(arguments: Namespace) -> int:
    is_size_known = arguments.capacity is not None or arguments.gpu is not None
    if arguments.fail_on is not None and not is_size_known and arguments.batch is None:
        raise UsageError("--fail-on unfit needs the memory that it is to fit: --capacity SIZE or --gpu NAME")
    check_flags(arguments)
    if arguments.serve:
        from ..serving_estimate import print_serving

        return print_serving(arguments)
    if arguments.factory is not None:
        from ..estimating import estimate_factory

        return estimate_factory(arguments)
    if arguments.batch is not None:
        from ..estimating import estimate_batch

        return estimate_batch(arguments)
    from ..estimating import print_estimate

    return print_estimate(arguments)


def check_flags(arguments: Namespace) -> None:
    """Refuse flags that do not go with what is estimated: a server, a step of the user's, or a model."""
    if arguments.serve:
        _check_serving(arguments)
        return
    refuse(pick(arguments, SERVE_FLAGS), "needs ", Setting("--serve"))
    known = MODEL_OPTIMIZERS if arguments.factory is None else FACTORY_OPTIMIZERS
    if arguments.factory is None:
        refuse(pick(arguments, (*FACTORY_FLAGS, "context")), "needs --factory MODULE:FUNCTION")
    if arguments.optimizer is not None and arguments.optimizer not in known:
        way = Setting("--factory" if arguments.factory is not None else "--model")
        raise SettingError(
            Setting("--optimizer"),
            f" {arguments.optimizer} does not go with ",
            way,
            f"; expected {', '.join(known)}",
        )


def _check_serving(arguments: Namespace) -> None:
    refuse(
        pick(arguments, ("batch", "factory", *FACTORY_FLAGS)), "does not go with --serve, which needs --model"
    )
    refuse(pick(arguments, TRAINING_FLAGS), "does not go with ", Setting("--serve"))
    refuse({"--format github": arguments.format == "github"}, "does not go with --serve")
    for name, usual in (("theory", "vramscope"), ("schedule", "1f1b")):
        if getattr(arguments, name) != usual:
            refuse({f"--{name}": True}, "does not go with --serve")
