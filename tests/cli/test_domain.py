"""`extender domain` on an embedded cluster: what it writes, what it shows, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from deploy.policies.crds import domains_crd
from extender.cli.main import main
from extender.model.constraints.labels import ZONE
from extender.model.objects import MOST_TOPOLOGY_DOMAINS
from extender.simulator.apiserver.fault_points import Call
from extender.simulator.apiserver.kinds import TOPOLOGY_DOMAINS, Target
from extender.simulator.apiserver.server import ApiServer
from tests.deploy.policies.test_schema import kept, schema_of

Json = dict[str, Any]
BODY: Json = {
    "apiVersion": "placement.extender.dev/v1alpha1",
    "kind": "TopologyDomains",
    "metadata": {"name": "zones"},
    "spec": {"topologyKey": ZONE, "domains": ["a", "b", "c"]},
}


async def run(folder: Path, api: ApiServer, *arguments: str) -> int:
    kubeconfig = str(api.write_kubeconfig(folder / "kubeconfig"))
    return await asyncio.to_thread(main, ["domain", *arguments, "--kubeconfig", kubeconfig])


def stored(api: ApiServer) -> Json:
    return dict(api.store.find(TOPOLOGY_DOMAINS, "zones").read()["spec"])


async def test_a_zone_is_excluded_for_a_time_shown_and_included_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ApiServer() as api:
        api.store.load([BODY])
        assert await run(tmp_path, api, "exclude", "b", "--for", "2h", "--reason", "new switches") == 0
        (excluded,) = stored(api)["excluded"]
        assert (excluded["domain"], excluded["reason"]) == ("b", "new switches")
        assert excluded["since"] < excluded["until"]
        assert kept(schema_of(domains_crd()), {"spec": stored(api)}) == {"spec": stored(api)}
        assert await run(tmp_path, api, "exclude", "b") == 0, "again, for good"
        assert ["until" in each for each in stored(api)["excluded"]] == [False]
        capsys.readouterr()
        assert await run(tmp_path, api, "list") == 0
        shown = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert shown[1:3] == [[ZONE, "a", "yes", "no"], [ZONE, "b", "yes", "yes"]]
        assert await run(tmp_path, api, "include", "b") == 0
        assert stored(api)["excluded"] == []
        assert await run(tmp_path, api, "list", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out.partition("\n")[2])[0]["name"] == "zones"


async def test_objects_that_are_not_read_are_neither_written_nor_shown_as_if_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [
        BODY | {"metadata": {"name": f"a{number:02}"}, "spec": {"topologyKey": "rack", "domains": ["r"]}}
        for number in range(MOST_TOPOLOGY_DOMAINS)
    ]
    async with ApiServer() as api:
        api.store.load([BODY, *others])
        assert await run(tmp_path, api, "exclude", "b") == 1
        assert (
            f"no TopologyDomains has the key {ZONE}, and a further object has no effect: only 64 are read"
            in capsys.readouterr().err
        )
        assert await run(tmp_path, api, "list") == 0
        shown = capsys.readouterr().out
        assert ZONE not in shown
        assert shown.splitlines()[-1] == "1 object has no effect: the first 64 by name are read"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["exclude", "b", "--for", "soon"], "--for"),
        (["exclude", "b", "--for", "1000h"], "at most 720h"),
        (["exclude", "a/b"], "no value of a label"),
        (["exclude", "b", "--key", "a b"], "--key: 'a b' is no key of a label"),
        (["exclude", "b", "--key", "Zones"], "the name zones is taken"),
        (["include", "b"], "is not excluded"),
    ],
    ids=["no duration", "too long", "no label", "no key", "another key", "not excluded"],
)
async def test_what_cannot_be_done_is_refused_with_the_reason(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ApiServer() as api:
        api.store.load([BODY])
        assert await run(tmp_path, api, *arguments) == 1
        assert text in capsys.readouterr().err
        assert stored(api) == BODY["spec"]


async def test_the_first_exclusion_of_a_key_makes_its_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ApiServer() as api:
        api.store.load([BODY])
        assert await run(tmp_path, api, "exclude", "row-7", "--key", "example.com/Rack_row") == 0
        assert "(TopologyDomains example.com-rack-row)" in capsys.readouterr().out
        made = api.store.find(TOPOLOGY_DOMAINS, "example.com-rack-row").read()
        assert (made["spec"]["topologyKey"], made["spec"]["domains"]) == ("example.com/Rack_row", [])
        assert kept(schema_of(domains_crd()), {"spec": made["spec"]}) == {"spec": made["spec"]}
        assert await run(tmp_path, api, "exclude", "row-8", "--key", "example.com/Rack_row") == 0
        assert await run(tmp_path, api, "include", "row-7", "--key", "example.com/Rack_row") == 0
        made = api.store.find(TOPOLOGY_DOMAINS, "example.com-rack-row").read()
        assert [each["domain"] for each in made["spec"]["excluded"]] == ["row-8"]
        assert stored(api) == BODY["spec"]


class WithoutKinds(ApiServer):
    """An API server on which the CRDs are not installed."""

    async def _list(self, request: web.BaseRequest, target: Target, call: Call) -> web.StreamResponse:
        if target.kind is TOPOLOGY_DOMAINS:
            return web.Response(status=404, text="404 page not found")
        return await super()._list(request, target, call)


@pytest.mark.parametrize("arguments", [["list"], ["exclude", "b"], ["include", "b"]], ids=lambda given: given[0])
async def test_without_the_crd_the_command_says_how_to_install_it(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with WithoutKinds() as api:
        assert await run(tmp_path, api, *arguments) == 1
    assert capsys.readouterr().err.splitlines() == [
        "extender: the API server does not serve topologydomains.placement.extender.dev",
        "extender: install the CRD: kubectl apply -f deploy/policies/crds.yaml",
    ]
