"""The order in which findings across nodes are told."""

from collections.abc import Iterable

from ...engine.model import SEVERITIES, Finding


def order_by_gravity(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, the gravest first, and of those the newest."""
    return sorted(findings, key=lambda it: (-SEVERITIES.index(it.severity), -it.opened_s, it.id))
