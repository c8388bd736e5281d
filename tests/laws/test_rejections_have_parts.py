"""Law: a rejected node has parts that a recount by hand confirms, and the text in the answer is rendered from them."""

from __future__ import annotations

from typing import Final

import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.model.rejections import Code, Reason, Rejection
from extender.rules.frames import IndexFrame, RequestFrame
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
from extender.wire.objects.kinds import NODES, PODS
from tests.builders import Json, asking, node_json, pod_json, spread, taint
from tests.deciding import filter_nodes
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, built, fresh, prepared
from tests.strategies import Step, histories, pods


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
                assert found.skew == count + itself - minimum
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


@meets_its_case
@given(histories(), st.lists(pods(), min_size=3, max_size=6))
def test_the_parts_of_a_rejection_are_those_of_a_recount(history: list[Step], asking_pods: list[Json]) -> None:
    index, cluster = built(history, SYSTEM_DEFAULTS)
    state, parts = state_of(cluster), 0
    numbers = dict(sorted(index.view.known.items()))
    for pod in asking_pods:
        filters = prepared(index.view, pod, IndexFrame())
        if filters.failed is not None:
            continue
        recount = Recount(pod, state)
        for name, number in numbers.items():
            found = filters.verdict(number)
            assert (None if found is None else found.reason) is filters.reason(number)
            recount.check(found, name)
            parts += found is not None
    case(parts)


PLACED: Final = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", "n3", "n4"]), st.sampled_from(["web", "web", "db"])), min_size=6, max_size=14
)
CONSTRAINTS: Final = st.lists(
    st.builds(
        spread,
        st.sampled_from(["zone", "zone", "host"]),
        st.sampled_from([1, 1, 2]),
        min_domains=st.sampled_from([None, None, 3]),
        taints_policy=st.sampled_from([None, "Honor"]),
        app=st.just("web"),
    ),
    min_size=1,
    max_size=2,
)


@meets_its_case
@given(PLACED, CONSTRAINTS, st.sets(st.sampled_from(["n1", "n2", "n3", "n4"]), max_size=2))
def test_the_parts_of_skew_are_those_of_a_recount_where_every_domain_has_pods(
    placed: list[tuple[str, str]], constraints: list[Json], tainted: set[str]
) -> None:
    """Unlike in most histories the minimum is above zero, and some pods are on nodes that do not count."""
    cluster = Cluster()
    for number in range(1, 5):
        name = f"n{number}"
        body = node_json(name, zone=f"z{number // 2}", taints=[taint("dedicated", "yes")] if name in tainted else [])
        cluster.objects["nodes", name] = body
    for number, (on, app) in enumerate(placed):
        cluster.objects["pods", f"p{number}"] = pod_json(f"p{number}", on=on, app=app)
    index, pod, state = fresh(cluster, SYSTEM_DEFAULTS), pod_json(app="web", spreads=constraints), state_of(cluster)
    filters, recount, minima = prepared(index.view, pod, IndexFrame()), Recount(pod, state), set()
    for name, number in index.view.known.items():
        found = filters.verdict(number)
        recount.check(found, name)
        minima.add(0 if found is None else found.minimum)
    case(minima - {0})


@meets_its_case
@given(histories(), st.lists(pods(), min_size=3, max_size=6))
def test_the_text_in_the_answer_is_the_text_of_the_parts(history: list[Step], asking_pods: list[Json]) -> None:
    index, _ = built(history, SYSTEM_DEFAULTS)
    names, rejected = sorted(index.view.known), 0
    for pod in asking_pods:
        filters = prepared(index.view, pod, IndexFrame())
        result = filter_nodes(asking(pod, *names), index.view, SYSTEM_DEFAULTS, seed=1)
        found = {name: filters.verdict(index.view.known[name]) for name in names}
        if result.passed:
            assert [name for name, each in found.items() if each is None] == sorted(result.passed)
            continue
        texts = {name: each.text for name, each in found.items() if each is not None}
        if result.error:
            assert set(texts.values()) <= {result.error}
            assert filters.failed is not None
            assert filters.failed.status.code is Code.ERROR
        else:
            assert texts == dict(result.unresolvable)
            assert {each.reason for each in found.values() if each is not None} == result.reasons
            rejected += bool(texts)
    case(rejected)


@given(histories(), pods())
def test_nodes_of_the_request_itself_get_the_same_parts(history: list[Step], pod: Json) -> None:
    index, cluster = built(history)
    bodies = sorted(cluster.of("nodes"), key=name_of)
    nodes = [NODES.decode_object(orjson.dumps(body)) for body in bodies]
    known = prepared(index.view, pod, IndexFrame())
    brought = prepared(index.view, pod, RequestFrame(nodes))
    for position, body in enumerate(bodies):
        number = index.view.known[name_of(body)]
        assert brought.verdict(position) == known.verdict(number)


@meets_its_case
@given(histories(), st.lists(pods(), min_size=2, max_size=4), st.lists(pods(), min_size=2, max_size=4))
def test_undetermined_pods_count_in_the_parts_and_are_not_blamed(
    history: list[Step], assumed: list[Json], asking_pods: list[Json]
) -> None:
    index, _ = built(history, SYSTEM_DEFAULTS)
    names, uncertain = sorted(index.view.known), 0
    if len(names) < 2:  # then they are on it
        case(is_there=False)
    for number, pod in enumerate(assumed):
        body = orjson.dumps(pod | {"metadata": pod["metadata"] | {"uid": f"u{number}", "name": f"assumed-{number}"}})
        index.assume(PODS.decode_object(body), names, now=0.0)
    for pod in asking_pods:
        filters = prepared(index.view, pod, IndexFrame().worst_case(index.view))
        for node in index.view.known.values():
            found = filters.verdict(node)
            assert (None if found is None else found.reason) is filters.reason(node)
            if found is not None and found.limit is not None:
                assert found.count > found.limit
                assert len(found.blamed) <= found.count
                assert not any("assumed-" in each for each in found.blamed)
                uncertain += len(found.blamed) < min(found.count, MOST_BLAMED)
    case(uncertain)
