"""The gate of a policy that releases groups: which pods get it, when, and that it is recorded."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import INJECTED_ANNOTATION, FailurePolicy, InvalidPolicy, PolicyKey
from extender.model.release import RELEASE_GATE
from extender.settings.limits import ConstraintLimits
from extender.settings.policies import Exemptions, Policies
from tests.builders import Json
from tests.policies import policy, policy_json
from tests.verbs.admit.reviewing import pod, reviewed, template_spec, verb, workload

ZONE = "topology.kubernetes.io/zone"
GATE = {"name": RELEASE_GATE}
OTHER = {"name": "example.com/quota"}


def releasing(name: str = "rings", namespace: str = "", **spec: Any) -> Any:
    """A policy that only releases groups into one zone."""
    return policy(name, namespace, **{"when": ["Release"], "release": {"topology": [ZONE]}, **spec})


def gates(obj: Json) -> Any:
    """The gates of a pod after admission."""
    return obj["spec"].get("schedulingGates", [])


def test_a_new_pod_gets_the_gate_and_a_record_of_it() -> None:
    answer = reviewed(verb(releasing(generation=3)), pod())
    assert gates(answer.obj) == [GATE]
    (record,) = orjson.loads(answer.obj["metadata"]["annotations"][INJECTED_ANNOTATION])[""]["policies"]
    assert record == {
        "policy": "ClusterPodSchedulingPolicy/rings",
        "generation": 3,
        "lists": {"schedulingGates": [GATE]},
    }


CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
OF_DAEMON_SET = pod(ownerReferences=[{"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}])
GROUPED = pod({"schedulingGroup": {"podGroupName": "g"}})
LABELLED = pod(labels={"app": "web", "placement.extender.dev/exempt": "true"})
GATED_TEMPLATE = workload(spec={"schedulingGates": [GATE]})
OWN_GATE = {"topology": [ZONE], "gate": "placement.extender.dev/gang"}
# Fields of the policy, the object, fields of the request, exemptions, and the gates after admission.
GATES: dict[str, tuple[Json, Json, Json, Exemptions, list[Json]]] = {
    "a new pod": ({}, pod(), {}, Exemptions(), [GATE]),
    "a gate of its own name, after the others": (
        {"release": OWN_GATE}, pod({"schedulingGates": [OTHER]}), {}, Exemptions(),
        [OTHER, {"name": "placement.extender.dev/gang"}],
    ),
    "a pod that has the gate": ({}, pod({"schedulingGates": [GATE]}), {}, Exemptions(), [GATE]),
    "a pod with a node": ({}, pod({"nodeName": "n1"}), {}, Exemptions(), []),
    "a static pod": ({}, pod(annotations={"kubernetes.io/config.mirror": "x"}), {}, Exemptions(), []),
    # A tenant can write these, so they count only where the platform allows it.
    "kube-scheduler places it in a group": ({}, GROUPED, {}, Exemptions(), [GATE]),
    "in a group, allowed": ({}, GROUPED, {}, Exemptions(scheduling_groups=True), []),
    "the exempting label": ({}, LABELLED, {}, Exemptions(), [GATE]),
    "the exempting label, allowed": ({}, LABELLED, {}, Exemptions(label_in=("shop",)), []),
    # Anyone can write an owner reference: the user of the request tells whether the controller has created the pod.
    **{
        f"a DaemonSet's pod by {user}, {text}": (
            {}, OF_DAEMON_SET, {"userInfo": None if user is None else {"username": user}}, exemptions, gates,
        )
        for user, text, exemptions, gates in (
            (CONTROLLER, "by default", Exemptions(), []),
            ("system:kube-controller-manager", "by default", Exemptions(), []),
            ("tenant", "by default", Exemptions(), [GATE]),
            (None, "by default", Exemptions(), [GATE]),
            (CONTROLLER, "none allowed", Exemptions(daemon_sets_by=()), [GATE]),
            ("tenant", "allowed", Exemptions(daemon_sets_by=("tenant",)), []),
        )
    },
    "a workload": ({"targets": "Both"}, workload(), {}, Exemptions(), []),
    "a pod at an update": ({}, pod(), {"operation": "UPDATE", "old": pod()}, Exemptions(), []),
    "a pod, with templates only": ({"targets": "Templates"}, pod(), {}, Exemptions(), [GATE]),
    "a template keeps the gate that its user wrote": ({}, GATED_TEMPLATE, {}, Exemptions(), [GATE]),
    "a policy of another namespace": ({"namespace": "other"}, pod(), {}, Exemptions(), []),
    "a policy of the pod's namespace": ({"namespace": "shop"}, pod(), {}, Exemptions(), [GATE]),
    "no directives at release": ({"nodeSelector": {"pool": "a"}}, pod(), {}, Exemptions(), [GATE]),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "obj", "request_fields", "exemptions", "expected"), GATES.values(), ids=GATES)
def test_which_pods_are_gated(
    spec: Json, obj: Json, request_fields: Json, exemptions: Exemptions, expected: list[Json]
) -> None:
    admit = verb(releasing(**spec), settings=Policies(exemptions=exemptions))
    answer = reviewed(admit, obj, **request_fields)
    before = template_spec(obj)
    assert template_spec(answer.obj) == before | ({"schedulingGates": expected} if expected else {})
    assert (answer.patch == [], answer.warnings) == (expected == before.get("schedulingGates", []), [])
    assert reviewed(admit, answer.obj, **request_fields).patch == []


def test_no_pod_gets_a_gate_that_nothing_would_remove_or_in_an_exempt_namespace() -> None:
    """With `release.enabled: false` no replica releases groups."""
    assert reviewed(verb(releasing(), releases=False), pod()).patch == []
    assert reviewed(verb(releasing(), settings=Policies(exempt_namespaces=("shop",))), pod()).patch == []


def test_a_policy_of_two_moments_has_one_record_with_both() -> None:
    both = releasing(when=["Admission", "Release"], nodeSelector={"pool": "a"}, schedulingGates=[OTHER])
    answer = reviewed(verb(both), pod())
    assert (answer.obj["spec"]["nodeSelector"], gates(answer.obj)) == ({"pool": "a"}, [OTHER, GATE])
    (record,) = orjson.loads(answer.obj["metadata"]["annotations"][INJECTED_ANNOTATION])[""]["policies"]
    assert (record["nodeSelector"], record["lists"]) == ({"pool": "a"}, {"schedulingGates": [OTHER, GATE]})


def test_the_first_policy_that_enforces_releases_a_pod() -> None:
    own = {name: {"topology": [ZONE], "gate": f"placement.extender.dev/{name}"} for name in ("first", "third")}
    first = releasing("first", priority=2, mode="Audit", release=own["first"])
    answer = reviewed(verb(releasing("third", release=own["third"]), releasing("second", priority=1), first), pod())
    assert gates(answer.obj) == [GATE]
    assert "ClusterPodSchedulingPolicy/first@1: schedulingGates" in answer.response["auditAnnotations"]["audited"]
    alone = reviewed(verb(first), pod())
    audited = "ClusterPodSchedulingPolicy/first@1: schedulingGates"
    assert (alone.patch, alone.response["auditAnnotations"]["audited"]) == ([], audited)


def test_a_pod_above_a_limit_is_not_held_back() -> None:
    """The filter would reject it, and its group would never be complete."""
    heavy = pod({"tolerations": [{"key": f"k{number}"} for number in range(9)]})
    answer = reviewed(verb(releasing(), limits=ConstraintLimits(tolerations=8)), heavy)
    assert answer.patch == []
    assert "limits.tolerations is 8" in answer.warnings[0]


def test_an_invalid_policy_that_must_not_be_missed_refuses_the_pod() -> None:
    key = PolicyKey("placement.extender.dev", "shop", "rings")
    broken = InvalidPolicy(key, ("spec.release: Required value",), FailurePolicy.FAIL)
    assert "spec.release: Required value" in reviewed(verb(invalid=[broken]), pod()).message


class Zones:
    """Nodes of which none has the label of a rack."""

    def are_matched(self, affinity: NodeAffinity) -> bool:
        """Whether an affinity matches one of three nodes."""
        return any(affinity.matches(f"n{number}", {ZONE: "a"}) for number in range(3))


def test_a_level_that_no_node_has_draws_a_warning() -> None:
    written = policy_json(when=["Release"], release={"topology": [ZONE, "rack"], "colour": "red"})
    assert reviewed(verb(nodes=Zones()), written).warnings == [
        "spec.release.colour: unknown field, it has no effect",
        "spec.release.topology[1]: no node has the label rack now",
    ]


def test_two_policies_that_would_release_the_same_pods_differently_draw_a_warning() -> None:
    other = releasing("other", release={"topology": ["rack"]})
    same = policy_json(when=["Release"], release={"topology": ["rack"]})
    different = policy_json(when=["Release"], release={"topology": ["rack"], "size": {"count": 2}})
    assert reviewed(verb(other), same).warnings == []
    (warning,) = reviewed(verb(other), different).warnings
    assert warning.startswith("spec.release: contradicts ClusterPodSchedulingPolicy/other")


@pytest.mark.parametrize("is_pinned_first", [True, False])
def test_a_policy_that_sets_a_node_name_and_one_that_releases_contradict_each_other_in_either_order(
    *, is_pinned_first: bool
) -> None:
    """The later one gives way, and the warning says so."""
    pinning = policy("pinned", priority=2 if is_pinned_first else 0, nodeName="n1")
    answer = reviewed(verb(pinning, releasing(priority=1)), pod())
    spec = answer.obj["spec"]
    assert spec.get("nodeName") == ("n1" if is_pinned_first else None)
    assert gates(answer.obj) == ([] if is_pinned_first else [GATE])
    (warning,) = answer.warnings
    assert ("rings" if is_pinned_first else "pinned") in warning
    assert "node name" in warning


def test_a_policy_that_rejects_conflicts_refuses_a_pod_that_an_earlier_one_puts_on_a_node() -> None:
    answer = reviewed(verb(policy("pinned", priority=2, nodeName="n1"), releasing(conflictPolicy="Reject")), pod())
    assert "scheduling gates" in answer.message
