"""How many files a reader opens to follow a filter request, and a watch event, through the service as it runs.

The service is that of `extender demo`, in front of the embedded API server, without its periodic jobs. Counted are the files
of the package whose code runs in every one of several repetitions. Only those of the simulator are left out: it plays the
cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import aiohttp
import pytest

import extender
from extender.compose.embedded import FREE_PORT
from extender.model.objects import Pod
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.builders import settings
from tests.compose.services import beside
from tests.fakes import FakeClock, every_sleep, until
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, namespace, node, pod, spread, term

PACKAGE = Path(extender.__file__).parent
NODES = [f"n{number}" for number in range(16)]
REPETITIONS = 4
WEB = {"app": "web"}
CONSTRAINED: JsonObject = {
    "affinity": anti_affinity(term(HOSTNAME, app="web")),
    "topologySpreadConstraints": [spread(ZONE, labels=WEB)],
}


@contextmanager
def walked(into: list[set[str]]) -> Iterator[None]:
    """Appends the files of the package whose functions are called, or resumed, on this thread.

    Without the gates of rules (`is_active`, `has_scores`), which are asked of rules that do not concern the pod too.
    """
    files = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name not in ("is_active", "has_scores"):
            files.add(frame.f_code.co_filename)

    earlier = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(earlier)
    ours = [Path(name).relative_to(PACKAGE) for name in files if Path(name).is_relative_to(PACKAGE)]
    into.append({path.as_posix() for path in ours if path.parts[0] != "simulator"})


def incoming(number: int, spec: JsonObject) -> JsonObject:
    """A pending pod."""
    made = pod(f"web-{number}", labels={"app": "web"}, **spec)
    made["metadata"]["uid"] = f"uid-{number}"
    return made


async def bind(http: aiohttp.ClientSession, api: ApiServer, pods: Mapping[str, Pod], uid: str, name: str) -> None:
    """Binds a pod, as the scheduler does, and returns once the index counts it."""
    body = {"metadata": {"name": pods[uid].name}, "target": {"kind": "Node", "name": name}}
    path = f"/api/v1/namespaces/default/pods/{pods[uid].name}/binding"
    async with http.post(api.url + path, json=body) as answer:
        answer.raise_for_status()
    await until(lambda: pods[uid].node)


async def walk(spec: JsonObject) -> tuple[set[str], set[str]]:
    """Places pods one after the other: the files of the filter request, and of the watch event that shows the pod bound.

    The first repetition is left out, since it also compiles and connects.
    """
    requests, events = list[set[str]](), list[set[str]]()
    nodes = [node(name, zone=f"z{int(name[1:]) % 2}") for name in NODES]
    pods = [incoming(number, spec) for number in range(REPETITIONS)]
    used = settings(server={"bindAddress": str(FREE_PORT)})
    async with beside([namespace("default"), *nodes, *pods], used, FakeClock(held=every_sleep)) as served:
        url, service, api, http = served
        for shown in pods:
            with walked(requests):
                async with http.post(f"{url}/filter", json={"Pod": shown, "NodeNames": NODES}) as answer:
                    passed = (await answer.json(content_type=None))["NodeNames"]
            with walked(events):
                await bind(http, api, service.index.pods, shown["metadata"]["uid"], passed[0])
    return set.intersection(*requests[1:]), set.intersection(*events[1:])


def floor(files: set[str], name: str) -> set[str]:
    """Those of one floor, by their paths in it."""
    return {path.removeprefix(f"{name}/") for path in files if path.startswith(f"{name}/")}


@pytest.mark.parametrize(("spec", "most"), [({}, 21), (CONSTRAINED, 27)], ids=["plain", "constrained"])
async def test_a_filter_request_and_a_watch_event_pass_few_files(spec: JsonObject, most: int) -> None:
    files, event = await walk(spec)
    assert floor(files, "tasks") == {"filter_service.py", "readiness.py", "sliced_work.py"}
    assert (floor(files, "compose"), floor(event, "compose")) == (set(), set())
    assert len(files) <= most, sorted(files)
    assert "index/cluster.py" in event
    assert len(event) <= 16, sorted(event)
