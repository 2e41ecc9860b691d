"""Behaviour that was published from real devices, which the model must show."""

import pytest

from vramscope.analyzers.allocator_model import AllocatorSettings, CachingAllocator, PrivateDeviceMemory

MIB = 1 << 20


class FencedCycles:
    """The reproducer of pytorch/pytorch#193400: each cycle leaves 2 MiB alive behind what it freed."""

    def __init__(self, settings: str, *, keeps_fence: bool = True) -> None:
        # 16 GiB of a card less what driver and context hold: the reproducer reached 16,000 MiB and no more.
        card = PrivateDeviceMemory(16_000 * MIB)
        self.allocator = CachingAllocator(card, AllocatorSettings.parse(settings))
        self._keeps_fence = keeps_fence
        self.allocator.malloc(64 * MIB)

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            large = self.allocator.malloc(91 * MIB)
            medium = self.allocator.malloc(91 * MIB // 2)
            fence = self.allocator.malloc(2 * MIB)
            self.allocator.free(large)
            self.allocator.free(medium)
            if not self._keeps_fence:
                self.allocator.free(fence)

    @property
    def state_mib(self) -> tuple[float, float]:
        return self.allocator.allocated_bytes / MIB, self.allocator.reserved_bytes / MIB


BOTH = "max_split_size_mb:128,expandable_segments:True"


def test_oversize_limit_and_expandable_segments_together_reserve_without_bound() -> None:
    cycles = FencedCycles(BOTH)
    seen = []
    cycles.run(1)
    for _ in range(6):
        seen.append(cycles.state_mib)
        cycles.run(20)
    # Measured on a 16 GiB card with PyTorch 2.12 (pytorch/pytorch#193400), at cycle 0, 20, ... 100.
    assert seen == [(66, 220), (106, 2980), (146, 5760), (186, 8520), (226, 11300), (266, 14060)]


def test_the_full_card_is_given_back_once_and_growth_starts_anew() -> None:
    cycles = FencedCycles(BOTH)
    cycles.run(116)
    stats = cycles.allocator.memory_stats()
    # Cycle 115 of the same measurement (ROCm/legacy-rocm-build#6603).
    assert cycles.state_mib == (296, 2680)
    assert stats["reserved_bytes.all.peak"] == 16_000 * MIB
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)


@pytest.mark.parametrize(
    ("settings", "keeps_fence"),
    [
        pytest.param("", True, id="defaults"),
        pytest.param("expandable_segments:True", True, id="expandable alone"),
        pytest.param("max_split_size_mb:128", True, id="limit alone"),
        pytest.param(BOTH, False, id="both, nothing stays alive"),
    ],
)
def test_each_alone_stays_below_500_mib(settings: str, keeps_fence: bool) -> None:
    cycles = FencedCycles(settings, keeps_fence=keeps_fence)
    cycles.run(101)
    assert cycles.state_mib[1] < 500
