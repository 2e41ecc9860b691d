"""A scheduler over a paged KV cache, simulated: admission, growth, prefix cache, eviction, preemption.

The rules are those of vLLM's V1 scheduler, as its documentation describes them: sequences grow by a token a
step; a finished sequence leaves its blocks in the cache, from where the oldest are evicted when a block is
needed; if none can be evicted, the newest sequence loses its blocks and is computed again later. Nothing here
is measured on a real server.
"""

import random
from collections import OrderedDict, deque
from dataclasses import dataclass

from ...errors import UsageError


@dataclass(frozen=True)
class Request:
    """What one user asks."""

    arrived_s: float
    prompt_tokens: int
    """All of the prompt, with the shared beginning."""
    output_tokens: int
    prefix: int | None = None
    """Number of the beginning that it shares with others."""
    prefix_tokens: int = 0


@dataclass
class Sequence:
    """One request in the engine."""

    request: Request
    own_blocks: int = 0
    """Blocks that no other sequence uses."""
    shared_blocks: int = 0
    computed: float = 0.0
    """Tokens in the cache, the shared ones included."""
    generated: float = 0.0

    @property
    def total_tokens(self) -> float:
        """Tokens of prompt and output so far, which must be in the cache to go on."""
        return self.request.prompt_tokens + self.generated


@dataclass(frozen=True)
class Speed:
    """How fast an engine computes."""

    prefill_tokens_per_s: float = 12_000.0
    step_base_s: float = 0.012
    """Time of a step without sequences."""
    step_sequence_s: float = 0.00015
    """What each sequence adds to a step."""
    step_token_s: float = 0.0
    """What each token in the cache of a running sequence adds to a step."""


@dataclass(frozen=True)
class EngineSetup:
    """The size and speed of a simulated engine."""

    blocks: int
    block_tokens: int = 16
    most_sequences: int = 256
    """`--max-num-seqs`."""
    most_queued: int | None = None
    """Requests that may wait; more are refused. None for any number."""
    has_prefix_cache: bool = True
    speed: Speed = Speed()


@dataclass
class Counters:
    """Counts since the start, as servers report them."""

    preemptions: int = 0
    rejections: int = 0
    finished: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    first_preemption_s: float | None = None


