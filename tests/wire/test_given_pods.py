"""Pods that a person gives: completed and checked as a real API server does. `tests/e2e/test_given_pods.py` compares with one."""

from contextlib import suppress
from copy import deepcopy

import orjson
import pytest
from hypothesis import given

from extender.model.resources import CPU
from extender.settings.configuration import Settings
from extender.wire.errors import WireError
from extender.wire.manifests import decode_manifest, decode_what_if
from extender.wire.pods.new_pod import complete_and_check
from tests.builders import CONTAINER, PREFERRED, REQUIRED, Json, matching, spread, term
from tests.wire.given_pods import (
    GPU,
    HASH,
    a_pod,
    amounts,
    apart,
    completed,
    keyed_pod,
    limited,
    selectors,
    spoiled,
    spreading,
)

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


# -- completed


COMPLETED: dict[str, tuple[Json, dict[str, int]]] = {
    "container": ({"containers": limited({"limits": {"cpu": "4"}})}, {CPU: 4000}),
    "extended resource": ({"containers": limited({"limits": {GPU: "2"}})}, {GPU: 2}),
    "only what is missing": (
        {"containers": limited({"limits": {"cpu": "4", GPU: 1}, "requests": {"cpu": "1"}})},
        {CPU: 1000, GPU: 1},
    ),
    "init container": ({"initContainers": limited({"limits": {"cpu": "3"}}, name="before")}, {CPU: 3000}),
    "sidecar": (
        {"initContainers": limited({"limits": {"cpu": "1"}}, name="beside", restartPolicy="Always")},
        {CPU: 1000},
    ),
    "pod": ({"resources": {"limits": {"cpu": "5"}}}, {CPU: 5000}),
    "pod: what containers request": (
        {"resources": {"limits": {"cpu": "5"}}, "containers": limited({"requests": {"cpu": "2"}})},
        {CPU: 2000},
    ),
    "pod: huge pages of containers": (
        {
            "resources": {"requests": {"cpu": "2"}},
            "containers": limited({"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}),
        },
        {CPU: 2000, "hugepages-2Mi": 4 * 2**20},
    ),
    "ports of the host": ({"hostNetwork": True, "containers": [CONTAINER | {"ports": [{"containerPort": 80}]}]}, {}),
    "tolerations": ({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}, {}),
    "a priority": ({"priorityClassName": "system-node-critical"}, {}),
}


@pytest.mark.parametrize(("spec", "requests"), COMPLETED.values(), ids=COMPLETED)
def test_requests_that_are_missing_are_the_limits(spec: Json, requests: dict[str, int]) -> None:
    assert decode_manifest(orjson.dumps(a_pod(**spec))).requests == requests


def test_ports_of_a_pod_in_the_network_of_the_host_are_ports_of_the_host() -> None:
    ports = CONTAINER | {"ports": [{"containerPort": 80}]}
    before = CONTAINER | {"name": "before", "ports": [{"containerPort": 81, "protocol": "UDP"}]}
    spec = completed(a_pod(hostNetwork=True, containers=[ports], initContainers=[before]))["spec"]
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert spec["initContainers"][0]["ports"] == [{"containerPort": 81, "hostPort": 81, "protocol": "UDP"}]
    assert decode_manifest(orjson.dumps(a_pod(containers=[ports]))).host_ports == ()
    (port,) = decode_manifest(orjson.dumps(a_pod(hostNetwork=True, containers=[ports]))).host_ports
    assert port.port == 80


MERGED = [
    {"key": HASH, "operator": "In", "values": ["new"]},
    {"key": "tenant", "operator": "NotIn", "values": ["a"]},
]


def test_label_keys_of_terms_and_spread_are_merged_into_their_selectors() -> None:
    pod = completed(keyed_pod())
    assert [each["matchExpressions"] for each in selectors(pod)] == [MERGED] * 4
    assert pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == MERGED[:1]


def test_label_keys_of_a_created_pod_are_merged_once() -> None:
    """It has the requirement of the labels that it had then."""
    pod = keyed_pod(uid="u-1")
    old = [{**MERGED[0], "values": ["old"]}, {**MERGED[1], "values": ["b"]}]
    for selector in selectors(pod):
        selector["matchExpressions"] = deepcopy(old)
    pod = completed(pod)
    assert [each["matchExpressions"] for each in selectors(pod)] == [old] * 4


def test_a_term_without_a_selector_selects_nothing_and_stays_so() -> None:
    wanted = {"topologyKey": "zone"}
    spec = completed(a_pod(affinity={"podAntiAffinity": {REQUIRED: [wanted]}}))["spec"]
    assert spec["affinity"]["podAntiAffinity"][REQUIRED] == [wanted]


@pytest.mark.parametrize(
    ("toleration", "added"),
    [
        ({"operator": "Exists"}, []),
        ({"operator": "Exists", "effect": "NoExecute"}, []),
        ({"operator": "Exists", "effect": "NoSchedule"}, [NOT_READY, UNREACHABLE]),
        ({"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}, [UNREACHABLE]),
        ({"key": UNREACHABLE, "operator": "Exists"}, [NOT_READY]),
        ({"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}, [NOT_READY, UNREACHABLE]),
    ],
)
def test_a_toleration_that_lets_pods_run_on_unready_nodes_is_kept(toleration: Json, added: list[str]) -> None:
    tolerations = completed(a_pod(tolerations=[toleration]))["spec"]["tolerations"]
    assert [each["key"] for each in tolerations[1:]] == added


def test_the_tolerations_and_priorities_of_admission_are_there() -> None:
    pod = decode_manifest(orjson.dumps(a_pod(priorityClassName="system-node-critical")))
    assert pod.priority == 2_000_001_000
    assert {(each.key, each.effect) for each in pod.signature.tolerations} == {
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    }


def test_a_completed_pod_is_completed_again_without_a_change() -> None:
    pod = keyed_pod(uid="u-1")
    pod["spec"] |= {"hostNetwork": True, "containers": limited({"limits": {"cpu": "1"}}, ports=[{"containerPort": 1}])}
    once = completed(pod)
    assert completed(once) == once


# -- checked

SPREAD = "spec.topologySpreadConstraints[0]"
ANTI = f"spec.affinity.podAntiAffinity.{REQUIRED}"


REFUSED: dict[str, tuple[Json, str]] = {
    "minDomains of -1": (spreading(minDomains=-1), f"{SPREAD}.minDomains"),
    "minDomains beside ScheduleAnyway": (
        spreading(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
        f"{SPREAD}.minDomains",
    ),
    "an unknown whenUnsatisfiable": (spreading(whenUnsatisfiable="DoNotScheduled"), f"{SPREAD}.whenUnsatisfiable"),
    "no whenUnsatisfiable": (spreading(whenUnsatisfiable=None), f"{SPREAD}.whenUnsatisfiable"),
    "an empty topologyKey": (spreading(topologyKey=""), f"{SPREAD}.topologyKey"),
    "no topologyKey": (spreading(topologyKey=None), f"{SPREAD}.topologyKey"),
    "maxSkew of 0": (spreading(maxSkew=0), f"{SPREAD}.maxSkew"),
    "no maxSkew": (spreading(maxSkew=None), f"{SPREAD}.maxSkew"),
    "an unknown policy": (spreading(nodeTaintsPolicy="Honour"), f"{SPREAD}.nodeTaintsPolicy"),
    "a misspelt minDomains": (spreading(minDomain=2), f"{SPREAD}.minDomain"),
    "a misspelt matchLabels": (
        spreading(labelSelector={"matchLabel": {"app": "web"}}),
        f"{SPREAD}.labelSelector.matchLabel",
    ),
    "one constraint twice": (
        {"topologySpreadConstraints": [spread("zone", 1, app="web"), spread("zone", 2, app="web")]},
        "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}",
    ),
    "a key of matchLabelKeys in the selector": (
        spreading(matchLabelKeys=["app"]),
        f"{SPREAD}.matchLabelKeys[0]",
    ),
    "matchLabelKeys without a selector": (
        apart(labelSelector=None, matchLabelKeys=["app"]),
        f"{ANTI}[0].matchLabelKeys",
    ),
    "a term without a topologyKey": (apart(topologyKey=None), f"{ANTI}[0].topologyKey"),
    "an unknown operator": (
        apart(labelSelector=matching(("app", "in", ["web"]))),
        f"{ANTI}[0].labelSelector.matchExpressions[0].operator",
    ),
    "a weighted term among required ones": (
        {"affinity": {"podAntiAffinity": {REQUIRED: [{"weight": 1, "podAffinityTerm": term("host", app="web")}]}}},
        f"{ANTI}[0].weight",
    ),
    "a required term among weighted ones": (
        {"affinity": {"podAntiAffinity": {PREFERRED: [term("host", app="web")]}}},
        f"spec.affinity.podAntiAffinity.{PREFERRED}[0].topologyKey",
    ),
    "an unknown list of terms": (
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingRequiredDuringExecution": []}}},
        "spec.affinity.podAntiAffinity.requiredDuringSchedulingRequiredDuringExecution",
    ),
    "terms as an object": ({"affinity": {"podAntiAffinity": {REQUIRED: term("host", app="web")}}}, ANTI),
    "node terms as a list": (
        {"affinity": {"nodeAffinity": {REQUIRED: [{"matchExpressions": []}]}}},
        f"spec.affinity.nodeAffinity.{REQUIRED}",
    ),
    "no node term": (
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
    ),
    "a misspelt field of the pod": ({"toleration": []}, "spec.toleration"),
    "a field of the pod in the spec of a container": (
        {"containers": [CONTAINER | {"nodeSelector": {}}]},
        "spec.containers[0].nodeSelector",
    ),
    "an unknown effect": (
        {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedul"}]},
        "spec.tolerations[0].effect",
    ),
    "a value beside Exists": (
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "spec.tolerations[0].operator",
    ),
    "a node and a gate": ({"nodeName": "n1", "schedulingGates": [{"name": "example.com/gate"}]}, "spec.nodeName"),
    "a gate twice": ({"schedulingGates": [{"name": "example.com/gate"}] * 2}, "spec.schedulingGates[1]"),
    "no container": ({"containers": []}, "spec.containers"),
    "no image": ({"containers": [{"name": "main"}]}, "spec.containers[0].image"),
    "two containers of one name": ({"containers": [CONTAINER, CONTAINER]}, "spec.containers[1].name"),
    "more requested than the limit": (
        amounts(requests={"cpu": "2"}, limits={"cpu": "1"}),
        "spec.containers[0].resources.requests",
    ),
    "less of an extended resource than the limit": (
        amounts(requests={GPU: "1"}, limits={GPU: "2"}),
        "spec.containers[0].resources.requests",
    ),
    "an extended resource without a limit": (amounts(requests={GPU: "1"}), "spec.containers[0].resources.limits"),
    "half of an extended resource": (amounts(limits={GPU: "500m"}), f"spec.containers[0].resources.limits[{GPU}]"),
    "a resource of an unknown name": (amounts(limits={"gpu": "1"}), "spec.containers[0].resources.limits[gpu]"),
    "less than nothing": (amounts(requests={"cpu": "-1"}), "spec.containers[0].resources.requests[cpu]"),
    "a toleration whose key is no text": (
        {"tolerations": [{"key": {}, "operator": "Exists"}]},
        "spec.tolerations[0].key",
    ),
    "less for the pod than for its containers": (
        amounts(requests={"cpu": "2"}) | {"resources": {"requests": {"cpu": "1"}}},
        "spec.resources.requests[cpu]",
    ),
    "another port of the host": (
        {"hostNetwork": True, "containers": [CONTAINER | {"ports": [{"containerPort": 80, "hostPort": 81}]}]},
        "spec.containers[0].ports[0].hostPort",
    ),
    "one port of the host twice": (
        {"containers": [CONTAINER | {"ports": [{"containerPort": 80, "hostPort": 80}] * 2}]},
        "spec.containers[0].ports[1].hostPort",
    ),
}


@pytest.mark.parametrize(("spec", "path"), REFUSED.values(), ids=REFUSED)
def test_a_pod_that_the_api_server_refuses_is_refused_with_the_path(spec: Json, path: str) -> None:
    errors = complete_and_check(a_pod(**deepcopy(spec)))
    assert path in [error.field for error in errors]
    with pytest.raises(WireError) as caught:
        decode_manifest(orjson.dumps(a_pod(**spec)))
    assert path in str(caught.value)
    with pytest.raises(WireError) as caught:
        decode_what_if(orjson.dumps({"apply": [a_pod(**spec)]}), Settings())
    assert caught.value.path.startswith("apply[0].")
    assert path in str(caught.value)


def test_a_preemption_policy_is_one_of_two_words() -> None:
    """Not among the others: a real API server refuses it earlier, at admission, and without a path."""
    with pytest.raises(WireError, match=r"spec\.preemptionPolicy: Unsupported value"):
        decode_manifest(orjson.dumps(a_pod(preemptionPolicy="never")))


def test_of_many_errors_ten_are_reported() -> None:
    spec: Json = {"tolerations": [{"key": "a", "effect": "none"}] * 12}
    with pytest.raises(WireError, match=r"spec.tolerations\[9\].effect: .*; and 2 more errors$"):
        decode_manifest(orjson.dumps(a_pod(**spec)))


@given(spoiled())
def test_any_value_anywhere_is_completed_or_refused(pod: Json) -> None:
    with suppress(WireError):
        decode_manifest(orjson.dumps(pod))
