"""Where the words of vramscope end and those of a job's command begin."""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence

VERB = "run"


def split_command(
    argv: Sequence[str], verbs: Sequence[str], build: Callable[[], ArgumentParser]
) -> tuple[list[str], list[str] | None]:
    """Return the words that are meant for vramscope, and those of the command that it is to run.

    The command begins after `--`, or with the first word that is neither an option of `run` nor the value of
    one. What stands after it is the command's own, whatever it looks like.

    Args:
        argv: The words after the program's name.
        verbs: Names of all verbs.
        build: Makes the parser of `run`.

    Returns:
        Our words and the command; None for the command where the verb is another.
    """
    if not names_run(argv, verbs):
        return list(argv), None
    place = argv.index(VERB) + 1
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
    """Return whether the first verb among the words is `run`."""
    return next((word for word in argv if word in verbs), None) == VERB


def _list_options_with_value(parser: ArgumentParser) -> set[str]:
    options: set[str] = set()
    for action in parser._actions:  # argparse has no other way to list them
        if isinstance(action.choices, dict):
            for subparser in action.choices.values():
                options |= _list_options_with_value(subparser)
        elif action.nargs is None:
            options.update(action.option_strings)
    return options
