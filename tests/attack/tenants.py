"""What one tenant may create, in numbers, and what it costs the event loop and the pods of another tenant.

One service with 5,000 nodes, the platform's shares and quotas, and many schedulers. An attack is beside requests about a pod of an
honest tenant: their 99th percentile may be twice what it is alone, or 20 ms more. Measured is the processor time of the service's loop
from a request to its answer, so that a busy machine does not count; it has the work of the attack that the request has waited for. What
is created before and removed afterwards is not counted: it comes faster than any API server lets a tenant write.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

import orjson

from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION
from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, NAMESPACES, PODS, kind_of
from extender.simulator.json_objects import JsonObject, timestamp
from tests.attack.attacks import Attacks, Target
from tests.attack.pulse import Used, within
from tests.server.raw import Wire, head_of, whole
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, node, pod, term

TENANTS = Attacks()
HOSTILE: Final = "hostile"
HONEST: Final = "honest"
PODS_PER_NAMESPACE: Final = 100
SETTINGS: Final[JsonObject] = {
    "schedulers": "many",
    "quota": {"enabled": True},
    "release": {"podsPerNamespace": PODS_PER_NAMESPACE, "sharePerNamespace": 0.25},
}
_NODES: Final = 5_000
_OTHERS: Final = 2.0  # times what a request of another tenant costs alone
_SLICES: Final = (
    0.02  # seconds of the attack's work, in slices and single calls, that a request may wait for in any case
)
_ALONE: Final = 150  # requests
_CALM_SECONDS: Final = 1.0
_PAUSE: Final = 0.1  # between two calls of a scheduler about the tenant's pods
_SECONDS: Final = 60.0
_GROUP: Final = "example.com/group"
_SIZE: Final = "example.com/size"
_INDEX: Final = "apps.kubernetes.io/pod-index"


def cluster() -> list[JsonObject]:
    """5,000 nodes in four zones, an honest pod, and an anchor on the last node."""
    nodes = [node(f"node-{at}", f"zone-{at % 4}", labels={"rack": f"rack-{at % 50}"}) for at in range(_NODES)]
    quota = {"scopes": ["CrossNamespacePodAffinity"], "hard": {"pods": "0"}}
    return [
        namespace("default"),
        namespace("kube-system"),
        namespace(HOSTILE, tenant="yes"),
        namespace(HONEST, tenant="yes"),
        *nodes,
        pod("anchor", HONEST, on=f"node-{_NODES - 1}", labels={"app": "anchor"}),
        _object("ResourceQuota", "v1", "none", HOSTILE, quota),
    ]


def _object(kind: str, version: str, name: str, where: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": name, **({"namespace": where} if where else {})}
    return {"kind": kind, "apiVersion": version, "metadata": metadata, "spec": spec}


def _policy(name: str, **spec: Any) -> JsonObject:
    release = {"topology": [ZONE], "group": {"label": _GROUP}, "size": {"label": _SIZE}} | spec.pop("release", {})
    scope = {"podSelector": {"matchLabels": {"policy": name}}, "namespaceSelector": {}, **spec}
    whole_spec = {**scope, "when": ["Release"], "release": release}
    made = _object("ClusterPodSchedulingPolicy", "placement.extender.dev/v1alpha1", name, "", whole_spec)
    made["metadata"]["generation"] = 1
    return made


def _gated(policy: str, group: str, size: int, count: int, **spec: Any) -> list[JsonObject]:
    """Pods at their gate that differ by an index, as those of an indexed Job."""
    labels = {"policy": policy, _GROUP: group, _SIZE: str(size)}
    gates = [{"name": RELEASE_GATE}]
    return [
        pod(f"{policy}-{group}-{at}", HOSTILE, labels=labels | {_INDEX: str(at)}, schedulingGates=gates, **spec)
        for at in range(count)
    ]


async def _put(target: Target, objects: Iterable[JsonObject]) -> list[JsonObject]:
    """Creates objects as they are, some hundred in one turn of the API server."""
    put = []
    for number, each in enumerate(objects):
        each["metadata"].setdefault("uid", target.api.store.new_uid())
        each["metadata"].setdefault("creationTimestamp", timestamp())
        kind = kind_of(each)
        target.api.store.put(kind, {name: value for name, value in each.items() if name not in {"kind", "apiVersion"}})
        put.append(each)
        if number % 200 == 0:
            await asyncio.sleep(0.01)
    return put


async def _remove(target: Target, objects: Iterable[JsonObject]) -> None:
    for number, each in enumerate(objects):
        kind, meta = kind_of(each), each["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        if key in target.api.store.table(kind).objects:
            target.api.store.remove(kind, key)
        if number % 200 == 0:
            await asyncio.sleep(0.01)


def _filter(found: JsonObject, nodes: Iterable[int]) -> bytes:
    return whole("POST", "/filter", orjson.dumps({"Pod": found, "NodeNames": [f"node-{at}" for at in nodes]}))


async def _answer(connection: Wire, request: bytes) -> JsonObject:
    await connection.send(request)
    if not await connection.status():
        raise ConnectionError("a request was not answered")
    answer: JsonObject = orjson.loads(connection.body)
    return answer


async def _cost(target: Target, requests: list[bytes]) -> float:
    """The mean processor time of the service in seconds while one of them is decided, with pauses as a scheduler makes them."""
    found = 0.0
    async with target.wire() as connection:
        for each in requests:
            begun = Used.of(target.process).ran
            await _answer(connection, each)
            found += Used.of(target.process).ran - begun
            await asyncio.sleep(_PAUSE)
    return found / len(requests)


async def _until(target: Target, holds: Callable[[], Awaitable[bool] | bool], seconds: float = _SECONDS) -> None:
    async with within(target.process, seconds):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.05)


async def _known(target: Target, found: JsonObject) -> None:
    """Returns when the watch has shown a pod to the service, and all that came before it."""

    async def is_known() -> bool:
        with contextlib.suppress(ConnectionError):
            async with target.wire() as connection:
                return not (await _answer(connection, _filter(found, range(2)))).get("Error")
        return False

    await _until(target, is_known)


class Beside:
    """Requests about an honest pod, alone and beside an attack."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._costs: list[float] = []
        self._counts = True

    async def play(self, attack: Callable[[Target, Beside], Awaitable[str]]) -> str:
        """What the attack tells, with what the honest pod's requests cost; "failed: …" where they cost too much."""
        (incoming,) = await _put(self._target, [_honest("asking")])
        await _known(self._target, incoming)
        await asyncio.sleep(_CALM_SECONDS)  # what an earlier attack created is gone
        request = _filter(incoming, range(100))
        await self._request(request, lambda: len(self._costs) >= _ALONE)
        alone, self._costs = _p99(self._costs), []
        playing = asyncio.ensure_future(attack(self._target, self))
        await self._request(request, lambda: playing.done() and (len(self._costs) >= _ALONE or not self._counts))
        await _remove(self._target, [incoming])
        reported, beside = await playing, _p99(self._costs)
        text = f"{reported}; p99 of others {alone * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside it"
        is_fair = beside <= max(_OTHERS * alone, alone + _SLICES)
        return text if is_fair or reported.startswith("failed") else f"failed: {text}"

    def begin(self) -> None:
        """What the attack needs is there: the requests count from now on."""
        self._costs.clear()

    def end(self) -> None:
        """They count no more: what is left is to remove it."""
        self._counts = False

    async def _request(self, request: bytes, is_enough: Callable[[], bool]) -> None:
        async with self._target.wire() as connection:
            while not is_enough():
                before = Used.of(self._target.process).ran
                await _answer(connection, request)
                if self._counts:
                    self._costs.append(Used.of(self._target.process).ran - before)
                await asyncio.sleep(0.005)


