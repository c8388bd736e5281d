"""`extender policy test`: what the webhook would do to pods of files, of a snapshot and of a cluster, and its exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import main
from extender.model.policies import EXEMPT_LABEL
from extender.simulator.apiserver.server import ApiServer
from extender.wire.policies.policy_fields import SPEC_FIELDS
from tests.builders import Json
from tests.cli.policy_command import PREFERRED, SSD, Command, both, node
from tests.cli.printing import Result
from tests.deploy.policies.examples import TO_COPY
from tests.policies import expression, node_term, policy_json, requiring
from tests.verbs.admit.reviewing import pod, template_spec, workload

README = Path(__file__).resolve().parents[2] / "config" / "policies" / "README.md"
POOL: dict[str, Any] = {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
HARD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
SOFT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3}
NODES = [node("n1", pool="a", tainted=True), node("n2", pool="b"), node("n3")]
NAMESPACES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    for name, labels in (("shop", {"team": "a"}), ("lab", {"team": "b"}))
]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


@pytest.mark.parametrize("field", ["unavailableDomains", "fullDomains"])
def test_an_exclusion_of_domains_draws_a_warning_where_the_plugin_decides_spread(command: Command, field: str) -> None:
    kept = {"topologyKey": "rack", "minDomains": 2, field: "Keep"}
    given = [policy_json("bad-day", podSelector={}, spread=[kept, {"topologyKey": "zone", field: "Exclude"}])]
    augment = command.write("extender.yaml", CONFIGURATION | {"mode": "augment"})
    (warning,) = command.on(given, "--config", augment).document["policies"][0]["warnings"]
    assert warning.startswith("spec.spread[1]: excludes no domain")
    assert command.on(given).document["policies"][0]["warnings"] == []
    off = command.write("extender.yaml", CONFIGURATION | {"rules": {"topologySpread": {"enabled": False}}})
    assert len(command.on(given, "--config", off).document["policies"][0]["warnings"]) == 1


def test_a_pod_is_shown_as_a_diff_with_the_policy_of_each_field_and_the_nodes_that_match(command: Command) -> None:
    given = command.write("policy.yaml", policy_json("pool", **POOL))
    cluster = command.snapshot(*NODES, *NAMESPACES)
    found = command(given, "--pod", command.write("pod.yaml", pod()), "--snapshot", cluster)
    lines = found.out.splitlines()
    assert (found.code, found.err, lines[0]) == (0, "", "Pod shop/p")
    assert [line for line in lines if line.startswith("+ ")] == [
        "+  tolerations:",
        "+  - key: pool",
        "+    operator: Exists",
        "+  nodeSelector:",
        "+    pool: a",
    ]
    assert lines[-6:] == [
        "  FIELD         POLICY",
        "  tolerations   ClusterPodSchedulingPolicy/pool",
        "  nodeSelector  ClusterPodSchedulingPolicy/pool",
        "  nodes: 1 of 3 match, 2 before: n1; 2 node(s) didn't match Pod's node affinity/selector",
        "",
        "1 object: 1 changed, 0 refused",
    ]


def test_the_wide_form_names_every_node_that_matches(command: Command) -> None:
    given = command.write("policy.yaml", policy_json("pool", tolerations=[{"key": "pool", "operator": "Exists"}]))
    cluster = command.snapshot(*NAMESPACES, *(node(f"n{number}") for number in range(7)))
    arguments = (given, "--pod", command.write("pod.yaml", pod()), "--snapshot", cluster)
    assert "nodes: 7 of 7 match, 7 before: n0, n1, n2, n3, n4 and 2 more\n" in command(*arguments).out
    assert "nodes: 7 of 7 match, 7 before: n0, n1, n2, n3, n4, n5, n6\n" in command(*arguments, "-o", "wide").out


def test_a_pod_that_fits_no_node_any_more_gives_1(command: Command) -> None:
    cluster = command.snapshot(*NODES[1:])
    found = command.on([policy_json(**POOL)], "--snapshot", cluster)
    (tested,) = found.document["objects"]
    assert (found.code, tested["result"]) == (1, "mutated")
    assert tested["nodes"] == {
        "matching": [],
        "total": 2,
        "rejected": {"node(s) didn't match Pod's node affinity/selector": 2},
        "matchingBefore": ["n2", "n3"],
    }
    (policy,) = found.document["policies"]
    assert policy["warnings"] == ["spec: no node matches the node selector and the required node affinity now"]


@pytest.mark.parametrize(
    ("conflict_policy", "result", "kept"),
    [("KeepPod", "mutated", "b"), ("Override", "mutated", "a"), ("Reject", "denied", None)],
)
def test_a_conflict_gives_1_and_is_named(command: Command, conflict_policy: str, result: str, kept: str | None) -> None:
    policies = [policy_json(**POOL, conflictPolicy=conflict_policy)]
    found = command.on(policies, obj=pod({"nodeSelector": {"pool": "b"}}))
    (tested,) = found.document["objects"]
    assert (found.code, tested["result"]) == (1, result)
    if kept is None:
        assert "nodeSelector[pool]" in tested["refusal"]
        assert tested["admitted"] is None
    else:
        (conflict,) = tested["conflicts"]
        assert (conflict["field"], conflict["resolution"]) == ("nodeSelector[pool]", conflict_policy)
        assert tested["admitted"]["spec"]["nodeSelector"] == {"pool": kept}


def test_a_policy_in_mode_audit_changes_nothing_and_its_conflicts_are_reported(command: Command) -> None:
    found = command.on([policy_json(**POOL, mode="Audit")], obj=pod({"nodeSelector": {"pool": "b"}}))
    (tested,) = found.document["objects"]
    assert (found.code, tested["result"]) == (1, "allowed")
    assert [each["field"] for each in tested["conflicts"]] == ["nodeSelector[pool]"]
    assert "tolerations" in tested["notes"]["audited"]


def test_an_invalid_policy_gives_1_with_its_field_and_the_others_are_applied(command: Command) -> None:
    given = command.write("policies.yaml", policy_json("bad", when=["Later"]), policy_json("good", **POOL))
    found = command(given, "--pod", command.write("pod.yaml", pod()))
    assert found.code == 1
    assert f"{given}: ClusterPodSchedulingPolicy/bad: spec.when[0]: " in found.err
    assert "ClusterPodSchedulingPolicy/good" in found.out


def test_the_pods_of_a_namespace_are_tested_as_if_they_were_created_again(command: Command) -> None:
    policies = [policy_json("pool", namespaceSelector={"matchLabels": {"team": "a"}}, **POOL)]
    old = command.on(policies, "--snapshot", command.snapshot(*NAMESPACES), obj=pod())
    (injected,) = old.document["objects"]
    running = injected["admitted"]
    running["spec"]["nodeName"] = "n2"
    running |= {"status": {"phase": "Running"}}
    finished = pod(name="done") | {"status": {"phase": "Succeeded"}}
    elsewhere = pod(name="elsewhere", namespace="lab")
    cluster = command.snapshot(*NODES, *NAMESPACES, running, finished, elsewhere)
    changed = command.write("changed.yaml", policy_json("pool", nodeSelector={"pool": "b"}))
    found = command(changed, "--namespace", "shop", "--snapshot", cluster, "-o", "json")
    (tested,) = found.document["objects"]
    assert (found.code, tested["object"]) == (0, "Pod shop/p")
    assert tested["admitted"]["spec"] == pod()["spec"] | {"nodeSelector": {"pool": "b"}}
    assert tested["nodes"]["matching"] == ["n2"]


async def test_a_cluster_gives_the_same_as_its_snapshot_in_any_number_of_pages(command: Command) -> None:
    objects = [*NODES, *(node(f"more-{number}") for number in range(600)), *NAMESPACES, pod()]
    given = command.write("policy.yaml", policy_json(namespaceSelector={"matchLabels": {"team": "a"}}, **POOL))
    async with ApiServer() as api:
        api.store.load(json.loads(json.dumps(objects)))
        kubeconfig = str(api.write_kubeconfig(command.folder / "kubeconfig"))
        arguments = (given, "--namespace", "shop", "-o", "json", "--kubeconfig", kubeconfig)
        live = await asyncio.to_thread(command, *arguments)
    saved = await asyncio.to_thread(command, *arguments[:-2], "--snapshot", command.snapshot(*objects))
    (one,), (other,) = live.document["objects"], saved.document["objects"]
    assert (live.code, saved.code, one["nodes"]["total"]) == (0, 0, 603)
    assert {name: one[name] for name in ("result", "fields", "conflicts", "nodes")} == {
        name: other[name] for name in ("result", "fields", "conflicts", "nodes")
    }


def test_a_cluster_that_cannot_be_read_is_an_error_of_one_line(command: Command) -> None:
    given = command.write("policy.yaml", policy_json(**POOL))
    found = command(given, "--namespace", "shop", "--kubeconfig", str(command.folder / "none"))
    assert (found.code, found.err.count("\n")) == (1, 1)


def test_what_is_no_pod_in_a_snapshot_is_named_and_left_out(command: Command) -> None:
    broken: list[Any] = [7, {"kind": "Pod"}, {"kind": "Pod", "metadata": 1}, {**pod(), "spec": 1}]
    given = command.write("policy.yaml", policy_json(**POOL))
    cluster = command.snapshot(*broken, *NODES, pod())
    found = command(given, "--namespace", "shop", "--snapshot", cluster, "-o", "json")
    assert (found.code, len(found.document["objects"])) == (0, 1)
    assert "items[0]" in found.err
    assert command(given, "--namespace", "empty", "--snapshot", cluster).err.endswith(
        "extender: namespace empty: no pods that are not finished\n"
    )


def test_yaml_is_the_resulting_pod_to_which_nothing_is_left_to_do(command: Command) -> None:
    given = command.write("policy.yaml", policy_json(**POOL))
    first = command(given, "--pod", command.write("pod.yaml", pod()), "-o", "yaml")
    admitted = yaml.safe_load(first.out)
    assert admitted["spec"]["nodeSelector"] == POOL["nodeSelector"]
    del admitted["metadata"]["annotations"]  # else it is taken as what was injected before
    second = command.on([policy_json(**POOL)], obj=admitted)
    assert (first.code, second.code, second.document["objects"][0]["result"]) == (0, 0, "allowed")


def test_a_template_is_tested_as_a_workload(command: Command) -> None:
    found = command.on([policy_json(**POOL, targets="Templates")], obj=workload())
    (tested,) = found.document["objects"]
    assert (found.code, template_spec(tested["admitted"])["nodeSelector"]) == (0, {"pool": "a"})


def test_a_pod_without_a_namespace_gets_the_one_of_the_flag(command: Command) -> None:
    nowhere = pod()
    del nowhere["metadata"]["namespace"]
    found = command.on([policy_json("own", "lab", **POOL)], "--namespace", "lab", obj=nowhere)
    assert found.document["objects"][0]["result"] == "mutated"


def test_two_policies_name_their_own_fields_in_order(command: Command) -> None:
    affinity = requiring(node_term(expression("disk", "In", "ssd")))
    policies = [policy_json("second", **POOL), policy_json("first", priority=1, affinity=affinity)]
    (tested,) = command.on(policies).document["objects"]
    assert [each["policy"].rpartition("/")[2] for each in tested["fields"]] == ["first", "second", "second"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--namespace", "shop"], ["--pod", "a", "--snapshot", "b", "--kubeconfig", "c"], ["--pod", "a", "-o", "xml"]],
    ids=["no pods", "no source", "two sources", "unknown format"],
)
def test_wrong_usage_gives_2(command: Command, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command(str(next(iter(TO_COPY.values()))), *arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ([{"kind": "ConfigMap"}], "kind: expected PodSchedulingPolicy or ClusterPodSchedulingPolicy, got ConfigMap"),
        ([policy_json("one"), policy_json("one")], "ClusterPodSchedulingPolicy/one is given twice"),
        ([], "expected Kubernetes objects"),
    ],
    ids=["another kind", "twice", "empty"],
)
def test_a_file_without_policies_is_an_error(command: Command, objects: list[Json], problem: str) -> None:
    given = command.write("policies.yaml", *objects)
    found = command(given, "--pod", command.write("pod.yaml", pod()))
    assert (found.code, found.err) == (1, f"extender: {given}: {problem}\n")


@dataclass
class Export(Command):
    """`extender policy export`, of one file."""

    def of(self, *policies: Json, config: str = "") -> Result:
        options = ["--config", config] if config else []
        path = self.write("policies.yaml", *policies)
        code = main(["policy", "export", "--as", "MutatingAdmissionPolicy", *options, path])
        output = self.capsys.readouterr()
        return Result(code, output.out, output.err)


CONFIGURATION = {"apiVersion": "placement.extender.dev/v1alpha1", "kind": "ExtenderConfiguration"}


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    return Export(tmp_path, capsys)


def test_an_exported_policy_has_its_binding_and_selects_what_the_webhook_would(export: Export) -> None:
    found = export.of(policy_json("pool", "shop", nodeSelector={"pool": "a"}, when=["Admission"]))
    policy, binding = yaml.safe_load_all(found.out)
    assert (found.code, found.err) == (0, "")
    assert binding["spec"]["policyName"] == policy["metadata"]["name"] == "placement.shop.pool"
    constraints = policy["spec"]["matchConstraints"]
    name = "kubernetes.io/metadata.name"
    assert constraints["namespaceSelector"] == {
        "matchLabels": {name: "shop"},
        "matchExpressions": [{"key": name, "operator": "NotIn", "values": ["kube-system"]}],
    }
    assert constraints["objectSelector"] == {}


def test_an_exported_policy_leaves_out_the_pods_of_its_conditions(export: Export) -> None:
    excluded = {"podSelector": {"matchLabels": {"app": "db"}, "matchExpressions": [expression("tier", "Exists")]}}
    body = policy_json("pool", nodeSelector={"pool": "a"}, when=["Admission"], matchConditions={"exclude": excluded})
    policy, _ = yaml.safe_load_all(export.of(body).out)
    (found,) = policy["spec"]["matchConditions"]
    assert found["name"] == "exclude-podselector"
    assert '"db"' in found["expression"]
    assert '"tier"' in found["expression"]


def test_a_field_that_no_expression_is_written_for_is_named(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.verbs.admit.native.SPEC_FIELDS", {**SPEC_FIELDS, "new": None})
    found = export.of(policy_json("pool", nodeSelector={"pool": "a"}, when=["Admission"], new="a"))
    assert (found.code, found.err.split(": ", 2)[2]) == (1, "left out: spec.new: no expression is written for it\n")


@pytest.mark.parametrize(("way", "keeps"), [("KeepPod", True), ("Override", False)])
def test_an_exported_policy_keeps_what_the_pod_has_unless_it_overrides(
    export: Export, way: str, *, keeps: bool
) -> None:
    """`tests/e2e/test_native_policy.py` plays both on a real API server."""
    found = export.of(policy_json("pool", nodeSelector={"pool": "a"}, when=["Admission"], conflictPolicy=way))
    policy, _ = yaml.safe_load_all(found.out)
    assert ('"pool" in object.spec.nodeSelector' in str(policy["spec"]["mutations"])) is keeps


def test_an_exported_policy_exempts_by_label_where_the_settings_do(export: Export) -> None:
    body = policy_json("pool", nodeSelector={"pool": "a"}, when=["Admission"])
    for label_in, selector, conditions in (
        ([], {}, 0),
        (["*"], {"matchExpressions": [{"key": EXEMPT_LABEL, "operator": "NotIn", "values": ["true"]}]}, 0),
        (["shop"], {}, 1),
    ):
        config = export.write("extender.yaml", CONFIGURATION | {"policies": {"exemptions": {"labelIn": label_in}}})
        found = export.of(body, config=config)
        policy, _ = yaml.safe_load_all(found.out)
        assert policy["spec"]["matchConstraints"]["objectSelector"] == selector
        assert len(policy["spec"]["matchConditions"]) == conditions
        assert all('request.namespace in ["shop"]' in each["expression"] for each in policy["spec"]["matchConditions"])


@pytest.mark.parametrize(
    ("spec", "left_out"),
    [
        ({"affinity": requiring(node_term(expression("a", "Exists")))}, "spec.affinity"),
        ({"priorityClassName": "high"}, "spec.priorityClassName"),
        ({"schedulerNames": ["a", "b"]}, "spec.schedulerNames"),
        ({"targets": "Both"}, "spec.targets"),
        ({"conflictPolicy": "Reject"}, "spec.conflictPolicy"),
        ({"priority": 5}, "spec.priority"),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, "spec.tolerations"),
        ({"mode": "Audit"}, "spec.mode"),
        ({"when": ["Scheduling"]}, "spec.when"),
        ({"podSelector": None}, "spec"),
        ({"when": ["Later"]}, "spec.when[0]"),
        ({"topologySpreadConstraints": [SOFT]}, "spec.topologySpreadConstraints"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_exported_is_named_and_gives_1(export: Export, spec: Json, left_out: str) -> None:
    found = export.of(policy_json(**{"nodeSelector": {"pool": "a"}, **spec}))
    assert found.code == 1
    assert f": left out: {left_out}: " in found.err


_FORGED = 'x": 1}, value: []}, JSONPatch{op: "add", path: "/spec/hostNetwork", value: true'


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"tolerations": [{"key": "a", "effect": "NoSchedule", _FORGED: 1}]}, f"spec.tolerations[0].{_FORGED}"),
        (
            {"topologySpreadConstraints": [{**HARD, "labelSelector": {_FORGED: {}}}]},
            f"spec.topologySpreadConstraints[0].labelSelector.{_FORGED}",
        ),
        ({"schedulingGates": [{"name": "a.b/c", _FORGED: 1}]}, f"spec.schedulingGates[0].{_FORGED}"),
        ({"podSelector": {"matchLabels": {}, _FORGED: 1}}, f"spec.podSelector.{_FORGED}"),
    ],
    ids=["toleration", "spread", "gate", "selector"],
)
def test_a_name_that_is_no_field_becomes_no_part_of_an_exported_policy(export: Export, spec: Json, path: str) -> None:
    """The names of fields stand in CEL without quotes."""
    found = export.of(policy_json(when=["Admission"], **{"nodeSelector": {"pool": "a"}, **spec}))
    assert "hostNetwork" not in found.out
    assert "MutatingAdmissionPolicy" in found.out
    assert f"left out: {path}: unknown field\n" in found.err
    assert found.code == 1


def test_a_field_of_a_toleration_that_is_none_is_an_error_of_the_policy(command: Command) -> None:
    """The webhook refuses such a policy. What has no effect is a warning."""
    spec: dict[str, Any] = {
        "podSelector": {"matchLabel": {"app": "web"}},
        "matchConditions": {"exclude": {"ownerKind": ["DaemonSet"]}},
        "tolerations": [{"key": "a", "effect": "NoSchedule", "valeu": "b"}],
    }
    given = command.write("policies.yaml", policy_json(**spec))
    found = command(given, "--pod", command.write("pod.yaml", pod()))
    assert found.code == 1
    assert "spec.tolerations[0].valeu: Forbidden: unknown field\n" in found.err
    del spec["tolerations"]
    warned = command(
        command.write("policies.yaml", policy_json(nodeName="n", **spec)), "--pod", command.write("p.yaml", pod())
    )
    invalid = command(
        command.write("policies.yaml", policy_json(nodeName="n_n", **spec)), "--pod", command.write("p.yaml", pod())
    )
    for each in (found, warned, invalid):
        assert "warning: spec.podSelector.matchLabel: unknown field, it has no effect\n" in each.err
        assert "warning: spec.matchConditions.exclude.ownerKind: unknown field, it has no effect\n" in each.err


@pytest.mark.parametrize(("given", "namespace"), [((), "default"), (("-n", "shop"), "shop")])
def test_a_policy_without_a_namespace_is_tested_in_the_one_that_kubectl_would_give_it(
    command: Command, given: tuple[str, ...], namespace: str
) -> None:
    policy = policy_json("pool", "removed", **POOL)
    del policy["metadata"]["namespace"]
    (found,) = command.on([policy], *given).document["policies"]
    assert (found["policy"], found["errors"]) == (f"PodSchedulingPolicy/{namespace}/pool", [])
    assert f"metadata.namespace: is absent: tested in the namespace {namespace}" in found["warnings"]


@pytest.mark.parametrize("metadata", [None, "text", {}])
def test_a_policy_without_metadata_is_an_error_that_names_the_field(command: Command, metadata: object) -> None:
    (found,) = command.on([policy_json("pool", **POOL) | {"metadata": metadata}]).document["policies"]
    assert found["errors"][0].startswith("metadata")


def test_an_exported_name_that_would_be_too_long_is_left_out(export: Export) -> None:
    """Namespace and name are one name there, of at most 253 characters."""
    found = export.of(policy_json("p" * 240, "shop", nodeSelector={"pool": "a"}, when=["Admission"]))
    assert (found.code, found.out) == (1, "")
    assert "left out: metadata.name: placement.shop." in found.err
    assert found.err.endswith("… would have 255 characters, 253 are allowed\n")
    assert export.of(policy_json("p" * 238, "shop", nodeSelector={"pool": "a"}, when=["Admission"])).code == 0


@pytest.mark.parametrize("name", ["metadata", "spec"])
def test_a_pod_without_a_part_is_an_error(command: Command, name: str) -> None:
    broken = {**pod(), name: "x"}
    given = command.write("policies.yaml", policy_json(**POOL))
    found = command(given, "--pod", command.write("pod.yaml", broken))
    assert (found.code, found.err) == (1, f"extender: {command.folder / 'pod.yaml'}: {name}: expected an object\n")


def test_the_example_of_the_readme_prints_what_stands_below_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = README.read_text("utf-8")
    found = re.search(
        r"    extender policy test ([^\n]+) <<'END'\n((?:    [^\n]*\n)+?)    END\n\n```text\n(.+?)```", text, re.DOTALL
    )
    assert found
    arguments, typed, printed = found.groups()
    typed = re.sub("^    ", "", typed, flags=re.MULTILINE)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
    monkeypatch.chdir(README.parents[2])
    result = command(*arguments.split())
    assert (result.code, result.out) == (0, printed)


def test_the_job_of_the_document_waits_at_the_gate_of_the_policy_beside_it(command: Command) -> None:
    found = re.search(
        r"^ *```yaml\n( *apiVersion: batch/v1\n.*?)^ *```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found
    job = command.write("job.yaml", yaml.safe_load(found[1]))
    result = command(str(README.parent / "spot-then-on-demand.yaml"), "--pod", job)
    assert result.code == 0
    assert "with its group night (20 of 20 pods)" in result.out


# -- `extender policy test` about what admission does not inject: what a pod is held to at scheduling, its nodes and
#    scores

LATER: dict[str, Any] = {"when": ["Scheduling"]}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def held_to(directive: str) -> Json:
    """At scheduling, where the nodes are not known."""
    return {"scheduling.directives": [directive], "scheduling.matching": None}


def test_a_policy_for_scheduling_shows_the_nodes_that_it_leaves_and_those_that_it_prefers(command: Command) -> None:
    cluster = command.snapshot(*NODES, node("n4", pool="c"), *NAMESPACES)
    given = command.write("policy.yaml", policy_json("later", affinity={**SSD, **both()}, **LATER))
    found = command(given, "--pod", command.write("pod.yaml", pod()), "--snapshot", cluster)
    assert (found.code, found.err) == (0, "")
    excluded = "1 node(s) didn't match scheduling policy; 1 node(s) had untolerated taint(s)"
    assert found.out.splitlines() == [
        "Pod shop/p",
        "  nothing to do: no policy changes it at admission",
        "  nodes: 3 of 4 match, 3 before: n2, n3, n4; 1 node(s) had untolerated taint(s)",
        "  held at scheduling: required nodes, preferred nodes by ClusterPodSchedulingPolicy/later",
        "  preferred at scheduling: n2 57, n4 7",
        f"  at scheduling, nodes: 2 of 4 match: n2, n4; {excluded}",
        "",
        "1 object: 0 changed, 0 refused",
    ]


HARD_LATER = {"topologySpreadConstraints": [{**SOFT, "whenUnsatisfiable": "DoNotSchedule"}], **LATER}
REJECTING = {"nodeSelector": {"pool": "a"}, "conflictPolicy": "Reject", **LATER}
OF_B = {"nodeSelector": {"pool": "b"}}
REFUSED = "pod contradicts a scheduling policy that rejects such pods"
# The policy, the spec of the pod, the nodes where they are known, the exit code, and fields of the result.
TESTED: dict[str, tuple[Json, Json, list[Json], int, Json]] = {
    "a policy for other pods": (
        {"podSelector": {"matchLabels": {"app": "other"}}, **POOL}, {}, [], 0,
        {"result": "allowed", "fields": [], "nodes": None},
    ),
    "required nodes": (OF_B | LATER, {}, [], 0, held_to("required nodes")),
    "preferred nodes": ({"affinity": PREFERRED, **LATER}, {}, [], 0, held_to("preferred nodes")),
    "pod anti-affinity": ({"affinity": APART, **LATER}, {}, [], 0, held_to("pod affinity or anti-affinity")),
    "topology spread": (HARD_LATER, {}, [], 0, held_to("topology spread")),
    "a constraint that no pod can carry, whatever the moments": (
        {"topologySpreadConstraints": [SOFT]}, {}, [], 0, held_to("topology spread"),
    ),
    "what admission has injected is not repeated": (POOL, {}, NODES, 0, {"result": "mutated", "scheduling": None}),
    "no node is left at scheduling": (
        {"nodeSelector": {"pool": "none"}, **LATER}, {}, NODES[1:], 1,
        {"nodes.matching": ["n2", "n3"], "scheduling.matching": []},
    ),
    "a policy refuses the pod at scheduling": (REJECTING, OF_B, [], 1, {"scheduling.refused": REFUSED}),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "of_pod", "nodes", "code", "expected"), TESTED.values(), ids=TESTED)
def test_what_becomes_of_a_pod(
    command: Command, spec: Json, of_pod: Json, nodes: list[Json], code: int, expected: Json
) -> None:
    snapshot = ["--snapshot", command.snapshot(*nodes)] if nodes else []
    found = command.on([policy_json(**spec)], *snapshot, obj=pod(of_pod))
    (tested,) = found.document["objects"]
    fields = {path: reduce(lambda part, name: part[name], path.split("."), tested) for path in expected}
    assert (found.code, fields) == (code, expected)
