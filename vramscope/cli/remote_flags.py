"""The flags by which agents of other nodes are viewed, and what they mean."""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from .frame.diagnostics import complain
from .frame.flag_words import given_by
from .node_flags import add_choice_flags, add_node_flags, check_node_flags, is_by_tcp, is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramscope.engine.cluster.addresses import NodeAddress
    from vramscope.engine.cluster.remote_node import Choice


def add_remote_flags(parser: ArgumentParser) -> None:
    """Add the flags to the parser of the view."""
    nodes = add_node_flags(parser, "other nodes")
    add_choice_flags(parser)
    nodes.add_argument(
        "--insecure", action="store_true", help="beyond this machine: without keys, open to everybody between"
    )


def check_remote_flags(arguments: Namespace) -> None:
    """Refuse flags that do not go with one another, or with a verb.

    Raises:
        UsageError: They do not.
    """
    if arguments.verb is not None and is_remote(arguments):
        raise UsageError(
            f"--connect, --hosts, --ssh and --slurm are views and do not go with the verb {arguments.verb}"
        )
    if is_remote(arguments) and arguments.duration is not None and not arguments.json:
        raise UsageError("--duration goes with --json; the live view runs until you quit it")
    if arguments.verb is None and arguments.insecure and not is_by_tcp(arguments):
        raise UsageError("--insecure goes with --connect, --hosts or --slurm")
    check_node_flags(arguments)


def read_nodes(arguments: Namespace) -> "list[NodeAddress]":
    """Return the nodes that are named, each once; say which were named again.

    Raises:
        UsageError: One is none, there are too many, or Slurm knows no such job.
        InputFileError: The file of hosts cannot be used.
        HubUnreachableError: The job has no nodes now, or Slurm does not answer.
    """
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
    """Return the nodes that are named after `--connect` and after `--ssh`.

    Args:
        connect: What was given with the one; None where it was not.
        ssh: What was given with the other.
        ssh_command: What starts vramscope behind ssh.

    Raises:
        UsageError: One is none, or there are too many.
    """
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
    """Return which nodes and devices are followed.

    Raises:
        UsageError: A name can be none.
    """
    from vramscope.engine.cluster.remote_node import Choice, parse_node_patterns
    from vramscope.engine.wire.selection import parse_devices

    return Choice(
        () if named.wanted_nodes is None else parse_node_patterns(named.wanted_nodes),
        () if named.wanted_devices is None else parse_devices(named.wanted_devices),
    )


def _find_job(arguments: Namespace, command: str) -> "Sequence[NodeAddress]":
    """Return the nodes of a Slurm job.

    Raises:
        UsageError: Slurm knows no such job, or there is no Slurm here.
        HubUnreachableError: The job has no nodes now, or Slurm does not answer.
    """
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
