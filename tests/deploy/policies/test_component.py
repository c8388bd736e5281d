"""The component deploy/policies in each overlay: valid, in one piece, and the same as what the leader keeps."""

from __future__ import annotations

import pytest

from extender.doctor.facts import needed_permissions
from extender.settings.configuration import Settings
from extender.tasks.endpoints import Endpoint
from extender.wire.webhook_configurations import OwnPod, differs, mutating_webhooks, target_of, validating_webhooks
from tests.builders import settings
from tests.deploy.building import (
    DEPLOY,
    DEPLOYED,
    Json,
    extender_of,
    load,
    named,
    of_kind,
    overlay,
    overlay_with,
    pod_of,
    rules,
    validate,
)
from tests.deploy.reading import FOREIGN, POLICY_RESOURCES, declared_calls

POLICIES = Settings().policies
EACH = pytest.mark.parametrize("name", DEPLOYED)


@pytest.fixture
def documents(name: str) -> list[Json]:
    """The overlay with policies."""
    return overlay_with("policies", name)


def namespace_of(name: str) -> str:
    """Where the overlay puts its objects."""
    found: str = load(DEPLOY / "overlays" / name / "kustomization.yaml")["namespace"]
    return found


@EACH
def test_every_document_is_valid_by_the_schema_of_its_kind(documents: list[Json]) -> None:
    for document in documents:
        if document["kind"] not in FOREIGN:
            validate(document)


@EACH
def test_the_webhooks_are_those_that_the_leader_keeps(documents: list[Json], name: str) -> None:
    namespace = namespace_of(name)
    target = target_of(POLICIES, namespace)
    (mutating,) = of_kind(documents, "MutatingWebhookConfiguration")
    (validating,) = of_kind(documents, "ValidatingWebhookConfiguration")
    exempt = mutating["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"]
    assert {*POLICIES.exempt_namespaces, namespace} <= set(exempt)
    # An overlay in a namespace that is exempt anyway still names the one of the others.
    own = "placement-extender" if namespace in POLICIES.exempt_namespaces else namespace
    wanted = mutating_webhooks(POLICIES.exempting(own), target, None)
    assert not differs(wanted, mutating["webhooks"])
    assert not differs(validating_webhooks(POLICIES, target, None), validating["webhooks"])
    for each in (mutating, validating):
        assert each["metadata"]["name"] == POLICIES.webhook.configuration
        assert "caBundle" not in each["webhooks"][0]["clientConfig"], (
            "the leader's, which applying again must not remove"
        )


def policy_watches() -> set[tuple[str, str, str]]:
    """List and watch of every kind of policies."""
    with_kupid = settings(policies={"enabled": True, "kupid": True})
    added = set(needed_permissions(with_kupid)) - set(needed_permissions(settings()))
    return {(each.group, each.resource, each.verb) for each in added if each.verb in {"list", "watch"}}


@EACH
def test_the_component_grants_the_calls_on_its_objects_by_their_names(documents: list[Json], name: str) -> None:
    roles = of_kind(documents, "ClusterRole", "Role")
    before = of_kind(overlay(name), "ClusterRole", "Role")
    of_leader = {rule for rule in rules(before, "Role") if rule[1] == "endpointslices"}
    granted = set(rules(roles, "ClusterRole", "Role")) - set(rules(before, "ClusterRole", "Role")) | of_leader
    assert granted == declared_calls(POLICY_RESOURCES) | policy_watches()
    names = {role["metadata"]["name"] for role in before}
    added = [role for role in roles if role["metadata"]["name"] not in names]
    rows = [rule for role in added for rule in role["rules"]]
    unnamed = [(rule["resources"][0], rule["verbs"]) for rule in rows if "resourceNames" not in rule]
    # Named by users and for groups, and create cannot be limited by name.
    assert sorted(unnamed) == [
        ("endpointslices", ["get", "create", "update", "delete"]),  # named for the pods
        ("groupplacements", ["get", "create", "update", "delete"]),
        ("mutatingwebhookconfigurations", ["create"]),
        ("podschedulingpolicies", ["get"]),
        ("podschedulingpolicies/status", ["patch"]),
        ("secrets", ["create"]),
    ]
    named = {rule["resources"][0]: rule["resourceNames"] for rule in rows if "resourceNames" in rule}
    assert named == {
        "secrets": [POLICIES.webhook.secret],
        "mutatingwebhookconfigurations": [POLICIES.webhook.configuration],
    }
    assert [one["metadata"]["name"] for one in of_kind(documents, "Secret")].count(POLICIES.webhook.secret) == 1


