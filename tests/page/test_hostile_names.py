"""Whatever a name, a label or a message holds is shown as text: nothing of a cluster becomes markup or an address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Final
from urllib.parse import quote

import pytest
import pytest_asyncio
from msgspec import structs

from extender.compose.service import service_of_objects
from extender.model.objects import Object
from extender.model.units import Address
from extender.settings.configuration import Settings
from extender.settings.connections import Server
from tests.builders import namespace, node, pod, spread, taint, term
from tests.page.browser import Browser, window

pytestmark = pytest.mark.asyncio(loop_scope="module")

HTML: Final = "<img src=x onerror=globalThis.owned=1>"
SCRIPT: Final = "</th><script>globalThis.owned=2</script>"
LINK: Final = "javascript:globalThis.owned=3"
CLIMB: Final = "..?a=1&b#/%2e%2e%00\u202egnp"
# Names that the API server allows and a page may stumble over.
ALLOWED: Final = ("constructor", "null", "x" * 253, "0", "xn--bcher-kva.example")


def cluster() -> list[Object]:
    """Hostile texts wherever the page shows one."""
    nodes = [
        node(HTML, zone=SCRIPT, taints=[taint(HTML, SCRIPT)], allocatable={"cpu": "4", "pods": "10", HTML: "1"}),
        node(CLIMB, zone=LINK, allocatable={"cpu": "4", "pods": "10"}, unschedulable=True),
    ]
    running = [
        pod(f"{HTML}-{at}", on=where.name, namespace=SCRIPT, labels={"app": HTML, HTML: LINK})
        for at, where in enumerate(nodes)
    ]
    incoming = pod(
        HTML,
        namespace=SCRIPT,
        labels={"app": HTML},
        apart=[term("zone", app=HTML), term("host", namespaces=[CLIMB, HTML], app=SCRIPT)],
        near=[term(SCRIPT, app=LINK)],
        spreads=[spread("zone", app=HTML)],
        requests={HTML: "9"},
    )
    said = structs.replace(incoming, rejection=f"{HTML}{SCRIPT}")
    others = [pod(name, namespace=LINK, node_selector={"none": "here"}) for name in (*ALLOWED, CLIMB)]
    return [namespace(SCRIPT), namespace(LINK), *nodes, *running, said, *others]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(driver: str) -> AsyncIterator[tuple[Browser, str]]:
    """A browser, and the page of a service over the hostile cluster."""
    settings = Settings(server=Server(bind_address=Address("127.0.0.1:0")))
    async with window(driver) as browser, service_of_objects(settings, cluster(), Random(1)).listening() as url:
        yield browser, f"{url}/ui/#/"


def encoded(text: str) -> str:
    return quote(text, safe="!'()*")


VIEWS: Final = {
    "": [],
    "pending": [f"{SCRIPT}/{HTML}", f"{LINK}/{CLIMB}", *ALLOWED],
    f"pods/{encoded(SCRIPT)}/{encoded(HTML)}": [f"Pod {SCRIPT}/{HTML}", "What would help", f'Invalid value: "{HTML}"'],
    f"pods/{encoded(LINK)}/{encoded(CLIMB)}": [CLIMB, f"{HTML}={SCRIPT}:NoSchedule"],
    "topology": [SCRIPT, LINK],
    f"topology?domain={encoded(SCRIPT)}": [HTML],
    "constraints": [f"app={HTML}"],
    f"constraints/{encoded(SCRIPT)}/{encoded(HTML)}-0": [f"Constraints of {SCRIPT}/{HTML}-0"],
}


@pytest.mark.parametrize("view", VIEWS)
async def test_it_is_shown_as_text(shown: tuple[Browser, str], view: str) -> None:
    window, url = shown
    await window.log()
    await window.open(url + view)
    await window.until_text(*VIEWS[view], selector="main")
    assert await window.script("return globalThis.owned ?? null") is None
    assert await window.script("return [...document.querySelectorAll('main :is(img, script, iframe)')].length") == 0
    links = await window.script("return [...document.querySelectorAll('a')].map((e) => e.getAttribute('href'))")
    assert [each for each in links if not each.startswith("#")] == []
    assert await window.log() == []


async def test_a_link_to_a_pod_leads_to_that_pod_whatever_its_name_is(shown: tuple[Browser, str]) -> None:
    window, url = shown
    await window.open(f"{url}pending")
    await window.until_text(f"{LINK}/{CLIMB}")
    link = "[...document.querySelectorAll('main a')].find((e) => e.textContent === arguments[0])"
    await window.script(f"{link}.click()", f"{LINK}/{CLIMB}")
    await window.until_text(f"Pod {LINK}/{CLIMB}", "What rejects it")
