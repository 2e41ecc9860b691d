"""Texts that a user reads are in plain English, without words that are archaic or mean two things.

Looked at are the strings of the program that people read (with a blank in them, docstrings left out) and the
documentation. What a list cannot judge (`figure` for a picture, `hold` for memory) is left to readers.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.documents import list_pages
from tests.structure.tree import PRODUCT_FOLDERS, ROOT, parse, python_files

WORDS = {
    r"\banew\b": "again",
    r"\btold\b(?! apart)": "reported, known, measured, said",
    r"\btells? (?:of|no|that|how|which)\b": "reports, has, says",
    r"\bbeside\b": "next to, with",
    r"\bof which\b": "its, whose; or two sentences",
    r"\bheld (?:against|beside)\b": "compared with",
    r"\bfore(?:see|seen|sees|tell|tells|told)\b": "forecast, expected",
    r"\bgrave(?:r|st)?\b": "severe, more severe, most severe",
    r"\bheed\w*": "used, checked",
    r"\blies\b": "is",
    r"\b(?:is|are) none of\b": "is not one of",
    r"\b(?:where|there|here)(?:of|in|upon|by)\b": "say of what",
    r"\bwhat (?:is|was) (?:known|seen|said|used|read|kept) of\b": "name the thing",
}
"""What is not to be written, and what to write instead."""
EXCEPTIONS = {
    "INSERT INTO ": "SQL: a table and columns of recordings are called `told`, in files that are there",
    "SELECT ": "the same",
    "DELETE FROM ": "the same",
    "CREATE TABLE ": "the same",
    "recording.told(": "the name of a method",
    '"gravest": ': "a key of alerts in JSON",
    "room left beside": "the name of an evidence in JSON, which scripts read",
}
"""What a text contains that may have such a word, and why."""
FILES = {
    "engine/files/framework/oom_text.py": "patterns of what PyTorch prints",
    "engine/jobs/handover.py": "a program, which nobody reads",
    "engine/simulation/card.py": "the error of PyTorch, in its words",
}
"""Files whose strings are not looked at, and why."""


def _is_fine(text: str) -> bool:
    return any(part in text for part in EXCEPTIONS)


def _find(text: str) -> str | None:
    """Return the first word of a text that is not to be written, with what to write instead."""
    for pattern, instead in WORDS.items():
        if found := re.search(pattern, text, re.IGNORECASE):
            return f"{found[0]!r} (write: {instead})"
    return None


def _list_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings of a file that people may read."""
    tree = parse(path)
    unread = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in unread:
            continue
        if " " in node.value.strip():
            yield node.lineno, node.value


def test_strings_are_in_plain_english() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in python_files(PRODUCT_FOLDERS)
        if str(path.relative_to(ROOT)) not in FILES
        for line, text in _list_texts(path)
        if not _is_fine(text) and (word := _find(text))
    ]
    assert found == []


@pytest.mark.parametrize("page", list_pages(), ids=lambda page: page.name)
def test_pages_are_in_plain_english(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    found = [
        f"{number}: {word}"
        for number, line in enumerate(lines, 1)
        if not _is_fine(line) and (word := _find(line))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "begin anew",
        "nothing is told",
        "the agent tells of it",
        "Beside it",
        "a file of which",
        "held against nothing",
    ],
)
def test_a_word_that_is_not_to_be_written_is_found(text: str) -> None:
    assert _find(text)


@pytest.mark.parametrize("text", ["cannot be told apart", "next to it", "is one of them", "a tell-tale"])
def test_other_words_are_not(text: str) -> None:
    assert _find(text) is None


def test_shares_are_written_one_way() -> None:
    """`75 %`, by `format_share`: the format `%` of a string writes `75%`."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(PRODUCT_FOLDERS)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FormattedValue)
        and isinstance(node.format_spec, ast.JoinedStr)
        and ast.unparse(node.format_spec).rstrip("'\"").endswith("%")
    ]
    assert not found
