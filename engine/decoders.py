"""Decoders of typed messages, made one at a time.

msgspec (0.22) works out the fields of a struct when the first decoder that holds it is made, and runs Python
code for that. A second thread that makes a decoder with the same struct meanwhile gets it half worked out,
and the process ends by a segmentation fault at its first message. So decoders of structs that several
threads read are made here, under a lock.
"""

import threading
from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")
_MAKING = threading.Lock()


def make_msgpack_decoder(kind: type[Kind]) -> "msgspec.msgpack.Decoder[Kind]":
    """Return what reads MessagePack as a type."""
    with _MAKING:
        return msgspec.msgpack.Decoder(kind)


def make_json_decoder(kind: type[Kind]) -> "msgspec.json.Decoder[Kind]":
    """Return what reads JSON as a type."""
    with _MAKING:
        return msgspec.json.Decoder(kind)
