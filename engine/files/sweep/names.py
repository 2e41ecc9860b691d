"""The size label by which folders of a sweep name their model, such as `485B`."""

import re
from pathlib import Path

_MODEL = re.compile(r"([0-9]+(?:[.,][0-9]+)?[bt])(?=_|$)", re.IGNORECASE)


def find_model_in_name(folder: Path) -> str | None:
    """Return the size label that the name of a folder begins with, None where there is none."""
    match = _MODEL.match(folder.resolve().name)
    return None if match is None else match[1]


def is_same_model(one: str, other: str) -> bool:
    """Return whether two size labels name one model: `485B`, `485b` and `485` do."""
    return normalize_model(one) == normalize_model(other)


def normalize_model(model: str) -> str:
    """Return a size label in the form in which equal ones are equal."""
    return model.upper().replace(",", ".").removesuffix("B")
