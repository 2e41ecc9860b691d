"""The keys: one table, a line a key; screens, key line, help and palette read it.

Every key has an id `group-verb`: users bind it to another key by it, and help lists it under its group.
"""

from dataclasses import replace
from typing import NamedTuple, Protocol, cast

from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget

# In the order in which help lists them.
GROUP_TITLES = {
    "replay": "Replay",
    "bar": "Time bar",
    "node": "Nodes",
    "fleet": "Fleet",
    "sweep": "Sweeps",
    "view": "View",
    "device": "Devices",
    "alerts": "Alerts",
    "plan": "Plan",
    "modules": "Memory by module",
    "page": "Page",
    "process": "Processes",
    "stack": "Stacks",
    "moment": "A moment of the history",
    "filter": "Filter",
    "app": "Application",
}

# Actions of a view below, hidden in the key line of a screen above it; the help lists them all.
KEYS_OF_THE_VIEW = (
    *("show_device", "show_alerts", "open_tool", "pause", "record", "replay", "go_to", "step_node"),
)

# Keys that join the key line in a wide pane, after those that are always named; the most used first.
NAMED_WITH_ROOM = (
    *("process-attach", "process-columns", "process-tree", "process-environment", "app-record"),
    *("view-export", "process-advise", "view-theme"),
)

# Verbs of movements, which the palette leaves out.
MOVEMENTS = ("up", "down", "left", "right", "first", "last", "page-up", "page-down")

# Rows to move to get to the first or the last, wherever the cursor is.
FAR = 1_000_000


def key(
    keys: str, action: str, id: str, label: str, sentence: str, shown_as: str = "", *, first: bool = False
) -> Binding:
    """Return one key.

    Args:
        keys: Textual's names, separated by commas.
        id: `group-verb`.
        label: What it does in a word or two, for the key line and the palette.
        sentence: What it does, for the help.
        shown_as: Name of the key in the key line; empty leaves it out there.
        first: Whether it takes precedence over the focused widget.
    """
    return Binding(
        keys,
        action,
        label,
        show=bool(shown_as),
        key_display=shown_as or None,
        tooltip=sentence,
        id=id,
        priority=first,
    )


def moves(
    group: str, *sentences: str, first: str = "home,g", last: str = "end,G", down_shown_as: str = ""
) -> list[Binding]:
    """Return the movements in a list: up, down, a page up, a page down, to the first, to the last.

    Args:
        first: Keys that go to the first row, where letters have another meaning.
        last: Keys that go to the last row.
    """
    up, down, page_up, page_down, to_first, to_last = sentences
    return [
        key("up,k", "move(-1)", f"{group}-up", "up", up),
        key("down,j", "move(1)", f"{group}-down", "next", down, down_shown_as),
        key("pageup", "page(-1)", f"{group}-page-up", "page up", page_up),
        key("pagedown", "page(1)", f"{group}-page-down", "page down", page_down),
        key(first, f"move({-FAR})", f"{group}-first", "first", to_first),
        key(last, f"move({FAR})", f"{group}-last", "last", to_last),
    ]


def moves_across(group: str, *sentences: str) -> list[Binding]:
    """Return the movements in a grid: up, down, left, right, a page up and down, to the first, to
    the last.
    """
    up, down, left, right, page_up, page_down, to_first, to_last = sentences
    return [
        key("up,k", "move(0, -1)", f"{group}-up", "up", up),
        key("down,j", "move(0, 1)", f"{group}-down", "down", down),
        key("left,h", "move(-1, 0)", f"{group}-left", "left", left),
        key("right,l", "move(1, 0)", f"{group}-right", "right", right),
        key("pageup", "page(-1)", f"{group}-page-up", "page up", page_up),
        key("pagedown", "page(1)", f"{group}-page-down", "page down", page_down),
        key("home", "end(0)", f"{group}-first", "first", to_first),
        key("end", "end(-1)", f"{group}-last", "last", to_last),
    ]


def sorts(group: str, choose: str, before: str, after: str, label: str = "sort column") -> list[Binding]:
    return [
        key("s", "choose_sort", f"{group}-sort", "sort", choose, "s"),
        key("less_than_sign", "shift_sort(-1)", f"{group}-sort-left", f"{label} left", before),
        key("greater_than_sign", "shift_sort(1)", f"{group}-sort-right", f"{label} right", after),
        key("I", "invert_sort", f"{group}-invert", "reverse order", "Reverse the sort order."),
    ]


