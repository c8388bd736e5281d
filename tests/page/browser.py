"""Chromium, driven through chromedriver by the WebDriver protocol.

https://www.w3.org/TR/webdriver2/ . A thin client: what the tests of the page do in a browser, as one method each. Both programs are packages of Debian
(chromium, chromium-driver); where one is missing, the tests are skipped and name it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Final
from urllib.request import Request, urlopen

from aiohttp import ClientSession

from tests.fakes import PATIENCE
from tests.programs import tool

_STARTED: Final = re.compile(rb"started successfully on port (\d+)")
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"  # the key of a reference, a constant of the protocol
_OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
)
USUAL_SIZE: Final = (1440, 900)
TAB: Final = "\ue004"
ENTER: Final = "\ue007"
SPACE: Final = " "


class WebDriverError(Exception):
    """Raised when the browser refuses a command; the text is its own."""


@dataclass(frozen=True, slots=True)
class Element:
    """A reference to an element of the page."""

    reference: str


class Browser:
    """One window. Positions and sizes are in CSS pixels."""

    def __init__(self, http: ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def open(self, url: str) -> None:
        """Loads a document, or goes to another fragment of the same."""
        await self._send("POST", "/url", {"url": url})

    async def script(self, body: str, *arguments: object) -> Any:
        """What the body of a function returns; it may return a promise."""
        return await self._send("POST", "/execute/sync", {"script": body, "args": list(arguments)})

    async def find(self, selector: str) -> Element:
        """The first element of a CSS selector, as soon as there is one."""
        await self.until(f"return document.querySelector({selector!r}) !== null")
        found = await self._send("POST", "/element", {"using": "css selector", "value": selector})
        return Element(found[_ELEMENT])

    async def text(self, selector: str = "main") -> str:
        """The text of an element as it is shown."""
        found = await self.find(selector)
        return str(await self._send("GET", f"/element/{found.reference}/text"))

    async def click(self, selector: str) -> None:
        """Clicks where a reader would."""
        found = await self.find(selector)
        await self._send("POST", f"/element/{found.reference}/click", {})

    async def type(self, selector: str, text: str) -> None:
        """Types into a field."""
        found = await self.find(selector)
        await self._send("POST", f"/element/{found.reference}/value", {"text": text})

    async def press(self, *keys: str) -> None:
        """Presses and releases keys, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        await self._send("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    async def until(self, condition: str, *arguments: object) -> Any:
        """What the body of a function returns once that is true. Fails the test where it never is."""
        found: Any = None
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := await self.script(condition, *arguments)):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.script("return document.body.innerText")
            raise AssertionError(
                f"{condition}: still {found!r}; the page shows:\n{shown}\n{await self.log()}"
            ) from None
        return found

    async def until_text(self, *words: str, selector: str = "main") -> str:
        """The text of an element, once it holds all words."""
        condition = (
            "const text = document.querySelector(arguments[0])?.innerText ?? '';"
            "return arguments[1].every((word) => text.includes(word)) && text"
        )
        return str(await self.until(condition, selector, list(words)))

    async def new_tab(self) -> None:
        """Opens a tab in front of this one, which is hidden from then on."""
        opened = await self._send("POST", "/window/new", {"type": "tab"})
        await self._send("POST", "/window", {"handle": opened["handle"]})

    async def close_tab(self) -> None:
        """Closes the tab in front, and shows the one behind it."""
        (behind, *_) = await self._send("DELETE", "/window")
        await self._send("POST", "/window", {"handle": behind})

    async def log(self) -> list[str]:
        """What the browser has logged since the last time: violations of the policy, errors of scripts, failed requests."""
        return [entry["message"] for entry in await self._send("POST", "/se/log", {"type": "browser"})]

    async def devtools(self, command: str, **parameters: object) -> Any:
        """A command of the DevTools protocol, for what WebDriver lacks."""
        return await self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    async def emulate(self, width: int, height: int, scale: float = 1, **media: str) -> None:
        """A screen of this size, with features of media such as ``color_scheme="dark"``."""
        await self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        features = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in media.items()]
        await self.devtools("Emulation.setEmulatedMedia", features=features)

    async def picture(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(await self._send("GET", "/screenshot"))

    async def _send(self, method: str, path: str, body: object = None) -> Any:
        async with self._http.request(method, self._url + path, json=body) as answer:
            return _value(await answer.json())


def _value(answer: dict[str, Any]) -> Any:
    value = answer["value"]
    if isinstance(value, dict) and "error" in value:
        raise WebDriverError(f"{value['error']}: {value['message']}")
    return value


@contextmanager
def driven() -> Iterator[str]:
    """A browser with a profile of its own, until the block is left; the URL at which it is driven. Skips the test where a program is missing."""
    chromium, driver = tool("chromium"), tool("chromedriver", "chromium-driver")
    process = subprocess.Popen([driver, "--port=0"], stdout=PIPE, stderr=DEVNULL, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{_port(process)}/session"
        url = f"{url}/{_new_session(url, chromium)}"
        try:
            yield url
        finally:
            with urlopen(Request(url, method="DELETE"), timeout=PATIENCE):  # noqa: S310 - the driver's own address
                pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the driver, and a browser that did not end
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@asynccontextmanager
async def window(url: str) -> AsyncIterator[Browser]:
    """The browser that is driven at a URL, as it is at its start: with the usual size, on no page, with nothing in its log."""
    async with ClientSession() as http:
        shown = Browser(http, url)
        await shown.emulate(*USUAL_SIZE)
        await shown.open("about:blank")
        await shown.log()
        yield shown


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser of its own."""
    with driven() as url:
        async with window(url) as shown:
            yield shown


def _port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _STARTED.search(line):
            return int(found[1])
    raise AssertionError("chromedriver did not start")


def _new_session(url: str, chromium: str) -> str:
    width, height = USUAL_SIZE
    options = {"binary": str(Path(chromium)), "args": [*_OPTIONS, f"--window-size={width},{height}"]}
    wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    body = json.dumps({"capabilities": {"alwaysMatch": wanted}}).encode()
    with urlopen(Request(url, body, method="POST"), timeout=PATIENCE) as answer:  # noqa: S310 - the driver's own address
        return str(_value(json.load(answer))["sessionId"])
