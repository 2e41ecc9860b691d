"""What a watch over several nodes says on stderr, once each: who is away, a plan without stages, hooks."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vramscope.analyzers.cluster_state import ClusterPicture, JobState
from vramscope.engine.bus.device_trimming import find_mismatch
from vramscope.engine.cluster.choice import Choice

from .diagnostics import complain

if TYPE_CHECKING:
    from vramscope.engine.bus.snapshot import Snapshot
    from vramscope.engine.model import HookStatus

GRACE_S = 30.0
"""Programs tell their pipeline stages some time after their ranks: when they have laid out the model."""


class ConnectionNotices:
    """Says why a node has no figures, and when it has some again."""

    def __init__(self) -> None:
        self._told: dict[str, str | None] = {}

    def note(self, snapshot: "Snapshot") -> None:
        """Take the newest snapshot of a node."""
        name, is_lost = snapshot.node, snapshot.connection == "lost"
        if is_lost and self._told.get(name) != snapshot.reason:
            self._told[name] = snapshot.reason
            complain(f"{name}: {snapshot.reason}")
        elif snapshot.connection == "live" and self._told.pop(name, None) is not None:
            complain(f"{name}: is there again")


class ChoiceNotices:
    """Says what is not followed, of which nothing is concluded, and where nothing is that was chosen.

    Args:
        choice: Which nodes and devices are followed.
    """

    def __init__(self, choice: Choice) -> None:
        self._told: set[str] = set()
        named = [f"--nodes {','.join(choice.nodes)}"] if choice.nodes else []
        named += [f"--devices {','.join(choice.devices)}"] if choice.devices else []
        if named:
            complain(f"followed is what matches {' and '.join(named)}; nothing is concluded of the rest")

    def note(self, snapshot: "Snapshot") -> None:
        """Take the newest snapshot of a node."""
        mismatch = None if snapshot.sample is None else find_mismatch(snapshot.sample)
        if mismatch is not None and mismatch not in self._told:
            self._told.add(mismatch)
            complain(mismatch)


class PlanNotices:
    """Says where a plan is held against nothing, and when it is.

    Args:
        planned: What the plan says of a rank of each pipeline stage in bytes; empty without a plan.
    """

    def __init__(self, planned: Sequence[int]) -> None:
        self._planned = planned
        self._told: str | None = None
        self._reason: str | None = None
        self._since_s = 0.0
        """Since when that is the reason why no job is held against the plan."""

    def note(self, picture: ClusterPicture, *, is_last: bool = False) -> None:
        """Take all nodes as they stand.

        Args:
            picture: All nodes.
            is_last: Whether the watch ends, so that what was waited for does not come any more.
        """
        if not self._planned or not (picture.jobs or (is_last and picture.live)):
            return
        held = [job for job in picture.jobs if any(it.planned_bytes is not None for it in job.stages)]
        if held:
            if self._told is not None:
                complain(
                    f"{held[0].label} tells its pipeline stages now: its peaks are held against --planned"
                )
            self._told = self._reason = None
            return
        reason = self._explain(picture.jobs)
        if reason != self._reason:
            self._reason, self._since_s = reason, picture.time_s
        if reason != self._told and (is_last or picture.time_s - self._since_s >= GRACE_S):
            self._told = reason
            complain(f"--planned is held against nothing: {reason}")

    def _explain(self, jobs: Sequence[JobState]) -> str:
        """Return why no stage of any job stands beside the plan."""
        if not jobs:
            return "no job of two ranks or more was seen"
        for job in jobs:
            stages = [it.stage for it in job.stages]
            if stages:
                count = f"{len(self._planned)} stage{'s' if len(self._planned) > 1 else ''}"
                return f"it names {count}, and job {job.key} has stage {max(stages)}; give one size a stage"
        if any(rank.pp is not None for job in jobs for rank in job.ranks):
            return "no rank has ended a step"
        return (
            "no job tells its pipeline stages; Megatron-LM, DeepSpeed and device meshes with a dimension "
            "`pp` do (docs/probe.md)"
        )


class HookNotices:
    """Says why a hook was not told of a finding; a reason once, until the hook takes one again."""

    def __init__(self) -> None:
        self._told: dict[str, str | None] = {}

    def note(self, hooks: "Iterable[HookStatus]", *, is_last: bool = False) -> None:
        """Take how every hook fares.

        Args:
            hooks: All of them.
            is_last: Whether the watch ends, so that what was dropped is told.
        """
        for hook in hooks:
            if hook.reason is not None and hook.reason != self._told.get(hook.name):
                complain(f"not told: {hook.reason}")
            self._told[hook.name] = hook.reason
            if is_last and hook.dropped:
                complain(f"{hook.name}: {hook.dropped:,} of too many alerts were not told")
