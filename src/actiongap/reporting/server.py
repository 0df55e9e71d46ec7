"""A local web server for a page of runs that is updated while a study runs.

The server answers two requests: the page, and its revision. The page polls the revision and reloads itself when the revision changes. The
server listens on the loopback address and rejects requests for other host names, so that other web sites cannot read the page.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from actiongap._files import one_line
from actiongap.lab.records import read_runs
from actiongap.reporting.html import render
from actiongap.reporting.page import Page
from actiongap.reporting.summary import sections

MAX_CONNECTIONS = 32
"""Maximum number of connections at once; more are closed."""
REQUEST_SECONDS = 10.0
"""Seconds that a client may be silent."""
REFRESH_SECONDS = 1.0
"""Seconds between two checks for changes."""


class Pages:
    """The current page, rendered again when its data change.

    Parameters
    ----------
    fingerprint
        Returns a cheap fingerprint of the data; the page is rendered again when it changes.
    make
        Renders the page; its argument is the revision.

    Examples
    --------
    >>> pages = Pages(lambda: "unchanged", lambda revision: "<p>cake</p>")
    >>> pages.current() == pages.current()
    True
    """

    def __init__(self, fingerprint: Callable[[], str], make: Callable[[str], str]):
        self._fingerprint, self._make = fingerprint, make
        self._lock = threading.Lock()
        self._checked, self._seen, self._page = 0.0, "", ("", b"")

    def current(self) -> tuple[str, bytes]:
        """Return the revision and the page."""
        with self._lock:
            if not self._seen or time.monotonic() - self._checked >= REFRESH_SECONDS:
                seen = self._fingerprint()
                if seen != self._seen:
                    revision = hashlib.sha256(seen.encode()).hexdigest()
                    self._page = (revision, self._make(revision).encode())
                self._seen, self._checked = seen, time.monotonic()
            return self._page


def pages_of(runs: Sequence[str | Path], title: str) -> Pages:
    """Return the page of the runs in some folders. The folders may be empty, or not exist yet.

    Examples
    --------
    >>> revision, page = pages_of(["nowhere"], "cakes").current()
    >>> b"nowhere: no such folder" in page
    True
    """

    def make(revision: str) -> str:
        try:
            records = read_runs(runs)
            page = Page(title, tuple(sections(records)), tuple(records.problems))
        except ValueError as error:  # no runs yet
            page = Page(title, (), (str(error),))
        return render(page, live=revision)

    return Pages(lambda: fingerprint(runs), make)


def fingerprint(runs: Sequence[str | Path]) -> str:
    """Return a string that changes with the runs in some folders: the sizes and times of all metrics and status files.

    Examples
    --------
    >>> fingerprint(["nowhere"])
    '[]'
    """
    seen: list[tuple[str, int, int]] = []
    for place in runs:
        for folder, _, files in os.walk(place):
            for path in (os.path.join(folder, file) for file in files if file in ("metrics.jsonl", "status.json")):
                try:
                    found = os.stat(path)
                except OSError:
                    continue
                seen.append((path, found.st_size, found.st_mtime_ns))
    return str(sorted(seen))


def server(pages: Pages, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of the page on the loopback address; call its `serve_forever`. Port 0 means any free port.

    Examples
    --------
    >>> with server(Pages(lambda: "unchanged", lambda revision: "<p>cake</p>")) as page_server:
    ...     page_server.server_address[0]
    '127.0.0.1'
    """
    try:
        page_server = _Server(("127.0.0.1", port), _handler(pages))
    except (OSError, OverflowError) as error:
        raise ValueError(f"port {port} cannot be used ({str(error).rstrip('.')}): choose another with --port") from None
    return page_server


class _Server(ThreadingHTTPServer):
    """A server with a bounded number of connections. Clients that leave are no errors."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(error := sys.exception(), OSError):
            print(f"actiongap: the page cannot be made: {one_line(error)}", file=sys.stderr)


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    """Return the request handler of the page."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

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
            """Log nothing: the terminal shows the output of the command."""

    return Handler
