"""A page whose service is busy, not ready or gone says so, asks more seldom, and goes on by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes import until
from tests.page.conftest import Page
from tests.page.serving import Proxy, behind_prefix

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(page: Page) -> AsyncIterator[Proxy]:
    """In front of the service; the overview is shown through it."""
    async with behind_prefix(page.url, "/one") as found:
        await page.browser.open(f"{found.url}/ui/")
        await page.browser.until_text("Connected", selector="#connection")
        yield found
        await page.browser.open("about:blank")


async def test_a_service_that_is_gone_is_shown_with_the_time_and_found_again(page: Page, proxy: Proxy) -> None:
    proxy.refusal = -1
    said = await page.browser.until_text("Not connected since", selector="#connection")
    assert "Everything is in order" in await page.browser.text()  # what was known stays
    assert await page.browser.script("return document.querySelector('#connection').role") == "status"
    await page.browser.until_text(said, selector="#connection")  # since the first failure, not the last
    proxy.refusal = 0
    await page.browser.until_text("Connected", selector="#connection")


async def test_a_replica_that_does_not_answer_is_said_so_in_words(page: Page, proxy: Proxy) -> None:
    proxy.refusal = 503
    await page.browser.open("about:blank")
    await page.browser.open(f"{proxy.url}/ui/#/pending")
    await page.browser.until_text("This replica does not answer now. as the test wants")
    await page.browser.until_text("Not connected since", selector="#connection")


async def test_a_busy_service_is_not_a_lost_one_and_is_asked_at_least_a_second_later(page: Page, proxy: Proxy) -> None:
    proxy.refusal = 429
    await page.browser.open("about:blank")
    await page.browser.open(f"{proxy.url}/ui/#/pending")
    await page.browser.until_text("answering as many questions as it may")
    assert await page.browser.text("#connection") == "Connected"
    requested = proxy.requests.count("/v1/pending")
    await until(lambda: proxy.requests.count("/v1/pending") == requested + 3)  # the last but one has its answer
    waits = (
        "const times = performance.getEntriesByType('resource').filter((e) => e.name.includes('v1/pending'));"
        "return times.slice(1).map((e, at) => e.startTime - times[at].responseEnd)"
    )
    first, second = (await page.browser.script(waits))[:2]
    assert first >= 790  # a second by Retry-After, less at most a fifth
    assert second >= 1590


async def test_a_hidden_tab_asks_for_nothing(page: Page, proxy: Proxy) -> None:
    await page.browser.open(f"{proxy.url}/ui/#/pending")
    await page.browser.until_text("shop/no-gpu")
    await page.browser.new_tab()
    try:
        # A second page in the same browser asks three times meanwhile: the time in which the hidden one would have asked.
        async with behind_prefix(page.url, "/other") as other:
            await page.browser.open(f"{other.url}/ui/#/pending")
            await until(lambda: other.requests.count("/v1/pending") >= 1)
            proxy.requests.clear()
            await until(lambda: other.requests.count("/v1/pending") >= 3)
            assert proxy.requests == []
    finally:
        await page.browser.close_tab()
    await until(lambda: "/v1/pending" in proxy.requests)
