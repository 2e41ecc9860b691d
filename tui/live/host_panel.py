"""What is shown where there is no device: the host, and what was looked for; or why a node tells nothing."""

from textwrap import wrap

from textual.strip import Strip
from textual.widget import Widget

from ...engine.history import HOST_KEY, History
from ...engine.model import HostSample, MemoryReading, Sample
from ...engine.units import GIB
from ..draw.gauge import draw_gauge
from ..draw.glyphs import Glyphs
from ..draw.history_graph import dots_of, draw_history, history_levels
from ..draw.numbers import percent_text, share_percent, span_text
from ..draw.spans import Line, Span, fit_line, to_strip
from ..frame.theme import find_looks

HISTORY_WINDOW_S = 600.0
MAX_GRAPH_ROWS = 8
GO_ON = (
    "`vramscope doctor` says in full what was found and what to do. To see the screens without a GPU, "
    "play recorded memory traces with `vramscope replay DIR`."
)
"""How to go on, in one sentence or two."""


NO_DEVICE = "No GPU was found on this node."
PLAY_ON = "`space` plays on, `k` goes 10 s on, `n` goes to the next finding, `g` to a moment."


class HostPanel(Widget):
    """The host's memory with its history, and in words why no device is shown."""

    DEFAULT_CSS = "HostPanel { height: 1fr; padding: 0 1; }"

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._history: History | None = None
        self._sample: Sample | None = None
        self._is_replayed = False
        self._reason = ""
        self._lines: list[Line] = []

    def explain(self, reason: str) -> None:
        """Say in full why nothing is known of the node; what to do about it may take several lines."""
        self._sample = None
        self._reason = reason
        self._draw()

    def show(self, sample: Sample, history: History, *, is_replayed: bool = False) -> None:
        """Draw a sample without devices.

        Args:
            sample: What is drawn.
            history: Of its node.
            is_replayed: Whether it comes from a file: this machine's driver has nothing to do with it.
        """
        self._sample = sample
        self._history = history
        self._is_replayed = is_replayed
        self._draw()

    def on_resize(self) -> None:
        """Draw anew for the new size."""
        self._draw()

    def _draw(self) -> None:
        lines = self._compose_lines(self.size.width, self.size.height)
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        looks = find_looks(self)
        line = self._lines[y] if y < len(self._lines) else [Span("")]
        return to_strip(fit_line(line, self.size.width), looks)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        """Return all lines: the figures first, the words where there is room."""
        sample = self._sample
        if width <= 0:
            return []
        if sample is None:
            return [[Span("")], *([Span(text)] for text in wrap(self._reason, width))][: max(0, height)]
        words = self._words(sample, width)
        figures = self._figures(sample, width) if sample.host is not None else []
        graph_rows = min(MAX_GRAPH_ROWS, height - len(words) - len(figures) - 3)
        graph = self._graph(sample, width, graph_rows) if figures and graph_rows >= 2 else []
        blank: list[Line] = [[Span("")]] if height > len(figures) + len(words) + 1 else []
        return [*blank, *figures, *graph, *blank, *words][: max(0, height)]

    def _figures(self, sample: Sample, width: int) -> list[Line]:
        host = sample.host or HostSample()
        title = "container memory" if host.limit == "cgroup" else "host memory"
        share = percent_text(share_percent(host.used_bytes, host.total_bytes), self._glyphs)
        figure = f"used {_gib(host.used_bytes)}/{_gib(host.total_bytes)} GiB"
        heading = [Span(title, "strong"), Span(f"   {figure}"), Span(share, "strong")]
        if host.available_bytes is not None:
            heading.append(Span(f"   available {_gib(host.available_bytes)} GiB", "muted"))
        memory = MemoryReading(used_bytes=host.used_bytes)
        return [heading, draw_gauge(memory, host.total_bytes, width, self._glyphs)]

    def _graph(self, sample: Sample, width: int, rows: int) -> list[Line]:
        """Return the history on a scale from 0 to the total."""
        total_bytes = (sample.host.total_bytes if sample.host else None) or 0
        bucket_s = HISTORY_WINDOW_S / (2 * width)
        if self._history is None:
            return []
        columns = self._history.columns(HOST_KEY, "used", sample.time_s, bucket_s, 2 * width)
        levels = history_levels(columns.minimum, columns.maximum, total_bytes, dots_of(rows, self._glyphs))
        caption = [Span(f"last {span_text(HISTORY_WINDOW_S)}, scale 0 to {_gib(total_bytes)} GiB", "faint")]
        return [*draw_history(levels, rows, self._glyphs), caption]

    def _words(self, sample: Sample, width: int) -> list[Line]:
        absence = "No device was recorded at this moment." if self._is_replayed else NO_DEVICE
        notes = sample.notes or (absence,)
        lines: list[Line] = []
        for note in notes:
            lines += [[Span(text)] for text in wrap(note, width)]
        return [
            *lines,
            *([Span(text, "muted")] for text in wrap(PLAY_ON if self._is_replayed else GO_ON, width)),
        ]


def _gib(value_bytes: int | None) -> str:
    return "—" if value_bytes is None else f"{value_bytes / GIB:,.1f}"
