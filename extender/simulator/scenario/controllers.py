"""The controllers of a scenario's pods: they replace a pod that is deleted, as ReplicaSets and StatefulSets do.

A ReplicaSet creates another pod as soon as one is terminating, a StatefulSet one of the same name once the pod is gone.
Created by `scenario/simulated_cluster.py`. https://kubernetes.io/docs/concepts/workloads/controllers/
"""

import asyncio
from collections.abc import Awaitable, Callable

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.store import DELETED, Store
from extender.simulator.json_objects import JsonObject, is_terminating, name_of, uid_of
from extender.simulator.scenario.synthetic import metadata_of_replacement

Create = Callable[[JsonObject], Awaitable[object]]
_AGAIN = "-again-"


class Controllers:
    """Replaces deleted pods from `start` until `stop`."""

    def __init__(self, store: Store, create: Create) -> None:
        self._table = store.table(PODS)
        self._create = create
        self._position = 0
        self._tasks: set[asyncio.Future[object]] = set()
        self._replaced: set[str] = set()
        self._stop_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Replaces pods that are deleted from now on."""
        self._position = self._table.end
        self._stop_listening = self._table.listen(self._review)

    async def stop(self) -> None:
        """Replaces no further pods. Raises the error of a creation that failed, if there is one."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        await asyncio.gather(*self._tasks)

    def _review(self) -> None:
        changes = self._table.since(self._position) or ()
        self._position = self._table.end
        for change in changes:
            pod = change.stored.read()
            kind, uid = controller_of(pod), uid_of(pod)
            is_due = change.type == DELETED or (kind == "ReplicaSet" and is_terminating(pod))
            if kind and is_due and uid not in self._replaced:
                self._replaced.add(uid)
                self._tasks.add(asyncio.ensure_future(self._create(self._replacement(pod, kind))))

    def _replacement(self, pod: JsonObject, kind: str) -> JsonObject:
        name = name_of(pod)
        if kind == "ReplicaSet":
            name = f"{name.partition(_AGAIN)[0]}{_AGAIN}{len(self._replaced)}"
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        metadata = metadata_of_replacement(pod, name) | {"ownerReferences": pod["metadata"]["ownerReferences"]}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


def controller_of(pod: JsonObject) -> str:
    """The kind of the pod's controller; empty where it has none."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(each["kind"]) for each in owners if each.get("controller")), "")
