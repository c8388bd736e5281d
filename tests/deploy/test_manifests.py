"""What each overlay builds to: valid by the API's schemas, in one piece, and as closed as it can be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.kubectl import BINDING, LABELS, LEADER_SLICE, SECRET, ServicePod
from extender.cli.main import main
from extender.doctor.facts import needed_permissions
from extender.doctor.versions import PLACEHOLDER
from extender.settings.configuration import Settings, default_settings, parse_settings
from extender.tasks.endpoints import LEADER_PORT
from extender.wire.api_calls import API_CALLS, leader_slice
from tests.deploy.building import (
    CLUSTER_SCOPED,
    DEPLOY,
    DEPLOYED,
    OVERLAYS,
    Json,
    SchemaError,
    built,
    extender_of,
    kustomized,
    load,
    of_kind,
    overlay,
    overlay_with,
    pod_of,
    rules,
    templates,
    validate,
)
from tests.deploy.reading import FOREIGN, PAGES, POLICY_RESOURCES, declared_calls, trust

SIDECAR_PATCH = DEPLOY / "overlays" / "sidecar" / "patches" / "kube-scheduler0+strategic.yaml"
EACH = pytest.mark.parametrize("name", OVERLAYS)
EACH_DEPLOYED = pytest.mark.parametrize("name", DEPLOYED)


@EACH
def test_every_document_is_valid_by_the_schema_of_its_kind(name: str) -> None:
    known = [document for document in overlay(name) if document["kind"] not in FOREIGN]
    assert known
    for document in known:
        validate(document)


def test_the_role_of_the_users_of_kubectl_placement_is_valid_in_every_overlay_and_names_what_they_read() -> None:
    for name in OVERLAYS:
        (role,) = (
            one for one in overlay_with("kubectl", name) if one["metadata"]["name"] == "placement-extender-kubectl"
        )
        validate(role)
        named = {one["resources"][0]: one.get("resourceNames") for one in role["rules"]}
        assert (named["secrets"], named["endpointslices"]) == ([SECRET], [LEADER_SLICE])


@EACH
def test_kubectl_placement_finds_the_pods_of_every_overlay_and_how_they_answer(name: str) -> None:
    template = pod_of(overlay(name)) if name in DEPLOYED else load(SIDECAR_PATCH)
    labels = {f"{key}={value}" for key, value in template["metadata"]["labels"].items()}
    assert labels >= set(LABELS.split(","))
    found = ServicePod.of({"metadata": {"name": "p", "namespace": "n"}, "spec": template["spec"]})
    assert found is not None
    assert (found.port, found.scheme) == (8888, "https" if name in DEPLOYED else "http")
    assert any(one["metadata"]["name"].startswith(BINDING) for one in of_kind(overlay(name), "ClusterRoleBinding"))


def test_the_schemas_reject_a_field_that_does_not_exist() -> None:
    (deployment,) = of_kind(overlay("service"), "Deployment")
    broken = {**deployment, "spec": {**deployment["spec"], "replica": 2}}
    with pytest.raises(SchemaError):
        validate(broken)


@EACH
def test_everything_stands_in_the_overlays_own_namespace(name: str) -> None:
    cluster_wide = {*CLUSTER_SCOPED, "Namespace"}
    wanted = load(DEPLOY / "overlays" / name / "kustomization.yaml")["namespace"]
    # The Leases of several schedulers are in the namespace that their configurations name.
    leases = {one["metadata"]["name"] for one in overlay(name) if one["metadata"].get("namespace") == "kube-system"}
    assert (
        wanted == "kube-system"
        or not leases
        or {found.startswith("placement-schedulers-") for found in leases} == {True}
    )
    found = [one for one in overlay(name) if one["metadata"]["name"] not in leases and one["kind"] not in cluster_wide]
    assert {one["metadata"].get("namespace") for one in found} <= {wanted}
    bound = [one["subjects"][0] for one in of_kind(overlay(name), "ClusterRoleBinding", "RoleBinding")]
    assert {subject.get("namespace") for subject in bound if subject["kind"] == "ServiceAccount"} <= {wanted}


@EACH
def test_what_belongs_to_the_cluster_has_no_namespace_that_every_diff_would_show(name: str) -> None:
    cluster_wide = {*CLUSTER_SCOPED, "Namespace"}
    assert [
        one["kind"] for one in overlay(name) if one["kind"] in cluster_wide and "namespace" in one["metadata"]
    ] == []


# -- permissions ----------------------------------------------------------------------------------------------------


def all_needed() -> set[tuple[str, str, str]]:
    """What any configuration may need, the bind verb apart."""
    either = [Settings(), default_settings("augment")]
    evicting = parse_settings(
        {"apiVersion": Settings().api_version, "kind": Settings().kind, "preemption": {"eviction": "evict"}}
    )
    quotas = parse_settings({"apiVersion": Settings().api_version, "kind": Settings().kind, "quota": {"enabled": True}})
    found = {one for settings in (*either, evicting, quotas) for one in needed_permissions(settings)}
    return {(p.group, f"{p.resource}/{p.subresource}".rstrip("/"), p.verb) for p in found}


def test_the_roles_grant_what_the_service_needs_and_nothing_more() -> None:
    assert set(rules(built(DEPLOY / "base"), "ClusterRole")) == all_needed()


def granted_calls(documents: list[Json]) -> set[tuple[str, str, str]]:
    """What the roles grant apart from list and watch."""
    return {rule for rule in rules(documents, "ClusterRole", "Role") if rule[2] not in {"list", "watch"}}


def test_the_base_grants_every_declared_call_but_those_of_components_and_the_bind_component_adds_bind() -> None:
    declared = declared_calls() - declared_calls(POLICY_RESOURCES)
    bind = ("", "pods/binding", "create")
    assert granted_calls(built(DEPLOY / "base")) == declared - {bind}
    assert granted_calls(kustomized(resources=["deploy/base"], components=["deploy/bind"])) == declared


def test_the_admission_policy_names_every_declared_write_to_a_pod() -> None:
    operations = {"patch": "UPDATE", "create": "CREATE", "delete": "DELETE"}
    declared = {
        f"{operations[each.verb]} {each.resource}/{each.subresource}".rstrip("/")
        for each in API_CALLS
        if each.resource == "pods" and each.verb in operations and each.name != "bind"
    }
    (policy,) = of_kind(built(DEPLOY / "base"), "ValidatingAdmissionPolicy")
    assert set(re.findall(r'"([^"]+)"', policy["spec"]["validations"][0]["expression"])) == declared


def test_the_reader_only_reads_and_the_writer_never_lists() -> None:
    reader, writer = sorted(of_kind(built(DEPLOY / "base"), "ClusterRole"), key=lambda role: role["metadata"]["name"])
    assert {verb for _, _, verb in rules([reader], "ClusterRole")} == {"list", "watch"}
    assert {verb for _, _, verb in rules([writer], "ClusterRole")} == {"get", "patch", "delete", "create"}


def test_no_role_has_a_wildcard_or_touches_secrets() -> None:
    for name in OVERLAYS:
        for rule in rules(overlay(name), "ClusterRole", "Role"):
            assert "*" not in rule
            assert rule[1] != "secrets"


def test_the_lease_can_be_changed_by_name_only() -> None:
    (role,) = of_kind(built(DEPLOY / "base"), "Role")
    named = {verb for rule in role["rules"] if rule.get("resourceNames") for verb in rule["verbs"]}
    assert named == {"get", "update"}
    assert {verb for rule in role["rules"] if not rule.get("resourceNames") for verb in rule["verbs"]} == {"create"}


# -- pods -----------------------------------------------------------------------------------------------------------


@EACH_DEPLOYED
def test_pods_run_without_root_and_with_nothing_to_write_to(name: str) -> None:
    for template in templates(overlay(name)):
        spec = template["spec"]["securityContext"]
        assert (spec["runAsNonRoot"], spec["seccompProfile"]["type"]) == (True, "RuntimeDefault")
        assert spec["runAsUser"] > 1000
        for container in template["spec"]["containers"]:
            closed = container["securityContext"]
            assert (closed["readOnlyRootFilesystem"], closed["allowPrivilegeEscalation"]) == (True, False)
            assert closed["capabilities"] == {"drop": ["ALL"]}


@EACH_DEPLOYED
def test_containers_have_a_tag_probes_and_requests(name: str) -> None:
    for container in (one for template in templates(overlay(name)) for one in template["spec"]["containers"]):
        name, _, tag = container["image"].rpartition(":")
        # The version of the cluster is not ours to choose: the placeholder is no tag of that image, so its pods fail at once.
        assert tag == PLACEHOLDER if name.endswith("kube-scheduler") else re.fullmatch(r"v?\d+\.\d+\.\d+", tag)
        assert {"livenessProbe", "readinessProbe"} <= set(container)
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        ports = {port["name"] for port in container["ports"]}
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports


@pytest.mark.parametrize("name", ["second-scheduler", "schedulers"])
def test_schedulers_are_probed_at_a_path_that_every_version_serves(name: str) -> None:
    """kube-scheduler serves /livez and /readyz only since 1.31. Before, a probe of them would get 404."""
    containers = (one for template in templates(overlay(name)) for one in template["spec"]["containers"])
    (scheduler,) = (one for one in containers if any(port["name"] == "scheduler" for port in one["ports"]))
    paths = {scheduler[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert paths == {"/healthz"}


@EACH_DEPLOYED
def test_probes_ask_where_and_how_the_extender_answers(name: str) -> None:
    settings = settings_of("service" if name == "service-cert-manager" else name)
    extender = extender_of(overlay(name))
    assert extender["ports"] == [{"name": "extender", "containerPort": settings.server.bind_address.port}]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        wanted = "HTTPS" if settings.server.tls.cert_file else "HTTP"
        assert extender[probe]["httpGet"].get("scheme", "HTTP") == wanted


@EACH_DEPLOYED
def test_service_budget_and_network_policy_select_the_pods(name: str) -> None:
    documents = overlay(name)
    labels = [template["metadata"]["labels"] for template in templates(documents)]
    selectors = [one["spec"]["selector"] for one in of_kind(documents, "Service") if "selector" in one["spec"]]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in of_kind(documents, "PodDisruptionBudget")]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in of_kind(documents, "NetworkPolicy")]
    assert len(selectors) >= 2
    assert [each for each in selectors if not any(each.items() <= some.items() for some in labels)] == []


@EACH_DEPLOYED
def test_mounted_configuration_and_secrets_exist(name: str) -> None:
    documents = overlay(name)
    maps = {one["metadata"]["name"] for one in of_kind(documents, "ConfigMap")}
    volumes = [volume for template in templates(documents) for volume in template["spec"]["volumes"]]
    assert {volume["configMap"]["name"] for volume in volumes if "configMap" in volume} == maps
    secrets = {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    made = {one["spec"]["secretName"] for one in of_kind(documents, "Certificate")}
    applied = {one["metadata"]["name"] for one in of_kind(documents, "Secret")}
    assert secrets - applied <= (made or secrets_by_hand()), "else deploy/docs says how `extender certs` makes it"
    for template in templates(documents):
        mounted = {mount["name"] for one in template["spec"]["containers"] for mount in one["volumeMounts"]}
        assert mounted == {volume["name"] for volume in template["spec"]["volumes"]}


@EACH_DEPLOYED
def test_two_replicas_have_a_high_priority_and_only_wish_to_be_apart(name: str) -> None:
    (deployment,) = of_kind(overlay(name), "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert (deployment["spec"]["replicas"], spec["priorityClassName"]) == (2, "system-cluster-critical")
    assert set(spec["affinity"]["podAntiAffinity"]) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    assert "topologySpreadConstraints" not in spec


@EACH_DEPLOYED
def test_an_old_replica_ends_when_a_new_one_is_ready_and_one_is_drained_at_a_time(name: str) -> None:
    (deployment,), (budget,) = of_kind(overlay(name), "Deployment"), of_kind(overlay(name), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1 < deployment["spec"]["replicas"]
    rolling = deployment["spec"].get("strategy", {}).get("rollingUpdate", {"maxUnavailable": 0, "maxSurge": 1})
    assert rolling == {"maxUnavailable": 0, "maxSurge": 1}, "also the defaults for two: a quarter, rounded"


@pytest.mark.parametrize("name", ["service", "schedulers"])
def test_replicas_behind_a_service_take_turns_and_may_write_their_lease_and_where_the_leader_is(name: str) -> None:
    settings, documents = settings_of(name).leader_election, overlay(name)
    assert settings.enabled
    roles = {
        one["metadata"]["name"]: one
        for one in of_kind(documents, "Role")
        if "schedulers" not in one["metadata"]["name"]
    }
    (service,), (deployment,) = of_kind(documents, "Service"), of_kind(documents, "Deployment")
    assert {one["metadata"]["namespace"] for one in (*roles.values(), service, deployment)} == {
        deployment["metadata"]["namespace"]
    }
    named = {
        key: [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] for key, role in roles.items()
    }
    slices = leader_slice(settings.service)
    assert named == {"placement-extender-lease": [[settings.lease_name]], "placement-extender-leader": [[slices]]}
    assert service["metadata"]["name"] == settings.service
    assert "selector" not in service["spec"], "the leader publishes itself"
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["targetPort"]) == (LEADER_PORT, settings_of(name).server.bind_address.port)
    variables = {each["name"] for each in extender_of(documents)["env"]}
    assert variables == {"POD_NAME", "POD_UID", "POD_IP"}
    needed = {(each.group, each.resource, each.verb) for each in needed_permissions(settings_in(name, "ours"))}
    granted = set(rules(documents, "Role"))
    assert {each for each in needed if each[1] in {"leases", "endpointslices"}} == granted - scheduler_leases(name)


def settings_in(name: str, namespace: str) -> Settings:
    """The same, where the namespace of the Lease is known, so that permissions can be asked about."""
    found = load(DEPLOY / "overlays" / name / "extender.yaml")
    found["leaderElection"]["leaseNamespace"] = namespace
    return parse_settings(found)


def scheduler_leases(name: str) -> set[tuple[str, str, str]]:
    """What the roles of an overlay grant to its schedulers, as far as the extender needs it not."""
    extra = [one for one in of_kind(overlay(name), "Role") if "schedulers" in one["metadata"]["name"]]
    return set(rules(extra, "Role")) - {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}


def test_no_extender_is_needed_to_place_the_extender() -> None:
    second = pod_of(overlay("second-scheduler"))["spec"]
    profiles = load(DEPLOY / "overlays/second-scheduler/kube-scheduler.yaml")["profiles"]
    assert second["schedulerName"] not in {profile["schedulerName"] for profile in profiles}
    assert load(DEPLOY / "overlays/service/kube-scheduler.yaml")["extenders"][0]["ignorable"] is True


@pytest.mark.parametrize("form", ["PodMonitor", "ServiceMonitor"])
@pytest.mark.parametrize("name", ["second-scheduler", "service", "service-cert-manager"])
def test_prometheus_scrapes_the_port_of_the_pods_as_they_speak(name: str, form: str) -> None:
    component = "deploy/monitoring" if form == "PodMonitor" else "deploy/monitoring/service-monitor"
    documents = kustomized(resources=[f"deploy/overlays/{name}"], components=[component])
    (monitor,) = of_kind(documents, form)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints" if form == "PodMonitor" else "endpoints"]
    template, selector = pod_of(overlay(name)), monitor["spec"]["selector"]["matchLabels"]
    if form == "ServiceMonitor":
        services = [
            one
            for one in of_kind(documents, "Service")
            if selector.items() <= one["metadata"].get("labels", {}).items()
        ]
        (service,) = services
        (port,) = service["spec"]["ports"]
        assert (port["name"], port["targetPort"]) == (endpoint["port"], endpoint["port"])
        selector = service["spec"]["selector"]
    assert selector.items() <= template["metadata"]["labels"].items()
    assert len(of_kind(documents, "PrometheusRule")) == 2
    (extender,) = [one for one in template["spec"]["containers"] if one["name"] == "extender"]
    assert endpoint["port"] == extender["ports"][0]["name"]
    assert endpoint["scheme"] == extender["livenessProbe"]["httpGet"].get("scheme", "HTTP").lower()
    secrets = {one["spec"]["secretName"] for one in of_kind(overlay(name), "Certificate")}
    assert {found["name"] for found in _secrets_in(endpoint)} <= (secrets or secrets_by_hand())


def secrets_by_hand() -> set[str]:
    """The Secrets that deploy/docs says how to make."""
    return set(re.findall(r"create secret generic (\S+)", "".join(PAGES.values())))


def _secrets_in(endpoint: Json) -> list[Json]:
    tls = endpoint.get("tlsConfig") or {}
    return [tls["ca"]["secret"], tls["cert"]["secret"], tls["keySecret"]] if tls else []


# -- configurations -------------------------------------------------------------------------------------------------


def settings_of(name: str) -> Settings:
    """The extender's configuration in an overlay."""
    return parse_settings(load(DEPLOY / "overlays" / name / "extender.yaml"))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("sidecar", []),
        ("second-scheduler", trust("/etc/placement-extender-client", "tls")),
        ("service", trust("/etc/kubernetes/placement-extender", "client")),
    ],
)
def test_the_schedulers_configuration_is_the_generated_one(
    name: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = DEPLOY / "overlays" / name
    assert main(["config", "generate", f"--config={folder / 'extender.yaml'}", f"--layout={name}", *more]) == 0
    assert capsys.readouterr().out == (folder / "kube-scheduler.yaml").read_text("utf-8")


KUBEADM: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "kube-scheduler", "namespace": "kube-system", "labels": {"tier": "control-plane"}},
    "spec": {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "containers": [
            {
                "name": "kube-scheduler",
                "image": "registry.k8s.io/kube-scheduler:v1.36.0",
                "command": ["kube-scheduler", "--kubeconfig=/etc/kubernetes/scheduler.conf", "--leader-elect=true"],
                "volumeMounts": [
                    {"mountPath": "/etc/kubernetes/scheduler.conf", "name": "kubeconfig", "readOnly": True}
                ],
            }
        ],
        "volumes": [
            {"name": "kubeconfig", "hostPath": {"path": "/etc/kubernetes/scheduler.conf", "type": "FileOrCreate"}}
        ],
    },
}


