"""The keys that matter most, read from the bindings; a click on one presses it."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from textual.app import App
from textual.binding import ActiveBinding, Binding
from textual.dom import DOMNode

from ..frame.keys import GROUP_TITLES
from .one_line import OneLine, Piece, measure_pieces

ALWAYS = ("app-help", "app-quit")
"""Bindings that stay when room is short."""


class KeyLine(OneLine):
    """Shows every binding that asks to be shown, as far as there is room."""

    _hidden: tuple[str, ...] = ()
    _names: Mapping[str, str] = MappingProxyType({})

    def on_mount(self) -> None:
        """Read the bindings as soon as there are any."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._arrange())
        self.call_after_refresh(self._arrange)

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self._arrange()

    def hide(self, actions: Collection[str]) -> None:
        """Leave out the keys of actions that make no sense now."""
        if tuple(actions) != self._hidden:
            self._hidden = tuple(actions)
            self.call_after_refresh(self._arrange)

    def rename(self, names: Mapping[str, str]) -> None:
        """Call actions by other names than their bindings do, where those say better what happens now."""
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
        left: list[Piece] = []
        for binding in shown:
            pieces = [] if binding.id in ALWAYS else self._draw(binding)
            if measure_pieces([*left, *pieces, *right]) >= self.content_size.width:
                break
            left += pieces
        self.set_pieces(left, right)

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
    """Return the place of a binding among those of the application; elsewhere the order is as it comes."""
    if not isinstance(node, App):
        return 0
    return next((at for at, (_, own) in enumerate(node._bindings) if own.id == binding.id), 0)
