"""A transformer block with latent attention and a mixture of experts, one of them shared, in PyTorch."""

from typing import Any

from torch import nn

from vramscope.analyzers.planning.graph import Architecture
from vramscope.analyzers.planning.theory import ExpertShape, LatentAttention

LATENT = LatentAttention(query_rank=24, key_value_rank=16, head_channels=8, rope_channels=4, value_channels=6)
EXPERTS = ExpertShape(experts=6, top_k=2, ffn=12, shared_ffn=24, is_expert_layer=(True,))
SIZES = Architecture(
    family="moe",
    layers=1,
    hidden=32,
    heads=4,
    head_size=8,
    vocabulary=10,
    positions=16,
    has_gate=True,
    experts=EXPERTS,
    latent=LATENT,
)
HIDDEN, HEADS = SIZES.hidden, SIZES.heads
QUERY_RANK, RANK = 24, LATENT.key_value_rank
PLAIN, TURNED, VALUE = LATENT.head_channels, LATENT.rope_channels, LATENT.value_channels


class Mlp(nn.Module):  # type: ignore[misc,no-any-unimported]
    """A gated MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(HIDDEN, width, False), nn.Linear(HIDDEN, width, False)
        self.down = nn.Linear(width, HIDDEN, False)

    def forward(self, entering: Any) -> Any:
        return self.down(nn.functional.silu(self.gate(entering)) * self.up(entering))


class Attention(nn.Module):  # type: ignore[misc,no-any-unimported]
    """Queries, keys and values through compressed rows; the turned part of a key serves all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_query, self.norm_value = nn.RMSNorm(QUERY_RANK), nn.RMSNorm(RANK)
        self.down_query = nn.Linear(HIDDEN, QUERY_RANK, False)
        self.down_value = nn.Linear(HIDDEN, RANK + TURNED, False)
        self.up_query = nn.Linear(QUERY_RANK, HEADS * (PLAIN + TURNED), False)
        self.up_value = nn.Linear(RANK, HEADS * (PLAIN + VALUE), False)
        self.out = nn.Linear(HEADS * VALUE, HIDDEN, False)

    def forward(self, entering: Any) -> Any:
        query = self.up_query(self.norm_query(self.down_query(entering)))
        query = query.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        compressed, turned = self.down_value(entering).split((RANK, TURNED), -1)
        both = self.up_value(self.norm_value(compressed)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        plain, value = both.split((PLAIN, VALUE), -1)
        turned = turned[:, None].expand(-1, HEADS, -1, -1)
        key = plain.new_empty((*plain.shape[:-1], PLAIN + TURNED))
        key[..., :PLAIN], key[..., PLAIN:] = plain, turned
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):  # type: ignore[misc,no-any-unimported]
    """Every token goes to the first experts: which ones makes no difference to the sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.attention = Attention()
        self.router = nn.Linear(HIDDEN, EXPERTS.experts, False)
        self.experts = nn.ModuleList(Mlp(EXPERTS.ffn) for _ in range(EXPERTS.experts))
        self.shared = Mlp(EXPERTS.shared_ffn)

    def forward(self, entering: Any) -> Any:
        middle = entering + self.attention(self.norm_1(entering))
        normed = self.norm_2(middle)
        weights = self.router(normed).softmax(-1)
        chosen = range(EXPERTS.top_k)
        routed = sum(self.experts[each](normed) * weights[..., each, None] for each in chosen)
        return middle + self.shared(normed) + routed


class Whole(nn.Module):  # type: ignore[misc,no-any-unimported]
    """Something around a block, so that the block is one layer and not taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, entering: Any) -> Any:
        return self.block(entering)


class Model(nn.Module):  # type: ignore[misc,no-any-unimported]
    """A model of that one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Whole()

    def forward(self, entering: Any) -> Any:
        return self.layer(entering)