def patched(folder: Path) -> Any:
    """The static pod of kubeadm with our patch, applied as kubeadm applies it."""
    (folder / "pod.yaml").write_text(yaml.safe_dump(KUBEADM), "utf-8")
    patch = next((DEPLOY / "overlays/sidecar/patches").iterdir())
    assert re.fullmatch(r"kube-scheduler\d*\+strategic\.yaml", patch.name), (
        "the name says what kubeadm patches, and how"
    )
    (folder / "patch.yaml").write_bytes(patch.read_bytes())
    kustomization = {"resources": ["pod.yaml"], "patches": [{"path": "patch.yaml"}]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
    (pod,) = built(folder)
    return pod


def test_the_static_pod_gets_the_extender_beside_the_scheduler(tmp_path: Path) -> None:
    pod = patched(tmp_path)
    validate(pod)
    scheduler, extender = sorted(pod["spec"]["containers"], key=lambda one: str(one["name"]))
    assert {mount["name"] for mount in scheduler["volumeMounts"]} == {"kubeconfig", "placement-extender"}
    assert "--config=/etc/kubernetes/placement-extender/kube-scheduler.yaml" in scheduler["command"]
    assert scheduler["image"] == "registry.k8s.io/kube-scheduler:v1.36.0"
    assert extender["securityContext"]["readOnlyRootFilesystem"] is True
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"kubeconfig", "placement-extender"}


