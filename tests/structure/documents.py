"""What the documentation holds: pages, fenced blocks with their commands, links, headings."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.structure.tree import ROOT

NEEDS = {"agent", "client", "cluster", "files", "gpu", "job", "root", "server", "terminal", "torch"}
"""What `<!-- needs: … -->` before a block may name: its commands are parsed and not run."""
MADE = {"cli.md", "schemas.md"}
"""Pages that docs/site_hooks.py makes when the site is built."""
_MARK = re.compile(r"\s*<!-- needs: ([a-z, ]+) -->\s*")
_FENCE = re.compile(r"(\s*)```(\w*)\s*")
_SEPARATORS = {"|", "||", "&&", "&", ";"}
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"#{1,6} (.+)")


class Block(NamedTuple):
    """A fenced block."""

    place: str
    """File and line, for messages."""
    kind: str
    text: str
    needs: frozenset[str]


@cache
def list_pages() -> tuple[Path, ...]:
    """Return the pages that users read."""
    return (
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "SECURITY.md")),
        *list_docs(),
    )


def list_docs() -> list[Path]:
    return sorted((ROOT / "docs").glob("*.md"))


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, each with what the comment before it says that it needs."""
    needs: frozenset[str] = frozenset()
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if mark := _MARK.fullmatch(line):
            needs = frozenset(mark[1].replace(" ", "").split(","))
        elif fence := _FENCE.fullmatch(line):
            inside = []
            for _, text in lines:
                if text.strip() == "```":
                    break
                inside.append(text.removeprefix(fence[1]))
            yield Block(f"{page.relative_to(ROOT)}:{number}", fence[2], "\n".join(inside), needs)
            needs = frozenset()
        elif line.strip():
            needs = frozenset()


def split_commands(block: Block) -> Iterator[tuple[str, ...]]:
    """Yield the simple commands of a shell block, as words; redirections are left out.

    Of a block of kind `console` only the lines after `$ ` are commands; the others are what they print.
    """
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.kind == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        words = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        words.whitespace_split = True
        command: list[str] = []
        is_target = False
        for word in words:
            if word in _SEPARATORS:
                if command:
                    yield tuple(command)
                command = []
            elif is_target:
                is_target = False
            elif set(word) <= {"<", ">"}:
                is_target = True
            else:
                command.append(word)
        if command:
            yield tuple(command)


def find_vramscope(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the arguments of vramscope in a command, also behind `srun` and the like; None without it."""
    before = ("", *words)
    for word, last, at in zip(words, before, range(len(words)), strict=False):
        is_value = (
            len(last) == 2 and last.startswith("-") and last not in ("--", "-m")
        )  # as in `sudo -u vramscope`
        if (word == "vramscope" and not is_value) or word.endswith("/bin/vramscope"):
            return words[at + 1 :]
    return None


def read_links(page: Path) -> Iterator[tuple[str, str]]:
    """Yield file and fragment of the links and pictures of a page, those to other hosts left out."""
    text = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", text)
    for target in _LINK.findall(text):
        if not target.startswith(("http://", "https://")):
            name, _, fragment = target.partition("#")
            yield name, fragment


@cache
def read_anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page, as the site and code hosts make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return frozenset(_slug(heading) for heading in map(_HEADING.fullmatch, text.splitlines()) if heading)


def _slug(heading: re.Match[str]) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text.replace("`", "")).strip().lower())
