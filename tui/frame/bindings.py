"""The keys: every one has an id `group-verb`, by which it can be bound anew, and a sentence for the help."""

from textual.binding import Binding

KEYS_OF_THE_VIEW = (
    *("show_device", "show_alerts", "show_sweep", "show_plan", "show_breakdown", "pause", "record"),
    *("replay", "go_to", "step_node"),
)
"""Actions of a view below, whose keys leave the key line to a screen above it; the help has them all."""


def bind(
    keys: str,
    action: str,
    id: str,
    description: str,
    tooltip: str,
    *,
    shown_as: str = "",
    is_priority: bool = False,
) -> Binding:
    """Return a binding; `shown_as` puts it into the key line under that name of the key.

    Args:
        keys: Keys as Textual names them, separated by commas.
        action: Action to run.
        id: `group-verb`.
        description: What it does in a word or two.
        tooltip: What it does in one sentence.
        shown_as: Name of the key in the key line; empty leaves it out of there.
        is_priority: Whether it goes before what has the focus.
    """
    return Binding(
        keys,
        action,
        description,
        show=bool(shown_as),
        key_display=shown_as or None,
        tooltip=tooltip,
        id=id,
        priority=is_priority,
    )


TIME_BAR_BINDINGS = [
    bind("left", "app.replay('skip', -10)", "bar-back", "−10s", "Go back 10 s."),
    bind("right", "app.replay('skip', 10)", "bar-on", "+10s", "Go on 10 s."),
    bind(
        "shift+left", "app.replay('step', -1)", "bar-frame-back", "back", "Show the sample before this one."
    ),
    bind("shift+right", "app.replay('step', 1)", "bar-frame-on", "on", "Show the next sample."),
    bind("home", "app.replay('go', 0, '0%')", "bar-start", "start", "Go to the start."),
    bind("end", "app.replay('go', 0, '100%')", "bar-end", "end", "Go to the end."),
]
"""Keys of the time bar of a replay, once Tab or a click has given it the focus."""

APP_BINDINGS = [
    bind("1", "show_live", "view-live", "Live", "The live view of every device.", shown_as="1"),
    bind(
        "2",
        "show_device",
        "view-device",
        "Device",
        "One device in full: history, the gap, its segments.",
        shown_as="2",
    ),
    bind(
        "3",
        "show_alerts",
        "view-alerts",
        "Alerts",
        "Every finding: evidence, advice, what happened; acknowledge and mute.",
        shown_as="3",
    ),
    bind(
        "5",
        "show_sweep",
        "view-sweep",
        "Sweep",
        "Sweeps over TP and PP in a folder: what fits, what ran out of memory.",
        shown_as="5",
    ),
    bind(
        "6",
        "show_plan",
        "view-plan",
        "Plan",
        "Cut a model into pipeline stages, with what the job was measured to need.",
        shown_as="6",
    ),
    bind(
        "7",
        "show_breakdown",
        "view-breakdown",
        "Breakdown",
        "Memory by module and kind, of the process that trains here or of profiles in files.",
        shown_as="7",
    ),
    bind(
        "space",
        "pause",
        "view-pause",
        "pause",
        "Freeze the figures, or let them go on; history is kept meanwhile.",
        shown_as="space",
    ),
    bind(
        "T",
        "next_theme",
        "view-theme",
        "next theme",
        "Switch to the next theme: dark, light, high contrast, mono.",
    ),
    bind(
        "E",
        "export",
        "view-export",
        "export",
        "Write the picture (SVG) and its figures (JSON) into this folder.",
    ),
    bind("ctrl+p", "command_palette", "app-commands", "commands", "Search every command by name."),
    bind(
        "f12",
        "save_settings",
        "app-save-settings",
        "save settings",
        "Keep the theme and the sorting for next time.",
    ),
    bind("question_mark", "help", "app-help", "help", "Show this help.", shown_as="?"),
    bind("f1", "help", "app-help", "help", "Show this help."),
    bind("q", "quit", "app-quit", "quit", "Leave vramscope; the training goes on.", shown_as="q"),
    bind(
        "ctrl+c,ctrl+q,ctrl+d",
        "quit",
        "app-quit",
        "quit",
        "Leave vramscope; the training goes on.",
        is_priority=True,
    ),
]
"""Keys that work on every screen."""

NODE_BINDINGS = [
    bind("tab", "step_node(1)", "node-next", "next node", "Show the next node.", is_priority=True),
    bind(
        "shift+tab", "step_node(-1)", "node-before", "node before", "Show the node before.", is_priority=True
    ),
]
"""Keys on every screen where there are several nodes; what `Tab` does elsewhere has another key as well."""

