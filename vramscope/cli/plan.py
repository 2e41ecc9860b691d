"""What `vramscope plan` computes: by stages, on a cluster, or next to a measured job; and its files."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import msgspec
from msgspec.structs import replace

from vramscope.analyzers.planning.graph import STATE_BYTES, Batch, Figures, ModelGraph
from vramscope.analyzers.planning.partition import (
    METRICS,
    STRATEGIES,
    Device,
    GraphAnalyzer,
    Metric,
    Plan,
    Rule,
    Strategy,
    make_plan,
)
from vramscope.analyzers.planning.theory import BF16, FP32_SHARDED, TrainingSetup
from vramscope.analyzers.planning.theory.configs.assumptions import list_setup_assumptions
from vramscope.analyzers.planning.theory.configs.audit import NOT_COUNTED, NOT_IN_STAGES, list_not_counted
from vramscope.analyzers.planning.theory.configs.flags import (
    MICRO_BATCHES,
    PLAIN_TRAINING,
    PURE,
    STATES_DROPOUT,
    Flags,
)
from vramscope.analyzers.sentence import count
from vramscope.engine.errors import InputFileError, NothingFitsError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.model import Sample
from vramscope.engine.text import suggest
from vramscope.exporters.plan.outputs import ENCODERS, PipelineSplit, take_partition
from vramscope.planning.model_graph import (
    GPTModelGraph,
    TracedType,
    create_gpt_model_graph,
    find_flags,
    trace_model_graph,
)

from .frame.emit import complain, emit_fitted, emit_json
from .frame.flags import FigureTarget, choose_fit_code, pick, refuse
from .frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.analyzers.planning.feedback import MeasuredJob, PlanFeedback
    from vramscope.analyzers.planning.joint import JointPlan

MOST_STAGES = 4096
# In a number on the command line.
MOST_DIGITS = 15
LEGACY_STRATEGIES: tuple[Strategy, ...] = STRATEGIES[:4]
USUAL_MICRO_BATCHES = 8
USUAL_STATES = "mixed-adam"


class Request(NamedTuple):
    model: str
    stages: tuple[int, ...]
    strategies: tuple[Strategy, ...]
    # None for all memory of a stage in training, or its weights where activations are unknown.
    metric: Metric | None
    seq_length: int | None
    micro_batch: int
    micro_batches: int
    states: str
    device: Device
    is_legacy: bool
    traced: "TracedRequest | None" = None
    # Flags that the model's file says, by the names of `Flags`.
    described: Mapping[str, object] = {}
    # Our flags that were given, of those in `_SAYS`.
    given: frozenset[str] = frozenset()


class TracedRequest(NamedTuple):
    factory: str
    inputs: tuple[str, ...]
    data_type: TracedType | None


class Planned(NamedTuple):
    graph: GPTModelGraph
    plan: Plan
    request: Request


class Outputs(NamedTuple):
    # By name of the file.
    contents: dict[str, bytes]
    # A sentence for each framework that cannot express the split, with the reason.
    left_out: list[str]


def encode_outputs(split: PipelineSplit) -> Outputs:
    """Return a file for each framework that can express a split."""
    outputs = Outputs({}, [])
    for name, encode in ENCODERS.items():
        try:
            outputs.contents[name] = encode(split)
        except UsageError as error:
            outputs.left_out.append(f"{name} is not written: {error}")
    return outputs


# Our flags with a default, and what they say by the names of `Flags`, where it has one.
_SAYS = {
    "seq": "seq-length",
    "micro_batch": "micro-batch-size",
    "micro_batches": MICRO_BATCHES,
    "states": PURE,
    "tflops": None,
    "link": None,
}


def read_request(arguments: Namespace) -> Request:
    if arguments.legacy and arguments.capacity is not None:
        raise UsageError("--capacity does not go with --legacy, which ignores the capacity: give only one")
    default = "all" if arguments.legacy else "exact"
    metric = "memory" if arguments.legacy and arguments.metric is None else arguments.metric
    traced = _read_traced(arguments)
    described = {} if traced is not None else find_flags(arguments.model)
    given = {name: value for name in _SAYS if (value := getattr(arguments, name)) is not None}
    named = Flags(described | {flag: given[name] for name, flag in _SAYS.items() if flag and name in given})
    device = Device(capacity_bytes=arguments.capacity)
    if arguments.tflops is not None:
        device = device._replace(flops_per_s=1e12 * arguments.tflops)
    if arguments.link is not None:
        device = device._replace(link_bytes_per_s=1e9 * arguments.link)
    return Request(
        model=arguments.model or "",
        stages=_read_stages(arguments.stages),
        strategies=_read_strategies(arguments.strategy or default, is_legacy=arguments.legacy),
        metric=None if metric is None else cast("Metric", _read_name("--metric", metric, METRICS)),
        seq_length=named.get_count("seq-length") if named.has("seq-length") else None,
        micro_batch=named.find_count("micro-batch-size", 1),
        micro_batches=named.find_count(MICRO_BATCHES, USUAL_MICRO_BATCHES),
        states=_read_name("--states", arguments.states or USUAL_STATES, ("mixed-adam", "fp32-adam")),
        device=device,
        is_legacy=arguments.legacy,
        traced=traced,
        described=described,
        given=frozenset(given),
    )


def plan_model(request: Request) -> Planned:
    graph = make_graph(request)
    analyzer = GraphAnalyzer(graph, micro_batches=request.micro_batches, states=request.states)
    request = request._replace(metric=request.metric or analyzer.usual_metric)
    rule: Rule = "legacy" if request.is_legacy else "device-time"
    plan = make_plan(
        analyzer,
        request.stages,
        request.strategies,
        metric=request.metric,
        device=request.device,
        rule=rule,
    )
    times = [] if request.is_legacy else list(_list_assumed_times(request))
    plan = replace(plan, assumed=(*list_assumed(request, graph), *times))
    if not request.is_legacy:
        rules = (*NOT_COUNTED, *NOT_IN_STAGES)
        plan = replace(plan, not_counted=list_not_counted(Flags(request.described), rules))
    return Planned(graph, plan, request)


def list_assumed(request: Request, graph: GPTModelGraph) -> Iterator[str]:
    """Yield what the memory of stages is based on that neither flags nor the model's file say."""
    yield f"{count(1, 'rank')} in each stage"
    # How many micro-batches a global batch has depends on data ranks, which are not planned here.
    flags: dict[str, object] = {**request.described, "global-batch-size": None, "bf16": True}
    # Not among the layers of a plan: named as not counted.
    flags["mtp-num-layers"] = None
    flags |= {flag: True for name, flag in _SAYS.items() if flag is not None and name in request.given}
    has_training = all(layer.activation_bytes is not None for layer in graph.layers)
    has_sizes = graph.has_dropout is not None
    said = Flags(request.described)
    if not said.is_on(PLAIN_TRAINING):
        # Arguments of Megatron-LM may say what a plan otherwise assumes.
        flags[STATES_DROPOUT] = said.has("hidden-dropout")
        if said.is_on("bf16"):
            flags[PURE] = True
    flags[PLAIN_TRAINING] = has_training and has_sizes
    if not has_training or not has_sizes:
        flags["attention-backend"] = "unknown, or that of a traced or saved layer"
    if not has_sizes:
        flags |= dict.fromkeys(("seq-length", "micro-batch-size"), "those of traced or saved layers")
    batch = graph.batch or Batch(1, 1)
    setup = TrainingSetup(
        seq_length=batch.sequence,
        micro_batch_size=batch.sequences,
        micro_batches=request.micro_batches,
        numbers=BF16 if STATE_BYTES[request.states].weights == 2 else FP32_SHARDED,
        has_hidden_dropout=graph.has_dropout is True,
    )
    yield from list_setup_assumptions(setup, Flags(flags))
    if has_training and "states" not in request.given:
        yield f"{STATE_BYTES[request.states].total} bytes a parameter ({request.states})"


