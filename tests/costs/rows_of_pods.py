"""The rows of what one pod asks for."""

from __future__ import annotations

from functools import partial
from typing import Any

from extender.model.release import RELEASE_GATE
from extender.simulator.json_objects import JsonObject
from tests.costs.building import (
    AFFINITY,
    LISTS,
    META_TEXTS,
    OF_NUMBER,
    OF_TEXT,
    POD,
    SELECTORS,
    SPEC,
    Row,
    a_constraint,
    a_pod,
    a_term,
    an_owner,
    apart,
    expressions,
    fixed,
    node_terms,
    of_object,
    of_pod_bytes,
    preferring,
    setting,
    terms_of,
    texts,
    with_meta,
    with_request,
    with_spec,
    with_status,
)
from tests.costs.measuring import Play
from tests.simulator.plain import HOSTNAME, ZONE


def _many_terms(kind: str, when: str, n: int) -> JsonObject:
    terms = [a_term({"matchLabels": {"app": f"app-{at}"}}, (ZONE, HOSTNAME)[at % 2]) for at in range(n)]
    return terms_of(kind, when, terms)


def pod_rows() -> list[Row]:
    return [
        *(
            Row(
                f"pod: {when} terms of {kind}",
                (f"{AFFINITY}.{kind}.{when}[]",),
                *setting("affinityTerms"),
                POD,
                with_spec(affinity=partial(_many_terms, kind, when)),
            )
            for kind, when in LISTS
        ),
        Row(
            "pod: topology keys",
            (f"{AFFINITY}.pod*.**.topologyKey", f"{SPEC}.topologySpreadConstraints[].topologyKey"),
            *setting("topologyKeys"),
            POD,
            with_spec(affinity=lambda n: apart(*(a_term(key=f"key-{at}") for at in range(n)))),
        ),
        Row(
            "pod: labels of a selector",
            (
                *(f"{each}.labelSelector.matchLabels{{}}" for each in SELECTORS),
                f"{AFFINITY}.pod*.**.namespaceSelector.matchLabels{{}}",
            ),
            *setting("labelRequirements"),
            POD,
            with_spec(affinity=lambda n: apart(a_term({"matchLabels": dict.fromkeys(texts(n), "v")}))),
        ),
        Row(
            "pod: requirements of a selector",
            (
                *(f"{each}.labelSelector.matchExpressions[]" for each in SELECTORS),
                f"{AFFINITY}.pod*.**.namespaceSelector.matchExpressions[]",
            ),
            *setting("labelRequirements"),
            POD,
            with_spec(
                affinity=lambda n: apart(a_term({"matchExpressions": expressions(n)}, namespaceSelector={})),
            ),
        ),
        Row(
            "pod: values of a selector",
            (
                *(f"{each}.labelSelector.matchExpressions[].values[]" for each in SELECTORS),
                f"{AFFINITY}.pod*.**.namespaceSelector.matchExpressions[].values[]",
            ),
            *setting("selectorValues"),
            POD,
            with_spec(
                affinity=lambda n: apart(
                    a_term({"matchExpressions": [{"key": "app", "operator": "In", "values": texts(n, "app-")}]})
                )
            ),
        ),
        Row(
            "pod: namespaces of a term",
            (f"{AFFINITY}.pod*.**.namespaces[]",),
            *setting("namespaces"),
            POD,
            with_spec(affinity=lambda n: apart(a_term(namespaces=texts(n)))),
        ),
        Row(
            "pod: required node terms",
            (f"{AFFINITY}.nodeAffinity.required.nodeSelectorTerms[]",),
            *setting("nodeSelectorTerms"),
            POD,
            with_spec(affinity=lambda n: node_terms([{"matchExpressions": [e]} for e in expressions(n, "In")])),
        ),
        Row(
            "pod: preferred node terms",
            (f"{AFFINITY}.nodeAffinity.preferred[]",),
            *setting("nodeSelectorTerms"),
            POD,
            with_spec(affinity=lambda n: preferring([{"matchExpressions": [e]} for e in expressions(n, "NotIn")])),
        ),
        Row(
            "pod: requirements of a node term",
            (f"{AFFINITY}.nodeAffinity.**.matchExpressions[]", f"{AFFINITY}.nodeAffinity.**.matchFields[]"),
            *setting("nodeRequirements"),
            POD,
            with_spec(affinity=lambda n: node_terms([{"matchExpressions": expressions(n)}])),
        ),
        Row(
            "pod: values of a node requirement",
            (
                f"{AFFINITY}.nodeAffinity.**.matchExpressions[].values[]",
                f"{AFFINITY}.nodeAffinity.**.matchFields[].values[]",
            ),
            *setting("selectorValues"),
            POD,
            with_spec(
                affinity=lambda n: node_terms(
                    [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": texts(n, "node-")}]}]
                )
            ),
        ),
        Row(
            "pod: nodeSelector",
            (f"{SPEC}.nodeSelector{{}}",),
            *setting("nodeRequirements"),
            POD,
            with_spec(nodeSelector=lambda n: dict.fromkeys(texts(n), "v")),
        ),
        Row(
            "pod: tolerations",
            (f"{SPEC}.tolerations[]",),
            *setting("tolerations"),
            POD,
            with_spec(tolerations=lambda n: [{"key": key, "operator": "Exists"} for key in texts(n)]),
        ),
        Row(
            "pod: spread constraints",
            (f"{SPEC}.topologySpreadConstraints[]",),
            *setting("topologySpreadConstraints"),
            POD,
            with_spec(topologySpreadConstraints=lambda n: [a_constraint(at) for at in range(n)]),
        ),
        Row(
            "pod: label keys of a spread constraint",
            (f"{SPEC}.topologySpreadConstraints[].matchLabelKeys[]",),
            *setting("labelRequirements"),
            POD,
            with_request(
                lambda n: a_pod(
                    labels=dict.fromkeys(texts(n), "v"),
                    topologySpreadConstraints=[a_constraint(0, matchLabelKeys=texts(n))],
                )
            ),
        ),
        Row(
            "pod: labels",
            ("pod.metadata.labels{}",),
            *of_pod_bytes(12),
            POD,
            with_request(lambda n: a_pod(labels=dict.fromkeys(texts(n), "v"))),
        ),
        Row(
            "pod: owners",
            ("pod.metadata.ownerReferences[]",),
            *of_pod_bytes(80),
            POD,
            with_request(lambda n: with_meta(a_pod(), ownerReferences=[an_owner(at) for at in range(n)])),
        ),
        Row(
            "pod: annotations",
            ("pod.metadata.annotations{}",),
            "API server: 256 KiB of annotations",
            fixed(2**18 // 16),
            POD,
            with_request(lambda n: with_meta(a_pod(), annotations=dict.fromkeys(texts(n), "v"))),
        ),
        *_container_rows(),
        Row(
            "pod: gates",
            (f"{SPEC}.schedulingGates[]",),
            *of_object(20),
            POD,
            lambda n: Play([a_pod(schedulingGates=[{"name": each} for each in texts(n, RELEASE_GATE)])]),
        ),
        Row(
            "pod: volumes",
            (f"{SPEC}.volumes[]", f"{SPEC}.volumes[].*"),
            *of_object(60),
            POD,
            with_spec(volumes=lambda n: [{"name": each, "emptyDir": {}} for each in texts(n)]),
        ),
        Row(
            "pod: claims of devices",
            (f"{SPEC}.resourceClaims[]",),
            *of_object(40),
            POD,
            with_spec(resourceClaims=lambda n: [{"name": each} for each in texts(n)]),
        ),
        Row(
            "pod: conditions",
            ("pod.status.conditions[]",),
            *of_object(60),
            POD,
            lambda n: with_status(conditions=[{"type": f"PodScheduled{at}", "status": "False"} for at in range(n)]),
        ),
        Row(
            "pod: the text of a condition",
            ("pod.status.conditions[].*",),
            *of_object(1),
            POD,
            lambda n: with_status(
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x" * n}]
            ),
        ),
        Row(
            "pod: texts",
            (
                *(f"pod.metadata.{each}" for each in META_TEXTS),
                "pod.metadata.ownerReferences[].*",
                *(
                    f"{SPEC}.{each}"
                    for each in ("nodeName", "priorityClassName", "serviceAccountName", "preemptionPolicy")
                ),
                f"{SPEC}.schedulerName",
                f"{AFFINITY}.**.key",
                f"{AFFINITY}.**.operator",
                f"{SPEC}.topologySpreadConstraints[].whenUnsatisfiable",
                f"{SPEC}.topologySpreadConstraints[].labelSelector.matchExpressions[].*",
                f"{SPEC}.topologySpreadConstraints[].node*Policy",
                f"{SPEC}.tolerations[].*",
                f"{SPEC}.*ontainers[].restartPolicy",
                f"{SPEC}.*ontainers[].ports[].*",
                "pod.status.phase",
                "pod.status.nominatedNodeName",
                "pod.status.qosClass",
            ),
            OF_TEXT,
            fixed(253),
            POD,
            with_spec(
                priorityClassName=lambda n: "x" * n,
                serviceAccountName=lambda n: "x" * n,
                schedulerName=lambda n: "x" * n,
                tolerations=lambda n: [{"key": "x" * n, "operator": "Equal", "value": "x" * n}],
                affinity=lambda n: apart(a_term({"matchLabels": {"x" * n: "x" * n}}, key="x" * n)),
            ),
        ),
        Row(
            "pod: numbers",
            (
                f"{SPEC}.priority",
                f"{SPEC}.activeDeadlineSeconds",
                f"{AFFINITY}.**.weight",
                f"{SPEC}.topologySpreadConstraints[].maxSkew",
                f"{SPEC}.topologySpreadConstraints[].minDomains",
                f"{SPEC}.containers[].ports[].hostPort",
                "pod.metadata.deletionTimestamp",
                "pod.status.startTime",
            ),
            OF_NUMBER,
            fixed(2**31 - 1),
            POD,
            with_request(
                lambda n: a_pod(priority=n, topologySpreadConstraints=[a_constraint(0, maxSkew=n, minDomains=n)])
            ),
        ),
        Row(
            "pod: all of it, above limits.podBytes",
            ("pod.metadata.labels{}", f"{AFFINITY}.podAntiAffinity.required[]"),
            *of_object(90),
            POD,
            with_spec(affinity=lambda n: apart(*(a_term({"matchLabels": {"app": f"app-{at}"}}) for at in range(n)))),
        ),
    ]


def _container_rows() -> list[Row]:
    def containers(n: int, **more: Any) -> list[JsonObject]:
        return [{"name": each, "image": "x", **more} for each in texts(n)]

    def ports(n: int) -> list[JsonObject]:
        found = [{"containerPort": 1, "hostPort": 1 + at % 65535, "hostIP": f"10.0.{at >> 16}.1"} for at in range(n)]
        return [{"name": "main", "ports": found}]

    requests = {"requests": {"cpu": "1m"}, "limits": {"cpu": "1m"}}

    def resized(containers: list[JsonObject], statuses: list[JsonObject]) -> Play:
        """A pod on a node whose resize is not done: what is allocated counts beside what is wanted."""
        conditions = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
        status = {"containerStatuses": statuses, "conditions": conditions, "phase": "Running"}
        incoming = a_pod()
        return Play(
            [{**a_pod("resized", on="node-0", containers=containers), "status": status}, incoming], requested=[incoming]
        )

    def statuses(n: int) -> Play:
        amounts = {"cpu": "2m"}
        found = [{"name": each, "allocatedResources": amounts, "resources": {"requests": amounts}} for each in texts(n)]
        return resized(containers(n, resources=requests), found)

    def allocated(n: int) -> Play:
        amounts = dict.fromkeys(texts(n, "example.com/"), "1")
        status = {"name": "x0", "allocatedResources": amounts, "resources": {"requests": amounts, "limits": amounts}}
        return resized(containers(1, resources={"requests": amounts}), [status])

    return [
        Row(
            "pod: containers",
            (f"{SPEC}.containers[]", f"{SPEC}.initContainers[]"),
            *of_object(80),
            POD,
            with_spec(
                containers=lambda n: containers(n, resources=requests),
                initContainers=lambda n: containers(n // 2, restartPolicy="Always", resources=requests),
            ),
        ),
        Row(
            "pod: resources",
            (f"{SPEC}.**.requests{{}}", f"{SPEC}.**.limits{{}}", f"{SPEC}.overhead{{}}"),
            *of_object(20),
            POD,
            with_spec(
                containers=lambda n: containers(
                    1, resources={"requests": dict.fromkeys(texts(n, "example.com/"), "1")}
                ),
            ),
        ),
        Row(
            "pod: resources, several schedulers",
            (f"{SPEC}.**.requests{{}}", f"{SPEC}.**.limits{{}}", f"{SPEC}.overhead{{}}"),
            *of_object(20),
            POD,
            with_spec(
                containers=lambda n: containers(1, resources={"requests": dict.fromkeys(texts(n, "x.io/"), "1")}),
            ),
            sections={"schedulers": "many"},
        ),
        Row(
            "pod: statuses of containers",
            ("pod.status.*ontainerStatuses[]", "pod.status.*ontainerStatuses[].name", f"{SPEC}.*ontainers[].name"),
            *of_object(160),
            POD,
            statuses,
        ),
        Row(
            "pod: resources that are allocated",
            (
                "pod.status.**.requests{}",
                "pod.status.**.limits{}",
                "pod.status.**.allocatedResources{}",
                "pod.status.allocatedResources{}",
            ),
            *of_object(80),
            POD,
            allocated,
        ),
        Row(
            "pod: host ports",
            (f"{SPEC}.containers[].ports[]", f"{SPEC}.initContainers[].ports[]"),
            *setting("hostPorts"),
            POD,
            with_spec(containers=ports),
        ),
        Row(
            "pod: host ports, several schedulers",
            (f"{SPEC}.containers[].ports[]",),
            *setting("hostPorts"),
            POD,
            with_spec(containers=ports),
            sections={"schedulers": "many"},
        ),
        Row(
            "pod: host ports above limits.hostPorts, several schedulers",
            (f"{SPEC}.containers[].ports[]",),
            *of_object(40),
            POD,
            with_spec(containers=ports),
            sections={"schedulers": "many"},
        ),
    ]
