"""Made-up runs with known truth, to score verdicts on: what is healthy, what leaks, when memory runs out."""

from .run import Family, Run, Scene, make_run, make_runs
from .shape import Shape
from .truth import Leak, Truth

__all__ = ["Family", "Leak", "Run", "Scene", "Shape", "Truth", "make_run", "make_runs"]
