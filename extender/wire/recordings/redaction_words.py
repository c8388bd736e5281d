"""The words that a redacted recording keeps: names of fields, constants of the Kubernetes API, and well-known labels.

Everything else that is text is replaced (`wire/recordings/redaction.py`), so a word that is missing here costs a difference in a
replay, and never shows a name. The names of fields are derived from the types that are recorded and decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, StrEnum
from typing import Any, Final

from msgspec import inspect

from extender.model import policies, release
from extender.model.constraints.labels import Operator
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.wire.objects.objects_json import AffinityJson, LabelSelectorJson, SpreadJson, TolerationJson
from extender.wire.policies.node_terms import LISTS, NODE_TERMS
from extender.wire.policies.policies_v1 import spec_fields
from extender.wire.policies.release_v1 import RELEASE_FIELDS
from extender.wire.recordings.recording import LINE_TYPES, OBJECT_AND_CLAIM_TYPES

_TYPES: Final = (
    *LINE_TYPES,
    *OBJECT_AND_CLAIM_TYPES,
    *(AffinityJson, LabelSelectorJson, SpreadJson, TolerationJson),
    Settings,
)
_CONSTANTS: Final[tuple[type[StrEnum], ...]] = (
    *(Operator, release.ReleaseMode, release.Strategy, release.OnTimeout, release.Replacement, release.Phase),
    *(policies.Moment, policies.Targets, policies.ConflictPolicy, policies.FailurePolicy, policies.Mode),
)
# Of policies: their objects, and the annotation that records what was injected.
_POLICY_WORDS: Final = """
    apiVersion kind metadata name namespace generation spec exclude ownerKinds serviceAccounts priorityClassNames namespaces
    nodeSelectorTerms matchExpressions matchFields nodeAffinity podAffinity podAntiAffinity label owner count annotation
    policies created terms before after policy fields lists wereFields wasNodeSelector wereConstraints
    Policy Pod
    requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
"""
_API_WORDS: Final = """
    true false Equal NoSchedule PreferNoSchedule NoExecute Honor Ignore DoNotSchedule ScheduleAnyway metadata.name
    CrossNamespacePodAffinity Terminating NotTerminating BestEffort NotBestEffort PriorityClass
    cpu memory ephemeral-storage pods count count/pods storage services
    TCP UDP SCTP 0.0.0.0
    v1 apps/v1 batch/v1 Service ReplicationController ReplicaSet StatefulSet Deployment DaemonSet Job CronJob
    default kube-system kube-public kube-node-lease system-cluster-critical system-node-critical default-scheduler linux windows
"""
# https://kubernetes.io/docs/reference/labels-annotations-taints/. The values of these labels are not kept.
_LABELS: Final = """
    kubernetes.io/hostname kubernetes.io/metadata.name kubernetes.io/os kubernetes.io/arch kubernetes.io/cluster-service
    topology.kubernetes.io/zone topology.kubernetes.io/region
    failure-domain.beta.kubernetes.io/zone failure-domain.beta.kubernetes.io/region
    beta.kubernetes.io/os beta.kubernetes.io/arch beta.kubernetes.io/instance-type
    node.kubernetes.io/instance-type node.kubernetes.io/windows-build
    node.kubernetes.io/exclude-from-external-load-balancers node.kubernetes.io/exclude-disruption
    node.kubernetes.io/unschedulable node.kubernetes.io/not-ready node.kubernetes.io/unreachable
    node.kubernetes.io/memory-pressure node.kubernetes.io/disk-pressure node.kubernetes.io/pid-pressure
    node.kubernetes.io/network-unavailable node.kubernetes.io/out-of-service
    node.cloudprovider.kubernetes.io/uninitialized node.cloudprovider.kubernetes.io/shutdown
    node-role.kubernetes.io/control-plane node-role.kubernetes.io/master
    app.kubernetes.io/name app.kubernetes.io/instance app.kubernetes.io/version app.kubernetes.io/component
    app.kubernetes.io/part-of app.kubernetes.io/managed-by
    pod-template-hash controller-revision-hash pod-template-generation
    statefulset.kubernetes.io/pod-name apps.kubernetes.io/pod-index
    batch.kubernetes.io/job-name batch.kubernetes.io/controller-uid batch.kubernetes.io/job-completion-index
"""
_PREFIXES: Final = """
    kubernetes.io topology.kubernetes.io node.kubernetes.io node-role.kubernetes.io app.kubernetes.io apps.kubernetes.io
    batch.kubernetes.io statefulset.kubernetes.io pod-security.kubernetes.io
"""


def _words() -> Iterator[str]:
    yield from (each.__name__ for each in OBJECT_AND_CLAIM_TYPES)
    yield from _names(_TYPES)
    for constants in _CONSTANTS:
        yield from constants
    yield from (text for each in Reason for text in (each.label, each.text))
    yield from f"{_POLICY_WORDS} {_API_WORDS} {_LABELS} {_PREFIXES}".split()
    yield from (*spec_fields(is_cluster=True), *RELEASE_FIELDS)
    groups = (policies.GROUP, policies.KUPID_GROUP)
    yield from (*groups, *(f"{group}/{policies.VERSION}" for group in groups))
    yield from (policies.NAMESPACED_KIND, policies.CLUSTER_KIND, policies.EXEMPT_LABEL, release.RELEASE_GATE)
    for path in (*LISTS, NODE_TERMS):
        parts = path.split(".")
        yield from parts
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _names(types: Iterable[Any]) -> Iterator[str]:
    """The names of the fields of these types and of all within, their tags and the constants that they allow."""
    waiting: list[Any] = list(inspect.multi_type_info(types))
    seen: set[Any] = set()
    while waiting:
        info = waiting.pop()
        match info:
            case inspect.StructType(cls=cls) | inspect.DataclassType(cls=cls) | inspect.NamedTupleType(cls=cls):
                if cls not in seen:
                    seen.add(cls)
                    yield from (field.encode_name for field in info.fields)
                    yield from (str(getattr(info, name, None) or "") for name in ("tag_field", "tag"))
                    waiting += (field.type for field in info.fields)
            case inspect.LiteralType(values=values):
                yield from map(str, values)
            case inspect.EnumType(cls=cls):
                yield from (str(each.value) for each in _members(cls))
            case _:
                waiting += _within(info)


def _within(info: inspect.Type) -> tuple[inspect.Type, ...]:
    """The types of the parts of a value; none for texts and numbers, and for types with a form of their own."""
    match info:
        case inspect.UnionType(types=found):
            return found
        case inspect.TupleType(item_types=found):
            return found
        case inspect.DictType(key_type=key, value_type=value):
            return key, value
        case inspect.CollectionType(item_type=item) | inspect.Metadata(type=item):
            return (item,)
        case _:
            return ()


def _members(constants: type[Enum]) -> list[Enum]:
    return list(constants)


WORDS: Final = frozenset(_words()) - {""}
