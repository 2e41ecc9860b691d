"""The shapes that reports must have, written by hand from the original's; ours are supersets of them."""

import json
from pathlib import Path
from typing import Any

import jsonschema

SHAPES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("shapes.json").read_text(encoding="utf-8")
)


def check_shape(verb: str, report: dict[str, Any]) -> None:
    """Fail where a report lacks a field of the original, or has another type or unit in it."""
    jsonschema.validate(report, SHAPES[verb])
