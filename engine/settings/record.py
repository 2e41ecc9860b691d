"""The table `[record]`: where recordings go that are begun in the live view."""

import msgspec

RECORD_FOLDER_KEY = "record.folder"


class RecordSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where recordings go; a key in the table is the field's name."""

    folder: str = "."
    """Folder for recordings that `R` in the live view begins; it is made where it is missing. `.` is the
    folder that vramscope was started in."""
