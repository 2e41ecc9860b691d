"""Questions about files of others, each answered by a process of its own that is confined to these files.

The live view and the server of `vramscope mcp` talk to agents and go on for days, so they cannot be confined,
and do not open these files.
"""

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from vramscope.engine.child_processes import module_command, own_environment
from vramscope.engine.errors import InputFileError, VramscopeError
from vramscope.engine.extras import find_missing_package
from vramscope.engine.settings import Settings

from .frame.parse import parse
from .frame.sandbox import confine_reader

AnswerT = TypeVar("AnswerT")
Given = dict[str, Any]
# A process in the hands of somebody else might send without end.
_MOST_REPLY_BYTES = 256 << 20
# Of files for training frameworks.
_ENDINGS = (".json", ".toml", ".txt")


class Question(msgspec.Struct, frozen=True):
    kind: str
    given: Given


class Reply(msgspec.Struct, frozen=True):
    # In words of the user; None where there is an answer.
    refusal: str | None = None
    answer: msgspec.Raw = msgspec.Raw(msgspec.msgpack.encode(None))


class QuestionKind(NamedTuple):
    # Returns the command line with the files of a question.
    parse: Callable[[Given], Namespace]
    answer: Callable[[Given], object]
    # Whether refusals have the flags of a command line, not words.
    is_typed: bool = False


def _parse_files(verb: str, *files: str) -> Namespace:
    # Absolute, so that no name looks like a flag.
    return parse([verb, *(str(Path(it).expanduser().absolute()) for it in files), "--json"])


def _parse_estimate(given: Given) -> Namespace:
    from .mcp_server import parse_estimate

    return parse_estimate(given)


def _answer_tool(tool: str) -> Callable[[Given], str]:
    def answer(given: Given) -> str:
        from .mcp_server import MemoryTools

        text: str = getattr(MemoryTools(Settings()), tool)(**given)
        return text

    return answer


def _find_sweeps(given: Given) -> object:
    from .sweeps import find_wanted
    from .verbs.sweep import read_job

    return find_wanted(read_job(parse(["sweep", *given["words"]]))).chosen


def _read_profiles(given: Given) -> object:
    from .verbs.modules import read_profiled

    return read_profiled([Path(it).expanduser() for it in given["paths"]])


def _parse_plan(given: Given) -> Namespace:
    from .plan_screen import split_words

    return parse(split_words(given["words"]))


def _present_plan(given: Given) -> object:
    """Return a plan, with the files that it writes."""
    import tempfile
    from dataclasses import replace

    from vramscope.tui.plan.planned import JobDefaults

    from .plan_screen import present_words

    planned = present_words(given["words"], JobDefaults(*given["defaults"]))
    with tempfile.TemporaryDirectory() as folder:
        files = [] if planned.write is None else planned.write(Path(folder))
        contents = {path.name: path.read_bytes() for path in files}
    return replace(planned, write=None), contents


KINDS = {
    "inspect": QuestionKind(lambda given: _parse_files("inspect", given["file"]), _answer_tool("inspect")),
    "diff": QuestionKind(lambda given: _parse_files("diff", given["a"], given["b"]), _answer_tool("diff")),
    "estimate": QuestionKind(_parse_estimate, _answer_tool("estimate")),
    "sweep": QuestionKind(lambda given: parse(["sweep", *given["words"]]), _find_sweeps, is_typed=True),
    "plan": QuestionKind(_parse_plan, _present_plan, is_typed=True),
    "modules": QuestionKind(
        lambda given: _parse_files("modules", *given["paths"]), _read_profiles, is_typed=True
    ),
}


def ask_apart(kind: str, given: Given, expected: type[AnswerT], *, stderr: int | None = None) -> AnswerT:
    """Return the answer to a question, of the expected type.

    Args:
        kind: A key of `KINDS`.
        stderr: `subprocess.DEVNULL` where a line would disturb a screen.

    Raises:
        InputFileError: The process refuses the question, cannot read the files, or ended without an answer.
    """
    command = module_command("vramscope.cli.reader")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=own_environment()
    ) as process:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        assert process.stdout is not None  # noqa: S101 - it was asked for
        with suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(msgspec.msgpack.encode(Question(kind, given)))
        data = process.stdout.read(_MOST_REPLY_BYTES + 1)
        if len(data) > _MOST_REPLY_BYTES:
            process.kill()
    try:
        reply = msgspec.msgpack.decode(data, type=Reply)
        if reply.refusal is None:
            return msgspec.msgpack.decode(reply.answer, type=expected, dec_hook=_decode)
    except msgspec.MsgspecError as error:
        raise InputFileError(
            f"the process that reads files ended without an answer (exit code {process.returncode})"
        ) from error
    raise InputFileError(reply.refusal)


def check_names(files: Iterable[str]) -> None:
    """Refuse files that would be written elsewhere than in a folder, or that could be run."""
    for name in files:
        if not name.endswith(_ENDINGS) or name.startswith(".") or Path(name).name != name:
            raise InputFileError("the process that reads files named one that it may not write")


def _decode(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    if get_origin(kind) is Callable:
        made = msgspec.convert(value, get_args(kind)[-1])
        return lambda: made
    raise NotImplementedError


def _encode(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if callable(value):  # what is made where it is shown
        return value()
    raise NotImplementedError


def main() -> None:
    """Answer the question on standard input, after giving up all but its files."""
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    kind = KINDS[question.kind]
    try:
        confine_reader(kind.parse(question.given))
        answer = msgspec.msgpack.encode(kind.answer(question.given), enc_hook=_encode)
        reply = Reply(answer=msgspec.Raw(answer))
    except VramscopeError as error:
        reply = Reply(refusal=error.describe("flag" if kind.is_typed else "word"))
    except ValueError as error:
        reply = Reply(refusal=str(error))
    except ModuleNotFoundError as error:
        missing = find_missing_package(error)
        if missing is None:
            raise
        reply = Reply(refusal=str(missing))
    sys.stdout.buffer.write(msgspec.msgpack.encode(reply))


if __name__ == "__main__":
    main()
