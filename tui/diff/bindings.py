"""The keys of `vramscope diff`."""

from ..frame.bindings import bind

DIFFERENCE_BINDINGS = [
    bind("i", "report", "view-report", "report", "Read everything that was found.", shown_as="i"),
    bind(
        "f,right",
        "next_figure(1)",
        "view-figure",
        "figure",
        "Show another figure: what says most, then each in turn.",
        shown_as="f",
    ),
    bind("F,left", "next_figure(-1)", "view-figure-back", "figure before", "Show the figure before."),
]
"""Keys of the screen of two runs."""

LIST_BINDINGS = [
    bind("up,k", "move(-1)", "device-up", "above", "Go to the rank or device above."),
    bind("down,j", "move(1)", "device-down", "next", "Go to the rank or device below.", shown_as="j/k"),
    bind("pageup", "page(-1)", "device-page-up", "page up", "Go up by one page."),
    bind("pagedown", "page(1)", "device-page-down", "page down", "Go down by one page."),
    bind("home,g", "move(-1000000)", "device-first", "first", "Go to the first one."),
    bind("end,G", "move(1000000)", "device-last", "last", "Go to the last one."),
]
"""Keys of the list of ranks and devices."""
