"""`extender quota`: what affinity across namespaces does in a snapshot and in a cluster, and the objects that limit it."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from extender.simulator.apiserver.server import ApiServer
from tests.builders import namespace_json, pod_json, term
from tests.cli.printing import called
from tests.features.quotas.quota_command import (
    ALL,
    NAMESPACES,
    NODES,
    Run,
    generated,
    of,
    pods,
    quota,
    report,
    snapshot,
    workload,
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(called, capsys, "quota")


def test_pods_are_shown_by_template_with_what_their_terms_reach_and_close(run: Run, tmp_path: Path) -> None:
    found = report(run, tmp_path, *pods())
    lab, own = (each for each in found["pods"] if each["namespace"] != "kube-system")
    assert lab == {
        "namespace": "lab",
        "example": "web-0",
        "placed": 2,
        "pending": 3,
        "terms": [
            {
                "list": "required podAntiAffinity",
                "topologyKey": "topology.kubernetes.io/zone",
                "reaches": 2,
                "namespaces": ["kube-system", "shop"],
            }
        ],
        "closedNodes": 2,
        "closedTo": ["kube-system", "shop"],
    }
    assert (own["example"], own["terms"], own["closedNodes"], own["closedTo"]) == ("own", [], 0, [])


def test_only_placed_pods_close_nodes(run: Run, tmp_path: Path) -> None:
    found = report(run, tmp_path, *pods())
    assert all((each["over"], each["refused"]) == (0, []) for each in found["namespaces"]), "there is no trial"
    assert {each["namespace"]: each["closedNodes"] for each in found["namespaces"]} == {
        "kube-system": 0,
        "lab": 2,
        "shop": 0,
    }


def test_terms_that_select_no_other_namespace_close_no_node_to_others(run: Run, tmp_path: Path) -> None:
    nowhere = term("zone", app="web", namespace_selector={"matchLabels": {"team": "none"}})
    found = report(run, tmp_path, of("Pod", pod_json("a", on="n0", namespace="lab", apart=[nowhere])))
    assert [(each["closedNodes"], each["closedTo"]) for each in found["pods"]] == [(0, [])]


def test_a_limit_on_trial_names_the_pending_pods_that_it_refuses_and_counts_placed_ones_over_it(
    run: Run, tmp_path: Path
) -> None:
    def trial(limit: int) -> dict[str, tuple[int, list[str]]]:
        found = report(run, tmp_path, *pods(), limit=limit)
        return {each["namespace"]: (each["over"], each["refused"]) for each in found["namespaces"]}

    assert trial(3)["lab"] == (0, ["lab/web-3", "lab/web-2"])  # the youngest two: web-4 was created first
    assert trial(1)["lab"] == (1, ["lab/web-4", "lab/web-3", "lab/web-2"])
    assert trial(5)["lab"] == (0, [])
    assert trial(0)["kube-system"] == (0, []), "is exempt"
    assert trial(0)["shop"] == (1, [])


def test_quotas_that_do_not_limit_the_pods_are_named_with_the_reason(run: Run, tmp_path: Path) -> None:
    quotas = [
        quota("good", "lab", pods="9"),
        quota("both", "lab", "Terminating", "NotTerminating", pods="1"),
        quota("cpu", "lab", cpu="4"),
        quota("bypass", "shop", "Terminating", pods="1"),
    ]
    found = report(run, tmp_path, *pods(), *quotas)
    problems = {each["quota"]: each["problem"].partition(":")[0] for each in found["quotas"]}
    assert problems == {
        "lab/good": "",
        "lab/both": "charges no pod",
        "lab/cpu": "limits no number of pods",
        "shop/bypass": "charges 0 of 1 pod",
    }
    assert {each["namespace"]: each["limit"] for each in found["namespaces"]} == {
        "kube-system": None,
        "lab": 9,
        "shop": None,
    }
    assert found["withoutQuota"] == ["shop"]


def test_workloads_are_found_by_their_templates_and_not_twice(run: Run, tmp_path: Path) -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}]
    job = workload("CronJob", "nightly", "batch/v1")
    job["spec"] = {"jobTemplate": {"spec": job["spec"]}}
    broken = of(
        "Deployment", {"metadata": {"name": "odd"}, "spec": {"template": {"spec": {"affinity": [1]}}}}, "apps/v1"
    )
    objects = [workload("Deployment", "web"), workload("ReplicaSet", "web-1", ownerReferences=owner), job, broken]
    found = report(run, tmp_path, *objects)
    assert found["templates"] == [
        {"object": "CronJob lab/nightly", "terms": 2},
        {"object": "Deployment lab/web", "terms": 2},
    ]


def test_the_tables_say_it_in_few_lines(run: Run, tmp_path: Path) -> None:
    given = snapshot(tmp_path, *pods(), workload("Deployment", "web"), quota("q", "lab", pods="9"))
    found = run("report", "--snapshot", given, "--limit", "3")
    assert "lab/web-0 and 4 more" in found.out
    assert "required podAntiAffinity by topology.kubernetes.io/zone reaches 2" in found.out
    assert found.out.splitlines()[-3:] == [
        "7 pods with affinity across namespaces, 3 placed; 1 workloads",
        "no quota limits their number in: shop",
        "with a limit of 3: 2 pending pods refused, 0 placed pods over it stay",
    ]


def test_the_wide_form_shortens_no_list_of_names(run: Run, tmp_path: Path) -> None:
    others = [of("Namespace", namespace_json(f"team-{number}")) for number in range(4)]
    given = snapshot(tmp_path, *others, of("Pod", pod_json("a", on="n0", namespace="lab", apart=[ALL])))
    named = "team-0, team-1, team-2, team-3"
    assert named not in run("report", "--snapshot", given).out
    assert named in run("report", "--snapshot", given, "-o", "wide").out


def test_no_heading_stands_right_of_a_long_list_of_terms(run: Run, tmp_path: Path) -> None:
    many = [term(f"example.com/key-{number}", app="web", namespaces=["shop"]) for number in range(20)]
    given = snapshot(tmp_path, of("Pod", pod_json("a", on="n0", namespace="lab", apart=many)))
    lines = run("report", "--snapshot", given).out.splitlines()
    assert max(map(len, lines)) > 1000
    (heading,) = [line for line in lines if line.startswith("pod ")]
    assert heading.split() == ["pod", "placed", "pending", "closes", "nodes", "to", "namespaces", "terms"]
    assert len(heading) <= 80


def test_an_empty_cluster_has_an_empty_report(run: Run, tmp_path: Path) -> None:
    found = run("report", "--snapshot", snapshot(tmp_path))
    assert (found.code, found.out) == (0, "0 pods with affinity across namespaces, 0 placed; 0 workloads\n")


async def test_a_cluster_gives_the_same_as_its_snapshot(run: Run, tmp_path: Path) -> None:
    objects = [*pods(), workload("StatefulSet", "db"), quota("q", "lab", pods="9")]
    async with ApiServer() as api:
        api.store.load(json.loads(json.dumps([*NODES, *NAMESPACES, *objects])))
        kubeconfig = str(api.write_kubeconfig(tmp_path / "kubeconfig"))
        live = await asyncio.to_thread(run, "report", "-o", "json", "--kubeconfig", kubeconfig)
    saved = await asyncio.to_thread(run, "report", "-o", "json", "--snapshot", snapshot(tmp_path, *objects))
    assert (live.code, saved.code) == (0, 0)
    assert live.document == saved.document


def test_what_cannot_be_read_is_an_error_of_one_line(run: Run, tmp_path: Path) -> None:
    found = run("report", "--kubeconfig", str(tmp_path / "none"))
    assert (found.code, found.err.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--snapshot", "x", "--kubeconfig", "y"],
        ["report", "--snapshot", "x", "--limit", "-1"],
        ["generate", "--allow", "a=-1"],
        ["generate", "--allow", "A=1"],
        ["generate", "--allow", "a=1", "--allow", "a=2"],
    ],
)
def test_wrong_usage_ends_with_2(run: Run, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2


def test_every_namespace_gets_a_quota_and_the_exempt_ones_none(run: Run, tmp_path: Path) -> None:
    policy, binding, *quotas = generated(run, "--snapshot", snapshot(tmp_path), "--allow", "lab=3")
    assert [(each["metadata"]["namespace"], each["spec"]) for each in quotas] == [
        ("lab", {"hard": {"pods": "3"}, "scopes": ["CrossNamespacePodAffinity"]}),
        ("shop", {"hard": {"pods": "0"}, "scopes": ["CrossNamespacePodAffinity"]}),
    ]
    names = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]
    assert names == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "lab"]}
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_without_a_cluster_only_namespaces_with_a_number_get_a_quota(run: Run) -> None:
    _, binding, only = generated(run, "--allow", "lab=0", "--audit")
    assert (only["metadata"]["namespace"], only["spec"]["hard"]) == ("lab", {"pods": "0"})
    assert binding["spec"]["validationActions"] == ["Warn", "Audit"]


def test_a_namespace_that_does_not_exist_is_an_error(run: Run, tmp_path: Path) -> None:
    found = run("generate", "--snapshot", snapshot(tmp_path), "--allow", "lbb=3")
    assert (found.code, found.err.endswith("namespace lbb of --allow does not exist\n")) == (1, True)
