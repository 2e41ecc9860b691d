"""The heading of the alerts: how many there are of each kind, how they are sorted, what is filtered."""

from collections.abc import Sequence

from ...engine.model import SEVERITIES, HookStatus, HubStatus
from ..draw.glyphs import Glyphs
from ..widgets.one_line import OneLine, Piece, join_pieces, measure_pieces
from .rows import AlertOrder, AlertRow, count_stages


class AlertHeading(OneLine):
    """Counts alerts; the gravest first."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._told: tuple[list[Piece], ...] = ([], [], [])

    def show(self, every: Sequence[AlertRow], *, shown: int, order: AlertOrder, filter_text: str) -> None:
        """Show the counts.

        Args:
            every: All alerts.
            shown: How many of them the filter lets through.
            order: How they are sorted.
            filter_text: What is filtered by; empty for nothing.
        """
        counts = count_stages(every)
        grave = [row.finding.severity for row in every if row.stage == "open"]
        marks = [
            Piece(f"{self._glyphs.risk(level)} {grave.count(level)} {level}", level)
            for level in reversed(SEVERITIES)
            if level in grave
        ]
        groups = [[Piece(f"{counts['open']} open", "strong")]]
        groups += [[mark] for mark in marks]
        groups += [
            [Piece(f"{counts[stage]} {stage}", "muted")]
            for stage in ("acknowledged", "muted", "closed")
            if counts[stage]
        ]
        direction = ", inverted" if order.is_inverted else ""
        sort = [Piece(f"by {order.column}{direction}", "muted", "screen.choose_sort")]
        found = [Piece(f"{shown} of {len(every)} match “{filter_text}”", "accent")] if filter_text else []
        self._told = ([Piece("Alerts  ", "muted"), *join_pieces(groups, "  ")], sort, found)
        self._arrange()

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self._arrange()

    def _arrange(self) -> None:
        counts, sort, found = self._told
        sides = [
            (counts, [*found, Piece("  "), *sort] if found else sort),
            (counts, found),
            (found or counts, []),
        ]
        for left, right in sides:
            if measure_pieces([*left, Piece("  "), *right]) <= self.size.width - 2:
                break
        self.set_pieces(left, right)


class HookLine(OneLine):
    """Says who is told of findings besides this screen, and what went wrong with that."""

    has_news = False
    """Whether there is anything to say."""

    def show(self, hub: HubStatus | None) -> None:
        """Show the hooks of a hub and what the hub could not do, the trouble first."""
        hooks = () if hub is None else hub.hooks
        notes = [] if hub is None else [[Piece(note, "medium")] for note in hub.notes]
        troubled = sorted(hooks, key=lambda hook: hook.reason is None)
        pieces = join_pieces([*notes, *(_describe(hook) for hook in troubled)], "   ")
        self.set_pieces(pieces)
        self.has_news = bool(pieces)


def _describe(hook: HookStatus) -> list[Piece]:
    counts = [f"{hook.delivered} delivered"]
    counts += [f"{hook.failed} failed"] if hook.failed else []
    counts += [f"{hook.dropped} dropped"] if hook.dropped else []
    counts += [f"{hook.waiting} waiting"] if hook.waiting else []
    told = ", ".join(counts)
    if hook.reason is not None:
        return [Piece(hook.reason, "medium"), Piece(f" ({told})", "muted")]
    return [Piece(f"{hook.name} {hook.target}: {told}", "medium" if hook.dropped else "muted")]
