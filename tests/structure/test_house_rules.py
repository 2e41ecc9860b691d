"""Rules of the house that no linter knows: documentation of the public API, what a file may not mention."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import vramscope
from tests.structure.tree import FOLDERS, PRODUCT_FOLDERS, ROOT, list_nodes, parse, python_files, text_files
from vramscope.engine import probe
from vramscope.engine.model import Analyzer
from vramscope.engine.model.finding import Inquirer
from vramscope.engine.sources.source import DeviceReader, PreparingReader, Source

UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|^(?:<{7}|>{7}) ")
"""Marks of work to come, and of a merge that was not finished."""
PATH_OF_SOMEBODY = re.compile(r"(?<![\w.$}~])/(?:home|root|Users|work)/\w")
PATH_IN_TESTS = re.compile(r"(?<![\w.$}~])/(?:root|work)/\w")
"""Tests may speak of some user's home as data."""
ABOUT_THE_CODE = ("ARCHITECTURE.md", "docs/internals.md", "docs/allocator-model.md", "docs/cluster-file.md")
IN_BACKTICKS = re.compile(r"`([\w./-]+)`")


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


@pytest.mark.parametrize("name", ABOUT_THE_CODE)
def test_documents_name_only_files_and_folders_that_are_there(name: str) -> None:
    """A file without a folder is below a folder that its paragraph names."""
    paragraphs = (ROOT / name).read_text(encoding="utf-8").split("\n\n")
    assert [gone for paragraph in paragraphs for gone in _list_gone(IN_BACKTICKS.findall(paragraph))] == []


def _list_gone(words: list[str]) -> list[str]:
    """List what is no path from the root or from `vramscope/`, and not below a folder among the words."""
    named = [ROOT / word for word in words if "/" in word]
    folders = [path if path.is_dir() else path.parent for path in named if path.exists()]
    return [
        word
        for word in words
        if (word.endswith(".py") or (word.split("/")[0] in FOLDERS and "/" in word))
        and not any((base / word).exists() for base in (ROOT, ROOT / "vramscope"))
        and not (word.endswith(".py") and any(path for it in folders for path in it.rglob(word)))
    ]


def test_links_of_the_front_door_lead_to_the_four_folders() -> None:
    links = {link.name: str(link.readlink()) for link in (ROOT / "vramscope").iterdir() if link.is_symlink()}
    assert links == {name: f"../{name}" for name in ("engine", "analyzers", "exporters", "tui")}


def test_the_four_folders_import_each_other_by_relative_names_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(("engine", "analyzers", "exporters", "tui"))
        for node in list_nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom) and _names_the_house(node)
    ]
    assert wrong == []


