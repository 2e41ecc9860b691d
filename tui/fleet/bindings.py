"""Keys of the screen of a fleet."""

from ..frame.bindings import bind

FLEET_VIEW_BINDING = bind(
    "0",
    "show_fleet",
    "view-fleet",
    "Fleet",
    "Every device of every node, a cell each.",
    shown_as="0",
)
FLEET_BACK_BINDING = bind(
    "backspace", "show_fleet", "view-fleet", "Fleet", "Every device of every node, a cell each."
)

FLEET_BINDINGS = [
    bind(
        "slash",
        "filter",
        "fleet-filter",
        "filter",
        "Show only devices for which all terms hold, such as node:gpu1* used>90% risk>=medium.",
        shown_as="/",
        is_priority=True,
    ),
    bind(
        "g",
        "choose_grouping",
        "fleet-group",
        "group",
        "Group devices by node, job, or place in the parallel layout (tp, pp, dp).",
        shown_as="g",
    ),
    bind("s", "choose_sort", "fleet-sort", "sort", "Choose what goes first: risk, used, name.", shown_as="s"),
    bind("n", "ask_nodes", "fleet-nodes", "nodes", "Every node in a line: age, clock, agent.", shown_as="n"),
    bind(
        "c",
        "ask_cluster",
        "fleet-cluster",
        "cluster",
        "What is known across nodes: findings, jobs, their pipeline stages.",
        shown_as="c",
    ),
    bind("v", "switch_figure", "fleet-cells", "cells", "Cells show how full devices are, or their risk."),
    bind("escape", "leave", "view-leave", "back", "Drop the filter, or let the cursor follow the gravest."),
]
"""Keys of the screen."""

FLEET_GRID_BINDINGS = [
    bind("up,k", "move(0, -1)", "device-up", "up", "Select the device above."),
    bind("down,j", "move(0, 1)", "device-down", "down", "Select the device below."),
    bind("left,h", "move(-1, 0)", "device-left", "left", "Select the device to the left."),
    bind("right,l", "move(1, 0)", "device-right", "right", "Select the device to the right."),
    bind("pageup", "page(-1)", "device-page-up", "page up", "Go up by a page."),
    bind("pagedown", "page(1)", "device-page-down", "page down", "Go down by a page."),
    bind("home", "end(0)", "device-first", "first", "Select the first device."),
    bind("end", "end(-1)", "device-last", "last", "Select the last device."),
    bind("enter", "open", "device-open", "open", "Show its node, with it selected.", shown_as="Enter"),
]
"""Keys of the grid."""

NODES_BINDINGS = [
    bind("up,k", "move(-1)", "node-up", "up", "Select the node above."),
    bind("down,j", "move(1)", "node-down", "down", "Select the node below."),
    bind("pageup", "page(-1)", "node-page-up", "page up", "Go up by a page."),
    bind("pagedown", "page(1)", "node-page-down", "page down", "Go down by a page."),
    bind("home", "move(-9999)", "node-first", "first", "Select the first node."),
    bind("end", "move(9999)", "node-last", "last", "Select the last node."),
    bind("enter", "open", "node-open", "open", "Show the node.", shown_as="Enter"),
]
"""Keys of the list of nodes."""

NODES_SCREEN_BINDINGS = [
    bind("escape,n", "app.step_back", "view-leave", "back", "Go back to the fleet.", shown_as="Esc"),
]
"""Keys of its screen."""

CLUSTER_PAGE_BINDINGS = [
    bind("up,k", "scroll(-0.01)", "page-up-line", "up", "Scroll up."),
    bind("down,j", "scroll(0.01)", "page-down-line", "down", "Scroll down."),
    bind("pageup", "scroll(-1)", "page-up", "page up", "Scroll up by a page."),
    bind("pagedown", "scroll(1)", "page-down", "page down", "Scroll down by a page."),
]
"""Keys of the page on a cluster."""

CLUSTER_SCREEN_BINDINGS = [
    bind("escape,c", "app.step_back", "view-leave", "back", "Go back to the fleet.", shown_as="Esc"),
]
"""Keys of its screen."""
