"""What `vramscope estimate` works out of its flags and prints."""

import math
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramscope.analyzers.planning.cluster import DEVICES, DeviceModel, find_device
from vramscope.analyzers.planning.theory import estimate_as_fork, estimate_as_published, estimate_stages
from vramscope.analyzers.planning.theory.configs import Flags, TrainingRun
from vramscope.analyzers.planning.theory.configs.document import Described
from vramscope.analyzers.planning.theory.configs.flags import MICRO_BATCHES
from vramscope.analyzers.planning.theory.configs.megatron import build_run
from vramscope.analyzers.planning.theory.shape import GPUS, Gpu
from vramscope.engine.errors import UsageError
from vramscope.engine.units import format_bytes, parse_bytes
from vramscope.planning.described_model import describe_model

from .frame.configuration import read_settings
from .frame.parser_flags import choose_fit_code

if TYPE_CHECKING:
    from vramscope.exporters.estimates import EstimateReport

FLAGS = {
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
    "etp": "expert-tensor-parallel-size",
    "pieces": "num-virtual-stages-per-pipeline-rank",
    "seq": "seq-length",
    "micro_batch": "micro-batch-size",
    "global_batch": "global-batch-size",
    "recompute_layers": "recompute-num-layers",
    "attention": "attention-backend",
}
"""Flags of ours, and Megatron-LM's that they stand for."""
_STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
AMPERE: Gpu = "a100"
"""Stands for compute capability below 9; either size is meant, so that it names no capacity."""
BLACKWELL: Gpu = "b200"
USUAL_GPU: Gpu = "h100"
USUAL_CAPABILITY = 9
DEFAULT_SEQUENCE = 4096
"""Tokens of a sequence where nothing says; fewer where the model has fewer positions to learn."""


class FormulaReport(msgspec.Struct, frozen=True, kw_only=True):
    """What another formula says, as one number."""

    schema: str = "vramscope.formula/1"
    theory: str
    run: TrainingRun
    peak_bytes: int


def print_estimate(arguments: Namespace) -> int:
    """Print the estimate of one run and return the exit code.

    Raises:
        UsageError: A flag makes no sense, or the degrees cannot be.
        InputFileError: The configuration cannot be read or understood.
    """
    _check_output(arguments)
    run = read_run(arguments)
    if arguments.theory != "vramscope":
        _print_formula(arguments, run)
        return 0
    if arguments.figure is not None:
        arguments.figure.check()
    report = _estimate(arguments, run)
    if arguments.figure is not None:
        from vramscope.exporters.estimates import draw_estimate

        for path in arguments.figure.list_files("estimate"):
            draw_estimate(report, path)
    if arguments.json:
        from vramscope.exporters.json_lines import write_line

        write_line(report, sys.stdout.buffer)
        return choose_fit_code(arguments, does_fit=report.does_fit)
    from vramscope.exporters.estimates import describe_estimate

    from .frame.printing import choose_style, emit

    style = choose_style(read_settings(arguments))
    text = describe_estimate(report, style.width)
    emit(text, is_ascii=style.is_ascii)
    return choose_fit_code(arguments, does_fit=report.does_fit)


def _check_output(arguments: Namespace) -> None:
    """Refuse flags that do not go together.

    Raises:
        UsageError: Which, and what to do.
    """
    if arguments.output is not None:
        raise UsageError("--output goes with --batch; redirect standard output to keep an estimate")
    if arguments.theory != "vramscope" and (arguments.calibration or arguments.capacity or arguments.figure):
        raise UsageError(f"--calibration, --capacity and --figure do not go with --theory {arguments.theory}")


def _estimate(arguments: Namespace, run: TrainingRun) -> "EstimateReport":
    from vramscope.exporters.estimates import build_estimate

    from .calibrating import read_calibration

    card = find_card(arguments.gpu)
    capacity_bytes = None if card is None else card.memory_bytes
    if arguments.capacity:
        capacity_bytes = parse_bytes(arguments.capacity)
    calibration = None if arguments.calibration is None else read_calibration(arguments.calibration)
    stages = estimate_stages(run.shape, run.layout, run.setup)
    report = build_estimate(run, stages, capacity_bytes, calibration)
    return report if card is None else msgspec.structs.replace(report, gpu=card.kind)


def find_card(name: str | None) -> DeviceModel | None:
    """Return the card that `--gpu` names; None without it, and for a name that the theory alone knows.

    Raises:
        UsageError: The name is not known; the text has the nearest ones.
    """
    if name is None or name.strip().lower() == AMPERE:
        return None
    return find_device(name)


def choose_gpu(name: str | None) -> Gpu:
    """Return whose workspaces and kernels the theory takes for a card: by its compute capability.

    Raises:
        UsageError: The name is not known; the text has the nearest ones.
    """
    card = find_card(name)
    if card is None:
        return USUAL_GPU if name is None else AMPERE
    known = next((gpu for gpu in GPUS if DEVICES.get(gpu) == card), None)
    if known is not None:
        return known
    major = USUAL_CAPABILITY if card.capability is None else card.capability[0]
    return AMPERE if major < 9 else BLACKWELL if major in (10, 11) else USUAL_GPU