@EACH
def test_an_admission_policy_limits_the_secrets_of_the_extenders_user(documents: list[Json]) -> None:
    (base, *_, limited) = found = of_kind(documents, "ValidatingAdmissionPolicy")
    bindings = {each["spec"]["policyName"] for each in of_kind(documents, "ValidatingAdmissionPolicyBinding")}
    assert bindings == {each["metadata"]["name"] for each in found}
    assert limited["spec"]["matchConditions"] == base["spec"]["matchConditions"], "the same user"
    assert f'object.metadata.name == "{POLICIES.webhook.secret}"' in limited["spec"]["validations"][0]["expression"]
    slices = limited["spec"]["validations"][1]["expression"]
    assert f'.orValue("") in ["placement-extender", "{POLICIES.webhook.service}"]' in slices


@EACH
def test_the_service_reaches_the_port_of_the_webhook_on_every_replica(documents: list[Json], name: str) -> None:
    service = named(documents, "Service", POLICIES.webhook.service)
    assert "selector" not in service["spec"], "replicas publish themselves"
    (port,) = service["spec"]["ports"]
    extender = extender_of(documents)
    opened = {each["name"]: each["containerPort"] for each in extender["ports"]}
    assert opened["webhook"] == port["targetPort"] == POLICIES.webhook.bind_address.port
    published = Endpoint(service["metadata"]["namespace"], POLICIES.webhook.service, OwnPod("a", "b", "10.0.0.1"), 9443)
    assert [each["name"] for each in published.document()["ports"]] == [port["name"]]
    variables = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in extender["env"]}
    assert (
        variables.items() >= {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_IP": "status.podIP"}.items()
    )
    before = extender_of(overlay(name))
    assert extender["ports"][:-1] == before["ports"] or extender["ports"][1:] == before["ports"]
    network = named(documents, "NetworkPolicy", "placement-extender")
    assert {"ports": [{"port": opened["webhook"], "protocol": "TCP"}]} in network["spec"]["ingress"]


def test_a_sidecar_is_reached_by_a_url_and_its_user_may_do_what_it_needs() -> None:
    """Each API server calls the extender of its own machine: no Service leads to a static pod of the host's network."""
    documents = overlay_with("policies", "sidecar")
    own = settings(policies={"enabled": True, "webhook": {"url": "https://127.0.0.1:9443"}})
    granted = set(rules(documents, "ClusterRole", "Role"))
    needed = {(each.group, each.resource, each.verb) for each in needed_permissions(own) if not each.subresource}
    assert needed <= granted
    users = {
        (subject["kind"], subject["name"])
        for each in of_kind(documents, "ClusterRoleBinding", "RoleBinding")
        for subject in each["subjects"]
    }
    assert users == {("User", "placement-extender")}
    conditions = [each["spec"]["matchConditions"] for each in of_kind(documents, "ValidatingAdmissionPolicy")]
    assert conditions == [[{"name": "ours", "expression": 'request.userInfo.username == "placement-extender"'}]] * 2
    (mutating,) = of_kind(documents, "MutatingWebhookConfiguration")
    wanted = mutating_webhooks(own.policies, target_of(own.policies, "kube-system"), b"ca")
    assert wanted[0]["clientConfig"] == {"url": "https://127.0.0.1:9443/mutate", "caBundle": "Y2E="}
    assert differs(wanted, mutating["webhooks"]), "the leader replaces the Service of the manifest"


def test_with_cert_manager_the_certificate_is_mounted_and_the_leader_needs_no_secret() -> None:
    documents = overlay_with("policies-cert-manager", "service-cert-manager")
    certificate = named(documents, "Certificate", POLICIES.webhook.service)
    target = target_of(POLICIES, certificate["metadata"]["namespace"])
    assert certificate["spec"]["dnsNames"] == [f"{target.service}.{target.namespace}.svc"]
    injected = f"{target.namespace}/{certificate['metadata']['name']}"
    for one in of_kind(documents, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert one["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": injected}
        assert one["webhooks"][0]["clientConfig"]["service"]["namespace"] == target.namespace
    volumes = {each["name"]: each for each in pod_of(documents)["spec"]["volumes"]}
    assert volumes["webhook-tls"]["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert "secrets" not in {resource for _, resource, _ in rules(documents, "ClusterRole", "Role")}
    assert POLICIES.webhook.secret not in {one["metadata"]["name"] for one in of_kind(documents, "Secret", "Role")}
