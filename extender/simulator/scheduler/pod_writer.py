"""The writes of the scheduling loop over HTTP: bindings, conditions, nominations, deletions of victims.

Called by `scheduler/loop.py` and `scheduler/preemption.py`.
"""

import aiohttp
import orjson

from extender.simulator.apiserver.patching import STRATEGIC
from extender.simulator.json_objects import JsonObject, condition_of, name_of, namespace_of, timestamp, uid_of

TARGET, REASON = "DisruptionTarget", "PreemptionByScheduler"
_CREATED = 201


class PodWriter:
    """Binds pods and writes their conditions and nominations."""

    def __init__(self, session: aiohttp.ClientSession, api_url: str) -> None:
        self._session = session
        self._api_url = api_url

    async def bind(self, pod: JsonObject, node: str) -> str:
        """Posts a binding with the pod's UID. Returns the error, empty on success."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
            "target": {"kind": "Node", "name": node},
        }
        try:
            url = f"{self._url(pod)}/binding"
            headers = {"Content-Type": "application/json"}
            async with self._session.post(url, data=orjson.dumps(binding), headers=headers) as response:
                answer = await response.read()
                return "" if response.status == _CREATED else f"binding rejected: {answer.decode(errors='replace')}"
        except aiohttp.ClientError as error:
            return f"binding rejected: {error}"

    async def patch_status(self, pod: JsonObject, patch: JsonObject) -> None:
        """Patches the pod's status. Ignores failures, as the next attempt writes it again."""
        url, headers = f"{self._url(pod)}/status", {"Content-Type": STRATEGIC}
        try:
            async with self._session.patch(url, data=orjson.dumps(patch), headers=headers) as response:
                await response.read()
        except aiohttp.ClientError:
            return

    @staticmethod
    def rejection_patch(pod: JsonObject, reason: str, message: str, nomination: str | None) -> JsonObject | None:
        """The patch with condition and nomination of a rejected pod; None if the pod has them already."""
        old = condition_of(pod, "PodScheduled") or {}
        status: JsonObject = {}
        said = (old.get("status"), old.get("reason"), old.get("message"))
        if said != ("False", reason, message):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "observedGeneration": pod["metadata"].get("generation", 1),
                "lastProbeTime": None,
                "lastTransitionTime": old.get("lastTransitionTime") if said[0] == "False" else timestamp(),
                "reason": reason,
                "message": message,
            }
            status["conditions"] = [condition]
        current = (pod.get("status") or {}).get("nominatedNodeName") or ""
        if nomination is not None and nomination != current:
            status["nominatedNodeName"] = nomination or None
        if not status:
            return None
        return {"metadata": {"uid": uid_of(pod)}, "status": status}

    def _url(self, pod: JsonObject) -> str:
        return f"{self._api_url}/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"


class VictimWriter:
    """Deletes victims, and clears nominations of pods with lower priority."""

    def __init__(self, session: aiohttp.ClientSession, api_url: str) -> None:
        self._session = session
        self._api_url = api_url

    async def clear_nomination(self, pod: JsonObject) -> None:
        """Clears the nomination of a pod with lower priority."""
        await self._patch(pod, {"metadata": {"uid": uid_of(pod)}, "status": {"nominatedNodeName": None}})

    async def remove(self, pod: JsonObject) -> None:
        """Sets the condition DisruptionTarget, then deletes the pod."""
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
