"""Flags: readings of their values, conflicts between them, and the flags that several verbs share."""

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

from vramscope.engine.errors import ErrorPart, OutputFileError, Setting, SettingError, UsageError
from vramscope.engine.settings.model import list_choices
from vramscope.engine.units import parse_bytes, parse_device_bytes, parse_duration

from .emit import complain
from .errors import EXIT_FINDINGS

if TYPE_CHECKING:
    from argparse import _ActionsContainer, _ArgumentGroup

ValueT = TypeVar("ValueT")
_MOST_DIGITS = 20
# Sides of a figure in inches, and dots an inch.
_MOST_IN = 100.0
_MOST_DPI = 2400


class Reading(Generic[ValueT]):
    """A `type=` for `add_argument`; the parser puts the flag and its text before the error.

    Args:
        read: Returns the value of a text; raises a `UsageError` that says what was expected.
        flag: What the error calls the flag; None for the name in the help.
        shown: Characters of the text that the error repeats; None for all.
        is_path: The text is a path, which the parser checks before it is read.
        number: Type of a number that a program may pass in place of the text; None where it is no number.
    """

    def __init__(
        self,
        read: Callable[[str], ValueT],
        *,
        flag: str | None = None,
        shown: int | None = None,
        is_path: bool = False,
        number: type[int] | type[float] | None = None,
    ) -> None:
        self._read = read
        self._flag = flag
        self._shown = shown
        self.is_path = is_path
        self.number = number

    def __call__(self, text: str) -> ValueT:
        return self._read(text)

    def read_for(self, action: Action, text: str) -> ValueT:
        try:
            return self._read(text)
        except UsageError as error:
            name = action.use.split()[0] if isinstance(action, OldFlag) else action.option_strings[-1]
            raise SettingError(
                Setting(self._flag or name), f" {text[: self._shown]}: ", *error.args
            ) from error


def checked(
    read: Callable[[str], ValueT],
    is_good: Callable[[ValueT], bool],
    expected: str,
    *,
    shown: int | None = None,
) -> Reading[ValueT]:
    """Return a reading that refuses values which fail a test, and says what was expected."""

    def read_checked(text: str) -> ValueT:
        value = read(text)
        if not is_good(value):
            raise UsageError(f"expected {expected}")
        return value

    return Reading(read_checked, shown=shown)


def size(is_good: Callable[[int], bool] = lambda size_bytes: True, expected: str = "") -> Reading[int]:
    return checked(parse_bytes, is_good, expected)


def duration(is_good: Callable[[float], bool] = lambda seconds: True, expected: str = "") -> Reading[float]:
    return checked(parse_duration, is_good, expected)


def between(least: float, most: float, *, flag: str | None = None) -> Reading[float]:
    def read(text: str) -> float:
        value = parse_number(text)
        if not least <= value <= most:
            raise UsageError(f"expected a number from {least:g} to {most:g}")
        return value

    return Reading(read, flag=flag, number=float)


def parse_number(text: str) -> float:
    """Return a number; NaN, which is in no range, for any other text."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def whole(least: int, most: int, expected: str = "", *, shown: int | None = None) -> Reading[int]:
    """Return a reading of a whole number from `least` to `most`.

    Args:
        expected: What the error says was expected; the range by default.
    """

    def read(text: str) -> int:
        if text.isdecimal() and len(text) <= _MOST_DIGITS and least <= int(text) <= most:
            return int(text)
        raise UsageError(f"expected {expected or f'a whole number from {least} to {most:,}'}")

    return Reading(read, shown=shown, number=int)


def refuse(given: Mapping[str, object], *why: ErrorPart) -> None:
    """Refuse flags that conflict with others.

    Args:
        given: Value of each flag by its name; None, False and an empty list mean the flag was not given.
    """
    for flag, value in given.items():
        if value is not None and value is not False and value != []:
            raise SettingError(Setting(flag), " ", *why)


def pick(arguments: Namespace, names: Iterable[str]) -> dict[str, object]:
    """Return flags with their values, for `refuse`."""
    return {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in names}


class OldFlag(Action):
    """An old spelling of a flag: works as the new one, names it on stderr, and is not in the help."""

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
        self.say(parser.prog)

    def say(self, program: str) -> None:
        complain(f"{self.option_strings[0]} is an old spelling: use {self.use}", program=program)


def add_old_flag(group: "_ActionsContainer", flag: str, *, use: str, dest: str, **options: object) -> None:
    add: Callable[..., object] = group.add_argument
    add(flag, action=OldFlag, use=use, dest=dest, **options)


class _FormatAction(Action):
    """Stores the format of standard output, and whether it is JSON; refuses two different formats."""

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
            raise UsageError(f"{pair[0]} does not go with {pair[1]}: give only one")
        namespace.format = chosen
        namespace.json = chosen == "json"


class _Formats(tuple[str, ...]):
    """The choices of `--format`; the old `table` is accepted but not listed."""

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
    """Add `--format` and `--json`; parsed, `format` is the one given or None, and `json` a boolean.

    Args:
        text: Help of `--format`.
        json: Help of `--json`.
        more: Further formats.
        old: Old spellings of `--format text`.
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
    """Put a flag and its value before the message of a `UsageError` raised in the block."""
    try:
        yield
    except UsageError as error:
        reason = str(error).removeprefix(f"{text!r}: ").removeprefix(f"port {text!r}: ")
        raise UsageError(f"{flag} {text or repr(text)}: {reason}") from error


