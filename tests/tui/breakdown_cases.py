"""Profiles by module in a few numbers: two layers, before and after an optimizer's first step."""

from vramscope.engine.model.sample import KindBytes, LayoutEntry, MemoryMoment, ModuleMemory
from vramscope.engine.units import GIB, MIB
from vramscope.tui.modules.profiled import Profiled


def make_layout(root: str, scale_bytes: int) -> tuple[LayoutEntry, ...]:
    """Return an embedding of four units, and two layers of an attention of one and an MLP of two."""
    shares = {"embedding.weight": 4}
    for layer in range(2):
        shares |= {f"layers.{layer}.attention.weight": 1, f"layers.{layer}.mlp.weight": 2}
    return tuple(
        LayoutEntry(f"{root}.{path}", share * scale_bytes, share * scale_bytes)
        for path, share in shares.items()
    )


def make_moment(
    tag: str, time_s: float, layouts: dict[str, tuple[LayoutEntry, ...]], **sizes: int
) -> MemoryMoment:
    """Return a moment in which both figures of each kind are as told, of activations less was computed."""
    kinds = {
        kind: KindBytes(size // 2 if kind.startswith("activation") else size, size)
        for kind, size in sizes.items()
    }
    return MemoryMoment(tag=tag, time_s=time_s, kinds=kinds, layouts=layouts)


def make_profile(scale_bytes: int = GIB // 8, *, is_simulated: bool = False) -> ModuleMemory:
    """Return a profile of three moments: what modules hold was written at the first and the last."""
    whole = 10 * scale_bytes
    saved = (
        LayoutEntry("activations_0.layers.0.mlp", 0, 3 * scale_bytes),
        LayoutEntry("activations_0.layers.1.mlp", 2 * scale_bytes, scale_bytes),
        *(LayoutEntry(f"activations_0.layers.1.norm.{at}", 0, MIB // 8) for at in range(8)),
    )
    first = {"params": make_layout("param_mem", scale_bytes), "grads": make_layout("grad_mem", 0)}
    last = {
        "params": make_layout("param_mem", scale_bytes),
        "grads": make_layout("grad_mem", scale_bytes),
        "os_state": make_layout("os_state_mem", 2 * scale_bytes),
        "activation": saved,
    }
    peak = 4 * scale_bytes + MIB
    return ModuleMemory(
        format="module memory",
        device="cuda:0",
        is_simulated=is_simulated,
        moments=(
            make_moment("creation", 0.0, first, params=whole, grads=0, os_state=0, activation=0),
            make_moment(
                "backward", 1.5, {}, params=whole, grads=whole, os_state=0, activation=2 * scale_bytes
            ),
            make_moment(
                "step 1",
                2.0,
                last,
                params=whole,
                grads=whole,
                os_state=2 * whole,
                activation=0,
                activation_peak=peak,
            ),
        ),
    )


def make_runs() -> tuple[Profiled, ...]:
    """Return two runs, the second of which holds half as much again."""
    return (
        Profiled("run1", make_profile(is_simulated=True)),
        Profiled("run2", make_profile(GIB * 3 // 16, is_simulated=True)),
    )
