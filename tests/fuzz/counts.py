"""How often each reader was run by fuzzing: `executions.json`, added to by every run.

A count is of the reader as it is: where code that it executes has changed since, what was counted before is
kept apart. `python -m tests.fuzz --counts` prints the table.
"""

import ast
import fcntl
import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tests import REPOSITORY

FILE = Path(__file__).parent / "executions.json"
_OURS = f"{REPOSITORY}/vramscope/"
_LONGEST_WORD = 40

Code = dict[Path, set[int]]


class Count(msgspec.Struct, frozen=True, omit_defaults=True):
    # Of the code that the reader executed, when it was run last.
    digest: str = ""
    day: str = ""
    guided: int = 0
    blind: int = 0
    # Of the reader before its code changed.
    earlier: int = 0

    @property
    def total(self) -> int:
        return self.guided + self.blind

    def of(self, digest: str) -> "Count":
        """Return the count of the reader as it is now."""
        return self if digest == self.digest else Count(digest, earlier=self.earlier + self.total)


def load(file: Path = FILE) -> dict[str, Count]:
    data = file.read_bytes() if file.exists() else b""
    return msgspec.json.decode(data, type=dict[str, Count]) if data else {}


def add(name: str, digest: str, *, guided: int = 0, blind: int = 0, file: Path = FILE) -> Count:
    """Add executions of one reader, also while other processes add theirs."""
    with file.open("a+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        counts = load(file)
        before = counts.get(name, Count()).of(digest)
        counts[name] = msgspec.structs.replace(
            before, day=date.today().isoformat(), guided=before.guided + guided, blind=before.blind + blind
        )
        held.truncate(0)
        held.write(msgspec.json.format(msgspec.json.encode(dict(sorted(counts.items())))) + b"\n")
    return counts[name]


def describe(digests: dict[str, str], file: Path = FILE) -> str:
    """Return the table: executions of each reader as it is now, and those of it before it changed."""
    counts = load(file)
    rows = [f"{'reader':<14}{'guided':>14}{'blind':>14}{'together':>14}{'before a change':>18}  last run"]
    for name, digest in digests.items():
        it = counts.get(name, Count()).of(digest)
        last = it.day or counts.get(name, Count()).day or "never"
        rows.append(f"{name:<14}{it.guided:>14,}{it.blind:>14,}{it.total:>14,}{it.earlier:>18,}  {last}")
    return "\n".join(rows)


def find_code(run: Callable[[bytes], object], inputs: Iterable[bytes]) -> Code:
    """Return where the code of ours begins that a reader executes for these inputs: lines by file."""
    kept, found = list(inputs), set[tuple[str, int]]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    for data in kept:  # first, what is executed once in a process
        run(data)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for data in kept:
            run(data)
    finally:
        sys.setprofile(before)
    lines = defaultdict[Path, set[int]](set)
    for file, line in found:
        if file.startswith(_OURS):
            lines[Path(file)].add(line)
    return dict(lines)


def digest(code: Code) -> str:
    """Return a digest of the functions that are executed, and of what else their modules define.

    Comments, docstrings and functions that the reader does not reach change nothing.
    """
    texts = set[str]()
    for path, lines in code.items():
        texts.update(_list_texts(ast.parse(path.read_text()).body, lines))
    return hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()[:16]


def _list_texts(body: list[ast.stmt], lines: set[int]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield " ".join([node.name, *map(ast.unparse, (*node.bases, *node.keywords))])
            yield from _list_texts(node.body, lines)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(it.lineno for it in node.decorator_list)])
            if any(first <= line <= (node.end_lineno or first) for line in lines):
                if ast.get_docstring(node) is not None:
                    node.body[:1] = []
                yield ast.unparse(node)
        elif not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr):
            yield ast.unparse(node)


def list_words(modules: Iterable[Path]) -> list[bytes]:
    """Return the short texts and the names of fields in these files: words of the formats that they read."""
    words = set[bytes]()
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                words.add(node.target.id.encode())
            elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value if isinstance(node.value, bytes) else node.value.encode("utf-8", "replace")
                words.add(text)
    return sorted(word for word in words if 1 < len(word) <= _LONGEST_WORD)
