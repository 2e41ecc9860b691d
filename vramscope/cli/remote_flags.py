"""The flags by which agents of other nodes are viewed, and what they mean."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from .diagnostics import complain

if TYPE_CHECKING:
    from vramscope.engine.cluster.hosts import NodeAddress


def add_remote_flags(parser: ArgumentParser) -> None:
    """Add the flags to the parser of the view."""
    group = parser.add_argument_group("other nodes")
    group.add_argument(
        "--connect",
        metavar="HOST[:PORT],…",
        help="view the agents that listen there (`vramscope agent --listen`; port 5757)",
    )
    group.add_argument("--hosts", metavar="FILE", type=Path, help="view the hosts of a file, one a line")
    group.add_argument(
        "--ssh",
        metavar="[USER@]HOST,…",
        help="view these nodes through your own ssh; an agent is started there where none runs",
    )
    group.add_argument(
        "--ssh-command",
        metavar="PATH",
        help="what starts vramscope there, where the name alone does not (VRAMSCOPE_SSH_COMMAND)",
    )
    group.add_argument(
        "--insecure", action="store_true", help="beyond this machine: without keys, open to everybody between"
    )


def is_remote(arguments: Namespace) -> bool:
    """Return whether other nodes are to be viewed."""
    return any(it is not None for it in (arguments.connect, arguments.hosts, arguments.ssh))


def check_remote_flags(arguments: Namespace) -> None:
    """Refuse flags that do not go with one another, or with a verb.

    Raises:
        UsageError: They do not.
    """
    if arguments.verb is not None and is_remote(arguments):
        raise UsageError(
            f"--connect, --hosts and --ssh are views and do not go with the verb {arguments.verb}"
        )
    if is_remote(arguments) and arguments.duration is not None and not arguments.json:
        raise UsageError("--duration goes with --json; the live view runs until you quit it")
    if (
        arguments.verb is None
        and arguments.insecure
        and arguments.connect is None
        and arguments.hosts is None
    ):
        raise UsageError("--insecure goes with --connect or --hosts")
    if arguments.ssh_command is not None and arguments.ssh is None:
        raise UsageError("--ssh-command goes with --ssh")


def read_nodes(arguments: Namespace) -> "list[NodeAddress]":
    """Return the nodes that are named, each once; say which were named again.

    Raises:
        UsageError: One is none, or there are too many.
        InputFileError: The file of hosts cannot be used.
    """
    from vramscope.engine.cluster.hosts import list_nodes, parse_hosts, read_hosts_file
    from vramscope.engine.cluster.ssh_host import DEFAULT_COMMAND, parse_ssh_hosts

    hosts: list[NodeAddress] = [] if arguments.connect is None else [*parse_hosts(arguments.connect)]
    hosts += [] if arguments.hosts is None else read_hosts_file(arguments.hosts)
    command = arguments.ssh_command or os.environ.get("VRAMSCOPE_SSH_COMMAND") or DEFAULT_COMMAND
    hosts += [] if arguments.ssh is None else parse_ssh_hosts(arguments.ssh, command)
    nodes, again = list_nodes(hosts)
    for sentence in again:
        complain(sentence)
    return nodes
