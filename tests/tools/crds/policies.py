"""The CRDs of policies as documents. `python -m tests.tools.crds` writes the file of all CRDs, `tests.tools.crds.file`."""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from tests.tools.crds import schema
from tests.tools.crds.schema import RULES, Schema, listed, record, release, rule, text

GROUP: Final = "placement.extender.dev"
VERSION: Final = "v1alpha1"
MOMENTS: Final = ("Admission", "Scheduling", "Release")
HEAD: Final = """\
# Scheduling policies: who (selectors), what (directives), when.
# The API server refuses a bad policy by these schemas and CEL rules, also while the webhook is down.
"""
_AT_ADMISSION_ONLY: Final = ("schedulerName", "schedulerNames", "schedulingGates", "priorityClassName")


_COLUMNS: Final = (
    ("Priority", "integer", ".spec.priority"),
    ("When", "string", ".spec.when"),
    ("Mode", "string", ".spec.mode"),
    ("Matched", "integer", ".status.matchedPods"),
    ("Valid", "string", '.status.conditions[?(@.type=="Valid")].status'),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def crds() -> list[Schema]:
    """The cluster-wide and the namespaced kind."""
    return [
        crd(kind, f"{kind.lower()[:-1]}ies", short, scope, _COLUMNS, _object(is_cluster=scope == "Cluster"))
        for kind, short, scope in (
            ("ClusterPodSchedulingPolicy", "cpodpol", "Cluster"),
            ("PodSchedulingPolicy", "podpol", "Namespaced"),
        )
    ]


def dumped(documents: Sequence[Schema]) -> str:
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=120, explicit_start=True)


class _Plain(yaml.SafeDumper):
    """Without anchors, which some tools do not read."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def crd(
    kind: str, plural: str, short: str, scope: str, columns: Sequence[tuple[str, str, str]], schema: Schema
) -> Schema:
    """A CRD with one version. ``columns``: name, type and path."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["placement"],
            },
            "scope": scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _object(*, is_cluster: bool) -> Schema:
    about = "A rule for the scheduling of pods" + (" in any namespace." if is_cluster else " of its namespace.")
    fields = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _spec(is_cluster=is_cluster),
        "status": _status(),
    }
    return record(fields, about)


def _spec(*, is_cluster: bool) -> Schema:
    fields = {"podSelector": schema.label_selector("Which pods, by label. Empty: all. Absent: none.")}
    if is_cluster:
        fields["namespaceSelector"] = schema.label_selector("Which namespaces, by label. Empty: all. Absent: none.")
    fields |= {"matchConditions": _match_conditions()} | _behaviour() | _directives()
    rules = [
        rule(
            "!has(self.schedulerName) || !has(self.schedulerNames)",
            "may not be specified beside schedulerName",
            ".schedulerNames",
            "FieldValueForbidden",
        ),
        rule(
            "!has(self.nodeName) || !has(self.schedulingGates) || size(self.schedulingGates) == 0",
            "may not be specified beside schedulingGates: the API server refuses a gated pod that has a node",
            ".nodeName",
            "FieldValueForbidden",
        ),
        *(
            rule(
                f"!has(self.{field}) || !has(self.when) || 'Admission' in self.when",
                "acts at admission only, so `when` must contain Admission",
                f".{field}",
            )
            for field in _AT_ADMISSION_ONLY
        ),
        *RULES,
    ]
    return record(fields, rules=rules)


def _match_conditions() -> Schema:
    def selectors() -> dict[str, Schema]:
        return {
            "ownerKinds": listed(
                text(schema.KIND_NAME, 63), 16, "Kinds of the pod's controller, such as StatefulSet.", is_set=True
            ),
            "serviceAccounts": listed(text(schema.DNS_SUBDOMAIN), 64, "Names of service accounts.", is_set=True),
            "priorityClassNames": listed(text(schema.DNS_SUBDOMAIN), 32, "Names of priority classes.", is_set=True),
        }

    excluded = {
        "podSelector": schema.label_selector("Pods by label. Absent: none is excluded."),
        "namespaces": listed(text(schema.DNS_LABEL, 63), 64, "Namespaces by name.", is_set=True),
        **selectors(),
    }
    fields = {**selectors(), "exclude": record(excluded, "A pod that any of these fields names is not selected.")}
    return record(fields, "All fields must hold; of a list one entry must.")


