"""JSON of a bounded size: what does not fit is left out, and counted where it was."""

import msgspec

# Entries that a list keeps, tried one after the other until the whole fits.
_LENGTHS = (1000, 256, 128, 64, 32, 16, 8, 4, 2, 1, 0)
MOST_CHARACTERS = 2000
# Places that are named; more are counted together.
MOST_PLACES = 50


class Bounded(msgspec.Struct, frozen=True):
    """A value as built-in types, cut to a size."""

    value: object
    left_out: dict[str, int]
    """Entries that were cut from each list, by its place in the value: `devices.0.processes`."""


def bound(value: object, limit_bytes: int) -> Bounded:
    """Return a value whose JSON has at most so many bytes; the first entries of long lists are kept.

    Raises:
        ValueError: It does not fit even without the entries of its lists.
    """
    tree = msgspec.to_builtins(value)
    for length in _LENGTHS:
        left_out: dict[str, int] = {}
        cut = _cut(tree, length, "", left_out)
        if len(msgspec.json.encode(cut)) <= limit_bytes:
            return Bounded(cut, _name_few(left_out))
    raise ValueError(f"the value has more than {limit_bytes:,} bytes outside of its lists")


def _cut(value: object, length: int, place: str, left_out: dict[str, int]) -> object:
    if isinstance(value, dict):
        return {
            name: _cut(part, length, f"{place}.{name}".lstrip("."), left_out) for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        if len(value) > length:
            left_out[place] = len(value) - length
        return [
            _cut(part, length, f"{place}.{at}".lstrip("."), left_out)
            for at, part in enumerate(value[:length])
        ]
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return f"{value[: MOST_CHARACTERS - 1]}…"
    return value


def _name_few(left_out: dict[str, int]) -> dict[str, int]:
    named = dict(list(left_out.items())[:MOST_PLACES])
    rest = sum(left_out.values()) - sum(named.values())
    return {**named, "elsewhere": rest} if rest else named
