"""`vramscope interactive`: a prompt for profile, oom, leak and fragment."""

import shlex
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType

from vramscope.engine.errors import UsageError
from vramscope.engine.paths import state_folder

from ..frame.errors import EXIT_BY_SIGNAL, Interruption, run_guarded
from ..frame.parse import Parser, SubParsers, add_verb

DESCRIPTION = "Open a prompt for profile, oom, leak and fragment, with history and completion."
EXAMPLES = """\
vramscope interactive
vramscope interactive < script.txt"""
NOTES = """\
Type a verb with its flags on each line. `help` lists the verbs, `exit` leaves, Ctrl-C ends a verb with its
report. Without --output the report also goes to interactive_VERB.json."""
EXIT_CODES: dict[int | str, str] = {
    0: "done",
    "other": "from a pipe: the exit code of the last line that failed",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    add_verb(
        subparsers, common, "interactive", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )


def run(arguments: Namespace) -> int:
    """Run lines until the end; return 0, or from a pipe the code of the last line that failed."""
    return Prompt().run()


HISTORY_NAME = "interactive_history"
HISTORY_LINES = 1000
PATH_FLAGS = ("--input", "-o", "--output", "--archive", "--figure")


class LineEditor:
    """Reads lines with a history; Tab completes verbs, flags and paths."""

    def __init__(self, verbs: Sequence[str], words: Sequence[str]) -> None:
        self._verbs = tuple(verbs)
        self._words = tuple(words)
        self._readline = _find_readline()
        self._flags: dict[str, list[str]] = {}
        self._offers: list[str] = []

    def __enter__(self) -> "LineEditor":
        readline = self._readline
        if readline is not None:
            readline.set_completer(self._complete)
            readline.set_completer_delims(" ")
            is_libedit = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
            readline.set_history_length(HISTORY_LINES)
            with suppress(OSError):
                readline.read_history_file(_history_file())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._readline is None:
            return
        self._readline.set_completer(None)
        file = _history_file()
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            self._readline.write_history_file(file)

    def read(self, prompt: str) -> str:
        return input(prompt)

    def offer(self, line: str, word: str) -> list[str]:
        """Return completions of the word that is being typed."""
        before = line.split()
        if not before:
            candidates = [*self._verbs, *self._words]
        elif before[-1] in PATH_FLAGS:
            candidates = _list_paths(word)
        else:
            candidates = self._list_flags(before[0])
        return sorted(candidate for candidate in candidates if candidate.startswith(word))

    def _complete(self, word: str, state: int) -> str | None:
        """Answer readline, which asks for one completion after the other."""
        if state == 0 and self._readline is not None:
            line = self._readline.get_line_buffer()[: self._readline.get_begidx()]
            self._offers = self.offer(line, word)
        return self._offers[state] if state < len(self._offers) else None

    def _list_flags(self, verb: str) -> list[str]:
        if verb not in self._verbs:
            return []
        if verb not in self._flags:
            from ..frame.parse import load_verb

            subparsers = Parser(add_help=False).add_subparsers(prog="vramscope")
            load_verb(verb).register(subparsers, [])
            actions = subparsers.choices[verb]._actions  # argparse has no other way to list them
            self._flags[verb] = [
                option for action in actions for option in action.option_strings if option.startswith("--")
            ]
        return self._flags[verb]


def _find_readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline


def _history_file() -> Path:
    return state_folder() / HISTORY_NAME


def _list_paths(word: str) -> list[str]:
    """Return the paths that begin with what is typed; folders with a slash, so that Tab goes on."""
    folder, _, start = word.rpartition("/")
    place = Path(folder + "/" if word.startswith("/") and not folder else folder or ".")
    try:
        found = [path for path in place.iterdir() if path.name.startswith(start)]
    except OSError:
        return []
    head = f"{folder}/" if "/" in word else ""
    return [f"{head}{path.name}{'/' if path.is_dir() else ''}" for path in found]


PROMPT = "memory-debug> "
VERBS = ("profile", "oom", "leak", "fragment")
LEAVING = ("exit", "quit", "q")
HELP = """\
profile    current, peak and average memory of each device
oom        the risk of running out of memory
leak       memory that grows without end
fragment   how fragmented memory is
exit       leave (also Ctrl-D)

Each takes the flags of `vramscope VERB`, for example: profile --duration 10 --devices 0
`VERB --help` lists them. Ctrl-C ends a verb with its report, which also goes to interactive_VERB.json.
"""


class Prompt:
    """One session; lines come from a terminal with history and completion, or from a pipe."""

    def __init__(self) -> None:
        self._code = 0
        self._is_terminal = sys.stdin.isatty()

    def run(self) -> int:
        """Run lines until the end; return 0, or from a pipe the code of the last line that failed."""
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
        """Read and run a line of the terminal; return False to leave.

        Ctrl-C clears the line, also just before or after a verb.
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
        """Run the verb of a line, if it has one; return False to leave."""
        words = self._split(line)
        if words and words[0] in LEAVING:
            return False
        if words:
            self._code = run_guarded(lambda: _do(words)) or self._code
        return True

    def _split(self, line: str) -> list[str]:
        """Return the words of a line; print what is wrong and return none where it has no closing quote."""
        words: list[str] = []

        def split() -> int:
            try:
                words.extend(shlex.split(line, comments=True))
            except ValueError as error:
                raise UsageError(
                    f"{line.strip()}: {str(error).lower()}; check quotes and backslashes"
                ) from error
            return 0

        self._code = run_guarded(split) or self._code
        return words


def _do(words: list[str]) -> int:
    if words[0] in ("help", "?"):
        sys.stdout.write(HELP)
        return 0
    if words[0] not in VERBS:
        raise UsageError(_describe_unknown(words[0]))
    from ..frame.parse import parse, run_verb

    arguments = parse(words)
    # Write the report to a file and print it as text, unless the flags say otherwise.
    if arguments.every is None and arguments.output is None:
        words = [*words, "--output", f"interactive_{arguments.verb}.json"]
    if arguments.every is None and arguments.format is None:
        words = [*words, "--format", "text"]
    return run_verb(parse(words)) if arguments.input is None else _read_apart(words)


def _read_apart(words: list[str]) -> int:
    """Run a verb that reads a file in a process of its own, which is confined to that file."""
    import subprocess

    from vramscope.engine.child_processes import command_of, own_environment

    sys.stdout.flush()
    # Ctrl-C is for the verb, which gets it too.
    with Interruption((signal.SIGINT,)):
        done = subprocess.run(
            command_of(*words), env=own_environment(), stdin=subprocess.DEVNULL, check=False
        )
    return done.returncode if done.returncode >= 0 else EXIT_BY_SIGNAL - done.returncode


def _describe_unknown(word: str) -> str:
    from vramscope.engine.text import suggest

    hint = suggest(word, (*VERBS, "help", "exit"), f"the verbs are {', '.join(VERBS)}, help and exit")
    return f"unknown verb {word!r}; {hint}"
