"""The documentation says what is so: commands run, flags exist, links lead somewhere."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from tests.analyzers.planning.sweep.trees import write_tree
from tests.engine.files.formats import write_samples
from tests.structure.documents import (
    MADE,
    NEEDS,
    Block,
    find_vramscope,
    list_docs,
    list_pages,
    read_anchors,
    read_blocks,
    read_links,
    split_commands,
)
from tests.structure.test_flag_names import SHOWN
from tests.structure.tree import ROOT, text_files
from tests.vramscope.cli.running import call, run
from vramscope.cli.frame.parse import list_verbs, parse

SHELL = {"sh", "console"}
BLOCKS = [block for page in list_pages() for block in read_blocks(page)]
RUN = [block for block in BLOCKS if block.kind in SHELL and not block.needs]
FINE = {0, 3, 4}
"""Done; an answer that `--fail-on` makes a code; no device on the machine of the test."""
BESIDE = {"jq"}
"""Programs that read what a command that is run prints."""
OTHERS = {
    "--cap-add", "--decoder-first-pipeline-num-layers", "--account-for-embedding-in-pipeline-split",
    "--pipeline-model-parallel-layout", "--format=csv", "--gpus", "--kill-on-bad-exit", "--nproc-per-node",
    "--ntasks", "--ntasks-per-node", "--overlap", "--query-gpu", "--trace-memory", "--dry-run",
    "--hours", "--leave-with-viewers", "--model_size", "--seq_length", "--vram-report", "--vram-update",
    "--vram-baseline",
}  # fmt: skip
"""Flags of other programs, spellings of the originals, and one that only vramscope itself types."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that has the files of which the pages speak."""
    samples = tmp_path_factory.mktemp("samples")
    made = write_samples(samples)
    here = write_tree(tmp_path_factory.mktemp("reader"))
    names = {
        "nvidia-smi log": ("gpu.csv",),
        "series": ("rank0.csv", "rank1.csv", "rank2.csv"),
        "recording": ("run.vscope", "main.vscope", "branch.vscope"),
        "snapshot": ("snapshot.pickle",),
        "hugging face": ("config.json",),
        "cases": ("cases.csv",),
    }
    for name, copies in names.items():
        for copy in copies:
            shutil.copy(made[name], here / copy)
    for name in ("memory_trace", "run1", "run2"):
        shutil.copytree(made["folder of profiles"], here / name)
    shutil.copytree(made["folder of traces"], here / "memory_traces" / "30b_pp4_tp2")
    (here / "traces").mkdir()
    shutil.copytree(here / "memory_traces_scaling" / "485B_8192gpus_tplimit8", here / "traces" / "485B")
    return here


