"""Counts what `torch.compile` makes a card allocate, where tensors have no storage.

Dynamo, AOTAutograd and Inductor run as they do for a GPU, up to the program that calls the kernels. It is
then run with kernels that do nothing: it allocates, reuses and drops buffers as it would on a card.

Dynamo and autograd see tensors of the host, as a build of PyTorch without CUDA cannot differentiate others.
What Inductor gets is marked as on the card before it chooses layouts and what to fuse.
"""

from __future__ import annotations

import ast
import ctypes
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Callable

import torch
from torch._dynamo import config as dynamo_config
from torch._dynamo import convert_frame, eval_frame, exc, trace_rules
from torch._dynamo.types import FrameAction, FrameExecStrategy
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx as inductor_compile
from torch._inductor import graph as inductor_graph
from torch._inductor import scheduler
from torch._inductor.select_algorithm import extern_kernels
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.modules import module as module_hooks
from torch.utils import _pytree as pytree
from torch.utils import _triton as triton_version

from .compiled_regions import CompiledRegions
from .devices import state
from .patching import PatchedNames

_aten = torch.ops.aten
_CPU = torch.device("cpu")
# Frames of this package are no script to be compiled.
_OURS = tuple(str(each.parents[1]) for each in (Path(__file__).resolve(), Path(__file__).absolute()))
# Options of Inductor. Without a card no kernel is measured or captured, and no process compiles any.
_WITHOUT_CARD = {
    "triton.cudagraphs": False,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "max_autotune_pointwise": False,
    "coordinate_descent_tuning": False,
    "cpp_wrapper": False,
    "fx_graph_cache": False,
    "compile_threads": 1,
}
# Characters of a reason.
_LONGEST = 200


class _Backend:
    """Equal backends share what they have compiled: layers that are compiled one by one, for example."""

    def __init__(self, compiler: Compiler, options: dict[str, Any]) -> None:
        self._compiler = compiler
        self._options = options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backend) and self._options == other._options

    def __hash__(self) -> int:
        return len(self._options)

    def __call__(self, graph: Any, inputs: Any) -> Any:
        return self._compiler.compile_graph(graph, inputs, self._options)


class Compiler:
    """`torch.compile` of a process with tensors without storage."""

    def __init__(self, tensors: PatchedNames, devices: PatchedNames, regions: CompiledRegions) -> None:
        self._tensors = tensors
        self._devices = devices
        self._regions = regions
        self._originals = tensors.list_originals()
        self._lock = threading.RLock()
        self._depth = 0
        # Those of the thread that compiles.
        self._modes: list[Any] = []
        _let_dynamo_see_the_host(self)
        _note_failures(regions)
        _count_optimizer_states(self._seeing_the_card)
        with self.seeing_the_host():
            # Dynamo's table of functions, which it finds by name and knows by identity.
            trace_rules.clear_lru_cache()
            trace_rules.get_torch_obj_rule_map()
        dynamo_config.suppress_errors = True  # what cannot be compiled is run as it is
        logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)

    def compile(self, function: Any, dynamic: bool | None, options: dict[str, Any]) -> Any:
        """Return a module or function that is compiled when it is called."""
        optimize = eval_frame.optimize(
            backend=_Backend(self, options), dynamic=dynamic, guard_filter_fn=self._choose_guards
        )
        return optimize(function)

    def _choose_guards(self, guards: Any) -> list[bool]:
        """Leave out that a function of torch is still what the compiler saw: when it is called it is ours."""
        return [id(it.value) not in self._originals for it in guards]

    @contextmanager
    def seeing_the_host(self) -> Iterator[None]:
        """Within the block, torch is what it was before the simulation, and nothing is counted."""
        with self._lock, ExitStack() as stack:
            self._depth += 1
            stack.callback(self._leave)
            if self._depth == 1:
                self._modes = stack.enter_context(_without_modes())
                stack.enter_context(self._tensors.undone())
                stack.enter_context(_without_hooks())
                stack.enter_context(_with_host_as_card())
            yield

    @contextmanager
    def _seeing_the_card(self) -> Iterator[None]:
        """Within the block, which is within one of `seeing_the_host`, a tensor that is made is counted."""
        with self._tensors.redone(), self._devices.redone(), _with_plain_dispatch():
            for mode in reversed(self._modes):
                torch._C._push_on_torch_dispatch_stack(mode)
            try:
                yield
            finally:
                for _ in self._modes:
                    torch._C._pop_torch_dispatch_stack(None)

    def _leave(self) -> None:
        self._depth -= 1

    def compile_graph(self, graph: Any, inputs: Any, options: dict[str, Any]) -> Any:
        patches = {**options, **_WITHOUT_CARD}
        _use_one_attention(graph)
        with ExitStack() as stack:
            stack.enter_context(self._devices.undone())
            stack.enter_context(_replaced(torch.cuda, _lazy_init=lambda: None))
            # A backward pass that cannot be compiled shall be found before the forward pass is run.
            stack.enter_context(functorch_config.patch(force_non_lazy_backward_lowering=True))
            return inductor_compile.compile_fx(
                graph, inputs, inner_compile=self._compile_part, config_patches=patches
            )

    def _compile_part(self, graph: Any, inputs: Any, **options: Any) -> Any:
        """Compile a forward or a backward pass."""
        with self._devices.redone(), _lowering_for_the_card(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _mark(graph, inputs)
            made = inductor_compile.compile_fx_inner(graph, inputs, **{**options, "cudagraphs": None})
        if not options.get("is_backward"):
            self._regions.note_graph()
        return made


_NEITHER_IT_NOR_WHAT_IT_CALLS = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)


