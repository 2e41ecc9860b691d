"""Recordings: samples, findings and events of a node in one file (`*.vscope`)."""

from .contents import (
    Damage,
    EventKind,
    ImportedFile,
    OverviewMinute,
    RecordedDevice,
    RecordingEvent,
    RecordingIdentity,
    Told,
)
from .recording import Recording
from .schema import SUFFIX
from .sqlite import RecordingStoppedError
from .writer import RecordingWriter

__all__ = [
    "SUFFIX",
    "Damage",
    "EventKind",
    "ImportedFile",
    "OverviewMinute",
    "RecordedDevice",
    "Recording",
    "RecordingEvent",
    "RecordingIdentity",
    "RecordingStoppedError",
    "RecordingWriter",
    "Told",
]
