"""The flags that name other nodes, for the view and for verbs, and the nodes that they name."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from .frame.emit import complain
from .frame.flags import given_by

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from vramscope.engine.cluster.addresses import NodeAddress
    from vramscope.engine.cluster.remote_node import Choice

_NAMES = ("connect", "hosts", "ssh", "slurm", "by_ssh", "slurm_port", "ssh_command")
_CHOSEN = ("wanted_nodes", "wanted_devices")


def add_node_flags(parser: ArgumentParser, title: str, verb: str = "") -> "_ArgumentGroup":
    group = parser.add_argument_group(title)
    dest = {name: f"{verb}_{name}" if verb else name for name in _NAMES}
    _add_named(group, dest)
    _add_found(group, dest)
    return group


def add_choice_flags(parser: ArgumentParser, verb: str = "") -> None:
    group = parser.add_argument_group("which nodes and devices")
    dest = {name: f"{verb}_{name}" if verb else name for name in _CHOSEN}
    group.add_argument(
        "--nodes",
        dest=dest["wanted_nodes"],
        metavar="NAME,…",
        help="follow only these nodes, also behind relays; for example 'gpu1*,n7'",
    )
    group.add_argument(
        "--devices",
        dest=dest["wanted_devices"],
        metavar="DEVICE,…",
        help="follow only these devices of each node: 0,2-5, names as shown, or beginnings of UUIDs",
    )


def _add_named(group: "_ArgumentGroup", dest: Mapping[str, str]) -> None:
    group.add_argument(
        "--connect",
        dest=dest["connect"],
        metavar="HOST[:PORT],…",
        help="follow agents or relays that listen there (port 5757)",
    )
    group.add_argument(
        "--hosts",
        dest=dest["hosts"],
        metavar="FILE",
        type=Path,
        help="as --connect, hosts from a file, one a line",
    )
    group.add_argument(
        "--ssh",
        dest=dest["ssh"],
        metavar="[USER@]HOST,…",
        help="follow nodes through ssh; starts missing agents",
    )


def _add_found(group: "_ArgumentGroup", dest: Mapping[str, str]) -> None:
    group.add_argument("--slurm", dest=dest["slurm"], metavar="JOBID", help="follow the nodes of a Slurm job")
    group.add_argument(
        "--by-ssh",
        dest=dest["by_ssh"],
        action="store_true",
        help="with --slurm: connect through ssh, where no agent listens",
    )
    group.add_argument(
        "--port",
        dest=dest["slurm_port"],
        metavar="PORT",
        help="with --slurm: port of the agents (default 5757)",
    )
    group.add_argument(
        "--ssh-command",
        dest=dest["ssh_command"],
        metavar="PATH",
        help="path of vramscope on those nodes, if it is not on their PATH (VRAMSCOPE_SSH_COMMAND)",
    )


def take_node_flags(arguments: Namespace, verb: str) -> Namespace:
    """Return the flags of a verb that name nodes, under the names of the view's flags."""
    named = Namespace(**{name: getattr(arguments, f"{verb}_{name}") for name in _NAMES})
    for name in _CHOSEN:  # a relay passes on all
        setattr(named, name, getattr(arguments, f"{verb}_{name}", None))
    check_node_flags(named)
    return named


def is_remote(named: Namespace) -> bool:
    return is_by_tcp(named) or named.ssh is not None or named.slurm is not None


def is_by_tcp(named: Namespace) -> bool:
    """Return whether a node is reached by tcp, which needs keys."""
    is_job_by_tcp = named.slurm is not None and not named.by_ssh
    return named.connect is not None or named.hosts is not None or is_job_by_tcp


def check_node_flags(named: Namespace) -> None:
    """Refuse flags of Slurm, ssh and of a choice where nothing is named that they could apply to."""
    if named.by_ssh and named.slurm is None:
        raise UsageError("--by-ssh needs --slurm JOBID; to name nodes yourself use --ssh HOST,…")
    if named.slurm_port is not None and (named.slurm is None or named.by_ssh):
        raise UsageError("--port needs --slurm and does not go with --by-ssh; --connect takes HOST:PORT")
    if named.ssh_command is not None and named.ssh is None and not named.by_ssh:
        raise UsageError("--ssh-command needs --ssh or --by-ssh")
    has_choice = named.wanted_nodes is not None or named.wanted_devices is not None
    if has_choice and not is_remote(named):
        raise UsageError("--nodes and --devices need --connect, --hosts, --ssh or --slurm")


def read_nodes(arguments: Namespace) -> "list[NodeAddress]":
    """Return the named nodes, each once; note on stderr which were named twice."""
    from vramscope.engine.cluster.addresses import DEFAULT_COMMAND, list_nodes, read_hosts_file

    command = arguments.ssh_command or os.environ.get("VRAMSCOPE_SSH_COMMAND") or DEFAULT_COMMAND
    hosts = read_typed_nodes(arguments.connect, None, command)
    hosts += [] if arguments.hosts is None else read_hosts_file(arguments.hosts)
    hosts += read_typed_nodes(None, arguments.ssh, command)
    hosts += [] if arguments.slurm is None else _find_job(arguments, command)
    nodes, again = list_nodes(hosts)
    for sentence in again:
        complain(sentence)
    return nodes


def read_typed_nodes(connect: str | None, ssh: str | None, ssh_command: str) -> "list[NodeAddress]":
    """Return the nodes that the values of `--connect` and `--ssh` name; None for a flag not given."""
    from vramscope.engine.cluster.addresses import parse_hosts, parse_ssh_hosts

    hosts: list[NodeAddress] = []
    if connect is not None:
        with given_by("--connect", connect):
            hosts += parse_hosts(connect)
    if ssh is not None:
        with given_by("--ssh", ssh):
            hosts += parse_ssh_hosts(ssh, ssh_command)
    return hosts


def read_choice(named: Namespace) -> "Choice":
    from vramscope.engine.cluster.remote_node import Choice, parse_node_patterns
    from vramscope.engine.wire.selection import parse_devices

    return Choice(
        () if named.wanted_nodes is None else parse_node_patterns(named.wanted_nodes),
        () if named.wanted_devices is None else parse_devices(named.wanted_devices),
    )


def _find_job(arguments: Namespace, command: str) -> "Sequence[NodeAddress]":
    from vramscope.engine.cluster.addresses import (
        DEFAULT_PORT,
        TcpAddress,
        find_job_nodes,
        parse_address,
        parse_port,
        parse_ssh_hosts,
    )

    port = DEFAULT_PORT
    if arguments.slurm_port is not None:
        with given_by("--port", arguments.slurm_port):
            port = parse_port(arguments.slurm_port)
    names = find_job_nodes(arguments.slurm)
    if arguments.by_ssh:
        return parse_ssh_hosts(",".join(names), command)
    return [TcpAddress(parse_address(name).host, port) for name in names]
