"""Reads the file of `vramscope heatmap --batch`: one sweep, and the variants of its figure.

    memory_dir = "traces/485B"
    log_dir = "log"
    output = "figures/heat"

    [variants.paper]
    style = "usenix"
    [variants.talk]
    style = "original"
    figsize = [16, 5.4]
    dpi = 200

Paths are as seen from the folder of the file. Without variants there are three: standard, highres, compact.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.input_file import decode_text, read_input_file, show_path, show_text
from vramscope.engine.files.base.toml_text import parse_toml
from vramscope.engine.text import suggest
from vramscope.exporters.figures.page import COLUMN_IN, DPI, SweepLook, SweepStyle

from .heat_map import HeatMapJob, Variant

_LIMIT_BYTES = 1 << 18
_Inches = Annotated[float, msgspec.Meta(ge=0.5, le=100)]
_Dots = Annotated[int, msgspec.Meta(ge=10, le=2400)]


class VariantTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure; what it does not tell is as for all."""

    style: SweepStyle | None = None
    figsize: tuple[_Inches, _Inches] | None = None
    dpi: _Dots | None = None


class BatchTable(VariantTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    memory_dir: str
    output: str
    log_dir: str | None = None
    max_memory: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 80.0
    iteration: Annotated[int, msgspec.Meta(ge=0, lt=10**9)] | None = None
    variants: dict[str, VariantTable] | None = None


STANDARD_VARIANTS = {
    "standard": VariantTable(dpi=300),
    "highres": VariantTable(dpi=DPI),
    "compact": VariantTable(dpi=300),
}
_COMPACT_IN: dict[SweepStyle, tuple[float, float]] = {"usenix": (COLUMN_IN, 2.6), "original": (6.0, 2.0)}


def read_batch(path: Path) -> HeatMapJob:
    """Return the sweep and the figures that a file describes.

    Raises:
        InputFileError: It cannot be read or understood; the text names the key.
    """
    table = _decode(path)
    folder = path.parent
    variants = table.variants or STANDARD_VARIANTS
    wrong = next((name for name in variants if not name.replace("-", "").replace("_", "").isalnum()), None)
    if wrong is not None:
        raise InputFileError(
            f"{show_path(path)}: variants.{show_text(wrong)!r}: expected a name of letters, "
            "digits, - and _; it is part of the names of files"
        )
    return HeatMapJob(
        memory_dir=folder / table.memory_dir,
        log_dir=None if table.log_dir is None else folder / table.log_dir,
        max_memory_gib=table.max_memory,
        iteration=table.iteration,
        variants=tuple(_make_variant(folder, table, name, variant) for name, variant in variants.items()),
    )


def _make_variant(folder: Path, table: BatchTable, name: str, variant: VariantTable) -> Variant:
    from vramscope.exporters.sweep.page import choose_base

    base = choose_base(folder / table.output)
    style: SweepStyle = variant.style or table.style or "usenix"
    size_in = variant.figsize or table.figsize
    if variant is STANDARD_VARIANTS["compact"]:
        size_in = _COMPACT_IN[style]
    look = SweepLook(style, size_in, variant.dpi or table.dpi or DPI)
    return Variant(base.with_name(f"{base.name}_{name}"), look)


def _decode(path: Path) -> BatchTable:
    data = read_input_file(path, _LIMIT_BYTES)
    content = parse_toml(decode_text(data, path, "a file of variants"), path)
    try:
        return msgspec.convert(content, BatchTable)
    except msgspec.ValidationError as error:
        hint = _find_unknown_key(content)
        raise InputFileError(f"{show_path(path)}: {hint or error}") from error


def _find_unknown_key(content: dict[str, object]) -> str | None:
    """Return a sentence about the first key that means nothing, with the nearest that does."""
    variants = content.get("variants")
    tables = {"": (content, BatchTable)} | {
        f"variants.{name}.": (table, VariantTable)
        for name, table in (variants.items() if isinstance(variants, dict) else ())
        if isinstance(table, dict)
    }
    for place, (table, kind) in tables.items():
        known = kind.__struct_fields__
        for key in table:
            if key not in known:
                hint = suggest(key, known, f"the keys are {', '.join(known)}")
                return f"{show_text(place)}{show_text(key)}: unknown key; {hint}"
    return None
