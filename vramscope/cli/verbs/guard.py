"""`vramscope guard`: watch several nodes as one, and keep their jobs from running out of memory."""

import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from vramscope import __version__
from vramscope.engine.errors import HubUnreachableError, UsageError
from vramscope.engine.model import SEVERITIES, Severity
from vramscope.engine.units import parse_device_bytes

from ..frame.emit import complain, emit_json
from ..frame.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, Interruption
from ..frame.flags import Reading, add_format_flags, add_read_only_flag, duration
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings, refuse_if_read_only
from ..nodes import add_choice_flags, add_node_flags, is_by_tcp, is_remote, take_node_flags

if TYPE_CHECKING:
    from vramscope.analyzers.cluster_state import Advice, ClusterPicture, JobState
    from vramscope.engine.clock import Clock
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.cluster.remote_node import Choice
    from vramscope.engine.model import Finding, HookStatus
    from vramscope.engine.settings import AlertSettings
    from vramscope.engine.viewer.snapshot import RankAdvice, Snapshot
    from vramscope.exporters.status.guard import GuardAdvice


# By which --signal-job may end a job.
SIGNALS = ("INT", "TERM", "KILL", "STOP")

DESCRIPTION = "Watch several nodes as one, and ask their jobs to free memory before they run out of it."
EXAMPLES = """\
vramscope guard --connect node01,node02
vramscope guard --slurm 1234
vramscope guard --hosts nodes.txt --prevent-oom --fail-on high --duration 12h
vramscope guard --ssh node01,node02 --planned 61GiB,58GiB --json
vramscope guard --signal-job train   # here, where the GPU has host memory"""
NOTES = """\
It prints what only all nodes together show: a job that will run out of memory, and its ranks; the nodes and
pipeline stages that limit it; the rank whose memory grows away from the others first.

--signal-job watches this node alone, through its agent: when the memory that the host shares with its GPU is
about to be used up, it signals the processes of the job.

Jobs are asked only with --prevent-oom, at the end of a step. Findings also go to the hooks of your settings
(alerts.command, alerts.webhook_url)."""
EXIT_CODES: dict[int | str, str] = {
    0: "done",
    2: "wrong flags, or nothing matches --nodes or --devices",
    3: "a finding reached --fail-on, or the job of --signal-job was signalled",
    6: "--prevent-oom or --signal-job, and read_only is set",
    7: "a node never answered",
    130: "Ctrl-C before --duration was over",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "guard", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    nodes = add_node_flags(parser, "nodes", "guard")
    add_choice_flags(parser, "guard")
    nodes.add_argument(
        "--insecure",
        action="store_true",
        default=SUPPRESS,
        help="use no keys beyond this machine; everybody on the way can read",
    )
    parser.add_argument(
        "--prevent-oom",
        action="store_true",
        help="ask processes to empty their cache or skip long batches; needs the role controller or worker",
    )
    parser.add_argument(
        "--signal-job",
        metavar="NAME",
        help="end this job of `vramscope run --job NAME` before the host stalls that it shares with its GPU",
    )
    parser.add_argument(
        "--signal",
        choices=SIGNALS,
        default="TERM",
        help="signal for the processes of --signal-job (default: TERM)",
    )
    parser.add_argument(
        "--planned",
        metavar="SIZE,…",
        type=Reading(_read_sizes),
        default=(),
        help="planned memory of a rank, one size for each pipeline stage, to compare peaks with",
    )
    parser.add_argument(
        "--duration",
        dest="guard_duration",
        metavar="TIME",
        type=duration(lambda seconds: seconds > 0, "a time above zero, for example 10m"),
        help="how long to watch (default: until Ctrl-C)",
    )
    parser.add_argument(
        "--fail-on", choices=SEVERITIES, help="exit with 3 if a finding across nodes reaches this severity"
    )
    add_read_only_flag(parser)
    parser.add_argument("--no-hooks", action="store_true", help="send no finding to the hooks")
    add_format_flags(
        parser, text="text is the default", json="print one JSON object a line (vramscope.guard/1)"
    )


def run(arguments: Namespace) -> int:
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.cluster.trust import read_trust

    from ..nodes import read_choice, read_nodes

    if arguments.signal_job is not None:
        return _guard_this_node(arguments)
    if arguments.prevent_oom:
        refuse_if_read_only(arguments, "guard --prevent-oom would make processes change their memory")
    named = take_node_flags(arguments, "guard")
    if not is_remote(named):
        raise UsageError(
            "no nodes are named: give --connect HOST,HOST, --hosts FILE, --ssh HOST,HOST or --slurm JOBID"
        )
    options = GuardOptions(
        duration_s=arguments.guard_duration,
        is_json=arguments.json,
        fail_on=arguments.fail_on,
        prevents_oom=arguments.prevent_oom,
        planned=arguments.planned,
        alerts=None if arguments.no_hooks else read_settings(arguments).alerts,
    )
    trust = read_trust(is_insecure=arguments.insecure or not is_by_tcp(named))
    watch = NodesWatch(read_nodes(named), trust, most_in_full=0, choice=read_choice(named))
    try:
        return Guard(watch, options).run()
    finally:
        watch.close()


def _guard_this_node(arguments: Namespace) -> int:
    import signal

    from ..stall_guard import StallGuard, watch_stalls

    refuse_if_read_only(arguments, "guard --signal-job would signal a job")
    if is_remote(take_node_flags(arguments, "guard")) or arguments.prevent_oom or arguments.json:
        raise UsageError(
            "--signal-job watches this node alone: it does not go with nodes, --prevent-oom or --json; "
            "expected for example `vramscope guard --signal-job train --signal INT`"
        )
    guard = StallGuard(arguments.signal_job, signal.Signals[f"SIG{arguments.signal}"])
    return watch_stalls(guard, arguments.guard_duration)


def _read_sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(parse_device_bytes(it) for it in text.split(","))
    except UsageError as error:
        raise UsageError(f"{error}; expected one size for each stage, for example 61GiB,58GiB") from error


EXIT_UNREACHABLE = HubUnreachableError.exit_code
# Longest time until Ctrl-C is noticed.
TURN_S = 0.25
# How long a process may wait for the end of its step before it answers.
STEP_WITHIN_S = 60.0
# Longest time at the end for hooks to receive the alerts that wait.
FINISH_ALERTS_WITHIN_S = 2.0


class GuardOptions(NamedTuple):
    duration_s: float | None = None
    is_json: bool = False
    fail_on: Severity | None = None
    # Whether processes are asked to do something.
    prevents_oom: bool = False
    # Planned memory of a rank of each pipeline stage, in bytes.
    planned: Sequence[int] = ()
    # Hooks that receive findings; None for no hooks.
    alerts: "AlertSettings | None" = None


class Guard:
    """Follows nodes, prints findings across them, and with `--prevent-oom` asks processes to act."""

    def __init__(self, watch: "NodesWatch", options: GuardOptions, *, clock: "Clock | None" = None) -> None:
        from vramscope.analyzers.cluster_state import Adviser, ClusterState
        from vramscope.engine.alerts.desk import AlertDesk
        from vramscope.engine.clock import SystemClock

        self._watch = watch
        self._options = options
        self._clock = clock or SystemClock()
        self._state = ClusterState(options.planned)
        self._adviser = Adviser() if options.prevents_oom else None
        # Advice not yet answered, by node and number.
        self._asked: dict[tuple[str, int], Advice] = {}
        self._desk = AlertDesk(options.alerts, version=__version__, clock=self._clock)
        self._connections = ConnectionNotices()
        self._hooks = HookNotices()
        self._choice = ChoiceNotices(watch.choice)
        self._plan = PlanNotices(options.planned)
        self._answered: set[str] = set()
        self._has_failed = False

    @property
    def hooks(self) -> "tuple[HookStatus, ...]":
        return self._desk.hooks

    def run(self) -> int:
        """Watch until the time is up or Ctrl-C; print the state at the end and return the exit code."""
        end_s = None if self._options.duration_s is None else time.monotonic() + self._options.duration_s
        with Interruption() as interruption:
            while not interruption.is_asked and (end_s is None or time.monotonic() < end_s):
                self.turn(TURN_S)
        self._finish()
        if self._has_failed:
            return EXIT_FINDINGS
        if interruption.is_asked and end_s is not None:
            return EXIT_INTERRUPTED
        if self._watch.mismatch is not None:
            return UsageError.exit_code
        return 0 if self._answered.issuperset(self._watch.nodes) else EXIT_UNREACHABLE

    def turn(self, timeout_s: float) -> None:
        from vramscope.engine.cluster.nodes_watch import NO_NODE

        before = self._state.picture
        for snapshot in self._watch.turn(timeout_s):
            self._connections.note(snapshot)
            self._choice.note(snapshot)
            if snapshot.node == NO_NODE:
                continue
            if snapshot.connection == "live":
                self._answered.add(snapshot.node)
            self._take_answers(snapshot)
            self._report(self._state.observe(snapshot, self._clock.wall_s()))
        if self._state.picture is not before:
            self._plan.note(self._state.picture)
            for advice in self._adviser.decide(self._state.picture) if self._adviser is not None else ():
                self._ask(advice)
        self._desk.poll()
        self._hooks.note(self.hooks)

    def _finish(self) -> None:
        """Print the state at the end, and send the alerts that wait."""
        self._report(self._state.conclude(self._clock.wall_s()))
        self._plan.note(self._state.picture, is_last=True)
        self._print(event="state")
        left = self._desk.finish(FINISH_ALERTS_WITHIN_S)
        self._hooks.note(self.hooks, is_last=True)
        if left is not None:
            complain(left)

    def _report(self, findings: "Sequence[Finding]") -> None:
        self._desk.take(findings)
        for finding in findings:
            self._print(event="finding", finding=finding)
            least = self._options.fail_on
            if least is not None and SEVERITIES.index(finding.severity) >= SEVERITIES.index(least):
                self._has_failed = True

    def _ask(self, advice: "Advice") -> None:
        from vramscope.exporters.status.guard import describe_advice

        node = self._watch.nodes.get(advice.rank.key.node)
        if node is None:
            return
        number = node.picture.advise(
            advice.rank.key.pid, advice.action, reason=advice.reason, step_end_within_s=STEP_WITHIN_S
        )
        self._asked[(advice.rank.key.node, number)] = advice
        self._print(event="advice", advice=describe_advice(advice))

    def _take_answers(self, snapshot: "Snapshot") -> None:
        for answer in snapshot.advice:
            advice = self._asked.pop((snapshot.node, answer.number), None)
            if advice is not None:
                self._take_answer(advice, answer)

    def _take_answer(self, advice: "Advice", answer: "RankAdvice") -> None:
        from vramscope.exporters.status.guard import describe_advice

        described = describe_advice(advice, answer)
        self._print(event="outcome", advice=described)
        words = f"{advice.action}: {'' if described.is_obeyed else 'did not obey: '}{described.outcome}"
        finding = self._state.note_outcome(advice.rank, advice.job, words)
        if finding is not None:
            self._print(event="finding", finding=finding)

    def _print(
        self,
        *,
        event: Literal["finding", "advice", "outcome", "state"],
        finding: "Finding | None" = None,
        advice: "GuardAdvice | None" = None,
    ) -> None:
        from vramscope.exporters.status.guard import GuardLine, describe_state, word_line

        left_out = self._watch.nodes_left_out
        state = describe_state(self._state.picture, left_out) if event == "state" else None
        line = GuardLine(time=self._clock.wall_s(), event=event, finding=finding, advice=advice, state=state)
        if self._options.is_json:
            emit_json(line)
            return
        stamp = time.strftime("%H:%M:%S", time.localtime(line.time))
        for text in word_line(line):
            print(f"{stamp} {text}", flush=True)


# Programs report their pipeline stages some time after their ranks: once the model is laid out.
GRACE_S = 30.0


class ConnectionNotices:
    """Prints why a node has no data, and when it has data again."""

    def __init__(self) -> None:
        self._printed: dict[str, str | None] = {}

    def note(self, snapshot: "Snapshot") -> None:
        name = snapshot.node
        is_lost = snapshot.connection == "lost"
        if is_lost and self._printed.get(name) != snapshot.reason:
            self._printed[name] = snapshot.reason
            complain(f"{name}: {snapshot.reason}")
        elif snapshot.connection == "live" and self._printed.pop(name, None) is not None:
            complain(f"{name}: connected again")


class ChoiceNotices:
    """Prints what is chosen, and which chosen nodes and devices do not exist."""

    def __init__(self, choice: "Choice") -> None:
        self._printed: set[str] = set()
        named = [f"--nodes {','.join(choice.nodes)}"] if choice.nodes else []
        named += [f"--devices {','.join(choice.devices)}"] if choice.devices else []
        if named:
            complain(f"only what matches {' and '.join(named)} is analyzed; findings do not cover the rest")

    def note(self, snapshot: "Snapshot") -> None:
        from vramscope.engine.wire.selection import find_mismatch

        mismatch = None if snapshot.sample is None else find_mismatch(snapshot.sample)
        if mismatch is not None and mismatch not in self._printed:
            self._printed.add(mismatch)
            complain(mismatch)


class PlanNotices:
    """Prints whether the plan is compared with a job.

    Args:
        planned: Planned memory of a rank of each pipeline stage in bytes; empty without a plan.
    """

    def __init__(self, planned: Sequence[int]) -> None:
        self._planned = planned
        self._printed: str | None = None
        self._reason: str | None = None
        # Since when that has been the reason why no job is compared with the plan.
        self._since_s = 0.0

    def note(self, picture: "ClusterPicture", *, is_last: bool = False) -> None:
        if not self._planned or not (picture.jobs or (is_last and picture.live)):
            return
        held = [job for job in picture.jobs if any(it.planned_bytes is not None for it in job.stages)]
        if held:
            if self._printed is not None:
                complain(
                    f"{held[0].label} reports its pipeline stages now: its peaks are compared with --planned"
                )
            self._printed = self._reason = None
            return
        reason = self._explain(picture.jobs)
        if reason != self._reason:
            self._reason = reason
            self._since_s = picture.time_s
        if reason != self._printed and (is_last or picture.time_s - self._since_s >= GRACE_S):
            self._printed = reason
            complain(f"--planned has no effect: {reason}")

    def _explain(self, jobs: "Sequence[JobState]") -> str:
        """Return why no stage of any job is compared with the plan."""
        if not jobs:
            return "no job with two or more ranks was seen"
        for job in jobs:
            stages = [it.stage for it in job.stages]
            if stages:
                count = f"{len(self._planned)} stage{'s' if len(self._planned) > 1 else ''}"
                return (
                    f"it has {count}, and job {job.key} has stage {max(stages)}; give one size for each stage"
                )
        if any(rank.pp is not None for job in jobs for rank in job.ranks):
            return "no rank has ended a step yet"
        return (
            "no job reports its pipeline stages; Megatron-LM, DeepSpeed and device meshes with a dimension "
            "`pp` do (docs/probe.md)"
        )


class HookNotices:
    """Prints why a hook did not receive a finding; each reason once, until the hook accepts one again."""

    def __init__(self) -> None:
        self._printed: dict[str, str | None] = {}

    def note(self, hooks: "Iterable[HookStatus]", *, is_last: bool = False) -> None:
        for hook in hooks:
            if hook.reason is not None and hook.reason != self._printed.get(hook.name):
                complain(f"alert not delivered: {hook.reason}")
            self._printed[hook.name] = hook.reason
            if is_last and hook.dropped:
                complain(f"{hook.name}: dropped {hook.dropped:,} alerts, because too many came at once")
