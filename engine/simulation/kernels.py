"""Operations that only CUDA has, or that keep less there: dropout a mask of bytes, attention no matrix, RMS
norm no copies in fp32.

The host computes its own values, which are those of a plain run; what counts is what the fused kernels of
CUDA would have kept, in the types that only CUDA computes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable

import torch

from .devices import state, targeting, uncharged
from .ledger import tell
from .patching import replace
from .storages import StorageRegistry, storage_of

# `torch.nn.attention.SDPBackend.MATH`: the host has no fused kernel for this call.
_MATH = 0


class FusedKernels:
    def __init__(self, registry: StorageRegistry) -> None:
        self._registry = registry

    def install(self) -> None:
        """Wrap the functions that CUDA runs as one kernel."""
        torch._VF.dropout = self._make_dropout(torch._VF.dropout)
        replace(torch, "dropout", lambda _: torch._VF.dropout)
        functional = torch.nn.functional
        replace(functional, "scaled_dot_product_attention", self._make_attention)
        # Asked for, it would warn that this build has no cuDNN; the steps of the host run either way.
        torch.backends.cudnn.is_acceptable = lambda tensor: False
        torch._C._nn.scaled_dot_product_attention = functional.scaled_dot_product_attention
        # Before PyTorch 2.9 CUDA has no kernel for it either.
        if hasattr(torch.ops.aten, "_fused_rms_norm"):
            replace(torch, "rms_norm", self._make_norm)

    def charge(self, tensor: Any) -> None:
        """Count a tensor that was made uncharged."""
        self._registry.resize(storage_of(tensor))

    def _make_dropout(self, original: Any) -> Any:
        def dropout(tensor: Any, p: float, train: bool) -> Any:
            if not train or not 0.0 < p < 1.0 or self._registry.where_is(tensor) is None:
                return original(tensor, p, train)
            # What is made first is the mask, of one byte an element on CUDA.
            state.next_cost_bytes = tensor.numel()
            try:
                return original(tensor, p, train)
            finally:
                state.next_cost_bytes = None

        return dropout

    def _make_attention(self, original: Any) -> Any:
        function = _make_attention(self, original)

        def scaled_dot_product_attention(
            query: Any,
            key: Any,
            value: Any,
            attn_mask: Any = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            scale: float | None = None,
            enable_gqa: bool = False,
        ) -> Any:
            options = {"scale": scale, **({"enable_gqa": True} if enable_gqa else {})}
            if not self._is_fused(query, key, value, attn_mask, dropout_p, is_causal, options):
                return original(query, key, value, attn_mask, dropout_p, is_causal, **options)
            return function.apply(query, key, value, attn_mask, dropout_p, is_causal, options)

        return scaled_dot_product_attention

    def _make_norm(self, original: Any) -> Any:
        function = _make_norm(self, original)

        def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
            # Its kernel has one type for input and weight, and the layout of most tensors (PyTorch,
            # aten/src/ATen/native/layer_norm.cpp, rms_norm_symint).
            is_composite = (
                input.is_complex()
                or (weight is not None and weight.dtype != input.dtype)
                or self._registry.where_is(input) is None
                or _is_wrapped(input)
                or torch.autograd.forward_ad._current_level >= 0
            )
            if is_composite:
                return original(input, normalized_shape, weight, eps)
            return function.apply(input, weight, tuple(normalized_shape), eps)

        return rms_norm

    def _is_fused(
        self, query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, options: Any
    ) -> bool:
        if self._registry.where_is(query) is None or torch._C._functorch.is_functorch_wrapped_tensor(query):
            return False
        enabled = torch.backends.cuda.flash_sdp_enabled() or torch.backends.cuda.mem_efficient_sdp_enabled()
        if not enabled or query.dim() != 4:
            return False
        choice = torch._fused_sdp_choice(query, key, value, mask, dropout_p, is_causal, **options)
        return bool(choice == _MATH)


class FusedFunction(torch.autograd.Function):
    """The steps of the host in place of one kernel of CUDA; only what the kernel keeps is counted."""

    @staticmethod
    def start(
        context: Any,
        kernels: FusedKernels,
        compute: Callable[..., Any],
        tensors: Any,
        statistics: Sequence[int],
        *,
        keeps_output: bool,
    ) -> Any:
        """Compute on the host; keep inputs and some numbers in fp32 on the card of the first.

        Args:
            context: Of autograd.
            kernels: Charge the output.
            compute: What the host computes of the tensors.
            tensors: Inputs of the kernel.
            statistics: Shape of the numbers.
            keeps_output: Whether the kernel keeps its output, too.
        """
        context.count = len(tensors)
        context.compute = compute
        context.steps = HostSteps(
            lambda *given: (compute(*given),), tensors, context.needs_input_grad[: len(tensors)]
        )
        (output,) = context.steps.hand_out()
        kernels.charge(output)
        place = kernels._registry.where_is(tensors[0])
        with targeting(place if place is not None else state.device):
            kept = torch.Tensor.new_empty(tensors[0], statistics, dtype=torch.float32)
        context.save_for_backward(*tensors, *([output] if keeps_output else ()), kept)
        return output

    @staticmethod
    def finish(context: Any, kernels: FusedKernels, gradient: Any) -> list[Any]:
        """Compute the gradients on the host; they alone are counted.

        Gradients that are differentiated again, or are many at once, are those of the host's operations.
        """
        if torch.is_grad_enabled() or _is_wrapped(gradient):
            return FusedFunction.differentiate(context, gradient)
        found: list[Any] = context.steps.go_back(context.saved_tensors[: context.count], (gradient,))
        for it in found:
            if it is not None:
                kernels.charge(it)
        return found

    @staticmethod
    def differentiate(context: Any, gradient: Any) -> list[Any]:
        """Compute the gradients by operations that autograd and vmap can follow."""
        is_followed = torch.is_grad_enabled()
        tensors = list(context.saved_tensors[: context.count])
        needs = context.needs_input_grad[: context.count]
        with torch.enable_grad():
            if not is_followed:
                tensors = [
                    it if it is None else it.detach().requires_grad_(needed)
                    for it, needed in zip(tensors, needs)
                ]
            output = context.compute(*tensors)
        wanted = [it for it, needed in zip(tensors, needs) if needed]
        found = iter(
            torch.autograd.grad(output, wanted, gradient, create_graph=is_followed, allow_unused=True)
        )
        return [next(found) if needed else None for needed in needs]


def _is_wrapped(tensor: Any) -> bool:
    """Return whether vmap or another transform of functions has wrapped a tensor."""
    functorch = torch._C._functorch
    is_old = getattr(functorch, "is_legacy_batchedtensor", None)
    return bool(functorch.is_functorch_wrapped_tensor(tensor) or (is_old is not None and is_old(tensor)))


def _make_attention(kernels: FusedKernels, attend: Any) -> Any:
    """Return the autograd function that keeps what a fused kernel keeps."""

    class FusedAttention(FusedFunction):
        """Attention whose matrix of weights costs nothing on the card."""

        @staticmethod
        def forward(context: Any, *inputs: Any) -> Any:
            """Compute on the host; keep inputs, output and the sums of the softmax."""
            tensors, (dropout_p, is_causal, options) = inputs[:4], inputs[4:]

            def compute(*given: Any) -> Any:
                return attend(*given, dropout_p, is_causal, **options)

            sums = inputs[0].shape[:3]
            return FusedFunction.start(context, kernels, compute, tensors, sums, keeps_output=True)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            """Compute the gradients on the host."""
            return (*FusedFunction.finish(context, kernels, gradient), None, None, None)

    return FusedAttention


def _make_norm(kernels: FusedKernels, normalize: Any) -> Any:
    """Return the autograd function that keeps what `aten::_fused_rms_norm` keeps."""

    class FusedNorm(FusedFunction):
        """RMS norm without copies of its input in fp32."""

        @staticmethod
        def forward(context: Any, tensor: Any, weight: Any, shape: Any, eps: Any) -> Any:
            """Compute on the host; keep inputs and a float for each row."""
            rows = (*tensor.shape[: tensor.dim() - len(shape)], *(1 for _ in shape))

            def compute(values: Any, scales: Any) -> Any:
                return normalize(values, shape, scales, eps)

            return FusedFunction.start(context, kernels, compute, (tensor, weight), rows, keeps_output=False)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            """Compute the gradients on the host."""
            return (*FusedFunction.finish(context, kernels, gradient), None, None)

    return FusedNorm


class HostSteps:
    """The steps of the host in place of one kernel; their tensors are not counted.

    Their graph is kept for the backward pass. Where a script hooks what is saved (checkpointing, offloading),
    the kernel's inputs do not stay on the card, so that nothing is kept, and the steps are run again.
    """

    def __init__(self, attend: Callable[..., tuple[Any, ...]], tensors: Any, needs: Any) -> None:
        self._attend = attend
        self._needs = needs
        ask = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        self._is_hooked = ask is not None and ask(True) is not None
        self._random: Any = torch.get_rng_state() if self._is_hooked else None
        self._autocast = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        self._inner: list[Any] = []
        self._found: tuple[Any, ...] = tuple()  # noqa: C408 - `()` would be taken for always empty
        self._outputs: tuple[Any, ...] = ()
        if self._is_hooked:
            with torch.no_grad(), uncharged():
                self._outputs = attend(*tensors)
        else:
            self._outputs = tuple(it.detach() for it in self._run(tensors))

    def hand_out(self) -> tuple[Any, ...]:
        """Return the outputs, which are the script's from then on."""
        outputs, self._outputs = self._outputs, ()
        return outputs

    def go_back(self, saved: Any, gradients: Any) -> list[Any]:
        """Return the gradients of the inputs, None where none is needed.

        Args:
            saved: The inputs, as the kernel would have saved them.
            gradients: Of the outputs; those that are left out have none.
        """
        is_kept = keeps_graph()
        if self._is_hooked:
            is_enabled, dtype = self._autocast
            with torch.random.fork_rng(devices=[]), torch.autocast("cuda", dtype, enabled=is_enabled):
                torch.set_rng_state(self._random)
                self._run(saved)
        pairs = zip(self._found, gradients)
        followed = [(it, gradient) for it, gradient in pairs if it.requires_grad and gradient is not None]
        outputs, given = zip(*followed)
        needed = [it for it in self._inner if it is not None and it.requires_grad]
        made: Iterator[Any]
        with uncharged():
            made = iter(torch.autograd.grad(outputs, needed, given, retain_graph=is_kept))
        found = [next(made) if it is not None and it.requires_grad else None for it in self._inner]
        if self._is_hooked or not is_kept:
            # As autograd does with what it saved: the node itself lives as long as the loss.
            self._inner = []
            self._found = ()
        return found

    def _run(self, tensors: Any) -> tuple[Any, ...]:
        # What autograd saves here is no part of the script's graph: its hooks are not for it.
        # Detached, as an operation that saves its own result would keep itself: nothing would free either.
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda it: it.detach(), lambda it: it)
        with torch.enable_grad(), uncharged(), hooks:
            self._inner = [_cut_off(it, needed) for it, needed in zip(tensors, self._needs)]
            self._found = self._attend(*self._inner)
        return self._found


