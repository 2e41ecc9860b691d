"""What is known across nodes, as lines: findings, and each job with its stages."""

from collections.abc import Iterator, Sequence

from ...analyzers.cluster_state import ClusterPicture, JobState, StageLoad
from ...engine.model import Finding, MemoryReading
from ...engine.units import format_bytes
from ..draw.gauge import draw_gauge
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_text, right_text
from ..widgets.device_fields import wrap_words

_INDENT = "  "
_SIZE_CELLS = 10
_RANKS_CELLS = 6
_STAGE_CELLS = 6
PLAN_FROM_CELLS = 56
BAR_FROM_CELLS = 90
"""Widths from which the figures of the plan, and a bar, stand beside each stage."""
_BAR_CELLS = 24
_GAP = "   "


def describe_cluster(
    picture: ClusterPicture, findings: Sequence[Finding], width: int, glyphs: Glyphs
) -> list[Line]:
    """Return everything that is known across nodes.

    Args:
        picture: All nodes at one moment.
        findings: Open findings across nodes, the gravest first.
        width: Cells of room.
        glyphs: Characters to draw with.
    """
    lines = [_describe_all(picture)]
    for finding in findings:
        lines += [[], *_describe_finding(finding, width, glyphs)]
    for job in picture.jobs:
        lines += [[], *_describe_job(job, width, glyphs)]
    if not picture.jobs:
        lines += [[], [Span("No job of two ranks or more reports from these nodes.", "muted")]]
    return lines


def describe_gravest(findings: Sequence[Finding], glyphs: Glyphs) -> Line:
    """Return the gravest finding across nodes in one line, or nothing."""
    if not findings:
        return []
    first = findings[0]
    more = len(findings) - 1
    others = f" · {more} more across nodes" if more else ""
    return [Span(f"{glyphs.risk(first.severity)} {first.title}{others}", first.severity)]


def _describe_all(picture: ClusterPicture) -> Line:
    line = [Span(picture.coverage or f"{picture.total:,} nodes", "medium" if picture.coverage else "strong")]
    if picture.devices_left_out:
        line.append(Span(f"{_GAP}{picture.devices_left_out:,} devices not followed"))
    if picture.balance is not None:
        line.append(Span(f"{_GAP}balance {picture.balance:.2f}"))
    if picture.bottleneck_nodes:
        line.append(Span(f"{_GAP}fullest: {', '.join(picture.bottleneck_nodes)}", "medium"))
    return line


def _describe_finding(finding: Finding, width: int, glyphs: Glyphs) -> Iterator[Line]:
    first, *rest = wrap_words(finding.title, width - len(_INDENT))
    yield [Span(f"{glyphs.risk(finding.severity)} ", finding.severity), Span(first, "strong")]
    yield from ([Span(_INDENT + text, "strong")] for text in rest)
    yield from ([Span(_INDENT + text)] for text in wrap_words(finding.advice, width - len(_INDENT)))


def _describe_job(job: JobState, width: int, glyphs: Glyphs) -> Iterator[Line]:
    for number, text in enumerate(wrap_words(_GAP.join(_list_facts(job)), width)):
        yield [Span(text, "text" if number else "strong")]
    if job.stages:
        scale = max(max(it.peak_bytes, it.planned_bytes or 0) for it in job.stages)
        yield [Span(_lay_out(("stage", "ranks", "peak", "plan", "differs"), width), "muted")]
        yield from (_describe_stage(it, job, scale, width, glyphs) for it in job.stages)


def _list_facts(job: JobState) -> list[str]:
    """Return what is known of a job, in a few words each."""
    facts = [job.label]
    if job.world_size is not None and len(job.ranks) < job.world_size:
        facts.append(f"{len(job.ranks):,} of its ranks are seen")
    if job.balance is not None:
        facts.append(f"balance {job.balance:.2f}")
    if job.stage_skew is not None:
        plan = "" if job.planned_skew is None else f" (planned {job.planned_skew:.2f})"
        facts.append(f"stage skew {job.stage_skew:.2f}{plan}")
    if job.bottleneck_nodes:
        facts.append(f"fullest: {', '.join(job.bottleneck_nodes)}")
    if job.first_diverging is not None:
        facts.append(f"first to diverge: {job.first_diverging.name} ({job.first_diverging.place})")
    return facts


def _describe_stage(stage: StageLoad, job: JobState, scale: int, width: int, glyphs: Glyphs) -> Line:
    planned = stage.planned_bytes
    difference = stage.difference_bytes
    cells = (
        str(stage.stage),
        f"{stage.ranks:,}",
        format_bytes(stage.peak_bytes),
        glyphs.unmeasured if planned is None else format_bytes(planned),
        glyphs.unmeasured if difference is None else _say_signed(difference),
    )
    is_most = stage.stage in job.bottleneck_stages
    role: Role = "medium" if is_most else "text"
    line = [Span(_lay_out(cells, width), role), Span(f"  {glyphs.risk(stage.level)}", stage.level)]
    if width >= BAR_FROM_CELLS:
        bar = draw_gauge(MemoryReading(used_bytes=stage.peak_bytes), scale, _BAR_CELLS, glyphs)
        line += [Span("  "), *bar]
    return [*line, Span(f"  {', '.join(stage.nodes)}", "muted")]


def _say_signed(value: int) -> str:
    return f"{'+' if value >= 0 else '-'}{format_bytes(abs(value))}"


def _lay_out(cells: Sequence[str], width: int) -> str:
    """Return the columns of a stage that fit; those of the plan only where there is room."""
    stage, ranks, *sizes = cells
    shown = sizes if width >= PLAN_FROM_CELLS else sizes[:1]
    return _INDENT + "  ".join(
        (
            fit_text(stage, _STAGE_CELLS, ""),
            right_text(ranks, _RANKS_CELLS, ""),
            *(right_text(it, _SIZE_CELLS, "") for it in shown),
        )
    )
