"""`vramscope plan --measured`: reads what a job needed, and holds the plan of its model against it."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from msgspec.structs import replace

from vramscope.analyzers.planning.feedback import JobMeasurement, MeasuredJob, PlanFeedback, make_feedback
from vramscope.analyzers.planning.graph import ModelGraph
from vramscope.analyzers.planning.partition import GraphAnalyzer
from vramscope.analyzers.planning.partition.result import make_in_flight
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.model import Sample

from .frame.parser_flags import choose_fit_code
from .planning import Request, make_graph, read_request

LIVE = "live"
_NO_STAGES = (
    "no process in it tells its pipeline stage; the probe (`vramscope run`, `vramscope attach`) has it from "
    "Megatron, DeepSpeed or a device mesh"
)


def print_feedback(arguments: Namespace) -> int:
    """Print the plan of a model beside what a job of it needed.

    Raises:
        UsageError: Flags, model, split or numbers do not go together.
        InputFileError: The file cannot be read, or no process in it tells its stage.
        HubUnreachableError: `live`, and no agent runs.
    """
    if arguments.measured is None:
        raise UsageError("--measured-split goes with --measured: give the job that it is of")
    for flag, is_given in (
        ("--cluster", arguments.cluster is not None),
        ("--legacy", arguments.legacy),
        ("--screen", arguments.screen),
        ("--output", arguments.output is not None),
        ("--figure", arguments.figure is not None),
        ("--graph-figure", arguments.graph_figure is not None),
    ):
        if is_given:
            raise UsageError(f"{flag} does not go with --measured: give one of both")
    feedback = compare_with_measured(read_request(arguments), arguments.measured, arguments.measured_split)
    if arguments.json:
        from vramscope.exporters.json_lines import write_line

        write_line(feedback, sys.stdout.buffer)
        return _choose_code(feedback, arguments)
    from vramscope.exporters.plan.partition import describe_feedback

    from .frame.configuration import read_settings
    from .frame.printing import choose_style, emit

    style = choose_style(read_settings(arguments))
    text = describe_feedback(feedback, style.width)
    emit(text, is_ascii=style.is_ascii)
    return _choose_code(feedback, arguments)


def _choose_code(feedback: PlanFeedback, arguments: Namespace) -> int:
    capacity_bytes = feedback.capacity_bytes
    does_fit = None if capacity_bytes is None else feedback.replanned.most_bytes <= capacity_bytes
    return choose_fit_code(arguments, does_fit=does_fit)


def compare_with_measured(request: Request, measured: str, split: str | None) -> PlanFeedback:
    """Return the plan of a model beside what a job of it needed.

    Args:
        request: What to plan; of several numbers of stages the job's counts.
        measured: A recording, a folder of recordings, another file that is played, or `live`.
        split: Transformer blocks of each stage of the job; None for the plan's own split.

    Raises:
        UsageError: Model, split or numbers do not go together.
        InputFileError: The file cannot be read, or no process in it tells its stage.
        HubUnreachableError: `live`, and no agent runs.
    """
    job = _measure(measured)
    if len(request.stages) == 1 and request.stages[0] != job.pipeline:
        raise UsageError(
            f"--stages {request.stages[0]}: the job that was measured has {job.pipeline}; leave it out"
        )
    graph = make_graph(request)
    return make_feedback(
        graph,
        _find_bounds(graph, request, job.pipeline, split),
        make_in_flight(request.states, request.micro_batches),
        job,
        source=measured,
        capacity_bytes=request.device.capacity_bytes,
    )


def _measure(measured: str) -> MeasuredJob:
    measurement = JobMeasurement()
    for sample in _read_live() if measured == LIVE else _read_files(Path(measured)):
        measurement.observe(sample)
    told = measurement.tell()
    if told is None:
        where = "the running jobs" if measured == LIVE else show_path(Path(measured))
        raise InputFileError(f"{where}: {_NO_STAGES}")
    return told


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
    for recording in recordings:  # of several nodes: each calls the job by a name of its own
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
        return _read_split(graph, split, stages)
    analyzer = GraphAnalyzer(graph, micro_batches=request.micro_batches, states=request.states)
    partition = analyzer.partition_graph_balanced(stages, request.metric, request.strategies[0])
    sizes = [len(stage.layer_ids) for stage in partition.partitions]
    return tuple(accumulate(sizes, initial=0))


def _read_split(graph: ModelGraph, split: str, stages: int) -> tuple[int, ...]:
    """Return where stages of so many blocks begin; layers before and behind all blocks join the ends.

    Of a model that has no blocks, as one that was traced, layers count.
    """
    parts = split.split(",")
    if not all(part.strip().isdecimal() and len(part) <= 6 for part in parts):
        raise UsageError(f"--measured-split {split}: expected blocks of each stage, for example 12,12,12,12")
    blocks = [at for at, layer in enumerate(graph.layers) if layer.layer_type == "transformer_block"]
    blocks = blocks or list(range(len(graph.layers)))
    sizes = [int(part) for part in parts]
    if len(sizes) != stages or sum(sizes) != len(blocks) or min(sizes) < 1:
        raise UsageError(
            f"--measured-split {split}: {len(sizes)} stages of {sum(sizes)} blocks; expected {stages} stages "
            f"as the job has, and {len(blocks)} blocks as the model has, one at least in each"
        )
    starts = [blocks[done] for done in accumulate(sizes[:-1])]
    return (0, *starts, len(graph.layers))
