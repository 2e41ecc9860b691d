"""What the site has besides the pages of this folder; mkdocs calls these functions (`make docs`).

Pages made here: the command line, from its parser; the JSON Schemas; the changelog and the architecture, from
the folder above.
"""

import argparse
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

from vramscope.cli.frame.parse import build_parser

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 96
"""Width of the printed help."""
ABOVE = ("CHANGELOG.md", "ARCHITECTURE.md")
TO_DOCS = re.compile(r"\]\(docs/")
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?!ARCHITECTURE|CHANGELOG)[^)]*\)")
"""A link to a file of the repository that the site does not have."""
UP = re.compile(r"\]\(\.\./(ARCHITECTURE|CHANGELOG)\.md")
HOME = re.compile(r"\]\(README\.md\)")


def on_files(files: Files, config: "MkDocsConfig") -> Files:
    """Add the pages that are made here."""
    pages = {"cli.md": render_command_line(), "schemas.md": render_schemas()}
    for name in ABOVE:
        text = (ROOT / name).read_text(encoding="utf-8")
        pages[name] = HOME.sub("](index.md)", TO_DOCS.sub("](", text))
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: Files) -> str:
    """Return a page whose links stay within the site."""
    return UP.sub(r"](\1.md", OUTSIDE.sub(r"\1", markdown))


def render_command_line() -> str:
    """Return the page of the command line: the help of the program and of every verb, as it is printed."""
    os.environ["COLUMNS"] = str(COLUMNS)
    parser = build_parser()
    (verbs,) = (it for it in parser._actions if isinstance(it, argparse._SubParsersAction))
    lines = [
        "# The command line",
        "",
        "`vramscope --help` and `vramscope VERB --help` print this.",
        "",
        *_render_help("vramscope", parser.format_help()),
        *_render_help("vramscope help flags", parser.format_flags()),
    ]
    for name, subparser in sorted(verbs.choices.items()):
        lines += _render_help(f"vramscope {name}", subparser.format_help())
    return "\n".join(lines)


def _render_help(title: str, text: str) -> list[str]:
    return [f"## {title}", "", "```text", text.rstrip(), "```", ""]


def render_schemas() -> str:
    """Return the page of the JSON Schemas, with the fields of the outermost object of each."""
    lines = [
        "# JSON Schemas",
        "",
        "What vramscope prints as JSON follows these schemas (JSON Schema, draft 2020-12). Every field is",
        "always there; what was not measured is `null`. Later versions may add fields: accept them.",
    ]
    for path in sorted((ROOT / "docs").glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        lines += ["", f"## {schema['title']}", "", f"[{path.name}]({path.name})", "", *_render_fields(schema)]
    return "\n".join(lines) + "\n"


def _render_fields(schema: dict[str, Any]) -> list[str]:
    root = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for name, field in root["properties"].items():
        meaning = field.get("description", "").replace("|", "\\|")
        rows.append(f"| `{name}` | {_name_type(field)} | {meaning} |")
    return rows


def _name_type(field: dict[str, Any]) -> str:
    """Return a field's type in words: `number or null`, `list of Finding`."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(map(_name_type, field["anyOf"])))
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if field.get("type") == "array":
        return f"list of {_name_type(field['items'])}" if field.get("items") else "list"
    if "const" in field or "enum" in field:
        return ", ".join(f"`{it}`" for it in field.get("enum", [field.get("const")]))
    return str(field.get("type", "any"))
