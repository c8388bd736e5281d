"""Pages of the cluster agree with a recount from the objects alone, after any history, and leave nothing in the index."""

from __future__ import annotations

from collections import Counter
from typing import Final

from hypothesis import given
from msgspec import structs

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.answers.pages import PageOf, PendingQuestion, TopologyQuestion
from extender.verbs.browse.pending import pending_page
from extender.verbs.browse.pods import constraints_page, count_states, workload_of, workload_page
from extender.verbs.browse.topology import topology_keys, topology_page
from extender.wire.objects.constraints import parse_selector_text
from tests.builders import KEYS
from tests.explaining import explained, finished
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster
from tests.laws.sized_clusters import clusters, counts_for, name_of, rows_by_hand, running, selector_of
from tests.strategies import NAMESPACE_NAMES, one_of

_LABELS: Final = one_of([None, {}, {"app": "web"}, {"app": "db"}])
_KEY_NAMES: Final = one_of([*KEYS.values(), "rack", "slots", "never"])


@given(clusters(), _KEY_NAMES, one_of(["", *NAMESPACE_NAMES]), _LABELS)
def test_domains_and_their_nodes_show_what_a_recount_finds(
    made: tuple[ClusterIndex, Cluster], key: str, namespace: str, labels: dict[str, str] | None
) -> None:
    index, cluster = made
    before = index.statistics()
    question = TopologyQuestion(key, PageOf(namespace), selector_of(labels))
    page = finished(topology_page(question, index.view))
    shown = {
        row.domain: (row.nodes, row.unschedulable, row.pods, row.matching, row.free_milli_cpu, row.free_memory)
        for row in page.domains
    }
    wanted = rows_by_hand(cluster, key, namespace, labels)
    assert shown == wanted
    assert [row.domain for row in page.domains] == sorted(wanted)
    assert page.lacking == sum(key not in node["metadata"]["labels"] for node in cluster.of("nodes"))
    for domain in wanted:
        inside = TopologyQuestion(key, PageOf(namespace), selector_of(labels), domain)
        nodes = finished(topology_page(inside, index.view)).nodes
        assert [each.node for each in nodes] == sorted(
            node["metadata"]["name"] for node in cluster.of("nodes") if node["metadata"]["labels"].get(key) == domain
        )
        for node in nodes:
            matching = [
                name_of(pod)
                for pod in running(cluster)
                if pod["spec"].get("nodeName") == node.node and counts_for(pod, namespace, labels)
            ]
            assert (node.matching, list(node.pod_names)) == (len(matching), sorted(matching))
    assert index.statistics() == before, "a key that is asked for must not be kept"


@given(clusters())
def test_topology_keys_are_those_of_the_nodes(made: tuple[ClusterIndex, Cluster]) -> None:
    index, cluster = made
    keys, more = finished(topology_keys(index.view))
    carried = Counter(key for node in cluster.of("nodes") for key in node["metadata"]["labels"])
    values = {(key, value) for node in cluster.of("nodes") for key, value in node["metadata"]["labels"].items()}
    assert {each.key: each.nodes for each in keys} == carried
    assert {each.key: each.domains for each in keys} == Counter(key for key, _ in values)
    assert more == 0


