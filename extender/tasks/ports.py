"""What the tasks need from outside, as small Protocols: time, watched objects, the index, writes to the API server.

Each Protocol is declared where it is used. ``kube`` and ``index`` implement them by structure; the type checker verifies
that where ``compose`` joins the parts.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Protocol

from extender.kube.effects import Lease, PodCondition, PodEvent, PodRef
from extender.kube.reflector_status import ReflectorStatus
from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan


class Clock(Protocol):
    """Monotonic time and waiting; tasks read no other clock."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""


class EventHandler(Protocol):
    """What a reflector calls. ``replace`` and ``apply`` may wait, which delays the events of that kind and of no other."""

    def held(self, key: str) -> Object | None:
        """The object that is held under a key; equal ones of a later list are not held twice. O(1)."""

    async def replace(self, objects: Mapping[str, Object], unreadable: Collection[str] = ()) -> None:
        """Replaces all objects of the kind, by key. Objects under the keys ``unreadable`` stay as they were last read.

        Called when a list is complete, never with a part of one.
        """

    async def apply(self, changes: Sequence[tuple[Object, bool]]) -> None:
        """Applies (object, whether it was deleted), in order. After a lost connection a change may come twice."""


class Unhandled(Protocol):
    """What has arrived of a watch and was not handled."""

    def may_be_behind(self, readable: Container[int]) -> bool:
        """Whether changes may have arrived that the handler has not handled. Read for every request: O(1).

        ``readable``: the descriptors of the sockets that hold unread bytes.
        """

    async def wait_until_handled(self) -> None:
        """Waits until the handler has handled all that has arrived by now, or the watch has ended."""


class ObjectReflector(Protocol):
    """List, then watch, of one kind."""

    @property
    def name(self) -> str:
        """The kind's plural: "pods"."""

    @property
    def backlog(self) -> Unhandled:
        """What has arrived and was not handled yet."""

    @property
    def status(self) -> ReflectorStatus:
        """Its present status, for readiness checks and metrics; only the reflector writes it."""

    async def run(self, handler: EventHandler) -> None:
        """Calls ``handler`` until cancelled; each run begins with a list. Raises what the handler raises."""


class ObjectIndex(Protocol):
    """What the event handlers need of the index. Synchronous: counts are consistent after each call."""

    def upsert(self, obj: Object) -> bool:
        """Adds or updates an object; False if no field that is read has changed."""

    def delete(self, obj: Object) -> bool:
        """Deletes an object; False if it was not known."""


class ClusterWriter(Protocol):
    """Writes to pods. Each call is one request with a time limit; it raises only ``kube.errors.KubeError``."""

    async def nominate(self, pod: PodRef, node: str) -> None:
        """Sets ``status.nominatedNodeName``; an empty node clears it."""

    async def set_condition(self, pod: PodRef, condition: PodCondition) -> None:
        """Adds or replaces one condition of the pod."""

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        """Sets one annotation; None removes it."""

    async def delete(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Deletes exactly this pod."""

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Deletes the pod if its disruption budget allows."""

    async def bind(self, pod: PodRef, node: str) -> None:
        """Binds the pod to the node."""

    async def create_event(self, event: PodEvent) -> None:
        """Creates an event about the pod."""


class LeaseStore(Protocol):
    """Reads and writes the Lease."""

    async def get_lease(self, namespace: str, name: str) -> Lease:
        """The Lease as it is now."""

    async def create_lease(self, lease: Lease) -> Lease:
        """Creates it. Raises ``Conflict`` if it exists."""

    async def update_lease(self, lease: Lease) -> Lease:
        """Replaces it. Raises ``Conflict`` if another client has changed it since it was read."""


class PlanTarget(Protocol):
    """Executes the plans that the verbs make."""

    def submit(self, plan: PreemptionPlan) -> bool:
        """Accepts a plan; False where one for the same pod is being executed."""

    def requeue(self, pod: Pod, node: str) -> None:
        """Requeues a pod for which no plan was possible, after a while."""
