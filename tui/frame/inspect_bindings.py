"""The keys of `vramscope inspect`."""

from .bindings import APP_BINDINGS, bind

_SHARED = ("view-theme", "app-commands", "app-help")

INSPECT_APP_BINDINGS = [
    *(binding for binding in APP_BINDINGS if binding.id in _SHARED),
    bind("E", "export", "view-export", "export", "Write the picture (SVG) and the report into this folder."),
    bind("q", "quit", "app-quit", "quit", "Leave.", shown_as="q"),
    bind(
        "ctrl+c,ctrl+q,ctrl+d",
        "quit",
        "app-quit",
        "quit",
        "Leave.",
        is_priority=True,
    ),
]
"""Keys that work on every screen."""

INSPECT_BINDINGS = [
    bind("i", "report", "view-report", "report", "Read everything that the file says.", shown_as="i"),
    bind(
        "o",
        "failures",
        "view-failures",
        "out of memory",
        "Read which requests failed.",
        shown_as="o",
    ),
    bind(
        "s",
        "settings",
        "view-settings",
        "settings",
        "Read what other allocator settings would have reserved, as simulated.",
        shown_as="s",
    ),
    bind(
        "d",
        "choose_device",
        "device-choose",
        "device",
        "Choose the device to show.",
        shown_as="d",
    ),
]
"""Keys of the screen of one file."""

STACK_BINDINGS = [
    bind("enter", "open_stack", "stack-open", "whole stack", "Show the whole stack.", shown_as="Enter"),
    bind("up,k", "move(-1)", "stack-up", "previous stack", "Go to the stack above."),
    bind("down,j", "move(1)", "stack-down", "next stack", "Go to the stack below."),
    bind("pageup", "page(-1)", "stack-page-up", "page up", "Go up by one page."),
    bind("pagedown", "page(1)", "stack-page-down", "page down", "Go down by one page."),
    bind("home,g", "move(-1000000)", "stack-first", "first stack", "Go to the largest."),
    bind("end,G", "move(1000000)", "stack-last", "last stack", "Go to the smallest that is listed."),
]
"""Keys of the list of stacks."""