@given(clusters(), one_of(["", *NAMESPACE_NAMES]), one_of([1, 500]))
def test_workloads_show_each_pod_once(made: tuple[ClusterIndex, Cluster], namespace: str, limit: int) -> None:
    index, cluster = made
    mine = [pod for pod in running(cluster) if counts_for(pod, namespace, None)]
    wanted: dict[tuple[str, str], tuple[int, int]] = {}
    for pod in mine:
        labels = ",".join(f"{key}={value}" for key, value in sorted(pod["metadata"].get("labels", {}).items()))
        pods, pending = wanted.get((pod["metadata"]["namespace"], labels), (0, 0))
        wanted[pod["metadata"]["namespace"], labels] = pods + 1, pending + (not pod["spec"].get("nodeName"))
    shown: dict[tuple[str, str], tuple[int, int]] = {}
    after = ""
    while True:
        page = finished(workload_page(PageOf(namespace, after, limit), index.view))
        for row in page.workloads:
            labels = ",".join(f"{key}={value}" for key, value in sorted(row.labels.items()))
            assert (row.namespace, labels) not in shown
            shown[row.namespace, labels] = row.pods, row.pending
            (example,) = [pod for pod in mine if name_of(pod) == f"{row.namespace}/{row.example_pod}"]
            assert example["metadata"].get("labels", {}) == row.labels
            assert not row.pending or not example["spec"].get("nodeName")
            assert parse_selector_text(row.selector, "selector").matches(row.labels)
        after = page.next
        if not after:
            break
    assert shown == wanted


@given(clusters())
def test_constraints_are_those_of_an_explanation_of_a_further_pod(made: tuple[ClusterIndex, Cluster]) -> None:
    index, _ = made
    for pod in list(index.pods.values()):
        page = finished(constraints_page(pod, index.view, SYSTEM_DEFAULTS))
        another = structs.replace(pod, node="", uid="another")
        assert page.constraints == explained(index, another, SYSTEM_DEFAULTS).constraints
        assert (page.node, page.is_changed) == (pod.node, False)
    assert audit(index) == []


@given(clusters(), one_of(["", *NAMESPACE_NAMES]))
def test_rows_of_pods_that_are_alike_count_each_pod_once_and_show_the_oldest(
    made: tuple[ClusterIndex, Cluster], namespace: str
) -> None:
    index, _ = made
    single = finished(pending_page(PendingQuestion(namespace, limit=500), index.view, (), lambda _pod: ""))
    asked = PendingQuestion(namespace, limit=500, is_grouped=True)
    grouped = finished(pending_page(asked, index.view, (), lambda _pod: ""))
    assert grouped.reasons == single.reasons == Counter(row.reason for row in single.pods)
    waiting = {pod.uid: pod for pod in index.unplaced.values()}
    kinds: dict[object, list[str]] = {}
    for row in single.pods:
        labels, workload = workload_of(waiting[row.uid].signature)
        kinds.setdefault((workload if labels else row.uid, row.reason), []).append(row.uid)
    assert [(row.uid, row.alike) for row in grouped.pods] == [(uids[0], len(uids)) for uids in kinds.values()]
    for reason, number in single.reasons.items():
        page = finished(pending_page(PendingQuestion(namespace, reason=reason), index.view, (), lambda _pod: ""))
        assert [row.uid for row in page.pods] == [row.uid for row in single.pods if row.reason == reason]
        assert len(page.pods) == number


@given(clusters(), one_of(["", *NAMESPACE_NAMES]), one_of([1, 2, 500]))
def test_pods_without_a_node_are_shown_once_in_the_order_of_their_creation(
    made: tuple[ClusterIndex, Cluster], namespace: str, limit: int
) -> None:
    index, cluster = made
    waiting = [pod for pod in running(cluster) if not pod["spec"].get("nodeName") and counts_for(pod, namespace, None)]
    shown: list[tuple[str, str]] = []
    after, left = "", len(waiting)
    while True:
        page = finished(pending_page(PendingQuestion(namespace, after, limit), index.view, (), lambda _pod: ""))
        shown += [(row.since, f"{row.namespace}/{row.pod}") for row in page.pods]
        left -= len(page.pods)
        assert page.more == left
        after = page.next
        if not after:
            break
    assert shown == sorted((pod["metadata"]["creationTimestamp"], name_of(pod)) for pod in waiting)
    states = finished(count_states(index.view, ()))
    if not namespace:
        terminating = sum("deletionTimestamp" in pod["metadata"] for pod in waiting)
        assert (states["terminating"], states["pending"]) == (terminating, len(waiting) - terminating)
    assert audit(index) == []