def test_in_the_static_pod_the_extender_is_the_user_that_the_roles_are_bound_to() -> None:
    subjects = {
        subject["name"] for one in of_kind(overlay("sidecar"), "ClusterRoleBinding") for subject in one["subjects"]
    }
    assert subjects == {"placement-extender"}
    assert settings_of("sidecar").kube.kubeconfig.startswith("/etc/kubernetes/placement-extender/")
    assert not of_kind(overlay("sidecar"), "ServiceAccount", "Role", "RoleBinding")


@pytest.mark.parametrize("name", ["sidecar", "second-scheduler", "service", "schedulers"])
def test_what_listens_beyond_loopback_knows_its_clients_and_their_roles(name: str) -> None:
    server = settings_of(name).server
    is_local = server.bind_address.host == "127.0.0.1"
    assert is_local or (server.tls.client_ca_file and server.tls.clients.scheduler)
    assert not set(server.tls.clients.metrics) & {*server.tls.clients.scheduler, *server.tls.clients.admin}
    assert not server.paths.bind


@EACH_DEPLOYED
def test_every_tls_file_of_the_configuration_is_mounted_and_not_for_all(name: str) -> None:
    spec = pod_of(overlay(name))["spec"]
    extender = extender_of(overlay(name))
    secrets = {volume["name"]: volume["secret"] for volume in spec["volumes"] if "secret" in volume}
    mounted = {one["mountPath"] for one in extender["volumeMounts"] if one["name"] in secrets}
    tls = settings_of(name.removesuffix("-cert-manager")).server.tls
    assert {str(Path(path).parent) for path in (tls.cert_file, tls.key_file, tls.client_ca_file)} <= mounted
    assert {secret["defaultMode"] for secret in secrets.values()} == {0o440}
