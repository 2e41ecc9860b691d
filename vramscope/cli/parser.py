"""The parser of the command line; it loads only the verbs that the words could mean."""

import os
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vramscope import __version__
from vramscope.engine.errors import UsageError

from .frame.command_words import split_command
from .frame.figure_flag import read_figure
from .frame.parser_flags import build_common_flags, build_sampling_flags, build_view_flags
from .frame.registry import list_verbs, load_verb
from .prometheus_flags import add_prometheus_flags
from .remote_flags import add_remote_flags

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_LONGEST_NAME = 255
_LONGEST_PATH = 4096
"""Bytes: NAME_MAX and PATH_MAX of Linux."""
DESCRIPTION = """\
Live GPU memory in the terminal: will this job run out of memory, when, why, and what to do.
Without a verb: the live view of this node."""

EPILOG = """\
exit codes: 0 fine, 1 internal error, 2 usage or bad input, 3 findings at --fail-on, 4 no device or
library, 5 driver not loaded or mismatch, 6 permission, 7 agent unreachable, 130 interrupted
settings: flag, then VRAMSCOPE_* variable, then ./vramscope.toml, then the user's config.toml"""


class Parser(ArgumentParser):
    """A parser that raises what is wrong instead of printing and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise a usage error that says where the help is."""
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Print help or version; an output that cannot be written is an error here too."""
        (file or sys.stderr).write(message)

    def _get_value(self, action: Action, arg_string: str) -> object:
        """Return the value of an argument; a path that no file can have is refused, whatever the verb."""
        if action.type in (Path, read_figure):
            _check_path("/".join(action.option_strings) or str(action.metavar or action.dest), arg_string)
        return super()._get_value(action, arg_string)


def _check_path(flag: str, text: str) -> None:
    """Refuse an empty path, which would mean the current folder, and one that is too long for any file.

    Raises:
        UsageError: It is one of these.
    """
    if not text:
        raise UsageError(f"{flag} {text!r}: expected a path, not an empty text")
    data = os.fsencode(text)
    longest = max(len(part) for part in data.split(b"/"))
    if longest > _LONGEST_NAME or len(data) >= _LONGEST_PATH:
        raise UsageError(
            f"{flag} {text[:40]}…: a path of {len(data):,} bytes; expected names of at most {_LONGEST_NAME} "
            f"bytes, and less than {_LONGEST_PATH:,} in all"
        )


def parse(argv: Sequence[str]) -> Namespace:
    """Return what the words of a command line mean.

    Raises:
        UsageError: They mean nothing.
    """
    verbs = list_verbs()
    argv, command = split_command(argv, verbs, lambda: build_parser(["run"]))
    meant = [word for word in argv if word in verbs]
    if not meant and not {"-h", "--help"}.isdisjoint(argv):
        meant = verbs
    parser = build_parser(meant)
    _refuse_unknown_options(parser, argv, meant)
    arguments, rest = parser.parse_known_args(argv)
    strangers = [word for word in rest if not word.startswith("-")]
    if not meant and strangers:
        raise UsageError(_describe_unknown_verb(strangers[0], verbs))
    for word in rest:
        if word.startswith("-"):
            raise UsageError(f"{word} does not go with `vramscope {arguments.verb}`; see its --help")
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if command is not None:
        arguments.command = command
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
    add_prometheus_flags(parser)
    add_remote_flags(parser)
    chosen = list_verbs() if verbs is None else verbs
    parser.set_defaults(verb=None)
    if chosen:
        subparsers = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB")
        for name in dict.fromkeys(chosen):
            load_verb(name).register(subparsers, [build_common_flags()])
    return parser


def _describe_unknown_verb(word: str, verbs: Sequence[str]) -> str:
    from vramscope.engine.text import find_nearest

    nearest = find_nearest(word, verbs)
    hint = f"did you mean `vramscope {nearest[0]}`?" if nearest else f"the verbs are {', '.join(verbs)}"
    return f"unknown verb {word!r}; {hint}"


def _refuse_unknown_options(parser: ArgumentParser, argv: Sequence[str], verbs: Sequence[str]) -> None:
    """Refuse a misspelt option before its value is taken for a verb or a path, and `--` as a value.

    Raises:
        UsageError: Neither vramscope nor a verb that is meant has such an option, or its value is `--`.
    """
    options = _list_options(parser)
    words = argv[: argv.index("--")] if "--" in argv else argv
    for word in words:
        name, _, value = word.partition("=")
        if name.startswith("-") and value == "--":  # argparse would take it for no value at all
            raise UsageError(f"{word}: expected a value, not `--`")
        if name.startswith("--") and name not in options:
            verb = next((known for known in words[: words.index(word)] if known in verbs), None)
            raise UsageError(_describe_unknown_option(name, options, verb))


def _list_options(parser: ArgumentParser) -> dict[str, bool]:
    """Return the options of a parser and of its verbs, and whether each is shown in the help."""
    options: dict[str, bool] = {}
    for action in parser._actions:  # argparse has no other way to list them
        options |= dict.fromkeys(action.option_strings, action.help != SUPPRESS)
        if isinstance(action.choices, dict):
            for subparser in action.choices.values():
                options |= _list_options(subparser)
    return options


def _describe_unknown_option(name: str, options: Mapping[str, bool], verb: str | None) -> str:
    from vramscope.engine.text import suggest

    shown = [option for option, is_shown in options.items() if is_shown]
    program = "vramscope" if verb is None else f"vramscope {verb}"
    hint = suggest(name, shown, f"see `{program} --help`", cutoff=0.75)
    return f"unknown option {name}; {hint}"
