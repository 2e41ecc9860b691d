"""What the keys of a screen do, read from its bindings: the help and the palette say the same."""

from typing import TYPE_CHECKING, NamedTuple, cast

from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget

if TYPE_CHECKING:
    from ..screens.terminal_app import TerminalApp

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
    "filter": "Filter",
    "app": "Application",
}
"""Groups in the order in which help lists them; a binding's id is `group-verb`."""


KEY_NAMES = {
    "⏎": "Enter",
    "esc": "Esc",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "⇥": "Tab",
    "pgup": "PgUp",
    "pgdn": "PgDn",
    "home": "Home",
    "end": "End",
    "f1": "F1",
    "f12": "F12",
}
"""Keys that keyboards name otherwise than Textual does."""


class KeyHelp(NamedTuple):
    """One thing that can be done, and the keys for it."""

    group: str
    verb: str
    keys: str
    description: str
    tooltip: str
    action: str


def collect_keys(screen: Screen[object]) -> dict[str, list[KeyHelp]]:
    """Return what can be done on a screen, by group; each once with all its keys.

    Args:
        screen: The screen; bindings of the application and of its focusable widgets are included.
    """
    found: dict[str, KeyHelp] = {}
    app = cast("TerminalApp", screen.app)
    taken = {key for key, binding in app._bindings if binding.priority and app.offers(binding)}
    own = {key for key, binding in screen._bindings if key not in taken}
    for owner in (app, screen, *screen.query("*")):
        if isinstance(owner, Widget) and owner is not screen and not _has_keys_of_ours(owner):
            continue
        for key, binding in owner._bindings:
            if app.offers(binding) and key not in (own if owner is app else taken):
                _note(found, binding, screen)
    groups: dict[str, list[KeyHelp]] = {group: [] for group in GROUP_TITLES}
    for help_entry in found.values():
        groups.setdefault(help_entry.group, []).append(help_entry)
    return {group: entries for group, entries in groups.items() if entries}


def name_key(display: str) -> str:
    """Return a key as keyboards name it."""
    if len(display) == 2 and display.startswith("^"):
        return f"Ctrl+{display[1].upper()}"
    return KEY_NAMES.get(display, display)


def _has_keys_of_ours(widget: Widget) -> bool:
    return type(widget).__module__.startswith("vramscope.")


def _note(found: dict[str, KeyHelp], binding: Binding, screen: Screen[object]) -> None:
    """Add a binding, or a further key of one that is known."""
    if not binding.id or "-" not in binding.id or not binding.description:
        return
    key = name_key(screen.app.get_key_display(binding))
    known = found.get(binding.id)
    if known is not None:
        if key not in known.keys.split():
            found[binding.id] = known._replace(keys=f"{known.keys} {key}")
        return
    group, verb = binding.id.split("-", 1)
    found[binding.id] = KeyHelp(group, verb, key, binding.description, binding.tooltip, binding.action)