def _list_assumed_times(request: Request) -> Iterator[str]:
    if "tflops" not in request.given:
        yield f"devices of {request.device.flops_per_s / 1e12:,.0f} TFLOP/s"
    if "link" not in request.given:
        yield f"links of {request.device.link_bytes_per_s / 1e9:,.0f} GB/s"


def make_graph(request: Request) -> GPTModelGraph:
    """Return the graph of the wanted model, traced where a factory makes it."""
    if request.traced is not None:
        factory, inputs, data_type = request.traced
        return trace_model_graph(factory, *inputs, dtype=data_type)
    figures: Figures = "legacy" if request.is_legacy else "counted"
    return create_gpt_model_graph(
        request.model, seq_length=request.seq_length, micro_batch=request.micro_batch, figures=figures
    )


def write_plan(planned: Planned, folder: Path) -> list[Path]:
    """Write the graph, the best partition, its configurations and the report; return the files."""
    from vramscope.engine.files.base.output_file import write_files
    from vramscope.exporters.plan.partition import (
        describe_strategies,
        encode_graph,
        encode_partition,
        encode_pipeline_config,
    )

    graph = planned.graph
    plan = planned.plan
    best = plan.recommended
    contents = {
        f"{graph.name.replace('-', '_')}_model_graph.json": encode_graph(graph),
        "best_partition_strategy.json": encode_partition(best),
        "pipeline_parallel_config.json": encode_pipeline_config(graph.name, best),
        "pipeline_strategy_report.txt": describe_strategies(plan).encode(),
        **encode_planned(planned).contents,
    }
    return write_files(contents, folder)


