"""The Breakdown screen: memory by module and kind as an icicle, at every point of a profile."""

import csv
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from textual import events, on
from textual.app import ComposeResult

from ...analyzers.modules import (
    Basis,
    BreakdownNode,
    ComparedNode,
    choose_basis,
    choose_common_basis,
    compare_trees,
    make_breakdown,
)
from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import write_files
from ...engine.model.sample import ModuleMemory
from ...engine.settings import Settings
from ...engine.text import make_csv_cell
from ...exporters.modules.page import describe_origin
from ...exporters.modules.text import (
    DEFAULT_DEPTH,
    NamedProfile,
    caption_difference,
    describe_difference,
    describe_module_memory,
)
from ..draw.pieces import Piece, join_pieces
from ..frame import keys
from ..frame.background import run_in_background
from ..frame.export import describe_written, make_new_folder
from ..frame.keys import KEYS_OF_THE_VIEW
from ..screens.dialogs import REPORT_WIDTH, TextScreen
from ..screens.file_view import FileScreen, FileView, show_file
from ..widgets.one_line import OneLine
from .icicle import BreakdownIcicle, BreakdownTable
from .profiled import (
    ALL_KINDS,
    FIGURES_FROM_CELLS,
    KIND_CHOICES,
    NAMES_FROM_CELLS,
    Block,
    Place,
    Profiled,
    describe_cause,
    describe_most,
    describe_narrow,
    describe_other,
    describe_path,
    describe_sizes,
    find_block,
    list_kinds,
    name_point,
)

COLUMNS = ("path", "measured_bytes", "computed_bytes")


class ExportedTree(NamedTuple):
    title: str
    # Whose data it is, in a sentence.
    origin: str
    tree: BreakdownNode
    basis: Basis
    # The picture of the screen.
    svg: str
    report: str
    # Difference from the first profile, if another one is shown.
    difference: "ExportedDifference | None" = None


class ExportedDifference(NamedTuple):
    title: str
    caption: str
    tree: ComparedNode
    basis: Basis
    report: str


def export_breakdown(shown: ExportedTree, folder: Path, now_s: float) -> list[Path]:
    """Write everything into a new folder in `folder`, named by the wall time, and return the files.

    Raises:
        OutputFileError: The folder or a file cannot be written.
    """
    from ...exporters.modules.figure import draw_icicle

    try:
        made = make_new_folder(folder, f"vramscope-modules-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}")
    except OSError as error:
        raise OutputFileError(f"{show_path(folder)}: {error.strerror or error}") from error
    texts = {"screen.svg": shown.svg, "modules.txt": shown.report, "blocks.csv": write_table(shown.tree)}
    files = write_files({name: text.encode() for name, text in texts.items()}, made)
    figures = [made / f"icicle.{ending}" for ending in ("svg", "pdf")]
    for path in figures:
        draw_icicle(shown.title, shown.origin, shown.tree, shown.basis, path)
    return [*files, *figures, *_export_difference(shown.difference, made)]


def _export_difference(shown: ExportedDifference | None, folder: Path) -> list[Path]:
    if shown is None:
        return []
    from ...exporters.modules.figure import draw_difference_icicle
    from ...exporters.modules.text import write_difference_table

    table = write_difference_table(shown.tree, shown.basis)
    texts = {"differences.csv": table.encode(), "differences.txt": shown.report.encode()}
    figures = [folder / f"difference_icicle.{ending}" for ending in ("svg", "pdf")]
    for path in figures:
        draw_difference_icicle(shown.title, shown.caption, shown.tree, path)
    return [*write_files(texts, folder), *figures]


