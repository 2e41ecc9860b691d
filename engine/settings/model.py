"""All settings: names, types, defaults, and how each value is read."""

from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from ..errors import UsageError
from ..files.base.input_file import show_text
from ..units import parse_duration

# The severities of findings.
AlertLevel = Literal["low", "medium", "high", "critical"]

# Events of a finding that alerts can be sent for.
AlertEvent = Literal["opened", "raised", "closed"]

# What a hook gets: our own object, or what another program reads.
AlertFormat = Literal["vramscope", "alertmanager", "kubernetes-event"]

COMMAND_KEY = "alerts.command"
WEBHOOK_KEY = "alerts.webhook_url"
ATTACH_KEY = "attach"
SERVING_KEY = "serving"
# Ignored in `./vramscope.toml`: whoever wrote that file is not who runs vramscope.
OWN_FILE_KEYS = frozenset({ATTACH_KEY, COMMAND_KEY, SERVING_KEY, WEBHOOK_KEY})


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When and how to alert people to findings; keys in the table are field names without `_s`."""

    level: AlertLevel = "medium"
    """Least severity that raises an alert, by a notice, the bell or a hook: `low`, `medium`, `high` or
    `critical`. The alerts screen lists every finding.
    """
    kinds: tuple[str, ...] = ()
    """Kinds of findings that raise alerts, such as `oom` and `leak`. Empty: all."""
    toast: bool = True
    """Whether to show a notice on the alerts line once when a finding opens or its severity rises."""
    bell: bool = True
    """Whether to also ring the terminal's bell, once, from `alerts.bell_level` on."""
    bell_level: AlertLevel = "high"
    """Least severity that rings the bell."""
    on: tuple[AlertEvent, ...] = ("opened", "raised", "closed")
    """Events that run hooks: a finding `opened`, its severity `raised`, it `closed`."""
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    """Program, with its arguments, that the agent runs at each of these events, without a shell. It gets the
    finding as JSON on its standard input, and in variables `VRAMSCOPE_FINDING_*`.
    """
    command_format: AlertFormat = "vramscope"
    """What the command gets on its standard input: `vramscope`, our own object; `alertmanager`, alerts of
    Alertmanager's API v2; or `kubernetes-event`, an event of the node that `kubectl create -f -` reads.
    """
    webhook_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/]\S*$")] | None = None
    """Address to which the agent posts the finding as JSON at each of these events."""
    webhook_format: AlertFormat = "vramscope"
    """What is posted there, in the same words: `alertmanager` for `http://…:9093/api/v2/alerts`."""
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 10.0
    """Seconds after which a hook that has not ended or answered is stopped."""


RECORD_FOLDER_KEY = "record.folder"


class RecordSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where recordings go; a key in the table is the field's name."""

    folder: str = "."
    """Folder for recordings that `R` in the live view starts; it is created if missing. `.` is the folder
    that vramscope was started in.
    """


# Colour themes of the screens.
ThemeName = Literal["dark", "light", "high-contrast", "mono"]

# Columns of the process list, by which it can be sorted.
SortColumn = Literal[
    "memory",
    "pid",
    "user",
    "device",
    "command",
    "share",
    "sm",
    "bandwidth",
    "cpu",
    "host_memory",
    "threads",
    "time",
    "type",
    "pod",
    "namespace",
    "container",
    "job",
]