def filters(group: str, sentence: str) -> Binding:
    return key("slash", "filter", f"{group}-filter", "filter", sentence, "/", first=True)


def chooses(group: str, leave: str) -> list[Binding]:
    """Return the keys of a question with a list of answers; the list widget handles arrows and Enter."""
    return [
        key(leave, "dismiss(None)", f"{group}-cancel", "cancel", "Cancel."),
        key("j", "move(1)", f"{group}-down", "down", "Next line."),
        key("k", "move(-1)", f"{group}-up", "up", "Previous line."),
    ]


def scrolls(group: str, leave: str) -> list[Binding]:
    return [
        key(leave, "dismiss", f"{group}-close", "close", "Close."),
        key("down,j", "scroll(1)", f"{group}-down", "down", "Scroll down."),
        key("up,k", "scroll(-1)", f"{group}-up", "up", "Scroll up."),
        key("pagedown", "page(1)", f"{group}-page-down", "page down", "Scroll down by a page."),
        key("pageup", "page(-1)", f"{group}-page-up", "page up", "Scroll up by a page."),
        key("home", f"scroll({-FAR})", f"{group}-first", "first", "Go to the start."),
        key("end", f"scroll({FAR})", f"{group}-last", "last", "Go to the end."),
    ]


_PAGES = ("Go up by one page.", "Go down by one page.")
_NOTES = key(
    "i", "notes", "view-notes", "notes", "Show the notes: what limits the data, and what was left out."
)

# The table, a line a key.
# fmt: off

# ── every screen ──
# What is opened over the view, by the room whose `tool.py` opens it.
TOOLS = {
    "sweep": key("5", "open_tool('sweep')", "view-sweep", "Sweep", "Sweeps over TP and PP in a folder: what fits, what ran out of memory.", "5"),
    "plan": key("6", "open_tool('plan')", "view-plan", "Plan", "Split a model into pipeline stages; compare with the running job's memory.", "6"),
    "modules": key("7", "open_tool('modules')", "view-breakdown", "Breakdown", "Memory by module and kind, of a training process or of profiles in files.", "7"),
}
_VIEWS = [
    key("1", "show_live", "view-live", "Live", "Live view of all devices.", "1"),
    key("2", "show_device", "view-device", "Device", "One device in full: history, what fills it, segments.", "2"),
    key("3", "show_alerts", "view-alerts", "Alerts", "All findings: evidence, advice, history; acknowledge and mute.", "3"),
    *TOOLS.values(),
]
_PAUSE = key("space", "pause", "view-pause", "pause", "Pause or resume the display; sampling goes on.", "space")
_THEME = key("T", "next_theme", "view-theme", "next theme", "Switch to the next theme: dark, light, high contrast, mono.")
_CHART = key("u", "app.switch_chart", "view-chart", "charts", "Switch the charts between memory and utilisation, and to both where they fit.", "u")
_COMMANDS = key("ctrl+p", "command_palette", "app-commands", "commands", "Search every command by name.")
_HELP = [
    key("question_mark", "help", "app-help", "help", "Show this help.", "?"),
    key("f1", "help", "app-help", "help", "Show this help."),
]
_SETTINGS = [
    _THEME,
    key("E", "export", "view-export", "export", "Write the screen (SVG) and its data (JSON) to this folder."),
    _COMMANDS,
    key("f12", "save_settings", "app-save-settings", "save settings", "Save the theme, and sorting, columns and tree of the process list, for next time."),
    *_HELP,
    key("q", "quit", "app-quit", "quit", "Quit vramscope; training goes on.", "q"),
    key("ctrl+c,ctrl+q,ctrl+d", "quit", "app-quit", "quit", "Quit vramscope; training goes on.", first=True),
]
VIEW = [*_VIEWS, _PAUSE, *_SETTINGS]
NODES = [
    key("tab", "step_node(1)", "node-next", "next node", "Show the next node.", first=True),
    key("shift+tab", "step_node(-1)", "node-before", "previous node", "Show the previous node.", first=True),
]
EXAMPLES = [
    key("d", "open_example('demo')", "app-demo", "demo", "Leave the view and watch a small job on a simulated GPU, until its memory runs out.", "d"),
    key("r", "open_example('replay')", "app-example", "example", "Leave the view and replay a recording of such a job.", "r"),
]
RECORD = key("R", "record", "app-record", "record", "Start or stop recording this node; it goes on when you quit.")
ADVISE = key("A", "advise", "process-advise", "advise", "Advise the selected training process, for example to release its cache.")
SHOW_FLEET = [
    key("0", "show_fleet", "view-fleet", "Fleet", "All devices of all nodes, one cell each.", "0"),
    key("backspace", "show_fleet", "view-fleet", "Fleet", "All devices of all nodes, one cell each."),
]
_LEAVE_FILE = [
    key("q", "quit", "app-quit", "quit", "Quit.", "q"),
    key("ctrl+c,ctrl+q,ctrl+d", "quit", "app-quit", "quit", "Quit.", first=True),
]
# For `sweep`, `plan` and `modules`, whose screens have their own key for export.
FILE_WITHOUT_EXPORT = [_THEME, _COMMANDS, *_HELP, *_LEAVE_FILE]
FILE = [
    *(_THEME, _COMMANDS, *_HELP),
    key("E", "export", "view-export", "export", "Write the screen (SVG) and the report to this folder."),
    *_LEAVE_FILE,
]

