"""What-ifs of workloads: the pods that their controllers make, which pods stay, and nodes that are cordoned and drained."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from extender.model.answers.what_if import MOST_PLACED
from extender.settings.configuration import Settings
from extender.tasks.what_if.computing import answer_body
from extender.verbs import what_if as deciding
from extender.wire.errors import WireError
from extender.wire.pods.templates import TRIAL_HASH
from tests.builders import CONTAINER, Json, index_of, node, node_json, pod, pod_json, read_pod, spread, taint, term
from tests.explaining import finished
from tests.tasks.what_if_workload_scene import LABELS, ROOM, answered, classed, nodes, placed, replica, workload
from tests.wire.spoiling import spoil

CRON_JOB: Final = {
    **workload("CronJob"),
    "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"parallelism": 2, **workload("Job")["spec"]}}},
}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (workload("Deployment", replicas=2), ["web-new-0", "web-new-1"]),
        (workload("ReplicaSet", replicas=2), ["web-new-0", "web-new-1"]),
        (workload("ReplicationController", replicas=2), ["web-new-0", "web-new-1"]),
        (workload("StatefulSet", replicas=2, ordinals={"start": 3}), ["web-3", "web-4"]),
        (workload("Job", parallelism=5, completions=2), ["web-new-0", "web-new-1"]),
        (workload("Job", parallelism=2, completionMode="Indexed", completions=2), ["web-new-0", "web-new-1"]),
        (CRON_JOB, ["web-new-0", "web-new-1"]),
        (workload("DaemonSet"), ["web-n0", "web-n1", "web-n2"]),
        (workload("Deployment"), ["web-new-0"]),
        (workload("Deployment", replicas=0), []),
        (workload("Job", suspend=True), []),
    ],
    ids=lambda given: given["kind"] if isinstance(given, dict) else "",
)
def test_the_pods_of_a_workload_are_made_and_placed(given: Json, names: list[str]) -> None:
    index = index_of(*nodes())
    found = answered(index, apply=[given])
    assert sorted(placed(found)) == names
    assert {each.origin for each in found.placements} <= {"given"}
    assert found.summary.placed == len(names)
    assert found.notes == (
        ("Job shop/web is suspended: its controller makes no pods",) if "suspend" in given["spec"] else ()
    )


def test_each_pod_that_is_made_counts_for_the_next() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("zone", app="web")]}}
    found = answered(index_of(*nodes()), apply=[workload("Deployment", replicas=4, pod_spec={"affinity": apart})])
    assert sorted(placed(found).values()) == ["n0", "n1", "n2", "rejected"]


def test_the_pods_have_what_the_controllers_give_them() -> None:
    index = index_of(*nodes())
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    given = [workload("StatefulSet", "db", replicas=2, volumeClaimTemplates=claims), workload("Deployment")]
    found = answered(index, apply=given)
    pods = {each.name: each for each in index.pods.values()}
    assert pods["db-1"].signature.labels["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert pods["db-1"].signature.labels["apps.kubernetes.io/pod-index"] == "1"
    assert "does not see" in {each.pod: each.unchecked for each in found.placements}["shop/db-1"]
    assert pods["web-new-0"].signature.labels["pod-template-hash"] == TRIAL_HASH


def test_default_constraints_read_the_selector_of_a_workload_that_is_given() -> None:
    """Under the defaults of the system the pods of a Deployment are spread; without its selector all would go to one node."""
    index = index_of(*nodes(2), rules=Settings().rules)
    given = workload("Deployment", replicas=2, selector={"matchLabels": LABELS})
    assert sorted(placed(answered(index, apply=[given])).values()) == ["n0", "n1"]
    assert index.workloads.objects["ReplicaSet/shop/web"].selector is not None


def test_the_priority_of_a_class_is_read_from_pods_of_the_cluster() -> None:
    """A file has the name of the class alone, and the API server fills in the number."""
    known = read_pod(classed(pod_json("known", on="n0", priority=9)))
    index = index_of(*nodes(), known, pod("waiting", priority=5))
    given = {"kind": "Pod", **classed(pod_json("given"))}
    made = workload("Deployment", pod_spec={"priorityClassName": "high"})
    unknown = workload("Deployment", "low", replicas=2, pod_spec={"priorityClassName": "unknown"})
    found = answered(index, apply=[unknown, given, made])
    assert [each.pod.partition("/")[2] for each in found.placements] == [
        *("given", "web-new-0", "waiting", "low-new-0", "low-new-1"),
    ]
    assert found.notes == (
        "no pod of the cluster has the PriorityClass unknown: pods of it are placed with priority 0",
    )


# -- a workload in place of the one of its name


def test_pods_of_the_same_template_stay_and_the_missing_ones_are_made() -> None:
    revision = spread("zone", match_label_keys=["pod-template-hash"], selector={"matchLabels": LABELS})
    own = revision | {"labelSelector": {"matchLabels": LABELS, "matchExpressions": []}}
    own["labelSelector"]["matchExpressions"] = [{"key": "pod-template-hash", "operator": "In", "values": ["5d4f"]}]
    index = index_of(*nodes(), replica("web-a", "n1", spreads=[own]), replica("web-b", "n1", spreads=[own]))
    given = workload("Deployment", replicas=3, pod_spec={"topologySpreadConstraints": [revision]})
    found = answered(index, apply=[given])
    assert list(placed(found)) == ["web-new-2"]
    assert found.notes == ("Deployment shop/web: 2 pods as in the template stay, 0 are deleted, 1 is made",)
    assert {each.name: each.node for each in index.pods.values()}["web-a"] == "n1"


def test_pods_of_another_template_are_deleted_and_made_anew() -> None:
    index = index_of(*nodes(1), replica("web-a", "n0", requests={"cpu": "4"}), replica("other", "n0", owner=None))
    large = {"containers": [CONTAINER | {"resources": {"requests": {"cpu": "3"}}}]}
    found = answered(index, apply=[workload("Deployment", pod_spec=large)])
    assert placed(found) == {"web-new-0": "n0"}
    assert found.notes == ("Deployment shop/web: 0 pods as in the template stay, 1 is deleted, 1 is made",)
    assert {each.name for each in index.pods.values()} == {"web-new-0", "other"}


def test_a_workload_that_is_scaled_down_keeps_pods_with_a_node_first() -> None:
    index = index_of(*nodes(1), replica("web-a"), replica("web-b", "n0"))
    found = answered(index, apply=[workload("Deployment")])
    assert ({each.name for each in index.pods.values()}, placed(found)) == ({"web-b"}, {})


def test_pods_of_a_stateful_set_are_reported_by_their_names() -> None:
    owned: dict[str, Any] = {"owner": ("StatefulSet", "web"), "namespace": "shop", "labels": LABELS}
    index = index_of(*nodes(), *(pod(f"web-{at}", on="n2", **owned) for at in (0, 1, 5)))
    found = answered(index, apply=[workload("StatefulSet", replicas=2, pod_spec={"nodeSelector": {"zone": "z0"}})])
    assert {each.pod: each.was for each in found.placements} == {"shop/web-0": "n2", "shop/web-1": "n2"}
    assert {each.name for each in index.pods.values()} == {"web-0", "web-1"}


def test_pods_of_a_deleted_node_stay_pods_of_their_workload() -> None:
    index = index_of(*nodes(2), replica("web-a", "n0"), replica("web-b", "n1"))
    found = answered(index, delete=[{"kind": "Node", "name": "n0"}], apply=[workload("Deployment", replicas=2)])
    assert [(each.pod, each.origin, each.node) for each in found.placements] == [("shop/web-a", "displaced", "n1")]


@pytest.mark.parametrize(
    ("kind", "owner", "name", "labels"),
    [
        ("Deployment", ("ReplicaSet", "web-5d4f"), "web-5d4f-x", {"pod-template-hash": "5d4f"}),
        ("ReplicaSet", ("ReplicaSet", "web"), "web-x", {}),
        ("DaemonSet", ("DaemonSet", "web"), "web-x", {}),
        ("Job", ("Job", "web"), "web-0-x", {"batch.kubernetes.io/job-name": "web"}),
        ("Job", ("Job", "web"), "web-x", {}),
    ],
)
def test_a_workload_is_deleted_with_its_pods(kind: str, owner: tuple[str, str], name: str, labels: Json) -> None:
    index = index_of(*nodes(1), pod(name, on="n0", requests={"cpu": "4"}, owner=owner, labels=labels))
    index.upsert(pod("waiting", requests={"cpu": "4"}))
    assert placed(answered(index, delete=[{"kind": kind, "name": "web"}])) == {"waiting": "n0"}
    with pytest.raises(WireError, match=f"{kind} default/web is not known"):
        answered(index, delete=[{"kind": kind, "name": "web"}])


# -- daemons


def test_a_daemon_set_has_a_pod_on_each_node_that_it_tolerates_and_selects_also_on_new_ones() -> None:
    index = index_of(*nodes(2), node("tainted", taints=[taint("gpu")], allocatable=ROOM))
    index.upsert(node("other", os="windows", allocatable=ROOM))
    index.upsert(
        node("cordoned", unschedulable=True, taints=[taint("node.kubernetes.io/unschedulable")], allocatable=ROOM)
    )
    index.upsert(pod("full", on="n1", requests={"cpu": "4"}))
    wants = [{"matchExpressions": [{"key": "os", "operator": "NotIn", "values": ["windows"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wants}}
    spec = {
        "containers": [CONTAINER | {"resources": {"requests": {"cpu": "1"}}}],
        "affinity": {"nodeAffinity": required},
    }
    new = {"kind": "Node", **node_json("new", allocatable=ROOM)}
    found = answered(index, apply=[workload("DaemonSet", pod_spec=spec), new])
    assert placed(found) == {
        "web-n0": "n0",
        "web-n1": "rejected",
        "web-new": "new",
        "web-cordoned": "cordoned",
    }
    (reason,) = [each.reason for each in found.placements if each.reason]
    assert reason == (
        "0/6 nodes are available: 1 node(s) had too few resources left, 5 node(s) didn't match Pod's node affinity/selector."
    )


def test_pods_of_a_daemon_set_are_reported_by_the_node_that_they_name() -> None:
    """Also one that is not there yet."""
    index = index_of(*nodes(2))
    answered(index, apply=[workload("DaemonSet")])
    (first, second) = list(index.pods.values())
    for each in (first, structs.replace(second, node="")):
        index.upsert(structs.replace(each, name=f"web-{each.uid[-1]}x"))
    found = answered(index, apply=[workload("DaemonSet")])
    assert found.notes == ("DaemonSet shop/web: 2 pods as in the template stay, 0 are deleted, 0 are made",)
    assert [each.origin for each in found.placements] == ["pending"]


def test_a_pod_of_a_daemon_set_is_checked_on_its_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the pods of one DaemonSet would cost the square of the nodes."""
    looked: list[int] = []
    check = deciding.FittingNodes._check

    def counting(self: deciding.FittingNodes, pod: Any, numbers: Any, found: Any) -> None:
        looked.append(len(list(numbers)))
        check(self, pod, numbers, found)

    monkeypatch.setattr(deciding.FittingNodes, "_check", counting)
    assert answered(index_of(*nodes(50)), apply=[workload("DaemonSet")]).summary.placed == 50
    assert sum(looked) == 50