def test_no_python_is_started_that_looks_for_modules_in_the_current_folder() -> None:
    """`-m` and `-c` put that folder first on the search path, unless `-P` or `-I` says not to."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(PRODUCT_FOLDERS)
        for node in list_nodes(path)
        if isinstance(node, ast.List | ast.Tuple)
        and {"-m", "-c"} & (words := {it.value for it in node.elts if isinstance(it, ast.Constant)})
        and not {"-P", "-I", "/bin/sh"} & words
    ]
    assert found == []


def test_one_function_makes_the_command_line_of_a_module_of_ours() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in python_files(PRODUCT_FOLDERS)
        for node in list_nodes(path)
        if isinstance(node, ast.Constant) and node.value == "-m"
    }
    assert found == {"engine/child_processes.py"}


GUARDED = {
    "engine/agent/agent.py": "runs within the verb `agent`",
    "engine/files/base/output_file.py": "what a verb writes to `-`",
}
"""Files below the verbs that write to the streams of a verb, which write printable text only."""
ON_THEIR_OWN = {
    "engine/alerts/deliverer.py": "to the agent, which makes it printable",
    "engine/jobs/injector.py": "JSON to the process that started it",
    "engine/jobs/in_code.py": "in a program of the user: `fit_to_reader`",
    "engine/probe/module_memory/unattended.py": "in a program of the user: text of an OSError",
    "engine/probe/shim/vramscope_shim.py": "in a program of the user: cannot import anything of ours",
    "engine/files/memory_snapshot/decoder.py": "bytes to the process that started it",
    "engine/simulation/ledger.py": "in a program of the user, in words of ours",
    "engine/workloads/jax_memory.py": "in a child: `fit_to_reader`",
    "engine/workloads/leaking_gpt.py": "numbers, into the log of the demo",
    "engine/workloads/phases/__main__.py": "puts `OverheardErrors` in the place of stderr",
    "engine/workloads/phases/meters.py": "in a child: `fit_to_reader`",
    "engine/workloads/serving/__main__.py": "a start-up log of ours, in words of ours",
    "engine/workloads/step_trace.py": "in a child: `fit_to_reader`",
    "engine/workloads/model_tracer.py": "in a child: `fit_to_reader`",
    "tui/frame/launch.py": "sequences of ours, when the view ends",
    "vramscope/memory/monitor.py": "in a program of the user: `fit_to_reader`",
}
"""Files that run where no verb guards the streams, and what makes their text safe."""
UNGUARDED = {
    "engine/files/base/output_file.py": "bytes for `-` into a pipe or a file; a terminal has the guard",
    "engine/workloads/phases/__main__.py": "in a child, to pass on what the user's own code writes",
    "tui/frame/launch.py": "sequences of ours, when the view ends",
    "tui/terminal/opening.py": "the first frame, every text of which `clean_text` makes printable",
    "tui/terminal/driver.py": "screens, of which `PrintableFilter` makes every line printable",
    "vramscope/cli/frame/emit.py": "the guard itself",
    "vramscope/cli/mcp_server.py": "the protocol on standard output, whose JSON no terminal reads",
}
"""The places that write past the guard, and what makes their text safe."""
STYLED = {
    "vramscope/cli/prometheus_view.py",
    "vramscope/cli/remote_view.py",
    "vramscope/cli/status.py",
}
"""What prints `render_table`, of which tests/vramscope/cli/test_hostile_text.py looks at every byte."""


def test_text_reaches_the_terminal_by_one_way() -> None:
    """Within a verb the streams make text printable; what writes past them, or outside, is listed here."""
    writing, past, styled = set(), set(), set()
    for path in python_files(PRODUCT_FOLDERS):
        name = str(path.relative_to(ROOT))
        for node in list_nodes(path):
            if not name.startswith("vramscope/cli/") and _writes_to_a_stream(node):
                writing.add(name)
            if _goes_past_a_stream(node):
                past.add(name)
            if isinstance(node, ast.keyword) and node.arg == "is_styled":
                styled.add(name)
    assert writing == {*GUARDED, *ON_THEIR_OWN}
    assert past == {*UNGUARDED}
    assert styled == STYLED


@pytest.mark.parametrize(
    "line",
    [
        "print(name)",
        "sys.stdout.write(name)",
        "sys.stderr.buffer.write(data)",
        "traceback.print_exc()",
        "stream = sys.stderr",
        "from sys import stdout",
    ],
)
def test_another_place_that_writes_to_a_stream_is_found(line: str) -> None:
    assert any(map(_writes_to_a_stream, ast.walk(ast.parse(line))))


@pytest.mark.parametrize(
    "line",
    [
        "sys.__stdout__.write(name)",
        "sys.stdout.unguarded.write(name)",
        "getattr(sys.stdout, 'unguarded')",
        "sys.stderr = io.StringIO()",
        "os.write(2, data)",
        "os.fdopen(1, 'wb')",
        "open('/dev/tty')",
        "os.writev(1, [data])",
    ],
)
def test_another_way_past_the_streams_is_found(line: str) -> None:
    assert any(map(_goes_past_a_stream, ast.walk(ast.parse(line))))


def _writes_to_a_stream(node: ast.AST) -> bool:
    """Return whether this prints, or takes standard output or error in hand."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and bool({it.name for it in node.names} & {"stdout", "stderr"})
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return node.func.attr.startswith("print_") and ast.unparse(node.func.value) == "traceback"
        return isinstance(node.func, ast.Name) and node.func.id == "print"
    return _is_a_stream(node)


def _is_a_stream(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("stdout", "stderr")
        and ast.unparse(node.value) == "sys"
    )


def _goes_past_a_stream(node: ast.AST) -> bool:
    """Return whether this writes to a stream below the guard, or puts another in its place."""
    if isinstance(node, ast.Constant):
        return node.value in ("/dev/tty", "/dev/stdout", "/dev/stderr", "unguarded")
    if isinstance(node, ast.Attribute):
        is_replaced = isinstance(node.ctx, ast.Store) and _is_a_stream(node)
        return is_replaced or node.attr in ("unguarded", "__stdout__", "__stderr__")
    if not isinstance(node, ast.Call) or not node.args:
        return False
    first = node.args[0]
    writes = ("os.write", "os.writev", "os.pwrite", "os.fdopen", "open", "io.open", "FileIO")
    is_number = isinstance(first, ast.Constant) and type(first.value) is int and first.value in (1, 2)
    return is_number and ast.unparse(node.func) in writes


def _names_the_house(node: ast.Import | ast.ImportFrom) -> bool:
    """Tell an absolute import of vramscope, or of one of its folders by their bare name."""
    house = {"vramscope", "engine", "analyzers", "exporters", "tui"}
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").split(".")[0] in house
    return any(alias.name.split(".")[0] in house for alias in node.names)


def test_no_folder_is_reached_again_from_what_it_imports() -> None:
    """Rooms form a tree: by the imports of loading, none leads back to itself, also by way of others."""
    modules = {_name(path): path for path in python_files(PRODUCT_FOLDERS)}
    rooms = {
        name: name if path.stem == "__init__" else name.rpartition(".")[0] for name, path in modules.items()
    }
    reached: dict[str, set[str]] = {room: set() for room in rooms.values()}
    for name, path in modules.items():
        for node in parse(path).body:
            if isinstance(node, ast.ImportFrom):
                for target in _find_targets(node, name, is_package=path.stem == "__init__"):
                    if target in rooms and rooms[target] != rooms[name]:
                        reached[rooms[name]].add(rooms[target])
    changed = True
    while changed:
        changed = False
        for room, others in reached.items():
            further = set().union(*(reached[other] for other in others)) - others
            changed = changed or bool(further)
            reached[room] = others | further
    assert sorted(room for room, others in reached.items() if room in others) == []


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "vramscope" else ("vramscope", *parts))


def _find_targets(node: ast.ImportFrom, name: str, *, is_package: bool) -> list[str]:
    """List the modules that an import may load: the one it names, and its names where they are modules."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
    within = [f"{module}.{alias.name}" for alias in node.names]
    return [module, *within]
