"""`vramscope interactive`: a prompt for the verbs of the headless suite."""

from argparse import ArgumentParser, Namespace

from ..frame.registry import SubParsers

SUMMARY = "a prompt for profile, oom, leak and fragment, with history and completion"
DESCRIPTION = """\
A prompt that takes the verbs of the headless suite with their flags, one a line; `help` lists them, `exit`
leaves, Ctrl-C ends a verb with its report. Without --output a report also goes to interactive_VERB.json.
Lines may come from a pipe too: vramscope interactive < script"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    from argparse import RawDescriptionHelpFormatter

    subparsers.add_parser(
        "interactive",
        help=SUMMARY,
        description=DESCRIPTION,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )


def run(arguments: Namespace) -> int:
    """Take lines until the end; return 0, or from a pipe the code of the last line that failed."""
    from ..suite.prompt import Prompt

    return Prompt().run()
