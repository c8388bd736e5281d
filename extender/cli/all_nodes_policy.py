"""The admission policy that gives pods which prefer few nodes the scheduler's profile that filters all nodes.

kube-scheduler samples nodes by profile, and only `schedulerName` chooses the profile of a pod. The API server applies the policy
itself (Kubernetes 1.36 or later), so it needs no webhook. See "Sampling" in config/explanation/placement.md.
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from collections.abc import Sequence
from typing import Final

from extender.cli.main import CommandError

_NAME: Final = "placement-all-nodes"
_SINCE: Final = 36  # MutatingAdmissionPolicy in version v1
# Each of their values has many nodes in a cluster that is large enough for a sample, so a sample has some of them.
_OF_MANY_NODES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubernetes.io/os",
    "kubernetes.io/arch",
)
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def check_all_nodes_policy(minor: int) -> None:
    """Raises CommandError for a version of Kubernetes that cannot apply the policy."""
    if minor < _SINCE:
        raise CommandError(
            f"--all-nodes-policy: Kubernetes 1.{minor} does not serve MutatingAdmissionPolicy in version v1, 1.{_SINCE} does. A policy of "
            "the extender with schedulerName gives the profile to pods by labels"
        )


def all_nodes_policy(profile: str, all_nodes: str, exempt: Sequence[str]) -> str:
    """The policy and its binding, as text with comments.

    ``profile``: the name that pods have without it. ``all_nodes``: the name that pods get. ``exempt``: namespaces left out.
    """
    keys = ", ".join(f"'{key}'" for key in _OF_MANY_NODES)
    lines = [
        "# Gives new pods that prefer few nodes the profile that filters all nodes: pods with preferred node affinity, except by zone,",
        "# region, operating system or architecture alone, and pods with preferred pod affinity by host name.",
        "apiVersion: admissionregistration.k8s.io/v1",
        "kind: MutatingAdmissionPolicy",
        "metadata:",
        f"  name: {_NAME}",
        "spec:",
        "  failurePolicy: Ignore # without it a pod is placed by a sample of the nodes",
        "  reinvocationPolicy: IfNeeded # a webhook may add a preference or set schedulerName",
        "  matchConstraints:",
        "    namespaceSelector:",
        "      matchExpressions:",
        f"        - {{key: kubernetes.io/metadata.name, operator: NotIn, values: [{', '.join(exempt)}]}}",
        "    resourceRules:",
        '      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}',
        "  matchConditions:",
        "    - name: scheduler",
        f"      expression: object.spec.schedulerName == '{profile}'",
        "    - name: preference",
        "      expression: >-",
        f"        object.spec.?affinity.?nodeAffinity.?{_PREFERRED}.orValue([])",
        "        .exists(t, t.preference.?matchFields.orValue([]).size() > 0",
        f"        || t.preference.?matchExpressions.orValue([]).exists(e, !(e.key in [{keys}])))",
        f"        || object.spec.?affinity.?podAffinity.?{_PREFERRED}.orValue([])",
        "        .exists(t, t.podAffinityTerm.topologyKey == 'kubernetes.io/hostname')",
        "  mutations:",
        "    - patchType: JSONPatch",
        "      jsonPatch:",
        f"        expression: \"[JSONPatch{{op: 'replace', path: '/spec/schedulerName', value: '{all_nodes}'}}]\"",
        "---",
        "apiVersion: admissionregistration.k8s.io/v1",
        "kind: MutatingAdmissionPolicyBinding",
        "metadata:",
        f"  name: {_NAME}",
        "spec:",
        f"  policyName: {_NAME}",
    ]
    return "\n".join(lines) + "\n"
