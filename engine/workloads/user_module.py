"""The user's own function that makes a model or a step: found, called, and what it returned."""

from __future__ import annotations

import importlib
import inspect
import os
import site
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from ..child_processes import USER_PATH_VARIABLE
from ..errors import SettingError
from .settings import OF_FACTORY


class TraceError(SettingError):
    """A model that cannot be traced; the text names layer and operation."""


class JaxStepError(Exception):
    """The step is one of JAX, which its compiler knows."""


def is_of_jax(made: object) -> bool:
    """Return whether a factory returned a jitted function of JAX, alone or with its arguments."""
    function = made[0] if isinstance(made, tuple) and made else made
    return "jax" in sys.modules and callable(function) and hasattr(function, "lower")


def find_factory(spec: str) -> Callable[..., object]:
    """Import `module:function`; the working folder is searched too."""
    module_name, _, name = spec.partition(":")
    if module_name.endswith(".py"):
        module = module_name.removesuffix(".py").replace("/", ".")
        raise TraceError(f"{spec}: a module is named without .py: {module}:{name}")
    factory: Callable[..., object] | None = getattr(import_user_module(module_name), name, None)
    if not callable(factory):
        raise TraceError(f"{spec}: {module_name} has no function {name!r}")
    return factory


def import_user_module(name: str) -> ModuleType:
    """Import a module of the user, as a script in the working folder would.

    From here on the working folder is on the search path: before other people's packages, as a `datasets.py`
    there is meant, and after the standard library, as a `tokenize.py` is not. What we need ourselves has been
    imported by now; what torch imports later is imported first. A module with the name of one of Python's, as
    in `code:make`, is still looked for in that folder first.

    Raises:
        ModuleNotFoundError: There is none.
    """
    if "torch" in sys.modules:
        with suppress(ImportError):
            importlib.import_module("sympy")  # torch does so when it meets the first fake tensor
    further = os.environ.get(USER_PATH_VARIABLE, "")
    folders = list(dict.fromkeys([str(Path.cwd()), *filter(None, further.split(os.pathsep))]))
    packages = {*site.getsitepackages(), site.getusersitepackages()}
    place = next((at for at, entry in enumerate(sys.path) if entry in packages), len(sys.path))
    top = name.partition(".")[0]
    for other in sys.stdlib_module_names - sys.modules.keys() - {top}:
        # Python's modules of other systems, which packages try to import: colorama asks for `msvcrt`.
        if PathFinder.find_spec(other) is None and other not in sys.builtin_module_names:
            sys.modules[other] = None  # type: ignore[assignment] # as without the folder: it is not found
    sys.path[place:place] = [folder for folder in folders if folder not in sys.path]
    if top in sys.stdlib_module_names and top not in sys.modules:
        spec = PathFinder.find_spec(top, folders)
        if spec is not None and spec.loader is not None:
            module = sys.modules[top] = module_from_spec(spec)
            spec.loader.exec_module(module)
    return importlib.import_module(name)


def choose_arguments(factory: Callable[..., object], given: Mapping[str, object]) -> dict[str, object]:
    """Return those of the given arguments that a function names."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}
    takes_all = any(it.kind is inspect.Parameter.VAR_KEYWORD for it in parameters.values())
    chosen = {name: value for name, value in given.items() if value is not None}
    refused = [name for name in chosen if name not in parameters and not takes_all and name != "device"]
    if refused:
        raise TraceError(
            f"the factory has no argument {refused[0]}; its arguments are "
            f"{', '.join(parameters) or 'none'}: add it to the signature, or leave out ",
            OF_FACTORY[refused[0]],
        )
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [
        name
        for name, it in parameters.items()
        if it.default is inspect.Parameter.empty and name not in chosen and it.kind in by_name
    ]
    if missing and missing[0] in OF_FACTORY:
        raise TraceError(f"the factory needs an argument {missing[0]}: give ", OF_FACTORY[missing[0]])
    if missing:
        raise TraceError(
            f"the factory requires the argument {missing[0]}, which vramscope does not pass: add a default; "
            f"known are {', '.join((*OF_FACTORY, 'device'))}"
        )
    return {name: value for name, value in chosen.items() if takes_all or name in parameters}
