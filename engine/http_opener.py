"""What opens an address of a server or a webhook, with the standard library alone."""

import http.client
from typing import IO
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _NoRedirect(HTTPRedirectHandler):
    """Follows nothing: a password goes nowhere but to what was typed, and a POST does not become a GET."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def make_opener(url: str) -> OpenerDirector:
    """Return what opens an address: by the proxy of the environment, but not to this very machine."""
    proxies = [ProxyHandler({})] if urlsplit(url).hostname in _LOOPBACK else []
    return build_opener(_NoRedirect(), *proxies)
