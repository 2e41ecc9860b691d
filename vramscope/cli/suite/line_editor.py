"""Lines typed at a prompt, with history and completion where readline is there."""

from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType

from vramscope.engine.paths import state_folder

HISTORY_NAME = "interactive_history"
HISTORY_LINES = 1000
PATH_FLAGS = ("--input", "-o", "--output", "--archive", "--figure")


class LineEditor:
    """Reads lines; what was typed before is there again, and Tab completes verbs, flags and paths.

    Args:
        verbs: Words that take flags.
        words: Further words that may begin a line.
    """

    def __init__(self, verbs: Sequence[str], words: Sequence[str]) -> None:
        self._verbs, self._words = tuple(verbs), tuple(words)
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
        """Return the next line.

        Raises:
            EOFError: There is none.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        return input(prompt)

    def offer(self, line: str, word: str) -> list[str]:
        """Return what a word that is being typed may become.

        Args:
            line: What stands before the word.
            word: The word so far.
        """
        before = line.split()
        if not before:
            candidates = [*self._verbs, *self._words]
        elif before[-1] in PATH_FLAGS:
            candidates = _list_paths(word)
        else:
            candidates = self._list_flags(before[0])
        return sorted(candidate for candidate in candidates if candidate.startswith(word))

    def _complete(self, word: str, state: int) -> str | None:
        """Answer readline, which asks for one offer after the other."""
        if state == 0 and self._readline is not None:
            line = self._readline.get_line_buffer()[: self._readline.get_begidx()]
            self._offers = self.offer(line, word)
        return self._offers[state] if state < len(self._offers) else None

    def _list_flags(self, verb: str) -> list[str]:
        if verb not in self._verbs:
            return []
        if verb not in self._flags:
            self._flags[verb] = _read_flags(verb)
        return self._flags[verb]


def _read_flags(verb: str) -> list[str]:
    """Return the long flags of a verb, as its own parser has them."""
    from ..verbs import load_verb

    subparsers = ArgumentParser().add_subparsers()
    load_verb(verb).register(subparsers, [])
    actions = subparsers.choices[verb]._actions  # argparse has no other way to list them
    return [option for action in actions for option in action.option_strings if option.startswith("--")]


def _find_readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline


def _history_file() -> Path:
    return state_folder() / HISTORY_NAME


def _list_paths(word: str) -> list[str]:
    """Return the files and folders whose path begins as typed; folders with a slash, so that Tab goes on."""
    folder, _, start = word.rpartition("/")
    place = Path(folder + "/" if word.startswith("/") and not folder else folder or ".")
    try:
        found = [path for path in place.iterdir() if path.name.startswith(start)]
    except OSError:
        return []
    head = f"{folder}/" if "/" in word else ""
    return [f"{head}{path.name}{'/' if path.is_dir() else ''}" for path in found]
