"""Headless Chromium over its debugging pipe, with nothing but the standard library.

Commands and events are JSON objects that end with a NUL byte: the browser reads them from its file descriptor 3 and writes them to 4.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMEOUT = 30.0
"""Seconds without an answer after which the browser is given up."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def program() -> str | None:
    return next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


def missing() -> str | None:
    """Why there is no browser to test with, or None where there is one."""
    return None if program() else "no chromium on the PATH: the page is not looked at in a browser"


@contextlib.contextmanager
def browser(*flags: str) -> Iterator[Browser]:
    """A browser with a profile of its own, and with more flags; both are gone at the end, whatever happened."""
    path = program()
    assert path, missing()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # High numbers, so that taking their places 3 and 4 in the new process overwrites neither.
        ours_read, theirs_write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in _pipe())
        theirs_read, ours_write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in _pipe())
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs_read, 3),
            (os.POSIX_SPAWN_DUP2, theirs_write, 4),
            *((os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)),
        ]
        # Settings and crash files go into the profile too.
        surroundings = {**os.environ, "HOME": profile, "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile}
        command = [path, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"]
        process = os.posix_spawn(path, command, surroundings, file_actions=actions, setpgroup=0)
        os.close(theirs_read)
        os.close(theirs_write)
        try:
            started = Browser(ours_read, ours_write)
            started.send("Browser.setDownloadBehavior", behavior="deny")
            yield started
        finally:
            _end(process)
            os.close(ours_read)
            os.close(ours_write)


def _pipe() -> Iterator[int]:
    for end in os.pipe():
        yield end
        os.close(end)


def _end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)


class Browser:
    """One running browser; `open` gives a tab."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        self.buffer = b""
        self.count = 0
        self.tabs: dict[str, Tab] = {}

    def send(self, method: str, session: str | None = None, **params: Any) -> dict:
        """Send a command and give its result; events that come in the meantime go to their tabs."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writing, data) :]
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def receive(self) -> dict:
        """The next message, after handing it to its tab if it is an event."""
        until = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self.reading, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("the browser does not answer")
            self.buffer += piece
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message and message.get("sessionId") in self.tabs:
            self.tabs[message["sessionId"]].notice(message["method"], message["params"])
        return message

    def open(self, address: str | Path, width: int = 1280, height: int = 900) -> Tab:
        """A new tab that shows the address, once it is loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self.tabs[session] = Tab(self, session, target)
        for simulator in ("Page", "Runtime", "Network", "Log"):
            tab.send(f"{simulator}.enable")
        tab.resize(width, height)
        tab.go(address.as_uri() if isinstance(address, Path) else address)
        return tab


class Tab:
    """A page in the browser, and what it said and asked for since it was opened."""

    def __init__(self, owner: Browser, session: str, target: str) -> None:
        self.owner, self.session, self.target = owner, session, target
        self.messages: list[str] = []
        """What went to the console: messages, warnings of the browser, and uncaught exceptions."""
        self.requests: list[str] = []
        """Addresses that were asked for, without those that hold their own data."""
        self.loads = 0
        self.scripts = True

    def send(self, method: str, **params: Any) -> dict:
        return self.owner.send(method, self.session, **params)

    def notice(self, method: str, params: dict) -> None:
        if method == "Page.loadEventFired":
            self.loads += 1
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(part.get("value", part.get("description"))) for part in params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(params["exceptionDetails"].get("exception", {}).get("description", params["exceptionDetails"]["text"]))
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("data:", "blob:")):
            self.requests.append(params["request"]["url"])

    def go(self, address: str) -> None:
        before = self.loads
        self.send("Page.navigate", url=address)
        while self.loads == before:
            self.owner.receive()
        self.settle()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited where it is a promise."""
        result = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        return result["result"].get("value")

    def settle(self) -> None:
        """Wait until observers have run and what they changed is on the screen."""
        if not self.scripts:
            return
        frame = "new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))"
        self.evaluate(f"{frame}.then(() => {frame}).then(() => 0)")

    def without_scripts(self) -> None:
        """Load the page again with JavaScript switched off; `evaluate` goes on working."""
        self.scripts = False
        self.send("Emulation.setScriptExecutionDisabled", value=True)
        self.go(self.evaluate("location.href"))

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        until = time.monotonic() + TIMEOUT
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > until:
                raise RuntimeError(f"still not so: {condition}")
            time.sleep(0.05)

    def place(self, selector: str) -> tuple[float, float]:
        """The middle of an element on the screen, after scrolling it there."""
        find = f"document.querySelector({json.dumps(selector)})"
        box = f"(e => (e.scrollIntoView({{block: 'center', behavior: 'instant'}}), e.getBoundingClientRect().toJSON()))({find})"
        rectangle = self.evaluate(box)
        return rectangle["x"] + rectangle["width"] / 2, rectangle["y"] + rectangle["height"] / 2

    def click(self, selector: str) -> None:
        """Click with the mouse on the middle of an element."""
        x, y = self.place(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def point(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def press(self, key: str) -> None:
        """Press a key by its name, such as "ArrowRight", "Enter" or "Tab"."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)
        self.settle()

    def set(self, selector: str, value: str) -> None:
        """Give a field or a selector a value, as its reader would."""
        tell = "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true}))"
        self.evaluate(f"((e, v) => {{ e.value = v; {tell} }})(document.querySelector({json.dumps(selector)}), {json.dumps(value)})")
        self.settle()

    def resize(self, width: int, height: int) -> None:
        """A phone below 600 pixels, a desktop above."""
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.settle()

    def media(self, scheme: str = "", printed: bool = False, motion: str = "") -> None:
        """Prefer "light" or "dark", "reduce" motion, or be paper instead of a screen; back to normal without arguments."""
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]
        self.send("Emulation.setEmulatedMedia", media="print" if printed else "", features=features)
        self.settle()

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """What is on the screen, or the whole page, as a PNG file."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]))

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(self.send("Page.printToPDF")["data"])

    def close(self) -> None:
        self.owner.send("Target.closeTarget", targetId=self.target)
        del self.owner.tabs[self.session]
