"""A headless Chromium over its own pipe: loads a page, moves the pointer, takes pictures."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")

LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from file 3 and writes answers to file 4."""

TIME_LIMIT = 120
"""Seconds until a browser is ended that does not answer."""


def find_browser():
    """The program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab, driven by the DevTools protocol: messages of JSON that end with a zero byte."""

    def __init__(self, commands, answers):
        self._commands, self._answers = commands, answers
        self._numbers = itertools.count(1)
        self._session = None
        self.complaints = []
        """Messages of the console, errors and failed requests."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.requests = []
        """Addresses that were asked for."""

    def _next(self):
        message = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise EOFError("the browser ended")
            message += byte
        found = json.loads(message)
        kind, details = found.get("method"), found.get("params", {})
        if kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed"):
            self.complaints.append(details)
        if kind == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        return found

    def call(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (found := self._next()).get("id") != number:
            pass
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        return found["result"]

    def open(self, path, *, width=1100, height=900, dark=False):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression):
        """Of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def move(self, x, y):
        """The pointer to this place of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path, *, whole=False):
        size = self.value("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        clip = {"clip": {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}} if whole else {}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **clip)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def pdf(self, path):
        data = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)["data"]
        Path(path).write_bytes(base64.b64decode(data))


@contextmanager
def browser_page(program):
    """A :class:`Page` of a fresh browser, which ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        read_commands, write_commands = os.pipe()
        read_answers, write_answers = os.pipe()
        files = [str(read_commands), str(write_answers)]
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *files, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read_commands, write_answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        too_long = threading.Timer(TIME_LIMIT, process.kill)
        too_long.start()
        os.close(read_commands)
        os.close(write_answers)
        try:
            with os.fdopen(write_commands, "wb") as commands, os.fdopen(read_answers, "rb") as answers:
                yield Page(commands, answers)
        finally:
            too_long.cancel()
            process.terminate()
            process.wait(20)
