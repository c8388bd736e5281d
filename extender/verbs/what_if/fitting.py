"""Which nodes could take a pod by themselves, kept up to date while pods are placed.

Behind a filter request stands kube-scheduler, which asks about nodes that its own filters pass. In a what-if node fit takes
their place: the nodes that it passes are the names of the request. Pods that node fit cannot tell apart share one list.
Between two uses of a list only the nodes that pods came to or left are checked again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.rejections import Rejection
from extender.rules import catalog
from extender.rules.frames import IndexFrame


@dataclass(slots=True)
class _Fitting:
    """The names of the nodes that fit, sorted, and why the others do not. ``seen``: changes of nodes that it knows of."""

    names: list[str]
    rejections: dict[NodeNumber, Rejection] = field(default_factory=dict)
    seen: int = 0


def claims_own_node(pod: Pod, view: ClusterView) -> bool:
    """Whether a node counts as taken by the pod for all others: it is nominated there. O(1)."""
    return bool(pod.nominated_node or view.plan_node(pod.uid))


class FittingNodes:
    """The lists by what node fit reads of a pod. Nodes themselves must not change any more."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._known: dict[Hashable, _Fitting] = {}
        self._changed: list[NodeNumber] = []

    def note(self, nodes: Iterable[str]) -> None:
        """Pods came to these nodes, or no longer claim them. O(nodes)."""
        known = self._view.known
        self._changed += (known[name] for name in nodes if name in known)

    def names(self, pod: Pod) -> list[str]:
        """The nodes that could take the pod, sorted by name: not to be changed.

        O(nodes × (taints + terms + resources)) for the first of its kind, then O(nodes that changed since).
        """
        return self._of(pod).names

    def reasons(self, pod: Pod) -> Counter[str]:
        """How many nodes could not take the pod, by the text of the reason. O(nodes)."""
        return Counter(each.text for each in self._of(pod).rejections.values())

    def _of(self, pod: Pod) -> _Fitting:
        own = pod.uid if claims_own_node(pod, self._view) else ""
        signature = pod.signature
        key = (signature.node_affinity, signature.tolerations, catalog.NODE_FIT.pod_key(pod, self._view), own)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Fitting([])
            numbers: Iterable[NodeNumber] = self._view.known.values()
        else:
            numbers = set(self._changed[found.seen :])
        found.seen = len(self._changed)
        self._check(pod, numbers, found)
        return found

    def _check(self, pod: Pod, numbers: Iterable[NodeNumber], found: _Fitting) -> None:
        compiled = self._view.compiled(pod.signature)
        fit = catalog.NODE_FIT.prepare_filter(pod, compiled, self._view, IndexFrame())
        is_first = not found.names and not found.rejections
        names = self._view.node_names
        for number in numbers:
            rejection = fit.rejection(number, self._view)
            if is_first:
                if rejection is None:
                    found.names.append(names[number])
            elif rejection is None and number in found.rejections:
                insort(found.names, names[number])
            elif rejection is not None and number not in found.rejections:
                del found.names[bisect_left(found.names, names[number])]
            if rejection is None:
                found.rejections.pop(number, None)
            else:
                found.rejections[number] = rejection
        if is_first:
            found.names.sort()
