"""Which devices of a node are wanted, by the words of `--devices`: `0,2-5`, `0:1`, `sim*`, `GPU-8f2c`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache

from ..errors import UsageError

MAX_WORDS = 64
MAX_WORD_CHARACTERS = 80
MAX_SHOWN_LABELS = 16
MAX_REMEMBERED = 4096
LEAST_OF_UUID = 4
"""Characters from which a word may be the beginning of a UUID."""
EXAMPLE = "expected devices as they are shown, as 0,2-5 or 0:1, or beginnings of UUIDs"
_RANGE = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)
_LABEL = re.compile(r"\d+(:\d+)?", re.ASCII)


@dataclass(frozen=True)
class DeviceSelection:
    """Devices by what they are called; a device is wanted where one of the words means it."""

    words: tuple[str, ...]
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)
    """Answers so far: the same devices are asked for at every sample."""

    @property
    def text(self) -> str:
        """The words as they are typed."""
        return ",".join(self.words)

    def wants(self, uuid: str | None, label: str | None) -> bool:
        """Return whether a device is wanted.

        Args:
            uuid: Its UUID; None where that is not known.
            label: As in `DeviceSample.label`; None where that is not known.
        """
        key = uuid or "", label or ""
        is_wanted = self._known.get(key)
        if is_wanted is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            is_wanted = self._known[key] = any(_means(word.casefold(), *key) for word in self.words)
        return is_wanted


@lru_cache(maxsize=256)  # the same for every node that is followed
def select_devices(words: tuple[str, ...]) -> DeviceSelection | None:
    """Return the devices that are meant; None where no word is, which means all."""
    return DeviceSelection(words) if words else None


def parse_devices(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas.

    Raises:
        UsageError: One cannot mean a device, or there are too many.
    """
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        found = _RANGE.fullmatch(word)
        if not word or not word.isprintable() or (found is None and re.fullmatch(r"[\d-]*-[\d-]*", word)):
            raise UsageError(f"--devices {text!r}: {EXAMPLE}")
        if found is not None and int(found[1]) > int(found[2]):
            raise UsageError(f"--devices {text}: {word} ends before it begins; write {found[2]}-{found[1]}")
    reason = explain_excess(words)
    if reason is not None:
        raise UsageError(f"--devices {reason}")
    return words


def explain_excess(words: Sequence[str]) -> str | None:
    """Return why words are too many or too long, in one sentence; None where they are not."""
    if len(words) > MAX_WORDS:
        return f"names {len(words)} devices or ranges: expected at most {MAX_WORDS}; join them, as 0-7"
    if any(len(word) > MAX_WORD_CHARACTERS for word in words):
        return f"has a word of more than {MAX_WORD_CHARACTERS} characters, which no device is called"
    return None


def describe_labels(labels: Iterable[str]) -> str:
    """Return what devices are called in a few words: `0-7`, `0, 0:0, 0:1`, and an ellipsis after many."""
    runs: list[list[str]] = []
    for label in labels:
        last = runs[-1][-1] if runs else ""
        if label.isdecimal() and last.isdecimal() and int(label) == int(last) + 1:
            runs[-1].append(label)
        else:
            runs.append([label])
    told = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join([*told[:MAX_SHOWN_LABELS], *(["…"] if len(told) > MAX_SHOWN_LABELS else [])])


def _means(word: str, uuid: str, label: str) -> bool:
    found = _RANGE.fullmatch(word)
    if found is not None:
        is_number = label.isascii() and label.isdecimal()
        return is_number and int(found[1]) <= int(label) <= int(found[2])
    if label and fnmatchcase(label, word):
        return True
    is_of_uuid = len(word) >= LEAST_OF_UUID and _LABEL.fullmatch(word) is None
    return is_of_uuid and uuid.casefold().startswith(word)