class Engine:
    """One engine; `advance` moves it through time."""

    def __init__(self, setup: EngineSetup) -> None:
        self.setup = setup
        self.counters = Counters()
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.used_blocks = 0
        self.cached_blocks = 0
        self.now_s = 0.0
        self.is_asleep = False
        # Blocks of finished sequences, the oldest first; they serve nobody but count as cached.
        self._left: deque[int] = deque()
        # Shared beginnings in the cache that no sequence uses, the oldest first, and those in use.
        self._idle: OrderedDict[int, int] = OrderedDict()
        self._busy: dict[int, list[int]] = {}
        self._generated = 0.0
        self._computed = 0.0

    @property
    def free_blocks(self) -> int:
        """Blocks that hold nothing."""
        return self.setup.blocks - self.used_blocks - self.cached_blocks

    @property
    def used_share(self) -> float:
        return self.used_blocks / self.setup.blocks

    def ask(self, request: Request) -> None:
        """Queue a request, or refuse it."""
        limit = self.setup.most_queued
        if limit is not None and len(self.waiting) >= limit:
            self.counters.rejections += 1
            return
        self.waiting.append(Sequence(request))

    def sleep(self) -> None:
        """Give all memory back; sequences are computed again after the engine has woken."""
        self.is_asleep = True
        for sequence in reversed(self.running):
            self._release(sequence, keeps=False)
            sequence.computed = 0.0
            self.waiting.appendleft(sequence)
        self.running.clear()
        self.drop_cache()

    def wake(self) -> None:
        self.is_asleep = False

    def drop_cache(self) -> None:
        """Empty the prefix cache."""
        self._left.clear()
        self._idle.clear()
        self.cached_blocks = 0

    def advance(self, now_s: float) -> None:
        """Compute from the last moment to this one; steps of at most a second."""
        left_s = now_s - self.now_s
        self.now_s = now_s
        if self.is_asleep or left_s <= 0:
            return
        speed = self.setup.speed
        step_s = speed.step_base_s + speed.step_sequence_s * len(self.running)
        if speed.step_token_s:
            step_s += speed.step_token_s * sum(it.computed for it in self.running)
        has_preempted = self._compute(left_s, left_s / step_s)
        if not has_preempted:
            self._admit(speed.prefill_tokens_per_s * left_s)

    def _compute(self, seconds: float, steps: float) -> bool:
        """Prefill and decode every running sequence, the oldest first; return whether one was preempted."""
        budget = self.setup.speed.prefill_tokens_per_s * seconds
        has_preempted = False
        place = 0
        while place < len(self.running):
            sequence = self.running[place]
            missing = sequence.total_tokens - sequence.computed
            if missing > 0.0:
                taken = min(missing, budget)
                budget -= taken
                sequence.computed += taken
                self._computed += taken
                if taken < missing:
                    place += 1
                    continue
            grown = min(steps, sequence.request.output_tokens - sequence.generated)
            if not self._grow(sequence, sequence.total_tokens + grown):
                has_preempted = True
                self._preempt()
                continue  # it may have been this one; else it has room now
            sequence.generated += grown
            sequence.computed = sequence.total_tokens
            self._generated += grown
            if sequence.generated >= sequence.request.output_tokens:
                self._finish(place)
            else:
                place += 1
        self.counters.generation_tokens = int(self._generated)
        self.counters.prompt_tokens = int(self._computed)
        return has_preempted

    def _grow(self, sequence: Sequence, tokens: float) -> bool:
        """Give a sequence the blocks for so many tokens; return whether there were enough."""
        needed = -(-int(tokens) // self.setup.block_tokens) - sequence.own_blocks - sequence.shared_blocks
        if needed <= 0:
            return True
        if not self._make_room(needed):
            return False
        self.used_blocks += needed
        sequence.own_blocks += needed
        return True

    def _make_room(self, blocks: int) -> bool:
        """Evict the oldest of the cache until so many blocks are free."""
        if self.free_blocks + self.cached_blocks < blocks:
            return False
        while self.free_blocks < blocks and self._left:
            taken = min(self._left[0], blocks - self.free_blocks)
            self._left[0] -= taken
            self.cached_blocks -= taken
            if not self._left[0]:
                self._left.popleft()
        while self.free_blocks < blocks and self._idle:
            _, dropped = self._idle.popitem(last=False)
            self.cached_blocks -= dropped
        return self.free_blocks >= blocks

    def _admit(self, budget: float) -> None:
        """Begin waiting requests, no more than can be prefilled in a step."""
        setup = self.setup
        backlog = sum(it.total_tokens - it.computed for it in self.running)
        while self.waiting and len(self.running) < setup.most_sequences and backlog < budget:
            sequence = self.waiting[0]
            found = self._find_prefix(sequence.request)
            needed = -(-int(sequence.total_tokens + 1) // setup.block_tokens) - found
            idle = self._idle.get(sequence.request.prefix or 0, 0) if found else 0
            # What the sequence is about to use of the cache cannot be evicted for it.
            if self.free_blocks + self.cached_blocks - idle < needed:
                return
            self.waiting.popleft()
            self._share(sequence, found)
            if not self._make_room(needed):
                self._release(sequence, keeps=True)
                self.waiting.appendleft(sequence)
                return
            self.used_blocks += needed
            sequence.own_blocks = needed
            sequence.computed = float(found * setup.block_tokens)
            self.running.append(sequence)
            backlog += sequence.total_tokens - sequence.computed
            self.counters.prefix_queries += sequence.request.prompt_tokens
            self.counters.prefix_hits += found * setup.block_tokens

    def _find_prefix(self, request: Request) -> int:
        """Return how many blocks of its beginning are in the cache."""
        prefix = request.prefix
        if prefix is None or not self.setup.has_prefix_cache:
            return 0
        known = self._busy[prefix][0] if prefix in self._busy else self._idle.get(prefix, 0)
        return min(known, request.prefix_tokens // self.setup.block_tokens)

    def _share(self, sequence: Sequence, found: int) -> None:
        prefix = sequence.request.prefix
        if prefix is None or not found:
            return
        sequence.shared_blocks = found
        if prefix in self._busy:
            self._busy[prefix][1] += 1
            return
        blocks = self._idle.pop(prefix)
        self._busy[prefix] = [blocks, 1]
        self.cached_blocks -= blocks
        self.used_blocks += blocks

    def _release(self, sequence: Sequence, *, keeps: bool) -> None:
        """Take the blocks of a sequence; with `keeps` they stay in the cache until they are evicted."""
        prefix = sequence.request.prefix
        own = sequence.own_blocks
        self.used_blocks -= own
        if sequence.shared_blocks and prefix is not None:
            entry = self._busy[prefix]
            entry[1] -= 1
            if not entry[1]:
                del self._busy[prefix]
                self.used_blocks -= entry[0]
                if keeps:
                    self._idle[prefix] = entry[0]
                    self.cached_blocks += entry[0]
        elif keeps and self.setup.has_prefix_cache and prefix is not None and prefix not in self._busy:
            begin = min(own, sequence.request.prefix_tokens // self.setup.block_tokens)
            if begin and prefix not in self._idle:
                self._idle[prefix] = begin
                self.cached_blocks += begin
                own -= begin
        if keeps and self.setup.has_prefix_cache and own:
            self._left.append(own)
            self.cached_blocks += own
        sequence.own_blocks = sequence.shared_blocks = 0

    def _preempt(self) -> None:
        """Take the blocks of the newest sequence, which waits first from now on."""
        sequence = self.running.pop()
        self._release(sequence, keeps=False)
        sequence.computed = 0.0
        self.waiting.appendleft(sequence)
        self.counters.preemptions += 1
        if self.counters.first_preemption_s is None:
            self.counters.first_preemption_s = self.now_s

    def _finish(self, place: int) -> None:
        sequence = self.running.pop(place)
        self._release(sequence, keeps=True)
        self.counters.finished += 1


@dataclass(frozen=True)
class Traffic:
    """Requests of many users: a rate that changes, and the lengths of prompts and outputs.

    Arrivals are a Poisson process; lengths are log-normal.
    """

    rate_per_s: "Rate"
    prompt_tokens: float = 600.0
    """Median of the part that no other request shares."""
    prompt_spread: float = 0.7
    output_tokens: float = 300.0
    output_spread: float = 0.6
    prefixes: int = 8
    """Shared beginnings, such as system prompts; 0 for none."""
    prefix_tokens: int = 512
    prefix_share: float = 0.7
    """Share of the requests that have one."""
    longest: int = 8192
    length: "Rate | None" = None
    """Factor on both lengths over time; None for 1 at all times."""
    think_s: float | None = None
    """With a number, `rate_per_s` is a number of clients instead. Each client waits for its answer, thinks
    for so long on average, and asks again; it must be more than 0.
    """

    def __post_init__(self) -> None:
        if self.think_s is not None and not self.think_s > 0:
            raise UsageError(f"think_s is {self.think_s}: clients think for more than 0 s, or it is None")

    def generate(self, seed: int, step_s: float = 1.0) -> "TrafficSource":
        return TrafficSource(self, seed, step_s)


@dataclass(frozen=True)
class Rate:
    """A number over time, such as requests a second: lines between points of time and rate, then the last."""

    points: tuple[tuple[float, float], ...]

    def at(self, time_s: float) -> float:
        before = self.points[0]
        for point in self.points:
            if time_s < point[0]:
                span_s = point[0] - before[0]
                share = (time_s - before[0]) / span_s if span_s > 0 else 1.0
                return before[1] + share * (point[1] - before[1])
            before = point
        return before[1]


class TrafficSource:
    """The requests of one run, the same for the same seed."""

    def __init__(self, traffic: Traffic, seed: int, step_s: float) -> None:
        self._traffic = traffic
        self._random = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._step_s = step_s
        self._now_s = 0.0

    def take_until(self, time_s: float, asking: int = 0) -> list[Request]:
        """Return the requests that arrive up to a moment.

        Args:
            asking: Clients who wait for an answer, and do not ask meanwhile.
        """
        requests = []
        think_s = self._traffic.think_s
        while self._now_s + self._step_s <= time_s + 1e-9:
            rate = self._traffic.rate_per_s.at(self._now_s)
            if think_s is not None:
                rate = max(0.0, rate - asking) / think_s
            arrives_s = self._now_s
            self._now_s += self._step_s
            while rate > 0:
                arrives_s += self._random.expovariate(rate)
                if arrives_s >= self._now_s:
                    break
                requests.append(self._make(arrives_s))
        return requests

    def _make(self, arrived_s: float) -> Request:
        traffic = self._traffic
        draw = self._random
        factor = 1.0 if traffic.length is None else traffic.length.at(arrived_s)
        own = int(factor * traffic.prompt_tokens * draw.lognormvariate(0.0, traffic.prompt_spread)) + 1
        output = int(factor * traffic.output_tokens * draw.lognormvariate(0.0, traffic.output_spread)) + 1
        has_prefix = traffic.prefixes > 0 and draw.random() < traffic.prefix_share
        prefix = draw.randrange(traffic.prefixes) if has_prefix else None
        shared = traffic.prefix_tokens if has_prefix else 0
        prompt = min(own + shared, traffic.longest // 2)
        return Request(
            arrived_s,
            prompt,
            max(1, min(output, traffic.longest - prompt)),
            prefix,
            min(shared, prompt),
        )
