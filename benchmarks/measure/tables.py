"""Tables for people: columns in line, numbers to the right."""

from collections.abc import Sequence


def format_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text; the first column is aligned left, the others right.

    Args:
        title: What the table shows, in one line.
        head: Names of the columns.
        rows: Cells as they shall stand.
    """
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [title, _format_row(head, widths), "  ".join("─" * width for width in widths)]
    lines += [_format_row(row, widths) for row in rows]
    return "\n".join(lines)


def format_number(value: float | None, digits: int = 2) -> str:
    """Return a number with fixed digits, or a dash for what could not be measured."""
    return "—" if value is None else f"{value:,.{digits}f}"


def _format_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *others)).rstrip()


def format_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a page of the documentation; the first column is aligned left, the others right."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replace_table(page: str, command: str, table: str) -> str:
    """Return a page with the table that a command writes; a page without a place for it is an error."""
    begin = f"<!-- table: {command} -->"
    end = "<!-- table ends -->"
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"the page has no place for the table: {begin} and {end}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"
