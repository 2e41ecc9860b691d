"""List the flags of a checkout of Megatron-LM that no table of the memory theory has.

    python -m benchmarks.megatron_flags CHECKOUT
    python -m benchmarks.megatron_flags CHECKOUT --all > tests/analyzers/planning/theory/megatron_flags.txt

Sources are read and never run: calls of `add_argument`, the fields of the configurations that become flags,
and the names that `validate_args` adds, which the log of a run has too.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from vramscope.analyzers.planning.theory.configs.audit import is_known

ARGUMENTS = Path("megatron/training/arguments.py")
FACTORY = "ArgumentGroupFactory"


def main() -> int:
    """Print the flags; return 1 where one is in no table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.megatron_flags", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--all", action="store_true", help="all flags, not only those that no table has")
    options = parser.parse_args()
    flags = sorted(set(list_flags(options.checkout)))
    unknown = [flag for flag in flags if not is_known(flag)]
    print("\n".join(flags if options.all else unknown))
    print(f"{len(flags)} flags, {len(unknown)} in no table", file=sys.stderr)
    return 1 if unknown else 0


def list_flags(checkout: Path) -> Iterator[str]:
    """Yield the flags of a checkout, with hyphens and in lower case."""
    tree = ast.parse((checkout / ARGUMENTS).read_text(encoding="utf-8"))
    classes = _find_classes(checkout)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        lists = dict(_find_lists(function))
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                yield from map(_normalize, _list_of_call(node, lists, classes))
            elif isinstance(node, ast.Assign):
                yield from map(_normalize, _list_assigned(node))


def _normalize(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()


def _list_of_call(
    call: ast.Call, lists: dict[str, list[str]], classes: dict[str, ast.ClassDef]
) -> Iterator[str]:
    words = {it.arg: it.value for it in call.keywords}
    if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
        for argument in (*call.args, words.get("dest")):
            if isinstance(argument, ast.Constant):
                yield str(argument.value)
    elif isinstance(call.func, ast.Name) and call.func.id == FACTORY and isinstance(call.args[0], ast.Name):
        excluded = words.get("exclude")
        left_out = lists.get(excluded.id, []) if isinstance(excluded, ast.Name) else _read_list(excluded)
        yield from (name for name in _list_fields(call.args[0].id, classes) if name not in left_out)


def _list_assigned(node: ast.Assign) -> Iterator[str]:
    """Yield what is added to the arguments after they were read."""
    for target in node.targets:
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "args"
            and not target.attr.startswith("_")
        ):
            yield target.attr


def _list_fields(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the fields of a configuration and of what it derives from, with other names of their flags."""
    node = classes[name]
    for base in node.bases:
        known = ast.unparse(base).rpartition(".")[2]
        if known in classes:
            yield from _list_fields(known, classes)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
            for part in ast.walk(item):
                if isinstance(part, ast.Dict):
                    for key, value in zip(part.keys, part.values, strict=True):
                        is_names = isinstance(key, ast.Constant) and key.value == "arg_names"
                        yield from _read_list(value) if is_names else ()


def _find_classes(checkout: Path) -> dict[str, ast.ClassDef]:
    found: dict[str, ast.ClassDef] = {}
    for folder in ("megatron/training/config", "megatron/core/transformer", "megatron/core"):
        for path in sorted((checkout / folder).glob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {it.name: it for it in tree.body if isinstance(it, ast.ClassDef)}
    return found


def _find_lists(function: ast.FunctionDef) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, _read_list(node.value)


def _read_list(node: ast.expr | None) -> list[str]:
    parts = node.elts if isinstance(node, ast.List) else []
    return [str(it.value) for it in parts if isinstance(it, ast.Constant)]


if __name__ == "__main__":
    sys.exit(main())
