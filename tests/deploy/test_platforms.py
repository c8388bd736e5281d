"""deploy/platforms: values are rendered by the chart, objects are valid, and commands do what the page says, with stand-ins for a cloud."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
import yaml

from extender.settings.configuration import Settings, parse_settings
from extender.wire.policies.policies_v1 import read_policy
from tests.deploy.building import ROOT, Json, load, of_kind, pod_of, validate
from tests.deploy.charting import CHART, LAYOUTS, by_name, chart, helm
from tests.deploy.platforms import CLOUDS, PAGES, SERVICE, Page
from tests.deploy.policies.examples import to_copy
from tests.verbs.admit.reviewing import pod, review, reviewed, verb

ANY = "any"
VALUES = [
    (name, number)
    for name in PAGES
    for number, block in enumerate(Page(name).blocks)
    if block.name in {"values.yaml", "application.yaml", "release.yaml"}
]
CLOUD_CALL = {
    "eks": ("aws", "ec2", "authorize-security-group-ingress"),
    "gke": ("gcloud", "compute", "firewall-rules", "create"),
    "aks": ("az", "network", "nsg", "rule", "create"),
}


def played(page: Page, folder: Path, version: str = "v1.36.0") -> Page:
    """The page after its commands have run, with a value for each variable."""
    done = page.play(folder, version=version, **dict.fromkeys(page.variables, ANY))
    assert done.returncode == 0, done.stderr
    return page


def test_each_platform_has_a_page_of_at_most_700_words() -> None:
    assert set(PAGES) >= {"eks", "gke", "aks", "kubeadm", "k3s", "argo-cd", "flux"}
    assert [name for name in PAGES if len(Page(name).text.split()) > 700] == []


@pytest.mark.parametrize(("name", "number"), VALUES)
def test_the_values_of_a_page_are_values_of_the_chart_and_render(name: str, number: int) -> None:
    (document,) = [one for one in Page(name).blocks[number].documents if one.get("kind") != "OCIRepository"]
    values: Json = document
    if "spec" in document:
        spec = document["spec"]
        values = spec["values"] if document["kind"] == "HelmRelease" else spec["source"]["helm"]["valuesObject"]
    documents = chart(**values)
    for one in documents:
        if one["kind"] != "CustomResourceDefinition":
            validate(one)
    by_name(documents)


@pytest.mark.parametrize(("name", "version"), CLOUDS.items())
def test_the_scheduler_has_the_version_of_the_cluster(name: str, version: str, tmp_path: Path) -> None:
    page = played(Page(name), tmp_path, version)
    assert f"such as `{version}`" in page.text.replace("\n", " ")
    documents = rendered(tmp_path)
    if name == "k3s":  # its second installation, of the service, has no scheduler
        documents = chart(
            "secondScheduler", f"--kube-version={version}", image={"repository": f"{ANY}/placement-extender"}
        )
    scheduler, extender = pod_of(documents)["spec"]["containers"]
    assert scheduler["image"] == "registry.k8s.io/kube-scheduler:v1.35.2"
    assert extender["image"].startswith(f"{ANY}/placement-extender:")


def rendered(folder: Path) -> list[Json]:
    return [one for one in yaml.safe_load_all((folder / "rendered.yaml").read_text("utf-8")) if one]


@pytest.mark.parametrize(("name", "beginning"), CLOUD_CALL.items())
def test_the_cloud_lets_the_api_server_reach_the_port_of_the_webhook(
    name: str, beginning: tuple[str, ...], tmp_path: Path
) -> None:
    page = played(Page(name), tmp_path)
    words = " ".join(page.called(*beginning))
    assert re.search(r"\b(?:tcp:|port |ranges )9443\b", words)
    (policy,) = of_kind(rendered(tmp_path), "NetworkPolicy")
    assert 9443 in [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"] if "from" not in rule]


@pytest.mark.parametrize("name", [name for name in PAGES if Page(name).variables])
def test_a_command_without_a_variable_stops_and_names_it(name: str, tmp_path: Path) -> None:
    page = Page(name)
    assert page.variables == set(re.findall(r"\$\{([A-Z_]+):\?\}", page.commands))
    done = page.play(tmp_path)
    assert done.returncode != 0
    assert re.search(rf"({'|'.join(page.variables)}): parameter null or not set", done.stderr)


def test_with_the_host_network_each_node_takes_one_replica() -> None:
    (values,) = [one for block in Page("eks").blocks for one in block.documents if "hostNetwork" in one]
    spec = pod_of(chart(**values))["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    ports = {port["containerPort"] for container in spec["containers"] for port in container.get("ports", [])}
    assert {8888, 9443} <= ports, "of the node then, so that the scheduler keeps replicas apart"


def test_gke_counts_the_pods_of_the_priority_class_in_the_namespace(tmp_path: Path) -> None:
    page = played(Page("gke"), tmp_path)
    quota = load(tmp_path / "quota.yaml")
    validate(quota)
    assert quota["metadata"]["namespace"] == page.called("kubectl", "create", "namespace")[-1]
    (expression,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert pod_of(rendered(tmp_path))["spec"]["priorityClassName"] in expression["values"]


def test_aks_leaves_both_webhook_configurations_alone(tmp_path: Path) -> None:
    page = played(Page("aks"), tmp_path)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (one,) = of_kind(rendered(tmp_path), kind)
        assert one["metadata"]["labels"]["admissions.enforcer/disabled"] == "true"
        assert f"{kind.lower()}/{one['metadata']['name']}" in page.called("kubectl", "label", "--overwrite")


def test_k3s_asks_the_service_from_its_own_scheduler(tmp_path: Path) -> None:
    played(Page("k3s"), tmp_path)
    folder = tmp_path / "etc/rancher/k3s/placement-extender"
    config = load(folder / "kube-scheduler.yaml")
    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == f"https://{SERVICE}:8888"
    assert extender["ignorable"], "it also places the pods of the extender"
    assert {(folder / Path(path).name).read_bytes() for path in extender["tlsConfig"].values()} == {
        base64.b64decode("c2VjcmV0Cg==")
    }
    assert config["clientConnection"]["kubeconfig"] == "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
    (arguments,) = [
        one["kube-scheduler-arg"]
        for block in Page("k3s").blocks
        for one in block.documents
        if len(one) == 1 and "kube-scheduler-arg" in one
    ]
    assert arguments == ["config=/etc/rancher/k3s/placement-extender/kube-scheduler.yaml"]


def test_kubeadm_finds_the_patch_in_the_folder_that_its_configuration_names(tmp_path: Path) -> None:
    page = played(Page("kubeadm"), tmp_path)
    blocks = {block.name: block.documents[0] for block in page.blocks}
    upgrade, join = blocks["kubeadm-upgrade.yaml"], blocks["kubeadm-join.yaml"]
    folders = {one["patches"]["directory"] for one in (upgrade["apply"], upgrade["node"], join)}
    (folder,) = folders
    patch = ROOT / "deploy/overlays/sidecar/patches/kube-scheduler0+strategic.yaml"
    assert Path(f"{tmp_path}{folder}/{patch.name}").read_bytes() == patch.read_bytes()
    head = {"apiVersion": Settings().api_version, "kind": Settings().kind}
    settings = parse_settings({**head, **blocks["in /etc/kubernetes/placement-extender/extender.yaml"]})
    assert settings.policies.webhook.url == "https://127.0.0.1:9443"


def test_the_domains_of_gke_are_domains_of_the_policy() -> None:
    (part,) = [block.documents[0] for block in Page("gke").blocks if block.name.startswith("in config/policies/")]
    policy = to_copy("spot-then-on-demand.yaml")
    policy["spec"]["release"] |= part["release"]
    response = verb(read_policy(policy)).decide(review(policy))["response"]
    assert (response["allowed"], response.get("warnings")) == (True, None)


def test_pods_of_a_labelled_namespace_go_to_the_scheduler_of_the_chart() -> None:
    policy = read_policy(to_copy("scheduler-of-a-namespace.yaml"))
    (label,) = re.findall(r"label namespace \$\{TENANT:\?\} (\S+)=(\S+)", Page("eks").commands)
    (config,) = of_kind(chart(), "ConfigMap")
    profile = yaml.safe_load(config["data"]["kube-scheduler.yaml"])["profiles"][0]
    admit = verb(policy, namespaces={"shop": dict([label]), "lab": {}})
    assert reviewed(admit, pod()).obj["spec"].get("schedulerName") == profile["schedulerName"]
    assert "schedulerName" not in reviewed(admit, pod(namespace="lab"), namespace="lab").obj["spec"]


# -- GitOps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_renderings_are_equal_and_have_no_hooks(layout: str) -> None:
    """Otherwise a GitOps tool would apply the chart again and again. tests/e2e/test_gitops.py compares with a cluster."""
    values: Json = {"layout": layout, "policies": {"enabled": True}, "dashboards": {"enabled": True}}
    first, second = (helm("template", "release", str(CHART), values=values) for _ in range(2))
    assert first == second
    assert "helm.sh/hook" not in first
    assert first.count("helm.sh/resource-policy: keep") == 4, "the kinds"


def test_the_argo_cd_applications_name_the_chart_and_try_policies_again() -> None:
    blocks = {block.name: block.documents[0] for block in Page("argo-cd").blocks}
    source = blocks["application.yaml"]["spec"]["source"]
    assert (source["chart"], source["targetRevision"]) == (chart_of()["name"], chart_of()["version"])
    assert blocks["application.yaml"]["spec"]["destination"]["namespace"] != "kube-system"
    policies = blocks["policies.yaml"]["spec"]["syncPolicy"]
    assert policies["retry"]["limit"] > 0
    assert "SkipDryRunOnMissingResource=true" in policies["syncOptions"]


def test_flux_applies_policies_after_the_release() -> None:
    repository, release = next(block for block in Page("flux").blocks if block.name == "release.yaml").documents
    assert repository["spec"]["url"].endswith(f"/{chart_of()['name']}")
    assert (repository["spec"]["ref"]["tag"], release["spec"]["driftDetection"]) == (
        chart_of()["version"],
        {"mode": "enabled"},
    )
    assert release["spec"]["chartRef"] == {"kind": repository["kind"], "name": repository["metadata"]["name"]}
    first, second = next(block for block in Page("flux").blocks if block.name == "kustomizations.yaml").documents
    assert first["spec"]["wait"]
    assert second["spec"]["dependsOn"] == [{"name": first["metadata"]["name"]}]


def chart_of() -> Json:
    found: Json = load(CHART / "Chart.yaml")
    return found