def write_table(tree: BreakdownNode) -> str:
    """Return every block as a line of CSV, parents first; unmeasured values are empty."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_list_rows(tree, tree.name))
    return text.getvalue()


def _list_rows(node: BreakdownNode, path: str) -> Iterator[tuple[str, int | None, int | None]]:
    yield make_csv_cell(path), node.measured_bytes, node.computed_bytes
    for child in node.children:
        yield from _list_rows(child, f"{path}/{child.name}")


LEAST_ROWS_FOR_TABLE = 16
LEAST_ROWS_FOR_CAUSE = 14


class BreakdownScreen(FileScreen[Sequence[Profiled]]):
    """One point of one profile at a time; `Esc` at the whole tree calls `leave`, if any."""

    BINDINGS = [*keys.BREAKDOWN]
    NAME = "vramscope modules"
    DEFAULT_CSS = """
    BreakdownScreen {
        #icicle { height: 1fr; }
        #table { height: 1fr; }
    }
    """

    def __init__(
        self,
        *,
        leave: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        self._leave = leave
        self._profiles: tuple[Profiled, ...] = ()
        self._at = 0
        self.place = Place()
        self._wanted: Basis | None = None
        self._every: BreakdownNode | None = None
        self._tree: BreakdownNode | None = None
        self._kinds = OneLine(id="kinds")
        self._path = OneLine(id="path")
        self.icicle = BreakdownIcicle(id="icicle")
        self._table = BreakdownTable(id="table")
        self._figures = OneLine(id="figures")
        self._cause = OneLine(id="cause")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self._kinds
        yield self.icicle
        yield self._path
        yield self._figures
        yield self._cause
        yield self._table
        yield self._keys

    def on_mount(self) -> None:
        self._keys.hide(KEYS_OF_THE_VIEW)
        self.icicle.focus()
        self._show_place()

    @property
    def profile(self) -> Profiled | None:
        return self._profiles[self._at] if self._profiles else None

    @property
    def basis(self) -> Basis:
        """Whether lengths are measured or computed bytes."""
        if self._wanted is not None or self._tree is None:
            return self._wanted or "measured"
        return choose_basis(self._tree)

    @property
    def report(self) -> str:
        return "" if self.profile is None else describe_module_memory(self.profile.memory, width=REPORT_WIDTH)

    def show(self, found: Sequence[Profiled]) -> None:
        self._profiles = tuple(found)
        self._at = 0
        self.place = Place()
        if self.is_mounted:
            self._show_place()

    def _show_place(self) -> None:
        """Make the tree of the place, and draw everything."""
        if self.profile is None or not self.profile.memory.moments:
            return
        memory = self.profile.memory
        self._every = self.place._replace(kind=ALL_KINDS).make_tree(memory)
        self._tree = self._every if self.place.kind == ALL_KINDS else self.place.make_tree(memory)
        self._breakdown = make_breakdown(memory, self.place.point)
        self._rearrange()
        self.icicle.show(self._tree, self.basis)
        self._draw_lines()

    @on(BreakdownIcicle.Moved)
    @on(events.Resize)
    def draw_block(self) -> None:
        """Draw the facts of the block under the cursor, once the icicle has its rows."""
        self._rearrange()
        self.call_after_refresh(self._draw_lines)

    def _rearrange(self) -> None:
        """Share the rows: the icicle has what its levels need, the table what is left."""
        height = self.size.height
        self._table.display = height >= LEAST_ROWS_FOR_TABLE
        self._cause.display = height >= LEAST_ROWS_FOR_CAUSE
        if self._table.display:
            levels = 1 if self._tree is None else count_levels(self._tree) - len(self.icicle.zoom)
            self.icicle.styles.height = max(1, min(levels, (height - 7) * 2 // 3))
        else:
            self.icicle.styles.height = "1fr"

    def _draw_lines(self) -> None:
        profile = self.profile
        if profile is None or not profile.memory.moments:
            return
        self._draw_head(profile)
        block = self._find_block()
        if block is None or self._tree is None:
            for line in (self._path, self._figures, self._cause):
                line.set_pieces([])
        else:
            is_wide = self.size.width >= NAMES_FROM_CELLS
            left_out = describe_narrow(self.icicle.narrow) if is_wide else ""
            self._path.set_pieces(
                [Piece(describe_path(block, self._tree), "strong")],
                [Piece(left_out, "muted")] if left_out else [],
            )
            texts = [describe_sizes(block, self._tree), describe_other(block)]
            self._figures.set_pieces(join_pieces([[Piece(text)] for text in texts if text]))
            self._cause.set_pieces([Piece(describe_cause(block, self._tree, self._breakdown), "muted")])
        self._table.show(None if block is None else block.node, self.basis)

    def _draw_head(self, profile: Profiled) -> None:
        memory = profile.memory
        place = self.place
        simulated = " simulated device" if memory.is_simulated else ""
        self._title.set_pieces(
            [
                Piece(self._name_screen(), "accent"),
                Piece(simulated, "high"),
                Piece(f"  {self._name_profile(profile)}", "muted"),
            ],
            [Piece(self._name_point(memory), "muted")],
        )
        self._verdict.set_pieces([Piece(self._describe_verdict(memory), "strong")])
        is_narrow = self.size.width < NAMES_FROM_CELLS
        self._kinds.set_pieces(
            list_kinds(self._every, self.basis, place.kind, self.glyphs, self.size.width),
            [Piece(simulated, "high")] if is_narrow else [],
        )

    def _name_screen(self) -> str:
        return self.NAME if self.size.width >= FIGURES_FROM_CELLS else "vramscope"

    def _name_profile(self, profile: Profiled) -> str:
        count = len(self._profiles)
        return profile.name if count == 1 else f"{profile.name} ({self._at + 1} of {count})"

    def _name_point(self, memory: ModuleMemory) -> str:
        return name_point(memory, self.place)

    def _describe_verdict(self, memory: ModuleMemory) -> str:
        return describe_most(self._tree, self.basis, memory, self.place)

    def _find_in_other(self, other: ModuleMemory) -> Place | None:
        """Return the place of another profile to compare with this one's."""
        return None if self.profile is None else self.place.find_in_other(self.profile.memory, other)

    def _find_block(self) -> Block | None:
        path = self.icicle.chosen
        node = find_block(self._tree, path)
        if node is None or self.profile is None:
            return None
        if self._at == 0:
            return Block(path, node, self.basis)
        first = self._profiles[0]
        place = self._find_in_other(first.memory)
        other = None if place is None else find_block(place.make_tree(first.memory), path)
        return Block(path, node, self.basis, first.name, other)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: `step_profile` needs another profile."""
        return action != "step_profile" or len(self._profiles) > 1

    def action_step_point(self, places: int) -> None:
        """Show another point; after the last one comes the whole profile."""
        if self.profile is None or not self.profile.memory.moments:
            return
        count = len(self.profile.memory.moments)
        at = count if self.place.point is None else self.place.point
        moved = max(0, min(at + places, count))
        self._go_to(self.place._replace(point=None if moved == count else moved))

    def action_step_kind(self, places: int) -> None:
        names = list(KIND_CHOICES)
        self._go_to(self.place._replace(kind=names[(names.index(self.place.kind) + places) % len(names)]))

    def _go_to(self, place: Place) -> None:
        if place != self.place:
            if place.kind != self.place.kind:
                self.icicle.zoom = self.icicle.chosen = ()
            self.place = place
            self._show_place()

    def action_switch_basis(self) -> None:
        self._wanted = "computed" if self.basis == "measured" else "measured"
        self._show_place()

    def action_step_profile(self, places: int) -> None:
        """Show another rank or run, at the same point where it has as many."""
        if self.profile is None:
            return
        at = (self._at + places) % len(self._profiles)
        found = self._find_in_other(self._profiles[at].memory)
        self._at = at
        self.place = found or self.place._replace(point=None)
        self._show_place()

    def action_leave(self) -> None:
        """Zoom out to the whole tree, then leave."""
        if self.icicle.zoom:
            self.icicle.go_to(self.icicle.chosen, ())
        elif self._leave is not None:
            self._leave()

    def action_report(self) -> None:
        if self.profile is not None:
            describe = partial(describe_module_memory, self.profile.memory)
            self.app.push_screen(TextScreen(self.profile.name, lambda width: describe(width=width)))

    def _compare_with_first(self) -> ExportedDifference | None:
        """Return the difference of this point from the same one of the first profile, of all kinds."""
        profile = self.profile
        first = self._profiles[0]
        place = self._find_in_other(first.memory)
        if self._at == 0 or profile is None or place is None:
            return None
        every = place._replace(kind=ALL_KINDS).make_tree(first.memory)
        basis = choose_common_basis(every, self._every)
        tree = compare_trees(every, self._every, basis)
        pair = NamedProfile(first.name, first.memory), NamedProfile(profile.name, profile.memory)
        return ExportedDifference(
            f"Memory by module, {basis}: {profile.name} compared with {first.name}, "
            f"{name_point(profile.memory, self.place)}",
            caption_difference(tree, basis, first.memory, profile.memory),
            tree,
            basis,
            describe_difference(*pair, width=REPORT_WIDTH, depth=DEFAULT_DEPTH),
        )

    def action_export_breakdown(self) -> None:
        if self.profile is None or self._tree is None:
            self.notify("There is nothing to export.", timeout=3)
            return
        memory = self.profile.memory
        app = self.terminal_app
        folder = app.export_folder or Path.cwd()
        title = f"Memory by module, {self.basis}: {self.profile.name}, {name_point(memory, self.place)}"
        shown = ExportedTree(
            title,
            describe_origin(memory),
            self._tree,
            self.basis,
            app.export_screenshot(),
            self.report,
            self._compare_with_first(),
        )
        run_in_background(
            self,
            lambda: export_breakdown(shown, folder, app.clock.wall_s()),
            then=lambda files: self.notify(describe_written(files)),
            otherwise=lambda error: self.notify(f"Not exported: {error}", severity="error"),
        )


def count_levels(tree: BreakdownNode) -> int:
    """Return the levels of a tree, with its root's."""
    return 1 + max((count_levels(child) for child in tree.children), default=0)


def view_breakdown(read: Callable[[], Sequence[Profiled]]) -> FileView[BreakdownScreen, Sequence[Profiled]]:
    """Return the view of profiles by module, which are read on a thread."""
    return FileView(
        lambda app: BreakdownScreen(), read, lambda passed_s: f"reading: {passed_s:.0f} s; q leaves"
    )


def show_breakdown(read: Callable[[], Sequence[Profiled]], settings: Settings) -> int:
    """Show profiles until the user quits, and return the exit code.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A profile cannot be read or understood.
    """
    return show_file(view_breakdown(read), settings)
