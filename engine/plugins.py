"""Plug-ins: sources and analyzers found through entry points; a failure is reported, never fatal.

A distribution offers a plug-in by an entry point in the group `vramscope.sources`, `vramscope.analyzers` or
`vramscope.inquirers`; the object it names is called without arguments and returns the source, the analyzer or
the inquirer. Vramscope's own analyzers are found the same way, so the engine knows none by name.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar, cast

from .errors import UsageError
from .text import suggest

if TYPE_CHECKING:
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
            factory = cast(Callable[[], object], entry_point.load())
            made.append(factory())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code fails as it likes
            notes.append(_describe_failure(group, entry_point, error))
    return Plugins(made, notes)


class EntryPoint(NamedTuple):
    """A name that a distribution gives to an object of one of its modules."""

    name: str
    # `module:attribute`, and perhaps names of extras in brackets.
    value: str
    # Folder with the metadata of the distribution; None for vramscope's own source tree.
    metadata: Path | None

    def load(self) -> object:
        """Import the module and return the object."""
        module, _, attributes = self.value.partition("[")[0].partition(":")
        found: object = import_module(module.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            found = getattr(found, attribute)
        return found


def find_entry_points(group: PluginGroup) -> list[EntryPoint]:
    """Return the entry points of a group by name, the first distribution on the path winning a name.

    The files are read here because importlib.metadata takes longer to import than a verb takes for all else
    that it needs. Distributions in zip files are not found: vramscope's own dependencies cannot run from one.
    """
    found: dict[str, EntryPoint] = {}
    for entry_point in (*_read_distributions(group), *_read_source_tree(group)):
        found.setdefault(entry_point.name, entry_point)
    return [found[name] for name in sorted(found)]


def _read_distributions(group: PluginGroup) -> Iterator[EntryPoint]:
    """Yield the entry points of every distribution on the path; of two of one name, those of the first."""
    known: set[str] = set()
    for place in dict.fromkeys(sys.path):
        here = set()
        try:
            names = os.listdir(place or ".")  # noqa: PTH208 - globs take three times as long, at every start
        except OSError:
            continue
        for folder in sorted(name for name in names if name.endswith("-info")):
            distribution = folder.removesuffix(".egg-info").partition("-")[0].lower()
            if distribution in known:
                continue
            try:
                with open(f"{place or '.'}/{folder}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123
                    text = file.read()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, UnicodeDecodeError):
                text = ""  # pip could not have installed it
            here.add(distribution)
            for name, value in _read_section(text, f"[{group}]"):
                yield EntryPoint(name, value, Path(place, folder))
        known |= here


def _read_source_tree(group: PluginGroup) -> Iterator[EntryPoint]:
    """Yield the entry points that vramscope's own source tree declares, if it runs from one.

    An editable installation keeps the metadata of the day it was made, which may lack the newer ones.
    """
    if _SOURCE_TREE.is_file():
        text = _SOURCE_TREE.read_text(encoding="utf-8")
        for name, value in _read_section(text, f'[project.entry-points."{group}"]'):
            yield EntryPoint(name, value.strip('"'), None)


def _read_section(text: str, header: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values below a header, up to the next header."""
    _, _, following = text.partition(f"{header}\n")
    for line in following.partition("\n[")[0].splitlines():
        name, is_entry, value = line.partition("=")
        if is_entry and not line.startswith(("#", ";", "[")):
            yield name.strip(), value.strip()


def _describe_failure(group: PluginGroup, entry_point: EntryPoint, error: BaseException) -> str:
    kind = group.removeprefix("vramscope.").removesuffix("s")
    origin = "vramscope's source tree"
    if entry_point.metadata is not None:
        from importlib.metadata import PathDistribution

        distribution = PathDistribution(entry_point.metadata)
        origin = f"{distribution.name} {distribution.version}"
    reason = str(error) or "no reason given"
    return (
        f"{kind} plug-in {entry_point.name} ({entry_point.value}, of {origin}) was left out: "
        f"{type(error).__name__}: {reason}"
    )
