"""The skew of workloads whose hard spread constraints a policy directs: for metrics and their alert.

Skew as in kube-scheduler (KEP-895): the count of the fullest domain minus the global minimum. The directive may exclude domains
(unavailable or full ones), and then these do not count. Example: zone-a has 3 pods, zone-b 1: skew 2.

Filter keeps the skew within maxSkew when a pod is placed. It may be above later, after pods were deleted, nodes were lost, or an
excluded domain returned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from extender.index.counts.groups import PlacedPods
from extender.index.view import ClusterView
from extender.model.bounded import Steps, in_turns
from extender.model.constraints.labels import Labels
from extender.model.constraints.spread import revision_key
from extender.model.objects import Controller, PodSignature
from extender.rules.frames import IndexFrame
from extender.rules.topology_spread import skews
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod, enforced_directives

MOST_SHOWN: Final = 100  # workloads that get a series: in turns of namespaces, each with its greatest excess first
MOST_WORKLOADS: Final = 2000  # controllers that are examined in a round. The others count as "not_looked_at"

_LONGEST_KIND: Final = 63
_LONGEST_NAME: Final = 253
# The namespace, the controller such as "Deployment/web", and the topology key over which its pods are to be spread.
Workload: TypeAlias = tuple[str, str, str]


class Skew(NamedTuple):
    """A skew and its limit, maxSkew."""

    skew: int
    max_skew: int

    @property
    def excess(self) -> int:
        """How far it is above maxSkew; negative below."""
        return self.skew - self.max_skew


@dataclass(frozen=True, slots=True)
class SkewFigures:
    """``shown``: at most `MOST_SHOWN` workloads. ``workloads``: how many there are by state: within, above, not_looked_at."""

    shown: Mapping[Workload, Skew] = field(default_factory=dict)
    workloads: Mapping[str, int] = field(default_factory=lambda: {"within": 0, "above": 0, "not_looked_at": 0})


def skew_figures(view: ClusterView, settings: Settings) -> Steps[SkewFigures]:
    """The current figures, in steps. O(signatures with pods + controllers × (policies + constraints + distinct counts)).

    1. Where no policy directs spread the cost is O(policies).
    2. Namespaces take turns, because a tenant may have any number of controllers.
    3. A Deployment counts once, with the ReplicaSet and the constraint of the greatest excess.
    4. Pods without a ReplicaSet, StatefulSet or ReplicationController are left out.
    """
    if not any(policy.directives.spread for policy in view.policies):
        return SkewFigures()
    worst: dict[str, dict[Workload, Skew]] = {}  # by namespace, like `directed`
    seen: set[tuple[str, Controller]] = set()
    directed: dict[str, list[tuple[PlacedPods, Collection[str]]]] = {}

    def is_new(signature: PodSignature) -> bool:
        return signature.controller is not None and (signature.namespace, signature.controller) not in seen

    # The policies are looked up below and not in `is_new`: it is O(policies), so it is done once a controller, in a step of its own.
    for placed in view.placed(None, is_new):
        if placed is not None and not placed.terminating:
            signature, controller = placed.signature, placed.signature.controller
            assert controller is not None  # noqa: S101 (for the type checker: it is new)
            seen.add((signature.namespace, controller))
            keys = {directive.topology_key for directive in enforced_directives(signature, view, settings)}
            if keys:
                directed.setdefault(signature.namespace, []).append((placed, keys))
        yield
    in_turn = in_turns(directed.values())
    for placed, directed_keys in islice(in_turn, MOST_WORKLOADS):
        signature, controller = placed.signature, placed.signature.controller
        assert controller is not None  # noqa: S101 (as above)
        here = worst.setdefault(signature.namespace, {})
        for key, skew in _skews_of(placed, directed_keys, view, settings):
            workload = (signature.namespace, _name_of(controller, signature.labels), key)
            if workload not in here or skew.excess > here[workload].excess:
                here[workload] = skew
        yield
    beyond = sum(1 for _ in in_turn)
    ordered = [sorted(here.items(), key=_by_excess) for here in worst.values() if here]
    ordered.sort(key=lambda workloads: _by_excess(workloads[0]))
    total = sum(map(len, ordered))
    above = sum(skew.excess > 0 for workloads in ordered for _, skew in workloads)
    states = {"within": total - above, "above": above, "not_looked_at": beyond}
    return SkewFigures(dict(islice(in_turns(ordered), MOST_SHOWN)), states)


def _by_excess(item: tuple[Workload, Skew]) -> tuple[int, int, Workload]:
    workload, skew = item
    return -skew.excess, -skew.skew, workload


def _skews_of(
    placed: PlacedPods, keys: Collection[str], view: ClusterView, settings: Settings
) -> Sequence[tuple[str, Skew]]:
    """The topology key and the skew of each hard constraint over one of the keys."""
    there = (pod for node in placed.nodes for pod in view.pods_on(node).values())
    # Any pod of the signature will do: skew depends on the constraint and its counts, not on the pod.
    pod = next(filter(placed.are, there), None)
    if pod is None:
        return ()
    asking = effective_pod(pod, view, settings)
    measured = skews(asking, view.compiled(asking.signature), view, IndexFrame())
    return [
        (constraint.topology_key, Skew(skew, constraint.max_skew))
        for constraint, skew in measured
        if constraint.topology_key in keys
    ]


def _name_of(controller: Controller, labels: Labels) -> str:
    """The name of the workload: "Deployment/web" for its ReplicaSet "web-<hash of the template>".

    Cut at the length of a name. A tenant may write an owner reference of any length, and each scrape repeats the text.
    """
    kind, name = controller.kind, controller.name
    revision = labels.get(revision_key(kind, labels), "")
    if kind == "ReplicaSet" and revision and name.endswith(f"-{revision}"):
        # Each rollout has a ReplicaSet of its own. A metric by ReplicaSet would get a new series with each rollout.
        kind, name = "Deployment", name.removesuffix(f"-{revision}")
    return f"{kind[:_LONGEST_KIND]}/{name[:_LONGEST_NAME]}"
