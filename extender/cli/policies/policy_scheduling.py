"""What policies hold a pod to while it is scheduled, for `extender policy test`: by the code of the filter verb.

The pod is that of after admission. So what is shown is what admission does not inject: policies without `when: Admission`,
and soft spread constraints with minDomains, which no pod can carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.model.constraints.node_affinity import ANY_NODE
from extender.model.objects import Node, Pod, PodSignature
from extender.model.policies import Enforced, JsonObject
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs.admit.reviews import NodeMatch, match_nodes
from extender.verbs.effective_pod import effective

_SHOWN: Final = 5  # nodes that are preferred


@dataclass(frozen=True, slots=True)
class Held:
    """``refused``: why no node is left. ``nodes`` are None where they are not known; ``preferred`` has the sum of the weights."""

    policies: tuple[str, ...]
    directives: tuple[str, ...]
    refused: str
    nodes: NodeMatch | None
    preferred: tuple[tuple[str, int], ...]

    @property
    def has_room(self) -> bool:
        """Whether a node is left, as far as that is known."""
        return not self.refused and (self.nodes is None or bool(self.nodes.matching))

    def document(self) -> JsonObject:
        """For scripts."""
        return {
            "policies": list(self.policies),
            "directives": list(self.directives),
            "refused": self.refused,
            "matching": None if self.nodes is None else list(self.nodes.matching),
            "scores": dict(self.preferred),
        }

    def lines(self) -> Iterator[str]:
        """For people; the nodes are the caller's to print."""
        yield f"held at scheduling: {', '.join(self.directives) or 'no node'} by {', '.join(self.policies)}"
        if self.refused:
            yield f"refused at scheduling: {self.refused}"
        if self.preferred:
            found = ", ".join(f"{name} {score}" for name, score in self.preferred[:_SHOWN])
            more = f" and {len(self.preferred) - _SHOWN} more" if len(self.preferred) > _SHOWN else ""
            yield f"preferred at scheduling: {found}{more}"


def held_at_scheduling(pod: Pod, index: ClusterIndex, nodes: Iterable[Node] | None, settings: Settings) -> Held | None:
    """None where no policy holds the pod to anything. The index has the policies and the namespaces. O(nodes × terms)."""
    found = effective(pod.signature, index.view, settings).signature
    if found is None or found.enforced is None:
        return None
    enforced, known = found.enforced, None if nodes is None else list(nodes)
    policies = tuple(map(str, enforced.policies)) or ("a preference alone",)
    refused = "" if enforced.refused_for is None else enforced.refused_for.text
    matched = None if known is None else _matched(pod, enforced, known)
    passing = (
        {} if matched is None or known is None else {each.name: each for each in known if each.name in matched.matching}
    )
    scores = {name: _score(enforced, node) for name, node in passing.items()}
    preferred = sorted(((name, score) for name, score in scores.items() if score), key=lambda each: (-each[1], each[0]))
    return Held(policies, tuple(_directives(pod.signature, found, enforced)), refused, matched, tuple(preferred))


def _directives(own: PodSignature, found: PodSignature, enforced: Enforced) -> Iterator[str]:
    if enforced.nodes != ANY_NODE:
        yield "required nodes"
    if enforced.preferred:
        yield "preferred nodes"
    if found.affinity != own.affinity:
        yield "pod affinity or anti-affinity"
    if found.spread != own.spread:
        yield "topology spread"


def _matched(pod: Pod, enforced: Enforced, nodes: list[Node]) -> NodeMatch:
    """The nodes that the pod fits by itself and that the policies leave it."""
    own = match_nodes(pod, nodes)
    if enforced.refused_for is not None:
        return NodeMatch((), {enforced.refused_for.text: own.total})
    left = {each.name for each in nodes if enforced.nodes.matches(each.name, each.labels)} & {*own.matching}
    excluded = len(own.matching) - len(left)
    reasons = {**own.rejected, Reason.POLICY.text: excluded} if excluded else own.rejected
    return NodeMatch(tuple(sorted(left)), reasons)


def _score(enforced: Enforced, node: Node) -> int:
    return sum(each.weight for each in enforced.preferred if each.term.matches(node.name, node.labels))