def _let_dynamo_see_the_host(compiler: Compiler) -> None:
    convert = convert_frame.CatchErrorsWrapper.__call__
    # Its kernel is simulated: a graph ends there.
    trace_rules._disallowed_callable_ids.add(id(flex_attention))

    def call(wrapper: Any, frame: Any, *rest: Any) -> Any:
        if frame.f_code.co_filename.startswith(_OURS):
            return convert_frame.ConvertFrameReturn()
        if frame.f_code is flex_attention.__code__:
            return convert_frame.ConvertFrameReturn(_NEITHER_IT_NOR_WHAT_IT_CALLS)
        with compiler.seeing_the_host():
            return convert(wrapper, frame, *rest)

    convert_frame.CatchErrorsWrapper.__call__ = call


def _note_failures(regions: CompiledRegions) -> None:
    convert = convert_frame.ConvertFrameAssert.__call__
    failures = exc.BackendCompilerFailed, exc.InternalTorchDynamoError, exc.TorchRuntimeError

    def call(wrapper: Any, frame: Any, *rest: Any, **options: Any) -> Any:
        try:
            return convert(wrapper, frame, *rest, **options)
        except failures as error:
            cause: BaseException = error
            while isinstance(getattr(cause, "inner_exception", None), Exception):
                cause = cause.inner_exception  # type: ignore[attr-defined]
            told = str(cause).strip().partition("\n")[0]
            regions.note_failure(f"{frame.f_code.co_name} raised {type(cause).__name__}: {told}"[:_LONGEST])
            raise

    convert_frame.ConvertFrameAssert.__call__ = call


def _count_optimizer_states(seeing_the_card: Callable[[], AbstractContextManager[None]]) -> None:
    """Dynamo makes the states of an optimizer itself, as it would on a card, when it comes to the step."""
    call_method = OptimizerVariable.call_method
    find_attribute = OptimizerVariable.var_getattr

    def call(variable: Any, tracer: Any, name: str, args: Any, kwargs: Any) -> Any:
        optimizer = variable.value
        if name != "_init_group" or not hasattr(optimizer, name):
            return call_method(variable, tracer, name, args, kwargs)

        def init_group(*given: Any, **named: Any) -> Any:
            with seeing_the_card():
                return type(optimizer)._init_group(optimizer, *given, **named)

        optimizer._init_group = init_group
        try:
            return call_method(variable, tracer, name, args, kwargs)
        finally:
            del optimizer._init_group

    def find(variable: Any, tracer: Any, name: str) -> Any:
        if name == "param_groups":
            optimizer = variable.value
            for group in optimizer.param_groups:
                if "capturable" in group and not any(it in optimizer.state for it in group["params"]):
                    group["capturable"] = True  # as Dynamo does with tensors of CUDA
        return find_attribute(variable, tracer, name)

    OptimizerVariable.call_method = call
    OptimizerVariable.var_getattr = find