# ── a replay: `j` and `k` move in time, lists go by arrows and Home ──
REPLAY = [
    key("space", "pause", "replay-pause", "pause", "Pause or play; at the end, play from the start.", "space"),
    key("left_square_bracket", "replay('step', -1)", "replay-frame-back", "back", "Pause and show the previous sample.", "[", first=True),
    key("right_square_bracket", "replay('step', 1)", "replay-frame", "fwd", "Pause and show the next sample.", "]", first=True),
    key("j", "replay('skip', -10)", "replay-back", "−10s", "Go back 10 s.", "j", first=True),
    key("k", "replay('skip', 10)", "replay-on", "+10s", "Go forward 10 s.", "k", first=True),
    key("g", "go_to", "replay-go-to", "go to", "Go to a time of day, a date, 1h20m, 35% or +10m.", "g", first=True),
    key("n", "replay('mark', 1)", "replay-next", "next", "Go to the next finding or out-of-memory error; without any, to the next step.", "n", first=True),
    key("N", "replay('mark', -1)", "replay-before", "previous", "Go to the previous finding or out-of-memory error; without any, to the previous step.", "N", first=True),
    key("plus,equals_sign", "replay('speed', 1)", "replay-faster", "faster", "Play twice as fast, up to 64 times.", "+", first=True),
    key("minus", "replay('speed', -1)", "replay-slower", "slower", "Play half as fast, down to a quarter.", "-", first=True),
    key("z", "zoom_bar(0.5)", "replay-zoom", "zoom in", "Show half of the time in the bar, around the moment; charts show no more than that.", first=True),
    key("Z", "zoom_bar(2)", "replay-zoom-out", "zoom out", "Show twice the time in the bar, up to all of it.", first=True),
    key("left_parenthesis", "pan_bar(-0.5)", "replay-pan-back", "bar back", "Move the zoomed bar back by half of what it shows; the moment stays.", first=True),
    key("right_parenthesis", "pan_bar(0.5)", "replay-pan-on", "bar on", "Move the zoomed bar on by half of what it shows; the moment stays.", first=True),
    key("L", "replay('loop')", "replay-loop", "loop", "At the end, start again or stop.", "L", first=True),
    *NODES,
    *_VIEWS,
    *_SETTINGS,
]
PLAYLIST = [
    key("right_curly_bracket", "replay('turn', 1)", "replay-next-run", "next config", "Go to the next configuration of the sweep that has a trace.", "}", first=True),
    key("left_curly_bracket", "replay('turn', -1)", "replay-run-before", "previous config", "Go to the previous configuration of the sweep that has a trace.", "{", first=True),
    *REPLAY,
]
# Once Tab or a click has given the time bar the focus.
TIME_BAR = [
    key("left", "app.replay('skip', -10)", "bar-back", "−10s", "Go back 10 s."),
    key("right", "app.replay('skip', 10)", "bar-on", "+10s", "Go forward 10 s."),
    key("shift+left", "app.replay('step', -1)", "bar-frame-back", "back", "Show the previous sample."),
    key("shift+right", "app.replay('step', 1)", "bar-frame-on", "fwd", "Show the next sample."),
    key("home", "app.replay('go', 0, '0%')", "bar-start", "start", "Go to the start."),
    key("end", "app.replay('go', 0, '100%')", "bar-end", "end", "Go to the end."),
]

