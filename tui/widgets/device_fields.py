"""The facts of a device as pieces of a line; every density is put together from these."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from ...analyzers.finding_words import LeakWords
from ...analyzers.findings.driver_tools import NVIDIA, find_tools
from ...analyzers.findings.subjects import drop_name, name_device
from ...analyzers.gap import MemoryGap, PartKind
from ...analyzers.serving.load import describe_server
from ...engine.model import ThrottleReason
from ...engine.units import GIB, MIB, format_age
from ..draw.bars import draw_gauge, draw_split_gauge
from ..draw.glyphs import Glyphs
from ..draw.numbers import (
    age_text,
    brief_span_text,
    celsius_text,
    count_text,
    duration_text,
    gib_text,
    moment_text,
    percent_text,
    watts_text,
)
from ..draw.spans import Line, Role, Span, fit_text, line_width
from .device_view import DeviceView, SharedWidths, explain_state, find_limit, rank_role, rank_text
from .replay_words import comparison_fact

# Below so much device use parts are shown in MiB.
SMALL_BYTES = 4 * GIB
# What the allocators hold beyond live tensors.
CACHED: frozenset[PartKind] = frozenset({"awaiting_free", "stranded", "cached"})
SHORT_NAMES: dict[PartKind, str] = {
    "weights": "weights",
    "kv_used": "KV used",
    "kv_cached": "KV free",
    "kv_free": "KV free",
    "graphs": "graphs",
    "workspace": "workspace",
    "allocated": "alloc",
    "awaiting_free": "cache",
    "stranded": "cache",
    "cached": "cache",
    "context": "context",
    "other_processes": "other",
    "unattributed": "unnamed",
}


def rank_facts(view: DeviceView, widths: SharedWidths, glyphs: Glyphs, *, has_gap: bool = True) -> list[Line]:
    """Return the facts from the probes of a device's training processes; `has_gap`: with what fills it."""
    found = [[Span(text, "medium")] for text in map(explain_state, view.ranks) if text]
    gap = gap_facts(view.gap, widths, glyphs) if view.gap is not None and has_gap else []
    return [*found, *trouble_facts(view), *gap[:1], *step_facts(view, glyphs), *gap[1:]]


def gap_facts(gap: MemoryGap, widths: SharedWidths, glyphs: Glyphs) -> list[Line]:
    """Return what fills the device in one line, and how much of the cache is stranded."""
    is_small = (gap.used_bytes or 0) < SMALL_BYTES
    parts: list[Line] = []
    for name, size_bytes in _shorten(gap):
        figure = _figure(size_bytes, glyphs, is_small=is_small).rjust(0 if parts else widths.figures)
        parts.append([Span(f"{name} ", "muted"), Span(figure)])
    unit = [Span(" MiB", "muted")] if is_small else []
    found: list[Line] = [[span for part in _space(parts) for span in part] + unit] if parts else []
    stranded = gap.size_of("stranded")
    if stranded:
        held, cached = (_figure(size, glyphs, is_small=is_small) for size in (stranded, _cached(gap)))
        found.append([Span(f"stranded {held} of {cached} cached", "muted")])
    return found


def _figure(size_bytes: int, glyphs: Glyphs, *, is_small: bool) -> str:
    """Return GiB with one place, or whole MiB where little is used."""
    return f"{size_bytes / MIB:,.0f}" if is_small else gib_text(size_bytes, glyphs)


def _space(parts: Sequence[Line]) -> Iterator[Line]:
    for number, part in enumerate(parts):
        yield [Span("  "), *part] if number else part


def _cached(gap: MemoryGap) -> int:
    return sum(part.size_bytes for part in gap.parts if CACHED.issuperset(part.kinds))


def _shorten(gap: MemoryGap) -> Iterator[tuple[str, int]]:
    """Yield the parts in short words: the cache as one, the unattributed only where there is any."""
    cached = _cached(gap)
    has_cache = False
    for part in gap.parts:
        if CACHED.issuperset(part.kinds):
            if not has_cache:
                yield "cache", cached
            has_cache = True
        elif part.size_bytes or part.kinds == ("allocated",):
            kinds = [kind for kind in part.kinds if kind != "unattributed" or len(part.kinds) == 1]
            yield "+".join(dict.fromkeys(SHORT_NAMES[kind] for kind in kinds)), part.size_bytes