def _p99(found: list[float]) -> float:
    return sorted(found)[len(found) * 99 // 100]


def _honest(name: str, **spec: Any) -> JsonObject:
    apart = anti_affinity(term(HOSTNAME, app="honest"))
    return pod(name, HONEST, labels={"app": "honest"}, **({"affinity": apart} | spec))


def _attack(name: str) -> Callable[[Callable[[Target, Beside], Awaitable[str]]], None]:
    """Registers an attack that is played beside requests of an honest tenant."""

    def register(play: Callable[[Target, Beside], Awaitable[str]]) -> None:
        async def beside(target: Target) -> str:
            return await Beside(target).play(play)

        TENANTS.attack(name, quick=False)(beside)

    return register


@_attack("3,000 disruption budgets of 20 requirements, and 30 preemptions")
async def _(target: Target, beside: Beside) -> str:
    expressions = [{"key": f"k{at}", "operator": "NotIn", "values": ["a", "b"]} for at in range(20)]
    budgets = [
        _object("PodDisruptionBudget", "policy/v1", f"b{at}", HOSTILE, {"selector": {"matchExpressions": expressions}})
        | {"status": {"disruptionsAllowed": 1}}
        for at in range(3_000)
    ]
    victims = [pod(f"victim-{at}", HOSTILE, on=f"node-{at}", cpu="3", labels={"app": f"v{at}"}) for at in range(50)]
    preemptors = [pod(f"preemptor-{at}", HOSTILE, cpu="3", priority=1000) for at in range(30)]
    made = await _put(target, [*budgets, *victims, *preemptors])
    await _known(target, preemptors[-1])
    beside.begin()
    offered = {
        each["spec"]["nodeName"]: {"Pods": [{"UID": each["metadata"]["uid"]}], "NumPDBViolations": 0}
        for each in victims
    }
    bodies = [orjson.dumps({"Pod": each, "NodeNameToMetaVictims": offered}) for each in preemptors]
    cost = await _cost(target, [whole("POST", "/preempt", body) for body in bodies])
    beside.end()
    await _remove(target, made)
    return f"{cost * 1000:.1f} ms each"


@_attack("a group of 500 pods with an index, over 5,000 nodes")
async def _(target: Target, beside: Beside) -> str:
    made = await _put(target, [_policy("indexed"), *_gated("indexed", "g", 500, 500)])
    released = await _released(target, made[1:])
    beside.end()
    await _remove(target, made)
    return f"{released} of 500 pods were released"


async def _released(target: Target, pods: list[JsonObject], seconds: float = _SECONDS) -> int:
    """How many have lost their gate, once all have or the time is over."""
    objects = target.api.store.table(PODS).objects

    def count() -> int:
        keys = [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in pods]
        return sum(not objects[key].read()["spec"].get("schedulingGates") for key in keys if key in objects)

    with contextlib.suppress(TimeoutError):
        await _until(target, lambda: count() == len(pods), seconds)
    return count()


@_attack("a label of a namespace toggled beside 30,000 gated pods")
async def _(target: Target, beside: Beside) -> str:
    selecting = _policy("toggled", namespaceSelector={"matchLabels": {"team": "a"}})
    pods = _gated("toggled", "g", 100_000, 30_000)
    made = await _put(target, [selecting, *pods])
    (marker,) = await _put(target, [pod("after-toggled", HOSTILE)])
    await _known(target, marker)
    beside.begin()
    for turn in range(6):
        _label(target, "ab"[turn % 2])
        await asyncio.sleep(0.5)
    beside.end()
    await _remove(target, [marker, *reversed(made)])
    return "6 times"


def _label(target: Target, team: str) -> None:
    def edit(found: JsonObject) -> None:
        found["metadata"]["labels"]["team"] = team

    target.api.operations.change(NAMESPACES, HOSTILE, edit)


@_attack("38,000 host ports in one pod, and 200 in each of 300 others")
async def _(target: Target, beside: Beside) -> str:
    def with_ports(name: str, first: int, count: int, **more: Any) -> JsonObject:
        found = pod(name, HOSTILE, cpu="1m", **more)
        found["spec"]["containers"][0]["ports"] = [
            {"containerPort": 80, "hostPort": 1 + (first + at) % 65_000} for at in range(count)
        ]
        return found

    bound = [with_ports(f"ports-{at}", 200 * at, 200, on=f"node-{at}") for at in range(300)]
    incoming = [with_ports(f"asks-{at}", 7 * at, 200) for at in range(20)]
    made = await _put(target, [with_ports("all-ports", 0, 38_000, on="node-0"), *bound, *incoming])
    await _known(target, incoming[-1])
    beside.begin()
    cost = await _cost(target, [_filter(each, range(500)) for each in incoming])
    beside.end()
    await _remove(target, made)
    return f"{cost * 1000:.1f} ms each"


@_attack("groups for a scheduler that does not exist, joined by others and by forged annotations")
async def _(target: Target, beside: Beside) -> str:
    groups = [each for at in range(5) for each in _gated("absent", f"g{at}", 40, 40, cpu="1", schedulerName="absent")]
    forged = _gated("absent", "g0", 40, 300, cpu="1", schedulerName="absent")
    for number, each in enumerate(forged):
        each["metadata"]["name"] = f"forged-{number}"
        each["metadata"]["annotations"] = {RELEASED_ANNOTATION: "g0@2026-01-01T00:00:00Z"}
        if number % 2:
            del each["spec"]["schedulingGates"]
    made = await _put(target, [_policy("absent"), *groups])
    await asyncio.sleep(5)
    decided, most = _decided(target), await _slots(target)
    made += await _put(target, forged)
    for _ in range(3):
        await asyncio.sleep(1)
        most = max(most, await _slots(target))
    beside.end()
    await _remove(target, made)
    text = f"room for {most} pods at most, {decided} groups of 40 decided; release.podsPerNamespace is {PODS_PER_NAMESPACE}"
    if not most:
        return f"failed: nothing was reserved, so nothing was attacked; {text}"
    return text if most <= PODS_PER_NAMESPACE and decided * 40 <= PODS_PER_NAMESPACE else f"failed: {text}"


def _decided(target: Target) -> int:
    """How many of these groups have a domain."""
    specs = [each.read()["spec"] for each in target.api.store.table(GROUP_PLACEMENTS).latest()]
    return sum(bool(spec.get("topology")) and spec["policy"].endswith("/absent") for spec in specs)


async def _slots(target: Target) -> int:
    """For how many pods room is reserved, by the metrics."""
    async with target.wire() as connection:
        await connection.send(head_of("GET", "/metrics"))
        await connection.status()
        found = re.search(
            rb'^extender_index_entries\{[^}]*"reserved_slots"[^}]*\} ([\d.e+]+)', connection.body, re.MULTILINE
        )
    return int(float(found[1])) if found else 0


@_attack("3,000 rejected pods beside one that fits elsewhere")
async def _(target: Target, beside: Beside) -> str:
    lonely = affinity(term(HOSTNAME, app="no-such"))
    rejected = [pod(f"rejected-{at}", HOSTILE, labels={"app": f"r{at}"}, affinity=lonely) for at in range(3_000)]
    near = pod("near", HONEST, labels={"app": "near"}, affinity=affinity(term(HOSTNAME, app="anchor")))
    made = await _put(target, [*rejected, near])
    await _known(target, rejected[-1])
    beside.begin()
    loop = asyncio.get_running_loop()
    async with target.wire() as connection:
        for each in rejected:
            await _answer(connection, _filter(each, range(50)))
        begun = loop.time()
        await _answer(connection, _filter(near, range(50)))

    def nominated() -> bool:
        status = target.api.store.find(PODS, f"{HONEST}/near").read().get("status") or {}
        return bool(status.get("nominatedNodeName"))

    try:
        await _until(target, nominated, 10.0)
    except TimeoutError:
        return "failed: the pod of another tenant was not nominated within 10 s"
    seconds = loop.time() - begun
    beside.end()
    await _remove(target, made)
    return f"nominated {seconds:.2f} s after it was rejected"


@_attack("a priority class of the system and a node of its own, against a quota of 0")
async def _(target: Target, _beside: Beside) -> str:
    everywhere = anti_affinity(term(ZONE, namespaces={}, app="honest"))
    system = pod(
        "system", HOSTILE, priorityClassName="system-node-critical", priority=2_000_001_000, affinity=everywhere
    )
    placed = pod("placed", HOSTILE, on="node-0", affinity=everywhere)
    incoming = _honest("meets")
    made = await _put(target, [system, incoming])
    await _known(target, incoming)
    async with target.wire() as connection:
        answer = await _answer(connection, _filter(system, range(100)))
        made += await _put(target, [placed])
        await asyncio.sleep(0.5)
        others = await _answer(connection, _filter(incoming, range(0, 400, 4)))  # all in the zone of that node
        elsewhere = await _answer(connection, _filter(incoming, range(400)))
    await _remove(target, made)
    if answer["NodeNames"]:
        return "failed: the priority class exempts it from the quota"
    if not elsewhere["NodeNames"]:
        return "failed: its own nodeName closes every zone"
    closed = "closes its zone, as the documentation says" if not others["NodeNames"] else "closes no zone"
    return f"rejected by the quota; a nodeName {closed}, and no other"


@_attack("terminal escapes in what explain prints")
async def _(target: Target, _beside: Beside) -> str:
    said = "\x1b]0;owned\x07\x1b[2J\u202e"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    labels, lonely = {"app": "x\x1b[31m"}, affinity(term(HOSTNAME, app="x\x1b[31m"))
    found = pod("escapes", HOSTILE, labels=labels, status={"conditions": [condition]}, affinity=lonely)
    made = await _put(target, [found])
    await _known(target, found)
    arguments = ("-m", "extender", "explain", f"{HOSTILE}/escapes", "--url", target.url)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=PIPE)
    printed, problems = await process.communicate()
    await _remove(target, made)
    if not printed:
        return f"failed: nothing was printed: {problems.decode(errors='replace')[-200:]!r}"
    is_raw = any(mark in printed + problems for mark in (b"\x1b", b"\x07", "\u202e".encode()))
    return "failed: they are printed as they are" if is_raw else f"{len(printed)} bytes, each of them printable"


# Exit code 3: the file cannot be read.
_LIMITED = "import resource,subprocess,sys;r=subprocess.run(sys.argv[1:],stderr=subprocess.PIPE);print(r.returncode,resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss//1024)"


@_attack("a replay of one line of 1 GiB")
async def _(_target: Target, _beside: Beside) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        with path.open("wb") as file:
            file.truncate(2**30)  # takes no room on the disk
        arguments = ("-c", _LIMITED, sys.executable, "-m", "extender", "replay", str(path))
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=DEVNULL)
        printed, _ = await process.communicate()
    code, mebibytes = map(int, printed.split())
    text = f"ended with {code}, {mebibytes} MiB at most"
    return text if code == 3 and mebibytes < 400 else f"failed: {text}"
