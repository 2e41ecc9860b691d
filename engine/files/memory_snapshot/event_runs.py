"""The events of a pickled trace read at once: a million of them without a million dicts.

PyTorch pickles every event of a trace in one form: a dict whose keys are references to text that was pickled
before, with numbers and such references as values, and last its stack, a list of references or a reference to
an earlier list. numpy finds these events in the bytes and reads their columns. What is left of the pickle is
small, and an unpickler reads it: in place of a run of events it has an empty list, and in the memo something
in place of every object of the run, so that all references stay right. What stands there cannot be a key, as
dicts and lists cannot: who damaged a file so is refused here as well.

Nothing is assumed of the file. An event of another form stays in the pickle. The unpickler looks up what the
references mean. And anything unexpected raises `OtherFormError`: the file is then read in the usual way,
which also says what is wrong with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import SEEK_END, BufferedReader
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from ...model.memory_snapshot import UNMEASURED, TraceAction, TraceColumns
from .segment_columns import StackInterner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

# Opcodes of pickle: the module `pickletools` of the standard library.
_MARK, _STOP, _POP = b"(.0"
_GET, _LONG_GET, _LIST, _APPEND, _APPENDS, _SET_ITEMS = b"hj]aeu"
_BYTE, _TWO_BYTES, _FOUR_BYTES, _LONG, _NONE, _TRUE, _FALSE, _TEXT = b"KMJ\x8aN\x88\x89\x8c"
_FRAME, _MEMOIZE = b"\x95\x94"
_EVENT_BEGINS = b"}\x94("
_AFTER_BATCH = b"ue("
_TO_LIST, _PAIR = b"l\x86"

# Python cuts a pickle into frames of 64 KiB; its version and the first frame's length are before the first.
_FRAMES_BEGIN = 2
_FRAME_HEAD_BYTES = 9
_LEAST_FRAME_BYTES = 1 << 10
_MOST_FRAME_BYTES = 1 << 20
_MOST_KEYS = 16
# More than an event takes up to its stack: as close to the end of the file none is read.
_END_BYTES = 1 << 13
# Read at a time, so that they stay in the cache.
_PIECE_BYTES = 1 << 21
_PIECE_EVENTS = 1 << 15
# Shares of the dicts of the file, in the order in which they are tried as samples of an event.
_SAMPLED = (0.5, 0.9, 0.97, 0.99, 0.8, 0.7, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05)
_NEIGHBOURS = 50
LEAST_EVENTS = 1000
"""With fewer events the usual way is as fast."""


class OtherFormError(Exception):
    """The file is to be read in the usual way."""


def read_framed(stream: BufferedReader) -> tuple[bytes, list[int]]:
    """Return a pickle that is cut into frames from its beginning to its end, and where their opcodes are.

    Anything else is not read to its end: it may be huge.

    Raises:
        OtherFormError: It is not.
    """
    frames: list[int] = []
    at = _FRAMES_BEGIN
    if stream.seekable():
        size = stream.seek(0, SEEK_END)
        while at < size:
            stream.seek(at)
            frames.append(at)
            at += _FRAME_HEAD_BYTES + _read_length(stream.read(_FRAME_HEAD_BYTES), frames)
        # One that ends elsewhere has lost a part, or been given one.
        _expect(at == size)
        stream.seek(0)
        return stream.read(), frames
    parts = [stream.read(_FRAMES_BEGIN)]
    while head := stream.read(_FRAME_HEAD_BYTES):
        frames.append(at)
        length = _read_length(head, frames)
        parts += [head, stream.read(length)]
        _expect(len(parts[-1]) == length)
        at += _FRAME_HEAD_BYTES + length
    return b"".join(parts), frames


def _read_length(head: bytes, frames: list[int]) -> int:
    length = int.from_bytes(head[1:], "little")
    _expect(len(head) == _FRAME_HEAD_BYTES and head[0] == _FRAME and length <= _MOST_FRAME_BYTES)
    # No writer makes many short ones.
    _expect(len(frames) <= 2 + frames[-1] // _LEAST_FRAME_BYTES)
    return length


def read_at_once(
    content: bytes, frames: list[int], load: Callable[[bytes], object], least: int = LEAST_EVENTS
) -> tuple[object, EventRuns]:
    """Return what a pickle holds, with an empty list in place of each run of events, and the runs.

    Args:
        content: The pickle.
        frames: Where the opcodes of its frames are.
        load: Unpickles bytes.
        least: With fewer events it is not done.

    Raises:
        OtherFormError: It has too few events of the usual form, or something is unusual.
    """
    _expect(content.endswith(bytes((_STOP,))))
    starts = _find_dicts(content)
    _expect(len(starts) >= least)
    events = _EventReader(content, _sample_keys(content, starts)).read(starts)
    _expect(len(events.start) >= least)
    # Each object in the memo takes a byte at least.
    references = (
        values[kinds == _REFERENCE] for values, kinds in zip(events.values, events.kinds, strict=True)
    )
    _expect(all(int(each.max(initial=0)) < len(content) for each in references))
    asked = events.list_references()
    found = load(b"".join(_leave_out(content, frames, events, asked)))
    if type(found) is not tuple or len(found) != 2 or type(found[1]) is not list:
        raise OtherFormError
    _expect(len(found[1]) == len(asked))
    return found[0], EventRuns(events, asked, found[1])


def _expect(is_met: bool) -> None:
    if not is_met:
        raise OtherFormError


def _find_dicts(content: bytes) -> Ints:
    """Return where dicts of several items begin that are not among the last bytes.

    In text these bytes cannot occur, as they are not UTF-8.
    """
    data = np.frombuffer(content, dtype=np.uint8)
    end = len(data) - _END_BYTES
    found = []
    for begin in range(0, max(end, 0), _PIECE_BYTES):
        at = np.flatnonzero(data[begin : min(begin + _PIECE_BYTES, end)] == _EVENT_BEGINS[0]) + begin
        found.append(at[(data[at + 1] == _EVENT_BEGINS[1]) & (data[at + 2] == _EVENT_BEGINS[2])])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _sample_keys(content: bytes, starts: Ints) -> list[bytes]:
    """Return the keys of an event as they are in the bytes: references."""
    for share in _SAMPLED:
        first = int(share * len(starts))
        for start in starts[first : first + _NEIGHBOURS].tolist():
            keys = _read_keys(content, start + len(_EVENT_BEGINS))
            if keys is not None:
                return keys
    raise OtherFormError


def _read_keys(content: bytes, at: int) -> list[bytes] | None:
    """Return the keys of a dict if it may be an event: its first value is a reference, the next a number."""
    keys: list[bytes] = []
    kinds = b""
    while content[at] in (_GET, _LONG_GET) and len(keys) < _MOST_KEYS:
        width = 2 if content[at] == _GET else 5
        keys.append(content[at : at + width])
        at += width
        kind = content[at]
        kinds += bytes((kind,))
        if kind == _LIST:
            break
        width = _WIDTH[kind] + (content[at + 1] if kind in (_LONG, _TEXT) else 0)
        if not _WIDTH[kind]:
            return None
        at += width
    if len(keys) < 3 or kinds[0] not in (_GET, _LONG_GET) or kinds[1] not in _NUMBERS:
        return None
    return keys if kinds[-1] == _LIST or content[at] == _SET_ITEMS else None


_NUMBERS = bytes((_BYTE, _TWO_BYTES, _FOUR_BYTES, _LONG))
# Bytes that a value takes, without those whose number follows its opcode; 0 for what is not read.
_WIDTH = [0] * 256
for _opcodes, _bytes in (
    ((_NONE, _TRUE, _FALSE), 1),
    ((_GET, _BYTE, _LONG), 2),
    ((_TWO_BYTES, _TEXT), 3),  # a text is followed by its memo
    ((_LONG_GET, _FOUR_BYTES), 5),
):
    for _opcode in _opcodes:
        _WIDTH[_opcode] = _bytes
# What a value is.
_NUMBER, _REFERENCE, _OTHER, _OWN_LIST = range(4)


@dataclass(frozen=True)
class _Events:
    """Events in the order of the file, in columns of equal length."""

    keys: list[int]
    """Numbers of the keys in the memo, as in the dicts of the events."""
    start: Ints
    end: Ints
    values: list[Ints]
    """By key: a number, the number of something in the memo, or of one of the distinct lists."""
    kinds: list[NDArray[np.uint8]]
    texts: Ints
    """Texts of its own: each has a number in the memo."""
    members: list[tuple[int, ...]]
    """Numbers in the memo of what the distinct lists have."""

    @property
    def has_own_list(self) -> Bools:
        has: Bools = self.kinds[-1] == _OWN_LIST
        return has

    def list_references(self) -> Ints:
        """Return each number of the memo that the events refer to, once."""
        found = [np.array(self.keys), np.fromiter(chain.from_iterable(self.members), dtype=np.int64)]
        for values, kinds in zip(self.values, self.kinds, strict=True):
            found.append(_drop_repeated(values[kinds == _REFERENCE]))
        return _drop_repeated(np.concatenate(found))

    def find_runs(self) -> Ints:
        """Return the first event of each run of events without a gap, and the number of events."""
        begins = np.flatnonzero(self.start[1:] != self.end[:-1]) + 1
        return np.concatenate([[0], begins, [len(self.start)]])


def _drop_repeated(numbers: Ints) -> Ints:
    """Return each number of the memo once, in order: faster than by sorting, as they are small."""
    is_there = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=bool)
    is_there[numbers] = True
    return np.flatnonzero(is_there)


class _EventReader:
    def __init__(self, content: bytes, keys: list[bytes]) -> None:
        self._content = content
        self._keys = keys
        self._data = np.frombuffer(content, dtype=np.uint8)
        # The eight bytes from any place on, as a number.
        self._words = np.ndarray(len(content) - 7, dtype="<u8", buffer=content, strides=(1,))
        self._lists: defaultdict[bytes, int] = defaultdict()
        self._lists.default_factory = self._lists.__len__
        # What each of these refers to; None where it is no list of references.
        self._members: list[tuple[int, ...] | None] = []
        self._are_lists = bytearray()

    def read(self, starts: Ints) -> _Events:
        """Return the events among the dicts that begin at these places."""
        following = np.append(starts[1:], 0)
        pieces = [
            self._read_piece(starts[at : at + _PIECE_EVENTS], following[at : at + _PIECE_EVENTS])
            for at in range(0, len(starts), _PIECE_EVENTS)
        ]
        start, end, texts, *columns = map(np.concatenate, zip(*pieces, strict=True))
        return _Events(
            keys=[int.from_bytes(key[1:], "little") for key in self._keys],
            start=start,
            end=end,
            values=columns[::2],
            kinds=columns[1::2],
            texts=texts,
            members=[it or () for it in self._members],
        )

    def _read_piece(self, start: Ints, following: Ints) -> tuple[NDArray[np.generic], ...]:
        """Return start, end and texts of the events, and value and kind by key."""
        at = start + len(_EVENT_BEGINS)
        texts = np.zeros(len(start), dtype=np.int64)
        is_event = np.ones(len(start), dtype=bool)
        columns: list[NDArray[np.generic]] = []
        for number, key in enumerate(self._keys):
            mask = np.uint64((1 << 8 * len(key)) - 1)
            is_event &= (self._words[at] & mask) == np.uint64(int.from_bytes(key, "little"))
            at += len(key)
            is_last = number == len(self._keys) - 1
            value, kind, width = self._read_values(at, is_list_allowed=is_last)
            is_event &= width > 0
            if not number:
                # The first event of each action has its text.
                is_event &= kind == _REFERENCE
            texts += self._data[at] == _TEXT
            columns += [value, kind]
            at += width
        own = columns[-1] == _OWN_LIST
        end = at + 1
        is_event &= own | (self._data[at] == _SET_ITEMS)
        # A list of its own ends where the next event begins, of the same batch of events or another one.
        own &= is_event
        next_ = following[own]
        is_after_batch = self._words[next_ - len(_AFTER_BATCH)] & np.uint64(0xFFFFFF) == np.uint64(
            int.from_bytes(_AFTER_BATCH, "little")
        )
        end[own] = np.where(is_after_batch, next_ - 2, next_)
        is_event[own] = (next_ > at[own]) & (self._data[end[own] - 1] == _SET_ITEMS)
        own &= is_event
        slices = map(slice, (at[own] - 1).tolist(), (end[own] - 1).tolist())
        texts_of_lists = map(self._content.__getitem__, slices)
        lists = np.fromiter(map(self._lists.__getitem__, texts_of_lists), dtype=np.int64)
        columns[-2][own] = lists
        found = [_read_list(text) for text in islice(self._lists, len(self._members), None)]
        self._members += found
        self._are_lists += bytes(it is not None for it in found)
        is_event[own] = np.frombuffer(self._are_lists, dtype=bool)[lists]
        rows = np.flatnonzero(is_event)
        return tuple(it[rows] for it in (start, end, texts, *columns))

    def _read_values(self, at: Ints, *, is_list_allowed: bool) -> tuple[Ints, NDArray[np.uint8], Ints]:
        """Return value, kind and bytes of the values at some places; no bytes where there is none."""
        word = self._words[at]
        opcode = (word & np.uint64(0xFF)).astype(np.intp)
        width = np.array(_WIDTH)[opcode]
        value = np.zeros(len(at), dtype=np.int64)
        kind = np.full(len(at), _OTHER, dtype=np.uint8)
        for each in np.flatnonzero(np.bincount(opcode, minlength=256)).tolist():
            chosen = slice(None) if np.all(opcode == each) else np.flatnonzero(opcode == each)
            argument = word[chosen] >> np.uint64(8)
            if each in (_GET, _LONG_GET, _BYTE, _TWO_BYTES):
                bits = 8 * (_WIDTH[each] - 1)
                value[chosen] = (argument & np.uint64((1 << bits) - 1)).astype(np.int64)
                kind[chosen] = _REFERENCE if each in (_GET, _LONG_GET) else _NUMBER
            elif each == _FOUR_BYTES:
                value[chosen] = (argument & np.uint64(0xFFFF_FFFF)).astype(np.uint32).astype(np.int32)
                kind[chosen] = _NUMBER
            elif each in (_LONG, _TEXT):
                count = (argument & np.uint64(0xFF)).astype(np.int64)
                if each == _TEXT:
                    is_sound = self._data[at[chosen] + 2 + count] == _MEMOIZE
                else:
                    is_sound = (count >= 1) & (count <= 8)
                    shift = 64 - 8 * np.clip(count, 1, 8)
                    # Two's complement of `count` bytes.
                    value[chosen] = (self._words[at[chosen] + 2].astype(np.int64) << shift) >> shift
                    kind[chosen] = _NUMBER
                width[chosen] = np.where(is_sound, width[chosen] + count, 0)
            elif each == _LIST and is_list_allowed:
                kind[chosen] = _OWN_LIST
                width[chosen] = 1
        return value, kind, width


def _read_list(text: bytes) -> tuple[int, ...] | None:
    """Return what a list refers to, one that holds only references; None for anything else."""
    if text[:2] != bytes((_LIST, _MEMOIZE)):
        return None
    members: list[int] = []
    at = 2
    while at < len(text):
        is_batch = text[at] == _MARK
        at += is_batch
        before = len(members)
        while at < len(text) and text[at] in (_GET, _LONG_GET) and (is_batch or len(members) == before):
            width = 2 if text[at] == _GET else 5
            members.append(int.from_bytes(text[at + 1 : at + width], "little"))
            at += width
        # `at` is within the text unless it is cut short.
        if text[at : at + 1] != bytes((_APPENDS if is_batch else _APPEND,)) or len(members) == before:
            return None
        at += 1
    return tuple(members)


def _leave_out(content: bytes, frames: list[int], events: _Events, asked: Ints) -> Iterator[bytes]:
    """Yield the pickle without the events, of a pair: what it held, and a list of what is asked for."""
    runs = events.find_runs()
    records, bounds = _stand_in(events)
    starts, ends = events.start[runs[:-1]].tolist(), events.end[runs[1:] - 1].tolist()
    gaps = zip([0, *ends], [*starts, len(content) - 1], strict=True)
    frames = frames[::-1]
    for number, (begin, end) in enumerate(gaps):
        if number:
            yield bytes((_LIST,)) + _NO_LIST
            yield records[bounds[runs[number - 1]] : bounds[runs[number]]]
            yield bytes((_POP,))
        # Their opcodes go: frames are no longer as long as they say, and mean nothing to a reader.
        at = begin
        while frames and frames[-1] < end:
            yield content[at : frames[-1]]
            at = frames.pop() + _FRAME_HEAD_BYTES
        yield content[at:end]
    gets = np.zeros((len(asked), 5), dtype=np.uint8)
    gets[:, 0] = _LONG_GET
    gets[:, 1:] = asked.astype("<u4").view(np.uint8).reshape(-1, 4)
    yield from (bytes((_MARK,)), gets.tobytes(), bytes((_TO_LIST, _PAIR, _STOP)))


def _stand_in(events: _Events) -> tuple[bytes, Ints]:
    """Return opcodes that put something into the memo for each object of the events, and their bounds.

    Of a dict or text it is the list on the stack, with the number of no list; of a list one with its number
    among those of the events.
    """
    own = events.has_own_list
    most_texts = int(events.texts.max(initial=0))
    record = np.full((len(own), most_texts + 10), _MEMOIZE, dtype=np.uint8)
    is_kept = np.empty(record.shape, dtype=bool)
    is_kept[:, : most_texts + 1] = np.arange(most_texts + 1) <= events.texts[:, None]
    is_kept[:, most_texts + 1 :] = own[:, None]
    record[:, most_texts + 1] = _MARK
    record[:, most_texts + 2] = _FOUR_BYTES
    numbers = (np.cumsum(own) - 1).astype("<i4")
    record[:, most_texts + 3 : most_texts + 7] = numbers.view(np.uint8).reshape(-1, 4)
    record[:, most_texts + 7] = _TO_LIST
    record[:, most_texts + 9] = _POP
    # A text has its number in the memo after the dict, a list, which is last, after both.
    return record[is_kept].tobytes(), np.concatenate([[0], np.cumsum(1 + events.texts + 9 * own)])


# Nothing that a sound file refers to: in the place of a stack, an event or a frame it is refused.
_NO_LIST = bytes((_MARK, _FOUR_BYTES, 0xFF, 0xFF, 0xFF, 0xFF, _TO_LIST))


def _number_of(value: object) -> int | None:
    """Return the number in what stands for a list of an event; None for anything else."""
    is_stand_in = type(value) is list and len(value) == 1 and type(value[0]) is int
    return value[0] if is_stand_in else None  # type: ignore[index]


_CODES: dict[object, int] = {
    action.name.lower(): int(action) for action in TraceAction if action is not TraceAction.OTHER
}


class EventRuns:
    """The runs of events of a file, to be taken in its order."""

    def __init__(self, events: _Events, asked: Ints, objects: list[object]) -> None:
        self._events = events
        self._objects = objects
        # By number in the memo, the row among the objects.
        self._rows = np.zeros(int(asked.max(initial=-1)) + 1, dtype=np.int64)
        self._rows[asked] = np.arange(len(asked))
        names = self._look_up(events.keys)
        _expect(all(type(name) is str for name in names) and len(set(names)) == len(names))
        self._key_of = {name: number for number, name in enumerate(names)}
        # The lists of the events in their order, as rows of the distinct ones.
        self._own = events.values[-1][events.has_own_list]
        # A list is a stack, which is last.
        _expect(not len(self._own) or names[-1] == "frames")
        self._runs = events.find_runs().tolist()
        self._taken = 0
        self._columns: list[NDArray[np.generic]] | None = None

    def _look_up(self, numbers: Iterable[int]) -> list[object]:
        return [self._objects[self._rows[number]] for number in numbers]

    def __len__(self) -> int:
        """The number of events."""
        return len(self._events.start)

    @property
    def are_all_taken(self) -> bool:
        return self._taken == len(self._runs) - 1

    def take(self, columns: TraceColumns, stacks: StackInterner) -> None:
        """Append the next run to the columns of its trace."""
        _expect(not self.are_all_taken)
        if self._columns is None:
            self._columns = self._make_columns(stacks)
        first, last = self._runs[self._taken : self._taken + 2]
        self._taken += 1
        wanted = (
            columns.action,
            columns.address,
            columns.size_bytes,
            columns.stream,
            columns.time_us,
            columns.stack,
        )
        for column, values in zip(wanted, self._columns, strict=True):
            column.frombytes(values[first:last].tobytes())

    def resolve(self, event: object) -> object:
        """Return an event that is in no run, with its list where it refers to one of the runs."""
        if type(event) is not dict:
            return event
        number = _number_of(event.get("frames"))
        if number is None:
            return event
        _expect(0 <= number < len(self._own))
        return {**event, "frames": self._look_up(self._events.members[self._own[number]])}

    def _make_columns(self, stacks: StackInterner) -> list[NDArray[np.generic]]:
        size_bytes = self._numbers("size")
        time_us = self._numbers("time_us", default=UNMEASURED) if "time_us" in self._key_of else None
        _expect(int(size_bytes.min()) >= 0 and (time_us is None or int(time_us.min()) >= 0))
        return [
            self._actions(),
            self._numbers("addr").astype(np.uint64),
            size_bytes,
            self._numbers("stream", default=0),
            self._numbers("time_us", default=UNMEASURED) if time_us is None else time_us,
            self._stacks(stacks),
        ]

    def _numbers(self, name: str, default: int | None = None) -> Ints:
        if name not in self._key_of and default is not None:
            return np.full(len(self._events.start), default, dtype=np.int64)
        values, kinds = self._find(name)
        _expect(bool((kinds == _NUMBER).all()))
        return values

    def _find(self, name: str) -> tuple[Ints, NDArray[np.uint8]]:
        _expect(name in self._key_of)
        key = self._key_of[name]
        return self._events.values[key], self._events.kinds[key]

    def _actions(self) -> NDArray[np.int8]:
        values, kinds = self._find("action")
        _expect(bool((kinds == _REFERENCE).all()))
        numbers = _drop_repeated(values)
        names = self._look_up(numbers)
        _expect(all(type(name) is str for name in names))
        codes = [_CODES.get(name, int(TraceAction.OTHER)) for name in names]
        # Its address has another key.
        _expect(int(TraceAction.OOM) not in codes)
        return np.array(codes, dtype=np.int8)[np.searchsorted(numbers, values)]

    def _stacks(self, stacks: StackInterner) -> NDArray[np.int32]:
        found = np.full(len(self._events.start), UNMEASURED, dtype=np.int32)
        if "frames" not in self._key_of:
            return found
        values, kinds = self._find("frames")
        own, refers = kinds == _OWN_LIST, kinds == _REFERENCE
        _expect(bool((own | refers).all()))
        place = ("device_traces", "frames")
        rows = np.array(stacks.intern_all(map(self._look_up, self._events.members), place), dtype=np.int32)
        in_order = rows[self._own] if len(self._own) else np.zeros(0, dtype=np.int32)
        found[own] = in_order
        numbers = _drop_repeated(values[refers])
        # A list of an event is known by its number among them, others are in the memo themselves.
        objects = [self._objects[row] for row in self._rows[numbers].tolist()]
        found_numbers = [_number_of(it) for it in objects]
        others = [at for at, it in enumerate(found_numbers) if it is None]
        of_others = stacks.intern_all([objects[at] for at in others], place)
        indexes = np.fromiter((it or 0 for it in found_numbers), dtype=np.int64, count=len(objects))
        is_within = (indexes >= 0) & (indexes < len(in_order))
        is_within[others] = True
        _expect(bool(is_within.all()))
        of_number = np.zeros(len(self._rows), dtype=np.int32)
        of_number[numbers] = in_order[indexes] if len(in_order) else UNMEASURED
        of_number[numbers[others]] = of_others
        found[refers] = of_number[values[refers]]
        return found
