"""What the admission verb reads of the index: policies, labels of namespaces, and how many nodes an affinity matches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import InvalidPolicy, Moment, Policy, Subject


class PolicyReader(Protocol):
    """The table of policies (`index/policies.py`)."""

    def select(self, subject: Subject, moment: Moment) -> list[Policy]:
        """The policies that select a subject and act at the moment, in the order in which they apply."""

    def invalid_for(self, subject: Subject) -> list[InvalidPolicy]:
        """The invalid policies that would, or may, select a subject."""

    def __iter__(self) -> Iterator[Policy]:
        """All valid policies."""


class NamespaceReader(Protocol):
    """Namespaces by name (`index/objects/namespaces.py`)."""

    def labels(self, name: str) -> Labels | None:
        """The labels of a namespace, None where its object is not known."""


class NodeReader(Protocol):
    """The nodes of the cluster."""

    def matching(self, affinity: NodeAffinity) -> int | None:
        """How many nodes an affinity matches now; None while the nodes are not known. O(nodes)."""
