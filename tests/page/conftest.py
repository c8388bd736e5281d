"""One browser, and a service for the tests of a module; each test opens its own address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.page.browser import Browser, driven, window
from tests.page.serving import Proxy, behind_prefix, played


@dataclass(frozen=True, slots=True)
class Page:
    """A browser, and the service beside the scenario of ten pending pods."""

    browser: Browser
    url: str
    simulated: SimulatedCluster

    async def show(self, view: str, *words: str) -> str:
        """Loads the page with a view, and returns its text once it holds all words."""
        await self.browser.open("about:blank")  # otherwise the document stays, and with it what it showed
        return await self.go_to(view, *words)

    async def go_to(self, view: str, *words: str) -> str:
        """As `show`, in the document that is there: as a link leads to a view."""
        return await self.go_to_at(self.url, f"#/{view}", *words)

    async def go_to_at(self, url: str, fragment: str, *words: str) -> str:
        """As `go_to`, at another URL of the service, with the fragment of a link."""
        await self.browser.open(f"{url}/ui/{fragment}")
        return await self.browser.until_text(*words)


@pytest.fixture(scope="session")
def driver() -> Iterator[str]:
    """Where the browser of all tests is driven: a second of the processor for each that begins."""
    with driven() as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(driver: str) -> AsyncIterator[Page]:
    """After every pod of the scenario was tried."""
    async with window(driver) as shown, played() as service:
        yield Page(shown, service.url, service.simulated)


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(page: Page) -> AsyncIterator[Proxy]:
    """In front of the service."""
    async with behind_prefix(page.url, "/one") as found:
        yield found
        await page.browser.open("about:blank")
