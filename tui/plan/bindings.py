"""The keys of the Plan screen."""

from ..frame.bindings import bind

PLAN_BINDINGS = [
    bind("c", "mark", "plan-mark", "compare", "Mark this plan, then compare others with it.", shown_as="c"),
    bind(
        "tab,shift+tab",
        "switch_part",
        "plan-switch",
        "switch",
        "Go from the plans to the stages and back.",
        shown_as="Tab",
        is_priority=True,
    ),
    bind("s", "choose_sort", "plan-sort", "sort", "Choose the column to sort by.", shown_as="s"),
    bind("less_than_sign", "shift_sort(-1)", "plan-sort-left", "sort left", "Sort by the column before."),
    bind("greater_than_sign", "shift_sort(1)", "plan-sort-right", "sort right", "Sort by the next column."),
    bind("I", "invert_sort", "plan-invert", "invert sorting", "Sort the other way round."),
    bind(
        "slash",
        "filter",
        "plan-filter",
        "filter",
        "Show only plans in which every word that you type occurs.",
        shown_as="/",
        is_priority=True,
    ),
    bind(
        "a",
        "analysis",
        "plan-analysis",
        "analysis",
        "How the model's figures are spread over its layers, or what the search left out.",
        shown_as="a",
    ),
    bind("i", "report", "plan-report", "report", "Read everything as text.", shown_as="i"),
    bind(
        "E",
        "export_plan",
        "plan-export",
        "export",
        "Write the plan's files, the picture and the report into a new folder here.",
        shown_as="E",
    ),
    bind(
        "escape", "leave", "view-leave", "back", "Go back: to the stages, to the plans, out.", shown_as="Esc"
    ),
]
"""Keys of the screen."""

PLAN_LIST_BINDINGS = [
    bind(
        "enter",
        "open",
        "plan-open",
        "open",
        "Show the stages of the plan, then what is in the stage.",
        shown_as="Enter",
    ),
    bind("up,k", "move(-1)", "plan-up", "above", "Go to the line above."),
    bind("down,j", "move(1)", "plan-down", "next", "Go to the next line."),
    bind("pageup", "page(-1)", "plan-page-up", "page up", "Go up by one page."),
    bind("pagedown", "page(1)", "plan-page-down", "page down", "Go down by one page."),
    bind("home,g", "move(-1000000)", "plan-first", "first", "Go to the first line."),
    bind("end,G", "move(1000000)", "plan-last", "last", "Go to the last line."),
]
"""Keys of the lists on it."""
