"""The command palette: every binding of the screen as `group: verb`, the themes and the sort orders."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.types import IgnoreReturnCallbackType

from .key_help import collect_keys
from .screens.snapshot_screen import SnapshotScreen

if TYPE_CHECKING:
    from .terminal_app import TerminalApp

NOT_COMMANDS = ("up", "down", "left", "right", "first", "last", "page-up", "page-down")
"""Movements, which nobody looks for in a palette."""


class PaletteEntry(NamedTuple):
    """One command."""

    name: str
    help: str
    run: IgnoreReturnCallbackType


class PaletteCommands(Provider):
    """Lists what can be done on the screen under the palette."""

    async def discover(self) -> Hits:
        """Yield every command."""
        for entry in self._entries():
            yield DiscoveryHit(entry.name, entry.run, help=entry.help)

    async def search(self, query: str) -> Hits:
        """Yield the commands that match."""
        matcher = self.matcher(query)
        for entry in self._entries():
            score = matcher.match(entry.name)
            if score > 0:
                yield Hit(score, matcher.highlight(entry.name), entry.run, help=entry.help)

    def _entries(self) -> Iterator[PaletteEntry]:
        app = cast("TerminalApp", self.app)
        for group, keys in collect_keys(self.screen).items():
            for key in keys:
                if key.verb not in NOT_COMMANDS and key.action not in {
                    "app.command_palette",
                    "command_palette",
                }:
                    help_text = f"{key.tooltip}  ({key.keys})"
                    yield PaletteEntry(
                        f"{group}: {key.description.lower()}",
                        help_text,
                        partial(self.screen.run_action, key.action),
                    )
        for name in app.theme_choices:
            help_text = "The look in use." if name == app.theme_choice else f"Switch to the {name} look."
            yield PaletteEntry(f"theme: {name}", help_text, partial(app.choose_theme, name))
        if isinstance(self.screen, SnapshotScreen):
            for column, sentence, sort in self.screen.list_sorts():
                yield PaletteEntry(f"sort: {column}", sentence, sort)
