"""What a time model rests on, where nobody measured it: shares of peaks, latencies, what hides behind
what."""

import msgspec

PRODUCT_EFFICIENCY = 0.75
"""Of a device's peak, by large matrix products in 16 bits: what one layer of llama2-7b leads to with which
Galvatron profiled an A100 (`computation_profiling_bf16_llama2-7b_all.json`): 0.70 with one sequence of
2,048 tokens (4.40 ms forward), 0.77 with twelve (3.92 ms each)."""
ATTENTION_EFFICIENCY = 0.5
"""Of the peak, by fused attention: 50 to 73 % forward on A100 (FlashAttention-2, arXiv 2307.08691, section
4)."""
BANDWIDTH_SHARE = 0.8
"""Of a memory's bandwidth, by kernels that do little but read and write."""
LINK_SHARE = 0.77
"""Of a link's bandwidth, by collectives: rings of 8 A100 reach 231 of 300 GB/s in Galvatron's `sp_time`
files (1 GiB all-reduced in 8.14 ms)."""
FLOPS_PER_BYTE = 200.0
"""Of a device whose memory's bandwidth nobody told: A100 has 153 FLOP a byte, H100 295."""
PHASE_LATENCY_S = 10e-6
"""Of an all-gather or a reduce-scatter, beside the links' own latency at each hop; an all-reduce is both. 1
MiB takes 79 us among 8 A100 in Galvatron's `sp_time` files: 8 us its bytes, 48 us two times seven hops of
NVLink."""
LAUNCH_S = 10e-6
"""Of one operation on the host that launches it, without CUDA graphs."""
OVERLAP_SLOWDOWN = 1.13
"""How much longer computing takes while something is sent: `overlap_coefficient.json` of Galvatron, on
A100."""


class TimeAssumptions(msgspec.Struct, frozen=True, kw_only=True):
    """Figures that a time model takes as given."""

    product_efficiency: float = PRODUCT_EFFICIENCY
    """Share of the peak that large matrix products reach; small ones reach less by their tiles and
    bytes."""
    attention_efficiency: float = ATTENTION_EFFICIENCY
    bandwidth_share: float = BANDWIDTH_SHARE
    link_share: float = LINK_SHARE
    """Not applied to bandwidths that were measured."""
    phase_latency_s: float = PHASE_LATENCY_S
    launch_s: float = LAUNCH_S
    overlaps_gradients: bool = True
    """Whether collectives of gradients and weights run while the device computes, as far as there is
    time."""
    overlap_slowdown: float = OVERLAP_SLOWDOWN
    factor: float = 1.0
    """All times are multiplied by this; learnt from runs, else 1."""
    calibration: str | None = None
    """What was learnt from; None for nothing."""
