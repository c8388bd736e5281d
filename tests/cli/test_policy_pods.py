"""`extender policy test`: the pods that a workload would have, the pods that the API server refuses, and the domain of a group."""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.builders import CONTAINER, Json
from tests.cli.policy_command import Command
from tests.cli.test_policy import command
from tests.policies import policy_json

__all__ = ["command"]  # a fixture

POOL = policy_json("pool", podSelector={}, nodeSelector={"pool": "a"})
TEMPLATE: Json = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}


def workload(kind: str, version: str = "apps/v1", **spec: object) -> Json:
    name = {"name": "web", "namespace": "shop"}
    return {"apiVersion": version, "kind": kind, "metadata": name, "spec": {"template": deepcopy(TEMPLATE), **spec}}


CRON_JOB = {
    **workload("CronJob", "batch/v1"),
    "spec": {"jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}},
}
WORKLOADS = {
    "Deployment": (workload("Deployment", replicas=3), "ReplicaSet", 3),
    "StatefulSet": (workload("StatefulSet"), "StatefulSet", 1),
    "DaemonSet": (workload("DaemonSet"), "DaemonSet", 1),
    "ReplicaSet": (workload("ReplicaSet", replicas=2), "ReplicaSet", 2),
    "ReplicationController": (workload("ReplicationController", "v1", replicas=2), "ReplicationController", 2),
    "Job": (workload("Job", "batch/v1", parallelism=4, completions=3), "Job", 3),
    "CronJob": (CRON_JOB, "Job", 2),
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_the_pods_of_a_workload_are_shown_where_its_template_stays(command: Command, kind: str) -> None:
    obj, owner, count = WORKLOADS[kind]
    result = command.on([POOL], obj=obj)
    (found,) = result.document["objects"]
    (pod,) = found["pods"]
    assert (result.code, found["result"], found["fields"], pod["count"]) == (0, "allowed", [], count)
    assert (pod["result"], pod["fields"][0]["field"]) == ("mutated", "nodeSelector")
    assert pod["admitted"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert pod["admitted"]["metadata"]["ownerReferences"][0]["kind"] == owner


def test_what_the_controllers_add_is_there(command: Command) -> None:
    labels = {
        kind: command.on([POOL], obj=WORKLOADS[kind][0]).document["objects"][0]["pods"][0]["admitted"]["metadata"][
            "labels"
        ]
        for kind in ("Deployment", "StatefulSet", "Job")
    }
    assert {kind: sorted(found.keys() - {"app"}) for kind, found in labels.items()} == {
        "Deployment": ["pod-template-hash"],
        "StatefulSet": ["apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"],
        "Job": ["batch.kubernetes.io/job-name", "job-name"],
    }
    daemon = command.on([POOL], obj=WORKLOADS["DaemonSet"][0]).document["objects"][0]["pods"][0]["admitted"]
    assert "node.kubernetes.io/unschedulable" in [each["key"] for each in daemon["spec"]["tolerations"]]


def test_people_read_of_the_pods_below_the_template(command: Command) -> None:
    files = command.write("policy.yaml", POOL), command.write("web.yaml", WORKLOADS["Deployment"][0])
    result = command(files[0], "--pod", files[1])
    lines = result.out.splitlines()
    assert lines[:3] == [
        "Deployment shop/web",
        "  the template stays as it is: no policy changes it at admission",
        "its pods, such as the first of 3:",
    ]
    assert "  Pod shop/web-*" in lines
    assert "  +    pool: a" in lines
    assert lines[-1] == "1 object: 1 changed, 0 refused"


def test_a_pod_that_a_template_makes_gets_once_what_the_template_has(command: Command) -> None:
    policy = policy_json("pool", podSelector={}, nodeSelector={"pool": "a"}, targets="Templates")
    (found,) = command.on([policy], obj=WORKLOADS["Deployment"][0]).document["objects"]
    assert (found["result"], [each["result"] for each in found["pods"]]) == ("mutated", ["allowed"])
    assert found["pods"][0]["admitted"]["spec"]["nodeSelector"] == {"pool": "a"}


MISSPELT: Json = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotScheduled", "labelSelector": {}}


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_a_pod_that_the_api_server_refuses_is_refused_with_the_path(command: Command, kind: str) -> None:
    if kind == "Pod":
        obj = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "shop"}, **deepcopy(TEMPLATE)}
        obj["metadata"] = {"name": "p", "namespace": "shop"}
        obj["spec"]["topologySpreadConstraints"] = [MISSPELT]
    else:
        obj = workload("Deployment")
        obj["spec"]["template"]["spec"]["topologySpreadConstraints"] = [MISSPELT]
    result = command.on([POOL], obj=obj)
    (found,) = result.document["objects"]
    (found,) = found["pods"] or [found]
    assert (result.code, found["admitted"]) == (1, None)
    assert found["refusal"].startswith(
        'the API server refuses it: spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "DoNotScheduled"'
    )


def test_pods_of_a_cluster_are_not_checked_again(command: Command) -> None:
    """What an earlier API server accepted is there, and would not be sent again."""
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "old", "namespace": "shop"},
        "spec": {"containers": []},
    }
    files = command.write("policy.yaml", POOL), command.snapshot(pod)
    assert command(files[0], "--snapshot", files[1], "--namespace", "shop").code == 1  # no node matches
    (found,) = command(files[0], "--snapshot", files[1], "--namespace", "shop", "-o", "json").document["objects"]
    assert found["refusal"] == ""


