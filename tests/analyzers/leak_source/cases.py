"""Segment maps of a job that keeps something of every step, as a probe would send them."""

from vramscope.engine.model import LiveStack, Segment, SegmentMap
from vramscope.engine.model.sample import ALLOCATED, FREE

MIB = 2**20
PID = 4711
KEPT_SIZE = 2 * MIB
TORCH = ("/env/lib/python3.11/site-packages/torch/nn/functional.py", 10, "linear")
EVALUATE = ("/home/u/train.py", 212, "evaluate")
STEP = ("/home/u/model.py", 40, "step")


def stack_of(frame: tuple[str, int, str], count: int, size_bytes: int = KEPT_SIZE) -> LiveStack:
    return LiveStack(size_bytes * count, count, (TORCH, frame, ("/home/u/train.py", 300, "<module>")))


def map_of(
    time_s: float, kept: int, *stacks: LiveStack, activations: int = 0, is_at_step_end: bool = True
) -> SegmentMap:
    blocks = [(8 * MIB, ALLOCATED)] * activations + [(KEPT_SIZE, ALLOCATED)] * kept + [(4 * MIB, FREE)]
    total_bytes = sum(size for size, _ in blocks)
    segment = Segment(4096, total_bytes, "large", 0, tuple(blocks))
    return SegmentMap(
        "node",
        PID,
        "GPU-0",
        time_s,
        (segment,),
        live_stacks=tuple(stack for stack in stacks if stack.count),
        is_at_step_end=is_at_step_end,
    )
