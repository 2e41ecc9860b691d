"""On which line of a TOML or YAML file a key stands, as far as plain reading of its lines tells.

The parsers do not say. Two levels are looked at, `nodes[1].count`: that is where people err. A key within
brackets on one line is on that line.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_HEADER = re.compile(r"^\s*\[(\[?)\s*([\w-]+)\s*\]")
_TOML_KEY = re.compile(r"^\s*([\w-]+)\s*=")
_ITEM = re.compile(r"^(\s*)-(?=\s|$)\s*")
_YAML_KEY = re.compile(r"^(\s*)([\w-]+)\s*:(?=\s|$)")


class KeyLines(NamedTuple):
    """A file as errors name it, and the lines of its keys."""

    shown: str
    lines: Mapping[str, int] = {}

    def place(self, key: str, inner: str = "") -> str:
        """Return the file, the line where it is known, and the key, as the beginning of an error.

        Args:
            key: For example `nodes[1].count`.
            inner: A key of that table, whose line is meant.
        """
        probe = f"{key}.{inner}" if inner else key
        while probe and probe not in self.lines:
            probe = probe[: max(probe.rfind("."), probe.rfind("["), 0)]
        line = f", line {self.lines[probe]}" if probe else ""
        return f"{self.shown}{line}: {key or 'the file'}"


def locate_toml_keys(text: str) -> dict[str, int]:
    """Return the lines of the keys of a TOML file, from 1."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _HEADER.match(line)) is not None:
            name = header.group(2)
            if header.group(1):
                counts[name] = counts.get(name, -1) + 1
                name = f"{name}[{counts[name]}]"
            found.setdefault(name, number)
            prefix = f"{name}."
        elif (key := _TOML_KEY.match(line)) is not None:
            found.setdefault(prefix + key.group(1), number)
    return found


def locate_yaml_keys(text: str) -> dict[str, int]:
    """Return the lines of the keys of a YAML file, from 1."""
    found: dict[str, int] = {}
    for number, key in _list_yaml_keys(text):
        found.setdefault(key, number)
    return found


def _list_yaml_keys(text: str) -> Iterator[tuple[int, str]]:
    top = ""
    count = -1
    indent = -1
    for number, line in enumerate(text.splitlines(), 1):
        item = _ITEM.match(line)
        if item is not None and top and (indent < 0 or len(item.group(1)) == indent):
            count = count + 1
            indent = len(item.group(1))
            yield number, f"{top}[{count}]"
        key = _YAML_KEY.match(line if item is None else line[item.end() :])
        if key is None:
            continue
        if item is None and not key.group(1):
            top = key.group(2)
            count = -1
            indent = -1
            yield number, top
        elif count >= 0:
            yield number, f"{top}[{count}].{key.group(2)}"
