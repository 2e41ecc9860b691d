"""The source files of this repository, read once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import REPOSITORY

ROOT = REPOSITORY
PRODUCT_FOLDERS = ("engine", "analyzers", "exporters", "tui", "vramscope")
FOLDERS = (*PRODUCT_FOLDERS, "tests", "benchmarks", "docs", "examples", ".ci")
TEXT_SUFFIXES = {"", ".c", ".h", ".json", ".md", ".py", ".sh", ".tcss", ".toml", ".txt", ".yaml"}


@cache
def text_files() -> tuple[Path, ...]:
    """Return every file of the repository that people write, links not followed."""
    return tuple(_find_text_files())


def _find_text_files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            inside = path.relative_to(ROOT).parts
            if path.is_file() and path.suffix in TEXT_SUFFIXES and not _is_made_or_linked(path, inside):
                yield path


def _is_made_or_linked(path: Path, parts: tuple[str, ...]) -> bool:
    """Tell what a tool made, or what is reached a second time through a link in vramscope/."""
    if {"__pycache__", "__snapshots__", "results"} & set(parts):
        return True
    return any(parent.is_symlink() for parent in path.parents if parent != ROOT and ROOT in parent.parents)


def python_files(folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Return the Python files under some folders of the repository."""
    return [p for p in text_files() if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in folders]


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def list_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree: to walk it takes longer than what most rules do with it."""
    return tuple(ast.walk(parse(path)))
