"""`extender doctor` on what surrounds a running service: the webhook as the API server sees it, replicas, other extenders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extender.cli.files import read_yaml
from extender.simulator.apiserver.kinds import MUTATING_WEBHOOKS, OWN_POLICY_KINDS
from extender.simulator.json_objects import JsonObject
from tests.cli.doctor_set_up import MUTATING, checks, installed_policies, kept, set_up, with_policies

CLUSTER_POLICIES = next(kind for kind in OWN_POLICY_KINDS if not kind.namespaced)


async def test_a_webhook_that_a_firewall_keeps_from_the_api_server_is_found_by_a_dry_run(tmp_path: Path) -> None:
    async with set_up(tmp_path, pods=installed_policies(), policies=with_policies()) as setup:
        await kept(setup)
        before = len(setup.api.store.table(CLUSTER_POLICIES).objects)
        assert "webhook" not in {check for _, check in checks((await setup.doctor())[1])}
        setup.api.admission.services.clear()
        _, document = await setup.doctor()
        assert len(setup.api.store.table(CLUSTER_POLICIES).objects) == before, "a dry run stores nothing"
    (found,) = [one for one in document["findings"] if one["check"] == "webhook"]
    assert found["severity"] == "error"
    assert found["problem"].startswith(
        "the API server cannot call the webhook: no answer comes in 3s, for which each pod waits; each pod is created without policies: "
    )
    assert 'failed calling webhook "validate.policies.placement.extender.dev"' in found["problem"]
    assert found["remedy"].startswith("let the API server connect to port 0 of the extender's pods")


@pytest.mark.parametrize(
    ("field", "selector", "what"),
    [
        ("objectSelector", {"matchLabels": {"team": "none"}}, "pod"),
        ("objectSelector", {"matchExpressions": [{"key": "team", "operator": "Exists"}]}, "pod"),
        (
            "namespaceSelector",
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
            "namespace",
        ),
        ("objectSelector", {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]}, ""),
    ],
)
async def test_a_selector_of_the_webhook_that_selects_nothing_is_found(
    field: str, selector: JsonObject, what: str, tmp_path: Path
) -> None:
    async with set_up(tmp_path, pods=installed_policies(), policies=with_policies()) as setup:
        await kept(setup)
        store = setup.api.store
        configuration = store.find(MUTATING_WEBHOOKS, "placement-extender").read()
        configuration["webhooks"][0][field] = selector
        store.put(MUTATING_WEBHOOKS, configuration)
        _, document = await setup.doctor()
    found = [one["problem"] for one in document["findings"] if one["check"] == "webhook"]
    expected = f"{field} of {MUTATING} selects no {what} of the cluster: admission applies no policy"
    assert found == ([expected] if what else [])


def runs(name: str, namespace: str, *containers: str, **labels: str) -> JsonObject:
    """A running pod of a control plane or of an overlay."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
        "spec": {"nodeName": "node-a", "containers": [{"name": each, "image": "any"} for each in containers]},
        "status": {"phase": "Running"},
    }


OURS = {"app.kubernetes.io/name": "placement-extender", "app.kubernetes.io/component": "extender"}
SCHEDULER = {"app.kubernetes.io/component": "scheduler"}
LIMITING = {
    "metadata": {"name": "placement-extender-service"},
    "spec": {"matchConstraints": {"resourceRules": [{"resources": ["pods", "pods/*"]}]}},
}
BOUND = {"metadata": {"name": "b"}, "spec": {"policyName": "placement-extender-service", "validationActions": ["Deny"]}}


@pytest.mark.parametrize(
    ("pods", "guards", "found"),
    [
        ([runs(f"e-{number}", "placement-extender", "extender", **OURS) for number in (1, 2)], None, "2 replicas"),
        ([runs(f"e-{number}", "team-a", "extender", **OURS) for number in (1, 2)], None, ""),
        ([runs(f"e-{number}", "kube-system", "extender", "kube-scheduler", **OURS) for number in (1, 2)], None, ""),
        ([runs("e", "placement-extender", "extender", **OURS)], ([], []), "no ValidatingAdmissionPolicy limits"),
        ([runs("e", "placement-extender", "extender", **OURS)], ([LIMITING], []), "has no binding that denies"),
        ([runs("e", "placement-extender", "extender", **OURS)], ([LIMITING], [BOUND]), ""),
        ([], ([], []), ""),
    ],
    ids=["replicas", "of a tenant", "beside schedulers", "no policy", "no binding", "both", "no overlay"],
)
async def test_what_runs_beside_the_service_is_read_from_the_namespaces_of_overlays(
    pods: list[JsonObject], guards: tuple[list[JsonObject], list[JsonObject]] | None, found: str, tmp_path: Path
) -> None:
    async with set_up(tmp_path, pods=pods) as setup:
        if guards is not None:
            names = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
            setup.api.guards = dict(zip(names, guards, strict=True))
        _, document = await setup.doctor()
    problems = [one["problem"] for one in document["findings"] if one["check"] in {"replicas", "admission"}]
    assert [found in problem for problem in problems] == ([True] if found else [])


async def test_the_tags_of_schedulers_are_compared_with_the_version_of_the_api_server(tmp_path: Path) -> None:
    never_started = runs("placement-scheduler-0", "placement-shared", "kube-scheduler", **{**OURS, **SCHEDULER})
    never_started["spec"]["containers"][0]["image"] = "registry.example:5000/kube-scheduler:v1.36.0@sha256:0"
    never_started["status"] = {"phase": "Pending"}
    async with set_up(tmp_path, pods=[never_started]) as setup:
        setup.api.version = "v1.33.1"
        _, document = await setup.doctor()
    (problem,) = [one["problem"] for one in document["findings"] if one["severity"] == "error"]
    assert problem.startswith("kube-scheduler v1.36.0 (placement-shared/placement-scheduler-0) is newer than the API")


async def test_a_field_that_the_api_server_drops_is_found_by_a_dry_run(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        setup.api.version, setup.api.drops = "v1.29.1", "schedulingGates"
        _, document = await setup.doctor()
    problems = [one["problem"] for one in document["findings"] if one["severity"] == "error"]
    assert [problem.partition(":")[0] for problem in problems] == [
        "the API server drops the field schedulingGates of new pods"
    ]


async def test_another_extender_of_the_scheduler_that_nothing_serves_is_found(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        document = read_yaml(setup.scheduler())
        assert isinstance(document, dict)
        other = {"urlPrefix": "http://127.0.0.1:9", "filterVerb": "predicate"}
        served = {"urlPrefix": setup.url.replace("127.0.0.1", "localhost"), "filterVerb": "other/filter"}
        document["extenders"] += [other, served]
        (path := tmp_path / "more.yaml").write_text(json.dumps(document), "utf-8")
        _, reported = await setup.doctor("--scheduler-config", str(path))
    assert [one["problem"] for one in reported["findings"]] == [
        "nothing answers at extenders[1], http://127.0.0.1:9, (Connection refused): the scheduler places no pod for which it calls that extender"
    ]
