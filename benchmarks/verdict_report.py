"""Tables of scores for people, and the same figures for the JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from math import isinf
from statistics import fmean, median, quantiles

from .measure.tables import format_number, format_table
from .verdict_detectors import FAULTS, OURS
from .verdict_scores import (
    BINS,
    EVIDENCE_S,
    LEADS_S,
    Score,
    count_too_short,
    find_misses,
    list_errors,
    score,
    score_alarms,
    score_fragmented,
)
from .verdict_speed import Speed
from .verdict_targets import Target
from .verdict_watch import Watched


def format_scores(title: str, scores: Mapping[str, Score]) -> str:
    """Return the table of all detectors, a row for each figure."""
    rows = [[name, *(cell(of_one) for of_one in scores.values())] for name, cell in _CELLS.items()]
    return format_table(title, ["", *scores], rows)


def _format_error(value: float | None) -> str:
    if value is None:
        return "—"
    return "no forecast" if isinf(value) else f"{100 * value:.1f} %"


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


_CELLS: dict[str, Callable[[Score], str]] = {
    "leaks called, of all": lambda it: f"{it.leak.found}/{it.leak.found + it.leak.missed}",
    "leak precision": lambda it: format_number(it.leak.precision, 3),
    "leak recall": lambda it: format_number(it.leak.recall, 3),
    "leak F1": lambda it: format_number(it.leak.f1, 3),
    "host leak F1": lambda it: format_number(it.host_leak.f1, 3),
    "benign device-hours": lambda it: format_number(it.benign_hours, 0),
    "false findings": lambda it: str(sum(it.false[kind] for kind in FAULTS)),
    "benign runs with one": lambda it: f"{it.false_runs}/{it.benign_runs}",
    "… in 1,000 h": lambda it: format_number(it.false_per_1000_hours, 2),
    "OOM recall 1 min before": lambda it: format_number(it.recall_at(60.0), 3),
    "OOM recall 5 min before": lambda it: format_number(it.recall_at(300.0), 3),
    "life left at first call, median": lambda it: format_number(median(it.leads) if it.leads else None, 2),
    "… tenth percentile": lambda it: format_number(
        quantiles(it.leads, n=10, method="inclusive")[0] if len(it.leads) > 1 else None
    ),
    "time error at 10 % of life": lambda it: _format_error(it.error_at(0.1)),
    "… 50 %": lambda it: _format_error(it.error_at(0.5)),
    "… 90 %": lambda it: _format_error(it.error_at(0.9)),
    "80 % interval covers": lambda it: format_number(it.coverage, 3),
    "Brier score": lambda it: format_number(it.brier_score, 5),
    "… of runs that end in an error": lambda it: format_number(it.brier_of_errors, 4),
    "… within steps": lambda it: format_number(_mean(it.brier_within_steps), 5),
}


def format_families(runs: Sequence[Watched]) -> str:
    """Return what ours did on each family."""
    rows = []
    for family in dict.fromkeys(run.family for run in runs):
        of_family = [run for run in runs if run.family == family]
        it = score(of_family, OURS)
        leaks = it.leak if it.leak.found + it.leak.missed else it.host_leak
        rows.append(
            [
                family,
                str(len(of_family)),
                f"{leaks.found}/{leaks.found + leaks.missed}",
                str(it.leak.false + it.host_leak.false),
                str(sum(run.false_alarms for run in of_family)),
                " ".join(f"{kind} {count}" for kind, count in sorted(it.false.items())) or "—",
                f"{it.warned.get(60.0, 0)}/{it.warnable.get(60.0, 0)}",
                f"{it.warned.get(300.0, 0)}/{it.warnable.get(300.0, 0)}",
                _format_error(it.error_at(0.5)),
                format_number(it.coverage, 2),
                format_number(it.brier_score, 4),
            ]
        )
    head = [
        "",
        "runs",
        "leaks",
        "too many",
        "alarms",
        "on benign",
        "1 min",
        "5 min",
        "mid-life",
        "covers",
        "Brier",
    ]
    return format_table("vramscope by family", head, rows)


SEEN = {
    "live": "live: every step, free blocks counted",
    "series": "series: samples alone",
    "device": "driver only",
}


def format_shapes(runs: Sequence[Watched]) -> str:
    """Return what ours did on runs that are seen in each way."""
    rows = []
    for kind, meaning in SEEN.items():
        of_kind = [run for run in runs if run.shape.kind == kind]
        it = score(of_kind, OURS)
        alarms = score_alarms(of_kind, kind)
        rows.append(
            [
                meaning,
                str(len(of_kind)),
                format_number(alarms.quiet_hours, 0),
                str(alarms.false),
                format_number(it.leak.f1, 3),
                *(format_number(it.recall_at(lead_s), 3) for lead_s in LEADS_S),
                str(len(it.errors.get(0.5, ()))),
                *(_format_error(it.error_at(at)) for at in (0.3, 0.5, 0.7, 0.9)),
                format_number(it.coverage, 3),
            ]
        )
    head = ["", "runs", "quiet hours", "false alarms", "leak F1", "1 min", "5 min"]
    head += ["ends", "error at 30 %", "50 %", "70 %", "90 %", "covers"]
    return format_table("vramscope by how runs are seen", head, rows)


def format_reliability(runs: Sequence[Watched]) -> str:
    """Return how likely we called an error within the horizon, and how often it came: by range and level."""
    rows = []
    for kind in ("live", "series"):
        it = score([run for run in runs if run.shape.kind == kind], OURS)
        tops = {bottom: min(top, 1.0) for bottom, top in pairwise(BINS)}
        groups = [(f"{at:.0%} to {tops[at]:.0%}", found) for at, found in sorted(it.reliability.items())]
        for name, found in (*groups, *sorted(it.reliability_of_levels.items())):
            means = fmean(said for said, _ in found), fmean(came for _, came in found)
            rows.append([kind, name, str(len(found)), *(format_number(mean, 3) for mean in means)])
    head = ["", "probability or level", "moments", "said", "came"]
    return format_table("An error within ten minutes: probability and outcome", head, rows)


def format_errors(runs: Iterable[Watched], detector: str) -> str:
    """Return a line for each thing a detector got wrong."""
    return "\n".join((f"What {detector} got wrong", *list_errors(runs, detector)))


BEGIN, END = "<!-- every miss: begin -->", "<!-- every miss: end -->"
"""Lines of docs/verdict-benchmark.md between which `--write` puts the table of misses."""


def format_misses(runs: Sequence[Watched]) -> str:
    """Return what ours got wrong as a Markdown table: a row for each measure and family, with its runs."""
    found: dict[tuple[str, str], list[str]] = {}
    for miss in find_misses(runs, OURS):
        detail = f": {miss.detail}" if miss.detail else ""
        seed = miss.run.name.rpartition("/")[2]
        cells = found.setdefault((miss.measure, miss.run.family), [])
        cells.append(f"{seed} ({miss.run.shape.name}){detail}")
    rows = [
        f"| {measure} | {family} | {'; '.join(cells)} |" for (measure, family), cells in sorted(found.items())
    ]
    short, unwarned = count_too_short(runs, LEADS_S[0])
    words = (
        f"{len(runs)} runs. Of {unwarned} errors in series without a warning 1 min before, {short} grew for "
        f"less than {LEADS_S[0] + EVIDENCE_S:.0f} s: no warning was possible of those, since a series shows "
        f"growth only after {EVIDENCE_S:.0f} s."
    )
    return "\n".join((words, "", "| what went wrong | family | run (seen as) |", "|---|---|---|", *rows))


def replace_misses(page: str, table: str) -> str:
    """Return a page with another table between the two marks.

    Raises:
        ValueError: The page has no such marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN} and {END}: add them where the table shall be")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def format_targets(targets: Sequence[Target]) -> str:
    """Return the table of targets."""
    words = {None: "not measured", True: "met", False: "missed"}
    rows = []
    for target in targets:
        measured = target["measured"]
        shown = "—" if not isinstance(measured, float | int) else f"{measured:,.5g}"
        rows.append([str(target["name"]), shown, str(target["limit"]), words[_read_outcome(target)]])
    return format_table("Targets", ["", "measured", "target", ""], rows)


