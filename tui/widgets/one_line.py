"""One line of chrome: text in roles, cut to the width, repainted only when it changed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import ActiveBinding, Binding
from textual.dom import DOMNode
from textual.strip import Strip

from ..draw.pieces import Piece, Pieces, fill_line, measure_pieces
from ..draw.spans import Role
from ..frame.keys import GROUP_TITLES, NAMED_WITH_ROOM
from ..frame.theme import find_look
from ..terminal.strip_caches import KeptLinesCache
from .line_page import MarkingWidget


class OneLine(MarkingWidget):
    """A line with pieces at the left and pieces at the right; the left ones are cut when room is short."""

    DEFAULT_CSS = """
    OneLine {
        height: 1;
        width: 1fr;
        padding: 0 1;
    }
    """

    _left: Pieces = ()
    _right: Pieces = ()
    # What is shown for a moment in their place.
    _notice: tuple[Pieces, Pieces] | None = None
    # How pieces look by role and action; made when they are first drawn.
    _looks: dict[tuple[Role, str], Style] | None = None

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._styles_cache = KeptLinesCache(lambda rows: [self.render_line(y) for y in rows])

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._looks = None

    def set_pieces(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        """Show these pieces; nothing is repainted when they are the ones shown."""
        if (tuple(left), tuple(right)) != (self._left, self._right):
            self._left = tuple(left)
            self._right = tuple(right)
            if self._notice is None:
                self.repaint()

    def show_notice(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        """Show these pieces in place of the line's own, until `hide_notice`."""
        notice = tuple(left), tuple(right)
        if notice != self._notice:
            self._notice = notice
            self.repaint()

    def hide_notice(self) -> None:
        if self._notice is not None:
            self._notice = None
            self.repaint()

    @property
    def text(self) -> str:
        return self.render_line(0).text.strip()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y != 0 or width <= 0:
            return Strip.blank(max(0, width), self.rich_style)
        left, right = (self._left, self._right) if self._notice is None else self._notice
        pieces = fill_line(left, right, width)
        if self._looks is None:
            self._looks = {("text", ""): self.rich_style}
        return Strip([Segment(text, self._find_look(role, action)) for text, role, action in pieces], width)

    def _find_look(self, role: Role, action: str) -> Style:
        """Return how a piece looks; combining styles is expensive."""
        looks = {} if self._looks is None else self._looks
        style = looks.get((role, action))
        if style is None:
            style = looks["text", ""]
            if role != "text":
                style += find_look(self.app, role)
            if action:
                style += Style.from_meta({"@click": action})
            looks[role, action] = style
        return style


# Bindings that stay when room is short.
ALWAYS = ("app-help", "app-quit")
# Width from which more keys are named than those that ask for it.
MORE_FROM_CELLS = 120


class KeyLine(OneLine):
    """Shows every binding that asks to be shown, as far as there is room, and in a wide pane further ones."""

    _hidden: tuple[str, ...] = ()
    _names: Mapping[str, str] = MappingProxyType({})

    def on_mount(self) -> None:
        """Read the bindings as soon as there are any."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._arrange())
        self.call_after_refresh(self._arrange)

    def on_resize(self) -> None:
        self._arrange()

    def hide(self, actions: Collection[str]) -> None:
        """Leave out the keys of actions that make no sense now."""
        if tuple(actions) != self._hidden:
            self._hidden = tuple(actions)
            self.call_after_refresh(self._arrange)

    def rename(self, names: Mapping[str, str]) -> None:
        """Replace the names of actions where others fit better what happens now."""
        if names != self._names:
            self._names = names
            self.call_after_refresh(self._arrange)

    def _arrange(self) -> None:
        shown = [
            binding
            for binding in _unique(self.screen.active_bindings.values())
            if binding.action.split("(")[0] not in self._hidden
        ]
        right = [piece for binding in shown if binding.id in ALWAYS for piece in self._draw(binding)]
        width = self.content_size.width
        left: list[Piece] = []
        for binding in (*shown, *(self._list_further() if width >= MORE_FROM_CELLS else ())):
            pieces = [] if binding.id in ALWAYS else self._draw(binding)
            if measure_pieces([*left, *pieces, *right]) >= width:
                break
            left += pieces
        self.set_pieces(left, right)

    def _list_further(self) -> list[Binding]:
        """Return the bindings that are named where there is room, the most used first."""
        found = {
            active.binding.id: active.binding
            for active in self.screen.active_bindings.values()
            if active.enabled and active.binding.id in NAMED_WITH_ROOM and not active.binding.show
        }
        wanted = [found[id] for id in NAMED_WITH_ROOM if id in found]
        return [it for it in wanted if it.action.split("(")[0] not in self._hidden]

    def _draw(self, binding: Binding) -> list[Piece]:
        key = self.app.get_key_display(binding)
        name = self._names.get(binding.action.split("(")[0], binding.description)
        action = f"app.simulate_key('{binding.key}')"
        return [Piece(key, "accent", action), Piece(f" {name}  ", "muted", action)]


def _unique(active: Iterable[ActiveBinding]) -> list[Binding]:
    """Return the bindings to show, each once although several keys may lead to it."""
    shown: dict[str, tuple[tuple[int, bool, int], Binding]] = {}
    groups = list(GROUP_TITLES)
    for node, binding, is_enabled, _ in active:
        if binding.show and is_enabled and binding.id and not binding.system:
            group = binding.id.split("-")[0]
            place = (groups.index(group), not isinstance(node, App), _place_in(node, binding))
            shown.setdefault(binding.id, (place, binding))
    return [binding for _, binding in sorted(shown.values(), key=lambda entry: entry[0])]


def _place_in(node: DOMNode, binding: Binding) -> int:
    """Return the place of a binding among those of the application; elsewhere they keep their order."""
    if not isinstance(node, App):
        return 0
    return next((at for at, (_, own) in enumerate(node._bindings) if own.id == binding.id), 0)
