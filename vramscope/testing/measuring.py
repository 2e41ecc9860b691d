"""One test of a user, run in a process of its own on a simulated card, and the memory that it needed."""

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vramscope.analyzers.snapshot_summary.cursor import list_live_at_peak
from vramscope.engine.errors import InputFileError, UsageError, WireError
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.files.memory_snapshot import read_memory_snapshot
from vramscope.engine.jobs.job_peaks import ProcessPeaks, read_peaks
from vramscope.engine.jobs.launch import (
    CardWords,
    SimulatedDevice,
    check_device,
    describe_for_job,
    make_environment,
    make_job_name,
)
from vramscope.engine.soundness import check_numbers
from vramscope.engine.sources.host import HostReader
from vramscope.engine.units import format_bytes
from vramscope.engine.workloads.memory_history import SKIPPED_SUFFIX, SNAPSHOT_VARIABLE


class Place(msgspec.Struct, frozen=True):
    """What one function of the program had allocated of what was live at the peak."""

    # File, below the root of the tests where it is there, and function: lines move with any edit.
    name: str
    size_bytes: int
    # The line that allocated most of it.
    line: int = 0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What a test needed on a simulated card.

    Attributes:
        limit_bytes: Memory of the card.
        allocated_bytes: Peak of `torch.cuda.memory_allocated` of the process that used most.
        reserved_bytes: Peak of `torch.cuda.memory_reserved` of that process.
        context_bytes: What stands for the CUDA context.
        places: What was live at the peak, the largest first.
    """

    limit_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    context_bytes: int
    places: tuple[Place, ...] = ()

    @property
    def needed_bytes(self) -> int:
        return self.reserved_bytes + self.context_bytes


class Outcome(msgspec.Struct, frozen=True):
    """How the process of a test ended."""

    exit_code: int
    output: str
    ooms: int
    # None where nothing of it used the card.
    measured: Measured | None
    # None where the test was not skipped.
    skip_reason: str | None = None


_WORDS = CardWords("limit", "devices", "give a larger limit", "vramscope", "leave out fake=False")
_NAMES = ("limit", "fake", "devices", "growth")


def read_mark(arguments: Sequence[object], named: Mapping[str, object]) -> SimulatedDevice:
    """Return the card of a mark: `limit` is its memory (`8GiB`) or its kind (`h100`).

    Raises:
        UsageError: There is no such card, or an argument that the mark does not have.
    """
    given = dict(zip(("limit",), arguments, strict=False)) | dict(named)
    if "limit" not in given or len(arguments) > 1 or not given.keys() <= set(_NAMES):
        raise UsageError('expected @pytest.mark.vram(limit="8GiB"), and of the rest fake, devices, growth')
    devices = given.get("devices", 1)
    growth = given.get("growth")
    is_fake = given.get("fake", True)
    if type(devices) is not int or type(is_fake) is not bool or not isinstance(growth, int | float | None):
        raise UsageError("expected fake=True or False, a whole number of devices, and per cent of growth")
    from vramscope.planning.card import read_card

    card = read_card(str(given["limit"]))
    return SimulatedDevice(
        total_bytes=card.total_bytes,
        kind=card.kind,
        capability=card.capability,
        multiprocessors=card.multiprocessors,
        devices=devices,
        is_fake=is_fake,
        has_stand_ins=is_fake,
    )


def run_on_card(
    command: list[str], environ: Mapping[str, str], device: SimulatedDevice, root: Path
) -> Outcome:
    """Run a command on a simulated card.

    Args:
        root: Names of files below it are given relative to it.

    Raises:
        UsageError: There is no such card, or its tensors would not fit into the memory of this host.
    """
    check_device(device, host_available_bytes=HostReader().read().available_bytes, words=_WORDS)
    with tempfile.TemporaryDirectory(prefix="vramscope-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "peaks").mkdir()
        job = make_job_name()
        variables = make_environment(
            environ,
            runtime_dir=folder,
            job=job,
            simulate=describe_for_job(device, job=job, runtime_dir=folder, environ=environ),
            summary=folder / "peaks",
        )
        snapshot = folder / "memory.pickle"
        variables[SNAPSHOT_VARIABLE] = str(snapshot)
        done = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        processes = read_peaks(folder / "peaks")
        places = _list_places(snapshot, root) if snapshot.exists() else ()
        skipped = Path(f"{snapshot}{SKIPPED_SUFFIX}")
        reason = skipped.read_text(encoding="utf-8") if skipped.exists() else None
    fullest = max(processes, key=lambda it: it.reserved_bytes, default=None)
    measured = None if fullest is None else _measure(fullest, device, places)
    return Outcome(done.returncode, done.stdout, sum(it.ooms for it in processes), measured, reason)


def _measure(process: ProcessPeaks, device: SimulatedDevice, places: tuple[Place, ...]) -> Measured:
    return Measured(
        limit_bytes=device.total_bytes,
        allocated_bytes=process.allocated_bytes,
        reserved_bytes=process.reserved_bytes,
        context_bytes=device.context_bytes if process.context_bytes is None else process.context_bytes,
        places=places,
    )


def _list_places(path: Path, root: Path) -> tuple[Place, ...]:
    """Return what was live at the peak of the fullest device, by the function that allocated it."""
    try:
        snapshot = read_memory_snapshot(path)
    except InputFileError:
        return ()
    sizes: Counter[str] = Counter()
    lines: dict[str, Counter[int]] = {}
    found = [list_live_at_peak(snapshot, device) for device in snapshot.devices]
    _, groups = max(found, key=lambda it: it[0], default=(0, ()))
    for group in groups:
        frame = group.headline
        if frame is None:
            name = "unknown"
            line = 0
        else:
            file = Path(frame.filename)
            shown = file.relative_to(root) if file.is_relative_to(root) else file
            name = f"{shown} {frame.name}"
            line = frame.line
        sizes[name] += group.size_bytes
        lines.setdefault(name, Counter())[line] += group.size_bytes
    return tuple(Place(name, size, lines[name].most_common(1)[0][0]) for name, size in sizes.most_common())


def read_baseline(path: Path) -> dict[str, Measured]:
    """Return the stored measurements by the name of their test; none where there is no file.

    Raises:
        InputFileError: It is no such file.
    """
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])
        for measured in baseline.values():
            check_numbers(measured)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, RecursionError, WireError) as error:
        raise InputFileError(
            f"{path}: not a baseline of vramscope's tests ({error}); write it again with --vram-update"
        ) from error
    return baseline


def update_baseline(path: Path, measured: Mapping[str, Measured]) -> None:
    """Store measurements next to those of other tests, by name, so that versions can be compared by line.

    Raises:
        InputFileError: The file is no baseline.
        OutputFileError: It cannot be written.
    """
    stored = {**read_baseline(path), **measured}
    encoded = msgspec.json.format(msgspec.json.encode(dict(sorted(stored.items()))), indent=2)
    write_whole(encoded + b"\n", path)


def list_growth(now: Iterable[Place], before: Iterable[Place]) -> list[Place]:
    """Return by how much each function's share of the peak changed, the largest growth first."""
    sizes = {place.name: place.size_bytes for place in before}
    grown = [Place(it.name, it.size_bytes - sizes.pop(it.name, 0), it.line) for it in now]
    gone = [Place(name, -size) for name, size in sizes.items()]
    return sorted((it for it in (*grown, *gone) if it.size_bytes), key=lambda it: -it.size_bytes)


