"""What PyTorch pickled, dicts and lists of plain values, into columns: every dialect from 1.13 on."""

from ...model.memory_snapshot import UNMEASURED, Annotation, MemorySnapshot, SimulatedCard
from .places import expect_dict, expect_int, expect_list, name_type, refuse
from .segment_columns import SegmentCollector
from .stack_interning import StackInterner
from .trace_columns import read_traces

MOST_ANNOTATIONS = 10_000
_MOST_SETTINGS = 100
_MOST_CHARS = 1000
_SIMULATED = "vramscope_simulated"
"""Beside the settings of a snapshot from a simulated device: a dict of what was modelled."""


def convert_tree(root: object) -> MemorySnapshot:
    """Return the columns of an unpickled snapshot.

    Args:
        root: A dict with `segments`, or the bare list of segments that `memory_snapshot()` returns.

    Raises:
        InputFileError: It is no snapshot; the text says where and what was expected.
    """
    if isinstance(root, list):
        root = {"segments": root}
    if not isinstance(root, dict):
        refuse((), f"expected a dict with `segments` or a list of segments, got {name_type(root)}")
    if "segments" not in root:
        keys = ", ".join(ascii(key)[:40] for key in list(root)[:6]) or "nothing"
        refuse((), f"expected a memory snapshot, a dict with `segments`; it has {keys}")
    stacks = StackInterner()
    segments = SegmentCollector(stacks)
    for index, segment in enumerate(expect_list(root["segments"], ("segments",))):
        segments.add(segment, ("segments", index))
    traces = read_traces(root, stacks)
    annotations, omitted = _read_annotations(root.get("external_annotations"))
    return MemorySnapshot(
        segments=segments.columns,
        blocks=segments.blocks,
        traces=traces,
        stacks=stacks.build(),
        settings=_read_settings(root.get("allocator_settings")),
        annotations=annotations,
        annotations_omitted=omitted,
        notes=tuple(segments.notes),
        simulated=_read_simulated(root.get("allocator_settings")),
    )


def _read_settings(settings: object) -> tuple[tuple[str, str], ...]:
    if settings is None:
        return ()
    fields = expect_dict(settings, ("allocator_settings",))
    pairs = [(key, value) for key, value in fields.items() if key != _SIMULATED][:_MOST_SETTINGS]
    return tuple((_show(key), _show(value)) for key, value in pairs)


def _read_simulated(settings: object) -> SimulatedCard | None:
    """Return the card that was modelled: the key alone says that one was."""
    if not isinstance(settings, dict) or settings.get(_SIMULATED) in (None, False):
        return None
    fields = settings[_SIMULATED] if isinstance(settings[_SIMULATED], dict) else {}
    total, name = fields.get("total_bytes"), fields.get("name")
    is_size = isinstance(total, int) and 0 < total < 2**63
    return SimulatedCard(total if is_size else None, name[:_MOST_CHARS] if isinstance(name, str) else None)


def _show(value: object) -> str:
    """Return a setting as text; a table of divisions as `size:divisions` pairs."""
    if isinstance(value, dict):
        pairs = list(value.items())[:_MOST_SETTINGS]
        return ",".join(f"{_show(key)}:{_show(part)}" for key, part in pairs)[:_MOST_CHARS]
    if isinstance(value, str | int | float | bool | None):
        return str(value)[:_MOST_CHARS]
    return name_type(value)


def _read_annotations(annotations: object) -> tuple[tuple[Annotation, ...], int]:
    if annotations is None:
        return (), 0
    listed = expect_list(annotations, ("external_annotations",))
    kept = []
    for index, annotation in enumerate(listed[:MOST_ANNOTATIONS]):
        place = ("external_annotations", index)
        fields = expect_dict(annotation, place)
        kept.append(
            Annotation(
                device=expect_int(fields.get("device", 0), (*place, "device")),
                time_us=expect_int(fields.get("time_us", UNMEASURED), (*place, "time_us")),
                name=_show(fields.get("name", "")),
                stage=_show(fields.get("stage", "")),
            )
        )
    return tuple(kept), len(listed) - len(kept)
