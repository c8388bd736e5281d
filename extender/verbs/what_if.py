"""Decides where one pod of a what-if would go, with the code that answers kube-scheduler.

kube-scheduler takes three steps, and each has its part here:

1. It filters nodes with its plugins: here node fit.
2. It requests filter for the nodes that pass: here the filter verb.
3. It chooses among the names of the answer by score: here as decisive placement chooses.

No preemption is planned: a pod that would need one is rejected.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.rejections import Reason, Rejection
from extender.rules import catalog
from extender.rules.catalog import NO_FILTERS
from extender.rules.frames import IndexFrame
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.filter import FilterVerb
from extender.verbs.request import RequestSearch, requested_nodes
from extender.verbs.select_host import select_host
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


@dataclass(frozen=True, slots=True)
class WhatIfDecision:
    """The node that the pod would go to; or the reason why there is none, as kube-scheduler writes it into a pod's condition."""

    node: str = ""
    reason: str = ""


class Placing:
    """Decides one pod after the other. Before the next pod the caller places the pod in the index and calls `placed`.

    ``version`` grows with every pod that is placed. While it is unchanged, a rejection is valid for equal pods.
    """

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self.version = 0
        self._view = view
        self._settings = settings
        self._verb = FilterVerb(view, settings, plans=False)
        self._fitting = FittingNodes(view)
        self._rejected: dict[Hashable, tuple[Hashable, WhatIfDecision]] = {}

    def decide(self, pod: Pod, seed: int) -> WhatIfDecision:
        """The decision for a pod as the watch would show it. ``seed`` chooses among equal nodes.

        O(names × clauses) like a filter request. O(1) for a pod that equals a pod rejected since the last pod was placed.
        """
        kind = self.kind(pod)
        known = self._rejected.get(kind)
        # Nothing was placed since. A rejected pod changes no count, so equal pods are rejected for the same reason.
        if known is not None and known[0] == self.version:
            return known[1]
        names = self._fitting.names(pod)
        args = ExtenderArgs(pod, names)
        result = self._verb.decide(args, seed).result if names else FilterResult(())
        if result.passed:
            return WhatIfDecision(self._choose(pod, list(result.passed), seed))
        decision = WhatIfDecision(reason=self._reason(pod, result))
        self._rejected[kind] = (self.version, decision)
        return decision

    def kind(self, pod: Pod) -> Hashable:
        """Equal for pods that every check here treats alike: what rejects one of them rejects the other."""
        own = (
            claims_own_node(pod, self._view) or pod.signature.affinity.cross_namespace
        )  # quotas read more of such a pod
        keys = tuple(rule.pod_key(pod, self._view) for rule in (*catalog.RULES, catalog.NODE_FIT))
        return (pod.signature, keys, pod.uid if own else "")

    def placed(self, nodes: Sequence[str]) -> None:
        """Call it after a pod was placed on one of these nodes: it does not claim the others any more."""
        self.version += 1
        self._fitting.note(nodes)

    def _choose(self, pod: Pod, names: list[str], seed: int) -> str:
        """The node that decisive placement would choose among these names, which all pass. O(names)."""
        if len(names) == 1:
            return names[0]
        view, effective = self._view, effective_pod(pod, self._view, self._settings)
        requested = requested_nodes(ExtenderArgs(effective, names), view)
        search = RequestSearch(view.compiled(effective.signature), NO_FILTERS, requested, view, self._settings)
        return requested.names_at(select_host(search, effective, seed % len(names), ""))[0]

    def _reason(self, pod: Pod, result: FilterResult) -> str:
        """How many nodes are rejected for which reason, in the form of kube-scheduler's FitError."""
        if result.error:
            return result.error
        total = len(self._view.known)
        counts = self._fitting.reasons(pod)
        counts += Counter({**result.failed, **result.unresolvable}.values())
        parts = sorted(f"{count} {text}" for text, count in counts.items())
        return f"0/{total} nodes are available: {', '.join(parts)}." if parts else "there is no node"


