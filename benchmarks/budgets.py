"""The budgets of the live view, each with what was measured and whether it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from .latency import Latency
from .live_view import Steadiness
from .measure.tables import format_number, format_table

FIRST_FIGURES_OF_NVITOP = 1.5


@dataclass(frozen=True)
class Budget:
    """One promise: a figure that may not be exceeded, and the peer's figure where there is one."""

    name: str
    measured: float | None
    limit: float | None
    unit: str
    peer: float | None = None

    @property
    def verdict(self) -> Literal["holds", "falls short", "not measured"]:
        """Whether the measured figure is within the limit."""
        if self.measured is None or self.limit is None:
            return "not measured"
        return "holds" if self.measured <= self.limit else "falls short"


def judge_live_view(ours: Steadiness, peer: Steadiness | None) -> list[Budget]:
    """Return the budgets of a live view that is left alone."""

    def of_peer(figure: str) -> float | None:
        return peer.median("all", figure) if peer else None

    cpu, rss = ours.median("all", "cpu_percent"), ours.median("all", "rss_mib")
    written, of_nvitop = ours.bytes_median(), peer.bytes_median() if peer else None
    return [
        Budget("live view, 8 devices: CPU of all our processes", cpu, 0.8, "%", of_peer("cpu_percent")),
        Budget("live view, 8 devices: CPU of the viewer", ours.median("viewer", "cpu_percent"), 0.5, "%"),
        Budget("live view, 8 devices: RSS of all our processes", rss, 120.0, "MiB", of_peer("rss_mib")),
        Budget(
            "live view, 8 devices: bytes to the terminal",
            written,
            of_nvitop,
            "B/s",
            of_nvitop,
        ),
    ]


def judge_agent(agent: Steadiness, loop: Steadiness) -> list[Budget]:
    """Return the budgets of the agent alone; its peer is a loop that only reads memory, at the same time."""
    cpu, peer = agent.median("all", "cpu_percent"), loop.median("all", "cpu_percent")
    return [
        Budget("agent alone, 8 devices: CPU", cpu, 0.2, "%", peer),
        Budget("agent alone, 8 devices: RSS of the hub", agent.median("hub", "rss_mib"), 32.0, "MiB"),
        Budget("agent alone, 8 devices: RSS of the worker", agent.median("worker", "rss_mib"), 40.0, "MiB"),
    ]


def judge_start_up(medians: Mapping[str, float]) -> list[Budget]:
    """Return the budgets of start-up; first figures are compared with nvitop's in the same run."""
    once = medians.get("nvitop --once")
    budgets = []
    for case in ("first figures", "first figures, agent runs"):
        peer = medians.get(f"nvitop, {case}")
        limit = None if peer is None else FIRST_FIGURES_OF_NVITOP * peer
        budgets.append(Budget(case, medians[f"vramscope, {case}"], limit, "s", peer))
    return [
        *budgets,
        Budget("--once", medians["vramscope --once"], 0.2, "s", once),
        Budget("--once --json", medians["vramscope --once --json"], 0.2, "s", once),
        Budget("--version", medians["vramscope --version"], 0.2, "s"),
    ]


def judge_latencies(latencies: Sequence[Latency]) -> list[Budget]:
    """Return the budgets of waiting; a program that never answered has no figure and falls short."""
    budgets = []
    for it in latencies:
        if it.program != "vramscope":
            continue
        peer = next((p for p in latencies if p.program != it.program and p.driver == it.driver), None)
        key_s = float("inf") if it.key_s is None else it.key_s
        quit_s = float("inf") if it.quit_s is None else it.quit_s
        budgets.append(Budget(f"key to screen, {it.driver}", key_s, 0.1, "s", peer.key_s if peer else None))
        budgets.append(Budget(f"q to shell, {it.driver}", quit_s, 1.0, "s", peer.quit_s if peer else None))
    return budgets


def format_budgets(budgets: Sequence[Budget]) -> str:
    """Return the table of budgets."""
    rows = [
        [
            budget.name,
            f"{format_number(budget.measured, _digits(budget))} {budget.unit}",
            f"≤ {format_number(budget.limit, _digits(budget))}",
            format_number(budget.peer, _digits(budget)),
            budget.verdict,
        ]
        for budget in budgets
    ]
    return format_table("Budgets", ["", "measured", "budget", "peer", ""], rows)


def as_records(budgets: Sequence[Budget]) -> list[dict[str, object]]:
    """Return the budgets as they stand in the JSON."""
    return [asdict(budget) | {"verdict": budget.verdict} for budget in budgets]


def _digits(budget: Budget) -> int:
    return {"%": 2, "s": 3, "MiB": 1, "×": 2}.get(budget.unit, 0)
