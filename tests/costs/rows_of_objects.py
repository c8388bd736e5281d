"""The rows of objects other than pods and policies: how many, and what is in one."""

from __future__ import annotations

from extender.model.group_placements import MOST_RECORDED
from extender.model.objects import MOST_TOPOLOGY_DOMAINS
from tests.costs.building import (
    META_TEXTS,
    NAMESPACE,
    OF_EVENTS,
    OF_NODES,
    OF_SERVICES,
    OF_TEXT,
    PLATFORM,
    Row,
    a_budget,
    a_node,
    a_placement,
    a_preemptor,
    a_quota,
    a_recording_placement,
    a_service,
    across,
    beside,
    fixed,
    of_object,
    texts,
    topology_domains,
    with_meta,
    workloads,
)
from tests.simulator import plain


def object_rows() -> list[Row]:
    names = {
        kind: [
            f"{kind}.metadata.{each}"
            for each in (*META_TEXTS, "labels{}", "annotations{}", "ownerReferences[]", "deletionTimestamp")
        ]
        + [f"{kind}.metadata.ownerReferences[].*"]
        for kind in ("workload", "budget", "quota")
    }
    skipped = {kind: tuple(found) for kind, found in names.items()}
    return [
        Row(
            "nodes",
            ("Node[]",),
            OF_NODES,
            fixed(5000),
            PLATFORM,
            beside(lambda n: [a_node(10_000 + at) for at in range(n)]),
        ),
        Row(
            "node: labels",
            ("node.metadata.labels{}",),
            *of_object(16),
            PLATFORM,
            beside(lambda n: [with_meta(a_node(10_000), labels=dict.fromkeys(texts(n), "v"))]),
        ),
        Row(
            "node: taints",
            ("node.spec.taints[]",),
            *of_object(50),
            PLATFORM,
            beside(lambda n: [a_node(10_000, taints=[{"key": each, "effect": "NoSchedule"} for each in texts(n)])]),
        ),
        Row(
            "node: conditions",
            ("node.status.conditions[]", "node.status.conditions[].*"),
            *of_object(60),
            PLATFORM,
            beside(
                lambda n: [
                    a_node(10_000) | {"status": {"conditions": [{"type": each, "status": "True"} for each in texts(n)]}}
                ]
            ),
        ),
        Row(
            "node: resources",
            ("node.status.allocatable{}",),
            *of_object(20),
            PLATFORM,
            beside(lambda n: [a_node(10_000) | {"status": {"allocatable": dict.fromkeys(texts(n, "x.io/"), "1")}}]),
        ),
        Row(
            "node: texts",
            (
                *(f"node.metadata.{each}" for each in META_TEXTS),
                "node.metadata.annotations{}",
                "node.metadata.owner**",
                "node.metadata.deletionTimestamp",
                "node.spec.taints[].*",
            ),
            OF_TEXT,
            fixed(253),
            PLATFORM,
            beside(lambda n: [plain.node("x" * n)]),
        ),
        Row(
            "topology domains: declared and excluded",
            ("TopologyDomains[]", "topologyDomains.**"),
            "CRD: maxItems, 64 objects",
            fixed(256),
            PLATFORM,
            beside(lambda n: [topology_domains(at, n) for at in range(MOST_TOPOLOGY_DOMAINS)]),
        ),
        Row(
            "namespaces",
            ("Namespace[]",),
            "Kubernetes: 10,000 namespaces",
            fixed(10_000),
            PLATFORM,
            beside(lambda n: [plain.namespace(f"n-{at}", team="a") for at in range(n)], across),
        ),
        Row(
            "namespace: labels",
            ("namespace.metadata.labels{}",),
            *of_object(16),
            PLATFORM,
            beside(lambda n: [plain.namespace("n-0", **dict.fromkeys(texts(n), "v"))], across),
        ),
        Row(
            "namespace: texts",
            (
                *(f"namespace.metadata.{each}" for each in META_TEXTS),
                "namespace.metadata.annotations{}",
                "namespace.metadata.owner**",
                "namespace.metadata.deletionTimestamp",
            ),
            OF_TEXT,
            fixed(63),
            PLATFORM,
            beside(lambda n: [plain.namespace("x" * n)]),
        ),
        *(
            Row(
                f"{kind}s of a namespace",
                (f"{kind}[]", *(skipped["workload"] if kind == "Service" else ())),
                OF_SERVICES if kind == "Service" else OF_EVENTS,
                fixed(8192),
                NAMESPACE,
                beside(workloads(kind, version)),
            )
            for kind, version in (
                ("Service", "v1"),
                ("ReplicationController", "v1"),
                ("ReplicaSet", "apps/v1"),
                ("StatefulSet", "apps/v1"),
            )
        ),
        Row(
            "workload: selector",
            ("workload.spec.selector.**",),
            *of_object(20),
            NAMESPACE,
            beside(lambda n: [a_service(0, {"app": "app-0", **dict.fromkeys(texts(n), "v")})]),
        ),
        Row(
            "disruption budgets of a namespace",
            ("PodDisruptionBudget[]", *skipped["budget"]),
            OF_EVENTS,
            fixed(3000),
            NAMESPACE,
            beside(lambda n: [a_budget(at) for at in range(n)], a_preemptor),
        ),
        Row(
            "disruption budgets of 20 requirements",
            ("PodDisruptionBudget[]",),
            OF_EVENTS,
            fixed(1000),
            NAMESPACE,
            beside(lambda n: [a_budget(at, 20) for at in range(n)], a_preemptor),
        ),
        Row(
            "disruption budget: requirements",
            ("budget.spec.selector.**",),
            *of_object(60),
            NAMESPACE,
            beside(lambda n: [a_budget(0, n)], a_preemptor),
        ),
        Row(
            "disruption budget: disrupted pods",
            ("budget.status.disruptedPods{}", "budget.status.disruptionsAllowed"),
            *of_object(40),
            NAMESPACE,
            beside(
                lambda n: [
                    a_budget(0) | {"status": {"disruptionsAllowed": n, "disruptedPods": dict.fromkeys(texts(n))}}
                ],
                a_preemptor,
            ),
        ),
        Row(
            "quotas of a namespace",
            ("ResourceQuota[]", *skipped["quota"]),
            "quota.maxPerNamespace",
            lambda settings: settings.quota.max_per_namespace,
            NAMESPACE,
            beside(lambda n: [a_quota(at) for at in range(n)], across),
        ),
        Row(
            "quotas of a namespace above quota.maxPerNamespace",
            ("ResourceQuota[]",),
            OF_EVENTS,
            fixed(4096),
            NAMESPACE,
            beside(lambda n: [a_quota(at) for at in range(n)], across),
        ),
        Row(
            "quota: resources",
            ("quota.spec.hard{}",),
            *of_object(30),
            NAMESPACE,
            beside(lambda n: [a_quota(0, hard={"pods": "9", **dict.fromkeys(texts(n, "requests.x"), "9")})], across),
        ),
        Row(
            "quota: scopes",
            (
                "quota.spec.scopes[]",
                "quota.spec.scopeSelector.matchExpressions[]",
                "quota.spec.scopeSelector.matchExpressions[].*",
            ),
            *of_object(20),
            NAMESPACE,
            beside(lambda n: [a_quota(0, scopes=["CrossNamespacePodAffinity", *["Terminating"] * n])], across),
        ),
        Row(
            "quota: values of a scope",
            ("quota.spec.scopeSelector.matchExpressions[].values[]",),
            *of_object(12),
            NAMESPACE,
            beside(
                lambda n: [
                    a_quota(
                        0,
                        scopeSelector={
                            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": texts(n)}]
                        },
                    )
                ],
                across,
            ),
        ),
        Row(
            "group placements of a namespace",
            ("GroupPlacement[]", "placement.metadata.*", "placement.spec.*", "placement.status.*"),
            OF_EVENTS,
            fixed(8192),
            NAMESPACE,
            beside(lambda n: [a_placement(at) for at in range(n)]),
        ),
        Row(
            "group placement: recorded pods",
            ("placement.spec.pods[]",),
            "CRD: maxItems",
            fixed(MOST_RECORDED),
            NAMESPACE,
            beside(lambda n: [a_recording_placement(n)]),
        ),
        Row(
            "group placement: levels and conditions",
            (
                "placement.spec.topology[]",
                "placement.spec.topology[].*",
                "placement.spec.topology[].tolerations[]",
                "placement.spec.topology[].tolerations[].*",
                "placement.status.conditions[]",
                "placement.status.conditions[].*",
            ),
            *of_object(40),
            NAMESPACE,
            beside(lambda n: [a_placement(0, n)]),
        ),
    ]
