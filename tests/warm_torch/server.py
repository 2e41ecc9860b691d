"""Loads torch once, and runs each script it is asked for in a fork of itself, as `python SCRIPT ...` would.

A program of its own; its standard input is the socket on which `starter.py` asks.
"""

import json
import os
import runpy
import socket
import sys
from dataclasses import dataclass

MAX_REQUEST_BYTES = 1 << 17


@dataclass(frozen=True)
class Request:
    """What is to run: a script and its arguments, the folder to be in and all variables."""

    words: list[str]
    folder: str
    variables: dict[str, str]


def serve(control: socket.socket) -> Request | None:
    """Fork for each request and tell how the child ended; return None once nobody asks any more.

    Returns in each child too: with the request that it is to fulfil.
    """
    while True:
        message, streams, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 2)
        if not message:
            return None
        pid = os.fork()
        if not pid:
            control.close()
            request = Request(**json.loads(message))
            _become(request, streams)
            return request
        for stream in streams:
            os.close(stream)
        control.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Request, streams: list[int]) -> None:
    """Take on what a process started for this request would have been given."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in zip((nothing, *streams), (0, 1, 2), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.variables)
    sys.argv = request.words
    sys.path[0] = request.folder


if __name__ == "__main__":
    import gc

    import torch
    import torch._dynamo  # noqa: F401 - the first step of any optimizer loads it

    gc.freeze()  # at its end a child would walk all of torch, and so copy it

    wanted = serve(socket.socket(fileno=os.dup(0)))
    if wanted is not None:
        runpy.run_path(wanted.words[0], run_name="__main__")
