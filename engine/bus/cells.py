"""What a cell of the fleet shows of a sample: of devices and ranks their memory and place, and no more."""

import msgspec

from ..model import DeviceSample, RankSample, Sample


def trim_to_cells(sample: Sample) -> Sample:
    """Return a sample without processes, host, settings and notes; a few hundred bytes a device are left."""
    return msgspec.structs.replace(
        sample,
        devices=tuple(_trim_device(device) for device in sample.devices),
        ranks=tuple(_trim_rank(rank) for rank in sample.ranks),
        host=None,
        notes=(),
    )


def _trim_device(device: DeviceSample) -> DeviceSample:
    return msgspec.structs.replace(device, processes=None)


def _trim_rank(rank: RankSample) -> RankSample:
    return msgspec.structs.replace(
        rank, command=None, sized_steps=(), allocator_settings=None, flight_record=None, notes=()
    )
