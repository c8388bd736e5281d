"""The skew of workloads whose hard spread constraints a policy directs: the figures of metrics, and of the alert on them.

Skew is what kube-scheduler means by it (KEP-895): the pods of the fullest domain less the global minimum, here as the directive has
it, so without domains that are excluded or full. The filter keeps it within maxSkew whenever a pod is placed; deleted pods, lost
nodes and domains that return may leave it above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from extender.index.counts.groups import PlacedPods
from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.constraints.spread import revision_key
from extender.model.objects import PodSignature
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
    """The figures of now, in steps. O(signatures with pods on nodes + controllers × (constraints + distinct counts)).

    O(policies) where none directs spread. A Deployment counts once, with the ReplicaSet and constraint of the greatest excess. Pods
    without a ReplicaSet, StatefulSet or ReplicationController are left out.
    """
    if not any(each.directives.spread for each in view.policies):
        return SkewFigures()
    directed: dict[PodSignature, frozenset[str]] = {}

    def is_directed(signature: PodSignature) -> bool:
        if signature.controller is None:
            return False
        found = frozenset(each.topology_key for each in enforced_directives(signature, view, settings))
        directed[signature] = found
        return bool(found)

    worst: dict[Workload, Skew] = {}
    looked: set[tuple[str, str, str]] = set()
    beyond: set[tuple[str, str, str]] = set()
    for placed in view.placed(None, is_directed):
        if placed is not None and not placed.terminating:
            signature = placed.signature
            assert signature.controller is not None  # noqa: S101 (for the type checker: it is directed)
            controller = (signature.namespace, signature.controller.kind, signature.controller.name)
            if controller in looked:
                continue
            if len(looked) >= MOST_WORKLOADS:
                beyond.add(controller)
                continue
            looked.add(controller)
            for key, found in _skews_of(placed, directed[signature], view, settings):
                workload = (signature.namespace, _name_of(signature), key)
                if workload not in worst or found.excess > worst[workload].excess:
                    worst[workload] = found
        yield
    first = sorted(worst, key=lambda each: (-worst[each].excess, -worst[each].skew, each))[:MOST_SHOWN]
    above = sum(each.excess > 0 for each in worst.values())
    states = {"within": len(worst) - above, "above": above, "not_looked_at": len(beyond)}
    return SkewFigures({each: worst[each] for each in first}, states)


def _skews_of(
    placed: PlacedPods, keys: frozenset[str], view: ClusterView, settings: Settings
) -> Sequence[tuple[str, Skew]]:
    """The skew of each hard constraint over one of the keys, with its key."""
    there = (pod for node in placed.nodes for pod in view.pods_on(node).values())
    pod = next(filter(placed.are, there), None)
    if pod is None:
        return ()
    asking = effective_pod(pod, view, settings)
    found = skews(asking, view.compiled(asking.signature), view, IndexFrame())
    return [(each.topology_key, Skew(skew, each.max_skew)) for each, skew in found if each.topology_key in keys]


def _name_of(signature: PodSignature) -> str:
    """A ReplicaSet of a Deployment has the hash of the Deployment's template at the end of its name."""
    controller = signature.controller
    assert controller is not None  # noqa: S101 (for the type checker)
    revision = signature.labels.get(revision_key(controller.kind, signature.labels), "")
    if controller.kind == "ReplicaSet" and revision and controller.name.endswith(f"-{revision}"):
        return f"Deployment/{controller.name.removesuffix(f'-{revision}')}"
    return f"{controller.kind}/{controller.name}"
