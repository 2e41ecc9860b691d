"""What was decided about alerts, and what was told, in a file: it outlives the hub."""

import os
import zlib
from pathlib import Path
from typing import Literal

import msgspec

from ..files.base.output_file import replacing
from .state import Acknowledgement, Mute
from .told import ToldFinding

MAX_FILE_BYTES = 1 << 20


class KeptDecisions(msgspec.Struct, frozen=True):
    """What a hub hands to its successor."""

    schema: Literal["vramscope.alert-decisions/1"] = "vramscope.alert-decisions/1"
    seen_s: float = 0.0
    """When the hub was there last, in seconds since the epoch."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    mutes: tuple[Mute, ...] = ()
    told: tuple[ToldFinding, ...] = ()
    """Of which findings it has told, oldest first."""


def decisions_file(state_dir: Path, node: str, runtime_dir: Path) -> Path:
    """Return the file of one hub: homes are shared between nodes, and a node may have several hubs."""
    name = "".join(character if character.isalnum() or character in "-_" else "_" for character in node)
    return state_dir / f"alerts-{name}-{zlib.crc32(os.fsencode(runtime_dir)):08x}.json"


def load_decisions(path: Path) -> KeptDecisions:
    """Return what a hub left; nothing where there is no file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not what a hub writes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return KeptDecisions()
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    return msgspec.json.decode(data, type=KeptDecisions)


def save_decisions(path: Path, kept: KeptDecisions) -> None:
    """Write what the next hub shall know, in one step.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path) as stream:
        stream.write(msgspec.json.encode(kept))
