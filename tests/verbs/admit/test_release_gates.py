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
from tests.verbs.admit.reviewing import ask, pod, template_spec, verb, workload

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
    answer = ask(verb(releasing(generation=3)), pod())
    assert gates(answer.obj) == [GATE]
    (record,) = orjson.loads(answer.obj["metadata"]["annotations"][INJECTED_ANNOTATION])[""]["policies"]
    assert record == {
        "policy": "ClusterPodSchedulingPolicy/rings",
        "generation": 3,
        "lists": {"schedulingGates": [GATE]},
    }


def test_a_gate_of_its_own_name_comes_after_those_that_the_pod_has() -> None:
    named = releasing(release={"topology": [ZONE], "gate": "placement.extender.dev/gang"})
    answer = ask(verb(named), pod({"schedulingGates": [OTHER]}))
    assert gates(answer.obj) == [OTHER, {"name": "placement.extender.dev/gang"}]


def test_a_pod_that_has_the_gate_is_left_as_it_is() -> None:
    """Also when the webhook is called a second time, after another one has changed the pod."""
    assert ask(verb(releasing()), pod({"schedulingGates": [GATE]})).patch == []
    once = ask(verb(releasing()), pod()).obj
    assert ask(verb(releasing()), once).patch == []


def test_a_pod_with_a_node_gets_no_gate_and_no_static_one() -> None:
    assert ask(verb(releasing()), pod({"nodeName": "n1"})).patch == []
    assert ask(verb(releasing()), pod(annotations={"kubernetes.io/config.mirror": "x"})).patch == []


ALLOWED: dict[str, tuple[Json, Exemptions]] = {
    "kube-scheduler places it in a group": (
        pod({"schedulingGroup": {"podGroupName": "g"}}),
        Exemptions(scheduling_groups=True),
    ),
    "it has the exempting label": (
        pod(labels={"app": "web", "placement.extender.dev/exempt": "true"}),
        Exemptions(label_in=("shop",)),
    ),
}


@pytest.mark.parametrize(("obj", "exemptions"), ALLOWED.values(), ids=ALLOWED)
def test_what_a_tenant_can_write_frees_a_pod_of_the_gate_only_where_the_platform_allows_it(
    obj: Json, exemptions: Exemptions
) -> None:
    assert gates(ask(verb(releasing()), obj).obj) == [GATE]
    assert ask(verb(releasing(), settings=Policies(exemptions=exemptions)), obj).patch == []


CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"


