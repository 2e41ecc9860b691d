"""Finds loops that wait for a value which never changes, because it is a stand-in."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from typing import Any

from .ledger import refuse

# Readings of the same value in one line after which its loop is looked at.
MANY_READINGS = 1000


class LoopWatch:
    """Counts how often each line has read the same value."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], tuple[object, int]] = {}

    def note(self, name: str, line: int, value: object) -> None:
        """Note a reading.

        Raises:
            SystemExit: The loop around the line ends only if the value changes.
        """
        before, count = self._counts.get((name, line), (value, 0))
        count = count + 1 if before == value else 1
        self._counts[name, line] = value, count
        if count == MANY_READINGS and waits_at("".join(linecache.getlines(name)), line):
            refuse(
                f"{name}:{line} waits in a loop for a value that never changes with --fake (read "
                f"{count:,} times): bound the loop by a number of steps, guard it "
                "(if 'VRAMSCOPE_SIMULATE' not in os.environ), or run without --fake"
            )


def waits_at(source: str, line: int) -> bool:
    """Return whether the innermost loop around a line of Python can end only by what is read there.

    That is a `while` with the line in its condition, or `while True` with the line in the condition of its
    only way out.
    """
    try:
        loops = [it for it in ast.walk(ast.parse(source)) if isinstance(it, (ast.For, ast.While))]
    except (SyntaxError, ValueError):
        return False
    around = [it for it in loops if _spans(it, line)]
    if not around:
        return False
    loop = max(around, key=lambda it: it.lineno)
    if isinstance(loop, ast.For):
        return False
    ways_out = list(_list_ways_out(loop.body))
    if _spans(loop.test, line):
        # `and step < most` ends it by itself.
        return not isinstance(loop.test, ast.BoolOp) and not ways_out
    is_forever = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    return is_forever and len(ways_out) == 1 and ways_out[0] is not None and _spans(ways_out[0], line)


def _spans(node: Any, line: int) -> bool:
    last: int = node.end_lineno or node.lineno
    return bool(node.lineno <= line <= last)


def _list_ways_out(body: list[ast.stmt], condition: ast.expr | None = None) -> Iterator[ast.expr | None]:
    """Yield the condition of each statement that leaves a loop; None for one that has no condition."""
    for statement in body:
        if isinstance(statement, (ast.Break, ast.Return, ast.Raise)):
            yield condition
        elif isinstance(statement, ast.If):
            yield from _list_ways_out(statement.body, statement.test)
            yield from _list_ways_out(statement.orelse, statement.test)
        elif isinstance(statement, (ast.For, ast.While)):
            inner = [it for it in ast.walk(statement) if isinstance(it, (ast.Return, ast.Raise))]
            yield from (None for _ in inner)
        elif isinstance(statement, (ast.With, ast.Try)):
            for part in ("body", "handlers", "orelse", "finalbody"):
                for it in getattr(statement, part, ()):
                    nested = it.body if isinstance(it, ast.ExceptHandler) else [it]
                    yield from _list_ways_out(nested, condition)
