"""The parts of a rejection, recounted by hand from plain objects."""

from __future__ import annotations

from extender.model.rejections import Reason, Rejection
from extender.rules.rule import MOST_BLAMED
from extender.simulator.json_objects import is_finished, is_terminating, name_of, namespace_of, selects
from extender.simulator.oracle import brute_force
from extender.simulator.oracle.brute_force import (
    ANTI_AFFINITY,
    ClusterState,
    ExistingPod,
    RequiredTerm,
    are_parsable,
    effective_selector,
    is_empty,
    required_pod_terms,
)
from tests.builders import Json
from tests.laws.observing import Cluster


def state_of(cluster: Cluster) -> ClusterState:
    """The cluster as the oracle reads it."""
    state = ClusterState(cluster.of("nodes"), cluster.of("namespaces"))
    for number, pod in enumerate(cluster.of("pods")):
        if pod["spec"].get("nodeName") and not is_finished(pod):
            state.place(str(number), pod, pod["spec"]["nodeName"])
    return state


def meaning(term: RequiredTerm) -> str:
    """Equal for terms that select the same pods by the same words, whichever pod carries them."""
    names = sorted(set(term.names)) or ([] if term.namespaces is not None else [term.owner_namespace])
    return f"{term.selector.raw} {names} {term.namespaces}"


class Recount:
    """What rejects a pod on a node, counted pod by pod over plain objects."""

    def __init__(self, pod: Json, state: ClusterState) -> None:
        self.pod = pod
        self.state = state
        self.spread = brute_force.OracleTopologySpread(pod, state)
        self.affinity = brute_force.OracleInterPodAffinity(pod, state)

    def check(self, found: Rejection | None, node: str) -> None:
        """Fails unless these are the parts of the pod's rejection on the node, or it passes and has none."""
        status = brute_force.check(self.pod, node, self.state)
        assert (found is None) == (status == brute_force.SUCCESS)
        if found is None:
            return
        assert (found.reason.code, found.text) == status
        match found.reason:
            case Reason.SPREAD_LABEL_MISSING:
                assert found == Rejection("PodTopologySpread", found.reason, topology_key=self._missing_label(node))
            case Reason.SPREAD_SKEW:
                self._check_skew(found, node)
            case Reason.AFFINITY:
                key = self._unmatched_key(node)
                domain = self.state.domain(node, key)
                assert found == Rejection("InterPodAffinity", found.reason, topology_key=key, domain=domain)
            case Reason.ANTI_AFFINITY:
                key, here = next(
                    (each.key, pods) for each in self.affinity.anti_affinity_terms if (pods := self._own(each, node))
                )
                assert self._are_pods(found, node, key, here)
            case Reason.EXISTING_ANTI_AFFINITY:
                key = found.topology_key
                assert any(self._are_pods(found, node, key, here) for here in self._carried(key, node))
            case _:
                raise AssertionError(found)

    def _missing_label(self, node: str) -> str:
        keys: list[str] = [constraint["topologyKey"] for constraint in self.spread.constraints]
        return next(key for key in keys if self.state.domain(node, key) is None)

    def _check_skew(self, found: Rejection, node: str) -> None:
        for constraint, counts in zip(self.spread.constraints, self.spread.counts, strict=True):
            key = constraint["topologyKey"]
            domain = self.state.domain(node, key) or ""
            minimum = min(counts.values(), default=0) if len(counts) >= (constraint.get("minDomains") or 1) else 0
            selector = effective_selector(constraint, self.pod)
            itself = int(selects(selector, self.pod["metadata"].get("labels") or {}))
            count, most = counts.get(domain, 0), constraint["maxSkew"]
            if count + itself - minimum > most:
                assert (found.topology_key, found.domain, found.count) == (key, domain, count)
                assert (found.minimum, found.max_skew, found.limit) == (minimum, most, most + minimum - itself)
                here = [] if is_empty(selector) else self._counted(constraint, domain)
                assert blames(found, here)
                return
        raise AssertionError(found)

    def _counted(self, constraint: Json, domain: str) -> list[ExistingPod]:
        takes_part, selector = self.spread._eligibility(constraint), effective_selector(constraint, self.pod)
        return [
            placed
            for placed in self.state.pods(namespace_of(self.pod))
            if takes_part(placed.node)
            and self.state.domain(placed.node, constraint["topologyKey"]) == domain
            and not is_terminating(placed.pod)
            and selects(selector, placed.pod["metadata"].get("labels") or {})
        ]

    def _unmatched_key(self, node: str) -> str:
        is_first = not self.affinity.matched and self.affinity.selects_itself
        for term in self.affinity.affinity_terms:
            domain = self.state.domain(node, term.key)
            if domain is None or (not is_first and (term.key, domain) not in self.affinity.matched):
                return term.key
        raise AssertionError(node)

    def _own(self, term: RequiredTerm, node: str) -> list[ExistingPod]:
        """The existing pods in the node's domain that a term of the incoming pod selects."""
        domain = self.state.domain(node, term.key)
        return [
            placed
            for placed in self.affinity.selected(term)
            if domain is not None and self.state.domain(placed.node, term.key) == domain
        ]

    def _carried(self, key: str, node: str) -> list[list[ExistingPod]]:
        """By term over the key that selects the incoming pod, the pods in the node's domain that carry it."""
        by_term: dict[str, list[ExistingPod]] = {}
        for placed in self.state.pods():
            terms = [
                RequiredTerm(raw, namespace_of(placed.pod)) for raw in required_pod_terms(placed.pod, ANTI_AFFINITY)
            ]
            if not are_parsable(placed.pod, required_of=ANTI_AFFINITY):
                continue
            there = self.state.domain(placed.node, key)
            if there == self.state.domain(node, key):
                selecting = [each for each in terms if each.key == key]
                selecting = [each for each in selecting if each.selects_for_existing(self.pod, self.state.namespaces)]
                for each in selecting:  # a pod that carries a term twice counts twice
                    by_term.setdefault(meaning(each), []).append(placed)
        return list(by_term.values())

    def _are_pods(self, found: Rejection, node: str, key: str, here: list[ExistingPod]) -> bool:
        where = (found.topology_key, found.domain, found.limit) == (key, self.state.domain(node, key), 0)
        return where and found.count == len(here) and blames(found, here)


def blames(found: Rejection, here: list[ExistingPod]) -> bool:
    """Whether the rejection names as many of these pods as it may."""
    names = {f"{namespace_of(each.pod)}/{name_of(each.pod)}" for each in here}
    return set(found.blamed) <= names and len(set(found.blamed)) == len(found.blamed) == min(len(names), MOST_BLAMED)