def allocator_facts(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> list[Line]:
    allocator = view.device.allocator
    if allocator is None:
        return []
    role: Role = "text" if view.is_fresh else "muted"
    allocated = allocator.allocated_bytes
    reserved = allocator.reserved_bytes
    found: list[Line] = [
        [Span("alloc ", "muted"), Span(gib_text(allocated, glyphs).rjust(widths.figures), role)]
    ]
    if reserved is not None:
        cached = None if allocated is None else max(0, reserved - allocated)
        found[0] += [Span("  cached ", "muted"), Span(gib_text(cached, glyphs).rjust(widths.figures), role)]
    return found


def trouble_facts(view: DeviceView) -> list[Line]:
    """Return how often the device refused memory and how often it ran out, if ever."""
    allocators = [rank.allocator for rank in view.ranks if rank.allocator is not None]
    retries = sum(allocator.retries or 0 for allocator in allocators)
    ooms = sum(allocator.ooms or 0 for allocator in allocators)
    found: list[Line] = []
    if ooms:
        found.append([Span(count_text(ooms, "OOM", "OOMs"), "critical")])
    if retries:
        found.append([Span(count_text(retries, "retry", "retries"), "medium")])
    return found


def step_facts(view: DeviceView, glyphs: Glyphs) -> list[Line]:
    """Return the newest step that ended and its duration; for several processes range and slowest."""
    steps = [rank.step for rank in view.ranks if rank.step is not None]
    if not steps:
        return []
    first = min(step.index for step in steps)
    last = max(step.index for step in steps)
    durations = [step.duration_s for step in steps if step.duration_s is not None]
    number = f"{last:,}" if first == last else f"{first:,}–{last:,}"
    duration = duration_text(max(durations, default=None), glyphs)
    role: Role = "text" if all(rank.state == "ok" for rank in view.ranks) else "muted"
    return [[Span("step ", "muted"), Span(f"{number}  {duration}", role)]]


LEAST_SENTENCE_CELLS = 16
GAP = Span("   ")


def figure_role(view: DeviceView, role: Role = "text") -> Role:
    """Return the role of a number: muted where it is old."""
    return role if view.is_fresh else "muted"


def details_role(view: DeviceView, role: Role = "text") -> Role:
    """Return the role of utilisation, temperature, power and processes: muted where they are old."""
    return "muted" if view.device.details_age_s is not None else figure_role(view, role)


def details_age(view: DeviceView) -> Line:
    """Return how long ago those were read, where they are old; a stale device shows that elsewhere."""
    age_s = view.device.details_age_s
    return [] if age_s is None or not view.is_fresh else [Span(f"{age_text(age_s)} ago", "medium")]


def edge(view: DeviceView, glyphs: Glyphs, indent: int = 0) -> Line:
    """Return the left edge: one cell that shows the selection, and the indent of a MIG instance."""
    mark = Span(glyphs.selected, "accent") if view.is_selected else Span(" ")
    return [mark, Span(" " * indent)] if indent else [mark]


def label(view: DeviceView, widths: SharedWidths) -> Line:
    """Return the short name, as wide as the longest."""
    text = view.label.rjust(widths.label)
    return [Span(f"rank {text}" if view.device.kind == "trace" else text, figure_role(view, "strong"))]


def name(view: DeviceView, width: int, glyphs: Glyphs) -> Line:
    return [Span(fit_text(view.name or glyphs.unmeasured, width, glyphs.ellipsis), figure_role(view))]


def kind_and_rank(view: DeviceView, widths: SharedWidths, *, is_long: bool = True) -> Line:
    """Return the device's special kind, and its rank; coordinates only if there is room."""
    parts: Line = []
    if view.device.kind == "unified":
        parts += [Span("  "), Span("unified", "text")]
    elif view.device.kind == "simulated":
        parts += [Span("  "), Span("simulated", "text")]
    elif view.device.kind in ("mig", "vgpu"):
        parts += [Span("  "), Span({"mig": "MIG", "vgpu": "vGPU"}[view.device.kind], "muted")]
    if view.device.memory.is_lower_bound:
        parts += [Span("  "), Span("at least", "text")]
    if widths.rank:
        width = widths.rank if is_long else widths.short_rank
        parts += [Span("  "), Span(rank_text(view, is_long=is_long).ljust(width), rank_role(view))]
    if view.device.kind == "trace" and is_long:
        made = Span("simulated", "text") if view.device.is_simulated else Span("recorded", "muted")
        parts += [Span("  "), made]
    return parts


def state_note(view: DeviceView) -> Line:
    """Return why the values are old; empty where they are current."""
    reason = f": {view.device.reason}" if view.device.reason else ""
    if view.state == "stale":
        return [Span(f"stale{age_text(view.age_s)}", "medium"), Span(reason, "muted")]
    if view.state == "lost":
        ago = f"{age_text(view.age_s)} ago" if view.age_s is not None else ""
        return [Span(f"LOST{ago}", "critical"), Span(reason, "muted")]
    if view.state == "ended":
        ago = f"{age_text(view.age_s)} ago" if view.age_s is not None else ""
        # The reason says of the process what the state says of the device.
        once = reason.replace(": the process has ended", "").replace(": the process ended", "")
        return [Span(f"ended{ago}", "muted"), Span(once, "muted")]
    if view.state == "unsupported":
        return [Span("unsupported", "medium"), Span(reason, "muted")]
    return []


def risk_mark(view: DeviceView, glyphs: Glyphs) -> Span:
    """Return the glyph of the risk; where that is unknown, of how used memory goes, once it was watched."""
    trend = view.risk.trend
    if trend is None and view.risk.lacks_probe:
        return Span(glyphs.unmeasured, "muted")
    glyph = glyphs.risk(view.risk.level) if trend is None else glyphs.trends[trend.word]
    return Span(glyph, view.risk_role)


def risk_word(view: DeviceView) -> str:
    """Return the time that is left, or the word of the risk or of the trend; `unknown` is for the verdict."""
    if view.time_left_s is not None:
        return brief_span_text(view.time_left_s)
    if view.risk.level == "unknown":
        return view.trend_forms[-1] if view.trend_forms else ""
    return view.risk.level


def risk(view: DeviceView, glyphs: Glyphs, *, is_long: bool, room: int | None = None) -> Line:
    """Return the glyph of the risk and its word or the time that is left; both, or why, in more room.

    `room` are the cells that it should fit in where there is a choice.
    """
    level = view.risk.level
    if level == "unknown":
        return _unknown_risk(view, glyphs, room, is_long=is_long)
    role = view.risk_role
    if view.time_left_s is not None:
        left = format_age(view.time_left_s) if is_long else brief_span_text(view.time_left_s)
        return [Span(f"{glyphs.risk(level)} {f'{level}: OOM in ' if is_long else ''}{left}", role)]
    reason = drop_name(view.risk.reason, name_device(view.device)) if is_long else ""
    word = f"{level}: {reason}" if reason else level
    return [Span(f"{glyphs.risk(level)} {word}", role)]


def _unknown_risk(view: DeviceView, glyphs: Glyphs, room: int | None, *, is_long: bool) -> Line:
    """Return how used memory goes, or why nothing is known; that no probe reports, the verdict says once."""
    mark = risk_mark(view, glyphs)
    if view.trend_forms:
        forms = view.trend_forms if is_long or room is not None else view.trend_forms[-1:]
        words = next((form for form in forms if room is None or len(form) + 2 <= room), forms[-1])
        return [Span(f"{mark.text} {words}", mark.role)]
    if view.risk.lacks_probe:
        return []
    return [mark] if not is_long else [Span(f"{mark.text} {view.risk.reason}", mark.role)]


def risk_or_state(view: DeviceView, glyphs: Glyphs, *, is_long: bool, room: int | None = None) -> Line:
    """Return what a person must know first: that values are old, or else the risk."""
    return state_note(view) or risk(view, glyphs, is_long=is_long, room=room)


def level_mark(view: DeviceView, glyphs: Glyphs) -> Span:
    """Return the mark of the gauge's level in one cell, for those who see no colours; else a blank."""
    if not view.is_fresh:
        return Span(" ")
    if view.is_in_danger:
        return Span(glyphs.risk(view.risk.level), view.risk_role)
    return Span(glyphs.fullness.get(view.fullness, " "), view.fill_role)


def gauge(view: DeviceView, width: int, glyphs: Glyphs) -> Line:
    """Return the gauge; its solid part is split where training processes report."""
    memory = view.device.memory
    allocator = view.allocator
    if allocator is None or not view.is_fresh:
        return draw_gauge(memory, view.scale_bytes, width, glyphs, view.fill_role)
    return draw_split_gauge(memory, allocator, view.scale_bytes, width, glyphs, view.fill_role)


def memory_figures(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> Line:
    """Return used and total in GiB and the percentage, in columns that never move."""
    memory = view.device.memory
    role: Role = view.risk_role if view.is_in_danger else "strong"
    return [
        Span(gib_text(memory.used_bytes, glyphs).rjust(widths.figures), figure_role(view, role)),
        Span(" / ", "faint"),
        Span(gib_text(memory.total_bytes, glyphs).rjust(widths.figures), "muted"),
        Span(" GiB ", "muted"),
        Span(percent_text(view.used_percent, glyphs), figure_role(view, role)),
    ]


def memory_figures_width(widths: SharedWidths) -> int:
    return 2 * widths.figures + 13


def metrics(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> Line:
    """Return utilisation, temperature and power; nothing where no device can measure them."""
    if not widths.has_metrics:
        return []
    device = view.device
    role = details_role(view)
    utilization = percent_text(device.utilization_percent, glyphs)
    temperature = " " + celsius_text(device.temperature_c, glyphs)
    if not utilization.startswith(" "):
        # 100 % fills its cells: the space before it is one that the temperature has to spare.
        utilization = " " + utilization
        temperature = temperature.removeprefix(" ") if temperature.startswith("  ") else temperature
    return [
        Span("util", "muted"),
        Span(utilization, role),
        Span(temperature, role),
        Span(" " + watts_text(device.power_w, glyphs, limit_w=find_limit(device)).rjust(widths.power), role),
        *details_age(view),
    ]


def facts(
    view: DeviceView,
    widths: SharedWidths,
    glyphs: Glyphs,
    *,
    has_gap: bool = True,
    is_brief: bool = False,
    has_hardware: bool = True,
) -> list[Line]:
    """Return further facts, the most important first; a line shows as many as fit.

    `has_gap`: with what fills the device; `is_brief`: only the rate of a leak; `has_hardware`: with clocks.
    """
    found: list[Line] = [] if view.leak is None else leak_facts(view.leak, is_brief=is_brief)
    found += fault_facts(view)
    found += [] if view.comparison is None else [comparison_fact(view.comparison)]
    found += server_facts(view)
    if view.ranks:
        found += rank_facts(view, widths, glyphs, has_gap=has_gap)
    elif has_gap and view.gap is not None:
        found += gap_facts(view.gap, widths, glyphs)
    elif has_gap:
        found += allocator_facts(view, widths, glyphs)
    if not view.is_capacity_known and view.scale_bytes and view.device.memory.used_bytes is not None:
        scale = f"scale 0–{gib_text(view.scale_bytes, glyphs)} GiB (highest seen), capacity not "
        found.append([Span(scale + ("recorded" if view.device.kind == "trace" else "known"), "muted")])
    if view.peak is not None:
        peak_bytes, peak_s = view.peak
        found.append(
            [
                Span("peak ", "muted"),
                Span(gib_text(peak_bytes, glyphs).rjust(widths.figures), "text"),
                Span(f" at {moment_text(peak_s, view.clock)}", "muted"),
            ]
        )
    if widths.has_step and not view.ranks:
        step = view.device.step
        found.append([Span("step ", "muted"), Span(glyphs.unmeasured if step is None else f"{step:,}")])
    processes = view.device.processes
    if widths.has_processes and processes is not None:
        given = () if processes else view.device.allocations or ()
        counted = count_text(len(processes), "process", "processes")
        if given:
            pods = {f"{it.namespace}/{it.pod_name}" for it in given}
            counted = f"given to {min(pods) if len(pods) == 1 else f'{len(pods)} pods'}, not used"
        found.append([Span(counted, "text" if given else "muted"), *details_age(view)])
    elif widths.has_processes and view.device.kind != "trace":
        found.append([Span(f"{glyphs.unmeasured} processes", "muted")])
    return [*found, *hardware_facts(view)] if has_hardware else found


def server_facts(view: DeviceView) -> list[Line]:
    """Return what the servers on a device do, in short forms, the most important first."""
    found: list[Line] = []
    for server in view.servers:
        for forms in describe_server(server).clauses:
            text = forms[min(1, len(forms) - 1)]
            if text:
                found.append([Span(text, "text" if server.state == "ok" else "muted")])
    return found


# Reasons for lower clocks that a person should know of; a power cap that is reached is no fault.
FAULTS: frozenset[ThrottleReason] = frozenset(
    {"hardware thermal slowdown", "thermal slowdown", "power brake", "hardware slowdown"}
)


def fault_facts(view: DeviceView) -> list[Line]:
    """Return what is wrong with the hardware, if anything is known to be."""
    found: list[Line] = []
    hardware = view.device.hardware
    activity = view.device.activity
    if hardware is not None and hardware.ecc_uncorrected:
        errors = count_text(hardware.ecc_uncorrected, "uncorrected ECC error", "uncorrected ECC errors")
        found.append([Span(errors, "medium")])
    if hardware is not None and hardware.is_repair_pending:
        found.append([Span("memory repair waits for a reset of the GPU", "medium")])
    reasons = () if activity is None else activity.throttle_reasons or ()
    fault = next((reason for reason in reasons if reason in FAULTS), None)
    if fault is not None:
        found.append([Span(f"clocks lowered: {fault}", "medium")])
    return found


def hardware_facts(view: DeviceView) -> list[Line]:
    """Return clock, bandwidth and fan, as far as they are measured."""
    found: list[Line] = []
    activity = view.device.activity
    hardware = view.device.hardware
    role = figure_role(view)
    if activity is not None and activity.sm_clock_mhz is not None:
        # A streaming multiprocessor is NVIDIA's; the others have one clock for what computes.
        word = "SM " if find_tools(view.device) is NVIDIA else "clock "
        found.append([Span(word, "muted"), Span(f"{activity.sm_clock_mhz:,} MHz", role)])
    if activity is not None and activity.memory_bandwidth_percent is not None:
        share = f"{activity.memory_bandwidth_percent:3.0f} %"
        found.append([Span("bandwidth ", "muted"), Span(share, role)])
    if hardware is not None and hardware.fan_percent is not None:
        found.append([Span("fan ", "muted"), Span(f"{hardware.fan_percent:.0f} %", role)])
    return found


def leak_facts(leak: LeakWords, *, is_brief: bool) -> list[Line]:
    """Return how fast a leak grows, since when and by how much, and the suspected place."""
    lines: list[Line] = [[Span(leak.brief if is_brief else leak.text, leak.severity)]]
    return lines if leak.place is None else [*lines, [Span(leak.place, "strong")]]


def wrap_words(sentence: str, width: int) -> list[str]:
    """Wrap a sentence to `width` cells; in very little room lines are longer."""
    return wrap(sentence, max(LEAST_SENTENCE_CELLS, width))


def join_facts(found: list[Line], width: int) -> tuple[Line, list[Line]]:
    """Return a line of the facts that fit into `width` cells, in their order, and those that did not."""
    line: Line = []
    left_over: list[Line] = []
    taken = 0
    for fact in found:
        cells = line_width(fact) + (len(GAP.text) if line else 0)
        if taken + cells > width:
            left_over.append(fact)
            continue
        line += [GAP, *fact] if line else fact
        taken += cells
    return line, left_over
