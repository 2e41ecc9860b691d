"""Loads torch once, and runs each script it is asked for in a fork of itself, as `python SCRIPT ...` would.

A program of its own; its standard input is the socket on which `starter.py` asks.
"""

import contextlib
import json
import os
import runpy
import select
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
    """Fork for each request, send the pid and later the exit code; return None once nobody asks any more.

    Returns in each child too: with the request that it is to fulfil.
    """
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd: the child, and where its end is sent
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                poll.unregister(ready)
                os.close(ready)
                pid, reply = running.pop(ready)
                _, status = os.waitpid(pid, 0)
                with reply, contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                    reply.send(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            message, given, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 4)
            if not message:
                return None
            reply_descriptor, *streams = given
            pid = os.fork()
            if not pid:
                control.close()
                os.close(reply_descriptor)
                for other, (_, waiting) in running.items():
                    os.close(other)
                    waiting.close()
                request = Request(**json.loads(message))
                _become(request, streams)
                return request
            for stream in streams:
                os.close(stream)
            reply = socket.socket(fileno=reply_descriptor)
            reply.send(str(pid).encode())
            descriptor = os.pidfd_open(pid)
            running[descriptor] = pid, reply
            poll.register(descriptor, select.POLLIN)


def _become(request: Request, streams: list[int]) -> None:
    """Take on what a process started for this request would have been given."""
    for place, descriptor in enumerate(streams):
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
