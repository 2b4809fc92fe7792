"""A real browser that looks at a page: Debian's Chromium, without a window."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

from lab.processes import Process
from lab.programs.postgres import lacking
from lab.running import beside
from lab.waiting import PATIENCE, until

QUIET: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


class Tab:
    """A page in a browser that goes on: what is in it now, and what its scripts have complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        self._asked = 0

    async def call(self, method: str, **params: Any) -> Any:
        """Return the response of a command of the DevTools protocol."""
        self._asked += 1
        answer = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._asked, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            return await answer

    async def listen(self) -> None:
        """Take what the browser sends, until it ends."""
        async for message in self._socket:
            told = json.loads(message.data)
            if answer := self._waiting.pop(told.get("id", 0), None):
                if "error" in told:
                    answer.set_exception(AssertionError(told["error"]))
                else:
                    answer.set_result(told["result"])
            elif told.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(told["params"]["exceptionDetails"]))
            elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.complaints.append(str(told["params"]["entry"]))

    async def open(self, url: str, *, dark: bool = False, wide: int = 1440, high: int = 900) -> None:
        """Go to a URL, in a window of a size and with a preferred scheme of colours."""
        size = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": wide < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        told = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def press(self, key: str) -> None:
        """Press and let go of a key, by its name: Tab, Enter, Escape."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}[key]
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **told)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    async def shows(self, *wanted: str, of: str = "innerText") -> None:
        """Wait until all of these are in the page's text, or in its `innerHTML`."""

        found = ""

        async def is_there() -> bool:
            nonlocal found
            found = str(await self.run(f"document.body?.{of} ?? ''"))
            return all(each in found for each in wanted)

        try:
            await until(is_there, f"the page shows {wanted}")
        except AssertionError as error:
            missing = [each for each in wanted if each not in found]
            raise AssertionError(f"the page does not show {missing}: {found[:3000]}") from error

    async def picture(self, path: Path, whole: bool = False) -> None:
        """Write what is seen, or with `whole` all of the page, as PNG."""
        told = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(told["data"]))


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Tab]:
    """A browser with one tab, until exit; its profile is in the folder."""
    program = shutil.which("chromium") or lacking("chromium")
    profile = folder / "profile"
    command = (program, *QUIET, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank")
    process = Process("browser", command, folder, {"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    process.spawn()
    try:
        async with aiohttp.ClientSession() as session:
            url = await _tab_of(profile / "DevToolsActivePort", session)
            async with session.ws_connect(url, max_msg_size=1 << 26) as socket:
                tab = Tab(socket)
                async with beside(tab.listen()):
                    for domain in ("Page", "Runtime", "Log"):
                        await tab.call(f"{domain}.enable")
                    yield tab
    finally:
        process.stop(0.0)


async def _tab_of(file: Path, session: aiohttp.ClientSession) -> str:
    """Return the URL by which the one tab is driven."""

    found: list[str] = []

    async def is_there() -> bool:
        with suppress(OSError, IndexError, aiohttp.ClientError):
            port = (await asyncio.to_thread(file.read_text)).splitlines()[0]
            async with session.get(f"http://127.0.0.1:{port}/json") as response:
                tabs = await response.json()
            found.extend(each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page")
        return bool(found)

    await until(is_there, "the browser has a tab")
    return found[0]
