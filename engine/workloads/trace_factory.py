"""Makes a model by a function of the user and traces it on the meta device, for `vramscope plan --factory`.

What was found, or what went wrong, is written as JSON into the file that is named; where the user's own code
raises, its traceback goes to stderr, without our frames.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import site
import sys
import traceback
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ..child_processes import USER_PATH_VARIABLE
from ..text import fit_to_reader
from .model_tracer import TraceError, trace_made


def find_factory(spec: str) -> Any:
    """Return a function by `module:function`; the module is looked for in the working folder too."""
    module_name, _, name = spec.partition(":")
    factory = getattr(import_user_module(module_name), name, None)
    if not callable(factory):
        raise TraceError(f"--factory {spec}: {module_name} has no function {name!r}")
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
    with suppress(ImportError):
        importlib.import_module("sympy")  # torch does so when it meets the first fake tensor
    further = os.environ.get(USER_PATH_VARIABLE, "")
    folders = list(dict.fromkeys([str(Path.cwd()), *filter(None, further.split(os.pathsep))]))
    packages = {*site.getsitepackages(), site.getusersitepackages()}
    place = next((at for at, entry in enumerate(sys.path) if entry in packages), len(sys.path))
    sys.path[place:place] = [folder for folder in folders if folder not in sys.path]
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names and top not in sys.modules:
        spec = PathFinder.find_spec(top, folders)
        if spec is not None and spec.loader is not None:
            module = sys.modules[top] = module_from_spec(spec)
            spec.loader.exec_module(module)
    return importlib.import_module(name)


def _skip_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame on that is neither ours nor the import machinery's."""
    ours = (str(Path(__file__).parent), "<frozen importlib", str(Path(importlib.__file__).parent))
    while trace is not None and trace.tb_next is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(ours):
            break
        trace = trace.tb_next
    return trace


def main() -> None:
    """Read the command line, trace, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--factory", required=True, help="module:function that makes the model")
    parser.add_argument("--input", action="append", default=[], help="shape and type of an argument")
    parser.add_argument("--dtype", help="of floating weights and inputs (default: as they are made)")
    parser.add_argument("--result", required=True, type=Path, help="file to write JSON into")
    arguments = parser.parse_args()
    try:
        found = trace_made(find_factory(arguments.factory), arguments.input, arguments.dtype)
    except TraceError as error:
        found = {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - of the user's code, any
        lines = traceback.format_exception(type(error), error, _skip_ours(error.__traceback__))
        sys.stderr.write(fit_to_reader("".join(lines), sys.stderr))
        found = {"error": f"{arguments.factory} raised {type(error).__name__}: {error}"}
    arguments.result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
