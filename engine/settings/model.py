"""The settings themselves; the sentence under each field is its documentation."""

from typing import Annotated, Literal

import msgspec

from .alerts import AlertSettings
from .record import RecordSettings

ThemeName = Literal["dark", "light", "high-contrast", "mono"]
"""Colour themes of the screens."""

SortColumn = Literal["memory", "pid", "user", "device", "command", "share"]
"""Columns by which the process list can be sorted."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a person can set; a key in a file is the field's name without its unit `_s`."""

    interval_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 1.0
    """Seconds from one published sample to the next."""
    memory_interval_s: Annotated[float, msgspec.Meta(ge=0.02, le=60)] = 0.1
    """Seconds from one reading of device memory to the next; the least and the most of a sample's span
    are kept, so that a short spike between two samples is seen."""
    history_window_s: Annotated[float, msgspec.Meta(ge=10, le=604800)] = 600.0
    """Seconds of history that a plot spans."""
    theme: ThemeName | None = None
    """Colours of the screens: `dark`, `light`, `high-contrast` or `mono`. Without it vramscope chooses by
    the terminal."""
    color: bool | None = None
    """Whether to print in colour. Without it colour is used where the output is a terminal that has it;
    `NO_COLOR` in the environment counts as `false`."""
    ascii: bool | None = None
    """Whether to draw with ASCII characters only. Without it ASCII is used where the locale is not UTF-8."""
    mouse: bool | None = None
    """Whether the live view takes the mouse; without it the terminal's own selection works. Unset it does,
    except inside GNU screen, which holds the Escape key back while a program listens to the mouse."""
    read_only: bool = False
    """Whether to refuse every action that changes something: signals, advice, recordings and decisions about
    findings in the live view, and the verbs `attach`, `detach`, `advise` and `guard --prevent-oom`, which
    then exit with 6. The `vramscope.toml` of a folder can set it, and cannot take it back."""
    sort: SortColumn = "memory"
    """Column by which the process list is sorted."""
    sort_reversed: bool = False
    """Whether the process list is sorted the other way round."""
    alerts: AlertSettings = AlertSettings()
    """The table `[alerts]`."""
    record: RecordSettings = RecordSettings()
    """The table `[record]`."""


TABLES: dict[str, type[msgspec.Struct]] = {"alerts": AlertSettings, "record": RecordSettings}
"""Fields of `Settings` that are tables in a file; their settings have keys such as `alerts.bell`."""


def _list_fields() -> list[str]:
    fields: list[str] = []
    for field in Settings.__struct_fields__:
        inside = TABLES[field].__struct_fields__ if field in TABLES else ()
        fields += [f"{field}.{name}" for name in inside] or [field]
    return fields


SETTING_KEYS: dict[str, str] = {field.removesuffix("_s"): field for field in _list_fields()}
"""Key in a settings file to field of `Settings`; both have the name of their table before a dot."""
