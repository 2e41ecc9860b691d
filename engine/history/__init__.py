"""The past: a ring of columns per device, and views of it that a screen can draw."""

from .block import HistoryBlock
from .history import Field, History
from .views import HistoryColumns

__all__ = ["Field", "History", "HistoryBlock", "HistoryColumns"]
