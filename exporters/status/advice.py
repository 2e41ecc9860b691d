"""What a training process made of an advice, as a line of text and as JSON."""

import msgspec

from ...engine.model import AdviceAction
from ...engine.text import make_printable
from ...engine.wire.messages import Advised

ADVICE_SCHEMA = "vramscope.advice/1"


class AdviceReport(msgspec.Struct, frozen=True):
    """One advice and what became of it."""

    pid: int
    action: AdviceAction
    is_obeyed: bool
    outcome: str
    freed_bytes: int | None
    node: str | None = None
    """As it was named; None for this one."""
    schema: str = ADVICE_SCHEMA


def describe_advice(action: AdviceAction, advised: Advised, node: str | None) -> AdviceReport:
    """Return the report of an advice.

    Args:
        action: What was asked.
        advised: What the process answered.
        node: Where it runs, as it was named; None for this node.
    """
    return AdviceReport(
        advised.pid, action, advised.is_obeyed, advised.outcome, advised.freed_bytes, node=node
    )


def word_advice(report: AdviceReport) -> str:
    """Return what a process made of an advice as one sentence."""
    where = "" if report.node is None else f" on {report.node}"
    return make_printable(f"process {report.pid}{where} {report.outcome}")
