"""One test's cluster on a control plane: objects to begin with, the extender and the scheduler, and the judgement.

`open_cluster` begins with an empty one and leaves an empty one, so that tests can share a control plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import yaml

from extender.settings.configuration import Settings
from extender.simulator.json_objects import JsonObject, name_of, namespace_of
from tests.e2e.board import Board, following
from tests.e2e.client import NAMESPACES, NODES, PODS, Api, ApiFailure, connect, path_of, pod_path
from tests.e2e.control_plane import CONFIG, EXTENDER_ACCOUNT, ControlPlane, scheduler_document
from tests.e2e.judging import cycles_in, shadowing, violations
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.simulator.plain import node

_MANIFESTS = CONFIG.parent / "deploy" / "base"
_NAMESPACE = EXTENDER_ACCOUNT.split(":")[2]
_T = TypeVar("_T")
_KEPT = {"default", "kube-system", "kube-public", "kube-node-lease"}


class Cluster:
    """`api` writes objects, `board` shows the pods, `plane` has the processes; `scheduler_flags` are added to our own."""

    def __init__(
        self, plane: ControlPlane, api: Api, board: Board, folder: Path, scheduler_flags: Sequence[str] = ()
    ) -> None:
        self.scheduler_flags = scheduler_flags
        self.plane = plane
        self.api = api
        self.board = board
        self.folder = folder

    async def add_nodes(self, zones: int, per_zone: int, **more: Any) -> list[str]:
        """Nodes `z1-1`, `z1-2`, ... in zones `z1`, ...; returns their names."""
        names = [(f"z{zone}-{number}", f"z{zone}") for zone in range(1, zones + 1) for number in range(1, per_zone + 1)]
        await self.api.create(*(node(name, zone, **more) for name, zone in names))
        return [name for name, _ in names]

    @asynccontextmanager
    async def scheduled(
        self,
        mode: str = "offload",
        *,
        settings: Mapping[str, Any] | None = None,
        authority: Path | None = None,
        environment: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> AsyncIterator[Extender]:
        """kube-scheduler with our configuration of that mode, and `extender serve` for it to ask."""
        with self.extender({"mode": mode, **(settings or {})}, authority, environment) as extender:
            await eventually_ready(extender)
            document = scheduler_document(mode, extender.url, **changes)
            try:
                await asyncio.to_thread(self.plane.start_scheduler, document, *self.scheduler_flags)
                yield extender
            finally:
                self.plane.scheduler.stop()

    @contextmanager
    def extender(
        self,
        settings: Mapping[str, Any],
        authority: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Extender]:
        """`extender serve` alone."""
        with Extender(self.folder, self.plane.extender_kubeconfig, settings, authority, environment) as extender:
            yield extender

    async def restart_apiserver(self) -> None:
        """End kube-apiserver and start it again; returns when it answers."""
        await asyncio.to_thread(self.plane.apiserver.stop)
        await asyncio.to_thread(self.plane.start_apiserver)

    async def calm(self, still: float = 1.0) -> None:
        """Return once the scheduler has taken up no pod for so many seconds: a refused pod is asked about twice."""
        loop = asyncio.get_running_loop()
        cycles, since = -1, loop.time()
        async with asyncio.timeout(60):
            while loop.time() < since + still:
                if (now := len(cycles_in(self.plane.scheduler.log()))) != cycles:
                    cycles, since = now, loop.time()
                await asyncio.sleep(0.05)

    async def faults(self) -> list[str]:
        """What is wrong with the placements by the brute-force judge, and with the counts of an index by its audit."""
        broken = await violations(self.api, self.plane.scheduler.log())
        async with shadowing(self.plane.kubeconfig, Settings()) as shadow:
            return broken + await shadow.differences(self.api)


async def eventually_ready(extender: Extender) -> None:
    async with asyncio.timeout(PATIENCE * 3):
        while not await extender.is_ready():  # noqa: ASYNC110 -- there is no event across processes
            await asyncio.sleep(0.05)


@asynccontextmanager
async def open_cluster(
    plane: ControlPlane, folder: Path, scheduler_flags: Sequence[str] = ()
) -> AsyncIterator[Cluster]:
    """Connect; on leaving, remove all that a test may have made, but the kinds of objects, which take a second to be served."""
    async with connect(plane.url, plane.token, plane.authority) as api, following(api) as board:
        await permit(api)
        try:
            yield Cluster(plane, api, board, folder, scheduler_flags)
        finally:
            await _empty(api)


async def permit(api: Api) -> None:
    """Give the extender's account the permissions of our manifests, and no others."""
    for file in sorted(_MANIFESTS.glob("*.yaml")):
        for found in yaml.safe_load_all(file.read_text("utf-8")):
            if found["apiVersion"].startswith("rbac.authorization.k8s.io/"):
                await api.request("POST", path_of(placed := in_namespace(found)), placed, allow=[409])


