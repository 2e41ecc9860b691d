"""File names of memory traces: the only place where rank and parallel layout are written."""

import re

import msgspec

from ...model import RankCoordinates

NAME_EXAMPLE = "memory_trace_rank0_wd8_tp2_pp4_l40_bs1.json"
_KEYS = "wd|tp|pp|dp|ep|expNum|exp|l|mbs|nmbs|gbs|bs|ts"
_LAYOUT = {
    "wd": ("wd",),
    "tp": ("tp",),
    "pp": ("pp",),
    "dp": ("dp",),
    "ep": ("ep", "exp"),
    "experts": ("expNum",),
    "layers": ("l",),
    "micro-batch": ("mbs", "bs"),
}
_NAME = re.compile(rf"memory_trace_rank([0-9]{{1,9}})((?:_(?:{_KEYS})(?:[0-9]{{1,9}}|None))*)\.json")
_TOKEN = re.compile(rf"_({_KEYS})([0-9]+|None)(?=_|$)")


class TraceName(msgspec.Struct, frozen=True):
    """What the name of a trace file says: a rank, and the numbers of its run by their key."""

    rank: int
    numbers: tuple[tuple[str, int], ...] = ()
    """Keys as in the name (`wd` world size, `tp`, `l` layers, …); those of value None are absent."""

    def number(self, *keys: str) -> int | None:
        """Return the number of the first of these keys that the name has."""
        for key in keys:
            for known, value in self.numbers:
                if known == key:
                    return value
        return None

    @property
    def run(self) -> tuple[tuple[str, int], ...]:
        """The numbers that all ranks of one run share, sorted by key."""
        return tuple(sorted((key, value) for key, value in self.numbers if key != "ts"))

    @property
    def is_simulated(self) -> bool | None:
        """Whether one GPU played the rank, as the tracker of the simulation names its files; None if untold.

        It writes the expert degree as `exp`; a real run writes `ep`, or nothing where it is 1.
        """
        return self.number("exp", "dp") is not None if self.numbers else None

    @property
    def layout(self) -> dict[str, int]:
        """What a real run and its simulation must have in common, under one name for each."""
        found = {key: self.number(*keys) for key, keys in _LAYOUT.items()}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def coordinates(self) -> RankCoordinates:
        """Where the rank stands, in Megatron's default order: tensor fastest, then data, then pipeline."""
        world_size = self.number("wd")
        tp = self.number("tp")
        pp = self.number("pp")
        dp = self.number("dp")
        if dp is None and world_size and tp and pp and world_size % (tp * pp) == 0:
            dp = world_size // (tp * pp)
        if not tp:
            return RankCoordinates(self.rank, world_size)
        if not dp:
            return RankCoordinates(self.rank, world_size, tp=self.rank % tp)
        return RankCoordinates(
            self.rank, world_size, tp=self.rank % tp, dp=self.rank // tp % dp, pp=self.rank // (tp * dp)
        )


def parse_trace_name(file_name: str) -> TraceName | None:
    """Return what a file name says, or None where it is not the name of a memory trace.

    Keys may come in any order; a key that comes twice makes the name unreadable.
    """
    match = _NAME.fullmatch(file_name)
    if match is None:
        return None
    tokens = _TOKEN.findall(match.group(2))
    if len({key for key, _ in tokens}) < len(tokens):
        return None
    return TraceName(int(match.group(1)), tuple((key, int(text)) for key, text in tokens if text != "None"))
