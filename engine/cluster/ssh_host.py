"""Hosts that are reached through the user's own ssh, as people type them: `n2`, `alice@n2`, `n2:2222`."""

import re
from typing import NamedTuple

from ..errors import UsageError
from .tcp_address import parse_port

DEFAULT_COMMAND = "vramscope"
MOST_SSH_HOSTS = 128
"""Each takes a process of ssh here."""

_TYPED = re.compile(
    r"(?P<user>[A-Za-z0-9_][\w.+@-]*@)?(?:\[(?P<bracketed>[0-9A-Fa-f:.]+(?:%\w+)?)\]|"
    r"(?P<host>[A-Za-z0-9_](?:[\w.-]{0,251}[\w])?))(?::(?P<port>.*))?",
    re.ASCII,
)
_OPTIONS = {
    "BatchMode": "yes",  # nobody could answer a question
    "ClearAllForwardings": "yes",
    "ConnectTimeout": "10",
    "ControlMaster": "no",  # one that is there is used
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "LogLevel": "ERROR",
    "RemoteCommand": "none",
    "ServerAliveCountMax": "3",
    "ServerAliveInterval": "5",
    "UpdateHostKeys": "no",  # nothing is stored
}


class SshHost(NamedTuple):
    """A host for ssh, and what starts vramscope there."""

    label: str
    """As it was typed."""
    destination: str
    """`[USER@]HOST`, as ssh takes it."""
    port: int | None
    """None for the one that ssh chooses."""
    command: str = DEFAULT_COMMAND
    """Read by the shell of the user there."""

    @property
    def typed_words(self) -> str:
        """What a person types after `ssh`."""
        return self.destination if self.port is None else f"-p {self.port} {self.destination}"

    @property
    def bridge_command(self) -> str:
        """What is executed there."""
        return f"{self.command} agent --stdio"

    @property
    def words(self) -> list[str]:
        """The command line of ssh. Of host keys and passwords it says nothing: ssh goes by its settings."""
        options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
        port = [] if self.port is None else ["-p", str(self.port)]
        return ["ssh", "-T", *options, *port, "--", self.destination, self.bridge_command]


def parse_ssh_hosts(text: str, command: str = DEFAULT_COMMAND) -> list[SshHost]:
    """Return the hosts of a list with commas.

    Args:
        text: As it was typed.
        command: What starts vramscope there.

    Raises:
        UsageError: One is none, or there are too many.
    """
    hosts = [_parse(word.strip(), command) for word in text.split(",")]
    if len(hosts) > MOST_SSH_HOSTS:
        raise UsageError(
            f"{len(hosts)} hosts: expected at most {MOST_SSH_HOSTS} through ssh, a process each; for more "
            "let the agents listen (`vramscope agent --listen`) and name them with --connect"
        )
    return hosts


def _parse(word: str, command: str) -> SshHost:
    typed = _TYPED.fullmatch(word)
    if typed is None:
        raise UsageError(f"{word!r}: expected a host, user@host or host:port, for example alice@n2")
    port = None if typed["port"] is None else parse_port(typed["port"])
    host = typed["bracketed"] or typed["host"]
    return SshHost(word, f"{typed['user'] or ''}{host}", port, command)
