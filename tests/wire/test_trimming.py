"""From the API's objects to ours: which fields are read, and what their absence means."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import extender
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.spread import NO_SPREAD, SpreadConstraint
from extender.model.constraints.taints import Taint, Toleration
from extender.model.constraints.terms import NO_AFFINITY
from extender.model.objects import Controller, Node, Pod
from extender.wire.errors import UNREADABLE
from extender.wire.objects.kinds import NODES, PODS, REPLICA_SETS
from extender.wire.objects.simplify import DEEPEST_READ, simplified, simplify
from tests.builders import Json, matching, namespace, node, pod, pod_json, spread, taint, term, weighted, workload
from tests.wire.nesting import deep, depth_of, merged, read_part, wrapped


def read(body: Json) -> Pod:
    return PODS.decode_object(orjson.dumps(body))


MADE = "2026-01-01T10:00:00Z"
FAILED = {"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}


def container(cpu: str, **more: object) -> Json:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


class TestPods:
    """Pods and their templates."""

    def test_nothing_but_the_frame_is_a_pod_without_wishes(self) -> None:
        bare = PODS.decode_object(b"{}")
        assert (bare.uid, bare.node, bare.finished, bare.terminating, bare.priority) == ("/", "", False, False, 0)
        assert (bare.signature.affinity, bare.signature.spread, dict(bare.signature.labels)) == (
            NO_AFFINITY,
            NO_SPREAD,
            {},
        )

    def test_nulls_are_absences(self) -> None:
        nulls = dict.fromkeys(("affinity", "topologySpreadConstraints", "nodeSelector", "tolerations", "containers"))
        held = read({"metadata": {"name": "a", "labels": None}, "spec": {**nulls, "priority": None}, "status": None})
        assert (held.signature.affinity, held.signature.spread, held.signature.tolerations) == (
            NO_AFFINITY,
            NO_SPREAD,
            (),
        )
        assert held.signature.node_affinity.admits_all

    @pytest.mark.parametrize(
        ("text", "node", "read_as"),
        [("{}", "", "{}"), ("{}", "n1", ""), ("x" * 64 * 1024, "", "x" * 64 * 1024), ("x" * (64 * 1024 + 1), "", "")],
        ids=["pending", "placed", "as large as a pod may be", "larger"],
    )
    def test_what_policies_injected_is_kept_of_pending_pods(self, text: str, node: str, read_as: str) -> None:
        annotations = {"other": "placement.extender.dev", "placement.extender.dev/injected": text}
        made = read({"metadata": {"name": "a", "annotations": annotations}, "spec": {"nodeName": node}})
        assert made.signature.injected == read_as
        bare = read({"metadata": {"name": "a"}})
        assert (made.signature is bare.signature) is not bool(read_as)

    @pytest.mark.parametrize(
        ("metadata", "spec", "status", "read_as"),
        [
            ({"name": "a", "namespace": "shop"}, {}, {}, {"uid": "shop/a", "terminating": False, "gated": False}),
            *(({}, {}, {"phase": phase}, {"finished": False}) for phase in ("Pending", "Running", "Unknown")),
            *(({}, {}, {"phase": phase}, {"finished": True}) for phase in ("Succeeded", "Failed")),
            ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, {}, {"terminating": True}),
            ({}, {"schedulingGates": []}, {}, {"gated": False}),
            ({}, {"schedulingGates": [{"name": "hold"}]}, {}, {"gated": True}),
            ({}, {"priority": -10, "preemptionPolicy": "Never"}, {}, {"priority": -10, "never_preempts": True}),
            ({}, {}, {"nominatedNodeName": "n1"}, {"nominated_node": "n1"}),
            ({}, {}, {"startTime": MADE}, {"start_time": datetime(2026, 1, 1, 10, tzinfo=UTC)}),
            ({"creationTimestamp": MADE}, {}, {}, {"created": MADE}),
            ({"creationTimestamp": MADE}, {"nodeName": "n1"}, {}, {"created": "", "node": "n1"}),
            ({}, {"nodeName": "n1"}, {"conditions": [FAILED]}, {"rejection": ""}),  # history
        ],
    )
    def test_fields_are_read(self, metadata: Json, spec: Json, status: Json, read_as: dict[str, object]) -> None:
        held = read({"metadata": metadata, "spec": spec, "status": status})
        assert {name: getattr(held, name) for name in read_as} == read_as

    @pytest.mark.parametrize(
        ("conditions", "rejection"),
        [
            ([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}], True),
            ([{"type": "PodScheduled", "status": "True", "reason": "Unschedulable", "message": "0/3"}], False),
            ([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False", "message": "x"}], False),
            ([{"type": "Ready", "status": "False", "message": "x"}], False),
            ([], False),
        ],
        ids=["rejected", "scheduled", "scheduled and not ready", "not ready", "nothing said"],
    )
    def test_only_a_pod_whose_scheduling_failed_is_rejected(self, conditions: list[Json], *, rejection: bool) -> None:
        body = pod_json("a")
        body["status"]["conditions"] = conditions
        assert read(body).rejection == ("Unschedulable: 0/3" if rejection else "")

    @pytest.mark.parametrize(
        ("reason", "terminating", "preempted"),
        [
            ("PreemptionByScheduler", False, True),
            ("EvictionByEvictionAPI", True, True),
            ("EvictionByEvictionAPI", False, False),
            ("NotPreempted", False, False),
            ("DeletionByTaintManager", True, False),
        ],
    )
    def test_a_victim_is_marked_by_a_scheduler_or_evicted(
        self, reason: str, *, terminating: bool, preempted: bool
    ) -> None:
        body = pod_json("a", on="n1", terminating=terminating)
        body["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
        assert read(body).preempted is preempted

    def test_replicas_share_one_shape_and_different_templates_do_not(self) -> None:
        fields = {"near": [term("zone", app="web")], "app": "web"}
        first, second = pod("web-1", on="n1", **fields), pod("web-2", **fields)  # type: ignore[arg-type]  # as the test gives it
        assert first.signature is second.signature
        assert pod("web-3", namespace="other", **fields).signature is not first.signature  # type: ignore[arg-type]  # as the test gives it

    def test_the_same_pod_read_twice_is_equal(self) -> None:
        assert pod("a", on="n1", app="web", spreads=[spread()]) == pod("a", on="n1", app="web", spreads=[spread()])

    @pytest.mark.parametrize(
        ("owner", "expected"),
        [
            (("ReplicaSet", "rs"), Controller("apps/v1", "ReplicaSet", "rs")),
            (("StatefulSet", "db"), Controller("apps/v1", "StatefulSet", "db")),
            (("ReplicationController", "rc"), Controller("v1", "ReplicationController", "rc")),
            (("DaemonSet", "ds"), None),
            (("Job", "job"), None),
        ],
        ids=lambda value: value[0] if isinstance(value, tuple) else "",
    )
    def test_only_owners_whose_selector_matters_are_kept(
        self, owner: tuple[str, str], expected: Controller | None
    ) -> None:
        assert pod("a", owner=owner).signature.controller == expected

    def test_an_owner_that_does_not_control_is_none(self) -> None:
        body = pod_json("a", owner=("ReplicaSet", "rs"))
        body["metadata"]["ownerReferences"][0]["controller"] = False
        assert read(body).signature.controller is None


def spec(*cpu: str, init: Sequence[Json] = (), **more: object) -> Json:
    return {"containers": list(map(container, cpu)), "initContainers": list(init), **more}


SIDECAR = container("1", restartPolicy="Always")
OVERHEAD = {"cpu": "250m"}
WHOLE = {"requests": {"cpu": "3"}}
AMOUNTS = {"cpu": "1500m", "memory": "1Gi", "example.com/gpu": 2}
# What a pod requests of a node (KEP-753, KEP-2837).
REQUESTS: dict[str, tuple[Json, dict[str, int]]] = {
    "containers add up in milli-CPU and bytes": (
        {"containers": [{"resources": {"requests": AMOUNTS}}, container("0.5")]},
        {"cpu": 2000, "memory": 2**30, "example.com/gpu": 2},
    ),
    "the largest init container": (spec("1", init=[container("3"), container("2")]), {"cpu": 3000}),
    "init containers below the sum": (spec("4", init=[container("3")]), {"cpu": 4000}),
    "a sidecar beside containers": (spec("2", init=[SIDECAR]), {"cpu": 3000}),
    "a sidecar beside a later init container": (spec("2", init=[SIDECAR, container("5")]), {"cpu": 6000}),
    "a sidecar after an init container": (spec("2", init=[container("5"), SIDECAR]), {"cpu": 5000}),
    "overhead on top": (spec("1", overhead=OVERHEAD), {"cpu": 1250}),
    "requests of the whole pod in place of the sum": (spec("1", resources=WHOLE, overhead=OVERHEAD), {"cpu": 3250}),
}


@pytest.mark.parametrize(("spec", "requests"), REQUESTS.values(), ids=REQUESTS)
def test_a_pod_requests_what_its_spec_adds_up_to(spec: Json, requests: dict[str, int]) -> None:
    assert read({"metadata": {"name": "a"}, "spec": spec}).requests == requests


class TestConstraints:
    """Affinity, spread and tolerations, with defaults filled in."""

    @pytest.mark.parametrize(
        ("fields", "namespaces"),
        [
            ({}, ("shop",)),
            ({"namespace_selector": matching(team="a")}, ()),
            ({"namespaces": ["b", "a", "b"]}, ("a", "b")),
        ],
        ids=["the pod's own namespace", "a selector does not imply it", "listed: sorted and once"],
    )
    def test_the_namespaces_of_a_term(self, fields: Json, namespaces: tuple[str, ...]) -> None:
        (made,) = pod("a", namespace="shop", near=[term("zone", app="web", **fields)]).signature.affinity.required
        assert (made.namespaces, made.namespace_selector is None) == (namespaces, "namespace_selector" not in fields)

    def test_selectors_that_mean_the_same_are_equal(self) -> None:
        by_labels = term("zone", app="web", tier="x")
        by_clauses = term("zone", selector=matching(("tier", "In", ["x"]), ("app", "In", ["web"])))
        assert pod("a", near=[by_labels]).signature.affinity == pod("b", near=[by_clauses]).signature.affinity

    def test_a_list_with_one_unreadable_term_is_dropped_as_a_whole_and_the_others_stay(self) -> None:
        broken = term("zone", selector=matching(("app", "In", [])))
        affinity = pod(
            "a", near=[term("zone", app="web"), broken], avoids=[weighted(5, term(app="db"))]
        ).signature.affinity
        assert (affinity.required, len(affinity.preferred_anti), len(affinity.errors)) == ((), 1, 1)

    @pytest.mark.parametrize(
        "selector",
        [
            matching(("app", "Near", ["a"])),
            matching(("app", "NotIn", [])),
            matching(("app", "Exists", ["a"])),
            matching(("bad key", "Exists", [])),
            matching(("-a/b", "Exists", [])),
            matching(app="bad value"),
            matching(("app", "NotIn", ["-bad"])),
            matching(("x" * 64, "Exists", [])),
        ],
        ids=["operator", "no values", "values", "key", "prefix", "value", "value of NotIn", "long key"],
    )
    def test_what_the_api_would_reject_cannot_be_parsed(self, selector: Json) -> None:
        assert pod("a", apart=[term("zone", selector=selector)]).signature.affinity.errors
        assert pod("a", apart=[term("zone", namespace_selector=selector, app="a")]).signature.affinity.errors
        assert pod("a", spreads=[spread(selector=selector)]).signature.spread.hard_error
        assert pod("a", spreads=[spread(hard=False, selector=selector)]).signature.spread.soft_error

    def test_a_constraint_has_all_its_defaults_filled_in(self) -> None:
        (made,) = pod("a", spreads=[spread("zone", 2, app="web")]).signature.spread.hard
        assert made == SpreadConstraint(2, "topology.kubernetes.io/zone", hard=True, selector=made.selector)
        assert (made.min_domains, made.honor_affinity, made.honor_taints) == (1, True, False)

    def test_policies_and_min_domains_are_read(self) -> None:
        wanted = spread("host", min_domains=3, affinity_policy="Ignore", taints_policy="Honor", app="web")
        (made,) = pod("a", spreads=[wanted]).signature.spread.hard
        assert (made.topology_key, made.min_domains, made.honor_affinity, made.honor_taints) == (
            HOSTNAME,
            3,
            False,
            True,
        )

    def test_match_label_keys_take_the_pod_s_labels_as_they_are_now(self) -> None:
        wanted = spread(match_label_keys=["hash", "absent"], app="web")
        (made,) = pod("a", app="web", hash="x1", spreads=[wanted]).signature.spread.hard
        assert [made.selector.matches(labels) for labels in ({"app": "web", "hash": "x1"}, {"app": "web"})] == [
            True,
            False,
        ]

    def test_match_label_keys_do_not_wake_a_null_selector(self) -> None:
        (made,) = pod("a", hash="x1", spreads=[spread(match_label_keys=["hash"])]).signature.spread.hard
        assert made.selector.nothing

    def test_affinity_terms_ignore_match_label_keys_that_the_api_server_has_merged(self) -> None:
        wanted = term("zone", app="web") | {"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tenant"]}
        (made,) = pod("a", hash="x1", tenant="t", near=[wanted]).signature.affinity.required
        assert made.selector.matches({"app": "web", "hash": "other", "tenant": "t"})

    def test_tolerations_mean_the_same_in_any_order(self) -> None:
        first, second = {"key": "a", "operator": "Exists"}, {"key": "b", "value": "x", "effect": "NoExecute"}
        made = pod("a", tolerations=[first, second, first]).signature.tolerations
        assert made == pod("b", tolerations=[second, first]).signature.tolerations
        assert set(made) == {Toleration("a", "Exists"), Toleration("b", "", "x", "NoExecute")}


class TestOthers:
    """Nodes, namespaces and workloads."""

    def test_a_node_is_labels_taints_cordon_and_what_it_offers(self) -> None:
        held = node("n", zone="z1", taints=[taint("gpu", "yes")], unschedulable=True, allocatable={"cpu": "4"})
        assert held == Node(
            "n",
            {HOSTNAME: "n", "topology.kubernetes.io/zone": "z1"},
            (Taint("gpu", "yes", "NoSchedule"),),
            unschedulable=True,
            allocatable={"cpu": 4000},
            unavailable_at=inf,
        )

    def test_a_heartbeat_changes_nothing_that_is_kept(self) -> None:
        body = {"metadata": {"name": "n", "resourceVersion": "1"}, "status": {"conditions": [{"type": "Ready"}]}}
        later = {"metadata": {"name": "n", "resourceVersion": "2"}, "status": {"conditions": []}}
        assert NODES.decode_object(orjson.dumps(body)) == NODES.decode_object(orjson.dumps(later))

    def test_a_namespace_is_its_labels(self) -> None:
        assert dict(namespace("shop", team="a").labels) == {"team": "a"}

    @pytest.mark.parametrize("kind", ["Service", "ReplicationController", "ReplicaSet", "StatefulSet"])
    def test_a_workload_selects_pods_by_a_selector_within_the_bytes_of_a_pods_constraints(self, kind: str) -> None:
        """Services and ReplicationControllers have maps, the others label selectors."""
        is_map = not kind.endswith("Set")
        selector = workload(kind, "a", {"app": "web"} if is_map else matching(("app", "NotIn", ["db"]))).selector
        assert selector is not None
        assert [selector.matches({"app": app}) for app in ("web", "db")] == [True, False]
        assert workload(kind, "a", None).selector is None
        labels = {f"key-{number}": "v" for number in range(5000)}
        assert workload(kind, "a", labels if is_map else {"matchLabels": labels}).selector is None


# -- JSON without what no decision reads: the same document down to the deepest field, whatever stands below -----------

_KEYS = st.sampled_from(["a", "managedFields", "", '"', "\\", '{"managedFields":', "[", "]}"])
_VALUES = st.recursive(
    st.none() | st.integers(0, 9) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES, st.integers(0, 2 * DEEPEST_READ), st.sampled_from([None, 2]))
@example(value=[[[]], {}], levels=DEEPEST_READ - 2, indent=None)
def test_what_may_be_read_stays_and_nothing_is_deep(value: object, levels: int, indent: int | None) -> None:
    document = wrapped(value, levels)
    found = json.loads(simplified(json.dumps(document, indent=indent).encode()))
    assert read_part(found) == read_part(document)
    assert depth_of(found) <= DEEPEST_READ + 1


HIDING: dict[str, Json] = {
    "managedFields": {"metadata": {"managedFields": [{"manager": "x", "fieldsV1": deep()}]}},
    "another field of the metadata": {"metadata": {"unheardOf": deep()}},
    "a field of the spec": {"spec": {"unheardOf": [deep(), deep()]}},
    "a field of the status": {"status": {"containerStatuses": [{"state": deep()}]}},
    "a field of the object": {"unheardOf": deep()},
    "beside deep brackets in texts": {"metadata": {"generateName": '[{"' * 2000, "managedFields": [deep()]}},
}


@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
def test_a_pod_reads_the_same_with_deep_nesting_in_fields_that_are_not_read(hiding: Json) -> None:
    body = pod_json("web", on="n1", uid="u", labels={"app": "web"}, apart=[term("zone", app="web")])
    hidden = msgspec.json.encode(merged(body, hiding))
    assert PODS.decode_object(simplified(hidden)) == PODS.decode_object(orjson.dumps(body))


def test_no_field_that_is_read_lies_too_deep() -> None:
    """The deepest of all: values of an expression of a weighted term's selector, in an item of a page."""
    body = pod_json("web", avoids=[{"weight": 1, "podAffinityTerm": term("zone", app="web")}])
    page = {"items": [body]}
    assert json.loads(simplified(orjson.dumps(page))) == page
    assert depth_of(page) <= DEEPEST_READ // 2


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert json.loads(simplified(b'{"a":"x\xff\xfe","b":[1]}')) == {"a": "x\ufffd\ufffd", "b": [1]}
    owner = REPLICA_SETS.decode_object(simplified(b'{"metadata":{"name":"rs"},"spec":{"selector":null},"\xff":1}'))
    assert owner.name == "rs"


