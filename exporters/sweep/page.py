"""A sweep as a page: the grid of TP and PP, what it says, every layout. No script, nothing from elsewhere."""

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...analyzers.planning.sweep import STATE_WORDS, SweepCell, SweepFinding, SweepGrid
from ...analyzers.planning.sweep.index import IndexedSweep
from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import check_writable, write_whole
from ...engine.files.base.output_route import make_folder
from ...engine.units import GIB
from ..figures.page import FigurePage, save_figure
from ..text import UNKNOWN, show_number
from .figure import draw_multiples, draw_sweep
from .look import SweepLook
from .report import encode_csv
from .text import describe_cell, describe_figure, name_sweep

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{about}</p>
<main>
<input type="radio" name="value" id="peak" checked><label for="peak">peak</label>
<input type="radio" name="value" id="theory"><label for="theory">theory</label>
<input type="radio" name="value" id="error"><label for="error">error of the theory</label>
<div class="scroll"><table class="grid">
<caption>GiB of the rank that used most, by tensor (TP) and pipeline (PP) parallel size</caption>
{grid}
</table></div>
</main>
<ul>{findings}</ul>
<h2>All layouts</h2>
<div class="scroll"><table class="list">
<thead><tr>{heading}</tr></thead>
<tbody>{rows}</tbody>
</table></div>
{notes}
</body>
</html>
"""
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #595959; --faint: #d9d9d9; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --soft: #b4b4b4; --faint: #454545; --paper: #16181b; }
}
body { margin: 0; padding: 1rem 1.25rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.25rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.2rem 0 .4rem; }
p, caption, .soft { color: var(--soft); } p { margin: .2rem 0; }
main { margin-top: .75rem; } label { margin-right: 1rem; cursor: pointer; }
input:focus-visible + label { outline: 3px solid #0072b2; outline-offset: 2px; }
.scroll { overflow-x: auto; margin-top: .5rem; }
table { border-collapse: collapse; } caption { text-align: left; margin-bottom: .3rem; }
th { font-weight: 400; color: var(--soft); text-align: right; padding: .15rem .4rem; }
.grid tr:first-child th { text-align: center; }
.grid td { border: 2px solid var(--paper); padding: .35rem .5rem; min-width: 4.2rem; text-align: center;
  font-variant-numeric: tabular-nums; }
.grid td.best { outline: 3px solid #d55e00; outline-offset: -3px; }
.grid td.none { background: var(--faint); color: var(--ink); }
.grid td.oom { background: #3b3b3b; color: #ffffff; } .grid td.failed { background: #767676; color: #ffffff; }
.list td { border-top: 1px solid var(--faint); padding: .15rem .5rem; text-align: right;
  font-variant-numeric: tabular-nums; }
.list td.text, .list th.text { text-align: left; }
.theory, .error { display: none; }
#theory:checked ~ div .theory, #error:checked ~ div .error { display: inline; }
#theory:checked ~ div .peak, #error:checked ~ div .peak { display: none; }
"""
_HEADING = (
    *("TP", "PP", "DP", "outcome", "peak GiB", "iteration", "theory GiB", "error", "static GiB"),
    *("TFLOP/s per GPU", "s per iteration", "cause"),
)
_TEXT_COLUMNS = ("outcome", "cause")
_LIGHT = (222, 235, 247)
_DARK = (8, 48, 107)
"""Ends of the colour scale, from an empty device to a full one (ColorBrewer's Blues)."""


def render_heat_map(grid: SweepGrid, findings: Sequence[SweepFinding]) -> bytes:
    title = f"Peak GPU memory by TP and PP{name_sweep(grid)}"
    made = "simulated, not measured; " if grid.is_simulated else ""
    page = _PAGE.format(
        title=html.escape(title),
        style=_STYLE,
        about=html.escape(f"{made}a device has {grid.capacity_bytes / GIB:g} GiB; ! the theory ruled it out"),
        grid="\n".join(_render_rows(grid)),
        findings="".join(f"<li>{html.escape(finding.text)}</li>" for finding in findings),
        heading="".join(f"<th{_mark(name)}>{name}</th>" for name in _HEADING),
        rows="\n".join(map(_render_layout, grid.cells)),
        notes="".join(f"<p>{html.escape(note)}</p>" for note in grid.notes),
    )
    return page.encode("utf-8", "replace")


def _render_rows(grid: SweepGrid) -> Iterator[str]:
    best = min(grid.measured, key=lambda cell: cell.actual_bytes or 0, default=None)
    yield "<tr><th></th>" + "".join(f"<th>PP {pp}</th>" for pp in grid.pps) + "</tr>"
    for tp in grid.tps:
        cells = "".join(
            _render_place([it for it in grid.cells if it.place == (tp, pp)], best, grid.capacity_bytes)
            for pp in grid.pps
        )
        yield f"<tr><th>TP {tp}</th>{cells}</tr>"


def _render_place(cells: Sequence[SweepCell], best: SweepCell | None, capacity_bytes: int) -> str:
    """Return one field of the grid; layouts that share TP and PP are one below the other."""
    fullest = max(cells, key=lambda cell: (cell.has_run, cell.actual_bytes or 0))
    names = [] if best is None or best not in cells else ["best"]
    colour = ""
    if fullest.actual_bytes is None:
        names.append(fullest.state if fullest.has_failed else "none")
    else:
        colour = _choose_colour(fullest.actual_bytes / capacity_bytes)
    words = html.escape("\n".join(map(describe_cell, cells)))
    values = "<br>".join(map(_render_value, cells))
    return f'<td class="{" ".join(names)}" style="{colour}" title="{words}">{values}</td>'


