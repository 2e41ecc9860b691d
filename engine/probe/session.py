"""The life of the probe in a process: its thread, its hooks, forks, begin and end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from typing import Callable

from . import keras_optimizers, phases
from .backends import NOTHING
from .base import current
from .base.current import Guard
from .base.foreign import Foreign, Module, Optimizer
from .clock import SystemClock
from .demands import Demands
from .history import MemoryHistory, attach_observer, end_recording, is_observer_settled
from .identity import TrainingDevice, is_loader_worker
from .imports import watch_keras
from .model_state import ModelStateWatch, hook_modules
from .out_of_memory import OutOfMemoryRecorder
from .peak_file import FOLDER_VARIABLE, PeakFile
from .phase_memory import PhaseCalls
from .sampler import WATCH_S, Announcement, Pace, Sampler
from .steps import Sizes, StepBoundaries
from .transport import Connection

NAME = "vramscope-probe"
_LONGEST_JOIN_S = 0.02
# Signals that a thread raises itself: their handlers, as faulthandler's, must still find ours.
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")


class SamplerThread:
    """Calls a function again and again, each time after as many seconds as it returned.

    Args:
        tick: Returns the seconds until the next call, or None to end.
    """

    def __init__(self, tick: Callable[[], float | None]) -> None:
        self._tick = tick
        self._thread: threading.Thread | None = None
        self._wake = threading.Lock()
        self._is_wanted = False

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread if it does not run; a RuntimeError if the system has none left."""
        if self.is_alive:
            return
        self._is_wanted = True
        self._wake = threading.Lock()
        self._wake.acquire()
        thread = threading.Thread(target=self._run, args=(self._wake,), name=NAME, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Ask the thread to end, and wait for it for a moment: it may be inside a call of the driver."""
        thread = self._thread
        self._thread = None
        self._is_wanted = False
        if thread is None or thread is threading.current_thread():
            return
        self.wake()
        thread.join(_LONGEST_JOIN_S)

    def wake(self) -> None:
        """Make the next tick begin at once."""
        try:
            self._wake.release()
        except RuntimeError:
            # It is awake already.
            return

    def forget(self) -> None:
        """Drop a thread that a fork left behind in the parent."""
        self._thread = None
        self._is_wanted = False

    def _run(self, wake: threading.Lock) -> None:
        """Each start has a lock of its own, so that a thread left behind ends too."""
        _leave_signals_to_the_program()
        while self._is_wanted and wake is self._wake:
            pause_s = self._tick()
            if pause_s is None:
                return
            wake.acquire(timeout=pause_s)


def _leave_signals_to_the_program() -> None:
    """Block in this thread every signal that is sent to the process.

    The kernel delivers such a signal to any thread that does not block it (signal(7)): a program that blocks
    one in its own threads to wait for it would be ended by ours.
    """
    if hasattr(signal, "pthread_sigmask"):
        faults = {getattr(signal, name, None) for name in _FAULTS}
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)


_is_watching = False
# Hooks that have failed; each leaves one note, however often the program forks.
_noted: set[str] = set()


def watch_forks() -> None:
    """Register for forks, once for the process and all its descendants."""
    global _is_watching  # noqa: PLW0603 - what os registers cannot be taken back
    if not _is_watching:
        os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
        _is_watching = True


def _before() -> None:
    """End the thread: a lock that it holds at that moment would be locked in the child for ever."""
    session = current.session
    if session is not None:
        _try("what comes before a fork", session.pause)


def _after_in_parent() -> None:
    session = current.session
    if session is not None:
        _try("what follows a fork in the parent", session.go_on)


def _after_in_child() -> None:
    session = current.session
    if session is not None:
        _try("what follows a fork in the child", session.fall_silent)


def _try(what: str, action: Callable[[], None]) -> None:
    """What a hook of a fork raises is printed by the interpreter, at every fork."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the program forks whatever fails here
        if what not in _noted:
            _noted.add(what)
            current.note_failure(what, error)


_guard = Guard("the hook after an optimizer's step")
# Modules `torch.optim.optimizer` that call us. A hook is never removed: doing so from our thread while
# PyTorch goes through its hooks would raise in the training. Without a session it returns at once.
_hooked: list[Module] = []
_tracer: Callable[[], Foreign] | None = None
# The function that notifies the session, by the compiler that must not trace it.
_untraced: dict[Module, Callable[[Optimizer], None]] = {}


def hook_optimizers() -> bool:
    """Register the hook if `torch.optim.optimizer` is loaded and accepts one; True if it is registered."""
    module = sys.modules.get("torch.optim.optimizer")
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        return False
    _find_tracer()
    if not any(known is module for known in _hooked):
        _hooked.append(module)
        register(_after_step)
    return True


def _find_tracer() -> None:
    """Find the function that returns what traces this thread's frames, or None."""
    global _tracer  # noqa: PLW0603 - looked up once for the process
    private = getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None)
    _tracer = getattr(getattr(private, "eval_frame", None), "get_eval_frame_callback", None)