def _read_outcome(target: Target) -> bool | None:
    outcome = target["is_met"]
    return outcome if isinstance(outcome, bool) else None


def as_results(
    scores: Mapping[str, Score],
    of_outside: Mapping[str, Score],
    runs: Sequence[Watched],
    speed: Speed | None,
) -> dict[str, object]:
    """Return everything as it stands in the JSON."""
    families = dict.fromkeys(run.family for run in runs)
    return {
        "made_up": {name: _as_figures(it) for name, it in scores.items()},
        "recorded_and_measured": {name: _as_figures(it) for name, it in of_outside.items()},
        "by_family": {
            name: _as_figures(score([run for run in runs if run.family == name], OURS)) for name in families
        },
        "by_kind": {
            kind: _as_figures(score([run for run in runs if run.shape.kind == kind], OURS))
            | {"alarms": asdict(score_alarms(runs, kind))}
            for kind in SEEN
        },
        "fragmented": dict(zip(("warned", "runs"), score_fragmented(runs), strict=True)),
        "errors": list(list_errors(runs, OURS)),
        "speed": None if speed is None else asdict(speed),
    }


def _as_figures(it: Score) -> dict[str, object]:
    bins = {
        f"{edge:g}": [len(pairs), fmean(said for said, _ in pairs), fmean(came for _, came in pairs)]
        for edge, pairs in sorted(it.reliability.items())
    }
    levels = {
        level: [len(pairs), fmean(said for said, _ in pairs), fmean(came for _, came in pairs)]
        for level, pairs in sorted(it.reliability_of_levels.items())
    }
    return {
        "leak": asdict(it.leak) | {"f1": it.leak.f1},
        "host_leak": asdict(it.host_leak) | {"f1": it.host_leak.f1},
        "benign_hours": it.benign_hours,
        "findings_on_benign": dict(it.false),
        "benign_runs": it.benign_runs,
        "benign_runs_with_false_findings": it.false_runs,
        "false_per_1000_hours": it.false_per_1000_hours,
        "oom_recall": {f"{lead_s:g} s": it.recall_at(lead_s) for lead_s in it.warnable},
        "oom_runs": {f"{lead_s:g} s": count for lead_s, count in it.warnable.items()},
        "median_lead": median(it.leads) if it.leads else None,
        "coverage": it.coverage,
        "median_error": {f"{at:g}": _finite(it.error_at(at)) for at in sorted(it.errors)},
        "brier": it.brier_score,
        "brier_of_errors": it.brier_of_errors,
        "brier_within_steps": _mean(it.brier_within_steps),
        "reliability": bins,
        "reliability_of_levels": levels,
    }


def _finite(value: float | None) -> float | None:
    """Return a number that JSON can hold: what was never forecast has no error."""
    return None if value is None or isinf(value) else value
