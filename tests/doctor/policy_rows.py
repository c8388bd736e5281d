"""Wrong set-ups of policies, pod groups and quotas, as in tests/doctor/cluster_rows.py."""

from __future__ import annotations

import re
from typing import Any

from extender.features.execution.directive import PAUSED_ANNOTATION
from extender.simulator.apiserver.kinds import (
    GROUP_PLACEMENTS,
    MUTATING_WEBHOOKS,
    OWN_POLICY_KINDS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    TOPOLOGY_DOMAINS,
    VALIDATING_WEBHOOKS,
)
from tests.cli.doctor_set_up import WEBHOOK
from tests.cli.group_objects import POLICY, member
from tests.deploy.building import DEPLOY, ROOT, load_all, of_kind
from tests.deploy.policies.examples import policy
from tests.doctor.cluster_rows import Change, Playing, Remedy, Row, denying, granted_by_the_manifest
from tests.features.quotas.tenants import SCOPE, quota_json
from tests.policies import policy_json
from tests.simulator.plain import pod

KINDS = {kind.plural: kind for kind in (GROUP_PLACEMENTS, TOPOLOGY_DOMAINS, *OWN_POLICY_KINDS)}
CRDS = DEPLOY / "policies" / "crds.yaml"
OF_CLUSTER = KINDS["clusterpodschedulingpolicies"]
OF_NAMESPACE = KINDS["podschedulingpolicies"]


def unserved(plural: str) -> Change:
    def wrong(one: Playing) -> None:
        one.setup.api.lacks = frozenset({KINDS[plural]})

    return wrong


def crds_applied(one: Playing, text: str) -> None:
    (file,) = re.findall(r"`kubectl apply -f (\S+)`", text)
    crds = load_all(ROOT / file)
    one.setup.api.lacks -= {KINDS[crd["spec"]["names"]["plural"]] for crd in crds}
    one.setup.api.crds = crds


def an_older_crd(one: Playing) -> None:
    crds = load_all(CRDS)
    for crd in crds:
        del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["mode"]
        break
    one.setup.api.crds = crds


def no_service(one: Playing) -> None:
    if one.has(SERVICES, key := f"default/{WEBHOOK}"):
        one.remove(SERVICES, key)


def the_service(one: Playing, text: str) -> None:
    """The Service of the component, in the namespace of the extender."""
    assert "components: [../../policies]" in text
    (service,) = of_kind(load_all(DEPLOY / "policies" / "service.yaml"), "Service")
    service["metadata"]["namespace"] = "default"
    one.put(SERVICES, service)


def without_endpoints(one: Playing) -> None:
    one.setup.api.endpoints = 0


def replicas_run(one: Playing, _: str) -> None:
    one.setup.api.endpoints = 2


def no_configuration(one: Playing) -> None:
    if one.has(VALIDATING_WEBHOOKS, "placement-extender"):  # the leader creates it again within seconds
        one.remove(VALIDATING_WEBHOOKS, "placement-extender")


def the_configuration(one: Playing, text: str) -> None:
    """As the overlay has it. The leader writes the rest."""
    assert "components: [../../policies]" in text
    for document in of_kind(load_all(DEPLOY / "policies" / "webhooks.yaml"), "ValidatingWebhookConfiguration"):
        before = one.read(MUTATING_WEBHOOKS, "placement-extender")["webhooks"][0]["clientConfig"]
        for webhook in document["webhooks"]:
            webhook["clientConfig"] |= {"caBundle": before["caBundle"]}
            webhook["clientConfig"]["service"]["namespace"] = "default"
        one.put(VALIDATING_WEBHOOKS, document)


def narrowed(one: Playing) -> None:
    configuration = one.read(MUTATING_WEBHOOKS, "placement-extender")
    configuration["webhooks"][0]["objectSelector"] = {"matchLabels": {"team": "none"}}
    one.put(MUTATING_WEBHOOKS, configuration)


def widened(one: Playing, _: str) -> None:
    configuration = one.read(MUTATING_WEBHOOKS, "placement-extender")
    configuration["webhooks"][0]["objectSelector"] = {"matchLabels": {"app": "web"}}
    one.put(MUTATING_WEBHOOKS, configuration)


def deleted_selector(one: Playing, _: str) -> None:
    configuration = one.read(MUTATING_WEBHOOKS, "placement-extender")
    configuration["webhooks"][0].pop("objectSelector")
    one.put(MUTATING_WEBHOOKS, configuration)


