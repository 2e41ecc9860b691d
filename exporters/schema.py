"""The JSON Schemas of printed objects, generated from their structs."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from typing import Any

import msgspec
import msgspec.inspect

from ..engine.settings import SETTING_KEYS, Settings
from ..engine.settings.model import TABLES, describe_expectation

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

SCHEMAS = {
    "calibration": ("vramscope.calibration/1", "analyzers.planning.theory.calibration", "Calibration"),
    "compiled-estimate": (
        "vramscope.compiled-estimate/1",
        "analyzers.planning.steps.compiled",
        "CompiledEstimate",
    ),
    "device-profile": ("vramscope.device-profile/1", "exporters.device_profile", "DeviceProfileReport"),
    "difference": ("vramscope.difference/1", "analyzers.diff", "RunDifference"),
    "estimate": ("vramscope.estimate/1", "exporters.estimates", "EstimateReport"),
    "factory-estimate": ("vramscope.factory-estimate/1", "analyzers.planning.steps", "StepEstimate"),
    "fleet": ("vramscope.fleet/1", "exporters.status.document", "FleetExport"),
    "guard": ("vramscope.guard/1", "exporters.status.guard", "GuardLine"),
    "joint-plan": ("vramscope.joint-plan/1", "exporters.plan.joint", "JointPlanReport"),
    "moment": ("vramscope.moment/1", "exporters.inspect.moment", "MomentReport"),
    "phase-records": ("vramscope.phase-records/1", "exporters.phases.report", "PhaseRecordReport"),
    "phases": ("vramscope.phases/1", "exporters.phases.report", "PhaseReport"),
    "plan": ("vramscope.plan/1", "analyzers.planning.partition", "Plan"),
    "plan-feedback": ("vramscope.plan-feedback/1", "analyzers.planning.feedback", "PlanFeedback"),
    "seqlen": ("vramscope.seqlen/1", "exporters.seqlen.text", "LengthReport"),
    "serving-estimate": ("vramscope.serving-estimate/1", "analyzers.planning.serving", "ServingReport"),
    "serving-log": ("vramscope.serving-log/1", "exporters.serving.start_log", "ServingLogReport"),
    "snapshot-difference": (
        "vramscope.snapshot-difference/1",
        "analyzers.snapshot_summary.comparison",
        "SnapshotDifference",
    ),
    "status": ("vramscope.status/1", "engine.model", "NodeStatus"),
    "sweep": ("vramscope.sweep/1", "exporters.sweep.report", "IndexReport"),
}
"""What is printed as JSON, by the name of its file in `docs/`: title, module below vramscope, and struct."""


def build_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one of `SCHEMAS`.

    Every field is required because every field is always printed; what was not measured is null. A
    reader must accept fields it does not know: later versions may add some.
    """
    title, module, struct = SCHEMAS[name]
    root = getattr(import_module(f"vramscope.{module}"), struct)
    structs = {it.__name__: it for it in _list_structs(msgspec.inspect.type_info(root))}
    schema = msgspec.json.schema(root)
    definitions: dict[str, dict[str, Any]] = schema.pop("$defs")
    for defined, definition in definitions.items():
        _complete(definition, read_field_docs(structs[defined]))
    return {
        "$schema": _DRAFT,
        "title": title,
        "$ref": schema["$ref"],
        "$defs": dict(sorted(definitions.items())),
    }


def render_schema(name: str) -> str:
    return json.dumps(build_schema(name), indent=2, ensure_ascii=False) + "\n"