def _print_formula(arguments: Namespace, run: TrainingRun) -> None:
    find = estimate_as_fork if arguments.theory == "megatron-fork" else _find_published
    total = round(find(run.shape, run.layout, run.setup))
    if arguments.json:
        from vramscope.exporters.json_lines import write_line

        write_line(FormulaReport(theory=arguments.theory, run=run, peak_bytes=total), sys.stdout.buffer)
        return
    name = "Megatron-LM's published formula" if arguments.theory == "megatron" else "the fork's formula"
    sys.stdout.write(f"{run.name}: {format_bytes(total)} ({total / 2**20:.2f} MiB) by {name}, first stage\n")


def _find_published(*run: object) -> float:
    return estimate_as_published(*run)[1]  # type: ignore[arg-type]


def read_run(arguments: Namespace) -> TrainingRun:
    """Return the run that the flags and the configuration describe.

    Raises:
        UsageError: A flag makes no sense, or the degrees do not fit.
        InputFileError: The configuration cannot be read or understood.
    """
    described = describe_model(arguments.model)
    flags = {name: value for name, value in described.flags.items() if value is not None}
    flags |= _translate(arguments)
    positions = described.shape.learned_positions or DEFAULT_SEQUENCE
    flags.setdefault("seq-length", min(positions, DEFAULT_SEQUENCE))
    world_size = _count_ranks(arguments, described, Flags(flags))
    run = build_run(
        described.shape,
        _settle_batch(arguments, flags, world_size),
        world_size=world_size,
        gpu=choose_gpu(arguments.gpu),
        name=Path(arguments.model).name,
    )
    if arguments.schedule == "gpipe":
        run = msgspec.structs.replace(run, setup=msgspec.structs.replace(run.setup, is_gpipe=True))
    return run


def _translate(arguments: Namespace) -> dict[str, object]:
    """Return the flags that were given here as Megatron-LM's."""
    given = vars(arguments)
    flags: dict[str, object] = {flag: given[name] for name, flag in FLAGS.items() if given[name] is not None}
    if arguments.sp:
        flags["sequence-parallel"] = True
    if arguments.precision is not None:
        flags |= {"bf16": arguments.precision == "bf16", "fp16": arguments.precision == "fp16"}
    if arguments.zero is not None:
        flags |= {
            "use-torch-fsdp2": False,
            "use-distributed-optimizer": arguments.zero == 1,
            "use-megatron-fsdp": arguments.zero > 1,
            "data-parallel-sharding-strategy": _STRATEGIES.get(arguments.zero, "no_shard"),
        }
    if arguments.recompute is not None:
        is_block = arguments.recompute == "block"
        flags["recompute-granularity"] = "full" if is_block else arguments.recompute
        flags["recompute-method"] = "block" if is_block else "uniform"
    return flags


def _count_ranks(arguments: Namespace, described: Described, flags: Flags) -> int:
    """Return the world size: as given, else the product of the degrees."""
    if arguments.world_size is not None and arguments.dp is not None:
        raise UsageError("--world-size does not go with --dp: one follows from the other")
    if arguments.world_size is not None:
        return int(arguments.world_size)
    if arguments.dp is None and described.data is None and flags.has("world-size"):
        return flags.get_count("world-size")
    degrees = {name.upper(): flags.find_count(FLAGS[name], 1) for name in ("tp", "pp", "cp")}
    degrees["DP"] = arguments.dp if arguments.dp is not None else described.data or 1
    for name, degree in degrees.items():
        if degree < 1:
            raise UsageError(f"{name} is {degree}; expected a degree of at least 1")
    return math.prod(degrees.values())


def _settle_batch(arguments: Namespace, flags: dict[str, object], world_size: int) -> Flags:
    """Return the flags with a global batch: as given, or of as many micro-batches as asked for or as PP."""
    named = Flags(flags)
    sequences = named.find_count("micro-batch-size", 1)
    if sequences < 1:
        raise UsageError(f"a micro-batch has {sequences} sequences; expected at least 1")
    if arguments.micro_batches is None and (named.has("global-batch-size") or named.has(MICRO_BATCHES)):
        return named
    degrees = [max(1, named.find_count(FLAGS[name], 1)) for name in ("tp", "pp", "cp")]
    data = max(1, world_size // (degrees[0] * degrees[1] * degrees[2]))
    count = arguments.micro_batches if arguments.micro_batches is not None else degrees[1]
    if count < 1:
        raise UsageError(f"--micro-batches {count}: expected at least 1")
    return Flags({**flags, MICRO_BATCHES: None, "global-batch-size": count * data * sequences})
