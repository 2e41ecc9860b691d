"""Rules of the house that no linter knows: documentation of the public API, what a file may not mention."""

import ast
import inspect
import re

import vramscope
from tests.structure.tree import PRODUCT_FOLDERS, ROOT, parse, python_files, text_files
from vramscope.engine import probe
from vramscope.engine.model import Analyzer
from vramscope.engine.model.inquiry import Inquirer
from vramscope.engine.sources.source import DeviceReader, PreparingReader, Source

UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
PATH_OF_SOMEBODY = re.compile(r"(?<![\w.$}~])/(?:home|root|Users|work)/\w")
PATH_IN_TESTS = re.compile(r"(?<![\w.$}~])/(?:root|work)/\w")
"""Tests may speak of some user's home as data."""


def test_every_public_name_is_documented() -> None:
    protocols = (Source, DeviceReader, PreparingReader, Analyzer, Inquirer)
    public = [getattr(vramscope, name) for name in vramscope.__all__ if name != "__version__"]
    of_the_probe = [it for name, it in vars(probe).items() if inspect.isfunction(it) and name[0] != "_"]
    silent = [name for it in (*public, *protocols, *of_the_probe) for name in _undocumented(it)]
    assert silent == []


def _undocumented(public: object) -> list[str]:
    """List what lacks a docstring: the function or class, and the public members of a class."""
    name = getattr(public, "__qualname__", repr(public))
    silent = [] if inspect.getdoc(public) else [name]
    if inspect.isclass(public):
        silent += [
            f"{name}.{word}"
            for word, member in inspect.getmembers(public)
            if not word.startswith("_")
            and (inspect.isfunction(member) or isinstance(member, property))
            and not inspect.getdoc(member)
        ]
    return silent


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


def test_no_python_is_started_that_looks_for_modules_in_the_current_folder() -> None:
    """`-m` and `-c` put that folder first on the search path, unless `-P` or `-I` says not to."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(PRODUCT_FOLDERS)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.List | ast.Tuple)
        and {"-m", "-c"} & (words := {it.value for it in node.elts if isinstance(it, ast.Constant)})
        and not {"-P", "-I", "/bin/sh"} & words
    ]
    assert found == []


def test_one_function_makes_the_command_line_of_a_module_of_ours() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in python_files(PRODUCT_FOLDERS)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Constant) and node.value == "-m"
    }
    assert found == {"engine/bus/processes.py"}


def _names_the_house(node: ast.Import | ast.ImportFrom) -> bool:
    """Tell an absolute import of vramscope, or of one of its folders by their bare name."""
    house = {"vramscope", "engine", "analyzers", "exporters", "tui"}
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").split(".")[0] in house
    return any(alias.name.split(".")[0] in house for alias in node.names)
