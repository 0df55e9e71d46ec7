"""A page that follows a study while it runs, served to this machine alone.

The server answers two requests, for the page and for its revision; the page asks for the revision every now and then and loads itself again
when it has changed. It listens on the loopback address and answers no other name than its own, so that no web page elsewhere can read it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFRESH_SECONDS = 1.0
"""Seconds for which an answer is taken to be still true."""


class Pages:
    """The newest page, made again when what it shows has changed.

    Parameters
    ----------
    fingerprint
        Says quickly what the page depends on: another answer means another page.
    make
        Makes the page of a revision, which it is given.

    Examples
    --------
    >>> pages = Pages(lambda: "unchanged", lambda revision: "<p>cake</p>")
    >>> pages.current() == pages.current()
    True
    """

    def __init__(self, fingerprint: Callable[[], str], make: Callable[[str], str]):
        self._fingerprint, self._make = fingerprint, make
        self._lock = threading.Lock()
        self._looked, self._seen, self._page = 0.0, "", ("", b"")

    def current(self) -> tuple[str, bytes]:
        """The revision and the page."""
        with self._lock:
            if not self._seen or time.monotonic() - self._looked >= REFRESH_SECONDS:
                seen = self._fingerprint()
                if seen != self._seen:
                    revision = hashlib.sha256(seen.encode()).hexdigest()
                    self._page = (revision, self._make(revision).encode())
                self._seen, self._looked = seen, time.monotonic()
            return self._page


def server(pages: Pages, port: int = 0) -> ThreadingHTTPServer:
    """A server of the page on the loopback address, at any free port if none is given; call `serve_forever` on it.

    Examples
    --------
    >>> with server(Pages(lambda: "unchanged", lambda revision: "<p>cake</p>")) as listening:
    ...     listening.server_address[0]
    '127.0.0.1'
    """
    try:
        listening = ThreadingHTTPServer(("127.0.0.1", port), _handler(pages))
    except (OSError, OverflowError) as error:
        raise ValueError(f"port {port} cannot be used: {error}; choose another with --port") from None
    listening.daemon_threads = True
    return listening


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = {f"{name}:{self.connection.getsockname()[1]}" for name in ("127.0.0.1", "localhost")}
            if self.headers.get("Host") not in own:
                self.send_error(403, "This page is for this machine only")
            elif self.path == "/":
                self._answer("text/html; charset=utf-8", pages.current()[1])
            elif self.path == "/revision":
                self._answer("text/plain", pages.current()[0].encode())
            else:
                self.send_error(404)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the terminal belongs to the command."""

    return Handler
