"""What probes, Prometheus and people get to read."""

from http import HTTPStatus

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.settings.configuration import Settings, parse_settings
from tests.server.serving import BY_NAMES, BY_NODES, Switch, app_with


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
async def test_the_process_is_alive_although_it_is_not_ready(aiohttp_client: AiohttpClient, path: str) -> None:
    client = await aiohttp_client(app_with(readiness=Switch({"pods": "not listed yet"})))
    answer = await client.get(path)
    assert (answer.status, await answer.text()) == (HTTPStatus.OK, "ok")


async def test_ready_says_so_and_lists_the_checks_when_asked(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    assert await (await client.get("/readyz")).text() == "ok"
    assert await (await client.get("/readyz?verbose")).text() == "[+]nodes ok\n[+]pods ok\nreadyz check passed\n"


async def test_not_ready_says_what_is_missing(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(readiness=Switch({"nodes": "", "pods": "not listed yet"})))
    answer = await client.get("/readyz")
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert await answer.text() == "[+]nodes ok\n[-]pods failed: not listed yet\nreadyz check failed\n"


async def test_one_check_can_be_asked_by_name(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(readiness=Switch({"nodes": "", "pods": "not listed yet"})))
    answers = {name: await client.get(f"/readyz/{name}") for name in ("nodes", "pods", "cats")}
    assert {name: answer.status for name, answer in answers.items()} == {"nodes": 200, "pods": 503, "cats": 404}


async def test_readiness_is_a_metric_read_at_each_scrape(aiohttp_client: AiohttpClient) -> None:
    readiness = Switch({"pods": "not listed yet"})
    client = await aiohttp_client(app_with(readiness=readiness))
    before = await client.get("/metrics")
    assert 'extender_ready{check="pods"} 0.0' in await before.text()
    assert before.headers["Content-Type"].startswith("text/plain; version=")
    readiness.missing["pods"] = ""
    assert 'extender_ready{check="pods"} 1.0' in await (await client.get("/metrics")).text()


async def test_requests_are_counted_by_the_form_of_their_nodes(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    for body in (BY_NAMES, BY_NODES, BY_NODES):
        await client.post("/filter", json=body)
    lines = (await (await client.get("/metrics")).text()).splitlines()
    assert 'extender_requests_by_form_total{form="names",verb="filter"} 1.0' in lines
    assert 'extender_requests_by_form_total{form="nodes",verb="filter"} 2.0' in lines


async def test_configz_shows_the_settings_as_a_configuration_file_has_them(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    document = (await (await client.get("/configz")).json())["placement.extender.dev"]
    assert document["server"]["maxBodyBytes"] == "8Mi"
    assert parse_settings(document) == Settings()


async def test_version_tells_what_is_running(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    about = await (await client.get("/version")).json()
    assert about["version"] == "1.2.3"
    assert set(about) == {"version", "pythonVersion", "platform"}
