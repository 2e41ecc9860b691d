"""`torch.compile` of a simulated process: what it is called for is counted as compiled, or as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .ledger import tell
from .patching import PatchedNames, replace

if TYPE_CHECKING:
    from .compilation import Compiler
    from .simulation import Simulation

# Modes of torch.compile that capture graphs.
_GRAPH_MODES = ("reduce-overhead", "max-autotune")
# More reasons are not kept.
_MOST_REASONS = 4


class CompiledRegions:
    """Which parts of a script are counted as `torch.compile` makes them, and which as they are."""

    def __init__(self) -> None:
        # Graphs whose buffers are those of Inductor's programs.
        self.graphs = 0
        # Why something that the script compiles runs eagerly, so that its memory is an upper bound.
        self.reasons: list[str] = []

    def note_graph(self) -> None:
        self.graphs += 1

    def forget_programs(self) -> None:
        """Compile all again: Dynamo does so for one function a few times only, and then runs it eagerly."""
        if self.graphs:
            torch._dynamo.reset()

    def note_failure(self, reason: str) -> None:
        if reason not in self.reasons and len(self.reasons) < _MOST_REASONS:
            self.reasons.append(reason)
            tell(f"torch.compile is run eagerly here, so memory is that of eager mode: {reason}")


def install_compile(simulation: Simulation, patched: tuple[PatchedNames, PatchedNames] | None) -> None:
    """Install `torch.compile`.

    Args:
        patched: What of tensors and of devices is replaced; None where tensors have storage, and whatever is
            compiled is run eagerly.
    """
    regions = simulation.regions
    compiler: list[Compiler] = []

    def find_compiler(tensors: PatchedNames, devices: PatchedNames) -> Compiler | None:
        if not compiler:
            try:
                # The compiler is not loaded for those who do not ask for it.
                from . import compilation

                compiler.append(compilation.Compiler(tensors, devices, regions))
            except (ImportError, AttributeError) as error:
                regions.note_failure(f"the compiler of PyTorch {torch.__version__} is not supported: {error}")
        return compiler[0] if compiler else None

    def compile(
        model: Any = None,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        backend: Any = "inductor",
        mode: str | None = None,
        options: dict[str, Any] | None = None,
        disable: bool = False,
        **_: Any,
    ) -> Any:
        """Return a module or function that is counted as compiled, or a decorator that does so."""
        chosen = options or {}
        if mode in _GRAPH_MODES or chosen.get("triton.cudagraphs"):
            simulation.uses.has_graphs = True
        found: Compiler | None = None
        if not disable and getattr(backend, "__name__", backend) != "eager":
            if backend not in ("inductor", None):
                name = getattr(backend, "__name__", backend)
                regions.note_failure(f"the backend {name} is not Inductor")
            elif patched is None:
                regions.note_failure("it is compiled only where tensors have no storage (--fake)")
            else:
                found = find_compiler(*patched)

        def compile_one(function: Any) -> Any:
            return function if found is None else found.compile(function, dynamic, chosen)

        return compile_one if model is None else compile_one(model)

    def compile_in_place(module: Any, **options: Any) -> None:
        # Not the call of the module: what looks on at modules (hooks) is not for the compiler.
        module.forward = compile(module.forward, **options)

    replace(torch, "compile", lambda original: compile)
    replace(torch.nn.Module, "compile", lambda original: compile_in_place)
