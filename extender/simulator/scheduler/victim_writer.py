"""The scheduling loop's writes of a preemption, over HTTP as kube-scheduler makes them. Decides nothing.

Called by `preemption.py`. A failure is of no consequence here: the next attempt begins anew.
"""

import aiohttp
import orjson

from extender.simulator.apiserver.patching import STRATEGIC
from extender.simulator.json_objects import JsonObject, name_of, namespace_of, timestamp, uid_of

TARGET, REASON = "DisruptionTarget", "PreemptionByScheduler"


class VictimWriter:
    """Writes to pods through one API server."""

    def __init__(self, session: aiohttp.ClientSession, api_url: str) -> None:
        self._session = session
        self._api_url = api_url

    async def clear_nomination(self, pod: JsonObject) -> None:
        """Let a less important pod look elsewhere."""
        await self._patch(pod, {"metadata": {"uid": uid_of(pod)}, "status": {"nominatedNodeName": None}})

    async def remove(self, pod: JsonObject) -> None:
        """Mark the pod as a victim, then delete it."""
        condition = {"type": TARGET, "status": "True", "reason": REASON, "lastTransitionTime": timestamp()}
        await self._patch(pod, {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [condition]}})
        body = orjson.dumps({"preconditions": {"uid": uid_of(pod)}})
        try:
            async with self._session.delete(
                self._url(pod), data=body, headers={"Content-Type": "application/json"}
            ) as response:
                await response.read()
        except aiohttp.ClientError:
            return

    async def _patch(self, pod: JsonObject, patch: JsonObject) -> None:
        try:
            async with self._session.patch(
                f"{self._url(pod)}/status", data=orjson.dumps(patch), headers={"Content-Type": STRATEGIC}
            ) as response:
                await response.read()
        except aiohttp.ClientError:
            return

    def _url(self, pod: JsonObject) -> str:
        return f"{self._api_url}/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