# ── live ──
_PROCESS_LIST = [
    *sorts("process", "Choose the column to sort processes by.", "Sort by the column to the left.", "Sort by the column to the right."),
    filters("process", "Show only processes whose user, PID, command or GPU contains what you type."),
    key("c", "choose_columns", "process-columns", "columns", "Choose the columns of the process list."),
    key("t", "switch_tree", "process-tree", "tree", "List processes as a tree: children, such as data workers, below their parents."),
    key("e", "show_environment", "process-environment", "environment", "Show the environment that the selected process was started with; secrets are masked."),
    key("K", "signal", "process-signal", "signal", "Send a signal to the selected process, or to all marked ones; asks first.", "K"),
    key("a", "app.attach", "process-attach", "attach", "Attach to the selected process, or your only one without a probe, so that it reports its memory; detach; asks first."),
    _NOTES,
]
LIVE = [
    *_PROCESS_LIST,
    _CHART,
    key("tab,shift+tab", "switch_part", "view-switch", "switch", "Switch between devices and processes.", "Tab", first=True),
    key("p", "switch_part", "view-switch", "switch", "Switch between devices and processes."),
    key("escape", "leave", "view-leave", "back", "Leave the process list, or clear the filter."),
]
DEVICE_PANELS = [
    *moves_across("device", "Select the device above.", "Select the device below.", "Select the device to the left.", "Select the device to the right.",
                  "Go up by a page of devices.", "Go down by a page of devices.", "Select the first device.", "Select the last device."),
    key("enter", "open", "device-open", "Open", "Show the selected device in full."),
]
PROCESSES = [
    *moves("process", "Select the process above.", "Select the process below.", *_PAGES, "Go to the first process.", "Go to the last process."),
    key("left,h", "shift(-1)", "process-left", "left", "Scroll the commands to the left."),
    key("right,l", "shift(1)", "process-right", "right", "Scroll the commands to the right."),
    key("m", "mark", "process-mark", "mark", "Mark the selected process for a signal, or remove its mark; Esc removes all."),
    key("enter", "open", "process-open", "history", "Show the history of the selected process."),
]

# ── device ──
DEVICE = [
    *_PROCESS_LIST,
    key("tab", "step_rank(1)", "device-step", "next rank", "Show the next training process of the device, or the next device.", "Tab", first=True),
    key("shift+tab", "step_rank(-1)", "device-step-back", "previous rank", "Show the previous training process of the device, or the previous device.", first=True),
    key("full_stop", "step_rank(1)", "device-step", "next rank", "Show the next training process of the device, or the next device."),
    key("comma", "step_rank(-1)", "device-step-back", "previous rank", "Show the previous training process of the device, or the previous device."),
    key("p", "switch_part", "view-switch", "processes", "Switch between the page and the processes.", "p"),
    _CHART,
    key("escape", "leave", "view-leave", "back", "Go back to all devices, or clear the filter.", "Esc"),
]
DEVICE_PAGE = [
    *moves("page", "Scroll up by a line.", "Scroll down by a line.", "Scroll up by a page.", "Scroll down by a page.", "Go to the top.", "Go to the bottom."),
    key("left,h", "screen.step_device(-1)", "device-before", "previous device", "Show the previous device."),
    key("right,l", "screen.step_device(1)", "device-next", "next device", "Show the next device."),
]

