"""Modules that are loaded when a test first uses them: a worker reads all files of tests, and runs some."""

import importlib
from typing import Any


class LaterModule:
    """Stands for a module in the file that would import it, also where a test replaces a part of it.

    Args:
        name: The module's full name.
    """

    def __init__(self, name: str) -> None:
        vars(self)["_name"] = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)  # pytest asks whatever it finds in a file for these
        return getattr(importlib.import_module(vars(self)["_name"]), attribute)

    def __setattr__(self, attribute: str, value: object) -> None:
        setattr(importlib.import_module(vars(self)["_name"]), attribute, value)
