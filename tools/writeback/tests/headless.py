# SPDX-License-Identifier: GPL-2.0
"""A headless Chromium, spoken to over its pipe: look at a page as a phone or a desktop does.

Needs no package but the browser (Debian: chromium or chromium-headless-shell).
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
TIMEOUT_S = 120.0  # of one answer, on a busy machine


def browser() -> str | None:
    """The browser to use: $WB_BROWSER, or the first of NAMES that is installed."""
    return os.environ.get("WB_BROWSER") or next((p for n in NAMES if (p := shutil.which(n))), None)


class Page:
    """One page in a browser. problems: errors that reached the console or failed to load."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer
        self.problems: list[str] = []
        self.loaded = False
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        os.set_blocking(reader, False)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _next(self, deadline: float) -> dict[str, Any]:
        """The next message of the browser."""
        while b"\0" not in self._buffer:
            if time.monotonic() > deadline:
                raise TimeoutError("the browser does not answer")
            try:
                more = os.read(self.reader, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            if not more:
                raise EOFError("the browser ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._event(message.get("method", ""), message.get("params", {}))
        return message

    def _event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {params['exceptionDetails'].get('text')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(f"console: {params['type']} {params.get('args')}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"log: {params['entry']['text']}")
        elif method == "Network.loadingFailed":
            self.problems.append(f"not loaded: {params.get('errorText')}")
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
            self.problems.append(f"asked for {params['request']['url']}")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """One command of the DevTools protocol; returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def show(self, path: Path, width: int, scheme: str, height: int = 800) -> None:
        """Load a file at ``width`` CSS pixels in the scheme ``light`` or ``dark``, up to its load event."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT_S
        while not self.loaded:
            self._next(deadline)

    def evaluate(self, script: str) -> Any:
        """The JSON value of an expression in the page."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)["result"].get(
            "value")

    def picture(self, out: Path, selector: str = "") -> None:
        """Write a PNG of the page, or of the first element that ``selector`` matches."""
        box = self.evaluate(
            f"(() => {{ const e = {json.dumps(selector)} ? document.querySelector({json.dumps(selector)}) : "
            "document.documentElement; const r = e.getBoundingClientRect(); "
            "return [r.left + scrollX, r.top + scrollY, r.width, r.height]; })()")
        clip = dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        out.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def page() -> Iterator[Page]:
    """A page in a browser of its own, without network, which ends with the block."""
    program = browser()
    assert program is not None
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()

    def pipes() -> None:
        # The protocol wants descriptors 3 and 4.
        a, b = os.dup(to_browser), os.dup(from_browser)
        os.dup2(a, 3)
        os.dup2(b, 4)
        os.set_inheritable(3, True)
        os.set_inheritable(4, True)

    profile = tempfile.TemporaryDirectory(prefix="wb-browser-", ignore_cleanup_errors=True)
    argv = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
            "--no-first-run", "--disable-dev-shm-usage", "--proxy-server=http://127.0.0.1:9",
            f"--user-data-dir={profile.name}", "about:blank"]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             preexec_fn=pipes, close_fds=False, start_new_session=True)
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(to_us, from_us)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(to_us)
        os.close(from_us)
        profile.cleanup()
