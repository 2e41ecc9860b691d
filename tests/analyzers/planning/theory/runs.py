"""Runs that hypothesis makes up: small, and possible."""

from typing import NamedTuple

import msgspec
from hypothesis import strategies as st

from vramscope.analyzers.planning.theory import (
    BF16,
    FP16,
    FP32,
    ExpertShape,
    ModelShape,
    ParallelLayout,
    TrainingSetup,
)


class Run(NamedTuple):
    """Model, layout and setup."""

    shape: ModelShape
    layout: ParallelLayout
    setup: TrainingSetup

    def change(self, part: str, **values: object) -> "Run":
        """Return the run with other values in its `shape`, `layout` or `setup`."""
        return self._replace(**{part: msgspec.structs.replace(getattr(self, part), **values)})


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Return a run whose degrees divide what they must."""
    tensor, pipeline = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4]))
    pieces = draw(st.sampled_from([1, 2])) if pipeline > 1 else 1
    layers = pipeline * pieces * draw(st.integers(1, 3))
    heads = draw(st.sampled_from([4, 8]))
    channels = draw(st.sampled_from([16, 64]))
    experts = None
    if draw(st.booleans()):
        experts = ExpertShape(
            experts=8, top_k=draw(st.integers(1, 4)), ffn=64, shared_ffn=64, is_expert_layer=(True,) * layers
        )
    shape = ModelShape(
        layers=layers,
        hidden=heads * channels,
        heads=heads,
        kv_groups=draw(st.sampled_from([4, heads])),
        head_channels=channels,
        ffn=draw(st.sampled_from([256, 1024])),
        vocab=draw(st.integers(100, 9000)),
        vocab_multiple=128,
        learned_positions=draw(st.sampled_from([0, 2048])),
        is_gated=draw(st.booleans()),
        is_tied=draw(st.booleans()),
        has_linear_bias=draw(st.booleans()),
        has_norm_bias=draw(st.booleans()),
        experts=experts,
    )
    layout = ParallelLayout(
        tensor=tensor,
        pipeline=pipeline,
        data=draw(st.sampled_from([1, 2, 8])),
        is_sequence_parallel=tensor > 1 and draw(st.booleans()),
        virtual_stages=pieces,
    )
    return Run(shape, layout, draw(setups()))


@st.composite
def setups(draw: st.DrawFn) -> TrainingSetup:
    """Return how a run is trained."""
    return TrainingSetup(
        seq_length=draw(st.sampled_from([64, 256, 1024])),
        micro_batch_size=draw(st.integers(1, 4)),
        micro_batches=draw(st.integers(1, 9)),
        numbers=draw(st.sampled_from([BF16, FP16, FP32])),
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        attention=draw(st.sampled_from(["fused", "flash", "unfused"])),
        has_attention_dropout=draw(st.booleans()),
        has_hidden_dropout=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        is_gpipe=draw(st.booleans()),
        has_transformer_engine=draw(st.booleans()),
    )
