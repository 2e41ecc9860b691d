"""The parser of the command line, which loads only the verbs that are named in it.

A verb is a file in `cli/verbs`, found by its name: `register` adds its flags, `run` returns the exit code.
Where the verb is a keyword of Python, the name of the file ends in `_`. Without a verb: `cli/view.py`.
"""

import keyword
import os
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias, cast

from vramscope import __version__
from vramscope.engine.errors import InputFileError, Setting, SettingError, UsageError

from .flags import OldFlag, Reading, build_common_flags, build_sampling_flags, build_view_flags
from .help import EXIT_CODES, SUMMARIES, Page, describe_all_flags, describe_overview, describe_verb

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from _typeshed import SupportsWrite

# What `ArgumentParser.add_subparsers` returns.
SubParsers: TypeAlias = "_SubParsersAction[Parser]"
VERBS = Path(__file__).resolve().parents[1] / "verbs"
# Bytes: NAME_MAX and PATH_MAX of Linux.
_LONGEST_NAME = 255
_LONGEST_PATH = 4096


class Verb(Protocol):
    """A module in that folder."""

    def register(self, subparsers: SubParsers, common: list[ArgumentParser]) -> None:
        """Add the verb's parser; `common` are the parents with the flags that every verb has."""
        ...

    def run(self, arguments: Namespace) -> int: ...


class View(Protocol):
    """`cli/view.py`."""

    DESCRIPTION: str
    USAGE: str
    SETTINGS: str
    PAGE: Page

    def add_flags(self, parser: ArgumentParser) -> None:
        """Add the flags of the program to those that verbs share."""
        ...