def _render_value(cell: SweepCell) -> str:
    kind = "" if cell.kind_word is None else f" {cell.kind_word}"
    peak = STATE_WORDS[cell.state].told if cell.actual_bytes is None else _show_gib(cell.actual_bytes)
    peak += "!" if cell.is_mispredicted else ""
    error = show_number(cell.error_percent, "+.0f", " %")
    return (
        f'<span class="peak">{html.escape(peak + kind)}</span>'
        f'<span class="theory">{_show_gib(cell.theory_bytes)}{kind}</span>'
        f'<span class="error">{error}{kind}</span>'
    )


def _render_layout(cell: SweepCell) -> str:
    state = STATE_WORDS[cell.state].told + ("" if cell.kind_word is None else f", {cell.kind_word}")
    values = (
        *(cell.tp, cell.pp, cell.dp, state, _show_gib(cell.actual_bytes), cell.iteration),
        _show_gib(cell.theory_bytes),
        None if cell.error_percent is None else f"{cell.error_percent:+.0f} %",
        _show_gib(cell.static_bytes),
        None if cell.tflops_per_gpu is None else f"{cell.tflops_per_gpu:.1f}",
        None if cell.iteration_s is None else f"{cell.iteration_s:.2f}",
        cell.cause or "",
    )
    return (
        "<tr>"
        + "".join(
            f"<td{_mark(name)}>{UNKNOWN if value is None else html.escape(str(value))}</td>"
            for name, value in zip(_HEADING, values, strict=True)
        )
        + "</tr>"
    )


def _mark(column: str) -> str:
    return ' class="text"' if column in _TEXT_COLUMNS else ""


def _choose_colour(share: float) -> str:
    """Return the colours of a field: darker the fuller, its letters as far from it as they can be."""
    share = min(1.0, max(0.0, share))
    paper = [round(light + share * (dark - light)) for light, dark in zip(_LIGHT, _DARK, strict=True)]
    ink = "#ffffff" if share > 0.5 else "#1a1a1a"
    return f"background: rgb({', '.join(map(str, paper))}); color: {ink}"


def _show_gib(size_bytes: int | None) -> str:
    return show_number(size_bytes, ",.1f", per=GIB)


# Writes a heat map of a sweep: PNG, PDF, SVG, CSV, an offline page, and an alternative text.

_ENDINGS = (".png", ".pdf", ".svg", ".csv", ".html")
TEXT_ENDING = ".alt.txt"


def choose_base(output: Path) -> Path:
    """Return the path that endings are put behind: a name that has one of them loses it."""
    return output.with_suffix("") if output.name.lower().endswith(_ENDINGS) else output


def prepare_output(output: Path) -> Path:
    """Return the base of the files to write, in a folder that is there; one level is made.

    Raises:
        OutputFileError: The folder cannot be written to.
    """
    base = choose_base(output)
    folder = base.parent
    if not folder.exists() and folder.parent.is_dir():
        try:
            make_folder(folder)
        except OSError as error:
            raise OutputFileError(f"{show_path(folder)}: cannot be made: {error.strerror}") from error
    check_writable(base.with_name(f"{base.name}.png"))
    return base


def write_heat_map(
    grid: SweepGrid,
    findings: Sequence[SweepFinding],
    base: Path,
    look: SweepLook,
    *,
    file: Path | None = None,
) -> tuple[FigurePage, tuple[Path, ...]]:
    """Draw a sweep and write its files; return the figure and the files.

    Args:
        base: Their path without an ending.
        file: The one file to write instead, in the format that its name says.

    Raises:
        OutputFileError: A file cannot be written.
    """
    page = draw_sweep(grid, look)
    if file is not None:
        save_figure(page, file)
        return page, (file,)
    contents = {
        ".csv": encode_csv(grid),
        ".html": render_heat_map(grid, findings),
        TEXT_ENDING: describe_figure(grid, findings).encode(),
    }
    return page, _write(page, contents, base)


def write_multiples(
    sweeps: Sequence[IndexedSweep], base: Path, look: SweepLook, *, file: Path | None = None
) -> tuple[Path, ...]:
    """Draw several sweeps as one figure and write its files, and an alternative text; return them.

    Args:
        sweeps: One panel each.
        base: Path of the files without an ending.
        file: The one file to write instead, in the format that its name says.

    Raises:
        UsageError: There is none, or there are too many.
        OutputFileError: A file cannot be written.
    """
    page = draw_multiples(sweeps, look)
    if file is not None:
        save_figure(page, file)
        return (file,)
    texts = (f"{sweep.name}\n{describe_figure(sweep.grid, sweep.findings)}" for sweep in sweeps)
    return _write(page, {TEXT_ENDING: "\n".join(texts).encode()}, base)


def _write(page: FigurePage, others: Mapping[str, bytes], base: Path) -> tuple[Path, ...]:
    """Write a figure in every format, and what goes with it."""
    contents = {".png": page.render("png"), ".pdf": page.render("pdf"), ".svg": page.render("svg"), **others}
    paths = []
    for ending, data in contents.items():
        path = base.with_name(f"{base.name}{ending}")
        write_whole(data, path)
        paths.append(path)
    return tuple(paths)
