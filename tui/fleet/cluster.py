"""What is known across nodes: computed on a thread, drawn as lines, shown on a screen over the fleet."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from textual import events, on
from textual.app import ComposeResult

from ...analyzers.cluster_state import ClusterPicture, ClusterState, JobState, StageLoad
from ...analyzers.fleet.fleet import Fleet
from ...analyzers.fleet.verdict import judge_fleet
from ...analyzers.verdict import Remedy
from ...engine.model import SEVERITIES, Finding, MemoryReading
from ...engine.units import format_bytes
from ...engine.viewer.snapshot import Snapshot
from ..draw.bars import draw_gauge
from ..draw.columns import join_columns
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..frame.keys import KEYS_OF_THE_VIEW
from ..terminal.compositor import ThriftyScreen
from ..widgets.device_fields import wrap_words
from ..widgets.line_page import LinePage
from ..widgets.one_line import KeyLine
from ..widgets.verdict_line import VerdictLine

# Snapshots that arrive within this time are processed together, but never more than so many: each of a node
# of eight devices takes 20 KiB while it waits.
GATHER_S = 2.0
MOST_GATHERED = 128


class ClusterWatch:
    """Reads snapshots of nodes one at a time; use from one thread."""

    def __init__(self, state: ClusterState | None = None) -> None:
        self._state = state or ClusterState()
        # All nodes as of the newest conclusion.
        self.picture: ClusterPicture = self._state.picture
        # Open across nodes, as of the newest conclusion.
        self.findings: tuple[Finding, ...] = self._state.findings
        self._pending: deque[tuple[Snapshot, float]] = deque()
        self._begun_s: float | None = None
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def note(self, snapshot: Snapshot, received_s: float) -> None:
        """Take the newest snapshot of a node, received at `received_s` by our own clock; conclusions follow
        later.
        """
        if self._failure is not None:
            raise self._failure
        self._pending.append((snapshot, received_s))
        if self._begun_s is None:
            self._begun_s = received_s
        is_busy = self._thread is not None and self._thread.is_alive()
        is_due = received_s - self._begun_s >= GATHER_S or len(self._pending) >= MOST_GATHERED
        if is_due and not is_busy:
            self._begun_s = received_s
            self._thread = threading.Thread(target=self._conclude, name="cluster-watch", daemon=True)
            self._thread.start()

    def compare_with(self, planned: Sequence[int]) -> None:
        """Compare pipeline stages with a plan from the next conclusion on: bytes of a rank of each stage."""
        self._state.hold_against(planned)

    def _conclude(self) -> None:
        try:
            while self._pending:
                self._state.observe(*self._pending.popleft())
                if self._state.picture is not self.picture:
                    self.picture = self._state.picture
                    self.findings = self._state.findings
        except Exception as error:  # noqa: BLE001 - it is raised where a person sees it
            self._failure = error


def order_by_gravity(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, the most severe first; within a severity the newest."""
    return sorted(findings, key=lambda it: (-SEVERITIES.index(it.severity), -it.opened_s, it.id))


_INDENT = "  "
_SIZE_CELLS = 10
_RANKS_CELLS = 6
_STAGE_CELLS = 6
# Widths from which the plan's numbers, and a bar, are next to each stage.
PLAN_FROM_CELLS = 56
BAR_FROM_CELLS = 90
_BAR_CELLS = 24
_GAP = "   "


def describe_cluster(
    picture: ClusterPicture, findings: Sequence[Finding], width: int, glyphs: Glyphs
) -> list[Line]:
    """Return everything that is known across nodes; `findings` are in the order of `order_by_gravity`."""
    lines = [_describe_all(picture)]
    for finding in findings:
        lines += [[], *_describe_finding(finding, width, glyphs)]
    for job in picture.jobs:
        lines += [[], *_describe_job(job, width, glyphs)]
    if not picture.jobs:
        lines += [[], [Span("No job with two or more ranks reports from these nodes.", "muted")]]
    return lines


def describe_worst(findings: Sequence[Finding], glyphs: Glyphs) -> Line:
    """Return the most severe finding across nodes in one line, or nothing."""
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
    facts = [job.label]
    if job.world_size is not None and len(job.ranks) < job.world_size:
        facts.append(f"{len(job.ranks):,} of its ranks report")
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
        glyphs.unmeasured
        if difference is None
        else f"{'+' if difference >= 0 else '-'}{format_bytes(abs(difference))}",
    )
    is_most = stage.stage in job.bottleneck_stages
    role: Role = "medium" if is_most else "text"
    line = [Span(_lay_out(cells, width), role), Span(f"  {glyphs.risk(stage.level)}", stage.level)]
    if width >= BAR_FROM_CELLS:
        bar = draw_gauge(MemoryReading(used_bytes=stage.peak_bytes), scale, _BAR_CELLS, glyphs)
        line += [Span("  "), *bar]
    return [*line, Span(f"  {', '.join(stage.nodes)}", "muted")]


def _lay_out(cells: Sequence[str], width: int) -> str:
    """Return the columns of a stage that fit; those of the plan only where there is room."""
    count = len(cells) if width >= PLAN_FROM_CELLS else 3
    widths = (_STAGE_CELLS, _RANKS_CELLS, *[_SIZE_CELLS] * (count - 2))
    return _INDENT + join_columns(cells[:count], widths, "l" + "r" * (count - 1), "", gap=2)


class ClusterPage(LinePage):
    """Shows findings across nodes, and jobs."""

    BINDINGS = [*keys.CLUSTER_PAGE]
    DEFAULT_CSS = "ClusterPage { height: 1fr; padding: 0 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picture = ClusterPicture()
        self._findings = tuple[Finding, ...]()

    def show(self, picture: ClusterPicture, findings: Sequence[Finding]) -> None:
        self._picture = picture
        self._findings = tuple(findings)
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        is_ascii = self.glyphs.name == "ascii"
        lines = describe_cluster(self._picture, self._findings, width, self.glyphs)
        return [fit_line(line, width, is_ascii=is_ascii) for line in lines]

    def action_scroll(self, pages: float) -> None:
        step = max(1, round(abs(pages) * max(1, self.size.height - 1)))
        self.scroll_relative(y=step if pages > 0 else -step, animate=False, immediate=True)


KEYS_FROM_ROWS = 13


class ClusterScreen(ThriftyScreen[None]):
    """Shows a cluster; draws when the app calls `draw`."""

    BINDINGS = [*keys.CLUSTER_SCREEN]
    DEFAULT_CSS = """
    ClusterScreen {
        layout: vertical;
        #verdict { background: $surface; }
        #keys { background: $surface; }
    }
    """

    def __init__(self, fleet: Fleet, cluster: ClusterWatch, remedy: Remedy | None = None) -> None:
        super().__init__()
        self._fleet = fleet
        self._remedy = remedy
        self._cluster = cluster
        self._verdict = VerdictLine(id="verdict")
        self.page = ClusterPage(id="page")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        yield self._verdict
        yield self.page
        yield self._keys

    def on_mount(self) -> None:
        self.page.focus()
        self._keys.hide(KEYS_OF_THE_VIEW)
        self._fit()

    @on(events.Resize)
    def _fit(self) -> None:
        self._keys.display = self.size.height >= KEYS_FROM_ROWS
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        if not self.is_mounted:
            return
        with self.drawn_at_once():
            fleet = self._fleet
            self._verdict.show(judge_fleet(fleet.picture.census, fleet.coverage, self._remedy))
            self.page.show(self._cluster.picture, order_by_gravity(self._cluster.findings))
