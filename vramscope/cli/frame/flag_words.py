"""Flags by name: old spellings, `--format` and `--json`, and the flag whose value cannot be used."""

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from .diagnostics import complain

if TYPE_CHECKING:
    from argparse import _ActionsContainer


class _OldFlag(Action):
    """A flag that the help does not show: does what another one does, and says which."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        *,
        use: str,
        forward: type[Action] | None = None,
        **options: object,
    ) -> None:
        make: Callable[..., None] = super().__init__
        make(option_strings, dest, **{**options, "default": SUPPRESS, "help": SUPPRESS})
        self.use = use
        self._forward = None if forward is None else forward(option_strings, dest)

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, option_string: str | None = None
    ) -> None:
        value = self.const if self.nargs == 0 else values
        if self._forward is None:
            setattr(namespace, self.dest, value)
        else:
            call: Callable[..., None] = self._forward
            call(parser, namespace, value, option_string)
        complain(f"{option_string} is an old spelling: use {self.use}", program=parser.prog)


def add_old_flag(group: "_ActionsContainer", flag: str, *, use: str, dest: str, **options: object) -> None:
    """Add an old spelling of a flag: the help does not show it, and stderr says what to use.

    Args:
        group: Where the flag is added.
        flag: The old spelling.
        use: What to type now.
        dest: Name of the value.
        options: As of `add_argument`: `nargs=0` and `const` for a flag without a value, `forward` for the
            class of an action that stores the value.
    """
    add: Callable[..., object] = group.add_argument
    add(flag, action=_OldFlag, use=use, dest=dest, **options)


class _FormatAction(Action):
    """Stores the format of standard output, and whether it is JSON; two that differ are refused."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, option_string: str | None = None
    ) -> None:
        chosen = self.const if self.nargs == 0 else values
        if chosen == "table":
            complain("--format table is an old spelling: use --format text", program=parser.prog)
            chosen = "text"
        earlier = getattr(namespace, "format", None)
        if earlier not in (None, chosen):
            shown = f"--format {chosen}" if option_string == "--format" else option_string
            other = f"--format {earlier}"
            pair = ("--json", shown) if earlier == "json" else (shown, other)
            raise UsageError(f"{pair[0]} does not go with {pair[1]}: give one of both")
        namespace.format = chosen
        namespace.json = chosen == "json"


class _Formats(tuple[str, ...]):
    """The choices of `--format`: `table`, an old one, is accepted and not shown."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return name == "table" or super().__contains__(name)


def add_format_flags(
    group: "_ActionsContainer",
    *,
    text: str | None = None,
    json: str,
    more: Sequence[str] = (),
    old: Sequence[str] = (),
) -> None:
    """Add `--format` and `--json`; parsed, `format` is what was given or None, and `json` a boolean.

    Args:
        group: Where the flags are added.
        text: Help of `--format`; when standard output is text.
        json: Help of `--json`.
        more: Formats besides text and json.
        old: Flags that had the meaning of `--format text`.
    """
    formats = _Formats(("text", "json", *more))
    group.add_argument("--format", choices=formats, action=_FormatAction, default=None, help=text)
    group.add_argument(
        "--json", action=_FormatAction, nargs=0, const="json", default=SUPPRESS, dest="json", help=json
    )
    for flag in old:
        add_old_flag(
            group, flag, use="--format text", dest="format", nargs=0, const="text", forward=_FormatAction
        )


@contextmanager
def given_by(flag: str, text: str) -> Iterator[None]:
    """Put a flag and what was given with it before what the block says is wrong with it.

    Args:
        flag: As it is typed.
        text: What was given.

    Raises:
        UsageError: The block raises one.
    """
    try:
        yield
    except UsageError as error:
        reason = str(error).removeprefix(f"{text!r}: ").removeprefix(f"port {text!r}: ")
        raise UsageError(f"{flag} {text or repr(text)}: {reason}") from error
