"""The synthetic cluster and its questions: legal objects, placed legally, asked about as the scheduler does."""

from collections import Counter

import orjson

from extender.wire.extender_v1 import decode_args
from extender.wire.objects.kinds import NODES, PODS, REPLICA_SETS
from tests.tools.bench.cluster import ZONE, RequestMaker, SyntheticCluster, pod_events
from tests.tools.bench.small_scenario import load


def test_existing_pods_carry_the_terms_of_the_asking_ones_and_the_zone_of_their_node() -> None:
    cluster = SyntheticCluster(load())
    pod = PODS.decode_event(next(cluster.pod_lines())).object
    assert pod is not None
    assert pod.node
    incoming = decode_args(RequestMaker(cluster, 5, seed=1).filter_body(cluster.incoming_pod(0))).pod
    assert pod.signature.affinity == incoming.signature.affinity
    assert pod.signature.labels == {**incoming.signature.labels, ZONE: cluster.zone_named(pod.node)}


def test_pods_of_a_selector_stand_apart_and_evenly_over_the_zones() -> None:
    cluster = SyntheticCluster(load(cases=[{"labels": [], "names": [5], "pods": [48], "selectors": [3]}]))
    for selector in range(3):
        nodes = [node for pod, node in cluster.existing() if pod.selector == selector]
        assert len(set(nodes)) == 16
        assert set(Counter(map(cluster.zone, nodes)).values()) == {4}


def test_pods_beyond_the_room_of_a_selector_carry_no_terms() -> None:
    cluster = SyntheticCluster(load(cluster={"nodes": 20, "mostPerSelector": 4}))
    found = [PODS.decode_event(line).object for line in cluster.pod_lines()]
    assert Counter(pod is not None and pod.signature.affinity.is_empty for pod in found) == {False: 12, True: 18}


def test_a_request_names_known_nodes_once_and_windows_move_on() -> None:
    cluster = SyntheticCluster(load())
    requests = RequestMaker(cluster, 10, seed=1)
    asked = [decode_args(requests.filter_body(cluster.incoming_pod(number))).node_names or [] for number in range(20)]
    assert all(len(set(names)) == 10 and set(names) <= set(cluster.nodes) for names in asked)
    assert len({tuple(names) for names in asked}) > 10


def test_a_request_for_a_pod_with_a_node_selector_has_matching_nodes_only() -> None:
    cluster = SyntheticCluster(load(requests={"nodeSelectorShare": 1}))
    nodes = {node.name: node for line in cluster.node_lines() if (node := NODES.decode_event(line).object)}
    args = decode_args(RequestMaker(cluster, 200, seed=1).filter_body(cluster.incoming_pod(0)))
    named = [nodes[name] for name in args.node_names or []]
    assert len(named) == 100, "every other node of a zone has an SSD"
    assert all(args.pod.signature.node_affinity.matches(node.name, node.labels) for node in named)


def test_a_prioritize_request_names_what_filter_let_through() -> None:
    cluster = SyntheticCluster(load())
    body = RequestMaker(cluster, 10, seed=1).prioritize_body(cluster.incoming_pod(0), ["node-3", "node-1"])
    assert decode_args(body).node_names == ["node-3", "node-1"]


def test_no_two_pods_share_a_name_or_uid() -> None:
    cluster = SyntheticCluster(load())
    pods = [pod for pod, _ in cluster.existing()] + [cluster.incoming_pod(number) for number in range(100)]
    assert len({pod.uid for pod in pods}) == len({(pod.namespace, pod.name) for pod in pods}) == 130


def test_a_turn_becomes_a_number_and_a_selector_part_of_a_text() -> None:
    spread = {"maxSkew": "{t}", "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a-{v}"}}}
    template = {"labels": {"app": "a-{v}"}, "turns": 5, "spec": {"topologySpreadConstraints": [spread]}}
    cluster = SyntheticCluster(load(template=template, cases=[{"labels": [], "names": [5], "selectors": [1]}]))
    bodies = [orjson.loads(cluster.writer.incoming(cluster.incoming_pod(number))) for number in range(10)]
    found = {body["spec"]["topologySpreadConstraints"][0]["maxSkew"] for body in bodies}
    assert found == {1, 2, 3, 4, 5}
    assert bodies[0]["metadata"]["labels"] == {"app": "a-0"}


def test_owners_exist_where_the_scenario_wants_them() -> None:
    with_owners = SyntheticCluster(load(cluster={"nodes": 20, "namespaces": 5, "replicaSets": True}))
    owners = {REPLICA_SETS.decode_event(line).object for line in with_owners.replica_set_lines()}
    pods = [PODS.decode_event(line).object for line in with_owners.pod_lines()]
    keys = {owner.key for owner in owners if owner}
    assert {f"ReplicaSet/{pod.namespace}/pod-{pod.name.split('-')[1]}" for pod in pods if pod} == keys
    assert not list(SyntheticCluster(load()).replica_set_lines())


def test_a_life_is_five_events_and_leaves_nothing() -> None:
    cluster, alive = SyntheticCluster(load()), dict[str, str]()
    source = pod_events(cluster, 1)
    for _ in range(250):
        event = PODS.decode_event(next(source).line)
        assert event.object is not None
        if event.type == "DELETED":
            del alive[event.object.uid]
        else:
            alive[event.object.uid] = event.object.node
    assert alive == {}
