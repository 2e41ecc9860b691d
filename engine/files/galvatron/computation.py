"""Computation profiles of Galvatron: milliseconds of one layer's forward pass, for each sequence of a
batch.

`computation_profiling_bf16_llama2-7b_all.json` holds entries `layertype_0_bsz8_seq2048`: 3.94.
"""

import json
import re
from pathlib import Path

import msgspec

from ...errors import InputFileError
from ..base.input_file import read_input_file, show_path

LIMIT_BYTES = 16 * 1024**2
_LAYER = re.compile(r"^layertype_0_bsz(\d{1,6})_seq(\d{1,9})$")
_NAME = re.compile(r"^computation_profiling_(?:bf16|fp16|fp32)_(.+?)(?:_seqlen.*)?(?:_all)?$")


class LayerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One layer on one device, forward."""

    model: str | None
    """As the file's name has it; None where it has none."""
    batch: int
    """Sequences."""
    seq_length: int
    forward_s: float
    """Of the whole batch."""


def read_layer_profile(path: Path) -> LayerProfile:
    """Return the entry of the largest batch of a profile.

    Raises:
        InputFileError: It cannot be read, is no JSON object, or has no such entry.
    """
    shown = show_path(path)
    try:
        content = json.loads(read_input_file(path, LIMIT_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{shown}: not JSON: {error}; expected a profile of Galvatron") from error
    entries = content.items() if isinstance(content, dict) else ()
    found = [_read_entry(shown, key, value) for key, value in entries if _LAYER.match(key)]
    if not found:
        raise InputFileError(
            f"{shown}: no entry such as layertype_0_bsz8_seq2048; expected a computation profile of Galvatron"
        )
    batch, seq_length, forward_ms = max(found)
    name = _NAME.match(path.stem)
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
        raise InputFileError(f"{shown}: {key}: {value!r} is no time; expected milliseconds above 0")
    return batch, seq_length, float(value)
