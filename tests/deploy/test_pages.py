"""The pages of deploy/ by task: their tables say what the manifests and the alerts say, and each task needs two pages at most."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from extender.model.rejections import Reason
from extender.wire.api_server import NEWEST, OLDEST, REQUIREMENTS
from grafana.generate.files import rules as alerts
from tests.deploy.building import DEPLOYED, OVERLAYS, ROOT, Json, of_kind, overlay_with, templates
from tests.deploy.charting import LAYOUTS, chart
from tests.deploy.reading import PAGES, blocks, section

POLICIES: Final = {name: "policies-cert-manager" if "cert" in name else "policies" for name in OVERLAYS}
SEVERITIES: Final = ("critical", "warning", "info")
# A task, the pages that it needs, and what the last one of them must tell.
TASKS: Final = {
    "a second scheduler": (
        "README.md",
        "deploy/docs/install.md",
        ("helm install", "schedulerName: placement-scheduler"),
    ),
    "a second scheduler on EKS": ("README.md", "deploy/platforms/eks.md", ("helm upgrade --install", "9443")),
    "batch on spot, then on demand": (
        "config/policies/README.md",
        "config/policies/spot-then-on-demand.yaml",
        ("name: spot", "name: on-demand", "example.com/batch"),
    ),
    "why is a pod pending": ("README.md", "config/how-to/explain.md", ("extender explain NAMESPACE/POD",)),
    "memory for 30,000 pods": ("README.md", "deploy/docs/size.md", ("| 30,000 | 151 MB | 256Mi |",)),
    "roll back": ("README.md", "deploy/docs/upgrade.md", ("helm rollback", "rollout undo")),
}


def rows(text: str) -> list[list[str]]:
    """The cells of the tables of a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {number for number, line in enumerate(lines) if re.fullmatch(r"\|(-+\|)+", line)}
    kept = [line for number, line in enumerate(lines) if not heads & {number, number + 1}]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in kept]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def granted_in_the_page(title: str, *, verbs: int) -> set[tuple[str, str, str]]:
    """(role, verb, resource) of a table; a row without a role belongs to the role above."""
    found, names = set[tuple[str, str, str]](), list[str]()
    for row in rows(section(title)):
        names = [name.removesuffix("-…") for name in quoted(row[0].partition("(")[0])] or names
        found |= {
            (name, verb, resource)
            for name in names
            for verb in re.findall(r"\w+", row[verbs])
            for resource in quoted(row[verbs + 1].partition("(")[0])
        }
    return found


def granted_by_the_manifests() -> Iterator[tuple[str, str, str]]:
    more = ("bind", "kubectl", "user-roles")
    for name in OVERLAYS:
        others = ("certificates", "token") if name == "second-scheduler" else ("certificates",)
        documents = overlay_with(
            POLICIES[name], name, *more, *(others if name in {"second-scheduler", "service"} else ())
        )
        for role in of_kind(documents, "Role", "ClusterRole"):
            own = role["metadata"]["name"].removesuffix(f"-{name}").removesuffix("-service")
            for rule in role["rules"]:
                yield from ((own, verb, resource) for verb in rule["verbs"] for resource in rule["resources"])


def test_the_tables_of_permissions_say_what_the_roles_grant() -> None:
    named = granted_in_the_page("Roles of the extender", verbs=1) | granted_in_the_page("Roles of others", verbs=2)
    assert named == set(granted_by_the_manifests())


@pytest.mark.parametrize("name", DEPLOYED)
def test_the_table_of_ports_has_each_port_of_a_container_and_of_a_service(name: str) -> None:
    named = {port for row in rows(section("Ports")) for port in re.findall(r"\d+", row[0].partition(" on ")[0])}
    documents: list[Json] = overlay_with(POLICIES[name], name)
    ports = {
        port["containerPort"]
        for template in templates(documents)
        for container in template["spec"]["containers"]
        for port in container["ports"]
    }
    ports |= {port["port"] for service in of_kind(documents, "Service") for port in service["spec"]["ports"]}
    for policy in of_kind(documents, "NetworkPolicy"):
        for rule in policy["spec"]["egress"]:
            ports |= {port["port"] for port in rule["ports"]}
    assert {8888, 9443} <= ports
    assert {str(port) for port in ports} <= named


def test_the_table_of_alerts_has_each_alert_at_its_worst_severity() -> None:
    worst: dict[str, str] = {}
    for rule in alerts("alerts.yaml"):
        found = worst.setdefault(rule["alert"], rule["labels"]["severity"])
        worst[rule["alert"]] = min(found, rule["labels"]["severity"], key=SEVERITIES.index)
    named = [
        (alert, severity)
        for row in rows(section("Alerts by severity"))
        for severity, cell in zip(SEVERITIES, row[1:], strict=True)
        for alert in re.findall(r"\[(\w+)\]", cell)
    ]
    assert sorted(named) == sorted(worst.items())


def test_the_table_of_versions_has_what_doctor_looks_for() -> None:
    text = section("Supported versions")
    named = {(row[0], feature) for row in rows(text) for feature in quoted(row[1])[:1]}
    assert {(f"1.{row.since}", row.feature) for row in REQUIREMENTS} <= named
    assert f"1.{OLDEST} to 1.{NEWEST}" in text
    assert f"Kubernetes 1.{OLDEST} or newer" in (ROOT / "README.md").read_text("utf-8")


