"""Decisions as they are made, in a view that can be paused and filtered, and that survives the loss of the service."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import pytest
from aiohttp import ClientSession

from tests.fakes import until
from tests.page.conftest import Page
from tests.page.serving import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES: Final = ["general-0", "general-1", "reserved-0"]
POD: Final = "document.querySelector('tbody th')?.textContent"  # of the latest decision


async def decide(page: Page, name: str) -> None:
    """Asks the service about a pending pod, as the scheduler does once something has changed."""
    (requested,) = (each for each in page.simulated.pending() if each["metadata"]["name"] == name)
    async with (
        ClientSession() as http,
        http.post(f"{page.url}/filter", json={"Pod": requested, "NodeNames": NODES}) as answer,
    ):
        assert answer.status == HTTPStatus.OK


async def test_it_begins_with_the_last_decisions_and_goes_on_with_new_ones(page: Page) -> None:
    await page.show("decisions", "live", "shop/no-cache", "rejected", "no pod that it must be near")
    await decide(page, "no-gpu")
    await page.browser.until(f"return {POD} === 'shop/no-gpu'")


async def test_paused_it_stands_still_and_shows_what_was_missed_when_it_goes_on(page: Page) -> None:
    await page.show("decisions", "live", "shop/no-cache")
    await page.browser.click("button")
    first = await page.browser.script(f"return {POD}")
    name = "no-racks" if first == "shop/is-loud" else "is-loud"
    await decide(page, name)
    await page.browser.until_text("paused", "1 more while paused")
    assert await page.browser.script(f"return {POD}") == first
    assert await page.browser.script("return document.querySelector('button').getAttribute('aria-pressed')") == "true"
    assert await page.browser.text("#said") == "Paused."  # to a screen reader
    await page.browser.click("button")
    await page.browser.until(f"return {POD} === arguments[0]", f"shop/{name}")


async def test_a_filter_keeps_what_it_names_and_is_part_of_the_address(page: Page) -> None:
    await page.show("decisions", "live", "shop/no-cache", "shop/is-loud")
    await page.browser.type("#field-namespace-or-pod", "is-loud\ue007")
    pods = "return [...new Set([...document.querySelectorAll('tbody th')].map((e) => e.textContent))].join()"
    await page.browser.until(f"return {pods.removeprefix('return ')} === 'shop/is-loud'")
    assert await page.browser.script("return location.hash") == "#/decisions?pod=is-loud"
    await page.show("decisions?result=passed", "No such decision yet.")


async def test_without_the_service_the_stream_is_interrupted_and_then_continues(page: Page, proxy: Proxy) -> None:
    await page.browser.open(f"{proxy.url}/ui/#/decisions")
    await page.browser.until_text("live", "shop/no-cache")
    proxy.refusal = -1
    proxy.close_streams()
    await page.browser.until_text("interrupted")
    await page.browser.until_text("Not connected since", selector="#connection")
    proxy.refusal = 0
    await page.browser.until_text("live")
    await page.browser.until_text("Connected", selector="#connection")


async def test_another_view_ends_the_stream(page: Page, proxy: Proxy) -> None:
    await page.browser.open(f"{proxy.url}/ui/#/decisions")
    await page.browser.until_text("live")
    assert len(proxy.streams) == 1
    await page.browser.open(f"{proxy.url}/ui/#/pending")
    await until(lambda: not proxy.streams)


async def test_a_stream_that_is_refused_is_asked_for_again(page: Page, proxy: Proxy) -> None:
    proxy.refusal = 429
    await page.browser.open(f"{proxy.url}/ui/#/decisions")
    await page.browser.until_text("refused")
    proxy.refusal = 0
    await page.browser.until_text("live", "shop/no-cache")
