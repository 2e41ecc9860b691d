"""Files of Galvatron's profilers: computation of layers, and bandwidth of the hardware."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import InputFileError
from ..units import MIB
from .base.input_file import explain_refusal, read_input_file, show_path

# `computation_profiling_bf16_llama2-7b_all.json` holds entries `layertype_0_bsz8_seq2048`: 3.94.

COMPUTATION_LIMIT_BYTES = 16 * 1024**2
_LAYER = re.compile(r"^layertype_0_bsz(\d{1,6})_seq(\d{1,9})$")
_COMPUTATION_NAME = re.compile(r"^computation_profiling_(?:bf16|fp16|fp32)_(.+?)(?:_seqlen.*)?(?:_all)?$")


class LayerProfile(msgspec.Struct, frozen=True, kw_only=True):
    # From the file's name; None if it has none.
    model: str | None
    # Sequences.
    batch: int
    seq_length: int
    # One layer on one device, the whole batch.
    forward_s: float


def read_layer_profile(path: Path) -> LayerProfile:
    """Return the entry of the largest batch."""
    shown = show_path(path)
    try:
        content = json.loads(read_input_file(path, COMPUTATION_LIMIT_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{shown}: not JSON: {error}; expected a profile of Galvatron") from error
    entries = content.items() if isinstance(content, dict) else ()
    found = [_read_entry(shown, key, value) for key, value in entries if _LAYER.match(key)]
    if not found:
        raise InputFileError(
            f"{shown}: no entry such as layertype_0_bsz8_seq2048; expected a computation profile of Galvatron"
        )
    batch, seq_length, forward_ms = max(found)
    name = _COMPUTATION_NAME.match(path.stem)
    return LayerProfile(
        model=name.group(1) if name else None,
        batch=batch,
        seq_length=seq_length,
        forward_s=batch * forward_ms / 1000,
    )


def _read_entry(shown: str, key: str, value: object) -> tuple[int, int, float]:
    match = _LAYER.match(key)
    batch, seq_length = (int(part) for part in match.groups()) if match else (0, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9 or batch < 1:
        raise InputFileError(f"{shown}: {key}: {value!r} is not a time; expected milliseconds above 0")
    return batch, seq_length, float(value)


# `allreduce_bandwidth_{N}nodes_{G}gpus_per_node.json` and `p2p_bandwidth_…` are in GB/s, the bus bandwidth of
# nccl-tests; `sp_time_…` in milliseconds by MiB; `overlap_coefficient.json` is a ratio.

HARDWARE_LIMIT_BYTES = 1 << 20
OVERLAP_FILE = "overlap_coefficient.json"

_HARDWARE_NAME = re.compile(
    r"^(allreduce_bandwidth|p2p_bandwidth|sp_time)_(\d{1,6})nodes_(\d{1,4})gpus_per_node\.json$"
)
_ALLREDUCE = re.compile(r"^allreduce_size_(\d{1,9})_consec_([01])$")
_POINT_TO_POINT = re.compile(r"^pp_size_(\d{1,9})$")
_TIME = re.compile(r"^(allreduce|all2all)_size_(\d{1,9})_(\d{1,9})MB_time$")
# Above any bandwidth in GB/s and any time in ms that the profiler measures.
_MOST = 1e6

Times = Mapping[int, tuple[tuple[int, float], ...]]
Key = TypeVar("Key")


class HardwareProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Measured on so many nodes of so many devices; a mapping is empty if its file is missing."""

    nodes: int
    devices_per_node: int
    # Bus bandwidth by ranks, and whether they are consecutive.
    allreduce_bytes_per_s: Mapping[tuple[int, bool], float] = {}
    # By pipeline stages.
    point_to_point_bytes_per_s: Mapping[int, float] = {}
    # By ranks: bytes of the tensor and seconds, the smaller first.
    allreduce_s: Times = {}
    all_to_all_s: Times = {}


class HardwareFolder(msgspec.Struct, frozen=True, kw_only=True):
    # The larger cluster first.
    profiles: tuple[HardwareProfile, ...]
    overlap_slowdown: float | None = None


def read_galvatron_hardware(folder: Path) -> HardwareFolder:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise InputFileError(explain_refusal(folder, error)) from error
    found: dict[tuple[int, int], dict[str, Path]] = {}
    for name in names:
        if (match := _HARDWARE_NAME.match(name)) is not None:
            shape = (int(match.group(2)), int(match.group(3)))
            found.setdefault(shape, {})[match.group(1)] = folder / name
    if not found:
        raise InputFileError(
            f"{show_path(folder)}: no hardware profile of Galvatron; expected files such as "
            "allreduce_bandwidth_1nodes_8gpus_per_node.json"
        )
    overlap = folder / OVERLAP_FILE
    return HardwareFolder(
        profiles=tuple(_read_profile(*shape, found[shape]) for shape in sorted(found, reverse=True)),
        overlap_slowdown=_read_overlap(overlap) if OVERLAP_FILE in names else None,
    )


def _read_profile(nodes: int, devices_per_node: int, files: Mapping[str, Path]) -> HardwareProfile:
    reduced = _match_keys(files.get("allreduce_bandwidth"), _ALLREDUCE)
    sent = _match_keys(files.get("p2p_bandwidth"), _POINT_TO_POINT)
    timed = list(_match_keys(files.get("sp_time"), _TIME))
    return HardwareProfile(
        nodes=nodes,
        devices_per_node=devices_per_node,
        allreduce_bytes_per_s={(int(key[1]), key[2] == "1"): 1e9 * value for key, value in reduced},
        point_to_point_bytes_per_s={int(key[1]): 1e9 * value for key, value in sent},
        allreduce_s=_group_times(timed, "allreduce"),
        all_to_all_s=_group_times(timed, "all2all"),
    )


def _match_keys(path: Path | None, keys: re.Pattern[str]) -> Iterator[tuple[re.Match[str], float]]:
    for name, value in ({} if path is None else _read_figures(path)).items():
        match = keys.match(name)
        if match is None:
            raise InputFileError(
                f"{show_path(path or Path())}: key {name[:60]!r} is unknown; expected for example "
                f"{_EXAMPLES[keys]}"
            )
        yield match, value


_EXAMPLES = {
    _ALLREDUCE: "allreduce_size_8_consec_1",
    _POINT_TO_POINT: "pp_size_2",
    _TIME: "allreduce_size_8_64MB_time",
}


def _read_figures(path: Path) -> dict[str, float]:
    data = read_input_file(path, HARDWARE_LIMIT_BYTES)
    try:
        figures = msgspec.json.decode(data, type=dict[str, float])
    except msgspec.DecodeError as error:
        raise InputFileError(f"{show_path(path)}: {error}; expected a JSON object of numbers") from None
    for name, value in figures.items():
        if not 0 < value < _MOST:
            raise InputFileError(f"{show_path(path)}: {name[:60]} is {value:g}; expected a number above 0")
    return figures


def _read_overlap(path: Path) -> float:
    slowdown = _read_figures(path).get("overlap_coe")
    if slowdown is None:
        raise InputFileError(f"{show_path(path)}: no key overlap_coe; expected a ratio such as 1.125")
    return slowdown


def _group_times(timed: list[tuple[re.Match[str], float]], collective: str) -> Times:
    times: dict[int, dict[int, float]] = {}
    for key, milliseconds in timed:
        if key[1] == collective:
            times.setdefault(int(key[2]), {})[int(key[3]) * MIB] = milliseconds / 1000
    return {ranks: tuple(sorted(by_size.items())) for ranks, by_size in times.items()}
