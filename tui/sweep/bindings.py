"""The keys of the screens of sweeps."""

from ..frame.bindings import bind

SWEEP_BINDINGS = [
    bind(
        "e",
        "show_mode('error')",
        "sweep-error",
        "error",
        "Show the signed error of the theory, or what was measured.",
        shown_as="e",
    ),
    bind(
        "t",
        "show_mode('theory')",
        "sweep-theory",
        "theory",
        "Show what the theory said, or what was measured.",
        shown_as="t",
    ),
    bind(
        "tab",
        "step_sweep(1)",
        "sweep-next",
        "next sweep",
        "Show the next sweep; side by side, another one beside this.",
        shown_as="Tab",
        is_priority=True,
    ),
    bind(
        "shift+tab",
        "step_sweep(-1)",
        "sweep-before",
        "sweep before",
        "Show the sweep before.",
        is_priority=True,
    ),
    bind(
        "b",
        "beside",
        "sweep-beside",
        "beside",
        "Put another sweep beside this one: the same cell is marked in both.",
        shown_as="b",
    ),
    bind(
        "d",
        "show_mode('difference')",
        "sweep-difference",
        "difference",
        "Side by side: show the second less the first.",
        shown_as="d",
    ),
    bind("i", "report", "sweep-report", "report", "Read everything that the sweep says.", shown_as="i"),
    bind(
        "E",
        "export_figure",
        "sweep-export",
        "export",
        "Write the figure (PDF, SVG, PNG), every layout (CSV) and a text into this folder.",
        shown_as="E",
    ),
    bind(
        "escape",
        "leave",
        "sweep-leave",
        "back",
        "Go back: to one sweep, to the list, or out.",
        shown_as="Esc",
    ),
]
"""Keys of the screen of one sweep, or of two."""

GRID_BINDINGS = [
    bind(
        "enter",
        "open",
        "sweep-open",
        "replay",
        "Replay the marked layout; j and k then go from one to the next.",
        shown_as="Enter",
    ),
    bind("up,k", "move(-1, 0)", "sweep-up", "up", "Mark the cell above (less TP)."),
    bind("down,j", "move(1, 0)", "sweep-down", "down", "Mark the cell below (more TP)."),
    bind("left,h", "move(0, -1)", "sweep-left", "left", "Mark the cell to the left (less PP)."),
    bind("right,l", "move(0, 1)", "sweep-right", "right", "Mark the cell to the right (more PP)."),
    bind("pageup", "page(-1)", "sweep-page-up", "page up", "Go up by one page."),
    bind("pagedown", "page(1)", "sweep-page-down", "page down", "Go down by one page."),
    bind("home", "move(0, -1000000)", "sweep-first", "first", "Mark the first cell of the row."),
    bind("end", "move(0, 1000000)", "sweep-last", "last", "Mark the last cell of the row."),
    bind("g", "move(-1000000, 0)", "sweep-top", "top", "Mark the first cell of the column."),
    bind("G", "move(1000000, 0)", "sweep-bottom", "bottom", "Mark the last cell of the column."),
    bind("B", "go_best", "sweep-best", "best", "Mark the best layout."),
]
"""Keys of the grid."""

INDEX_BINDINGS = [
    bind("s", "choose_sort", "sweep-sort", "sort", "Choose what sweeps are sorted by.", shown_as="s"),
    bind(
        "less_than_sign",
        "shift_sort(-1)",
        "sweep-sort-left",
        "sort column left",
        "Sort by the column before.",
    ),
    bind(
        "greater_than_sign",
        "shift_sort(1)",
        "sweep-sort-right",
        "sort column right",
        "Sort by the next column.",
    ),
    bind("I", "invert_sort", "sweep-invert", "invert sorting", "Sort the other way round."),
    bind(
        "slash",
        "filter",
        "sweep-filter",
        "filter",
        "Show only some: model=485B, gpus>=1024, state=oom, words of the name.",
        shown_as="/",
        is_priority=True,
    ),
    bind("i", "report", "sweep-report", "report", "Read everything that the sweeps say.", shown_as="i"),
    bind(
        "E",
        "export_figure",
        "sweep-export",
        "export",
        "Write the listed sweeps as small multiples (PDF, SVG, PNG) and a text into this folder.",
        shown_as="E",
    ),
    bind("escape", "leave", "sweep-leave", "back", "Drop the filter, or go out.", shown_as="Esc"),
]
"""Keys of the list of sweeps."""

INDEX_LIST_BINDINGS = [
    bind("enter", "open", "sweep-open", "open", "Show the grid of the chosen sweep.", shown_as="Enter"),
    bind("up,k", "move(-1)", "sweep-up", "up", "Go to the sweep above."),
    bind("down,j", "move(1)", "sweep-down", "down", "Go to the sweep below."),
    bind("pageup", "page(-1)", "sweep-page-up", "page up", "Go up by one page."),
    bind("pagedown", "page(1)", "sweep-page-down", "page down", "Go down by one page."),
    bind("home,g", "move(-1000000)", "sweep-first", "first", "Go to the first sweep."),
    bind("end,G", "move(1000000)", "sweep-last", "last", "Go to the last sweep."),
]
"""Keys of the list itself."""