@pytest.mark.parametrize("block", RUN, ids=[block.place for block in RUN])
def test_commands_do_what_the_page_says(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    printed: list[str] = []
    places = {name: str(folder / "home") for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    for command in split_commands(block):
        arguments = find_vramscope(command)
        if arguments is None:
            assert command[0] in BESIDE, f"{command}: run it, or say what the block needs"
            continue
        # Without a verb it ends its process at once; a process loads the driver's library only once.
        start = run if arguments[0].startswith("-") or arguments[0] == "doctor" else call
        done = start(*arguments, VRAMSCOPE_RUNTIME_DIR=str(folder / "agent"), **places)
        assert done.code in FINE, (command, done.stderr)
        assert "Traceback" not in done.stderr
        printed += done.stdout.splitlines()
    if block.kind == "console":
        shown = [line for line in block.text.splitlines() if not line.startswith("$ ") and line != "…"]
        assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("block", BLOCKS, ids=[block.place for block in BLOCKS])
def test_commands_are_understood(block: Block) -> None:
    """Those that need a GPU or the like are parsed as they stand."""
    assert block.kind, "say what the block is: sh, python, text, …"
    assert block.needs <= NEEDS
    if block.kind not in SHELL:
        assert not block.needs
        return
    for command in split_commands(block):
        arguments = find_vramscope(command)
        if arguments is not None:
            parse(arguments)
        elif command[:2] == ("python", "-m"):
            assert importlib.util.find_spec(command[2]), command
        elif command[0] == "make":
            assert re.search(rf"^{command[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command


@pytest.mark.parametrize("page", list_docs(), ids=lambda page: page.name)
def test_no_block_is_indented_instead_of_fenced(page: Path) -> None:
    """An indented block has no kind, so that nothing would look at its commands."""
    lines = page.read_text(encoding="utf-8").splitlines()
    before = ["", *lines]
    assert not [
        line
        for line, last in zip(lines, before, strict=False)
        if re.match(r" {4}(vramscope|make) ", line) and not last
    ]


@pytest.mark.parametrize(
    "page", [page for page in list_pages() if page.name != "CHANGELOG.md"], ids=lambda it: it.name
)
def test_flags_in_sentences_exist(page: Path) -> None:
    known = {flag for _, action in SHOWN for flag in action.option_strings} | OTHERS
    text = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for code in re.findall(r"`([^`\n]+)`", text):
        words = code.split(" -- ")[0].split()
        flags = [re.split(r"[=\[]", word)[0] for word in words if word.startswith("--") and word != "--"]
        verb = words[1] if words[0] == "vramscope" and len(words) > 1 and words[1] in list_verbs() else None
        of_verb = {flag for name, action in SHOWN if name in (verb, "") for flag in action.option_strings}
        is_foreign = words[0] not in ("vramscope",) and not words[0].startswith("--")
        allowed = of_verb if verb else known
        wrong += [code for flag in flags if not is_foreign and flag not in allowed]
    assert wrong == []


@pytest.mark.parametrize("page", list_pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for name, fragment in read_links(page):
        target = page.parent / name if name else page
        is_made = target.name in MADE and target.parent == ROOT / "docs"
        is_there = target.exists() or is_made
        is_heading = not fragment or is_made or (target.suffix == ".md" and fragment in read_anchors(target))
        if not (is_there and is_heading):
            wrong.append(f"{name}#{fragment}")
    assert wrong == []


@pytest.mark.parametrize("page", list_pages(), ids=lambda page: page.name)
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    missing = []
    for named in set(re.findall(r"`(tests/[\w./:]+)`", page.read_text(encoding="utf-8"))):
        path, _, test = named.partition("::")
        is_there = (ROOT / path).exists() and (not test or f"def {test}(" in (ROOT / path).read_text())
        missing += [] if is_there else [named]
    assert missing == []


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/internals.md"])
def test_every_file_and_room_that_a_page_names_is_there(name: str) -> None:
    """By its path from the top, from a layer, or from the room of which a line speaks."""
    files = [path.relative_to(ROOT) for path in text_files()]
    known = {f"/{path}" for path in files} | {f"/{room}/" for path in files for room in path.parents}
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+(?:\.py|\.md|/))`", text)
    assert len(named) > 50
    assert not [it for it in named if not any(path.endswith(f"/{it}") for path in known)]


def test_every_line_of_the_threat_model_names_a_test() -> None:
    rows = re.findall(
        r"^\| (?!who \||-).*\|$", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) > 15
    assert [row for row in rows if "`tests/" not in row.rsplit("|", 2)[1]] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        {*(page.name for page in list_docs()), *MADE, "ARCHITECTURE.md", "CHANGELOG.md"}
    )


def test_every_picture_is_shown() -> None:
    shown = {(page.parent / name).resolve() for page in list_pages() for name, _ in read_links(page)}
    assert [path.name for path in (ROOT / "docs/pictures").iterdir() if path not in shown] == []


def test_the_front_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_changelog_has_a_line_an_entry() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("  ")] == []
    assert [line for line in lines if len(line) > 124] == []