def _list_structs(part: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a type is made of, as msgspec describes it."""
    if isinstance(part, msgspec.inspect.StructType):
        yield part.cls
    if isinstance(part, msgspec.Struct):
        for field in part.__struct_fields__:
            yield from _list_structs(getattr(part, field))
    elif isinstance(part, tuple):
        for one in part:
            yield from _list_structs(one)


def _complete(definition: dict[str, Any], docs: dict[str, str]) -> None:
    """Require every field and describe it."""
    properties: dict[str, dict[str, Any]] = definition["properties"]
    definition["required"] = list(properties)
    for field, field_schema in properties.items():
        field_schema.pop("default", None)
        if field in docs:
            field_schema["description"] = docs[field]


# The sentences under the fields of a struct, for documents and schemas that are made from it.


def read_field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return field to the docstring written under it, as one line; fields without one are left out."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct)))
    definition = tree.body[0]
    docs: dict[str, str] = {}
    if not isinstance(definition, ast.ClassDef):
        return docs
    for field, following in pairwise(definition.body):
        text = _text_of(following)
        if text is not None and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            docs[field.target.id] = " ".join(text.split())
    return docs


def _text_of(node: ast.stmt) -> str | None:
    """Return the text of a statement that is nothing but a string."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else None
    return None


# The page `docs/settings.md`: every setting with its documentation, made from the settings themselves.

_HEAD = """\
# Settings

Every setting can be given in five places. The first that has it wins:

1. a flag: `--theme light`
2. an environment variable: `VRAMSCOPE_THEME=light`
3. `vramscope.toml` in the current folder: `theme = "light"`
4. the user's file, `$XDG_CONFIG_HOME/vramscope/config.toml` (usually `~/.config/vramscope/config.toml`)
5. the default

`--config FILE` or `VRAMSCOPE_CONFIG=FILE` reads that file in place of 3 and 4. `F12` in the live view saves
the look and the sorting into the user's file (or into the one `--config` names); comments and order stay as
they are, which needs `pip install 'vramscope[settings]'` (tomlkit). An unknown setting, or a value that is
not valid, is refused with file, line and what was expected. `vramscope doctor` lists the settings in use and
where each was set.

Durations are seconds (`0.5`) or text with a unit (`"500ms"`, `"90s"`, `"10m"`, `"2h"`).

A setting with a dot in its name stands in a table: `alerts.bell` is `bell` under `[alerts]`. In a variable a
list is words with commas between them. What makes vramscope run a program, send something elsewhere or change
processes (`alerts.command`, `alerts.webhook_url`, `attach`, `serving`) is refused in `./vramscope.toml`,
which may have come with somebody else's repository.

"""

_TAIL = """\
## Other variables

- `VRAMSCOPE_RUNTIME_DIR`: private folder that an agent and its viewers share. Default:
  `$XDG_RUNTIME_DIR/vramscope`, else `/tmp/vramscope-<uid>`. It must be this user's own and closed to others.
- `VRAMSCOPE_NODE`: name under which this node is shown. Default: the first label of the host name.
- `VRAMSCOPE_ROOT`: folder that stands for `/` when devices and the host are read, as in a container that
  has the host's `/sys`, `/proc` and `/dev` below `/host`. Default: `/`.
- `VRAMSCOPE_SSH_COMMAND`: what starts vramscope on the nodes of `--ssh`, where its name alone does not.
- `VRAMSCOPE_DEBUG`: with any value an internal error prints its traceback; without, it is written to a file.
- `NO_COLOR`: with any value nothing is printed in colour (see <https://no-color.org>).
"""


def render_settings_page() -> str:
    docs = read_field_docs(Settings)
    for table, struct in TABLES.items():
        docs |= {f"{table}.{field}": text for field, text in read_field_docs(struct).items()}
    defaults = Settings()
    parts = [_HEAD]
    for key, field in SETTING_KEYS.items():
        default = _describe_default(attrgetter(field)(defaults))
        variable = f"VRAMSCOPE_{key.upper().replace('.', '_')}"
        parts.append(
            f"## `{key}`\n\n{docs[field]}\n\n"
            f"Takes {describe_expectation(key)}. Default: {default}. Variable: `{variable}`.\n\n"
        )
    return "".join(parts) + _TAIL


def _describe_default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, tuple):
        return f"`[{', '.join(chr(34) + word + chr(34) for word in value)}]`"
    return f"`{value:g}`" if isinstance(value, float) else f'`"{value}"`'
