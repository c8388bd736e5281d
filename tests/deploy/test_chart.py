"""The Helm chart: the same objects as the overlays, each value does what the table says, and a wrong value is refused with its path."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.release.image import version
from extender.cli.main import main
from extender.doctor.versions import PLACEHOLDER
from extender.settings.configuration import parse_settings
from extender.wire.api_server import OLDEST
from extender.wire.webhook_configurations import mutating_webhooks, target_of, validating_webhooks
from tests.deploy.building import (
    Json,
    extender_of,
    load,
    named,
    of_kind,
    overlay_with,
    pod_of,
    templates,
    validate,
)
from tests.deploy.charting import CHART, LAYOUTS, NAMESPACES, OVERLAY_OF, ValueRefusedError, by_name, chart, helm
from tests.deploy.reading import FOREIGN, trust

EACH = pytest.mark.parametrize("layout", LAYOUTS)
BY_HAND = {"mode": "existingSecret"}
UNSET: Json = {"image": {"tag": PLACEHOLDER}}  # as in the overlays, which do not know the cluster
EVERYTHING: Json = {
    "policies": {"enabled": True},
    "bind": {"enabled": True},
    "kubectlRole": {"enabled": True},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
}


def compared(rendered: list[Json], built: list[Json], **settings: Json) -> None:
    """Object by object. ``settings``: what the values add to extender.yaml, which a user of an overlay writes by hand."""
    ours, theirs = by_name(rendered), by_name(built)
    assert ours.keys() == theirs.keys()
    for key, document in theirs.items():
        if key[0] == "ConfigMap" and "extender.yaml" in document["data"]:
            for section, added in settings.items():
                document["data"]["extender.yaml"].setdefault(section, {}).update(added)
            if "server" in settings and "kube-scheduler.yaml" in document["data"]:
                document["data"]["kube-scheduler.yaml"]["extenders"][0]["bindVerb"] = "bind"
        elif key[0] == "ConfigMap" and "server" in settings:
            for file in document["data"].values():
                file["extenders"][0]["bindVerb"] = "bind"
        assert ours[key] == document


@EACH
def test_a_layout_has_the_objects_of_its_overlay(layout: str) -> None:
    compared(
        chart(layout, scheduler=UNSET),
        overlay_with("certificates", OVERLAY_OF[layout], *(["token"] if layout == "secondScheduler" else [])),
    )


@EACH
def test_capabilities_have_the_objects_of_the_components(layout: str) -> None:
    built = overlay_with("policies", OVERLAY_OF[layout], "bind", "kubectl", "monitoring", "user-roles")
    for one in of_kind(built, "PodMonitor"):  # the component names the Service of the overlay `service`
        (endpoint,) = one["spec"]["podMetricsEndpoints"]
        endpoint["tlsConfig"]["serverName"] = f"placement-extender.{NAMESPACES[layout]}.svc"
    webhook = {"failurePolicy": "Ignore", "timeout": "3s"}
    policies = {"enabled": True, "kupid": False, "webhook": webhook}
    compared(
        chart(layout, tls=BY_HAND, scheduler=UNSET, **EVERYTHING),
        built,
        policies=policies,
        server={"paths": {"bind": "/bind"}},
    )


def test_a_service_monitor_is_the_components_and_has_the_labels_by_which_it_is_selected() -> None:
    release = {"enabled": True, "labels": {"release": "a"}}
    values: Json = {"serviceMonitor": release, "prometheusRule": release}
    documents = chart("service", tls=BY_HAND, **values)
    compared(documents, overlay_with("monitoring/service-monitor", "service"))
    found = of_kind(documents, "ServiceMonitor", "PrometheusRule")
    assert {one["metadata"]["labels"]["release"] for one in found} == {"a"}
    assert (
        named(documents, "Service", "placement-extender-metrics")["metadata"]["labels"]["app.kubernetes.io/component"]
        == "metrics"
    )


def test_the_address_of_the_runbook_is_in_alerts_and_dashboards() -> None:
    address = "https://docs.example.com/runbook.md"
    values: Json = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    documents = chart("service", **values, runbook=address)
    groups = [group for one in of_kind(documents, "PrometheusRule") for group in one["spec"]["groups"]]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(rules) > 50
    assert [rule for rule in rules if rule["annotations"]["runbook_url"] != f"{address}#{rule['alert'].lower()}"] == []
    boards = [one for one in of_kind(documents, "ConfigMap") if "dashboard" in one["metadata"]["name"]]
    for board in boards:
        ((file, text),) = board["data"].items()
        found, written = (
            json.loads(text),
            json.loads((CHART / "files" / "grafana" / "dashboards" / file).read_text("utf-8")),
        )
        assert found["links"].pop()["url"] == address
        assert found == written
    assert len(boards) == 5
    assert "runbook_url" not in json.dumps(chart("service", **values))


@pytest.mark.parametrize("has_policies", [False, True])
def test_certificates_of_cert_manager_are_the_overlays(*, has_policies: bool) -> None:
    components = ["policies-cert-manager"] if has_policies else ["kubectl"]
    built = overlay_with(components[0], "service-cert-manager")
    values: Json = {"policies": {"enabled": has_policies}, "kubectlRole": {"enabled": not has_policies}}
    values["userRoles"] = {"aggregate": False}
    files = {
        "certFile": "/etc/placement-extender-webhook/tls.crt",
        "keyFile": "/etc/placement-extender-webhook/tls.key",
    }
    webhook = {"failurePolicy": "Ignore", "timeout": "3s", "certificates": "cert-manager", **files}
    policies = {"enabled": True, "kupid": False, "webhook": webhook}
    # This overlay takes the names of its cluster-wide objects from ../service, which does not see the component.
    text = json.dumps(chart("service", tls={"mode": "certManager"}, **values))
    rendered, built = (json.loads(re.sub(r'-service"', '"', each)) for each in (text, json.dumps(built)))
    compared(rendered, built, **({"policies": policies} if has_policies else {}))


@EACH
@pytest.mark.parametrize("mode", ["generated", "existingSecret", "certManager"])
def test_every_object_is_valid_with_everything_switched_on(layout: str, mode: str) -> None:
    more: Json = {name: {"enabled": True} for name in ("serviceMonitor", "dashboards")}
    documents = chart(layout, tls={"mode": mode}, **EVERYTHING, **more)
    for document in documents:
        if document["kind"] not in FOREIGN:
            validate(document)
    assert {one["kind"] for one in documents} >= {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert len([one for one in of_kind(documents, "ConfigMap") if "dashboard" in one["metadata"]["name"]]) >= 5
    by_name([one for one in documents if "dashboard" not in one["metadata"]["name"]])
    secrets = {
        volume["secret"]["secretName"]
        for template in templates(documents)
        for volume in template["spec"]["volumes"]
        if "secret" in volume
    }
    made = {one["spec"]["secretName"] for one in of_kind(documents, "Certificate")}
    applied = {one["metadata"]["name"] for one in of_kind(documents, "Secret")}
    assert mode == "existingSecret" or secrets <= made | applied


@EACH
def test_the_settings_of_every_layout_are_valid_and_the_schedulers_configuration_is_the_generated_one(
    layout: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = chart(layout, namespace="other", policies={"enabled": True}, bind={"enabled": True})
    data = {file: text for one in of_kind(documents, "ConfigMap") for file, text in one["data"].items()}
    settings = tmp_path / "extender.yaml"
    settings.write_text(data.pop("extender.yaml"), "utf-8")
    assert parse_settings(load(settings)).policies.enabled
    if layout == "service":
        assert not data, "the scheduler is not of the chart"
        return
    more = ["--layout=second-scheduler"]
    if layout == "schedulers":
        more = ["--layout=service", "--host=placement-extender.other.svc", "--schedulers=3"]
    trusted = trust("/etc/placement-extender-client", "tls")
    assert main(["config", "generate", f"--config={settings}", *more, *trusted]) == 0
    generated = [one for one in yaml.safe_load_all(capsys.readouterr().out) if "profiles" in one]
    assert generated == [yaml.safe_load(data[file]) for file in sorted(data)]


# -- values ---------------------------------------------------------------------------------------------------------


@EACH
def test_every_namespace_follows_the_release(layout: str) -> None:
    text = json.dumps(chart(layout, namespace="other", tls={"mode": "certManager"}, **EVERYTHING))
    assert f"{NAMESPACES[layout]}.svc" not in text
    assert f":{NAMESPACES[layout]}:" not in text
    subjects = [one["subjects"][0] for one in json.loads(text) if "subjects" in one]
    assert {one["namespace"] for one in subjects} == {"other"}


@EACH
def test_what_pods_get_is_in_every_pod(layout: str) -> None:
    toleration = {"key": "CriticalAddonsOnly", "operator": "Exists"}
    values: Json = {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [toleration],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "priorityClassName": "high",
    }
    more: Json = {"hostNetwork": True, "podLabels": {"team": "a"}, "podAnnotations": {"note": "b"}}
    for template in templates(chart(layout, **values, **more)):
        assert {key: template["spec"][key] for key in values} == values
        assert (template["spec"]["hostNetwork"], template["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        assert template["metadata"]["labels"]["team"] == "a"
        assert template["metadata"]["annotations"]["note"] == "b"
    assert all("priorityClassName" not in one["spec"] for one in templates(chart(layout, priorityClassName="")))


def test_images_have_a_tag_or_a_digest_and_a_pull_policy() -> None:
    digest = f"sha256:{'1' * 64}"
    image = {"repository": "registry.example:5000/a/b", "digest": digest, "pullPolicy": "Always"}
    spec = pod_of(chart(image=image, scheduler={"image": {"tag": "v1.35.2"}}))["spec"]
    scheduler, extender = spec["containers"]
    assert (extender["image"], extender["imagePullPolicy"]) == (f"registry.example:5000/a/b@{digest}", "Always")
    assert scheduler["image"] == "registry.k8s.io/kube-scheduler:v1.35.2"
    assert extender_of(chart())["image"] == f"placement-extender:{version()}"


def test_what_is_extra_is_added_to_the_extender_alone() -> None:
    values: Json = {
        "extraArgs": ["--verbose"],
        "extraEnv": [{"name": "A", "value": "1"}],
        "extraVolumes": [{"name": "extra", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "extra", "mountPath": "/extra"}],
        "resources": {"requests": {"cpu": "1"}},
    }
    documents = chart("schedulers", **values)
    extender = extender_of(documents)
    assert (extender["args"][-1], extender["env"][-1]["name"]) == ("--verbose", "A")
    assert (extender["volumeMounts"][-1]["name"], pod_of(documents)["spec"]["volumes"][-1]["name"]) == (
        "extra",
        "extra",
    )
    assert extender["resources"]["requests"]["cpu"] == "1"
    (stateful,) = of_kind(documents, "StatefulSet")
    assert "extra" not in json.dumps(stateful["spec"]["template"]["spec"]["containers"])


def test_the_scheduler_has_its_name_its_sample_and_more_of_its_configuration() -> None:
    extra = {"parallelism": 32, "leaderElection": {"leaseDuration": "30s"}}
    scheduler = {"name": "packer", "percentageOfNodesToScore": 7, "extraConfig": extra}
    documents = chart(scheduler=scheduler)
    (config,) = of_kind(documents, "ConfigMap")
    found = yaml.safe_load(config["data"]["kube-scheduler.yaml"])
    assert (found["profiles"][0]["schedulerName"], found["percentageOfNodesToScore"]) == ("packer", 7)
    assert (found["parallelism"], found["leaderElection"]["leaseDuration"]) == (32, "30s")
    assert found["leaderElection"]["resourceName"] == "packer"
    assert named(documents, "Role", "placement-scheduler-lease")["rules"][1]["resourceNames"] == ["packer"]


def test_another_number_of_schedulers_has_a_file_and_a_lease_for_each() -> None:
    documents = chart("schedulers", scheduler={"count": 5, "name": "s"})
    (stateful,) = of_kind(documents, "StatefulSet")
    assert stateful["spec"]["replicas"] == 5
    files = named(documents, "ConfigMap", "placement-schedulers-config")["data"]
    names = [yaml.safe_load(text)["profiles"][0]["schedulerName"] for text in files.values()]
    assert names == ["s-0", "s-1", "s-2", "s-3", "s-4"]
    assert sorted(files) == [f"placement-scheduler-{number}.yaml" for number in range(5)], "the names of the pods"
    assert named(documents, "Role", "placement-schedulers-lease")["rules"][1]["resourceNames"] == names


def test_the_configuration_is_merged_over_the_one_of_the_layout_and_a_change_replaces_the_pods() -> None:
    documents = chart("service", config={"logging": {"level": "debug"}, "quota": {"enabled": True}})
    (config,) = of_kind(documents, "ConfigMap")
    found = yaml.safe_load(config["data"]["extender.yaml"])
    assert (found["mode"], found["logging"]) == ("augment", {"format": "json", "level": "debug"})
    before = pod_of(chart("service"))["metadata"]["annotations"]["checksum/config"]
    assert pod_of(documents)["metadata"]["annotations"]["checksum/config"] != before


def test_two_releases_with_a_suffix_each_share_no_object() -> None:
    first = by_name(chart(namespace="a", nameSuffix="a"))
    second = by_name(chart(namespace="b", nameSuffix="b"))
    assert first.keys() & second.keys() == set()
    for binding in (*first.values(), *second.values()):
        if binding["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            role = binding["roleRef"]
            namespace = binding["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
            is_ours = role["name"].startswith("placement")
            assert not is_ours or (role["kind"], namespace, role["name"]) in first.keys() | second.keys()


@pytest.mark.parametrize(
    ("version", "tag"), [("v1.33.4", "v1.33.4"), ("v1.31.9-gke.1014001", "v1.31.9"), ("v1.34.1+k3s1", "v1.34.1")]
)
def test_the_scheduler_has_the_version_of_the_cluster(version: str, tag: str) -> None:
    scheduler, _ = pod_of(chart("secondScheduler", f"--kube-version={version}"))["spec"]["containers"]
    assert scheduler["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_a_cluster_before_the_oldest_supported_version_is_refused() -> None:
    with pytest.raises(ValueRefusedError, match="kubeVersion"):
        chart("secondScheduler", f"--kube-version=1.{OLDEST - 1}")


def test_crds_are_kept_or_not_or_not_installed() -> None:
    kept = of_kind(chart(policies={"enabled": True}), "CustomResourceDefinition")
    assert {one["metadata"]["annotations"]["helm.sh/resource-policy"] for one in kept} == {"keep"}
    removed = of_kind(chart(policies={"enabled": True}, crds={"keep": False}), "CustomResourceDefinition")
    assert len(removed) == len(kept) == 4
    assert all("annotations" not in one["metadata"] for one in removed)
    assert not of_kind(chart(policies={"enabled": True}, crds={"enabled": False}), "CustomResourceDefinition")
    assert not of_kind(chart(), "CustomResourceDefinition")


def test_where_the_cluster_has_no_admission_policies_none_is_installed() -> None:
    older = "--kube-version=1.29"
    assert of_kind(chart(), "ValidatingAdmissionPolicy")
    assert of_kind(chart("secondScheduler", older, admissionPolicy={"enabled": True}), "ValidatingAdmissionPolicy")
    assert not of_kind(chart("secondScheduler", older), "ValidatingAdmissionPolicy")
    off = chart("service", policies={"enabled": True}, admissionPolicy={"enabled": False})
    assert not of_kind(off, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def test_policies_fail_open_or_closed_in_time() -> None:
    documents = chart(
        "service", policies={"enabled": True, "failurePolicy": "Fail", "timeoutSeconds": 5, "kupid": True}
    )
    (mutating,) = of_kind(documents, "MutatingWebhookConfiguration")
    assert (mutating["webhooks"][0]["failurePolicy"], mutating["webhooks"][0]["timeoutSeconds"]) == ("Fail", 5)
    (config,) = of_kind(documents, "ConfigMap")
    found = yaml.safe_load(config["data"]["extender.yaml"])["policies"]
    assert found == {"enabled": True, "kupid": True, "webhook": {"failurePolicy": "Fail", "timeout": "5s"}}


@pytest.mark.parametrize("namespace", ["placement", "argo"])
@pytest.mark.parametrize(
    ("kupid", "config"),
    [
        (False, {}),
        (True, {"exemptNamespaces": ["monitoring", "kube-system"], "exemptions": {"labelIn": ["*"]}}),
        (False, {"templates": dict.fromkeys(("a.example/v1/Gateway", "b.example/v2/Redis", "a.b/v1/JobSet"), "/spec")}),
        (False, {"templates": {}}),
    ],
    ids=["defaults", "exemptions", "templates", "no templates"],
)
def test_webhook_configurations_are_as_the_leader_keeps_them(namespace: str, config: Json, *, kupid: bool) -> None:
    """Otherwise each upgrade of the release would take back what the leader has written."""
    documents = chart(
        "secondScheduler",
        namespace=namespace,
        policies={"enabled": True, "kupid": kupid, "failurePolicy": "Fail"},
        config={"policies": config},
    )
    (file,) = of_kind(documents, "ConfigMap")
    ours = parse_settings(yaml.safe_load(file["data"]["extender.yaml"])).policies.exempting(namespace)
    target = target_of(ours, namespace)
    (mutating,) = of_kind(documents, "MutatingWebhookConfiguration")
    (validating,) = of_kind(documents, "ValidatingWebhookConfiguration")
    assert mutating["webhooks"] == mutating_webhooks(ours, target, None)
    assert validating["webhooks"] == validating_webhooks(ours, target, None)


def test_the_network_policy_follows_the_cluster_or_is_left_out() -> None:
    policy = {"apiServerPorts": [443, 8443], "metricsNamespace": "observability"}
    for one in of_kind(chart("schedulers", networkPolicy=policy), "NetworkPolicy"):
        assert [port["port"] for port in one["spec"]["egress"][0]["ports"]][:2] == [443, 8443]
        for rule in one["spec"]["ingress"]:
            for source in rule.get("from", []):
                assert source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "observability"
    assert not of_kind(chart(networkPolicy={"enabled": False}), "NetworkPolicy")
    assert not of_kind(chart(podDisruptionBudget={"enabled": False}), "PodDisruptionBudget")


def test_an_issuer_of_the_cluster_takes_the_place_of_the_releases_own() -> None:
    issuer = {"name": "corporate", "kind": "ClusterIssuer"}
    tls = {"mode": "certManager", "issuerRef": issuer, "duration": "720h", "names": ["a.example", "10.0.0.9"]}
    documents = chart("service", tls=tls, service={"clusterIP": "10.96.0.50"})
    assert not of_kind(documents, "Issuer")
    certificates = {one["metadata"]["name"]: one["spec"] for one in of_kind(documents, "Certificate")}
    assert [spec["issuerRef"] for spec in certificates.values()] == [issuer] * len(certificates)
    server = certificates["placement-extender-tls"]
    assert (server["ipAddresses"], server["dnsNames"][-1], server["duration"]) == (
        ["10.96.0.50", "10.0.0.9"],
        "a.example",
        "720h",
    )
    assert named(documents, "Service", "placement-extender")["spec"]["clusterIP"] == "10.96.0.50"


def test_generated_certificates_have_their_days_and_further_names_and_another_image_is_another_job() -> None:
    tls = {"duration": "36h", "names": ["a.example", "10.0.0.9"]}
    (job,), (cron,) = (of_kind(chart(tls=tls), kind) for kind in ("Job", "CronJob"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    loopback = ["localhost", "127.0.0.1", "::1"]
    days = ["certs", "--secrets", "$(POD_NAMESPACE)", "--days", "1.5"]
    assert container["args"] == [*days, "--names", *loopback, "a.example", "10.0.0.9", "--token"]
    assert cron["spec"]["jobTemplate"]["spec"]["template"] == job["spec"]["template"]
    (other,) = of_kind(chart(tls=tls, image={"tag": "0.2.0"}), "Job")
    assert other["metadata"]["name"] != job["metadata"]["name"], "pods of a Job cannot be changed"


def test_labels_and_annotations_are_on_every_object() -> None:
    documents = chart("schedulers", labels={"team": "a"}, annotations={"note": "b"}, policies={"enabled": True})
    for one in documents:
        if one["kind"] != "CustomResourceDefinition":
            assert one["metadata"]["labels"]["team"] == "a"
            assert one["metadata"]["annotations"]["note"] == "b"
            assert one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


# -- what is refused, and the documents -----------------------------------------------------------------------------

WRONG: tuple[tuple[Json, str], ...] = (
    ({"layout": "sidecar"}, "/layout"),
    ({"replicas": "many"}, "/replicas"),
    ({"replica": 2}, "replica"),
    ({"image": {"digest": "sha256:12"}}, "/image/digest"),
    ({"image": {"repository": "a b"}}, "/image/repository"),
    ({"scheduler": {"count": 1}}, "/scheduler/count"),
    ({"scheduler": {"percentageOfNodesToScore": 101}}, "/scheduler/percentageOfNodesToScore"),
    ({"scheduler": {"name": "{{ .Release.Name }}"}}, "/scheduler/name"),
    ({"policies": {"failurePolicy": "Never"}}, "/policies/failurePolicy"),
    ({"policies": {"timeoutSeconds": 31}}, "/policies/timeoutSeconds"),
    ({"tls": {"mode": "laptop"}}, "/tls/mode"),
    ({"tls": {"duration": "90d"}}, "/tls/duration"),
    ({"admissionPolicy": {"enabled": "yes"}}, "/admissionPolicy/enabled"),
    ({"networkPolicy": {"apiServerPorts": [0]}}, "/networkPolicy/apiServerPorts/0"),
    ({"config": []}, "/config"),
    ({"nameSuffix": "A\u001b[31m"}, "/nameSuffix"),
    ({"networkPolicy": {"metricsNamespace": "a\u001b[2J"}}, "/networkPolicy/metricsNamespace"),
    ({"tls": {"secrets": {"server": "a\u001b[2J"}}}, "/tls/secrets/server"),
    ({"service": {"clusterIP": "any"}}, "/service/clusterIP"),
    ({"image": {"repository": "a\n  hostNetwork: true"}}, "/image/repository"),
    ({"scheduler": {"extraConfig": []}}, "/scheduler/extraConfig"),
    ({"resources": "256Mi"}, "/resources"),
    ({"tolerations": {"key": "a"}}, "/tolerations"),
    ({"podMonitor": True}, "/podMonitor"),
)


@pytest.mark.parametrize(("values", "path"), WRONG, ids=[path for _, path in WRONG])
def test_a_wrong_value_is_refused_with_its_path(values: Json, path: str) -> None:
    with pytest.raises(ValueRefusedError, match=re.escape(path)):
        chart(**{"layout": "secondScheduler", **values})


def test_what_stands_in_a_value_is_no_template() -> None:
    """Only files of the chart are templates: a value with braces stays a text."""
    (config,) = of_kind(chart(config={"note": "{{ .Values.image }}", "more": '"\n---\nkind: Pod'}), "ConfigMap")
    found = yaml.safe_load(config["data"]["extender.yaml"])
    assert (found["note"], found["more"]) == ("{{ .Values.image }}", '"\n---\nkind: Pod')


def test_aliases_of_a_values_file_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    levels = [f"level{n}: &level{n} [{', '.join([f'*level{n - 1}'] * 10)}]" for n in range(1, 10)]
    file = tmp_path / "values.yaml"
    file.write_text(
        "\n".join(["level0: &level0 [x, x, x, x, x, x, x, x, x, x]", *levels, "extraArgs: *level9"]), "utf-8"
    )
    with pytest.raises(ValueRefusedError, match="excessive aliasing"):
        helm("template", "release", str(CHART), f"--values={file}")


@EACH
def test_the_notes_of_a_release_have_the_commands_up_to_the_first_pod_and_no_escape(layout: str) -> None:
    hostile = "{{ .Release.Name }}\u001b[2J"
    values: Json = {"layout": layout, "podAnnotations": {"a": hostile}, "extraArgs": [hostile]}
    printed = helm("install", "release", str(CHART), "--dry-run=client", "--namespace=any", values=values)
    assert "\u001b" not in printed
    notes = printed.partition("NOTES:")[2]
    workload = {"secondScheduler": "deployment/placement-scheduler"}.get(layout, "deployment/placement-extender")
    assert f"kubectl -n any rollout status {workload}" in notes
    assert "`kubectl placement doctor --extender-namespace any`" in notes
    first = {"secondScheduler": '"placement-scheduler"', "schedulers": '"placement-scheduler-0"'}.get(layout)
    assert (
        first is None
        or f"""kubectl run first --image=registry.k8s.io/pause:3.10 --overrides='{{"spec": {{"schedulerName": {first}}}}}'"""
        in notes
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_notes_name_what_is_left_to_do_in_a_layout(layout: str) -> None:
    """For kube-scheduler outside of the release, and for pods of several schedulers."""
    values: Json = {"layout": layout, "policies": {"enabled": True}}
    notes = helm("install", "release", str(CHART), "--dry-run=client", "--namespace=any", values=values)
    assert ('"kube-scheduler of a service", has the commands, with namespace=any.' in notes) == (layout == "service")
    assert ("deploy/overlays/schedulers/policy.yaml gives each new pod" in notes) == (layout == "schedulers")
    assert "kubectl run first --image=" in notes


@EACH
def test_helm_finds_nothing_wrong(layout: str) -> None:
    printed = helm("lint", "--strict", str(CHART), values={"layout": layout, **EVERYTHING})
    assert "1 chart(s) linted, 0 chart(s) failed" in printed
    assert "[WARNING]" not in printed


def test_the_chart_has_the_version_of_the_extender() -> None:
    found = load(CHART / "Chart.yaml")
    assert found["version"] == found["appVersion"] == version()


def paths(schema: Json, prefix: str = "") -> dict[str, Json]:
    """Each value of the schema by its path with dots."""
    found: dict[str, Json] = {}
    for name, part in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        found |= paths(part, f"{path}.") if part.get("properties") else {path: part}
    return found


def test_the_table_of_the_document_has_each_value_with_its_default_as_the_schema_says() -> None:
    schema, defaults = json.loads((CHART / "values.schema.json").read_text("utf-8")), load(CHART / "values.yaml")
    text = (CHART / "README.md").read_text("utf-8").partition("\n## Values\n")[2]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.+) \|$", text, re.MULTILINE))
    expected = {}
    for path, part in paths(schema).items():
        value: Any = defaults
        for name in path.split("."):
            value = value.get(name, {}) if isinstance(value, dict) else {}
        values = ", ".join(f"`{one}`" for one in part["enum"] if one) if "enum" in part else ""
        default = json.dumps(value).strip('"') or '""'
        expected[path] = f"`{default}` | {part['description']}{f' ({values})' if values else ''}"
    del expected["global"]
    assert rows == expected
