"""Manual pages, from the parser: one of the program, and one of each verb."""

import re
from collections.abc import Iterator, Sequence
from datetime import date

from vramscope import __version__

from .help import SUMMARIES, VERB_GROUPS, explain, invoke, list_groups, word_usage
from .parse import Parser, build_parser

_SECTION = 1
# A letter or sign that roff would read as its own, or draw as another.
_ESCAPES = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
_CODE = re.compile(r"`([^`]+)`")


def render_pages(day: date) -> dict[str, str]:
    """Return each page by the name of its file; `day` is the date that they bear."""
    parser = build_parser()
    (verbs,) = (it.choices for it in parser._actions if isinstance(it.choices, dict))
    pages = {f"vramscope.{_SECTION}": "\n".join(_describe_program(parser, day)) + "\n"}
    for name, verb in verbs.items():
        pages[f"vramscope-{name}.{_SECTION}"] = "\n".join(_describe_verb(name, verb, day)) + "\n"
    return pages


def _describe_program(parser: Parser, day: date) -> Iterator[str]:
    yield from _begin("vramscope", day, parser.description or "", parser.usage or "vramscope")
    yield from _describe_description([parser.description or "", parser.epilog or ""])
    yield ".SH VERBS"
    for title, verbs in VERB_GROUPS.items():
        yield f".SS {_escape(title)}"
        for name, summary in verbs.items():
            yield from _describe_term(f".BR vramscope\\-{_escape(name)} ({_SECTION})", summary)
    yield from _describe_flags(parser)
    yield from _end(parser, [f"vramscope-{name}" for name in SUMMARIES])


def _describe_verb(name: str, parser: Parser, day: date) -> Iterator[str]:
    yield from _begin(f"vramscope-{name}", day, SUMMARIES[name], word_usage(parser))
    notes = parser.page.notes.split("\n\n") if parser.page.notes else []
    yield from _describe_description([parser.description or "", *notes])
    yield from _describe_flags(parser)
    yield from _end(parser, ["vramscope"])


def _begin(name: str, day: date, summary: str, usage: str) -> Iterator[str]:
    title = _escape(name.upper())
    yield f'.TH {title} {_SECTION} {day.isoformat()} "vramscope {__version__}" "User commands"'
    # No hyphens, and lines that end where they end: words are to be found and copied.
    yield ".nh"
    yield ".ad l"
    yield ".SH NAME"
    yield f"{_escape(name)} \\- {_escape(_lower_first(summary).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield _protect(_escape(" ".join(usage.split())))


def _describe_description(paragraphs: Sequence[str]) -> Iterator[str]:
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(filter(None, paragraphs)):
        if number:
            yield ".PP"
        yield _mark(" ".join(paragraph.split()))


def _describe_flags(parser: Parser) -> Iterator[str]:
    yield ".SH OPTIONS"
    for title, actions in list_groups(parser, parser.page):
        yield f".SS {_escape(title[:1].upper() + title[1:])}"
        for action in actions:
            yield from _describe_term(f".B {_escape(invoke(action))}", explain(action))


def _describe_term(term: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield term
    # An empty text would leave the next term without its own line.
    yield _mark(text) if text else "\\&"


def _end(parser: Parser, others: Sequence[str]) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code, text in parser.page.exit_codes.items():
        yield from _describe_term(f".B {_escape(str(code))}", text)
    if parser.page.examples:
        yield ".SH EXAMPLES"
        yield ".EX"
        yield from (_protect(_escape(line)) for line in parser.page.examples.splitlines())
        yield ".EE"
    yield ".SH SEE ALSO"
    for place, other in enumerate(others):
        comma = "," if place < len(others) - 1 else ""
        yield f".BR {_escape(other)} ({_SECTION}){comma}"


def _mark(text: str) -> str:
    """Return a sentence in which what is typed, between backquotes, is bold."""
    parts = _CODE.split(text)
    return _protect("".join(f"\\fB{_escape(it)}\\fR" if n % 2 else _escape(it) for n, it in enumerate(parts)))


def _escape(text: str) -> str:
    return "".join(
        _ESCAPES.get(letter) or (letter if letter.isascii() else f"\\[u{ord(letter):04X}]") for letter in text
    )


def _protect(line: str) -> str:
    """Return a line that roff does not take for a request."""
    return f"\\&{line}" if line.startswith(".") else line


def _lower_first(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