# ── alerts ──
ALERTS = [
    key("a", "acknowledge", "alerts-acknowledge", "acknowledge", "Stop notifications about this alert; every viewer shows it as acknowledged.", "a"),
    key("m", "mute", "alerts-mute", "mute", "Mute this kind of alert on this device: for an hour, until it closes, or for good.", "m"),
    key("u", "release", "alerts-undo", "undo", "Undo acknowledging and muting.", "u"),
    key("e", "switch_evidence", "alerts-evidence", "evidence", "Show or hide the values behind the alert; the sentence that they come to stays.", "e"),
    *sorts("alerts", "Choose the column to sort alerts by.", "Sort by the previous column: time, severity, kind, device.", "Sort by the next column: time, severity, kind, device."),
    filters("alerts", "Show only alerts whose kind, severity, device, state or text contains what you type."),
    _NOTES,
    key("tab", "step_alert(1)", "alerts-step", "next alert", "Select the next alert.", first=True),
    key("shift+tab", "step_alert(-1)", "alerts-step-back", "previous alert", "Select the previous alert.", first=True),
    key("full_stop", "step_alert(1)", "alerts-step", "next alert", "Select the next alert."),
    key("comma", "step_alert(-1)", "alerts-step-back", "previous alert", "Select the previous alert."),
    key("escape", "leave", "view-leave", "back", "Go back to the list, or leave.", "Esc"),
]
ALERT_LIST = [
    *moves("alerts", "Select the alert above.", "Select the alert below.", "Go up by a page.", "Go down by a page.", "Select the first alert.", "Select the last alert."),
    key("enter", "open", "alerts-open", "details", "Show the alert in full: advice, evidence, history."),
]
ALERT_DETAIL = [
    *moves("page", "Scroll up by a line.", "Scroll down by a line.", "Scroll up by a page.", "Scroll down by a page.", "Go to the top.", "Go to the bottom."),
    key("left,h", "screen.step_alert(-1)", "alerts-before", "previous alert", "Show the previous alert of the list."),
    key("right,l", "screen.step_alert(1)", "alerts-next", "next alert", "Show the next alert of the list."),
    key("enter", "screen.leave", "alerts-list", "list", "Go back to the list."),
]

# ── fleet ──
FLEET = [
    filters("fleet", "Show only devices that match all terms, such as node:gpu1* used>90% risk>=medium."),
    key("g", "choose_grouping", "fleet-group", "group", "Group devices by node, job, or place in the parallel layout (tp, pp, dp).", "g"),
    key("s", "choose_sort", "fleet-sort", "sort", "Choose the order: risk, used, name.", "s"),
    key("n", "ask_nodes", "fleet-nodes", "nodes", "List all nodes: age, clock, agent.", "n"),
    key("c", "ask_cluster", "fleet-cluster", "cluster", "Show the cluster: findings across nodes, jobs, their pipeline stages.", "c"),
    key("v", "switch_figure", "fleet-cells", "cells", "Switch the cells between memory used and risk."),
    key("escape", "leave", "view-leave", "back", "Clear the filter, or let the cursor follow the highest risk."),
]
FLEET_GRID = [
    *moves_across("device", "Select the device above.", "Select the device below.", "Select the device to the left.", "Select the device to the right.",
                  "Go up by a page.", "Go down by a page.", "Select the first device.", "Select the last device."),
    key("enter", "open", "device-open", "open", "Show the device's node, with the device selected.", "Enter"),
]
NODE_LIST = [
    *moves("node", "Select the node above.", "Select the node below.", "Go up by a page.", "Go down by a page.", "Select the first node.", "Select the last node.",
           first="home", last="end"),
    key("enter", "open", "node-open", "open", "Show the node.", "Enter"),
]
NODES_SCREEN = [key("escape,n", "app.step_back", "view-leave", "back", "Go back to the fleet.", "Esc")]
CLUSTER_SCREEN = [key("escape,c", "app.step_back", "view-leave", "back", "Go back to the fleet.", "Esc")]
CLUSTER_PAGE = [
    key("up,k", "scroll(-0.01)", "page-up-line", "up", "Scroll up."),
    key("down,j", "scroll(0.01)", "page-down-line", "down", "Scroll down."),
    key("pageup", "scroll(-1)", "page-up", "page up", "Scroll up by a page."),
    key("pagedown", "scroll(1)", "page-down", "page down", "Scroll down by a page."),
]

