"""Pages of what the cluster holds, in the form in which the API encodes them, and what is asked for.

Every page is bounded. ``more`` says how many rows are left out after the last one, and ``next`` is what to give as
``after`` for them; it is empty on the last page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.model.explanations import ConstraintState, Value
from extender.model.selectors import LabelSelector

MOST_ROWS: Final = 500


@dataclass(frozen=True, slots=True)
class PageOf:
    """Which rows are wanted: of a namespace, or all where it is empty, at most ``limit`` of those after a position."""

    namespace: str = ""
    after: str = ""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class TopologyQuestion:
    """The domains of a key, or with ``domain`` the nodes of one. ``selector``: which pods of the namespace are counted."""

    key: str
    page: PageOf
    selector: LabelSelector | None = None
    domain: str | None = None


class DomainRow(Value, frozen=True):
    """The nodes of a domain together. CPU is in milli-CPU, memory in bytes; free is what no pod on the nodes requests.

    ``pods`` are those on the nodes, assumed ones included, ``matching`` those of them that are asked for.
    ``unschedulable``: how many of its nodes are cordoned.
    """

    domain: str
    nodes: int
    unschedulable: int
    pods: int
    matching: int
    allocatable_milli_cpu: int
    free_milli_cpu: int
    allocatable_memory: int
    free_memory: int


class NodeRow(Value, frozen=True):
    """One node of a domain, in the units of `DomainRow`. ``pod_names`` are the first few of the ``matching`` pods."""

    node: str
    unschedulable: bool
    pods: int
    matching: int
    allocatable_milli_cpu: int
    free_milli_cpu: int
    allocatable_memory: int
    free_memory: int
    pod_names: tuple[str, ...] = ()


class TopologyPage(Value, frozen=True):
    """The domains of a topology key in the order of their names, or the ``nodes`` of ``domain``.

    ``lacking``: how many nodes do not have the key. ``matching``: the pods that are asked for, on nodes without the key as well.
    """

    key: str
    lacking: int
    matching: int
    domain: str | None = None
    domains: tuple[DomainRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()
    more: int = 0
    next: str = ""


class WorkloadRow(Value, frozen=True):
    """Pods of one namespace with equal labels, apart from those that each revision or each pod has of its own.

    ``selector`` selects them, in kubectl's notation; it may select pods with more labels as well. ``pending`` of the
    ``pods`` have no node. ``constraints``: how many of each kind such a pod has of its own, at most. ``example_pod`` is a pending
    one, if there is any; empty where none is left.
    """

    namespace: str
    labels: Mapping[str, str]
    selector: str
    pods: int
    pending: int
    constraints: Mapping[str, int] = {}
    example_pod: str = ""


class WorkloadPage(Value, frozen=True):
    """What can be chosen, by namespace and labels."""

    workloads: tuple[WorkloadRow, ...]
    more: int = 0
    next: str = ""


class ConstraintsPage(Value, frozen=True):
    """What the hard constraints of a pod count for a further pod like it. ``node`` is empty while it has none.

    ``policies`` are those that hold such a pod to something. ``is_changed``: the cluster changed while this was computed,
    so parts may not agree.
    """

    pod: str
    node: str
    constraints: tuple[ConstraintState, ...]
    policies: tuple[str, ...] = ()
    is_changed: bool = False


class PendingRow(Value, frozen=True):
    """A pod without a node. ``state``: pending, gated, assumed, preempting (pods are deleted for it), or terminating.

    ``since``: its creation, as the API server writes it. ``rejection`` is what kube-scheduler said last, ``reasons`` the
    labels of the reasons in our last answer about it, ``error`` the error in it.
    """

    namespace: str
    pod: str
    uid: str
    state: str
    since: str
    priority: int
    rejection: str = ""
    reasons: tuple[str, ...] = ()
    error: str = ""
    nominated_node: str = ""


class PendingPage(Value, frozen=True):
    """The pods without a node, those that wait longest first."""

    pods: tuple[PendingRow, ...]
    more: int = 0
    next: str = ""
