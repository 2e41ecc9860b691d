"""YAML that a person wrote, parsed by PyYAML within bounds: no anchors, no tags, no texts of several lines.

The meaning of a scalar is decided here, since YAML 1.1 reads `no` as false, `010` as 8 and `1:30` as 90.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn, Protocol

_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"^[-+]?\d{1,40}$")
_NUMBER = re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$")
# Keys whose lines are returned: of the file, and of the tables in its lists. People err there.
_LOCATED = re.compile(r"[\w-]+(?:\[\d+\](?:\.[\w-]+)?)?")
_MOST_DEPTH = 50
_MOST_SHOWN = 40


class YamlError(ValueError):
    """Not YAML, or not the part that is read here; the text names line and reason."""


class ParsedYaml(NamedTuple):
    """A YAML text: its value, and the lines of its keys, from 1."""

    # A mapping, list or scalar; None if the text is empty.
    value: object
    lines: dict[str, int]


class _Mark(Protocol):
    line: int
    column: int


class _Event(Protocol):
    """PyYAML has no types. Only scalars have `value` and `style`; only lists and mappings `flow_style`."""

    start_mark: _Mark
    end_mark: _Mark
    anchor: str | None
    tag: str | None
    value: str
    style: str | None
    flow_style: bool


def parse_yaml(text: str) -> ParsedYaml:
    """Parse a text of one document."""
    import yaml

    # The parser of libyaml is ten times as fast; PyYAML has it unless it was built without.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    reader = _Reader(text)
    try:
        return reader.read(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        reader.refuse_syntax(error)


class _Reader:
    def __init__(self, text: str) -> None:
        self._rows = text.splitlines()
        self._lines: dict[str, int] = {}
        self._events: Iterator[_Event] = iter(())
        # Lines of brackets that are not closed yet.
        self._open_brackets: list[int] = []

    def read(self, events: Iterator[_Event]) -> ParsedYaml:
        self._events = events
        value: object = None
        documents = 0
        for event in events:
            if _kind(event) != "DocumentStart":
                continue
            documents += 1
            if documents > 1:
                raise YamlError(f"line {event.start_mark.line + 1}: a second document; expected one")
            value = self._read_value(next(events), "", 0)
        return ParsedYaml(value, self._lines)

    def refuse_syntax(self, error: Exception) -> NoReturn:
        mark: _Mark | None = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        begun: _Mark | None = getattr(error, "context_mark", None)
        if begun is not None and "quoted scalar" in (getattr(error, "context", None) or ""):
            raise YamlError(f"line {begun.line + 1}: {self._quote(begun)!r} has no closing quote") from None
        if mark is None:
            raise YamlError(problem) from None
        if self._open_brackets and mark.line + 1 > self._open_brackets[0]:
            self._refuse_open_bracket()
        if self._quote(mark).startswith("\t") or self._row(mark).lstrip(" ").startswith("\t"):
            problem = "a tab in the indentation; expected spaces"
        raise YamlError(f"line {mark.line + 1}: {problem}") from None

    def _read_value(self, event: _Event, key: str, depth: int) -> object:
        line = event.start_mark.line + 1
        if depth > _MOST_DEPTH:
            raise YamlError(f"line {line}: nested deeper than {_MOST_DEPTH} levels")
        kind = _kind(event)
        if kind == "Scalar":
            text = self._read_text(event)
            return text if event.style else _read_scalar(text)
        if kind == "Alias" or event.anchor or event.tag:
            self._refuse(event)
        if event.flow_style:
            self._open_brackets.append(line)
        value = self._read_list(key, depth) if kind == "SequenceStart" else self._read_mapping(key, depth)
        if event.flow_style:
            self._open_brackets.pop()
        return value

    def _read_list(self, key: str, depth: int) -> list[object]:
        items: list[object] = []
        while _kind(event := self._next()) != "SequenceEnd":
            inner = f"{key}[{len(items)}]"
            self._locate(inner, event)
            items.append(self._read_value(event, inner, depth + 1))
        return items

    def _read_mapping(self, key: str, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        while _kind(event := self._next()) != "MappingEnd":
            line = event.start_mark.line + 1
            if _kind(event) != "Scalar":
                raise YamlError(f"line {line}: {self._quote(event.start_mark)!r} is not `key: value`")
            name = self._read_text(event)
            if name in values:
                raise YamlError(f"line {line}: {name} appears twice")
            inner = f"{key}.{name}" if key else name
            self._locate(inner, event)
            values[name] = self._read_value(self._next(), inner, depth + 1)
        return values

    def _next(self) -> _Event:
        event = next(self._events)
        if self._open_brackets and event.end_mark.line + 1 > self._open_brackets[0]:
            self._refuse_open_bracket()
        return event

    def _read_text(self, event: _Event) -> str:
        is_long = event.style in ("|", ">") or event.end_mark.line > event.start_mark.line
        if is_long or event.anchor or event.tag:
            self._refuse(event)
        return event.value

    def _locate(self, key: str, event: _Event) -> None:
        if _LOCATED.fullmatch(key):
            self._lines.setdefault(key, event.start_mark.line + 1)

    def _refuse(self, event: _Event) -> NoReturn:
        raise YamlError(
            f"line {event.start_mark.line + 1}: {self._quote(event.start_mark)!r} is YAML that is not "
            "supported; write the value itself"
        )

    def _refuse_open_bracket(self) -> NoReturn:
        raise YamlError(f"line {self._open_brackets[0]}: a bracket is not closed on its line") from None

    def _row(self, mark: _Mark) -> str:
        return self._rows[mark.line] if mark.line < len(self._rows) else ""

    def _quote(self, mark: _Mark) -> str:
        return self._row(mark)[mark.column :][:_MOST_SHOWN]


def _kind(event: _Event) -> str:
    return type(event).__name__.removesuffix("Event")


def _read_scalar(text: str) -> object:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _NUMBER.match(text) else text
