"""What the process that delivers one alert is told: to whom, what, and how long it may take."""

import re

import msgspec

from ..settings import AlertSettings
from .payload import Alert

RETRY_AFTER_S = 2.0
_HOST = re.compile(r"(https?)://(?:[^/?#]*@)?([^/?#@\s]+)")


class Hook(msgspec.Struct, frozen=True):
    """Who is told: a command or a webhook."""

    command: tuple[str, ...] | None = None
    url: str | None = None
    timeout_s: float = 10.0
    """For one try; a webhook has two."""
    retry_after_s: float = RETRY_AFTER_S

    @property
    def name(self) -> str:
        """What it is, in a word."""
        return "command" if self.command is not None else "webhook"

    @property
    def target(self) -> str:
        """Who is told, without what may be secret: a program, or the host of an address."""
        return self.command[0] if self.command is not None else describe_address(self.url or "")

    @property
    def longest_s(self) -> float:
        """How long delivering may take at most, the start of the process and both tries included."""
        return 2 * self.timeout_s + self.retry_after_s + 10.0


class DeliveryJob(msgspec.Struct, frozen=True):
    """One alert for one hook."""

    hook: Hook
    alert: Alert


def list_hooks(settings: AlertSettings) -> list[Hook]:
    """Return the hooks that the settings ask for."""
    hooks = []
    if settings.command is not None:
        hooks.append(Hook(command=settings.command, timeout_s=settings.timeout_s))
    if settings.webhook_url is not None:
        hooks.append(Hook(url=settings.webhook_url, timeout_s=settings.timeout_s))
    return hooks


def describe_address(url: str) -> str:
    """Return an address without user, password, path and query, any of which may be secret."""
    found = _HOST.match(url)  # urllib is for the process that delivers
    return f"{found[1]}://{found[2]}/…" if found else "an address that cannot be understood"
