"""A plan of a preemption, complete before any write.

Verbs make it, tasks execute it. https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.model.objects import Pod


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """The preemptor gets ``node`` once the victims are deleted.

    ``victims``: most important first, never empty; with ``preemption.crossNode`` some may be on other nodes.
    ``displaced``: pods of lower priority that are nominated to the node and lose that. ``pdb_violations``: how many
    victims are taken although a disruption budget protects them.
    """

    preemptor: Pod
    node: str
    victims: tuple[Pod, ...]
    displaced: tuple[Pod, ...] = ()
    pdb_violations: int = 0
