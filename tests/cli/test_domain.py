"""`extender domain` on an embedded cluster: what it writes, what it shows, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from extender.cli.main import main
from extender.model.constraints.labels import ZONE
from extender.model.objects import MOST_TOPOLOGY_DOMAINS
from extender.simulator.apiserver.kinds import TOPOLOGY_DOMAINS
from extender.simulator.apiserver.server import ApiServer
from tests.deploy.policies.test_schema import kept, schema_of
from tests.tools.crds.topology_domains import crd

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
        assert kept(schema_of(crd()), {"spec": stored(api)}) == {"spec": stored(api)}
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
        assert f"no TopologyDomains is about {ZONE}" in capsys.readouterr().err
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
        (["exclude", "b", "--key", "rack"], "no TopologyDomains is about rack"),
        (["include", "b"], "is not excluded"),
    ],
    ids=["no duration", "too long", "no label", "another key", "not excluded"],
)
async def test_what_cannot_be_done_is_refused_with_the_reason(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ApiServer() as api:
        api.store.load([BODY])
        assert await run(tmp_path, api, *arguments) == 1
        assert text in capsys.readouterr().err
        assert stored(api) == BODY["spec"]
