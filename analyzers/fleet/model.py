"""One device of a fleet, and one node. None means unmeasured; it is never 0 and never a guess."""

from typing import Literal

import msgspec

from ...engine.model import DeviceState, RiskLevel

NodeState = Literal["live", "connecting", "lost"]


class FleetDevice(msgspec.Struct, frozen=True, gc=False):
    """What a fleet knows of a device; `key` names it among all nodes."""

    node: str
    """As its feed names the node."""
    uuid: str
    label: str
    """As in `DeviceSample.label`."""
    name: str
    """What a sentence calls it: `GPU 3`."""
    model: str | None = None
    """Product name."""
    state: DeviceState = "ok"
    is_old: bool = False
    """Whether its figures are not of now: the node is lost, or the device lost or stale."""
    is_node_lost: bool = False
    """Whether nothing on it is of now, because its node is lost."""
    is_simulated: bool = False
    used_bytes: int | None = None
    total_bytes: int | None = None
    level: RiskLevel = "unknown"
    reason: str = ""
    """Why the level is what it is."""
    oom_in_s: float | None = None
    """Time to the error that is foreseen, from the newest sample on; None where none is."""
    probability: float | None = None
    """Probability of an out-of-memory error within the forecast's horizon, 0 to 1."""
    kinds: tuple[str, ...] = ()
    """Kinds of its open findings, sorted."""
    jobs: tuple[str, ...] = ()
    rank: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Node and UUID, which are one device's alone."""
        return self.node, self.uuid

    @property
    def used_share(self) -> float | None:
        """Device used over capacity, 0 to 1."""
        if self.used_bytes is None or not self.total_bytes:
            return None
        return self.used_bytes / self.total_bytes


class FleetNode(msgspec.Struct, frozen=True):
    """What a fleet knows of a node beside its devices."""

    name: str
    state: NodeState
    reason: str | None = None
    """Why it is not live, in one sentence."""
    silent_s: float | None = None
    """Seconds for which it has said nothing, when it last said so."""
    heard_s: float | None = None
    """When it last told figures, by our wall clock; None where it never did."""
    clock_offset_s: float | None = None
    """Its wall clock less ours; None where it cannot be told from delay."""
    mismatch: str | None = None
    """Why none of its devices is followed, in one sentence."""
