"""Out-of-memory errors of an input, as sentences: the first ones in full, the rest counted."""

_SHOWN = 3


class OomNotes:
    """Keeps the first errors and the number of all."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, sentence: str) -> None:
        """Take an error, in a sentence."""
        self.count += 1
        if self.count <= _SHOWN:
            self._first.append(sentence)

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences."""
        more = self.count - len(self._first)
        return (*self._first, *((f"out-of-memory errors beside these: {more:,}",) if more else ()))
