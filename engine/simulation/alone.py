"""One rank of many without the others: who it is, and what it gets that the others would send.

Tensors that it receives have the sizes that they would have. An object (the shapes that a stage of a pipeline
sends to the next) is needed itself: the run ends where one is missing, the rank that sends it is run in the
same process, and then the first begins again (`engine/workloads/step_trace.py`).
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import torch

from .patching import replace

_COLLECTIVES = ("c10d::", "_c10d_functional::")
TRANSFERS = ("c10d::send", "c10d::recv_", "c10d::recv_any_source_")
EXCHANGES = ("c10d::alltoall_base_", "c10d::alltoall_", "_c10d_functional::all_to_all_single")


class RankNeeded(BaseException):
    """Some rank must be run first, for the objects that it sends; no handler of a script catches this."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"an object of rank {rank}")
        self.rank = rank


class Post:
    """The rank that this process is, and the objects that ranks have sent so far."""

    def __init__(self, ranks: int, rank: int) -> None:
        self.ranks = ranks
        self.rank = rank
        # By sender, then by receivers, in the order in which they were sent.
        self._sent: defaultdict[int, defaultdict[Hashable, list[bytes]]] = defaultdict(_make_boxes)
        # How many of them this rank has received, by sender and receivers.
        self._received: defaultdict[tuple[int, Hashable], int] = defaultdict(int)

    def become(self, rank: int) -> None:
        """Begin as some rank: its process group is made again, and what it sent before is sent again."""
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        self.rank = rank
        self._sent.pop(rank, None)
        self._received.clear()

    def join(self, original: Any) -> None:
        """Make the group of all ranks; a second training of this process is the same rank."""
        if torch.distributed.is_initialized():
            return
        from torch.testing._internal.distributed.fake_pg import FakeStore

        original("fake", store=FakeStore(), rank=self.rank, world_size=self.ranks)
        # A script that imports it later has its stages ask each other.
        if "torch.distributed.pipelining" in sys.modules:
            _agree_alone()

    def install(self, *owners: Any) -> None:
        """Replace what sends objects in some modules of torch."""
        ways = {
            "send_object_list": self._send,
            "recv_object_list": self._receive,
            "broadcast_object_list": self._broadcast,
            "all_gather_object": _gather_from_all,
            "gather_object": self._gather,
        }
        for owner in owners:
            for name, way in ways.items():
                setattr(owner, name, way)

    def _send(
        self,
        objects: Any,
        dst: Any = None,
        group: Any = None,
        device: Any = None,
        group_dst: Any = None,
        **_: Any,
    ) -> None:
        receiver = _find_rank(group, dst, group_dst)
        self._sent[self.rank][receiver].append(pickle.dumps(list(objects)))

    def _receive(
        self,
        objects: Any,
        src: Any = None,
        group: Any = None,
        device: Any = None,
        group_src: Any = None,
        **_: Any,
    ) -> int:
        sender = _find_rank(group, src, group_src)
        objects[:] = self._take(sender, self.rank)
        return sender

    def _broadcast(
        self, objects: Any, src: Any = None, group: Any = None, device: Any = None, group_src: Any = None
    ) -> None:
        sender = _find_rank(group, src, group_src)
        receivers = tuple(torch.distributed.get_process_group_ranks(group))
        if sender == self.rank:
            self._sent[sender][receivers].append(pickle.dumps(list(objects)))
        else:
            objects[:] = self._take(sender, receivers)

    def _gather(
        self, given: Any, gathered: Any = None, dst: Any = None, group: Any = None, group_dst: Any = None
    ) -> None:
        if gathered is not None and self.rank == _find_rank(group, dst, group_dst):
            _gather_from_all(gathered, given)

    def _take(self, sender: int, receivers: Hashable) -> Any:
        box = self._sent[sender][receivers]
        place = self._received[sender, receivers]
        if place >= len(box):
            raise RankNeeded(sender)
        self._received[sender, receivers] += 1
        return pickle.loads(box[place])  # noqa: S301 - this process has pickled it


def _make_boxes() -> defaultdict[Hashable, list[bytes]]:
    return defaultdict(list)


def _find_rank(group: Any, rank: Any, group_rank: Any) -> int:
    """Return a rank among all, which is given so or as one of a group."""
    if group_rank is None:
        return 0 if rank is None else int(rank)
    return int(torch.distributed.get_process_group_ranks(group)[group_rank])


def _gather_from_all(gathered: Any, given: Any, group: Any = None) -> None:
    """Every other rank is taken to give what this one gives."""
    gathered[:] = [given] * len(gathered)


@functools.cache
def _agree_alone() -> None:
    """Replace how stages of a pipeline vote on who says the shapes: this rank decides for all."""
    from torch.distributed.pipelining import schedules

    replace(schedules._PipelineSchedule, "_warmup_p2p", _make_warm_up)


def _make_warm_up(original: Any) -> Any:
    def warm_up(schedule: Any, stages: Any, has_backward: bool, *args: Any, **kwargs: Any) -> None:
        from torch.distributed.pipelining import _utils, stage

        if not all(isinstance(it, stage.PipelineStage) for it in stages):
            original(schedule, stages, has_backward, *args, **kwargs)
            return
        modes = _utils.InferenceMode
        is_open = any(modes.needs_dynamic(it._user_meta, has_backward) for it in stages)
        for it in stages:
            it._inference_mode = modes.DYNAMIC if is_open else modes.STATIC

    return warm_up


def moves_tensors(function: Any) -> bool:
    """Return whether an operation is one of a process group."""
    return bool(getattr(getattr(function, "_schema", None), "name", "").startswith(_COLLECTIVES))


def find_group(args: Any) -> Any:
    """Return the process group among the arguments of an operation; None without one."""
    from torch.distributed import ProcessGroup
    from torch.distributed.distributed_c10d import _resolve_process_group

    for value in args:
        if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
            return ProcessGroup.unbox(value)
    # Functional collectives name their group last.
    return _resolve_process_group(args[-1]) if args and isinstance(args[-1], str) else None


@functools.cache
def is_exchange(function: Any) -> bool:
    """Return whether in this operation each rank sends a part of its tensor to each other rank."""
    return getattr(getattr(function, "_schema", None), "name", "") in EXCHANGES


def check_exchange(function: Any, args: Any) -> None:
    """Check that the parts of an exchange add up to the tensors.

    Raises:
        RuntimeError: They do not: a script that reads how much it sends has got stand-ins.
    """
    if function._schema.name == "c10d::alltoall_base_":
        pairs = [(args[0], args[3]), (args[1], args[4])]
    elif function._schema.name == "_c10d_functional::all_to_all_single":
        pairs = [(args[0], args[2])]
    else:
        return
    for tensor, parts in pairs:
        if parts and sum(parts) != tensor.shape[0]:
            raise RuntimeError(
                f"all_to_all_single of {tensor.shape[0]} rows in parts of {list(parts)}: how many rows go to "
                "each rank depends on values"
            )
