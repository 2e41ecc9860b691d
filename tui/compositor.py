"""A compositor that sends only the cells that differ from what the terminal already shows."""

from typing import TypeVar

from textual.screen import Screen

ResultT = TypeVar("ResultT")


class ThriftyScreen(Screen[ResultT]):
    """A screen whose updates cost few bytes; every screen of the application derives from it."""
