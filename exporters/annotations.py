"""Annotations of GitHub Actions: lines of output that its pages show at a file and line.

The syntax is that of its workflow commands: `::error file=F,line=N,title=T::message`, with `%`, line ends
and, in properties, `:` and `,` as percent codes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

Level = Literal["error", "warning", "notice"]
# GitHub shows this many of one step and level.
MOST_SHOWN = 10


class Annotation(NamedTuple):
    level: Level
    title: str
    message: str
    # As Python names the file; None where there is none.
    file: str | None = None
    line: int | None = None


def render_annotations(annotations: Iterable[Annotation], root: Path) -> str:
    """Return the lines; files below `root`, the checkout, are named as it names them."""
    return "".join(f"{_render(each, root)}\n" for each in annotations)


def _render(annotation: Annotation, root: Path) -> str:
    properties = []
    if annotation.file is not None:
        path = Path(annotation.file)
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        properties.append(f"file={_escape_property(str(shown))}")
        properties += [] if annotation.line is None else [f"line={annotation.line}"]
    properties.append(f"title={_escape_property(annotation.title)}")
    return f"::{annotation.level} {','.join(properties)}::{_escape(annotation.message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