def test_reasons_that_the_table_of_pending_pods_quotes_exist() -> None:
    named = {
        text
        for row in rows(section("Pods are pending"))
        for text in quoted(row[0])
        if "(s)" in text or "pod is" in text
    }
    assert len(named) >= 5
    assert named - {reason.text for reason in Reason} == set()


@pytest.mark.parametrize("task", TASKS)
def test_a_task_needs_two_pages_and_the_first_links_the_second(task: str) -> None:
    first, second, told = TASKS[task]
    links = re.findall(r"\]\(([^)#\s]+)", (ROOT / first).read_text("utf-8"))
    names = re.findall(r"`([\w-]+\.yaml)`", (ROOT / first).read_text("utf-8"))
    assert second in {str(Path(first).parent / path) for path in (*links, *names)}
    text = (ROOT / second).read_text("utf-8")
    assert [words for words in told if words not in text] == []


def test_the_index_is_short_and_leads_to_each_page() -> None:
    index = PAGES[ROOT / "deploy" / "README.md"]
    assert len(index.split()) <= 2500
    folder = ROOT / "deploy"
    pages = {str(path.relative_to(folder)) for part in ("docs", "platforms") for path in (folder / part).glob("*.md")}
    assert pages == set(re.findall(r"\]\(((?:docs|platforms)/[\w-]+\.md)", index))


def test_the_first_command_is_the_same_on_each_page() -> None:
    commands = [
        re.findall(r"^    (helm install .*\n.*)$", text, re.MULTILINE)[0]
        for text in PAGES.values()
        if "helm install placement deploy" in text
    ]
    assert len(commands) >= 2
    assert set(commands) <= {blocks("With Helm")[0].partition("\nkubectl")[0].replace("\n", "\n    ")}


def test_pages_that_the_program_names_exist() -> None:
    texts = "".join(file.read_text("utf-8") for file in (ROOT / "extender").rglob("*.py"))
    named = set(re.findall(r"\b(?:config|deploy|grafana)/[\w/-]+\.md", texts))
    assert len(named) >= 3
    assert {page for page in named if not (ROOT / page).exists()} == set()


# -- emergency: tests/e2e/test_emergency.py plays its commands with a real control plane


def expanded(word: str) -> set[str]:
    """The words of a shell's braces."""
    head, _, rest = word.partition("{")
    return {head + part for part in rest.rstrip("}").split(",")}


@pytest.mark.parametrize("title", ["1. The webhook", "2. Its writes"])
def test_the_bindings_that_an_emergency_deletes_are_the_bindings_of_each_overlay_and_layout(title: str) -> None:
    (word,) = re.findall(r"placement-extender-\w+\{\S+\}", blocks(title)[0])
    part = word.partition("{")[0]
    made = [overlay_with(POLICIES[name], name) for name in OVERLAYS]
    made += [chart(layout, policies={"enabled": True}) for layout in LAYOUTS]
    names = [
        {one["metadata"]["name"] for one in of_kind(documents, "ClusterRoleBinding") if part in one["metadata"]["name"]}
        for documents in made
    ]
    assert all(len(found) == 1 for found in names)
    assert set.union(*names) <= expanded(word)


def test_an_emergency_deletes_the_webhook_as_its_removal_does() -> None:
    assert blocks("1. The webhook")[0] == blocks("Remove scheduling policies")[1]


@pytest.mark.parametrize(
    ("title", "layout"),
    [
        ("The second scheduler without the extender", "secondScheduler"),
        ("Several schedulers without the extender", "schedulers"),
    ],
)
def test_what_an_emergency_patches_is_in_a_release_of_the_chart_too(title: str, layout: str) -> None:
    """A strategic merge patch would add a container, a mount or a volume with a name that is not there."""
    (text,) = re.findall(r"^cat > in-tree\.yaml <<'END'\n(.*?)^END$", blocks(title)[0], re.MULTILINE | re.DOTALL)
    patch = yaml.safe_load(text)["spec"]["template"]["spec"]
    kind = "Deployment" if layout == "secondScheduler" else "StatefulSet"
    (workload,) = [one for one in of_kind(chart(layout), kind) if one["metadata"]["name"] == "placement-scheduler"]
    spec = workload["spec"]["template"]["spec"]
    assert {one["name"] for one in patch["volumes"]} - {one["name"] for one in spec["volumes"]} == {"in-tree"}
    containers = {one["name"]: one for one in spec["containers"]}
    assert {one["name"] for one in patch["containers"]} == set(containers)
    mounts = {one["mountPath"] for one in containers["kube-scheduler"]["volumeMounts"]}
    assert {one["mountPath"] for one in patch["containers"][0]["volumeMounts"]} <= mounts


def test_the_sidecar_is_left_out_by_a_command_without_patches() -> None:
    (command,) = blocks("The sidecar without the extender")
    (setup,) = re.findall(r"kubeadm upgrade .*(?:\n .*)?", blocks("Sidecar, with kubeadm")[1])
    assert f"{command.rstrip()} --patches deploy/overlays/sidecar/patches" == " ".join(
        re.sub(r"\\\n", "", setup).split()
    )
    assert command.rstrip() in section("Remove the sidecar")