def encode_planned(planned: Planned) -> Outputs:
    """Return the files for frameworks; none with `--legacy`, which writes only those of the original."""
    if planned.request.is_legacy:
        return Outputs({}, [])
    request = planned.request
    best = planned.plan.recommended
    return encode_outputs(take_partition(planned.graph, best, request.micro_batch, request.micro_batches))


def _read_traced(arguments: Namespace) -> TracedRequest | None:
    """Return the factory to trace; None where a model is named."""
    inputs = tuple(arguments.input or ())
    if arguments.factory is None:
        if arguments.model is None:
            raise UsageError("no model: give --model NAME|FILE, or --factory MODULE:FUNCTION with --input")
        if inputs or arguments.dtype is not None:
            raise UsageError("--input and --dtype need --factory MODULE:FUNCTION")
        return None
    if arguments.model is not None or arguments.legacy:
        raise UsageError("--factory does not go with --model or --legacy: give only one of them")
    if arguments.seq is not None or arguments.micro_batch is not None:
        raise UsageError("--factory does not go with --seq or --micro-batch: --input SHAPE has these sizes")
    if not inputs:
        raise UsageError(
            "--factory needs --input SHAPE[:TYPE] for the forward pass, for example 4x1024:int64"
        )
    kind = arguments.dtype
    known = get_args(TracedType)
    chosen = None if kind is None else cast("TracedType", _read_name("--dtype", kind, known))
    return TracedRequest(arguments.factory, inputs, chosen)


def _read_stages(text: str) -> tuple[int, ...]:
    numbers: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise UsageError(
                f"--stages {text}: {part.strip()!r} is not a number; expected for example 2,4,6,8 or 2-8"
            )
        is_short = len(part) <= MOST_DIGITS
        low, high = (int(first), int(last or first)) if is_short else (0, 0)
        if not 1 <= low <= high <= MOST_STAGES:
            raise UsageError(f"--stages {text}: expected 1 to {MOST_STAGES:,}, with the smaller number first")
        numbers |= dict.fromkeys(range(low, high + 1))
    return tuple(numbers)


