"""Traces training steps on the simulated device, for `vramscope estimate --factory`: a program of its own.

Its arguments are a request and a name for its result, both JSON. The user's function makes the training,
which makes two steps: the first creates the optimizer's state. The traceback of the user's own code goes to
stderr, without our frames; the result says if tensors without values may be the cause of a failure.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import traceback
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from ..paths import locate_allocator_model
from ..simulation import ledger
from ..simulation.alone import RankNeeded
from ..simulation.host_memory import Stack
from ..simulation.installation import install
from ..simulation.outside import ConvolutionKey
from ..simulation.simulation import Simulation
from ..simulation.storages import StorageRegistry
from ..text import fit_to_reader
from . import settings
from .model_tracer import make_input
from .user_module import JaxStepError, TraceError, choose_arguments, find_factory, is_of_jax

# A block is marked once; what nobody marks is classified by its lifetime, when the trace is read.

PARAMETER, BUFFER, GRADIENT, SAMPLE_GRADIENT, STATE, INPUT = range(6)
_MOST_LEVELS = 4


class KindMarks:
    """Marks blocks of one trace: by place of the block, its kind and the module it belongs to."""

    def __init__(self, log: BlockLog, registry: StorageRegistry) -> None:
        self._log = log
        self._registry = registry
        self.place = StepPlace(self.note_model, self._note_input)
        self.marks: dict[int, tuple[int, int]] = {}
        # Number of the module of each parameter, by the parameter's identity.
        self._owners: dict[int, int] = {}
        self._models: list[nn.Module] = []
        self._hooks: list[Any] = []

    def install(self) -> None:
        """Follow every module and every optimizer of this process."""
        # What a compiled module says at each call, as there are hooks on all modules: they are ours.
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        self.place.install()
        # `torch.optim` hides its module of this name behind the class.
        optimizer = import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(lambda it, *_: self._note_gradients(it))
        optimizer.register_optimizer_step_post_hook(lambda it, *_: self._note_state(it))

    def begin_trace(self) -> None:
        self.marks = {}
        self._owners = {}
        self._models = []
        self._hooks = []
        self.place.begin_trace(self._log.events)

    def end_trace(self) -> None:
        """Mark what the models have for the last time, and drop them."""
        for model in self._models:
            self._mark_model(model)
        for hook in self._hooks:
            hook.remove()
        self._models = []
        self._hooks = []

    def note_model(self, model: nn.Module) -> None:
        """Mark parameters and buffers of a model, and its gradients as they come."""
        self.place.name_modules(model)
        self._models.append(model)
        self._mark_model(model)
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_leaf:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._note_gradient))

    def _mark_model(self, model: nn.Module) -> None:
        for module in model.modules():
            number = self.place.number_of(module)
            for parameter in module.parameters(recurse=False):
                self._owners.setdefault(id(parameter), number)
                self._mark(parameter, PARAMETER, number)
            # Not `buffers`: Megatron-LM's DistributedDataParallel has a list of that name.
            for _, buffer in module.named_buffers(recurse=False):
                self._mark(buffer, BUFFER, number)

    def _note_gradient(self, parameter: Any) -> None:
        self._mark(parameter.grad, GRADIENT, self._owners.get(id(parameter), OUTSIDE))

    def _note_gradients(self, optimizer: Any) -> None:
        for parameter, owner in self._list_parameters(optimizer):
            # A module whose caller is compiled is never seen.
            self._mark(parameter, PARAMETER, owner)
            for name in ("grad_sample", "summed_grad"):
                _each_tensor(getattr(parameter, name, None), self._marker(SAMPLE_GRADIENT, owner))
            _each_tensor(parameter.grad, self._marker(GRADIENT, owner))

    def _note_state(self, optimizer: Any) -> None:
        for parameter, owner in self._list_parameters(optimizer):
            _each_tensor(optimizer.state.get(parameter), self._marker(STATE, owner))

    def _note_input(self, args: Any) -> None:
        _each_tensor(args, self._marker(INPUT, OUTSIDE))

    def _list_parameters(self, optimizer: Any) -> list[tuple[Any, int]]:
        listed = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        return [(it, self._owners.get(id(it), OUTSIDE)) for it in listed]

    def _marker(self, kind: int, owner: int) -> Callable[[Any], None]:
        return lambda tensor: self._mark(tensor, kind, owner)

    def _mark(self, tensor: Any, kind: int, owner: int) -> None:
        record = None if tensor is None else self._registry.record_of(tensor)
        place = None if record is None else self._log.find(record.address)
        if place is not None and (kind == PARAMETER or place not in self.marks):
            self.marks[place] = kind, owner


def _each_tensor(value: Any, visit: Callable[[Any], None], levels: int = _MOST_LEVELS) -> None:
    if isinstance(value, torch.Tensor):
        visit(value)
    elif levels and isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            _each_tensor(each, visit, levels - 1)


# The event of a script that emptied the cache.
EMPTIED = 0


class Locator(Protocol):
    def locate(self) -> tuple[int, int]:
        """Return the phase and the number of the module that is running."""


class BlockLog:
    """Allocations and frees as numbers: cheap to note, and read when all is over.

    A block is known by its place in `sizes`; an event is that place plus one, less than 0 if it ends.
    """

    def __init__(self) -> None:
        self.locator: Locator | None = None
        self.begin()

    def begin(self) -> None:
        """Forget everything: what is on the card now belongs to nobody's trace."""
        self.sizes: list[int] = []
        self.streams: list[int] = []
        self.phases: list[int] = []
        self.modules: list[int] = []
        self.stacks: list[int] = []
        self.events: list[int] = []
        # Each convolution with its number, and for each time that one was computed the events before it, its
        # number and its passes.
        self.convolutions: dict[ConvolutionKey, int] = {}
        self.computed: list[tuple[int, int, int]] = []
        self.is_running = True
        self._live: dict[int, int] = {}
        self._stack_numbers: dict[Stack, int] = {}

    def note_allocated(self, address: int, size_bytes: int, stream: int, stack: Stack) -> None:
        if not self.is_running:
            return
        phase, module = (0, 0) if self.locator is None else self.locator.locate()
        place = self._live[address] = len(self.sizes)
        self.sizes.append(size_bytes)
        self.streams.append(stream)
        self.phases.append(phase)
        self.modules.append(module)
        self.stacks.append(self._stack_numbers.setdefault(stack, len(self._stack_numbers)))
        self.events.append(place + 1)

    def note_freed(self, address: int) -> None:
        """A block from before the trace is ignored."""
        place = self._live.pop(address, None)
        if place is not None and self.is_running:
            self.events.append(-place - 1)

    def note_emptied(self) -> None:
        if self.is_running:
            self.events.append(EMPTIED)

    def note_convolution(self, key: ConvolutionKey, passes: int) -> None:
        if self.is_running:
            number = self.convolutions.setdefault(key, len(self.convolutions))
            self.computed.append((len(self.events), number, passes))

    def find(self, address: int) -> int | None:
        return self._live.get(address)

    def describe_stacks(self) -> list[list[dict[str, Any]]]:
        """Return the stacks by their numbers, innermost frame first."""
        return [stack.user_frames for stack in self._stack_numbers]


