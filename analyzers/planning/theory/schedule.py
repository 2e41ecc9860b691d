"""How many micro-batches a pipeline rank holds activations of, at most."""

from .layout import ParallelLayout
from .training import TrainingSetup


def count_in_flight(layout: ParallelLayout, setup: TrainingSetup, stage: int) -> int:
    """Return the most pieces of forward work whose backward pass is still to come, on one pipeline rank.

    GPipe: all m micro-batches. 1F1B: min(p - i, m) (Narayanan et al., arXiv 2006.09503, section 3.2).
    Interleaved: 2(p - i - 1) + (v - 1)g + 1 pieces, g being the micro-batches that a piece runs in a row
    (arXiv 2104.04473, section 2.2); v x m at most. One piece is one v-th of the rank's layers.

    Args:
        layout: Degrees; `virtual_stages` is v.
        setup: Its `micro_batches` is m.
        stage: Pipeline rank i, from 0.
    """
    pieces = layout.virtual_stages
    if setup.is_gpipe or layout.pipeline == 1:
        return setup.micro_batches * pieces if layout.pipeline > 1 else pieces
    behind = layout.pipeline - stage - 1
    if pieces == 1:
        return min(behind + 1, setup.micro_batches)
    group = setup.micro_batch_group or layout.pipeline
    return min(2 * behind + (pieces - 1) * group + 1, pieces * setup.micro_batches)
