"""The verbs in `cli/verbs`, found by name: `register` adds flags, `run` returns the exit code.

A verb that is a word of Python has a file whose name ends in `_`.
"""

import keyword
import os
from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from vramscope.engine.errors import InputFileError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

SubParsers: TypeAlias = "_SubParsersAction[ArgumentParser]"
"""What `ArgumentParser.add_subparsers` returns."""


VERBS = Path(__file__).resolve().parents[1] / "verbs"


class Verb(Protocol):
    """A module in that folder; its file name is the verb."""

    def register(self, subparsers: SubParsers, common: list[ArgumentParser]) -> None:
        """Add the verb's parser; `common` are the parents with the flags that every verb has."""
        ...

    def run(self, arguments: Namespace) -> int:
        """Do it and return the exit code."""
        ...


def list_verbs() -> list[str]:
    """Return the names of all verbs."""
    with os.scandir(VERBS) as entries:
        names = [entry.name.removesuffix(".py") for entry in entries if entry.name.endswith(".py")]
    return sorted(name.removesuffix("_") for name in names if not name.startswith("_"))


def load_verb(name: str) -> Verb:
    """Return the module of a verb."""
    module = f"{name}_" if keyword.iskeyword(name) else name
    return cast("Verb", import_module(f"vramscope.cli.verbs.{module}"))


def run_verb(arguments: Namespace) -> int:
    """Do what the words say and return the exit code.

    Raises:
        VramscopeError: It cannot be done; of a file that another verb reads, the text names that one.
    """
    try:
        return load_verb(arguments.verb).run(arguments)
    except InputFileError as error:
        from .refusals import name_the_file

        raise name_the_file(error, arguments) from error