@contextmanager
def _replaced(owner: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def _without_modes() -> Iterator[list[Any]]:
    modes = [torch._C._pop_torch_dispatch_stack(None) for _ in range(torch._C._len_torch_dispatch_stack())]
    try:
        yield modes
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_dispatch_stack(mode)


@contextmanager
def _without_hooks() -> Iterator[None]:
    """Dynamo would trace the hooks of all modules, which only look on."""
    kept = [module_hooks._global_forward_pre_hooks, module_hooks._global_forward_hooks]
    contents = [dict(it) for it in kept]
    for hooks in kept:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, content in zip(kept, contents):
            hooks.update(content)


@contextmanager
def _with_host_as_card() -> Iterator[None]:
    """Let a traced script believe that tensors are on the card: what it makes there is made on the host."""
    dispatch = FakeTensorMode.dispatch
    specialize = TensorVariable.specialize

    def dispatch_on_host(mode: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = (kwargs or {}).get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs = {**kwargs, "device": _CPU}
        return dispatch(mode, function, types, args, kwargs)

    def specialize_for_card(value: Any) -> Any:
        properties = specialize(value)
        if properties["device"] == _CPU:
            properties["device"] = torch.device("cuda", state.device)
        return properties

    random = {"get_rng_state": lambda *_: torch.empty(0), "set_rng_state": lambda *_: None}
    with ExitStack() as stack:
        stack.enter_context(_replaced(FakeTensorMode, dispatch=dispatch_on_host))
        stack.enter_context(_replaced(torch.cuda, **random))
        TensorVariable.specialize = staticmethod(specialize_for_card)
        try:
            yield
        finally:
            TensorVariable.specialize = staticmethod(specialize)


def _use_one_attention(graph: Any) -> None:
    """Let attention with dropout or a mask keep what CUDA's kernels keep: the host's keep the matrix."""
    attention = torch._C._nn.scaled_dot_product_attention
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in (
            attention,
            torch.nn.functional.scaled_dot_product_attention,
        ):
            node.target = _attend


def _attend(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    is_fused = torch.backends.cuda.flash_sdp_enabled() or torch.backends.cuda.mem_efficient_sdp_enabled()
    if query.dim() != 4 or enable_gqa or not is_fused or query.dtype == torch.float64:
        return torch._C._nn.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    return _aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]


def _mark(graph: Any, inputs: Any) -> None:
    """Put all tensors of a graph, and all that it makes on a named device, on the card."""
    card = torch.device("cuda", state.device)

    def mark(value: Any) -> Any:
        if isinstance(value, FakeTensor):
            value.fake_device = card
        return value

    for node in graph.graph.nodes:
        pytree.tree_map(mark, [node.meta.get("val"), node.meta.get("example_value")])
        node.args = pytree.tree_map_only(torch.device, lambda _: card, node.args)
        node.kwargs = pytree.tree_map_only(torch.device, lambda _: card, node.kwargs)
    pytree.tree_map(mark, list(inputs))


@contextmanager
def _lowering_for_the_card() -> Iterator[None]:
    """Let Inductor write its program for CUDA, without Triton and without a card."""
    with ExitStack() as stack:
        stack.enter_context(_with_plain_dispatch())
        stack.enter_context(_replaced(scheduler, has_triton=lambda: True))
        stack.enter_context(_replaced(triton_version, triton_hash_with_backend=lambda: ""))
        stack.enter_context(_replaced(inductor_graph.GraphLowering, compile_to_module=_make_program))
        stack.enter_context(_replaced(inductor_compile, get_input_idxs_to_check=lambda *_: []))
        stack.enter_context(_with_device_guard())
        yield


_plain_dispatch = FakeTensorMode.dispatch


def _with_plain_dispatch() -> AbstractContextManager[None]:
    return _replaced(FakeTensorMode, dispatch=_plain_dispatch)


@contextmanager
def _with_device_guard() -> Iterator[None]:
    """Let C++ make a device of CUDA the current one, which does nothing, as for the host.

    A build without CUDA has no entry for it in the table of `c10/core/impl/DeviceGuardImplInterface.h`.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    table = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    before = table[1]
    table[1] = before or table[0]
    try:
        yield
    finally:
        table[1] = before


class _Program:
    """Inductor's module of one graph, as `PyCodeCache` would load it."""

    def __init__(self, namespace: dict[str, Any], source: str) -> None:
        self.__file__ = __file__
        self.source = source
        self.call: Callable[[list[Any]], Any] = namespace["call"]
        self.runner = namespace.get("runner")


def _make_program(lowering: Any) -> _Program:
    """Run in place of `GraphLowering.compile_to_module`, which would compile the kernels."""
    code, _ = lowering.codegen()
    tree = ast.parse(code.value)
    tree.body = [it for it in tree.body if not _is_of_kernels(it)]
    namespace: dict[str, Any] = {"AsyncCompile": _Kernels, "triton": None, "tl": None}
    # Under the name of this file it is no step of the user's.
    exec(compile(tree, __file__, "exec"), namespace)  # noqa: S102 - Inductor wrote it, and would run it too
    namespace.update(_ALLOCATING, **lowering.constants, extern_kernels=_ExternKernels())
    return _Program(namespace, code.value)


def _is_of_kernels(statement: ast.stmt) -> bool:
    names = [it.name for it in statement.names] if isinstance(statement, ast.Import) else []
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""]
    return any(it.startswith(("triton", "torch._inductor")) for it in names)


class _Kernel:
    def __call__(self, *_: Any, **__: Any) -> None:
        """Nothing is computed."""

    run = __call__


class _Kernels:
    """Compiles nothing: every method gives a kernel."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: _Kernel()


class _ExternKernels:
    """Inductor's table of library kernels; those that write into a buffer of the program do nothing."""

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(extern_kernels, name)

        def run(*args: Any, out: Any = None, **options: Any) -> Any:
            return kernel(*args, **options) if out is None else out

        return run


def _empty_on_card(size: Any, stride: Any, dtype: torch.dtype) -> Any:
    return torch.empty_strided(size, stride, dtype=dtype, device=torch.device("cuda", state.device))


def _reinterpret(tensor: Any, size: Any, stride: Any, offset: int = 0) -> Any:
    # To autograd it is no view: FSDP2 warns of those.
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset).detach()


_ALLOCATING: dict[str, Any] = {
    "empty_strided_cuda": _empty_on_card,
    "reinterpret_tensor": _reinterpret,
    "get_raw_stream": lambda ordinal: 0,
    "copy_if_misaligned": lambda tensor: tensor,
    **dict.fromkeys(("assert_size_stride", "assert_alignment"), _Kernel()),
}