# -- what is wrong, and bounds


@pytest.mark.parametrize(
    ("given", "path", "problem"),
    [
        (workload("Deployment", replicas="3"), "apply[0].spec.replicas", "must be an integer"),
        (workload("Deployment", replicas=-1), "apply[0].spec.replicas", "must be in the range"),
        (workload("Deployment", replica=3), "apply[0].spec.replica", "unknown field"),
        (workload("Job", replicas=3), "apply[0].spec.replicas", "unknown field"),
        (
            workload("Deployment", selector={"matchLabels": {"app": "other"}}),
            "apply[0].spec.template.metadata.labels",
            "`selector` does not match template `labels`",
        ),
        (
            workload("StatefulSet", pod_spec={"nodeSelectors": {}}),
            "apply[0].spec.template.spec.nodeSelectors",
            "unknown field",
        ),
        (workload("Deployment", replicas=MOST_PLACED + 1), "apply[0].spec.replicas", "at most 20000 pods"),
        (workload("DaemonSet") | {"spec": {}}, "apply[0].spec.template", "is missing"),
        (workload("Job", parallelism=2**31 - 1), "apply[0].spec.parallelism", "at most 20000 pods"),
    ],
)
def test_what_is_wrong_with_a_workload_is_named(given: Json, path: str, problem: str) -> None:
    with pytest.raises(WireError) as error:
        answered(index_of(*nodes()), apply=[given])
    assert (error.value.path, problem in error.value.problem) == (path, True)