# -- groups

ZONE = "topology.kubernetes.io/zone"


def gangs(size: int = 3, **release: object) -> Json:
    wanted = {"group": {"owner": True}, "size": {"count": size}, "topology": [ZONE], **release}
    return policy_json("gangs", podSelector={}, when=["Admission", "Release"], release=wanted)


def job(cpu: str) -> Json:
    made = workload("Job", "batch/v1", parallelism=3, completions=3)
    made["spec"]["template"]["spec"]["containers"] = [CONTAINER | {"resources": {"limits": {"cpu": cpu}}}]
    return made


def node(name: str, zone: str, cpu: str) -> Json:
    room = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    meta = {"name": name, "labels": {ZONE: zone, "kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": room}}


NODES = [node("a1", "a", "5"), node("b1", "b", "4"), node("b2", "b", "4")]
RUNNING: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "running", "namespace": "shop", "uid": "running"},
    "spec": {"nodeName": "b1", "containers": [CONTAINER | {"resources": {"requests": {"cpu": "2"}}}]},
    "status": {"phase": "Running"},
}


def group_of(command: Command, policy: Json, obj: Json, *objects: Json) -> Json:
    cluster = ("--snapshot", command.snapshot(*objects)) if objects else ()
    (found,) = command.on([policy], *cluster, obj=obj).document["objects"]
    group: Json = found["pods"][0]["group"]
    return group


@pytest.mark.parametrize(
    ("cpu", "objects", "domain"),
    [("1", NODES, "a"), ("2", NODES, "b"), ("2", [*NODES, RUNNING], "b"), ("3", NODES, "")],
    ids=["the tightest", "the only one", "beside another pod", "none"],
)
def test_the_domain_that_a_group_would_get_is_reported(
    command: Command, cpu: str, objects: list[Json], domain: str
) -> None:
    found = group_of(command, gangs(), job(cpu), *objects)
    assert (found["policy"], found["group"]) == ("ClusterPodSchedulingPolicy/gangs", "Job/web")
    assert (found["pods"], found["size"], found["domain"]) == (3, 3, f"{ZONE}={domain}" if domain else "")
    assert ("no domain holds it" in found["message"]) == (not domain)


def test_room_of_other_pods_is_not_there(command: Command) -> None:
    more = [{**RUNNING, "metadata": {"name": name, "namespace": "shop", "uid": name}} for name in ("x", "y")]
    assert group_of(command, gangs(), job("2"), *NODES, *more)["domain"] == ""


def test_a_group_that_is_not_complete_waits(command: Command) -> None:
    found = group_of(command, gangs(4), job("1"), *NODES)
    assert (found["domain"], found["message"]) == ("", "3 of 4 pods exist")


def test_a_quota_of_a_domain_holds(command: Command) -> None:
    policy = gangs(
        domains=[{"name": "small", "values": ["a"], "quota": {"pods": 2}}, {"name": "large", "values": ["b"]}]
    )
    assert group_of(command, policy, job("1"), *NODES)["domain"] == f"{ZONE}=b"


def test_without_a_cluster_the_group_is_reported_without_its_domain(command: Command) -> None:
    found = group_of(command, gangs(), job("1"))
    assert (found["pods"], found["domain"]) == (3, "")
    assert found["message"].startswith("the domain is not known without --snapshot")


def test_people_read_of_the_group(command: Command) -> None:
    files = command.write("policy.yaml", gangs()), command.write("job.yaml", job("2"))
    printed = command(files[0], "--pod", files[1], "--snapshot", command.snapshot(*NODES)).out
    assert f"its group Job/web (3 of 3 pods), which would get {ZONE}=b\n" in printed
