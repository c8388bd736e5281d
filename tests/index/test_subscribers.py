"""Subscribers are told of each change once, after it has been applied, and of nothing else."""

from __future__ import annotations

from extender.index.objects.changes import Change
from tests.builders import index_of, namespace, node, pod, pod_json, term, workload
from tests.index.counting import near

NEAR_TEAM = pod_json(near=[term("zone", app="web", namespace_selector={"matchLabels": {"team": "a"}})])


def test_a_subscriber_to_namespaces_sees_the_counts_as_they_are_after_the_change() -> None:
    index = index_of(node("n1", zone="z1"), namespace("ns", team="b"), pod("web", on="n1", namespace="ns", app="web"))
    assert near(index, NEAR_TEAM) == [{}]
    seen = list[object]()
    index.namespaces.changes.subscribe(lambda _: seen.append(near(index, NEAR_TEAM)))
    index.upsert(namespace("ns", team="a"))
    index.upsert(namespace("ns", team="a"))
    assert seen == [[{"z1": 1}]]


def test_a_change_has_the_object_before_and_after() -> None:
    index, seen = index_of(), list[object]()
    index.workloads.changes.subscribe(seen.append)
    service = workload("Service", "web", {"app": "web"})
    index.upsert(service)
    index.upsert(service)
    index.delete(service)
    index.delete(service)
    assert seen == [Change(None, service), Change(service, None)]


def test_a_subscriber_to_one_pod_is_reported_of_that_pod_until_it_unsubscribes() -> None:
    index, seen = index_of(node("n1")), list[object]()
    waiting, placed, other = pod("web"), pod("web", on="n1"), pod("other")
    index.pod_changes.subscribe(waiting.uid, seen.append)
    for each in (waiting, other, placed):
        index.upsert(each)
    index.pod_changes.unsubscribe(waiting.uid, seen.append)
    index.delete(placed)
    assert seen == [Change(None, waiting), Change(waiting, placed)]
    assert len(index.pod_changes) == 0


def test_every_subscriber_is_reported_also_where_one_unsubscribes_meanwhile() -> None:
    index, seen = index_of(), list[str]()

    def once(_change: object) -> None:
        seen.append("once")
        index.namespaces.changes.unsubscribe(once)

    index.namespaces.changes.subscribe(once)
    index.namespaces.changes.subscribe(lambda _: seen.append("always"))
    index.upsert(namespace("ns"))
    index.upsert(namespace("ns", team="a"))
    assert seen == ["once", "always", "always"]
