"""How much of a KV pool its sequences will use, from those that run now and those that arrive.

Sequences that began within one reading are a cohort: how many of them are left, their prompts, and the
tokens that each has generated since. Each step adds a token to each, and a cohort shrinks as the lengths of
outputs say. At each reading all cohorts together have as many sequences as the server says; what the pool
holds beyond them is due to present sequences and leaves with them.

Lengths of outputs are taken to be log-normal, with one spread for all servers.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

# Standard deviation of the logarithm of output lengths.
SPREAD = 0.7
# A pool is counted in blocks, and half a block of each sequence is empty.
HALF_BLOCK_TOKENS = 8.0
# Cohorts that are kept; where there are more, so many of the oldest are joined, two by two.
MOST_COHORTS = 28
JOINED_COHORTS = 20
LEAST_SEQUENCES = 0.003
# What the pool holds beyond the cohorts is a mean over the last half minute. It fades so many times faster
# than outputs are generated, to its mean over the last ten minutes.
REST_S = 30.0
USUAL_REST_S = 600.0
REST_FADE = 1.5
# Requests over which prompts are a mean, and readings over which their scatter is.
PROMPT_REQUESTS = 100.0
PROMPT_READINGS = 60.0
# Seconds of a queue from which it says how many prompt tokens the engine computes in a second; the pool had
# room while it was seen.
QUEUE_READINGS = 33.0
LEAST_QUEUE_S = 10.0
ROOM_SHARE = 0.92

_ROOT = math.sqrt(2.0)


class Law(NamedTuple):
    """How long outputs are, in tokens: log-normal."""

    middle: float
    """Mean of the logarithm."""
    spread: float
    moments: tuple[float, float, float]
    """Mean of the length, its square and its cube."""

    @classmethod
    def of_mean(cls, tokens: float) -> "Law":
        middle = math.log(tokens) - SPREAD * SPREAD / 2
        first, second, third = (math.exp(power * middle + (power * SPREAD) ** 2 / 2) for power in (1, 2, 3))
        return cls(middle, SPREAD, (first, second, third))

    @property
    def mean(self) -> float:
        return self.moments[0]

    @property
    def mean_age(self) -> float:
        """Tokens that a running sequence has generated, where as many come as go."""
        return self.moments[1] / self.moments[0] / 2

    def keep(self, age: float, more: float) -> float:
        """Return the share of outputs longer than `age` that are longer by `more` as well."""
        before = (math.log(age) - self.middle) / self.spread
        if before > 5.0:
            # Both shares vanish: their ratio is that of the tail.
            return math.exp(-more * before / (self.spread * age))
        after = (math.log(age + more) - self.middle) / self.spread
        return math.erfc(after / _ROOT) / math.erfc(before / _ROOT)

    def integrate(self, age: float) -> tuple[float, float, float]:
        """Integrate, up to an age, the share of longer outputs, times 1, the age, and its square."""
        if age <= 0.0:
            return 0.0, 0.0, 0.0
        at = (math.log(age) - self.middle) / self.spread
        longer = 0.5 * math.erfc(at / _ROOT)
        one, two, three = self.moments
        return (
            age * longer + 0.5 * one * math.erfc((self.spread - at) / _ROOT),
            (age**2 * longer + 0.5 * two * math.erfc((2 * self.spread - at) / _ROOT)) / 2,
            (age**3 * longer + 0.5 * three * math.erfc((3 * self.spread - at) / _ROOT)) / 3,
        )


class Count(NamedTuple):
    """What one reading says of an engine and its pool."""

    running: int
    waiting: int
    used_tokens: float
    used_share: float
    finished: int
    generated: int
    """Tokens since the start."""
    prompts: int
    """Prompt tokens since the start that were not in the cache."""


class Use(NamedTuple):
    """How much of a pool will be used, as shares of it."""

    ahead_s: float
    mean: float
    arriving: float
    """Part of the mean that is not there yet."""
    variance: float
    """By the lengths of present sequences, and by number and lengths of those that arrive."""


class _Cohort:
    __slots__ = ("age", "count", "prompt", "variance")

    def __init__(self, count: float, variance: float, prompt: float, age: float) -> None:
        self.count = count
        self.variance = variance
        """Of the count."""
        self.prompt = prompt
        self.age = age

    @property
    def tokens(self) -> float:
        """What the cohort holds."""
        return self.count * (self.prompt + self.age + HALF_BLOCK_TOKENS)

    def join(self, other: "_Cohort") -> None:
        count = self.count + other.count
        self.prompt = (self.count * self.prompt + other.count * other.prompt) / count
        self.age = (self.count * self.age + other.count * other.age) / count
        self.count = count
        self.variance += other.variance


class PoolModel:
    """The sequences in one pool."""

    def __init__(self) -> None:
        self._cohorts: list[_Cohort] = []
        self._rest: float | None = None
        self._usual_rest = 0.0
        # Sums over the newest requests or readings, which fade.
        self._prompts = self._admitted = 0.0
        self._deviations = self._readings = 0.0
        self._queue_prompts = self._queue_s = 0.0

    @property
    def prompt(self) -> float | None:
        """Mean tokens of a prompt that were not in the cache; None before the first request."""
        return self._prompts / self._admitted if self._admitted else None

    def add(self, seconds: float, before: Count, now: Count, law: Law | None) -> None:
        """Follow the sequences from one reading to the next.

        Args:
            law: None as long as lengths are unknown, when sequences are counted alone.
        """
        generated = now.generated - before.generated
        more = generated / before.running if before.running else 0.0
        for cohort in self._cohorts:
            if law is None:
                cohort.variance += 0.1 * cohort.count
            elif more:
                kept = law.keep(cohort.age, more)
                cohort.variance = kept * (kept * cohort.variance + (1.0 - kept) * cohort.count)
                cohort.count *= kept
            cohort.age += more
        admitted = max(0, now.running + now.finished - before.running - before.finished)
        prompts = max(0, now.prompts - before.prompts)
        if before.waiting and now.waiting and now.used_share < ROOM_SHARE:
            kept = math.exp(-1.0 / QUEUE_READINGS)
            self._queue_prompts = kept * self._queue_prompts + prompts
            self._queue_s = kept * self._queue_s + seconds
        if admitted:
            self._admit(admitted, prompts, more, law)
        self._count(now.running, now.used_tokens)
        self._find_rest(seconds, now.used_tokens)

    def _admit(self, admitted: int, prompts: int, more: float, law: Law | None) -> None:
        kept = math.exp(-admitted / PROMPT_REQUESTS)
        self._prompts = kept * self._prompts + max(prompts, admitted)
        self._admitted = kept * self._admitted + admitted
        mean = self._prompts / self._admitted
        # Some servers count prompts later than requests.
        prompt = prompts / admitted if prompts else mean
        kept = math.exp(-1.0 / PROMPT_READINGS)
        self._deviations = kept * self._deviations + admitted * (prompt - mean) ** 2
        self._readings = kept * self._readings + 1.0
        share, age = 1.0, more / 2
        if law is not None and more > 0.0:
            # They came all the time since the last reading, and some have gone already.
            ended = law.integrate(more)
            share = ended[0] / more
            age = ended[1] / ended[0]
        count = admitted * share
        self._cohorts.append(_Cohort(count, count * (1.0 - share) + 1e-3, prompt, max(0.5, age)))

    def _count(self, running: int, used_tokens: float) -> None:
        """Let the cohorts have as many sequences as run; those that are least certain change most."""
        surplus = running - sum(it.count for it in self._cohorts)
        variance = sum(it.variance for it in self._cohorts)
        total = 0.0
        for cohort in self._cohorts:
            part = cohort.variance / variance if variance > 0.0 else 0.0
            cohort.count = max(0.0, cohort.count + part * surplus)
            cohort.variance *= 1.0 - part
            total += cohort.count
        if total > 0.0:
            for cohort in self._cohorts:
                cohort.count *= running / total
        elif running:
            # They ran before anybody looked.
            half = used_tokens / running / 2
            self._cohorts = [_Cohort(running, running, half, max(0.5, half))]
        cohorts = [it for it in self._cohorts if it.count > LEAST_SEQUENCES]
        if len(cohorts) > MOST_COHORTS:
            for at in range(0, JOINED_COHORTS, 2):
                cohorts[at].join(cohorts[at + 1])
            cohorts[:JOINED_COHORTS] = cohorts[:JOINED_COHORTS:2]
        self._cohorts = cohorts

    def _find_rest(self, seconds: float, used_tokens: float) -> None:
        rest = used_tokens - sum(it.tokens for it in self._cohorts)
        if self._rest is None:
            self._rest = rest
            return
        self._rest += (rest - self._rest) * (1.0 - math.exp(-seconds / REST_S))
        self._usual_rest += (rest - self._usual_rest) * (1.0 - math.exp(-seconds / USUAL_REST_S))

    def look_ahead(
        self,
        now: Count,
        law: Law,
        step_s: Callable[[float], float],
        rate_per_s: Callable[[float], float],
        pool_tokens: float,
        *,
        every_s: float,
        looks: int,
    ) -> list[Use]:
        """Return the use of the pool in equal steps of time.

        Args:
            step_s: Time of a step with so many sequences.
            rate_per_s: Requests that arrive in so many seconds.
        """
        prompt = self.prompt or 0.0
        spread = self._deviations / self._readings if self._readings else 0.0
        most_per_s = math.inf
        if self._queue_s > LEAST_QUEUE_S and prompt:
            most_per_s = self._queue_prompts / self._queue_s / prompt
        running, waiting, more = float(now.running), float(now.waiting), 0.0
        # Tokens generated when a step ahead begins, and requests that come while a token is.
        begun: list[tuple[float, float]] = []
        found = []
        for look in range(1, looks + 1):
            ahead_s = look * every_s
            tokens = every_s / step_s(running)
            asked = waiting + every_s * rate_per_s(ahead_s - every_s / 2)
            admitted = min(asked, every_s * most_per_s)
            waiting = asked - admitted
            begun.append((more, admitted / tokens))
            more += tokens
            running, present, variance = self._keep_present(law, more, spread)
            came, arriving, scatter = _add_arriving(law, begun, more, prompt + HALF_BLOCK_TOKENS, spread)
            running += came
            fade = math.exp(-REST_FADE * more / law.mean)
            present += self._usual_rest + ((self._rest or 0.0) - self._usual_rest) * fade
            found.append(
                Use(
                    ahead_s,
                    (present + arriving) / pool_tokens,
                    arriving / pool_tokens,
                    (variance + scatter) / pool_tokens**2,
                )
            )
        return found

    def _keep_present(self, law: Law, more: float, spread: float) -> tuple[float, float, float]:
        """Return how many present sequences are left after so many tokens, what they hold, its variance."""
        running = held = variance = 0.0
        for cohort in self._cohorts:
            kept = law.keep(cohort.age, more)
            count = kept * cohort.count
            size = cohort.prompt + cohort.age + more + HALF_BLOCK_TOKENS
            square = size * size
            running += count
            held += count * size
            variance += count * (1.0 - kept) * (square + spread) + kept * kept * cohort.variance * square
        return running, held, variance


def _add_arriving(
    law: Law, begun: list[tuple[float, float]], more: float, prompt: float, spread: float
) -> tuple[float, float, float]:
    """Return how many of those that came are left, what they hold, and its variance."""
    running = held = variance = 0.0
    last = (0.0, 0.0, 0.0)
    for began, per_token in reversed(begun):
        until = law.integrate(more - began)
        count, ages, squares = (per_token * (one - other) for one, other in zip(until, last, strict=True))
        last = until
        running += count
        held += prompt * count + ages
        variance += (prompt * prompt + spread) * count + 2 * prompt * ages + squares
    return running, held, variance