# What the live view does about processes of this user that train and do not report.
AttachPolicy = Literal["ask", "mine", "never"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings; a key in a file is the field's name without its unit `_s`."""

    interval_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 1.0
    """Seconds from one published sample to the next."""
    memory_interval_s: Annotated[float, msgspec.Meta(ge=0.02, le=60)] = 0.1
    """Seconds from one reading of device memory to the next; each sample keeps the minimum and maximum, so
    that a short spike between two samples is seen.
    """
    history_window_s: Annotated[float, msgspec.Meta(ge=10, le=604800)] = 600.0
    """Seconds of history that a plot spans."""
    theme: ThemeName | None = None
    """Colours of the screens: `dark`, `light`, `high-contrast` or `mono`. Unset: chosen by the terminal."""
    color: bool | None = None
    """Whether to print in colour. Unset: in colour where the output is a terminal with colours; `NO_COLOR` in
    the environment counts as `false`.
    """
    ascii: bool | None = None
    """Whether to draw with ASCII characters only. Unset: ASCII where the locale is not UTF-8."""
    mouse: bool | None = None
    """Whether the live view uses the mouse; if not, the terminal's own selection works. Unset: it does,
    except inside GNU screen, which delays the Escape key while a program listens to the mouse.
    """
    read_only: bool = False
    """Whether to refuse every action that changes something: signals, advice, recordings and decisions about
    findings in the live view, and the verbs `attach`, `detach`, `advise` and `guard --prevent-oom`, which
    then exit with 6. The `vramscope.toml` of a folder can set it, but cannot unset it.
    """
    serving: tuple[str, ...] = ()
    """Servers of models to read besides those that vramscope finds on the node's devices: addresses such as
    `http://127.0.0.1:8000`, each perhaps followed by `=` and the path of its start-up log. `none`: look for
    no server.
    """
    attach: AttachPolicy = "never"
    """Whether the live view attaches to your own processes on this node's devices that use PyTorch and do not
    report: `ask` offers it once, `mine` attaches without asking, `never` waits for the key `a`.
    """
    sort: SortColumn = "memory"
    """Column by which the process list is sorted."""
    sort_reversed: bool = False
    """Whether the process list is sorted in reverse."""
    columns: tuple[SortColumn, ...] = ()
    """Columns of the process list, as chosen with `c`. Empty: the usual ones, and more if there is room."""
    tree: bool = False
    """Whether the process list is a tree of parents and children, as switched with `t`."""
    alerts: AlertSettings = AlertSettings()
    """The table `[alerts]`."""
    record: RecordSettings = RecordSettings()
    """The table `[record]`."""


# Fields of `Settings` that are tables in a file; their settings have keys such as `alerts.bell`.
TABLES: dict[str, type[msgspec.Struct]] = {"alerts": AlertSettings, "record": RecordSettings}


def _list_fields() -> list[str]:
    fields: list[str] = []
    for field in Settings.__struct_fields__:
        inside = TABLES[field].__struct_fields__ if field in TABLES else ()
        fields += [f"{field}.{name}" for name in inside] or [field]
    return fields


# Key in a settings file to field of `Settings`; both begin with the name of their table and a dot.
SETTING_KEYS: dict[str, str] = {field.removesuffix("_s"): field for field in _list_fields()}


_TYPES: dict[str, Any] = get_type_hints(Settings, include_extras=True) | {
    f"{table}.{field}": hint
    for table, struct in TABLES.items()
    for field, hint in get_type_hints(struct, include_extras=True).items()
}
_OTHER_EXPECTATIONS = {
    COMMAND_KEY: "a program with its arguments, as one text or as a list",
    WEBHOOK_KEY: "an address that begins with http:// or https://",
    RECORD_FOLDER_KEY: "a folder, in quotation marks",
}
_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def convert_value(key: str, value: object) -> object:
    """Convert a value to the type of its setting.

    Args:
        key: Key of the setting, as in a settings file.
        value: A TOML value, or the text of a flag or variable.

    Raises:
        UsageError: The value does not fit; the text says what was expected, the caller says where.
    """
    field = SETTING_KEYS[key]
    try:
        return msgspec.convert(_prepare(field, value), _TYPES[field])
    except (msgspec.ValidationError, UsageError, OverflowError) as error:
        raise UsageError(f"expected {describe_expectation(key)}") from error


def describe_expectation(key: str) -> str:
    """Describe in words the values of a setting."""
    field = SETTING_KEYS[key]
    if _is_duration(field):
        meta = next(part for part in get_args(_TYPES[field]) if isinstance(part, msgspec.Meta))
        return f"seconds or a duration such as 500ms, 90s or 10m, from {meta.ge:g} to {meta.le:g} seconds"
    if key in _OTHER_EXPECTATIONS:
        return _OTHER_EXPECTATIONS[key]
    choices = ", ".join(list_choices(key))
    if _is_list(field):
        return f"a list of words out of {choices}" if choices else "a list of words"
    return f"one of {choices}" if choices else "true or false"


def list_choices(key: str) -> tuple[str, ...]:
    """Return the words a setting can be, or () if it is not a choice among words."""
    hint = _TYPES[SETTING_KEYS[key]]
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            return get_args(part)
    return ()


def _prepare(field: str, value: object) -> object:
    """Convert text that a person wrote closer to the type of its field."""
    if isinstance(value, str) and _is_duration(field):
        return parse_duration(value)
    if isinstance(value, int) and not isinstance(value, bool) and _is_duration(field):
        return float(value)
    if isinstance(value, str) and field == COMMAND_KEY:
        return _split_command(value)
    if isinstance(value, str) and _is_list(field):
        return [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(value, str) and field != RECORD_FOLDER_KEY and not list_choices(field.removesuffix("_s")):
        return _WORDS.get(value.strip().lower(), value)
    return value


def _is_duration(field: str) -> bool:
    return field.endswith("_s")


def _is_list(field: str) -> bool:
    return get_origin(_TYPES[field]) is tuple


def _split_command(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"a quotation mark is not closed in {text!r}") from error


def show_value(key: str, value: object) -> str:
    """Return a value as it may be printed: an address may have a secret in it, and is not repeated."""
    if key == WEBHOOK_KEY:
        return "…"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{show_text(value)}"'
    try:
        return show_text(str(value))
    except ValueError:  # an int of more digits than Python prints
        return "a number with thousands of digits"
