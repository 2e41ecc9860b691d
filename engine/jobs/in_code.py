"""What a training script may call: attach the probe, name its steps and their parts, follow advice.

Only the standard library is loaded, and the probe by its path under the same name as everywhere, so that a
script inside `vramscope run` speaks to the probe that is there.
"""

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import ParamSpec, Protocol, TypeVar

from ..paths import PROBE, SHIM

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PROBE_MODULE = "vramscope_probe"

# Called at the end of each step with its tokens and samples, for watchers within this process.
step_takers: list[Callable[[int | None, int | None], None]] = []


# Called with the name of each part of a step as it begins (True) and ends (False), in its own thread.
phase_takers: list[Callable[[str, bool], None]] = []


class _Part(Protocol):
    def __enter__(self) -> object: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> object: ...


def attach() -> None:
    """Start the probe in this process, which then reports to the agent of this node.

    May be called at any time and any number of times, before or after torch is imported, and inside
    `vramscope run`, where it has nothing left to do. If no agent runs, the probe waits for one. Nothing is
    raised into the training, whatever goes wrong.
    """
    try:
        from ..paths import locate_runtime_folder

        _load_shim().start_probe(str(PROBE), str(locate_runtime_folder()))
    except Exception as error:  # noqa: BLE001 - a monitor never ends what it monitors
        _complain(f"cannot start the probe: {error}")


def expect_steps() -> None:
    """Leave the end of every step to `step`, also of the first; for code that is there before it begins."""
    probe = sys.modules.get(_PROBE_MODULE)
    if probe is not None:
        probe.expect_marks()


def step(tokens: int | None = None, batch: int | None = None) -> None:
    """Mark the end of a training step; without it each step of an optimizer counts as one.

    From steps of different sizes vramscope estimates the memory of each token or sample, and the largest size
    that would fit. Sizes are whole numbers that the program knows anyway; anything else is left out.

    Args:
        tokens: Tokens of the largest micro-batch of the step on this rank, with padding.
        batch: Samples of that micro-batch.
    """
    probe = sys.modules.get(_PROBE_MODULE)
    if probe is not None:
        probe.step(tokens, batch)
    for take in step_takers:
        take(tokens, batch)


Callback = TypeVar("Callback", bound=Callable[[str, str], bool | str | None] | None)


def on_advice(callback: Callback) -> Callback:
    """Set the function of this program that answers advice about its memory.

    It is called at the end of a step, by the thread that trains, with the action (`empty_cache`,
    `skip_long_batch`, `reduce_batch`, `checkpoint`) and the reason as a sentence. May be used as a decorator,
    and before or after `attach`; a later function replaces an earlier one. What the function raises reaches
    the sender of the advice, never the training.

    Args:
        callback: Returns True, or a sentence on what it did, if it did what was asked; False if it will not;
            None for what it leaves alone, which is only done if the probe can: `empty_cache`. None in place
            of a function removes an earlier one.

    Returns:
        The same function.
    """
    try:
        _load_shim().load_package(_PROBE_MODULE, str(PROBE)).on_advice(callback)
    except Exception as error:  # noqa: BLE001 - a monitor never ends what it monitors
        _complain(f"cannot register the advice callback: {error}")
    return callback


class phase:  # noqa: N801 - reads as a word in `with vramscope.phase("forward")`
    """A named part of a step, as a context manager or as a decorator.

    The probe measures its peak memory; without a probe it costs next to nothing. Parts may be nested.

    Args:
        name: For example `forward` or `evaluation`. The memory of the first 16 names is measured.
    """

    __slots__ = ("_open", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: list[_Part] = []

    def __enter__(self) -> "phase":
        probe = sys.modules.get(_PROBE_MODULE)
        if probe is not None:
            part = probe.phase(self.name)
            part.__enter__()
            self._open.append(part)
        for take in tuple(phase_takers):
            take(self.name, True)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for take in tuple(phase_takers):
            take(self.name, False)
        if self._open:
            self._open.pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Wrap a function so that each of its calls is such a part."""

        @wraps(function)
        def in_phase(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
            with phase(self.name):
                return function(*arguments, **named)

        return in_phase


def _complain(sentence: str) -> None:
    from ..text import fit_to_reader, make_printable

    sys.stderr.write(fit_to_reader(f"vramscope: {make_printable(sentence)}\n", sys.stderr))


def _load_shim() -> ModuleType:
    """Load the file that loads the probe, by its path; it is not part of a package."""
    name = "vramscope_shim"
    found = sys.modules.get(name)
    if found is not None:
        return found
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, SHIM / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no {name} in {SHIM}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module