class Parser(ArgumentParser):
    """A parser that raises what is wrong instead of printing and exiting, and prints help of our own form."""

    # What the help says besides the description and the flags.
    page = Page()

    def format_help(self) -> str:
        describe = describe_verb if " " in self.prog else describe_overview
        return describe(self, self.page)

    def format_flags(self) -> str:
        """Return the list of all flags, those of the program and those of its verbs."""
        choices = next((it.choices for it in self._actions if isinstance(it.choices, dict)), {})
        return describe_all_flags(self, self.page, choices)

    def error(self, message: str) -> NoReturn:
        """Raise a usage error that says where the help is."""
        raise UsageError(f"{message}; see {_name_help(self.prog)}")

    def _check_value(self, action: Action, value: object) -> None:
        """Refuse a value that is not among the choices, in the same words on every Python."""
        if action.choices is None or value in action.choices:
            return
        if isinstance(action.choices, dict):
            raise UsageError(describe_unknown_verb(str(value), list_verbs()))
        from vramscope.engine.text import suggest

        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        known = [str(choice) for choice in action.choices]
        hint = suggest(str(value), known, f"expected {', '.join(known)}")
        raise SettingError(Setting(name), f" {value}: {hint}")

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Print help or version; raise if it cannot be written."""
        (file or sys.stderr).write(message)

    def _get_value(self, action: Action, arg_string: str) -> object:
        """Return the value of an argument; refuse a path that no file can have, for every verb."""
        kind = action.type
        if kind is Path or (isinstance(kind, Reading) and kind.is_path):
            _check_path("/".join(action.option_strings) or str(action.metavar or action.dest), arg_string)
        if not isinstance(kind, Reading):
            return super()._get_value(action, arg_string)
        try:
            return kind.read_for(action, arg_string)
        except UsageError:
            # The action, which notes old spellings, is not called for an invalid value.
            if isinstance(action, OldFlag) and not kind.is_path:
                action.say(self.prog)
            raise


def _check_path(flag: str, text: str) -> None:
    """Refuse an empty path, which would mean the current folder, and one that is too long for a file."""
    if not text:
        raise UsageError(f"{flag} {text!r}: expected a path, not an empty text")
    data = os.fsencode(text)
    longest = max(len(part) for part in data.split(b"/"))
    if longest > _LONGEST_NAME or len(data) >= _LONGEST_PATH:
        raise UsageError(
            f"{flag} {text[:40]}…: a path of {len(data):,} bytes; expected names of at most {_LONGEST_NAME} "
            f"bytes and less than {_LONGEST_PATH:,} bytes in all"
        )


def parse(argv: Sequence[str]) -> Namespace:
    verbs = list_verbs()
    argv, command = split_command(argv, verbs, lambda: build_parser(["run"]))
    meant = [word for word in argv if word in verbs]
    parser = build_parser(meant)
    _refuse_unknown_options(parser, argv, meant)
    arguments, rest = parser.parse_known_args(argv)
    strangers = [word for word in rest if not word.startswith("-")]
    if not meant and strangers:
        raise UsageError(describe_unknown_verb(strangers[0], verbs))
    usage = f"vramscope {arguments.verb}" if arguments.verb else "vramscope"
    for word in rest:
        if word.startswith("-"):
            raise UsageError(f"{word} is not a flag of `{usage}`; see `{usage} --help`")
    if rest:
        raise UsageError(f"too many arguments: {' '.join(rest)}; see `{usage} --help`")
    if command is not None:
        arguments.command = command
    return arguments


def build_parser(verbs: Sequence[str] | None = None) -> Parser:
    """Return the parser with the given verbs; with all of them by default, as completion needs."""
    view = cast("View", import_module("vramscope.cli.view"))
    parents = [build_sampling_flags(), build_view_flags(is_live=True), build_common_flags()]
    parser = Parser(
        prog="vramscope",
        usage=view.USAGE,
        description=view.DESCRIPTION,
        epilog=view.SETTINGS,
        parents=parents,
        add_help=False,
        allow_abbrev=False,
    )
    parser.page = view.PAGE._replace(inherited=_list_titles(parents))
    version = f"vramscope {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    view.add_flags(parser)
    chosen = list_verbs() if verbs is None else verbs
    parser.set_defaults(verb=None)
    if chosen:
        subparsers = parser.add_subparsers(prog="vramscope", dest="verb", metavar="VERB")
        for name in dict.fromkeys(chosen):
            load_verb(name).register(subparsers, [build_common_flags()])
    return parser


def describe_unknown_verb(word: str, verbs: Sequence[str]) -> str:
    from vramscope.engine.text import find_nearest

    nearest = find_nearest(word, verbs)
    hint = f"did you mean `vramscope {nearest[0]}`?" if nearest else "`vramscope --help` lists the verbs"
    return f"unknown verb {word!r}; {hint}"


def _refuse_unknown_options(parser: ArgumentParser, argv: Sequence[str], verbs: Sequence[str]) -> None:
    """Refuse a misspelt option, before argparse reads its value as a verb or path, and `--` as a value."""
    options = _list_options(parser)
    words = argv[: argv.index("--")] if "--" in argv else argv
    for word in words:
        name, _, value = word.partition("=")
        if name.startswith("-") and value == "--":  # argparse would read it as no value
            raise UsageError(f"{word}: expected a value, not `--`")
        if name.startswith("--") and name not in options:
            verb = next((known for known in words[: words.index(word)] if known in verbs), None)
            raise UsageError(_describe_unknown_option(name, options, verb))


def _list_options(parser: ArgumentParser) -> dict[str, bool]:
    """Return the options of a parser and its verbs, and whether the help lists each."""
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
    hint = suggest(name, shown, f"see {_name_help(program)}", cutoff=0.75)
    return f"unknown option {name}; {hint}"


def _name_help(program: str) -> str:
    """Return the command that lists the flags of the program or of a verb."""
    return "`vramscope help flags`" if program == "vramscope" else f"`{program} --help`"


def list_verbs() -> list[str]:
    with os.scandir(VERBS) as entries:
        names = [entry.name.removesuffix(".py") for entry in entries if entry.name.endswith(".py")]
    return sorted(name.removesuffix("_") for name in names if not name.startswith("_"))


def load_verb(name: str) -> Verb:
    module = f"{name}_" if keyword.iskeyword(name) else name
    return cast("Verb", import_module(f"vramscope.cli.verbs.{module}"))


def run_verb(arguments: Namespace) -> int:
    try:
        return load_verb(arguments.verb).run(arguments)
    except InputFileError as error:
        from .errors import name_the_file

        raise name_the_file(error, arguments) from error


def add_verb(
    subparsers: SubParsers,
    parents: list[ArgumentParser],
    name: str,
    description: str,
    *,
    examples: str,
    notes: str = "",
    exit_codes: Mapping[int | str, str] = EXIT_CODES,
    usage: str | None = None,
) -> Parser:
    """Add the parser of a verb and return it.

    Args:
        description: One sentence.
        examples: Commands, one a line.
        notes: Paragraphs after the flags, for what no flag's help can say.
        usage: What follows `usage:`; by default the arguments that are required.
    """
    parser = subparsers.add_parser(
        name,
        help=SUMMARIES[name],
        usage=usage,
        description=description,
        parents=cast("list[Parser]", parents),
        add_help=False,
        allow_abbrev=False,
    )
    parser.page = Page(examples, notes, exit_codes, _list_titles(parents))
    return parser


def _list_titles(parents: Sequence[ArgumentParser]) -> frozenset[str]:
    groups = [group for parent in parents for group in parent._action_groups]
    return frozenset(group.title for group in groups if group.title and group._group_actions)


_RUN = "run"


def split_command(
    argv: Sequence[str], verbs: Sequence[str], build: Callable[[], ArgumentParser]
) -> tuple[list[str], list[str] | None]:
    """Return our words, and the command that `run` starts.

    The command begins after `--`, or with the first word that is neither an option of `run` nor its value.
    Everything after it belongs to the command, whatever it looks like.

    Returns:
        Our words and the command; None for the command if the verb is not `run`.
    """
    if not names_run(argv, verbs):
        return list(argv), None
    place = argv.index(_RUN) + 1
    takes_value = _list_options_with_value(build())
    while place < len(argv):
        word = argv[place]
        if word == "--":
            return list(argv[:place]), list(argv[place + 1 :])
        if not word.startswith("-"):
            return list(argv[:place]), list(argv[place:])
        place += 2 if word in takes_value else 1
    return list(argv), []


def names_run(argv: Sequence[str], verbs: Sequence[str]) -> bool:
    return next((word for word in argv if word in verbs), None) == _RUN


def _list_options_with_value(parser: ArgumentParser) -> set[str]:
    options: set[str] = set()
    for action in parser._actions:  # argparse has no other way to list them
        if isinstance(action.choices, dict):
            for subparser in action.choices.values():
                options |= _list_options_with_value(subparser)
        elif action.nargs is None:
            options.update(action.option_strings)
    return options
