"""A profile that is watched while the training runs: on demand, for a few steps at a time."""

from __future__ import annotations

import base64
import time
import weakref
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Callable, NamedTuple

from .. import wire
from ..base.foreign import Module, Optimizer
from ..clock import SystemClock
from .memory_log import MomentBuffer
from .module_watch import ModelSearch
from .profiler import ModuleMemoryProfiler
from .torch_trace import RankPlace

STEPS_PER_DEMAND = 5
# After so many in which no module was called that trains, there is no model to find.
_STEPS_WITHOUT_MODEL = 2
# A profile that was left for longer starts from the beginning.
_REMEMBERED_S = 60.0


class WatchedProfile:
    """Begins at the end of a step, follows five, and goes on if it is asked for again.

    The thread that trains does all of it, at ends of steps, except `renew` and `take_lines`.
    """

    def __init__(self, torch: Module, list_optimizers: Callable[[], list[Optimizer]]) -> None:
        # Grows with each step that was followed, and with each start.
        self.news = 0
        # Why nothing is profiled, in one sentence without its subject.
        self.refusal: str | None = None
        self._torch = torch
        self._list_optimizers = list_optimizers
        self._buffer = MomentBuffer()
        self._profiler: ModuleMemoryProfiler | None = None
        self._search: ModelSearch | None = None
        self._model: weakref.ref[Any] | None = None
        self._steps_searched = self._step = 0
        self._is_wanted = False
        self._began_s = self._left_s = float("-inf")

    @property
    def needs_steps(self) -> bool:
        return self._is_wanted or self._profiler is not None or self._search is not None

    def renew(self) -> None:
        """Ask for a few steps more; from any thread."""
        self.refusal = None
        self._is_wanted = True

    def give_up(self) -> None:
        """Ask for no more; what runs ends by itself. From any thread."""
        self._is_wanted = False

    def take_lines(self) -> Iterator[str]:
        """Yield what was written so far, as lines of `module_memory.jsonl`, in pieces; from any thread."""
        return self._buffer.list_lines()

    def meet_step(self, index: int) -> None:
        """Handle the end of step `index`, from 1 as on every screen; what fails is kept as the refusal."""
        self._step = index
        try:
            if self._profiler is not None:
                self._follow(self._profiler)
            elif self._is_wanted:
                self._begin()
            else:
                self._end_search()
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._refuse(f"cannot be profiled: {type(error).__name__}: {error}")
            self.end()

    def end(self) -> None:
        self._end_search()
        profiler = self._profiler
        self._profiler = None
        if profiler is not None:
            self._left_s = time.monotonic()
            profiler.close()

    def _follow(self, profiler: ModuleMemoryProfiler) -> None:
        if self._is_wanted:
            self._is_wanted = False
            profiler.total_steps = self._step - 1 + STEPS_PER_DEMAND
        profiler.steps = self._step - 1
        profiler.end_step()
        self.news += 1
        if not profiler.is_running:
            self.end()

    def _begin(self) -> None:
        """Profile from now on, if the model is known; else look for it in the step that begins."""
        optimizer = max(self._list_optimizers(), key=_count_elements, default=None)
        if optimizer is None:
            self._refuse("has no optimizer that has stepped")
            return
        model = None if self._model is None else self._model()
        if model is None and self._search is not None:
            model = self._search.find(optimizer)
        if model is not None:
            self._profile(model, optimizer)
        else:
            self._search_model()

    def _profile(self, model: Module, optimizer: Optimizer) -> None:
        self._end_search()
        self._model = weakref.ref(model)
        self._is_wanted = False
        now_s = time.monotonic()
        if now_s - self._left_s > _REMEMBERED_S:
            self._buffer.clear()
            self._began_s = now_s
        self._profiler = ModuleMemoryProfiler(
            model,
            optimizer,
            self._buffer,
            self._step + STEPS_PER_DEMAND,
            header=RankPlace(model.parameters()).header,
            tag="between steps",
            is_watched=True,
            began_s=self._began_s,
            steps=self._step,
        )
        self.news += 1

    def _search_model(self) -> None:
        if self._search is None:
            self._search = ModelSearch()
            self._steps_searched = 0
            self._search.begin(self._torch)
            return
        self._steps_searched += 1
        if self._steps_searched >= _STEPS_WITHOUT_MODEL:
            self._refuse("called no module with trainable parameters in its last steps")
            self._end_search()

    def _refuse(self, reason: str) -> None:
        self._is_wanted = False
        self.refusal = reason

    def _end_search(self) -> None:
        search = self._search
        self._search = None
        if search is not None:
            search.end()


def _count_elements(optimizer: Optimizer) -> int:
    return sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])


_MOST_WANTED = 8
_COMPRESSION = 3


class _Wanted(NamedTuple):
    request: int
    until_s: float
    wait_s: float


class ModuleDemands:
    """Queues and answers demands in our own thread; the thread that trains makes the profile.

    An answer is the profile at the end of a step. Whoever goes on asking keeps it going.
    """

    def __init__(
        self, torch: Module, list_optimizers: Callable[[], list[Optimizer]], clock: SystemClock
    ) -> None:
        self._profile = WatchedProfile(torch, list_optimizers)
        self._clock = clock
        self._wanted: deque[_Wanted] = deque(maxlen=_MOST_WANTED)
        self._news_sent = 0

    @property
    def needs_steps(self) -> bool:
        return self._profile.needs_steps

    def want(self, request: int, wait_s: float) -> None:
        """Queue a demand. `wait_s`: how long it may wait for the end of a step."""
        if not self._wanted:
            self._news_sent = self._profile.news  # what was there before is no answer
        self._wanted.append(_Wanted(request, self._clock.monotonic_s() + wait_s, wait_s))
        self._profile.renew()

    def meet_step(self, index: int) -> None:
        """Handle the end of a step; called there by the thread that trains."""
        if self._profile.needs_steps:
            self._profile.meet_step(index)

    def end(self) -> None:
        """Remove every hook; called by the thread that trains."""
        self._profile.end()

    def take_packets(self) -> list[bytes]:
        if not self._wanted:
            return []
        refusal = self._profile.refusal
        news = self._profile.news
        if refusal is not None:
            return [wire.encode_refused(it.request, refusal) for it in self._pop_all()]
        if news != self._news_sent:
            self._news_sent = news
            pieces = _pack(self._profile.take_lines())
            return [
                wire.encode_modules_part(wanted.request, part, len(pieces), piece)
                for wanted in self._pop_all()
                for part, piece in enumerate(pieces)
            ]
        return self._expire()

    def _expire(self) -> list[bytes]:
        """Refuse what has waited too long."""
        now_s = self._clock.monotonic_s()
        late = [wanted for wanted in self._wanted if now_s >= wanted.until_s]
        for wanted in late:
            self._wanted.remove(wanted)
        if late and not self._wanted:
            self._profile.give_up()
        return [
            wire.encode_refused(it.request, f"has not ended a step within {it.wait_s:.0f} s") for it in late
        ]

    def _pop_all(self) -> Iterator[_Wanted]:
        while self._wanted:
            yield self._wanted.popleft()


def _pack(pieces: Iterable[str]) -> list[str]:
    """Pack text into parts: base64 of zlib. Between its pieces the thread that trains can have the lock."""
    packer = zlib.compressobj(_COMPRESSION)
    packed = []
    for piece in pieces:
        packed.append(packer.compress(piece.encode()))
        time.sleep(0)
    text = base64.b64encode(b"".join(packed) + packer.flush()).decode()
    return [text[start : start + wire.PART_CHARACTERS] for start in range(0, len(text), wire.PART_CHARACTERS)]
