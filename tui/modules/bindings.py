"""The keys of the Breakdown screen."""

from ..frame.bindings import bind

BREAKDOWN_BINDINGS = [
    bind(
        "left_square_bracket",
        "step_point(-1)",
        "modules-point-before",
        "earlier",
        "Show the point of the profile before this one.",
        shown_as="[",
        is_priority=True,
    ),
    bind(
        "right_square_bracket",
        "step_point(1)",
        "modules-point",
        "later",
        "Show the next point; after the last one comes the whole profile.",
        shown_as="]",
        is_priority=True,
    ),
    bind(
        "f",
        "step_kind(1)",
        "modules-kind",
        "kind",
        "Show one kind of memory after the other: all, parameters, gradients, optimizer, activations.",
        shown_as="f",
    ),
    bind("F", "step_kind(-1)", "modules-kind-before", "kind before", "Show the kind before."),
    bind(
        "b",
        "switch_basis",
        "modules-basis",
        "basis",
        "Draw by what was measured, or by what was computed from shapes.",
        shown_as="b",
    ),
    bind(
        "tab",
        "step_profile(1)",
        "modules-next",
        "next",
        "Show the next rank or run at the same place, held against the first.",
        shown_as="Tab",
        is_priority=True,
    ),
    bind(
        "shift+tab",
        "step_profile(-1)",
        "modules-before",
        "before",
        "Show the rank or run before.",
        is_priority=True,
    ),
    bind("i", "report", "modules-report", "report", "Read everything as text.", shown_as="i"),
    bind(
        "E",
        "export_breakdown",
        "modules-export",
        "export",
        "Write the icicle (SVG, PDF), its blocks (CSV), the picture and the report into a new folder here.",
        shown_as="E",
    ),
    bind("escape", "leave", "modules-leave", "back", "Go up to the whole tree, then out.", shown_as="Esc"),
]
"""Keys of the screen."""

LIVE_BREAKDOWN_BINDINGS = [
    bind("n", "follow_newest", "modules-newest", "newest", "Stay at the newest point.", shown_as="n"),
    bind(
        "o",
        "app.open_profiles",
        "modules-open",
        "open",
        "Open profiles in files or folders instead of a running process.",
        shown_as="o",
    ),
]
"""Keys of the screen over a running process."""

ICICLE_BINDINGS = [
    bind("enter", "zoom", "modules-zoom", "zoom", "Zoom into the block under the cursor.", shown_as="Enter"),
    bind("backspace", "zoom_out", "modules-zoom-out", "up", "Zoom out by one level.", shown_as="Bksp"),
    bind("up,k", "move_up", "modules-up", "above", "Go to what the block is part of."),
    bind("down,j", "move_down", "modules-down", "below", "Go to the first part of the block."),
    bind("left,h", "move_beside(-1)", "modules-left", "left", "Go to the block to the left."),
    bind("right,l", "move_beside(1)", "modules-right", "right", "Go to the block to the right."),
    bind("home", "move_beside(-1000000)", "modules-first", "first", "Go to the first block of the row."),
    bind("end", "move_beside(1000000)", "modules-last", "last", "Go to the last block of the row."),
]
"""Keys of the icicle."""