def _after_step(optimizer: Optimizer, arguments: Foreign, named: Foreign) -> None:
    """Notify the session, hidden from PyTorch's compiler."""
    if _tracer is None or _tracer() is not None:
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            _hide_from(dynamo)(optimizer)
            return
    _notify_session(optimizer)


# A compiler that traces an optimizer's step ends its graph here; that it does not trace what we call is the
# work of `disable`, which is there as soon as the compiler is.
_after_step._torchdynamo_disable = True  # type: ignore[attr-defined]


def _hide_from(dynamo: Module) -> Callable[[Optimizer], None]:
    """Return the function that notifies the session without frames below it being compiled."""
    if dynamo not in _untraced:
        disable = getattr(dynamo, "disable", None)
        if disable is None:
            # The compiler is being imported by another thread.
            return _notify_session
        _untraced[dynamo] = disable(_notify_session)
    return _untraced[dynamo]


def _leave_or_begin() -> Session | None:
    """Do what an ended session left to this thread; in a forked child that trains, begin a new one."""
    if current.leftover is not None:
        leftover = current.leftover
        current.leftover = None
        leftover(sys.modules.get("torch"))
    if current.dormant is not None:
        current.dormant()
    return current.session


def _notify_session(optimizer: Optimizer) -> None:
    """An exception here would reach the training, so none leaves."""
    if _guard.is_shut:
        return
    try:
        session = current.session
        if session is None:
            session = _leave_or_begin()
        if session is not None:
            session.meet_optimizer(optimizer)
    except Exception as error:  # noqa: BLE001
        _guard.count(error)


# Between two checks soon after the start, when a program is about to fill its device for the first time.
QUICK_WATCH_S = 0.1
QUICK_WATCH_FOR_S = 10.0
_CARE_EVERY_S = 1.0


