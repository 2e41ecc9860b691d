"""How a cell of a sweep looks: grounds that go from dark to light with memory, text that is read on each.

Less to more memory is blue, and amber from 90 % of the capacity on; a theory that says too much is blue, one
that says too little orange, which common kinds of colour blindness tell apart. Every cell says its figure or
its state besides.
"""

from typing import Literal, NamedTuple, get_args

from ..frame.theme import ROLES

CellLook = Literal[
    "share-0",
    "share-1",
    "share-2",
    "share-3",
    "share-4",
    "fair",
    "over-1",
    "over-2",
    "over-3",
    "under-1",
    "under-2",
    "under-3",
]
CELL_LOOKS: tuple[CellLook, ...] = get_args(CellLook)
SHARES = (0.25, 0.5, 0.75, 0.9)
"""Of the capacity, from which on the next look is taken."""
ERRORS_PERCENT = (5.0, 20.0, 50.0)
"""Of the prediction's error, either way, from which on the next look is taken."""


class CellColours(NamedTuple):
    """Of one look."""

    ground: str
    ink: str


DARK: dict[CellLook, CellColours] = {
    "share-0": CellColours("#10243a", "#cfe4f7"),
    "share-1": CellColours("#174a7c", "#eaf4fd"),
    "share-2": CellColours("#4f9fe0", "#00101f"),
    "share-3": CellColours("#a9d3f7", "#00101f"),
    "share-4": CellColours("#f2a33a", "#1a0f00"),
    "fair": CellColours("#1c2530", "#e4ebf2"),
    "over-1": CellColours("#17324d", "#d5e8fa"),
    "over-2": CellColours("#24609a", "#ffffff"),
    "over-3": CellColours("#8cc2f0", "#00101f"),
    "under-1": CellColours("#4a2e0b", "#fbe3c0"),
    "under-2": CellColours("#95540a", "#ffffff"),
    "under-3": CellColours("#f5b556", "#1a0f00"),
}
LIGHT: dict[CellLook, CellColours] = {
    "share-0": CellColours("#deebf7", "#08203a"),
    "share-1": CellColours("#9ecae1", "#08203a"),
    "share-2": CellColours("#5a9fd4", "#000000"),
    "share-3": CellColours("#08519c", "#ffffff"),
    "share-4": CellColours("#9a3c0a", "#ffffff"),
    "fair": CellColours("#eef1f4", "#1a222a"),
    "over-1": CellColours("#d6e6f4", "#08203a"),
    "over-2": CellColours("#7fb2dd", "#000000"),
    "over-3": CellColours("#0b559f", "#ffffff"),
    "under-1": CellColours("#fde3c4", "#3a1f00"),
    "under-2": CellColours("#f0a04b", "#000000"),
    "under-3": CellColours("#8a3b00", "#ffffff"),
}


def look_of_share(share: float) -> CellLook:
    """Return the look of a share of the capacity, from 0 to 1 and beyond."""
    return CELL_LOOKS[sum(share >= step for step in SHARES)]


def look_of_error(percent: float) -> CellLook:
    """Return the look of how much more (above zero) or less a figure is than another one."""
    step = sum(abs(percent) >= least for least in ERRORS_PERCENT)
    if step == 0:
        return "fair"
    first: CellLook = "over-1" if percent > 0 else "under-1"
    return CELL_LOOKS[CELL_LOOKS.index(first) + step - 1]


def cell_rules(prefix: str) -> str:
    """Return CSS rules, to stand inside a widget's own, for component classes `PREFIX--LOOK` of cells.

    Where a terminal has its own two colours only, cells have none: their text says all.
    """
    rules = []
    for parent, colours in (("&", DARK), ("&:light", LIGHT)):
        rules += [
            f"{parent} > .{prefix}--{look} {{ background: {ground}; color: {ink}; }}"
            for look, (ground, ink) in colours.items()
        ]
    plain = "background: ansi_default; color: ansi_default;"
    rules += [f"&:ansi > .{prefix}--{look} {{ {plain} }}" for look in CELL_LOOKS]
    return "\n".join(rules)


def look_classes(prefix: str) -> set[str]:
    """Return the component classes of roles and cells."""
    return {f"{prefix}--{look}" for look in (*ROLES, *CELL_LOOKS)}