def _behaviour() -> dict[str, Schema]:
    def choice(about: str, *choices: str) -> Schema:
        return text(about=about, choices=choices) | {"default": choices[0]}

    when = listed(text(choices=MOMENTS), len(MOMENTS), "The moments at which the policy acts.", least=1, is_set=True)
    return {
        "when": when | {"default": list(MOMENTS[:2])},
        "targets": choice("What is changed at admission.", "Pods", "Templates", "Both"),
        "priority": {
            "description": "Higher goes first; then the cluster-wide kind, then the name.",
            "type": "integer",
            "format": "int32",
            "minimum": -(2**31),  # by the format alone the refusal would not name the field
            "maximum": 2**31 - 1,
            "default": 0,
        },
        "conflictPolicy": choice("What happens to a field that the pod has set.", "KeepPod", "Override", "Reject"),
        "failurePolicy": choice("What happens to the pod if this policy cannot be applied.", "Ignore", "Fail"),
        "mode": choice("Audit only reports what the policy would do.", "Enforce", "Audit"),
        "release": release(),
    }


def _directives() -> dict[str, Schema]:
    name = schema.DNS_SUBDOMAIN
    scheduler = text(schema.SCHEDULER_NAME)
    return {
        "nodeSelector": schema.label_map("Labels that the node must have.", 32),
        "nodeName": text(name, about="The node. The pod does not pass a scheduler then."),
        "affinity": schema.affinity(),
        "tolerations": schema.tolerations(),
        "topologySpreadConstraints": schema.topology_spread_constraints(),
        "spread": schema.spread(),
        "schedulerName": scheduler | {"description": "The scheduler that places the pod."},
        "schedulerNames": listed(scheduler, 16, "One of these, by a hash of the owner's UID.", least=1, is_set=True),
        "schedulingGates": schema.scheduling_gates(),
        "priorityClassName": text(name, about="The priority class of the pod."),
    }


def _status() -> Schema:
    moment = {"type": "string", "format": "date-time"}
    counted = {"type": "integer", "format": "int64", "minimum": 0}
    condition = record(
        {
            "type": text(choices=("Valid", "Conflicting")),
            "status": text(choices=("True", "False", "Unknown")),
            "observedGeneration": counted,
            "lastTransitionTime": moment,
            "reason": text(longest=1024),
            "message": text(longest=32768),
        },
        required=("type", "status", "lastTransitionTime", "reason", "message"),
    )
    excluded = record(
        {
            "topologyKey": text(longest=317),
            "domain": text(longest=63),
            "since": moment,
            "until": moment,
            "reason": text(choices=("Operator", "Unavailable")),
        },
        required=("topologyKey", "domain", "since", "reason"),
    )
    conflict = record(
        {"policy": text(longest=317), "field": text(longest=512), "message": text(longest=1024)},
        required=("policy", "field", "message"),
    )
    return record(
        {
            "observedGeneration": counted,
            "conditions": listed(condition, 8, keys=("type",)),
            "matchedPods": counted | {"description": "Pods that the policy selects."},
            "lastApplied": moment
            | {
                "description": "When it last changed a pod, or a template that the replica that leads has admitted. "
                "Written at most once a minute."
            },
            "domains": schema.domain_uses(),
            "excludedDomains": listed(
                excluded,
                64,
                "The domains that its directives about spread leave out now. Written every ten seconds at most.",
            ),
            "conflicts": listed(
                conflict,
                16,
                "With other policies, and with pods that the replica that leads has admitted since the policy changed.",
            ),
        },
        "Written by the extender.",
    )


def rules_of(found: Schema, path: Sequence[str] = ()) -> list[tuple[str, str]]:
    """(path, CEL expression) of every rule in a schema."""
    own = [("/".join(path), each["rule"]) for each in found.get("x-kubernetes-validations", ())]
    inner = {**found.get("properties", {}), "items": found.get("items"), "values": found.get("additionalProperties")}
    return own + [each for name, part in inner.items() if part for each in rules_of(part, [*path, name])]
