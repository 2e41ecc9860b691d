"""`vramscope worker`: a process that runs the analyzers for an agent."""

from argparse import ArgumentParser, Namespace

from ..frame.emit import complain
from ..frame.errors import find_parent_pipe
from ..frame.flags import given_by
from ..frame.parse import SubParsers, add_verb

DESCRIPTION = "Run the analyzers for an agent that runs with --no-worker."
EXAMPLES = """\
vramscope worker --connect node03
vramscope worker --analyzers pressure,leak"""
NOTES = """\
An agent starts its own worker; you need this verb only to run one elsewhere, or with some analyzers. When
standard input is a pipe, the worker ends when it closes."""
EXIT_CODES: dict[int | str, str] = {
    0: "ended by a signal, or standard input closed",
    2: "wrong flags",
    6: "the runtime folder is not private",
    7: "the agent cannot be reached",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "worker", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument(
        "--connect",
        dest="hub",
        metavar="HOST[:PORT]",
        help="the agent of another node, which runs with --listen and --no-worker; needs the role worker",
    )
    parser.add_argument(
        "--analyzers",
        metavar="NAME,…",
        help="run only these, for example pressure,leak (default all); findings of others stay as they are",
    )


def run(arguments: Namespace) -> int:
    from vramscope.engine.errors import HubUnreachableError
    from vramscope.engine.paths import check_private, locate_runtime_folder
    from vramscope.engine.plugins import choose_analyzers
    from vramscope.engine.wire.endpoints import is_hub_alive

    chosen = None if arguments.analyzers is None else choose_analyzers(arguments.analyzers)
    if arguments.hub is not None:
        return _run_elsewhere(arguments.hub, chosen)
    folder = locate_runtime_folder()
    parent_fd = find_parent_pipe()
    if folder.exists() or folder.is_symlink():
        check_private(folder)
    if parent_fd is None and not is_hub_alive(folder):
        raise HubUnreachableError(f"no agent serves {folder}: start one with `vramscope agent`")
    from vramscope.engine.agent.worker import LocalWorkerLink, run_worker
    from vramscope.engine.clock import SystemClock

    return run_worker(LocalWorkerLink(folder, SystemClock()), chosen=chosen, parent_fd=parent_fd)


def _run_elsewhere(host: str, chosen: frozenset[str] | None) -> int:
    from vramscope.engine.agent.worker import run_worker
    from vramscope.engine.cluster.addresses import parse_address
    from vramscope.engine.cluster.connections import RemoteWorkerLink
    from vramscope.engine.cluster.trust import read_trust

    def warn(sentence: str) -> None:
        complain(sentence, program="vramscope worker")

    with given_by("--connect", host):
        address = parse_address(host)
    link = RemoteWorkerLink(address, read_trust(is_insecure=False), warn)
    return run_worker(link, chosen=chosen)
