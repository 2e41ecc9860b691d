"""What `vramscope estimate` computes and prints."""

import csv
import io
import math
import pickle
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramscope.analyzers.planning.cluster import DEVICES, DeviceModel, find_device
from vramscope.analyzers.planning.theory import (
    estimate_as_fork,
    estimate_as_published,
    estimate_stage,
    estimate_stages,
)
from vramscope.analyzers.planning.theory.calibration import Calibration
from vramscope.analyzers.planning.theory.configs import Flags, TrainingRun
from vramscope.analyzers.planning.theory.configs.assumptions import name_assumptions
from vramscope.analyzers.planning.theory.configs.cases import read_case
from vramscope.analyzers.planning.theory.configs.document import Described, choose_tokens
from vramscope.analyzers.planning.theory.configs.flags import MICRO_BATCHES, NF4, PURE
from vramscope.analyzers.planning.theory.configs.megatron import build_run
from vramscope.analyzers.planning.theory.shape import GPUS, Gpu, split_layers
from vramscope.engine.errors import InputFileError, Setting, SettingError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.text import make_printable
from vramscope.engine.units import format_bytes
from vramscope.planning.model_graph import describe_model

from .frame.emit import complain, emit_annotations, emit_fitted, emit_json
from .frame.flags import choose_fit_code, pick, refuse
from .frame.progress import ProgressLine
from .frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.analyzers.planning.steps import StepTrace
    from vramscope.engine.files.case_table import CaseTable
    from vramscope.estimates import StepRequest
    from vramscope.exporters.estimates import EstimateReport


# Our flags and those of Megatron-LM that they stand for.
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
    "lora": "adapter-rank",
    "optimizer": "optimizer",
}
_STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
# Stands for compute capability below 9; A100s have two sizes, so it implies no capacity.
AMPERE: Gpu = "a100"
BLACKWELL: Gpu = "b200"
USUAL_GPU: Gpu = "h100"
USUAL_CAPABILITY = 9


