"""Which parts of a module are its layers, and of what kind they are."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

_HEAD_NAMES = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "nhead")


def list_layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the parts of a module that are its layers, with their names.

    A list of modules is as many layers as it holds; a module that holds such a list is taken apart as well.
    """
    for name, child in module.named_children():
        holds_list = any(isinstance(each, (nn.ModuleList, nn.ModuleDict)) for each in child.children())
        if isinstance(child, (nn.ModuleList, nn.ModuleDict, nn.Sequential)) or holds_list:
            yield from ((f"{name}.{inner}", layer) for inner, layer in list_layers(child))
        else:
            yield name, child


def name_kind(layer: nn.Module, *, is_last: bool) -> str:
    """Return the kind of a layer by what it is made of."""
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
    """Return the attention heads of a layer, where it or a part of it names them."""
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
