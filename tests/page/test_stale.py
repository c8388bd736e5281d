"""Each view says when what it shows may be old; the header says which cluster it is; and a view without an answer says that it waits."""

from __future__ import annotations

from typing import Final

import pytest
from aiohttp import ClientSession
from msgspec.json import decode
from msgspec.structs import replace

from extender.model.answers.pages import HealthCheck, Overview, PolicyPage
from tests.page.conftest import Page
from tests.page.serving import Proxy
from tests.page.test_every_view import VIEWS

pytestmark = pytest.mark.asyncio(loop_scope="module")

MISSED: Final = HealthCheck(check="pods", status="warning", text="no event for 160 s <b>")
STALE: Final = "return document.querySelector('#stale').hidden ? '' : document.querySelector('#stale').innerText"


async def overview(page: Page) -> Overview:
    async with ClientSession() as http, http.get(f"{page.url}/v1/overview") as answer:
        return decode(await answer.read(), type=Overview)


@pytest.mark.parametrize("view", VIEWS)
async def test_every_view_says_that_the_extender_misses_changes(page: Page, proxy: Proxy, view: str) -> None:
    about = await overview(page)
    proxy.answers["/v1/overview"] = replace(about, health=(*about.health, MISSED), cluster_name="<i>north</i>")
    await page.browser.open(f"{proxy.url}/ui/#/{view}")
    text = "misses changes of the cluster, so what is shown may be old. pods: no event for 160 s <b>."
    await page.browser.until_text(text, selector="#stale")
    await page.browser.until_text("<i>north</i> · version 0.1.0", selector="#cluster")


async def test_answers_that_stop_are_said_with_the_time_of_the_last_one_and_until_they_come_again(
    page: Page, proxy: Proxy
) -> None:
    await page.browser.open(f"{proxy.url}/ui/#/pending")
    await page.browser.until_text("shop/no-gpu")
    assert await page.browser.script(STALE) == ""
    proxy.refusal = 429
    await page.browser.until_text("as many questions as it may", "What is shown is from ", selector="#stale")
    assert "shop/no-gpu" in await page.browser.text()
    proxy.refusal = 502
    await page.browser.until_text("Not connected since ", "What is shown is from ", selector="#stale")
    proxy.refusal = 0
    await page.browser.until(f"return (() => {{ {STALE} }})() === ''")
    await page.browser.log()


async def test_a_view_whose_data_are_from_a_moment_ago_says_nothing(page: Page) -> None:
    await page.show("policies", "lab-nodes")
    assert await page.browser.script(STALE) == ""


async def test_a_view_says_that_it_waits_for_its_first_answer(page: Page, proxy: Proxy) -> None:
    await page.browser.open(f"{proxy.url}/ui/#/nowhere")
    first = (
        "location.hash = '#/policies';"
        "return new Promise((done) => addEventListener('hashchange', () => done(document.querySelector('main').innerText), {once: true}))"
    )
    assert "Loading…" in await page.browser.script(first)
    proxy.answers["/v1/policies"] = PolicyPage(())
    await page.browser.until_text("There is no scheduling policy")
    assert "Loading" not in await page.browser.text()