# In forward passes hooks name the module that runs. In the backward pass an operation belongs to the module
# that was running when its node of the autograd graph was made, known by the node's sequence number.

MAKING, FORWARD, BACKWARD, OPTIMIZER, RECOMPUTE = range(5)
# The module number while no module is running.
OUTSIDE = 0
# Names that wrappers of models put before those of the user.
_WRAPPERS = ("_module.", "module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class StepPlace:
    """Follows a step; `names` and `types` are those of the modules by their numbers."""

    def __init__(self, note_root: Callable[[nn.Module], None], note_input: Callable[[Any], None]) -> None:
        self._note_root = note_root
        self._note_input = note_input
        self.names = [""]
        self.types = [""]
        # The log of events, whose length is the time.
        self.events: list[int] = []
        self.backward_begins: list[int] = []
        self.recompute_ends: list[int] = []
        self._numbers: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        self._phase = MAKING
        self._running: list[int] = []
        self._sequences: list[int] = []
        self._sequence_modules: list[int] = []

    def install(self) -> None:
        """Hook every module of this process."""
        module_hooks.register_module_forward_pre_hook(self._enter)
        module_hooks.register_module_forward_hook(self._leave, always_call=True)

    def begin_trace(self, events: list[int]) -> None:
        """Follow another model from its making on."""
        self.names = [""]
        self.types = [""]
        self.events = events
        self.backward_begins = []
        self.recompute_ends = []
        self._numbers = WeakKeyDictionary()
        self._phase = MAKING
        self._running = []

    def begin_step(self) -> None:
        self._phase = FORWARD
        self._sequences = []
        self._sequence_modules = []

    def locate(self) -> tuple[int, int]:
        """Return the phase and the number of the running module."""
        if torch._C._current_graph_task_id() == -1:
            if self._phase == BACKWARD:
                self._phase = OPTIMIZER
            return self._phase, self._running[-1] if self._running else OUTSIDE
        if self._phase != BACKWARD:
            self._phase = BACKWARD
            self.backward_begins.append(len(self.events))
        if self._running:
            return RECOMPUTE, self._running[-1]
        return BACKWARD, self._find_maker()

    def number_of(self, module: nn.Module) -> int:
        return self._numbers.get(module, OUTSIDE)

    def name_modules(self, root: nn.Module) -> None:
        """Name a model and everything in it; names of a second model begin with its class."""
        kind = type(getattr(root, "_orig_mod", root)).__name__  # not that of what `torch.compile` returns
        before = f"{kind}." if len(self.names) > 1 else ""
        for name, module in root.named_modules():
            if module not in self._numbers:
                self._numbers[module] = len(self.names)
                stripped = _strip(name)
                self.names.append(before + stripped if stripped else kind)
                self.types.append(type(module).__name__)

    def _find_maker(self) -> int:
        node = torch._C._current_autograd_node()
        if node is None:
            return OUTSIDE
        place = bisect_right(self._sequences, node._sequence_nr()) - 1
        return self._sequence_modules[place] if place >= 0 else OUTSIDE

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module not in self._numbers:
            self.name_modules(module)
            self._note_root(module)
        if not self._running and torch._C._current_graph_task_id() == -1:
            if self._phase in (BACKWARD, OPTIMIZER):
                self._phase = FORWARD
            self._note_input(args)
        self._running.append(self._numbers[module])
        self._note_sequence()

    def _leave(self, module: nn.Module, args: Any, result: Any) -> None:
        if self._running:
            self._running.pop()
        self._note_sequence()
        if not self._running and torch._C._current_graph_task_id() != -1:
            self.recompute_ends.append(len(self.events))

    def _note_sequence(self) -> None:
        """Note from which node of the autograd graph on the running module has changed."""
        self._sequences.append(torch._C._autograd._get_sequence_nr())
        self._sequence_modules.append(self._running[-1] if self._running else OUTSIDE)


def _strip(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = f"{name}.".replace(f".{wrapper}", ".").removeprefix(wrapper).removesuffix(".")
    return name


_OPTIMIZERS = ("adamw", "adam", "sgd", "none")


class Training(NamedTuple):
    # One whole step, from data to zeroed gradients.
    step: Callable[[], object]
    # None if the function returned nothing but a step; the model is then found in the first one.
    model: nn.Module | None = None
    # Referenced here, as a step may not keep it alive.
    optimizer: Any = None
    # What the step of a module alone is made of, filled in by its first one.
    made_with: Sequence[str] = ()


def make_training(made: object, inputs: Sequence[str], optimizer: str) -> Training:
    """Make a training of a function's result; `inputs` are those of a module's forward, as `4x1024:int64`."""
    if isinstance(made, nn.Module):
        return _train_module(made, inputs, optimizer)
    if inputs:
        raise TraceError(
            settings.INPUTS, " is for a factory that returns a module; this one returned its own step"
        )
    if isinstance(made, tuple) and len(made) == 3 and isinstance(made[0], nn.Module) and callable(made[2]):
        return Training(made[2], made[0], made[1])
    if callable(made):
        return Training(made)
    raise TraceError(
        f"the factory returned an object of type {type(made).__name__}; expected a function that makes one "
        "training step, a torch.nn.Module, or the tuple (module, optimizer, step)"
    )


def step_in_spite_of_overflow() -> None:
    """Make a `GradScaler` always step: whether gradients overflow is a value, which no shape has.

    The first steps of a real run are left out while its scale is too large; later no gradient overflows.
    """

    def step(scaler: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    torch.amp.GradScaler._maybe_opt_step = step


def _train_module(module: nn.Module, inputs: Sequence[str], optimizer: str) -> Training:
    if not inputs:
        raise TraceError(
            "the factory returned a module: give ", settings.INPUTS, ", for example 4x1024:int64"
        )
    if optimizer not in _OPTIMIZERS:
        raise TraceError(settings.OPTIMIZER, f" {optimizer}: expected one of {', '.join(_OPTIMIZERS)}")
    looks = [make_input(text) for text in inputs]
    module = module.cuda()
    trained = [it for it in module.parameters() if it.requires_grad]
    makers = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    chosen = None if optimizer == "none" or not trained else makers[optimizer](trained, lr=1e-3)

    name = "no optimizer" if chosen is None else type(chosen).__name__
    made_with: list[str] = []

    def step() -> object:
        arguments = [torch.zeros(it.shape, dtype=it.dtype, device="cuda") for it in looks]
        output = module(*arguments)
        loss = find_loss(output)
        is_given = loss is getattr(output, "loss", None)
        made_with[:] = (
            name,
            ".loss of its output" if is_given else "the mean of its first output as the loss",
        )
        loss.backward()
        if chosen is not None:
            chosen.step()
        module.zero_grad()
        return output, loss

    return Training(step, module, chosen, made_with)


def find_loss(output: Any) -> Any:
    """Return `.loss` of a result if it has one, else the mean of its first tensor, in float32."""
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    while isinstance(output, (list, tuple, dict)) and output:
        output = next(iter(output.values())) if isinstance(output, dict) else output[0]
    if not isinstance(output, torch.Tensor):
        raise TraceError(
            f"the module returned an object of type {type(output).__name__}; expected a tensor, or something "
            "with .loss"
        )
    return output.float().mean()


STEPS = 2
_ALLOCATOR = "vramscope_allocator_model"
# From here on a refusal of the simulated device gives advice that is for `vramscope run`.
_ADVICE = ", but with --fake tensors have no values"
# Frames of files with these prefixes are no use to the user.
_OURS = (
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).absolute().parents[1]),
    str(Path(torch.__file__).parent),
    str(Path(os.__file__).parent / "importlib"),
    "<frozen ",
)


class StepTracer:
    """Makes trainings on a simulated card, one after the other, and describes each."""

    def __init__(self, simulation: Simulation) -> None:
        self._card = simulation.cards[0]
        self._regions = simulation.regions
        # What the last step was made of, where the factory returned a module alone.
        self.made_with: Sequence[str] = ()
        self._log = BlockLog()
        self._kinds = KindMarks(self._log, simulation.registry)
        self._kinds.install()
        self._log.locator = self._kinds.place
        self._card.observer = self._log
        simulation.uses.watch = self._log.note_convolution

    def trace(self, request: dict[str, Any], layers: int | None) -> dict[str, Any]:
        """Return what a training allocated, and where; without `layers` the function's own default counts."""
        self._regions.forget_programs()
        gc.collect()
        self._card.empty_cache()
        self._log.begin()
        self._kinds.begin_trace()
        factory = find_factory(request["factory"])
        given = {**request["arguments"], "layers": layers, "device": "cuda"}
        made = factory(**choose_arguments(factory, given))
        if is_of_jax(made):
            raise JaxStepError
        training = make_training(made, request["inputs"], request["optimizer"])
        begins = self._run(training)
        self.made_with = training.made_with
        self._log.is_running = False
        if not any(event > 0 for event in self._log.events[begins[1] :]):
            raise TraceError(
                f"the second step of {request['factory']} allocated nothing on the GPU; expected a whole "
                "training step, with the model and its inputs moved there, for example by .cuda()"
            )
        return {**self._describe(), "layers": layers, "step_begins": begins}

    def forget(self) -> None:
        """Drop a trace that did not come to its end."""
        self._log.is_running = False
        self._kinds.begin_trace()

    def _run(self, training: Training) -> list[int]:
        """Make the steps; return when each began, and the end, as numbers of events."""
        if training.model is not None:
            self._kinds.note_model(training.model)
        begins = []
        kept: object = None
        for _ in range(STEPS):
            begins.append(len(self._log.events))
            self._card.allocator.reset_peak_memory_stats()
            self._kinds.place.begin_step()
            # Lives through the next step, as a variable of a script's loop does.
            kept = training.step()
        del kept
        self._kinds.end_trace()
        return [*begins, len(self._log.events)]

    def _describe(self) -> dict[str, Any]:
        log = self._log
        place = self._kinds.place
        marks = self._kinds.marks
        stats = self._card.allocator.memory_stats()
        return {
            "sizes": log.sizes,
            "streams": log.streams,
            "phases": log.phases,
            "modules": log.modules,
            "stacks": log.stacks,
            "events": log.events,
            "convolutions": list(log.convolutions),
            "computed": log.computed,
            "marks": [[block, kind, module] for block, (kind, module) in marks.items()],
            "module_names": place.names,
            "module_types": place.types,
            "stack_frames": [_clean(frames) for frames in log.describe_stacks()],
            "backward_begins": place.backward_begins,
            "recompute_ends": place.recompute_ends,
            "allocated_peak_bytes": stats["allocated_bytes.all.peak"],
        }


def load_allocator_model() -> Any:
    """Load the package that models the allocator by its path: it is in a layer above, and is not imported."""
    folder = locate_allocator_model()
    spec = spec_from_file_location(
        _ALLOCATOR, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {folder}")
    module = sys.modules[_ALLOCATOR] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _clean(frames: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the user's frames as file, line and name."""
    return [
        [frame["filename"], frame["line"], frame["name"]]
        for frame in frames
        if not frame["filename"].startswith(_OURS)
    ]


# Runs of ranks for one trace: a pipeline whose stages ask each other for shapes takes two for each stage.
_MOST_RUNS = 512


def _trace_among(
    tracer: StepTracer, simulation: Simulation, request: dict[str, Any], layers: int | None
) -> dict[str, Any]:
    """Return the trace of a rank; before it, run the ranks whose objects it needs."""
    post = simulation.post
    if post is None:
        return tracer.trace(request, layers)
    waiting = [request["rank"]]
    for _ in range(_MOST_RUNS):
        post.become(waiting[-1])
        simulation.uses.forget_rank()
        _name_rank(waiting[-1], post.ranks)
        try:
            trace = tracer.trace(request, layers)
        except RankNeeded as needed:
            waiting.append(needed.rank)
            tracer.forget()
            continue
        if waiting.pop() == request["rank"]:
            return trace
    raise TraceError(
        f"rank {request['rank']} needs objects of other ranks, which did not send them in {_MOST_RUNS} runs"
    )


def _name_rank(rank: int, ranks: int) -> None:
    # One card for one process, as in a container of its own.
    places = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    os.environ.update({name: str(number) for name, number in places.items()})


def simulate(request: dict[str, Any]) -> Simulation:
    """Put the simulated card that a request asks for into this process."""
    config = {
        "total_bytes": 1 << 46,
        "is_fake": request["is_fake"],
        "allocator_settings": request["settings"],
    }
    gpu = request.get("gpu")
    if gpu is not None:
        # The script takes the ways that it takes on such a GPU.
        config |= {"kind": gpu["name"], **{name: gpu[name] for name in ("capability", "multiprocessors")}}
    if request["ranks"] is not None:
        config |= {"ranks": request["ranks"], "rank": request["rank"]}
        _name_rank(request["rank"], request["ranks"])
    config |= {"has_stand_ins": True, "has_largest_sizes": request["has_largest_sizes"]}
    ledger.be_silent()
    # What fake tensors refuse is tried again, and reported if that does not help.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    simulation = install({**config, "context_bytes": 0}, load_allocator_model())
    step_in_spite_of_overflow()
    return simulation


def trace_all(request: dict[str, Any], simulation: Simulation | None = None) -> dict[str, Any]:
    """Return the traces of a request, or why there are none.

    `error` is for the user, in parts. `doubt` says that tensors without values may be the cause. Give the
    `simulation` if this process has one already.
    """
    is_fake = request["is_fake"]
    try:
        simulation = simulation or simulate(request)
        tracer = StepTracer(simulation)
        begun_s = perf_counter()
        traces = [_trace_among(tracer, simulation, request, layers) for layers in request["depths"]]
    except JaxStepError:
        return {"error": ["the factory returned a function of JAX"], "is_of_jax": True}
    except TraceError as error:
        return {"error": error.args}
    except ledger.Refusal as error:
        told = error.text.partition(_ADVICE)[0]
        return {"error": [told], "is_refused": True, "doubt": told if is_fake else None}
    except Exception as error:  # noqa: BLE001 - of the user's code, any
        return _report_error(error, request)
    readings = [f"{name}:{line}" for name, line in simulation.list_readings()]
    seconds = perf_counter() - begun_s
    return {
        "traces": traces,
        "seconds": seconds,
        "torch": torch.__version__,
        "readings": readings,
        "made_with": tracer.made_with,
        "uses": simulation.uses.describe(),
        "compiled_graphs": simulation.regions.graphs,
        "run_eagerly": simulation.regions.reasons,
    }


def _report_error(error: Exception, request: dict[str, Any]) -> dict[str, Any]:
    """Print the user's traceback, unless real tensors may do better; return the error in a line."""
    told = f"{request['factory']} raised {type(error).__name__}: {error}"
    if request["is_fake"] and isinstance(error, RuntimeError):
        return {"error": [told], "doubt": told}
    summary = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in summary.stack if not frame.filename.startswith(_OURS)]
    if not kept and isinstance(error, ImportError):
        return {"error": [settings.FACTORY, f" {request['factory']}: {error}"]}
    if kept:
        summary.stack = traceback.StackSummary.from_list(kept)
    sys.stderr.write(fit_to_reader("".join(summary.format()), sys.stderr))
    return {"error": [told]}


def main() -> None:
    request_name, result_name = sys.argv[1:]
    request = json.loads(Path(request_name).read_text(encoding="utf-8"))
    result = trace_all(request)
    Path(result_name).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
