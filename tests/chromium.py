"""A headless Chromium, told what to do by its DevTools protocol."""

import asyncio
import base64
import itertools
import json
import os
import shutil
from contextlib import asynccontextmanager

import aiohttp

PROGRAM = os.environ.get("SPILLWAY_CHROMIUM") or shutil.which("chromium")
SECONDS = 60.0


class Tab:
    def __init__(self, socket):
        self._socket = socket
        self._numbers = itertools.count(1)
        self.problems = []  # what the console and the page's policies say

    async def call(self, method, **parameters):
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            told = await self._socket.receive_json(timeout=SECONDS)
            if told.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                self.problems.append(json.dumps(told["params"]))
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]

    async def evaluate(self, script):
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, script):
        """Wait for something true, and return it."""
        async with asyncio.timeout(SECONDS):
            while not (value := await self.evaluate(script)):  # noqa: ASYNC110 - the browser tells nobody
                await asyncio.sleep(0.05)
        return value

    async def open(self, url, width=1600, *, dark=False):
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=url)

    async def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    async def picture(self, path):
        told = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))


@asynccontextmanager
async def a_tab(folder):
    """Start a browser with its profile in `folder`."""
    options = [
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
    ]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(PROGRAM, *options, "about:blank", stdout=quiet, stderr=quiet)
    try:
        note = folder / "DevToolsActivePort"
        async with asyncio.timeout(SECONDS):
            while not (note.exists() and "\n" in note.read_text()):
                assert process.returncode is None, "the browser ended"
                await asyncio.sleep(0.05)
        port = note.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            tabs = await (await session.get(f"http://127.0.0.1:{port}/json")).json()
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                yield tab
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
