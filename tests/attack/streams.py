"""What a tenant's pod, or a broken API server, puts into the streams that the service reads."""

import asyncio

import orjson

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.json_objects import JsonObject
from tests.attack.attacks import ATTACKS, Target
from tests.server.raw import whole
from tests.simulator.plain import pod

PATIENCE = 10.0
DEPTH = 200  # as deep as the embedded API server writes


async def _seen_after(target: Target, name: str) -> str:
    """Whether the service still learns of a pod that is bound from now on: it is counted on its node."""
    _create(target, pod(name, on="node-a", labels={"app": name}))
    apart = pod(f"{name}-2", labels={"app": name}, affinity=_apart(name))
    apart = _create(target, apart)  # with the UID by which the watch knows it
    body = orjson.dumps({"Pod": apart, "NodeNames": ["node-a"]})
    async with asyncio.timeout(PATIENCE), target.wire() as connection:
        while True:
            await connection.send(whole("POST", "/filter", body))
            await connection.status()
            answer = orjson.loads(connection.body)
            if not answer["NodeNames"] and not answer["Error"]:
                return "pods are still seen"
            await asyncio.sleep(0.1)


def _create(target: Target, found: JsonObject) -> JsonObject:
    return target.api.operations.create(PODS, found).read()


def _apart(app: str) -> dict[str, object]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@ATTACKS.attack("a pod with managed fields 200 deep")
async def _(target: Target) -> str:
    deep: object = {}
    for _ in range(DEPTH):
        deep = {"f:a": deep}
    found = pod("deep")
    found["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": deep}]
    _create(target, found)
    return await _seen_after(target, "after-deep")


@ATTACKS.attack("a pod with 1 MiB of annotations")
async def _(target: Target) -> str:
    found = pod("large")
    found["metadata"]["annotations"] = {"a": "\u2028" * 2**18}
    _create(target, found)
    return await _seen_after(target, "after-large")
