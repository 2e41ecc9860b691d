"""Columns of one line: each text is padded or cut to the cells of its column."""

from collections.abc import Sequence

from rich.cells import cell_len

from .spans import fit_text, right_text

# Cells from which a part of a text at the left says something.
LEAST_PART_CELLS = 6


def measure_columns(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Return the cells of each column's longest text."""
    return tuple(max(map(cell_len, texts)) for texts in zip(*rows, strict=True))


def fit_columns(texts: Sequence[str], widths: Sequence[int], alignment: str, ellipsis: str) -> list[str]:
    """Return each text in exactly the cells of its column; `alignment` has `l` or `r` for each."""
    return [
        (right_text if side == "r" else fit_text)(text, width, ellipsis)
        for text, width, side in zip(texts, widths, alignment, strict=True)
    ]


def join_columns(
    texts: Sequence[str],
    widths: Sequence[int],
    alignment: str,
    ellipsis: str,
    *,
    gap: int = 1,
    room: int | None = None,
) -> str:
    """Return one line of columns, `gap` cells apart.

    Args:
        alignment: `l` or `r` for each.
        ellipsis: Ends a text that was cut.
        room: Cells of the line; columns that do not fit are left out from the right, but the first of them
            is cut instead if its text is at the left. None shows all columns.
    """
    fitted = fit_columns(texts, widths, alignment, ellipsis)
    if room is not None:
        ends = [sum(widths[: at + 1]) + at * gap for at in range(len(widths))]
        count = next((at for at, end in enumerate(ends) if end > room), len(widths))
        if count < len(widths):
            left = room - (ends[count] - widths[count])
            fitted = fitted[:count]
            if alignment[count] == "l" and left >= min(widths[count], LEAST_PART_CELLS):
                fitted.append(fit_text(texts[count], left, ellipsis))
    return (" " * gap).join(fitted)
