"""What explanations and pages of the cluster read besides the view of the verbs: whole tables, and what is behind a count.

These readers cost more than a decision may, so verbs that answer the scheduler are not given them. Explanations are made
in steps, between which the index changes. So iterators here go over a copy of a table, and skip nothing and repeat nothing
of what was there when they began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from extender.index.view import ClusterView, GroupView, NodeNumber
from extender.model.constraints.terms import AffinityTerm
from extender.model.objects import Namespace, Pod, PodSignature


class PlacedPods(NamedTuple):
    """Pods of one signature that are on nodes: whether they terminate, and how many of them are on which node."""

    signature: PodSignature
    terminating: bool
    nodes: Mapping[NodeNumber, int]

    def are(self, pod: Pod) -> bool:
        """Whether a pod on one of the nodes is one of them. O(1)."""
        return pod.signature is self.signature and pod.terminating == self.terminating


class ExplainView(ClusterView, Protocol):
    """The view of the verbs, and these readers."""

    @property
    def pods(self) -> Mapping[str, Pod]:
        """The pods that the watch shows, by UID.

        A live table: copy its values before anything is awaited. To find a pod by its name costs O(pods).
        """

    @property
    def unplaced(self) -> Mapping[str, Pod]:
        """Those of ``pods`` that the watch shows without a node: pending, gated, or assumed. A live table as well."""

    @property
    def pods_of(self) -> Mapping[PodSignature, int]:
        """How many pods each signature has, placed or not, never zero. A live table as well."""

    @property
    def nodes_version(self) -> int:
        """Grows with every change of a node."""

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        """The Namespace objects, by name.

        A live table as well. Pods may be in a namespace whose object is not known.
        """

    def placed(
        self, group: GroupView | None = None, wanted: Callable[[PodSignature], bool] | None = None
    ) -> Iterator[PlacedPods | None]:
        """The pods on nodes that a group counts, or all, by signature. O(signatures); each result O(nodes that they are on).

        ``wanted`` chooses signatures. Assumed pods are among them, on the node that they are assumed on. None comes after
        every few hundred signatures: there may be one for each pod, and a step must not look at all of them.
        """

    def term_of(self, group: GroupView) -> AffinityTerm:
        """The term of a group that counts the existing pods that carry it, one of `CompiledConstraints.inverse`. O(1)."""

    def release_compiled(self, signature: PodSignature) -> None:
        """Drops the compiled constraints of a signature that no pod has, after a trial. O(groups).

        Those of a pod that exists stay. Without this a trial would push the constraints of other pods out of the cache.
        """
