"""The sentences under the fields of a struct, for documents and schemas that are made from it."""

import ast
import inspect
import textwrap
from itertools import pairwise

import msgspec


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