class Session:
    """Begins silent: it reports once the process has made a step, has device memory, or was asked to.

    Args:
        is_explicit: Report without waiting for a reason.
    """

    def __init__(
        self,
        torch: Module,
        runtime_dir: str,
        job: str | None,
        is_explicit: bool,
        clock: SystemClock | None = None,
    ) -> None:
        self.torch = torch
        self.runtime_dir = runtime_dir
        self.job = job
        self.is_explicit = is_explicit
        self.is_reporting = False
        # Counted by the thread that trains; the digest reaches the same number up to a second
        # later.
        self._steps_ended = 0
        self._pid = os.getpid()
        self._clock = clock if clock is not None else SystemClock()
        self._device = TrainingDevice(torch)
        self._boundaries = StepBoundaries()
        self._history = MemoryHistory(self._clock)
        self._model = ModelStateWatch(self._clock)
        self._pace = Pace(self._clock.monotonic_s())
        announcement = Announcement(self._device, job)
        connection = Connection(runtime_dir, self._clock)
        self._sampler = Sampler(
            *(self._device, announcement, connection, self._clock, self._history, self._model, self._pace),
            PeakFile(os.environ.get(FOLDER_VARIABLE)),
        )
        self._demands = Demands(
            self._device, self._sampler.outbox, self._history, self._model, self, self._clock
        )
        self._sampler.serve = self._demands.serve
        self._sampler.answer = self._demands.answer
        self._recorder = OutOfMemoryRecorder(self._device, self._sampler, self._clock, runtime_dir)
        self._phases = PhaseCalls(
            self._device, self._clock, self._sampler.digest.note_phase, announcement.notes.append
        )
        self._sampler.digest.pick_phase = self._phases.pick
        self._thread = SamplerThread(self._tick)
        self._tick_guard = Guard("a tick of the sampler")
        self._step_guard = Guard("the end of a step")
        self._phase_guard = Guard("a phase")
        self._last_read_s = self._next_care_s = float("-inf")
        self._has_stepped = self._lacks_thread = self._is_observer_settled = False
        # Until then, the end of a step is only counted.
        self._quiet_until_s = float("-inf")
        # `id` of the one optimizer whose every step ends one.
        self._ends_alone: int | None = None
        self._quick_until_s = self._clock.monotonic_s() + QUICK_WATCH_FOR_S

    def is_alive(self) -> bool:
        """Return whether this is the session of this very process and its thread runs."""
        return self._pid == os.getpid() and self._thread.is_alive

    def start(self) -> None:
        """Start the thread; if the system has none left, a later step of the training tries again."""
        lacked = self._lacks_thread
        self._lacks_thread = False
        try:
            self._thread.start()
        except RuntimeError as error:
            self._lacks_thread = True
            if not lacked:
                current.note_failure("starting the thread that samples", error, "; trying again")

    def meet_optimizer(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped; called by the thread that trains."""
        now_s = self._clock.monotonic_s()
        if now_s < self._quiet_until_s and id(optimizer) == self._ends_alone:
            # Most steps of a quick training: nothing is due but to know that one ended.
            self._steps_ended += 1
            self._sampler.digest.note_end((now_s, self._clock.wall_s(), NOTHING, None, False))
        elif self._boundaries.ends_with(id(optimizer)):
            self._ends_alone = id(optimizer)
            self._end_step(optimizer, now_s)
        else:
            self._ends_alone = None
            self._model.note_optimizer(optimizer)

    def end_explicit_step(self, tokens: object = None, batch: object = None) -> None:
        """The program marks the end of a step; never raises."""
        if self._step_guard.is_shut:
            return
        try:
            self._boundaries.is_explicit = True
            self._ends_alone = None
            sizes = None
            if tokens is not None or batch is not None:
                sizes = self._boundaries.sizes.read(tokens, batch)
            self._end_step(None, self._clock.monotonic_s(), sizes)
        except Exception as error:  # noqa: BLE001
            self._step_guard.count(error)

    def expect_marks(self) -> None:
        """The program will mark its steps, the first one too: no optimizer ends one."""
        self._boundaries.is_explicit = True
        self._ends_alone = None

    def begin_phase(self, part: phases.phase, *, is_training: bool) -> None:
        """A named part begins; never raises. `is_training`: the calling thread is the one that steps."""
        if self._phase_guard.is_shut:
            return
        try:
            self._phases.begin(part, is_training=is_training)
        except Exception as error:  # noqa: BLE001
            self._phase_guard.count(error)

    def end_phase(self, part: phases.phase) -> None:
        """A named part ends; never raises."""
        if self._phase_guard.is_shut:
            return
        try:
            self._phases.end(part)
        except Exception as error:  # noqa: BLE001
            self._phase_guard.count(error)

    def record_out_of_memory(
        self,
        size_bytes: int | None,
        message: str,
        free_bytes: int | None,
        index: int | None,
        total_bytes: int | None,
    ) -> str | None:
        """Write the flight record of an error that is about to be raised, and report it; never raises."""
        try:
            self.is_reporting = self.is_reporting or not is_loader_worker()
            return self._recorder.record(size_bytes, message, free_bytes, index, total_bytes)
        except Exception as error:  # noqa: BLE001
            current.note_failure("the flight record", error)
            return None

    def end(self, reason: str) -> None:
        """Send what waits and a goodbye, and leave nothing running."""
        if current.session is self:
            current.session = None
        if self._pid != os.getpid():
            return
        if self._history.mode == "on":
            current.leave(end_recording)
        self._demands.end()
        self._phases.end_all()
        self._thread.stop()
        has_reported = self.is_reporting or self._has_reason()
        # A short process may have freed all before anybody looked.
        has_used = has_reported or (
            self._sampler.peaks.is_wanted and not is_loader_worker() and self._device.look_back()
        )
        self._sampler.close(reason, has_reported=has_reported, has_used=has_used)

    def pause(self) -> None:
        """End the thread for the length of a fork."""
        self._thread.stop()

    def go_on(self) -> None:
        self.start()

    def fall_silent(self) -> None:
        """In a forked child: drop what is the parent's, and wait whether this child trains itself."""
        torch = self.torch
        runtime_dir = self.runtime_dir
        job = self.job

        def begin_own() -> None:
            if not is_loader_worker():
                start_session(torch, runtime_dir, job, is_explicit=False)

        current.session = None
        current.dormant = begin_own
        self._demands.end()
        self._thread.forget()
        self._sampler.connection.close()
        self._sampler.resident.close()

    def _end_step(self, optimizer: Optimizer | None, now_s: float, sizes: Sizes | None = None) -> None:
        """Note the end of a step, with a reading if that is due, and take care once a second.

        The peak of a step that was larger than all before is never seen again: its end is always read.
        """
        phases.note_training_thread()
        needs_steps = self._history.needs_steps or self._demands.needs_steps
        is_care_due = now_s >= self._next_care_s or needs_steps
        if is_care_due and optimizer is not None:
            self._device.note_optimizer(optimizer)
            self._model.note_optimizer(optimizer)
        reading = NOTHING
        is_largest = sizes is not None and self._boundaries.sizes.is_new_largest(sizes)
        if is_largest or now_s - self._last_read_s >= self._pace.between_ends_s:
            self._last_read_s = now_s
            reading = self._device.read()
        self._steps_ended += 1
        self._sampler.digest.note_end((now_s, self._clock.wall_s(), reading, sizes, is_largest))
        if is_care_due:
            self._do_upkeep(now_s)
        next_read_s = self._last_read_s + self._pace.between_ends_s
        self._quiet_until_s = float("-inf") if needs_steps else min(next_read_s, self._next_care_s)

    def _do_upkeep(self, now_s: float) -> None:
        """Do what only the thread that trains may do, and not at every step."""
        leftover = current.leftover
        current.leftover = None
        if leftover is not None:
            leftover(self.torch)
        state = self._model.measure()
        if state is not None:
            self._sampler.outbox.put_model_state(state)
            self._recorder.model_state = state
        self._demands.meet_step(self._steps_ended)
        self._history.meet_step(self.torch)
        if not self._model.is_new:
            self._next_care_s = now_s + _CARE_EVERY_S
        if self._lacks_thread:
            self.start()
        if not self._has_stepped:
            self._has_stepped = True
            self._thread.wake()

    def _tick(self) -> float | None:
        """Do what is due; called by our own thread; None ends it."""
        if current.session is not self or self._tick_guard.is_shut:
            return None
        try:
            if not self.is_reporting and not self._begin_with_reason():
                return QUICK_WATCH_S if self._clock.monotonic_s() < self._quick_until_s else WATCH_S
            if not self._is_observer_settled:
                self._attach_observer()
            return self._sampler.tick()
        except Exception as error:  # noqa: BLE001 - a thread that dies of an exception prints it
            self._tick_guard.count(error)
            return WATCH_S

    def _begin_with_reason(self) -> bool:
        hook_optimizers()
        if not is_loader_worker():
            # Ahead of any reason: the first allocation of all may be the one that fails.
            self._attach_observer()
        if self._has_reason():
            self._device.look()
            self.is_reporting = True
        return self.is_reporting

    def _attach_observer(self) -> None:
        attach_observer(self.torch)
        self._is_observer_settled = is_observer_settled(self.torch)

    def _has_reason(self) -> bool:
        """Return whether this process is one that trains, or was asked for."""
        if is_loader_worker():
            return False
        return self.is_explicit or self._has_stepped or self._device.look()


def start_session(torch: Module, runtime_dir: str, job: str | None, is_explicit: bool) -> None:
    """Start the session of this process; if one runs, only record that it was asked for."""
    watch_forks()
    hook_optimizers()
    hook_modules(torch)
    watch_keras(lambda it: keras_optimizers.watch(it, _after_step))
    current.dormant = None
    session = current.session
    if session is None:
        session = current.session = Session(torch, runtime_dir, job, is_explicit)
        atexit.unregister(_end_at_exit)
        atexit.register(_end_at_exit)
    if session.torch is not torch:
        session.torch = session._device.torch = torch
        session._is_observer_settled = False
    session.is_explicit = session.is_explicit or is_explicit
    session.start()


def _end_at_exit() -> None:
    session = current.session
    if session is not None:
        try:
            session.end("exit")
        except Exception:  # noqa: BLE001 - the process ends; nobody is left to report to
            current.session = None
