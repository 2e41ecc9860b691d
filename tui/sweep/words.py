"""The words of the sweep screens for a cell, and for the whole sweep."""

from collections.abc import Iterator, Sequence

from ...analyzers.planning.sweep import STATE_WORDS, SweepCell, SweepGrid
from ...analyzers.planning.sweep.index import IndexedSweep
from ...engine.files.base.input_file import show_name
from ...engine.units import GIB, format_seconds
from ...exporters.sweep.text import cut_name, name_iteration
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line
from ..widgets.device_fields import wrap_words
from ..widgets.line_page import LinePage
from .lines import STATE_ROLES

GAP = "   "
# Cells of a sweep's name before its title.
_LONGEST_NAME = 24


def describe_cell(cell: SweepCell, capacity_bytes: int, glyphs: Glyphs) -> list[list[Span]]:
    """Return the facts of a layout, the most important first; `capacity_bytes` is that of a device."""
    kind = "" if cell.kind_word is None else f"{cell.kind_word} "
    dp = glyphs.unmeasured if cell.dp is None else cell.dp
    facts: list[Line] = [
        [
            Span(f"TP {cell.tp} PP {cell.pp} DP {dp} {kind}", "strong"),
            Span(STATE_WORDS[cell.state].outcome, STATE_ROLES[cell.state]),
        ]
    ]
    if cell.actual_bytes is not None:
        share = 100 * cell.actual_bytes / capacity_bytes
        where = name_iteration(cell)
        facts.append(_name("measured", f"{_gib(cell.actual_bytes)}{where}, {share:.0f} % of capacity"))
    if cell.theory_bytes is not None:
        facts.append(_name("theory", _gib(cell.theory_bytes)))
    if cell.error_percent is not None:
        role: Role = "high" if cell.is_mispredicted else "text"
        ruled_out = ", ruled out by the theory" if cell.is_mispredicted else ""
        facts.append([Span("error ", "muted"), Span(f"{cell.error_percent:+.1f} %{ruled_out}", role)])
    return facts + _describe_rest(cell)


def _describe_rest(cell: SweepCell) -> list[Line]:
    """Return further facts of a layout after its peak: static memory, the theory's parts, its speed."""
    parts = (
        ("static", cell.static_bytes),
        ("theory: states", cell.states_bytes),
        ("activations", cell.activations_bytes),
    )
    facts = [_name(name, _gib(value)) for name, value in parts if value is not None]
    if cell.tflops_per_gpu is not None:
        facts.append(_name("speed", f"{cell.tflops_per_gpu:.1f} TFLOP/s per GPU"))
    if cell.iteration_s is not None:
        facts.append(_name("iteration", format_seconds(cell.iteration_s, 2)))
    return facts


def describe_sources(cell: SweepCell, grid: SweepGrid) -> Iterator[tuple[str, str]]:
    """Yield other facts of a layout: why it failed, its trace, the same TP and PP with other DP."""
    if cell.cause is not None:
        yield "cause", cell.cause
    elif cell.state == "failed":
        yield "cause", "unknown: an exit status alone does not prove out of memory"
    if cell.path is not None:
        yield "trace", show_name(cell.path)
    others = [it for it in grid.cells if it.place == cell.place and it != cell]
    if others:
        outcomes = (
            " ".join(
                part
                for part in (
                    f"DP {it.dp}",
                    it.kind_word,
                    STATE_WORDS[it.state].outcome,
                    _gib(it.actual_bytes),
                )
                if part
            )
            for it in others
        )
        yield "also", "; ".join(outcomes)


def lay_out(facts: Sequence[Line], width: int) -> list[Line]:
    """Return facts in as few lines of a width as they take, each fact in one piece."""
    lines: list[Line] = []
    used = 0
    for fact in facts:
        size = sum(len(span.text) for span in fact)
        if lines and used + len(GAP) + size <= width:
            lines[-1] += [Span(GAP), *fact]
            used += len(GAP) + size
        else:
            lines.append([Span(" "), *fact])
            used = 1 + size
    return lines


