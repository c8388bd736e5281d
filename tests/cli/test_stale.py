"""A cluster that is not heard of any more, and what the settings have the real command do about it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from tests.cli.test_serve import PENDING, QUESTION, configuration, ready, serving
from tests.fakes import PATIENCE

TEXT = "cannot decide: changes of {} cannot be followed now; /readyz says why"


async def answers(url: str) -> tuple[int, Any]:
    """Filter's answer and its status."""
    async with aiohttp.ClientSession() as session, session.post(f"{url}/filter", json=QUESTION) as answer:
        return answer.status, await answer.json()


async def stale_checks(url: str) -> list[str]:
    """Wait until it says of every kind that its watch is silent; returns their names."""
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            text = await (await session.get(f"{url}/readyz?verbose")).text()
            failed = [line for line in text.splitlines() if line.startswith("[-]")]
            if len(failed) == text.count("\n") - 1:
                assert all("watch silent for" in line for line in failed)
                return [line.split("]")[1].split(" ")[0] for line in failed]
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("policy", ["error", "pass"])
async def test_a_silent_cluster_is_reported_or_everything_passes(tmp_path: Path, policy: str) -> None:
    async with ApiServer(ApiServerSettings(bookmark_every=60.0)) as api:
        api.store.load([dict(found) for found in PENDING])
        kubeconfig = str(api.write_kubeconfig(tmp_path / "kubeconfig"))
        kube = {"kubeconfig": kubeconfig, "onStale": policy, "watch": {"inactivityTimeout": "1s"}}
        async with serving("--config", configuration(tmp_path, kube=kube)) as (_, url):
            await ready(url)
            assert (await answers(url))[0] == HTTPStatus.OK
            kinds = await stale_checks(url)
            status, answer = await answers(url)
            assert status == HTTPStatus.OK
            passed = QUESTION["NodeNames"] if policy == "pass" else []
            text = "" if policy == "pass" else TEXT.format(", ".join(kinds))
            assert (answer["NodeNames"], answer["Error"]) == (passed, text)
            async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as page:
                line = f'extender_fallbacks_total{{answer="{policy}",reason="stale",verb="filter"}} 1.0'
                assert line in (await page.text()).splitlines()
