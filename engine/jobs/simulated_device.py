"""What `vramscope run --simulate` asks for: cards, and whether this host can stand for them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..child_processes import LEDGERS_NAME
from ..errors import UsageError
from ..units import GIB, MIB, format_bytes, format_gib
from .parts import SIMULATION, locate_allocator_model

DEFAULT_CONTEXT_BYTES = 512 * MIB
DEFAULT_HOST_RESERVE_BYTES = GIB
MOST_DEVICES = 64
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Settings of the caching allocator: the name of today, and that before PyTorch 2.9."""


class SimulatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The cards that a job is to find instead of those of its node."""

    total_bytes: int
    """Memory of one card."""
    devices: int = 1
    is_fake: bool = False
    """Store nothing: shapes and bytes are followed, values are not computed."""
    context_bytes: int = DEFAULT_CONTEXT_BYTES
    """What each process takes of its card for its context, as CUDA does."""
    host_reserve_bytes: int = DEFAULT_HOST_RESERVE_BYTES
    """Host memory that tensors may not take."""


class SimulationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of the job reads from its environment, as JSON."""

    total_bytes: int
    devices: int
    is_fake: bool
    context_bytes: int
    host_reserve_bytes: int
    job: str
    ledger_dir: str
    """Folder in which the job's processes settle what each takes of a card that they share."""
    allocator_settings: str | None
    simulation_path: str
    allocator_path: str


def describe_for_job(
    device: SimulatedDevice, *, job: str, runtime_dir: Path, environ: Mapping[str, str]
) -> str:
    """Return the text of the variable that tells a job's processes of their simulated device.

    Args:
        device: What was asked for.
        job: Name of the job.
        runtime_dir: Folder of its hub, below which the ledger of the cards is kept.
        environ: Environment of the job, for the settings of its allocator.
    """
    settings = next((environ[name] for name in ALLOCATOR_VARIABLES if environ.get(name)), None)
    config = SimulationConfig(
        total_bytes=device.total_bytes,
        devices=device.devices,
        is_fake=device.is_fake,
        context_bytes=device.context_bytes,
        host_reserve_bytes=device.host_reserve_bytes,
        job=job,
        ledger_dir=str(runtime_dir / LEDGERS_NAME / job),
        allocator_settings=settings,
        simulation_path=str(SIMULATION),
        allocator_path=str(locate_allocator_model()),
    )
    return msgspec.json.encode(config).decode()


def check_device(device: SimulatedDevice, *, host_available_bytes: int | None) -> None:
    """Refuse cards that make no sense, and real storage that this host has not got.

    Args:
        device: What was asked for.
        host_available_bytes: Free memory of this host; None where it cannot be known.

    Raises:
        UsageError: There is no such card, or its tensors would not fit into host memory.
    """
    if not 1 <= device.devices <= MOST_DEVICES:
        raise UsageError(f"--device-count {device.devices}: expected 1 to {MOST_DEVICES} simulated cards")
    if device.context_bytes >= device.total_bytes:
        raise UsageError(
            f"--simulate {format_bytes(device.total_bytes)}: expected more than the context of "
            f"{format_bytes(device.context_bytes)} that each process takes; give a larger card or a smaller "
            "--context"
        )
    if device.is_fake or host_available_bytes is None:
        return
    needed_bytes = device.devices * (device.total_bytes - device.context_bytes)
    free_bytes = max(0, host_available_bytes - device.host_reserve_bytes)
    if needed_bytes > free_bytes:
        raise UsageError(
            f"--simulate: real tensors on {_count_cards(device)} may take {format_bytes(needed_bytes)} of "
            f"host memory, and {format_bytes(free_bytes)} are free for them (--host-reserve keeps "
            f"{format_bytes(device.host_reserve_bytes)} more): add --fake, which stores nothing, "
            "or simulate less"
        )


def describe_for_people(device: SimulatedDevice) -> str:
    """Return the line that says what is simulated."""
    how = "without storage (values are not computed)" if device.is_fake else "on the CPU"
    each = "" if device.devices == 1 else "each "
    return (
        f"simulating {_count_cards(device)} {how} ({format_gib(device.context_bytes)} GiB of {each or 'it '}"
        f"stands for the CUDA context); figures are modelled"
    )


def _count_cards(device: SimulatedDevice) -> str:
    size = f"{format_gib(device.total_bytes)} GiB"
    return f"1 card of {size}" if device.devices == 1 else f"{device.devices} cards of {size} each"
