"""The prompt: reads a line, runs the verb in it, goes on whatever became of it."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from vramscope.engine.errors import UsageError

from ..diagnostics import run_guarded
from .line_editor import LineEditor

PROMPT = "memory-debug> "
VERBS = ("profile", "oom", "leak", "fragment")
LEAVING = ("exit", "quit", "q")
HELP = """\
profile    current, peak and average memory of each device
oom        the risk of running out of memory
leak       growth that does not end, each leak once
fragment   what the allocator holds and the job cannot have
exit       leave (also Ctrl-D)

Each takes the flags of `vramscope VERB`, such as: profile --duration 10 --devices 0
`VERB --help` lists them. Ctrl-C ends a verb with its report, which also goes to interactive_VERB.json.
"""


class Prompt:
    """One session; lines come from a terminal with history and completion, or from a pipe."""

    def __init__(self) -> None:
        self._code = 0
        self._is_terminal = sys.stdin.isatty()

    def run(self) -> int:
        """Take lines until the end; return 0, or from a pipe the code of the last line that failed."""
        if not self._is_terminal:
            self._take_all(line.rstrip("\n") for line in sys.stdin)
            return self._code
        with LineEditor(VERBS, ("help", *LEAVING)) as editor:
            while self._take_next(editor):
                pass
        return 0

    def _take_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            if not self._take(line):
                return

    def _take_next(self, editor: LineEditor) -> bool:
        """Take a line from the terminal; False for Ctrl-D and a word that leaves.

        Ctrl-C begins the line anew, also where it is pressed just before or after a verb.
        """
        try:
            return self._take(editor.read(PROMPT))
        except KeyboardInterrupt:
            print()
            return True
        except EOFError:
            print()
            return False

    def _take(self, line: str) -> bool:
        """Run the verb of a line, if it has one; return False where it leaves."""
        words = self._split(line)
        if words and words[0] in LEAVING:
            return False
        if words:
            self._code = run_guarded(lambda: _do(words)) or self._code
        return True

    def _split(self, line: str) -> list[str]:
        """Return the words of a line; what is no line is said, and is empty."""
        words: list[str] = []

        def split() -> int:
            try:
                words.extend(shlex.split(line, comments=True))
            except ValueError as error:
                raise UsageError(f"{line.strip()}: {str(error).lower()}; close what was opened") from error
            return 0

        self._code = run_guarded(split) or self._code
        return words


def _do(words: list[str]) -> int:
    """Run the verb that the words name; return its exit code.

    Raises:
        UsageError: They name none.
    """
    if words[0] in ("help", "?"):
        sys.stdout.write(HELP)
        return 0
    if words[0] not in VERBS:
        raise UsageError(_describe_unknown(words[0]))
    from ..parser import parse
    from ..verbs import run_verb

    arguments = parse(words)
    _keep_report(arguments)
    return run_verb(arguments)


def _keep_report(arguments: Namespace) -> None:
    """Let the report go to a file and be told in words, where nothing else was asked for."""
    if arguments.every is None and arguments.output is None:
        arguments.output = Path(f"interactive_{arguments.verb}.json")
    if arguments.every is None and arguments.format is None:
        arguments.format = "text"


def _describe_unknown(word: str) -> str:
    import difflib

    nearest = difflib.get_close_matches(word, (*VERBS, "help", "exit"), n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"the verbs are {', '.join(VERBS)}, help and exit"
    return f"unknown word {word!r}; {hint}"
