"""What `vramscope plan` was asked for, the plan, and its files."""

from argparse import Namespace
from pathlib import Path
from typing import NamedTuple, cast, get_args

from vramscope.analyzers.planning.graph import Figures
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
from vramscope.engine.errors import UsageError
from vramscope.engine.text import suggest
from vramscope.engine.units import parse_bytes
from vramscope.exporters.plan.outputs import take_partition
from vramscope.planning.model_graph import GPTModelGraph, create_gpt_model_graph
from vramscope.planning.tracing import TracedType, trace_model_graph

from .plan_outputs import Outputs, encode_outputs

MOST_STAGES = 4096
MOST_DIGITS = 15
"""Of a number on the command line."""
LEGACY_STRATEGIES: tuple[Strategy, ...] = STRATEGIES[:4]


class Request(NamedTuple):
    """What was asked for."""

    model: str
    stages: tuple[int, ...]
    strategies: tuple[Strategy, ...]
    metric: Metric | None
    """None for what all a stage holds while it trains, or weights where activations are unknown."""
    seq_length: int | None
    micro_batch: int
    micro_batches: int
    states: str
    device: Device
    is_legacy: bool
    traced: "TracedRequest | None" = None


class TracedRequest(NamedTuple):
    """A model that a function of the user makes."""

    factory: str
    inputs: tuple[str, ...]
    data_type: TracedType | None


class Planned(NamedTuple):
    """A plan, the graph that it is of, and what was asked for."""

    graph: GPTModelGraph
    plan: Plan
    request: Request


def read_request(arguments: Namespace) -> Request:
    """Return what the flags ask for.

    Raises:
        UsageError: A value cannot be used.
    """
    if arguments.legacy and arguments.capacity is not None:
        raise UsageError(
            "--capacity does not go with --legacy, whose choice knows no capacity: give one of both"
        )
    default = "all" if arguments.legacy else "exact"
    metric = "memory" if arguments.legacy and arguments.metric is None else arguments.metric
    capacity = arguments.capacity
    return Request(
        model=arguments.model or "",
        stages=_read_stages(arguments.stages),
        strategies=_read_strategies(arguments.strategy or default, is_legacy=arguments.legacy),
        metric=None if metric is None else cast("Metric", _read_name("--metric", metric, METRICS)),
        seq_length=None if arguments.seq is None else _read_count("--seq", arguments.seq),
        micro_batch=_read_count("--micro-batch", arguments.micro_batch),
        micro_batches=_read_count("--micro-batches", arguments.micro_batches),
        states=_read_name("--states", arguments.states, ("mixed-adam", "fp32-adam")),
        device=Device(
            flops_per_s=1e12 * _read_positive("--tflops", arguments.tflops),
            link_bytes_per_s=1e9 * _read_positive("--link", arguments.link),
            capacity_bytes=None if capacity is None else parse_bytes(capacity),
        ),
        is_legacy=arguments.legacy,
        traced=_read_traced(arguments),
    )


def plan_model(request: Request) -> Planned:
    """Return the plan of the model.

    Raises:
        UsageError: The model is unknown, or nothing can be done with it.
        InputFileError: Its file cannot be read or understood.
    """
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
    return Planned(graph, plan, request)


def make_graph(request: Request) -> GPTModelGraph:
    """Return the graph of the model that was asked for, traced where a factory makes it.

    Raises:
        UsageError: The model is unknown, or nothing can be done with it.
        InputFileError: Its file cannot be read or understood.
    """
    if request.traced is not None:
        factory, inputs, data_type = request.traced
        return trace_model_graph(factory, *inputs, dtype=data_type)
    figures: Figures = "legacy" if request.is_legacy else "counted"
    return create_gpt_model_graph(
        request.model, seq_length=request.seq_length, micro_batch=request.micro_batch, figures=figures
    )


def write_plan(planned: Planned, folder: Path) -> list[Path]:
    """Write the graph, the best partition, its configurations and the report into a folder; return the files.

    Raises:
        OutputFileError: The folder or a file cannot be written.
    """
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
    """Return what frameworks can be told of the plan; with --legacy nothing: its files are the original's."""
    if planned.request.is_legacy:
        return Outputs({}, [])
    request = planned.request
    best = planned.plan.recommended
    return encode_outputs(take_partition(planned.graph, best, request.micro_batch, request.micro_batches))


def _read_traced(arguments: Namespace) -> TracedRequest | None:
    """Return the factory that is to be traced; None where a model is named.

    Raises:
        UsageError: Neither is given, or both, or a flag of the one with the other.
    """
    inputs = tuple(arguments.input or ())
    if arguments.factory is None:
        if arguments.model is None:
            raise UsageError("no model: give --model NAME|FILE, or --factory MODULE:FUNCTION with --input")
        if inputs or arguments.dtype is not None:
            raise UsageError("--input and --dtype go with --factory: give that, or leave them out")
        return None
    if arguments.model is not None or arguments.legacy:
        raise UsageError("--factory goes with neither --model nor --legacy: give one of them")
    if arguments.seq is not None or arguments.micro_batch != "1":
        raise UsageError("--factory takes sizes from --input SHAPE: leave out --seq and --micro-batch")
    if not inputs:
        raise UsageError("--factory needs --input SHAPE[:TYPE] for its forward pass, as 4x1024:int64")
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
                f"--stages {text}: {part.strip()!r} is no number; expected for example 2,4,6,8 or 2-8"
            )
        is_short = len(part) <= MOST_DIGITS
        low, high = (int(first), int(last or first)) if is_short else (0, 0)
        if not 1 <= low <= high <= MOST_STAGES:
            raise UsageError(f"--stages {text}: expected 1 to {MOST_STAGES:,}, the smaller number first")
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


def _read_count(flag: str, text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise UsageError(f"{flag} {text[:40]}: expected a whole number of at least 1 and a few digits")
    return int(text)


def _read_positive(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise UsageError(f"{flag} {text}: expected a number above 0 and below 1,000,000,000")
    return number