# ── inspect ──
INSPECT = [
    key("i", "report", "view-report", "report", "Show the full report of the file.", "i"),
    key("o", "failures", "view-failures", "out of memory", "Show the requests that failed.", "o"),
    key("s", "settings", "view-settings", "settings", "Show what other allocator settings would have reserved (simulated).", "s"),
    key("d", "choose_device", "device-choose", "device", "Choose the device to show.", "d"),
    key("left,h", "move_moment(-1)", "moment-back", "earlier", "Stand at an earlier moment of the history: a column back."),
    key("right,l", "move_moment(1)", "moment-on", "moment", "Stand at a later moment of the history: a column on.", "←/→"),
    key("shift+left", "step_moment(-1)", "moment-event-back", "event back", "Go back by one event."),
    key("shift+right", "step_moment(1)", "moment-event-on", "event on", "Go on by one event."),
    key("home", "go_moment('start')", "moment-start", "start", "Go to the start of the history."),
    key("end", "go_moment('end')", "moment-end", "end", "Go to the end of the history."),
    key("p", "go_moment('peak')", "moment-peak", "peak", "Go to the moment at which most was allocated.", "p"),
    key("m", "mark_moment", "moment-mark", "mark", "Mark the moment, then list what differs from it elsewhere; again removes the mark.", "m"),
    key("v", "next_grouping", "moment-grouping", "group by", "List what lived then by stack, line, module or part of the program.", "v"),
    key("plus,equals_sign", "zoom_moment(0.5)", "moment-zoom", "zoom in", "Draw half of the time, around the moment.", "+"),
    key("minus", "zoom_moment(2)", "moment-zoom-out", "zoom out", "Draw twice the time."),
    key("escape", "leave_moment", "moment-leave", "whole file", "Leave the moment: show the whole history and the end of the file."),
]
STACKS = [
    key("enter", "open", "stack-open", "whole stack", "Show the whole stack.", "Enter"),
    *moves("stack", "Go to the stack above.", "Go to the stack below.", *_PAGES, "Go to the largest.", "Go to the smallest listed.", first="g", last="G"),
]

# ── diff ──
DIFFERENCE = [
    key("i", "report", "view-report", "report", "Show the full report.", "i"),
    key("f,right", "next_figure(1)", "view-figure", "metric", "Show the next metric; the one that differs most comes first.", "f"),
    key("F,left", "next_figure(-1)", "view-figure-back", "previous metric", "Show the previous metric."),
]
DIFFERENCE_LIST = moves(
    "device", "Go to the rank or device above.", "Go to the rank or device below.", *_PAGES, "Go to the first.", "Go to the last.", down_shown_as="j/k",
)

# ── modules ──
BREAKDOWN = [
    key("left_square_bracket", "step_point(-1)", "modules-point-before", "earlier", "Show the previous point of the profile.", "[", first=True),
    key("right_square_bracket", "step_point(1)", "modules-point", "later", "Show the next point; after the last comes the whole profile.", "]", first=True),
    key("f", "step_kind(1)", "modules-kind", "kind", "Show the next kind of memory: all, parameters, gradients, optimizer, activations.", "f"),
    key("F", "step_kind(-1)", "modules-kind-before", "previous kind", "Show the previous kind."),
    key("b", "switch_basis", "modules-basis", "basis", "Draw measured sizes, or sizes computed from shapes.", "b"),
    key("tab", "step_profile(1)", "modules-next", "next", "Show the next rank or run at the same place, compared with the first.", "Tab", first=True),
    key("shift+tab", "step_profile(-1)", "modules-before", "previous", "Show the previous rank or run.", first=True),
    key("i", "report", "modules-report", "report", "Show the report as text.", "i"),
    key("E", "export_breakdown", "modules-export", "export", "Write the icicle (SVG, PDF), its blocks (CSV), the screen and the report to a new folder here.", "E"),
    key("escape", "leave", "modules-leave", "back", "Go up to the whole tree, then leave.", "Esc"),
]
LIVE_BREAKDOWN = [
    key("n", "follow_newest", "modules-newest", "newest", "Follow the newest point.", "n"),
    key("o", "app.open_tool('modules')", "modules-open", "open", "Open profiles in files or folders instead of a running process.", "o"),
]
ICICLE = [
    key("enter", "zoom", "modules-zoom", "zoom", "Zoom into the block under the cursor.", "Enter"),
    key("backspace", "zoom_out", "modules-zoom-out", "up", "Zoom out by one level.", "Bksp"),
    key("up,k", "move_up", "modules-up", "above", "Go to the parent of the block."),
    key("down,j", "move_down", "modules-down", "below", "Go to the first part of the block."),
    key("left,h", "move_across(-1)", "modules-left", "left", "Go to the block to the left."),
    key("right,l", "move_across(1)", "modules-right", "right", "Go to the block to the right."),
    key("home", f"move_across({-FAR})", "modules-first", "first", "Go to the first block of the row."),
    key("end", f"move_across({FAR})", "modules-last", "last", "Go to the last block of the row."),
]

