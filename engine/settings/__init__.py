"""Settings: what may be set, where it is set, and how it is saved."""

from .layers import LoadedSettings, load_settings, save_settings
from .model import (
    SETTING_KEYS,
    AlertEvent,
    AlertLevel,
    AlertSettings,
    AttachPolicy,
    RecordSettings,
    Settings,
    SortColumn,
    ThemeName,
)

__all__ = [
    "SETTING_KEYS",
    "AlertEvent",
    "AlertLevel",
    "AlertSettings",
    "AttachPolicy",
    "LoadedSettings",
    "RecordSettings",
    "Settings",
    "SortColumn",
    "ThemeName",
    "load_settings",
    "save_settings",
]
