"""Allocation traces like those of training: made up, but with the sizes and lifetimes of a GPT."""

import random
from dataclasses import dataclass

Event = tuple[int, int]
"""A block's id and its size in bytes; 0 frees it."""


@dataclass(frozen=True)
class Shape:
    """What decides the sizes: a GPT in bf16 with AdamW, whose loss is taken in fp32."""

    layers: int = 48
    width: int = 1600
    heads: int = 25
    vocabulary: int = 50257
    batch: int = 4


class Trace:
    """Writes events, and remembers what is alive."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._next = 0

    def allocate(self, size: int) -> int:
        """Allocate a block and return its id."""
        self._next += 1
        self.events.append((self._next, size))
        return self._next

    def free(self, *blocks: int) -> None:
        """Free blocks in the order given."""
        self.events.extend((block, 0) for block in blocks)

    def touch(self, *sizes: int) -> None:
        """Allocate blocks that live only until the last of them is there."""
        self.free(*[self.allocate(size) for size in sizes])


def make_training_trace(
    steps: int, lengths: tuple[int, ...] = (1024,), shape: Shape | None = None
) -> list[Event]:
    """Return the events of so many steps of training.

    Args:
        steps: Steps, each of forward, backward, clipping and an optimizer that works on lists of tensors.
        lengths: Sequence lengths; each step takes one by chance. One length makes every step the same.
        shape: The model; a GPT of 1.6 billion parameters by default.
    """
    shape = shape or Shape()
    rng = random.Random(20240101)
    trace = Trace()
    sizes = _list_parameters(shape)
    for size in sizes:
        trace.allocate(size)
    for step in range(steps):
        _run_step(trace, shape, sizes, rng.choice(lengths), is_first=step == 0)
    return trace.events


def _list_parameters(shape: Shape) -> list[int]:
    """Return the bytes of each parameter, in bf16."""
    width = shape.width
    layer = [width, width, 3 * width * width, 3 * width, width * width, width]
    layer += [width, width, 4 * width * width, 4 * width, 4 * width * width, width]
    counts = [shape.vocabulary * width, 1024 * width, *layer * shape.layers, width, width]
    return [2 * count for count in counts]


def _run_step(trace: Trace, shape: Shape, parameters: list[int], length: int, *, is_first: bool) -> None:
    tokens = shape.batch * length
    inputs = [trace.allocate(8 * tokens), trace.allocate(8 * tokens)]
    saved = [_run_forward(trace, shape, length) for _ in range(shape.layers)]
    logits = trace.allocate(2 * tokens * shape.vocabulary)
    loss = [trace.allocate(4 * tokens * shape.vocabulary), trace.allocate(4 * tokens), trace.allocate(4)]
    trace.touch(4 * tokens * shape.vocabulary)
    trace.free(logits, *loss)
    gradients = []
    gradient = trace.allocate(2 * tokens * shape.width)
    per_layer = (len(parameters) - 4) // shape.layers
    for at, layer in enumerate(reversed(saved)):
        first = 2 + (shape.layers - 1 - at) * per_layer
        gradient = _run_backward(trace, shape, length, layer, gradient)
        gradients += [trace.allocate(size) for size in parameters[first : first + per_layer]]
    trace.free(gradient)
    gradients += [trace.allocate(parameters[0]), trace.allocate(parameters[1])]
    _run_optimizer(trace, parameters, is_first=is_first)
    trace.free(*gradients, *inputs)


def _run_forward(trace: Trace, shape: Shape, length: int) -> list[int]:
    """Run a layer forward and return what it keeps for the way back."""
    tokens = shape.batch * length
    hidden = 2 * tokens * shape.width
    saved = [trace.allocate(hidden), trace.allocate(4 * tokens), trace.allocate(4 * tokens)]
    saved.append(trace.allocate(3 * hidden))
    trace.touch(hidden, hidden, hidden)
    saved += [trace.allocate(hidden), trace.allocate(4 * shape.batch * shape.heads * length)]
    saved += [trace.allocate(16), trace.allocate(16)]
    trace.touch(hidden)
    saved += [trace.allocate(hidden), trace.allocate(hidden)]
    saved += [trace.allocate(4 * tokens), trace.allocate(4 * tokens)]
    saved.append(trace.allocate(4 * hidden))
    saved.append(trace.allocate(4 * hidden))
    trace.touch(hidden)
    saved.append(trace.allocate(hidden))
    return saved


def _run_backward(trace: Trace, shape: Shape, length: int, saved: list[int], gradient: int) -> int:
    """Run a layer backward: free what it kept, newest first, and return the gradient for the layer before."""
    hidden = 2 * shape.batch * length * shape.width
    width = 2 * shape.width
    for at, block in enumerate(reversed(saved)):
        if at % 3 == 0:
            partial = trace.allocate(4 * hidden if at % 2 else hidden)
            trace.touch(width, 4 * 128 * shape.width)
            trace.free(block, partial)
        else:
            trace.free(block)
    following = trace.allocate(hidden)
    trace.free(gradient)
    return following


def _run_optimizer(trace: Trace, parameters: list[int], *, is_first: bool) -> None:
    """Clip the gradients and step, on lists of tensors as the foreach implementations do."""
    norms = [trace.allocate(4) for _ in parameters]
    trace.touch(4 * len(parameters), 4, 4)
    trace.free(*norms)
    if is_first:
        for size in parameters:
            trace.allocate(size)
            trace.allocate(size)
            trace.allocate(4)
    trace.touch(*parameters)
    trace.touch(*parameters)
