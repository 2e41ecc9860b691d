"""How long the joint search takes, and how large its space is."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vramscope.analyzers.planning.cluster import parse_short_form
from vramscope.analyzers.planning.joint import JointOptions, plan_jointly
from vramscope.analyzers.planning.theory.presets import find_preset

from .budgets import Budget
from .measure.tables import format_number, format_table

CASES = (
    ("llama3-8b", "8xh100", 128),
    ("llama3-405b", "128x8xh100", 2048),
    ("gpt3-175b", "128x8xh100", 1536),
)
BUDGET_S = 10.0
"""Of the model of 175B on 1,024 devices."""


@dataclass(frozen=True)
class SearchTime:
    """One search: seconds of this process, the quickest of some runs, and what it went through."""

    model: str
    cluster: str
    considered: int
    too_large: int
    cpu_s: float
    best_s: float


def measure_joint_plan(runs: int) -> list[SearchTime]:
    """Return the times of some searches.

    Args:
        runs: Of each; the quickest counts.
    """
    return [_measure(*case, runs) for case in CASES]


def _measure(model: str, cluster: str, global_batch: int, runs: int) -> SearchTime:
    shape, where = find_preset(model), parse_short_form(cluster)
    options = JointOptions(global_batch=global_batch, seq_length=shape.learned_positions or 4096)
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        plan = plan_jointly(model, shape, where, options)
        seconds.append(time.process_time() - start)
    return SearchTime(
        model=model,
        cluster=cluster,
        considered=plan.considered,
        too_large=sum(each.count for each in plan.pruned if each.reason.startswith("too much memory")),
        cpu_s=min(seconds),
        best_s=plan.configurations[0].time.total_s,
    )


def format_joint_plan(times: Sequence[SearchTime]) -> str:
    """Return a table of searches."""
    head = ("model", "cluster", "configurations", "too large", "search CPU s", "best step s (estimated)")
    rows = [
        (
            each.model,
            each.cluster,
            f"{each.considered:,}",
            f"{each.too_large:,}",
            format_number(each.cpu_s, 2),
            format_number(each.best_s, 2),
        )
        for each in times
    ]
    return format_table("joint plan: all degrees at once", head, rows)


def as_joint_figures(times: Sequence[SearchTime]) -> list[dict[str, object]]:
    """Return what was measured, for the JSON."""
    return [asdict(each) for each in times]


def judge_joint_plan(times: Sequence[SearchTime]) -> list[Budget]:
    """Return the budget of the search."""
    return [
        Budget(f"joint plan, {each.model} on {each.cluster}", each.cpu_s, BUDGET_S, "s")
        for each in times
        if each.model == "gpt3-175b"
    ]
