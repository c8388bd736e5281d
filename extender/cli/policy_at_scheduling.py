"""What policies do to a pod when it is scheduled, for `extender policy test`: their directives, and the nodes that still match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.index.cluster import ClusterIndex
from extender.model.constraints.node_affinity import ANY_NODE
from extender.model.objects import Node, Pod, PodSignature
from extender.model.policies import Enforced, JsonObject
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs.admit.reviews import NodeMatch, match_nodes
from extender.verbs.effective_pod import effective


def nodes_document(match: NodeMatch) -> JsonObject:
    """The document for scripts."""
    return {"matching": list(match.matching), "total": match.total, "rejected": dict(match.rejected)}


def held_at_scheduling(
    pod: Pod, index: ClusterIndex, nodes: Sequence[Node] | None, settings: Settings
) -> JsonObject | None:
    """The directives that hold a pod at scheduling, as the document for scripts; None without any. O(nodes × terms).

    ``refused``: why no node is left. ``scores``: the sum of the weights by node. The index has the policies and the namespaces.
    """
    signature = effective(pod.signature, index.view, settings).signature
    if signature is None or signature.enforced is None:
        return None
    enforced, matched = signature.enforced, None if nodes is None else _matched(pod, signature.enforced, nodes)
    passing = [] if matched is None else [node for node in nodes or () if node.name in matched.matching]
    scores = {node.name: score for node in passing if (score := _score(enforced, node))}
    return {
        "policies": list(map(str, enforced.every_policy)) or ["a preference alone"],
        "directives": list(_directives(pod.signature, signature, enforced)),
        "refused": "" if enforced.refused_for is None else enforced.refused_for.text,
        "scores": dict(sorted(scores.items(), key=lambda score: (-score[1], score[0]))),
        **({"matching": None} if matched is None else nodes_document(matched)),
    }


def _directives(own: PodSignature, signature: PodSignature, enforced: Enforced) -> Iterator[str]:
    if enforced.nodes != ANY_NODE:
        yield "required nodes"
    if enforced.preferred:
        yield "preferred nodes"
    if signature.affinity != own.affinity:
        yield "pod affinity or anti-affinity"
    if signature.spread != own.spread:
        rules = [
            f"{constraint.topology_key}: {', '.join(constraint.domains.texts())}"
            for constraint in signature.spread.hard
            if constraint.domains
        ]
        yield f"topology spread ({'; '.join(rules)})" if rules else "topology spread"


def _matched(pod: Pod, enforced: Enforced, nodes: Sequence[Node]) -> NodeMatch:
    """The nodes that the pod fits by itself and that the policies allow."""
    own = match_nodes(pod, nodes)
    if enforced.refused_for is not None:
        return NodeMatch((), {enforced.refused_for.text: own.total})
    left = {node.name for node in nodes if enforced.nodes.matches(node.name, node.labels)} & {*own.matching}
    excluded = len(own.matching) - len(left)
    reasons = {**own.rejected, Reason.POLICY.text: excluded} if excluded else own.rejected
    return NodeMatch(tuple(sorted(left)), reasons)


def _score(enforced: Enforced, node: Node) -> int:
    return sum(
        preference.weight for preference in enforced.preferred if preference.term.matches(node.name, node.labels)
    )