# What a test needed on a simulated card, as lines of text.


def describe_measured(name: str, now: Measured, before: Measured | None, most: int) -> Iterator[str]:
    """Yield what a test needed, then what grew since the baseline, or what held most where there is none.

    Args:
        most: Functions to list.
    """
    head = (
        f"{name}: peak allocated {format_bytes(now.allocated_bytes)}, reserved "
        f"{format_bytes(now.reserved_bytes)} of {format_bytes(now.limit_bytes)}"
    )
    free_bytes = now.limit_bytes - now.reserved_bytes - now.context_bytes
    tail = f", {format_bytes(free_bytes)} headroom" if free_bytes >= 0 else ""
    if before is None:
        yield f"{head}{tail}; no baseline"
        for place in now.places[:most]:
            yield f"    {format_bytes(place.size_bytes):>10}  {place.name}, line {place.line}"
        return
    difference = now.reserved_bytes - before.reserved_bytes
    change = "as before" if difference == 0 else f"{_format_signed(difference)} reserved"
    if now.allocated_bytes != before.allocated_bytes:
        change += f", {_format_signed(now.allocated_bytes - before.allocated_bytes)} allocated"
    yield f"{head}{tail}; {change}"
    for place in list_growth(now.places, before.places)[:most]:
        where = f"{place.name}, line {place.line}" if place.line else place.name
        yield f"    {_format_signed(place.size_bytes):>10}  {where}"


def _format_signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes > 0 else '-'}{format_bytes(abs(size_bytes))}"