def _read_strategies(text: str, *, is_legacy: bool) -> tuple[Strategy, ...]:
    known = LEGACY_STRATEGIES if is_legacy else STRATEGIES
    if text == "all":
        return known
    names = [_read_name("--strategy", name.strip(), known) for name in text.split(",")]
    return tuple(dict.fromkeys(cast("list[Strategy]", names)))


def _read_name(flag: str, name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        hint = suggest(name, known, f"expected {', '.join(known)}")
        raise UsageError(f"{flag} {name}: {hint}")
    return name


def check_figures(arguments: Namespace) -> None:
    """Check before any computing that the figures can be written; make a missing folder."""
    for target in (arguments.figure, arguments.graph_figure):
        if target is not None:
            target.check()


def draw_figures(planned: Planned, arguments: Namespace) -> list[Path]:
    figure: FigureTarget | None = arguments.figure
    graph: FigureTarget | None = arguments.graph_figure
    paths: list[Path] = []
    if figure is not None:
        paths += _draw_stages(planned, figure)
    if graph is not None:
        paths += _draw_graph(planned, graph)
    elif figure is not None and figure.is_folder:
        try:
            paths += _draw_graph(planned, figure)
        except UsageError as error:
            complain(f"the graph is not drawn: {error}", program="vramscope plan")
    return paths


def _draw_stages(planned: Planned, target: FigureTarget) -> Iterator[Path]:
    from vramscope.exporters.figures.page import save_figure
    from vramscope.exporters.plan.figure import draw_stages

    request = planned.request
    analyzer = GraphAnalyzer(planned.graph, micro_batches=request.micro_batches, states=request.states)
    page = draw_stages(planned.plan, analyzer)
    for path in target.list_files("stages"):
        save_figure(page, path)
        yield path


def _draw_graph(planned: Planned, target: FigureTarget) -> Iterator[Path]:
    from vramscope.exporters.figures.page import save_figure
    from vramscope.exporters.plan.figure import draw_graph

    page = draw_graph(planned.graph)
    for path in target.list_files("graph"):
        save_figure(page, path)
        yield path


LIVE = "live"
_NO_STAGES = (
    "no process reports its pipeline stage; the probe (`vramscope run`, `vramscope attach`) gets it from "
    "Megatron, DeepSpeed or a device mesh"
)


def print_feedback(arguments: Namespace) -> int:
    if arguments.measured is None:
        raise UsageError("--measured-split needs --measured FILE, the recording of that job")
    refuse(
        pick(arguments, ("cluster", "legacy", "screen", "output", "figure", "graph_figure")),
        "does not go with --measured: give only one",
    )
    feedback = compare_with_measured(read_request(arguments), arguments.measured, arguments.measured_split)
    if arguments.json:
        emit_json(feedback)
        return _choose_code(feedback, arguments)
    from vramscope.exporters.plan.partition import describe_feedback

    from .frame.settings import read_settings

    emit_fitted(read_settings(arguments), lambda width: describe_feedback(feedback, width))
    return _choose_code(feedback, arguments)


def _choose_code(feedback: "PlanFeedback", arguments: Namespace) -> int:
    capacity_bytes = feedback.capacity_bytes
    does_fit = None if capacity_bytes is None else feedback.replanned.most_bytes <= capacity_bytes
    return choose_fit_code(arguments, does_fit=does_fit)


def compare_with_measured(request: Request, measured: str, split: str | None) -> "PlanFeedback":
    """Return the plan of a model next to the measured memory of a job.

    Args:
        request: What to plan; of several numbers of stages, that of the job counts.
        measured: A recording, a folder of them, or `live`.
        split: Transformer blocks on each stage of the job; None for the plan's own split.
    """

    from vramscope.analyzers.planning.feedback import make_feedback
    from vramscope.analyzers.planning.partition.result import make_in_flight

    job = _measure(measured)
    if len(request.stages) == 1 and request.stages[0] != job.pipeline:
        raise UsageError(
            f"--stages {request.stages[0]}: the measured job has {job.pipeline} stages; leave out --stages"
        )
    graph = make_graph(request)
    return make_feedback(
        graph,
        _find_bounds(graph, request, job.pipeline, split),
        make_in_flight(request.states, request.micro_batches),
        job,
        source=measured,
        capacity_bytes=request.device.capacity_bytes,
        assumed=tuple(list_assumed(request, graph)),
    )


def _measure(measured: str) -> "MeasuredJob":
    from vramscope.analyzers.planning.feedback import JobMeasurement

    measurement = JobMeasurement()
    for sample in _read_live() if measured == LIVE else _read_files(Path(measured)):
        measurement.observe(sample)
    job = measurement.tell()
    if job is None:
        where = "the running jobs" if measured == LIVE else show_path(Path(measured))
        raise InputFileError(f"{where}: {_NO_STAGES}")
    return job


def _read_live() -> Iterator[Sample]:
    """Yield what the agent remembers, and its newest sample."""
    from vramscope.engine.viewer.client import connect

    client = connect()
    try:
        yield from client.history.samples()
        newest = client.snapshot(timeout_s=0.0).sample
        yield from [] if newest is None else [newest]
    finally:
        client.close()


def _read_files(path: Path) -> Iterator[Sample]:
    recordings = sorted(path.glob("*.vscope")) if path.is_dir() else []
    if not recordings:
        yield from _read_file(path)
    for recording in recordings:  # of several nodes, each with its own name for the job
        for sample in _read_file(recording):
            yield replace(sample, ranks=tuple(replace(rank, job=None) for rank in sample.ranks))


def _read_file(path: Path) -> Iterable[Sample]:
    from vramscope.engine.sampling.series_source import open_series

    source = open_series(path)
    try:
        yield from source.samples()
    finally:
        source.close()


def _find_bounds(graph: ModelGraph, request: Request, stages: int, split: str | None) -> tuple[int, ...]:
    """Return the first layer of each stage, and the number of layers."""
    if split is not None:
        return _read_measured_split(graph, split, stages)
    analyzer = GraphAnalyzer(graph, micro_batches=request.micro_batches, states=request.states)
    partition = analyzer.partition_graph_balanced(stages, request.metric, request.strategies[0])
    sizes = [len(stage.layer_ids) for stage in partition.partitions]
    return tuple(accumulate(sizes, initial=0))


def _read_measured_split(graph: ModelGraph, split: str, stages: int) -> tuple[int, ...]:
    """Return where stages of so many blocks begin; layers before and after all blocks join the ends.

    In a model without blocks, such as a traced one, layers count as blocks.
    """
    parts = split.split(",")
    if not all(part.strip().isdecimal() and len(part) <= 6 for part in parts):
        raise UsageError(
            f"--measured-split {split}: expected the blocks on each stage, for example 12,12,12,12"
        )
    blocks = [at for at, layer in enumerate(graph.layers) if layer.layer_type == "transformer_block"]
    blocks = blocks or list(range(len(graph.layers)))
    sizes = [int(part) for part in parts]
    if len(sizes) != stages or sum(sizes) != len(blocks) or min(sizes) < 1:
        raise UsageError(
            f"--measured-split {split}: {len(sizes)} stages with {sum(sizes)} blocks; the job has {stages} "
            f"stages and the model {len(blocks)} blocks, at least one on each stage"
        )
    starts = [blocks[done] for done in accumulate(sizes[:-1])]
    return (0, *starts, len(graph.layers))


# Flags of plans by stages, which `--cluster` does not have, and their defaults.
OF_STAGES = {
    "stages": "2-8",
    "strategy": None,
    "metric": None,
    "micro_batch": None,
    "micro_batches": None,
    "states": None,
    "tflops": None,
    "link": None,
    "capacity": None,
    "legacy": False,
    "factory": None,
    "input": None,
    "dtype": None,
    "figure": None,
    "graph_figure": None,
    "measured": None,
    "measured_split": None,
}
_OF_SCREEN = "whose plans are drawn with --screen: there, E writes the picture"
_OF_MODULE = "which needs the sizes of a model: give --model NAME|FILE"
# Why these flags do not go with `--cluster`, and what to do.
WHY_NOT = {
    "figure": _OF_SCREEN,
    "graph_figure": "which splits no graph: leave out --cluster to draw it",
    "factory": _OF_MODULE,
    "input": _OF_MODULE,
    "dtype": _OF_MODULE,
}


def plan_jointly_and_print(arguments: Namespace) -> int:
    from vramscope.exporters.plan.joint import report_joint_plan

    try:
        plan = make_joint_plan(arguments)
    except NothingFitsError as error:
        return say_nothing_fits(error, arguments)
    if arguments.output is not None:
        for line in write_outputs(plan, arguments.output):
            complain(line, program="vramscope plan")
    report = report_joint_plan(plan)
    if arguments.json:
        emit_json(report)
        return 0
    from vramscope.exporters.plan.joint import describe_joint_plan

    emit_fitted(read_settings(arguments), lambda width: describe_joint_plan(report, width))
    return 0


class NothingFitsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope plan --cluster --json` prints where nothing fits."""

    schema: str = "vramscope.nothing_fits/1"
    fits: bool = False
    # What would fit.
    reason: str
    # What was assumed, since neither flags nor files say it.
    assumed: tuple[str, ...]


def say_nothing_fits(error: NothingFitsError, arguments: Namespace) -> int:
    if arguments.json:
        emit_json(NothingFitsReport(reason=str(error), assumed=error.assumed))
    else:
        from vramscope.exporters.text import describe_assumptions, wrap

        sentences = (f"Nothing fits: {error}", describe_assumptions(error.assumed))
        emit_fitted(
            read_settings(arguments),
            lambda width: "".join(f"{line}\n" for each in sentences for line in wrap(each, width)),
        )
    if arguments.output is not None:
        print("vramscope plan: no file was written, because nothing fits", file=sys.stderr)
    return choose_fit_code(arguments, does_fit=False)


def make_joint_plan(arguments: Namespace) -> "JointPlan":
    from vramscope.planning.joint import plan_cluster

    _check(arguments)
    options: dict[str, Any] = {
        "seq_length": arguments.seq,
        "max_tensor": arguments.max_tp,
        "max_micro_batch": arguments.max_micro_batch,
        "context": arguments.cp,
        "zero_stages": arguments.zero,
        "recomputes": arguments.recompute,
        "memory_share": arguments.memory_share,
        "top": arguments.top,
        "efficiency": arguments.efficiency,
        "measured_times": arguments.calibrate_time,
    }
    return plan_cluster(
        arguments.model,
        arguments.cluster,
        global_batch=arguments.global_batch,
        **{name: value for name, value in options.items() if value is not None},
    )


def write_outputs(plan: "JointPlan", folder: Path) -> list[str]:
    """Write the fastest configuration as files for training frameworks; return a line about each."""
    from vramscope.engine.files.base.output_file import write_files
    from vramscope.exporters.plan.outputs import take_configuration

    outputs = encode_outputs(take_configuration(plan.configurations[0]))
    written = write_files(outputs.contents, folder)
    return [*(f"wrote {path}" for path in written), *outputs.left_out]


def _check(arguments: Namespace) -> None:
    given = [name for name, usual in OF_STAGES.items() if getattr(arguments, name, usual) != usual]
    if given:
        flag = given[0].replace("_", "-")
        why = WHY_NOT.get(given[0], "which decides that itself: leave one out")
        raise UsageError(f"--{flag} does not go with --cluster, {why}")
    if arguments.model is None:
        raise UsageError("no model: give --model NAME|FILE for the --cluster")
    if arguments.global_batch is None:
        raise UsageError(
            "--cluster needs --global-batch, the sequences in a step over all ranks, for example 1024"
        )
