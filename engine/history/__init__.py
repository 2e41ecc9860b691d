"""The past: a ring of columns per device, and bucketed views of it for drawing."""

from .block import HOST_KEY, HistoryBlock
from .history import Field, History, HistoryColumns

__all__ = ["HOST_KEY", "Field", "History", "HistoryBlock", "HistoryColumns"]
