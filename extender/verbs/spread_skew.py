"""The skew of workloads whose hard spread constraints a policy directs: the figures of metrics, and of the alert on them.

Skew is what kube-scheduler means by it (KEP-895): the pods of the fullest domain less the global minimum, here as the directive has
it, so without domains that are excluded or full. The filter keeps it within maxSkew whenever a pod is placed; deleted pods, lost
nodes and domains that return may leave it above.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from extender.index.counts.groups import PlacedPods
from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.constraints.labels import Labels
from extender.model.constraints.spread import revision_key
from extender.model.objects import Controller, PodSignature
from extender.rules.frames import IndexFrame
from extender.rules.topology_spread import skews
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod, enforced_directives

MOST_SHOWN: Final = 100  # workloads with series of their own, those furthest above maxSkew first
MOST_WORKLOADS: Final = 2000  # controllers that are looked at in a round; the rest counts as "not_looked_at"

# The namespace, the controller such as "Deployment/web", and the topology key over which its pods are to be spread.
Workload: TypeAlias = tuple[str, str, str]


class Skew(NamedTuple):
    """The skew of pods, and what it is to be at most."""

    skew: int
    max_skew: int

    @property
    def excess(self) -> int:
        """How far it is above maxSkew; negative below."""
        return self.skew - self.max_skew


@dataclass(frozen=True, slots=True)
class SkewFigures:
    """``shown`` are at most `MOST_SHOWN`. ``workloads`` counts all by state: within, above, not_looked_at."""

    shown: Mapping[Workload, Skew] = field(default_factory=dict)
    workloads: Mapping[str, int] = field(default_factory=lambda: {"within": 0, "above": 0, "not_looked_at": 0})


def skew_figures(view: ClusterView, settings: Settings) -> Steps[SkewFigures]:
    """The figures of now, in steps. O(signatures with pods + controllers × (policies + constraints + distinct counts)).

    O(policies) where none directs spread. A Deployment counts once, with the ReplicaSet and constraint of the greatest excess. Pods
    without a ReplicaSet, StatefulSet or ReplicationController are left out.
    """
    if not any(each.directives.spread for each in view.policies):
        return SkewFigures()
    worst: dict[Workload, Skew] = {}
    seen: set[tuple[str, Controller]] = set()
    looked = beyond = 0

    def is_new(signature: PodSignature) -> bool:
        return signature.controller is not None and (signature.namespace, signature.controller) not in seen

    # Which policies select the pods is asked below, once for a controller and a step each: it is O(policies).
    for placed in view.placed(None, is_new):
        if placed is not None and not placed.terminating:
            signature, controller = placed.signature, placed.signature.controller
            assert controller is not None  # noqa: S101 (for the type checker: it is new)
            seen.add((signature.namespace, controller))
            keys = {each.topology_key for each in enforced_directives(signature, view, settings)}
            if keys and looked >= MOST_WORKLOADS:
                beyond += 1
            elif keys:
                looked += 1
                for key, found in _skews_of(placed, keys, view, settings):
                    workload = (signature.namespace, _name_of(controller, signature.labels), key)
                    if workload not in worst or found.excess > worst[workload].excess:
                        worst[workload] = found
        yield
    first = sorted(worst, key=lambda each: (-worst[each].excess, -worst[each].skew, each))[:MOST_SHOWN]
    above = sum(each.excess > 0 for each in worst.values())
    states = {"within": len(worst) - above, "above": above, "not_looked_at": beyond}
    return SkewFigures({each: worst[each] for each in first}, states)


def _skews_of(
    placed: PlacedPods, keys: Collection[str], view: ClusterView, settings: Settings
) -> Sequence[tuple[str, Skew]]:
    """The skew of each hard constraint over one of the keys, with its key."""
    there = (pod for node in placed.nodes for pod in view.pods_on(node).values())
    pod = next(filter(placed.are, there), None)
    if pod is None:
        return ()
    asking = effective_pod(pod, view, settings)
    found = skews(asking, view.compiled(asking.signature), view, IndexFrame())
    return [(each.topology_key, Skew(skew, each.max_skew)) for each, skew in found if each.topology_key in keys]


def _name_of(controller: Controller, labels: Labels) -> str:
    """A ReplicaSet of a Deployment has the hash of the Deployment's template at the end of its name."""
    revision = labels.get(revision_key(controller.kind, labels), "")
    if controller.kind == "ReplicaSet" and revision and controller.name.endswith(f"-{revision}"):
        return f"Deployment/{controller.name.removesuffix(f'-{revision}')}"
    return f"{controller.kind}/{controller.name}"
