"""Policies that must be accepted, and changes of them that must be refused, each with the field that the refusal names."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

from tests.builders import PREFERRED, REQUIRED

Json = dict[str, Any]

TO_COPY: Final = {
    path.name: path for path in sorted((Path(__file__).parents[3] / "config" / "policies").glob("*.yaml"))
}

API_VERSION: Final = "placement.extender.dev/v1alpha1"
_PODS: Final = {"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}
_TERM: Final = {
    "labelSelector": _PODS,
    "namespaces": ["team-a", "team-b"],
    "namespaceSelector": {"matchExpressions": [{"key": "example.com/team", "operator": "Exists"}]},
    "topologyKey": "topology.kubernetes.io/zone",
    "matchLabelKeys": ["pod-template-hash"],
    "mismatchLabelKeys": ["tenant"],
}
# Every field that a policy may have.
FULL: Final[Json] = {
    "apiVersion": API_VERSION,
    "kind": "ClusterPodSchedulingPolicy",
    "metadata": {"name": "full"},
    "spec": {
        "podSelector": _PODS,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}},
        "matchConditions": {
            "ownerKinds": ["StatefulSet"],
            "serviceAccounts": ["default", "db"],
            "priorityClassNames": ["system-node-critical"],
            "exclude": {
                "podSelector": {"matchLabels": {"app": "cache"}},
                "namespaces": ["kube-system"],
                "ownerKinds": ["Job"],
                "serviceAccounts": ["robot"],
                "priorityClassNames": ["batch"],
            },
        },
        "when": ["Admission", "Scheduling", "Release", "Execution"],
        "targets": "Both",
        "priority": -5,
        "conflictPolicy": "Override",
        "failurePolicy": "Fail",
        "mode": "Audit",
        "release": {
            "gate": "placement.extender.dev/gang",
            "group": {"label": "example.com/gang"},
            "size": {"annotation": "example.com/gang-size"},
            "topology": ["topology.kubernetes.io/zone"],
            "domains": [
                {
                    "name": "near",
                    "values": ["a", "b"],
                    "preferred": ["b"],
                    "quota": {"pods": 40, "resources": {"cpu": "160", "memory": "640Gi", "example.com/gpu": "8"}},
                },
                {
                    "name": "far",
                    "values": ["c"],
                    "mayGrow": True,
                    "tolerations": [
                        {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "spot", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60},
                    ],
                },
            ],
            "maxPerDomain": 60,
            "strategy": "InOrder",
            "exclusive": True,
            "noRoom": [{"action": "GrowingDomain"}, {"action": "Wait", "after": "1m30s"}],
            "laterPods": "ReplaceOrMove",
        },
        "execution": {
            "mode": "Evict",
            "constraints": ["NodeAffinity", "PodAffinity", "PodAntiAffinity", "TopologySpread"],
            "after": "2m30s",
            "minAge": "1h",
            "maxConcurrent": 3,
            "maxPerMinute": 60,
            "localStorage": "Keep",
            "persistentVolumes": "Move",
        },
        "nodeSelector": {"example.com/pool": "etcd", "dedicated": ""},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "pool", "operator": "In", "values": ["etcd", "etcd"]},
                                {"key": "cores", "operator": "Gt", "values": ["8"]},
                                {"key": "spot", "operator": "DoesNotExist"},
                            ],
                            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}],
                        },
                        {},
                    ]
                },
                PREFERRED: [
                    {"weight": 100, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
                ],
            },
            "podAffinity": {REQUIRED: [_TERM]},
            "podAntiAffinity": {REQUIRED: [_TERM], PREFERRED: [{"weight": 1, "podAffinityTerm": _TERM}]},
        },
        "tolerations": [
            {"key": "dedicated", "operator": "Equal", "value": "etcd", "effect": "NoExecute", "tolerationSeconds": -1},
            {"key": "dedicated", "value": "etcd"},
            {"operator": "Exists"},
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "minDomains": 3,
                "labelSelector": {"matchLabels": {"app": "db"}},
                "matchLabelKeys": ["pod-template-hash"],
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Ignore",
            },
            {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
        ],
        "spread": [
            {
                "topologyKey": "topology.kubernetes.io/zone",
                "matchLabelKeys": "IfMissing",
                "minDomains": "Declared",
                "unavailableDomains": "Exclude",
                "after": "2m30s",
                "fullDomains": "Exclude",
                "deletionCost": "Fullest",
            },
            {"topologyKey": "kubernetes.io/hostname", "minDomains": 3, "unavailableDomains": "Keep"},
        ],
        "schedulerNames": ["fast", "slow"],
        "schedulingGates": [{"name": "example.com/quota"}],
        "priorityClassName": "batch-high",
    },
}
STATUS: Final[Json] = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Valid",
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "Accepted",
            "message": "all directives can be applied",
        }
    ],
    "matchedPods": 12,
    "domains": [
        {
            "name": "near",
            "values": ["a", "b"],
            "quota": {"pods": 40, "resources": {"cpu": "160"}},
            "used": {"pods": 3, "resources": {"cpu": "1500m"}},
        },
        {"name": "far", "values": ["c"], "used": {"pods": 0}, "mayGrow": True},
    ],
    "excludedDomains": [
        {
            "topologyKey": "topology.kubernetes.io/zone",
            "domain": "a",
            "since": "2026-01-01T00:00:00Z",
            "reason": "Unavailable",
        }
        | {"until": "2026-01-01T02:00:00Z"}
    ],
    "execution": {
        "broken": 3,
        "planned": 1,
        "moved": 2,
        "stuck": 1,
        "stuckReasons": [{"reason": "no node passes", "constraints": 1}],
        "moves": [
            {
                "namespace": "default",
                "pod": "web-0",
                "uid": "b8e0a7c2",
                "kind": "StatefulSet",
                "controller": "web",
                "node": "node-1",
                "target": "node-2",
                "constraint": "TopologySpread",
                "since": "2026-01-01T00:00:00Z",
                "requests": {"cpu": "500m", "memory": "2Gi"},
            }
        ],
    },
    "lastApplied": "2026-01-01T00:00:00Z",
    "conflicts": [{"policy": "other", "field": "spec.schedulerName", "message": "both set it"}],
}


def policy(kind: str = "ClusterPodSchedulingPolicy", name: str = "one", **spec: Any) -> Json:
    """A policy for the pods of app `db` with these fields in its spec; the namespaced kind is in `default`."""
    namespace = {} if kind.startswith("Cluster") else {"namespace": "default"}
    metadata = {"name": name, **namespace}
    selects = {"podSelector": {"matchLabels": {"app": "db"}}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": {**selects, **deepcopy(spec)}}


def to_copy(name: str) -> Json:
    """A policy of config/policies."""
    found: Json = yaml.safe_load(TO_COPY[name].read_text("utf-8"))
    return found


def namespaced_full() -> Json:
    """The same as `FULL` without what only the cluster-wide kind has."""
    spec = {name: value for name, value in FULL["spec"].items() if name != "namespaceSelector"}
    return policy("PodSchedulingPolicy", "full", **spec)


def _affinity(part: str, **terms: Any) -> Json:
    return {"affinity": {part: terms}}


def _required(**term: Any) -> Json:
    return _affinity("nodeAffinity", **{REQUIRED: {"nodeSelectorTerms": [term]}})


def _expression(**requirement: Any) -> Json:
    return _required(matchExpressions=[requirement])


def _pod_term(**term: Any) -> Json:
    return _affinity("podAntiAffinity", **{REQUIRED: [{"topologyKey": "zone", **term}]})


def _toleration(**one: Any) -> Json:
    return {"tolerations": [one]}


def _spread(**one: Any) -> Json:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **one}
    return {"topologySpreadConstraints": [constraint]}


def _directing(**one: Any) -> Json:
    return {"spread": [{"topologyKey": "zone", **one}]}


def _release(**fields: Any) -> Json:
    return {"when": ["Release"], "release": {"topology": ["zone"], **fields}}


def _execution(**fields: Any) -> Json:
    return {"when": ["Execution"], "execution": fields}


def _domain(name: str, *values: str, **fields: Any) -> Json:
    return {"name": name, "values": list(values), **fields}


def _domains(*domains: Json, **fields: Any) -> Json:
    return _release(domains=list(domains), **fields)


_TERMS: Final = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
_EXPRESSION: Final = f"{_TERMS}[0].matchExpressions[0]"
_FIELD: Final = f"{_TERMS}[0].matchFields[0]"
_POD_TERM: Final = f"spec.affinity.podAntiAffinity.{REQUIRED}[0]"
_SPREAD: Final = "spec.topologySpreadConstraints[0]"

# By what is wrong: the spec, and the field that the refusal names.
BAD: Final[dict[str, tuple[Json, str]]] = {
    "selector: values missing": (
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "spec.podSelector.matchExpressions[0].values",
    ),
    "selector: values with Exists": (
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
        "spec.podSelector.matchExpressions[0].values",
    ),
    "selector: unknown operator": (
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
        "spec.podSelector.matchExpressions[0].operator",
    ),
    "selector: malformed key": (
        {"podSelector": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}},
        "spec.podSelector.matchExpressions[0].key",
    ),
    "selector: malformed value": ({"podSelector": {"matchLabels": {"a": "b c"}}}, "spec.podSelector.matchLabels.a"),
    "selector: no key": ({"podSelector": {"matchLabels": {"": "b"}}}, "spec.podSelector.matchLabels"),
    "namespace selector: values missing": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}},
        "spec.namespaceSelector.matchExpressions[0].values",
    ),
    "owner kind: a plural": (
        {"matchConditions": {"ownerKinds": ["statefulsets"]}},
        "spec.matchConditions.ownerKinds[0]",
    ),
    "service account: malformed": (
        {"matchConditions": {"serviceAccounts": ["a/b"]}},
        "spec.matchConditions.serviceAccounts[0]",
    ),
    "exclude: a namespace twice": (
        {"matchConditions": {"exclude": {"namespaces": ["a", "a"]}}},
        "spec.matchConditions.exclude.namespaces[1]",
    ),
    "when: nothing": ({"when": []}, "spec.when"),
    "when: unknown": ({"when": ["Eviction"]}, "spec.when[0]"),
    "execution: not at execution": ({"execution": {"mode": "Report"}}, "spec.execution"),
    "execution: an unknown mode": (_execution(mode="Delete"), "spec.execution.mode"),
    "execution: no constraint": (_execution(constraints=[]), "spec.execution.constraints"),
    "execution: an unknown constraint": (_execution(constraints=["Preferred"]), "spec.execution.constraints[0]"),
    "execution: after is too long": (_execution(after="25h"), "spec.execution.after"),
    "execution: after is no duration": (_execution(after="soon"), "spec.execution.after"),
    "execution: minAge is too long": (_execution(minAge="169h"), "spec.execution.minAge"),
    "execution: no move at a time": (_execution(maxConcurrent=0), "spec.execution.maxConcurrent"),
    "execution: no move in a minute": (_execution(maxPerMinute=0), "spec.execution.maxPerMinute"),
    "execution: unknown choice of local storage": (_execution(localStorage="Delete"), "spec.execution.localStorage"),
    "execution: unknown choice of volumes": (_execution(persistentVolumes="Copy"), "spec.execution.persistentVolumes"),
    "targets: unknown": ({"targets": "Deployments"}, "spec.targets"),
    "priority: too large": ({"priority": 2**31}, "spec.priority"),
    "conflict policy: unknown": ({"conflictPolicy": "Merge"}, "spec.conflictPolicy"),
    "failure policy: unknown": ({"failurePolicy": "Retry"}, "spec.failurePolicy"),
    "mode: unknown": ({"mode": "DryRun"}, "spec.mode"),
    "node selector: malformed value": ({"nodeSelector": {"pool": "a/b"}}, "spec.nodeSelector.pool"),
    "node name: malformed": ({"nodeName": "Node_1"}, "spec.nodeName"),
    "node name beside gates": ({"nodeName": "node-1", "schedulingGates": [{"name": "example.com/g"}]}, "spec.nodeName"),
    "terms: none": (_affinity("nodeAffinity", **{REQUIRED: {"nodeSelectorTerms": []}}), _TERMS),
    "terms: too many": (_affinity("nodeAffinity", **{REQUIRED: {"nodeSelectorTerms": [{}] * 65}}), _TERMS),
    "term: values missing": (_expression(key="a", operator="In"), f"{_EXPRESSION}.values"),
    "term: two values with Gt": (_expression(key="a", operator="Gt", values=["1", "2"]), f"{_EXPRESSION}.values"),
    "term: no integer with Lt": (_expression(key="a", operator="Lt", values=["x"]), f"{_EXPRESSION}.values"),
    "term: unknown operator": (_expression(key="a", operator="Is", values=["x"]), f"{_EXPRESSION}.operator"),
    "term: another field": (
        _required(matchFields=[{"key": "spec.unschedulable", "operator": "In", "values": ["a"]}]),
        f"{_FIELD}.key",
    ),
    "term: two names": (
        _required(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]),
        f"{_FIELD}.values",
    ),
    "preferred: weight 0": (
        _affinity("nodeAffinity", **{PREFERRED: [{"weight": 0, "preference": {}}]}),
        f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight",
    ),
    "preferred: weight 101": (
        _affinity("podAffinity", **{PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "zone"}}]}),
        f"spec.affinity.podAffinity.{PREFERRED}[0].weight",
    ),
    "pod term: no topology key": (_pod_term(topologyKey=""), f"{_POD_TERM}.topologyKey"),
    "pod term: malformed namespace": (_pod_term(namespaces=["Team"]), f"{_POD_TERM}.namespaces[0]"),
    "pod term: bad namespace selector": (
        _pod_term(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        f"{_POD_TERM}.namespaceSelector.matchExpressions[0].values",
    ),
    "pod term: match keys without selector": (_pod_term(matchLabelKeys=["a"]), f"{_POD_TERM}.matchLabelKeys"),
    "pod term: a key in both lists": (
        _pod_term(labelSelector={}, matchLabelKeys=["a"], mismatchLabelKeys=["a"]),
        f"{_POD_TERM}.matchLabelKeys",
    ),
    "pod term: a key of the selector": (
        _pod_term(labelSelector={"matchLabels": {"a": "b"}}, mismatchLabelKeys=["a"]),
        f"{_POD_TERM}.mismatchLabelKeys",
    ),
    "toleration: no key": (_toleration(operator="Equal", value="a"), "spec.tolerations[0].operator"),
    "toleration: value with Exists": (_toleration(key="a", operator="Exists", value="b"), "spec.tolerations[0].value"),
    "toleration: unknown operator": (_toleration(key="a", operator="Gt", value="5"), "spec.tolerations[0].operator"),
    "toleration: seconds without NoExecute": (
        _toleration(key="a", effect="NoSchedule", tolerationSeconds=5),
        "spec.tolerations[0].effect",
    ),
    "toleration: seconds as text": (
        _toleration(key="a", effect="NoExecute", tolerationSeconds="5"),
        "spec.tolerations[0].tolerationSeconds",
    ),
    "toleration: unknown effect": (_toleration(key="a", effect="Evict"), "spec.tolerations[0].effect"),
    "toleration: malformed key": (_toleration(key="a b"), "spec.tolerations[0].key"),
    "spread: no skew": (_spread(maxSkew=0), f"{_SPREAD}.maxSkew"),
    "spread: no domains": (_spread(minDomains=0), f"{_SPREAD}.minDomains"),
    "spread: unknown action": (_spread(whenUnsatisfiable="Never"), f"{_SPREAD}.whenUnsatisfiable"),
    "spread: match keys without selector": (_spread(matchLabelKeys=["a"]), f"{_SPREAD}.matchLabelKeys"),
    "spread: unknown policy": (_spread(nodeTaintsPolicy="Maybe"), f"{_SPREAD}.nodeTaintsPolicy"),
    "spread: one pair twice": (
        {"topologySpreadConstraints": 2 * _spread()["topologySpreadConstraints"]},
        "spec.topologySpreadConstraints[1]",
    ),
    "directives of spread: no topology key": (_directing(topologyKey=""), "spec.spread[0].topologyKey"),
    "directives of spread: a key twice": ({"spread": 2 * _directing()["spread"]}, "spec.spread[1]"),
    "directives of spread: too many keys": (
        {"spread": [{"topologyKey": f"k{number}"} for number in range(17)]},
        "spec.spread",
    ),
    "directives of spread: unknown use of label keys": (
        _directing(matchLabelKeys="Always"),
        "spec.spread[0].matchLabelKeys",
    ),
    "directives of spread: no domains": (_directing(minDomains=0), "spec.spread[0].minDomains"),
    "directives of spread: an unknown word": (_directing(minDomains="All"), "spec.spread[0].minDomains"),
    "directives of spread: unknown rule": (_directing(unavailableDomains="Drop"), "spec.spread[0].unavailableDomains"),
    "directives of spread: unknown rule of full ones": (_directing(fullDomains="Drop"), "spec.spread[0].fullDomains"),
    "directives of spread: a time of its own": (_directing(after="1m"), "spec.spread[0].after"),
    "directives of spread: no duration": (
        _directing(unavailableDomains="Exclude", after="soon"),
        "spec.spread[0].after",
    ),
    "directives of spread: part of a second": (
        _directing(unavailableDomains="Exclude", after="1500ms"),
        "spec.spread[0].after",
    ),
    "directives of spread: more than a day": (
        _directing(unavailableDomains="Exclude", after="25h"),
        "spec.spread[0].after",
    ),
    "directives of spread: excludes at admission": (
        {**_directing(unavailableDomains="Exclude"), "when": ["Admission"]},
        "spec.spread",
    ),
    "directives of spread: unknown cost": (_directing(deletionCost="Emptiest"), "spec.spread[0].deletionCost"),
    "directives of spread: costs at admission": (
        {**_directing(deletionCost="Fullest"), "when": ["Admission"]},
        "spec.spread",
    ),
    "directives of spread: for templates": ({**_directing(), "targets": "Templates"}, "spec.spread"),
    "scheduler name beside a list": ({"schedulerName": "a", "schedulerNames": ["b"]}, "spec.schedulerNames"),
    "scheduler names: none": ({"schedulerNames": []}, "spec.schedulerNames"),
    "scheduler name at scheduling": ({"schedulerName": "a", "when": ["Scheduling"]}, "spec.schedulerName"),
    "gates at scheduling": ({"schedulingGates": [{"name": "a.b/c"}], "when": ["Scheduling"]}, "spec.schedulingGates"),
    "gate: malformed name": ({"schedulingGates": [{"name": "a b"}]}, "spec.schedulingGates[0].name"),
    "gate: twice": ({"schedulingGates": [{"name": "a.b/c"}, {"name": "a.b/c"}]}, "spec.schedulingGates[1]"),
    "priority class at scheduling": ({"priorityClassName": "a", "when": ["Scheduling"]}, "spec.priorityClassName"),
    "priority class: malformed": ({"priorityClassName": "High"}, "spec.priorityClassName"),
    "release: no block": ({"when": ["Release"]}, "spec.release"),
    "release: not its moment": ({"release": {"topology": ["zone"]}}, "spec.release"),
    "release: beside a node": ({**_release(), "nodeName": "node-1"}, "spec.release"),
    "release: malformed gate": (_release(gate="placement.extender.dev/a b"), "spec.release.gate"),
    "release: empty gate": (_release(gate=""), "spec.release.gate"),
    "release: a gate of another domain": (_release(gate="example.com/gang"), "spec.release.gate"),
    "release: no topology": (_release(topology=[]), "spec.release.topology"),
    "release: too many levels": (_release(topology=list("abcde")), "spec.release.topology"),
    "release: a level twice": (_release(topology=["a", "b", "a"]), "spec.release.topology"),
    "release: malformed level": (_release(topology=["a", "b c"]), "spec.release.topology[1]"),
    "release: two kinds of group": (_release(group={"owner": True, "label": "gang"}), "spec.release.group"),
    "release: no kind of group": (_release(group={}), "spec.release.group"),
    "release: not by owner": (_release(group={"owner": False}), "spec.release.group.owner"),
    "release: malformed group label": (_release(group={"label": "a b"}), "spec.release.group.label"),
    "release: two sizes": (_release(size={"count": 2, "label": "size"}), "spec.release.size"),
    "release: empty size": (_release(size={}), "spec.release.size"),
    "release: no pods": (_release(size={"count": 0}), "spec.release.size.count"),
    "release: too many pods": (_release(size={"count": 10_001}), "spec.release.size.count"),
    "release: malformed size annotation": (_release(size={"annotation": "a b"}), "spec.release.size.annotation"),
    "release: unknown strategy": (_release(strategy="WorstFit"), "spec.release.strategy"),
    "release: exclusive is a word": (_release(exclusive="yes"), "spec.release.exclusive"),
    "release: no duration": (_release(noRoom=[{"action": "Wait", "after": "soon"}]), "spec.release.noRoom[0].after"),
    "release: more than a week": (
        _release(noRoom=[{"action": "Wait", "after": "169h"}]),
        "spec.release.noRoom[0].after",
    ),
    "release: no domains in order": (_release(strategy="InOrder"), "spec.release.domains"),
    "release: no domains": (_release(domains=[]), "spec.release.domains"),
    "release: too many domains": (_domains(*(_domain(f"d{at}", f"v{at}") for at in range(65))), "spec.release.domains"),
    "release: a domain without values": (_domains(_domain("a")), "spec.release.domains[0].values"),
    "release: a domain without a name": (_domains({"values": ["a"]}), "spec.release.domains[0].name"),
    "release: a domain with a malformed name": (_domains(_domain("A b", "a")), "spec.release.domains[0].name"),
    "release: a domain with a malformed value": (_domains(_domain("a", "b c")), "spec.release.domains[0].values[0]"),
    "release: a domain with an empty value": (_domains(_domain("a", "")), "spec.release.domains[0].values[0]"),
    "release: a domain with too many values": (
        _domains(_domain("a", *(f"v{at}" for at in range(65)))),
        "spec.release.domains[0].values",
    ),
    "release: an unknown value is preferred": (
        _domains(_domain("a", "b", preferred=["c"])),
        "spec.release.domains[0].preferred",
    ),
    "release: a domain with a toleration of every taint": (
        _domains(_domain("a", "b", tolerations=[{"operator": "Exists"}])),
        "spec.release.domains[0].tolerations[0].key",
    ),
    "release: a domain with a toleration of nodes that fail": (
        _domains(_domain("a", "b", tolerations=[{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}])),
        "spec.release.domains[0].tolerations[0].key",
    ),
    "release: a domain with a toleration of nothing": (
        _domains(_domain("a", "b", tolerations=[{"effect": "NoSchedule"}])),
        "spec.release.domains[0].tolerations[0].operator",
    ),
    "release: a domain with too many tolerations": (
        _domains(_domain("a", "b", tolerations=[{"key": f"k{at}"} for at in range(17)])),
        "spec.release.domains[0].tolerations",
    ),
    "release: several domains outside of the listed ones": (
        _domains(_domain("a", "b"), noRoom=[{"action": "SeveralDomains"}]),
        "spec.release.noRoom",
    ),
    "release: no limit of a domain": (_release(maxPerDomain=0), "spec.release.maxPerDomain"),
    "release: more than a domain may have": (
        _release(maxPerDomain=5, noRoom=[{"action": "SeveralDomains"}]),
        "spec.release.noRoom",
    ),
    "release: more than a domain may have in the end": (
        _release(maxPerDomain=5, noRoom=[{"action": "CoarserDomain"}]),
        "spec.release.noRoom",
    ),
    "release: an empty quota": (_domains(_domain("a", "b", quota={})), "spec.release.domains[0].quota"),
    "release: a quota of no pod": (
        _domains(_domain("a", "b", quota={"pods": -1})),
        "spec.release.domains[0].quota.pods",
    ),
    "release: a quota of too many resources": (
        _domains(_domain("a", "b", quota={"resources": {f"example.com/r{at}": "1" for at in range(17)}})),
        "spec.release.domains[0].quota.resources",
    ),
    "release: a negative quota": (
        _domains(_domain("a", "b", quota={"resources": {"cpu": "-1"}})),
        "spec.release.domains[0].quota.resources.cpu",
    ),
    "release: may it grow": (_domains(_domain("a", "b", mayGrow="yes")), "spec.release.domains[0].mayGrow"),
    "release: no domain may grow": (
        _domains(_domain("a", "b"), noRoom=[{"action": "GrowingDomain"}]),
        "spec.release.noRoom",
    ),
    "release: no action": (_release(noRoom=[]), "spec.release.noRoom"),
    "release: unknown action": (_release(noRoom=[{"action": "Panic"}]), "spec.release.noRoom[0].action"),
    "release: an action twice": (
        _release(noRoom=[{"action": "Preempt"}, {"action": "Preempt", "after": "1m"}]),
        "spec.release.noRoom[1]",
    ),
    "release: an action after no time": (
        _release(noRoom=[{"action": "Preempt", "after": "0s"}]),
        "spec.release.noRoom[0].after",
    ),
    "release: an action after the last one": (
        _release(noRoom=[{"action": "Anywhere"}, {"action": "Preempt"}]),
        "spec.release.noRoom",
    ),
    "release: an action that finds no domain to grow": (
        _release(noRoom=[{"action": "GrowingDomain"}]),
        "spec.release.noRoom",
    ),
    "release: an action outside of the domains": (
        _domains(_domain("a", "b"), noRoom=[{"action": "Anywhere"}]),
        "spec.release.noRoom",
    ),
    "release: unknown later pods": (_release(laterPods="Leave"), "spec.release.laterPods"),
    "wrong type": ({"priority": "high"}, "spec.priority"),
}
