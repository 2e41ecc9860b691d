"""A training run as a whole: what an estimate is made of."""

import msgspec

from ..layout import ParallelLayout
from ..shape import ModelShape
from ..training import TrainingSetup


class TrainingRun(msgspec.Struct, frozen=True, kw_only=True):
    """Model, layout and setup, and what the run is called."""

    name: str
    shape: ModelShape
    layout: ParallelLayout
    setup: TrainingSetup
