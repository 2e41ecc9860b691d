"""Servers of models that are on no device of the node: one row each."""

from collections.abc import Sequence

from ...analyzers.serving.load import describe_server, sum_load
from ...engine.model import SEVERITIES, Finding, ServerSample
from ..draw.bars import Part, draw_stacked_bar
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span
from ..widgets.line_page import LinePage

HEADING = "Serving "
# Cells of the bar of a KV pool, and of the whole row from which there is one.
BAR = 20
BAR_FROM = 100


class ServerRows(LinePage, can_focus=False):
    """What each server does, with a bar of its KV pool where there is room."""

    DEFAULT_CSS = "ServerRows { height: 1; overflow-y: hidden; }"

    _servers: tuple[ServerSample, ...] = ()
    _findings: tuple[Finding, ...] = ()

    def show(self, servers: Sequence[ServerSample], findings: Sequence[Finding]) -> None:
        if not servers and not self._servers:
            return  # as on most nodes
        self._servers = tuple(servers)
        self._findings = tuple(it for it in findings if it.is_open)
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        lines = draw_server_rows(self._servers, self._findings, width, height, self.glyphs)
        return [self.fit(line, width) for line in lines]


def draw_server_rows(
    servers: Sequence[ServerSample], findings: Sequence[Finding], width: int, rows: int, glyphs: Glyphs
) -> list[Line]:
    """Return one line for each server; the last counts those that have no row."""
    shown = servers if len(servers) <= rows else servers[: max(0, rows - 1)]
    lines = [_draw(server, findings, width, glyphs) for server in shown]
    left_out = len(servers) - len(shown)
    if left_out and rows > 0:
        lines.append([Span(f"and {left_out} more servers: vramscope --once lists all", "muted")])
    blank = " " * len(HEADING)
    return [[Span(f" {blank if y else HEADING}", "muted"), *line] for y, line in enumerate(lines)]


def _draw(server: ServerSample, findings: Sequence[Finding], width: int, glyphs: Glyphs) -> Line:
    about = [it.severity for it in findings if any(found.value == server.name for found in it.evidence)]
    role: Role = "text" if server.state == "ok" else "medium" if server.state == "silent" else "muted"
    line: Line = []
    if about:
        worst = max(about, key=SEVERITIES.index)
        line += [Span(f"{glyphs.risk(worst)} ", worst)]
    used = sum_load(server).used_share
    if width >= BAR_FROM and used is not None:
        bar = [Part("used", round(1000 * used), glyphs.hatched, "accent")]
        line += [*draw_stacked_bar(bar, 1000, BAR, glyphs), Span("  ")]
    taken = 1 + len(HEADING) + 1 + (2 if about else 0) + (BAR + 2 if len(line) > 2 else 0)
    return [*line, Span(describe_server(server).fit(max(10, width - taken)), role)]
