"""What `vramscope sweep` and `vramscope heatmap` read, draw and print."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from vramscope.analyzers.planning.sweep import SweepGrid
from vramscope.analyzers.planning.sweep.index import SweepIndex, filter_sweeps, sort_sweeps
from vramscope.analyzers.planning.sweep.model import does_anything_fit
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.input_file import decode_text, read_input_file, show_path, show_text
from vramscope.engine.files.base.toml_text import parse_toml
from vramscope.engine.settings import Settings
from vramscope.engine.text import suggest
from vramscope.engine.units import GIB
from vramscope.exporters.figures.page import COLUMN_IN, DPI, PageStyle
from vramscope.exporters.sweep.look import SweepLook
from vramscope.exporters.sweep.report import report_sweep
from vramscope.exporters.sweep.text import describe_findings, describe_hidden, describe_skipped
from vramscope.sweeps import LoadedSweep, Progress, index_sweeps, load_sweep

from .frame.emit import complain, emit, emit_fitted, emit_json, is_ascii
from .frame.progress import ProgressLine

if TYPE_CHECKING:
    from vramscope.tui.sweep.screen import SweepView

PROGRAM = "vramscope sweep"


class SweepJob(NamedTuple):
    roots: Sequence[Path]
    max_memory_gib: float
    filter_text: str
    # The iteration whose peak is read; None for the highest of all iterations.
    iteration: int | None = None


class WantedSweeps(NamedTuple):
    chosen: SweepIndex
    found: int


def find_wanted(job: SweepJob, on_progress: Progress = lambda done, total: None) -> WantedSweeps:
    """Return the sweeps that a job asks for, by name."""
    filter_sweeps((), job.filter_text)  # refuses a wrong filter before anything is read
    index = index_sweeps(job.roots, job.max_memory_gib, iteration=job.iteration, on_progress=on_progress)
    wanted = filter_sweeps(sort_sweeps(index.sweeps, "sweep"), job.filter_text)
    return WantedSweeps(SweepIndex(tuple(wanted), index.notes), len(index.sweeps))


def print_sweeps(
    job: SweepJob, settings: Settings, *, base: Path | None, file: Path | None = None, is_json: bool
) -> bool | None:
    """Read the sweeps, draw them if a path is given, and print them.

    Args:
        base: Path of the figure's files without an ending; None for no such files.

    Returns:
        Whether in each sweep some run fits; None where that is not known.
    """
    if base is not None:
        from vramscope.exporters.sweep.page import prepare_output

        base = prepare_output(base)
    with ProgressLine(PROGRAM, "layouts read") as progress:
        wanted = find_wanted(job, progress.show_count)
    files: tuple[Path, ...] = ()
    if base is not None or file is not None:
        from vramscope.exporters.sweep.look import SweepLook
        from vramscope.exporters.sweep.page import write_multiples

        files = write_multiples(wanted.chosen.sweeps, base or Path(), SweepLook(), file=file)
    if is_json:
        from vramscope.exporters.sweep.report import report_index

        report = report_index(
            wanted.chosen, job.max_memory_gib, found=wanted.found, files=tuple(map(str, files))
        )
        emit_json(report)
        return _do_fit(wanted)
    from vramscope.exporters.sweep.text import describe_index

    emit_fitted(settings, lambda width: describe_index(wanted.chosen, width, found=wanted.found))
    for note in wanted.chosen.notes:
        complain(note, program=PROGRAM)
    for path in files:
        print(path)
    return _do_fit(wanted)


def _do_fit(wanted: WantedSweeps) -> bool | None:
    fits = {does_anything_fit(sweep.grid) for sweep in wanted.chosen.sweeps}
    return False if False in fits else None if None in fits else True


def walk_through_sweeps(job: SweepJob, settings: Settings, *, config: Path | None) -> int:
    """Show sweeps until the user quits; return the exit code."""

    from vramscope.tui.sweep.index_screen import show_sweeps

    from .replay import SweepReplayOptions, replay_cells

    found: list[SweepIndex] = []

    def read(progress: Progress) -> SweepIndex:
        if not found:
            found.append(find_wanted(job, progress).chosen)
        return found[0]

    begin: SweepView | None = None
    notice = ""
    while True:
        code, asked = show_sweeps(read, settings=settings, begin=begin, notice=notice)
        if asked is None:
            return code
        options = SweepReplayOptions(capacity_bytes=round(job.max_memory_gib * GIB))
        begin = asked.view
        notice = ""
        try:
            at = replay_cells(asked.cells, asked.at, settings=settings, config=config, options=options)
        except InputFileError as error:
            notice = str(error)
        else:
            begin = begin._replace(place=asked.cells[at].place)


HEATMAP_PROGRAM = "vramscope heatmap"


class Variant(NamedTuple):
    # Path of the files, without an ending.
    base: Path
    look: SweepLook
    # The one file to write instead; its ending decides the format.
    file: Path | None = None


class HeatMapJob(NamedTuple):
    memory_dir: Path
    log_dir: Path | None
    max_memory_gib: float
    variants: tuple[Variant, ...]
    # The iteration whose peak is drawn; None for the highest of all iterations.
    iteration: int | None = None


def draw_heat_map(job: HeatMapJob, settings: Settings, *, is_json: bool) -> SweepGrid:
    """Read a sweep, draw its figures, print its findings and return it."""
    variants = _prepare_variants(job.variants)
    with ProgressLine(HEATMAP_PROGRAM, "layouts read") as progress:
        loaded = load_sweep(
            job.memory_dir,
            job.log_dir,
            job.max_memory_gib,
            iteration=job.iteration,
            on_progress=progress.show_count,
        )
    files = _draw_all(loaded, variants)
    if is_json:
        emit_json(report_sweep(loaded.grid, loaded.findings, loaded.skipped, tuple(map(str, files))))
        return loaded.grid
    emit_fitted(settings, lambda width: describe_findings(loaded.grid, loaded.findings, width))
    for line in (*loaded.grid.notes, *describe_hidden(loaded.grid), *describe_skipped(loaded.skipped)):
        complain(line, program=HEATMAP_PROGRAM)
    for path in files:
        emit(f"{path}\n", is_ascii=is_ascii(settings))
    return loaded.grid


def _prepare_variants(variants: Sequence[Variant]) -> list[Variant]:
    """Return the figures after making the folder of each, before anything is read."""
    if not variants:
        return []
    from vramscope.exporters.sweep.page import prepare_output

    return [
        variant if variant.file is not None else variant._replace(base=prepare_output(variant.base))
        for variant in variants
    ]


def _draw_all(loaded: LoadedSweep, variants: Sequence[Variant]) -> list[Path]:
    if not variants:
        return []
    from vramscope.exporters.sweep.page import write_heat_map

    files: list[Path] = []
    with ProgressLine(HEATMAP_PROGRAM, "figures drawn", is_eager=len(variants) > 1) as progress:
        for done, variant in enumerate(variants):
            progress.show_count(done, len(variants))
            files += write_heat_map(
                loaded.grid, loaded.findings, variant.base, variant.look, file=variant.file
            )[1]
        progress.show_count(len(variants), len(variants))
    return files


_LIMIT_BYTES = 1 << 18
_Inches = Annotated[float, msgspec.Meta(ge=0.5, le=100)]
_Dots = Annotated[int, msgspec.Meta(ge=10, le=2400)]


class VariantTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure; what is None is as in `BatchTable`."""

    style: PageStyle | None = None
    figsize: tuple[_Inches, _Inches] | None = None
    dpi: _Dots | None = None


