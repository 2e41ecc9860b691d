"""The parser of the command line; it loads only the verbs that the words could mean."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import NoReturn

from vramscope import __version__
from vramscope.engine.errors import UsageError

from .parser_flags import build_common_flags, build_sampling_flags, build_view_flags
from .verbs import list_verbs, load_verb

DESCRIPTION = """\
Live GPU memory in the terminal: will this job run out of memory, when, why, and what to do.
Without a verb: the live view of this node."""

EPILOG = """\
exit codes: 0 fine, 1 internal error, 2 usage or bad input, 4 no device or library, 5 driver not loaded
or mismatch, 6 permission, 7 agent unreachable, 130 interrupted
settings: flag, then VRAMSCOPE_* variable, then ./vramscope.toml, then the user's config.toml"""


class Parser(ArgumentParser):
    """A parser that raises what is wrong instead of printing and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise a usage error that says where the help is."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parse(argv: Sequence[str]) -> Namespace:
    """Return what the words of a command line mean.

    Raises:
        UsageError: They mean nothing.
    """
    verbs = list_verbs()
    meant = [word for word in argv if word in verbs]
    if not meant and not {"-h", "--help"}.isdisjoint(argv):
        meant = verbs
    parser = build_parser(meant)
    arguments, rest = parser.parse_known_args(argv)
    strangers = [word for word in rest if not word.startswith("-")]
    if not meant and strangers:
        raise UsageError(_describe_unknown_verb(strangers[0], verbs))
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def build_parser(verbs: Sequence[str] | None = None) -> ArgumentParser:
    """Return the parser with the given verbs; with all of them by default, as completion needs."""
    parser: ArgumentParser = Parser(
        prog="vramscope",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[build_sampling_flags(), build_view_flags(), build_common_flags()],
    )
    parser.add_argument("--version", action="version", version=f"vramscope {__version__}")
    output = parser.add_argument_group("headless output")
    output.add_argument("--once", action="store_true", help="print the state of this node once and leave")
    output.add_argument(
        "--json", action="store_true", help="print one JSON object a line (vramscope.status/1)"
    )
    output.add_argument(
        "--duration", metavar="TIME", help="with --json: stop after this time, for example 10m"
    )
    chosen = list_verbs() if verbs is None else verbs
    parser.set_defaults(verb=None)
    if chosen:
        subparsers = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB")
        for name in dict.fromkeys(chosen):
            load_verb(name).register(subparsers, [build_common_flags()])
    return parser


def _describe_unknown_verb(word: str, verbs: Sequence[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(word, verbs, n=1)
    hint = f"did you mean `vramscope {nearest[0]}`?" if nearest else f"the verbs are {', '.join(verbs)}"
    return f"unknown verb {word!r}; {hint}"
