"""Settings: what may be set, where it is set, and how it is saved."""

from .alerts import AlertEvent, AlertLevel, AlertSettings
from .layers import LoadedSettings, load_settings
from .model import SETTING_KEYS, Settings, SortColumn, ThemeName
from .record import RecordSettings
from .saving import save_settings

__all__ = [
    "SETTING_KEYS",
    "AlertEvent",
    "AlertLevel",
    "AlertSettings",
    "LoadedSettings",
    "RecordSettings",
    "Settings",
    "SortColumn",
    "ThemeName",
    "load_settings",
    "save_settings",
]
