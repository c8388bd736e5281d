"""What readers see of the tables that have a version and subscribers of their own. Part of `view`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from extender.model.objects import Effective, Node, Pod, PodSignature
from extender.model.policies import InvalidPolicy, Moment, Policy, PolicyKey, Subject
from extender.model.resources import Resources

T_co = TypeVar("T_co", covariant=True)


class ByNumber(Protocol[T_co]):
    """A value for each node number."""

    def __getitem__(self, node: int, /) -> T_co:
        """The value of a node. O(1)."""


class NodeMatchesView(Protocol):
    """The nodes that meet some requirements about nodes, kept while nodes change."""

    def among(self, nodes: Sequence[int]) -> ByNumber[int]:
        """Not 0 for those of the nodes that meet them. O(nodes), and O(requirements) for each that was not matched yet."""

    def admits(self, node: Node) -> bool:
        """Whether a node, also one that the index does not know, meets them. O(requirements)."""


class Expected(NamedTuple):
    """Pods whose node is not known yet, by domain of a group: those that are sure to come there, and those that may.

    A pod is sure to come to a domain if all nodes that it may be on are there.
    """

    sure: Mapping[int, int]
    possible: Mapping[int, int]


class Subscribable(Protocol):
    """A source of changes, for subscribers that need not know what has changed."""

    def subscribe(self, callback: Callable[[object], None]) -> None:
        """Calls it after each change from now on."""

    def unsubscribe(self, callback: Callable[[object], None]) -> None:
        """Ends a `subscribe`."""


class PoliciesView(Protocol):
    """The scheduling policies."""

    def __len__(self) -> int:
        """How many valid policies there are."""

    def __iter__(self) -> Iterator[Policy]:
        """The valid policies. A live table: copy it before anything is awaited."""

    def get(self, key: PolicyKey) -> Policy | None:
        """A valid policy, None where there is none of that key."""

    def invalid(self) -> list[InvalidPolicy]:
        """All invalid policies."""

    def candidates(self, subject: Subject) -> Iterator[Policy]:
        """The policies that may select a subject, each once: a superset of those that do. O(labels + results)."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no policy, valid or not."""

    @property
    def version(self) -> int:
        """Grows with every change."""

    @property
    def changes(self) -> Subscribable:
        """Changes of policies."""

    @property
    def about_placed_pods(self) -> int:
        """How many policies say how pods count against others once they are on a node."""

    @property
    def recounted(self) -> Subscribable:
        """Told when the counts of existing pods are up to date with the policies again."""

    @property
    def effective(self) -> Mapping[PodSignature, Effective]:
        """What has been made of signatures; emptied by a change of any policy, and an entry is lost with its signature."""

    def keep(self, signature: PodSignature, found: Effective) -> None:
        """Adds to ``effective``, and releases what is compiled for others that earlier policies had made."""

    def select(self, subject: Subject, moment: Moment) -> list[Policy]:
        """The policies that select a subject and act at the moment, in the order in which they apply."""

    def invalid_for(self, subject: Subject) -> list[InvalidPolicy]:
        """The invalid policies that would, or may, select a subject. O(invalid policies)."""


class ReservedView(Protocol):
    """Room that is reserved for the pods of decided groups, a slot for each pod."""

    @property
    def by_node(self) -> Mapping[str, Mapping[str, Pod]]:
        """The pods that have a slot, by node name and UID; no empty entry. They may be assumed on the node already."""

    @property
    def totals(self) -> Mapping[str, Resources]:
        """What all slots on a node take together, by node name; ``pods`` is how many there are."""

    @property
    def version(self) -> int:
        """Grows with every change of the room that is free beside the slots on a node that has any. O(1)."""

    @property
    def changes(self) -> Subscribable:
        """Room that was freed without its pod being bound there."""

    def node_of(self, uid: str) -> str:
        """The node of a pod's slot, empty where it has none. O(1)."""

    def room_of(self, namespace: str) -> Resources:
        """What is reserved for the pods of a namespace together; ``pods`` is how many there are. O(1)."""


class RoomView(Protocol):
    """What is free on each node of the index, by node number. The numbers of nodes that do not exist mean nothing."""

    @property
    def slots(self) -> Sequence[int]:
        """How many more pods each node may run; negative where it runs too many."""

    @property
    def free(self) -> Mapping[str, Sequence[int]]:
        """What is left of CPU, memory and ephemeral storage, by resource and node; negative where it is overcommitted."""

    @property
    def claims(self) -> Mapping[str, Mapping[str, Pod]]:
        """The assumed pods that may be on a node and count on none, by node name and UID; counted in ``slots`` and ``free``."""

    @property
    def version(self) -> int:
        """Grows whenever room may have become free."""


class SharesView(Protocol):
    """What is requested of each node, by node number, as `RequestedShares` counts it. A position of a request may stand for it."""

    @property
    def cpu(self) -> ByNumber[int]:
        """Milli-CPU that pods request."""

    @property
    def memory(self) -> ByNumber[int]:
        """Bytes of memory that pods request."""

    @property
    def per_cpu(self) -> ByNumber[float]:
        """The share of the node that one milli-CPU is; 0 where it offers none."""

    @property
    def per_memory(self) -> ByNumber[float]:
        """The share of the node that one byte of memory is; 0 where it offers none."""

    @property
    def larger(self) -> ByNumber[float]:
        """The larger of the two requested shares."""