def with_policy(name: str, **spec: object) -> Change:
    def wrong(one: Playing) -> None:
        one.put(OF_NAMESPACE, {**policy("PodSchedulingPolicy", name, **spec), "status": {"matchedPods": 2}})

    return wrong


def corrected(name: str, **spec: object) -> Remedy:
    return lambda one, _text: with_policy(name, **spec)(one)


def matching_nothing(one: Playing) -> None:
    one.put(OF_NAMESPACE, {**policy("PodSchedulingPolicy", "none"), "status": {"matchedPods": 0}})


def with_a_pod(one: Playing, _: str) -> None:
    """A pod with the labels of its selector. The leader counts it."""
    selector = one.read(OF_NAMESPACE, "default/none")["spec"]["podSelector"]["matchLabels"]
    one.put(PODS, pod("selected", labels=selector))


def an_incomplete_group(one: Playing) -> None:
    one.put(OF_CLUSTER, POLICY)
    one.put(PODS, member("a-0", minutes=20))


def complete(one: Playing, text: str) -> None:
    assert "create the pods that are missing" in text
    for number in (1, 2):
        one.put(PODS, member(f"a-{number}", minutes=0))


def a_stray(one: Playing) -> None:
    lost = member("lost", "lost", minutes=20)
    lost["spec"]["schedulingGates"] = [{"name": "placement.extender.dev/of-a-deleted-policy"}]
    one.put(PODS, lost)


def selected(one: Playing, text: str) -> None:
    assert text.startswith("apply a policy that selects them")
    release = {"topology": ["zone"], "gate": "placement.extender.dev/of-a-deleted-policy", "size": {"count": 1}}
    one.put(
        OF_CLUSTER,
        policy_json("again", when=["Release"], release=release | {"group": {"label": "ring"}}),
    )


POLICIES = {
    **{
        f"no {plural}": Row(
            f"the API server does not serve {plural}.placement.extender.dev",
            "`kubectl apply -f deploy/policies/crds.yaml`",
            unserved(plural),
            (crds_applied,),
        )
        for plural in KINDS
    },
    "an older CRD": Row(
        "the CRD of * is older than the service: the API server drops spec.mode",
        "`kubectl apply -f deploy/policies/crds.yaml`, from the version that runs",
        an_older_crd,
        (crds_applied,),
    ),
    "no Service": Row(
        f"the Service default/{WEBHOOK} of the webhook does not exist", "apply your overlay with", no_service,
        (the_service,),
    ),
    "no endpoint": Row(
        f"the Service default/{WEBHOOK} of the webhook has no ready endpoint",
        "check that replicas run with POD_NAME, POD_UID and POD_IP",
        without_endpoints,
        (replicas_run,),
    ),
    "no configuration": Row(
        "ValidatingWebhookConfiguration placement-extender does not exist: the API server calls no webhook",
        "apply your overlay with",
        no_configuration,
        (the_configuration,),
    ),
    "a selector that selects nothing": Row(
        "objectSelector of MutatingWebhookConfiguration placement-extender selects no pod of the cluster: *",
        "widen it, or delete it from the configuration",
        narrowed,
        (widened, deleted_selector),
    ),
    "an invalid policy": Row(
        "PodSchedulingPolicy/default/wrong is invalid, so it is not applied: spec.priority: *",
        "correct the field, and apply the policy",
        with_policy("wrong", priority="high"),
        (corrected("wrong", priority=1),),
    ),
    "an invalid policy that rejects pods": Row(
        "PodSchedulingPolicy/default/wrong is invalid, so pods that it may select are rejected: spec.priority: *",
        "correct the field, and apply the policy",
        with_policy("wrong", priority="high", failurePolicy="Fail"),
        (corrected("wrong", priority=1, failurePolicy="Fail"),),
    ),
    "no selector": Row(
        "PodSchedulingPolicy/default/wrong can match no pod: podSelector is absent",
        "set it; podSelector: {} selects all",
        with_policy("wrong", podSelector=None),
        (corrected("wrong", podSelector={}),),
    ),
    "a policy without pods": Row(
        "PodSchedulingPolicy/default/none matches no pod of the cluster",
        "nothing to do if its pods are still to come; else compare its selectors with the labels of the pods",
        matching_nothing,
        (with_a_pod,),
    ),
    "an incomplete group": Row(
        "group shop/a (ClusterPodSchedulingPolicy/rings): 1 pod is held at its gate for 20 minutes, its time in release.noRoom is 10 minutes: *",
        "create the pods that are missing",
        an_incomplete_group,
        (complete,),
    ),
    "a stray pod": Row(
        "1 pod is held at a gate of ours that no policy removes, such as shop/lost (*",
        "apply a policy that selects them",
        a_stray,
        (selected,),
    ),
}  # fmt: skip


