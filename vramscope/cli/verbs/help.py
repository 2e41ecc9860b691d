"""`vramscope help`: the overview, the page of a verb, or all flags."""

from argparse import ArgumentParser, Namespace

from vramscope.engine.errors import UsageError

from ..frame.parse import SubParsers, add_verb, build_parser, describe_unknown_verb, list_verbs, parse

DESCRIPTION = "Print the overview, the help of a verb, or all flags."
EXAMPLES = """\
vramscope help oom
vramscope help flags"""
FLAGS = "flags"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "help", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument(
        "topic",
        metavar="VERB",
        nargs="?",
        type=_read_topic,
        choices=(*list_verbs(), FLAGS),
        help="a verb, or the word `flags`; without one the overview",
    )


def run(arguments: Namespace) -> int:
    if arguments.topic == FLAGS:
        print(build_parser().format_flags(), end="")
        return 0
    parse([*([] if arguments.topic is None else [arguments.topic]), "--help"])  # prints and exits
    return 0


def _read_topic(word: str) -> str:
    names = list_verbs()
    if word not in (*names, FLAGS):
        raise UsageError(describe_unknown_verb(word, names))
    return word
