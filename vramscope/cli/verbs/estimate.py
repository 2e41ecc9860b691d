"""`vramscope estimate`: the memory of a training run, from sizes alone."""

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from pathlib import Path

from vramscope.engine.errors import UsageError

from ..frame.flags import (
    add_figure_flag,
    add_fit_flag,
    add_format_flags,
    add_old_flag,
    build_look_flags,
    pick,
    refuse,
)
from ..frame.parse import SubParsers, add_verb

SUMMARY = "work out the memory of a training run from its sizes: each stage, each part"
DESCRIPTION = """\
Work out what every rank of a training run allocates: weights, gradients, master weights, optimizer,
activations operation by operation, logits and loss, buffers, workspaces; between steps and at most.
No GPU and no PyTorch is needed. What is outside PyTorch's allocator (CUDA context, NCCL) is not counted."""
EPILOG = """\
examples:
  vramscope estimate --model llama2-7b --tp 2 --dp 4 --zero 1 --seq 4096 --capacity 80GiB
  vramscope estimate --model config.json --tp 8 --pp 4 --sp --recompute full --json
  vramscope estimate --model gpt2-xl --gpu 'RTX 4090'
  vramscope estimate --batch cases.csv --output predicted.csv
  vramscope estimate --factory train:make_step --batch-size 4 --layers 48 --capacity 24GiB

--model takes a name, config.json of Hugging Face, Megatron-LM's arguments (JSON, YAML or the list in its
log), a configuration of Galvatron, or TOML of torchtitan; flags given here win over the file.
--factory names a function of yours that returns a training step, a module, or (module, optimizer, step); two
steps are made without storage, in a process of its own, which needs PyTorch.
exit codes: 0 estimated, also where it does not fit, 3 it does not fit and --fail-on unfit is given, 2 usage,
a file that cannot be read, degrees that cannot be, a step that cannot be traced"""
COUNTS = {
    "tp": "tensor-parallel ranks",
    "pp": "pipeline stages",
    "dp": "data-parallel ranks",
    "cp": "context-parallel ranks",
    "ep": "ranks that routed experts are spread over",
    "etp": "ranks that share one expert",
    "pieces": "pieces of the model on each pipeline rank (interleaved schedule)",
    "world-size": "ranks, in place of --dp",
}
FACTORY_FLAGS = ("batch_size", "layers", "input", "optimizer", "full", "snapshot")
RECOMPUTE = ("none", "selective", "operations", "full", "block")
BATCH_COUNTS = {
    "seq": "tokens of a sequence",
    "micro-batch": "sequences of a micro-batch",
    "global-batch": "sequences of a step, over all ranks",
    "micro-batches": "micro-batches of a step, in place of --global-batch",
    "recompute-layers": "layers of one checkpoint, or with block: recomputed layers",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, [build_look_flags(), *common], "estimate", SUMMARY, DESCRIPTION, EPILOG)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="NAME|FILE", help="the model: a name, or a configuration")
    what.add_argument("--batch", metavar="FILE", type=Path, help="a CSV file of cases, one a row")
    what.add_argument("--factory", metavar="MODULE:FUNCTION", help="your own step, traced without a GPU")
    _add_factory(parser.add_argument_group("with --factory"))
    _add_counts(parser.add_argument_group("degrees of parallelism"), COUNTS)
    batch = parser.add_argument_group("batch")
    _add_counts(batch, BATCH_COUNTS)
    add_old_flag(batch, "--mbs", use="--micro-batch", dest="micro_batch", type=int)
    add_old_flag(batch, "--gbs", use="--global-batch", dest="global_batch", type=int)
    _add_choices(parser.add_argument_group("training"))
    output = parser.add_argument_group("output")
    add_format_flags(output, text="text is the default", json="print one JSON object", old=("--table",))
    output.add_argument("-o", "--output", metavar="FILE", type=Path, help="with --batch: where to write")
    add_figure_flag(output, "draw every stage at its peak")
    output.add_argument("--calibration", metavar="FILE", type=Path, help="shift by `vramscope calibrate`")
    output.add_argument(
        "--capacity", metavar="SIZE", help="say whether it fits, and with what it would: 80GiB"
    )
    add_fit_flag(output)


def _add_factory(group: _ArgumentGroup) -> None:
    group.add_argument("--batch-size", metavar="N", type=int, help="its argument batch_size")
    group.add_argument("--layers", metavar="N", type=int, help="its argument layers; deep ones: see --full")
    group.add_argument("--full", action="store_true", help="trace every layer, extrapolate nothing")
    group.add_argument(
        "--input", metavar="SHAPE", action="append", default=[], help="an argument of a module: 4x1024:int64"
    )
    group.add_argument("--optimizer", choices=("adamw", "adam", "sgd", "none"), help="of a module (adamw)")
    group.add_argument("--snapshot", metavar="FILE", type=Path, help="write the peak as a memory snapshot")


def _add_counts(group: _ArgumentGroup, counts: dict[str, str]) -> None:
    for name, text in counts.items():
        group.add_argument(f"--{name}", metavar="N", type=int, help=text)


def _add_choices(group: _ArgumentGroup) -> None:
    group.add_argument("--sp", action="store_true", help="split norms and dropout along the sequence")
    group.add_argument("--zero", type=int, choices=(0, 1, 2, 3), help="what is sharded over data ranks")
    group.add_argument("--precision", choices=("bf16", "fp16", "fp32"), help="bf16 has gradients in fp32")
    group.add_argument("--recompute", choices=RECOMPUTE, help="activations")
    group.add_argument("--attention", choices=("fused", "flash", "unfused"), help="its kernel")
    group.add_argument("--schedule", choices=("1f1b", "gpipe"), default="1f1b", help="of the pipeline")
    group.add_argument(
        "--gpu",
        metavar="NAME",
        help="the card (h100): its workspaces, and its memory for --capacity; as 4090",
    )
    group.add_argument(
        "--theory",
        choices=("vramscope", "megatron", "megatron-fork"),
        default="vramscope",
        help="ours, Megatron-LM's published formula, or that of the fork behind sweep traces",
    )


def run(arguments: Namespace) -> int:
    if arguments.fail_on is not None and arguments.capacity is None and arguments.gpu is None:
        raise UsageError("--fail-on unfit goes with --capacity SIZE or --gpu NAME, into which it is to fit")
    if arguments.factory is not None:
        from ..estimating import estimate_factory

        return estimate_factory(arguments)
    refuse(pick(arguments, FACTORY_FLAGS), "goes with --factory")
    if arguments.batch is not None:
        from ..estimating import estimate_batch

        return estimate_batch(arguments)
    from ..estimating import print_estimate

    return print_estimate(arguments)
