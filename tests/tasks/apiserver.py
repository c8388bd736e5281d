"""An apiserver of a few lines for the tests of preemption: it applies writes to its pods and shows them to an index.

Failures are queued for a verb and a pod and raised before anything happens; a hook runs at the same place, for what
another client does in that very moment. ``graceful`` pods go on terminating until the test ends them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

import msgspec

from extender.index.cluster import ClusterIndex
from extender.kube.effects import ObjectEvent, PodCondition, PodRef
from extender.kube.errors import Conflict, NotFound
from extender.kube.writer import Writer
from extender.model.objects import Object, Pod


class Apiserver(Writer):
    """The pods by namespace and name, the writes made, and what is to go wrong. Fits the writer and the reader."""

    def __init__(self, index: ClusterIndex, *objects: Object, graceful: bool = False) -> None:
        self.index = index
        self.graceful = graceful
        self.effects: list[str] = []
        self.pods: dict[tuple[str, str], Pod] = {}
        self._failures: defaultdict[tuple[str, str], deque[Exception]] = defaultdict(deque)
        self._hooks: dict[tuple[str, str], Callable[[], None]] = {}
        for each in objects:
            self.put(each)

    # -- what tests do --------------------------------------------------------------------------------------------

    def put(self, obj: Object) -> None:
        """Create or change an object, and let the watch show it."""
        if isinstance(obj, Pod):
            self.pods[obj.namespace, obj.name] = obj
        self.index.upsert(obj)

    def remove(self, name: str, namespace: str = "default") -> None:
        self.index.delete(self.pods.pop((namespace, name)))

    def fail(self, verb: str, name: str, *errors: Exception) -> None:
        """The next calls of this verb for this pod raise these, one each."""
        self._failures[verb, name].extend(errors)

    def meanwhile(self, verb: str, name: str, happens: Callable[[], None]) -> None:
        """The next call of this verb for this pod finds that this has happened just before."""
        self._hooks[verb, name] = happens

    def said(self, verb: str) -> list[str]:
        """The effects of one verb, in order."""
        return [effect for effect in self.effects if effect.startswith(verb)]

    def names(self) -> list[str]:
        """The pods that are there and not on their way out."""
        return sorted(name for (_, name), pod in self.pods.items() if not pod.terminating)

    # -- the writer -----------------------------------------------------------------------------------------------

    async def nominate(self, pod: PodRef, node: str) -> None:
        found = self._meet("nominate", pod)
        self._note(f"nominate {pod.name} {node or '-'}")
        self.put(msgspec.structs.replace(found, nominated_node=node))

    async def set_condition(self, pod: PodRef, condition: PodCondition) -> None:
        found = self._meet("condition", pod)
        self._note(f"condition {pod.name} {condition.type} {condition.reason}")
        self.put(msgspec.structs.replace(found, preempted=condition.reason == "PreemptionByScheduler"))

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        self._meet("annotate", pod)
        self._note(f"annotate {pod.name} {key}" if value else f"annotate {pod.name} {key}-")

    async def delete(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """End a pod at once, or let it terminate."""
        self._end("delete", pod, grace_seconds)

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        self._end("evict", pod, grace_seconds)

    async def bind(self, pod: PodRef, node: str) -> None:
        found = self._meet("bind", pod)
        self.put(msgspec.structs.replace(found, node=node))

    async def create_event(self, event: ObjectEvent) -> None:
        self._fail_or_change("event", event.about.reference()["name"])
        self._note(f"event {event.about.reference()['name']} {event.reason}")

    # -- the reader -----------------------------------------------------------------------------------------------

    async def uid_of(self, pod: PodRef) -> str:
        self._fail_or_change("read", pod.name)
        found = self.pods.get((pod.namespace, pod.name))
        return "" if found is None else found.uid

    async def node_of(self, pod: PodRef) -> str:
        return self._meet("read", pod).node

    # -- within ---------------------------------------------------------------------------------------------------

    def _end(self, verb: str, pod: PodRef, grace_seconds: int | None) -> None:
        assert grace_seconds is None, "the grace period is the pod's own"
        found = self._meet(verb, pod)
        self._note(f"{verb} {pod.name}")
        if self.graceful:
            self.put(msgspec.structs.replace(found, terminating=True))
        else:
            self.remove(pod.name, pod.namespace)

    def _meet(self, verb: str, pod: PodRef) -> Pod:
        """The pod that is meant, or the apiserver's error."""
        self._fail_or_change(verb, pod.name)
        found = self.pods.get((pod.namespace, pod.name))
        if found is None:
            raise NotFound(f"404 {pod.name}", status=404)
        if found.uid != pod.uid:
            raise Conflict(f"409 {pod.name}: another UID", status=409)
        return found

    def _fail_or_change(self, verb: str, name: str) -> None:
        hook = self._hooks.pop((verb, name), None)
        if hook is not None:
            hook()
        failures = self._failures[verb, name]
        if failures:
            raise failures.popleft()

    def _note(self, effect: str) -> None:
        self.effects.append(effect)