def watching(**execution: object) -> dict[str, Any]:
    return {"when": ["Execution"], "execution": {"mode": "Evict", **execution}}


def paused(one: Playing) -> None:
    found = policy("PodSchedulingPolicy", "watch", **watching())
    found["metadata"]["annotations"] = {PAUSED_ANNOTATION: "yes"}
    one.put(OF_NAMESPACE, found)


def resumed(one: Playing, text: str) -> None:
    assert text == "`extender moves resume watch -n default`"
    with_policy("watch", **watching())(one)


NODES_ONLY = ["NodeAffinity"]
MOVES = {
    "no permission to evict": Row(
        "the account may not create pods/eviction*",
        "apply your overlay",
        denying("create/pods/eviction"),
        (granted_by_the_manifest,),
    ),
    "paused moves": Row(
        "the moves of PodSchedulingPolicy/default/watch are paused by the annotation *",
        "`extender moves resume watch -n default`",
        paused,
        (resumed,),
    ),
}
MOVES_BESIDE_PLUGINS = {
    "constraints that plugins decide": Row(
        "of the constraints about other pods PodSchedulingPolicy/default/watch can watch only what policies direct: *",
        "set spec.execution.constraints: [NodeAffinity]",
        with_policy("watch", **watching()),
        (corrected("watch", **watching(constraints=NODES_ONLY)),),
    ),
    "moves that plugins may reject": Row(
        "PodSchedulingPolicy/default/watch may move a pod in vain: *",
        "set spec.execution.mode: Report",
        with_policy("watch", **watching(constraints=NODES_ONLY)),
        (corrected("watch", **watching(constraints=NODES_ONLY, mode="Report")),),
    ),
}
MOVES_SWITCHED_OFF = {
    "nothing is watched": Row(
        "execution.enabled is false: PodSchedulingPolicy/default/watch watches no running pod",
        "set execution.enabled: true, or remove Execution from `when`",
        with_policy("watch", **watching()),
        (corrected("watch"),),
    ),
}


def a_quota(**fields: Any) -> Change:
    return lambda one: one.put(RESOURCE_QUOTAS, {"apiVersion": "v1", **quota_json(**fields)})


def changed_quota(**fields: Any) -> Remedy:
    return lambda one, _text: a_quota(**fields)(one)


def no_quota(one: Playing, _: str) -> None:
    one.remove(RESOURCE_QUOTAS, "team/cross")


QUOTAS = {
    "nothing of pods": Row(
        "ResourceQuota team/cross can charge no pod: spec.hard limits nothing that pods use up; *",
        "add `pods` to spec.hard, or delete it",
        a_quota(hard={"count/secrets": "5"}),
        (changed_quota(hard={"count/secrets": "5", "pods": "5"}), no_quota),
    ),
    "scopes that exclude each other": Row(
        "ResourceQuota team/cross can charge no pod: its scopes exclude each other; *",
        "remove one of these scopes, or delete it",
        a_quota(hard={"pods": "5"}, scopes=[SCOPE, "BestEffort", "NotBestEffort"]),
        (changed_quota(hard={"pods": "5"}, scopes=[SCOPE, "BestEffort"]), no_quota),
    ),
    "no number": Row(
        "ResourceQuota team/cross does not limit the number of pods, only requests.cpu: *",
        "add `pods` to spec.hard",
        a_quota(hard={"requests.cpu": "5"}),
        (changed_quota(hard={"requests.cpu": "5", "pods": "5"}),),
    ),
    "another scope": Row(
        "ResourceQuota team/cross charges only pods that match Terminating too, *",
        "use the scope alone, or add a quota for the others",
        a_quota(hard={"pods": "5"}, scopes=[SCOPE, "Terminating"]),
        (changed_quota(hard={"pods": "5"}),),
    ),
}
