"""The scheduler's client of an extender. Called by `scheduler/loop.py`.

It handles answers as kube-scheduler's client: a status other than 200 fails the pod, an unknown node name fails the call,
an answer without lists means no nodes, and failed prioritize calls are ignored.
https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/#kubescheduler-config-k8s-io-v1-Extender
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
import orjson

from extender.model.preemption import Candidate
from extender.simulator.json_objects import JsonObject
from extender.simulator.scheduler.cache import UNRESOLVABLE, UNSCHEDULABLE, CachedNode, NodeRejection
from extender.simulator.scheduler.queue import EXTENDER

_POINTS = 10  # an extender scores 0 to 10, the scheduler 0 to 100
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderEntry:
    """The `extenders` entry of KubeSchedulerConfiguration; an empty verb is not called."""

    url_prefix: str
    filter_verb: str = "filter"
    prioritize_verb: str = "prioritize"
    bind_verb: str = ""
    preempt_verb: str = ""
    weight: int = 1
    node_cache_capable: bool = True
    ignorable: bool = False
    http_timeout: float = 5.0


class ExtenderError(Exception):
    """Raised for a failed call or an invalid answer. It fails the pod unless the extender is ignorable."""


class FilterAnswer(NamedTuple):
    """The nodes that passed, in the extender's order, and the rejections in the answer."""

    passed: list[CachedNode]
    rejections: dict[str, NodeRejection]


class ExtenderClient:
    """One extender."""

    def __init__(self, entry: ExtenderEntry, session: aiohttp.ClientSession) -> None:
        self.entry = entry
        self.calls = 0
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=entry.http_timeout)

    async def filter(self, pod: JsonObject, nodes: Sequence[CachedNode]) -> FilterAnswer:
        """Calls filter with these nodes. Raises ExtenderError."""
        if not self.entry.filter_verb:
            return FilterAnswer(list(nodes), {})
        answer = _fields(await self._send(self.entry.filter_verb, self._arguments(pod, nodes)))
        if answer.get("error"):
            raise ExtenderError(answer["error"])
        rejections = {
            name: NodeRejection(EXTENDER, UNSCHEDULABLE, reason or "") for name, reason in _map(answer, "failednodes")
        }
        for name, reason in _map(answer, "failedandunresolvablenodes"):  # overrides the other map
            rejections[name] = NodeRejection(EXTENDER, UNRESOLVABLE, reason or "")
        return FilterAnswer(self._passed(answer, nodes), rejections)

    async def prioritize(self, pod: JsonObject, nodes: Sequence[CachedNode]) -> dict[str, int]:
        """The scores to add, by node; none if the call fails, which kube-scheduler ignores."""
        if not self.entry.prioritize_verb:
            return {}
        try:
            answer = await self._send(self.entry.prioritize_verb, self._arguments(pod, nodes))
            entries = [_fields(entry) for entry in answer or []]
            scale = self.entry.weight * _POINTS
            # The weight is applied here, as in kube-scheduler: an extender does not know its own.
            return {str(entry.get("host", "")): int(entry.get("score", 0)) * scale for entry in entries}
        # A failed prioritize call costs the preferences of one pod, not the pod.
        except (ExtenderError, TypeError, ValueError):
            return {}

    async def bind(self, pod: JsonObject, node: str) -> str:
        """Calls bind. Returns the error, empty on success."""
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        try:
            return str(_fields(await self._send(self.entry.bind_verb, body)).get("error") or "")
        except ExtenderError as error:
            return str(error)

    async def preempt(self, pod: JsonObject, candidates: Sequence[Candidate]) -> dict[str, tuple[list[str], int]]:
        """Calls preempt. Returns UIDs of victims and violated budgets for each remaining node. Raises ExtenderError."""
        brief = {
            candidate.node: {
                "Pods": [{"UID": victim.uid} for victim in candidate.victims],
                "NumPDBViolations": candidate.pdb_violations,
            }
            for candidate in candidates
        }
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": brief}
        answer = _fields(await self._send(self.entry.preempt_verb, body)).get("nodenametometavictims") or {}
        left = {}
        for node, victims in answer.items():
            fields = _fields(victims)
            uids = [str(_fields(victim).get("uid", "")) for victim in fields.get("pods") or []]
            left[node] = uids, int(fields.get("numpdbviolations") or 0)
        return left

    def _passed(self, answer: JsonObject, nodes: Sequence[CachedNode]) -> list[CachedNode]:
        # Names count only for an extender that gets names. Without names its whole nodes count, as in kube-scheduler.
        if self.entry.node_cache_capable and answer.get("nodenames") is not None:
            names = answer["nodenames"]
        elif answer.get("nodes") is not None:
            names = [item["metadata"]["name"] for item in answer["nodes"].get("items") or []]
        else:
            return []
        known = {state.name: state for state in nodes}
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            raise ExtenderError(
                f'extender "{self.entry.url_prefix}" claims a filtered node "{unknown}" '
                "which is not found in the input node list"
            )
        return [known[name] for name in names]

    def _arguments(self, pod: JsonObject, nodes: Sequence[CachedNode]) -> JsonObject:
        if self.entry.node_cache_capable:
            return {"Pod": pod, "Nodes": None, "NodeNames": [state.name for state in nodes]}
        items = [state.node for state in nodes]
        return {"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    async def _send(self, verb: str, body: JsonObject) -> Any:
        url = f"{self.entry.url_prefix.rstrip('/')}/{verb}"
        self.calls += 1
        try:
            async with self._session.post(
                url,
                data=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
            ) as response:
                raw = await response.read()
                if response.status != _OK:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
                return orjson.loads(raw)
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
            raise ExtenderError(f"{verb} {url}: {str(error) or type(error).__name__}") from error


def _fields(answer: Any) -> JsonObject:
    """The fields by lower-case name, as Go's decoder ignores case."""
    if not isinstance(answer, dict):
        raise ExtenderError(f"cannot decode the answer: it is a {type(answer).__name__}")
    return {name.lower(): value for name, value in answer.items()}


def _map(answer: JsonObject, name: str) -> list[tuple[str, str]]:
    return list((answer.get(name) or {}).items())
