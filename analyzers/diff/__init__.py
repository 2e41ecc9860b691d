"""Two runs side by side: where and when they part, beyond the noise of their own steps."""

from .compare import compare_runs
from .model import (
    FIGURE_WORDS,
    Comparison,
    Curves,
    Figure,
    FigureDifference,
    FoundOnce,
    RunDifference,
    RunFacts,
    SubjectDifference,
)
from .parting import Parting, find_parting
from .summary import RunSummarizer, RunSummary

__all__ = [
    "FIGURE_WORDS",
    "Comparison",
    "Curves",
    "Figure",
    "FigureDifference",
    "FoundOnce",
    "Parting",
    "RunDifference",
    "RunFacts",
    "RunSummarizer",
    "RunSummary",
    "SubjectDifference",
    "compare_runs",
    "find_parting",
]