ENDINGS = (".pdf", ".png", ".svg")
# Formats in which each figure is written into a folder.
ALL_KINDS: tuple[Literal["png", "pdf"], ...] = ("png", "pdf")


class FigureTarget(NamedTuple):
    path: Path
    is_folder: bool

    @property
    def file(self) -> Path | None:
        """The one file; None for a folder."""
        return None if self.is_folder else self.path

    def list_files(self, name: str, kinds: Sequence[str] = ALL_KINDS) -> list[Path]:
        """Return the files of a figure: the named one, or one of each kind in the folder."""
        return [self.make() / f"{name}.{kind}" for kind in kinds] if self.is_folder else [self.path]

    def check(self) -> None:
        """Check before long work that figures can be drawn and written there; nothing is written."""
        from vramscope.engine.extras import require_package
        from vramscope.engine.files.base.output_file import check_writable

        require_package("matplotlib")
        check_writable(self.path / "figure.part" if self.path.is_dir() else self.path)

    def make(self) -> Path:
        from vramscope.engine.files.base.input_file import show_path
        from vramscope.engine.files.base.output_route import make_folder

        try:
            make_folder(self.path, exist_ok=True)
        except OSError as error:
            raise OutputFileError(
                f"{show_path(self.path)}: cannot make this folder: {error.strerror}; name another with "
                "--figure DIR/"
            ) from error
        return self.path


def read_figure(text: str) -> FigureTarget:
    """Return where the figures go: `plots/` and an existing folder are folders, `run.pdf` is a file."""
    path = Path(text)
    if text.endswith("/") or path.is_dir():
        return FigureTarget(path, is_folder=True)
    if path.suffix.lower() in ENDINGS:
        return FigureTarget(path, is_folder=False)
    raise UsageError(
        f"expected a name that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, or a folder with a slash "
        f"at its end: {text}/"
    )


FIGURE = Reading(read_figure, is_path=True)


def read_old_figure(text: str) -> FigureTarget:
    """Return where figures go by the rule of the old `-o`: a known ending is a file, all else a folder."""
    path = Path(text)
    return FigureTarget(path, is_folder=path.is_dir() or path.suffix.lower() not in ENDINGS)


def add_figure_flag(group: "_ActionsContainer", text: str, *, flag: str = "--figure") -> None:
    """Add a flag whose value is a `FigureTarget` or None; `text` says what a FILE shows."""
    group.add_argument(
        flag,
        metavar="FILE|DIR/",
        type=FIGURE,
        help=f"{text} (.pdf, .png or .svg); DIR/ gets all figures",
    )


def add_figure_size_flags(group: "_ActionsContainer", *, size: str, dots: str) -> None:
    """Add `--figsize` and `--dpi`; the texts say what holds without them, and whose dots are meant."""
    group.add_argument(
        "--figsize",
        metavar=("W", "H"),
        nargs=2,
        type=between(0.5, _MOST_IN),
        help=f"size of the figure in inches (default: {size})",
    )
    group.add_argument("--dpi", metavar="N", type=between(10, _MOST_DPI), help=f"dots per inch of {dots}")


MIN_SPEED = 0.001
MAX_SPEED = 10_000.0
SPEED = checked(
    lambda text: parse_number(text.removesuffix("x")),
    lambda speed: MIN_SPEED <= speed <= MAX_SPEED,
    f"a number from {MIN_SPEED:g} to {MAX_SPEED:g}",
)


CAPACITY = checked(
    parse_device_bytes, lambda size_bytes: size_bytes > 0, "a size above zero, for example 80GiB"
)


def build_common_flags() -> ArgumentParser:
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    group = flags.add_argument_group("settings")
    group.add_argument("--config", metavar="FILE", type=Path, help="read only this settings file")
    group.add_argument(
        "--runtime-dir", metavar="DIR", type=Path, help="private folder of the agent and its viewers"
    )
    group.add_argument("-h", "--help", action="help", help="print this help and exit")
    return flags