class FormulaReport(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of another formula, as one number."""

    schema: str = "vramscope.formula/1"
    theory: str
    run: TrainingRun
    peak_bytes: int


def print_estimate(arguments: Namespace) -> int:
    if arguments.output is not None:
        raise UsageError("--output needs --batch; to keep an estimate, redirect standard output")
    if arguments.theory != "vramscope" and arguments.figure is not None:
        raise UsageError(f"--figure does not go with --theory {arguments.theory}")
    if arguments.theory != "vramscope" and arguments.format == "github":
        raise UsageError(_NO_ANNOTATIONS)
    run = read_run(arguments)
    if arguments.theory != "vramscope":
        formula = compute_formula(arguments, run)
        if arguments.json:
            emit_json(formula)
        else:
            from vramscope.exporters.estimates import describe_formula

            is_published = formula.theory == "megatron"
            named = "Megatron-LM's published formula" if is_published else "the fork's formula"
            total = f"{format_bytes(formula.peak_bytes)} ({formula.peak_bytes / 2**20:,.2f} MiB)"
            result = f"{run.name}: {total} by {named}, first stage."
            emit_fitted(read_settings(arguments), lambda width: describe_formula(result, run, width))
        return 0
    if arguments.figure is not None:
        arguments.figure.check()
    report = make_estimate(arguments, run)
    if arguments.figure is not None:
        from vramscope.exporters.estimates import draw_estimate

        for path in arguments.figure.list_files("estimate"):
            draw_estimate(report, path)
    if arguments.json:
        emit_json(report)
        return choose_fit_code(arguments, does_fit=report.does_fit)
    from vramscope.exporters.estimates import annotate_estimate, describe_estimate

    if arguments.format == "github":
        emit_annotations(annotate_estimate(report))
    else:
        emit_fitted(read_settings(arguments), lambda width: describe_estimate(report, width))
    return choose_fit_code(arguments, does_fit=report.does_fit)


def make_estimate(arguments: Namespace, run: TrainingRun) -> "EstimateReport":
    from vramscope.exporters.estimates import build_estimate

    from .verbs.calibrate import read_calibration

    card = find_card(arguments.gpu)
    capacity_bytes = None if card is None else card.memory_bytes
    if arguments.capacity is not None:
        capacity_bytes = arguments.capacity
    calibration = None if arguments.calibration is None else read_calibration(arguments.calibration)
    stages = estimate_stages(run.shape, run.layout, run.setup)
    report = build_estimate(run, stages, capacity_bytes, calibration)
    return report if card is None else msgspec.structs.replace(report, gpu=card.kind)


def find_card(name: str | None) -> DeviceModel | None:
    """Return the GPU that `--gpu` names; None without it, and for a100, which has two sizes."""
    if name is None or name.strip().lower() == AMPERE:
        return None
    return find_device(name)


def choose_gpu(name: str | None) -> Gpu:
    """Return the GPU whose workspaces and kernels the theory uses: by compute capability."""
    card = find_card(name)
    if card is None:
        return USUAL_GPU if name is None else AMPERE
    known = next((gpu for gpu in GPUS if DEVICES.get(gpu) == card), None)
    if known is not None:
        return known
    major = USUAL_CAPABILITY if card.capability is None else card.capability[0]
    return AMPERE if major < 9 else BLACKWELL if major in (10, 11) else USUAL_GPU


def compute_formula(arguments: Namespace, run: TrainingRun) -> FormulaReport:
    """Return the estimate of the formula that `--theory` names.

    Raises:
        SettingError: Something is asked that only our own theory answers.
    """
    refuse(
        pick(arguments, ("calibration", "capacity")),
        "does not go with ",
        Setting("--theory"),
        f" {arguments.theory}",
    )
    if arguments.theory == "megatron-fork":
        total = round(estimate_as_fork(run.shape, run.layout, run.setup))
    else:
        total = round(estimate_as_published(run.shape, run.layout, run.setup)[1])
    return FormulaReport(theory=arguments.theory, run=run, peak_bytes=total)


def read_run(arguments: Namespace) -> TrainingRun:
    described = describe_model(arguments.model)
    flags = {name: value for name, value in described.flags.items() if value is not None}
    flags |= _translate(arguments)
    # Of a config.json it is the format of the checkpoint, which need not be the one that is trained.
    if arguments.precision is not None and flags.get(CHECKPOINT_FORMAT) is True:
        flags[CHECKPOINT_FORMAT] = None
    given = Flags(flags)
    flags = {**described.defaults, "seq-length": choose_tokens(described), **flags}
    world_size = _count_ranks(arguments, described, Flags(flags))
    run = build_run(
        described.shape,
        _settle_batch(arguments, flags, world_size),
        world_size=world_size,
        gpu=choose_gpu(arguments.gpu),
        name=Path(arguments.model).name,
    )
    if arguments.pieces is not None and arguments.pieces > 1 and run.layout.pipeline == 1:
        raise SettingError(Setting("--pieces"), f" {arguments.pieces} needs ", Setting("--pp"), " above 1")
    if arguments.recompute_layers is not None and run.setup.recompute != "full":
        raise SettingError(
            Setting("--recompute-layers"),
            " needs ",
            Setting("--recompute"),
            " full or block, not ",
            run.setup.recompute,
        )
    _check_recomputed(arguments, run)
    if arguments.etp is not None and run.shape.experts is None:
        raise SettingError(Setting("--etp"), f" is {arguments.etp}, but the model has no experts")
    has_ranks = any(it is not None for it in (arguments.world_size, arguments.dp, described.data))
    run = name_assumptions(
        run, given, has_ranks=has_ranks or given.has("world-size"), has_gpu=arguments.gpu is not None
    )
    if arguments.schedule == "gpipe":
        run = msgspec.structs.replace(run, setup=msgspec.structs.replace(run.setup, is_gpipe=True))
    return run


def _check_recomputed(arguments: Namespace, run: TrainingRun) -> None:
    """Refuse more layers than there are together: the estimate could only count those that there are."""
    if arguments.recompute_layers is None:
        return
    pieces = split_layers(run.shape.layers, run.layout)
    most = max(len(piece) for stage in pieces for piece in stage)
    if arguments.recompute_layers > most:
        where = "a piece of a stage" if len(pieces[0]) > 1 else "a stage" if len(pieces) > 1 else "the model"
        raise SettingError(
            Setting("--recompute-layers"),
            f" {arguments.recompute_layers}: expected at most {most}, the layers of {where}",
        )


def _translate(arguments: Namespace) -> dict[str, object]:
    """Return the given flags as those of Megatron-LM."""
    given = vars(arguments)
    flags: dict[str, object] = {flag: given[name] for name, flag in FLAGS.items() if given[name] is not None}
    if arguments.sp:
        flags["sequence-parallel"] = True
    if arguments.precision is not None:
        flags |= {
            "bf16": arguments.precision in ("bf16", "pure-bf16"),
            "fp16": arguments.precision == "fp16",
            PURE: arguments.precision == "pure-bf16",
        }
    if arguments.quantize is not None:
        if arguments.lora is None:
            raise SettingError(
                Setting("--quantize"),
                " nf4 freezes the weights; give ",
                Setting("--lora"),
                ", the rank of adapters to train",
            )
        flags[NF4] = True
    if arguments.offload is not None:
        flags |= {"optimizer-cpu-offload": True, "optimizer-offload-fraction": 1.0}
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
        raise SettingError(
            Setting("--world-size"),
            " does not go with ",
            Setting("--dp"),
            ": give only one, the other follows from it",
        )
    if arguments.world_size is not None:
        return int(arguments.world_size)
    if arguments.dp is None and described.data is None and flags.has("world-size"):
        return flags.get_count("world-size")
    degrees = {name.upper(): flags.find_count(FLAGS[name], 1) for name in ("tp", "pp", "cp")}
    degrees["DP"] = arguments.dp if arguments.dp is not None else described.data or 1
    for name, degree in degrees.items():
        if degree < 1:
            raise UsageError(f"{name} is {degree}; expected 1 or more")
    return math.prod(degrees.values())


def _settle_batch(arguments: Namespace, flags: dict[str, object], world_size: int) -> Flags:
    """Return the flags with a global batch: as given, or of `--micro-batches`, by default as many as PP."""
    named = Flags(flags)
    sequences = named.find_count("micro-batch-size", 1)
    if sequences < 1:
        raise UsageError(f"a micro-batch has {sequences} sequences; expected 1 or more")
    if arguments.micro_batches is None and (named.has("global-batch-size") or named.has(MICRO_BATCHES)):
        return named
    degrees = [max(1, named.find_count(FLAGS[name], 1)) for name in ("tp", "pp", "cp")]
    data = max(1, world_size // (degrees[0] * degrees[1] * degrees[2]))
    count = arguments.micro_batches if arguments.micro_batches is not None else degrees[1]
    if count < 1:
        raise SettingError(Setting("--micro-batches"), f" {count}: expected 1 or more")
    return Flags({**flags, MICRO_BATCHES: None, "global-batch-size": count * data * sequences})


# Flags that describe a run by its sizes, which `--factory` does not need.
THEORY_FLAGS = (
    *("tp", "pp", "dp", "cp", "ep", "etp", "pieces", "world_size", "micro_batch", "global_batch"),
    *("micro_batches", "recompute_layers", "sp", "zero", "precision", "recompute", "attention", "output"),
    *("figure", "calibration", "lora", "quantize", "offload"),
)
_NO_ANNOTATIONS = "--format github goes with --model or --factory, and their estimate by vramscope alone"
FACTORY_DEFAULTS = {"schedule": "1f1b", "theory": "vramscope"}
_MARK = "vramscope_simulated"
# As a config.json spells it; Megatron-LM's flag of this name has the path of a file.
CHECKPOINT_FORMAT = "quantization_config"


def estimate_factory(arguments: Namespace) -> int:
    from vramscope.estimates import (
        JaxStepError,
        StepRequest,
        estimate_request,
        find_gpu,
        read_allocator_settings,
    )

    _check_flags(arguments)
    gpu, capacity_bytes = (None, None) if arguments.gpu is None else find_gpu(arguments.gpu)
    if arguments.capacity is not None:
        capacity_bytes = arguments.capacity
    request = StepRequest(
        factory=arguments.factory,
        batch_size=arguments.batch_size,
        seq_length=arguments.seq,
        layers=arguments.layers,
        inputs=tuple(arguments.input),
        optimizer=arguments.optimizer or "adamw",
        ranks=arguments.ranks,
        rank=arguments.rank or 0,
        is_full=arguments.full,
        settings=read_allocator_settings(),
        context_bytes=arguments.context,
        gpu=gpu,
    )
    try:
        tracing, estimate = estimate_request(request, capacity_bytes)
    except JaxStepError:
        return _estimate_compiled(arguments, request, capacity_bytes)
    if arguments.snapshot is not None:
        (trace,) = tracing.result.traces
        write_whole(pickle.dumps(describe_peak(trace, request.settings)), arguments.snapshot)
    if arguments.json:
        emit_json(estimate)
    elif arguments.format == "github":
        from vramscope.exporters.estimates import annotate_step

        emit_annotations(annotate_step(estimate))
    else:
        from vramscope.exporters.estimates import describe_step_estimate

        emit_fitted(read_settings(arguments), lambda width: describe_step_estimate(estimate, width))
    check = estimate.capacity
    return choose_fit_code(arguments, does_fit=None if check is None else check.does_fit)


def _estimate_compiled(arguments: Namespace, request: "StepRequest", capacity_bytes: int | None) -> int:
    """Print what a step of JAX needs, by its compiler."""
    from vramscope.estimates import compile_step
    from vramscope.exporters.compiled_estimate import describe_compiled_estimate

    refuse(
        pick(arguments, ("input", "optimizer", "ranks", "rank", "full", "context", "snapshot")),
        "does not go with a step of JAX, which XLA compiles as the factory returns it",
    )
    if arguments.format == "github":
        raise UsageError("--format github does not go with a step of JAX: XLA names no lines")
    estimate = compile_step(request, capacity_bytes)
    if arguments.json:
        emit_json(estimate)
    else:
        emit_fitted(read_settings(arguments), lambda width: describe_compiled_estimate(estimate, width))
    return choose_fit_code(arguments, does_fit=estimate.does_fit)


def _check_flags(arguments: Namespace) -> None:
    changed = [name for name, usual in FACTORY_DEFAULTS.items() if getattr(arguments, name) != usual]
    refuse(
        pick(arguments, (*THEORY_FLAGS, *changed)),
        "does not go with --factory: your own code decides that",
    )
    if arguments.snapshot is not None and arguments.layers and not arguments.full:
        raise UsageError("--snapshot with --layers needs --full: a snapshot contains only traced layers")


def describe_peak(trace: "StepTrace", settings: str) -> dict[str, object]:
    """Return the memory at the peak as a PyTorch snapshot that is marked as estimated."""

    from vramscope.analyzers.allocator_model import AllocatorSettings
    from vramscope.analyzers.planning.steps import StepPeaks, take_snapshot

    snapshot = take_snapshot(trace, AllocatorSettings.parse(settings), StepPeaks(trace).peak.event)
    snapshot["allocator_settings"][_MARK] = {"name": "estimated, no GPU was used"}
    return snapshot


# Columns that are added: bytes, what they assume, flags that are not counted, why a row has no estimate.
PREDICTED = (
    "predicted_allocated_bytes",
    "predicted_peak_bytes",
    "predicted_assumptions",
    "predicted_not_counted",
    "predicted_error",
)


def estimate_batch(arguments: Namespace) -> int:
    """Estimate every row for its last rank, and write the rows with their estimates.

    Returns:
        The exit code: that of bad input where no row could be estimated.
    """

    from vramscope.engine.files.case_table import MODEL_COLUMNS, read_case_table

    from .verbs.calibrate import read_calibration

    if arguments.format == "github":
        raise UsageError(_NO_ANNOTATIONS)
    is_refused = any((arguments.json, arguments.capacity, arguments.figure, arguments.fail_on))
    if is_refused or arguments.theory != "vramscope":
        raise UsageError(
            "--json, --capacity, --fail-on, --figure and --theory do not go with --batch, which writes CSV"
        )
    table = read_case_table(arguments.batch)
    if not MODEL_COLUMNS.intersection(table.columns):
        raise InputFileError(
            f"{show_path(arguments.batch)}: line 1: no column describes a model; expected num_layers, hidden "
            "and others, or arguments with the flags of Megatron-LM"
        )
    calibration = None if arguments.calibration is None else read_calibration(arguments.calibration)
    predictions: list[dict[str, str]] = []
    with ProgressLine("vramscope estimate", "cases estimated") as progress:
        for done, row in enumerate(table.rows):
            progress.show_count(done, len(table.rows))
            predictions.append(predict_case(row, calibration))
    text = render_table(table, predictions)
    refused = sum(bool(row[PREDICTED[-1]]) for row in predictions)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_whole(text.encode(), arguments.output)
    summary = f"estimated {len(predictions) - refused} of {len(predictions)} cases"
    summary += f", calibrated with {calibration.source}" if calibration is not None else ""
    summary += f"; the column {PREDICTED[-1]} says why the others failed" if refused else ""
    complain(summary)
    return UsageError.exit_code if predictions and refused == len(predictions) else 0


def predict_case(row: Mapping[str, str], calibration: Calibration | None = None) -> dict[str, str]:
    """Return the added cells of one row; an impossible row gets a sentence instead of numbers."""
    try:
        run = read_case(row)
        memory = estimate_stage(run.shape, run.layout, run.setup, -1)
    except UsageError as error:
        return dict(zip(PREDICTED, ("", "", "", "", str(error)), strict=True))
    figures = (memory.allocated_bytes, memory.peak_bytes)
    if calibration is not None:
        figures = calibration.shift(*figures)
    not_counted = "; ".join(f"{each.flag} ({each.effect})" for each in run.not_counted)
    cells = (str(figures[0]), str(figures[1]), "; ".join(run.assumptions), not_counted, "")
    return dict(zip(PREDICTED, cells, strict=True))


def render_table(table: "CaseTable", predictions: list[dict[str, str]]) -> str:
    """Return the rows with the added columns as CSV; existing columns of these names are replaced."""
    columns = [name for name in table.columns if name not in PREDICTED] + list(PREDICTED)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(make_printable, columns))
    for row, predicted in zip(table.rows, predictions, strict=True):
        cells = row | predicted
        writer.writerow(make_printable(cells[name]) for name in columns)
    return stream.getvalue()