async def served(api: Api, documents: Iterable[JsonObject]) -> list[JsonObject]:
    """The documents without admission policies where this API server serves none, before 1.30, as deploy/docs/secure.md says."""
    found = await api.request("GET", "/apis/admissionregistration.k8s.io/v1")
    kinds = {each["kind"] for each in found["resources"]}
    return [
        each for each in documents if each["kind"] in kinds or not each["kind"].startswith("ValidatingAdmissionPolicy")
    ]


def in_namespace(found: JsonObject) -> JsonObject:
    """As an overlay would: roles and subjects get the namespace that the account is in."""
    placed = deepcopy(found)
    if not placed["kind"].startswith("Cluster"):
        placed["metadata"]["namespace"] = _NAMESPACE
    for subject in placed.get("subjects", ()):
        subject["namespace"] = _NAMESPACE
    return placed


async def every_object(api: Api) -> set[tuple[str, str, str]]:
    """Resource, namespace and name of all objects but events."""
    groups = [each["preferredVersion"]["groupVersion"] for each in (await api.request("GET", "/apis"))["groups"]]
    roots = ["/api/v1", *(f"/apis/{group}" for group in groups)]
    served = await asyncio.gather(*(_unless_deleted(_resources(api, root)) for root in roots))
    resources = [resource for found in served for resource in found]
    lists = await asyncio.gather(*(_unless_deleted(_listed(api, resource)) for resource in resources))
    pairs = zip(resources, lists, strict=True)
    return {(resource, namespace_of(one), name_of(one)) for resource, found in pairs for one in found}


async def _resources(api: Api, root: str) -> list[str]:
    found = (await api.request("GET", root))["resources"]
    names = [each["name"] for each in found if "list" in each["verbs"]]
    return [f"{root}/{name}" for name in names if name not in ("events", "componentstatuses")]


async def _listed(api: Api, resource: str) -> list[JsonObject]:
    return (await api.list(resource))[0]


async def _unless_deleted(requested: Awaitable[list[_T]]) -> list[_T]:
    """Nothing where a kind is gone that was named a moment ago: a CRD is removed by and by."""
    try:
        return await requested
    except ApiFailure as error:
        if ": 404 " not in str(error):
            raise
        return []


async def _empty(api: Api) -> None:
    """Removes pods first, as no controller makes them again, and namespaces last: without a controller their objects would outlive them."""
    pods, _ = await api.list(PODS)
    await _each(api, [pod_path(pod) for pod in pods])
    nodes, _ = await api.list(NODES)
    await _each(api, [f"{NODES}/{name_of(found)}" for found in nodes])
    await _each(api, [_path(*found) for found in await every_object(api) if _is_left(*found)])
    namespaces, _ = await api.list(NAMESPACES)
    for namespace in namespaces:
        if name_of(namespace) not in _KEPT:
            await _remove_namespace(api, namespace)


def _is_left(resource: str, namespace: str, name: str) -> bool:
    """Whether a test has made it: it is in a namespace of a test, or is ours by its group or name."""
    if resource.rpartition("/")[2] in ("customresourcedefinitions", "apiservices", "namespaces"):
        return False
    return bool(namespace and namespace not in _KEPT) or "placement" in f"{resource}/{name}"


def _path(resource: str, namespace: str, name: str) -> str:
    root, _, plural = resource.rpartition("/")
    return f"{root}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{resource}/{name}"


async def _each(api: Api, paths: list[str]) -> None:
    """Delete at once, many at a time."""
    waiting = iter(paths)

    async def delete() -> None:
        for path in waiting:
            await api.delete(path, grace=0)

    await asyncio.gather(*(delete() for _ in range(min(32, len(paths)))))


async def _remove_namespace(api: Api, namespace: JsonObject) -> None:
    """A namespace goes when its finalizer does; the controller that takes it away does not run here."""
    path = f"{NAMESPACES}/{name_of(namespace)}"
    await api.delete(path)
    finished = {**namespace, "spec": {"finalizers": []}}
    finished["metadata"] = {"name": name_of(namespace)}
    await api.request("PUT", f"{path}/finalize", finished, allow=[404])
