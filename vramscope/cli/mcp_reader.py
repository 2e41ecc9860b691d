"""Answers of `vramscope mcp` about files: each by a process of its own, which is confined to these files.

The server talks to agents and goes on for days, so it cannot be confined, and it opens none of them.
"""

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vramscope.engine.child_processes import module_command, own_environment
from vramscope.engine.errors import InputFileError, UsageError, VramscopeError
from vramscope.engine.settings import Settings

from .frame.parse import parse
from .frame.sandbox import confine_reader
from .mcp_server import LIMIT_BYTES, Answer, MemoryTools, parse_estimate

# Answers are bounded; a process in the hands of somebody else might send without end.
_MOST_REPLY_BYTES = 4 * LIMIT_BYTES


class Question(msgspec.Struct, frozen=True):
    tool: str
    given: dict[str, object]


class Reply(msgspec.Struct, frozen=True):
    """One of both."""

    answer: Answer | None = None
    refusal: str | None = None


def _parse_files(verb: str, *files: object) -> Namespace:
    # Absolute, so that no name looks like a flag.
    return parse([verb, *(str(Path(str(it)).expanduser().absolute()) for it in files), "--json"])


# The command line with the files of a question, by tool.
COMMANDS: Mapping[str, Callable[[dict[str, object]], Namespace]] = {
    "inspect": lambda given: _parse_files("inspect", given["file"]),
    "diff": lambda given: _parse_files("diff", given["a"], given["b"]),
    "estimate": parse_estimate,
}


def ask_apart(tool: str, given: dict[str, object]) -> str:
    """Return the answer of a tool of `COMMANDS`, as JSON.

    Raises:
        UsageError: The process refuses the question, or cannot read the files.
        InputFileError: It ended without an answer.
    """
    command = module_command("vramscope.cli.mcp_reader")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own_environment()
    ) as process:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        assert process.stdout is not None  # noqa: S101 - it was asked for
        with suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(msgspec.json.encode(Question(tool, given)))
        data = process.stdout.read(_MOST_REPLY_BYTES + 1)
        if len(data) > _MOST_REPLY_BYTES:
            process.kill()
    try:
        reply = msgspec.json.decode(data, type=Reply)
    except msgspec.MsgspecError as error:
        raise InputFileError(
            f"the process that reads files ended without an answer (exit code {process.returncode})"
        ) from error
    if reply.answer is None:
        raise UsageError(reply.refusal or "refused")
    return msgspec.json.encode(reply.answer).decode()


def main() -> None:
    """Answer the question on standard input, after giving up all but its files."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    try:
        confine_reader(COMMANDS[question.tool](question.given))
        text = getattr(MemoryTools(Settings()), question.tool)(**question.given)
        reply = Reply(answer=msgspec.json.decode(text, type=Answer))
    except VramscopeError as error:
        reply = Reply(refusal=error.describe("word"))
    except ValueError as error:
        reply = Reply(refusal=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(reply))


if __name__ == "__main__":
    main()
