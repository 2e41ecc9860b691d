"""An estimate as plain text: one line a stage, and what the fullest stage holds when it holds most."""

from collections.abc import Iterator

from ...analyzers.planning.theory.configs.cases import MOST_RANKS
from ...engine.units import format_bytes, format_gib
from ..text_table import count, format_rows, wrap
from .report import FIT_SHARE, EstimateReport, StageReport

_LEAST_SHARE = 0.001
"""Parts smaller than this share of the peak are summed up in one row."""


def describe_estimate(report: EstimateReport, width: int) -> str:
    """Return the text.

    Args:
        report: The estimate.
        width: Cells of a line.
    """
    return "\n".join(_describe(report, width)) + "\n"


def _describe(report: EstimateReport, width: int) -> Iterator[str]:
    yield from wrap(_describe_verdict(report), width)
    yield from wrap(_describe_run(report), width)
    yield from wrap(_describe_changes(report), width) if report.changes is not None else ()
    yield ""
    head = ["stage", "layers", "parameters", "in flight", "between steps GiB", "peak GiB", "at"]
    rows = [head, *(_describe_stage(stage) for stage in report.stages)]
    yield from format_rows(rows, "rrrrrrl", width)
    yield ""
    fullest = report.stages[[stage.stage for stage in report.stages].index(report.fullest_stage)]
    yield f"stage {fullest.stage} at its peak ({fullest.peak_moment}):"
    yield from format_rows(_list_parts(fullest), "lrrl", width)


def _describe_verdict(report: EstimateReport) -> str:
    text = f"{report.run.name}: an estimated peak of {format_bytes(report.peak_bytes)} allocated on a rank"
    if report.calibration is not None:
        runs = count(report.calibration.runs, "run")
        text += f" (calibrated by {report.calibration.source}, {runs}; stages and parts as the theory says)"
    if report.capacity_bytes is None:
        return text + "."
    capacity = format_bytes(report.capacity_bytes)
    if report.does_fit:
        return f"{text}: fits into {capacity}."
    if report.peak_bytes <= report.capacity_bytes:
        return f"{text}: more than {FIT_SHARE:.0%} of {capacity}; too close to be sure."
    return f"{text}: does not fit into {capacity}."


def _describe_changes(report: EstimateReport) -> str:
    if not report.changes:
        return (
            "Nothing that was tried makes it fit: up to three changes of ZeRO stage, recompute, micro-batch, "
            f"TP and PP, on up to {MOST_RANKS} times the ranks."
        )
    ways = [
        f"{' '.join(change.flags)} ({format_bytes(change.peak_bytes)}"
        + (f" on {count(change.world_size, 'rank')})" if change.world_size != report.world_size else ")")
        for change in report.changes
    ]
    return f"By the same estimate it would fit with {', or with '.join(ways)}."


def _describe_run(report: EstimateReport) -> str:
    layout = report.run.layout
    setup = report.run.setup
    degrees = f"TP {layout.tensor} PP {layout.pipeline} DP {layout.data}"
    degrees += f" CP {layout.context}" if layout.context > 1 else ""
    degrees += f" EP {layout.expert}" if layout.expert > 1 else ""
    degrees += f" x {layout.virtual_stages} pieces" if layout.virtual_stages > 1 else ""
    degrees += " with sequence parallelism" if layout.is_sequence_parallel else ""
    batches = "1 micro-batch" if setup.micro_batches == 1 else f"{setup.micro_batches} micro-batches"
    batch = f"{batches} of {setup.micro_batch_size} x {setup.seq_length} tokens"
    return (
        f"{count(report.world_size, 'rank')}, {degrees}; ZeRO {setup.zero_stage}; {batch}; "
        f"recompute {setup.recompute}; {setup.attention} attention; {report.gpu or setup.gpu.upper()}."
    )


def _describe_stage(stage: StageReport) -> list[str]:
    layers = f"{stage.layers[0]}-{stage.layers[-1]}" if stage.layers else "—"
    is_whole = not stage.layers or stage.layers[-1] - stage.layers[0] + 1 == len(stage.layers)
    return [
        str(stage.stage),
        layers if is_whole else f"{len(stage.layers)}",
        f"{stage.parameters:,}",
        str(stage.in_flight),
        format_gib(stage.allocated_bytes, 2),
        format_gib(stage.peak_bytes, 2),
        stage.peak_moment,
    ]


def _list_parts(stage: StageReport) -> list[list[str]]:
    moment = next(moment for moment in stage.moments if moment.name == stage.peak_moment)
    least = _LEAST_SHARE * moment.total_bytes
    large = sorted(
        (part for part in moment.parts if part.size_bytes >= least), key=lambda part: -part.size_bytes
    )
    rest = moment.total_bytes - sum(part.size_bytes for part in large)
    rows = [(part.name, part.size_bytes, part.group) for part in large]
    rows += [("smaller parts", rest, "")] if rest else []
    return [
        [name, format_bytes(size), f"{size / moment.total_bytes:.1%}", group] for name, size, group in rows
    ]
