"""The JSON Schema of the status object, made from the structs that are printed."""

import json
from typing import Any

import msgspec

from ..engine.model import NodeStatus, assessment, device, finding, host, rank, status
from .field_docs import read_field_docs

_STRUCTS: dict[str, type[msgspec.Struct]] = {
    name: value
    for module in (assessment, device, finding, host, rank, status)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, msgspec.Struct)
}


def build_status_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of `vramscope.status/1`.

    Every field is required because every field is always printed; what was not measured is null. A
    reader must accept fields it does not know: later versions may add some.
    """
    schema = msgspec.json.schema(NodeStatus)
    definitions: dict[str, dict[str, Any]] = schema.pop("$defs")
    for name, definition in definitions.items():
        _complete(definition, read_field_docs(_STRUCTS[name]))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vramscope.status/1",
        "$ref": schema["$ref"],
        "$defs": dict(sorted(definitions.items())),
    }


def render_status_schema() -> str:
    """Return the schema as the text of `docs/status.schema.json`."""
    return json.dumps(build_status_schema(), indent=2, ensure_ascii=False) + "\n"


def _complete(definition: dict[str, Any], docs: dict[str, str]) -> None:
    """Require every field and describe it."""
    properties: dict[str, dict[str, Any]] = definition["properties"]
    definition["required"] = list(properties)
    for field, field_schema in properties.items():
        field_schema.pop("default", None)
        if field in docs:
            field_schema["description"] = docs[field]
