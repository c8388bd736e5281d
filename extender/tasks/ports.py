"""What the loops need from outside, as small Protocols: time, objects coming in, the index, effects going out.

Interfaces stand where they are consumed. ``kube`` and ``index`` fit them by shape; the type checker sees that where
``cli`` joins the parts. Nothing is implemented here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from extender.kube.effects import PodCondition, PodEvent, PodRef
from extender.kube.leases import Lease
from extender.kube.reflector_status import ReflectorStatus
from extender.model.objects import Object, Pod
from extender.model.plans import PreemptionPlan


class Clock(Protocol):
    """Monotonic time and waiting; the loops read no other clock."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


class FeedSink(Protocol):
    """What a feed tells. Both methods may wait, which holds back the stream of that kind and of no other."""

    async def replace(self, objects: Sequence[Object], unreadable: Collection[str] = ()) -> None:
        """These are all objects of the kind now, and those of these keys, which stay as they were last read.

        Called when a list is complete, never with a part of one.
        """

    async def apply(self, changes: Sequence[tuple[Object, bool]]) -> None:
        """(object, whether it is gone), in order. The same change may come twice, after a cut."""


class ObjectFeed(Protocol):
    """List, then watch, of one kind."""

    @property
    def name(self) -> str:
        """The kind's plural: "pods"."""

    @property
    def last_heard(self) -> float:
        """Monotonic seconds at which what the sink has taken last was the truth; 0.0 before the first list."""

    @property
    def is_behind(self) -> bool:
        """Whether more has arrived than the sink has taken. Asked for every question: O(1)."""

    async def caught_up(self) -> None:
        """Wait until the sink has taken all that has arrived by now, or the stream that brought it is over."""

    @property
    def outage(self) -> str:
        """Why it is known that changes are missed now; empty where that is not known."""

    def status(self) -> ReflectorStatus:
        """Where it stands, for people and metrics."""

    async def run(self, sink: FeedSink) -> None:
        """Tell ``sink`` of everything until cancelled; a new run begins with a new list. Raises what the sink raises."""


class IndexSink(Protocol):
    """What feeding needs of the index. Synchronous: each call is one step from a true state to a true state."""

    def upsert(self, obj: Object) -> bool:
        """Take in a new or changed object; False if nothing that is read has changed."""

    def delete(self, obj: Object) -> bool:
        """Forget an object; False if it was not known."""


class ClusterWriter(Protocol):
    """The effects on pods. Each call is one request under a time limit; what it raises is ``kube.errors.KubeError``."""

    async def nominate(self, pod: PodRef, node: str) -> None:
        """Set ``status.nominatedNodeName``; empty takes it back."""

    async def set_condition(self, pod: PodRef, condition: PodCondition) -> None:
        """Add or replace one condition of the pod."""

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        """Set or remove one annotation."""

    async def delete(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Delete exactly this pod."""

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Delete it if its disruption budget allows."""

    async def bind(self, pod: PodRef, node: str) -> None:
        """Place the pod."""

    async def create_event(self, event: PodEvent) -> None:
        """Record an event at the pod."""


class LeaseStore(Protocol):
    """Where leadership is recorded."""

    async def get_lease(self, namespace: str, name: str) -> Lease:
        """The record as it is now."""

    async def create_lease(self, lease: Lease) -> Lease:
        """Make it."""

    async def update_lease(self, lease: Lease) -> Lease:
        """Replace it, if nobody was faster."""


class PlanTarget(Protocol):
    """What carries out the plans that the verbs make."""

    def submit(self, plan: PreemptionPlan) -> bool:
        """Accepts a plan; False where one for the same pod is being carried out."""

    def requeue(self, pod: Pod, node: str) -> None:
        """Nothing could be planned for the pod: the scheduler is to try it again after a while."""
