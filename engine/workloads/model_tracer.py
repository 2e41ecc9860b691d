"""Traces any module of PyTorch on the meta device: no weight, activation or gradient is ever allocated.

The forward pass is cut into spans. A span begins where a layer is called and ends where the next one is:
what is done between two layers belongs to the one before. FLOPs of a span are those that
torch.utils.flop_counter counts; in the backward pass an operation belongs to the span in which its node of
the autograd graph was made, known by the node's sequence number. Activations are the storages that autograd
saves, each once, weights and inputs left out. Attention is the fused kernel of CUDA, which keeps no matrix
of scores, wherever that takes its arguments.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ..text import fit_to_reader
from .user_module import TraceError, find_factory

_HEAD_NAMES = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "nhead")


def list_layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the parts of a module that are its layers, with their names.

    Each member of a list of modules is a layer; a module that contains such a list is split as well.
    """
    for name, child in module.named_children():
        holds_list = any(isinstance(each, (nn.ModuleList, nn.ModuleDict)) for each in child.children())
        if isinstance(child, (nn.ModuleList, nn.ModuleDict, nn.Sequential)) or holds_list:
            yield from ((f"{name}.{inner}", layer) for inner, layer in list_layers(child))
        else:
            yield name, child


def name_kind(layer: nn.Module, *, is_last: bool) -> str:
    name = type(layer).__name__.lower()
    if isinstance(layer, nn.Embedding) or name.endswith("embeddings") or name.endswith("embedding"):
        return "embedding"
    if "norm" in name:
        return "layer_norm"
    if isinstance(layer, nn.Linear):
        return "output_head" if is_last else "mlp"
    has_attention = any("attention" in type(each).__name__.lower() for each in layer.modules())
    linears = sum(isinstance(each, nn.Linear) for each in layer.modules())
    if find_heads(layer) is not None or has_attention or linears > 2:
        return "transformer_block"
    return "mlp" if linears else "module"


def find_heads(layer: nn.Module) -> int | None:
    """Return the attention heads of a layer, if it or a part of it names them."""
    for part in layer.modules():
        for name in _HEAD_NAMES:
            heads = getattr(part, name, None)
            if isinstance(heads, int) and not isinstance(heads, bool):
                return heads
    return None


def find_vocabulary(layer: nn.Module, *, is_last: bool) -> int | None:
    """Return the words of an embedding, or of a head at the end."""
    if isinstance(layer, nn.Embedding):
        return int(layer.num_embeddings)
    return int(layer.out_features) if is_last and isinstance(layer, nn.Linear) else None


# A traced model, as JSON.
Traced = dict[str, Any]
# Arguments of `scaled_dot_product_attention`, in order.
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def trace_module(module: nn.Module, inputs: Sequence[Any], dtype: torch.dtype | None = None) -> Traced:
    """Return the layers of a module and what they pass on.

    Args:
        module: On any device; its own weights are neither read nor moved.
        inputs: Arguments of its forward pass; only shape and type of tensors are used.
        dtype: Of its floating weights and inputs; None for their own.

    Raises:
        TraceError: An operation cannot run on the meta device, or no layer was called.
    """
    trace = _Trace(module)
    weights = {name: _to_meta(tensor, dtype) for name, tensor in _list_tensors(module)}
    arguments = [_to_meta(each, dtype) if isinstance(each, torch.Tensor) else each for each in inputs]
    given = [each for each in arguments if isinstance(each, torch.Tensor)]
    trace.ignore([*weights.values(), *given])
    try:
        with trace.watch():
            with _fuse_attention():
                result = torch.func.functional_call(module, weights, tuple(arguments), tie_weights=True)
            trace.finish_forward()
            ends = [each for each in _flatten(result) if each.requires_grad]
            torch.autograd.backward([each.sum() for each in ends])
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error).lower():
            raise
        raise TraceError(trace.explain(error)) from None
    if not trace.spans:
        raise TraceError(f"{type(module).__name__}: its forward pass did not call any of its layers")
    return {"name": type(module).__name__, **trace.describe(module, weights)}


def trace_made(
    model: nn.Module | Callable[[], Any], inputs: Sequence[Any], dtype: str | None = None
) -> Traced:
    """`trace_module` of a module, or of one that a function makes on the meta device."""
    chosen = None if dtype is None else getattr(torch, dtype, None)
    if dtype is not None and not isinstance(chosen, torch.dtype):
        raise TraceError(f"torch has no type {dtype}; expected for example bfloat16")
    if not isinstance(model, nn.Module):
        with torch.device("meta"):
            model = model()
    if not isinstance(model, nn.Module):
        raise TraceError(f"the factory made a {type(model).__name__}; expected a torch.nn.Module")
    return trace_module(
        model, [make_input(each) if isinstance(each, str) else each for each in inputs], chosen
    )