SPOILED: Final = (
    workload("Deployment", replicas=2, selector={"matchLabels": LABELS}),
    workload("StatefulSet", ordinals={"start": 1}, volumeClaimTemplates=[{"metadata": {"name": "data"}}]),
    workload("DaemonSet", pod_spec={"hostNetwork": True, "tolerations": [{"key": "a", "operator": "Exists"}]}),
    workload("Job", parallelism=2, completions=2, completionMode="Indexed", suspend=False),
    CRON_JOB,
    {
        "kind": "Node",
        "metadata": {"name": "n9", "labels": {"a": "b"}},
        "spec": {"unschedulable": True, "taints": [taint("a")]},
        "status": {"allocatable": ROOM, "conditions": [{"type": "Ready", "status": "False"}]},
    },
)


@given(st.data(), st.sampled_from(SPOILED))
def test_any_value_anywhere_is_answered_or_refused(data: st.DataObject, obj: Json) -> None:
    spoiled = data.draw(st.composite(lambda draw: spoil(deepcopy(obj), draw))())
    with suppress(WireError):
        answered(index_of(*nodes(2)), apply=[spoiled])


def test_the_bound_is_for_all_workloads_together() -> None:
    given = [workload("Deployment", f"w{at}", replicas=MOST_PLACED // 2) for at in range(3)]
    with pytest.raises(WireError) as error:
        answered(index_of(*nodes()), apply=given)
    assert error.value.path == "apply[2].spec.replicas"
    assert "10000 pods" in error.value.problem
    given = [workload("DaemonSet", "d"), workload("Deployment", replicas=MOST_PLACED - 2)]
    steps = answer_body(orjson.dumps({"apply": given}), index_of(*nodes()), Settings())
    with pytest.raises(WireError, match="and needs more"):
        finished(steps)


def test_a_workload_without_a_template_is_remarked_on() -> None:
    given = {**workload("StatefulSet"), "spec": {"selector": {"matchLabels": LABELS}}}
    found = answered(index_of(*nodes()), apply=[given])
    (note,) = found.notes
    assert note == "StatefulSet shop/web has no spec.template: only its selector is read, and no pods are made"


# -- nodes


@pytest.mark.parametrize("taints", [[], [taint("node.kubernetes.io/unschedulable")]])
def test_a_node_that_is_given_has_the_taint_of_its_cordon_and_no_other(taints: list[Json]) -> None:
    """Spread with nodeTaintsPolicy Honor reads taints alone: a domain of cordoned nodes does not count."""
    for is_cordoned in (True, False):
        index = index_of(*nodes(1), pod("web", on="n0", app="web"))
        given = node_json("n9", zone="z9", allocatable=ROOM, taints=taints, unschedulable=is_cordoned)
        wants = spread("zone", taints_policy="Honor", affinity_policy="Ignore", app="web")
        index.upsert(pod("asking", app="web", spreads=[wants], node_selector={"kubernetes.io/hostname": "n0"}))
        found = answered(index, apply=[{"kind": "Node", **given}])
        assert placed(found) == {"asking": "n0" if is_cordoned else "rejected"}


@pytest.mark.parametrize(
    ("condition", "status", "place"),
    [
        ("Ready", "False", "rejected"),
        ("Ready", "Unknown", "rejected"),
        ("Ready", "True", "n9"),
        ("DiskPressure", "True", "rejected"),
    ],
)
def test_a_node_that_is_given_has_the_taints_of_its_conditions(condition: str, status: str, place: str) -> None:
    given = {"kind": "Node", **node_json("n9", allocatable=ROOM)}
    given["status"]["conditions"] = [{"type": condition, "status": status}]
    assert placed(answered(index_of(pod("asking")), apply=[given])) == {"asking": place}


def test_a_cordoned_node_keeps_its_pods_and_takes_no_other() -> None:
    index = index_of(*nodes(2), pod("there", on="n0"), pod("asking"))
    found = answered(index, cordon=["n0"])
    assert placed(found) == {"asking": "n1"}
    assert {each.name: each.node for each in index.pods.values()}["there"] == "n0"


def test_a_drained_node_loses_what_the_eviction_api_evicts() -> None:
    index = index_of(
        *nodes(2),
        pod("usual", on="n0", owner=("ReplicaSet", "a")),
        pod("bare", on="n0"),
        pod("leaving", on="n0", owner=("ReplicaSet", "a"), terminating=True),
        pod("agent", on="n0", owner=("DaemonSet", "agents")),
        pod("mirror", on="n0", owner=("Node", "n0")),
        pod("elsewhere", on="n1"),
    )
    found = answered(index, drain=["n0"])
    assert placed(found) == {"usual": "n1", "bare": "gone", "leaving": "gone"}
    reasons = {each.pod: each.reason for each in found.placements if each.state == "gone"}
    assert reasons == {
        "default/bare": "no controller makes it again (kubectl drain needs --force)",
        "default/leaving": "is being deleted",
    }
    there = {each.name: each.node for each in index.pods.values()}
    assert there == {"usual": "n1", "agent": "n0", "mirror": "n0", "elsewhere": "n1"}


@pytest.mark.parametrize("verb", ["cordon", "drain"])
def test_a_node_that_is_not_known_is_named(verb: str) -> None:
    with pytest.raises(WireError, match="Node none is not known") as error:
        answered(index_of(*nodes()), **{verb: ["n0", "none"]})
    assert error.value.path == f"{verb}[1]"


def test_labels_of_the_kubelet_that_a_new_node_lacks_are_remarked_on() -> None:
    given = {"kind": "Node", **node_json("n9", allocatable=ROOM)}
    (note, _) = answered(index_of(), apply=[given]).notes
    assert note.startswith("n9 has no label kubernetes.io/os, which the kubelet sets on every node")
    assert note.endswith("kubernetes.io/os=linux")
    real = {"kubernetes.io/os": "linux"}
    (note,) = answered(
        index_of(node("n0", labels=real)), apply=[given, {"kind": "Node", **node_json("n8", allocatable=ROOM)}]
    ).notes
    assert note.startswith("2 new nodes, such as n9, have no label kubernetes.io/os")
    given["metadata"]["labels"] |= real
    assert answered(index_of(node("n0", labels=real)), apply=[given]).notes == ()
    assert answered(index_of(*nodes()), apply=[{"kind": "Node", **node_json("n9", allocatable=ROOM)}]).notes == ()
