"""Plug-ins: sources and analyzers found through entry points; a failure is reported, never fatal.

A distribution offers a plug-in by an entry point in the group `vramscope.sources`, `vramscope.analyzers` or
`vramscope.inquirers`; the object it names is called without arguments and returns the source, the analyzer or
the inquirer. Vramscope's own analyzers are found the same way, so the engine knows none by name.
"""

import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar, cast

from .errors import UsageError
from .text import suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .model import Analyzer
    from .model.finding import Inquirer
    from .sources.source import Source

# Groups of entry points of vramscope.
PluginGroup = Literal["vramscope.sources", "vramscope.analyzers", "vramscope.inquirers"]

# Declares vramscope's own plug-ins if it runs from its source tree.
_SOURCE_TREE = Path(__file__).resolve().parent.parent / "pyproject.toml"

PluginT = TypeVar("PluginT")


class Plugins(NamedTuple, Generic[PluginT]):
    """The plug-ins of one group that were made, and why others were not."""

    made: list[PluginT]
    # One sentence for each plug-in that failed, with its name, its distribution and the error.
    notes: list[str]


def make_sources() -> "Plugins[Source]":
    """Return a new source of every plug-in in `vramscope.sources`."""
    return cast("Plugins[Source]", make_plugins("vramscope.sources"))


def make_analyzers(chosen: Collection[str] | None = None) -> "Plugins[Analyzer]":
    """Return a new analyzer of every plug-in in `vramscope.analyzers`, or of those of these names."""
    return cast("Plugins[Analyzer]", make_plugins("vramscope.analyzers", chosen))


def choose_analyzers(text: str) -> frozenset[str]:
    """Return names of analyzers that were typed with commas between them.

    Raises:
        UsageError: One is the name of none; the text names the nearest, or all.
    """
    known = [it.name for it in find_entry_points("vramscope.analyzers")]
    chosen = [word.strip() for word in text.split(",")]
    for name in chosen:
        if name not in known:
            near = suggest(name, known, "")
            hint = f"{near} " if near else ""
            raise UsageError(f"--analyzers: unknown analyzer {name!r}: {hint}known are {', '.join(known)}")
    return frozenset(chosen)


def make_inquirers() -> "Plugins[Inquirer]":
    """Return a new inquirer of every plug-in in `vramscope.inquirers`."""
    return cast("Plugins[Inquirer]", make_plugins("vramscope.inquirers"))


def make_plugins(group: PluginGroup, chosen: Collection[str] | None = None) -> Plugins[object]:
    """Return a new object of every plug-in of a group, or of those `chosen`, by name, each name once."""
    made: list[object] = []
    notes: list[str] = []
    for entry_point in find_entry_points(group):
        if chosen is not None and entry_point.name not in chosen:
            continue
        try:
            factory = cast("Callable[[], object]", entry_point.load())
            made.append(factory())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code fails as it likes
            notes.append(_describe_failure(group, entry_point, error))
    return Plugins(made, notes)


def find_entry_points(group: PluginGroup) -> "list[EntryPoint]":
    """Return the entry points of a group by name, the first distribution on the path winning a name."""
    if not _may_be_offered(group):
        return []
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry_point in (*entry_points(group=group), *_read_source_tree(group)):
        found.setdefault(entry_point.name, entry_point)
    return [found[name] for name in sorted(found)]


def _may_be_offered(group: PluginGroup) -> bool:
    """Return whether any distribution could offer the group.

    importlib.metadata takes as long to import as all else that a headless verb needs, so the files it would
    read are searched first; a path that is no folder (a zip file) counts as a maybe.
    """
    if _SOURCE_TREE.is_file() and _has_entries(_SOURCE_TREE, f'"{group}"]'):
        return True
    for place in map(Path, dict.fromkeys(sys.path)):
        if place.is_file() or any(
            _has_entries(file, f"[{group}]") for file in place.glob("*-info/entry_points.txt")
        ):
            return True
    return False


def _has_entries(file: Path, header: str) -> bool:
    """Return whether a section has entries; an unreadable file counts as a maybe."""
    try:
        _, _, following = file.read_text(encoding="utf-8").partition(header)
    except (OSError, UnicodeDecodeError):
        return True
    return "=" in following.partition("\n[")[0]


def _read_source_tree(group: PluginGroup) -> "Iterator[EntryPoint]":
    """Yield the entry points that vramscope's own source tree declares, if it runs from one.

    An editable installation keeps the metadata of the day it was made, which may lack the newer ones.
    """
    if not _SOURCE_TREE.is_file():
        return
    import tomllib
    from importlib.metadata import EntryPoint

    project = tomllib.loads(_SOURCE_TREE.read_text(encoding="utf-8"))["project"]
    for name, value in project.get("entry-points", {}).get(group, {}).items():
        yield EntryPoint(name, value, group)


def _describe_failure(group: PluginGroup, entry_point: "EntryPoint", error: BaseException) -> str:
    kind = group.removeprefix("vramscope.").removesuffix("s")
    origin = (
        "vramscope's source tree"
        if entry_point.dist is None
        else f"{entry_point.dist.name} {entry_point.dist.version}"
    )
    reason = str(error) or "no reason given"
    return (
        f"{kind} plug-in {entry_point.name} ({entry_point.value}, of {origin}) was left out: "
        f"{type(error).__name__}: {reason}"
    )
