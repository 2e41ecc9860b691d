"""Compiles a step of JAX and asks XLA what it needs, for `vramscope estimate --factory`: its own program.

Its arguments are a request and a name for its result, both JSON. Nothing runs on a device but what the user's
factory itself does: with `jax.ShapeDtypeStruct` arguments no array is made.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from ..probe.base.foreign import Foreign
from ..text import fit_to_reader
from .user_module import TraceError, choose_arguments, find_factory, is_of_jax

# Names of XLA's `CompiledMemoryStats`, by ours.
FIGURES = {
    "argument_bytes": "argument_size_in_bytes",
    "output_bytes": "output_size_in_bytes",
    "aliased_bytes": "alias_size_in_bytes",
    "temporary_bytes": "temp_size_in_bytes",
    "code_bytes": "generated_code_size_in_bytes",
    "peak_bytes": "peak_memory_in_bytes",
}
_EXPECTED = (
    "a jitted function, or the tuple (function, arguments) or (function, arguments, named arguments), of "
    "arrays or jax.ShapeDtypeStruct"
)


def analyze(request: dict[str, Any]) -> dict[str, Any]:
    """Return what the compiled step needs, or `error`."""
    try:
        factory = find_factory(request["factory"])
        given = {**request["arguments"], "layers": request["layers"]}
        made = factory(**choose_arguments(factory, given))
        function, arguments, named = _read_step(made)
        return _compile(function, arguments, named)
    except TraceError as error:
        return {"error": error.args}
    except Exception as error:  # noqa: BLE001 - of the user's code, any
        sys.stderr.write(fit_to_reader(traceback.format_exc(), sys.stderr))
        return {"error": [f"{request['factory']} raised {type(error).__name__}: {error}"]}


def _read_step(made: object) -> tuple[Foreign, tuple[object, ...], dict[str, object]]:
    parts = list(made) if isinstance(made, tuple) else [made]
    function, arguments, named = (*parts, *((), {})[len(parts) - 1 :])[:3]
    if not is_of_jax(made) or not isinstance(arguments, (tuple, list)) or not isinstance(named, dict):
        raise TraceError(f"the factory returned {type(made).__name__}; expected {_EXPECTED}")
    return function, tuple(arguments), named


def _compile(function: Foreign, arguments: tuple[object, ...], named: dict[str, object]) -> dict[str, Any]:
    jax = sys.modules["jax"]
    found = function.lower(*arguments, **named).compile().memory_analysis()
    if found is None:
        raise TraceError(f"XLA does not say what a step compiled for {jax.default_backend()} needs")
    figures = {ours: getattr(found, theirs, None) for ours, theirs in FIGURES.items()}
    device = jax.devices()[0]
    return {
        **figures,
        "platform": str(device.platform),
        "device_kind": str(device.device_kind),
        "jax": str(jax.__version__),
        "devices": int(jax.device_count()),
    }


def main() -> None:
    request_name, result_name = sys.argv[1:]
    result = analyze(json.loads(Path(request_name).read_text(encoding="utf-8")))
    Path(result_name).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
