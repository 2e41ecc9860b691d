"""`vramscope guard`: watch several nodes as one, and keep their jobs from running out of memory."""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter

from vramscope.engine.errors import UsageError
from vramscope.engine.model import SEVERITIES

from ..frame.configuration import read_settings, refuse_if_read_only
from ..frame.flag_words import add_format_flags
from ..frame.parser_flags import add_read_only_flag
from ..frame.registry import SubParsers
from ..node_flags import add_choice_flags, add_node_flags, is_by_tcp, is_remote, take_node_flags

SUMMARY = "watch several nodes as one: findings across them, and advice to their jobs before an error"
DESCRIPTION = """\
Watch the agents of several nodes and print what only all of them together show: a job that is foreseen to run
out of memory, with its ranks; nodes and pipeline stages that limit it; the rank that grows away first. With
--prevent-oom, processes that can help are asked to, at the end of their steps; without, nothing is asked."""
EPILOG = """\
examples:
  vramscope guard --connect node01,node02
  vramscope guard --slurm 1234
  vramscope guard --hosts nodes.txt --prevent-oom --fail-on high --duration 12h
  vramscope guard --ssh node01,node02 --planned 61GiB,58GiB --json

exit codes: 0 done, 2 usage, 3 a finding reached --fail-on, 6 --prevent-oom where read_only is set,
7 a node never answered, 130 Ctrl-C before the
time was up

The hooks of your settings (alerts.command, alerts.webhook_url) are told of findings as by an agent."""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "guard",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )
    nodes = add_node_flags(parser, "nodes", "guard")
    add_choice_flags(parser, "guard")
    nodes.add_argument(
        "--insecure",
        action="store_true",
        default=SUPPRESS,
        help="beyond this machine: without keys, open to everybody between",
    )
    parser.add_argument(
        "--prevent-oom",
        action="store_true",
        help="ask processes to give back cache or to skip long batches; takes the role controller or worker",
    )
    parser.add_argument(
        "--planned",
        metavar="SIZE,…",
        help="what a plan says of a rank of each pipeline stage, to hold peaks against",
    )
    parser.add_argument(
        "--duration", dest="guard_duration", metavar="TIME", help="how long (default: until Ctrl-C)"
    )
    parser.add_argument(
        "--fail-on", choices=SEVERITIES, help="exit with 3 where a finding across nodes was as grave as this"
    )
    add_read_only_flag(parser)
    parser.add_argument("--no-hooks", action="store_true", help="tell no hook of what is found")
    add_format_flags(parser, text="text is the default", json="print one object a line (vramscope.guard/1)")


def run(arguments: Namespace) -> int:
    """Watch until the time is up.

    Raises:
        UsageError: No node is named, or a flag or a variable has a value that cannot be used.
        InputFileError: The file of hosts, the keys or the settings cannot be used.
        HubUnreachableError: A job has no nodes now, or Slurm does not answer.
    """
    from vramscope.engine.cluster.links import read_trust
    from vramscope.engine.cluster.nodes_watch import NodesWatch

    from ..guarding import Guard, GuardOptions
    from ..remote_flags import read_choice, read_nodes

    if arguments.prevent_oom:
        refuse_if_read_only(arguments, "guard --prevent-oom would have processes change their memory")
    named = take_node_flags(arguments, "guard")
    if not is_remote(named):
        raise UsageError(
            "name the nodes: --connect HOST,HOST, --hosts FILE, --ssh HOST,HOST or --slurm JOBID"
        )
    options = GuardOptions(
        duration_s=_read_duration(arguments.guard_duration),
        is_json=arguments.json,
        fail_on=arguments.fail_on,
        prevents_oom=arguments.prevent_oom,
        planned=_read_sizes(arguments.planned),
        alerts=None if arguments.no_hooks else read_settings(arguments).alerts,
    )
    trust = read_trust(is_insecure=arguments.insecure or not is_by_tcp(named))
    watch = NodesWatch(read_nodes(named), trust, most_in_full=0, choice=read_choice(named))
    try:
        return Guard(watch, options).run()
    finally:
        watch.close()


def _read_duration(text: str | None) -> float | None:
    """Return seconds; None for ever.

    Raises:
        UsageError: It is no time above zero.
    """
    from vramscope.engine.units import parse_duration

    try:
        duration_s = None if text is None else parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--duration {text}: {error}") from error
    if duration_s is not None and duration_s <= 0:
        raise UsageError(f"--duration {text}: expected a time above zero, for example 10m")
    return duration_s


def _read_sizes(text: str | None) -> tuple[int, ...]:
    """Return the bytes of each stage.

    Raises:
        UsageError: One is no size.
    """
    from vramscope.engine.units import parse_bytes

    try:
        return () if text is None else tuple(parse_bytes(it) for it in text.split(","))
    except UsageError as error:
        raise UsageError(f"--planned {text}: {error}; expected one size a stage, as 61GiB,58GiB") from error