# ── plan ──
PLAN = [
    key("c", "mark", "plan-mark", "compare", "Mark this plan, then compare others with it.", "c"),
    key("tab,shift+tab", "switch_part", "plan-switch", "switch", "Switch between plans and stages.", "Tab", first=True),
    *sorts("plan", "Choose the column to sort by.", "Sort by the previous column.", "Sort by the next column.", "sort"),
    filters("plan", "Show only plans that contain every word you type."),
    key("a", "analysis", "plan-analysis", "analysis", "Show how size and compute are spread over the layers, or what the search left out.", "a"),
    key("i", "report", "plan-report", "report", "Show the report as text.", "i"),
    key("E", "export_plan", "plan-export", "export", "Write the plan's files, the screen and the report to a new folder here.", "E"),
    key("escape", "leave", "view-leave", "back", "Go back to the stages, to the plans, then leave.", "Esc"),
]
PLAN_LINES = moves("plan", "Go to the line above.", "Go to the line below.", *_PAGES, "Go to the first line.", "Go to the last line.")
PLAN_LIST = [
    key("enter", "open", "plan-open", "open", "Show the stages of the plan, then the contents of the stage.", "Enter"),
    *PLAN_LINES,
]

# ── sweep ──
SWEEP = [
    key("e", "show_mode('error')", "sweep-error", "error", "Switch between the signed error of the theory and measured memory.", "e"),
    key("t", "show_mode('theory')", "sweep-theory", "theory", "Switch between the theory's prediction and measured memory.", "t"),
    key("tab", "step_sweep(1)", "sweep-next", "next sweep", "Show the next sweep; side by side, replace the second one.", "Tab", first=True),
    key("shift+tab", "step_sweep(-1)", "sweep-before", "previous sweep", "Show the previous sweep.", first=True),
    key("b", "compare", "sweep-beside", "compare", "Show a second sweep next to this one: the same cell is marked in both.", "b"),
    key("d", "show_mode('difference')", "sweep-difference", "difference", "Side by side: show the second minus the first.", "d"),
    key("i", "report", "sweep-report", "report", "Show the full report of the sweep.", "i"),
    key("E", "export_figure", "sweep-export", "export", "Write the figure (PDF, SVG, PNG), all layouts (CSV) and a text to this folder.", "E"),
    key("escape", "leave", "sweep-leave", "back", "Go back: to one sweep, to the list, then leave.", "Esc"),
]
SWEEP_GRID = [
    key("enter", "open", "sweep-open", "replay", "Replay the marked layout; } and { then go to the next and the previous one.", "Enter"),
    *moves_across("sweep", "Mark the cell above (less TP).", "Mark the cell below (more TP).", "Mark the cell to the left (less PP).", "Mark the cell to the right (more PP).",
                  *_PAGES, "Mark the first cell of the row.", "Mark the last cell of the row."),
    key("g", f"move(0, {-FAR})", "sweep-top", "top", "Mark the first cell of the column."),
    key("G", f"move(0, {FAR})", "sweep-bottom", "bottom", "Mark the last cell of the column."),
    key("B", "go_best", "sweep-best", "best", "Mark the best layout."),
]
SWEEP_INDEX = [
    *sorts("sweep", "Choose the column to sort sweeps by.", "Sort by the previous column.", "Sort by the next column."),
    filters("sweep", "Show only sweeps that match: model=485B, gpus>=1024, state=oom, words of the name."),
    key("i", "report", "sweep-report", "report", "Show the full report of the sweeps.", "i"),
    key("E", "export_figure", "sweep-export", "export", "Write the listed sweeps as small multiples (PDF, SVG, PNG) and a text to this folder.", "E"),
    key("escape", "leave", "sweep-leave", "back", "Clear the filter, or leave.", "Esc"),
]
SWEEP_LIST = [
    key("enter", "open", "sweep-open", "open", "Show the grid of the selected sweep.", "Enter"),
    *moves("sweep", "Go to the sweep above.", "Go to the sweep below.", *_PAGES, "Go to the first sweep.", "Go to the last sweep."),
]