def make_input(text: str) -> torch.Tensor:
    """Return a tensor without values for `4x1024:int64`: shape and type, by default float32."""
    shape, _, kind = text.partition(":")
    dtype = getattr(torch, kind or "float32", None)
    if not isinstance(dtype, torch.dtype):
        raise TraceError(f"input {text}: torch has no type {kind}; expected for example int64 or float32")
    try:
        sizes = [int(size) for size in shape.split("x")]
        return torch.empty(sizes, dtype=dtype, device="meta")
    except (ValueError, RuntimeError):
        raise TraceError(f"input {text}: expected a shape and a type, as 4x1024:int64") from None


@contextmanager
def _fuse_attention() -> Iterator[None]:
    """Run attention as CUDA's memory-efficient kernel, which has shapes on the meta device too.

    A mask, grouped heads and other than four dimensions are left to the meta device.
    """
    plain = torch.nn.functional.scaled_dot_product_attention

    def attend(*args: Any, **kwargs: Any) -> Any:
        told = dict(zip(_ATTENTION, args, strict=False)) | kwargs
        query = told["query"]
        key = told["key"]
        value = told["value"]
        if told.get("attn_mask") is not None or told.get("enable_gqa") or query.dim() != 4:
            return plain(*args, **kwargs)
        dropout = told.get("dropout_p", 0.0)
        is_causal = told.get("is_causal", False)
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        return kernel(query, key, value, None, True, dropout, is_causal, scale=told.get("scale"))[0]

    torch.nn.functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = plain


class _Span:
    """One call of one layer, and what follows it up to the next call."""

    def __init__(self, name: str, layer: nn.Module, sequence: int) -> None:
        self.name = name
        self.layer = layer
        # Sequence number of autograd at its beginning.
        self.sequence = sequence
        self.forward_flops = 0
        self.backward_flops = 0
        self.saved_bytes = 0
        self.output: torch.Tensor | None = None


class _Trace(TorchDispatchMode):
    """Attributes operations, saved tensors and data to spans."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.spans: list[_Span] = []
        self.handed: dict[tuple[int, int], dict[int, torch.Tensor]] = {}
        named = {id(layer): (name, layer) for name, layer in reversed(list(list_layers(module)))}
        self._layers = list(named.values()) or [("model", module)]
        self._counter = FlopCounterMode(display=False)
        self._producers: dict[int, int] = {}
        self._ignored: set[int] = set()
        # Storages seen so far, kept so that their addresses are not reused.
        self._kept: list[Any] = []
        self._saved: set[int] = set()
        self._in_backward = False
        self._operation = "its first operation"

    def ignore(self, tensors: Sequence[torch.Tensor]) -> None:
        """Treat tensors as weights and inputs: neither activations nor passed on."""
        self._ignored = {_find_storage(each) for each in tensors}
        self._kept += [each.untyped_storage() for each in tensors]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch the operations within the block."""
        hooks = [
            hook
            for name, layer in self._layers
            for hook in (
                layer.register_forward_pre_hook(lambda part, _, called=name: self._begin(called, part)),
                layer.register_forward_hook(self._note_output),
            )
        ]
        try:
            with ExitStack() as stack:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._save, lambda kept: kept))
                stack.enter_context(self._counter)
                stack.enter_context(self)
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def finish_forward(self) -> None:
        """Attribute all that follows to the backward pass."""
        self._in_backward = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and add its FLOPs and results to its span."""
        before = self._counter.get_total_flops()
        self._operation = str(func)
        result = func(*args, **(kwargs or {}))
        flops = self._counter.get_total_flops() - before
        if self._in_backward:
            node = torch._C._current_autograd_node()
            if flops and node is not None:
                place = bisect_right(self.spans, node._sequence_nr(), key=lambda span: span.sequence) - 1
                self.spans[max(place, 0)].backward_flops += flops
        elif self.spans:
            self.spans[-1].forward_flops += flops
            self._follow(args, kwargs or {}, result)
        return result

    def _begin(self, name: str, layer: nn.Module) -> None:
        calls = sum(span.layer is layer for span in self.spans)
        self.spans.append(_Span(name if not calls else f"{name} ({calls + 1})", layer, _count_nodes()))

    def _note_output(self, layer: nn.Module, _: Any, output: Any) -> None:
        span = next(span for span in reversed(self.spans) if span.layer is layer)
        span.output = next(iter(_flatten(output)), None)

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = _find_storage(tensor)
        if self.spans and storage not in self._saved and storage not in self._ignored:
            self._saved.add(storage)
            self._kept.append(tensor.untyped_storage())
            self.spans[-1].saved_bytes += tensor.untyped_storage().nbytes()
        return tensor

    def _follow(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note what this span uses of others, and what it makes."""
        here = len(self.spans) - 1
        for tensor in _flatten([args, dict(kwargs)]):
            maker = self._producers.get(_find_storage(tensor), here)
            if maker != here:
                taken = self.handed.setdefault((maker, here), {})
                taken.setdefault(_find_storage(tensor), tensor)
        for tensor in _flatten(result):
            storage = _find_storage(tensor)
            if storage not in self._ignored and storage not in self._producers:
                self._producers[storage] = here
                self._kept.append(tensor.untyped_storage())

    def explain(self, error: Exception) -> str:
        """Name the layer and operation that could not be run."""
        where = f"layer {self.spans[-1].name}" if self.spans else "before its first layer"
        reason = str(error).strip().splitlines()[0].split(". ")[0]
        return (
            f"{where}: {self._operation} cannot run on the meta device, where tensors have no values; "
            f"name a known model or its file instead, or a variant without that operation ({reason})"
        )

    def describe(self, module: nn.Module, weights: Mapping[str, torch.Tensor]) -> Traced:
        """Return layers and edges; a parameter belongs to the first called of the layers that have it."""
        sizes = {id(tensor): _count_bytes(weights[name]) for name, tensor in _list_tensors(module)}
        within = {id(each) for _, layer in self._layers for each in layer.parameters()}
        outside = [each for each in module.parameters() if id(each) not in within]
        owned: set[int] = set()
        layers = []
        for place, span in enumerate(self.spans):
            parameters = [*span.layer.parameters(), *(outside if place == 0 else ())]
            own = [each for each in parameters if id(each) not in owned]
            owned |= {id(each) for each in own}
            layers.append(
                {
                    **_describe_span(span, is_last=place == len(self.spans) - 1),
                    "parameters": sum(each.numel() for each in own),
                    "shared_parameters": sum(each.numel() for each in parameters)
                    - sum(each.numel() for each in own),
                    "weight_bytes": sum(sizes[id(each)] for each in parameters),
                }
            )
        unused = [name for name, each in module.named_parameters() if id(each) not in owned]
        return {"layers": layers, "edges": self._list_edges(), "unused": unused}

    def _list_edges(self) -> list[Traced]:
        return [
            {
                "source": source,
                "target": target,
                "shape": list(max(taken.values(), key=_count_bytes).shape),
                "dtype": str(max(taken.values(), key=_count_bytes).dtype).removeprefix("torch."),
                "bytes": sum(map(_count_bytes, taken.values())),
            }
            for (source, target), taken in sorted(self.handed.items())
        ]


