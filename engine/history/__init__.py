"""The past: a ring of columns per device, and views of it that a screen can draw."""

from .history import Field, History, HistoryColumns

__all__ = ["Field", "History", "HistoryColumns"]