@pytest.mark.parametrize(
    ("user", "allowed", "is_gated"),
    [
        (CONTROLLER, Exemptions(), False),
        ("system:kube-controller-manager", Exemptions(), False),
        ("tenant", Exemptions(), True),
        (None, Exemptions(), True),
        (CONTROLLER, Exemptions(daemon_sets_by=()), True),
        ("tenant", Exemptions(daemon_sets_by=("tenant",)), False),
    ],
)
def test_a_pod_of_a_daemon_set_gets_no_gate_where_its_controller_has_created_it(
    user: str | None, allowed: Exemptions, *, is_gated: bool
) -> None:
    """Anyone can write an owner reference."""
    obj = pod(ownerReferences=[{"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}])
    made = verb(releasing(), settings=Policies(exemptions=allowed))
    answer = ask(made, obj, userInfo=None if user is None else {"username": user})
    assert bool(gates(answer.obj)) is is_gated


def test_no_pod_gets_a_gate_that_nothing_would_remove() -> None:
    """With `release.enabled: false` no replica releases groups."""
    assert ask(verb(releasing(), releases=False), pod()).patch == []


def test_a_pod_of_an_exempt_namespace_gets_no_gate() -> None:
    assert ask(verb(releasing(), settings=Policies(exempt_namespaces=("shop",))), pod()).patch == []


def test_only_pods_are_gated_and_only_when_they_are_created() -> None:
    assert ask(verb(releasing(targets="Both")), workload()).patch == []
    assert ask(verb(releasing()), pod(), "UPDATE", old=pod()).patch == []
    assert gates(ask(verb(releasing(targets="Templates")), pod()).obj) == [GATE]


def test_a_policy_of_two_moments_has_one_record_with_both() -> None:
    both = releasing(when=["Admission", "Release"], nodeSelector={"pool": "a"}, schedulingGates=[OTHER])
    answer = ask(verb(both), pod())
    assert (answer.obj["spec"]["nodeSelector"], gates(answer.obj)) == ({"pool": "a"}, [OTHER, GATE])
    (record,) = orjson.loads(answer.obj["metadata"]["annotations"][INJECTED_ANNOTATION])[""]["policies"]
    assert (record["nodeSelector"], record["lists"]) == ({"pool": "a"}, {"schedulingGates": [OTHER, GATE]})


def test_the_directives_of_a_policy_that_acts_at_release_only_are_not_injected() -> None:
    answer = ask(verb(releasing(nodeSelector={"pool": "a"})), pod())
    assert (gates(answer.obj), answer.obj["spec"].get("nodeSelector")) == ([GATE], None)


def test_the_first_policy_that_enforces_releases_a_pod() -> None:
    first = releasing(
        "first", priority=2, mode="Audit", release={"topology": [ZONE], "gate": "placement.extender.dev/first"}
    )
    second = releasing("second", priority=1)
    third = releasing("third", release={"topology": [ZONE], "gate": "placement.extender.dev/third"})
    answer = ask(verb(third, second, first), pod())
    assert gates(answer.obj) == [GATE]
    assert "ClusterPodSchedulingPolicy/first@1: schedulingGates" in answer.response["auditAnnotations"]["audited"]


def test_a_policy_that_audits_adds_no_gate_and_says_what_it_would_add() -> None:
    answer = ask(verb(releasing(mode="Audit")), pod())
    assert (answer.patch, answer.response["auditAnnotations"]["audited"]) == (
        [],
        "ClusterPodSchedulingPolicy/rings@1: schedulingGates",
    )


def test_a_pod_above_a_limit_is_not_held_back() -> None:
    """The filter would reject it, and its group would never be complete."""
    heavy = pod({"tolerations": [{"key": f"k{number}"} for number in range(9)]})
    answer = ask(verb(releasing(), limits=ConstraintLimits(tolerations=8)), heavy)
    assert answer.patch == []
    assert "limits.tolerations is 8" in answer.warnings[0]


def test_a_policy_of_another_namespace_gates_nothing() -> None:
    assert ask(verb(releasing("rings", "other")), pod()).patch == []
    assert gates(ask(verb(releasing("rings", "shop")), pod()).obj) == [GATE]


def test_an_invalid_policy_that_must_not_be_missed_refuses_the_pod() -> None:
    key = PolicyKey("placement.extender.dev", "shop", "rings")
    broken = InvalidPolicy(key, ("spec.release: Required value",), FailurePolicy.FAIL)
    assert "spec.release: Required value" in ask(verb(invalid=[broken]), pod()).message


class Zones:
    """Nodes of which none has the label of a rack."""

    def are_matched(self, affinity: NodeAffinity) -> bool:
        """Whether an affinity matches one of three nodes."""
        return any(affinity.matches(f"n{number}", {ZONE: "a"}) for number in range(3))


def test_a_level_that_no_node_has_draws_a_warning() -> None:
    written = policy_json(when=["Release"], release={"topology": [ZONE, "rack"], "colour": "red"})
    assert ask(verb(nodes=Zones()), written).warnings == [
        "spec.release.colour: unknown field, it has no effect",
        "spec.release.topology[1]: no node has the label rack now",
    ]


def test_two_policies_that_would_release_the_same_pods_differently_draw_a_warning() -> None:
    other = releasing("other", release={"topology": ["rack"]})
    same = policy_json(when=["Release"], release={"topology": ["rack"]})
    different = policy_json(when=["Release"], release={"topology": ["rack"], "size": {"count": 2}})
    assert ask(verb(other), same).warnings == []
    (warning,) = ask(verb(other), different).warnings
    assert warning.startswith("spec.release: contradicts ClusterPodSchedulingPolicy/other")


def test_a_template_loses_no_gate_that_its_user_wrote() -> None:
    answer = ask(verb(releasing()), workload(spec={"schedulingGates": [GATE]}))
    assert template_spec(answer.obj)["schedulingGates"] == [GATE]


@pytest.mark.parametrize("is_pinned_first", [True, False])
def test_a_policy_that_sets_a_node_name_and_one_that_releases_contradict_each_other_in_either_order(
    *, is_pinned_first: bool
) -> None:
    """The later one gives way, and the warning says so."""
    pinning = policy("pinned", priority=2 if is_pinned_first else 0, nodeName="n1")
    answer = ask(verb(pinning, releasing(priority=1)), pod())
    spec = answer.obj["spec"]
    assert spec.get("nodeName") == ("n1" if is_pinned_first else None)
    assert gates(answer.obj) == ([] if is_pinned_first else [GATE])
    (warning,) = answer.warnings
    assert ("rings" if is_pinned_first else "pinned") in warning
    assert "node name" in warning


def test_a_pod_that_is_created_on_a_node_gets_no_gate_and_no_warning() -> None:
    answer = ask(verb(releasing()), pod({"nodeName": "n1"}))
    assert (answer.patch, answer.warnings) == ([], [])


def test_a_policy_that_rejects_conflicts_refuses_a_pod_that_an_earlier_one_puts_on_a_node() -> None:
    answer = ask(verb(policy("pinned", priority=2, nodeName="n1"), releasing(conflictPolicy="Reject")), pod())
    assert "scheduling gates" in answer.message