@pytest.mark.parametrize(
    "body",
    [b"", b"]{}", b"[", b'{"a":"', b"[" * 50, b"[" * 50 + b"]" * 49, b'{"a":1}}', b"[" * 50 + b"]" * 51, b'{"a', b"\\"],
)
def test_what_is_no_json_does_not_become_json(body: bytes) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(simplified(body))


def test_a_large_document_is_worked_off_in_steps() -> None:
    chains = b"[" + b",".join(b'{"":' * 40 + b"[[],0]" + b"}" * 40 for _ in range(2_000)) + b"]"
    steps = sum(1 for _ in simplify(chains))
    assert 100 < steps < 2_000


@pytest.mark.parametrize(
    "part",
    [b" ", b"1,", b"{},", b'{"a":1},', b'"a",', b"[", b'"' + b"a" * 600 + b'",', b'\\"', "ä".encode(), b"\xff"],
    ids=repr,
)
@pytest.mark.parametrize("opening", [b"[", b'["'], ids=["values", "text"])
def test_no_step_reads_more_than_so_many_bytes(part: bytes, opening: bytes) -> None:
    """Whatever stands between two brackets, a step of one megabyte would hold up the event loop."""
    body = opening + part * (2**23 // len(part))
    assert sum(1 for _ in simplify(body)) >= 2**23 / 2**20


@given(st.lists(_KEYS | st.text(max_size=3), max_size=4), st.integers(500, 530), st.sampled_from(["x", '"', "\\", "ä"]))
def test_long_texts_stay_as_they_are(keys: list[str], length: int, filling: str) -> None:
    document = {
        "a": [filling * length, dict.fromkeys(keys, filling * 2000)],
        "managedFields": {"b": [filling * length]},
    }
    found = json.loads(simplified(json.dumps(document).encode()))
    assert found == document | {"managedFields": None}


def test_no_pattern_has_a_possessive_or_an_atomic_group() -> None:
    """Before Python 3.11.5 such a group matches wrongly: https://github.com/python/cpython/issues/106052."""
    group = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+|\(\?>")
    package = Path(extender.__file__).parent
    assert [str(file) for file in package.rglob("*.py") if group.search(file.read_text("utf-8"))] == []