def _describe_span(span: _Span, *, is_last: bool) -> Traced:
    return {
        "name": span.name,
        "kind": name_kind(span.layer, is_last=is_last),
        "forward_flops": span.forward_flops,
        "backward_flops": span.backward_flops,
        "activation_bytes": span.saved_bytes,
        "output_shape": [] if span.output is None else list(span.output.shape),
        "heads": find_heads(span.layer),
        "vocabulary": find_vocabulary(span.layer, is_last=is_last),
    }


def _list_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _to_meta(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    chosen = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    return torch.empty_like(tensor, device="meta", dtype=chosen).requires_grad_(tensor.requires_grad)


def _flatten(value: Any) -> Iterator[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    yield from (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def _find_storage(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _count_bytes(tensor: torch.Tensor) -> int:
    size: int = tensor.numel() * tensor.element_size()
    return size


def _count_nodes() -> int:
    """Return the sequence number that the next node of the autograd graph gets."""
    with torch.enable_grad():
        node = torch.zeros((), device="meta", requires_grad=True).view(()).grad_fn
    count: int = node._sequence_nr()
    return count


# What was found, or what went wrong, is written as JSON into the file that is named; where the user's own
# code raises, its traceback goes to stderr, without our frames.


def _skip_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame on that is neither ours nor the import machinery's."""
    ours = (str(Path(__file__).parent), "<frozen importlib", str(Path(importlib.__file__).parent))
    while trace is not None and trace.tb_next is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(ours):
            break
        trace = trace.tb_next
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--factory", required=True, help="module:function that makes the model")
    parser.add_argument("--input", action="append", default=[], help="shape and type of an argument")
    parser.add_argument("--dtype", help="of floating weights and inputs (default: as they are made)")
    parser.add_argument("--result", required=True, type=Path, help="file to write JSON into")
    arguments = parser.parse_args()
    try:
        found = trace_made(find_factory(arguments.factory), arguments.input, arguments.dtype)
    except TraceError as error:
        found = {"error": error.args}
    except Exception as error:  # noqa: BLE001 - of the user's code, any
        lines = traceback.format_exception(type(error), error, _skip_ours(error.__traceback__))
        sys.stderr.write(fit_to_reader("".join(lines), sys.stderr))
        found = {"error": [f"{arguments.factory} raised {type(error).__name__}: {error}"]}
    arguments.result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
