"""Rules of the house that no linter knows: sizes, docstrings, what a file may not mention."""

import ast
import re

from tests.structure.tree import PRODUCT_FOLDERS, ROOT, parse, python_files, text_files

MOST_LINES_OF_A_FILE = 350
MOST_LINES_OF_A_FUNCTION = 40
"""Of Python only. The pretend driver (`tests/pretend_nvml/nvml.c`) is longer, and one file on purpose: it is
compiled by one call of the compiler, without a build system, wherever the tests run."""
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
PATH_OF_SOMEBODY = re.compile(r"(?<![\w.$}~])/(?:home|root|Users|work)/\w")
PATH_IN_TESTS = re.compile(r"(?<![\w.$}~])/(?:root|work)/\w")
"""Tests may speak of some user's home as data."""


def test_a_file_is_one_thing() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in python_files()
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES_OF_A_FILE
    }
    assert long == {}


def test_a_function_fits_on_a_screen() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": size
        for path in python_files()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}


def test_every_public_name_says_what_it_is() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in python_files((*PRODUCT_FOLDERS, "benchmarks"))
        for line, name in _undocumented(parse(path), "")
    ]
    assert silent == []


def _undocumented(node: ast.Module | ast.ClassDef, inside: str) -> list[tuple[int, str]]:
    """List the public modules, classes, functions and methods without a docstring."""
    found = []
    if not ast.get_docstring(node) and node.body:
        found.append((getattr(node, "lineno", 1), inside or "the module"))
    for child in node.body:
        name = getattr(child, "name", "_")
        if name.startswith("_"):
            continue
        if isinstance(child, ast.ClassDef):
            found += _undocumented(child, f"{inside}{name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not ast.get_docstring(child):
            found.append((child.lineno, inside + name))
    return found


def test_nothing_is_left_unfinished_or_tied_to_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if UNFINISHED.search(line)
        or (PATH_IN_TESTS if "tests" in path.parts else PATH_OF_SOMEBODY).search(line)
    ]
    assert found == []


def test_links_of_the_front_door_lead_to_the_four_folders() -> None:
    links = {link.name: str(link.readlink()) for link in (ROOT / "vramscope").iterdir() if link.is_symlink()}
    assert links == {name: f"../{name}" for name in ("engine", "analyzers", "exporters", "tui")}


def test_the_four_folders_import_each_other_by_relative_names_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(("engine", "analyzers", "exporters", "tui"))
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Import | ast.ImportFrom) and _names_the_house(node)
    ]
    assert wrong == []


def _names_the_house(node: ast.Import | ast.ImportFrom) -> bool:
    """Tell an absolute import of vramscope, or of one of its folders by their bare name."""
    house = {"vramscope", "engine", "analyzers", "exporters", "tui"}
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").split(".")[0] in house
    return any(alias.name.split(".")[0] in house for alias in node.names)
