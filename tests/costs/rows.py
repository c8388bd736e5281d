"""The table of what a public input may cost: a row for each dimension, and for the pairs that a decision multiplies.

A row says what it grows (paths of `fields.inputs`), which limit bounds it and where that is set, who pays, and builds what happens
for a size. `fields` of texts and numbers that are only compared stand in one row for each kind of object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from extender.model.release import RELEASE_GATE
from extender.simulator.apiserver.kinds import NAMESPACES, key_of, kind_of
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from extender.verbs.admit.reviews import review_of
from extender.wire.extender_v1 import MOST_NODES
from extender.wire.policies.release_schema import MOST_PODS
from tests.costs.building import (
    AFFINITY,
    NAMESPACE,
    OF_EVENTS,
    OF_NODES,
    OF_PODS,
    OF_TEXT,
    PLATFORM,
    POD,
    SCHEDULER,
    SPEC,
    TENANT,
    Row,
    a_budget,
    a_constraint,
    a_node,
    a_pod,
    a_preemptor,
    a_term,
    apart,
    beside,
    expressions,
    fixed,
    node_terms,
    texts,
    with_meta,
    with_spec,
)
from tests.costs.measuring import Play
from tests.costs.rows_of_namespaces import namespace_rows
from tests.costs.rows_of_objects import object_rows
from tests.costs.rows_of_pods import pod_rows
from tests.costs.rows_of_policies import hundred_terms, policy, policy_rows
from tests.simulator import plain
from tests.simulator.plain import HOSTNAME, ZONE

# -- reviews, requests, the API


def a_review(kind: str, version: str, obj: JsonObject) -> JsonObject:
    return review_of({"apiVersion": version, "kind": kind, **obj}, TENANT)


def updated(obj: JsonObject) -> JsonObject:
    """The review of an update, with an old version that is as large as the new one."""
    review = review_of(obj, TENANT)
    old = {**obj, "metadata": {**obj["metadata"], "generation": 1}}
    return {**review, "request": {**review["request"], "operation": "UPDATE", "oldObject": old}}


def _job_set(n: int) -> JsonObject:
    jobs = [{"name": f"job-{at}", "template": {"spec": {"template": {"spec": {}}}}} for at in range(n)]
    body = {"metadata": {"name": "set", "namespace": TENANT}, "spec": {"replicatedJobs": jobs}}
    return a_review("JobSet", "jobset.x-k8s.io/v1alpha2", body)


_JOB_SETS: Final = {
    "policies": {
        "enabled": True,
        "templates": {"jobset.x-k8s.io/v1alpha2/JobSet": "/spec/replicatedJobs/*/template/spec/template"},
    }
}


def _recorded(n: int) -> JsonObject:
    """A Deployment whose annotation says that so many terms, tolerations and gates were injected, which it has in another order."""
    terms = [{"matchExpressions": [{"key": f"key-{at}", "operator": "In", "values": ["v"]}]} for at in range(n)]
    more = [{"matchExpressions": [*each["matchExpressions"], *expressions(1)]} for each in reversed(terms)]
    tolerations = [{"key": f"key-{at}", "operator": "Exists"} for at in range(n)]
    record = {
        "policies": [{"policy": "ClusterPodSchedulingPolicy/p", "lists": {"tolerations": tolerations}}],
        "terms": {"after": [[-1, each] for each in terms]},
    }
    spec = {"affinity": node_terms(more), "tolerations": tolerations[::-1]}
    text = json.dumps({"/spec/template": record}, separators=(",", ":"))
    meta = {"name": "web", "namespace": TENANT, "annotations": {"placement.extender.dev/injected": text}}
    return a_review("Deployment", "apps/v1", {"metadata": meta, "spec": {"template": {"spec": spec}}})


def _reviewed(make: Callable[[JsonObject], JsonObject], n: int) -> Play:
    """A review of a pod with a map of so many entries, where policies direct labels, annotations and nodes."""
    found = policy("p", nodeSelector={"pool": "a"}, tolerations=[{"key": "x", "operator": "Exists"}])
    return Play([found], reviews=[review_of(make(dict.fromkeys(texts(n, "example.com/x"), "1")), TENANT)])


def _gang(n: int, *, indexed: bool = True, **spec: Any) -> list[JsonObject]:
    release = {"topology": [ZONE], "group": {"label": "group"}, "size": {"count": n}}
    found = policy("gang", when=["Release"], release=release)
    pods = [
        a_pod(
            f"gang-{at}",
            labels={"group": "g", "app": "gang", **({"apps.kubernetes.io/pod-index": str(at)} if indexed else {})},
            schedulingGates=[{"name": RELEASE_GATE}],
            cpu="1m",
            **spec,
        )
        for at in range(n)
    ]
    return [found, *pods]


def _in_quotas(n: int, orders: int) -> Play:
    """Groups of four pods that a policy with 50 sets of nodes lets in, ten groups in each, and orders that follow each other."""
    domains = [
        {
            "name": f"set-{at}",
            "values": [f"node-{64 * at + number}" for number in range(64)],
            "quota": {"pods": 40, "resources": {f"example.com/r{number}": "40" for number in range(15)} | {"cpu": "1"}},
        }
        for at in range(50)
    ]
    release = {"topology": [HOSTNAME], "group": {"label": "group"}, "size": {"count": 4}, "strategy": "InOrder"}
    found = policy("sets", TENANT, when=["Release"], release={**release, "domains": domains})
    gate = [{"name": RELEASE_GATE}]
    pods = [
        a_pod(f"of-{at}-{number}", labels={"group": f"g-{at}"}, schedulingGates=gate, cpu="1m")
        for at in range(n)
        for number in range(4)
    ]

    def turn(api: ApiServer) -> None:
        kind = kind_of(found)
        api.operations.change(kind, key_of(kind, found), lambda each: each["spec"]["release"]["domains"].reverse())

    return Play([found, *pods], changes=[turn] * orders)


def _request_rows() -> list[Row]:
    def names(n: int) -> Play:
        pod = a_pod()
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": texts(n, "node-")}).encode()
        return Play([pod], bodies=[("filter", body), ("prioritize", body)])

    def whole(n: int) -> Play:
        pod, items = a_pod(), [a_node(at) for at in range(n)]
        body = json.dumps({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}).encode()
        return Play([pod], bodies=[("filter", body)])

    def victims(n: int) -> Play:
        pod = a_preemptor()
        meta = {f"node-{at}": {"Pods": [{"UID": f"u{at}-{k}"} for k in range(2)]} for at in range(n)}
        body = json.dumps({"Pod": pod, "NodeNameToMetaVictims": meta}).encode()
        return Play([pod], bodies=[("preempt", body)])

    def whole_victims(n: int) -> Play:
        pod = a_preemptor()
        pods = [a_pod(f"victim-{at}") for at in range(n)]
        body = json.dumps({"Pod": pod, "NodeNameToVictims": {"node-0": {"Pods": pods}}}).encode()
        return Play([pod], bodies=[("preempt", body)])

    def binding(n: int) -> Play:
        body = {"PodName": "x" * n, "PodNamespace": TENANT, "PodUID": "x" * n, "Node": "x" * n}
        return Play(bodies=[("bind", json.dumps(body).encode())])

    def what_if(n: int) -> Play:
        return Play(bodies=[("whatif", json.dumps({"apply": [a_node(at) for at in range(n)]}).encode())])

    return [
        Row("request: node names", ("request.NodeNames[]",), "20,000 names", fixed(MOST_NODES), SCHEDULER, names),
        Row("request: whole nodes", ("request.Nodes.items[]",), "5,000 nodes", fixed(5000), SCHEDULER, whole),
        Row(
            "request: nodes with victims",
            ("preemption.NodeNameToMetaVictims**",),
            "20,000 nodes, 50,000 pods",
            fixed(MOST_NODES),
            SCHEDULER,
            victims,
        ),
        Row(
            "request: whole victims",
            ("preemption.NodeNameToVictims**",),
            "5,000 pods",
            fixed(5000),
            SCHEDULER,
            whole_victims,
        ),
        Row("request: a binding", ("binding.*",), OF_TEXT, fixed(253), SCHEDULER, binding),
        Row(
            "review: pod templates of an object",
            ("review.object.templates[]",),
            "policies.maxTemplates",
            lambda settings: settings.policies.max_templates,
            NAMESPACE,
            lambda n: Play([policy("p", nodeSelector={"pool": "a"}, targets="Templates")], reviews=[_job_set(n)]),
            sections=_JOB_SETS,
        ),
        Row(
            "review: the record of an injection",
            ("review.object.annotation",),
            "API server: 256 KiB of annotations",
            fixed(2**18 // 150),
            NAMESPACE,
            lambda n: Play([policy("p", nodeSelector={"pool": "a"}, targets="Both")], reviews=[_recorded(n)]),
        ),
        Row(
            "review: the object",
            ("review.object", "review.oldObject", "review.kind", "review.operation", "review.namespace"),
            "API server: 3 MB a request",
            fixed(3_000_000 // 30),
            NAMESPACE,
            lambda n: Play(
                reviews=[review_of(a_pod(containers=[{"name": each, "image": "x"} for each in texts(n)]), TENANT)]
            ),
        ),
        *(
            Row(
                f"review: {name} of a pod",
                ("review.object",),
                "API server: 3 MB a request",
                fixed(3_000_000 // 20),
                NAMESPACE,
                partial(_reviewed, make),
            )
            for name, make in (
                ("labels", lambda found: with_meta(a_pod(), labels=found)),
                ("annotations", lambda found: with_meta(a_pod(), annotations=found)),
                ("nodeSelector", lambda found: a_pod(nodeSelector=found)),
                ("requests", lambda found: a_pod(containers=[{"name": "x", "resources": {"requests": found}}])),
            )
        ),
        Row(
            "review: unknown fields of a policy",
            ("review.object",),
            "etcd: 1.5 MiB an object",
            fixed(1_500_000 // 12),
            NAMESPACE,
            lambda n: Play(reviews=[review_of(policy("p", TENANT, **dict.fromkeys(texts(n), 1)), TENANT)]),
        ),
        Row(
            "review: a policy and its old version",
            ("review.object",),
            "etcd: 1.5 MiB an object",
            fixed(1_500_000 // 12),
            NAMESPACE,
            lambda n: Play(reviews=[updated(policy("p", TENANT, **dict.fromkeys(texts(n), 1)))]),
        ),
        Row(
            "API: the pod of an explanation",
            ("POST /v1/explain body", "POST /v1/explain ?*", "GET /v1/explain** ?*"),
            "server.maxBodyBytes",
            fixed(100),
            PLATFORM,
            with_spec(affinity=lambda n: apart(*(a_term({"matchLabels": {"app": f"app-{at}"}}) for at in range(n)))),
        ),
        Row(
            "API: pages",
            tuple(
                f"GET /{each}** ?*"
                for each in (
                    "v1/topology",
                    "v1/workloads",
                    "v1/constraints",
                    "v1/pending",
                    "v1/preemptions",
                    "v1/groups",
                    "v1/manifests",
                    "v1/moves",
                    "v1/policies",
                    "debug/decisions",
                    "debug/shadow",
                    "v1/decisions/stream",
                )
            ),
            "limit=1000",
            fixed(1000),
            PLATFORM,
            lambda n: Play([a_pod(f"p-{at}") for at in range(n)]),
        ),
        Row(
            "API: a what-if",
            ("POST /v1/whatif body", "what-if.**"),
            "server.maxBodyBytes; then whatIf.seconds, whatIf.memory: a process of its own",
            fixed(100),
            PLATFORM,
            what_if,
        ),
    ]


# -- numbers of pods, and pairs


def _pair_rows() -> list[Row]:
    def templates(n: int) -> list[JsonObject]:
        return [
            a_pod(f"t-{at}", labels={"app": f"app-{at % 64}", "unique": f"u{at}"}, on=f"node-{at % 1000}", cpu="1m")
            for at in range(n)
        ]

    def pending(n: int) -> list[JsonObject]:
        return [a_pod(f"w-{at}", labels={"app": "gang", "unique": f"u{at}"}) for at in range(n)]

    def toggled(n: int) -> Play:
        def toggle(api: ApiServer) -> None:
            api.operations.change(NAMESPACES, TENANT, lambda found: found["metadata"]["labels"].update(team="b"))

        def back(api: ApiServer) -> None:
            api.operations.change(NAMESPACES, TENANT, lambda found: found["metadata"]["labels"].update(team="a"))

        found, *pods = _gang(n, indexed=False)
        found["spec"]["namespaceSelector"] = {"matchLabels": {"team": "a"}}
        found["spec"]["release"]["size"] = {"count": MOST_PODS}  # never complete
        incoming = a_pod()
        return Play([found, *pods, incoming], requested=[incoming], changes=[toggle, back])

    def short_of_one(n: int) -> Play:
        """Nodes with 64 extended resources, of which the last is used up; a pod requests all of them."""
        names = texts(64, "example.com/x")
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110", **dict.fromkeys(names, "1"), names[-1]: "0"}
        nodes = [a_node(10_000 + at) | {"status": {"allocatable": offered}} for at in range(n)]
        incoming = a_pod(containers=[{"name": "x", "resources": {"requests": dict.fromkeys(names, "1")}}])
        return Play([*nodes, incoming], requested=[incoming])

    hundred = [
        a_term({"matchLabels": {"app": f"app-{at}"}}, (ZONE, HOSTNAME)[at % 2], namespaceSelector={})
        for at in range(100)
    ]
    return [
        Row(
            "pods of one template",
            ("Pod[]",),
            OF_PODS,
            fixed(150_000),
            NAMESPACE,
            beside(lambda n: [a_pod(f"t-{at}", on=f"node-{at % 1000}", cpu="1m") for at in range(n)]),
            measured=16_384,
        ),
        Row(
            "pods × templates × terms",
            ("Pod[]",),
            OF_PODS,
            fixed(150_000),
            NAMESPACE,
            beside(templates, lambda: a_pod(affinity=apart(*hundred))),
            measured=8192,
        ),
        Row(
            "pods that wait",
            ("Pod[]",),
            OF_PODS,
            fixed(150_000),
            NAMESPACE,
            beside(pending, lambda: a_pod(affinity=apart(*hundred))),
            measured=8192,
        ),
        Row(
            "terms × nodes",
            (f"{AFFINITY}.podAntiAffinity.required[]", "Node[]"),
            OF_NODES,
            fixed(5000),
            POD,
            beside(lambda n: [a_node(10_000 + at) for at in range(n)], lambda: a_pod(affinity=apart(*hundred))),
        ),
        Row(
            "node requirements × nodes",
            (f"{AFFINITY}.nodeAffinity.**.matchExpressions[]", "Node[]"),
            OF_NODES,
            fixed(5000),
            POD,
            beside(
                lambda n: [a_node(10_000 + at) for at in range(n)],
                lambda: a_pod(affinity=node_terms([{"matchExpressions": expressions(2)}] * 100)),
            ),
        ),
        Row(
            "spread constraints × nodes",
            (f"{SPEC}.topologySpreadConstraints[]", "Node[]"),
            OF_NODES,
            fixed(5000),
            POD,
            beside(
                lambda n: [a_node(10_000 + at) for at in range(n)],
                lambda: a_pod(topologySpreadConstraints=[a_constraint(at) for at in range(32)]),
            ),
        ),
        Row(
            "tolerations × nodes",
            (f"{SPEC}.tolerations[]", "Node[]"),
            OF_NODES,
            fixed(5000),
            POD,
            beside(
                lambda n: [a_node(10_000 + at, taints=[{"key": "x99", "effect": "NoSchedule"}]) for at in range(n)],
                lambda: a_pod(tolerations=[{"key": key, "operator": "Exists"} for key in texts(100)]),
            ),
        ),
        Row(
            "resources × nodes, several schedulers",
            (f"{SPEC}.**.requests{{}}", "node.status.allocatable{}", "Node[]"),
            OF_NODES,
            fixed(5000),
            PLATFORM,
            short_of_one,
            nodes=1,
            sections={"schedulers": "many"},
        ),
        Row(
            "namespaces × terms",
            (f"{AFFINITY}.pod*.**.namespaceSelector.*", "Namespace[]"),
            "Kubernetes: 10,000 namespaces",
            fixed(10_000),
            NAMESPACE,
            beside(
                lambda n: [plain.namespace(f"n-{at}", team="a") for at in range(n)],
                lambda: a_pod(affinity=apart(*hundred)),
            ),
        ),
        Row(
            "disruption budgets × victims",
            ("PodDisruptionBudget[]", "Pod[]"),
            OF_EVENTS,
            fixed(3000),
            NAMESPACE,
            lambda n: replace(
                beside(lambda m: [a_budget(at) for at in range(m)], a_preemptor)(n),
                before=[
                    plain.pod(f"victim-{at}", "other", on=f"node-{at % 100}", labels={"app": "app-1"})
                    for at in range(1000)
                ],
            ),
        ),
        Row(
            "a gang of indexed pods × nodes",
            ("Pod[]", "policy.spec.release.size.count"),
            "CRD: maximum 10,000",
            fixed(MOST_PODS),
            NAMESPACE,
            lambda n: Play(_gang(n)),
            measured=4096,
        ),
        Row(
            "a gang with anti-affinity by host × nodes",
            ("Pod[]",),
            "CRD: maximum 10,000",
            fixed(MOST_PODS),
            NAMESPACE,
            lambda n: Play(_gang(n, affinity=apart(a_term({"matchLabels": {"app": "gang"}}, HOSTNAME)))),
            measured=250,  # as many nodes as a zone has
        ),
        *(
            Row(
                name,
                ("Pod[]", "policy.spec.release.domains[]", "policy.spec.release.domains[].quota.resources{}"),
                "500 groups, 50 sets of 64 nodes",
                fixed(500),
                NAMESPACE,
                partial(_in_quotas, orders=orders),
                nodes=5000,
                sections={"release": {"groupsPerNamespace": 500}},
            )
            for name, orders in (
                ("groups of pods within quotas of sets × nodes", 0),
                ("an order of sets that changes × groups × nodes", 8),
            )
        ),
        Row(
            "a label of a namespace × gated pods",
            ("Pod[]", "namespace.metadata.labels{}"),
            OF_PODS,
            fixed(150_000),
            NAMESPACE,
            toggled,
            measured=16_384,
        ),
        Row(
            "policies × templates of a review",
            ("review.object.templates[]", "ClusterPodSchedulingPolicy[]"),
            "policies.maxOfCluster",
            lambda settings: settings.policies.max_of_cluster,
            PLATFORM,
            lambda n: Play(
                [policy(f"p-{at}", nodeSelector={f"key-{at}": "v"}, targets="Both") for at in range(n)],
                reviews=[_job_set(100)],
            ),
            sections=_JOB_SETS,
        ),
        Row(
            "policies × terms × templates of a review",
            ("review.object.templates[]", "ClusterPodSchedulingPolicy[]", "policy.spec.affinity.nodeAffinity.**"),
            "policies.maxOfCluster",
            lambda settings: settings.policies.max_of_cluster,
            PLATFORM,
            lambda n: Play([hundred_terms(at) for at in range(n)], reviews=[_job_set(100)]),
            measured=500,
            sections=_JOB_SETS,
        ),
    ]


ROWS: Final = (*pod_rows(), *namespace_rows(), *object_rows(), *policy_rows(), *_request_rows(), *_pair_rows())
