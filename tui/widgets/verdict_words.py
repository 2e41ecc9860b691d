"""The words of the verdict in one line, and why nodes are lost in as many rows as there are."""

import re
import textwrap
from collections.abc import Iterator, Sequence

from ...analyzers.fleet.model import FleetNode
from ...analyzers.sentence import Sentence, cut_words
from ...analyzers.verdict import Verdict
from ...engine.units import format_age
from ..draw.glyphs import Glyphs
from ..draw.numbers import brief_span_text
from ..draw.pieces import Piece

# Nodes of one reason that are named where room is short; of more, two are, and the others are counted.
NAMED = 3
# Nodes of one reason that are ever named, and reasons that are: no screen has room for a thousand nodes.
MOST_NAMED = 40
MOST_REASONS = 8
# Cells at the end of a row that stay empty where a word does not fit.
SLACK_CELLS = 12
_LAST_PART = re.compile(r"^(.+)(?:; |: |, ).+$")


def shorten_reason(reason: str, place: str = "") -> tuple[str, ...]:
    """Return a reason from its complete form to its first words: the remedy goes first, then the details.

    `place` is the name next to it, which need not be repeated.
    """
    text = reason.rstrip(".")
    if place:
        text = text.removeprefix(place).lstrip(" :").replace(f" at {place}", " there")
    forms = [text]
    while (match := _LAST_PART.match(forms[-1])) is not None:
        forms.append(match[1])
    return tuple(forms)


def word_lost(lost: Sequence[FleetNode], waited_s: float, width: int, rows: int) -> list[str]:
    """Describe the lost nodes, each with how long and why; a reason of several nodes only once.

    Every reason begins a row of its own while there are enough; the last one gives up words first.
    """
    if width < 1 or not lost:
        return []
    groups = _group(lost)
    clauses = [_list_forms(nodes, waited_s) for nodes in groups[:MOST_REASONS]]
    others = sum(map(len, groups[MOST_REASONS:]))
    clauses += [(f"{others:,} more for other reasons", f"{others:,} more")] if others else []
    if len(clauses) == 1:
        clauses = [clauses[0][:-1] or clauses[0]]  # a reason that is cut says more than none
    for chosen in _reduce(clauses):
        if len(_wrap(clauses, chosen, width)) <= rows:
            return _wrap(clauses, _fill(clauses, chosen, width, rows), width)
    # Return all clauses as one sentence over the rows.
    sentence = Sentence(tuple(clauses)).fit(max(1, width * rows - SLACK_CELLS * (rows - 1)))
    wrapped = textwrap.wrap(sentence, width)
    return [
        *wrapped[: rows - 1],
        *(cut_words(" ".join(rest), width) for rest in [wrapped[rows - 1 :]] if rest),
    ]


def _group(lost: Sequence[FleetNode]) -> list[list[FleetNode]]:
    """Group nodes by why they are lost, in the order of the first of each."""
    groups: dict[str, list[FleetNode]] = {}
    for node in lost:
        groups.setdefault(shorten_reason(node.reason or "", node.name)[0], []).append(node)
    return list(groups.values())


def _list_forms(nodes: Sequence[FleetNode], waited_s: float) -> tuple[str, ...]:
    named = [
        node.name if node.silent_s is None else f"{node.name} {brief_span_text(node.silent_s + waited_s)}"
        for node in nodes[:MOST_NAMED]
    ]
    whole = brief = ", ".join(named)
    if len(nodes) > NAMED:
        brief = f"{named[0]}, {named[1]} and {len(nodes) - 2:,} more"
    if len(nodes) > MOST_NAMED:
        whole = brief
    reasons = [it for it in shorten_reason(nodes[0].reason or "", nodes[0].name) if it]
    longest = [f"{whole}: {reasons[0]}"] if reasons else [whole]
    return (*longest, *(f"{brief}: {reason}" for reason in reasons), brief)


def _wrap(clauses: Sequence[tuple[str, ...]], chosen: Sequence[int], width: int) -> list[str]:
    texts = (forms[at] for forms, at in zip(clauses, chosen, strict=True))
    return [line for text in texts for line in textwrap.wrap(text, width)]


def _reduce(clauses: Sequence[tuple[str, ...]]) -> Iterator[list[int]]:
    """Yield choices of one form a clause: one step off every clause in turn, the last one first."""
    chosen = [0] * len(clauses)
    yield chosen
    for form in range(1, max(map(len, clauses))):
        for position in reversed(range(len(clauses))):
            if form < len(clauses[position]):
                chosen[position] = form
                yield chosen


def _fill(clauses: Sequence[tuple[str, ...]], chosen: Sequence[int], width: int, rows: int) -> list[int]:
    """Return longer forms where there is room left over for them."""
    filled = list(chosen)
    for position, form in enumerate(chosen):
        for longer in range(form):
            trial = [*filled[:position], longer, *filled[position + 1 :]]
            if len(_wrap(clauses, trial, width)) <= rows:
                filled = trial
                break
    return filled


def word_verdict(verdict: Verdict, trouble: tuple[str, ...], width: int, glyphs: Glyphs) -> list[Piece]:
    """Return the line of a verdict, with why its values are not live first.

    Args:
        trouble: From complete to shortest; empty when the values are live.
    """
    width -= 2
    pieces: list[Piece] = []
    if trouble:
        shown = next((form for form in trouble if len(form) <= width), trouble[-1])
        pieces += [Piece(shown, "high"), Piece("  ")]
        width -= len(shown) + 4
    level = verdict.level
    text = verdict.text(width) if width > 0 else ""
    if text or not pieces:
        mark = glyphs.risk(level)
        pieces += [Piece(mark, level), Piece(" "), Piece(text, "muted" if pieces else "strong")]
    return pieces


def describe_trouble(connection: str, silent_s: float | None, reason: str | None) -> tuple[str, ...]:
    """Return why the values are not live, from the complete form to the shortest; empty when they are."""
    if connection != "lost":
        return ()
    reasons = () if reason is None else shorten_reason(reason)
    if silent_s is None and reasons:
        return (*(f"not connected: {words}" for words in reasons), "not connected")
    age = "" if silent_s is None else f" {format_age(silent_s)} ago"
    short = f"agent lost{age}"
    full = f"{short}, data is stale"
    return (*(f"{full}: {words}" for words in reasons if words), full, short)


def describe_silence(connection: str, silent_s: float | None, reason: str | None) -> tuple[str, ...]:
    """Return why a replay has no values of a node at its moment, from the complete form to the shortest."""
    if connection == "live" or (silent_s is None and reason is None):
        return ()
    if silent_s is None:
        return (reason or "",)
    age = format_age(silent_s)
    short = f"no samples for {age}"
    return (f"{reason or short}, its last data is {age} old", f"{short}")