def _cut_off(tensor: Any, is_needed: bool) -> Any:
    """Return a tensor without its history, so that a graph of its own begins there."""
    return None if tensor is None else tensor.detach().requires_grad_(is_needed)


def keeps_graph() -> bool:
    """Return whether the backward pass in progress may be run again."""
    ask = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return True if ask is None else bool(ask())


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_HALVES = (torch.float16, torch.complex32)
_TRANSFORMS = "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn hfft ihfft"
# Products of matrices that CUDA also gives in a wider type than that of its inputs.
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
# A library's kernels go with it.
_kept: dict[str, Any] = {}
_NARROW = {torch.float32: torch.float16, torch.complex64: torch.complex32}


def install_cuda_types(registry: StorageRegistry) -> None:
    """Run in a wider type what the host computes in no narrower one; the card is charged for the narrow."""

    def count(original: Any) -> Any:
        def histc(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.dtype not in _INTEGERS or registry.where_is(tensor) is None:
                return original(tensor, *args, **kwargs)
            return _widen(registry, original, tensor, torch.float64, args, kwargs)

        return histc

    def transform(original: Any) -> Any:
        def run(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.dtype not in _HALVES or registry.where_is(tensor) is None:
                return original(tensor, *args, **kwargs)
            wide = torch.complex64 if tensor.dtype.is_complex else torch.float32
            return _widen(registry, original, tensor, wide, args, kwargs)

        return run

    _add_wide_products()
    replace(torch, "ctc_loss", lambda original: _make_ctc_loss(original, registry))
    for owner in (torch, torch.Tensor):
        replace(owner, "histc", count)
    for name in _TRANSFORMS.split():
        replace(torch.fft, name, transform)
    for owner in (torch.cuda, torch.cuda.memory):
        replace(owner, "MemPool", lambda original: MemoryPool)
        replace(owner, "use_mem_pool", lambda original: _use_pool)


def _add_wide_products() -> None:
    """Give the host the overloads with `out_dtype`; what they need in between belongs to no card."""
    library = _kept.setdefault("products", torch.library.Library("aten", "IMPL"))

    def compute(name: str, args: Any, out_dtype: torch.dtype, kwargs: Any) -> Any:
        return getattr(torch, name)(*(it.to(out_dtype) for it in args), **kwargs)

    def register(name: str) -> None:
        library.impl(
            f"{name}.dtype",
            lambda *args, **kwargs: compute(name, args[:-1], args[-1], kwargs),
            "CPU",
        )
        library.impl(
            f"{name}.dtype_out",
            lambda *args, out, **kwargs: out.copy_(compute(name, args[:-1], args[-1], kwargs)),
            "CPU",
        )

    for name in _PRODUCTS:
        if hasattr(getattr(torch.ops.aten, name), "dtype_out"):
            register(name)


def _make_ctc_loss(original: Any, registry: StorageRegistry) -> Any:
    """CUDA takes targets and lengths from the host too."""

    def ctc_loss(log_probs: Any, *args: Any, **kwargs: Any) -> Any:
        place = registry.where_is(log_probs)
        if place is not None:
            args = tuple(it.cuda(place) if isinstance(it, torch.Tensor) else it for it in args)
        return original(log_probs, *args, **kwargs)

    return ctc_loss


def _widen(
    registry: StorageRegistry, original: Any, tensor: Any, wide: torch.dtype, args: Any, kwargs: Any
) -> Any:
    """Return what CUDA computes in the type of a tensor, or in the narrow type that belongs to the result."""
    place = registry.where_is(tensor)
    with uncharged():
        found = original(tensor.to(wide), *args, **kwargs)
        narrow = tensor.dtype if wide == torch.float64 else _NARROW[found.dtype]
        with targeting(place if place is not None else 0):
            made = found.to(narrow)
    registry.resize(storage_of(made))
    return made


class MemoryPool:
    """A pool of its own for some tensors; here they are in the common one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.id = (0, 0)
        self.allocator = None

    def use_count(self) -> int:
        return 1

    def snapshot(self, *_: Any, **__: Any) -> list[Any]:
        return []


@contextmanager
def _use_pool(pool: Any, device: Any = None) -> Iterator[None]:
    tell("a torch.cuda.MemPool is the common pool here, so reserved memory may be less than on a GPU")
    yield