LIST_BINDINGS = [
    bind("s", "choose_sort", "process-sort", "sort", "Choose the column to sort processes by.", shown_as="s"),
    bind(
        "less_than_sign",
        "shift_sort(-1)",
        "process-sort-left",
        "sort column left",
        "Sort by the column to the left.",
    ),
    bind(
        "greater_than_sign",
        "shift_sort(1)",
        "process-sort-right",
        "sort column right",
        "Sort by the column to the right.",
    ),
    bind("I", "invert_sort", "process-invert", "invert sorting", "Sort the other way round."),
    bind(
        "slash",
        "filter",
        "process-filter",
        "filter",
        "Show only processes whose user, PID, command or GPU contains what you type.",
        shown_as="/",
        is_priority=True,
    ),
    bind(
        "K",
        "signal",
        "process-signal",
        "signal",
        "Send a signal to the process marked in the list, after a question.",
        shown_as="K",
    ),
    bind("i", "notes", "view-notes", "notes", "Read what limits the figures and what was left out."),
]
"""Keys of every screen that lists processes."""

LIVE_BINDINGS = [
    *LIST_BINDINGS,
    bind(
        "tab,shift+tab",
        "switch_part",
        "view-switch",
        "switch",
        "Go from the devices to the processes and back.",
        shown_as="Tab",
        is_priority=True,
    ),
    bind("p", "switch_part", "view-switch", "switch", "Go from the devices to the processes and back."),
    bind("escape", "leave", "view-leave", "back", "Leave the processes, or drop the filter."),
]
"""Keys of the live screen."""

_NEXT_RANK = "Show the next training process of the device, or the next device."
_RANK_BEFORE = "Show the training process before this one, or the device before."

DEVICE_BINDINGS = [
    *LIST_BINDINGS,
    bind(
        "tab",
        "step_rank(1)",
        "device-step",
        "next rank",
        _NEXT_RANK,
        shown_as="Tab",
        is_priority=True,
    ),
    bind(
        "shift+tab",
        "step_rank(-1)",
        "device-step-back",
        "rank before",
        _RANK_BEFORE,
        is_priority=True,
    ),
    bind("full_stop", "step_rank(1)", "device-step", "next rank", _NEXT_RANK),
    bind("comma", "step_rank(-1)", "device-step-back", "rank before", _RANK_BEFORE),
    bind(
        "p",
        "switch_part",
        "view-switch",
        "processes",
        "Go from the page to the processes and back.",
        shown_as="p",
    ),
    bind(
        "escape", "leave", "view-leave", "back", "Go back to all devices, or drop the filter.", shown_as="Esc"
    ),
]
"""Keys of the screen of one device."""

ALERT_BINDINGS = [
    bind(
        "a",
        "acknowledge",
        "alerts-acknowledge",
        "acknowledge",
        "You take care of it: nobody is told of it any more, and every viewer sees that.",
        shown_as="a",
    ),
    bind(
        "m",
        "mute",
        "alerts-mute",
        "mute",
        "Mute this kind of alert on this device: for an hour, until it closes, or for good.",
        shown_as="m",
    ),
    bind("u", "release", "alerts-undo", "undo", "Take acknowledging and muting it back.", shown_as="u"),
    bind("s", "choose_sort", "alerts-sort", "sort", "Choose what alerts are sorted by.", shown_as="s"),
    bind(
        "less_than_sign",
        "shift_sort(-1)",
        "alerts-sort-left",
        "sort column left",
        "Sort by the column before: time, severity, kind, device.",
    ),
    bind(
        "greater_than_sign",
        "shift_sort(1)",
        "alerts-sort-right",
        "sort column right",
        "Sort by the next column: time, severity, kind, device.",
    ),
    bind("I", "invert_sort", "alerts-invert", "invert sorting", "Sort the other way round."),
    bind(
        "slash",
        "filter",
        "alerts-filter",
        "filter",
        "Show only alerts whose kind, severity, device, state or text contains what you type.",
        shown_as="/",
        is_priority=True,
    ),
    bind("i", "notes", "view-notes", "notes", "Read what limits the figures and what was left out."),
    bind(
        "tab",
        "step_alert(1)",
        "alerts-step",
        "next alert",
        "Select the next alert.",
        is_priority=True,
    ),
    bind(
        "shift+tab",
        "step_alert(-1)",
        "alerts-step-back",
        "alert before",
        "Select the alert before.",
        is_priority=True,
    ),
    bind("full_stop", "step_alert(1)", "alerts-step", "next alert", "Select the next alert."),
    bind("comma", "step_alert(-1)", "alerts-step-back", "alert before", "Select the alert before."),
    bind("escape", "leave", "view-leave", "back", "Go back: to the list, or out.", shown_as="Esc"),
]
"""Keys of the alerts screen."""

PROCESS_BINDINGS = [
    bind("up,k", "move(-1)", "process-up", "previous process", "Select the process above."),
    bind("down,j", "move(1)", "process-down", "next process", "Select the process below."),
    bind("pageup", "page(-1)", "process-page-up", "page up", "Go up by one page."),
    bind("pagedown", "page(1)", "process-page-down", "page down", "Go down by one page."),
    bind("home,g", "move(-1000000)", "process-first", "first process", "Go to the first process."),
    bind("end,G", "move(1000000)", "process-last", "last process", "Go to the last process."),
    bind("left,h", "shift(-1)", "process-left", "command left", "Scroll the commands to the left."),
    bind("right,l", "shift(1)", "process-right", "command right", "Scroll the commands to the right."),
    bind(
        "enter",
        "open_device",
        "process-open",
        "show its device",
        "Show the device of the selected process in full.",
    ),
]
"""Keys of the process table."""
