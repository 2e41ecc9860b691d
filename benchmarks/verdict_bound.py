"""How well errors can be forecast at all on the made-up runs of `verdicts`.

A forecaster that knows the generator of a run, all that was drawn once for it, what was drawn so far for
each step, and every block of its allocator, plays many futures of a moment: what is still to be drawn is
drawn again. No forecaster that reads counters knows more of the present; what it misses is chance. Every
minute it says how often memory runs out within some minutes, and speaks where that is often enough; its words
are scored as ours.

    python -m benchmarks.verdict_bound --split tuning --family replay_buffer scored_batches

With `--knowing past` it knows the blocks and the sizes of the steps so far, as a probe could read them, and
not the generator: stretches of the newest steps come again, in an order drawn by chance.

It needs a C compiler: futures are computed by `verdict_rollouts.c`, an exact copy of the model of the
allocator.
"""

import argparse
import ctypes
import itertools
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from statistics import median
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .compiled import load_compiled
from .measure.tables import format_number, format_table
from .verdict_detectors import OURS
from .verdict_runs import Family, Run, Scene, make_run
from .verdict_runs.job import Floats, Ints, Rng
from .verdict_runs.run import limit_span
from .verdict_runs.scored import SCORED
from .verdict_runs.tuning import TUNING
from .verdict_scores import score_alarms, score_fragmented
from .verdict_watch import Watched, watch

SPLITS: dict[str, tuple[Family, ...]] = {"scored": SCORED, "tuning": TUNING}
KNOWN = {"all": "all that can be known", "past": "blocks and the steps so far"}
Task = tuple[str, int, int]
"""Split, number of the family, seed."""
LOOK_EVERY_S = 60.0
HORIZONS_S = (120.0, 300.0, 600.0)
FUTURES = 24
SCREEN = 5
"""Where so many futures have no error, the others count as having none."""
BEFORE_S = 900.0
"""Looks begin so long before the device first refuses memory: sooner nothing is near."""
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HOLDS_S = (0.0, 120.0, 300.0, 600.0)
"""For how long a word stands after the last look that asked for it."""
LATE_SHARE = 0.9
LATE_FUTURES = 24
LATE_SPANS = 4.0
"""Futures of the time to the error are played for so many times what is really left."""
FEWEST_DRAWS = 16
"""Numbers that are drawn together, or one after another by the same call, from which on they are of steps."""
PAST_STEPS = 512
"""Newest steps from which futures of the past are drawn."""
STRETCH_STEPS = 20
"""Length of a stretch of them that keeps its order."""
CLEAR = 4.0
"""Standard errors from which on what steps take counts as growing."""
GRID = 17
SAME_ACTIVATION = 0.01
SAME_KEPT = 0.05
"""Shares of their most by which rows of two plans differ at most where they count as the same."""


@cache
def load_library() -> ctypes.CDLL:
    """Compile and load `verdict_rollouts.c`; raises as `load_compiled` does."""
    library = load_compiled("verdict_rollouts.c")
    number, pointer, array = ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
    library.open_process.argtypes = [number, number]
    library.open_process.restype = pointer
    library.close_process.argtypes = [pointer]
    library.step_process.argtypes = [pointer, number, number, number, array]
    library.roll_ahead.argtypes = [pointer, pointer, array, array, array, ctypes.c_int]
    return library


class Rows(NamedTuple):
    """Steps to come: what each takes, keeps, finds on the card, and its end in seconds from now."""

    activation: Ints
    kept: Ints
    room: Ints
    ends_s: Floats