class BatchTable(VariantTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory_dir: str
    output: str
    log_dir: str | None = None
    max_memory: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 80.0
    iteration: Annotated[int, msgspec.Meta(ge=0, lt=10**9)] | None = None
    variants: dict[str, VariantTable] | None = None


STANDARD_VARIANTS = {
    "standard": VariantTable(dpi=300),
    "highres": VariantTable(dpi=DPI),
    "compact": VariantTable(dpi=300),
}
_COMPACT_IN: dict[PageStyle, tuple[float, float]] = {"usenix": (COLUMN_IN, 2.6), "original": (6.0, 2.0)}


def read_batch(path: Path) -> HeatMapJob:
    """Return the sweep and the figures that a file of `--batch` describes.

        memory_dir = "traces/485B"
        log_dir = "log"
        output = "figures/heat"

        [variants.paper]
        style = "usenix"
        [variants.talk]
        style = "original"
        figsize = [16, 5.4]
        dpi = 200

    Paths are relative to the folder of the file. Without variants there are three: standard, highres,
    compact.
    """
    table = _decode(path)
    folder = path.parent
    variants = table.variants or STANDARD_VARIANTS
    wrong = next((name for name in variants if not name.replace("-", "").replace("_", "").isalnum()), None)
    if wrong is not None:
        raise InputFileError(
            f"{show_path(path)}: variants.{show_text(wrong)!r}: expected a name of letters, digits, - and _, "
            "since it becomes part of file names"
        )
    return HeatMapJob(
        memory_dir=folder / table.memory_dir,
        log_dir=None if table.log_dir is None else folder / table.log_dir,
        max_memory_gib=table.max_memory,
        iteration=table.iteration,
        variants=tuple(_make_variant(folder, table, name, variant) for name, variant in variants.items()),
    )


def _make_variant(folder: Path, table: BatchTable, name: str, variant: VariantTable) -> Variant:
    from vramscope.exporters.sweep.page import choose_base

    base = choose_base(folder / table.output)
    style: PageStyle = variant.style or table.style or "usenix"
    size_in = variant.figsize or table.figsize
    if variant is STANDARD_VARIANTS["compact"]:
        size_in = _COMPACT_IN[style]
    look = SweepLook(style, size_in, variant.dpi or table.dpi or DPI)
    return Variant(base.with_name(f"{base.name}_{name}"), look)


def _decode(path: Path) -> BatchTable:
    data = read_input_file(path, _LIMIT_BYTES)
    content = parse_toml(decode_text(data, path, "a file of variants"), path)
    try:
        return msgspec.convert(content, BatchTable)
    except msgspec.ValidationError as error:
        hint = _find_unknown_key(content)
        raise InputFileError(f"{show_path(path)}: {hint or error}") from error


def _find_unknown_key(content: dict[str, object]) -> str | None:
    """Return a sentence about the first unknown key, with the most similar known one."""
    variants = content.get("variants")
    tables = {"": (content, BatchTable)} | {
        f"variants.{name}.": (table, VariantTable)
        for name, table in (variants.items() if isinstance(variants, dict) else ())
        if isinstance(table, dict)
    }
    for place, (table, kind) in tables.items():
        known = kind.__struct_fields__
        for key in table:
            if key not in known:
                hint = suggest(key, known, f"the keys are {', '.join(known)}")
                return f"{show_text(place)}{show_text(key)}: unknown key; {hint}"
    return None
