"""The names that were looked at last, no more than there is room for."""


class RecentNames:
    """Names, the newest last.

    Args:
        most: How many there is room for; None for all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._names: dict[str, None] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more name drives none out."""
        return self._most is None or len(self._names) < self._most

    def forget(self, name: str) -> None:
        """Let a name make room."""
        self._names.pop(name, None)

    def note(self, name: str) -> tuple[str, ...]:
        """Take a name as the newest; return those that it drives out."""
        self._names.pop(name, None)
        self._names[name] = None
        gone = tuple(self._names)[: 0 if self._most is None else -self._most]
        for it in gone:
            del self._names[it]
        return gone