def build_sampling_flags() -> ArgumentParser:
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    group = flags.add_argument_group("sampling")
    group.add_argument("--interval", metavar="TIME", help="time between samples (default 1s)")
    group.add_argument(
        "--memory-interval",
        metavar="TIME",
        help="time between readings of device memory within a sample (default 100ms)",
    )
    group.add_argument(
        "--serving",
        metavar="URL[=LOG]",
        action="append",
        help="read a server of models there too, and its start-up log (repeatable; none: look for no server)",
    )
    return flags


def build_look_flags() -> ArgumentParser:
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    _add_look(flags.add_argument_group("view"))
    return flags


def build_view_flags(*, is_live: bool = False) -> ArgumentParser:
    """`is_live`: it shows processes that run, and not only a recording or a job of ours."""
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    group = flags.add_argument_group("view")
    _add_look(group)
    add_read_only_flag(group)
    if is_live:
        group.add_argument(
            "--attach",
            metavar="WHEN",
            nargs="?",
            const="ask",
            choices=list_choices("attach"),
            help="attach to your own PyTorch processes that do not report: ask (if no WHEN), mine, never",
        )
    columns = list_choices("sort")
    group.add_argument(
        "--sort", metavar="COLUMN", choices=columns, help=f"sort processes by {_join_choices(columns)}"
    )
    return flags


def add_read_only_flag(group: "ArgumentParser | _ArgumentGroup") -> None:
    """Add the flag that refuses every change, also to verbs that do nothing but change something."""
    group.add_argument(
        "--read-only",
        action="store_true",
        default=SUPPRESS,
        help="change nothing: no signal, no attach, no advice",
    )


def _add_look(group: "_ArgumentGroup") -> None:
    themes = list_choices("theme")
    group.add_argument("--theme", metavar="NAME", choices=themes, help=f"colours: {_join_choices(themes)}")
    group.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    group.add_argument("--color", action="store_true", help="print in colour, also into a pipe")
    group.add_argument("--no-color", dest="color", action="store_false", help="print without colour")


def _join_choices(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def add_replay_flags(parser: ArgumentParser, *, interval_flag: str, is_hidden: bool = False) -> None:
    """Add the flags of a replay to a verb; `interval_flag` names the one for the interval in the trace."""

    def add(flag: str, dest: str, text: str, metavar: str, kind: Reading[float] | Reading[int]) -> None:
        default = "1" if dest == "speed" else None
        shown = SUPPRESS if is_hidden else text
        parser.add_argument(flag, dest=dest, metavar=metavar, type=kind, default=default, help=shown)

    add("--speed", "speed", "play N times as fast as recorded (default 1)", "N", SPEED)
    add("--capacity", "capacity", "memory of the recorded devices, for example 80GiB", "SIZE", CAPACITY)
    text = "recorded time between samples (default: as in the file; 100ms for memory traces)"
    add(interval_flag, "replay_interval", text, "TIME", Reading(parse_duration, flag="--interval"))


def add_endpoint_flags(parser: ArgumentParser) -> "_ArgumentGroup":
    """Add the flags of verbs that serve or push metrics, except `--insecure`; return their group."""
    group = parser.add_argument_group("metrics")
    group.add_argument(
        "--prometheus",
        metavar="ADDRESS:PORT",
        nargs="?",
        const="",
        help="serve /metrics there (default 127.0.0.1:9464; :PORT means loopback too)",
    )
    group.add_argument(
        "--web-config",
        metavar="FILE",
        type=Path,
        help="web configuration file as of Prometheus exporters: TLS certificate, passwords",
    )
    group.add_argument(
        "--dcgm-names",
        action="store_true",
        help="serve device metrics under the names of dcgm-exporter too",
    )
    group.add_argument(
        "--otlp",
        metavar="URL",
        nargs="?",
        const="",
        help="push to this OpenTelemetry collector by OTLP over HTTP (default http://localhost:4318)",
    )
    return group


def add_fit_flag(group: "_ArgumentGroup") -> None:
    group.add_argument(
        "--fail-on", choices=("unfit",), help="exit with 3 if it does not fit (default: exit with 0)"
    )


def choose_fit_code(arguments: Namespace, *, does_fit: bool | None) -> int:
    """Return 3 where something does not fit and `--fail-on unfit` is given, else 0.

    Args:
        does_fit: None where it is not known.
    """
    return EXIT_FINDINGS if does_fit is False and arguments.fail_on is not None else 0
