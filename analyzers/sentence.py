"""A sentence that fits any width: clauses in forms from complete to shortest, and cuts between words."""

import unicodedata
from collections.abc import Iterator, Sequence

import msgspec

SEPARATOR = " · "


class Sentence(msgspec.Struct, frozen=True):
    """Clauses of one sentence, the most important first, each from its complete form to its shortest."""

    # An empty form leaves its clause out.
    clauses: tuple[tuple[str, ...], ...]

    def fit(self, width: int) -> str:
        """Return the sentence in at most `width` terminal cells.

        Every clause in turn, the last one first, gives up one form until the rest fits; room that is
        left over goes to the most important clauses. Where even the shortest forms do not fit, words are
        dropped
        and an ellipsis marks that.
        """
        for chosen in self._reductions():
            if count_cells(self._join(chosen)) <= width:
                return self._join(self._fill(chosen, width))
        return cut_words(self._join([-1] * len(self.clauses)), width)

    def _reductions(self) -> Iterator[list[int]]:
        """Yield choices of one form a clause, ever shorter: one step off every clause in turn."""
        chosen = [0] * len(self.clauses)
        yield chosen
        for form in range(1, max(map(len, self.clauses), default=0)):
            for position in reversed(range(len(chosen))):
                if form < len(self.clauses[position]):
                    chosen[position] = form
                    yield chosen

    def _fill(self, chosen: list[int], width: int) -> list[int]:
        filled = list(chosen)
        for position, form in enumerate(chosen):
            for longer in range(form):
                trial = [*filled[:position], longer, *filled[position + 1 :]]
                if count_cells(self._join(trial)) <= width:
                    filled = trial
                    break
        return filled

    def _join(self, chosen: Sequence[int]) -> str:
        forms = (clause[form] for clause, form in zip(self.clauses, chosen, strict=True))
        return SEPARATOR.join(form for form in forms if form)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where needed: `1 rank`, `1,024 ranks`, `2 batches`."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


def count_cells(text: str) -> int:
    """Return the terminal cells of a text (Unicode Standard Annex 11)."""
    if text.isascii():
        return len(text)
    return len(text) + sum([_count_cells_of(character) - 1 for character in text if character > "\x7f"])


def cut_words(text: str, width: int) -> str:
    """Cut a text to `width` cells, between words where one fits, with an ellipsis."""
    if count_cells(text) <= width:
        return text
    if width < 1:
        return ""
    head = _cut_cells(text, width - 1)
    if not text[len(head)].isspace() and " " in head.strip():
        head = head[: head.rstrip().rindex(" ")] if not head.endswith(" ") else head
    return head.rstrip(" ,;:·(") + "…"


def _cut_cells(text: str, width: int) -> str:
    taken = 0
    for position, character in enumerate(text):
        taken += _count_cells_of(character)
        if taken > width:
            return text[:position]
    return text


def _count_cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
