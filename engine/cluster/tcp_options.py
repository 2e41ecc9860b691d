"""How a socket that listens on tcp is set: keys, limits, heartbeats."""

import zmq

from .listening import Listening

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"vramscope"


def set_listening_options(
    socket: "zmq.Socket[bytes]", listening: Listening, *, most_bytes: int, most_waiting: int
) -> None:
    """Set a socket before it is bound.

    Args:
        socket: A ROUTER.
        listening: Where it will listen, and for whom.
        most_bytes: Largest message that is taken; ZeroMQ cuts off who sends a larger one.
        most_waiting: Messages of one connection that wait in either direction.
    """
    options: dict[int, int | bytes] = {
        zmq.LINGER: 0,
        zmq.MAXMSGSIZE: most_bytes,
        zmq.SNDHWM: most_waiting,
        zmq.RCVHWM: most_waiting,
        zmq.HANDSHAKE_IVL: listening.times.handshake_within_ms,
        zmq.HEARTBEAT_IVL: listening.times.heartbeat_ms,
        zmq.HEARTBEAT_TIMEOUT: listening.times.heartbeat_within_ms,
        zmq.IPV6: int(":" in listening.address.host),
        zmq.ZAP_DOMAIN: ZAP_DOMAIN,
    }
    if listening.pair is not None:
        options |= {zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: listening.pair.secret}
    for option, value in options.items():
        socket.setsockopt(option, value)