def describe_pair(
    sweeps: Sequence[IndexedSweep], cells: Sequence[SweepCell | None], width: int, glyphs: Glyphs
) -> list[Line]:
    """Return the facts of one layout in two sweeps, and how much more it uses in the second."""
    lines: list[Line] = []
    for number, (sweep, name, cell) in enumerate(zip(sweeps, name_sweeps(sweeps), cells, strict=True), 1):
        lines.append([Span(f" {number} {name}", "muted")])
        if cell is None:
            lines.append([Span("   not in this sweep's grid", "muted")])
        else:
            facts = lay_out(describe_cell(cell, sweep.grid.capacity_bytes, glyphs), width - 2)
            lines += [[Span("  "), *line] for line in facts]
    first, second = (None if cell is None else cell.actual_bytes for cell in cells)
    if first is not None and second is not None and first > 0:
        apart = second - first
        change = f"{apart / GIB:+.1f} GiB, {100 * apart / first:+.0f} %"
        lines.append([Span(" second minus first ", "muted"), Span(change, "strong")])
    for number, sweep in enumerate(sweeps, 1):
        lines.append([])
        for finding in sweep.findings:
            lines += _wrap(f"{number} ", finding.text, width)
    return lines


def describe_all(sweep: IndexedSweep, cell: SweepCell | None, width: int, glyphs: Glyphs) -> list[Line]:
    """Return everything below the grid: the marked layout, then the findings of the sweep."""
    lines: list[Line] = []
    if cell is not None:
        lines += lay_out(describe_cell(cell, sweep.grid.capacity_bytes, glyphs), width)
        for name, text in describe_sources(cell, sweep.grid):
            lines += _wrap(f"{name} ", text, width)
        lines.append([])
    for finding in sweep.findings:
        lines += _wrap("", finding.text, width)
    notes = [sweep.reason, *sweep.grid.notes]
    for note in notes:
        lines += _wrap("", note, width, "muted") if note else []
    return lines


def name_sweep(sweep: IndexedSweep) -> str:
    """Return the title of a sweep: model, GPUs, capacity, and whether it is simulated."""
    grid = sweep.grid
    parts = [
        sweep.model or sweep.name,
        None if grid.world_size is None else f"{grid.world_size:,} GPUs",
        f"capacity {grid.capacity_bytes / GIB:g} GiB",
        "simulated: one GPU played each rank" if grid.is_simulated else None,
    ]
    return " · ".join(part for part in parts if part is not None)


def name_sweeps(sweeps: Sequence[IndexedSweep]) -> list[str]:
    """Return the titles of several sweeps; those that would be equal begin with the sweep's name."""
    titles = [name_sweep(sweep) for sweep in sweeps]
    return [
        title if titles.count(title) == 1 else f"{cut_name(sweep.name, _LONGEST_NAME)} · {title}"
        for sweep, title in zip(sweeps, titles, strict=True)
    ]


def _wrap(name: str, text: str, width: int, role: Role = "text") -> list[Line]:
    """Return a sentence in lines; those after the first are indented."""
    wrapped = wrap_words(f"{name}{text}", max(1, width - 3))
    lines: list[Line] = []
    for at, line in enumerate(wrapped):
        if at == 0 and name:
            rest = "" if line == name.rstrip() else line.removeprefix(name)
            lines.append([Span(" "), Span(name, "muted"), Span(rest, role)])
        else:
            lines.append([Span(" " if at == 0 else "   "), Span(line, role)])
    return lines


def _name(name: str, value: str) -> Line:
    return [Span(f"{name} ", "muted"), Span(value)]


def _gib(value_bytes: int | None) -> str:
    return "" if value_bytes is None else f"{value_bytes / GIB:.1f} GiB"


class SweepFacts(LinePage, can_focus=False):
    """Describes one layout and its sweep; the wheel scrolls it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sweeps: Sequence[IndexedSweep] = ()
        self._cells: Sequence[SweepCell | None] = ()

    def show(self, sweeps: Sequence[IndexedSweep], cells: Sequence[SweepCell | None]) -> None:
        """Describe the layout under the mark: of one sweep, with its findings, or of two side by side."""
        self._sweeps = tuple(sweeps)
        self._cells = tuple(cells)
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if not self._sweeps or width < 4:
            return []
        is_ascii = self.glyphs.name == "ascii"
        if len(self._sweeps) == 1:
            lines = describe_all(self._sweeps[0], self._cells[0], width, self.glyphs)
        else:
            lines = describe_pair(self._sweeps, self._cells, width, self.glyphs)
        return [fit_line(line, width, is_ascii=is_ascii) for line in lines]