# -- the nodes that fit -----------------------------------------------------------------------------------------------

# Which nodes pass node fit for a pod, kept up to date while pods are placed.
#
# kube-scheduler requests filter for the nodes that pass its own plugins. In a what-if node fit takes the place of these plugins:
# the nodes that pass it are the names of the request. Pods that node fit treats alike share one list. Between two uses of a list
# only nodes that a pod came to or left are checked again.


@dataclass(slots=True)
class _Fitting:
    """The sorted names of the nodes that fit, and the rejections of the others. ``seen``: how many changes are applied."""

    names: list[str]
    rejections: dict[NodeNumber, Rejection] = field(default_factory=dict)
    seen: int = 0


def claims_own_node(pod: Pod, view: ClusterView) -> bool:
    """Whether the pod claims room on a node against all other pods, because it is nominated there. O(1)."""
    return bool(pod.nominated_node or view.plan_node(pod.uid))


class FittingNodes:
    """The lists, by the fields that node fit reads of a pod. The nodes must not change while they are in use."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._known: dict[Hashable, _Fitting] = {}
        self._changed: list[NodeNumber] = []

    def note(self, nodes: Iterable[str]) -> None:
        """Notes nodes to which a pod came, or on which it does not claim room any more. O(nodes)."""
        known = self._view.known
        self._changed += (known[name] for name in nodes if name in known)

    def names(self, pod: Pod) -> list[str]:
        """The names of the nodes that the pod fits on, sorted. The caller must not change the list.

        O(nodes × (taints + terms + resources)) for the first pod of a kind, then O(nodes that changed since).
        """
        return self._of(pod).names

    def reasons(self, pod: Pod) -> Counter[str]:
        """How many nodes could not take the pod, by the text of the reason. O(nodes), O(1) for a pod that names its nodes."""
        fitting = self._of(pod)
        counts = Counter(rejection.text for rejection in fitting.rejections.values())
        # Nodes that were not checked, because the pod's node affinity names other nodes.
        if others := len(self._view.known) - len(fitting.names) - len(fitting.rejections):
            counts[Reason.NODE_AFFINITY.text] += others
        return counts

    def _of(self, pod: Pod) -> _Fitting:
        own = pod.uid if claims_own_node(pod, self._view) else ""
        signature = pod.signature
        key = (signature.node_affinity, signature.tolerations, catalog.NODE_FIT.pod_key(pod, self._view), own)
        fitting, known = self._known.get(key), self._view.known
        # A pod of a DaemonSet names its node. To check all other nodes would cost O(nodes²) for all pods of the DaemonSet.
        named = signature.node_affinity.only_nodes
        allowed = None if named is None else {known[name] for name in named if name in known}
        if fitting is None:
            fitting = self._known[key] = _Fitting([])
            numbers: Iterable[NodeNumber] = known.values() if allowed is None else allowed
        else:
            numbers = set(self._changed[fitting.seen :])
            numbers = numbers if allowed is None else numbers & allowed
        fitting.seen = len(self._changed)
        self._check(pod, numbers, fitting)
        return fitting

    def _check(self, pod: Pod, numbers: Iterable[NodeNumber], fitting: _Fitting) -> None:
        compiled = self._view.compiled(pod.signature)
        fit = catalog.NODE_FIT.prepare_filter(pod, compiled, self._view, IndexFrame())
        is_first = not fitting.names and not fitting.rejections
        names = self._view.node_names
        for number in numbers:
            rejection = fit.verdict(number)
            if is_first:
                if rejection is None:
                    fitting.names.append(names[number])
            elif rejection is None and number in fitting.rejections:
                # The node fits again: a pod that was assumed there has gone elsewhere.
                insort(fitting.names, names[number])
            elif rejection is not None and number not in fitting.rejections:
                del fitting.names[bisect_left(fitting.names, names[number])]
            if rejection is None:
                fitting.rejections.pop(number, None)
            else:
                fitting.rejections[number] = rejection
        if is_first:
            fitting.names.sort()
