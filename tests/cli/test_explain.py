"""`extender explain` as a user runs it: ten pods that are pending for ten reasons, a snapshot, and what it says of errors."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
import pytest
import pytest_asyncio
import yaml

from extender.cli.main import main
from extender.cli.simulate import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.compose.embedded import service_running
from extender.model.group_placements import PlacementStatus
from extender.model.release import RELEASE_GATE, GroupDecision, GroupKey, GroupPhase, Level
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.wire.policies.group_placements import decision_body, status_body
from tests.builders import CONTAINER, Json, node_json, pod_json, requirement, spread, taint
from tests.builders import term as required_term
from tests.gangs import gated_json
from tests.policies import policy_json
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, namespace, node, pod, term

README: Final = Path("README.md").read_text("utf-8")
HOW_TO: Final = Path("config/how-to/explain.md").read_text("utf-8")
ROOT: Final = str(Path.cwd())
TEMPLATES: Final = Path("config/how-to/what-if.md").read_text("utf-8")
SCENARIO: Final = "config/scenarios/pending.yaml"
# By pod: the rule and the reason that reject the untainted nodes, and words of the printed explanation.
CAUSES: Final = {
    "no-cache": ("InterPodAffinity", "affinity", ["app=cache", "label team=shop on namespace data"]),
    "avoids-agents": ("InterPodAffinity", "anti_affinity", ["kube-agents/agent-old-0", "namespaceSelector {}"]),
    "is-loud": ("InterPodAffinity", "existing_anti_affinity", ["carried by shop/quiet-old-", "noise=loud"]),
    "uneven-ledger": (
        "PodTopologySpread",
        "spread_skew",
        ["maxSkew 1: a domain may have at most 0", "reserved=yes:NoSchedule"],
    ),
    "too-few-zones": ("PodTopologySpread", "spread_skew", ["minDomains 4: more than the eligible domains"]),
    "no-racks": (
        "PodTopologySpread",
        "spread_label_missing",
        ["example.com/rack", "3 nodes lack the label, which reject it"],
    ),
    "missed-policy": ("SchedulingPolicy", "policy", ["lab-nodes"]),
    "above-a-limit": ("Limits", "over_limit", ["limits.topologyKeys is 16"]),
    "too-large": ("NodeFit", "no_room", ["more room on general-", "cpu"]),
    "no-gpu": ("NodeFit", "node_affinity", ["didn't match Pod's node affinity/selector"]),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scenario() -> AsyncIterator[str]:
    """The URL of the service beside the scenario, after every pod was tried."""
    play = read_scenario(SCENARIO)
    async with (
        SimulatedCluster(play, 1, read_objects(play, SCENARIO)) as simulated,
        service_running(scenario_settings(play, SCENARIO), simulated.api.url, 1, simulated.clock) as (url, service),
    ):
        await lead_to_webhook(simulated, service)
        await simulated.begin(url)
        player = Player(simulated, lambda _text: None)
        await player.run(play.steps)
        assert not (await player.finish()).failures
        await simulated.stop_scheduling()
        yield url


async def running_main(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command beside the scenario, and what it printed."""
    code = await asyncio.to_thread(main, list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


async def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code of the command, and what it printed."""
    return await running_main(capsys, "explain", *arguments)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", CAUSES)
async def test_each_of_the_ten_pending_pods_has_its_cause_named(
    scenario: str, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    rule, reason, words = CAUSES[name]
    code, table, _ = await explain(capsys, f"shop/{name}", "--url", scenario)
    assert code == 0
    assert [word for word in words if word not in table] == []
    _, document, _ = await explain(capsys, f"shop/{name}", "--url", scenario, "-o", "json", "--node", "general-0")
    found = orjson.loads(document)
    assert (found["state"], found["nodes"], found["fitting"]) == ("pending", 3, 0)
    by_node = {(each["rule"], each["reason"]) for each in found["node"]["obstacles"]}
    assert by_node == {(rule, reason)}
    obstacles = {(each["rule"], each["reason"]): each.get("nodes", 1) for each in found["obstacles"]}
    assert obstacles[rule, reason] >= 2


def of_this_moment(table: str) -> str:
    """As if the scheduler had asked two seconds ago, as in the document."""
    return re.sub(r"\d+ (s|minutes?) ago", "2 s ago", table)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_readme_shows_what_explain_prints(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, table, _ = await explain(capsys, "shop/no-cache", "--url", scenario)
    assert f"```text\n{of_this_moment(table)}```" in README


@pytest.mark.asyncio(loop_scope="module")
async def test_the_how_to_shows_what_would_help_and_a_what_if_agrees(
    scenario: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.findall(r"```text\n((?:.*\n)*?)```", HOW_TO)
    ((name, content),) = re.findall(r"cat > (\S+) <<'END'\n(.*?)^ +END$", HOW_TO, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath(name).write_text(content, "utf-8")
    _, table, _ = await explain(capsys, "shop/too-few-zones", "--url", scenario)
    assert table.endswith(f"\n\n{shown[0]}")
    code, printed, _ = await running_main(capsys, "whatif", "-f", name, "--url", scenario)
    assert (code, shown[1] in printed) == (0, True)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_service_says_what_it_does_not_know(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = await explain(capsys, "shop/none", "--url", scenario)
    assert (code, "pod shop/none is not known" in said) == (1, True)
    code, _, said = await explain(capsys, "shop/no-gpu", "--node", "n9", "--url", scenario)
    assert (code, "node n9 is not known" in said) == (1, True)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_pod_that_does_not_exist_yet_is_explained_from_its_manifest(
    scenario: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(pod("new", "shop", cpu="100m")))
    code, table, _ = await explain(capsys, "-f", str(path), "--url", scenario)
    assert (code, table.splitlines()[:2]) == (0, ["shop/new: does not exist", "2 of 3 nodes would take it now"])


@pytest.mark.asyncio(loop_scope="module")
async def test_the_namespace_of_a_pod_may_be_given_apart(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, table, _ = await explain(capsys, "no-cache", "-n", "shop", "--url", scenario)
    assert f"```text\n{of_this_moment(table)}```" in README


async def test_a_snapshot_explains_the_same_without_a_service(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    alone = anti_affinity(term(HOSTNAME, app="web"))
    objects = [
        namespace("default"),
        node("node-a", "z1"),
        node("node-b", "z2", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        pod("web-1", on="node-a", labels={"app": "web"}),
        pod("web-2", labels={"app": "web"}, affinity=alone),
    ]
    path = tmp_path / "cluster.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    code, text, _ = await explain(capsys, "default/web-2", "--snapshot", str(path), "-o", "yaml")
    found = yaml.safe_load(text)
    assert (code, found["passing"]) == (0, 1)
    assert [(each["domain"], each["count"], each["passes"]) for each in found["constraints"][0]["domains"]] == [
        ("node-a", 1, False),
        ("node-b", 0, True),
    ]
    assert [each["kind"] for each in found["changes"]] == ["removeTaints", "addNode"]
    code, text, _ = await explain(capsys, "default/web-1", "--snapshot", str(path))
    assert (code, text) == (0, "default/web-1: on node node-a\n")


@pytest.mark.parametrize("arguments", [[], ["web-1"], ["a/b/c"], ["a/b", "-f", "pod.yaml"]])
async def test_a_command_without_one_pod_is_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    assert ended.value.code == 2


async def test_a_service_that_is_not_there_has_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = await explain(capsys, "a/b", "--url", "http://127.0.0.1:1")
    assert (code, "cannot be reached" in said, "check that it runs" in said) == (1, True, True)


# -- `extender whatif` as a user runs it: what README shows, a snapshot, and what it says of errors --------------------

ROOM: Final = {"cpu": "2", "memory": "1Gi", "pods": "3"}


def blocks() -> Iterator[tuple[str, str]]:
    """The commands of README's section, each with the output that follows."""
    section = README.partition("### What if?")[2].partition("\n### ")[0]
    for commands, output in re.findall(r"((?:^    .*\n)+)\n```text\n((?:.*\n)*?)```", section, re.MULTILINE):
        yield re.sub(r"^    ", "", commands, flags=re.MULTILINE), output


@pytest.mark.asyncio(loop_scope="module")
async def test_the_readme_shows_what_whatif_prints(
    scenario: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = list(blocks())
    assert len(shown) == 2
    for commands, output in shown:
        for name, content in re.findall(r"cat > (\S+) <<'END'\n(.*?)^END$", commands, re.MULTILINE | re.DOTALL):
            tmp_path.joinpath(name).write_text(content, "utf-8")
        (arguments,) = re.findall(r"^\.venv/bin/extender (.*)$", commands, re.MULTILINE)
        code, printed, _ = await running_main(capsys, *arguments.split(), "--url", scenario)
        assert (code, printed) == (0, output)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_how_to_shows_which_template_of_a_node_helps_pending_pods(scenario: str, tmp_path: Path) -> None:
    section = TEMPLATES.partition("## Would one more node help?")[2]
    typed = "".join(line[4:] + "\n" for line in section.splitlines() if line.startswith("    "))
    (shown,) = re.findall(r"```text\n((?:.*\n)*?)```", section)
    program = f'{shlex.quote(sys.executable)} -c "from extender.cli.main import main; raise SystemExit(main())"'
    here = (
        f'export PYTHONPATH={shlex.quote(ROOT)}\nextender() {{ {program} "$@" --url {scenario}; }}\nsleep() {{ :; }}\n'
    )
    running = await asyncio.create_subprocess_exec(
        "sh", "-c", here + typed, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await running.communicate()
    assert printed.decode() == shown


@pytest.mark.asyncio(loop_scope="module")
async def test_a_bad_change_is_named(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = await running_main(capsys, "whatif", "--delete", "node/none", "--url", scenario)
    assert (code, "delete[0].name: Node none is not known" in said) == (1, True)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """A file with two nodes, one of which is full, and a pending pod that fits on none."""
    objects = [
        node_json("n0", allocatable=ROOM) | {"kind": "Node"},
        node_json("n1", allocatable=ROOM) | {"kind": "Node"},
        pod_json("old", on="n0", requests={"cpu": "2"}, owner=("ReplicaSet", "old")) | {"kind": "Pod"},
        pod_json("large", requests={"cpu": "4"}) | {"kind": "Pod"},
    ]
    path = tmp_path / "cluster.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    return str(path)


def test_a_snapshot_gives_the_same_without_a_service(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "--snapshot", snapshot, "--delete", "node/n0"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 placed, 1 rejected, 1 displaced from their nodes",
        "",
        "  POD            WHY ASKED  WAS ON  GOES TO   REASON",
        "  default/old    displaced  n0      n1",
        "  default/large  pending    -       rejected  0/1 nodes are available: 1 node(s) had too few resources left.",
    ]


def test_the_wide_form_has_what_rejects_a_pod_and_what_is_not_checked(
    snapshot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", "--snapshot", snapshot, "--delete", "node/n0", "-o", "wide"]) == 0
    heading, placed, rejected = capsys.readouterr().out.splitlines()[2:]
    assert re.split(" {2,}", heading)[-3:] == ["BECAUSE OF", "NOT CHECKED", "REASON"]
    assert (placed.split()[-2:], rejected.split()[4:6]) == (["-", "-"], ["cpu", "-"])
    assert main(["explain", "default/large", "--snapshot", snapshot, "-o", "wide"]) == 0
    cells = [re.split(" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()[4:6]]
    found = dict(zip(*cells, strict=True))
    assert (found["CODE"], found["TOPOLOGY KEY"], found["BECAUSE OF"]) == ("no_room", "-", "cpu")


@pytest.mark.parametrize("by", ["operator", "taint", "given"])
def test_a_what_if_names_the_domain_that_is_excluded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, by: str
) -> None:
    lost = [taint("node.kubernetes.io/unreachable") | {"timeAdded": "2026-01-01T00:00:00Z"}] if by == "taint" else []
    excluded = [{"domain": "z2", "reason": "new switches", "since": "2026-01-01T00:00:00Z"}] if by != "taint" else []
    waiting = pod_json("waiting", app="web", spreads=[spread("zone", app="web")], tolerations=[{"operator": "Exists"}])
    waiting["spec"]["nodeSelector"] = {ZONE: "z2"}
    directive = {"topologyKey": ZONE, "unavailableDomains": "Exclude"}
    objects = [
        node_json("n1", zone="z1", allocatable=ROOM) | {"kind": "Node"},
        node_json("n2", zone="z2", allocatable=ROOM, taints=lost) | {"kind": "Node"},
        waiting | {"kind": "Pod"},
        policy_json("all", podSelector={}, namespaceSelector={}, spread=[directive]),
    ]
    domains = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "TopologyDomains",
        "metadata": {"name": "zones"},
        "spec": {"topologyKey": ZONE, "domains": ["z1", "z2"], "excluded": excluded},
    }
    given = tmp_path / "domains.yaml"
    given.write_text(yaml.safe_dump(domains))
    objects += [] if by == "given" else [domains]
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "{apiVersion: placement.extender.dev/v1alpha1, kind: ExtenderConfiguration, policies: {enabled: true}}"
    )
    path = tmp_path / "cluster.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    manifest = ["-f", str(given)] if by == "given" else []
    assert main(["whatif", "--snapshot", str(path), "--config", str(settings), "-o", "wide", *manifest]) == 0
    printed = capsys.readouterr().out
    since = "2026-01-01T00:00:00Z"
    why = f"z2: excluded since {since}: new switches" if by != "taint" else f"z2: no node takes pods since {since}"
    assert why in printed
    assert "1 node(s) were in an excluded topology domain" in printed


GIVEN = pod_json("new", spreads=[spread("zone", 1, app="web")]) | {"kind": "Pod", "apiVersion": "v1"}
LIMITED = {"containers": [CONTAINER | {"resources": {"limits": {"cpu": "400", "nvidia.com/gpu": "1"}}}]}


@pytest.mark.parametrize("command", ["explain", "whatif"])
def test_a_given_pod_is_completed_as_the_api_server_does(
    command: str, snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(pod_json("limited") | {"kind": "Pod", "spec": LIMITED}))
    assert main([command, "-f", str(path), "--snapshot", snapshot]) == 0
    printed = capsys.readouterr().out
    assert "too few resources" in printed
    assert "would take it now" not in printed


@pytest.mark.parametrize("command", ["explain", "whatif"])
def test_a_given_pod_that_the_api_server_refuses_is_an_error_with_the_path(
    command: str, snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, pod = tmp_path / "pod.yaml", deepcopy(GIVEN)
    pod["spec"]["topologySpreadConstraints"][0] |= {"whenUnsatisfiable": "DoNotScheduled"}
    path.write_text(yaml.safe_dump(pod))
    assert main([command, "-f", str(path), "--snapshot", snapshot]) == 1
    place = "spec.topologySpreadConstraints[0].whenUnsatisfiable"
    assert f'{place}: Unsupported value: "DoNotScheduled"' in capsys.readouterr().err


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_manifests_are_objects_to_add_and_the_output_has_other_forms(
    snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(node_json("n2", allocatable={"cpu": "8", "pods": "9"}) | {"kind": "Node"}))
    assert main(["whatif", "--snapshot", snapshot, "-f", str(path), "-o", form]) == 0
    printed = capsys.readouterr().out
    found = orjson.loads(printed) if form == "json" else yaml.safe_load(printed)
    # Every field, so that a script finds it in each answer. The API omits fields that have their default.
    rest = {"was": "", "reason": "", "obstacles": [], "unchecked": ""}
    placed = {"pod": "default/large", "state": "placed", "origin": "pending", "node": "n2"}
    assert found["placements"] == [placed | rest]
    assert found["summary"] == {"placed": 1, "rejected": 0, "displaced": 0, "gone": 0, "gated": 0, "notTried": 0}


def test_pods_of_a_deleted_node_may_be_gone(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "--snapshot", snapshot, "--delete", "node/n0", "--displaced", "gone"]) == 0
    assert "default/old    displaced  n0      gone" in capsys.readouterr().out


def test_where_the_replacement_of_an_evicted_pod_would_go(
    snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command of config/explanation/other-controllers.md."""
    path = tmp_path / "replacement.yaml"
    path.write_text(yaml.safe_dump(pod_json("new", requests={"cpu": ROOM["cpu"]}) | {"kind": "Pod"}))
    arguments = ["--snapshot", snapshot, "-f", str(path), "--delete", "pod/default/old", "--delete", "node/n1"]
    assert main(["whatif", *arguments, "--no-pending"]) == 0
    assert "default/new  given      -       n0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"aply": []}, "object contains unknown field aply"),
        ({"apply": [{"kind": "Pod", "metadata": {}}]}, "apply[0].metadata.name: is missing"),
        (
            {"apply": [{"kind": "Secret", "metadata": {"name": "a"}}]},
            "apply[0].kind: expected a kind that decisions read",
        ),
        ({"apply": [node_json("n5") | {"kind": "Node"}]}, "apply[0].status.allocatable: is missing"),
        ({"delete": [{"kind": "Pod", "name": "none"}]}, "delete[0].name: Pod default/none is not known"),
        ({"delete": [{"kind": "Node", "name": "n0", "namespace": "a"}]}, "delete[0].namespace: Node has none"),
        ({"place": {"limit": -1}}, "place.limit"),
        ({"displaced": "moved"}, "displaced"),
    ],
)
def test_a_field_at_fault_is_named(
    snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, document: object, problem: str
) -> None:
    path = tmp_path / "changes.yaml"
    path.write_text(yaml.safe_dump(document))
    assert main(["whatif", "--snapshot", snapshot, "-f", str(path)]) == 1
    said = capsys.readouterr().err
    assert problem in said.replace("`", "")
    assert str(path) in said


def test_nodes_are_drained_and_cordoned(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("n0", "node/n0", "nodes/n0"):
        assert main(["whatif", "--snapshot", snapshot, "--drain", name, "--no-pending"]) == 0
        assert "default/old  displaced  n0      n1" in capsys.readouterr().out
    assert main(["whatif", "--snapshot", snapshot, "--drain", "n0", "--cordon", "n1", "--no-pending"]) == 0
    assert "0/2 nodes are available: 2 node(s) were unschedulable." in capsys.readouterr().out
    assert main(["whatif", "--snapshot", snapshot, "--cordon", "none"]) == 1
    assert "--cordon: cordon[0]: Node none is not known" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["whatif", "--snapshot", snapshot, "--drain", "pod/n0"])


def test_a_workload_is_placed_in_the_namespace_that_is_named_and_notes_are_printed(
    snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [CONTAINER]}}
    document = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}}
    path = tmp_path / "db.yaml"
    path.write_text(yaml.safe_dump(document | {"spec": {"replicas": 2, "template": template}}))
    assert main(["whatif", "--snapshot", snapshot, "-f", str(path), "-n", "shop", "--no-pending"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2 placed, 0 rejected\n")
    assert "shop/db-1  given" in printed
    path.write_text(yaml.safe_dump(document | {"spec": {"selector": {"matchLabels": {"app": "db"}}}}))
    assert main(["whatif", "--snapshot", snapshot, "-f", str(path), "--no-pending"]) == 0
    assert "note: StatefulSet default/db has no spec.template" in capsys.readouterr().out


def test_an_object_to_delete_may_be_named_by_the_plural(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("node", "nodes", "Node"):
        assert main(["whatif", "--snapshot", snapshot, "--delete", f"{kind}/n0", "--no-pending"]) == 0
        assert "1 displaced from their nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "incoming", "others", "lines"),
    [
        pytest.param(
            {"disk": "hdd"},
            {"node_selector": {"disk": "ssd"}},
            [],
            ["didn't match Pod's node affinity/selector  disk=ssd ", "because of disk=ssd"],
            id="a label that the node does not have",
        ),
        pytest.param(
            {},
            {"node_terms": [{"matchExpressions": [requirement("cores", "Gt", ["8"])]}, {"matchFields": []}]},
            [],
            ["because of cores>8, or 1 more term"],
            id="the first of several terms",
        ),
        pytest.param(
            {},
            {"host_ports": [80]},
            [{"name": "web", "host_ports": [80]}, {"name": "other", "host_ports": [8080]}],
            ["port 80/TCP, default/web ", "because of port 80/TCP, default/web"],
            id="the pod that holds a port",
        ),
        pytest.param(
            {ZONE: ""},
            {"apart": [required_term("zone", app="web")]},
            [{"name": "one", "app": "web"}],
            ['""      1      1     no ', f'{ZONE} ""; 1 counted, 0 would pass'],
            id="a domain whose value is empty",
        ),
        pytest.param(
            {ZONE: "a"},
            {"app": "web", "spreads": [spread("zone", 1, app="db", min_domains=2)], "requests": {"cpu": "9"}},
            [],
            ["its selector does not select the pod itself, so placing the pod changes no count"],
            id="a constraint that does not select its own pod",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    labels: Json,
    incoming: Json,
    others: list[Json],
    lines: list[str],
) -> None:
    objects = [node_json("n1", labels=labels, allocatable=ROOM) | {"kind": "Node"}]
    objects += [pod_json(on="n1", **without_ports(each)) | {"kind": "Pod"} for each in others]
    objects.append(pod_json("asking", **without_ports(incoming)) | {"kind": "Pod"})
    for body, each in zip(objects[1:], [*others, incoming], strict=True):
        ports = [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in each.get("host_ports", ())]
        body["spec"]["containers"] = [body["spec"]["containers"][0] | {"ports": ports}]
    path = tmp_path / "cluster.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    assert main(["explain", "default/asking", "--node", "n1", "--snapshot", str(path)]) == 0
    said = capsys.readouterr().out
    assert [line for line in lines if line not in said] == [], said


def without_ports(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if name != "host_ports"}


def test_a_deletion_that_violates_budgets_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "low", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "low"}}},
        "status": {"disruptionsAllowed": 0},
    }
    objects = [
        node_json("n1", allocatable=ROOM) | {"kind": "Node"},
        pod_json("old", on="n1", app="low", priority=0, requests={"cpu": "2"}) | {"kind": "Pod"},
        pod_json("late", priority=9, requests={"cpu": "2"}) | {"kind": "Pod"},
        budget,
    ]
    path = tmp_path / "cluster.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    assert main(["explain", "default/late", "--snapshot", str(path)]) == 0
    assert (
        "deleting 1 pod (default/old) of lower priority on n1: then it passes on n1, "
        "but it violates disruption budgets for 1 of the pods\n"
    ) in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["n0", "node", "node//", "secret/a", "pod/a/b/c"])
def test_an_object_to_delete_has_a_kind_and_a_name(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["whatif", "--delete", wrong])
    assert ended.value.code == 2
    assert f'expected KIND/NAME or KIND/NAMESPACE/NAME, got "{wrong}"' in capsys.readouterr().err


def test_a_gated_pod_says_with_which_group_it_waits_and_where_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = policy_json("gangs", podSelector={}, namespaceSelector={}, when=["Release"])
    policy["spec"]["release"] = {"topology": [ZONE], "group": {"label": "gang"}}
    key = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "a")
    body = decision_body(GroupDecision(key, RELEASE_GATE, 1, (Level(ZONE, "z1"),), datetime(2026, 1, 1, tzinfo=UTC)))
    status = PlacementStatus(GroupPhase.DEGRADED, 2, 1, 1, "DomainFull", "1 more than the size waits")
    placement = {**body, "status": status_body(status, datetime(2026, 1, 1, tzinfo=UTC))}
    placement["metadata"]["uid"] = "u"
    pods = gated_json("a-0", "a", on="n1", released="a"), gated_json("a-1", "a")
    items = [
        *(node(f"n{at}", f"z{at % 2}") for at in range(4)),
        *(policy, placement),
        *({"kind": "Pod", "apiVersion": "v1", **each} for each in pods),
    ]
    file = tmp_path / "cluster.json"
    file.write_bytes(orjson.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    assert main(["explain", "default/a-1", "--snapshot", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "default/a-1: gated",
        "2 of 4 nodes would take it without its gate",
        f"held at the gate of {key.policy} with its group a, which is Degraded: {status.message}",
        f"it goes to {ZONE}=z1, and nodes elsewhere do not count",
    ]
