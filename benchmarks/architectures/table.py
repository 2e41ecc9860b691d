"""The tables of docs/estimate-factory.md: how many models are estimated, by kind, and what stops others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..compat.table import compare_bytes

SAME = "="
_LONGEST_REASON = 160


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one model."""

    name: str
    # Language models, vision, timm, …
    kind: str
    # How the model was made small.
    attempt: tuple[str, ...] = ()
    # Peak of allocated bytes that is estimated, and with storage on the simulated card; None is not known.
    peak_bytes: int | None = None
    real_peak_bytes: int | None = None
    # Why real tensors were needed.
    fallback: str | None = None
    # Lines that read values and got stand-ins.
    readings: int = 0
    # Why there is no estimate, although the model trains on the host.
    stopped: str | None = None
    # Why the model could not be made small, or did not train on the host by itself.
    left_out: str | None = None

    @property
    def comparison(self) -> str:
        """How the estimate compares: "=", a difference in per cent, or "runs" if nothing is compared."""
        return compare_bytes(self.peak_bytes, self.real_peak_bytes)

    @property
    def is_estimated(self) -> bool:
        return self.stopped is None and self.left_out is None


def format_tables(outcomes: Sequence[Outcome], versions: Mapping[str, str]) -> str:
    """Return the tables, in Markdown."""
    head = [
        "kind",
        "tried",
        "estimated",
        "without storage",
        "same peak with storage",
        "stopped",
        "left out",
    ]
    kinds = list(dict.fromkeys(it.kind for it in outcomes))
    lines = [_row(head), _row(["---"] + ["--:"] * (len(head) - 1))]
    for kind in kinds:
        lines.append(_row(_count(kind, [it for it in outcomes if it.kind == kind])))
    lines.append(_row(_count("all", outcomes)))
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines += ["", f"Versions: {named}."]
    parts = (
        ("What stops a model:", "is stopped by", [(it, it.stopped) for it in outcomes]),
        ("What needs storage:", "needs real tensors because", [(it, it.fallback) for it in outcomes]),
        (
            "Peaks that differ from those with storage:",
            "estimate",
            [(it, _differ(it)) for it in outcomes],
        ),
    )
    for title, column, cells in parts:
        listed = [(it.name, text) for it, text in cells if text is not None]
        if listed:
            lines += ["", title, "", _row(["model", column]), _row(["---", "---"])]
            lines += [_row([f"`{name}`", shorten(text)]) for name, text in listed]
    lines += ["", *_list_left_out(outcomes)]
    return "\n".join(lines).rstrip()


def _count(kind: str, outcomes: Sequence[Outcome]) -> list[str]:
    estimated = [it for it in outcomes if it.is_estimated]
    compared = [it for it in estimated if it.fallback is None and it.real_peak_bytes is not None]
    equal = sum(it.comparison == SAME for it in compared)
    return [
        kind,
        str(sum(it.left_out is None for it in outcomes)),
        str(len(estimated)),
        str(sum(it.fallback is None for it in estimated)),
        f"{equal} of {len(compared)}",
        str(sum(it.stopped is not None for it in outcomes)),
        str(sum(it.left_out is not None for it in outcomes)),
    ]


def _differ(outcome: Outcome) -> str | None:
    if outcome.comparison in (SAME, "runs") or outcome.fallback is not None:
        return None
    reads = f"; {outcome.readings} lines read values" if outcome.readings else ""
    return f"{outcome.comparison} ({outcome.peak_bytes:,} of {outcome.real_peak_bytes:,} bytes){reads}"


def _list_left_out(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the types that are left out, by reason."""
    reasons: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.left_out is not None:
            reasons.setdefault(shorten(outcome.left_out), []).append(outcome.name.partition("/")[2])
    if not reasons:
        return []
    lines = [
        "Left out, because what is made of them here does not train by itself (sizes or inputs do not fit):",
        "",
    ]
    lines += [_row(["reason", "types"]), _row(["---", "---"])]
    for reason, names in sorted(reasons.items(), key=lambda it: -len(it[1])):
        lines.append(_row([reason, ", ".join(f"`{name}`" for name in names)]))
    return lines


def shorten(text: str) -> str:
    """Return a text as a cell of a table: one bounded line, with files named from their package on."""
    line = re.sub(r"\S*/site-packages/", "", " ".join(text.split()))
    line = line.replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON].rstrip()} …"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
