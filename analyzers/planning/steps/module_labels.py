"""Names of modules with their places in lists taken out, so that the layers of a model have one name."""

from collections import Counter, defaultdict
from collections.abc import Sequence

OUTSIDE = "(outside modules)"


class ModuleLabels:
    """Labels of the modules of one trace.

    Modules of one list that are all of one type are `blocks.*`; in a mixed list the type stands beside the
    star, or in its place where there is one of it: `*(Block)`, `(LayerNorm)`.
    """

    def __init__(self, names: Sequence[str], types: Sequence[str]) -> None:
        self._types = dict(zip(names, types, strict=True))
        self._lists: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for name, kind in self._types.items():
            before, _, last = name.rpartition(".")
            if last.isdigit():
                self._lists[before][int(last)] = kind
        self.labels = [self._label(name) if name else OUTSIDE for name in names]
        self.places = [self._label(name, with_end=True) for name in names]
        """Labels that tell the first and the last of a list from those between."""

    def _label(self, name: str, *, with_end: bool = False) -> str:
        words: list[str] = []
        before = ""
        for word in name.split("."):
            words.append(self._star(before, int(word), with_end=with_end) if word.isdigit() else word)
            before = f"{before}.{word}" if before else word
        return ".".join(words)

    def _star(self, before: str, index: int, *, with_end: bool) -> str:
        members = self._lists[before]
        counts = Counter(members.values())
        kind = members.get(index, "")
        if with_end:
            alike = [place for place, other in members.items() if other == kind] or [index]
            end = "first" if index == min(alike) else "last" if index == max(alike) else "between"
            return f"{end}({kind})"
        if len(counts) == 1:
            return "*"
        return f"*({kind})" if counts[kind] > 1 else f"({kind})"


def deepen_name(shallow: str, deep: str, added: int) -> str:
    """Return the name of a module in a model that is deeper still.

    Args:
        shallow: Its name in a model, as `blocks.3.mlp`.
        deep: Its name in a deeper one, as `blocks.7.mlp`: a number that grew moves with the end of its list.
        added: Layers more than in that one.
    """
    first = shallow.split(".")
    second = deep.split(".")
    if len(first) != len(second):
        return deep
    pairs = zip(first, second, strict=True)
    moves = [after.isdigit() and before != after for before, after in pairs]
    return ".".join(
        str(int(word) + added) if moved else word for word, moved in zip(second, moves, strict=True)
    )
