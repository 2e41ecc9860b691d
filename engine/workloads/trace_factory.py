"""Makes a model by a function of the user and traces it on the meta device, for `vramscope plan --factory`.

What was found, or what went wrong, is written as JSON into the file that is named; where the user's own code
raises, its traceback goes to stderr, without our frames.
"""

from __future__ import annotations

import argparse
import importlib
import json
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from .model_tracer import TraceError, trace_made


def find_factory(spec: str) -> Any:
    """Return a function by `module:function`; the module is looked for in the working folder too."""
    module_name, _, name = spec.partition(":")
    factory = getattr(importlib.import_module(module_name), name, None)
    if not callable(factory):
        raise TraceError(f"--factory {spec}: {module_name} has no function {name!r}")
    return factory


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
        traceback.print_exception(type(error), error, _skip_ours(error.__traceback__))
        found = {"error": f"{arguments.factory} raised {type(error).__name__}: {error}"}
    arguments.result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