class Process:
    """One process of the model, in C."""

    def __init__(self, limit_bytes: int, state_bytes: int) -> None:
        self._library = load_library()
        self._pointers = [self._library.open_process(limit_bytes, state_bytes) for _ in range(2)]
        self._row = np.zeros(6, dtype=np.int64)

    def close(self) -> None:
        """Free its memory."""
        for pointer in self._pointers:
            self._library.close_process(pointer)

    def step(self, activation: int, kept: int, room: int) -> tuple[bool, list[int]]:
        """Run one step.

        Returns:
            Whether it found room; and what was allocated before and after it, its peak, what is reserved,
            what of that is stranded, all in bytes, and the retries so far.
        """
        served = self._library.step_process(self._pointers[0], activation, kept, room, self._row.ctypes.data)
        return bool(served), self._row.tolist()

    def roll(self, rows: Rows) -> float:
        """Return after how many seconds steps to come find no room; infinite where they all do."""
        count = len(rows.activation)
        columns = [np.ascontiguousarray(column, dtype=np.int64) for column in rows[:3]]
        at = self._library.roll_ahead(*self._pointers, *(it.ctypes.data for it in columns), count)
        return float("inf") if at == count else float(rows.ends_s[at])


Drawn = tuple[str, object]


class Recording:
    """A generator of numbers that remembers what it drew."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self.drawn: list[Drawn] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        draw = getattr(self._rng, name)

        def remember(*args: object, **options: object) -> object:
            value = draw(*args, **options)
            self.drawn.append((name, value))
            return value.copy() if isinstance(value, np.ndarray) else value

        return remember


class Repeating:
    """A generator of numbers that gives what was drawn before, and draws again what is cut off."""

    def __init__(self, drawn: Sequence[Drawn], cuts: dict[int, int], rng: Rng) -> None:
        self._drawn = drawn
        self._cuts = cuts
        self._rng = rng
        self._at = 0

    def __getattr__(self, name: str) -> Callable[..., object]:
        draw = getattr(self._rng, name)

        def repeat(*args: object, **options: object) -> object:
            at = self._at
            self._at += 1
            if at >= len(self._drawn) or self._drawn[at][0] != name:
                return draw(*args, **options)
            before = self._drawn[at][1]
            cut = self._cuts.get(at)
            if cut is None:
                return before.copy() if isinstance(before, np.ndarray) else before
            other = draw(*args, **options)
            if not isinstance(before, np.ndarray) or np.shape(before) != np.shape(other):
                return other
            spliced = before.copy()
            spliced[cut:] = cast("NDArray[np.float64]", other)[cut:]
            return spliced

        return repeat


class Unit(NamedTuple):
    """Numbers that are drawn for steps, in their order: one array, or so many single ones."""

    first: int
    length: int
    is_array: bool

    def cut(self, at: int) -> dict[int, int]:
        """Return the cuts by which all from one on are drawn again."""
        if self.is_array:
            return {self.first: at}
        return dict.fromkeys(range(self.first + at, self.first + self.length), 0)


class Futures:
    """How a run may go on: what was drawn once stays, what was drawn for later steps is drawn again."""

    def __init__(self, family: Family, run: Run) -> None:
        self._make = family.make
        self._span_s = limit_span(family.span_s, run.shape)
        self._seed = zlib.crc32(f"{run.name}/futures".encode())
        self._count = 0
        recording = Recording(np.random.default_rng(run.seed))
        scene = family.make(cast("Rng", recording), self._span_s)
        self._drawn = recording.drawn
        self.plan = scene.plans[-1]
        self.room = _find_room(scene)
        self._units = list(_list_units(self._drawn))
        self._reach = [self._measure_reach(unit) for unit in self._units]

    def draw(self, step: int, seconds: float) -> Rows:
        """Return how the run may go on after so many steps, for so many seconds."""
        cuts: dict[int, int] = {}
        for unit, (at, rows) in zip(self._units, self._reach, strict=True):
            # Numbers that go round more than once are all known by then: they are drawn again as a whole.
            is_over = rows[-2] < step
            cuts |= unit.cut(0 if is_over else int(np.ceil(np.interp(step, rows, at))))
        scene = self._make_with(cuts)
        plan = scene.plans[-1]
        ends_s = np.cumsum(plan.durations_s[step:])
        count = int(np.searchsorted(ends_s, seconds)) + 1
        rows_ = slice(step, step + count)
        kept = plan.kept_bytes[rows_]
        if step:
            # What is held now is the same in all futures.
            kept = np.maximum(0, kept - plan.kept_bytes[step - 1] + self.plan.kept_bytes[step - 1])
        return Rows(plan.activation_bytes[rows_], kept, _find_room(scene)[rows_], ends_s[:count])

    def _make_with(self, cuts: dict[int, int]) -> Scene:
        self._count += 1
        rng = np.random.default_rng((self._seed, self._count))
        return self._make(cast("Rng", Repeating(self._drawn, cuts, rng)), self._span_s)

    def _measure_reach(self, unit: Unit) -> tuple[Floats, Floats]:
        """Return places within a unit, and the first step that changes if all from there is drawn again."""
        places = np.unique(np.linspace(0, unit.length, GRID).astype(int))
        rows = [self._find_first_change(unit.cut(int(at))) for at in places]
        return places.astype(float), np.minimum.accumulate(np.array(rows, dtype=float)[::-1])[::-1]

    def _find_first_change(self, cuts: dict[int, int]) -> int:
        plan = self._make_with(cuts).plans[-1]
        count = min(len(plan.durations_s), len(self.plan.durations_s))
        changed = np.zeros(count, dtype=bool)
        for mine, other, share in (
            (self.plan.activation_bytes, plan.activation_bytes, SAME_ACTIVATION),
            (self.plan.kept_bytes, plan.kept_bytes, SAME_KEPT),
        ):
            most = max(1, int(np.max(mine)))
            changed |= np.abs(mine[:count] - other[:count]) > share * most
        return int(np.argmax(changed)) if changed.any() else count


class PastFutures:
    """How a run may go on, drawn from its steps so far: stretches of the newest ones come again."""

    def __init__(self, run: Run, family: Family) -> None:
        scene = family.make(np.random.default_rng(run.seed), limit_span(family.span_s, run.shape))
        self.plan = scene.plans[-1]
        self.room = _find_room(scene)
        self._rng = np.random.default_rng(zlib.crc32(f"{run.name}/past".encode()))

    def draw(self, step: int, seconds: float) -> Rows:
        """Return how the run may go on after so many steps, for so many seconds."""
        first = max(1, step - PAST_STEPS)
        plan, count = self.plan, step - first
        if count < 1:
            none = np.zeros(0, dtype=np.int64)
            return Rows(none, none, none, np.zeros(0))
        durations = plan.durations_s[first:step]
        needed = 1 + int(seconds / float(np.mean(durations)))
        length = min(STRETCH_STEPS, count)
        starts = self._rng.integers(0, count - length + 1, 2 * (1 + needed // length))
        at = (starts[:, None] + np.arange(length)).ravel()
        ends_s = np.cumsum(durations[at])
        at = at[: int(np.searchsorted(ends_s, seconds)) + 1]
        pace = _find_pace(plan.activation_bytes[first:step].astype(np.float64))
        ahead = count + np.arange(len(at)) - at
        activation = plan.activation_bytes[first:step][at] + (pace * ahead).astype(np.int64)
        more = np.cumsum(np.diff(plan.kept_bytes[first - 1 : step])[at])
        kept = np.maximum(0, plan.kept_bytes[step - 1] + more)
        room = np.full(len(at), self.room[step - 1], dtype=np.int64)
        return Rows(np.maximum(0, activation), kept, room, ends_s[: len(at)])


def _find_pace(values: Floats) -> float:
    """Return by how much they grow with each step; 0 where that is not clear."""
    count = len(values)
    if count < FEWEST_DRAWS:
        return 0.0
    at = np.arange(count) - (count - 1) / 2
    pace = float(at @ values / (at @ at))
    rest = values - np.mean(values) - pace * at
    error = float(np.sqrt(rest @ rest / (count - 2) / (at @ at)))
    return pace if pace > CLEAR * error else 0.0


def _list_units(drawn: Sequence[Drawn]) -> Iterator[Unit]:
    for (_, is_array), group in itertools.groupby(
        enumerate(drawn), lambda it: (it[1][0], isinstance(it[1][1], np.ndarray))
    ):
        found = list(group)
        if not is_array:
            if len(found) >= FEWEST_DRAWS:
                yield Unit(found[0][0], len(found), is_array=False)
            continue
        for at, (_, value) in found:
            length = len(cast("NDArray[np.float64]", value))
            if length >= FEWEST_DRAWS:
                yield Unit(at, length, is_array=True)


def _find_room(scene: Scene) -> Ints:
    plan = scene.plans[-1]
    room = np.full(len(plan.durations_s), plan.job.limit_bytes, dtype=np.int64)
    others = scene.surroundings.find_others(plan.ends_s) if len(scene.surroundings.others_s) else 0
    return np.asarray(room - others, dtype=np.int64)


@dataclass(frozen=True)
class Looked:
    """One run: what we said of it, and how often its futures had an error, by look and horizon."""

    watched: Watched
    times_s: tuple[float, ...]
    chances: NDArray[np.float64]
    is_refused: bool
    late_error: float | None = None
    """Error of the median time to the error at nine tenths of the life, relative to what was left."""
    our_late_error: float | None = None

    def say(self, horizon: int, threshold: float, hold_s: float) -> Watched:
        """Return the run with the words of the forecaster in place of ours."""
        alarms: list[tuple[float, float]] = []
        for time_s, chance in zip(self.times_s, self.chances[:, horizon], strict=True):
            if chance < threshold:
                continue
            until_s = min(time_s + LOOK_EVERY_S + hold_s, self.watched.duration_s)
            if alarms and alarms[-1][1] >= time_s:
                alarms[-1] = (alarms[-1][0], until_s)
            else:
                alarms.append((time_s, until_s))
        return replace(self.watched, alarms=tuple(alarms))


def look(task: Task, *, knows_all: bool = True) -> Looked | None:
    """Watch one run, and look into its futures; None where it is too long for the model.

    Args:
        task: Which run.
        knows_all: Whether the forecaster knows the generator; else only the steps so far.
    """
    split, number, seed = task
    family = SPLITS[split][number]
    run = make_run(family, seed)
    life = run.lives[-1]
    if not run.is_modelled:
        return None
    is_refused = bool(life.retries[-1]) or life.oom_s is not None
    is_grown = run.truth.growth_s is not None and run.truth.precursor_s > 0
    watched = watch(run, with_others=False) if is_refused or is_grown else _leave_unwatched(run)
    times_s: list[float] = []
    chances: list[list[float]] = []
    late: float | None = None
    if is_refused:
        futures = Futures(family, run) if knows_all else PastFutures(run, family)
        process = Process(futures.plan.job.limit_bytes, futures.plan.job.state_bytes)
        first = int(np.argmax(life.retries > 0)) if life.retries[-1] else len(life.ends_s) - 1
        next_s = float(life.ends_s[first]) - BEFORE_S
        late_s = _find_late(run) if is_grown else float("inf")
        for step in range(len(life.ends_s)):
            now_s = float(life.ends_s[step - 1]) if step else life.start_s
            if now_s >= late_s:
                late, late_s = _measure_late(futures, process, step, run, now_s), float("inf")
            if now_s >= next_s and not is_grown:
                times_s.append(now_s)
                chances.append(_ask(futures, process, step))
                next_s = now_s + LOOK_EVERY_S
            plan = futures.plan
            served, row = process.step(
                int(plan.activation_bytes[step]), int(plan.kept_bytes[step]), int(futures.room[step])
            )
            if row[2] != life.peak_bytes[step] or row[3] != life.reserved_bytes[step]:
                raise RuntimeError(f"{run.name}: step {step} of the copy in C differs from the model")
            if not served:
                break
        process.close()
    return Looked(
        watched,
        tuple(times_s),
        np.array(chances).reshape(len(times_s), len(HORIZONS_S)),
        is_refused,
        late,
        _read_late(watched) if is_grown else None,
    )


def _leave_unwatched(run: Run) -> Watched:
    """Return a run that no forecaster is asked about: nothing was ever refused."""
    return Watched(run.family, run.name, run.shape, run.truth, run.duration_s, 0, 1, None, {OURS: []}, [])


def _ask(futures: Futures | PastFutures, process: Process, step: int) -> list[float]:
    """Return the share of futures that have an error within each horizon."""
    found: list[float] = []
    for count in range(FUTURES):
        if count == SCREEN and min(found) > HORIZONS_S[-1]:
            break
        found.append(process.roll(futures.draw(step, HORIZONS_S[-1])))
    return [sum(at <= horizon_s for at in found) / len(found) for horizon_s in HORIZONS_S]


def _find_late(run: Run) -> float:
    truth = run.truth
    return (truth.growth_s or 0.0) + LATE_SHARE * truth.precursor_s


def _measure_late(
    futures: Futures | PastFutures, process: Process, step: int, run: Run, now_s: float
) -> float:
    left_s = (run.truth.oom_s or 0.0) - now_s
    found = [process.roll(futures.draw(step, LATE_SPANS * left_s)) for _ in range(LATE_FUTURES)]
    return abs(median(found) - left_s) / left_s if left_s > 0 else 0.0


def _read_late(watched: Watched) -> float | None:
    for moment in watched.moments:
        if moment.life_share == LATE_SHARE:
            left_s = (watched.truth.oom_s or 0.0) - moment.time_s
            said = moment.forecasts[OURS].oom_in_s
            if left_s > 0:
                return float("inf") if said is None else abs(said - left_s) / left_s
    return None


def main() -> int:
    """Print what the forecaster could do, and what we do, on the same runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict_bound", description=__doc__)
    parser.add_argument("--split", choices=SPLITS, default="scored", help="which families (scored)")
    parser.add_argument("--family", nargs="+", help="only these families")
    parser.add_argument("--kind", choices=("live", "series"), default="live", help="runs seen so (live)")
    parser.add_argument("--knowing", choices=KNOWN, default="all", help="what the forecaster knows (all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    started_s = time.monotonic()
    tasks = [
        (options.split, at, seed)
        for at, family in enumerate(SPLITS[options.split])
        for seed in range(family.seeds)
        if family.shapes[seed % len(family.shapes)].kind == options.kind
        and (not options.family or family.name in options.family)
    ]
    load_library()
    found: list[Looked] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for done, looked in enumerate(pool.map(partial(look, knows_all=options.knowing == "all"), tasks), 1):
            if looked is not None:
                found.append(looked)
            if done % 20 == 0:
                print(f"{done}/{len(tasks)} runs", file=sys.stderr, flush=True)
    if not found:
        print("no run of these families is short enough for the model")
        return 0
    print(format_words(found, options.kind, KNOWN[options.knowing]), end="\n\n")
    print(format_by_family(found, options.kind), end="\n\n")
    print(format_late(found, KNOWN[options.knowing]))
    print(f"\n{len(found)} of {len(tasks)} runs, {time.monotonic() - started_s:.0f} s")
    return 0


class Policy(NamedTuple):
    """When the forecaster speaks, and what that gives on all runs."""

    horizon: int
    threshold: float
    hold_s: float
    warned: int
    ended: int
    false: int
    quiet_hours: float


def list_policies(found: Sequence[Looked], kind: str) -> list[Policy]:
    """Return every way of speaking with its score."""
    policies = []
    for horizon, threshold, hold_s in itertools.product(range(len(HORIZONS_S)), THRESHOLDS, HOLDS_S):
        said = [it.say(horizon, threshold, hold_s) for it in found]
        alarms = score_alarms(said, kind)
        policies.append(
            Policy(horizon, threshold, hold_s, *score_fragmented(said), alarms.false, alarms.quiet_hours)
        )
    return policies


def choose_policy(policies: Sequence[Policy], most_false: float) -> Policy:
    """Return the policy that warns of the most errors at no more false words than that."""
    allowed = [it for it in policies if it.false <= most_false]
    return max(allowed or policies, key=lambda it: (it.warned, -it.false))


def format_words(found: Sequence[Looked], kind: str, known: str) -> str:
    """Return the table of what can be warned of, by the false words that it costs."""
    policies = list_policies(found, kind)
    ours = [it.watched for it in found]
    alarms, (warned, ended) = score_alarms(ours, kind), score_fragmented(ours)
    rows = [
        ["ours", f"{warned}/{ended}", str(alarms.false), format_number(alarms.false_per_1000_hours, 1), ""]
    ]
    seen: set[tuple[int, int]] = set()
    limits = [alarms.quiet_hours / 1000, *sorted({float(it.false) for it in policies})]
    for most in limits:
        best = choose_policy(policies, most)
        if (best.warned, best.false) in seen or best.false > most:
            continue
        seen.add((best.warned, best.false))
        rows.append(
            [
                known,
                f"{best.warned}/{best.ended}",
                str(best.false),
                format_number(1000 * best.false / best.quiet_hours if best.quiet_hours else None, 1),
                f"{best.threshold:.0%} within {HORIZONS_S[best.horizon]:.0f} s, for {best.hold_s:.0f} s more",
            ]
        )
    head = ["", "warned 60 s before", "false words", "in 1,000 h", "when it speaks"]
    return format_table(f"Errors by fragmentation, {alarms.quiet_hours:,.0f} quiet hours", head, rows)


def format_by_family(found: Sequence[Looked], kind: str) -> str:
    """Return, for each family with a refusal, ours and the best with at most a false word in 1,000 hours."""
    policies = list_policies(found, kind)
    hours = policies[0].quiet_hours
    few, all_ = choose_policy(policies, hours / 1000), choose_policy(policies, float("inf"))
    rows = []
    for family, _ in Counter(it.watched.family for it in found if it.is_refused).items():
        of_family = [it for it in found if it.watched.family == family]
        cells = [family, str(len(of_family))]
        for said in (
            [it.watched for it in of_family],
            *(
                [it.say(best.horizon, best.threshold, best.hold_s) for it in of_family]
                for best in (few, all_)
            ),
        ):
            warned, ended = score_fragmented(said)
            cells += [f"{warned}/{ended}", str(score_alarms(said, kind).false)]
        if cells[2:] != ["0/0", "0"] * 3:
            rows.append(cells)
    head = ["", "runs", "ours", "false", "few false", "false", "most warned", "false"]
    return format_table("By family", head, rows)


def format_late(found: Sequence[Looked], known: str) -> str:
    """Return the errors of the time to the error at nine tenths of the life, of growth."""
    pairs = [
        (it.our_late_error, it.late_error)
        for it in found
        if it.late_error is not None and it.our_late_error is not None
    ]
    if not pairs:
        return "no growth that ends in an error"
    rows = [
        [name, format_number(100 * median(errors), 1), str(sum(at <= 0.1 for at in errors))]
        for name, errors in (
            ("ours", [ours for ours, _ in pairs]),
            (known, [best for _, best in pairs]),
        )
    ]
    head = ["", "median, %", "of 10 % or less"]
    return format_table(f"Time error at 90 % of the life of growth, {len(pairs)} runs", head, rows)


if __name__ == "__main__":
    sys.exit(main())