# ── dialogs ──
HELP = [*scrolls("help", "escape,question_mark,f1,q,enter"), key("1", "app.show_live", "help-live", "live", "Go back to the live view.")]
NOTES_DIALOG = scrolls("notes", "escape,i,q,enter,1")
TEXT = scrolls("text", "escape,q,enter,i,o,s,e")
CHOICE = chooses("choice", "escape,q")
DEVICE_CHOICE = chooses("choice", "escape,q,d")
SORT = chooses("sort", "escape,q,s")
ATTACH = [
    key("escape,n,q", "dismiss(False)", "attach-cancel", "cancel", "Cancel."),
    key("y", "dismiss(True)", "attach-confirm", "yes", "Do it."),
]
COLUMNS = [
    *chooses("columns", "escape,q,c"),
    key("space", "switch", "columns-switch", "switch", "Show or hide the column."),
    key("a", "choose_by_width", "columns-auto", "by width", "Choose columns by the width again."),
]
PROCESS = [
    key("left,h", "step_process(-1)", "process-before", "previous", "Show the previous process."),
    key("right,l", "step_process(1)", "process-next", "next", "Show the next process."),
    key("e", "show_environment", "process-environment", "environment", "Show the environment that the process was started with; secrets are masked."),
    key("K", "signal", "process-signal", "signal", "Send a signal to the process; asks first.", "K"),
    key("a", "app.attach", "process-attach", "attach", "Attach to the process, so that it reports its memory, or detach from it; asks first."),
    _NOTES,
    key("escape", "leave", "view-leave", "back", "Go back to the processes.", "Esc"),
]
PROCESS_PAGE = moves("page", "Scroll up by a line.", "Scroll down by a line.", "Scroll up by a page.", "Scroll down by a page.", "Go to the top.", "Go to the bottom.")
SIGNAL = [*chooses("signal", "escape,n,q"), key("y", "confirm", "signal-confirm", "send", "Send the selected signal.")]
GO_TO = [key("escape", "dismiss(None)", "goto-cancel", "cancel", "Cancel.")]
PATH_PROMPT = [key("escape", "cancel", "prompt-cancel", "cancel", "Cancel.")]
FILTER_BAR = [key("escape", "clear", "filter-clear", "clear filter", "Clear the filter and show everything.")]
# fmt: on

# Textual's names of keys, where keyboards have others.
KEY_NAMES = {
    "⏎": "Enter",
    "esc": "Esc",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "shift+←": "Shift+←",
    "shift+→": "Shift+→",
    "⇥": "Tab",
    "pgup": "PgUp",
    "pgdn": "PgDn",
    "home": "Home",
    "end": "End",
    "f1": "F1",
    "f12": "F12",
}


class OffersKeys(Protocol):
    """An application that knows which of its keys ever do anything."""

    def offers(self, binding: Binding) -> bool: ...


class KeyHelp(NamedTuple):
    group: str
    verb: str
    keys: str
    description: str
    tooltip: str
    action: str


def collect_keys(screen: Screen[object]) -> dict[str, list[KeyHelp]]:
    """Return the actions of a screen, by group; each once with all its keys.

    Keys of the application and of the screen's focusable widgets are included.
    """
    found: dict[str, KeyHelp] = {}
    app = screen.app
    offers = cast(OffersKeys, app).offers
    taken = {name for name, binding in app._bindings if binding.priority and offers(binding)}
    own = {name for name, binding in screen._bindings if name not in taken}
    for owner in (app, screen, *screen.query("*")):
        is_part = isinstance(owner, Widget) and owner is not screen
        if is_part and not type(owner).__module__.startswith("vramscope."):
            continue
        for name, binding in owner._bindings:
            if offers(binding) and name not in (own if owner is app else taken):
                _add_key(found, binding, screen)
    groups: dict[str, list[KeyHelp]] = {group: [] for group in GROUP_TITLES}
    for help_entry in found.values():
        groups.setdefault(help_entry.group, []).append(help_entry)
    return {group: entries for group, entries in groups.items() if entries}


def name_key(display: str) -> str:
    """Return a key as keyboards name it."""
    if len(display) == 2 and display.startswith("^"):
        return f"Ctrl+{display[1].upper()}"
    return KEY_NAMES.get(display, display)


def _add_key(found: dict[str, KeyHelp], binding: Binding, screen: Screen[object]) -> None:
    """Add a binding, or another key of a known one."""
    if not binding.id or "-" not in binding.id or not binding.description:
        return
    # The key line names both of a pair with one of them: "←/→".
    is_pair = "/" in (binding.key_display or "")[1:]
    shown = replace(binding, key_display=None) if is_pair else binding
    named = name_key(screen.app.get_key_display(shown))
    known = found.get(binding.id)
    if known is not None:
        if named not in known.keys.split():
            found[binding.id] = known._replace(keys=f"{known.keys} {named}")
        return
    group, verb = binding.id.split("-", 1)
    found[binding.id] = KeyHelp(group, verb, named, binding.description, binding.tooltip, binding.action)
