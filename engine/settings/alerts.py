"""The table `[alerts]`: who is told of findings, and how."""

from typing import Annotated, Literal

import msgspec

AlertLevel = Literal["low", "medium", "high", "critical"]
"""The severities of findings."""

AlertEvent = Literal["opened", "raised", "closed"]
"""What of a finding can be told of."""

COMMAND_KEY = "alerts.command"
WEBHOOK_KEY = "alerts.webhook_url"
OWN_FILE_KEYS = frozenset({COMMAND_KEY, WEBHOOK_KEY})
"""Settings that are not taken from `./vramscope.toml`: whoever wrote that file is not who runs vramscope."""


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of findings; a key in the table is the field's name without its unit `_s`."""

    level: AlertLevel = "medium"
    """Least severity of which anybody is told, by a toast, the bell or a hook: `low`, `medium`, `high` or
    `critical`. The alerts screen lists every finding."""
    kinds: tuple[str, ...] = ()
    """Kinds of findings of which anybody is told, such as `oom` and `leak`. Empty: all."""
    toast: bool = True
    """Whether a finding that opens, or becomes graver, is told over the screen, once."""
    bell: bool = True
    """Whether it rings the terminal's bell too, once, from `alerts.bell_level` on."""
    bell_level: AlertLevel = "high"
    """Least severity that rings the bell."""
    on: tuple[AlertEvent, ...] = ("opened", "raised", "closed")
    """What hooks are told of: a finding that `opened`, one whose severity `raised`, one that `closed`."""
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    """Program, with its arguments, that the agent runs at each of these; no shell is involved. It gets the
    finding as JSON on its standard input, and in variables `VRAMSCOPE_FINDING_*`."""
    webhook_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/]\S*$")] | None = None
    """Address to which the agent posts the finding as JSON at each of these."""
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 10.0
    """Seconds after which a hook that has not ended or answered is given up."""
